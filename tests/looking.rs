//! What Weir finds out about a server, and when it looks again.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;
use serde_json::{Value, json};

const LOADING: &str = "Loading model";

fn loading() -> Script {
    Script::json(503, &json!({"error": {"code": 503, "message": LOADING, "type": "unavailable_error"}}))
}

fn listing(ids: &[&str]) -> Script {
    Script::json(200, &models_answer(ids, "somebody"))
}

fn modalities(weir: &Weir) -> Value {
    weir.get("/v1/models").json()["data"][0]["conduck"]["input_modalities"].clone()
}

#[test]
fn a_llama_server_behind_a_front_that_shows_only_v1_is_served() {
    for kind in ["auto", "openai", "llamacpp"] {
        let upstream = ScriptedUpstream::llamacpp(false);
        upstream.set_props(Script::json(404, &json!({"error": "not found"})));
        let weir = Weir::before(&upstream).kind(kind).start();
        assert_eq!(weir.ids(), ["m"], "{kind}");
        weir.ok("hi").assert_reply(REPLY);
    }
}

#[test]
fn a_turn_waits_for_a_server_that_is_loading_from_the_start() {
    let upstream = ScriptedUpstream::start();
    upstream.set_models(loading());
    let weir = Weir::before(&upstream).turn("30s").start_cold();
    weir.wait_for_log("still loading");
    weir.get("/v1/models").assert_error(503, "overloaded");
    let mut waiting = weir.chat_request(say_to("m", secret("hi")).to_string()).open();
    upstream.set_models(listing(&["m"]));
    waiting.read().assert_reply(REPLY);
}

#[test]
fn a_turn_whose_server_never_ends_loading_leaves_as_overloaded() {
    let upstream = ScriptedUpstream::start();
    upstream.set_models(loading());
    let weir = Weir::before(&upstream).models("default = \"m\"").turn("1s").start_cold();
    weir.wait_for_log("still loading");
    let picture = turn(vec![user(vec![text("what?"), image(&png_uri(1))])]);
    for body in [say(secret("hi")), say_to("other", secret("hi")), picture] {
        weir.chat(&body).assert_error(503, "overloaded");
    }
    upstream.assert_no_chat();
}

#[test]
fn nothing_is_said_about_the_sight_of_a_model_whose_server_never_answered() {
    let weir = {
        let nobody = ReservedPort::new();
        Builder::new().upstream("local", &nobody.url()).models("default = \"m\"").turn("5s").start()
    };
    let picture = turn(vec![user(vec![text("what?"), image(&png_uri(1))])]);
    weir.chat(&picture).assert_error(502, "upstream_failure");
}

#[test]
fn a_server_that_was_replaced_by_another_is_noticed_when_its_answers_stop_fitting() {
    let upstream = ScriptedUpstream::ollama();
    let weir = Weir::before(&upstream).kind("auto").start();
    weir.chat(&say_to("tiny-chat", secret("hi"))).assert_any_reply();
    upstream.set_route("/", Script::json(404, &json!({"error": {"message": "File Not Found"}})));
    upstream.set_models(Script::json(200, &models_answer(&["new"], "vllm")));
    upstream.always(Script::json(404, &json!({"error": {"code": 404, "message": "File Not Found"}})));
    weir.chat(&say_to("tiny-chat", secret("hi"))).assert_error(502, "upstream_failure");
    weir.wait_for_log("up: vLLM");
    upstream.always(Script::text(REPLY));
    assert_eq!(weir.ids(), ["new"]);
    weir.ok("hi").assert_reply(REPLY);
}

#[test]
fn a_namespace_that_is_called_like_a_maker_does_not_hide_ollama() {
    for owner in ["local", "vllm"] {
        let upstream = ScriptedUpstream::ollama();
        upstream.set_models(Script::json(200, &models_answer(&["local/m:latest"], owner)));
        let weir = Weir::before(&upstream).kind("auto").start();
        weir.wait_for_log("up: Ollama");
    }
}

#[test]
fn a_model_of_vllm_sees_only_if_its_tokenizer_says_so() {
    let answers = [
        (200, json!({"count": 20, "tokens": []}), json!(["text", "image"])),
        (200, json!({"error": "Unexpected endpoint or method."}), Value::Null),
        (200, json!({"tokens": []}), Value::Null),
        (400, json!({"error": {"message": "m is not a multimodal model"}}), json!(["text"])),
        (400, json!({"error": {"message": "At most 0 images may be provided"}}), json!(["text"])),
        (500, json!({"error": {"message": "crashed"}}), Value::Null),
    ];
    for (status, answer, expected) in answers {
        let upstream = ScriptedUpstream::start();
        upstream.set_route("/tokenize", Script::json(status, &answer));
        let weir = Weir::before(&upstream).kind("vllm").start();
        assert_eq!(modalities(&weir), expected, "{answer}");
    }
}

#[test]
fn sglang_is_asked_what_its_model_sees() {
    let upstream = ScriptedUpstream::start();
    upstream.set_models(Script::json(200, &models_answer(&["m"], "sglang")));
    upstream.set_route("/model_info", Script::json(200, &json!({"has_image_understanding": true})));
    let weir = Weir::before(&upstream).kind("auto").start();
    assert_eq!(modalities(&weir), json!(["text", "image"]));
}

#[test]
fn only_models_that_embed_are_left_out() {
    let upstream = ScriptedUpstream::start();
    upstream.models(&[
        "EmbeddedLLM/Qwen2.5-7B",
        "embedded-coder",
        "text-embedding-nomic",
        "org/bge-reranker-v2",
        "nomic-embed-text",
    ]);
    let weir = Weir::in_front_of(&upstream);
    assert_eq!(weir.ids(), ["EmbeddedLLM/Qwen2.5-7B", "embedded-coder"]);
}

#[test]
fn one_unreadable_picture_costs_no_other_chat_its_pictures() {
    let upstream = ScriptedUpstream::llamacpp(true);
    let weir = Weir::in_front_of(&upstream);
    let chat = |shade| turn(vec![user(vec![text("look"), image(&png_uri(shade))]), assistant("yes"), user("and?")]);
    upstream.next(Script::refusal(400, "Failed to load image or audio file"));
    weir.chat(&chat(1)).assert_reply(REPLY);
    assert_eq!(upstream.chat_count(), 2);
    weir.chat(&chat(2)).assert_reply(REPLY);
    assert!(upstream.last_chat().json()["messages"][0]["content"].is_array(), "the picture was withheld");
}

#[test]
fn names_in_the_settings_that_fit_no_model_are_told() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream)
        .models("default = \"m\"\nexpose = [\"qwen*\"]")
        .override_model("lama", "images = true")
        .start();
    weir.wait_for_log("models.expose: found \"qwen*\"");
    weir.wait_for_log("models.override.lama: found");
}
