//! The harness itself: what the other tests take for granted.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use std::time::Duration;

fn ask(upstream: &ScriptedUpstream, body: &serde_json::Value) -> Connection {
    Request::new(upstream.address(), "POST", "/v1/chat/completions").body(body.to_string()).open()
}

#[test]
fn the_scripted_upstream_records_and_answers_on_one_connection() {
    let upstream = ScriptedUpstream::start();
    upstream.next(Script::refusal(400, "first"));
    let mut connection = ask(&upstream, &say("one"));
    assert_eq!(connection.read().status, 400);
    let again = Request::new(upstream.address(), "POST", "/v1/chat/completions").body(say("two").to_string());
    connection.send(&again.bytes()).unwrap();
    let answer = connection.read();
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert!(String::from_utf8_lossy(&answer.body).contains("\"finish_reason\":\"stop\""));
    let chats = upstream.wait_for_chats(2);
    assert_eq!(chats[0].messages()[0]["content"], "one");
    assert_eq!(chats[1].messages()[0]["content"], "two");
    assert_eq!(chats[0].connection, chats[1].connection);
}

#[test]
fn the_scripted_upstream_notices_a_hang_up_in_every_kind_of_waiting() {
    let scripts = [
        Script::hang_before_head(),
        Script::hang_after_head(),
        Script::hang_mid_body(),
        Script::dribble(),
        Script::text("late").after(&Gate::new()),
        Script::text("late").later(CEILING),
    ];
    for script in scripts {
        let upstream = ScriptedUpstream::start();
        upstream.next(script);
        let connection = ask(&upstream, &say("one"));
        upstream.wait_for_chats(1);
        drop(connection);
        upstream.wait_closed(0);
    }
}

#[test]
fn the_scripted_upstream_resets_and_closes() {
    let upstream = ScriptedUpstream::start();
    upstream.next(Script::reset());
    let error = ask(&upstream, &say("one")).try_read(true).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    upstream.next(Script::close_at_once());
    let error = ask(&upstream, &say("one")).try_read(true).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    upstream.next(Script::close_mid_body());
    assert!(ask(&upstream, &say("one")).try_read(true).is_err());
}

#[test]
fn a_stopped_upstream_refuses_and_a_reserved_port_can_start_later() {
    let upstream = ScriptedUpstream::start();
    upstream.stop();
    assert!(std::net::TcpStream::connect(upstream.address()).is_err());
    let port = ReservedPort::new();
    let address = port.address();
    assert!(std::net::TcpStream::connect(address).is_err());
    let upstream = port.start();
    assert_eq!(Request::new(address, "GET", "/v1/models").send().status, 200);
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn the_echo_repeats_the_last_message() {
    let upstream = ScriptedUpstream::start();
    upstream.always(Script::echo());
    let answer = ask(&upstream, &say("marker")).read();
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(text.contains("echo"), "{text}");
}

#[test]
fn a_gate_lets_through_once_it_is_open() {
    let gate = Gate::new();
    assert!(!gate.wait(Duration::from_millis(1)));
    gate.open();
    assert!(gate.wait(Duration::from_millis(1)));
}

#[test]
fn the_canary_is_found_in_every_alignment_of_base64() {
    let forms = canary_forms();
    for skipped in 0..3usize {
        let encoded = base64(&[&vec![7u8; skipped][..], CANARY.as_bytes(), b"behind"].concat());
        assert!(forms.iter().any(|form| encoded.contains(form)), "{skipped}");
    }
    for picture in [png(9, 0), jpeg(1), gif(), webp(), bmp(), heic(), avif(), svg()] {
        let encoded = base64(&picture);
        assert!(forms.iter().any(|form| encoded.contains(form)));
    }
}

#[test]
fn the_output_of_a_weir_is_searched_for_every_form_of_the_canary_and_for_panics() {
    let shown = [
        "a text with CANARY-7f3a in it".to_owned(),
        format!("{:?}", CANARY.as_bytes()),
        serde_json::to_string(CANARY.as_bytes()).unwrap(),
        CANARY.bytes().map(|byte| format!("{byte:x}")).collect(),
        png_uri(1),
        jpeg_uri(2),
        "thread 'main' panicked at src/main.rs:1".to_owned(),
    ];
    for output in shown {
        let found = std::panic::catch_unwind(|| assert_no_canary(&format!("first line\n{output}\nlast line"))).is_err();
        assert!(found, "{output}");
    }
    assert_no_canary("INFO turn outcome=\"answered\" status=200");
}

#[test]
fn a_body_of_a_size_has_that_size_and_is_json() {
    let body = body_of_size(1000);
    assert_eq!(body.len(), 1000);
    assert!(serde_json::from_slice::<serde_json::Value>(&body).is_ok());
}
