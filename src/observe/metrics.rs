//! Counters in the text format that Prometheus scrapes. Every label comes from a closed set, so nothing of a conversation can
//! become one.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::contract::Usage;

/// Upper bounds in seconds: from a cached answer to the longest turn there is.
const SECONDS: [f64; 14] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 45.0, 95.0, 180.0, 295.0];

/// What is counted since the start.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    turns: Family<TurnLabels, Counter>,
    tokens: Family<TokenLabels, Counter>,
    repairs: Family<RepairLabels, Counter>,
    duration: Histogram,
    queue_wait: Histogram,
    first_token: Histogram,
    running: Gauge<u64, AtomicU64>,
    queued: Gauge<u64, AtomicU64>,
    bytes_in_flight: Gauge<u64, AtomicU64>,
    upstream_up: Family<UpstreamLabels, Gauge<u64, AtomicU64>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TurnLabels {
    outcome: &'static str,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RepairLabels {
    repair: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UpstreamLabels {
    upstream: String,
}

/// What is measured at the moment of asking.
#[derive(Debug, Clone, Default)]
pub struct Gauges {
    /// Turns that run.
    pub running: usize,
    /// Turns that wait for a permit.
    pub queued: usize,
    /// Bytes of request bodies that are held.
    pub bytes_in_flight: u64,
    /// Each server by its name in the settings, and whether it answered when last asked.
    pub upstreams: Vec<(String, bool)>,
}

/// What is counted of a turn that ended.
#[derive(Debug)]
pub(super) struct CountedTurn<'a> {
    pub(super) outcome: &'static str,
    /// The contract's code, where it ended with one.
    pub(super) code: Option<&'static str>,
    pub(super) total: Duration,
    pub(super) queued: Duration,
    pub(super) first_token: Option<Duration>,
    pub(super) usage: Option<Usage>,
    pub(super) repairs: &'a [&'static str],
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("weir");
        let histogram = || Histogram::new(SECONDS);
        let metrics = Metrics {
            registry: Registry::default(),
            turns: Family::default(),
            tokens: Family::default(),
            repairs: Family::default(),
            duration: histogram(),
            queue_wait: histogram(),
            first_token: histogram(),
            running: Gauge::default(),
            queued: Gauge::default(),
            bytes_in_flight: Gauge::default(),
            upstream_up: Family::default(),
        };
        registry.register("turns", "Turns that ended, by outcome and by the contract's code", metrics.turns.clone());
        registry.register("tokens", "Tokens that the model servers counted, by kind", metrics.tokens.clone());
        registry.register(
            "repairs",
            "What had to be mended for a model server to take a turn",
            metrics.repairs.clone(),
        );
        let seconds = metrics.duration.clone();
        registry.register("turn_duration_seconds", "From the last byte of a request to its answer", seconds);
        registry.register("queue_wait_seconds", "How long turns waited for a permit", metrics.queue_wait.clone());
        let first_token = metrics.first_token.clone();
        registry.register(
            "first_token_seconds",
            "From the last byte of a request to the first sign of generation",
            first_token,
        );
        registry.register("turns_running", "Turns that run now", metrics.running.clone());
        registry.register("turns_queued", "Turns that wait for a permit now", metrics.queued.clone());
        let bytes = metrics.bytes_in_flight.clone();
        registry.register("body_bytes_in_flight", "Bytes of request bodies that are held now", bytes);
        let up = metrics.upstream_up.clone();
        registry.register("upstream_up", "Whether the model server answered when last asked", up);
        Metrics { registry, ..metrics }
    }
}

impl Metrics {
    pub(super) fn count(&self, turn: &CountedTurn<'_>) {
        let code = turn.code.unwrap_or("");
        self.turns.get_or_create(&TurnLabels { outcome: turn.outcome, code }).inc();
        self.duration.observe(turn.total.as_secs_f64());
        self.queue_wait.observe(turn.queued.as_secs_f64());
        if let Some(first_token) = turn.first_token {
            self.first_token.observe(first_token.as_secs_f64());
        }
        let usage = turn.usage.unwrap_or_default();
        for (kind, count) in [("prompt", usage.prompt_tokens), ("completion", usage.completion_tokens)] {
            if let Some(count) = count {
                self.tokens.get_or_create(&TokenLabels { kind }).inc_by(count);
            }
        }
        for &repair in turn.repairs {
            self.repairs.get_or_create(&RepairLabels { repair }).inc();
        }
    }

    /// Everything as text.
    pub fn to_text(&self, gauges: &Gauges) -> String {
        self.running.set(gauges.running as u64);
        self.queued.set(gauges.queued as u64);
        self.bytes_in_flight.set(gauges.bytes_in_flight);
        // A reload can have taken one away.
        self.upstream_up.clear();
        for (name, up) in &gauges.upstreams {
            self.upstream_up.get_or_create(&UpstreamLabels { upstream: name.clone() }).set(u64::from(*up));
        }
        let mut text = String::new();
        // Only writing can fail, and a string takes everything.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
