//! `weir serve`: the adapter itself.

use std::path::Path;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{CommandError, classifier, report, settings_or_search};
use crate::observe;
use crate::server::{Service, listener};
use crate::settings::Settings;

pub(super) async fn run(config: Option<&Path>) -> Result<(), CommandError> {
    let settings = settings_or_search(config).await?;
    observe::start_log(&settings.log);
    serve(settings).await
}

/// Opens the ports, says so, and serves until a signal.
pub(super) async fn serve(settings: Settings) -> Result<(), CommandError> {
    for line in report::effective(&settings) {
        info!("{line}");
    }
    for upstream in &settings.upstreams {
        info!(name = upstream.name, url = %upstream.url, "upstream");
    }
    for warning in &settings.warnings {
        warn!("{warning}");
    }
    let (port, metrics_port) = (settings.port, settings.metrics.as_ref().map(|metrics| metrics.port));
    let classifier = classifier(&settings)?;
    let service = Service::new(settings, classifier).map_err(|error| CommandError::Configuration(error.to_string()))?;
    let stop = CancellationToken::new();
    stop_on_signal(stop.clone())?;
    let listener = open(port, "port").await?;
    let metrics = match metrics_port {
        Some(port) => Some(open(port, "metrics.port").await?),
        None => None,
    };
    if let Some(at) = metrics.as_ref().and_then(|metrics| metrics.local_addr().ok()) {
        info!("metrics on http://{at}/metrics");
    }
    let at =
        listener.local_addr().map_err(|error| CommandError::Failed(format!("the port is lost: {}", error.kind())))?;
    println!("listening on http://{at}");
    service.serve(listener, metrics, stop).await;
    info!("stopped");
    Ok(())
}

async fn open(port: u16, key: &str) -> Result<TcpListener, CommandError> {
    listener::bind(port).await.map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::AddrInUse => "another program uses it",
            std::io::ErrorKind::PermissionDenied => "this user may not open it",
            _ => "the system refuses it",
        };
        CommandError::Failed(format!(
            "127.0.0.1:{port} cannot be opened: {why}. Stop that program, or set {key} to another"
        ))
    })
}

/// SIGTERM and Ctrl-C end Weir; a second one ends it at once, which is the system's own doing.
fn stop_on_signal(stop: CancellationToken) -> Result<(), CommandError> {
    let no_signals =
        |error: std::io::Error| CommandError::Failed(format!("signals cannot be received: {}", error.kind()));
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    });
    Ok(())
}
