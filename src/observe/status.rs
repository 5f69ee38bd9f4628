//! What `weir status` shows of a running Weir: the model servers and their models, what runs, and the last turns. Like the log it holds
//! nothing of a conversation.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// How many turns are remembered.
const REMEMBERED: usize = 20;

/// A running Weir.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Its version.
    pub version: String,
    /// For how many seconds it has been running.
    pub up_seconds: u64,
    /// Turns that run.
    pub running: usize,
    /// Turns that wait for a permit.
    pub queued: usize,
    /// The model servers, in the order of the settings.
    pub upstreams: Vec<UpstreamStatus>,
    /// The advertised models, the default first.
    pub models: Vec<ModelStatus>,
    /// The last turns, the newest first.
    pub turns: Vec<TurnStatus>,
}

/// One model server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UpstreamStatus {
    /// Its name in the settings.
    pub name: String,
    /// Whether it answered when it was last asked.
    pub up: bool,
    /// What it is, or what is wrong with it, in words.
    pub state: String,
}

/// One advertised model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModelStatus {
    /// The id that the app names.
    pub id: String,
    /// Whether it answers when the app names none.
    pub default: bool,
    /// Whether it sees pictures, if that is known.
    pub images: Option<bool>,
    /// The model that gets its pictures where the app names none, if it is the default, does not see, and another one does.
    pub pictures_go_to: Option<String>,
    /// How many tokens a conversation may have, if that is known.
    pub context: Option<u64>,
}

/// One turn that ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TurnStatus {
    /// Its number in the log.
    pub turn: u64,
    /// How many seconds ago it ended.
    pub seconds_ago: u64,
    /// `answered`, `refused`, `failed`, `hung_up` or `panicked`.
    pub outcome: String,
    /// The status that the phone got.
    pub status: Option<u16>,
    /// The contract's code, if it ended with one.
    pub code: Option<String>,
    /// Why, in words.
    pub reason: Option<String>,
    /// The advertised id of the model, once it was known to be one.
    pub model: Option<String>,
    /// How long it waited for a permit, in milliseconds.
    pub queue_milliseconds: u64,
    /// Until the first sign of generation, in milliseconds.
    pub first_token_milliseconds: Option<u64>,
    /// Until its answer, in milliseconds.
    pub total_milliseconds: u64,
    /// How many tokens the answer has, if the server counted.
    pub completion_tokens: Option<u64>,
    /// What had to be mended, in order.
    pub repairs: Vec<String>,
}

/// The last turns.
#[derive(Debug, Default)]
pub struct RecentTurns(Mutex<VecDeque<(Instant, TurnStatus)>>);

impl RecentTurns {
    /// Remembers a turn that has just ended.
    pub(super) fn remember(&self, turn: TurnStatus) {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turns.truncate(REMEMBERED - 1);
        turns.push_front((Instant::now(), turn));
    }

    /// The last turns, the newest first.
    pub fn list(&self) -> Vec<TurnStatus> {
        let turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let aged = |(ended, turn): &(Instant, TurnStatus)| TurnStatus {
            seconds_ago: ended.elapsed().as_secs(),
            ..turn.clone()
        };
        turns.iter().map(aged).collect()
    }
}

/// A time in whole milliseconds.
pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
