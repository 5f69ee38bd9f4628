//! What `[models.override."ID"]` says of a model's answers: temperature, longest answer, system prompt.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use serde_json::{Value, json};

/// The most tokens that an answer may have while nothing is known of the model's speed, against one without end.
const LONGEST_ANSWER: u64 = 32_768;

/// What the model is told first. It is content like any other, so the harness fails where it is printed.
const SYSTEM_PROMPT: &str = "Say \"ahoy\" first.\nCANARY-7f3a \u{1f6a2}";

fn system_prompt() -> String {
    format!("system_prompt = {}", toml::Value::from(SYSTEM_PROMPT))
}

fn system() -> Value {
    json!({"role": "system", "content": SYSTEM_PROMPT})
}

/// A server whose template takes no system message, and says so in these words.
fn without_system_messages(status: u16, words: &str) -> ScriptedUpstream {
    let upstream = ScriptedUpstream::start();
    let (answer, refusal) = (Script::text(REPLY), Script::refusal(status, words));
    upstream.always(Script::from_fn(move |request| {
        let refused = request.messages().iter().any(|message| message["role"] == "system");
        if refused { refusal.for_request(request) } else { answer.for_request(request) }
    }));
    upstream
}

/// How many messages each turn had that was sent.
fn counts(upstream: &ScriptedUpstream) -> Vec<usize> {
    upstream.chats().iter().map(|chat| chat.messages().len()).collect()
}

#[test]
fn nothing_of_it_is_sent_unless_it_is_wanted() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    weir.chat(&say("hi")).assert_reply(REPLY);
    let sent = upstream.last_chat();
    assert_eq!((sent.messages(), &sent.json()["temperature"]), (vec![user("hi")], &Value::Null));
}

#[test]
fn a_temperature_is_sent_to_its_model_alone() {
    let upstream = ScriptedUpstream::start();
    upstream.models(&["m", "other"]);
    let weir = Weir::before(&upstream).override_model("m", "temperature = 0.7").start();
    for (model, temperature) in [("m", json!(0.7)), ("other", Value::Null)] {
        weir.chat(&say_to(model, "hi")).assert_reply(REPLY);
        assert_eq!(upstream.last_chat().json()["temperature"], temperature, "{model}");
    }
}

#[test]
fn the_smaller_of_the_wanted_and_the_computed_limit_is_sent() {
    for (wanted, sent) in [(500, 500), (1, 1), (40_000, LONGEST_ANSWER)] {
        let upstream = ScriptedUpstream::start();
        let weir = Weir::before(&upstream).override_model("m", &format!("longest_answer = {wanted}")).start();
        weir.chat(&say("hi")).assert_reply(REPLY);
        assert_eq!(upstream.last_chat().json()["max_tokens"], sent, "{wanted}");
    }
}

#[test]
fn an_answer_that_is_cut_at_the_wanted_limit_says_so() {
    let upstream = ScriptedUpstream::start();
    upstream.always(Script::finished(REPLY, "length"));
    let weir = Weir::before(&upstream).override_model("m", "longest_answer = 7").start();
    let reply = weir.chat(&say("hi")).assert_reply(REPLY);
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
}

#[test]
fn a_server_that_knows_no_limit_gets_none_wanted_or_not() {
    let upstream = ScriptedUpstream::start();
    upstream.next(Script::refusal(400, "Unsupported parameter: 'max_tokens' is not supported with this model."));
    let weir = Weir::before(&upstream).override_model("m", "longest_answer = 500").start();
    for _ in 0..2 {
        weir.chat(&say("hi")).assert_reply(REPLY);
    }
    let limits: Vec<Value> = upstream.chats().iter().map(|chat| chat.json()["max_tokens"].clone()).collect();
    assert_eq!(limits, [json!(500), Value::Null, Value::Null]);
}

#[test]
fn a_system_prompt_goes_before_every_conversation() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().override_model("m", &system_prompt()).start();
    weir.chat(&say("hi")).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().messages(), [system(), user("hi")]);
    let conversation = vec![user("a"), assistant("b"), user(vec![text("c"), image(&png_uri(1))])];
    weir.chat(&turn(conversation.clone())).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().messages(), [&[system()], &conversation[..]].concat());
}

#[test]
fn a_system_prompt_may_be_said_under_an_alias_of_its_own() {
    let upstream = ScriptedUpstream::start();
    let alias = "[models.alias]\npirate = \"m\"";
    let weir = Weir::before(&upstream).override_model("pirate", &system_prompt()).toml(alias).start();
    weir.chat(&say_to("pirate", "hi")).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().messages(), [system(), user("hi")]);
    weir.chat(&say_to("m", "hi")).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().messages(), [user("hi")]);
}

#[test]
fn a_template_that_takes_no_system_message_gets_none_and_later_turns_so_at_once() {
    for (status, words) in [
        (400, "System role not supported"),
        (500, "Error: Jinja Exception: System role not supported"),
        (400, "Only user and assistant roles are supported!"),
        (400, "Conversation roles must alternate user/assistant/user/assistant/..."),
    ] {
        let upstream = without_system_messages(status, words);
        let weir = Weir::before(&upstream).override_model("m", &system_prompt()).start();
        weir.chat(&say("hi")).assert_reply(REPLY);
        assert_eq!(counts(&upstream), [2, 1], "{words}");
        weir.wait_for_log("leave_out_system_prompt");
        weir.wait_for_log("takes no system message");
        weir.chat(&say("again")).assert_reply(REPLY);
        assert_eq!(counts(&upstream), [2, 1, 1], "{words}");
    }
}

#[test]
fn a_server_that_fails_for_another_reason_is_not_sent_the_turn_without_its_system_prompt() {
    let upstream = without_system_messages(500, "the file system is full");
    let weir = Weir::before(&upstream).override_model("m", &system_prompt()).start();
    weir.chat(&say("hi")).assert_error(502, "upstream_failure");
    assert_eq!(counts(&upstream), [2]);
}

#[test]
fn a_refused_role_is_a_failure_where_no_system_prompt_was_sent() {
    let upstream = ScriptedUpstream::start();
    upstream.always(Script::refusal(400, "System role not supported"));
    let weir = Weir::in_front_of(&upstream);
    weir.chat(&say("hi")).assert_error(502, "upstream_failure");
    assert_eq!(counts(&upstream), [1]);
}

#[test]
fn check_says_what_is_set_and_of_a_system_prompt_only_that_it_is() {
    let upstream = ScriptedUpstream::start();
    let (code, said) = Weir::before(&upstream)
        .override_model("m", "temperature = 0.7")
        .override_model("m", "longest_answer = 500")
        .override_model("m", &system_prompt())
        .check();
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("answers: temperature 0.7, at most 500 tokens, after a system prompt of "), "{said}");
    let (_, said) = Weir::before(&upstream).check();
    assert!(!said.contains("answers:"), "{said}");
}

#[test]
fn ollama_gets_all_three_in_its_own_words() {
    let upstream = ScriptedUpstream::ollama();
    let weir = Weir::before(&upstream)
        .kind("ollama")
        .upstream_setting("context = 2048")
        .override_model("tiny-chat", "temperature = 0")
        .override_model("tiny-chat", "longest_answer = 500")
        .override_model("tiny-chat", &system_prompt())
        .start();
    weir.chat(&say_to("tiny-chat", "hi")).assert_reply(REPLY);
    let sent = upstream.last_chat();
    assert_eq!(sent.target, "/api/chat");
    assert_eq!(sent.messages(), [system(), user("hi")]);
    assert_eq!(sent.json()["options"], json!({"num_ctx": 2048, "num_predict": 500, "temperature": 0.0}));
}
