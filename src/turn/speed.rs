//! How fast each model answers, and how long an answer may be to fit into a turn's time.
//!
//! An engine that is told a limit ends by itself with `length`, which the app shows as a cut answer; one that runs into the
//! deadline has worked for nothing.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::catalog::snapshot::Candidate;

/// An answer of fewer tokens says little about the speed: its first ones come in a burst.
const TELLING_TOKENS: u64 = 16;

/// The part of the time left that an answer may plan with: speed falls as a conversation grows and when the machine is busy.
const PLANNED: f64 = 0.7;

/// No answer is limited to fewer tokens than this: a limit that leaves no room for a sentence helps nobody.
const SHORTEST_ANSWER: u64 = 32;

/// The most tokens of one answer however fast the model is, against one that never ends.
const LONGEST_ANSWER: u64 = 32_768;

/// No tokenizer needs a token for less text than this, on the average of a conversation.
const LEAST_BYTES_A_TOKEN: u64 = 2;

/// For how long a server is known to refuse a limit.
const REFUSAL_REMEMBERED: Duration = Duration::from_secs(600);

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
pub struct Speeds(Mutex<HashMap<(usize, String), Known>>);

/// What is known of one model.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    speed: Option<Speed>,
    refused_a_limit: Option<Instant>,
}

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
        self.change(candidate, |known| {
            known.speed = Some(match known.speed {
                Some(before) => Speed {
                    tokens_a_second: (before.tokens_a_second + now.tokens_a_second) / 2.0,
                    until_first: (before.until_first + now.until_first) / 2,
                },
                None => now,
            });
        });
    }

    /// The server took a turn only without a limit: the next ones go without at once, for ten minutes.
    pub fn refused_a_limit(&self, candidate: &Candidate) {
        self.change(candidate, |known| known.refused_a_limit = Some(Instant::now()));
    }

    /// The most tokens that the answer to a conversation with so much text can have within `left`, or fewer if fewer are `wanted`.
    /// While no speed is known, only an answer without end is ruled out. `None`: the server has refused a limit lately, or might
    /// refuse this one because it is more than its context leaves; that context is the limit then.
    pub fn longest_answer(
        &self,
        candidate: &Candidate,
        wanted: Option<u64>,
        text_bytes: u64,
        left: Duration,
    ) -> Option<u64> {
        let wanted = wanted.unwrap_or(LONGEST_ANSWER).min(LONGEST_ANSWER);
        let known = self.known(candidate);
        if known.refused_a_limit.is_some_and(|since| since.elapsed() < REFUSAL_REMEMBERED) {
            return None;
        }
        if let Some(speed) = known.speed {
            let seconds = left.saturating_sub(speed.until_first).as_secs_f64() * PLANNED;
            let in_time = ((seconds * speed.tokens_a_second) as u64).max(SHORTEST_ANSWER);
            return Some(in_time.min(wanted));
        }
        let fits = candidate.context.is_none_or(|context| {
            !candidate.dialect.may_refuse_an_output_limit()
                || context.saturating_sub(text_bytes / LEAST_BYTES_A_TOKEN) >= wanted
        });
        fits.then_some(wanted)
    }

    fn known(&self, candidate: &Candidate) -> Known {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&(candidate.upstream, candidate.name.clone())).copied().unwrap_or_default()
    }

    fn change(&self, candidate: &Candidate, change: impl FnOnce(&mut Known)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(all.entry((candidate.upstream, candidate.name.clone())).or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::snapshot::{ServerState, Snapshot};
    use crate::settings::ModelSettings;
    use crate::upstream::dialect::Dialect;

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
        assert_eq!(speeds.longest_answer(&model, None, 100, seconds(100)), Some(LONGEST_ANSWER));
        let progress = Progress { pieces: 400, until_first: seconds(20), generating: seconds(10) };
        speeds.measure(&model, progress, None);
        // 80 s are left for the answer, of which 70 % are planned with, at 40 tokens a second.
        assert_eq!(speeds.longest_answer(&model, None, 100, seconds(100)), Some(2240));
        assert_eq!(speeds.longest_answer(&model, None, 100, seconds(10)), Some(SHORTEST_ANSWER));
        assert_eq!(speeds.longest_answer(&model, None, 100, seconds(100_000)), Some(LONGEST_ANSWER));
    }

    #[test]
    fn a_short_answer_says_nothing_about_the_speed_and_the_servers_count_goes_before_ours() {
        let speeds = Speeds::default();
        let model = candidate();
        let progress = Progress { pieces: 3, until_first: seconds(0), generating: seconds(3) };
        speeds.measure(&model, progress, Some(3));
        assert_eq!(speeds.longest_answer(&model, None, 100, seconds(100)), Some(LONGEST_ANSWER));
        speeds.measure(&model, progress, Some(300));
        assert_eq!(speeds.longest_answer(&model, None, 100, seconds(100)), Some(7000));
    }

    #[test]
    fn a_limit_that_the_server_may_refuse_is_not_sent_while_its_context_is_limit_enough() {
        let speeds = Speeds::default();
        let mut model = candidate();
        model.dialect = Dialect::Vllm;
        model.context = Some(32_768);
        assert_eq!(speeds.longest_answer(&model, None, 100, seconds(100)), None);
        model.context = Some(131_072);
        assert_eq!(speeds.longest_answer(&model, None, 100, seconds(100)), Some(LONGEST_ANSWER));
        assert_eq!(speeds.longest_answer(&model, None, 250_000, seconds(100)), None);
        model.dialect = Dialect::LlamaCpp;
        assert_eq!(speeds.longest_answer(&model, None, 250_000, seconds(100)), Some(LONGEST_ANSWER));
    }

    #[test]
    fn what_the_settings_want_counts_where_it_is_less() {
        let speeds = Speeds::default();
        let mut model = candidate();
        assert_eq!(speeds.longest_answer(&model, Some(500), 100, seconds(100)), Some(500));
        assert_eq!(speeds.longest_answer(&model, Some(100_000), 100, seconds(100)), Some(LONGEST_ANSWER));
        model.dialect = Dialect::Vllm;
        model.context = Some(4096);
        assert_eq!(speeds.longest_answer(&model, Some(500), 100, seconds(100)), Some(500));
        assert_eq!(speeds.longest_answer(&model, Some(500), 8000, seconds(100)), None);
        speeds.measure(&model, Progress { pieces: 100, until_first: seconds(0), generating: seconds(10) }, None);
        assert_eq!(speeds.longest_answer(&model, Some(500), 100, seconds(100)), Some(500));
        assert_eq!(speeds.longest_answer(&model, Some(500), 100, seconds(50)), Some(350));
        assert_eq!(speeds.longest_answer(&model, Some(5), 100, seconds(0)), Some(5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_refused_a_limit_gets_none_for_a_while() {
        let speeds = Speeds::default();
        let model = candidate();
        speeds.refused_a_limit(&model);
        assert_eq!(speeds.longest_answer(&model, None, 100, seconds(100)), None);
        tokio::time::advance(REFUSAL_REMEMBERED).await;
        assert_eq!(speeds.longest_answer(&model, None, 100, seconds(100)), Some(LONGEST_ANSWER));
    }
}
