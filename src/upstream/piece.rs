//! What one document of an answer adds to the turn, in one form for every dialect.

use std::borrow::Cow;

use serde::Serialize;

use crate::contract::Usage;

/// Why an engine says that it stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It came to its own end.
    Stop,
    /// An output limit or its context ended it, or a loop detector.
    Length,
    /// A filter ended it.
    ContentFilter,
    /// It wants a tool to be called.
    ToolCalls,
    /// It says that it did not come to an end: aborted, failed, only loaded.
    NotAnEnd,
}

impl End {
    /// Reads the word of a finish reason. Words that nobody is known to use for a whole answer are none: an answer that may be
    /// partial is never passed on.
    pub fn from_word(word: &str) -> Self {
        match word.to_ascii_lowercase().as_str() {
            "stop" | "eos" | "eos_token" | "stop_sequence" | "end_turn" => End::Stop,
            "length" | "max_tokens" | "model_length" | "repetition" => End::Length,
            "content_filter" => End::ContentFilter,
            "tool_calls" | "function_call" | "tool_use" => End::ToolCalls,
            _ => End::NotAnEnd,
        }
    }
}

/// The most tool calls of one answer that are kept: they are only counted and answered, never passed on.
pub const MOST_CALLS: usize = 64;

/// A call of a tool, or a piece of one: streams send the arguments bit by bit. It is never passed on to the phone.
#[derive(Clone, PartialEq, Eq, Default, Serialize)]
pub struct ToolCall {
    /// Its place among the calls of this answer.
    #[serde(skip)]
    pub index: usize,
    /// The id that the engine gave it.
    pub id: String,
    /// The function's name.
    pub name: String,
    /// The arguments as JSON text.
    pub arguments: String,
}

impl std::fmt::Debug for ToolCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ToolCall({})", self.index)
    }
}

/// What one document adds. `Debug` shows no text.
#[derive(Clone, Default)]
pub struct Piece<'a> {
    /// Text of the answer.
    pub text: Cow<'a, str>,
    /// Whether it carried reasoning, which is never part of the answer.
    pub reasoning: bool,
    /// Calls of tools, or pieces of them.
    pub tool_calls: Vec<ToolCall>,
    /// The finish reason, if this document has one.
    pub end: Option<End>,
    /// Whether this document is a whole answer rather than a step of a stream. One that knows no finish reason at all is
    /// complete by its framing.
    pub whole: bool,
    /// The id of the answer.
    pub id: Option<Cow<'a, str>>,
    /// Token counts.
    pub usage: Option<Usage>,
}

impl std::fmt::Debug for Piece<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Piece({} bytes of text, end {:?})", self.text.len(), self.end)
    }
}

impl Piece<'_> {
    /// The same, without the document that it was read from.
    pub fn into_owned(self) -> Piece<'static> {
        Piece {
            text: Cow::Owned(self.text.into_owned()),
            id: self.id.map(|id| Cow::Owned(id.into_owned())),
            reasoning: self.reasoning,
            tool_calls: self.tool_calls,
            end: self.end,
            whole: self.whole,
            usage: self.usage,
        }
    }
}
