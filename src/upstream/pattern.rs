//! The events of most streams differ in their text alone: OpenAI's dialect repeats everything else with each token. One that is
//! but for its text the same as the one before it need not be read as JSON again.

use std::borrow::Cow;

use super::piece::Piece;
use crate::json;

/// A document of this stream, without its text. Matches nothing until it has learned from one.
#[derive(Default)]
pub struct Pattern {
    before: Vec<u8>,
    behind: Vec<u8>,
}

impl std::fmt::Debug for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pattern({} bytes around the text)", self.before.len() + self.behind.len())
    }
}

impl Pattern {
    /// Learns from a document and what was read from it. Of one that brings anything but text, and its id, there is nothing to learn.
    pub fn learn(&mut self, document: &[u8], piece: &Piece<'_>) {
        if let Some((before, behind)) = around_the_text(document, piece) {
            self.before.clear();
            self.behind.clear();
            self.before.extend_from_slice(before);
            self.behind.extend_from_slice(behind);
        }
    }

    /// The text of a document that is otherwise the same as the one that was learned from. `None` if it is another one, or not strict
    /// JSON: only reading it tells then.
    pub fn text_of<'a>(&self, document: &'a [u8]) -> Option<Cow<'a, str>> {
        if self.before.is_empty() {
            return None;
        }
        let text = document.strip_prefix(&self.before[..])?.strip_suffix(&self.behind[..])?;
        if json::is_plain(text) {
            return std::str::from_utf8(text).ok().map(Cow::Borrowed);
        }
        // Where this is one whole string, all that follows means what it meant before.
        let literal = document.get(self.before.len() - 1..=self.before.len() + text.len())?;
        serde_json::from_slice(literal).ok().map(Cow::Owned)
    }
}

/// What stands on both sides of the text, quotes included, if the text stands in the document as it is.
fn around_the_text<'a>(document: &'a [u8], piece: &Piece<'_>) -> Option<(&'a [u8], &'a [u8])> {
    let only_text =
        piece.end.is_none() && piece.usage.is_none() && piece.tool_calls.is_empty() && !piece.reasoning && !piece.whole;
    let Cow::Borrowed(text) = piece.text else { return None };
    let begin = (text.as_ptr() as usize).checked_sub(document.as_ptr() as usize)?;
    let (before, rest) = document.split_at_checked(begin)?;
    let (_, behind) = rest.split_at_checked(text.len())?;
    (only_text && before.ends_with(b"\"") && behind.starts_with(b"\"")).then_some((before, behind))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::json::Index;
    use crate::upstream::dialect::Dialect;
    use crate::upstream::document::Document;

    /// Learns from a document, as an exchange does.
    fn learn(document: &str) -> Pattern {
        let (mut pattern, mut index) = (Pattern::default(), Index::default());
        let read = Document::read(document.as_bytes(), &mut index).unwrap();
        pattern.learn(document.as_bytes(), &Dialect::OpenAi.decode(read.borrowed().unwrap(), false).unwrap());
        pattern
    }

    fn event(text: &str) -> String {
        json!({"id": "c-1", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}], "x": "content"})
            .to_string()
    }

    #[test]
    fn the_text_of_an_event_like_the_one_before_it_is_found() {
        let pattern = learn(&event(" the"));
        for text in [" answer", "", " größer 🎉", "content", " the", "a\nb", "a\"b", "\\", "\"}],"] {
            assert_eq!(pattern.text_of(event(text).as_bytes()).as_deref(), Some(text));
        }
    }

    #[test]
    fn an_event_that_is_unlike_the_one_before_it_has_to_be_read() {
        let pattern = learn(&event(" the"));
        for other in [
            event("a\nb").replace("\\n", "\\ud83c"),
            event("a\nb").replace("\\n", "\\q"),
            event("a").replace("a\"", "a\"b\""),
            event("a").replace("c-1", "c-2"),
            event("a").replace("null", "\"stop\""),
            event("a").replace('}', "},"),
            format!(" {}", event("a")),
            String::new(),
        ] {
            assert!(pattern.text_of(other.as_bytes()).is_none(), "{other}");
        }
        let cut = &event("é").into_bytes();
        let broken: Vec<u8> = cut.iter().copied().filter(|&byte| byte != 0xa9).collect();
        assert_eq!(pattern.text_of(&broken), None);
    }

    #[test]
    fn nothing_is_learned_from_an_event_that_brings_more_than_text() {
        let with = |delta: serde_json::Value, reason: serde_json::Value| {
            json!({"choices": [{"delta": delta, "finish_reason": reason}]}).to_string()
        };
        for document in [
            with(json!({"content": "a"}), json!("stop")),
            with(json!({"content": "a", "reasoning": "b"}), json!(null)),
            with(json!({"content": "a", "tool_calls": [{"function": {"name": "f"}}]}), json!(null)),
            with(json!({"content": "a\"b"}), json!(null)),
            with(json!({"content": null}), json!(null)),
            with(json!({}), json!(null)),
            json!({"choices": [{"delta": {"content": "a"}}], "usage": {"prompt_tokens": 3}}).to_string(),
        ] {
            assert_eq!(learn(&document).text_of(document.as_bytes()), None, "{document}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_found_is_what_reading_finds(first in "[a-z ]{0,5}", text: String, changed: Option<(prop::sample::Index, u8)>) {
            let pattern = learn(&event(&first));
            let mut document = event(&text).into_bytes();
            if let Some((at, byte)) = changed {
                let at = at.index(document.len());
                document[at] = byte;
            }
            if let Some(found) = pattern.text_of(&document) {
                let mut index = Index::default();
                let read = Document::read(&document, &mut index).unwrap();
                let piece = Dialect::OpenAi.decode(read.root(), false).unwrap();
                prop_assert_eq!(&piece.text, &found);
                prop_assert!(piece.end.is_none() && piece.usage.is_none() && piece.tool_calls.is_empty());
                prop_assert!(!piece.reasoning && !piece.whole);
            }
        }
    }
}
