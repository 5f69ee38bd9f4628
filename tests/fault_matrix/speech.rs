//! What model servers say, in each of their languages.
use super::common::CANARY;
use serde_json::{Value, json};

/// The text of a whole answer; nothing else may ever be a reply.
pub const ANSWER: &str = "The whole answer of the model, CANARY-7f3a.";

/// The text of the answer to a turn that no fault hits.
pub const FINE: &str = "All is well again, CANARY-7f3a.";

/// How a model server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    OpenAi,
    LlamaCpp,
    Vllm,
    Ollama,
}

/// All dialects, in the order of the tables' columns.
pub const DIALECTS: [Dialect; 4] = [Dialect::OpenAi, Dialect::LlamaCpp, Dialect::Vllm, Dialect::Ollama];

/// Whether a server answers with a stream, as it was asked to, or with one plain document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Stream,
    Plain,
}

/// How a server of a cell speaks.
#[derive(Clone, Copy, Debug)]
pub struct Speech<'a> {
    pub dialect: Dialect,
    pub form: Form,
    /// The text of its whole answers; the canary is in it.
    pub text: &'a str,
}

impl Dialect {
    /// The word for it in the configuration.
    pub fn kind(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::LlamaCpp => "llamacpp",
            Self::Vllm => "vllm",
            Self::Ollama => "ollama",
        }
    }

    /// Where turns are sent.
    pub fn chat_path(self) -> &'static str {
        if self == Self::Ollama { "/api/chat" } else { "/v1/chat/completions" }
    }

    fn stream_type(self) -> &'static str {
        if self == Self::Ollama { "application/x-ndjson" } else { "text/event-stream" }
    }

    /// The answer to anything but a turn, of a server with this one model.
    pub fn discovery(self, target: &str, model: &str) -> Vec<u8> {
        let list =
            |owner: &str| json!({"object": "list", "data": [{"id": model, "object": "model", "owned_by": owner}]});
        let tagged = format!("{model}:latest");
        let answer = match (self, target) {
            (Self::OpenAi, "/v1/models") => list("somebody"),
            (Self::LlamaCpp, "/v1/models") => list("llamacpp"),
            (Self::LlamaCpp, "/props") => json!({"modalities": {"vision": true}, "total_slots": 1}),
            (Self::LlamaCpp, "/slots") => json!([{"id": 0, "is_processing": false}]),
            (Self::Vllm, "/v1/models") => list("vllm"),
            (Self::Vllm, "/version") => json!({"version": "0.33.0"}),
            (Self::Vllm, "/tokenize") => json!({"count": 9}),
            (Self::Ollama, "/api/tags") => {
                json!({"models": [{"name": tagged, "model": tagged, "digest": "1"}]})
            }
            (Self::Ollama, "/api/version") => json!({"version": "0.33.0"}),
            (Self::Ollama, "/api/ps") => json!({"models": []}),
            (Self::Ollama, "/api/show") => json!({"capabilities": ["completion", "vision"]}),
            _ => return with_length(404, "application/json", b"{\"error\":\"not found\"}", "Connection: close\r\n"),
        };
        with_length(200, "application/json", answer.to_string().as_bytes(), "Connection: close\r\n")
    }

    /// A turn answered well, on a connection that ends after it.
    pub fn good_turn(self) -> Vec<u8> {
        let body = Speech { dialect: self, form: Form::Stream, text: FINE }.whole(FINE);
        with_length(200, self.stream_type(), body.as_bytes(), "")
    }

    /// Whether such a server keeps a connection behind a streamed answer.
    pub fn keeps_connections(self) -> bool {
        self != Dialect::LlamaCpp
    }
}

impl Speech<'_> {
    fn frame(self, document: &Value) -> String {
        match (self.dialect, self.form) {
            (_, Form::Plain) => document.to_string(),
            (Dialect::Ollama, Form::Stream) => format!("{document}\n"),
            (_, Form::Stream) => format!("data: {document}\n\n"),
        }
    }

    fn choice(self, member: &str, message: Value, reason: Value) -> Value {
        json!({"id": "chatcmpl-1", "created": 1_790_000_000, "model": "m",
               "choices": [{"index": 0, member: message, "finish_reason": reason}]})
    }

    /// A step of a stream with these fields in its message.
    pub fn step(self, message: Value) -> String {
        if self.dialect == Dialect::Ollama {
            self.frame(&json!({"model": "m", "message": message, "done": false}))
        } else {
            self.frame(&self.choice("delta", message, Value::Null))
        }
    }

    /// A step of a stream with some text.
    pub fn piece(self, text: &str) -> String {
        self.step(json!({"role": "assistant", "content": text}))
    }

    /// The step with a finish reason.
    pub fn end(self, reason: &str) -> String {
        if self.dialect == Dialect::Ollama {
            let message = json!({"role": "assistant", "content": ""});
            self.frame(&json!({"model": "m", "message": message, "done": true, "done_reason": reason}))
        } else {
            self.frame(&self.choice("delta", json!({}), json!(reason)))
        }
    }

    /// What an OpenAI-style stream ends with.
    pub fn done_mark(self) -> &'static str {
        if self.dialect == Dialect::Ollama { "" } else { "data: [DONE]\n\n" }
    }

    /// A whole answer that ends for this reason.
    pub fn ending(self, text: &str, reason: &str) -> String {
        let message = json!({"role": "assistant", "content": text});
        match (self.form, self.dialect) {
            (Form::Stream, _) => {
                let (first, second) = text.split_at(text.len() / 2);
                [&self.piece(first), &self.piece(second), &self.end(reason), self.done_mark()].concat()
            }
            (Form::Plain, Dialect::Ollama) => {
                self.frame(&json!({"model": "m", "message": message, "done": true, "done_reason": reason}))
            }
            (Form::Plain, _) => self.frame(&self.choice("message", message, json!(reason))),
        }
    }

    /// A whole answer.
    pub fn whole(self, text: &str) -> String {
        self.ending(text, "stop")
    }

    /// The beginning of an answer, cut between two of its events, or after half of its one document.
    pub fn half(self) -> String {
        match self.form {
            Form::Stream => self.piece("The whole"),
            Form::Plain => {
                let whole = self.whole(self.text);
                let end = whole.find(CANARY).unwrap();
                whole[..end].to_owned()
            }
        }
    }

    /// A failure that is reported inside an answer.
    pub fn failure(self, message: &str) -> String {
        let message = format!("{message} {CANARY}");
        self.frame(&match self.dialect {
            Dialect::OpenAi | Dialect::Vllm => {
                json!({"error": {"message": message, "type": "InternalServerError", "param": null, "code": 500}})
            }
            Dialect::LlamaCpp => json!({"error": {"code": 500, "message": message, "type": "server_error"}}),
            Dialect::Ollama => json!({"error": message}),
        })
    }

    /// The body of a refusal.
    pub fn refusal(self, message: &str) -> String {
        Self { form: Form::Plain, ..self }.failure(message)
    }

    /// The content type that belongs to the form.
    pub fn content_type(self) -> &'static str {
        if self.form == Form::Plain { "application/json" } else { self.dialect.stream_type() }
    }

    /// The head of an answer that comes in chunks.
    pub fn chunked_head(self) -> String {
        format!("HTTP/1.1 200 OK\r\nContent-Type: {}\r\nTransfer-Encoding: chunked\r\n\r\n", self.content_type())
    }

    /// The head of an answer that says how long it is.
    pub fn head_with_length(self, length: usize) -> String {
        format!("HTTP/1.1 200 OK\r\nContent-Type: {}\r\nContent-Length: {length}\r\n\r\n", self.content_type())
    }

    /// An answer with this body, framed as it should be: in chunks for a stream, with a length otherwise.
    pub fn answer(self, body: &str) -> String {
        match self.form {
            Form::Stream => format!("{}{}0\r\n\r\n", self.chunked_head(), chunk(body)),
            Form::Plain => format!("{}{body}", self.head_with_length(body.len())),
        }
    }
}

/// One chunk of a chunked body.
pub fn chunk(bytes: &str) -> String {
    format!("{:x}\r\n{bytes}\r\n", bytes.len())
}

/// An answer that says how long it is; `headers` are whole lines.
pub fn with_length(status: u16, content_type: &str, body: &[u8], headers: &str) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}
