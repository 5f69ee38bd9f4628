//! Chapter I: which model answers.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;
use serde_json::json;
use std::time::{Duration, Instant};

/// The model that was asked for, as it arrived.
fn asked(upstream: &ScriptedUpstream) -> String {
    upstream.last_chat().json()["model"].as_str().expect("no model was sent").to_owned()
}

fn with_models(ids: &[&str]) -> ScriptedUpstream {
    let upstream = ScriptedUpstream::start();
    upstream.models(ids);
    upstream
}

#[test]
fn row_104_no_model_means_the_configured_default() {
    let upstream = with_models(&["first", "second"]);
    let weir = Weir::before(&upstream).models("default = \"second\"").start();
    weir.ok("hi").assert_reply(REPLY);
    assert_eq!(asked(&upstream), "second");
}

#[test]
fn row_104_no_model_and_no_default_means_the_first() {
    let upstream = with_models(&["first", "second"]);
    let weir = Weir::in_front_of(&upstream);
    weir.ok("hi").assert_reply(REPLY);
    assert_eq!(asked(&upstream), weir.ids()[0]);
}

#[test]
fn row_104_a_turn_as_the_very_first_request_works() {
    let upstream = with_models(&["first"]);
    let weir = Weir::before(&upstream).start_cold();
    weir.ok("hi").assert_reply(REPLY);
    assert_eq!(asked(&upstream), "first");
}

#[test]
fn row_105_null_and_empty_mean_absent() {
    let upstream = with_models(&["first", "second"]);
    let weir = Weir::before(&upstream).models("default = \"second\"").start();
    for model in [json!(null), json!("")] {
        weir.chat(&say_to(model, "hi")).assert_reply(REPLY);
        assert_eq!(asked(&upstream), "second");
    }
}

/// Every id of the list answers, and the model server that has it is asked for exactly that.
fn walk(weir: &Weir, upstream: &ScriptedUpstream) {
    let ids = weir.ids();
    assert!(!ids.is_empty());
    for id in ids {
        weir.chat(&say_to(id.as_str(), secret("hi"))).assert_reply(REPLY);
        assert_eq!(asked(upstream), id);
    }
}

#[test]
fn row_106_every_advertised_id_is_selected() {
    let upstream = with_models(&["qwen3:14b", "org/Model-7B.Q4_K_M", "a b", "ünïcode", "quote\"d", "m", "[x]", "100%"]);
    let weir = Weir::in_front_of(&upstream);
    assert_eq!(weir.ids().len(), 8);
    walk(&weir, &upstream);
}

#[test]
fn row_106_only_what_is_exposed_is_advertised_and_selectable() {
    let upstream = with_models(&["qwen3:4b", "qwen3:14b", "llama3", "secret"]);
    let weir = Weir::before(&upstream).models("expose = [\"qwen3*\", \"llama3\"]").start();
    let mut ids = weir.ids();
    ids.sort();
    assert_eq!(ids, ["llama3", "qwen3:14b", "qwen3:4b"]);
    walk(&weir, &upstream);
    weir.chat(&say_to("secret", "hi")).assert_error(400, "model_not_found");
    weir.ok("hi").assert_reply(REPLY);
    assert_ne!(asked(&upstream), "secret");
}

#[test]
fn row_106_an_alias_is_an_id_of_its_own() {
    let upstream = with_models(&["qwen3:14b", "m"]);
    let weir = Weir::before(&upstream).toml("[models.alias]\nhome = \"qwen3:14b\"").start();
    assert!(weir.ids().contains(&"home".to_owned()));
    weir.chat(&say_to("home", "hi")).assert_reply(REPLY);
    assert_eq!(asked(&upstream), "qwen3:14b");
    weir.chat(&say_to("m", "hi")).assert_reply(REPLY);
    assert_eq!(asked(&upstream), "m");
}

#[test]
fn row_106_each_of_two_model_servers_gets_its_own() {
    let (one, two) = (with_models(&["a", "b"]), with_models(&["c"]));
    let weir = Weir::before(&one).upstream("other", &two.url()).start();
    let mut ids = weir.ids();
    ids.sort();
    assert_eq!(ids, ["a", "b", "c"]);
    for id in ids {
        weir.chat(&say_to(id.as_str(), "hi")).assert_reply(REPLY);
    }
    assert_eq!(one.chats().len(), 2);
    assert_eq!(two.chats().len(), 1);
    assert_eq!(asked(&two), "c");
}

#[test]
fn row_106_with_one_of_two_model_servers_down_the_list_still_keeps_its_word() {
    let one = with_models(&["a", "b"]);
    let down = ReservedPort::new();
    let weir = Weir::before(&one).upstream("other", &down.url()).start();
    walk(&weir, &one);
}

#[test]
fn row_106_a_model_that_was_removed_leaves_the_list_when_that_is_seen() {
    let upstream = with_models(&["keep", "gone"]);
    let weir = Weir::before(&upstream).models("default = \"keep\"").start();
    assert_eq!(weir.ids().len(), 2);
    upstream.models(&["keep"]);
    upstream.next(Script::refusal(404, "The model `gone` does not exist."));
    weir.chat(&say_to("gone", "hi")).assert_error(400, "model_not_found");
    let until = Instant::now() + Duration::from_secs(10);
    while weir.ids() != ["keep"] {
        assert!(Instant::now() < until, "the model is still advertised");
        std::thread::sleep(Duration::from_millis(20));
    }
    walk(&weir, &upstream);
}

#[test]
fn row_107_an_unknown_model_is_400_model_not_found() {
    let upstream = with_models(&["qwen3:14b", "m"]);
    let weir = Weir::in_front_of(&upstream);
    let unknown = ["other", "M", " m", "m ", "m\u{0}", "Qwen3:14b", "qwen3", "m:latest", "*", "qwen3:*", "\u{1F600}"];
    for model in unknown {
        let answer = weir.chat(&say_to(model, "hi"));
        assert_eq!(answer.status, 400, "{model:?}");
        answer.assert_error(400, "model_not_found");
    }
    weir.chat(&say_to("x".repeat(100_000), "hi")).assert_error(400, "model_not_found");
    upstream.assert_no_chat();
}

#[test]
fn row_108_a_model_that_is_no_string_is_400_without_a_code() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for model in [json!(123), json!(true), json!(false), json!([]), json!(["m"]), json!({}), json!(1.5)] {
        weir.chat(&say_to(model, "hi")).assert_error(400, None);
    }
    upstream.assert_no_chat();
}

#[test]
fn row_109_a_single_model_is_matched_as_strictly() {
    let upstream = with_models(&["only"]);
    let weir = Weir::in_front_of(&upstream);
    weir.chat(&say_to("another", "hi")).assert_error(400, "model_not_found");
    upstream.assert_no_chat();
    weir.chat(&say_to("only", "hi")).assert_reply(REPLY);
}

#[test]
fn row_110_ids_are_distinct_and_the_first_is_the_default() {
    let (one, two) = (with_models(&["b", "a", "b"]), with_models(&["a", "c"]));
    let weir = Weir::before(&one).upstream("other", &two.url()).models("default = \"c\"").start();
    let ids = weir.ids();
    let mut distinct = ids.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), ids.len(), "{ids:?}");
    assert_eq!(distinct, ["a", "b", "c"]);
    assert_eq!(ids[0], "c");
}

#[test]
fn row_111_the_stream_flag_changes_nothing() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for stream in [json!(true), json!(false), json!("true"), json!(1), json!(null), json!({}), json!([])] {
        weir.chat(&json!({"messages": [user("hi")], "stream": stream})).assert_reply(REPLY);
    }
    weir.chat(&json!({"messages": [user("hi")]})).assert_reply(REPLY);
    assert!(upstream.chats().iter().all(|chat| chat.json()["stream"] == true));
}

#[test]
fn row_112_every_accept_gets_the_same_json() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let accepts = [
        Some("text/event-stream"),
        Some("text/event-stream, application/json"),
        Some("text/html"),
        Some("*/*;q=0"),
        Some("nonsense"),
        None,
    ];
    for accept in accepts {
        let change = |request: Request| match accept {
            Some(accept) => request.header("Accept", accept),
            None => request.without("Accept"),
        };
        let answer = change(weir.request("GET", "/v1/models")).send();
        assert_eq!(answer.status, 200);
        answer.assert_plain_json();
        change(weir.chat_request(say("hi").to_string())).send().assert_reply(REPLY);
        change(weir.chat_request("[]")).send().assert_error(400, None);
        change(weir.request("GET", "/nowhere")).send().assert_error(404, None);
        change(weir.stranger("GET", "/v1/models")).send().assert_error(401, None);
    }
}

#[test]
fn row_113_parameters_are_ignored_and_not_forwarded() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let parameters = json!({
        "n": 5, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}], "tool_choice": "required",
        "response_format": {"type": "json_object"}, "max_tokens": 1, "max_completion_tokens": 1, "temperature": 9,
        "stop": ["a"], "logprobs": true, "top_p": "x", "functions": [], "seed": -1, "stream_options": {"x": 1},
        "reasoning_effort": "high", "options": {"num_ctx": 1}, "think": true, "keep_alive": 0,
    });
    let mut body = say(secret("hi"));
    for (key, value) in parameters.as_object().unwrap() {
        body[key] = value.clone();
    }
    weir.chat(&body).assert_reply(REPLY);
    let sent = upstream.last_chat().json();
    for (key, value) in parameters.as_object().unwrap() {
        assert_ne!(sent.get(key), Some(value), "{key} was forwarded");
    }
    for key in ["n", "tools", "tool_choice", "response_format", "logprobs", "functions", "stop", "temperature"] {
        assert_eq!(sent.get(key), None);
    }
}
