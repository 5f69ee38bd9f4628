//! A document of an answer, which is read leniently: it is not always JSON.

use std::borrow::Cow;
use std::fmt;

use serde_json::value::RawValue;

use super::lenient;
use crate::json::Node;

/// One document, whole and valid, if need be after it was mended. `Debug` shows only its length.
pub struct Document<'a>(Cow<'a, str>);

impl fmt::Debug for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({} bytes)", self.0.len())
    }
}

impl<'a> Document<'a> {
    /// Reads the bytes of one object. `None` if they are none even when read leniently.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let strict = std::str::from_utf8(bytes).ok().filter(|text| is_valid(text) && !may_hold_surrogates(bytes));
        let text = match strict {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(lenient::mend(bytes)),
        };
        (Node::of_valid(&text).is_object() && (strict.is_some() || is_valid(&text))).then_some(Document(text))
    }

    /// The object.
    pub fn root(&self) -> Node<'_> {
        Node::of_valid(&self.0)
    }

    /// The object, if the document stands in the bytes that it was read from just as it is.
    pub fn borrowed(&self) -> Option<Node<'a>> {
        match self.0 {
            Cow::Borrowed(text) => Some(Node::of_valid(text)),
            Cow::Owned(_) => None,
        }
    }
}

fn is_valid(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

/// Whether an escape may spell half a character (`\ud800` to `\udfff`): only mending tells.
fn may_hold_surrogates(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'\\', bytes).any(|at| {
        matches!(bytes.get(at + 1..at + 4), Some([b'u', b'd' | b'D', b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(document: &[u8]) -> String {
        let document = Document::read(document).unwrap();
        let [content] = document.root().fields(["content"]);
        content.unwrap().text().unwrap().into_owned()
    }

    #[test]
    fn numbers_that_are_none_do_not_cost_the_answer() {
        let document = br#"{"usage":{"a":NaN,"b":[-Infinity, Infinity,1e999],"c":-NaN},"content":"NaN: \"Infinity\""}"#;
        assert_eq!(content(document), "NaN: \"Infinity\"");
    }

    #[test]
    fn lone_surrogates_and_broken_bytes_become_the_replacement_character() {
        assert_eq!(content(br#"{"content":"a\ud83cb\udf89\ud83c\udf89"}"#), "a\u{fffd}b\u{fffd}\u{1f389}");
        assert_eq!(content(b"{\"content\":\"a\xf0\x9fb\"}"), "a\u{fffd}b");
        assert_eq!(content(br#"{"content":"\uZZZZ\x","n":NaN}"#), "\u{fffd}ZZZZ\\x");
        assert_eq!(content(b"{\"content\":\"a\nb\"}"), "a\nb");
    }

    #[test]
    fn what_is_no_object_is_none() {
        for document in [&b"{"[..], b"{\"a\":\"", b"<html>", b"", b"{\"a\":1}}", b"[1]", b"\"a\"", b"null"] {
            assert!(Document::read(document).is_none(), "{document:?}");
        }
    }
}
