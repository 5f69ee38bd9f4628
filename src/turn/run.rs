//! One turn that has its permit: ask, mend what a refusal shows can be mended, ask a second time where an answer has no text.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};

use super::admission::HeldPermit;
use super::collapse::{Collapsed, NoAnswer, collapse};
use super::mends::{Mend, Prompt, mended};
use super::outcome::Circumstances;
use super::speed::Progress;
use super::{Clock, Ended, Turns, reasoning};
use crate::catalog::snapshot::{Candidate, Entry};
use crate::contract::{Conversation, Failure, Reply, Usage};
use crate::observe::TurnRecord;
use crate::settings::Reasoning;
use crate::upstream::Upstream;
use crate::upstream::broken::Broken;
use crate::upstream::classify::Meaning;
use crate::upstream::dialect::Question;
use crate::upstream::exchange::{Answer, Refusal};
use crate::upstream::pace::Pace;
use crate::upstream::piece::ToolCall;

/// Text of more than this for each token may be too long: where the server counts tokens, it is asked before the turn is sent.
const BYTES_A_TOKEN_WORTH_COUNTING: u64 = 2;

/// A prompt with more text than this for each token that the server says it read was not read whole, if what it read fills the
/// context (nine tenths of it): some four bytes make a token of most texts.
const BYTES_A_TOKEN_OF_A_FULL_CONTEXT: u64 = 5;

/// The same where half of the context was read, which is what a cut in the middle leaves.
const BYTES_A_TOKEN_OF_HALF_A_CONTEXT: u64 = 10;

/// Text of more than this for each token of the context is clearly too long for it: prose and code in most languages have fewer.
const MOST_BYTES_A_TOKEN_OF_PROSE: u64 = 6;

/// So long before its deadline an answer that is whole is given, whatever may still come behind it.
const LAST_MOMENT: Duration = Duration::from_millis(20);

/// One turn that has its permit.
pub(super) struct Run<'a> {
    pub(super) turns: &'a Turns,
    pub(super) entry: &'a Entry,
    pub(super) candidate: &'a Candidate,
    pub(super) upstream: &'a Upstream,
    pub(super) permit: HeldPermit,
    pub(super) clock: Clock,
    /// Whether another server could take the turn if this one cannot be reached.
    pub(super) others: bool,
}

/// What one question came to.
enum Attempt {
    Answered(Collapsed),
    NoAnswer(NoAnswer),
    /// The deadline passed before the server took the turn up.
    NeverStarted,
    /// The deadline passed after it had.
    Deadline,
}

impl Run<'_> {
    /// The question as it is sent to this model.
    fn question<'q>(
        &'q self,
        prompt: &'q Prompt,
        reasoning: Reasoning,
        unanswered_calls: &'q [ToolCall],
    ) -> Question<'q> {
        Question {
            model: &self.candidate.name,
            system_prompt: prompt.system_prompt.as_ref(),
            conversation: &prompt.conversation,
            reasoning,
            reasons: self.candidate.reasons,
            context_to_ask_for: self.candidate.context_to_ask_for,
            keep_alive: self.upstream.settings.keep_alive.as_deref(),
            unanswered_calls,
            longest_answer: None,
            temperature: self.entry.temperature,
        }
    }

    /// The output limit that ends an answer before the turn's time does, or at least one that never would; the settings may want
    /// a lower one.
    fn longest_answer(&self, conversation: &Conversation) -> Option<u64> {
        let left = self.clock.deadline.saturating_duration_since(Instant::now());
        let wanted = self.entry.longest_answer;
        self.turns.speeds.longest_answer(self.candidate, wanted, conversation.text_bytes() as u64, left)
    }

    /// Where it is close, the server's own count decides before it is asked to generate.
    pub(super) async fn refuse_what_is_counted_too_long(&self, prompt: &Prompt) -> Result<(), Failure> {
        let Some(context) = self.candidate.context else { return Ok(()) };
        let conversation = &prompt.conversation;
        if conversation.text_bytes() as u64 <= context.saturating_mul(BYTES_A_TOKEN_WORTH_COUNTING) {
            return Ok(());
        }
        let body = self.candidate.dialect.encode(&self.question(prompt, self.entry.reasoning, &[]));
        let counting = self.upstream.count_tokens(self.candidate.dialect, body);
        match tokio::time::timeout_at(self.clock.deadline, counting).await {
            // A picture in the history can still give way to its disclosure, so only text is refused for good here.
            Ok(Some(tokens)) if tokens >= context && conversation.image_count() == 0 => {
                Err(Failure::context_too_long())
            }
            _ => Ok(()),
        }
    }

    /// Asks, mends what a refusal shows can be mended, and asks a second time where an answer has no text.
    pub(super) async fn to_the_end(&self, asked_for: Prompt, record: &mut TurnRecord) -> Result<Reply, Ended> {
        let named_model = asked_for.conversation.model.is_some();
        let current_image = asked_for.conversation.has_current_image();
        let any_image = asked_for.conversation.image_count() > 0;
        let circumstances = |seen_lately| Circumstances { named_model, current_image, any_image, seen_lately };

        let mut tried = self.turns.remembered.recall(self.candidate);
        tried.retain(|mend| mend.has_something_to_do(&asked_for));
        record.repairs.extend(tried.iter().map(|mend| mend.as_str()));
        let mut prompt = mended(&asked_for, &tried);
        let mut learned: Vec<Mend> = Vec::new();
        let mut reasoning = self.entry.reasoning;
        let mut unanswered_calls: Vec<ToolCall> = Vec::new();
        let mut second_generation = false;
        let mut limited = true;
        loop {
            let mut question = self.question(&prompt, reasoning, &unanswered_calls);
            question.longest_answer = self.longest_answer(&prompt.conversation).filter(|_| limited);
            let asked = Instant::now();
            let attempt = self.ask(&question, record).await;
            let circumstances = circumstances(self.upstream.seen_lately());
            let answer = match attempt {
                Attempt::Answered(answer) => answer,
                // Older vLLM adds the limit to the prompt and calls the sum too long.
                Attempt::NoAnswer(NoAnswer::Refused(Refusal {
                    meaning: Meaning::OutputLimitTooHigh | Meaning::ContextTooLong,
                    ..
                })) if question.longest_answer.is_some() && self.candidate.dialect.may_refuse_an_output_limit() => {
                    limited = false;
                    record.repairs.push("no_output_limit");
                    continue;
                }
                Attempt::NoAnswer(NoAnswer::Refused(refusal)) => {
                    let Some(mend) = Mend::after(refusal.meaning, &asked_for, &tried) else {
                        return Err(Box::pin(self.refused(refusal.meaning, circumstances)).await.into());
                    };
                    debug!(mend = mend.as_str(), "the model server refused; mending");
                    tried.push(mend);
                    prompt = mended(&asked_for, &tried);
                    if Mend::is_worth_remembering(refusal) {
                        learned.push(mend);
                    }
                    record.repairs.push(mend.as_str());
                    continue;
                }
                Attempt::NoAnswer(NoAnswer::Broken(broken @ Broken::NotConnected(_))) => {
                    self.turns.catalog.surprised(self.candidate.upstream);
                    return Err(Ended::NotReached(circumstances.broken(broken)));
                }
                Attempt::NoAnswer(no_answer) => {
                    return Err(self.unanswered(no_answer, &prompt.conversation, circumstances).into());
                }
                Attempt::NeverStarted => {
                    return Err(Failure::overloaded("the model server did not take the turn up in time").into());
                }
                Attempt::Deadline => {
                    return Err(Failure::upstream_timeout("the model server did not finish in time").into());
                }
            };
            if !limited {
                self.turns.speeds.refused_a_limit(self.candidate);
            }
            if !learned.is_empty() {
                self.turns.remembered.keep(self.candidate, &learned);
                if learned.contains(&Mend::LeaveOutSystemPrompt) {
                    warn!(
                        model = self.entry.id,
                        "the template of this model takes no system message: system_prompt is not sent to it"
                    );
                }
            }
            let text = reasoning::strip(&answer.text, self.candidate.reasons != Some(false));
            if !reasoning::is_blank(text) {
                self.warn_of_a_cut_conversation(&prompt.conversation, &answer);
                return Ok(self.reply(&answer, text.to_owned(), record));
            }
            // A second generation is worth it only if it can be as long as the first.
            let took = asked.elapsed();
            let may_ask_again = !second_generation && self.clock.deadline.duration_since(Instant::now()) >= took;
            let reasoned = answer.reasoning || !reasoning::is_blank(&answer.text);
            if may_ask_again && !answer.tool_calls.is_empty() {
                unanswered_calls = answer.tool_calls;
                record.repairs.push("answer_tool_calls");
            } else if may_ask_again && reasoned && reasoning != Reasoning::Off {
                reasoning = Reasoning::Off;
                record.repairs.push("reasoning_off");
            } else if reasoned || !answer.tool_calls.is_empty() {
                return Err(Failure::upstream_failure("the model produced no text").into());
            } else {
                return Err(self.empty(&prompt.conversation, answer.usage).into());
            }
            second_generation = true;
        }
    }

    /// Sends one question and reads its answer, within the deadline.
    async fn ask(&self, question: &Question<'_>, record: &mut TurnRecord) -> Attempt {
        let body = self.candidate.dialect.encode(question);
        let latest_start = self.clock.latest_start();
        let mut connecting = Pace::connecting();
        let mut loading = Pace::loading();
        loop {
            self.permit.asking();
            let asked = Instant::now();
            let asking = self.upstream.ask(self.candidate.dialect, body.clone(), &self.turns.classifier);
            let answer = match tokio::time::timeout_at(self.clock.deadline, asking).await {
                Ok(answer) => answer,
                Err(_) => return Attempt::Deadline,
            };
            if !matches!(answer, Ok(Answer::Begun(_))) {
                self.permit.answered();
            }
            // Nothing was generated in either case, so asking again is no second turn.
            let wait = match answer {
                Err(broken @ Broken::NotConnected(obstacle)) => match connecting.next_wait() {
                    Some(wait) if !self.others && !obstacle.is_lasting() => wait,
                    _ => return Attempt::NoAnswer(NoAnswer::Broken(broken)),
                },
                Ok(Answer::Refused(Refusal { meaning: Meaning::Loading, .. })) => {
                    loading.next_wait().unwrap_or_default()
                }
                Err(broken) => return Attempt::NoAnswer(NoAnswer::Broken(broken)),
                Ok(Answer::Refused(refusal)) => return Attempt::NoAnswer(NoAnswer::Refused(refusal)),
                Ok(Answer::Begun(pieces)) => {
                    let cap = self.turns.reply_cap;
                    let mut progress = Progress::default();
                    let mut first = None;
                    let generated = || {
                        let since = *first.get_or_insert_with(|| {
                            self.permit.answered();
                            record.first_token = Some(self.clock.received.elapsed());
                            progress.until_first = asked.elapsed();
                            Instant::now()
                        });
                        progress.pieces += 1;
                        progress.generating = since.elapsed();
                    };
                    let latest = self.clock.deadline - LAST_MOMENT;
                    let collapsing = collapse(pieces, &self.turns.classifier, cap, latest, generated);
                    let ended = tokio::time::timeout_at(self.clock.deadline, collapsing).await;
                    let usage = ended.as_ref().ok().and_then(|ended| ended.as_ref().ok()?.usage);
                    self.turns.speeds.measure(
                        self.candidate,
                        progress,
                        usage.and_then(|usage| usage.completion_tokens),
                    );
                    return match ended {
                        Ok(ended) => {
                            self.permit.answered();
                            ended.map_or_else(Attempt::NoAnswer, Attempt::Answered)
                        }
                        Err(_) => Attempt::Deadline,
                    };
                }
            };
            if Instant::now() + wait >= latest_start {
                tokio::time::sleep_until(latest_start).await;
                return Attempt::NeverStarted;
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// A refusal that nothing mends.
    async fn refused(&self, meaning: Meaning, circumstances: Circumstances) -> Failure {
        let name = &self.upstream.settings.name;
        match meaning {
            // A mis-set route must not empty the list: the server is asked before the model counts as gone.
            Meaning::ModelNotFound => {
                let look = self.turns.catalog.look(self.candidate.upstream);
                if tokio::time::timeout_at(self.clock.deadline, look).await.is_err() {
                    self.turns.catalog.surprised(self.candidate.upstream);
                }
            }
            // A server that is another one by now, or is not well, is looked at anew.
            Meaning::WrongAddress | Meaning::Failure | Meaning::Timeout => {
                self.turns.catalog.surprised(self.candidate.upstream)
            }
            Meaning::Credentials => {
                warn!(upstream = name, "the model server does not accept the key: set upstream.{name}.api_key_file");
            }
            _ => {}
        }
        circumstances.failure(meaning)
    }

    fn unanswered(&self, no_answer: NoAnswer, conversation: &Conversation, circumstances: Circumstances) -> Failure {
        // Whatever it was, the server may not be the one that it was when it was last looked at.
        self.turns.catalog.surprised(self.candidate.upstream);
        match no_answer {
            NoAnswer::Refused(Refusal { meaning, .. }) | NoAnswer::Failed(meaning) => circumstances.failure(meaning),
            NoAnswer::Broken(broken) => circumstances.broken(broken),
            NoAnswer::Partial => Failure::upstream_failure("the answer ended before it was finished"),
            NoAnswer::Nothing => self.empty(conversation, None),
            NoAnswer::TooLong => Failure::upstream_failure("the answer is over this adapter's cap (limits.reply)"),
        }
    }

    /// An answer in which nothing at all was generated. LM Studio ends a conversation that does not fit so (bug tracker 2339), as
    /// if all were well; where that is clear, it is told.
    fn empty(&self, conversation: &Conversation, usage: Option<Usage>) -> Failure {
        let read = usage.and_then(|usage| usage.prompt_tokens);
        let text = conversation.text_bytes() as u64;
        let too_long = |context: u64| {
            read.is_some_and(|read| read >= context) || text > context.saturating_mul(MOST_BYTES_A_TOKEN_OF_PROSE)
        };
        if self.candidate.context.is_some_and(too_long) {
            return Failure::context_too_long();
        }
        Failure::upstream_failure("the answer of the model server is empty")
    }

    /// An older Ollama ignores `truncate` and drops the start of a conversation without a word; so does any behind its `/v1`.
    fn warn_of_a_cut_conversation(&self, conversation: &Conversation, answer: &Collapsed) {
        let read = answer.usage.and_then(|usage| usage.prompt_tokens);
        let (Some(read), Some(context)) = (read, self.candidate.context) else { return };
        let text = conversation.text_bytes() as u64;
        let is_full =
            read.saturating_mul(10) >= context.saturating_mul(9) && text > read * BYTES_A_TOKEN_OF_A_FULL_CONTEXT;
        // A count far below the context is that of a prompt that was cached.
        let is_half = read >= context / 2 && text > read * BYTES_A_TOKEN_OF_HALF_A_CONTEXT;
        if self.candidate.tagged && (is_full || is_half) {
            warn!(
                model = self.entry.id,
                read_tokens = read,
                context_tokens = context,
                text_bytes = text,
                "Ollama read only a part of the conversation: the model answered without its beginning. Update Ollama, or set a \
                 larger upstream.{}.context",
                self.upstream.settings.name
            );
        }
    }

    fn reply(&self, answer: &Collapsed, content: String, record: &mut TurnRecord) -> Reply {
        record.usage = answer.usage;
        record.finish_reason = answer.finish_reason;
        Reply {
            content,
            finish_reason: answer.finish_reason,
            model: self.entry.id.clone(),
            id: answer.id.clone(),
            usage: answer.usage,
        }
    }
}
