//! `weir serve`: the adapter itself.

use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;
use tracing::{error, info, warn};

use super::{CommandError, classifier, report, service_manager, settings_or_search};
use crate::observe::Log;
use crate::observe::log_writer::LogWriter;
use crate::server::{Adapter, listener};
use crate::settings::{Format, Level, LogSettings, Places, Settings, variable};

pub(super) async fn run(config: Option<&Path>) -> Result<(), CommandError> {
    let settings = settings_or_search(config).await?;
    let log = start_log(&settings.log)?;
    let config = config.map(Path::to_owned);
    // Before the port is open: whoever sees Weir listening may signal it, and without this a hangup ends it.
    let hangup = signal(SignalKind::hangup()).map_err(no_signals)?;
    let reload = async move |adapter: Arc<Adapter>| reload_on_signal(hangup, &adapter, config.as_deref()).await;
    serve(settings, log.writer(), reload).await
}

/// Starts the log as the settings want it.
pub(super) fn start_log(settings: &LogSettings) -> Result<Log, CommandError> {
    let level = match settings.level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    Log::start(level, settings.format == Format::Json)
        .map_err(|error| CommandError::Failed(format!("there is no thread for the log: {}", error.kind())))
}

/// Opens the ports, says so, and serves until a signal. `beside` runs as long as that.
pub(super) async fn serve(
    settings: Settings,
    log: LogWriter,
    beside: impl AsyncFnOnce(Arc<Adapter>),
) -> Result<(), CommandError> {
    announce(&settings);
    let places = settings.places.clone();
    let (port, metrics_port) = (settings.port, settings.metrics.as_ref().map(|metrics| metrics.port));
    let classifier = classifier(&settings)?;
    let adapter = Adapter::new(settings, classifier).map_err(|error| CommandError::Configuration(error.to_string()))?;
    let stop = CancellationToken::new();
    stop_on_signal(stop.clone(), log.clone())?;
    let listener = open(port, &["port"], &places)?;
    let metrics = match metrics_port {
        Some(port) => Some(open(port, &["metrics", "port"], &places)?),
        None => None,
    };
    if let Some(at) = metrics.as_ref().and_then(|metrics| metrics.local_addr().ok()) {
        info!("metrics on http://{at}/metrics");
    }
    let at =
        listener.local_addr().map_err(|error| CommandError::Failed(format!("the port is lost: {}", error.kind())))?;
    // What stands before this line in the log is before it on a terminal, too.
    log.flush();
    println!("listening on http://{at}");
    service_manager::ready(at);
    tokio::spawn(service_manager::feed_watchdog());
    let adapter = Arc::new(adapter);
    let serving = Arc::clone(&adapter).serve(listener, metrics, stop.clone());
    let stopping = async {
        stop.cancelled().await;
        service_manager::stopping();
    };
    tokio::join!(serving, stop.run_until_cancelled(beside(adapter)), stopping);
    info!("stopped");
    Ok(())
}

/// SIGHUP reads the configuration and the tokens again. A faulty configuration changes nothing and is said in one line.
async fn reload_on_signal(mut hangup: Signal, adapter: &Adapter, config: Option<&Path>) {
    while hangup.recv().await.is_some() {
        service_manager::reloading();
        let reloaded = async {
            let settings = settings_or_search(config).await?;
            announce(&settings);
            let classifier = classifier(&settings)?;
            adapter.reload(settings, classifier).map_err(|error| CommandError::Configuration(error.to_string()))
        };
        match reloaded.await {
            Ok(()) => {
                info!("the configuration was read again");
                service_manager::reloaded("the configuration was read again");
            }
            Err(error) => {
                error!("the configuration was not changed: {error}");
                service_manager::reloaded("the configuration is faulty and was not changed; the log says why");
            }
        }
    }
}

fn announce(settings: &Settings) {
    for line in report::effective(settings) {
        info!("{line}");
    }
    for upstream in &settings.upstreams {
        info!(name = upstream.name, url = %upstream.url, "upstream");
    }
    for warning in &settings.warnings {
        warn!("{warning}");
    }
}

fn open(port: u16, key: &[&str], places: &Places) -> Result<TcpListener, CommandError> {
    listener::bind(port).map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::AddrInUse => "which another program uses (another Weir, perhaps)",
            std::io::ErrorKind::PermissionDenied => "which this user may not open",
            _ => "which the system does not open",
        };
        let variable = variable(key);
        let accepted = "a port of 127.0.0.1 that is free".to_owned();
        let mend = format!("Stop that program, or choose another number there or with {variable}.");
        let fault = places.fault(key, format!("{port}, {why}"), accepted, mend);
        CommandError::Failed(fault.to_string())
    })
}

/// SIGTERM and Ctrl-C end Weir; whoever asks a second time does not want to wait for turns.
fn stop_on_signal(stop: CancellationToken, log: LogWriter) -> Result<(), CommandError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    tokio::spawn(async move {
        let mut asked = async || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        asked().await;
        stop.cancel();
        asked().await;
        log.flush();
        std::process::exit(1);
    });
    Ok(())
}

fn no_signals(error: std::io::Error) -> CommandError {
    CommandError::Failed(format!("signals cannot be received: {}", error.kind()))
}
