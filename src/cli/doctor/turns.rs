//! The contract's rules for turns, asked of a running adapter. Each costs one short answer of the model.

use http::StatusCode;
use http::header::{ACCEPT, HeaderValue};
use serde_json::{Value, json};
use tokio::time::Duration;

use super::finding::{Finding, Trouble};
use super::picture::Digits;
use super::probes::{List, question};
use super::wire::{Adapter, Answer, Silence, Token};
use crate::cli::{CommandError, report};
use crate::contract::Code;
use crate::upstream::dialect::probe_image;

/// How long the app waits for a turn.
const TURN_TIME: Duration = Duration::from_secs(300);

/// An id that no model has.
const NO_MODEL: &str = "weir-doctor-no-such-model";

/// The turns that are only sent where a plain one is answered.
pub(super) const FURTHER: [&str; 3] = ["turn-unknown-model", "turn-history-picture", "turn-stream"];

/// The turn that shows the model a picture.
pub(super) const PICTURE: &str = "turn-picture";

/// As few tokens as any model takes for the doctor's picture, and more than the words that some servers put in a picture's place.
const TOKENS_OF_A_PICTURE: u64 = 16;

/// What the turns so far have shown.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// How long the slowest took.
    pub(super) slowest: Option<Duration>,
    /// Whether one was answered.
    pub(super) are_answered: bool,
    /// The model that every further turn names, because the adapter answers none without.
    model: Option<String>,
}

impl Turns {
    /// One turn without a model.
    pub(super) async fn plain(&mut self, adapter: &Adapter) -> Finding {
        let mut body = question();
        // What the app may send one day has to be ignored.
        body["weir_doctor"] = json!({"unknown": [true]});
        let result = self.turn(adapter, &body).await;
        self.are_answered = result.is_ok();
        finding("turn-default", result)
    }

    /// One turn with the first model that is listed.
    pub(super) async fn named(&mut self, adapter: &Adapter, list: &List) -> Finding {
        let id = "turn-model";
        let Some(first) = list.ids.first() else { return Finding::skipped(id, "no model is listed") };
        let mut body = question();
        body["model"] = json!(first);
        let result = self.turn(adapter, &body).await;
        if result.is_ok() && !self.are_answered {
            self.model = Some(first.clone());
            self.are_answered = true;
        }
        finding(id, result)
    }

    /// A picture in an earlier message.
    pub(super) async fn history(&mut self, adapter: &Adapter) -> Finding {
        let mut body = question();
        body["messages"] = json!([
            {"role": "user", "content": [
                {"type": "text", "text": "Remember this picture."},
                {"type": "image_url", "image_url": {"url": probe_image::DATA_URI}}]},
            {"role": "assistant", "content": "I will."},
            {"role": "user", "content": "Reply with exactly: pong"}]);
        let result = self.turn(adapter, &body).await.map_err(|trouble| Trouble {
            why: "One picture in a chat then blocks every later turn of it.".to_owned(),
            mend: "pass earlier pictures on, or put the contract's sentence there".to_owned(),
            ..trouble
        });
        finding("turn-history-picture", result)
    }

    /// The wish for a stream.
    pub(super) async fn stream(&mut self, adapter: &Adapter) -> Finding {
        let mut body = question();
        body["stream"] = json!(true);
        let result = self.turn(adapter, &body).await.map_err(|trouble| Trouble {
            mend: r#"ignore "stream" and Accept: always answer with one JSON body"#.to_owned(),
            ..trouble
        });
        finding("turn-stream", result)
    }

    /// Sends a turn and judges its answer. One that asks for a stream does so in its head as well.
    async fn turn(&mut self, adapter: &Adapter, body: &Value) -> Result<String, Trouble> {
        let answer = self.send(adapter, body).await.map_err(silent)?;
        read_reply(&answer)?;
        Ok(format!("answered in {}", report::time(answer.took)))
    }

    async fn send(&mut self, adapter: &Adapter, body: &Value) -> Result<Answer, Silence> {
        let mut body = body.clone();
        if let (Some(model), None) = (&self.model, body.get("model")) {
            body["model"] = json!(model);
        }
        let mut request = adapter.turn(Token::Right, &body);
        if body["stream"] == true {
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        }
        let answer = adapter.ask(request, TURN_TIME).await?;
        self.slowest = self.slowest.max(Some(answer.took));
        Ok(answer)
    }

    /// A model that is not there.
    pub(super) async fn unknown_model(&mut self, adapter: &Adapter, list: &List) -> Finding {
        let id = "turn-unknown-model";
        let mut body = question();
        body["model"] = json!(NO_MODEL);
        let mend = r#"answer 400 with the code "model_not_found""#;
        let answer = match self.send(adapter, &body).await {
            Ok(answer) => answer,
            Err(silence) => return Finding::failed(id, silent(silence)),
        };
        let code = answer.error().and_then(|error| error.code);
        match answer.status {
            StatusCode::BAD_REQUEST if code == Some(Code::ModelNotFound) => {
                Finding::ok(id, "400 with the code model_not_found")
            }
            // An adapter of one model may ignore the name.
            StatusCode::OK if list.ids.len() <= 1 && read_reply(&answer).is_ok() => {
                Finding::ok(id, "ignored, as an adapter with one model may")
            }
            StatusCode::OK => {
                let why = "The phone can't tell which model has answered.";
                Finding::failed(id, Trouble::new("a model that is not listed was answered", why, mend))
            }
            status => {
                let code = code.map_or("none of the contract's codes", Code::as_str);
                let why = "The phone can't say that the model is the reason.";
                Finding::failed(id, Trouble::new(format!("answered {} with {code}", status.as_u16()), why, mend))
            }
        }
    }

    /// Shows the model a picture with digits that stand nowhere else, and looks for them in the reply.
    pub(super) async fn picture(&mut self, adapter: &Adapter, list: &List) -> Result<Finding, CommandError> {
        let id = PICTURE;
        let digits = Digits::random()?;
        let mut body = question();
        let words = "Reply with exactly the digits shown in the picture, and nothing else.";
        body["messages"] = json!([{"role": "user", "content": [
            {"type": "text", "text": words},
            {"type": "image_url", "image_url": {"url": digits.data_uri()}}]}]);
        let answer = match self.send(adapter, &body).await {
            Ok(answer) => answer,
            Err(silence) => return Ok(Finding::failed(id, silent(silence))),
        };
        let error = answer.error();
        if answer.status == StatusCode::BAD_REQUEST
            && error.is_some_and(|error| error.code == Some(Code::ImageUnsupported))
        {
            return Ok(match list.sees {
                Some(true) => Finding::failed(
                    id,
                    Trouble::new(
                        "declined, though the list says that the model sees pictures",
                        "The phone offers to send pictures, and each is declined.",
                        "weir check --probe-images",
                    ),
                ),
                Some(false) | None => Finding::ok(id, "declined with the code image_unsupported"),
            });
        }
        let reply = match read_reply(&answer) {
            Ok(reply) => reply,
            Err(trouble) => {
                let mend = r#"pass it on, or answer 400 with the code "image_unsupported""#.to_owned();
                return Ok(Finding::failed(id, Trouble { mend, ..trouble }));
            }
        };
        if digits.are_read_in(&reply) {
            return Ok(Finding::ok(id, format!("the model reads it; {}", report::time(answer.took))));
        }
        // A small model that sees may read no digits all the same: what it was given tells whether the picture arrived.
        body["messages"] = json!([{"role": "user", "content": words}]);
        let without = self.send(adapter, &body).await.ok().and_then(|answer| prompt_tokens(&answer));
        let arrived = prompt_tokens(&answer)
            .zip(without)
            .is_some_and(|(with, without)| with >= without.saturating_add(TOKENS_OF_A_PICTURE));
        Ok(if arrived {
            let seen = "the picture arrives, but the model doesn't read the digits in it";
            let why = "The phone shows what the model says of a picture, and that may be wrong.";
            let mend = r#"pictures = "ID" below [models], with a model that reads better"#;
            Finding::warning(id, Trouble::new(seen, why, mend))
        } else {
            let why = "The picture was dropped on its way, or the model doesn't see it: the phone shows an answer to a picture \
                       that nobody saw.";
            let mend = r#"images = false below [models.override."ID"], or a model that sees"#;
            Finding::failed(id, Trouble::new("answered without the digits that the picture shows", why, mend))
        })
    }
}

/// How many tokens the model was given, if the answer says.
fn prompt_tokens(answer: &Answer) -> Option<u64> {
    answer.json()?.get("usage")?.get("prompt_tokens")?.as_u64()
}

fn finding(id: &'static str, result: Result<String, Trouble>) -> Finding {
    match result {
        Ok(seen) => Finding::ok(id, seen),
        Err(trouble) => Finding::failed(id, trouble),
    }
}

fn silent(silence: Silence) -> Trouble {
    let why = match silence {
        Silence::Late(_) => "The phone gives up after 300 s, and does not try again.",
        _ => "The phone says that it couldn't reach your AI.",
    };
    Trouble::new(silence.to_string(), why, "weir check")
}

/// The text of a reply, if the answer is one that the contract allows.
fn read_reply(answer: &Answer) -> Result<String, Trouble> {
    let wrong = |seen: &str, mend: &str| {
        let why = "The app can't read such an answer: it says that the response is unexpected.";
        Err(Trouble::new(seen, why, mend))
    };
    let one_body = r#"{"choices":[{"message":{"role":"assistant","content":"…"}}]}"#;
    if answer.status != StatusCode::OK {
        return Err(refused(answer));
    }
    if answer.body.starts_with(b"data:") || answer.content_type().starts_with("text/event-stream") {
        return wrong("answered with a stream of events", "answer one JSON body, never text/event-stream");
    }
    if !answer.says_json() {
        return wrong(
            &format!("answered 200 of the type {:?}", answer.content_type()),
            "Content-Type: application/json",
        );
    }
    let Some(document) = answer.json() else {
        return wrong("answered 200 with something that is not JSON (NaN and Infinity are none)", one_body);
    };
    let message = match document.get("choices").and_then(Value::as_array).map(Vec::as_slice) {
        Some([choice]) => choice.get("message").filter(|message| message.is_object()),
        Some([]) | None => None,
        Some(_) => return wrong("answered with more than one choice", one_body),
    };
    let Some(message) = message else { return wrong("answered without choices[0].message", one_body) };
    let calls = message.get("tool_calls");
    if calls.is_some_and(|calls| !calls.is_null() && calls.as_array().is_none_or(|calls| !calls.is_empty())) {
        return wrong("answered with tool_calls", "run tools on this side, and answer with the final text");
    }
    match message.get("content").and_then(Value::as_str) {
        None => wrong("answered with a content that is no text", one_body),
        Some(text) if text.trim().is_empty() => Err(Trouble::new(
            "answered with a blank text",
            "The phone shows and keeps an empty answer.",
            r#"answer 502 with the code "upstream_failure" instead"#,
        )),
        Some(text) => Ok(text.to_owned()),
    }
}

/// What an answer with another status than 200 means.
fn refused(answer: &Answer) -> Trouble {
    let code = answer.error().and_then(|error| error.code);
    let status = answer.status.as_u16();
    let seen = match code {
        Some(code) => format!("answered {status} with the code {}", code.as_str()),
        None => format!("answered {status}"),
    };
    let (why, mend) = match (code, status) {
        (Some(Code::Overloaded), _) | (None, 429 | 503) => {
            ("The phone says to wait a moment.", "run this again when no turn is running")
        }
        (Some(Code::UpstreamTimeout), _) | (None, 504) => {
            ("The phone says that it took too long.", "a smaller model, or a smaller context")
        }
        (Some(Code::UpstreamFailure), _) | (None, 502) => {
            ("The phone says that your AI reported an error.", "weir check")
        }
        (Some(Code::ModelNotFound), _) => ("The phone says that the model isn't available.", "weir check"),
        (Some(Code::ContextTooLong), _) => {
            ("The phone says that the chat got too long.", "context = 16384 below [upstream.NAME]")
        }
        (None, 413) | (Some(Code::ImageTooLarge), _) => {
            ("The phone says that an image is too large.", "raise the cap on a body")
        }
        (None, 400 | 422) => (
            "The phone shows a status that it doesn't recognise, for every turn of this kind.",
            "answer without \"model\" with your default, and ignore unknown keys",
        ),
        _ => ("The phone shows an error for every turn of this kind.", "weir check"),
    };
    Trouble::new(seen, why, mend)
}
