//! What the contract says of every answer: the shape of a reply, and of an error.
use super::client::Response;
use super::pictures::shows_canary;
use serde_json::Value;

const CODES: [&str; 7] = [
    "image_unsupported",
    "model_not_found",
    "context_too_long",
    "image_too_large",
    "overloaded",
    "upstream_timeout",
    "upstream_failure",
];

/// Words, in this order, by which the app reads a meaning into a message.
const TRIGGERS: [&[&str]; 14] = [
    &["unsupported", "content"],
    &["image", "not", "support"],
    &["support", "image"],
    &["image", "input"],
    &["image", "too", "large"],
    &["model is required"],
    &["must provide a model"],
    &["missing", "required", "model"],
    &["maximum context length"],
    &["context_length_exceeded"],
    &["not a valid model"],
    &["no endpoints found for"],
    &["embedding model"],
    &["\u{feff}"],
];

fn in_order(text: &str, words: &[&str]) -> bool {
    let mut rest = text;
    words.iter().all(|word| match rest.split_once(word) {
        Some((_, behind)) => {
            rest = behind;
            true
        }
        None => false,
    })
}

impl Response {
    /// This is a whole reply with this text, and nothing that the contract forbids.
    #[track_caller]
    pub fn assert_reply(&self, text: &str) -> Value {
        let json = self.assert_any_reply();
        let content = json["choices"][0]["message"]["content"].as_str().unwrap();
        // Not assert_eq: a text of megabytes helps nobody in a failure message.
        assert!(content == text, "the reply is {:.300?}, expected {text:.300?}", content);
        json
    }

    /// This is a whole reply with some text.
    #[track_caller]
    pub fn assert_any_reply(&self) -> Value {
        let shown = String::from_utf8_lossy(&self.body[..self.body.len().min(400)]);
        assert_eq!(self.status, 200, "{shown}");
        self.assert_plain_json();
        let json = self.json();
        let choices = json["choices"].as_array().expect("choices is an array");
        assert_eq!(choices.len(), 1, "exactly one choice");
        let message = choices[0]["message"].as_object().expect("a message");
        assert_eq!(message["role"], "assistant");
        assert!(!message["content"].as_str().expect("content is a string").is_empty());
        assert!(!message.contains_key("tool_calls"));
        for hidden in ["reasoning", "reasoning_content", "thinking"] {
            assert!(!message.contains_key(hidden), "{hidden} was passed on");
        }
        json
    }

    /// The framing and headers of every answer with a body.
    #[track_caller]
    pub fn assert_plain_json(&self) {
        assert_eq!(self.header("content-type"), Some("application/json"));
        assert_eq!(self.header("content-length"), Some(self.body.len().to_string().as_str()));
        assert_eq!(self.header("transfer-encoding"), None);
        assert_eq!(self.header("content-encoding"), None);
        let crossing = self.headers.iter().find(|(name, _)| name.starts_with("access-control-"));
        assert_eq!(crossing, None);
        assert!(!self.body.starts_with(b"\xEF\xBB\xBF"), "a byte order mark");
    }

    /// The error shape, this status, this code or none, a type that fits, and a message that the app does not misread.
    #[track_caller]
    pub fn assert_error<'code>(&self, status: u16, code: impl Into<Option<&'code str>>) {
        self.assert_error_shape(status);
        let json = self.json();
        let found = json["error"].get("code").map(|code| code.as_str().expect("a code is a string"));
        assert_eq!(found, code.into(), "code of {json}");
    }

    /// `overloaded`, as 429 or 503.
    #[track_caller]
    pub fn assert_overloaded(&self) {
        let status = if self.status == 429 { 429 } else { 503 };
        self.assert_error(status, "overloaded");
    }

    #[track_caller]
    fn assert_error_shape(&self, status: u16) {
        let shown = String::from_utf8_lossy(&self.body[..self.body.len().min(400)]);
        assert_eq!(self.status, status, "{shown}");
        self.assert_plain_json();
        let json = self.json();
        let top = json.as_object().expect("an object");
        assert_eq!(top.len(), 1, "only `error` at the top: {json}");
        let error = json["error"].as_object().expect("error is an object");
        let message = error["message"].as_str().expect("a message");
        assert!(!message.is_empty());
        let head: String = self.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        let whole = head + &String::from_utf8_lossy(&self.body);
        assert!(!shows_canary(&whole), "an error shows what is secret");
        let class = if status < 500 { "invalid_request_error" } else { "server_error" };
        assert_eq!(error["type"], class);
        if let Some(code) = error.get("code") {
            assert!(CODES.iter().any(|known| code == known), "{code} is not in the vocabulary");
        }
        if [400, 404, 413, 422].contains(&status) {
            let message = message.to_lowercase();
            for words in TRIGGERS {
                assert!(!in_order(&message, words), "the app would misread: {message}");
            }
        }
    }
}
