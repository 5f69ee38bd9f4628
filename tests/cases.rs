//! Every recorded answer of a model server (`tests/fixtures/failures`) through the running binary: once as from a server that
//! only speaks OpenAI's dialect, and once as from the server that gave it, spoken to in its own way.
//!
//! What a request of these cases is: it names the model; a case about pictures has one in the current turn, on a model that
//! sees. Ollama's own route tells the same failures in a shape of its own, so they are retold in that.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
struct Case {
    server: String,
    name: String,
    status: u16,
    content_type: String,
    body: String,
    expect: Expected,
}

#[derive(Debug, Deserialize)]
struct Expected {
    status: u16,
    code: Option<String>,
    content: Option<String>,
}

impl Case {
    /// A server that is loading is waited for, as long as the turn may take.
    fn is_waited_for(&self) -> bool {
        self.name.contains("loading")
    }

    fn has_image(&self) -> bool {
        let code = self.expect.code.as_deref();
        self.name.contains("image") || matches!(code, Some("image_unsupported" | "image_too_large"))
    }

    fn is_native(&self) -> bool {
        self.name.starts_with("native_")
    }

    fn script(&self) -> Script {
        let mut answer = http_answer(self.status, &self.content_type, self.body.as_bytes());
        if self.content_type.is_empty() {
            let bare = String::from_utf8(answer).unwrap().replacen("Content-Type: \r\n", "", 1);
            answer = bare.into_bytes();
        }
        Script::steps(vec![Step::Send(answer)])
    }

    /// The same answer as Ollama's own route gives it; `None` for successes in another server's shape.
    fn native_twin(mut self) -> Option<Self> {
        if self.is_native() || self.body.is_empty() {
            return Some(self);
        }
        if self.status < 400 {
            return None;
        }
        if let Ok(body) = serde_json::from_str::<Value>(&self.body)
            && let Some(message) = body.pointer("/error/message")
        {
            self.body = json!({"error": message}).to_string();
        }
        Some(self)
    }

    /// The same refusal after a 200 and the head of a stream, if it is one in JSON: servers find out late, too.
    fn inside_a_stream(mut self) -> Option<Self> {
        let error: Value = serde_json::from_str(&self.body).ok().filter(|_| self.status >= 400)?;
        self.body = format!(": keep-alive\n\ndata: {error}\n\ndata: [DONE]\n\n");
        self.status = 200;
        self.content_type = "text/event-stream".to_owned();
        Some(self)
    }

    /// What is wrong with Weir's answer, if anything is.
    fn hold_against(&self, answer: &Response) -> Result<(), String> {
        let shown = String::from_utf8_lossy(&answer.body);
        let json: Value = serde_json::from_slice(&answer.body).map_err(|_| format!("no JSON: {shown}"))?;
        let code = json.pointer("/error/code").and_then(Value::as_str);
        let content = json.pointer("/choices/0/message/content").and_then(Value::as_str);
        let expected = &self.expect;
        let overloaded = expected.code.as_deref() == Some("overloaded") && matches!(answer.status, 429 | 503);
        if (answer.status == expected.status || overloaded)
            && code == expected.code.as_deref()
            && content == expected.content.as_deref()
        {
            return Ok(());
        }
        Err(format!("{} {shown}, expected {expected:?}", answer.status))
    }
}

fn cases(file: &str) -> Vec<Case> {
    file.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Plays the cases, one after the other, to a Weir that was started for them.
fn play(upstream: &ScriptedUpstream, weir: &Weir, model: &str, cases: &[&Case]) -> Vec<String> {
    let mut wrong = Vec::new();
    for case in cases {
        upstream.always(case.script());
        let before = upstream.chat_count();
        let mut content = vec![text(&secret("Hello"))];
        if case.has_image() {
            content.push(image(&png_uri(7)));
        }
        let answer = weir.chat(&say_to(model, content));
        assert!(upstream.chat_count() > before, "{}: the model server was not asked", case.name);
        match case.hold_against(&answer) {
            Ok(()) if answer.status == 200 => drop(answer.assert_any_reply()),
            Ok(()) => answer.assert_error(answer.status, case.expect.code.as_deref()),
            Err(difference) => wrong.push(format!("{} {}: {difference}", case.server, case.name)),
        }
    }
    wrong
}

/// All cases are answered as they should be, by a Weir that takes `upstream` for that `kind`.
fn assert_answered(upstream: &ScriptedUpstream, kind: &str, model: &str, cases: &[Case]) {
    let start = |turn: &str| {
        let builder = Weir::before(upstream).kind(kind).turn(turn);
        if kind == "openai" { builder.override_model(model, "images = true").start() } else { builder.start() }
    };
    let (waited_for, others): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| case.is_waited_for());
    let mut wrong = play(upstream, &start("285s"), model, &others);
    if !waited_for.is_empty() {
        wrong.extend(play(upstream, &start("1s"), model, &waited_for));
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

const LLAMACPP: &str = include_str!("fixtures/failures/llamacpp.jsonl");
const OLLAMA: &str = include_str!("fixtures/failures/ollama.jsonl");
const OTHERS: &str = include_str!("fixtures/failures/others.jsonl");
const VLLM: &str = include_str!("fixtures/failures/vllm.jsonl");

fn assert_answered_as_openai(file: &str) {
    let cases: Vec<Case> = cases(file).into_iter().filter(|case| !case.is_native()).collect();
    assert_answered(&ScriptedUpstream::start(), "openai", "m", &cases);
}

#[test]
fn there_are_as_many_cases_as_were_recorded() {
    assert_eq!([LLAMACPP, OLLAMA, OTHERS, VLLM].map(|file| cases(file).len()), [25, 40, 30, 29]);
}

#[test]
fn answers_of_llamacpp_spoken_to_as_any_openai_server() {
    assert_answered_as_openai(LLAMACPP);
}

#[test]
fn answers_of_ollama_spoken_to_as_any_openai_server() {
    assert_answered_as_openai(OLLAMA);
}

#[test]
fn answers_of_vllm_spoken_to_as_any_openai_server() {
    assert_answered_as_openai(VLLM);
}

#[test]
fn answers_of_other_servers() {
    assert_answered_as_openai(OTHERS);
}

#[test]
fn refusals_inside_a_stream_that_has_begun() {
    let files = [LLAMACPP, OLLAMA, OTHERS, VLLM];
    let cases: Vec<Case> = files.into_iter().flat_map(cases).filter_map(Case::inside_a_stream).collect();
    assert!(cases.len() > 80, "{}", cases.len());
    assert_answered(&ScriptedUpstream::start(), "openai", "m", &cases);
}

#[test]
fn answers_of_llamacpp_spoken_to_as_llamacpp() {
    assert_answered(&ScriptedUpstream::llamacpp(true), "llamacpp", "m", &cases(LLAMACPP));
}

#[test]
fn answers_of_vllm_spoken_to_as_vllm() {
    let upstream = ScriptedUpstream::start();
    let model =
        json!({"id": "m", "object": "model", "owned_by": "vllm", "root": "m", "parent": null, "max_model_len": 8192});
    upstream.set_models(Script::json(200, &json!({"object": "list", "data": [model]})));
    upstream.set_route("/version", Script::json(200, &json!({"version": "0.33.0"})));
    upstream.set_route("/tokenize", Script::json(200, &json!({"count": 9, "max_model_len": 8192, "tokens": [1, 2]})));
    assert_answered(&upstream, "vllm", "m", &cases(VLLM));
}

#[test]
fn answers_of_ollama_spoken_to_in_its_own_language() {
    let twins: Vec<Case> = cases(OLLAMA).into_iter().filter_map(Case::native_twin).collect();
    assert_eq!(twins.len(), 35);
    let upstream = ScriptedUpstream::ollama();
    assert_answered(&upstream, "ollama", "tiny-vision", &twins);
    assert!(upstream.chats().iter().all(|chat| chat.target == "/api/chat"));
}

#[test]
fn a_persons_own_row_decides_before_those_that_come_with_weir() {
    let upstream = ScriptedUpstream::start();
    upstream.always(Script::refusal(500, "No seat left; the prompt is too long for standing"));
    let row = "[[failures]]\ncontains = [\"no seat\"]\nmeaning = \"busy\"";
    let weir = Weir::before(&upstream).toml(row).start();
    weir.ok("hi").assert_error(503, "overloaded");
}

#[test]
fn a_row_that_misses_its_own_example_is_refused_at_the_start() {
    let upstream = ScriptedUpstream::start();
    let row = "[[failures]]\ncontains = [\"a\"]\nmeaning = \"busy\"\nexample = { status = 500, body = \"b\" }";
    let refusal = Weir::before(&upstream).toml(row).refused();
    assert_eq!(refusal.code, 2);
    for part in ["adapter.toml: [[failures]], row 1, example: ", "the row does not match", "accepted: "] {
        assert!(refusal.output.contains(part), "{}", refusal.output);
    }
}
