//! JSON that is read where it stands: nothing is built of it, so that a value costs its own bytes and no more, whatever it holds,
//! and reading it costs no allocation.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// One value of a document that is known to be valid JSON. `Debug` shows only its length.
#[derive(Clone, Copy)]
pub struct Node<'a>(&'a str);

impl fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({} bytes)", self.0.len())
    }
}

/// Reads an object that is held to what is asked of it: whole, and each of these keys at most once. A key that is `null` counts as
/// absent; others are skipped whatever they hold, also where their name is no Unicode text.
///
/// # Errors
/// It is no valid JSON, no object, or a key is there twice. The error's own words can quote the text.
pub fn read_object<'a, const N: usize>(
    text: &'a str,
    keys: [&str; N],
) -> Result<[Option<Node<'a>>; N], serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = reader.deserialize_map(Fields { keys, once: true })?;
    reader.end()?;
    Ok(found.map(|node| node.filter(|node| !node.is_null())))
}

impl<'a> Node<'a> {
    /// The value that a valid document consists of.
    pub fn of_valid(text: &'a str) -> Self {
        Node(text)
    }

    /// The values under these keys, if this is an object that has them; of a key given twice the last counts.
    pub fn fields<const N: usize>(self, keys: [&str; N]) -> [Option<Node<'a>>; N] {
        serde_json::Deserializer::from_str(self.0).deserialize_map(Fields { keys, once: false }).unwrap_or([None; N])
    }

    /// Shows each value of an array; `false` if this is none.
    pub fn each(self, show: impl FnMut(Node<'a>)) -> bool {
        self.is_array() && serde_json::Deserializer::from_str(self.0).deserialize_seq(Items(show)).is_ok()
    }

    /// The text, if this is a string of Unicode characters.
    pub fn text(self) -> Option<Cow<'a, str>> {
        let inside = self.0.strip_prefix('"')?.strip_suffix('"')?;
        if memchr::memchr(b'\\', inside.as_bytes()).is_none() {
            return Some(Cow::Borrowed(inside));
        }
        serde_json::from_str(self.0).ok().map(Cow::Owned)
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

    /// Whether this is a string.
    pub fn is_string(self) -> bool {
        self.0.starts_with('"')
    }

    /// Whether this is an array.
    pub fn is_array(self) -> bool {
        self.0.starts_with('[')
    }

    /// Whether this is an object.
    pub fn is_object(self) -> bool {
        self.0.trim_ascii_start().starts_with('{')
    }

    /// The value as JSON, as the document has it.
    pub fn as_json(self) -> &'a str {
        self.0
    }
}

struct Fields<'k, const N: usize> {
    keys: [&'k str; N],
    /// Whether a key given twice is an error.
    once: bool,
}

impl<const N: usize> Fields<'_, N> {
    /// The place of a key, which stands here as it is written, among those that are looked for.
    fn place(&self, literal: &str) -> Option<usize> {
        // One that holds an escape can still be a known one; one that is no text is none.
        let key = Node(literal).text()?;
        self.keys.iter().position(|known| *known == key)
    }
}

impl<'de, const N: usize> Visitor<'de> for Fields<'_, N> {
    type Value = [Option<Node<'de>>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        // Keys are read raw, because an unknown one may be any JSON string.
        while let Some(key) = object.next_key::<&'de RawValue>()? {
            let Some(place) = self.place(key.get()) else {
                object.next_value::<IgnoredAny>()?;
                continue;
            };
            if self.once && found[place].is_some() {
                return Err(A::Error::custom("a key is there twice"));
            }
            found[place] = Some(Node(object.next_value::<&'de RawValue>()?.get()));
        }
        Ok(found)
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

    #[test]
    fn values_are_what_they_are() {
        let text = r#" {"n": 7, "f": 7.0, "m": -1, "t": true, "e": "", "z": null, "o": {}, "a": [1, "x"]} "#;
        let [n, f, m, t, e, z, o, a] = Node(text).fields(["n", "f", "m", "t", "e", "z", "o", "a"]).map(Option::unwrap);
        assert_eq!((n.number(), f.number(), m.number(), e.number()), (Some(7), None, None, None));
        assert!(t.is_true() && !n.is_true() && e.is_blank() && z.is_blank() && z.is_null() && !e.is_null());
        assert!(o.is_object() && !a.is_object() && o.fields(["x"])[0].is_none() && a.fields(["x"])[0].is_none());
        let mut items = Vec::new();
        assert!(a.each(|item| items.push(item.as_json())) && !o.each(|_| unreachable!()));
        assert_eq!(items, ["1", "\"x\""]);
        assert_eq!((e.text().unwrap().as_ref(), n.text().is_none()), ("", true));
    }

    #[test]
    fn of_a_key_given_twice_the_last_counts_however_it_is_written() {
        for text in [r#"{"a":1,"a":2}"#, r#"{"a":1,"\u0061":2}"#] {
            assert_eq!(Node(text).fields(["a"])[0].and_then(Node::number), Some(2), "{text}");
        }
    }

    #[test]
    fn an_object_that_is_held_to_its_keys_has_each_of_them_once() {
        let read =
            |text: &'static str| read_object(text, ["a", "b"]).map(|found| found.map(|node| node.map(Node::as_json)));
        assert_eq!(read(r#"{"b":[1],"x":1,"x":2,"\ud800":3}"#).unwrap(), [None, Some("[1]")]);
        assert_eq!(read(r#"{"a":null}"#).unwrap(), [None, None]);
        for wrong in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":null,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            "[1]",
            "7",
            r#"{"a":1}x"#,
            r#"{"a":1"#,
            "{\"\n\":1}",
            r#"{"a":01}"#,
            r#"{"x":NaN}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
