//! LM Studio, as its documentation and its issue tracker describe it (its source is closed): known by what it says, never by a
//! status.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use serde::Deserialize;
use serde_json::{Value, json};

const LIST: &str = include_str!("fixtures/lmstudio/v1_models.json");
const OWN_LIST: &str = include_str!("fixtures/lmstudio/api_v0_models.json");
const NEWER_OWN_LIST: &str = include_str!("fixtures/lmstudio/api_v1_models.json");
const ANSWERS: &str = include_str!("fixtures/lmstudio/answers.jsonl");

/// A model that sees and is loaded with 8192 tokens, one that does not and has 4096, one that sees and is not loaded.
const SEES: &str = "qwen/qwen3-vl-8b";
const BLIND: &str = "qwen/qwen3-4b";
const NOT_LOADED: &str = "google/gemma-3-12b";

fn document(fixture: &str) -> Script {
    Script::body(200, "application/json; charset=utf-8", fixture.as_bytes())
}

/// A server that has the list of every OpenAI-compatible one and no other route: it answers 200 and an error there.
fn look_alike() -> ScriptedUpstream {
    let upstream = ScriptedUpstream::start();
    upstream.set_models(document(LIST));
    for path in ["/", "/props", "/version", "/api/version", "/api/tags", "/api/v0/models", "/api/v1/models"] {
        let error = format!("Unexpected endpoint or method. (GET {path})");
        upstream.set_route(path, Script::json(200, &json!({"error": error})));
    }
    upstream
}

fn lmstudio() -> ScriptedUpstream {
    let upstream = look_alike();
    upstream.set_route("/api/v0/models", document(OWN_LIST));
    upstream
}

fn before(upstream: &ScriptedUpstream) -> Builder {
    Weir::before(upstream).kind("auto")
}

/// What the list says of each model's pictures.
fn announced(weir: &Weir) -> Vec<(String, Value)> {
    let list = weir.get("/v1/models").json();
    let entry =
        |entry: &Value| (entry["id"].as_str().unwrap().to_owned(), entry["conduck"]["input_modalities"].clone());
    list["data"].as_array().unwrap().iter().map(entry).collect()
}

fn sights_of_its_models() -> Vec<(String, Value)> {
    let (all, text) = (json!(["text", "image"]), json!(["text"]));
    vec![(SEES.to_owned(), all.clone()), (BLIND.to_owned(), text), (NOT_LOADED.to_owned(), all)]
}

fn picture(uri: &str) -> Vec<Value> {
    vec![text("look"), image(uri)]
}

/// `bytes` of prose.
fn prose(bytes: usize) -> String {
    secret(&"word ".repeat(bytes / 5))
}

#[test]
fn it_is_known_by_its_own_list_which_tells_sight_and_what_only_embeds() {
    let upstream = lmstudio();
    let weir = before(&upstream).start();
    assert_eq!(announced(&weir), sights_of_its_models());
    let asked: Vec<String> = upstream.requests().into_iter().map(|request| request.target).collect();
    assert_eq!(asked, ["/v1/models", "/api/v0/models"]);
}

#[test]
fn the_newer_list_is_read_where_the_older_one_is_gone() {
    let upstream = look_alike();
    upstream.set_route("/api/v1/models", document(NEWER_OWN_LIST));
    let weir = before(&upstream).start();
    assert_eq!(announced(&weir), sights_of_its_models());
    weir.chat(&say_to(BLIND, prose(4096 * 17))).assert_error(400, "context_too_long");
    upstream.assert_no_chat();
}

#[test]
fn a_loaded_instance_can_be_named_and_has_a_context_of_its_own() {
    let upstream = look_alike();
    upstream.set_models(Script::json(
        200,
        &json!({"data": [{"id": "qwen-long", "object": "model", "owned_by": "organization_owner"}], "object": "list"}),
    ));
    upstream.set_route("/api/v1/models", document(NEWER_OWN_LIST));
    let (code, said) = before(&upstream).check();
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("context: 32768 tokens"), "{said}");
}

#[test]
fn one_that_only_looks_like_it_is_served_without_what_nobody_tells() {
    let upstream = look_alike();
    let weir = before(&upstream).start();
    assert!(announced(&weir).iter().all(|(_, modalities)| modalities.is_null()));
    weir.chat(&say_to(SEES, picture(&png_uri(1)))).assert_error(400, "image_unsupported");
    upstream.assert_no_chat();
    weir.chat(&say_to(BLIND, "hi")).assert_reply(REPLY);
}

#[test]
fn its_own_list_is_not_asked_for_where_the_settings_say_what_is_spoken() {
    let upstream = lmstudio();
    let weir = Weir::before(&upstream).kind("openai").start();
    weir.chat(&say_to(BLIND, "hi")).assert_reply(REPLY);
    assert!(upstream.requests().iter().all(|request| request.target.starts_with("/v1/")));
}

#[test]
fn check_says_what_it_is_and_how_each_thing_is_known() {
    let upstream = lmstudio();
    let (code, said) = before(&upstream).check();
    assert_eq!(code, 0, "{said}");
    for words in [
        "LM Studio, spoken to as LM Studio's OpenAI chat completions",
        "pictures: yes (from its type in LM Studio's list)",
        "pictures: no (from its type in LM Studio's list)",
        "context: 8192 tokens",
        "context: 4096 tokens",
        "context: unknown",
        "turns at once: 1",
    ] {
        assert!(said.contains(words), "{words} is missing in {said}");
    }
}

#[test]
fn a_picture_goes_to_a_model_that_sees_and_to_no_other() {
    let upstream = lmstudio();
    let weir = before(&upstream).start();
    weir.chat(&say_to(BLIND, picture(&png_uri(1)))).assert_error(400, "image_unsupported");
    upstream.assert_no_chat();
    for model in [SEES, NOT_LOADED] {
        for uri in [png_uri(1), jpeg_uri(2)] {
            weir.chat(&say_to(model, picture(&uri))).assert_reply(REPLY);
            let sent = upstream.last_chat();
            assert_eq!(sent.json()["model"], model);
            assert!(sent.messages() == [user(picture(&uri))], "the picture changed on the way");
        }
    }
}

#[test]
fn a_picture_that_one_of_its_engines_cannot_decode_is_declined_now_and_disclosed_later() {
    let upstream = lmstudio();
    let weir = before(&upstream).start();
    let webp = data_uri("image/webp", b"RIFF\x10\0\0\0WEBPVP8 CANARY-7f3a");
    let gif = data_uri("image/gif", b"GIF89a CANARY-7f3a");
    for uri in [&webp, &gif] {
        weir.chat(&say_to(SEES, picture(uri))).assert_error(400, "image_unsupported");
    }
    upstream.assert_no_chat();
    for uri in [&webp, &gif] {
        let mut body = turn(vec![user(picture(uri)), assistant("a"), user("and now?")]);
        body["model"] = SEES.into();
        weir.chat(&body).assert_reply(REPLY);
        assert_eq!(upstream.last_chat().messages()[0], user(format!("look\n{DISCLOSURE}")));
    }
}

#[test]
fn a_turn_is_spoken_as_to_any_openai_compatible_server() {
    let upstream = lmstudio();
    let weir = before(&upstream).override_model(BLIND, "reasoning = \"off\"").start();
    let conversation = vec![user(vec![text("a"), text("b")]), assistant("c"), user(secret("d"))];
    let mut body = turn(conversation);
    body["model"] = BLIND.into();
    weir.chat(&body).assert_reply(REPLY);
    let sent = upstream.last_chat();
    assert_eq!((sent.method.as_str(), sent.target.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(sent.messages(), [user("a\nb"), assistant("c"), user(secret("d"))]);
    assert_eq!(sent.json()["stream"], true);
    // The one word that it heeds for this; it drops the template's arguments without a word.
    assert_eq!(sent.json()["reasoning_effort"], "none");
}

#[test]
fn it_gets_one_turn_at_a_time() {
    let upstream = lmstudio();
    let gate = Gate::new();
    upstream.always(Script::text(REPLY).after(&gate));
    let weir = before(&upstream).limit("queue = 0").start();
    let request = weir.chat_request(say_to(BLIND, "hi").to_string());
    let first = spawn(move || request.send());
    upstream.wait_for_chats(1);
    weir.chat(&say_to(SEES, "hi")).assert_error(429, "overloaded");
    gate.open();
    first.join().unwrap().assert_reply(REPLY);
    assert_eq!(upstream.chat_count(), 1);
}

#[derive(Deserialize)]
struct Told {
    name: String,
    status: u16,
    content_type: String,
    body: String,
    expect: Expected,
}

#[derive(Deserialize)]
struct Expected {
    status: u16,
    code: Option<String>,
    content: Option<String>,
}

#[test]
fn each_of_its_answers_becomes_what_the_contract_has_for_it() {
    let upstream = lmstudio();
    let weir = before(&upstream).start();
    for line in ANSWERS.lines() {
        let told: Told = serde_json::from_str(line).unwrap();
        println!("{}", told.name);
        upstream.always(Script::body(told.status, &told.content_type, told.body.as_bytes()));
        let content = if told.name.starts_with("image") { json!(picture(&png_uri(3))) } else { json!("hi") };
        let answer = weir.chat(&say_to(SEES, content));
        match told.expect.content {
            Some(content) => drop(answer.assert_reply(&content)),
            None => answer.assert_error(told.expect.status, told.expect.code.as_deref()),
        }
    }
}

#[test]
fn an_answer_of_nothing_is_an_overflow_where_that_is_clear() {
    let upstream = lmstudio();
    let weir = before(&upstream).start();
    let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let usage = |tokens: u64| json!({"choices": [], "usage": {"prompt_tokens": tokens, "completion_tokens": 0}});
    let of = |events: &[&Value]| Script::events(&events.iter().map(ToString::to_string).collect::<Vec<_>>());
    let (fits, does_not) = (prose(4096 * 3), prose(4096 * 7));

    for nothing in [of(&[&stop]), Script::events(&["[DONE]"]), Script::stream_bytes(b"")] {
        upstream.always(nothing);
        weir.chat(&say_to(BLIND, fits.as_str())).assert_error(502, "upstream_failure");
        weir.chat(&say_to(BLIND, does_not.as_str())).assert_error(400, "context_too_long");
        // Its context is not known, so nothing is clear.
        weir.chat(&say_to(NOT_LOADED, does_not.as_str())).assert_error(502, "upstream_failure");
    }
    upstream.always(of(&[&stop, &usage(4095)]));
    weir.chat(&say_to(BLIND, fits.as_str())).assert_error(502, "upstream_failure");
    upstream.always(of(&[&stop, &usage(4100)]));
    weir.chat(&say_to(BLIND, fits.as_str())).assert_error(400, "context_too_long");
}

#[test]
fn an_answer_that_broke_off_is_no_overflow() {
    let upstream = lmstudio();
    let weir = before(&upstream).start();
    let begun = json!({"choices": [{"index": 0, "delta": {"content": "It"}, "finish_reason": null}]});
    upstream.always(Script::events(&[begun.to_string()]));
    weir.chat(&say_to(BLIND, prose(4096 * 7))).assert_error(502, "upstream_failure");
}

#[test]
fn an_answer_of_reasoning_alone_is_asked_for_once_more_without() {
    for field in ["reasoning", "reasoning_content"] {
        let upstream = lmstudio();
        let weir = before(&upstream).start();
        let delta = json!({"role": "assistant", field: secret("hmm")});
        let thought = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
        let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
        upstream.next(Script::events(&[thought.to_string(), stop.to_string()]));
        weir.chat(&say_to(SEES, "hi")).assert_reply(REPLY);
        let asked: Vec<Value> = upstream.chats().iter().map(|chat| chat.json()["reasoning_effort"].clone()).collect();
        assert_eq!(asked, [Value::Null, json!("none")]);
    }
}
