//! Many pieces become one answer, or the reason why there is none.

use std::borrow::Cow;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use crate::contract::{FinishReason, Usage};
use crate::upstream::broken::Broken;
use crate::upstream::classify::{Classifier, Meaning};
use crate::upstream::exchange::{Pieces, Refusal, Step};
use crate::upstream::piece::{End, MOST_CALLS, Piece, ToolCall};

/// How long the rest of a stream is listened to once the finish reason is there: token counts come after it. All known servers end their stream at once; text that still comes shows that it was not the end.
const AFTER_THE_END: Duration = Duration::from_secs(3);

/// The most of a call that is kept, in bytes: its id, its name and its arguments.
const LONGEST_CALL: usize = 64 * 1024;

/// A whole answer of an engine, before reasoning is taken out of its text.
#[derive(Default)]
pub struct Collapsed {
    /// All text, in order.
    pub text: String,
    /// Whether any reasoning came beside it.
    pub reasoning: bool,
    /// The tool calls, put together.
    pub tool_calls: Vec<ToolCall>,
    /// Why the engine stopped; `None` if a plain answer does not tell.
    pub finish_reason: Option<FinishReason>,
    /// The id of the answer.
    pub id: Option<String>,
    /// Token counts.
    pub usage: Option<Usage>,
}

impl std::fmt::Debug for Collapsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Collapsed({} bytes)", self.text.len())
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// The server reported a failure before anything was generated: a mend may help.
    Refused(Refusal),
    /// The server reported a failure after it had begun.
    Failed(Meaning),
    /// The answer broke off, or is none.
    Broken(Broken),
    /// The answer ended without a finish reason: it is partial.
    Partial,
    /// The same before anything was generated.
    Nothing,
    /// The text is over `limits.reply`.
    TooLong,
}

/// Reads an answer to its end. `cap` is the most text in bytes; an answer that is whole is not listened to beyond `latest`;
/// `generated` is called for each piece in which something was generated.
///
/// # Errors
/// There is no whole answer; whatever text there was is dropped.
pub async fn collapse(
    mut pieces: Box<Pieces>,
    classifier: &Classifier,
    cap: u64,
    latest: Instant,
    mut generated: impl FnMut(),
) -> Result<Collapsed, NoAnswer> {
    let mut answer = Gathering::default();
    let mut listen_until: Option<Instant> = None;
    loop {
        let step = match listen_until {
            None => pieces.next(classifier).await,
            // The answer is whole: neither silence nor a lost connection can take it back.
            Some(until) => match tokio::time::timeout_at(until, pieces.next(classifier)).await {
                Ok(Ok(step)) => Ok(step),
                Ok(Err(_)) | Err(_) => Ok(None),
            },
        };
        match step.map_err(NoAnswer::Broken)? {
            Some(Step::Piece(piece)) => {
                let ends = piece.end.is_some();
                if answer.take(piece) {
                    generated();
                }
                if answer.collapsed.text.len() as u64 > cap {
                    return Err(NoAnswer::TooLong);
                }
                if answer.whole {
                    // A plain answer is one document; what follows it is no part of it.
                    break;
                }
                listen_until = match listen_until {
                    _ if !answer.is_whole() => None,
                    Some(until) if !ends => Some(until),
                    _ => Some(latest.min(Instant::now() + AFTER_THE_END)),
                };
            }
            Some(Step::Failed(_)) if answer.is_whole() => break,
            Some(Step::Failed(meaning)) if answer.begun => return Err(NoAnswer::Failed(meaning)),
            Some(Step::Failed(meaning)) => {
                return Err(NoAnswer::Refused(Refusal { meaning, status: StatusCode::OK }));
            }
            Some(Step::Done) | None => break,
        }
    }
    pieces.let_go();
    answer.finish()
}

#[derive(Default)]
struct Gathering {
    collapsed: Collapsed,
    /// Whether anything was generated yet.
    begun: bool,
    /// The finish reason, once there is one.
    end: Option<End>,
    /// Whether text came after it: then it was not the end, and only the end of the stream can show that all of the text is there.
    went_on: bool,
    /// Whether a whole plain answer came, which is complete by its framing.
    whole: bool,
}

impl Gathering {
    /// Takes a piece; says whether it is a sign of generation.
    fn take(&mut self, piece: Piece<'_>) -> bool {
        let generates = !piece.text.is_empty() || piece.reasoning || !piece.tool_calls.is_empty();
        self.begun |= generates;
        self.whole |= piece.whole;
        self.went_on = piece.end.is_none() && (self.went_on || self.end.is_some() && !piece.text.is_empty());
        self.end = piece.end.or(self.end);
        let collapsed = &mut self.collapsed;
        match piece.text {
            // A plain answer comes in one piece.
            Cow::Owned(text) if collapsed.text.is_empty() => collapsed.text = text,
            text => collapsed.text.push_str(&text),
        }
        collapsed.reasoning |= piece.reasoning;
        collapsed.id = collapsed.id.take().or_else(|| piece.id.map(Cow::into_owned));
        collapsed.usage = piece.usage.or(collapsed.usage);
        for call in piece.tool_calls {
            add_call(&mut collapsed.tool_calls, call);
        }
        generates
    }

    /// Whether the engine said that it came to an end, and nothing since has shown otherwise.
    fn is_whole(&self) -> bool {
        self.end.is_some_and(|end| end != End::NotAnEnd) && !self.went_on
    }

    fn finish(mut self) -> Result<Collapsed, NoAnswer> {
        self.collapsed.finish_reason = match self.end {
            Some(End::Stop | End::ToolCalls) => Some(FinishReason::Stop),
            Some(End::Length) => Some(FinishReason::Length),
            Some(End::ContentFilter) => Some(FinishReason::ContentFilter),
            None if self.whole => None,
            Some(End::NotAnEnd) | None if self.begun => return Err(NoAnswer::Partial),
            Some(End::NotAnEnd) | None => return Err(NoAnswer::Nothing),
        };
        Ok(self.collapsed)
    }
}

/// Puts the pieces of one call together: the first has its id and name, the others more of its arguments. A piece that makes the
/// call too long is dropped.
fn add_call(calls: &mut Vec<ToolCall>, piece: ToolCall) {
    let known = calls.iter().position(|call| call.index == piece.index);
    let place = match known {
        Some(place) => place,
        None if calls.len() < MOST_CALLS => {
            calls.push(ToolCall { index: piece.index, ..ToolCall::default() });
            calls.len() - 1
        }
        None => return,
    };
    let length = |call: &ToolCall| call.id.len() + call.name.len() + call.arguments.len();
    let call = &mut calls[place];
    if length(call) + length(&piece) <= LONGEST_CALL {
        call.id.push_str(&piece.id);
        call.name.push_str(&piece.name);
        call.arguments.push_str(&piece.arguments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_stay_within_their_bounds_whichever_part_of_them_has_no_end() {
        let long = "x".repeat(LONGEST_CALL + 1);
        let word = "x".repeat(1000);
        let with = |index, id: &str, name: &str, arguments: &str| ToolCall {
            index,
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        };
        let mut calls = Vec::new();
        for index in 0..MOST_CALLS * 2 {
            add_call(&mut calls, with(index, "", "", &long));
            add_call(&mut calls, with(index, &long, "", ""));
            for _ in 0..200 {
                add_call(&mut calls, with(index, &word, &word, &word));
            }
        }
        assert_eq!(calls.len(), MOST_CALLS);
        for call in calls {
            assert!(call.id.len() + call.name.len() + call.arguments.len() <= LONGEST_CALL);
            assert!(!call.id.is_empty());
        }
    }
}
