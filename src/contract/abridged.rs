//! A request body without the inside of its long strings.
//!
//! Nearly all of a large body is the base64 of pictures. It is looked at once, at memory speed; what the JSON reader then goes
//! over several times, for objects within objects, is short.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::bulk::{self, Seen};

/// Strings of more bytes than this are taken out.
const LONGEST_LEFT_IN: usize = 1024;

/// A body of no more bytes than this is its own short form: looking for long strings costs more than they do.
const SHORT_ENOUGH: usize = 16 * 1024;

/// A body and its short form. The short form is valid JSON exactly if the body is: the strings that were taken out are checked
/// here, and an empty string stands in the place of each.
pub(super) struct Abridged<'a> {
    body: &'a Bytes,
    /// The body itself if nothing was taken out.
    short: Cow<'a, str>,
    cuts: Vec<Cut>,
}

/// The inside of one string that was taken out.
struct Cut {
    /// Where it was, in the short form.
    at: usize,
    /// Where it begins in the body.
    begin: usize,
    length: usize,
    seen: Seen,
}

impl<'a> Abridged<'a> {
    /// Takes the long strings out of a body. `None` if it is not UTF-8, or if one of those strings is no JSON string.
    pub(super) fn of(body: &'a Bytes) -> Option<Self> {
        let longest = if body.len() <= SHORT_ENOUGH { SHORT_ENOUGH } else { LONGEST_LEFT_IN };
        Self::leaving_in(body, longest)
    }

    fn leaving_in(body: &'a Bytes, longest: usize) -> Option<Self> {
        let mut short = Vec::new();
        let mut cuts = Vec::new();
        let mut copied = 0;
        let mut at = if body.len() <= longest { body.len() } else { 0 };
        while let Some(quote) = memchr::memchr(b'"', &body[at..]) {
            let begin = at + quote + 1;
            let inside = Inside::of(&body[begin..]);
            at = begin + inside.length + 1;
            if at > body.len() {
                // It has no end, which the reader of the short form finds, too.
                break;
            }
            if inside.length <= longest {
                continue;
            }
            if !inside.is_sound(&body[begin - 1..at]) {
                return None;
            }
            short.extend_from_slice(&body[copied..begin]);
            cuts.push(Cut { at: short.len(), begin, length: inside.length, seen: inside.seen });
            copied = begin + inside.length;
        }
        if cuts.is_empty() {
            return Some(Abridged { body, short: Cow::Borrowed(std::str::from_utf8(body).ok()?), cuts });
        }
        short.extend_from_slice(&body[copied..]);
        Some(Abridged { body, short: Cow::Owned(String::from_utf8(short).ok()?), cuts })
    }

    /// The short form.
    pub(super) fn text(&self) -> &str {
        &self.short
    }

    /// The string literal of the body, quotes included, in whose place this one stands in the short form.
    pub(super) fn literal(&self, short: &str) -> Bytes {
        if self.cuts.is_empty() {
            return self.body.slice_ref(short.as_bytes());
        }
        let inside = self.inside(short);
        let before = self.cuts.partition_point(|cut| cut.at < inside);
        // Up to there the body is longer by what was taken out.
        let moved = match before.checked_sub(1).map(|last| &self.cuts[last]) {
            Some(cut) => cut.begin + cut.length - cut.at,
            None => 0,
        };
        let begin = inside - 1 + moved;
        let taken_out = self.cuts.get(before).filter(|cut| cut.at == inside).map_or(0, |cut| cut.length);
        self.body.slice(begin..begin + short.len() + taken_out)
    }

    /// What was seen of the inside of the string literal that was taken out from between these quotes; `None` if nothing was.
    pub(super) fn seen(&self, short: &str) -> Option<Seen> {
        let found = self.cuts.binary_search_by_key(&self.inside(short), |cut| cut.at);
        found.ok().map(|place| self.cuts[place].seen.clone())
    }

    /// Where the inside of a string literal of the short form begins.
    fn inside(&self, short: &str) -> usize {
        short.as_ptr() as usize - self.short.as_ptr() as usize + 1
    }
}

/// What was seen of a string on the way to its end.
struct Inside {
    length: usize,
    seen: Seen,
    only_slashes_escaped: bool,
}

impl Inside {
    /// Goes to the closing quote, or to the end of the body.
    fn of(rest: &[u8]) -> Self {
        let mut only_slashes_escaped = true;
        let seen = bulk::look(rest);
        // A backslash at its end stands before a slash: that belongs to it.
        let mut at = seen.plain;
        while let Some(found) = memchr::memchr2(b'"', b'\\', &rest[at..]) {
            at += found;
            if rest[at] == b'"' {
                return Inside { length: at, seen, only_slashes_escaped };
            }
            only_slashes_escaped &= rest.get(at + 1) == Some(&b'/');
            at = (at + 2).min(rest.len());
        }
        Inside { length: rest.len(), seen, only_slashes_escaped }
    }

    /// Whether the literal is a JSON string in UTF-8. Plain text, as base64 is, needs no reader to tell that.
    fn is_sound(&self, literal: &[u8]) -> bool {
        let is_plain =
            literal.iter().skip(1 + self.seen.plain).fold(true, |plain, &byte| plain & (b' '..=b'~').contains(&byte));
        self.only_slashes_escaped && is_plain
            || std::str::from_utf8(literal).is_ok_and(|text| serde_json::from_str::<&RawValue>(text).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// All string literals that are values of an array, as the short form has them.
    fn literals(text: &str) -> Vec<&str> {
        let values: Vec<&RawValue> = serde_json::from_str(text).unwrap();
        values.into_iter().map(RawValue::get).filter(|value| value.starts_with('"')).collect()
    }

    #[test]
    fn long_strings_are_taken_out_and_found_again() {
        let long = "x".repeat(2000);
        let escaped = format!("{}\\\"\\u00e9é\\\\", "y\\/".repeat(1000));
        let json = format!("[\"a\", \"{long}\", 7, \"\", \"{escaped}\",\"b\\\"\" , \"{long}\", \"é\"]");
        let body = Bytes::from(json.clone());
        let abridged = Abridged::leaving_in(&body, LONGEST_LEFT_IN).unwrap();
        assert_eq!(abridged.text(), "[\"a\", \"\", 7, \"\", \"\",\"b\\\"\" , \"\", \"é\"]");
        let found: Vec<Bytes> = literals(abridged.text()).into_iter().map(|short| abridged.literal(short)).collect();
        assert_eq!(found, literals(&json));
    }

    #[test]
    fn a_body_without_long_strings_is_its_own_short_form() {
        let body = Bytes::from_static(b"[\"a\",\"b\"]");
        let abridged = Abridged::of(&body).unwrap();
        assert_eq!(abridged.text().as_ptr(), body.as_ptr());
        assert_eq!(abridged.literal(literals(abridged.text())[1]), "\"b\"");
    }

    /// Whether the body, or what is left of it, is no JSON.
    fn is_refused(body: impl Into<Bytes>) -> bool {
        Abridged::leaving_in(&body.into(), LONGEST_LEFT_IN)
            .is_none_or(|short| serde_json::from_str::<&RawValue>(short.text()).is_err())
    }

    #[test]
    fn what_is_no_string_is_refused_when_it_would_be_taken_out_too() {
        let long = "x".repeat(2000);
        assert!(!is_refused(format!("[\"{long}\"]")));
        for wrong in ["\\q", "\\u12", "\n", "\\", "\u{1}", "\"x"] {
            assert!(is_refused(format!("[\"{long}{wrong}\"]")), "{wrong:?}");
        }
        assert!(is_refused(format!("[\"{long}")));
        assert!(is_refused([b"[\"", long.as_bytes(), b"\xff\"]"].concat()));
        assert!(is_refused(&b"\"\xff\""[..]));
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<String>().prop_map(Value::from),
            "[A-Za-z0-9+/]{0,40}".prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_short_form_is_valid_exactly_if_the_body_is(value in json(), longest in 0_usize..30, at: prop::sample::Index, broken: Option<u8>) {
            let mut json = value.to_string().into_bytes();
            if let Some(byte) = broken {
                let at = at.index(json.len());
                json[at] = byte;
            }
            let body = Bytes::from(json);
            let is_valid = |text: &str| serde_json::from_str::<&RawValue>(text).is_ok();
            let abridged = Abridged::leaving_in(&body, longest);
            let short_is_valid = abridged.is_some_and(|abridged| is_valid(abridged.text()));
            prop_assert_eq!(short_is_valid, std::str::from_utf8(&body).is_ok_and(is_valid));
        }

        #[test]
        fn every_literal_is_found_whatever_was_taken_out(strings in prop::collection::vec(any::<String>(), 0..12), longest in 0_usize..30) {
            let json = Value::from(strings).to_string();
            let body = Bytes::from(json.clone());
            let abridged = Abridged::leaving_in(&body, longest).unwrap();
            let found: Vec<Bytes> = literals(abridged.text()).into_iter().map(|short| abridged.literal(short)).collect();
            prop_assert_eq!(found, literals(&json));
        }
    }
}
