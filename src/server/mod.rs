//! HTTP as the phone sees it: one address, one token, two routes, one complete body for every request.

pub mod clock;
pub mod guard;
pub mod intake;
pub mod listener;
pub mod peer;
pub mod places;
pub mod routes;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::info;

use crate::catalog::Catalog;
use crate::observe::Ledger;
use crate::settings::Settings;
use crate::turn::Turns;
use crate::upstream::classify::Classifier;
use crate::upstream::client::ClientError;
use guard::Guard;
use intake::Intake;
use listener::Connections;

/// How long answers that shutting down has cut short may take to be written.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// What requests are answered with: everything that the settings decide. A reload makes a new one; turns that run keep theirs.
#[derive(Debug)]
struct Service {
    settings: Settings,
    guard: Guard,
    intake: Intake,
    catalog: Arc<Catalog>,
    turns: Turns,
    /// Ends the looking after its model servers.
    retired: CancellationToken,
}

impl Service {
    /// `before` is the service that this one takes the place of: what its turns and bodies hold still counts.
    fn new(settings: Settings, classifier: Classifier, before: Option<&Service>) -> Result<Self, ClientError> {
        let catalog = Arc::new(Catalog::new(&settings)?);
        let limits = &settings.limits;
        Ok(Service {
            guard: Guard::new(&settings.tokens),
            intake: Intake::new(
                limits.body,
                limits.in_flight,
                settings.timeouts.body,
                before.map(|before| &before.intake),
            ),
            turns: Turns::new(&settings, Arc::clone(&catalog), classifier, before.map(|before| &before.turns)),
            catalog,
            retired: CancellationToken::new(),
            settings,
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.retired.cancel();
    }
}

/// The adapter: it answers each request with the service of the moment.
#[derive(Debug)]
pub struct Adapter {
    service: RwLock<Arc<Service>>,
    ledger: Arc<Ledger>,
    started: Instant,
    stopping_turns: CancellationToken,
}

impl Adapter {
    /// Puts the parts together; opens nothing yet.
    ///
    /// # Errors
    /// A client toward a model server cannot be made from the settings.
    pub fn new(settings: Settings, classifier: Classifier) -> Result<Self, ClientError> {
        let service = RwLock::new(Arc::new(Service::new(settings, classifier, None)?));
        let stopping_turns = CancellationToken::new();
        Ok(Adapter { service, ledger: Arc::default(), started: Instant::now(), stopping_turns })
    }

    /// Goes on with other settings and tokens. Turns that run are not cut; ports, `limits.connections`, the timeouts of
    /// connections and the log stay as they were at the start.
    ///
    /// # Errors
    /// A client toward a model server cannot be made from the settings; everything stays as it was then.
    pub fn reload(&self, settings: Settings, classifier: Classifier) -> Result<(), ClientError> {
        let service = Arc::new(Service::new(settings, classifier, Some(&self.service()))?);
        service.catalog.watch(&service.retired);
        let mut current = self.service.write().unwrap_or_else(PoisonError::into_inner);
        current.retired.cancel();
        *current = service;
        Ok(())
    }

    fn service(&self) -> Arc<Service> {
        Arc::clone(&self.service.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves until `stop` is cancelled; then accepts nothing more, lets turns finish for `timeouts.shutdown`, answers
    /// the rest 503 `overloaded`, and returns.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, metrics: Option<TcpListener>, stop: CancellationToken) {
        let started = self.service();
        let connections = TaskTracker::new();
        started.catalog.watch(&started.retired);
        let accept = |router, listener| {
            let accepting = Connections::new(router, &started.settings, connections.clone(), stop.clone());
            tokio::spawn(accepting.accept(listener))
        };
        accept(routes::contract(Arc::clone(&self)), listener);
        if let Some(listener) = metrics {
            accept(routes::metrics(Arc::clone(&self)), listener);
        }
        stop.cancelled().await;
        let (running, queued) = self.service().turns.load();
        info!(running, queued, "shutting down");
        connections.close();
        if tokio::time::timeout(started.settings.timeouts.shutdown, connections.wait()).await.is_err() {
            self.stopping_turns.cancel();
            // Whoever does not read the last answer by then is not waited for.
            let _ = tokio::time::timeout(LAST_ANSWERS, connections.wait()).await;
        }
    }
}
