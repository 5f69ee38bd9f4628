//! What the service manager that started Weir is told: systemd, or another that speaks its `sd_notify` protocol. Without
//! `NOTIFY_SOCKET` in the environment nobody is told anything.

use std::net::SocketAddr;

use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

/// The port is open: whoever is ordered after Weir may start.
pub(super) fn ready(at: SocketAddr) {
    tell(&[NotifyState::Ready, NotifyState::Status(&format!("listening on http://{at}"))]);
}

/// The configuration is being read again. systemd wants the time with it, by the clock that it uses itself.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => warn!("the service manager cannot be told of the reload: {}", error.kind()),
    }
}

/// The reload is over, whether or not it changed anything; `outcome` says which, in one line.
pub(super) fn reloaded(outcome: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(outcome)]);
}

/// Nothing more is accepted; turns that run may end.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("letting the running turns end")]);
}

/// Shows the service manager that the runtime still runs tasks, twice in the time after which it would take Weir for hung and
/// start it anew. Returns at once where it doesn't watch.
pub(super) async fn feed_watchdog() {
    let Some(patience) = sd_notify::watchdog_enabled().filter(|patience| patience.as_micros() > 1) else {
        return;
    };
    info!("the service manager is shown a sign of life twice in {}", humantime::format_duration(patience));
    let mut clock = tokio::time::interval(patience / 2);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        tell(&[NotifyState::Watchdog]);
    }
}

/// What can't be said is logged: a manager that waits for it in vain ends Weir, and nobody would know why.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!("the service manager at NOTIFY_SOCKET cannot be told anything: {}", error.kind());
    }
}
