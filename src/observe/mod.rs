//! What a person can see of Weir: its log, its metrics, and its status. Neither ever holds a token, a text, a picture or an upstream's words.

pub mod log_writer;
pub mod metrics;
pub mod status;
pub mod turn_record;

use std::io;

use tracing::level_filters::LevelFilter;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use log_writer::LogWriter;
pub use metrics::Metrics;
pub use status::{RecentTurns, Status};
pub use turn_record::TurnRecord;

/// Where turns that ended are counted and remembered.
#[derive(Debug, Default)]
pub struct Ledger {
    /// What is counted since the start.
    pub metrics: Metrics,
    /// The last turns.
    pub recent: RecentTurns,
}

/// Makes a panic one line without its message, which can quote what was being worked on; the place is enough to mend it.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
        if tracing::dispatcher::has_been_set() {
            tracing::error!(
                place,
                "Weir itself failed; this is a fault of Weir's own, please report it with this line"
            );
        } else {
            eprintln!(
                "weir: Weir itself failed at {place}; this is a fault of Weir's own, please report it with this line"
            );
        }
    }));
}

/// The log of the program. What is logged at the last is written when this is dropped.
#[derive(Debug)]
pub struct Log(LogWriter);

impl Log {
    /// Starts the log on stderr: lines for a person, or one JSON object a line.
    ///
    /// # Errors
    /// The system gives no thread to write it.
    pub fn start(level: LevelFilter, json: bool) -> io::Result<Self> {
        let writer = LogWriter::start(io::stderr())?;
        // A second start (in tests) keeps the first log.
        let _ = tracing_subscriber::registry().with(log(level, json, writer.clone())).try_init();
        Ok(Log(writer))
    }

    /// What takes its lines, for whoever cannot wait until this is dropped.
    pub fn writer(&self) -> LogWriter {
        self.0.clone()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// The log, as one layer of what hears of events.
pub fn log<S, W>(level: LevelFilter, json: bool, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    // hyper and reqwest write headers and URLs at their verbose levels, so nobody else's events get through at all.
    let ours = FilterFn::new(|event: &Metadata<'_>| event.target().starts_with("weir"));
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_target(false);
    let layer = if json {
        layer.json().flatten_event(true).with_current_span(false).boxed()
    } else {
        layer.with_ansi(false).boxed()
    };
    layer.with_filter(ours).with_filter(level).boxed()
}
