//! Text as it stood in the request body: a JSON string that is passed on without being decoded.

use bytes::{Buf as _, Bytes};

/// The inside of a JSON string (without its quotes), borrowed from the request body.
///
/// It is valid UTF-8 and valid JSON string content whose escapes decode to Unicode text, so it can be put between quotes in
/// another JSON document as it stands. `Debug` shows only its length: it is the user's text.
#[derive(Clone, PartialEq, Eq)]
pub struct Text(Bytes);

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Text({} bytes)", self.0.len())
    }
}

impl Text {
    /// Takes a raw JSON string literal of the body, quotes included. `may_hold_surrogates` says whether an escape of it may be one.
    ///
    /// `None` if an escape of it is a lone surrogate, which is no text: strict JSON readers downstream refuse it.
    pub(super) fn from_literal(mut literal: Bytes, may_hold_surrogates: bool) -> Option<Self> {
        let inside = literal.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        let may_hold_surrogates = may_hold_surrogates
            && memchr::memchr_iter(b'\\', inside).any(|escape| inside.get(escape + 1) == Some(&b'u'));
        if may_hold_surrogates && serde_json::from_slice::<String>(&literal).is_err() {
            return None;
        }
        literal.advance(1);
        literal.truncate(literal.len() - 1);
        Some(Text(literal))
    }

    /// Text that does not come from a request.
    pub fn new(text: &str) -> Self {
        let literal = serde_json::Value::from(text).to_string();
        let inside = literal.strip_prefix('"').and_then(|literal| literal.strip_suffix('"'));
        Text(Bytes::copy_from_slice(inside.unwrap_or_default().as_bytes()))
    }

    /// One of Weir's own sentences; it must need no escaping.
    pub fn constant(sentence: &'static str) -> Self {
        Text(Bytes::from_static(sentence.as_bytes()))
    }

    /// The JSON string content: escapes as they came, no quotes.
    pub fn as_json(&self) -> &Bytes {
        &self.0
    }

    /// Whether it is the empty text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Length of the escaped form in bytes: at least as long as the text itself.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(literal: &str) -> Option<Text> {
        Text::from_literal(Bytes::copy_from_slice(literal.as_bytes()), true)
    }

    #[test]
    fn escapes_stay_as_they_came() {
        assert_eq!(text(r#""a\/b\u0041\n""#).unwrap().as_json().as_ref(), br"a\/b\u0041\n");
    }

    #[test]
    fn a_surrogate_pair_is_text_and_a_lone_surrogate_is_not() {
        assert!(text(r#""\ud83c\udf89""#).is_some());
        assert!(text(r#""\ud83c""#).is_none());
        assert!(text(r#""\udf89x""#).is_none());
        assert!(text(r#""\\ud83c""#).is_some(), "an escaped backslash before a u is no escape of a surrogate");
    }

    #[test]
    fn text_that_is_not_from_a_request_is_escaped() {
        assert_eq!(Text::new("say \"hi\"\n\u{1f389}").as_json().as_ref(), "say \\\"hi\\\"\\n\u{1f389}".as_bytes());
    }

    #[test]
    fn debug_shows_no_text() {
        assert_eq!(format!("{:?}", text(r#""secret\n""#).unwrap()), "Text(8 bytes)");
    }
}
