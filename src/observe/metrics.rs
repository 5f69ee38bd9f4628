//! Counters in Prometheus text. Every label comes from a closed set, so nothing of a conversation can become one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

/// What is counted since the start.
#[derive(Debug, Default)]
pub struct Metrics {
    turns: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
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

impl Metrics {
    /// Counts a turn that ended.
    pub fn count_turn(&self, outcome: &'static str, code: Option<&'static str>) {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        *turns.entry((outcome, code.unwrap_or(""))).or_default() += 1;
    }

    /// Everything in the text format that Prometheus scrapes.
    pub fn to_text(&self, gauges: &Gauges) -> String {
        let mut text =
            String::from("# HELP weir_turns_total Turns that ended, by outcome and by the contract's code.\n");
        text.push_str("# TYPE weir_turns_total counter\n");
        for ((outcome, code), count) in self.turns.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = writeln!(text, "weir_turns_total{{outcome=\"{outcome}\",code=\"{code}\"}} {count}");
        }
        let mut gauge = |name: &str, help: &str, value: u64| {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
        };
        gauge("weir_turns_running", "Turns that run now.", gauges.running as u64);
        gauge("weir_turns_queued", "Turns that wait for a permit now.", gauges.queued as u64);
        gauge("weir_body_bytes_in_flight", "Bytes of request bodies that are held now.", gauges.bytes_in_flight);
        text.push_str("# HELP weir_upstream_up Whether the model server answered when last asked.\n");
        text.push_str("# TYPE weir_upstream_up gauge\n");
        for (name, up) in &gauges.upstreams {
            let _ = writeln!(text, "weir_upstream_up{{upstream=\"{name}\"}} {}", u8::from(*up));
        }
        text
    }
}
