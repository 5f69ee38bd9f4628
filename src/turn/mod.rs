//! The life of one turn: which model, whether it can take the pictures, a permit, the question, the answer, one clock over
//! all of it.

pub mod admission;
pub mod collapse;
pub mod mends;
pub mod outcome;
pub mod reasoning;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};

use crate::catalog::Catalog;
use crate::catalog::snapshot::{Candidate, Entry};
use crate::contract::{Conversation, Failure, Reply};
use crate::observe::TurnRecord;
use crate::settings::{Reasoning, Settings};
use crate::upstream::Upstream;
use crate::upstream::classify::{Classifier, Meaning};
use crate::upstream::client::Broken;
use crate::upstream::dialect::{Dialect, Question, Sight};
use crate::upstream::exchange::Answer;
use crate::upstream::pace::Pace;
use crate::upstream::piece::ToolCall;
use admission::{Admission, NotAdmitted};
use collapse::{Collapsed, NoAnswer, collapse};
use mends::{Mend, Remembered};
use outcome::Circumstances;

/// More text than this for each token of a known context cannot fit, whatever the tokenizer: refused before it is sent, since
/// llama-server would read it for minutes first.
const MOST_BYTES_A_TOKEN: u64 = 16;

/// Text of more than this for each token may be too long: where the server counts tokens, it is asked before the turn is sent.
const BYTES_A_TOKEN_WORTH_COUNTING: u64 = 2;

/// A prompt with more text than this for each token that the server says it read was not read whole.
const MOST_BYTES_A_READ_TOKEN: u64 = 10;

/// What all turns share.
#[derive(Debug)]
pub struct Turns {
    settings: Arc<Settings>,
    catalog: Arc<Catalog>,
    classifier: Classifier,
    admissions: Vec<Admission>,
    remembered: Remembered,
}

impl Turns {
    /// Gets ready for turns on the servers of the catalog.
    pub fn new(settings: Arc<Settings>, catalog: Arc<Catalog>, classifier: Classifier) -> Self {
        let admissions = catalog.upstreams().iter().map(|_| Admission::new(settings.limits.queue)).collect();
        Turns { settings, catalog, classifier, admissions, remembered: Remembered::default() }
    }

    /// Turns that run and turns that wait, over all servers.
    pub fn load(&self) -> (usize, usize) {
        let sum = |count: fn(&Admission) -> usize| self.admissions.iter().map(count).sum();
        (sum(Admission::running), sum(Admission::waiting))
    }

    /// Runs one turn. `received` is when the last byte of the request body was there: the clock starts then. Dropping the future
    /// (the phone hung up) closes the connection to the server and returns the permit.
    ///
    /// # Errors
    /// The failure that the phone is told.
    pub async fn run(
        &self,
        conversation: Conversation,
        received: Instant,
        record: &mut TurnRecord,
    ) -> Result<Reply, Failure> {
        let deadline = received + self.settings.timeouts.turn;
        let snapshot = self.catalog.after_first_look().await;
        let entry = self.select(&snapshot, conversation.model.as_deref())?;
        let candidate = entry
            .candidate()
            .ok_or_else(|| Failure::upstream_failure("no model server has this model at the moment"))?;
        let upstream = Arc::clone(self.catalog.upstream(candidate.upstream));
        record.model = Some(entry.id.clone());
        record.upstream = Some(upstream.settings.name.clone());

        let mut conversation = conversation;
        apply_image_policy(&mut conversation, entry, candidate)?;
        refuse_what_cannot_fit(&conversation, candidate)?;

        let admission = &self.admissions[candidate.upstream];
        admission.resize(candidate.turns_at_once);
        let queued = Instant::now();
        let permit = admission.admit(latest_start(received, deadline)).await.map_err(|refused| match refused {
            NotAdmitted::QueueFull => Failure::queue_full("all places are taken and the queue is full"),
            NotAdmitted::NeverStarted => {
                Failure::queue_full("the turn waited in the queue and could not start in time")
            }
        });
        record.queued = queued.elapsed();
        let _permit = permit?;

        let run = Run { turns: self, entry, candidate, upstream: &upstream, received, deadline };
        run.refuse_what_is_counted_too_long(&conversation).await?;
        run.to_the_end(conversation, record).await
    }

    /// The model of a turn: the one that the app named, else the default.
    fn select<'a>(
        &self,
        snapshot: &'a crate::catalog::snapshot::Snapshot,
        named: Option<&str>,
    ) -> Result<&'a Entry, Failure> {
        match (named, snapshot.default.as_deref()) {
            // Nothing at all is known: whether the name is right cannot be told.
            (Some(_), _) if snapshot.entries.is_empty() => {
                Err(Failure::upstream_failure("no model server has answered yet"))
            }
            (Some(named), _) => snapshot.find(named).ok_or_else(Failure::model_not_found),
            (None, Some(default)) => snapshot.find(default).ok_or_else(|| {
                warn!(default, "models.default is on no model server; GET /v1/models lists what is there");
                Failure::upstream_failure("the default model is not on the model server")
            }),
            (None, None) => Err(Failure::upstream_failure("there is no model that can chat")),
        }
    }
}

/// Until when a turn may wait for its start: shortly before its deadline, so that one that never started says so.
fn latest_start(received: Instant, deadline: Instant) -> Instant {
    let turn = deadline - received;
    deadline - (turn / 10).min(Duration::from_secs(2))
}

/// A picture never vanishes: the current one is refused where it cannot be seen, earlier ones are disclosed.
fn apply_image_policy(conversation: &mut Conversation, entry: &Entry, candidate: &Candidate) -> Result<(), Failure> {
    let sees = matches!(candidate.sight, Sight::Sees(_));
    if let Some(current) = conversation.current()
        && current.images().next().is_some()
    {
        if candidate.sight == Sight::Unknown {
            warn!(
                model = entry.id,
                "a picture was declined: nothing tells whether this model sees pictures; if it does, set images = true \
                 under [models.override.\"{}\"]",
                entry.id
            );
        }
        if !sees {
            return Err(Failure::image_unsupported("this model takes text only"));
        }
        if !current.images().all(|image| candidate.dialect.decodes(image.kind())) {
            return Err(Failure::image_unsupported("the model server cannot decode a picture of this kind"));
        }
    }
    conversation.disclose_historical_images_where(|image| !sees || !candidate.dialect.decodes(image.kind()));
    Ok(())
}

fn refuse_what_cannot_fit(conversation: &Conversation, candidate: &Candidate) -> Result<(), Failure> {
    let most = candidate.context.map(|tokens| tokens.saturating_mul(MOST_BYTES_A_TOKEN));
    match most {
        Some(most) if conversation.text_bytes() as u64 > most => Err(Failure::context_too_long()),
        _ => Ok(()),
    }
}

/// One turn that has its permit.
struct Run<'a> {
    turns: &'a Turns,
    entry: &'a Entry,
    candidate: &'a Candidate,
    upstream: &'a Upstream,
    received: Instant,
    deadline: Instant,
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
        conversation: &'q Conversation,
        reasoning: Reasoning,
        unanswered_calls: &'q [ToolCall],
    ) -> Question<'q> {
        Question {
            model: &self.candidate.name,
            conversation,
            reasoning,
            reasons: self.candidate.reasons,
            context_to_ask_for: self.candidate.context_to_ask_for,
            keep_alive: self.upstream.settings.keep_alive.as_deref(),
            unanswered_calls,
        }
    }

    /// Where it is close, the server's own count decides before it is asked to generate.
    async fn refuse_what_is_counted_too_long(&self, conversation: &Conversation) -> Result<(), Failure> {
        let Some(context) = self.candidate.context else { return Ok(()) };
        if conversation.text_bytes() as u64 <= context.saturating_mul(BYTES_A_TOKEN_WORTH_COUNTING) {
            return Ok(());
        }
        let body = self.candidate.dialect.encode(&self.question(conversation, self.entry.reasoning, &[]));
        let counting = self.upstream.count_tokens(self.candidate.dialect, body);
        match tokio::time::timeout_at(self.deadline, counting).await {
            // A picture in the history can still give way to its disclosure, so only text is refused for good here.
            Ok(Some(tokens)) if tokens >= context && conversation.image_count() == 0 => {
                Err(Failure::context_too_long())
            }
            _ => Ok(()),
        }
    }

    /// Asks, mends what a refusal shows can be mended, and asks a second time where an answer has no text.
    async fn to_the_end(&self, mut conversation: Conversation, record: &mut TurnRecord) -> Result<Reply, Failure> {
        let named_model = conversation.model.is_some();
        let current_image = conversation.current().is_some_and(|current| current.images().next().is_some());
        let any_image = conversation.image_count() > 0;
        let circumstances = |seen_lately| Circumstances { named_model, current_image, any_image, seen_lately };

        let mut tried = self.turns.remembered.recall(self.candidate);
        let recalled = tried.len();
        for mend in &tried {
            mend.apply(&mut conversation);
            record.repairs.push(mend.as_str());
        }
        let mut reasoning = self.entry.reasoning;
        let mut unanswered_calls: Vec<ToolCall> = Vec::new();
        let mut second_generation = false;
        loop {
            let question = self.question(&conversation, reasoning, &unanswered_calls);
            let asked = Instant::now();
            let attempt = self.ask(&question, record).await;
            let circumstances = circumstances(self.upstream.seen_lately());
            let answer = match attempt {
                Attempt::Answered(answer) => answer,
                Attempt::NoAnswer(NoAnswer::Refused(meaning)) => {
                    let Some(mend) = Mend::after(meaning, &conversation, &tried) else {
                        return Err(self.refused(meaning, circumstances).await);
                    };
                    debug!(mend = mend.as_str(), "the model server refused; mending");
                    mend.apply(&mut conversation);
                    tried.push(mend);
                    record.repairs.push(mend.as_str());
                    continue;
                }
                Attempt::NoAnswer(no_answer) => return Err(self.unanswered(no_answer, circumstances)),
                Attempt::NeverStarted => {
                    return Err(Failure::overloaded("the model server did not take the turn up in time"));
                }
                Attempt::Deadline => {
                    return Err(Failure::upstream_timeout("the model server did not finish in time"));
                }
            };
            if tried.len() > recalled {
                self.turns.remembered.keep(self.candidate, &tried);
            }
            let text = reasoning::strip(&answer.text, self.candidate.reasons != Some(false));
            if !text.trim().is_empty() {
                self.warn_of_a_cut_conversation(&conversation, &answer);
                return self.reply(&answer, text.to_owned(), record);
            }
            // A second generation is worth it only if it can be as long as the first.
            let took = asked.elapsed();
            let may_ask_again = !second_generation && self.deadline.duration_since(Instant::now()) >= took;
            let reasoned = answer.reasoning || !answer.text.trim().is_empty();
            if may_ask_again && !answer.tool_calls.is_empty() {
                unanswered_calls = answer.tool_calls;
                record.repairs.push("answer_tool_calls");
            } else if may_ask_again && reasoned && reasoning != Reasoning::Off {
                reasoning = Reasoning::Off;
                record.repairs.push("reasoning_off");
            } else {
                return Err(Failure::upstream_failure("the model produced no text"));
            }
            second_generation = true;
        }
    }

    /// Sends one question and reads its answer, within the deadline.
    async fn ask(&self, question: &Question<'_>, record: &mut TurnRecord) -> Attempt {
        let body = self.candidate.dialect.encode(question);
        let latest_start = latest_start(self.received, self.deadline);
        let mut connecting = Pace::connecting();
        let mut loading = Pace::loading();
        loop {
            let asking = self.upstream.ask(self.candidate.dialect, body.clone(), &self.turns.classifier);
            let answer = match tokio::time::timeout_at(self.deadline, asking).await {
                Ok(answer) => answer,
                Err(_) => return Attempt::Deadline,
            };
            // Nothing was generated in either case, so asking again is no second turn.
            let wait = match answer {
                Err(Broken::NotConnected) => match connecting.next_wait() {
                    Some(wait) => wait,
                    None => return Attempt::NoAnswer(NoAnswer::Broken(Broken::NotConnected)),
                },
                Ok(Answer::Refused(Meaning::Loading)) => loading.next_wait().unwrap_or_default(),
                Err(broken) => return Attempt::NoAnswer(NoAnswer::Broken(broken)),
                Ok(Answer::Refused(meaning)) => return Attempt::NoAnswer(NoAnswer::Refused(meaning)),
                Ok(Answer::Begun(pieces)) => {
                    let cap = self.turns.settings.limits.reply;
                    let received = self.received;
                    let first = || record.first_token = Some(received.elapsed());
                    let collapsing = collapse(pieces, &self.turns.classifier, cap, first);
                    return match tokio::time::timeout_at(self.deadline, collapsing).await {
                        Ok(Ok(answer)) => Attempt::Answered(answer),
                        Ok(Err(no_answer)) => Attempt::NoAnswer(no_answer),
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
                if tokio::time::timeout_at(self.deadline, look).await.is_err() {
                    self.turns.catalog.surprised(self.candidate.upstream);
                }
            }
            Meaning::Credentials => {
                warn!(upstream = name, "the model server does not accept the key: set upstream.{name}.api_key_file");
            }
            _ => {}
        }
        circumstances.failure(meaning)
    }

    fn unanswered(&self, no_answer: NoAnswer, circumstances: Circumstances) -> Failure {
        match no_answer {
            NoAnswer::Refused(meaning) | NoAnswer::Failed(meaning) => circumstances.failure(meaning),
            NoAnswer::Broken(broken) => {
                self.turns.catalog.surprised(self.candidate.upstream);
                circumstances.broken(broken)
            }
            NoAnswer::Partial => Failure::upstream_failure("the answer ended before it was finished"),
            NoAnswer::TooLong => Failure::upstream_failure("the answer is over this adapter's cap (limits.reply)"),
        }
    }

    /// Ollama before 0.12 ignores `truncate` on its native route, too, and drops the start of a conversation without a word.
    fn warn_of_a_cut_conversation(&self, conversation: &Conversation, answer: &Collapsed) {
        let read = answer.usage.and_then(|usage| usage.prompt_tokens);
        let (Some(read), Some(context)) = (read, self.candidate.context) else { return };
        let text = conversation.text_bytes() as u64;
        // A count far below the context is that of a prompt that was cached.
        if self.candidate.dialect == Dialect::Ollama && read >= context / 2 && text > read * MOST_BYTES_A_READ_TOKEN {
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

    fn reply(&self, answer: &Collapsed, content: String, record: &mut TurnRecord) -> Result<Reply, Failure> {
        record.usage = answer.usage;
        record.finish_reason = answer.finish_reason;
        Ok(Reply {
            content,
            finish_reason: answer.finish_reason,
            model: self.entry.id.clone(),
            id: answer.id.clone(),
            usage: answer.usage,
        })
    }
}
