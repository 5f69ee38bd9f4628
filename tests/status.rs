//! What a running Weir tells about itself: the status for a person, the counters for a machine, and nothing of a conversation.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

fn status(weir: &Weir) -> Value {
    let answer = weir.request("GET", "/weir/status").send();
    assert_eq!(answer.status, 200);
    let text = String::from_utf8(answer.body).unwrap();
    assert!(!text.contains("CANARY"), "{text}");
    serde_json::from_str(&text).unwrap()
}

/// A Weir that has answered a turn, mended one, refused one and failed in one.
fn with_a_past(upstream: &ScriptedUpstream) -> Weir {
    let weir = Weir::before(upstream).upstream_setting("concurrency = 2").toml("[metrics]\nport = 0").start();
    weir.ok(&secret("hi")).assert_reply(REPLY);
    weir.chat(&say_to(secret("nobody"), "hi")).assert_error(400, "model_not_found");
    upstream.next(Script::refusal(400, "Conversation roles must alternate user/assistant/user/assistant/..."));
    weir.chat(&turn(vec![user(secret("one")), user("two")])).assert_reply(REPLY);
    upstream.next(Script::refusal(500, &secret("an error of the server's own")));
    weir.ok("hi").assert_error(502, "upstream_failure");
    weir
}

#[test]
fn the_status_tells_what_became_of_the_last_turns_and_why() {
    let upstream = ScriptedUpstream::llamacpp(true);
    let weir = with_a_past(&upstream);
    let status = status(&weir);
    assert_eq!((&status["running"], &status["queued"]), (&json!(0), &json!(0)));
    assert_eq!(status["upstreams"][0]["name"], "local");
    assert_eq!(status["upstreams"][0]["up"], true);
    assert!(status["upstreams"][0]["state"].as_str().unwrap().contains("llama.cpp"), "{status}");
    assert_eq!(
        status["models"][0],
        json!({"id": "m", "default": true, "images": true, "pictures_go_to": null, "context": 131_072})
    );
    let turns = status["turns"].as_array().unwrap();
    let told = |key: &str| -> Vec<Value> { turns.iter().map(|turn| turn[key].clone()).collect() };
    assert_eq!(told("outcome"), ["failed", "answered", "refused", "answered"]);
    assert_eq!(told("status"), [502, 200, 400, 200]);
    assert_eq!(told("code"), [json!("upstream_failure"), Value::Null, json!("model_not_found"), Value::Null]);
    assert!(turns[0]["reason"].as_str().unwrap().len() > 10 && turns[1]["reason"].is_null());
    assert_eq!(turns[1]["repairs"], json!(["merge_same_role"]));
    assert_eq!((&turns[2]["model"], &turns[3]["model"]), (&Value::Null, &json!("m")));
    assert_eq!(turns[3]["completion_tokens"], 7);
    assert!(turns.iter().all(|turn| turn["total_milliseconds"].is_u64() && turn["seconds_ago"].is_u64()));
}

#[test]
fn only_the_last_turns_are_remembered() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for _ in 0..25 {
        weir.ok("hi").assert_reply(REPLY);
    }
    let status = status(&weir);
    let numbers: Vec<u64> =
        status["turns"].as_array().unwrap().iter().map(|turn| turn["turn"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (6..=25).rev().collect::<Vec<u64>>());
}

#[test]
fn the_status_wants_the_token_and_knows_one_method() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    weir.request("GET", "/weir/status").token(b"CANARY-7f3a-wrong").send().assert_error(401, None);
    weir.request("POST", "/weir/status").send().assert_error(405, None);
    weir.request("GET", "/weir").send().assert_error(404, None);
}

fn weir_status(port: u16) -> (i32, String) {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("status").current_dir(home.path()).env("HOME", home.path()).env_remove("XDG_CONFIG_HOME");
    command.env("ADAPTER_PORT", port.to_string()).env("ADAPTER_TOKEN", TOKEN);
    run_to_end(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

#[test]
fn weir_status_shows_it_on_one_screen_of_80_columns() {
    let upstream = ScriptedUpstream::llamacpp(true);
    let weir = with_a_past(&upstream);
    let (code, shown) = weir_status(weir.address().port());
    assert_eq!(code, 0, "{shown}");
    for part in [
        "0 turn(s) running, 0 waiting",
        "local up: llama.cpp",
        "m: sees pictures; 131072 tokens of context",
        "failed 502 upstream_failure after 0.",
        "refused 400 model_not_found after 0.",
        "no model of that name is served here",
        "mended for the model server: merge_same_role",
        "answered after 0.",
    ] {
        assert!(shown.contains(part), "no {part:?} in\n{}", shown);
    }
    assert!(shown.lines().all(|line| line.chars().count() <= 80 && !line.contains('\u{1b}')), "{}", shown);
    assert!(shown.lines().count() <= 24, "{}", shown);
}

#[test]
fn every_screen_stays_in_80_columns_where_a_model_has_a_long_name() {
    const LONG: &str = "hf.co/bartowski/Qwen2.5-Coder-32B-Instruct-GGUF:Q4_K_M";
    let upstream = ScriptedUpstream::llamacpp(true);
    upstream.set_models(Script::json(200, &models_answer(&[LONG], "llamacpp")));
    let weir = Weir::before(&upstream).kind("llamacpp").start();
    weir.ok("hello").assert_reply(REPLY);
    for word in ["status", "check", "doctor"] {
        let mut command = weir_command();
        command.arg(word).arg("--config").arg(weir.folder().join("adapter.toml"));
        command.env("ADAPTER_PORT", weir.address().port().to_string());
        let (code, shown) = run_to_end(command.spawn().unwrap());
        assert_eq!(code, 0, "{shown}");
        assert!(shown.contains(LONG), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    }
}

#[test]
fn weir_status_says_what_is_wrong_where_nothing_runs() {
    let nobody = ReservedPort::new();
    let (code, shown) = weir_status(nobody.address().port());
    assert_eq!(code, 1, "{shown}");
    assert!(shown.contains("is the adapter running?"), "{shown}");
    // Something else on the port is told from Weir.
    let upstream = ScriptedUpstream::start();
    let (code, shown) = weir_status(upstream.address().port());
    assert_eq!(code, 1, "{shown}");
    assert!(shown.contains("what runs there?"), "{shown}");
}

fn metrics_at(weir: &Weir) -> SocketAddr {
    let log = weir.output();
    log.split_once("metrics on http://").unwrap().1.split_once('/').unwrap().0.parse().unwrap()
}

#[test]
fn row_160_the_metrics_count_every_turn_and_have_closed_labels() {
    let upstream = ScriptedUpstream::llamacpp(true);
    let weir = with_a_past(&upstream);
    let answer = Request::new(metrics_at(&weir), "GET", "/metrics").token(weir.token()).send();
    assert_eq!(answer.status, 200);
    let text = String::from_utf8(answer.body).unwrap();
    assert!(!text.contains("CANARY") && text.ends_with("# EOF\n"), "{text}");
    for line in [
        "weir_turns_total{outcome=\"answered\",code=\"\"} 2",
        "weir_turns_total{outcome=\"refused\",code=\"model_not_found\"} 1",
        "weir_turns_total{outcome=\"failed\",code=\"upstream_failure\"} 1",
        "weir_tokens_total{kind=\"prompt\"} 22",
        "weir_tokens_total{kind=\"completion\"} 14",
        "weir_repairs_total{repair=\"merge_same_role\"} 1",
        "weir_turn_duration_seconds_count 4",
        "weir_turn_duration_seconds_bucket{le=\"+Inf\"} 4",
        "weir_queue_wait_seconds_count 4",
        "weir_first_token_seconds_count 2",
        "weir_turns_running 0",
        "weir_turns_queued 0",
        "weir_body_bytes_in_flight 0",
        "weir_upstream_up{upstream=\"local\"} 1",
    ] {
        assert!(text.lines().any(|known| known == line), "no line {line} in\n{text}");
    }
}

#[test]
fn row_160_the_metrics_want_the_token_and_are_on_the_loopback_address() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).toml("[metrics]\nport = 0").start();
    let at = metrics_at(&weir);
    assert!(at.ip().is_loopback());
    Request::new(at, "GET", "/metrics").send().assert_error(401, None);
    Request::new(at, "GET", "/v1/models").token(weir.token()).send().assert_error(404, None);
    assert_eq!(weir.request("GET", "/metrics").send().status, 404);
}
