//! Target `data_uri`: the reader of inline pictures.

use bytes::Bytes;
use serde::de::IgnoredAny;
use weir::contract::{Conversation, Image, Part};

use crate::image::Picture;

/// Beginnings that the first byte of an input chooses from, so that most inputs get past the first check.
const BEGINNINGS: [&str; 4] = ["", "data:image/", "data:image/png;", "data:image/png;base64,"];

/// The input is a byte that chooses the beginning, and the rest of a `url` as it stands in a request, between its quotes; and,
/// where it is text, also a `url` that is yet to be spelled in JSON. Weir must judge it as the slow reading does, and alike in
/// every spelling.
pub fn data_uri(input: &[u8]) {
    let Some((&choice, rest)) = input.split_first() else { return };
    let Ok(rest) = std::str::from_utf8(rest) else { return };
    let input = &format!("{}{rest}", BEGINNINGS[usize::from(choice) % BEGINNINGS.len()]);
    let literal = format!("\"{input}\"");
    if serde_json::from_str::<IgnoredAny>(&literal).is_ok() {
        check(&literal, serde_json::from_str::<String>(&literal).ok().as_deref());
    }
    let plain = serde_json::to_string(input).unwrap_or_default();
    check(&plain.replace('/', "\\/"), Some(input));
    check(&in_escapes_only(input), Some(input));
    check(&plain, Some(input));
}

/// The input that stands for a whole `url`.
pub fn data_uri_input(url: &[u8]) -> Vec<u8> {
    [b"\0", url].concat()
}

/// Reads the literal as the picture of the current turn. `url` is what it spells; a lone surrogate spells nothing.
fn check(literal: &str, url: Option<&str>) {
    match (read(literal), url.and_then(Picture::read)) {
        (Some(image), Some(picture)) => picture.assert_is(&image),
        (None, None) => {}
        (Some(image), None) => panic!("{image:?} was made of what is no picture"),
        (None, Some(picture)) => panic!("a picture of {} bytes was refused", picture.size()),
    }
}

fn read(literal: &str) -> Option<Image> {
    let part = format!("{{\"type\":\"image_url\",\"image_url\":{{\"url\":{literal}}}}}");
    let body = format!("{{\"messages\":[{{\"role\":\"user\",\"content\":[{part}]}}]}}");
    let mut conversation = match Conversation::parse(&Bytes::from(body), None) {
        Ok(conversation) => conversation,
        Err(failure) => {
            assert_eq!((failure.status.as_u16(), failure.code), (400, None));
            return None;
        }
    };
    match conversation.messages.pop().and_then(|mut message| message.parts.pop()) {
        Some(Part::Image(image)) => Some(image),
        part => panic!("a picture of the current turn became {part:?}"),
    }
}

fn in_escapes_only(text: &str) -> String {
    let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
    format!("\"{}\"", units.collect::<String>())
}
