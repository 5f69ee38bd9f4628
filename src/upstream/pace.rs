//! How long to wait between tries that are harmless: looking for a server, connecting to it, waiting until it has loaded.
//!
//! The only place that knows the `backoff` crate, which is unmaintained (see deny.toml). A turn that may have started is
//! never tried again, paced or not.

use std::time::Duration;

use backoff::backoff::Backoff as _;
use backoff::{ExponentialBackoff, ExponentialBackoffBuilder};

/// A sequence of growing waits.
#[derive(Debug)]
pub struct Pace(ExponentialBackoff);

impl Pace {
    fn new(first: Duration, longest: Duration, in_all: Option<Duration>) -> Self {
        let mut builder = ExponentialBackoffBuilder::new();
        builder.with_initial_interval(first).with_max_interval(longest).with_multiplier(1.6);
        Pace(builder.with_max_elapsed_time(in_all).build())
    }

    /// For a server that refuses connections: a restart takes a moment, and after a few seconds the phone should know.
    pub fn connecting() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(1), Some(Duration::from_secs(3)))
    }

    /// For a server that says it is still loading: as long as the turn's own clock allows.
    pub fn loading() -> Self {
        Self::new(Duration::from_millis(200), Duration::from_secs(2), None)
    }

    /// For looking after a server that is away, for as long as Weir runs.
    pub fn looking() -> Self {
        Self::new(Duration::from_millis(300), Duration::from_secs(10), None)
    }

    /// The next wait; `None` when it is time to give up.
    pub fn next_wait(&mut self) -> Option<Duration> {
        self.0.next_backoff()
    }
}
