//! HTTP as the phone sees it: one address, one token, two routes, one complete body for every request.

pub mod clock;
pub mod guard;
pub mod intake;
pub mod listener;
pub mod routes;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::info;

use crate::catalog::Catalog;
use crate::observe::Metrics;
use crate::settings::Settings;
use crate::turn::Turns;
use crate::upstream::classify::Classifier;
use crate::upstream::client::ClientError;
use guard::Guard;
use intake::Intake;
use listener::Connections;

/// How long answers that shutting down has cut short may take to be written.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// What the routes work with.
#[derive(Debug)]
pub struct Service {
    settings: Arc<Settings>,
    guard: Guard,
    intake: Intake,
    catalog: Arc<Catalog>,
    turns: Turns,
    metrics: Arc<Metrics>,
    stopping_turns: CancellationToken,
}

impl Service {
    /// Puts the parts together; opens nothing yet.
    ///
    /// # Errors
    /// A client toward a model server cannot be made from the settings.
    pub fn new(settings: Settings, classifier: Classifier) -> Result<Self, ClientError> {
        let settings = Arc::new(settings);
        let catalog = Arc::new(Catalog::new(&settings)?);
        let limits = &settings.limits;
        Ok(Service {
            guard: Guard::new(&settings.tokens),
            intake: Intake::new(limits.body, limits.in_flight, settings.timeouts.body),
            turns: Turns::new(Arc::clone(&settings), Arc::clone(&catalog), classifier),
            catalog,
            metrics: Arc::default(),
            stopping_turns: CancellationToken::new(),
            settings,
        })
    }

    /// The catalog, which whoever serves also keeps watching.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Serves until `stop` is cancelled; then accepts nothing more, lets turns finish for `timeouts.shutdown`, answers
    /// the rest 503 `overloaded`, and returns.
    pub async fn serve(self, listener: TcpListener, metrics: Option<TcpListener>, stop: CancellationToken) {
        let service = Arc::new(self);
        let connections = TaskTracker::new();
        let watching = TaskTracker::new();
        service.catalog.watch(&watching, &stop);
        let accept = |router, listener| {
            let accepting = Connections::new(router, &service.settings, connections.clone(), stop.clone());
            tokio::spawn(accepting.accept(listener))
        };
        accept(routes::contract(Arc::clone(&service)), listener);
        if let Some(listener) = metrics {
            accept(routes::metrics(Arc::clone(&service)), listener);
        }
        stop.cancelled().await;
        let (running, queued) = service.turns.load();
        info!(running, queued, "shutting down");
        connections.close();
        if tokio::time::timeout(service.settings.timeouts.shutdown, connections.wait()).await.is_err() {
            service.stopping_turns.cancel();
            // Whoever does not read the last answer by then is not waited for.
            let _ = tokio::time::timeout(LAST_ANSWERS, connections.wait()).await;
        }
    }
}
