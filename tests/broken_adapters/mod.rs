//! A small adapter that keeps the contract but for one chosen fault. It reads only text, and has the models `one` and `two`.
//!
//! `tests/doctor.rs` holds `weir doctor` to the table here; `examples/broken_adapter.rs` runs one variant for whoever wants to
//! look at it with other tools.
#![allow(dead_code, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod http;
mod variants;

pub use variants::{Fault, VARIANTS};

use http::{Answer, Head, read_body, read_head};
use serde_json::{Value, json};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

const CHAT: &str = "/v1/chat/completions";
const MODELS: &str = "/v1/models";

/// The largest body that is looked into, in bytes.
const LARGEST_READ: usize = 16 * 1024 * 1024;

/// A running adapter; its threads end with the process.
#[derive(Debug)]
pub struct BrokenAdapter {
    address: SocketAddr,
}

impl BrokenAdapter {
    /// Listens on this port of the loopback address; 0 is any free one.
    pub fn start(fault: Fault, token: &str, port: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        let address = listener.local_addr()?;
        let bearer: Arc<str> = format!("Bearer {token}").into();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let bearer = Arc::clone(&bearer);
                std::thread::spawn(move || serve(stream, fault, &bearer));
            }
        });
        Ok(Self { address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Answers the requests of one connection until it ends.
fn serve(mut stream: TcpStream, fault: Fault, bearer: &str) {
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::new();
    while let Some(head) = read_head(&mut stream, &mut buffer) {
        let Some(head) = head else {
            // What is not the head of a request is answered as any server does.
            let _ = refusal(400, "not a request", None).closing().send(&mut stream);
            return;
        };
        if !lets_in(fault, &head, bearer) {
            let status = if fault == Fault::RefusesWith403 { 403 } else { 401 };
            if fault != Fault::BodyUnread && read_body(&mut stream, &mut buffer, &head).is_none() {
                return;
            }
            let mut answer = refusal(status, "who are you?", None);
            if fault == Fault::ClosesSaid {
                answer = answer.closing();
            }
            if answer.send(&mut stream).is_err() || matches!(fault, Fault::ClosesSaid | Fault::ClosesUnsaid) {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
            continue;
        }
        if fault == Fault::SmallCap && head.length > 1024 * 1024 {
            let _ = refusal(413, "too large", None).closing().send(&mut stream);
            // What still comes is read, or the answer would be lost in a reset.
            let _ = stream.shutdown(Shutdown::Write);
            let _ = read_body(&mut stream, &mut buffer, &head);
            return;
        }
        let Some(body) = read_body(&mut stream, &mut buffer, &head) else { return };
        if answer(fault, &head, &body).send(&mut stream).is_err() {
            return;
        }
    }
}

/// Whether the token of a request is good enough for this adapter.
fn lets_in(fault: Fault, head: &Head, bearer: &str) -> bool {
    let given = head.header("authorization");
    let is_list = head.path() == MODELS;
    match fault {
        Fault::ModelsOpen if is_list => true,
        Fault::ChatOpen if !is_list => true,
        Fault::ModelsAnyToken if is_list => given.is_some(),
        Fault::ChatAnyToken if !is_list => given.is_some(),
        _ => given == Some(bearer),
    }
}

fn answer(fault: Fault, head: &Head, body: &[u8]) -> Answer {
    match (head.method.as_str(), head.path()) {
        ("GET", MODELS) => list(fault),
        ("POST", CHAT) => chat(fault, head, body),
        (_, MODELS | CHAT) if fault == Fault::AnyMethod => list(Fault::None),
        (_, MODELS | CHAT) => refusal(405, "not with this method", None),
        _ if fault == Fault::AnyPath => list(Fault::None),
        _ => refusal(404, "nothing there", None),
    }
}

fn list(fault: Fault) -> Answer {
    let entry = |id: &str| json!({"id": id, "object": "model"});
    let data = json!([entry("one"), entry("two")]);
    match fault {
        Fault::ListBare => Answer::json(200, &data),
        Fault::ListEmpty => Answer::json(200, &json!({"object": "list", "data": []})),
        Fault::ListWithoutIds => Answer::json(200, &json!({"object": "list", "data": [{"name": "one"}, {"id": ""}]})),
        Fault::ListPage => Answer::text(200, "text/html", "<!doctype html><title>Sign in</title>"),
        Fault::ListAsText => Answer::text(200, "text/plain", &json!({"data": data}).to_string()),
        _ => Answer::json(200, &json!({"object": "list", "data": data})),
    }
}

fn chat(fault: Fault, head: &Head, body: &[u8]) -> Answer {
    let malformed = if fault == Fault::MalformedIs500 { 500 } else { 400 };
    if body.len() > LARGEST_READ {
        // What comes in that size holds no messages; to find that out takes a debug build seconds.
        return refusal(400, "no messages", None);
    }
    let Ok(Value::Object(request)) = serde_json::from_slice::<Value>(body) else {
        return refusal(malformed, "no JSON object", None);
    };
    let messages = request.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let Some((current, history)) = messages.split_last() else { return refusal(malformed, "no messages", None) };
    if fault == Fault::StrictKeys && request.keys().any(|key| !["messages", "stream", "model"].contains(&key.as_str()))
    {
        return refusal(400, "an unknown key", None);
    }
    match request.get("model").and_then(Value::as_str) {
        None if fault == Fault::NeedsModel => return refusal(400, "name one", None),
        None | Some("one" | "two") => {}
        Some(_) => match fault {
            Fault::UnknownModelTaken => {}
            Fault::UnknownModelIs404 => return refusal(404, "no such model", Some("model_not_found")),
            Fault::UnknownModelBare => return Answer::json(400, &json!({"error": "no such model"})),
            _ => return refusal(400, "no such model", Some("model_not_found")),
        },
    }
    let shows_picture = |message: &Value| {
        let parts = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        parts.iter().any(|part| part["type"] == "image_url")
    };
    if fault == Fault::HistoryRefused && history.iter().any(shows_picture) {
        return refusal(400, "no pictures here", Some("image_unsupported"));
    }
    if shows_picture(current) {
        match fault {
            Fault::PictureDropped => {}
            Fault::PictureWithoutCode => return refusal(400, "no pictures here", None),
            _ => return refusal(400, "no pictures here", Some("image_unsupported")),
        }
    }
    let by_flag = request.get("stream") == Some(&json!(true));
    let by_accept = head.header("accept").is_some_and(|accept| accept.contains("text/event-stream"));
    match fault {
        Fault::StreamRefused if by_flag => refusal(400, "no streams here", None),
        Fault::StreamsAlways => stream(),
        Fault::StreamsByFlag if by_flag => stream(),
        Fault::StreamsByAccept if by_accept => stream(),
        _ => reply(fault),
    }
}

fn reply(fault: Fault) -> Answer {
    let choice = |content: Value| json!({"message": {"role": "assistant", "content": content}});
    let body = json!({"choices": [choice(json!("pong"))]});
    match fault {
        Fault::Blank => Answer::json(200, &json!({"choices": [choice(json!(""))]})),
        Fault::Parts => Answer::json(200, &json!({"choices": [choice(json!([{"type": "text", "text": "pong"}]))]})),
        Fault::TwoChoices => Answer::json(200, &json!({"choices": [choice(json!("pong")), choice(json!("pong"))]})),
        Fault::ToolCalls => {
            let mut body = body;
            body["choices"][0]["message"]["tool_calls"] =
                json!([{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
            Answer::json(200, &body)
        }
        Fault::NotANumber => {
            let text = body.to_string().replacen('{', "{\"seconds\":NaN,", 1);
            Answer::text(200, "application/json", &text)
        }
        Fault::ReplyAsText => Answer::text(200, "text/plain", &body.to_string()),
        Fault::ReplyIs201 => Answer::json(201, &body),
        _ => Answer::json(200, &body),
    }
}

fn stream() -> Answer {
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": "pong"}, "finish_reason": "stop"}]});
    Answer::text(200, "text/event-stream", &format!("data: {chunk}\n\ndata: [DONE]\n\n"))
}

fn refusal(status: u16, message: &str, code: Option<&str>) -> Answer {
    let mut error = json!({"message": message, "type": "invalid_request_error"});
    if let Some(code) = code {
        error["code"] = json!(code);
    }
    Answer::json(status, &json!({"error": error}))
}
