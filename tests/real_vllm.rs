//! Turns against a real vLLM, started by scripts/try_with_vllm.sh; not part of the gate.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;
use serde_json::json;

fn weir(kind: &str) -> Weir {
    let url =
        std::env::var("WEIR_VLLM_URL").expect("WEIR_VLLM_URL names the running vLLM; scripts/try_with_vllm.sh sets it");
    Builder::new().upstream("vllm", &url).kind(kind).start()
}

#[test]
fn it_is_found_out_and_its_text_model_is_listed_as_such() {
    for kind in ["auto", "vllm"] {
        let listed = weir(kind).get("/v1/models").json();
        assert_eq!(listed["data"][0]["id"], "tiny-hf");
        assert_eq!(listed["data"][0]["conduck"]["input_modalities"], json!(["text"]), "{kind}");
    }
}

#[test]
fn a_turn_a_history_and_two_users_in_a_row_are_answered() {
    for kind in ["auto", "openai"] {
        let weir = weir(kind);
        weir.ok("Reply with exactly: pong").assert_reply("pong");
        let history = [user("hello"), assistant("pong"), user("are you there"), user("Reply with exactly: pong")];
        weir.chat(&json!({"messages": history})).assert_reply("pong");
        weir.ok("emoji").assert_reply("Hi \u{1f389} !");
    }
}

#[test]
fn reasoning_in_the_text_is_not_shown() {
    weir("auto").ok("think hard").assert_reply("The answer is 42.");
}

#[test]
fn an_overflow_is_told_as_one() {
    let weir = weir("auto");
    let long = "word ".repeat(8000);
    weir.ok(&long).assert_error(400, "context_too_long");
    let history: Vec<_> =
        (0..40).map(|turn| if turn % 2 == 0 { user("a b ".repeat(120)) } else { assistant("pong") }).collect();
    let messages: Vec<_> = history.into_iter().chain([user("hello")]).collect();
    weir.chat(&json!({"messages": messages})).assert_error(400, "context_too_long");
    weir.ok("hello").assert_reply("pong");
}

#[test]
fn an_unknown_model_and_a_picture_for_a_text_model_are_refused() {
    let weir = weir("auto");
    weir.chat(&say_to("nope", "hello")).assert_error(400, "model_not_found");
    let picture = json!({"type": "image_url", "image_url": {"url": png_uri(200)}});
    let looking = json!({"role": "user", "content": [{"type": "text", "text": "What?"}, picture]});
    weir.chat(&json!({"messages": [looking]})).assert_error(400, "image_unsupported");
    let later = [looking, assistant("pong"), user("hello")];
    weir.chat(&json!({"messages": later})).assert_reply("pong");
}

#[test]
fn a_slow_answer_ends_at_the_deadline_and_the_next_turn_is_answered() {
    let url = std::env::var("WEIR_VLLM_URL").unwrap();
    let weir = Builder::new().upstream("vllm", &url).turn("2s").start();
    let counted = weir.ok("count");
    // The tiny model counts for ever: it is cut by its own context (length) or by the deadline, whichever comes first.
    assert!(counted.status == 504 || counted.json()["choices"][0]["finish_reason"] == "length", "{}", counted.status);
    weir.ok("hello").assert_reply("pong");
}
