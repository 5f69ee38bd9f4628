//! The built-in engine: a tiny OpenAI-compatible server for first runs and for tests. It knows one model, which is none.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::routing::{get, post};
use axum::{Router, body};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// The id of the demo's model.
pub const MODEL: &str = "weir-demo";

/// The one question that the demo answers without a mark: the contract's self-test sends it.
const PING: &str = "Reply with exactly: pong";

/// As much as an adapter ever sends on.
const BODY_CAP: usize = 256 * 1024 * 1024;

/// Answers on `listener` for as long as the process runs.
pub async fn serve(listener: TcpListener) {
    let routes = Router::new().route("/v1/models", get(models)).route("/v1/chat/completions", post(chat));
    // It ends with the process; there is nobody to tell.
    let _ = axum::serve(listener, routes).await;
}

async fn models() -> Response<Body> {
    let model = json!({"id": MODEL, "object": "model", "owned_by": MODEL});
    answer(StatusCode::OK, "application/json", json!({"object": "list", "data": [model]}).to_string())
}

async fn chat(request: Request) -> Response<Body> {
    let malformed = || answer(StatusCode::BAD_REQUEST, "application/json", json!({"error": "malformed"}).to_string());
    let Ok(body) = body::to_bytes(request.into_body(), BODY_CAP).await else { return malformed() };
    let Ok(question) = serde_json::from_slice::<Value>(&body) else { return malformed() };
    let messages = question.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let current =
        messages.last().and_then(|message| message.get("content")).and_then(Value::as_str).unwrap_or_default();
    let chunk = |delta: Value, finish_reason: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason});
        let chunk = json!({"object": "chat.completion.chunk", "model": MODEL, "choices": [choice]});
        format!("data: {chunk}\n\n")
    };
    let reply = reply(current, messages.len());
    let mut stream = chunk(json!({"role": "assistant", "content": ""}), None);
    for word in reply.split_inclusive(' ') {
        stream.push_str(&chunk(json!({"content": word}), None));
    }
    stream.push_str(&chunk(json!({}), Some("stop")));
    stream.push_str("data: [DONE]\n\n");
    answer(StatusCode::OK, "text/event-stream", stream)
}

fn reply(current: &str, messages: usize) -> String {
    if current == PING {
        return "pong".to_owned();
    }
    let words = current.split_whitespace().count();
    format!(
        "[Weir demo] No model is answering here. Your message arrived whole: {words} words, message {messages} of this \
         conversation. Start a model server and run weir without \"demo\" for real answers."
    )
}

fn answer(status: StatusCode, content_type: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
