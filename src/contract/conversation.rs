//! The chat request: a strict parse of what the contract defines, lenient on every field that it does not.
//!
//! The parse borrows from the body: text and pictures stay slices of it. Anything that carries content is kept, replaced
//! in its place by a disclosure, or refused; nothing is dropped.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::abridged::Abridged;
use super::disclosure::{HISTORICAL_IMAGE, OMITTED_ATTACHMENT};
use super::failure::Failure;
use super::image::Image;
use super::text::Text;
use crate::json::{Index, Node, Unreadable};

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
#[derive(Debug, Clone, Default)]
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
        let mut index = Index::default();
        index.read(body.text()).map_err(|why| unreadable(why, body.text()))?;
        let request = index.root(body.text()).fields_given_once(["messages", "model"]);
        let [messages, model] =
            request.ok_or_else(|| Failure::malformed("the body must be an object that has each field once"))?;
        let nodes: Vec<_> = messages.and_then(Node::items).into_iter().flatten().collect();
        let may_hold_surrogates = index.may_hold_surrogates();
        let last = nodes.len().checked_sub(1);
        let last = last.ok_or_else(|| Failure::malformed("messages must be a non-empty array"))?;
        let model = model.map_or(Ok(None), |model| read_model(&body.literal(model.as_json())))?;
        let messages = nodes
            .into_iter()
            .enumerate()
            .map(|(index, message)| {
                MessageReader { body: &body, may_hold_surrogates, image_cap, index, current: index == last }
                    .read(message)
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

/// serde_json tells the place; its own words can quote the body.
fn unreadable(why: Unreadable, text: &str) -> Failure {
    Failure::malformed(match serde_json::from_str::<&RawValue>(text) {
        Err(error) => format!("the body is not valid JSON (line {}, column {})", error.line(), error.column()),
        Ok(_) if why == Unreadable::TooManyValues => "the body has more values than any chat".to_owned(),
        Ok(_) => "the body is not valid JSON".to_owned(),
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
    /// Whether an escape in the short form of the body may be a surrogate.
    may_hold_surrogates: bool,
    image_cap: Option<u64>,
    index: usize,
    current: bool,
}

impl MessageReader<'_> {
    fn malformed(&self, what: &str) -> Failure {
        Failure::malformed(format!("messages[{}]: {what}", self.index))
    }

    fn read(&self, message: Node<'_>) -> Result<Message, Failure> {
        let [role, content] = message
            .fields_given_once(["role", "content"])
            .ok_or_else(|| self.malformed("a message must be an object, each field once"))?;
        let role = match role.and_then(Node::text).as_deref() {
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            _ => return Err(self.malformed("role must be user or assistant")),
        };
        let parts = match content {
            Some(content) if content.is_string() => vec![Part::Text(self.text(content)?)],
            Some(content) if content.is_array() => self.parts(content, role)?,
            _ => return Err(self.malformed("content must be a string or an array of parts")),
        };
        Ok(Message { role, parts })
    }

    fn text(&self, literal: Node<'_>) -> Result<Text, Failure> {
        let json = literal.as_json();
        // Of a string that was taken out nothing stands in the short form.
        let may_hold_surrogates = self.may_hold_surrogates || self.body.seen(json).is_some();
        Text::from_literal(self.body.literal(json), may_hold_surrogates)
            .ok_or_else(|| self.malformed("a text holds an escape that is no Unicode character"))
    }

    fn parts(&self, content: Node<'_>, role: Role) -> Result<Vec<Part>, Failure> {
        let parts = content.items().into_iter().flatten().map(|part| self.part(part, role));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        if parts.is_empty() {
            return Err(self.malformed("content must not be an empty array"));
        }
        Ok(parts)
    }

    fn part(&self, part: Node<'_>, role: Role) -> Result<Part, Failure> {
        let [kind, text, image_url] = part
            .fields_given_once(["type", "text", "image_url"])
            .ok_or_else(|| self.malformed("content must be an array of objects, each field once"))?;
        let kind = kind.and_then(Node::text);
        let kind = kind.ok_or_else(|| self.malformed("every part needs a type, which is a string"))?;
        match kind.as_ref() {
            "text" => {
                let text = text.filter(|text| text.is_string());
                let text = text.ok_or_else(|| self.malformed("the text of a text part must be a string"))?;
                self.text(text).map(Part::Text)
            }
            "image_url" => self.image(image_url, role),
            // Prose chosen with care: the app takes some words about content kinds for a photo problem.
            _ if self.current => {
                Err(self.malformed("parts are of type text or image_url; this one is of another kind"))
            }
            _ => Ok(Part::Text(Text::constant(OMITTED_ATTACHMENT))),
        }
    }

    /// A picture of the current turn is sound or the request is refused; one of an earlier message never blocks the
    /// conversation and is disclosed where it cannot be passed on.
    fn image(&self, image_url: Option<Node<'_>>, role: Role) -> Result<Part, Failure> {
        let image = read_image(image_url, self.body);
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

fn read_image(image_url: Option<Node<'_>>, body: &Abridged<'_>) -> Result<Image, &'static str> {
    const NO_URL: &str = "image_url must be an object whose url is a string";
    let [url] = image_url.and_then(|object| object.fields_given_once(["url"])).ok_or(NO_URL)?;
    let url = url.filter(|url| url.is_string()).ok_or(NO_URL)?;
    Image::from_literal(&body.literal(url.as_json()), body.seen(url.as_json()))
}
