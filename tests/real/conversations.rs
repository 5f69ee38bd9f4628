//! Text: it arrives whole, and the answer comes back whole.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{assistant, say, secret, text, turn as turn_of, user};
use crate::llama_server::{Launch, turn};

fn prompt_tokens(reply: &Value) -> u64 {
    reply["usage"]["prompt_tokens"].as_u64().expect("the usage that the server told")
}

#[test]
fn a_turn_of_text_is_answered() {
    let server = Launch::chat().start();
    let weir = server.behind_weir().start();
    let reply = turn(&weir, &say(secret("Reply with exactly: pong"))).assert_reply("pong");
    assert_eq!(reply["model"], "tiny-chat");
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
}

#[test]
fn a_history_of_ten_messages_arrives_whole() {
    let server = Launch::chat().start();
    let weir = server.behind_weir().start();
    let mut messages = Vec::new();
    let mut last_length = 0;
    for round in 0..5 {
        messages.push(user(secret(&format!("question {round}\r\n\tkept as it is, \"quotes\" too: Grüße, 안녕"))));
        let body = turn_of(messages.clone());
        let reply = turn(&weir, &body).assert_reply("pong");
        let length = prompt_tokens(&reply);
        assert_eq!(length, server.prompt_tokens(&body["messages"]), "round {round}");
        assert!(length > last_length + 40, "round {round}: from {last_length} to {length} tokens");
        last_length = length;
        messages.push(assistant(secret("an answer\n")));
    }
    assert_eq!(messages.len(), 10);
}

#[test]
fn two_user_messages_in_a_row_both_arrive() {
    let server = Launch::chat().start();
    let weir = server.behind_weir().start();
    let body = turn_of(vec![user(secret("Are you there?")), user(secret("Hello?"))]);
    let reply = turn(&weir, &body).assert_reply("pong");
    assert_eq!(prompt_tokens(&reply), server.prompt_tokens(&body["messages"]));
}

#[test]
fn parts_of_text_arrive_joined_by_one_line_feed() {
    let server = Launch::chat().start();
    let weir = server.behind_weir().start();
    let body = say(vec![text(" first \n"), text(""), text("second")]);
    let joined = json!([user(" first \n\n\nsecond")]);
    let reply = turn(&weir, &body).assert_reply("pong");
    assert_eq!(prompt_tokens(&reply), server.prompt_tokens(&joined));
}

#[test]
fn an_emoji_whose_bytes_are_tokens_of_their_own_comes_back_whole() {
    let server = Launch::chat().start();
    let weir = server.behind_weir().start();
    turn(&weir, &say(secret("Send me an emoji"))).assert_reply("Hi \u{1F389} !");
}

#[test]
fn reasoning_is_not_shown_however_it_is_sent() {
    // In a field of its own, as llama-server does by itself, and in the text.
    for format in ["auto", "none"] {
        let server = Launch::chat().argument("--reasoning-format").argument(format).start();
        let weir = server.behind_weir().start();
        let answer = turn(&weir, &say(secret("Please think")));
        answer.assert_reply("The answer is 42.");
        assert!(!String::from_utf8_lossy(&answer.body).contains("reason about"), "{format}");
        weir.wait_for_log(" turn=1 ");
        assert!(!weir.output().contains("answer is 42"), "the reply is in the log");
    }
}

#[test]
fn with_reasoning_off_the_server_is_told_so_and_the_answer_is_the_same() {
    let server = Launch::chat().start();
    let body = say(secret("Please think"));
    let by_itself = turn(&server.behind_weir().start(), &body).assert_reply("The answer is 42.");
    let weir = server.behind_weir().override_model("tiny-chat", "reasoning = \"off\"").start();
    let off = turn(&weir, &body).assert_reply("The answer is 42.");
    // The chat template opens and closes the reasoning itself then, which makes the prompt longer.
    assert!(prompt_tokens(&off) > prompt_tokens(&by_itself));
}

#[test]
fn a_conversation_longer_than_the_context_is_refused_and_a_short_one_works_afterwards() {
    let server = Launch::chat().context(512).start();
    let weir = server.behind_weir().start();
    // Over the context by the server's own count, and so long that Weir need not ask.
    for letters in [2_000, 40_000] {
        let history = user(secret(&"some words ".repeat(letters / 11)));
        let body = turn_of(vec![history, assistant(secret("I see.")), user(secret("Go on"))]);
        let since = Instant::now();
        turn(&weir, &body).assert_error(400, "context_too_long");
        assert!(since.elapsed() < Duration::from_secs(10), "the refusal took {:?}", since.elapsed());
    }
    turn(&weir, &say(secret("Hello"))).assert_reply("pong");
}

#[test]
fn an_unknown_model_is_refused_and_none_means_the_default() {
    let server = Launch::chat().start();
    let weir = server.behind_weir().start();
    let mut body = say(secret("Hello"));
    for unknown in ["gpt-9", "Tiny-chat", "tiny-chat "] {
        body["model"] = unknown.into();
        // llama-server itself would answer with whatever model it has.
        turn(&weir, &body).assert_error(400, "model_not_found");
    }
    for default in [json!("tiny-chat"), json!(null), json!("")] {
        body["model"] = default;
        assert_eq!(turn(&weir, &body).assert_reply("pong")["model"], "tiny-chat");
    }
}
