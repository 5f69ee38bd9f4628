//! Getting at what a server says: from the bytes of a body to the innermost message, type, code and status.
//!
//! The shapes: an `error` object, an `error` string, a flat object, `message`, `detail` as string, array or object, plain text or
//! HTML or nothing at all, and any of these again as a string inside the message, as JSON or as Go prints a map.

use serde_json::{Deserializer, Map, Value};

/// No more of a body is looked at, in bytes.
const LONGEST_BODY: usize = 64 * 1024;
/// No more of the innermost message is looked at, in bytes: what a server has to say comes first, what it quotes comes later.
const LONGEST_MESSAGE: usize = 2 * 1024;
/// So often a message is unwrapped that turns out to be an error body itself.
const DEEPEST_WRAPPING: usize = 2;
/// So deep an object is searched for its message.
const DEEPEST_OBJECT: usize = 4;
/// So many opening braces of a message are tried as the start of a wrapped error.
const MOST_BRACES: usize = 4;

/// Where the words of an error may stand. What echoes the request (`input`, `loc`, `ctx`, `value`) is not among them.
const MESSAGE_KEYS: [&str; 7] = ["error", "detail", "errors", "message", "msg", "reason", "title"];
const TYPE_KEYS: [&str; 2] = ["type", "error_type"];
const STATUS_KEYS: [&str; 4] = ["code", "http_status_code", "status_code", "status"];

/// From here to the end of its line, a validation error repeats what was sent to it, which is the user's and decides nothing.
const ECHOES: [&str; 8] = [
    "'input':",
    "\"input\":",
    "input_value=",
    ", value=",
    "last read:",
    "received value:",
    "input at pos ",
    "while handling ",
];

/// From here on, a server repeats the conversation, over as many lines as it has.
const CONVERSATION_ECHOES: [&str; 6] =
    ["messages = [", "messages=[", "\"messages\":", "'messages': [", "\"content\":", "'content':"];

/// What a server says in an error.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// The innermost message in [`plain_words`]; empty when there is none, or only a page of HTML, which is never a model
    /// server's own.
    pub(super) message: String,
    /// The type in [`bare_name`] form, empty when there is none.
    pub(super) kind: String,
    /// The code in [`bare_name`] form, whether it was a string or a number; empty when there is none.
    pub(super) code: String,
    /// An HTTP status (400 to 599) that the body itself names.
    pub(super) status: Option<u16>,
}

/// Reads a body.
pub(super) fn said(body: &[u8]) -> Said {
    let body = &body[..body.len().min(LONGEST_BODY)];
    let text = String::from_utf8_lossy(body);
    let text = text.trim_start_matches('\u{feff}').trim();

    let mut said = outermost(text);
    for _ in 0..DEEPEST_WRAPPING {
        match wrapped(&said.message) {
            Some(inner) => said.unwrap_to(inner),
            None => break,
        }
    }
    said.message = plain_words(relevant(&said.message).as_str());
    said.kind = bare_name(&said.kind);
    said.code = bare_name(&said.code);
    said
}

/// Words as rows and messages are compared: lower case, with one space for every run of white space, hyphens and underscores
/// (so that `context_length_exceeded`, "context-length" and a line break make no difference), with negations spelled out, and a
/// space at both ends, so that a fragment can ask for the edge of a word.
pub(super) fn plain_words(text: &str) -> String {
    let mut words = String::with_capacity(text.len() + 2);
    words.push(' ');
    for character in text.chars().flat_map(char::to_lowercase) {
        match character {
            '-' | '_' => push_space(&mut words),
            _ if character.is_whitespace() => push_space(&mut words),
            '\u{2018}' | '\u{2019}' => words.push('\''),
            _ => words.push(character),
        }
    }
    push_space(&mut words);
    words.replace("can't", "cannot").replace("can not", "cannot").replace("n't", " not")
}

fn push_space(words: &mut String) {
    if !words.ends_with(' ') {
        words.push(' ');
    }
}

/// A type or code as rows and errors are compared: letters and digits only, in lower case, since servers write the same one as
/// `NotFoundError`, `not_found_error` and `Not Found`.
pub(super) fn bare_name(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|character| character.to_ascii_lowercase()).collect()
}

impl Said {
    fn words(message: &str) -> Self {
        Self { message: message.to_owned(), ..Self::default() }
    }

    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// The inner error speaks; what it leaves open, the outer one says.
    fn unwrap_to(&mut self, inner: Self) {
        self.message = inner.message;
        if !inner.kind.is_empty() {
            self.kind = inner.kind;
        }
        if !inner.code.is_empty() {
            self.code = inner.code;
        }
        self.status = inner.status.or(self.status);
    }
}

/// The outermost error of a body: one JSON value, several lines of them (an `error` counts before anything else), the data of an
/// event, or else the text as it stands, which is also what broken JSON comes to.
fn outermost(text: &str) -> Said {
    let event: String;
    let text = if text.starts_with("data:") || text.starts_with("event:") {
        event = text.lines().filter_map(|line| line.strip_prefix("data:")).collect::<Vec<_>>().join("\n");
        event.trim()
    } else {
        text
    };
    if let Ok(message) = serde_json::from_str::<String>(text) {
        return Said::words(&message);
    }
    let mut first = None;
    for value in Deserializer::from_str(text).into_iter::<Value>() {
        let Ok(value) = value else { break };
        let Some(said) = from_value(&value) else {
            continue;
        };
        if value.get("error").is_some() {
            return said;
        }
        first.get_or_insert(said);
    }
    first.unwrap_or_else(|| Said::words(text))
}

fn from_value(value: &Value) -> Option<Said> {
    match value {
        Value::Array(items) => items.iter().find_map(|item| item.as_object().and_then(from_object)),
        Value::Object(object) => from_object(object),
        _ => None,
    }
}

fn from_object(object: &Map<String, Value>) -> Option<Said> {
    let mut said = Said::default();
    let mut messages = Vec::new();
    read_object(object, &mut said, &mut messages, 0);
    messages.dedup();
    said.message = messages.join(": ");
    (!said.is_nothing()).then_some(said)
}

/// Collects the words of an object. Inner objects are read first: where both name a type, the inner one is the error's own.
fn read_object<'a>(object: &'a Map<String, Value>, said: &mut Said, messages: &mut Vec<&'a str>, depth: usize) {
    if depth == DEEPEST_OBJECT {
        return;
    }
    for key in MESSAGE_KEYS {
        match object.get(key) {
            Some(Value::Array(items)) => {
                for item in items {
                    read_message(item, said, messages, depth);
                }
            }
            Some(value) => read_message(value, said, messages, depth),
            None => {}
        }
    }
    for key in TYPE_KEYS {
        if let Some(Value::String(kind)) = object.get(key)
            && said.kind.is_empty()
        {
            said.kind.clone_from(kind);
        }
    }
    if said.code.is_empty() {
        match object.get("code") {
            Some(Value::String(code)) => said.code.clone_from(code),
            Some(Value::Number(code)) => said.code = code.to_string(),
            _ => {}
        }
    }
    for key in STATUS_KEYS {
        said.status = said.status.or_else(|| object.get(key).and_then(status_of));
    }
}

fn read_message<'a>(value: &'a Value, said: &mut Said, messages: &mut Vec<&'a str>, depth: usize) {
    match value {
        Value::String(message) => messages.push(message),
        Value::Object(object) => read_object(object, said, messages, depth + 1),
        _ => {}
    }
}

fn status_of(value: &Value) -> Option<u16> {
    let number = match value {
        Value::Number(number) => u16::try_from(number.as_u64()?).ok()?,
        Value::String(digits) => digits.parse().ok()?,
        _ => return None,
    };
    (400..600).contains(&number).then_some(number)
}

/// An error inside a message: JSON (of another server, passed on as a string, often after a few words of the one that passes
/// it on), or a Go map.
fn wrapped(message: &str) -> Option<Said> {
    let message = message.trim();
    let own = if message.starts_with('{') {
        message.len()
    } else {
        first_of(message, &ECHOES).min(first_of(message, &CONVERSATION_ECHOES))
    };
    for (index, _) in message[..own].match_indices('{').take(MOST_BRACES) {
        let Some(Ok(Value::Object(object))) = Deserializer::from_str(&message[index..]).into_iter::<Value>().next()
        else {
            continue;
        };
        // Anywhere but at the start, an object without an error in it is something that the message quotes, and what stands
        // after an echo's beginning is not the server's at all.
        let speaks = index == 0 || object.contains_key("error") || object.contains_key("detail");
        if let Some(said) = from_object(&object)
            && speaks
        {
            return Some(said);
        }
    }
    from_go_map(&message[..own])
}

/// `map[code:500 message:some words type:server_error]`, as Go prints it: keys in alphabetical order, nothing quoted, so that
/// only the known keys tell where the message ends.
fn from_go_map(text: &str) -> Option<Said> {
    let map = &text[text.find("map[")?..];
    let start = map.find("message:")?;
    let (before, rest) = (&map[..start], &map[start + "message:".len()..]);
    let mut message = &rest[..rest.rfind(']').unwrap_or(rest.len())];
    let mut kind = "";
    for key in [" type:", " param:", " n_prompt_tokens:", " n_ctx:"] {
        if let Some(at) = message.rfind(key) {
            if key == " type:" {
                kind = &message[at + key.len()..];
            }
            message = &message[..at];
        }
    }
    let code = before.split_once("code:").map_or("", |(_, code)| code.split_whitespace().next().unwrap_or(""));
    Some(Said {
        message: message.to_owned(),
        kind: kind.split([' ', ']']).next().unwrap_or("").to_owned(),
        code: code.to_owned(),
        status: status_of(&Value::from(code)),
    })
}

/// The part of a message that can decide: no page, no source of a template before the reason it gave, nothing that is echoed,
/// and only the beginning.
fn relevant(message: &str) -> String {
    let message = message.trim();
    if is_page(message) {
        return String::new();
    }
    let reason = message.rfind("Jinja Exception:").filter(|&at| !is_echoed(&message[..at]));
    let message = &message[reason.unwrap_or(0)..];
    let end = first_of(message, &CONVERSATION_ECHOES);
    let message = &message[..end];
    let mut kept = String::new();
    for line in message.lines() {
        kept.push_str(&line[..first_of(line, &ECHOES)]);
        kept.push('\n');
        if kept.len() >= LONGEST_MESSAGE {
            break;
        }
    }
    let mut end = kept.len().min(LONGEST_MESSAGE);
    while !kept.is_char_boundary(end) {
        end -= 1;
    }
    kept.truncate(end);
    kept
}

/// Whether what comes after this belongs to what is echoed, since that begins on the same line.
fn is_echoed(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or(before);
    first_of(line, &ECHOES).min(first_of(line, &CONVERSATION_ECHOES)) < line.len()
}

/// Where the first of the fragments begins, or the end.
fn first_of(text: &str, fragments: &[&str]) -> usize {
    fragments.iter().filter_map(|fragment| text.find(fragment)).min().unwrap_or(text.len())
}

fn is_page(message: &str) -> bool {
    let beginning: String = message.chars().take(512).collect();
    let beginning = beginning.to_ascii_lowercase();
    beginning.starts_with('<')
        && ["<!doctype", "<html", "<head", "<title", "<body", "<?xml"].iter().any(|tag| beginning.contains(tag))
}
