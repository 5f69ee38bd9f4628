//! What a refusal or an error of a model server means.
//!
//! Servers disagree on everything but English: the same overflow arrives as 400, 413, 422, 500 or inside a 200 stream, in eight
//! shapes of body, and at times as JSON inside a string inside JSON. So the body is first brought down to the innermost message
//! (`shape`), and that is then held against an ordered list of rows (`rules`; the list itself is `config/failures.toml`).

mod rules;
mod shape;

pub use rules::{Example, Row, RuleError};

use rules::Rule;
use serde::Deserialize;

/// What a model server's refusal or error means, whatever its status and wording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meaning {
    /// The conversation does not fit into the model's context.
    ContextTooLong,
    /// The model cannot see pictures, or the server could not read this one.
    ImageUnsupported,
    /// A picture has too many bytes, pixels or tokens.
    ImageTooLarge,
    /// More pictures in one request than the server takes; fewer, but at least one, would do.
    TooManyImages,
    /// The server does not have this model, or has it but cannot chat with it.
    ModelNotFound,
    /// The server has no room for another turn right now.
    Busy,
    /// The server is up, but the model is not loaded yet.
    Loading,
    /// Something between here and the model gave up waiting.
    Timeout,
    /// The server wants a key, or other credentials than it was given.
    Credentials,
    /// The request has more bytes than the server, or something in front of it, takes. Whether a picture or the text is to
    /// blame, only the caller knows.
    BodyTooLarge,
    /// The model's template wants user and assistant to take turns.
    RolesMustAlternate,
    /// The model's template wants the user to speak first.
    FirstMessageMustBeUser,
    /// The server does not take a message without text.
    EmptyPrompt,
    /// The output limit that came with the request is more than the server allows; the conversation itself may be fine.
    OutputLimitTooHigh,
    /// Anything else: a crash, a bug, a wrong address.
    Failure,
}

/// The rows, ready to be held against answers. Built once, then shared.
#[derive(Debug, Clone)]
pub struct Classifier {
    rules: Vec<Rule>,
}

impl Classifier {
    /// The rows that come with Weir.
    pub fn embedded() -> Self {
        Self { rules: rules::embedded() }
    }

    /// A user's own rows, in their order, and after them the rows that come with Weir: the user's word counts first.
    ///
    /// # Errors
    /// The first row that could never match anything, or would match everything.
    pub fn with_rows(rows: Vec<Row>) -> Result<Self, RuleError> {
        let mut rules = rules::compile(rows)?;
        rules.extend(rules::embedded());
        Ok(Self { rules })
    }

    /// What an answer means.
    ///
    /// `status` is the HTTP status of the answer (200 for an error inside a stream); `body` the raw bytes of the error's body, or
    /// of the JSON of one event of a stream. Pure, bounded (at most 64 KiB are looked at), and never panics, whatever the bytes.
    /// What no row knows is a [`Meaning::Failure`].
    pub fn classify(&self, status: u16, body: &[u8]) -> Meaning {
        match self.first_match(status, body) {
            Some(index) => self.rules[index].meaning(),
            None => Meaning::Failure,
        }
    }

    fn first_match(&self, status: u16, body: &[u8]) -> Option<usize> {
        let said = shape::said(body);
        let status = real_status(status, said.status);
        self.rules.iter().position(|rule| rule.matches(status, &said))
    }
}

/// The status that the failure itself has. An error inside a 200 stream tells its own in its code, and a server that wraps
/// another one's error into a 500 or 502 hides the first one's status there; any other status says more than the body.
fn real_status(answered: u16, told: Option<u16>) -> u16 {
    match told {
        Some(told) if answered < 400 || answered == 500 || answered == 502 => told,
        _ => answered,
    }
}

#[cfg(test)]
mod tests;
