//! One line in the log for each turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use super::Ledger;
use super::metrics::CountedTurn;
use super::status::{TurnStatus, milliseconds};
use crate::contract::{Failure, FinishReason, Usage};

const ANSWERED: &str = "answered";
const FAILED: &str = "failed";
const PANICKED: &str = "panicked";

static NEXT: AtomicU64 = AtomicU64::new(1);

/// What is told about a turn, gathered while it runs. It is written when it ends, however that comes about: a record that is
/// dropped unfinished belongs to a phone that hung up.
#[derive(Debug)]
pub struct TurnRecord {
    id: u64,
    since: Instant,
    ledger: Arc<Ledger>,
    finished: bool,
    /// Bytes of the request body.
    pub bytes: u64,
    /// Number of messages.
    pub messages: usize,
    /// Number of pictures.
    pub images: usize,
    /// The advertised id of the model, once it is known to be one.
    pub model: Option<String>,
    /// The name of the server in the settings.
    pub upstream: Option<String>,
    /// How long the turn waited for its permit.
    pub queued: Duration,
    /// When the first sign of generation arrived, from the last byte of the request.
    pub first_token: Option<Duration>,
    /// Token counts that the server told.
    pub usage: Option<Usage>,
    /// Why the model stopped.
    pub finish_reason: Option<FinishReason>,
    /// What had to be mended, in order.
    pub repairs: Vec<&'static str>,
}

impl TurnRecord {
    /// A record of a turn whose request body is complete since `since`.
    pub fn new(since: Instant, bytes: u64, ledger: Arc<Ledger>) -> Self {
        TurnRecord {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            since,
            ledger,
            finished: false,
            bytes,
            messages: 0,
            images: 0,
            model: None,
            upstream: None,
            queued: Duration::ZERO,
            first_token: None,
            usage: None,
            finish_reason: None,
            repairs: Vec::new(),
        }
    }

    /// The turn ended with a reply, or with the failure that the phone is told.
    pub fn finish(mut self, failure: Option<&Failure>) {
        self.finished = true;
        match failure {
            None => self.write(ANSWERED, None),
            Some(failure) => {
                let outcome = if failure.status.is_client_error() { "refused" } else { FAILED };
                self.write(outcome, Some(failure));
            }
        }
    }

    fn write(&self, outcome: &'static str, failure: Option<&Failure>) {
        let code = failure.and_then(|failure| failure.code).map(|code| code.as_str());
        let status = match (outcome, failure) {
            (_, Some(failure)) => Some(failure.status.as_u16()),
            (ANSWERED, None) => Some(200),
            _ => None,
        };
        let total = self.since.elapsed();
        let usage = self.usage.unwrap_or_default();
        let reason = failure.map(|failure| failure.message.as_ref());
        self.ledger.metrics.count(&CountedTurn {
            outcome,
            code,
            total,
            queued: self.queued,
            first_token: self.first_token,
            usage: self.usage,
            repairs: &self.repairs,
        });
        self.ledger.recent.remember(TurnStatus {
            turn: self.id,
            seconds_ago: 0,
            outcome: outcome.to_owned(),
            status,
            code: code.map(str::to_owned),
            reason: reason.map(str::to_owned),
            model: self.model.clone(),
            queue_milliseconds: milliseconds(self.queued),
            first_token_milliseconds: self.first_token.map(milliseconds),
            total_milliseconds: milliseconds(total),
            completion_tokens: usage.completion_tokens,
            repairs: self.repairs.iter().map(|&repair| repair.to_owned()).collect(),
        });
        macro_rules! line {
            ($level:ident) => {
                $level!(
                    turn = self.id,
                    outcome,
                    status,
                    code,
                    reason,
                    model = self.model.as_deref(),
                    upstream = self.upstream.as_deref(),
                    messages = self.messages,
                    images = self.images,
                    bytes = self.bytes,
                    queue_ms = milliseconds(self.queued),
                    first_token_ms = self.first_token.map(milliseconds),
                    total_ms = milliseconds(total),
                    prompt_tokens = usage.prompt_tokens,
                    completion_tokens = usage.completion_tokens,
                    finish_reason = self.finish_reason.map(|reason| reason.as_str()),
                    repairs = (!self.repairs.is_empty()).then(|| self.repairs.join(",")),
                    "turn"
                )
            };
        }
        if outcome == FAILED || outcome == PANICKED { line!(warn) } else { line!(info) }
    }
}

impl Drop for TurnRecord {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        if std::thread::panicking() {
            self.write(PANICKED, Some(&Failure::upstream_failure("Weir itself failed; the line before says where")));
        } else {
            self.write("hung_up", None);
        }
    }
}
