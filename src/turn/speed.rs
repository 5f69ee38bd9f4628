//! How fast each model answers, and how long an answer may be to fit into a turn's time.
//!
//! An engine that is told a limit ends by itself with `length`, which the app shows as a cut answer; one that runs into the
//! deadline has worked for nothing.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::catalog::snapshot::Candidate;

/// An answer of fewer tokens says little about the speed: its first ones come in a burst.
const TELLING_TOKENS: u64 = 16;

/// The part of the time left that an answer may plan with: speed falls as a conversation grows and when the machine is busy.
const PLANNED: f64 = 0.7;

/// No answer is limited to fewer tokens than this: a limit that leaves no room for a sentence helps nobody.
const SHORTEST_ANSWER: u64 = 32;

/// The most tokens of one answer however fast the model is, against one that never ends.
const LONGEST_ANSWER: u64 = 32_768;

/// How an answer is coming along. A piece of a stream is about a token, where the server does not tell the count.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// Pieces in which something was generated.
    pub pieces: u64,
    /// From the question to the first of them.
    pub until_first: Duration,
    /// From the first of them to the last.
    pub generating: Duration,
}

/// What was measured of each model.
#[derive(Debug, Default)]
pub struct Speeds(Mutex<HashMap<(usize, String), Speed>>);

#[derive(Debug, Clone, Copy)]
struct Speed {
    tokens_a_second: f64,
    until_first: Duration,
}

impl Speeds {
    /// Takes an answer into account, whole or not. `tokens` is the server's own count, if it told one.
    pub fn measure(&self, candidate: &Candidate, progress: Progress, tokens: Option<u64>) {
        let tokens = tokens.unwrap_or(progress.pieces);
        let seconds = progress.generating.as_secs_f64();
        if tokens < TELLING_TOKENS || seconds <= 0.0 {
            return;
        }
        let now = Speed { tokens_a_second: tokens as f64 / seconds, until_first: progress.until_first };
        let mut speeds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        speeds
            .entry((candidate.upstream, candidate.name.clone()))
            .and_modify(|known| {
                known.tokens_a_second = (known.tokens_a_second + now.tokens_a_second) / 2.0;
                known.until_first = (known.until_first + now.until_first) / 2;
            })
            .or_insert(now);
    }

    /// The most tokens that an answer within `left` can have; `None` while nothing is measured.
    pub fn longest_answer(&self, candidate: &Candidate, left: Duration) -> Option<u64> {
        let speeds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let speed = speeds.get(&(candidate.upstream, candidate.name.clone()))?;
        let seconds = left.saturating_sub(speed.until_first).as_secs_f64() * PLANNED;
        Some(((seconds * speed.tokens_a_second) as u64).clamp(SHORTEST_ANSWER, LONGEST_ANSWER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::snapshot::{ServerState, Snapshot};
    use crate::settings::ModelSettings;

    fn candidate() -> Candidate {
        let settings = ModelSettings { default: Some("m".into()), ..ModelSettings::default() };
        let snapshot = Snapshot::new(&settings, &[ServerState::default()], true);
        snapshot.entries[0].candidates[0].clone()
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_answer_is_limited_to_what_the_time_holds_once_the_speed_is_known() {
        let speeds = Speeds::default();
        let model = candidate();
        assert_eq!(speeds.longest_answer(&model, seconds(100)), None);
        let progress = Progress { pieces: 400, until_first: seconds(20), generating: seconds(10) };
        speeds.measure(&model, progress, None);
        // 80 s are left for the answer, of which 70 % are planned with, at 40 tokens a second.
        assert_eq!(speeds.longest_answer(&model, seconds(100)), Some(2240));
        assert_eq!(speeds.longest_answer(&model, seconds(10)), Some(SHORTEST_ANSWER));
        assert_eq!(speeds.longest_answer(&model, seconds(100_000)), Some(LONGEST_ANSWER));
    }

    #[test]
    fn a_short_answer_says_nothing_about_the_speed_and_the_servers_count_goes_before_ours() {
        let speeds = Speeds::default();
        let model = candidate();
        let progress = Progress { pieces: 3, until_first: seconds(0), generating: seconds(3) };
        speeds.measure(&model, progress, Some(3));
        assert_eq!(speeds.longest_answer(&model, seconds(100)), None);
        speeds.measure(&model, progress, Some(300));
        assert_eq!(speeds.longest_answer(&model, seconds(100)), Some(7000));
    }
}
