//! The contract's rules for everything but the turns, asked of a running adapter: the list, the token, refusals and what they
//! leave of a connection, paths and methods, bodies.

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Duration;

use super::finding::{Finding, Trouble};
use super::wire::{Adapter, Answer, CHAT, MODELS, Silence, Token};
use crate::cli::report;

/// How long the app waits for the list.
const LIST_TIME: Duration = Duration::from_secs(15);
/// From where on a list is slow: the app asks for it whenever a chat is opened.
const SLOW_LIST: Duration = Duration::from_secs(2);
/// How long anything may take that is refused without a turn.
const REFUSAL_TIME: Duration = Duration::from_secs(30);
/// How long a request of the largest size may take.
const LARGE_TIME: Duration = Duration::from_secs(120);
/// The body that every adapter has to take, in bytes (contract, "Security floor").
const LARGEST_BODY: usize = 52_428_800;

/// What the list says.
#[derive(Debug, Clone, Default)]
pub(super) struct List {
    /// The ids that are offered.
    pub(super) ids: Vec<String>,
    /// Whether the first model, which is the default of a Weir, sees pictures, if the list says so.
    pub(super) sees: Option<bool>,
}

/// The list of models; without an answer to this there is nothing more to look at.
pub(super) async fn models(adapter: &Adapter) -> (Finding, Option<List>) {
    let id = "models";
    let failed = |seen: String, why: &str, mend: &str| (Finding::failed(id, Trouble::new(seen, why, mend)), None);
    let answer = match adapter.ask(adapter.list(Token::Right), LIST_TIME + Duration::from_secs(5)).await {
        Ok(answer) => answer,
        Err(Silence::NobodyListens) => {
            let why = "The phone can't reach the adapter: it says that it couldn't open a connection.";
            return failed(format!("nothing listens at {}", adapter.url()), why, "weir");
        }
        Err(silence) => {
            let why = "The app's connection test fails: it gives the list 15 s.";
            return failed(format!("{}: {silence}", adapter.url()), why, "restart the adapter");
        }
    };
    match answer.status {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED => {
            let why = "The phone is refused as well, if it has this token: it says that the request was refused.";
            let mend = "restart the adapter: it runs with another token file";
            return failed("answered 401 to the configured token".to_owned(), why, mend);
        }
        status if status.is_server_error() => {
            let why = "The app's connection test fails.";
            return failed(
                format!("answered {}; no model server has answered yet", status.as_u16()),
                why,
                "weir check",
            );
        }
        status => {
            let why = "The app's connection test fails. Perhaps another program has this port.";
            return failed(format!("answered {}", status.as_u16()), why, &listeners(adapter));
        }
    }
    let document = answer.json();
    if document.is_none() && answer.body.trim_ascii_start().starts_with(b"<") {
        let why = "The app's connection test fails. Perhaps another program has this port.";
        return failed("answered with a page".to_owned(), why, &listeners(adapter));
    }
    let list = document.as_ref().and_then(read_list);
    let shape = r#"answer {"object":"list","data":[{"id":"NAME","object":"model"}]}"#;
    let why = "The app's connection test fails, and no model can be chosen.";
    let finding = match &list {
        None => Finding::failed(id, Trouble::new("answered 200 with something that is no list", why, shape)),
        Some(list) if list.ids.is_empty() => {
            Finding::failed(id, Trouble::new("answered a list without a single usable id", why, "weir check"))
        }
        Some(_) if !answer.says_json() => {
            let seen = format!("answered a list of the type {:?}", answer.content_type());
            Finding::failed(
                id,
                Trouble::new(seen, "The contract asks for application/json.", "Content-Type: application/json"),
            )
        }
        Some(list) => timed(list, &answer),
    };
    (finding, Some(list.unwrap_or_default()))
}

fn timed(list: &List, answer: &Answer) -> Finding {
    let seen = format!("{} model(s) listed in {}", list.ids.len(), report::time(answer.took));
    let why = "The app's connection test gives up after 15 s, and asks again whenever a chat is opened.";
    let trouble = Trouble::new(seen.clone(), why, "answer the list from memory, without asking a model server");
    match answer.took {
        took if took > LIST_TIME => Finding::failed("models", trouble),
        took if took > SLOW_LIST => Finding::warning("models", trouble),
        _ => Finding::ok("models", seen),
    }
}

/// The ids that an app can use, and what the first of them sees; `None` if this is no list at all.
fn read_list(document: &Value) -> Option<List> {
    let data = document.as_object()?.get("data")?.as_array()?;
    let id = |entry: &Value| entry.get("id").and_then(Value::as_str).map(str::to_owned);
    let usable = |id: &String| !id.is_empty() && !id.chars().any(char::is_control);
    let modalities =
        data.first().and_then(|first| first.pointer("/conduck/input_modalities")).and_then(Value::as_array);
    let sees = modalities.map(|modalities| modalities.iter().any(|modality| modality == "image"));
    Some(List { ids: data.iter().filter_map(id).filter(usable).collect(), sees })
}

/// The command that shows which program has the port.
fn listeners(adapter: &Adapter) -> String {
    format!("lsof -iTCP:{} -sTCP:LISTEN", adapter.url().rsplit(':').next().unwrap_or_default())
}

/// Both routes, without a token and with a wrong one.
pub(super) async fn auth(adapter: &Adapter) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (id, route, token) in [
        ("auth-models-missing", MODELS, Token::Missing),
        ("auth-models-wrong", MODELS, Token::Wrong),
        ("auth-chat-missing", CHAT, Token::Missing),
        ("auth-chat-wrong", CHAT, Token::Wrong),
    ] {
        let request = if route == MODELS { adapter.list(token) } else { adapter.turn(token, &question()) };
        let what = if token == Token::Missing { "without a token" } else { "with a wrong token" };
        findings.push(judge_refusal(id, what, adapter.ask(request, REFUSAL_TIME).await));
    }
    findings
}

fn judge_refusal(id: &'static str, what: &str, result: Result<Answer, Silence>) -> Finding {
    let mend = "answer 401 before anything else of the request is looked at";
    match result {
        Ok(answer) if answer.status == StatusCode::UNAUTHORIZED && answer.error().is_none() => {
            let seen = format!("401 {what}, but not in the contract's error shape");
            let why = "The status is what the phone goes by; other programs go by the shape.";
            Finding::warning(id, Trouble::new(seen, why, r#"{"error":{"message":"…","type":"invalid_request_error"}}"#))
        }
        Ok(answer) if answer.status == StatusCode::UNAUTHORIZED => Finding::ok(id, format!("401 {what}")),
        Ok(answer) if answer.status == StatusCode::OK => {
            let why = "Whoever finds the public address can use your model.";
            Finding::failed(id, Trouble::new(format!("answered 200 {what}"), why, mend))
        }
        Ok(answer) => {
            let why = "Pairing and the app take 401, and nothing else, for a wrong token.";
            Finding::failed(id, Trouble::new(format!("answered {} {what}", answer.status.as_u16()), why, mend))
        }
        Err(silence) => {
            let why = "A stranger's request has to be refused at once; perhaps the model is working on it.";
            Finding::failed(id, Trouble::new(format!("{silence}, {what}"), why, mend))
        }
    }
}

/// What a refusal leaves of the connection that it came on. An adapter that lets strangers in would work on those requests, so
/// it is not asked with a wrong token again.
pub(super) async fn refusals(adapter: &Adapter, refuses_strangers: bool) -> Vec<Finding> {
    // The app's words, and as many as a picture has.
    let small = Bytes::from(question().to_string());
    let large = Bytes::from(json!({"messages": [{"role": "user", "content": "x".repeat(256 * 1024)}]}).to_string());
    let wrong_token = |body: &Bytes| adapter.request(Method::POST, CHAT, Token::Wrong, body.clone());
    let malformed = adapter.request(Method::POST, CHAT, Token::Right, Bytes::from_static(MALFORMED));
    let no_path = adapter.request(Method::POST, NO_PATH, Token::Right, small.clone());
    let mut findings = Vec::new();
    for (id, first, second) in [
        ("refused-token", wrong_token(&small), wrong_token(&small)),
        ("refused-large", wrong_token(&large), wrong_token(&large)),
        ("refused-body", malformed, adapter.list(Token::Right)),
        ("refused-path", no_path, adapter.list(Token::Right)),
    ] {
        let by_token = matches!(id, "refused-token" | "refused-large");
        if by_token && !refuses_strangers {
            findings.push(Finding::skipped(id, "strangers are let in"));
            continue;
        }
        let then = if by_token { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
        let mut connection = match adapter.connect().await {
            Ok(connection) => connection,
            Err(silence) => {
                findings.push(Finding::failed(id, lost(format!("no connection: {silence}"))));
                continue;
            }
        };
        let finding = match connection.ask(first, REFUSAL_TIME).await {
            Err(silence) => Finding::warning(id, lost(format!("the refusal could not be read: {silence}"))),
            Ok(taken) if taken.status.is_success() => Finding::skipped(id, "it was not refused"),
            Ok(refusal) if refusal.closes => Finding::ok(id, "the connection is ended after it, as announced"),
            Ok(refusal) => match connection.ask(second, REFUSAL_TIME).await {
                Ok(next) if next.status == then => Finding::ok(id, "the connection can be used after it"),
                // Throttled, which is no fault.
                Ok(next) if is_busy(next.status) || is_busy(refusal.status) => Finding::skipped(id, "busy"),
                Ok(next) => Finding::failed(
                    id,
                    spoiled(format!(
                        "after {} on one connection, the next request got {} instead of {}",
                        refusal.status.as_u16(),
                        next.status.as_u16(),
                        then.as_u16()
                    )),
                ),
                Err(silence) if connection.has_just_ended().await && silence == Silence::Lost => {
                    Finding::warning(id, lost("the connection ends after it without a word".to_owned()))
                }
                Err(silence) => {
                    Finding::failed(id, spoiled(format!("after it, the next request on the connection: {silence}")))
                }
            },
        };
        findings.push(finding);
    }
    findings
}

fn is_busy(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
}

fn spoiled(seen: String) -> Trouble {
    let why = "Tailscale, Cloudflare and nginx use a connection for many requests: a good turn of the phone then fails for a bad \
               one before it.";
    Trouble::new(seen, why, "read a refused request to its end, or answer Connection: close")
}

fn lost(seen: String) -> Trouble {
    let why = "A front may lose the phone's next request in it.";
    Trouble::new(seen, why, "answer Connection: close where the connection ends")
}

/// A path that no adapter has.
const NO_PATH: &str = "/v1/weir-doctor-no-such-path";
/// JSON that breaks off.
const MALFORMED: &[u8] = br#"{"messages":[{"role":"user","#;

/// Paths, methods and bodies that have to be refused, and the status that says why.
pub(super) async fn routes(adapter: &Adapter) -> Vec<Finding> {
    let ask = |method: Method, path: &str, body: &'static [u8]| {
        adapter.ask(adapter.request(method, path, Token::Right, Bytes::from_static(body)), REFUSAL_TIME)
    };
    let empty = br#"{"messages":[]}"#;
    vec![
        judge_status("path-unknown", "an unknown path", StatusCode::NOT_FOUND, &[ask(Method::GET, NO_PATH, b"").await]),
        judge_status(
            "method-wrong",
            "a wrong method",
            StatusCode::METHOD_NOT_ALLOWED,
            &[ask(Method::POST, MODELS, b"{}").await, ask(Method::GET, CHAT, b"").await],
        ),
        judge_status(
            "body-malformed",
            "a malformed body",
            StatusCode::BAD_REQUEST,
            &[ask(Method::POST, CHAT, MALFORMED).await, ask(Method::POST, CHAT, empty).await],
        ),
    ]
}

fn judge_status(id: &'static str, what: &str, wanted: StatusCode, results: &[Result<Answer, Silence>]) -> Finding {
    let mend = format!("answer {} with an error in the contract's shape", wanted.as_u16());
    let why = "The phone chooses its words by the status: it would show another reason than the true one.";
    for result in results {
        let seen = match result {
            Ok(answer) if answer.status == wanted && answer.error().is_some() => continue,
            Ok(answer) if answer.status == wanted => {
                let seen = format!("{} to {what}, but not in the contract's error shape", wanted.as_u16());
                return Finding::warning(id, Trouble::new(seen, "Other programs go by the shape.", mend));
            }
            Ok(answer) => format!("answered {} to {what} instead of {}", answer.status.as_u16(), wanted.as_u16()),
            Err(silence) => format!("{what}: {silence}"),
        };
        return Finding::failed(id, Trouble::new(seen, why, mend));
    }
    Finding::ok(id, format!("{} to {what}", wanted.as_u16()))
}

/// Whether a body of the size that the contract fixes is let in. It holds no message, so it is refused, but not for its size.
pub(super) async fn large_body(adapter: &Adapter) -> Finding {
    let id = "body-50-mib";
    let (begin, end) = (br#"{"messages":["#, b"]}");
    let mut body = vec![b' '; LARGEST_BODY];
    body[..begin.len()].copy_from_slice(begin);
    body[LARGEST_BODY - end.len()..].copy_from_slice(end);
    let why = "A chat with pictures arrives in one request of up to that size: the phone then says that an image is too large.";
    let mend = "raise the adapter's cap on a body to 52428800 bytes or more";
    match adapter.ask(adapter.request(Method::POST, CHAT, Token::Right, body.into()), LARGE_TIME).await {
        Ok(answer) if answer.status == StatusCode::PAYLOAD_TOO_LARGE => {
            Finding::failed(id, Trouble::new("answered 413 to a body of 50 MiB", why, mend))
        }
        Ok(answer) => Finding::ok(id, format!("taken in {}", report::time(answer.took))),
        Err(silence) => Finding::failed(id, Trouble::new(format!("a body of 50 MiB: {silence}"), why, mend)),
    }
}

/// A turn that costs as little as any.
pub(super) fn question() -> Value {
    json!({"messages": [{"role": "user", "content": "Reply with exactly: pong"}], "stream": false})
}
