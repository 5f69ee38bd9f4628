//! Answers that servers and fronts give beside the usual ones: each is whole and told as it is, or an honest failure.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use std::time::Duration;

use common::*;

/// What must come of an answer.
enum Expected {
    Text(&'static str),
    Failure(u16, &'static str),
}

use Expected::{Failure, Text};

const OVERFLOW: &str =
    r#"{"error":{"code":400,"message":"request (9000 tokens) exceeds the available context size (4096 tokens)"}}"#;

fn check(cases: &[(&str, String, Expected)]) {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for (name, answer, expected) in cases {
        // Always: a refusal that may be about the output limit is answered by asking without one.
        upstream.always(Script::stream_bytes(answer.as_bytes()));
        let response = weir.ok("hi");
        eprintln!("{name}: {}", response.status);
        match expected {
            Text(text) => drop(response.assert_reply(text)),
            Failure(status, code) => response.assert_error(*status, *code),
        }
    }
}

fn text(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

#[test]
fn an_error_beside_a_choice_is_an_error() {
    let beside = |error: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"stop\"}}],\"error\":{error}}}\n\n")
    };
    let plain =
        r#"{"choices":[{"message":{"content":"partial"},"finish_reason":"stop"}],"error":{"message":"crashed"}}"#;
    let inside = r#"data: {"choices":[{"delta":{},"finish_reason":"stop","error":{"message":"crashed"}}]}"#;
    check(&[
        ("after text", text("partial") + &beside("{\"message\":\"crashed\"}"), Failure(502, "upstream_failure")),
        ("at once", beside("{\"message\":\"rate limited\",\"code\":429}"), Failure(503, "overloaded")),
        ("plain", plain.to_owned(), Failure(502, "upstream_failure")),
        ("in the choice", text("partial") + inside + "\n\n", Failure(502, "upstream_failure")),
        ("null is none", text("whole") + &beside("null"), Text("whole")),
    ]);
}

#[test]
fn an_event_that_is_called_an_error_is_understood_in_every_form() {
    check(&[
        ("event: error", format!("event: error\ndata: {OVERFLOW}\n\n"), Failure(400, "context_too_long")),
        (
            "in words",
            "event: error\ndata: Context size has been exceeded.\n\n".to_owned(),
            Failure(400, "context_too_long"),
        ),
        ("the field error", format!("error: {OVERFLOW}\n\n"), Failure(400, "context_too_long")),
        ("after text", text("The") + &format!("error: {OVERFLOW}\n\n"), Failure(400, "context_too_long")),
        ("msg", "data: {\"msg\":\"server is busy, please try again\"}\n\n".to_owned(), Failure(503, "overloaded")),
        ("bare, with [DONE]", format!("{OVERFLOW}\ndata: [DONE]\n\n"), Failure(400, "context_too_long")),
        (
            "an end that is none, and then the error",
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"error\"}]}\n\n".to_owned()
                + &format!("data: {OVERFLOW}\n\n"),
            Failure(400, "context_too_long"),
        ),
    ]);
}

#[test]
fn what_is_partial_is_never_an_answer() {
    let whole_objects = "data: {\"choices\":[{\"message\":{\"content\":\"Hel\"}}]}\n\n";
    let documents = r#"{"choices":[{"message":{"content":"one"},"finish_reason":"stop"}]}{"choices":[{"message":{"content":"two"},"finish_reason":"stop"}]}"#;
    check(&[
        ("messages in a stream without an end", whole_objects.to_owned(), Failure(502, "upstream_failure")),
        ("messages in a stream with one", whole_objects.to_owned() + STOP, Text("Hel")),
        ("two plain answers", documents.to_owned(), Text("one")),
        ("only [DONE]", text("Hel") + "data: [DONE]\n\n", Failure(502, "upstream_failure")),
    ]);
}

#[test]
fn what_comes_after_the_end_spoils_nothing_however_it_is_cut() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let whole = text("whole") + STOP;
    for rubbish in ["data: {oops\n\n", "data: {\"error\":\"late\"}\n\n"] {
        upstream.next(Script::stream_bytes(format!("{whole}{rubbish}").as_bytes()));
        weir.ok("hi").assert_reply("whole");
    }
}

#[test]
fn text_that_comes_after_an_end_shows_that_it_was_none() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let every = ["He", "l", "lo"].map(|text| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":\"stop\"}}]}}\n\n")
    });
    upstream.next(Script::stream_bytes(every.concat().as_bytes()).later(Duration::from_millis(1)));
    weir.ok("hi").assert_reply("Hello");
    let went_on = text("whole") + STOP + &text(", or not");
    let error = "data: {\"error\":\"late\"}\n\n";
    check(&[
        ("and then it ends", went_on.clone(), Text("whole, or not")),
        ("and then it fails", went_on.clone() + error, Failure(502, "upstream_failure")),
        ("and an end after all", went_on.clone() + STOP + error, Text("whole, or not")),
    ]);
    let lost = format!("HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{went_on}");
    upstream.next(Script::raw(lost.as_bytes()));
    weir.ok("hi").assert_error(502, "upstream_failure");
}

#[test]
fn reasoning_is_no_part_of_the_answer_in_any_form() {
    let parts = r#"data: {"choices":[{"delta":{"content":[{"type":"reasoning","text":"SECRET"},{"type":"text","text":"Hi"}]}}]}"#;
    let harmony =
        "<|start|>assistant<|channel|>analysis<|message|>SECRET<|end|><|start|>assistant<|channel|>final<|message|>Hi";
    check(&[("parts", format!("{parts}\n\n{STOP}"), Text("Hi")), ("channels", text(harmony) + STOP, Text("Hi"))]);
}

#[test]
fn a_reply_that_shows_nothing_is_none() {
    for nothing in ["\\u200b", "\\u0000", " \\n\\u00a0"] {
        check(&[(nothing, text(nothing) + STOP, Failure(502, "upstream_failure"))]);
    }
}
