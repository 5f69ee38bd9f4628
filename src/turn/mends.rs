//! What can be changed about a prompt so that a backend takes it, without dropping, reordering or rewriting anything that
//! was said.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::catalog::snapshot::Candidate;
use crate::contract::disclosure::{IMAGE_WITHOUT_TEXT, MISSING_BEGINNING};
use crate::contract::{Conversation, Message, Part, Role, Text};
use crate::upstream::classify::Meaning;
use crate::upstream::exchange::Refusal;

/// What a model is sent: the conversation, and before it the system prompt of the settings, if there is one for it.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// What the model is told first.
    pub system_prompt: Option<Text>,
    /// The conversation.
    pub conversation: Conversation,
}

/// One change. They are made in the order in which they stand here, whatever the order of the refusals: after messages were
/// merged, a picture of an earlier one could not be told from one of the current turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mend {
    /// Pictures before the current turn give way to the contract's disclosure.
    DiscloseHistoricalImages,
    /// Neighbouring messages of the same role become one, for a template that demands alternation.
    MergeSameRole,
    /// A user message goes before a first assistant message, for a template that demands to begin with one.
    BeginWithUser,
    /// A sentence takes the place of empty text beside a picture, for an engine that refuses an empty prompt.
    NameTheImage,
    /// The system prompt of the settings is left out, for a template that knows no system messages.
    LeaveOutSystemPrompt,
}

impl Mend {
    /// The word in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Mend::DiscloseHistoricalImages => "disclose_historical_images",
            Mend::MergeSameRole => "merge_same_role",
            Mend::BeginWithUser => "begin_with_user",
            Mend::NameTheImage => "name_the_image",
            Mend::LeaveOutSystemPrompt => "leave_out_system_prompt",
        }
    }

    /// The change that may help after a refusal of that meaning, if the prompt (with the conversation as the phone sent it) has
    /// something to change and it was not changed so already.
    pub fn after(meaning: Meaning, prompt: &Prompt, tried: &[Mend]) -> Option<Self> {
        let may_help: &[Mend] = match meaning {
            // A history of pictures is the one thing that Weir may shorten: the disclosure says what is missing.
            Meaning::ImageUnsupported
            | Meaning::ImageUnreadable
            | Meaning::ImageTooLarge
            | Meaning::TooManyImages
            | Meaning::BodyTooLarge
            | Meaning::ContextTooLong => &[Mend::DiscloseHistoricalImages],
            // The same words are used for both faults, and by some templates for a system message that they do not know.
            Meaning::RolesMustAlternate => &[Mend::MergeSameRole, Mend::BeginWithUser, Mend::LeaveOutSystemPrompt],
            Meaning::FirstMessageMustBeUser => &[Mend::BeginWithUser, Mend::MergeSameRole, Mend::LeaveOutSystemPrompt],
            Meaning::EmptyPrompt => &[Mend::NameTheImage],
            Meaning::SystemPromptUnsupported => &[Mend::LeaveOutSystemPrompt],
            _ => &[],
        };
        may_help.iter().copied().find(|mend| !tried.contains(mend) && mend.has_something_to_do(prompt))
    }

    /// Whether a refusal tells something about the model. One about this conversation's pictures or size does not, nor does a
    /// server that reports a fault of its own, or that failed inside an answer. Only a template speaks of system messages, whatever
    /// the status that carries its words.
    pub fn is_worth_remembering(refusal: Refusal) -> bool {
        if refusal.meaning == Meaning::SystemPromptUnsupported {
            return true;
        }
        let is_of_the_model = matches!(
            refusal.meaning,
            Meaning::ImageUnsupported
                | Meaning::RolesMustAlternate
                | Meaning::FirstMessageMustBeUser
                | Meaning::EmptyPrompt
        );
        is_of_the_model && refusal.status.is_client_error()
    }

    /// Whether the prompt has anything that this changes.
    pub fn has_something_to_do(self, prompt: &Prompt) -> bool {
        let messages = &prompt.conversation.messages;
        match self {
            Mend::DiscloseHistoricalImages => {
                messages.iter().rev().skip(1).any(|message| message.images().next().is_some())
            }
            Mend::MergeSameRole => messages.windows(2).any(|pair| pair[0].role == pair[1].role),
            Mend::BeginWithUser => messages.first().is_some_and(|message| message.role == Role::Assistant),
            Mend::NameTheImage => messages.iter().any(is_image_without_text),
            Mend::LeaveOutSystemPrompt => prompt.system_prompt.is_some(),
        }
    }

    fn apply(self, prompt: &mut Prompt) {
        let has_something_to_do = self.has_something_to_do(prompt);
        let messages = &mut prompt.conversation.messages;
        match self {
            Mend::DiscloseHistoricalImages => prompt.conversation.disclose_historical_images(),
            Mend::MergeSameRole => merge_same_role(messages),
            Mend::BeginWithUser => {
                if has_something_to_do {
                    let parts = vec![Part::Text(Text::constant(MISSING_BEGINNING))];
                    messages.insert(0, Message { role: Role::User, parts });
                }
            }
            Mend::NameTheImage => {
                messages.iter_mut().filter(|message| is_image_without_text(message)).for_each(name_image);
            }
            Mend::LeaveOutSystemPrompt => prompt.system_prompt = None,
        }
    }
}

/// The prompt with these changes made.
pub fn mended(prompt: &Prompt, mends: &[Mend]) -> Prompt {
    let mut prompt = prompt.clone();
    let mut in_order = mends.to_vec();
    in_order.sort_unstable();
    for mend in in_order {
        mend.apply(&mut prompt);
    }
    prompt
}

/// The parts of a run stay as they are and in order; text parts of one message are joined with one line feed on the wire.
fn merge_same_role(messages: &mut Vec<Message>) {
    let mut merged: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages.drain(..) {
        match merged.last_mut() {
            Some(last) if last.role == message.role => last.parts.extend(message.parts),
            _ => merged.push(message),
        }
    }
    *messages = merged;
}

fn is_image_without_text(message: &Message) -> bool {
    message.images().next().is_some() && message.texts().all(Text::is_empty)
}

fn name_image(message: &mut Message) {
    let sentence = Part::Text(Text::constant(IMAGE_WITHOUT_TEXT));
    match message.parts.iter_mut().find(|part| matches!(part, Part::Text(_))) {
        Some(empty) => *empty = sentence,
        None => message.parts.insert(0, sentence),
    }
}

/// For how long a model is known to need its mends.
const REMEMBERED: Duration = Duration::from_secs(600);

/// Which models needed which mends lately, so that their next turn is right at once.
#[derive(Debug, Default)]
pub struct Remembered(Mutex<HashMap<ModelOfServer, Lesson>>);

/// The place of a server in the settings, and the name under which it knows a model.
type ModelOfServer = (usize, String);

#[derive(Debug)]
struct Lesson {
    learned: Instant,
    /// Which server and model it was: another under the same name has to teach its own.
    identity: String,
    mends: Vec<Mend>,
}

impl Remembered {
    /// What this model needed lately.
    pub fn recall(&self, candidate: &Candidate) -> Vec<Mend> {
        let mut lessons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lessons.retain(|_, lesson| lesson.learned.elapsed() < REMEMBERED);
        let lesson = lessons.get(&(candidate.upstream, candidate.name.clone()));
        lesson
            .filter(|lesson| lesson.identity == candidate.identity)
            .map(|lesson| lesson.mends.clone())
            .unwrap_or_default()
    }

    /// Keeps what helped beside what is known.
    pub fn keep(&self, candidate: &Candidate, helped: &[Mend]) {
        let mut mends = self.recall(candidate);
        mends.extend(helped.iter().filter(|mend| !mends.contains(mend)).copied().collect::<Vec<_>>());
        let lesson = Lesson { learned: Instant::now(), identity: candidate.identity.clone(), mends };
        let mut lessons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lessons.insert((candidate.upstream, candidate.name.clone()), lesson);
    }
}
