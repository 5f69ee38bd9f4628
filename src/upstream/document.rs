//! A JSON document that is read where it stands: nothing is built of it, so that a document costs its own bytes and no more,
//! whatever it holds, and a step of an answer costs no allocation.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::lenient;

/// One document, whole and valid, if need be after it was read leniently.
pub struct Document<'a>(Cow<'a, str>);

/// One value of a document, as it stands there.
#[derive(Clone, Copy)]
pub struct Node<'a>(&'a str);

impl fmt::Debug for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({} bytes)", self.0.len())
    }
}

impl fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({} bytes)", self.0.len())
    }
}

impl<'a> Document<'a> {
    /// Reads the bytes of one object. `None` if they are none even when read leniently.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let strict = std::str::from_utf8(bytes).ok().filter(|text| is_valid(text));
        let text = match strict {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(lenient::mend(bytes)),
        };
        let is_object = text.trim_ascii_start().starts_with('{');
        (is_object && (strict.is_some() || is_valid(&text))).then_some(Document(text))
    }

    /// The object.
    pub fn root(&self) -> Node<'_> {
        Node(&self.0)
    }

    /// The object, if the document stands in the bytes that it was read from just as it is.
    pub fn borrowed(&self) -> Option<Node<'a>> {
        match self.0 {
            Cow::Borrowed(text) => Some(Node(text)),
            Cow::Owned(_) => None,
        }
    }
}

fn is_valid(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

impl<'a> Node<'a> {
    /// The values under these keys, if this is an object that has them; of a key given twice the last counts.
    pub fn fields<const N: usize>(self, keys: [&str; N]) -> [Option<Node<'a>>; N] {
        serde_json::Deserializer::from_str(self.0).deserialize_map(Fields(keys)).unwrap_or([None; N])
    }

    /// Shows each value of an array; `false` if this is none.
    pub fn each(self, show: impl FnMut(Node<'a>)) -> bool {
        self.0.starts_with('[') && serde_json::Deserializer::from_str(self.0).deserialize_seq(Items(show)).is_ok()
    }

    /// The text, if this is a string. Escapes that mean no character become U+FFFD.
    pub fn text(self) -> Option<Cow<'a, str>> {
        let inside = self.0.strip_prefix('"')?.strip_suffix('"')?;
        if memchr::memchr(b'\\', inside.as_bytes()).is_none() {
            return Some(Cow::Borrowed(inside));
        }
        let read = |text: &str| serde_json::from_str::<String>(text).ok();
        read(self.0).or_else(|| read(&lenient::mend(self.0.as_bytes()))).map(Cow::Owned)
    }

    /// The number, if this is a whole one that is not negative.
    pub fn number(self) -> Option<u64> {
        self.0.parse().ok()
    }

    /// Whether this is `true`.
    pub fn is_true(self) -> bool {
        self.0 == "true"
    }

    /// Whether this is `null`.
    pub fn is_null(self) -> bool {
        self.0 == "null"
    }

    /// Whether this says nothing: `null`, or an empty string.
    pub fn is_blank(self) -> bool {
        self.is_null() || self.0 == "\"\""
    }

    /// Whether this is an object.
    pub fn is_object(self) -> bool {
        self.0.starts_with('{')
    }

    /// The value as JSON, as the document has it.
    pub fn as_json(self) -> &'a str {
        self.0
    }
}

struct Fields<'k, const N: usize>([&'k str; N]);

impl<'de, const N: usize> Visitor<'de> for Fields<'_, N> {
    type Value = [Option<Node<'de>>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        while let Some(place) = object.next_key_seed(Place(&self.0))? {
            match place {
                Some(place) => found[place] = Some(Node(object.next_value::<&'de RawValue>()?.get())),
                None => drop(object.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

/// The place of a key among those that are looked for.
struct Place<'k>(&'k [&'k str]);

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Option<usize>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Place<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|known| *known == key))
    }
}

struct Items<F>(F);

impl<'de, F: FnMut(Node<'de>)> Visitor<'de> for Items<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut array: A) -> Result<(), A::Error> {
        while let Some(item) = array.next_element::<&'de RawValue>()? {
            self.0(Node(item.get()));
        }
        Ok(())
    }
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
    fn of_a_key_given_twice_the_last_counts_however_it_is_written() {
        assert_eq!(content(br#"{"content":"a","content":"b"}"#), "b");
        assert_eq!(content(br#"{"content":"a","c\u006fntent":"b"}"#), "b");
    }

    #[test]
    fn what_is_no_object_is_none() {
        for document in [&b"{"[..], b"{\"a\":\"", b"<html>", b"", b"{\"a\":1}}", b"[1]", b"\"a\"", b"null"] {
            assert!(Document::read(document).is_none(), "{document:?}");
        }
    }

    #[test]
    fn values_are_what_they_are() {
        let document =
            Document::read(br#" {"n": 7, "f": 7.0, "m": -1, "t": true, "e": "", "z": null, "o": {}, "a": [1, "x"]} "#);
        let document = document.unwrap();
        let [n, f, m, t, e, z, o, a] =
            document.root().fields(["n", "f", "m", "t", "e", "z", "o", "a"]).map(Option::unwrap);
        assert_eq!((n.number(), f.number(), m.number(), e.number()), (Some(7), None, None, None));
        assert!(t.is_true() && !n.is_true() && e.is_blank() && z.is_blank() && z.is_null() && !e.is_null());
        assert!(o.is_object() && !a.is_object() && o.fields(["x"])[0].is_none() && a.fields(["x"])[0].is_none());
        let mut items = Vec::new();
        assert!(a.each(|item| items.push(item.as_json())) && !o.each(|_| unreachable!()));
        assert_eq!(items, ["1", "\"x\""]);
        assert_eq!((e.text().unwrap().as_ref(), n.text().is_none()), ("", true));
    }
}
