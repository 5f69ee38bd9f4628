//! The chat request: a strict parse of what the contract defines, lenient on every field that it does not.
//!
//! The parse borrows from the body: text and pictures stay slices of it. Anything that carries content is kept, replaced
//! in its place by a disclosure, or refused; nothing is dropped.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::value::{BytesDeserializer, MapAccessDeserializer};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::abridged::Abridged;
use super::disclosure::{HISTORICAL_IMAGE, OMITTED_ATTACHMENT};
use super::failure::Failure;
use super::image::Image;
use super::text::Text;

/// Who speaks. The contract knows these two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The person with the phone.
    User,
    /// The model.
    Assistant,
}

/// One piece of a message, in the order in which it was sent.
#[derive(Debug, Clone)]
pub enum Part {
    /// Text, exactly as sent.
    Text(Text),
    /// A sound inline picture.
    Image(Image),
}

/// One message of the conversation. Its parts are never empty.
#[derive(Debug, Clone)]
pub struct Message {
    /// Who said it.
    pub role: Role,
    /// What was said, in order.
    pub parts: Vec<Part>,
}

impl Message {
    /// The pictures of this message, in order.
    pub fn images(&self) -> impl Iterator<Item = &Image> {
        self.parts.iter().filter_map(|part| match part {
            Part::Image(image) => Some(image),
            Part::Text(_) => None,
        })
    }

    /// The texts of this message, in order.
    pub fn texts(&self) -> impl Iterator<Item = &Text> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text),
            Part::Image(_) => None,
        })
    }
}

/// A whole request: the ordered snapshot of a conversation whose last message is the current turn.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// The messages, oldest first; the last is the current turn and is the user's.
    pub messages: Vec<Message>,
    /// The model that the app named, if it named one.
    pub model: Option<String>,
}

impl Conversation {
    /// Reads a request body.
    ///
    /// `image_cap` is the largest picture in bytes that is let through (`limits.image`); a larger one is refused in the current
    /// turn and disclosed in an earlier message.
    ///
    /// # Errors
    /// 400 for what is malformed by the contract's rules (conformance sections E to I), 413 `image_too_large` for a picture of the
    /// current turn over the cap. The messages name the place and never quote the request.
    pub fn parse(body: &Bytes, image_cap: Option<u64>) -> Result<Self, Failure> {
        let body = Abridged::of(body).ok_or_else(|| Failure::malformed("the body is not valid JSON in UTF-8"))?;
        let request: Object<RawRequest<'_>> =
            serde_json::from_str(body.text()).map_err(|error| not_a_request(&error))?;
        let request = request.0;
        let messages = request.messages.ok_or_else(|| Failure::malformed("messages must be a non-empty array"))?;
        let Some(last) = messages.len().checked_sub(1) else {
            return Err(Failure::malformed("messages must be a non-empty array"));
        };
        let model = request.model.map_or(Ok(None), |model| read_model(&body.literal(model.get())))?;
        let messages = messages
            .into_iter()
            .enumerate()
            .map(|(index, message)| {
                MessageReader { body: &body, image_cap, index, current: index == last }.read(&message.0)
            })
            .collect::<Result<Vec<_>, _>>()?;
        if messages[last].role != Role::User {
            return Err(Failure::malformed("the last message must be the user's: it is the current turn"));
        }
        Ok(Conversation { messages, model })
    }

    /// The current turn.
    pub fn current(&self) -> Option<&Message> {
        self.messages.last()
    }

    /// Whether the current turn has a picture.
    pub fn has_current_image(&self) -> bool {
        self.current().is_some_and(|current| current.images().next().is_some())
    }

    /// Bytes of text in the whole conversation, as escaped in the request.
    pub fn text_bytes(&self) -> usize {
        self.messages.iter().flat_map(Message::texts).map(Text::len).sum()
    }

    /// Number of pictures in the whole conversation.
    pub fn image_count(&self) -> usize {
        self.messages.iter().map(|message| message.images().count()).sum()
    }

    /// Puts the contract's disclosure in the place of every picture before the current turn.
    pub fn disclose_historical_images(&mut self) {
        self.disclose_historical_images_where(|_| true);
    }

    /// Puts the contract's disclosure in the place of those pictures before the current turn that `unwanted` picks.
    pub fn disclose_historical_images_where(&mut self, unwanted: impl Fn(&Image) -> bool) {
        let last = self.messages.len().saturating_sub(1);
        for part in self.messages[..last].iter_mut().flat_map(|message| &mut message.parts) {
            if matches!(part, Part::Image(image) if unwanted(image)) {
                *part = Part::Text(Text::constant(HISTORICAL_IMAGE));
            }
        }
    }
}

/// A JSON object and nothing else: serde's own structs also accept an array of their fields.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(AnyKeys(map))).map(Object)
            }
        }
        deserializer.deserialize_map(ObjectVisitor(std::marker::PhantomData))
    }
}

/// The same map with its keys read as bytes: an unknown key may be any JSON string, even one that is no Unicode text.
struct AnyKeys<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for AnyKeys<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let Some(Key(key)) = self.0.next_key()? else { return Ok(None) };
        seed.deserialize(BytesDeserializer::new(&key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}

struct Key<'de>(Cow<'de, [u8]>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_bytes<E: serde::de::Error>(self, key: &'de [u8]) -> Result<Self::Value, E> {
                // Borrowed means that no escape was in it: these bytes stood in the body, where JSON allows no control character.
                if key.iter().any(|byte| *byte < 0x20) {
                    return Err(E::custom("a control character in a key"));
                }
                Ok(Key(Cow::Borrowed(key)))
            }
            fn visit_bytes<E>(self, key: &[u8]) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(key.to_vec())))
            }
        }
        deserializer.deserialize_bytes(KeyVisitor)
    }
}

// Interpreted keys given twice are an error of serde's derive; unknown keys are skipped whatever they hold, without being built.

#[derive(Deserialize)]
struct RawRequest<'a> {
    #[serde(borrow)]
    messages: Option<Vec<Object<RawMessage<'a>>>>,
    #[serde(borrow)]
    model: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawMessage<'a> {
    #[serde(borrow)]
    role: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawPart<'a> {
    #[serde(borrow)]
    r#type: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    image_url: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawImageUrl<'a> {
    #[serde(borrow)]
    url: Option<&'a RawValue>,
}

/// serde_json's own words can quote the body, so only the kind and the place of its error are told.
fn not_a_request(error: &serde_json::Error) -> Failure {
    let place = format!("line {}, column {}", error.line(), error.column());
    Failure::malformed(match error.classify() {
        serde_json::error::Category::Data => {
            format!("the body must be an object with messages as an array of objects, each field once ({place})")
        }
        _ => format!("the body is not valid JSON ({place})"),
    })
}

/// An absent, `null` or empty model are the same: the app names none.
fn read_model(literal: &[u8]) -> Result<Option<String>, Failure> {
    match serde_json::from_slice::<String>(literal) {
        Ok(name) if name.is_empty() => Ok(None),
        Ok(name) => Ok(Some(name)),
        Err(_) => Err(Failure::malformed("model must be a string")),
    }
}

/// Reads one message; knows where it stands, because the current turn is held to more than the history.
struct MessageReader<'a> {
    body: &'a Abridged<'a>,
    image_cap: Option<u64>,
    index: usize,
    current: bool,
}

impl MessageReader<'_> {
    fn malformed(&self, what: &str) -> Failure {
        Failure::malformed(format!("messages[{}]: {what}", self.index))
    }

    fn read(&self, raw: &RawMessage<'_>) -> Result<Message, Failure> {
        let role = match raw.role.map(|role| serde_json::from_str::<String>(role.get())) {
            Some(Ok(role)) if role == "user" => Role::User,
            Some(Ok(role)) if role == "assistant" => Role::Assistant,
            _ => return Err(self.malformed("role must be user or assistant")),
        };
        let content = raw.content.map(RawValue::get).unwrap_or_default();
        let parts = match content.as_bytes().first() {
            Some(b'"') => vec![Part::Text(self.text(content)?)],
            Some(b'[') => self.parts(content, role)?,
            _ => return Err(self.malformed("content must be a string or an array of parts")),
        };
        Ok(Message { role, parts })
    }

    fn text(&self, literal: &str) -> Result<Text, Failure> {
        Text::from_literal(&self.body.literal(literal))
            .ok_or_else(|| self.malformed("a text holds an escape that is no Unicode character"))
    }

    fn parts(&self, content: &str, role: Role) -> Result<Vec<Part>, Failure> {
        let raw: Vec<Object<RawPart<'_>>> = serde_json::from_str(content)
            .map_err(|_| self.malformed("content must be an array of objects, each field once"))?;
        if raw.is_empty() {
            return Err(self.malformed("content must not be an empty array"));
        }
        raw.iter().map(|part| self.part(&part.0, role)).collect()
    }

    fn part(&self, raw: &RawPart<'_>, role: Role) -> Result<Part, Failure> {
        let kind: String = raw
            .r#type
            .and_then(|kind| serde_json::from_str(kind.get()).ok())
            .ok_or_else(|| self.malformed("every part needs a type, which is a string"))?;
        match kind.as_str() {
            "text" => {
                let literal = raw.text.map(RawValue::get).filter(|literal| literal.starts_with('"'));
                let literal = literal.ok_or_else(|| self.malformed("the text of a text part must be a string"))?;
                self.text(literal).map(Part::Text)
            }
            "image_url" => self.image(raw, role),
            // Prose chosen with care: the app takes some words about content kinds for a photo problem.
            _ if self.current => {
                Err(self.malformed("parts are of type text or image_url; this one is of another kind"))
            }
            _ => Ok(Part::Text(Text::constant(OMITTED_ATTACHMENT))),
        }
    }

    /// A picture of the current turn is sound or the request is refused; one of an earlier message never blocks the
    /// conversation and is disclosed where it cannot be passed on.
    fn image(&self, raw: &RawPart<'_>, role: Role) -> Result<Part, Failure> {
        let image = read_image(raw, self.body);
        if self.current {
            let image = image.map_err(|what| self.malformed(what))?;
            if self.image_cap.is_some_and(|cap| image.decoded_size() > cap) {
                return Err(Failure::image_too_large("a picture is over this adapter's size cap (limits.image)"));
            }
            return Ok(Part::Image(image));
        }
        let fits = |image: &Image| self.image_cap.is_none_or(|cap| image.decoded_size() <= cap);
        // OpenAI-style engines refuse a picture in an assistant message.
        Ok(match image {
            Ok(image) if role == Role::User && fits(&image) => Part::Image(image),
            _ => Part::Text(Text::constant(HISTORICAL_IMAGE)),
        })
    }
}

fn read_image(raw: &RawPart<'_>, body: &Abridged<'_>) -> Result<Image, &'static str> {
    const NO_URL: &str = "image_url must be an object whose url is a string";
    let object: Object<RawImageUrl<'_>> =
        raw.image_url.and_then(|object| serde_json::from_str(object.get()).ok()).ok_or(NO_URL)?;
    let url = object.0.url.map(RawValue::get).filter(|url| url.starts_with('"')).ok_or(NO_URL)?;
    Image::from_literal(&body.literal(url))
}
