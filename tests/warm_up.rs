//! `models.warm_up`: the default model is loaded before its first turn, without a chat, and nothing waits for it.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;
use serde_json::{Value, json};

const GENERATE: &str = "/api/generate";
const LOAD: &str = "/models/load";
const NOTHING_TO_DO: &str = "models.warm_up: nothing to do";

fn loaded() -> Script {
    Script::json(200, &json!({"model": "tiny-chat", "response": "", "done": true, "done_reason": "load"}))
}

fn ollama() -> ScriptedUpstream {
    let upstream = ScriptedUpstream::ollama();
    upstream.set_route(GENERATE, loaded());
    upstream
}

/// A llama-server that is a router of these models.
fn router(ids: &[&str]) -> ScriptedUpstream {
    let upstream = ScriptedUpstream::start();
    upstream.set_models(Script::json(200, &models_answer(ids, "llamacpp")));
    upstream.set_props(Script::json(200, &json!({"role": "router"})));
    upstream.set_route(LOAD, Script::json(200, &json!({"success": true})));
    upstream
}

fn before(upstream: &ScriptedUpstream) -> Builder {
    Weir::before(upstream).kind("auto").models("warm_up = true")
}

/// The orders to load a model that arrived there.
fn orders(upstream: &ScriptedUpstream, path: &str) -> Vec<Value> {
    let requests = upstream.requests();
    requests.iter().filter(|request| request.target == path).map(Recorded::json).collect()
}

#[test]
fn ollama_loads_the_default_model_with_the_context_of_the_turns_and_no_prompt() {
    let upstream = ollama();
    let weir = before(&upstream)
        .models("default = \"tiny-vision\"")
        .upstream_setting("context = 2048")
        .upstream_setting("keep_alive = \"-1\"")
        .start();
    weir.wait_for_log("has loaded the default model");
    let order = json!({"model": "tiny-vision:latest", "stream": false, "keep_alive": -1, "options": {"num_ctx": 2048}});
    assert_eq!(orders(&upstream, GENERATE), [order]);
    upstream.assert_no_chat();
    weir.chat(&say("hi")).assert_reply(REPLY);
    let sent = upstream.last_chat().json();
    assert_eq!((&sent["options"]["num_ctx"], &sent["keep_alive"]), (&json!(2048), &json!(-1)));
    assert_eq!(orders(&upstream, GENERATE).len(), 1);
}

#[test]
fn what_is_not_set_for_turns_is_not_set_for_the_load() {
    let upstream = ollama();
    let weir = before(&upstream).start();
    weir.wait_for_log("has loaded the default model");
    assert_eq!(orders(&upstream, GENERATE), [json!({"model": "tiny-chat:latest", "stream": false})]);
}

#[test]
fn a_router_is_told_to_load_the_model_behind_the_default() {
    let upstream = router(&["a", "b"]);
    let alias = "[models.alias]\nhome = \"b\"";
    let weir = before(&upstream).models("default = \"home\"").toml(alias).start();
    weir.wait_for_log("has loaded the default model");
    assert_eq!(orders(&upstream, LOAD), [json!({"model": "b"})]);
    upstream.assert_no_chat();
}

#[test]
fn a_router_that_has_it_already_did_not_fail() {
    let upstream = router(&["a"]);
    upstream.set_route(LOAD, Script::refusal(400, "model is already running"));
    let weir = before(&upstream).start();
    weir.wait_for_log("has loaded the default model");
}

#[test]
fn nothing_is_loaded_unless_it_is_wanted() {
    let upstream = ollama();
    let weir = Weir::before(&upstream).kind("auto").start();
    weir.chat(&say("hi")).assert_reply(REPLY);
    assert!(orders(&upstream, GENERATE).is_empty());
}

#[test]
fn no_turn_waits_for_it_and_its_failure_is_one_line() {
    let upstream = ollama();
    let gate = Gate::new();
    upstream.set_route(GENERATE, Script::refusal(500, "out of memory").after(&gate));
    let weir = before(&upstream).start();
    upstream.wait_for_request(GENERATE, 1);
    weir.chat(&say("hi")).assert_reply(REPLY);
    gate.open();
    weir.wait_for_log("was not loaded: the server answered with status 500");
    weir.chat(&say("hi")).assert_reply(REPLY);
    weir.wait_for_log(" turn=2 ");
    assert_eq!(weir.output().matches("models.warm_up").count(), 1, "{}", weir.output());
}

#[test]
fn a_stop_does_not_wait_for_it() {
    let upstream = ollama();
    upstream.set_route(GENERATE, Script::hang_before_head());
    let mut weir = before(&upstream).start();
    upstream.wait_for_request(GENERATE, 1);
    weir.terminate();
    assert!(weir.wait_end().success());
}

#[test]
fn a_server_that_came_back_is_warmed_up_again() {
    let first = ollama();
    let address = first.address();
    let weir = before(&first).start();
    first.wait_for_request(GENERATE, 1);
    first.stop();
    // The turn that finds it away has it looked after more often than once a minute.
    weir.chat(&say("hi")).assert_error(503, "overloaded");
    weir.wait_for_log("upstream down");
    drop(first);
    let second = ScriptedUpstream::prepared(ReservedPort::bind(address).unwrap().listen(), |second| {
        second.be_ollama();
        second.set_route(GENERATE, loaded());
    });
    second.wait_for_request(GENERATE, 1);
    assert_eq!(orders(&second, GENERATE)[0]["model"], "tiny-chat:latest");
}

#[test]
fn only_the_server_that_gets_the_next_turn_is_warmed_up() {
    let (one, two) = (router(&["a", "m"]), router(&["m"]));
    let weir = before(&one).upstream("other", &two.url()).kind("auto").models("default = \"m\"").start();
    weir.wait_for_log("has loaded the default model");
    weir.chat(&say("hi")).assert_reply(REPLY);
    assert_eq!(orders(&one, LOAD), [json!({"model": "m"})]);
    assert!(orders(&two, LOAD).is_empty());
}

#[test]
fn other_servers_are_left_alone_and_that_is_said_once() {
    for upstream in [ScriptedUpstream::start(), ScriptedUpstream::llamacpp(false)] {
        let weir = before(&upstream).start();
        weir.wait_for_log(NOTHING_TO_DO);
        weir.chat(&say("hi")).assert_reply(REPLY);
        weir.wait_for_log(" turn=1 ");
        assert_eq!(weir.output().matches(NOTHING_TO_DO).count(), 1);
        assert_eq!(upstream.chat_count(), 1);
        let posts = upstream.requests().into_iter().filter(|request| request.method == "POST" && !request.is_chat());
        assert_eq!(posts.map(|request| request.target).collect::<Vec<_>>(), Vec::<String>::new());
    }
}
