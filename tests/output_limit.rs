//! Each turn carries an output limit, so that the engine ends an answer by itself before the turn's time is over.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use serde_json::{Value, json};

/// The most tokens that an answer may have while nothing is known of the model's speed, against one without end.
const LONGEST_ANSWER: u64 = 32_768;

fn limits(upstream: &ScriptedUpstream) -> Vec<Value> {
    upstream.chats().iter().map(|chat| chat.json()["max_tokens"].clone()).collect()
}

/// A server that takes a turn with a limit only if `accepts` says so, and refuses it in these words otherwise.
fn picky(words: &str, accepts: impl Fn(&Value) -> bool + Send + Sync + 'static) -> ScriptedUpstream {
    let upstream = ScriptedUpstream::start();
    let (answer, refusal) = (Script::text(REPLY), Script::refusal(400, words));
    upstream.always(Script::from_fn(move |request| {
        let script = if accepts(&request.json()["max_tokens"]) { &answer } else { &refusal };
        script.for_request(request)
    }));
    upstream
}

#[test]
fn the_first_turn_has_one_already() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    weir.chat(&say("hi")).assert_reply(REPLY);
    assert_eq!(limits(&upstream), [json!(LONGEST_ANSWER)]);
}

#[test]
fn a_server_that_refuses_it_gets_the_turn_without_one_and_later_turns_so_at_once() {
    for words in [
        "max_tokens=32768 cannot be greater than max_model_len=8192. Please request fewer output tokens.",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        // Older vLLM counts it as part of the conversation.
        "This model's maximum context length is 4096 tokens. However, you requested 32790 tokens (22 in the messages, 32768 in \
         the completion). Please reduce the length of the messages or completion.",
    ] {
        let upstream = picky(words, Value::is_null);
        let weir = Weir::in_front_of(&upstream);
        weir.chat(&say("hi")).assert_reply(REPLY);
        assert_eq!(limits(&upstream), [json!(LONGEST_ANSWER), Value::Null], "{words}");
        weir.wait_for_log("no_output_limit");
        weir.chat(&say("again")).assert_reply(REPLY);
        assert_eq!(limits(&upstream), [json!(LONGEST_ANSWER), Value::Null, Value::Null], "{words}");
    }
}

#[test]
fn a_conversation_that_is_too_long_by_itself_teaches_nothing_about_the_limit() {
    let upstream = ScriptedUpstream::start();
    let too_long = Script::refusal(400, "This model's maximum context length is 4096 tokens.");
    let weir = Weir::in_front_of(&upstream);
    for _ in 0..2 {
        upstream.next(too_long.clone());
    }
    weir.chat(&say("hi")).assert_error(400, "context_too_long");
    weir.chat(&say("hi")).assert_reply(REPLY);
    assert_eq!(limits(&upstream), [json!(LONGEST_ANSWER), Value::Null, json!(LONGEST_ANSWER)]);
}
