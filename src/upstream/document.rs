//! A document of an answer, which is read leniently: it is not always JSON.

use std::borrow::Cow;
use std::fmt;

use super::lenient;
use crate::json::{Index, Node};

/// One document, whole and valid, if need be after it was mended. `Debug` shows only its length.
pub struct Document<'a> {
    text: Cow<'a, str>,
    index: &'a Index,
}

impl fmt::Debug for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({} bytes)", self.text.len())
    }
}

impl<'a> Document<'a> {
    /// Reads the bytes of one object. `None` if they are none even when read leniently. `index` is only lent, so that its room can be
    /// used for one document after the other.
    pub fn read(bytes: &'a [u8], index: &'a mut Index) -> Option<Self> {
        let strict = std::str::from_utf8(bytes).ok();
        // Only mending tells whether an escape spells half a character.
        let strict = strict.filter(|text| index.read(text).is_ok() && !index.may_hold_surrogates());
        let text = match strict {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(lenient::mend(bytes)),
        };
        if strict.is_none() {
            index.read(&text).ok()?;
        }
        let document = Document { text, index };
        document.root().is_object().then_some(document)
    }

    /// The object.
    pub fn root(&self) -> Node<'_> {
        self.index.root(&self.text)
    }

    /// The object, if the document stands in the bytes that it was read from just as it is.
    pub fn borrowed(&self) -> Option<Node<'a>> {
        match self.text {
            Cow::Borrowed(text) => Some(self.index.root(text)),
            Cow::Owned(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(document: &[u8]) -> String {
        let mut index = Index::default();
        let document = Document::read(document, &mut index).unwrap();
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
            assert!(Document::read(document, &mut Index::default()).is_none(), "{document:?}");
        }
    }
}
