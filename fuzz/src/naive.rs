//! A second reading of requests: a tree that keeps every key, judged by the contract's rules one after the other. It copies
//! everything and knows nothing of slices.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::image::Picture;

/// Any JSON value; of an object every pair, in order, repeated keys too.
pub(crate) enum Tree {
    /// A number or a boolean: nothing that the contract defines is one.
    Other,
    Null,
    Text(String),
    Array(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TreeVisitor;
        impl<'de> Visitor<'de> for TreeVisitor {
            type Value = Tree;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a value")
            }
            fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
                Ok(Tree::Other)
            }
            fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
                Ok(Tree::Other)
            }
            fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
                Ok(Tree::Other)
            }
            fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
                Ok(Tree::Other)
            }
            fn visit_unit<E>(self) -> Result<Tree, E> {
                Ok(Tree::Null)
            }
            fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
                Ok(Tree::Text(text.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
                let mut array = Vec::new();
                while let Some(item) = items.next_element()? {
                    array.push(item);
                }
                Ok(Tree::Array(array))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Tree, A::Error> {
                let mut object = Vec::new();
                while let Some(pair) = pairs.next_entry()? {
                    object.push(pair);
                }
                Ok(Tree::Object(object))
            }
        }
        deserializer.deserialize_any(TreeVisitor)
    }
}

/// The request is to be refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused;

/// What of a request has to arrive.
pub(crate) struct Request {
    pub(crate) model: Option<String>,
    pub(crate) messages: Vec<Message>,
}

pub(crate) struct Message {
    pub(crate) is_user: bool,
    pub(crate) parts: Vec<Part>,
}

pub(crate) enum Part {
    Text(String),
    Picture(Picture),
    /// Replaced by the contract's sentence.
    Disclosed,
    /// Replaced by the note on a part of unknown type.
    Omitted,
}

impl Tree {
    /// The values of `keys` in an object; each may be there once, and `null` is like absent.
    fn object<const N: usize>(&self, keys: [&str; N]) -> Result<[Option<&Tree>; N], Refused> {
        let Tree::Object(pairs) = self else { return Err(Refused) };
        let mut values = [None; N];
        for (key, value) in keys.iter().zip(&mut values) {
            let mut found = pairs.iter().filter(|(name, _)| name == key).map(|(_, value)| value);
            *value = found.next().filter(|value| !matches!(value, Tree::Null));
            if found.next().is_some() {
                return Err(Refused);
            }
        }
        Ok(values)
    }

    fn text(&self) -> Result<&str, Refused> {
        if let Tree::Text(text) = self { Ok(text) } else { Err(Refused) }
    }

    fn items(&self) -> Result<&[Tree], Refused> {
        match self {
            Tree::Array(items) if !items.is_empty() => Ok(items),
            _ => Err(Refused),
        }
    }
}

/// Reads a request by the contract's rules. `image_cap` is the largest picture, in bytes.
pub(crate) fn read(tree: &Tree, image_cap: Option<u64>) -> Result<Request, Refused> {
    let [messages, model] = tree.object(["messages", "model"])?;
    let model = model.map(Tree::text).transpose()?.filter(|name| !name.is_empty());
    let messages = messages.ok_or(Refused)?.items()?;
    let read = |(index, message): (usize, &Tree)| read_message(message, index + 1 == messages.len(), image_cap);
    let messages = messages.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
    if !messages.last().is_some_and(|message| message.is_user) {
        return Err(Refused);
    }
    Ok(Request { model: model.map(str::to_owned), messages })
}

fn read_message(message: &Tree, is_current: bool, image_cap: Option<u64>) -> Result<Message, Refused> {
    let [role, content] = message.object(["role", "content"])?;
    let is_user = match role.ok_or(Refused)?.text()? {
        "user" => true,
        "assistant" => false,
        _ => return Err(Refused),
    };
    let read = |part| read_part(part, is_user, is_current, image_cap);
    let parts = match content.ok_or(Refused)? {
        Tree::Text(text) => vec![Part::Text(text.clone())],
        parts => parts.items()?.iter().map(read).collect::<Result<_, _>>()?,
    };
    Ok(Message { is_user, parts })
}

fn read_part(part: &Tree, is_user: bool, is_current: bool, image_cap: Option<u64>) -> Result<Part, Refused> {
    let [kind, text, image] = part.object(["type", "text", "image_url"])?;
    match kind.ok_or(Refused)?.text()? {
        "text" => Ok(Part::Text(text.ok_or(Refused)?.text()?.to_owned())),
        "image_url" => {
            let picture = image.ok_or(Refused).and_then(read_picture);
            match picture {
                Ok(picture) if is_user && image_cap.is_none_or(|cap| picture.size() <= cap) => {
                    Ok(Part::Picture(picture))
                }
                _ if is_current => Err(Refused),
                _ => Ok(Part::Disclosed),
            }
        }
        _ if is_current => Err(Refused),
        _ => Ok(Part::Omitted),
    }
}

fn read_picture(image: &Tree) -> Result<Picture, Refused> {
    let [url] = image.object(["url"])?;
    Picture::read(url.ok_or(Refused)?.text()?).ok_or(Refused)
}
