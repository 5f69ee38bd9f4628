//! Chapter J: what the phone gets when a turn succeeded.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use serde_json::{Value, json};

/// A whole answer in one JSON body, for a model server that ignores the wish for a stream.
fn whole(message: &Value) -> Script {
    let body = json!({"id": "c", "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]});
    Script::json(200, &body)
}

/// Chunks with these deltas, then this reason.
fn chunks(deltas: &[Value], reason: &str) -> Script {
    let mut events: Vec<String> = deltas
        .iter()
        .map(|delta| json!({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]}).to_string())
        .collect();
    events.push(json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}).to_string());
    events.push("[DONE]".to_owned());
    Script::events(&events)
}

fn answer_to(script: Script) -> Response {
    let upstream = ScriptedUpstream::start();
    upstream.always(script);
    Weir::in_front_of(&upstream).ok("hi")
}

/// The same text as one JSON body and as a stream comes out as this.
fn assert_becomes(text: &str, expected: &str) {
    answer_to(whole(&json!({"role": "assistant", "content": text}))).assert_reply(expected);
    answer_to(Script::text(text)).assert_reply(expected);
}

#[test]
fn row_114_a_reply_is_one_complete_json_body() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let chat = weir.chat_request(say("hi").to_string()).header("Accept-Encoding", "gzip, deflate, br");
    chat.send().assert_reply(REPLY);
    let length = REPLY.len();
    upstream.always(whole(&json!({"role": "assistant", "content": REPLY})));
    let json = chat.send().assert_reply(REPLY);
    assert_eq!(json["choices"][0]["message"]["content"].as_str().unwrap().len(), length);
    assert_eq!(json["choices"][0]["index"].as_u64().unwrap_or(0), 0);
}

#[test]
fn row_115_of_several_choices_the_first_is_given() {
    let body = json!({"choices": [
        {"index": 0, "message": {"role": "assistant", "content": "first"}, "finish_reason": "stop"},
        {"index": 1, "message": {"role": "assistant", "content": null}, "finish_reason": "stop"},
    ]});
    answer_to(Script::json(200, &body)).assert_reply("first");
    let events: Vec<String> = [
        json!({"choices": [{"index": 1, "delta": {"content": "B"}, "finish_reason": null}]}),
        json!({"choices": [{"index": 0, "delta": {"content": "A"}, "finish_reason": null}]}),
        json!({"choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}]}),
        json!({"choices": [{"index": 0, "delta": {"content": "A"}, "finish_reason": null}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    ]
    .iter()
    .map(Value::to_string)
    .chain(["[DONE]".to_owned()])
    .collect();
    answer_to(Script::events(&events)).assert_reply("AA");
}

#[test]
fn row_116_no_text_is_an_upstream_failure_after_one_generation() {
    let no_text = [
        whole(&json!({"role": "assistant", "content": null})),
        whole(&json!({"role": "assistant"})),
        whole(&json!({"role": "assistant", "content": ""})),
        whole(&json!({"role": "assistant", "content": " \n\t "})),
        whole(&json!({"role": "assistant", "content": 7})),
        Script::json(200, &json!({"choices": []})),
        Script::json(200, &json!({"choices": [{"index": 0, "finish_reason": "stop"}]})),
        Script::json(200, &json!({"id": "c"})),
        Script::text(""),
        Script::text(" \n "),
        Script::finished("", "length"),
    ];
    for script in no_text {
        let upstream = ScriptedUpstream::start();
        upstream.always(script);
        Weir::in_front_of(&upstream).ok("hi").assert_error(502, "upstream_failure");
        assert_eq!(upstream.chat_count(), 1);
    }
}

/// Answers that hold only reasoning, or only calls of tools.
fn without_text() -> Vec<Script> {
    let call = json!([{"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    vec![
        whole(&json!({"role": "assistant", "content": format!("<think>{CANARY}</think>")})),
        whole(&json!({"role": "assistant", "content": null, "reasoning_content": CANARY})),
        whole(&json!({"role": "assistant", "content": "", "reasoning": CANARY})),
        whole(&json!({"role": "assistant", "content": null, "tool_calls": call})),
        Script::text("<think>\nhm CANARY-7f3a\n</think>\n\n"),
        chunks(&[json!({"role": "assistant", "reasoning_content": CANARY})], "length"),
        chunks(&[json!({"role": "assistant", "tool_calls": call})], "tool_calls"),
    ]
}

#[test]
fn row_116_only_reasoning_or_only_tool_calls_are_tried_once_more_and_then_a_failure() {
    for script in without_text() {
        let upstream = ScriptedUpstream::start();
        upstream.always(script);
        Weir::in_front_of(&upstream).ok("hi").assert_error(502, "upstream_failure");
        assert!((1..=2).contains(&upstream.chat_count()), "{} generations", upstream.chat_count());
    }
}

#[test]
fn row_116_the_second_generation_may_bring_the_text() {
    for script in without_text() {
        let upstream = ScriptedUpstream::start();
        upstream.next(script);
        Weir::in_front_of(&upstream).ok("hi").assert_reply(REPLY);
        assert_eq!(upstream.chat_count(), 2);
    }
}

#[test]
fn row_117_tool_calls_beside_text_are_not_passed_on() {
    let call = json!([{"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    answer_to(whole(&json!({"role": "assistant", "content": "text", "tool_calls": call}))).assert_reply("text");
    let deltas = [json!({"role": "assistant", "content": "text"}), json!({"tool_calls": call})];
    answer_to(chunks(&deltas, "tool_calls")).assert_reply("text");
}

#[test]
fn row_118_a_content_of_text_parts_is_joined() {
    let parts = json!([{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]);
    answer_to(whole(&json!({"role": "assistant", "content": parts}))).assert_reply("Hello");
    for content in [json!([]), json!([1]), json!({"text": "x"}), json!([{"type": "image_url"}])] {
        let script = whole(&json!({"role": "assistant", "content": content}));
        answer_to(script).assert_error(502, "upstream_failure");
    }
}

#[test]
fn row_119_reasoning_in_front_of_the_answer_is_cut() {
    let cases = [
        ("<think>hm CANARY-7f3a</think>\n\nAnswer.", "Answer."),
        ("<think>\nhm\n</think>\n\nAnswer.", "Answer."),
        ("\n<think></think>\n\nAnswer.", "Answer."),
        ("I should greet.\n</think>\n\nHello!", "Hello!"),
        ("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Answer.", "Answer."),
    ];
    for (text, expected) in cases {
        let upstream = ScriptedUpstream::start();
        upstream.always(Script::text(text));
        let reply = Weir::in_front_of(&upstream).ok("hi").text();
        assert_eq!(reply.trim(), expected, "of {text:?}");
    }
    let deltas = [json!({"role": "assistant", "reasoning_content": "hm"}), json!({"content": "Answer."})];
    answer_to(chunks(&deltas, "stop")).assert_reply("Answer.");
}

#[test]
fn row_119_text_that_only_mentions_the_tag_is_untouched() {
    let texts = [
        "Models write <think>thoughts</think> first.",
        "```xml\n<think>x</think>\n```\nThat is how it looks.",
        "The tag is `</think>`, written so.",
        "```\ncode\n</think>\n```\nend",
        "A </think> in the middle of a line.",
        "<thinking>not the tag</thinking> text",
        "  two spaces and a newline at the end \n",
    ];
    for text in texts {
        assert_becomes(text, text);
    }
}

#[test]
fn row_120_odd_extras_do_not_reach_the_phone() {
    let message = r#"{"role":"assistant","content":"fine"}"#;
    let large = "x".repeat(5_000_000);
    let bodies = [
        format!(
            r#"{{"choices":[{{"index":0,"message":{message},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":NaN}}}}"#
        ),
        format!(
            r#"{{"choices":[{{"index":0,"message":{message},"finish_reason":"stop","logprobs":-Infinity}}],"timings":{{"a":Infinity}}}}"#
        ),
        format!(r#"{{"id":"a","id":"b","choices":[{{"index":0,"message":{message},"finish_reason":"stop"}}]}}"#),
        format!(r#"{{"extra":"{large}","choices":[{{"index":0,"message":{message},"finish_reason":"stop"}}]}}"#),
        format!(
            r#"{{"choices":[{{"index":0,"message":{message},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":1e999,"completion_tokens":-3,"total_tokens":"7"}}}}"#
        ),
    ];
    for body in bodies {
        let answer = answer_to(Script::body(200, "application/json", body.as_bytes()));
        let json = answer.assert_reply("fine");
        assert!(answer.body.len() < 2_000);
        for (_, number) in json["usage"].as_object().into_iter().flatten() {
            assert!(number.is_u64() || number.is_object(), "{number}");
        }
    }
}

#[test]
fn row_121_broken_characters_become_replacement_characters() {
    let bytes = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\xFFb\"},\"finish_reason\":null}]}\n\n\
                  data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    answer_to(Script::stream_bytes(bytes)).assert_reply("a\u{FFFD}b");
    let bytes =
        br#"{"choices":[{"index":0,"message":{"role":"assistant","content":"a\ud800b"},"finish_reason":"stop"}]}"#;
    answer_to(Script::body(200, "application/json", bytes)).assert_reply("a\u{FFFD}b");
    let bytes = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\\udc00b\"},\"finish_reason\":null}]}\n\n\
                  data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    answer_to(Script::stream_bytes(bytes)).assert_reply("a\u{FFFD}b");
}

#[test]
fn row_122_every_character_survives() {
    let text = "a\u{0}\u{1}\u{8}\u{b}\u{1f}\u{7f}\"\\/\u{2028}\u{2029}\u{85}\u{1F600}\u{10FFFF}\u{FFFF} ключ\r\n\tb";
    assert_becomes(text, text);
}

#[test]
fn row_123_a_reply_over_the_cap_is_a_failure_and_the_model_server_is_hung_up_on() {
    let upstream = ScriptedUpstream::start();
    let piece = common::sse_piece(&"many words ".repeat(1_000));
    upstream.always(Script::endless(&piece));
    let weir = Weir::before(&upstream).limit("reply = \"1 MiB\"").start();
    weir.ok("hi").assert_error(502, "upstream_failure");
    upstream.wait_closed(0);
}

#[test]
fn row_123_the_default_cap_is_below_what_the_app_can_take() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    // Each of these characters takes six bytes of JSON: the cap is about what the phone must read.
    upstream.always(Script::text(&"\u{1}".repeat(3 * 1024 * 1024)));
    weir.ok("hi").assert_error(502, "upstream_failure");
    let fits = "a fine long answer ".repeat(500_000);
    upstream.always(Script::text(&fits));
    let answer = weir.ok("hi");
    answer.assert_reply(&fits);
    assert!(answer.body.len() < 16 * 1024 * 1024);
}

#[test]
fn row_124_an_answer_cut_at_its_length_says_so() {
    let json = answer_to(Script::finished("cut", "length")).assert_reply("cut");
    assert_eq!(json["choices"][0]["finish_reason"], "length");
}

#[test]
fn row_124_an_answer_without_a_real_end_is_thrown_away() {
    for reason in ["error", "abort", "load", ""] {
        answer_to(Script::finished("half", reason)).assert_error(502, "upstream_failure");
    }
    let half = json!({"choices": [{"index": 0, "delta": {"content": "half"}, "finish_reason": null}]}).to_string();
    answer_to(Script::events(&[half.as_str(), "[DONE]"])).assert_error(502, "upstream_failure");
    answer_to(Script::events(&[half.as_str()])).assert_error(502, "upstream_failure");
}

#[test]
fn row_125_what_the_backend_tells_is_told_and_nothing_is_invented() {
    let json = answer_to(Script::text("x")).assert_reply("x");
    assert_eq!(json["usage"], json!({"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}));
    assert_eq!(json["choices"][0]["finish_reason"], "stop");
    let body = json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}],
        "id": "i".repeat(201), "model": "bad\u{7}name", "usage": null});
    let json = answer_to(Script::json(200, &body)).assert_reply("x");
    assert!(json.get("usage").is_none_or(Value::is_null), "{json}");
    for key in ["id", "model"] {
        if let Some(value) = json.get(key) {
            let value = value.as_str().unwrap();
            assert!(value.len() <= 200 && !value.contains('\u{7}') && !value.is_empty());
        }
    }
}

#[test]
fn row_126_a_success_that_is_none_is_a_failure() {
    let html = b"<html><body>Welcome CANARY-7f3a</body></html>";
    let scripts = [
        Script::json(200, &json!({"error": {"message": CANARY, "type": "x"}})),
        Script::json(200, &json!({"error": CANARY})),
        Script::body(200, "text/html", html),
        Script::body(200, "application/json", html),
        Script::body(200, "application/json", b""),
        Script::body(200, "text/event-stream", b""),
        Script::body(204, "application/json", b""),
        Script::events(&[&json!({"error": {"message": CANARY, "code": 500}}).to_string(), "[DONE]"]),
        Script::events(&["not json", "[DONE]"]),
        Script::events(&["[DONE]"]),
    ];
    for script in scripts {
        answer_to(script).assert_error(502, "upstream_failure");
    }
    // A stream under the wrong label is read to its end.
    let stream =
        common::text_events("whole", "stop").iter().map(|event| format!("data: {event}\n\n")).collect::<String>();
    let answer = answer_to(Script::body(200, "application/json", stream.as_bytes()));
    if answer.status == 200 {
        answer.assert_reply("whole");
    } else {
        answer.assert_error(502, "upstream_failure");
    }
}
