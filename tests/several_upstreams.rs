//! Several model servers behind one list.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// What the first and the second answer, to tell them apart.
const FIRST: &str = "The first server's answer, CANARY-7f3a.";
const SECOND: &str = "The second server's answer, CANARY-7f3a.";

/// Two servers with these models, that each say who they are.
fn two(first: &[&str], second: &[&str]) -> (ScriptedUpstream, ScriptedUpstream) {
    let start = |ids: &[&str], reply: &str| {
        let upstream = ScriptedUpstream::start();
        upstream.models(ids);
        upstream.always(Script::text(reply));
        upstream
    };
    (start(first, FIRST), start(second, SECOND))
}

fn before(first: &ScriptedUpstream, second: &ScriptedUpstream) -> Builder {
    Builder::new().upstream("first", &first.url()).upstream("second", &second.url())
}

/// The model that was asked for, as it arrived.
fn asked(upstream: &ScriptedUpstream) -> Value {
    upstream.last_chat().json()["model"].clone()
}

#[test]
fn the_models_of_all_stand_in_one_list_each_once_in_the_order_of_the_servers() {
    let (first, second) = two(&["a", "both"], &["both", "b"]);
    let weir = before(&first, &second).start();
    assert_eq!(weir.ids(), ["a", "both", "b"]);
    for (id, reply) in [("a", FIRST), ("both", FIRST), ("b", SECOND)] {
        weir.chat(&say_to(id, "hi")).assert_reply(reply);
    }
    assert_eq!((first.chat_count(), second.chat_count()), (2, 1));
}

#[test]
fn the_order_of_the_servers_is_that_of_their_names_and_not_of_the_file() {
    let (first, second) = two(&["m"], &["m"]);
    let weir = Builder::new().upstream("zebra", &second.url()).upstream("ant", &first.url()).start();
    weir.ok("hi").assert_reply(FIRST);
    second.assert_no_chat();
}

#[test]
fn a_default_of_the_second_server_stands_first_in_the_list_and_answers_where_none_is_named() {
    let (first, second) = two(&["a"], &["b"]);
    let weir = before(&first, &second).models("default = \"b\"").start();
    assert_eq!(weir.ids(), ["b", "a"]);
    weir.ok("hi").assert_reply(SECOND);
    first.assert_no_chat();
}

#[test]
fn a_server_that_went_away_gives_its_turns_to_the_next_that_has_the_model_without_delay() {
    let (first, second) = two(&["m"], &["m"]);
    let weir = before(&first, &second).start();
    weir.ok("hi").assert_reply(FIRST);
    first.stop();
    for _ in 0..3 {
        let start = Instant::now();
        weir.ok("hi").assert_reply(SECOND);
        // A server without a second beside it is tried again for three seconds.
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }
    assert_eq!((first.chat_count(), second.chat_count()), (1, 3));
}

#[test]
fn a_server_that_was_never_there_does_not_delay_what_the_next_one_has() {
    let down = ReservedPort::new();
    let (_, second) = two(&[], &["m"]);
    let weir = Builder::new()
        .upstream("first", &down.url())
        .upstream("second", &second.url())
        .models("default = \"m\"")
        .start();
    let start = Instant::now();
    weir.ok("hi").assert_reply(SECOND);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn a_turn_that_may_have_started_is_never_given_to_another_server() {
    let broken = [Script::reset_mid_body(), Script::close_mid_body(), Script::refusal(500, "CUDA error")];
    for script in broken {
        let (first, second) = two(&["m"], &["m"]);
        first.close_after_discovery();
        first.always(script);
        let weir = before(&first, &second).start();
        weir.ok("hi").assert_error(502, "upstream_failure");
        assert_eq!(first.chat_count(), 1);
        second.assert_no_chat();
    }
}

#[test]
fn a_busy_server_keeps_its_turns() {
    let (first, second) = two(&["m"], &["m"]);
    let gate = Gate::new();
    first.always(Script::text(FIRST).after(&gate));
    let weir = Builder::new()
        .upstream("first", &first.url())
        .upstream_setting("concurrency = 1")
        .upstream("second", &second.url())
        .limit("queue = 0")
        .start();
    let request = weir.chat_request(say("hi").to_string());
    let running = spawn(move || request.send());
    first.wait_for_chats(1);
    weir.ok("hi").assert_error(429, "overloaded");
    gate.open();
    running.join().unwrap().assert_reply(FIRST);
    second.assert_no_chat();
}

#[test]
fn a_server_seen_a_moment_ago_is_overloaded_and_another_that_never_answered_does_not_change_that() {
    let (first, _) = two(&["m"], &[]);
    let down = ReservedPort::new();
    let weir = Builder::new()
        .upstream("first", &first.url())
        .upstream("second", &down.url())
        .models("default = \"m\"")
        .start();
    weir.ok("hi").assert_reply(FIRST);
    first.stop();
    weir.ok("hi").assert_error(503, "overloaded");
}

#[test]
fn a_name_without_a_tag_means_the_ollama_model_that_is_there_rather_than_a_server_that_is_not() {
    let ollama = ScriptedUpstream::start();
    let routes = [
        ("/api/tags", json!({"models": [{"name": "llama3.2:latest", "digest": "d1", "capabilities": ["completion"]}]})),
        ("/api/version", json!({"version": "0.33.0"})),
        ("/api/ps", json!({"models": []})),
        ("/api/show", json!({"capabilities": ["completion"]})),
        ("/api/chat", json!({"message": {"role": "assistant", "content": FIRST}, "done": true, "done_reason": "stop"})),
    ];
    for (path, answer) in routes {
        ollama.set_route(path, Script::json(200, &answer));
    }
    let down = ReservedPort::new();
    let weir = Builder::new()
        .upstream("first", &down.url())
        .upstream("second", &ollama.url())
        .kind("ollama")
        .models("default = \"llama3.2\"")
        .start();
    assert_eq!(weir.ids(), ["llama3.2:latest"]);
    weir.ok("hi").assert_reply(FIRST);
}

#[test]
fn an_alias_may_mean_a_model_of_the_second_server() {
    let (first, second) = two(&["a"], &["qwen3:14b"]);
    let weir = before(&first, &second).toml("[models.alias]\nhome = \"qwen3:14b\"").start();
    assert_eq!(weir.ids(), ["a", "qwen3:14b", "home"]);
    weir.chat(&say_to("home", "hi")).assert_reply(SECOND);
    assert_eq!(asked(&second), "qwen3:14b");
    first.assert_no_chat();
}

#[test]
fn an_alias_hides_a_model_that_has_its_name() {
    let (first, second) = two(&["home", "a"], &["qwen3:14b"]);
    let weir = before(&first, &second).toml("[models.alias]\nhome = \"qwen3:14b\"").start();
    assert_eq!(weir.ids(), ["a", "qwen3:14b", "home"]);
    weir.chat(&say_to("home", "hi")).assert_reply(SECOND);
    first.assert_no_chat();
}

#[test]
fn what_is_exposed_is_chosen_from_all_servers() {
    let (first, second) = two(&["qwen3:4b", "llama3"], &["qwen3:14b", "phi4"]);
    let weir = before(&first, &second).models("expose = [\"qwen3*\", \"phi4\"]").start();
    assert_eq!(weir.ids(), ["qwen3:4b", "qwen3:14b", "phi4"]);
    weir.chat(&say_to("llama3", "hi")).assert_error(400, "model_not_found");
    weir.chat(&say_to("phi4", "hi")).assert_reply(SECOND);
    first.assert_no_chat();
}

#[test]
fn sight_is_said_for_one_model_at_a_time() {
    let (first, second) = two(&["a"], &["b"]);
    let weir =
        before(&first, &second).override_model("a", "images = false").override_model("b", "images = true").start();
    let picture = vec![text("look"), image(&png_uri(1))];
    weir.chat(&say_to("a", picture.clone())).assert_error(400, "image_unsupported");
    weir.chat(&say_to("b", picture.clone())).assert_reply(SECOND);
    assert!(second.last_chat().messages() == [user(picture)], "the picture changed on the way");
    first.assert_no_chat();
}

#[test]
fn context_is_said_for_one_model_and_what_cannot_fit_is_never_sent() {
    let (first, second) = two(&["a"], &["b"]);
    let weir = before(&first, &second).override_model("b", "context = 100").start();
    let letters = |count: usize| "x".repeat(count);
    weir.chat(&say_to("b", letters(1601))).assert_error(400, "context_too_long");
    let mut history = turn(vec![user(letters(800)), assistant(letters(400)), user(letters(401))]);
    history["model"] = "b".into();
    weir.chat(&history).assert_error(400, "context_too_long");
    second.assert_no_chat();
    weir.chat(&say_to("b", letters(1600))).assert_reply(SECOND);
    weir.chat(&say_to("a", letters(1601))).assert_reply(FIRST);
}

#[test]
fn reasoning_is_said_for_one_model_in_the_words_of_its_server() {
    let words = [
        ("default", json!([null, null])),
        ("off", json!(["none", {"enable_thinking": false}])),
        ("low", json!(["low", null])),
        ("medium", json!(["medium", null])),
        ("high", json!(["high", null])),
    ];
    for (word, expected) in words {
        let (first, second) = two(&["a"], &["b"]);
        let weir = before(&first, &second).override_model("b", &format!("reasoning = \"{word}\"")).start();
        let sent = |upstream: &ScriptedUpstream| {
            let sent = upstream.last_chat().json();
            json!([sent["reasoning_effort"], sent["chat_template_kwargs"]])
        };
        weir.chat(&say_to("b", "hi")).assert_reply(SECOND);
        assert_eq!(sent(&second), expected, "{word}");
        weir.chat(&say_to("a", "hi")).assert_reply(FIRST);
        assert_eq!(sent(&first), json!([null, null]), "{word}");
    }
}

#[test]
fn a_server_that_comes_up_later_is_listed_and_served_without_a_restart() {
    let (first, _) = two(&["a"], &[]);
    let later = ReservedPort::new();
    let weir = Builder::new().upstream("first", &first.url()).upstream("second", &later.url()).start();
    assert_eq!(weir.ids(), ["a"]);
    let second = later.start();
    second.models(&["b"]);
    second.always(Script::text(SECOND));
    let until = Instant::now() + CEILING;
    while weir.ids() != ["a", "b"] {
        assert!(Instant::now() < until, "it is still not listed: {:?}", weir.ids());
        std::thread::sleep(Duration::from_millis(20));
    }
    weir.chat(&say_to("b", "hi")).assert_reply(SECOND);
    first.assert_no_chat();
}

#[test]
fn check_names_the_server_that_does_not_answer_and_says_where_each_model_is() {
    let (first, second) = two(&["a", "both"], &["both"]);
    let (code, said) = before(&first, &second).check();
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("all is well"), "{said}");
    let down = ReservedPort::new();
    let (code, said) = Builder::new().upstream("first", &first.url()).upstream("second", &down.url()).check();
    assert_eq!(code, 1, "{said}");
    for words in ["upstream first (http://", "no answer from upstream second", "both on first"] {
        assert!(said.contains(words), "{words:?} is missing in {said}");
    }
    assert!(!said.contains("all is well"), "{said}");
}
