//! Chapter L: what the model server's failures look like to the phone.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::time::{Duration, Instant};

fn answer_to(script: Script) -> Response {
    let upstream = ScriptedUpstream::start();
    upstream.always(script);
    let answer = Weir::in_front_of(&upstream).ok("hi");
    assert!(upstream.chat_count() >= 1);
    answer
}

/// In front of an address where no turn can succeed.
fn turn_at(url: &str) -> Response {
    let weir =
        Builder::new().upstream("local", url).models("default = \"m\"").timeout("connect = \"2s\"").turn("8s").start();
    weir.ok("hi")
}

#[test]
fn row_132_a_refused_connection_is_502() {
    let down = ReservedPort::new();
    turn_at(&down.url()).assert_error(502, "upstream_failure");
}

#[test]
fn row_132_a_name_that_does_not_resolve_is_502() {
    turn_at("http://no-such-host.invalid:8080").assert_error(502, "upstream_failure");
}

#[test]
fn row_132_a_server_without_tls_behind_https_is_502() {
    let upstream = ScriptedUpstream::start();
    let url = upstream.url().replace("http://", "https://");
    turn_at(&url).assert_error(502, "upstream_failure");
}

#[test]
fn row_132_broken_answers_are_502() {
    let scripts = [
        Script::reset(),
        Script::reset_mid_body(),
        Script::close_at_once(),
        Script::close_mid_body(),
        Script::body(200, "application/json", b"{\"choices\":[{\"mess"),
        Script::raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"choices\""),
        Script::raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n"),
        Script::raw(b"HTTP/1.1 199 What\r\n\r\n"),
        Script::raw(b"SSH-2.0-OpenSSH_9.6\r\n"),
        Script::raw(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
        Script::raw(b"\0\xFF\xFE"),
    ];
    for script in scripts {
        answer_to(script).assert_error(502, "upstream_failure");
    }
}

#[test]
fn row_132_a_redirect_is_502_and_not_followed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for status in [301, 302, 303, 307, 308] {
        let redirect = format!("HTTP/1.1 {status} Moved\r\nLocation: http://{address}/v1\r\nContent-Length: 0\r\n\r\n");
        answer_to(Script::raw(redirect.as_bytes())).assert_error(502, "upstream_failure");
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "the redirect was followed");
}

#[test]
fn row_132_an_answer_after_interim_ones_still_counts() {
    let events = text_events("fine", "stop").iter().map(|event| format!("data: {event}\n\n")).collect::<String>();
    let mut answer = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".to_vec();
    answer.extend(http_answer(200, "text/event-stream", events.as_bytes()));
    answer_to(Script::raw(&answer)).assert_reply("fine");
}

#[test]
fn row_133_a_server_error_is_502() {
    for status in [500, 501, 505, 507, 599] {
        answer_to(Script::refusal(status, "Internal server error")).assert_error(502, "upstream_failure");
    }
    answer_to(Script::body(502, "text/html", b"<html>CANARY-7f3a</html>")).assert_error(502, "upstream_failure");
    for status in [400, 402, 409, 418, 422] {
        answer_to(Script::refusal(status, "something else")).assert_error(502, "upstream_failure");
    }
}

#[test]
fn row_133_refused_credentials_of_the_model_server_are_502_and_never_401() {
    for status in [401, 403] {
        answer_to(Script::refusal(status, "Invalid API Key")).assert_error(502, "upstream_failure");
        answer_to(Script::body(status, "text/plain", b"")).assert_error(502, "upstream_failure");
    }
}

#[test]
fn row_134_a_missing_model_is_the_phones_matter_only_if_the_phone_named_it() {
    let missing = "The model `m` does not exist.";
    let upstream = ScriptedUpstream::start();
    upstream.models(&["m", "other"]);
    upstream.always(Script::refusal(404, missing));
    let weir = Weir::before(&upstream).models("default = \"m\"").start();
    weir.ok("hi").assert_error(502, "upstream_failure");
    weir.chat(&say_to("m", "hi")).assert_error(400, "model_not_found");
    weir.chat(&say_to("other", "hi")).assert_error(400, "model_not_found");
}

#[test]
fn row_134_a_wrong_path_at_the_model_server_is_502_and_empties_no_list() {
    let upstream = ScriptedUpstream::start();
    upstream.always(Script::refusal(404, "File Not Found"));
    let weir = Weir::in_front_of(&upstream);
    weir.chat(&say_to("m", "hi")).assert_error(502, "upstream_failure");
    assert_eq!(weir.ids(), ["m"]);
}

#[test]
fn row_134_a_busy_model_server_is_503_overloaded() {
    for status in [429, 503] {
        let upstream = ScriptedUpstream::start();
        upstream.always(Script::refusal(status, "server busy, please try again. maximum pending requests exceeded"));
        let answer = Weir::before(&upstream).turn("3s").start().ok("hi");
        answer.assert_error(503, "overloaded");
    }
}

#[test]
fn row_134_a_loading_model_is_waited_for_and_then_503() {
    let upstream = ScriptedUpstream::start();
    upstream.always(Script::refusal(503, "Loading model"));
    let weir = Weir::before(&upstream).turn("2s").start();
    let start = Instant::now();
    weir.ok("hi").assert_error(503, "overloaded");
    assert!(start.elapsed() < Duration::from_millis(2_900), "{:?}", start.elapsed());
}

#[test]
fn row_134_a_model_that_is_ready_in_time_answers() {
    let upstream = ScriptedUpstream::start();
    upstream.next(Script::refusal(503, "Loading model"));
    upstream.next(Script::refusal(503, "Loading model"));
    let weir = Weir::before(&upstream).turn("20s").start();
    weir.ok("hi").assert_reply(REPLY);
    assert_eq!(upstream.chat_count(), 3);
}

#[test]
fn row_135_a_conversation_that_is_too_long_is_400_context_too_long() {
    let llama = json!({"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 4390, "n_ctx": 4096,
        "message": "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it"}});
    let vllm = "This model's maximum context length is 8192 tokens. However, your prompt contains at least 8193 input \
                tokens, which exceeds this limit even without any output tokens.";
    let full = json!({"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}});
    let scripts = [
        Script::json(400, &llama),
        Script::refusal(400, vllm),
        Script::json(500, &full),
        Script::events(&[&llama.to_string(), "[DONE]"]),
        Script::body(422, "text/plain", b"Prompt sequence length is greater than 8192"),
    ];
    for script in scripts {
        answer_to(script).assert_error(400, "context_too_long");
    }
}

#[test]
fn row_136_a_body_too_large_for_the_model_server_is_about_the_picture_or_the_text() {
    let upstream = ScriptedUpstream::start();
    upstream.always(Script::body(413, "text/html", b"<html>413 Request Entity Too Large CANARY-7f3a</html>"));
    let weir = Weir::before(&upstream).sees_pictures().start();
    weir.ok("hi").assert_error(400, "context_too_long");
    weir.chat(&say(vec![text("a"), image(&png_uri(1))])).assert_error(413, "image_too_large");
}

#[test]
fn row_137_a_timeout_of_the_model_server_is_504() {
    for status in [408, 504, 524] {
        answer_to(Script::body(status, "text/html", b"<html>CANARY-7f3a</html>")).assert_error(504, "upstream_timeout");
    }
}

#[test]
fn row_138_the_model_servers_words_reach_neither_the_phone_nor_a_log() {
    // The harness marks every refusal, looks for the mark in each error body, and in all output at the end.
    let words = [
        "does not support image input",
        "maximum context length",
        "The model `CANARY-7f3a` does not exist.",
        "Loading model",
        "anything",
    ];
    std::thread::scope(|scope| {
        for status in [400, 401, 404, 413, 422, 429, 500, 503, 504] {
            scope.spawn(move || {
                let upstream = ScriptedUpstream::start();
                let weir = Weir::before(&upstream).turn("1s").start();
                for words in words {
                    upstream.always(Script::refusal(status, words));
                    let answer = weir.chat(&say_to("m", secret("hi")));
                    assert!(answer.status >= 400);
                    assert!(!String::from_utf8_lossy(&answer.body).contains(CANARY));
                }
                let error = json!({"error": {"message": secret("in a stream")}}).to_string();
                upstream.always(Script::events(&[&error]));
                assert!(!String::from_utf8_lossy(&weir.ok("hi").body).contains(CANARY));
                assert!(!weir.output().contains(CANARY));
            });
        }
    });
}

#[test]
fn row_138b_codes_are_the_contracts_and_types_follow_the_status() {
    // assert_error checks the shape, the vocabulary and the type; here every status that Weir gives is seen once.
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).turn("2s").start();
    weir.chat_bytes("x").assert_error(400, None);
    weir.stranger("GET", "/").send().assert_error(401, None);
    weir.get("/").assert_error(404, None);
    weir.get("/v1/chat/completions").assert_error(405, None);
    weir.chat(&say_to("x", "hi")).assert_error(400, "model_not_found");
    let refusals: [(Value, u16, &str); 4] = [
        (json!({"error": {"code": 400, "message": "x"}}), 502, "upstream_failure"),
        (
            json!({"error": {"code": "context_length_exceeded", "message": "maximum context length"}}),
            400,
            "context_too_long",
        ),
        (json!({"error": {"code": 503, "message": "server busy, please try again"}}), 503, "overloaded"),
        (json!({"error": {"code": 504, "message": "x"}}), 504, "upstream_timeout"),
    ];
    for (body, status, code) in refusals {
        let said = match status {
            502 => 418,
            other => other,
        };
        upstream.always(Script::json(said, &body));
        weir.ok("hi").assert_error(status, code);
    }
}
