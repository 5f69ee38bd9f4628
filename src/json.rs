//! JSON that is read where it stands: one pass checks a document and notes where each of its values is. Nothing is built of it, so
//! a value costs its own bytes and one note, whatever it holds, and looking at one goes over no byte of the others.
//!
//! What is valid is what serde_json takes for valid.

use std::borrow::Cow;
use std::fmt;

use fearless_simd::{Level, Simd, SimdBase as _, SimdMask as _, dispatch, u8x16};

/// The most values, names of fields included, that a document may have: each costs 16 bytes beside its own. No chat and no answer
/// comes near it.
const MOST_VALUES: usize = 1 << 20;

/// So many bytes a value has in most documents, at the least: room for as many values is made at once.
const BYTES_A_VALUE: usize = 32;

/// The parent of the outermost value.
const NO_PARENT: u32 = u32::MAX;

/// Why a text cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// It is no JSON.
    NotJson,
    /// It has more values than any that is meant well.
    TooManyValues,
}

/// Where the values of a document are, each before those that it holds. Its room is used again for the next document.
#[derive(Default)]
pub struct Index {
    notes: Vec<Note>,
    /// Whether an escape may spell half a character (`\ud800` to `\udfff`).
    may_hold_surrogates: bool,
}

#[derive(Clone, Copy)]
struct Note {
    begin: u32,
    end: u32,
    /// How many notes belong to this value, its own included. While it is open: the place of the one that holds it.
    size: u32,
    /// Whether it is a string with an escape in it.
    escaped: bool,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Index({} values)", self.notes.len())
    }
}

impl Index {
    /// Goes over a document, of any kind of value.
    ///
    /// # Errors
    /// The document is of no use.
    pub fn read(&mut self, text: &str) -> Result<(), Unreadable> {
        self.notes.clear();
        self.may_hold_surrogates = false;
        // Places are kept in 32 bits.
        if u32::try_from(text.len()).is_err() {
            return Err(Unreadable::TooManyValues);
        }
        self.notes.reserve(text.len() / BYTES_A_VALUE);
        let mut reader = Reader { bytes: text.as_bytes(), index: self };
        reader.document()
    }

    /// The outermost value of the document that was read last, which is `text`.
    pub fn root<'a>(&'a self, text: &'a str) -> Node<'a> {
        Node { text, notes: &self.notes }
    }

    /// Whether an escape of the document may spell half a character.
    pub fn may_hold_surrogates(&self) -> bool {
        self.may_hold_surrogates
    }
}

/// One value of a document. `Debug` shows only its length.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    /// The whole document.
    text: &'a str,
    /// The note of this value, and behind it those of what it holds.
    notes: &'a [Note],
}

impl fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({} bytes)", self.as_json().len())
    }
}

impl<'a> Node<'a> {
    /// The values under these keys, if this is an object that has them; of a key given twice the last counts.
    pub fn fields<const N: usize>(self, keys: [&str; N]) -> [Option<Node<'a>>; N] {
        let mut found = [None; N];
        self.each_field(keys, |place, value| {
            found[place] = Some(value);
            true
        });
        found
    }

    /// The values under these keys of an object that has each of them at most once. A key that is `null` counts as absent; others may
    /// hold anything. `None` if this is no such object.
    pub fn fields_given_once<const N: usize>(self, keys: [&str; N]) -> Option<[Option<Node<'a>>; N]> {
        let mut found: [Option<Node<'a>>; N] = [None; N];
        let once = self.is_object() && self.each_field(keys, |place, value| found[place].replace(value).is_none());
        once.then(|| found.map(|value| value.filter(|value| !value.is_null())))
    }

    /// Shows each field that is under one of these keys, until `show` wants no more; says whether it did not.
    fn each_field<const N: usize>(self, keys: [&str; N], mut show: impl FnMut(usize, Node<'a>) -> bool) -> bool {
        if !self.is_object() {
            return true;
        }
        let mut fields = self.inside();
        while let (Some(key), Some(value)) = (fields.next(), fields.next()) {
            if let Some(place) = key.place_among(keys)
                && !show(place, value)
            {
                return false;
            }
        }
        true
    }

    /// The place of this key among those that are looked for.
    fn place_among<const N: usize>(self, keys: [&str; N]) -> Option<usize> {
        if !self.is_escaped() {
            let note = self.notes.first()?;
            let name = self.text.as_bytes().get(note.begin as usize + 1..note.end as usize - 1)?;
            return keys.iter().position(|known| known.as_bytes() == name);
        }
        // One that is no text is none of them.
        let name = self.text()?;
        keys.iter().position(|known| *known == name)
    }

    /// The values of an array; `None` if this is none.
    pub fn items(self) -> Option<impl Iterator<Item = Node<'a>>> {
        self.is_array().then(|| self.inside())
    }

    /// What this value holds, in order; of an object its keys and values in turn.
    fn inside(self) -> Inside<'a> {
        Inside { text: self.text, notes: self.notes.get(1..).unwrap_or_default() }
    }

    /// The text, if this is a string of Unicode characters.
    pub fn text(self) -> Option<Cow<'a, str>> {
        let literal = self.as_json();
        let inside = literal.strip_prefix('"')?.strip_suffix('"')?;
        if !self.is_escaped() {
            return Some(Cow::Borrowed(inside));
        }
        serde_json::from_str(literal).ok().map(Cow::Owned)
    }

    /// Whether this is a string with an escape in it.
    fn is_escaped(self) -> bool {
        self.notes.first().is_some_and(|note| note.escaped)
    }

    /// The number, if this is a whole one that is not negative.
    pub fn number(self) -> Option<u64> {
        self.as_json().parse().ok()
    }

    /// Whether this is `true`.
    pub fn is_true(self) -> bool {
        self.as_json() == "true"
    }

    /// Whether this is `null`.
    pub fn is_null(self) -> bool {
        self.begins_with(b'n')
    }

    /// Whether this says nothing: `null`, or an empty string.
    pub fn is_blank(self) -> bool {
        self.is_null() || self.as_json() == "\"\""
    }

    /// Whether this is a string.
    pub fn is_string(self) -> bool {
        self.begins_with(b'"')
    }

    /// Whether this is an array.
    pub fn is_array(self) -> bool {
        self.begins_with(b'[')
    }

    /// Whether this is an object.
    pub fn is_object(self) -> bool {
        self.begins_with(b'{')
    }

    fn begins_with(self, byte: u8) -> bool {
        let begin = self.notes.first().map(|note| note.begin as usize);
        begin.and_then(|begin| self.text.as_bytes().get(begin)) == Some(&byte)
    }

    /// The value as JSON, as the document has it.
    pub fn as_json(self) -> &'a str {
        let span = self.notes.first().and_then(|note| self.text.get(note.begin as usize..note.end as usize));
        span.unwrap_or_default()
    }
}

/// The values that another one holds.
struct Inside<'a> {
    text: &'a str,
    notes: &'a [Note],
}

impl<'a> Iterator for Inside<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        let size = self.notes.first()?.size as usize;
        let (notes, rest) = self.notes.split_at_checked(size)?;
        self.notes = rest;
        Some(Node { text: self.text, notes })
    }
}

/// Goes over a document from its beginning to its end. The place is handed from step to step rather than kept here: so it stays in a
/// register.
struct Reader<'t> {
    bytes: &'t [u8],
    index: &'t mut Index,
}

impl Reader<'_> {
    fn document(&mut self) -> Result<(), Unreadable> {
        let mut at = 0;
        let mut parent = NO_PARENT;
        let mut in_object = false;
        loop {
            // A value is due.
            at = self.skip_blank(at);
            match self.bytes.get(at) {
                Some(b'"') => at = self.string(at)?,
                Some(&open @ (b'{' | b'[')) => {
                    in_object = open == b'{';
                    parent = self.note(at, at, parent, false)?;
                    at = self.skip_blank(at + 1);
                    match self.bytes.get(at) {
                        Some(b'}') if in_object => {}
                        Some(b']') if !in_object => {}
                        _ if in_object => {
                            at = self.key(at)?;
                            continue;
                        }
                        _ => continue,
                    }
                }
                Some(b'n') => at = self.word(at, b"null")?,
                Some(b'-' | b'0'..=b'9') => at = self.number(at)?,
                Some(b'f') => at = self.word(at, b"false")?,
                Some(b't') => at = self.word(at, b"true")?,
                _ => return Err(Unreadable::NotJson),
            }
            // A value has ended, and perhaps what holds it.
            loop {
                at = self.skip_blank(at);
                let next = self.bytes.get(at);
                if parent == NO_PARENT {
                    return if next.is_none() { Ok(()) } else { Err(Unreadable::NotJson) };
                }
                match next {
                    Some(b',') if in_object => {
                        at = self.skip_blank(at + 1);
                        at = self.key(at)?;
                        break;
                    }
                    Some(b',') => {
                        at += 1;
                        break;
                    }
                    Some(b'}') if in_object => {}
                    Some(b']') if !in_object => {}
                    _ => return Err(Unreadable::NotJson),
                }
                at += 1;
                parent = self.close(parent, at);
                let begin = self.index.notes.get(parent as usize).map(|note| note.begin as usize);
                in_object = begin.is_some_and(|begin| self.bytes.get(begin) == Some(&b'{'));
            }
        }
    }

    /// Notes a value. Both of its ends fit: the length of the document was looked at.
    fn note(&mut self, begin: usize, end: usize, size: u32, escaped: bool) -> Result<u32, Unreadable> {
        let place = self.index.notes.len();
        if place == MOST_VALUES {
            return Err(Unreadable::TooManyValues);
        }
        self.index.notes.push(Note { begin: begin as u32, end: end as u32, size, escaped });
        Ok(place as u32)
    }

    /// Notes where an object or array ends; gives the one that holds it.
    fn close(&mut self, place: u32, end: usize) -> u32 {
        let size = self.index.notes.len() as u32 - place;
        let note = &mut self.index.notes[place as usize];
        note.end = end as u32;
        std::mem::replace(&mut note.size, size)
    }

    fn skip_blank(&self, mut at: usize) -> usize {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.bytes.get(at) {
            at += 1;
        }
        at
    }

    /// A key and its colon; gives the place behind them, as all of these do.
    fn key(&mut self, at: usize) -> Result<usize, Unreadable> {
        if self.bytes.get(at) != Some(&b'"') {
            return Err(Unreadable::NotJson);
        }
        let end = self.string(at)?;
        let colon = self.skip_blank(end);
        if self.bytes.get(colon) == Some(&b':') { Ok(colon + 1) } else { Err(Unreadable::NotJson) }
    }

    fn string(&mut self, begin: usize) -> Result<usize, Unreadable> {
        let mut escaped = false;
        let mut at = begin + 1;
        loop {
            at = end_of_plain(self.bytes, at);
            match self.bytes.get(at) {
                Some(b'"') => {
                    self.note(begin, at + 1, 1, escaped)?;
                    return Ok(at + 1);
                }
                Some(b'\\') => {
                    escaped = true;
                    at = self.escape(at)?;
                }
                _ => return Err(Unreadable::NotJson),
            }
        }
    }

    fn escape(&mut self, at: usize) -> Result<usize, Unreadable> {
        match self.bytes.get(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
            Some(b'u') => {
                let digits = self.bytes.get(at + 2..at + 6).ok_or(Unreadable::NotJson)?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return Err(Unreadable::NotJson);
                }
                self.index.may_hold_surrogates |= matches!(digits[0], b'd' | b'D') && digits[1] >= b'8';
                Ok(at + 6)
            }
            _ => Err(Unreadable::NotJson),
        }
    }

    fn word(&mut self, begin: usize, word: &[u8]) -> Result<usize, Unreadable> {
        let end = begin + word.len();
        if self.bytes.get(begin..end) != Some(word) {
            return Err(Unreadable::NotJson);
        }
        self.note(begin, end, 1, false)?;
        Ok(end)
    }

    fn number(&mut self, begin: usize) -> Result<usize, Unreadable> {
        let digits = |from: usize| {
            let end = self.skip_digits(from);
            if end > from { Ok(end) } else { Err(Unreadable::NotJson) }
        };
        let mut at = begin + usize::from(self.bytes.get(begin) == Some(&b'-'));
        at = if self.bytes.get(at) == Some(&b'0') { at + 1 } else { digits(at)? };
        if self.bytes.get(at) == Some(&b'.') {
            at = digits(at + 1)?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(at) {
            at += 1;
            at = digits(at + usize::from(matches!(self.bytes.get(at), Some(b'+' | b'-'))))?;
        }
        self.note(begin, at, 1, false)?;
        Ok(at)
    }

    fn skip_digits(&self, mut at: usize) -> usize {
        while self.bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    }
}

/// Whether these bytes can stand between the quotes of a string just as they are, if they are UTF-8.
pub fn is_plain(inside: &[u8]) -> bool {
    end_of_plain(inside, 0) == inside.len()
}

/// The place of the next quote, backslash or control character of a string, or of its end.
#[inline]
fn end_of_plain(bytes: &[u8], at: usize) -> usize {
    // Most runs are too short to be worth a look at what the processor can do besides.
    dispatch!(Level::baseline(), simd => end_of_plain_on(simd, bytes, at))
}

#[inline(always)]
fn end_of_plain_on<S: Simd>(simd: S, bytes: &[u8], mut at: usize) -> usize {
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk::<16>()) {
        let block = u8x16::from_slice(simd, block);
        let ends = block.simd_eq(b'"') | block.simd_eq(b'\\') | block.simd_lt(b' ');
        let ends = ends.to_bitmask();
        if ends != 0 {
            return at + ends.trailing_zeros() as usize;
        }
        at += 16;
    }
    while bytes.get(at).is_some_and(|byte| !matches!(byte, 0..0x20 | b'"' | b'\\')) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    fn read(text: &str) -> Option<Index> {
        let mut index = Index::default();
        index.read(text).ok().map(|()| index)
    }

    #[test]
    fn values_are_what_they_are() {
        let text = r#" {"n": 7, "f": 7.0, "m": -1, "t": true, "e": "", "z": null, "o": {}, "a": [1, "x"]} "#;
        let index = read(text).unwrap();
        let root = index.root(text);
        let [n, f, m, t, e, z, o, a] = root.fields(["n", "f", "m", "t", "e", "z", "o", "a"]).map(Option::unwrap);
        assert_eq!((n.number(), f.number(), m.number(), e.number()), (Some(7), None, None, None));
        assert!(t.is_true() && !n.is_true() && e.is_blank() && z.is_blank() && z.is_null() && !e.is_null());
        assert!(o.is_object() && !a.is_object() && o.fields(["x"])[0].is_none() && a.fields(["x"])[0].is_none());
        assert_eq!(a.items().unwrap().map(Node::as_json).collect::<Vec<_>>(), ["1", "\"x\""]);
        assert!(o.items().is_none());
        assert_eq!((e.text().unwrap().as_ref(), n.text().is_none()), ("", true));
    }

    #[test]
    fn of_a_key_given_twice_the_last_counts_however_it_is_written() {
        for text in [r#"{"a":1,"a":2}"#, r#"{"a":1,"\u0061":2}"#] {
            let index = read(text).unwrap();
            assert_eq!(index.root(text).fields(["a"])[0].and_then(Node::number), Some(2), "{text}");
        }
    }

    #[test]
    fn an_object_that_is_held_to_its_keys_has_each_of_them_once() {
        let fields = |text: &'static str| {
            let index = read(text)?;
            let found = index.root(text).fields_given_once(["a", "b"])?;
            Some(found.map(|node| node.map(|node| node.as_json().to_owned())))
        };
        let found = fields(r#"{"b":[1],"x":1,"x":2,"\ud800":3}"#).unwrap();
        assert_eq!(found, [None, Some("[1]".to_owned())]);
        assert_eq!(fields(r#"{"a":null}"#).unwrap(), [None, None]);
        for wrong in
            [r#"{"a":1,"a":2}"#, r#"{"a":null,"a":1}"#, r#"{"a":1,"\u0061":2}"#, "[1]", "7", r#"{"a":1}x"#, r#"{"a":1"#]
        {
            assert!(fields(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn half_a_character_is_noticed_however_it_is_written() {
        for (text, may) in [
            (r#"["\ud83c"]"#, true),
            (r#"["\uDFFF"]"#, true),
            (r#"["\ud7ff\ue000"]"#, false),
            (r#"["\\ud800"]"#, false),
        ] {
            assert_eq!(read(text).unwrap().may_hold_surrogates(), may, "{text}");
        }
    }

    #[test]
    fn the_values_of_a_document_are_limited_and_their_depth_is_not() {
        let many = format!("[{}1]", "1,".repeat(MOST_VALUES - 2));
        assert_eq!(read(&many).unwrap().root(&many).items().unwrap().count(), MOST_VALUES - 1);
        assert_eq!(Index::default().read(&format!("[1,{}", &many[1..])), Err(Unreadable::TooManyValues));
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(read(&deep).is_some());
    }

    /// A text that is JSON, or nearly: pieces of JSON in any order, with long and odd strings among them.
    fn nearly_json() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("{".to_owned()),
            Just("}".to_owned()),
            Just("[".to_owned()),
            Just("]".to_owned()),
            Just(",".to_owned()),
            Just(":".to_owned()),
            Just("\"a\":".to_owned()),
            "[ \\t\\r\\n]{1,2}",
            "(true|false|null|tru|nul|NaN)",
            "-?(0|[1-9][0-9]{0,3}|01)(\\.[0-9]{0,2})?([eE][+-]?[0-9]{0,2})?",
            "\"[ -~é\u{1}\n]{0,20}\"",
            "\"(\\\\[\"\\\\/bfnrtux0]|\\\\u[0-9a-fA-FG]{3,4}|x){0,9}\"",
        ];
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            any::<String>().prop_map(serde_json::Value::from),
            any::<i64>().prop_map(serde_json::Value::from),
            any::<bool>().prop_map(serde_json::Value::from),
            Just(serde_json::Value::Null),
        ];
        leaf.prop_recursive(4, 60, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// The same tree, read through nodes.
    fn tree(node: Node<'_>) -> serde_json::Value {
        if let Some(items) = node.items() {
            return items.map(tree).collect();
        }
        if node.is_object() {
            let all: Vec<_> = node.inside().collect();
            let field = |pair: &[Node<'_>]| (pair[0].text().unwrap().into_owned(), tree(pair[1]));
            return serde_json::Value::Object(all.chunks(2).map(field).collect());
        }
        if let Some(text) = node.text() {
            return text.into();
        }
        serde_json::from_str(node.as_json()).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn what_serde_json_takes_for_valid_is_valid_here_and_nothing_else(text in nearly_json()) {
            prop_assert_eq!(read(&text).is_some(), serde_json::from_str::<&RawValue>(&text).is_ok(), "{:?}", text);
        }

        #[test]
        fn a_document_of_which_a_byte_was_changed_is_valid_exactly_if_serde_json_says_so(
            value in json(), pretty: bool, at: prop::sample::Index, byte in 0_u8..128,
        ) {
            let mut text = if pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() }.into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            if let Ok(text) = String::from_utf8(text) {
                prop_assert_eq!(read(&text).is_some(), serde_json::from_str::<&RawValue>(&text).is_ok(), "{:?}", text);
            }
        }

        #[test]
        fn every_value_is_found_where_it_stands(value in json(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() };
            let index = read(&text).unwrap();
            prop_assert_eq!(tree(index.root(&text)), value);
        }
    }
}
