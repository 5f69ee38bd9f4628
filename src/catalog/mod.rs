//! Which models there are and what they can do: asked in the background, read without waiting.

pub mod snapshot;
mod unfitting;
mod warm_up;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::observe::status::UpstreamStatus;
use crate::settings::{Fault, ModelSettings, Places, Settings};
use crate::upstream::Upstream;
use crate::upstream::broken::Broken;
use crate::upstream::client::ClientError;
use crate::upstream::dialect::{Dialect, Discovery, DiscoveryError};
use crate::upstream::pace::Pace;
use snapshot::{Entry, ServerState, Snapshot, turns_in};
pub use unfitting::unfitting;

/// How often a server that is well is asked again.
const REFRESH: Duration = Duration::from_secs(60);

/// How often one that says it is loading is asked at the least.
const LOOK_WHILE_LOADING: Duration = Duration::from_secs(1);

/// The shortest time between two looks, however many turns are surprised.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// How long a call may wait for the first look after a start, when nothing is known.
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// How long it may wait for it when the settings name something to list: the app probes the list on every chat open.
const FIRST_LOOK_WITH_SOMETHING: Duration = Duration::from_millis(700);

/// What is lost where only Ollama's `/v1` is spoken to.
pub const OLLAMA_BEHIND_V1: &str = "; only its /v1 route is used, which drops the start of a long conversation without a word \
                                    and knows no context, keep_alive or reasoning: name the server itself with kind = \"ollama\" \
                                    or \"auto\" if it can be reached";

/// A context of fewer tokens is worth a warning where nobody chose it.
pub const SMALL_CONTEXT: u64 = 8192;

/// All servers and what is known of them.
#[derive(Debug)]
pub struct Catalog {
    models: ModelSettings,
    places: Places,
    upstreams: Vec<Arc<Upstream>>,
    states: Mutex<Vec<Observed>>,
    snapshot: watch::Sender<Arc<Snapshot>>,
    surprises: Vec<Notify>,
    begun: Instant,
    /// It is about all servers together, so it is said once for all of them.
    said_unfitting: Mutex<Vec<Fault>>,
}

/// What is known of one server, and what was said of it.
#[derive(Debug, Clone, Default)]
struct Observed {
    state: ServerState,
    looked: bool,
    said: Option<String>,
    said_context: BTreeMap<String, u64>,
    /// The model that it was told to load since it came up.
    warmed: Option<String>,
    said_no_warm_up: bool,
}

impl Catalog {
    /// Makes the catalog; asks nobody yet.
    ///
    /// # Errors
    /// A client cannot be made from the settings.
    pub fn new(settings: &Settings) -> Result<Self, ClientError> {
        let upstreams = settings
            .upstreams
            .iter()
            .map(|upstream| Upstream::new(upstream.clone(), settings.timeouts.connect).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()?;
        let unasked = |upstream: &Arc<Upstream>| {
            let settings = &upstream.settings;
            let (context, concurrency) = (settings.context, settings.concurrency);
            let assumed = Dialect::of_kind(settings.kind);
            let state = ServerState { assumed, context, concurrency, ..ServerState::default() };
            Observed { state, ..Observed::default() }
        };
        let states: Vec<Observed> = upstreams.iter().map(unasked).collect();
        let known: Vec<ServerState> = states.iter().map(|observed| observed.state.clone()).collect();
        let snapshot = Snapshot::new(&settings.models, &known, false);
        Ok(Catalog {
            models: settings.models.clone(),
            places: settings.places.clone(),
            begun: Instant::now(),
            said_unfitting: Mutex::default(),
            surprises: upstreams.iter().map(|_| Notify::new()).collect(),
            upstreams,
            states: Mutex::new(states),
            snapshot: watch::Sender::new(Arc::new(snapshot)),
        })
    }

    /// Begins to look after every server, until `stop`.
    pub fn watch(self: &Arc<Self>, stop: &CancellationToken) {
        for upstream in 0..self.upstreams.len() {
            let catalog = Arc::clone(self);
            let stop = stop.clone();
            tokio::spawn(async move {
                stop.run_until_cancelled(catalog.look_after(upstream, &stop)).await;
            });
        }
    }

    async fn look_after(&self, upstream: usize, stop: &CancellationToken) {
        let mut pace = Pace::looking();
        loop {
            let found = self.look(upstream).await;
            if self.models.warm_up {
                self.warm_up(stop);
            }
            let wait = if found.is_ok() {
                pace = Pace::looking();
                REFRESH
            } else {
                // One that is loading is asked often: turns may be waiting for it.
                let longest = if matches!(found, Err(DiscoveryError::Loading)) { LOOK_WHILE_LOADING } else { REFRESH };
                pace.next_wait().unwrap_or(REFRESH).min(longest)
            };
            // A wait that is cut short by a surprise is as good as one that ran out.
            let _ = tokio::time::timeout(wait, self.surprises[upstream].notified()).await;
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Asks one server now and publishes what it says. What it said before stays when it does not answer.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn look(&self, upstream: usize) -> Result<Discovery, DiscoveryError> {
        let found = self.upstreams[upstream].discover().await;
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let observed = &mut states[upstream];
        observed.looked = true;
        observed.state.up = found.is_ok();
        observed.state.loading = matches!(found, Err(DiscoveryError::Loading));
        // One that was only slow to answer still has what it loaded.
        if !matches!(found, Ok(_) | Err(DiscoveryError::Broken(Broken::Silent))) {
            observed.warmed = None;
        }
        if let Ok(discovery) = &found {
            observed.state.discovery = Some(discovery.clone());
        }
        self.say(upstream, observed, &found);
        let known: Vec<ServerState> = states.iter().map(|observed| observed.state.clone()).collect();
        let looked = states.iter().all(|observed| observed.looked);
        let snapshot = Arc::new(Snapshot::new(&self.models, &known, looked));
        for entry in &snapshot.entries {
            let is_default = snapshot.default.as_ref() == Some(&entry.id);
            self.say_context(upstream, entry, is_default, &mut states[upstream]);
        }
        if looked {
            self.say_what_fits_nothing(&snapshot);
        }
        self.snapshot.send_replace(snapshot);
        drop(states);
        found
    }

    /// Says once which names in the settings are those of no model.
    fn say_what_fits_nothing(&self, snapshot: &Snapshot) {
        let unfitting = unfitting(snapshot, &self.models, &self.places);
        let mut said = self.said_unfitting.lock().unwrap_or_else(PoisonError::into_inner);
        if *said != unfitting {
            for fault in &unfitting {
                warn!("{fault}");
            }
            *said = unfitting;
        }
    }

    /// Says once what the context of the default model on Ollama costs and holds, if it was chosen, and of any model that it
    /// is small, if nobody chose it.
    fn say_context(&self, upstream: usize, entry: &Entry, is_default: bool, observed: &mut Observed) {
        let Some(candidate) = entry.candidates.iter().find(|candidate| candidate.upstream == upstream) else { return };
        let Some(context) = candidate.context.filter(|_| candidate.dialect == Dialect::Ollama) else { return };
        if observed.said_context.insert(entry.id.clone(), context) == Some(context) {
            return;
        }
        let turns = turns_in(context);
        let name = &self.upstreams[upstream].settings.name;
        if candidate.context_to_ask_for.is_some() && is_default {
            let memory = candidate.cache_bytes_a_token.map(|bytes| bytes.saturating_mul(context) / (1024 * 1024));
            info!(model = entry.id, tokens = context, turns, memory_mib = memory, "context of an Ollama model");
        } else if candidate.context_to_ask_for.is_none() && context < SMALL_CONTEXT {
            warn!(
                model = entry.id,
                tokens = context,
                turns,
                "Ollama's context for this model is small: longer chats will be refused. To have more, set \
                 upstream.{name}.context, for example to 16384"
            );
        }
    }

    /// Says once what became of a server, and again only when that changes.
    fn say(&self, upstream: usize, observed: &mut Observed, found: &Result<Discovery, DiscoveryError>) {
        let settings = &self.upstreams[upstream].settings;
        let saying = match found {
            Ok(discovery) => {
                let server = discovery.server.as_deref().unwrap_or("OpenAI-compatible server");
                let note = if discovery.is_ollama_behind_v1() { OLLAMA_BEHIND_V1 } else { "" };
                let names: Vec<&str> = discovery.models.iter().take(5).map(|model| model.id.as_str()).collect();
                let more = if discovery.models.len() > names.len() { ", …" } else { "" };
                let count = discovery.models.len();
                format!("up: {server}, {count} model(s) that can chat ({}{more}){note}", names.join(", "))
            }
            Err(error) => format!("down: {error}"),
        };
        if observed.said.as_ref() == Some(&saying) {
            return;
        }
        match found {
            Ok(_) => info!(upstream = settings.name, url = %settings.url, "upstream {saying}"),
            Err(_) => warn!(upstream = settings.name, url = %settings.url, "upstream {saying}"),
        }
        observed.said = Some(saying);
    }

    /// What is served right now, without waiting.
    pub fn now(&self) -> Arc<Snapshot> {
        self.snapshot.borrow().clone()
    }

    /// What is served right now; shortly after a start, waits a moment for the first look.
    pub async fn after_first_look(&self) -> Arc<Snapshot> {
        let now = self.now();
        if now.looked {
            return now;
        }
        // Counted from the start, so that only the first calls wait.
        let patience = if now.entries.is_empty() { FIRST_LOOK } else { FIRST_LOOK_WITH_SOMETHING };
        let mut changes = self.snapshot.subscribe();
        // Whether the look came or the time ran out, what is known by then is what there is.
        let looked = changes.wait_for(|snapshot| snapshot.looked);
        let _ = tokio::time::timeout_at(self.begun + patience, looked).await;
        self.now()
    }

    /// What is served once `wanted` is true of it, or no server is loading any more, or at `latest`.
    pub async fn after_loading(&self, latest: Instant, wanted: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
        let mut changes = self.snapshot.subscribe();
        let settled = changes.wait_for(|snapshot| !snapshot.loading || wanted(snapshot));
        // Whether it has loaded or the time ran out, what is known by then is what there is.
        let _ = tokio::time::timeout_at(latest, settled).await;
        self.now()
    }

    /// Asks for a look soon, after an answer that did not fit what is known.
    pub fn surprised(&self, upstream: usize) {
        self.surprises[upstream].notify_one();
    }

    /// Each server: whether it answered when it was last asked, and what was said of that in the log.
    pub fn upstream_statuses(&self) -> Vec<UpstreamStatus> {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let status = |(upstream, observed): (&Arc<Upstream>, &Observed)| UpstreamStatus {
            name: upstream.settings.name.clone(),
            up: observed.state.up,
            state: observed.said.clone().unwrap_or_else(|| "not asked yet".to_owned()),
        };
        self.upstreams.iter().zip(states.iter()).map(status).collect()
    }

    /// Each server by its name, and whether it answered when it was last asked.
    pub fn liveness(&self) -> Vec<(String, bool)> {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let name = |upstream: &Arc<Upstream>| upstream.settings.name.clone();
        self.upstreams.iter().map(name).zip(states.iter().map(|observed| observed.state.up)).collect()
    }

    /// The server at a place of the settings.
    pub fn upstream(&self, upstream: usize) -> &Arc<Upstream> {
        &self.upstreams[upstream]
    }

    /// All servers, in the order of the settings.
    pub fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }
}
