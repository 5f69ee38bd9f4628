//! Loading the default model before its first turn, for those who asked for it (`models.warm_up`).

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Catalog;
use super::snapshot::Entry;
use crate::upstream::Upstream;
use crate::upstream::broken::Broken;
use crate::upstream::client::Fetched;
use crate::upstream::dialect::{Load, LoadRequest};

/// How long a model may take to be loaded before nobody listens to the answer any more: large ones come from slow disks.
const LOADING: Duration = Duration::from_secs(600);

impl Catalog {
    /// Has the default model loaded on the server that gets its next turn, once each time that the server came up. It happens in the
    /// background, until `stop`: no turn and no look waits for it.
    pub(super) fn warm_up(&self, stop: &CancellationToken) {
        let snapshot = self.now();
        let default = snapshot.default.as_deref().and_then(|id| snapshot.find(id));
        // Until every server was asked, another model may turn out to be the default.
        let Some(default) = default.filter(|_| snapshot.looked) else { return };
        let Some(candidate) = default.candidate().filter(|candidate| candidate.up && candidate.told) else { return };
        let upstream = &self.upstreams[candidate.upstream];
        let request = {
            let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
            let observed = &mut states[candidate.upstream];
            if observed.warmed.as_ref() == Some(&candidate.name) {
                return;
            }
            observed.warmed = Some(candidate.name.clone());
            let load = Load {
                model: &candidate.name,
                context_to_ask_for: candidate.context_to_ask_for,
                keep_alive: upstream.settings.keep_alive.as_deref(),
            };
            let request = observed.state.discovery.as_ref().and_then(|discovery| discovery.load_request(&load));
            if request.is_none() && !std::mem::replace(&mut observed.said_no_warm_up, true) {
                info!(
                    upstream = upstream.settings.name,
                    "models.warm_up: nothing to do; such a server has its models loaded already, or loads one for a turn only"
                );
            }
            request
        };
        if let Some(request) = request {
            let (upstream, stop, default) = (Arc::clone(upstream), stop.clone(), default.clone());
            tokio::spawn(async move { stop.run_until_cancelled(load(&upstream, &default, request)).await });
        }
    }
}

async fn load(upstream: &Upstream, model: &Entry, request: LoadRequest) {
    let (model, upstream_name) = (&model.id, &upstream.settings.name);
    let asked = Instant::now();
    let failure = match upstream.load(&request, LOADING).await {
        Ok(answer) if answer.status.is_success() || is_there_already(&answer) => {
            let seconds = asked.elapsed().as_secs();
            info!(
                model,
                upstream = upstream_name,
                seconds,
                "models.warm_up: the server has loaded the default model, or is about to"
            );
            return;
        }
        Ok(answer) => format!("the server answered with status {}; its own log says why", answer.status.as_u16()),
        Err(Broken::Silent) => format!("the server did not answer within {} s", LOADING.as_secs()),
        Err(broken) => broken.to_string(),
    };
    warn!(model, upstream = upstream_name, "models.warm_up: the default model was not loaded: {failure}");
}

/// llama.cpp's router refuses to load what it has ("model is already running", or "loaded" in older builds).
fn is_there_already(answer: &Fetched) -> bool {
    answer.status.is_client_error() && memchr::memmem::find(&answer.body, b"model is already").is_some()
}
