//! Ollama in its own language, end to end, with the answers that a real one gave (`tests/fixtures/ollama`).
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use serde_json::{Value, json};

/// The most tokens that an answer may have while nothing is known of the model's speed, against one without end.
const LONGEST_ANSWER: u64 = 32_768;

/// In front of `upstream`, which is taken for an Ollama.
fn before(upstream: &ScriptedUpstream) -> Builder {
    Weir::before(upstream).kind("ollama")
}

/// The body of the one turn that a Weir with this configuration sends for `hi`.
fn sent(configure: impl FnOnce(Builder) -> Builder) -> Value {
    let upstream = ScriptedUpstream::ollama();
    configure(before(&upstream)).start().chat(&say_to("tiny-chat", "hi")).assert_reply(REPLY);
    upstream.last_chat().json()
}

/// What the phone gets when Ollama answers a turn like that.
fn answer_to(script: Script) -> Response {
    let upstream = ScriptedUpstream::ollama();
    upstream.always(script);
    before(&upstream).start().chat(&say_to("tiny-vision", vec![text("hi"), image(&png_uri(1))]))
}

fn refusal(status: u16, file: &str) -> Script {
    Script::body(status, "application/json; charset=utf-8", ollama_fixture(file).as_bytes())
}

#[test]
fn it_is_known_by_what_it_says() {
    let upstream = ScriptedUpstream::ollama();
    let weir = Weir::before(&upstream).kind("auto").start();
    weir.chat(&say("hi")).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().target, "/api/chat");
}

#[test]
fn a_server_that_only_calls_itself_ollama_is_not_taken_for_one() {
    let upstream = ScriptedUpstream::ollama();
    let version = json!({"result": "KoboldCpp", "version": "1.98"});
    upstream.set_route("/api/extra/version", Script::json(200, &version));
    upstream.always(Script::text(REPLY));
    let weir = Weir::before(&upstream).kind("auto").start();
    weir.chat(&say("hi")).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().target, "/v1/chat/completions");
}

#[test]
fn models_that_can_chat_here_are_listed_with_what_they_see() {
    let upstream = ScriptedUpstream::ollama();
    let weir = before(&upstream).start();
    let list = weir.get("/v1/models").json();
    let listed: Vec<(&str, &Value)> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["id"].as_str().unwrap(), &entry["conduck"]["input_modalities"]))
        .collect();
    let (blind, seeing) = (json!(["text"]), json!(["text", "image"]));
    assert_eq!(listed, [("tiny-chat:latest", &blind), ("tiny-vision:latest", &seeing)]);
    for hidden in ["vectors:335m", "far-away:480b-cloud"] {
        weir.chat(&say_to(hidden, "hi")).assert_error(400, "model_not_found");
    }
    upstream.assert_no_chat();
}

#[test]
fn looking_calls_nothing_that_loads_a_model() {
    let upstream = ScriptedUpstream::ollama();
    let weir = Weir::before(&upstream).kind("auto").start();
    assert_eq!(weir.ids().len(), 2);
    let harmless = ["/", "/v1/models", "/api/version", "/api/tags", "/api/ps", "/api/show", "/api/extra/version"];
    for request in upstream.requests() {
        assert!(harmless.contains(&request.target.as_str()), "{}", request.target);
    }
}

#[test]
fn a_turn_asks_for_the_whole_conversation_or_a_refusal() {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let expected = json!({"model": "tiny-chat:latest", "messages": messages, "stream": true, "truncate": false,
        "options": {"num_predict": LONGEST_ANSWER}});
    assert_eq!(sent(|builder| builder), expected);
}

#[test]
fn the_history_arrives_in_order_and_pictures_as_bare_base64() {
    let upstream = ScriptedUpstream::ollama();
    let weir = before(&upstream).start();
    let messages = vec![
        user(vec![text("one"), image(&png_uri(1)), text("two"), image(&jpeg_uri(2))]),
        assistant("three"),
        user(vec![text("four"), text("five")]),
        user(vec![text(""), image(&png_uri(3))]),
    ];
    let mut body = turn(messages);
    body["model"] = json!("tiny-vision");
    weir.chat(&body).assert_reply(REPLY);
    let expected = json!([
        {"role": "user", "content": "one\ntwo", "images": [base64(&png(1, 0)), base64(&jpeg(2))]},
        {"role": "assistant", "content": "three"},
        {"role": "user", "content": "four\nfive"},
        {"role": "user", "content": "", "images": [base64(&png(3, 0))]},
    ]);
    assert_eq!(json!(upstream.last_chat().messages()), expected);
}

#[test]
fn a_picture_mark_in_the_text_is_kept_from_being_rewritten() {
    let upstream = ScriptedUpstream::ollama();
    let weir = before(&upstream).start();
    let picture = base64(&png(1, 0));
    for mark in ["see [img-0] here", "[img", "[[img-12]]"] {
        weir.chat(&say_to("tiny-vision", vec![image(&png_uri(1)), text(mark)])).assert_reply(REPLY);
        let expected = json!([
            {"role": "user", "content": mark},
            {"role": "user", "content": "", "images": [picture]},
        ]);
        assert_eq!(json!(upstream.last_chat().messages()), expected);
        weir.chat(&say_to("tiny-vision", mark)).assert_reply(REPLY);
        assert_eq!(upstream.last_chat().messages(), [user(mark)]);
    }
    // The same mark, written with an escape, and split over two parts that are joined with a line feed.
    let escaped = say_to("tiny-vision", vec![image(&png_uri(1)), text("MARK")]).to_string();
    weir.chat_bytes(escaped.replace("MARK", r"\u005bi\u006dg-0]")).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().messages().len(), 2);
    assert_eq!(upstream.last_chat().messages()[0], user("[img-0]"));
}

#[test]
fn a_picture_is_declined_for_a_model_without_sight_and_disclosed_in_its_history() {
    let upstream = ScriptedUpstream::ollama();
    let weir = before(&upstream).start();
    weir.chat(&say_to("tiny-chat", vec![image(&png_uri(1))])).assert_error(400, "image_unsupported");
    upstream.assert_no_chat();
    let mut body = turn(vec![user(vec![text("a"), image(&png_uri(1)), text("b")]), user("c")]);
    body["model"] = json!("tiny-chat");
    weir.chat(&body).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().messages(), [user(format!("a\n{DISCLOSURE}\nb")), user("c")]);
}

#[test]
fn the_context_that_is_asked_for_is_never_more_than_the_model_has() {
    let asked =
        |context: u32| sent(|builder| builder.upstream_setting(&format!("context = {context}")))["options"].clone();
    assert_eq!(asked(16_384), json!({"num_ctx": 16_384, "num_predict": LONGEST_ANSWER}));
    assert_eq!(asked(65_536), json!({"num_ctx": 32_768, "num_predict": LONGEST_ANSWER}));
    let overridden = sent(|builder| {
        builder.upstream_setting("context = 16384").override_model("tiny-chat:latest", "context = 8192")
    });
    assert_eq!(overridden["options"], json!({"num_ctx": 8192, "num_predict": LONGEST_ANSWER}));
}

#[test]
fn a_text_that_cannot_fit_the_loaded_context_is_refused_before_it_is_sent() {
    let upstream = ScriptedUpstream::ollama();
    let weir = before(&upstream).start();
    let long = "word ".repeat(4096 * 16 / 5 + 1);
    weir.chat(&say_to("tiny-vision", long.as_str())).assert_error(400, "context_too_long");
    upstream.assert_no_chat();
    // The other model is not loaded, so what it will hold is not known yet.
    weir.chat(&say_to("tiny-chat", long.as_str())).assert_reply(REPLY);
}

#[test]
fn how_long_a_model_stays_loaded_is_passed_on_as_ollama_reads_it() {
    let kept = |words: &str| {
        sent(|builder| builder.upstream_setting(&format!("keep_alive = \"{words}\"")))["keep_alive"].clone()
    };
    assert_eq!(kept("30m"), json!("30m"));
    assert_eq!(kept("-1"), json!(-1));
}

#[test]
fn how_much_a_model_reasons_is_asked_for_in_its_words() {
    let think = |reasoning: &str| {
        let line = format!("reasoning = \"{reasoning}\"");
        sent(|builder| builder.override_model("tiny-chat:latest", &line))["think"].clone()
    };
    assert_eq!(think("default"), Value::Null);
    assert_eq!(think("off"), json!(false));
    assert_eq!(think("low"), json!("low"));
    assert_eq!(think("high"), json!("high"));
}

#[test]
fn a_model_that_cannot_reason_is_not_asked_to() {
    let upstream = ScriptedUpstream::ollama();
    let mut shown = ollama_json("show_chat.json");
    shown["capabilities"] = json!(["completion"]);
    upstream.set_route("/api/show", Script::json(200, &shown));
    let weir = before(&upstream).override_model("tiny-chat:latest", "reasoning = \"low\"").start();
    weir.chat(&say_to("tiny-chat", "hi")).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().json()["think"], Value::Null);
}

#[test]
fn a_recorded_answer_arrives_with_its_counts() {
    let json = answer_to(ollama_stream("chat.ndjson")).assert_reply("pong");
    assert_eq!(json["usage"], json!({"prompt_tokens": 40, "completion_tokens": 2, "total_tokens": 42}));
    assert_eq!(json["choices"][0]["finish_reason"], "stop");
}

#[test]
fn what_a_model_thinks_is_not_shown() {
    answer_to(ollama_stream("think.ndjson")).assert_reply("The answer is 42.");
}

#[test]
fn thoughts_alone_are_answered_once_more_without_thinking() {
    let upstream = ScriptedUpstream::ollama();
    upstream.next(ollama_stream("think_only.ndjson"));
    before(&upstream).start().chat(&say_to("tiny-chat", "hi")).assert_reply(REPLY);
    let thinking: Vec<Value> = upstream.chats().iter().map(|chat| chat.json()["think"].clone()).collect();
    assert_eq!(thinking, [Value::Null, json!(false)]);
    answer_to(ollama_stream("think_only.ndjson")).assert_error(502, "upstream_failure");
}

#[test]
fn a_tool_call_alone_is_answered_as_not_available() {
    let upstream = ScriptedUpstream::ollama();
    upstream.next(ollama_stream("tools.ndjson"));
    before(&upstream).start().chat(&say_to("tiny-chat", "weather")).assert_reply(REPLY);
    let messages = upstream.last_chat().messages();
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[0], user("weather"));
    let calls = json!([{"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}]);
    assert_eq!(messages[1], json!({"role": "assistant", "content": "", "tool_calls": calls}));
    assert_eq!((&messages[2]["role"], &messages[2]["tool_name"]), (&json!("tool"), &json!("get_weather")));
    answer_to(ollama_stream("tools.ndjson")).assert_error(502, "upstream_failure");
}

#[test]
fn a_name_without_a_tag_means_latest_in_requests_and_settings() {
    let upstream = ScriptedUpstream::ollama();
    let weir = before(&upstream).models("default = \"tiny-vision\"").start();
    for name in ["tiny-chat", "tiny-chat:latest"] {
        weir.chat(&say_to(name, "hi")).assert_reply(REPLY);
        assert_eq!(upstream.last_chat().json()["model"], "tiny-chat:latest");
    }
    weir.chat(&say("hi")).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().json()["model"], "tiny-vision:latest");
    for name in ["tiny", "tiny-chat:", "tiny-chat:1b", "tiny-chat:latest:latest"] {
        weir.chat(&say_to(name, "hi")).assert_error(400, "model_not_found");
    }
}

#[test]
fn an_override_and_an_alias_may_leave_latest_out() {
    let upstream = ScriptedUpstream::ollama();
    let weir = before(&upstream)
        .override_model("tiny-chat", "reasoning = \"off\"")
        .toml("[models.alias]\nhome = \"tiny-chat\"")
        .start();
    for name in ["tiny-chat", "tiny-chat:latest", "home"] {
        weir.chat(&say_to(name, "hi")).assert_reply(REPLY);
        assert_eq!(upstream.last_chat().json()["think"], json!(false), "{name}");
    }
}

#[test]
fn what_is_offered_may_be_named_without_latest() {
    let upstream = ScriptedUpstream::ollama();
    let weir = before(&upstream).models("expose = [\"tiny-chat\"]\ndefault = \"tiny-vision\"").start();
    assert_eq!(weir.ids(), ["tiny-vision:latest", "tiny-chat:latest"]);
    let weir = before(&upstream).models("expose = [\"tiny-v*\"]").start();
    assert_eq!(weir.ids(), ["tiny-vision:latest"]);
}

#[test]
fn a_model_that_cannot_be_shown_is_there_all_the_same() {
    let upstream = ScriptedUpstream::ollama();
    upstream.set_route("/api/show", Script::json(500, &json!({"error": "disk"})));
    let weir = before(&upstream).start();
    assert_eq!(weir.ids(), ["tiny-chat:latest", "tiny-vision:latest"]);
    weir.chat(&say_to("tiny-vision", vec![image(&png_uri(1))])).assert_reply(REPLY);
}

#[test]
fn a_model_listed_with_another_spelling_of_its_tag_is_found_by_it() {
    let upstream = ScriptedUpstream::ollama();
    let mut tags = ollama_json("tags.json");
    tags["models"][0]["name"] = json!("tiny-chat");
    upstream.set_route("/api/tags", Script::json(200, &tags));
    upstream.set_route("/api/show", Script::json(200, &ollama_json("show_chat.json")));
    let weir = before(&upstream).start();
    weir.chat(&say_to("tiny-chat:latest", "hi")).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().json()["model"], "tiny-chat");
}

#[test]
fn a_front_that_has_only_the_openai_routes_is_spoken_to_there() {
    let upstream = ScriptedUpstream::start();
    upstream.models(&["tiny-chat:latest"]);
    let weir = before(&upstream).start();
    assert_eq!(weir.ids(), ["tiny-chat:latest"]);
    weir.chat(&say_to("tiny-chat", "hi")).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().target, "/v1/chat/completions");
}

#[test]
fn an_answer_that_does_not_come_to_its_end_is_502() {
    for file in ["error_inside.ndjson", "without_done.ndjson", "load.ndjson"] {
        answer_to(ollama_stream(file)).assert_error(502, "upstream_failure");
    }
}

#[test]
fn recorded_refusals_mean_what_they_say() {
    answer_to(refusal(400, "overflow.json")).assert_error(400, "context_too_long");
    answer_to(refusal(500, "image_refused.json")).assert_error(400, "image_unsupported");
    answer_to(refusal(404, "unknown_model.json")).assert_error(400, "model_not_found");
}

#[test]
fn a_model_that_was_replaced_is_known_anew_at_the_next_look() {
    let upstream = ScriptedUpstream::ollama();
    let weir = before(&upstream).start();
    let picture = say_to("tiny-chat", vec![image(&png_uri(1))]);
    weir.chat(&picture).assert_error(400, "image_unsupported");

    let mut tags = ollama_json("tags.json");
    tags["models"][0]["digest"] = json!("0".repeat(64));
    tags["models"][0]["capabilities"] = json!(["completion", "vision"]);
    upstream.set_route("/api/tags", Script::json(200, &tags));
    upstream.set_route("/api/show", Script::json(200, &ollama_json("show_vision.json")));
    // A refusal that does not fit what is known makes Weir look again.
    upstream.next(refusal(404, "unknown_model.json"));
    weir.chat(&say_to("tiny-chat", "hi")).assert_error(400, "model_not_found");
    weir.chat(&picture).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().messages()[0]["images"], json!([base64(&png(1, 0))]));
}

#[test]
fn a_model_that_was_removed_is_listed_no_longer() {
    let upstream = ScriptedUpstream::ollama();
    let weir = before(&upstream).start();
    let mut tags = ollama_json("tags.json");
    tags["models"].as_array_mut().unwrap().remove(0);
    upstream.set_route("/api/tags", Script::json(200, &tags));
    upstream.next(refusal(404, "unknown_model.json"));
    weir.chat(&say_to("tiny-chat", "hi")).assert_error(400, "model_not_found");
    assert_eq!(weir.ids(), ["tiny-vision:latest"]);
}
