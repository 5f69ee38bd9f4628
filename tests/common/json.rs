//! Requests of the app, in few words.
use serde_json::{Value, json};

/// A message of the user.
pub fn user(content: impl Into<Value>) -> Value {
    json!({"role": "user", "content": content.into()})
}

/// A message of the assistant.
pub fn assistant(content: impl Into<Value>) -> Value {
    json!({"role": "assistant", "content": content.into()})
}

/// A part of text.
pub fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// A part with a picture.
pub fn image(url: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": url}})
}

/// The whole body of a turn with these messages.
pub fn turn(messages: Vec<Value>) -> Value {
    json!({"messages": messages, "stream": false})
}

/// The whole body of a turn of one message.
pub fn say(content: impl Into<Value>) -> Value {
    turn(vec![user(content)])
}

/// The same, for a named model.
pub fn say_to(model: impl Into<Value>, content: impl Into<Value>) -> Value {
    let mut body = say(content);
    body["model"] = model.into();
    body
}

/// A valid body of exactly `size` bytes: one user message padded with letters.
pub fn body_of_size(size: usize) -> Vec<u8> {
    let head = br#"{"messages":[{"role":"user","content":"CANARY-7f3a "#;
    let tail = br#""}],"stream":false}"#;
    let mut body = Vec::with_capacity(size);
    body.extend_from_slice(head);
    // Words, not one unbroken run: a proxy may know how many bytes a token can be.
    let padding = size - head.len() - tail.len();
    body.extend(b"padding ".iter().copied().cycle().take(padding));
    body.extend_from_slice(tail);
    assert_eq!(body.len(), size);
    body
}
