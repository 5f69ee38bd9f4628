//! Reads the JSON of model servers, which is not always JSON: `NaN` from Python, lone surrogates and broken UTF-8 from
//! tokens cut in half, numbers beyond a double.

use serde_json::Value;

/// The document, which is always an object; of a key given twice the last counts. `None` if it is none even when read leniently.
pub fn read(document: &[u8]) -> Option<Value> {
    let strict = serde_json::from_slice(document).ok();
    strict.or_else(|| serde_json::from_str(&mend(document)).ok()).filter(Value::is_object)
}

/// Rewrites what strict JSON has no word for: bytes and escapes that are no Unicode become U+FFFD, numbers that are none
/// become `null`.
pub(super) fn mend(document: &[u8]) -> String {
    let text = String::from_utf8_lossy(document);
    let mut mended = String::with_capacity(text.len());
    let mut rest = text.as_ref();
    while let Some(quote) = rest.find('"') {
        mend_outside_strings(&rest[..quote], &mut mended);
        let inside = &rest[quote + 1..];
        let end = end_of_string(inside);
        mended.push('"');
        mend_string(&inside[..end], &mut mended);
        if end < inside.len() {
            mended.push('"');
        }
        rest = inside.get(end + 1..).unwrap_or_default();
    }
    mend_outside_strings(rest, &mut mended);
    mended
}

/// Where the string that `inside` begins ends: at its closing quote, or at the end of the document.
fn end_of_string(inside: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at,
            _ => {}
        }
    }
    inside.len()
}

fn mend_outside_strings(text: &str, mended: &mut String) {
    for token in text.split_inclusive([',', ':', '[', ']', '{', '}']) {
        let (word, mark) = match token.char_indices().next_back() {
            Some((at, mark)) if ",:[]{}".contains(mark) => token.split_at(at),
            _ => (token, ""),
        };
        let bare = word.trim();
        let strict = bare.is_empty() || serde_json::from_str::<Value>(bare).is_ok();
        mended.push_str(if strict { word } else { "null" });
        mended.push_str(mark);
    }
}

fn mend_string(inside: &str, mended: &mut String) {
    let mut rest = inside;
    while let Some(at) = rest.find(|character: char| character == '\\' || character < ' ') {
        mended.push_str(&rest[..at]);
        rest = &rest[at..];
        let taken = match rest.as_bytes() {
            [b'\\', b'u', ..] => mend_unicode_escape(rest, mended),
            [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => {
                mended.push_str(&rest[..2]);
                2
            }
            [b'\\', ..] => {
                mended.push_str("\\\\");
                1
            }
            [control, ..] => {
                mended.push_str(&format!("\\u{control:04x}"));
                1
            }
            [] => break,
        };
        rest = &rest[taken..];
    }
    mended.push_str(rest);
}

/// Copies a `\uXXXX` escape, or a pair of them, or puts U+FFFD for one that means no character. Returns the bytes taken.
fn mend_unicode_escape(rest: &str, mended: &mut String) -> usize {
    let unit = |from: usize| {
        let digits = rest.get(from..from + 6)?.strip_prefix("\\u")?;
        // Rust also reads a sign, which is no digit of an escape.
        let are_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        are_digits.then(|| u16::from_str_radix(digits, 16).ok()).flatten()
    };
    let replacement = char::REPLACEMENT_CHARACTER;
    match (unit(0), unit(6)) {
        (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => {
            mended.push_str(&rest[..12]);
            12
        }
        (Some(0xd800..=0xdfff), _) => {
            mended.push(replacement);
            6
        }
        (Some(_), _) => {
            mended.push_str(&rest[..6]);
            6
        }
        (None, _) => {
            mended.push(replacement);
            2
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(document: &[u8]) -> String {
        read(document).unwrap()["content"].as_str().unwrap().to_owned()
    }

    #[test]
    fn numbers_that_are_none_do_not_cost_the_answer() {
        let document = br#"{"usage":{"a":NaN,"b":[-Infinity, Infinity,1e999],"c":-NaN},"content":"NaN: \"Infinity\""}"#;
        assert_eq!(content(document), "NaN: \"Infinity\"");
        assert_eq!(read(document).unwrap()["usage"]["b"][0], Value::Null);
    }

    #[test]
    fn lone_surrogates_and_broken_bytes_become_the_replacement_character() {
        assert_eq!(content(br#"{"content":"a\ud83cb\udf89\ud83c\udf89"}"#), "a\u{fffd}b\u{fffd}\u{1f389}");
        assert_eq!(content(b"{\"content\":\"a\xf0\x9fb\"}"), "a\u{fffd}b");
        assert_eq!(content(br#"{"content":"\uZZZZ\x","n":NaN}"#), "\u{fffd}ZZZZ\\x");
        assert_eq!(content(br#"{"content":"\u+123 \ud83c\u+f89"}"#), "\u{fffd}+123 \u{fffd}\u{fffd}+f89");
        assert_eq!(content(b"{\"content\":\"a\nb\"}"), "a\nb");
    }

    #[test]
    fn of_a_key_given_twice_the_last_counts() {
        assert_eq!(content(br#"{"content":"a","content":"b"}"#), "b");
    }

    #[test]
    fn what_is_no_document_stays_none() {
        for document in [&b"{"[..], b"{\"a\":\"", b"<html>", b"", b"{\"a\":1}}"] {
            assert_eq!(read(document), None);
        }
    }
}
