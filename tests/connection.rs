//! Chapter C: what happens to a connection after an early answer.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;
use std::time::{Duration, Instant};

const SIZES: [usize; 3] = [1, 65_536, 5 * 1024 * 1024];

#[test]
fn row_031_two_refusals_on_one_connection() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let bad = weir.chat_request(say("hi").to_string()).token(b"CANARY-7f3a-wrong");
    let mut connection = weir.connect();
    connection.send(&bad.bytes()).unwrap();
    let answer = connection.read();
    answer.assert_error(401, None);
    if answer.closes() {
        assert!(connection.ends());
        connection = weir.connect();
    }
    connection.send(&bad.bytes()).unwrap();
    connection.read().assert_error(401, None);
}

/// Sends the request with each size of body; afterwards the connection is usable, or its end was announced.
fn assert_clean(weir: &Weir, status: u16, request: impl Fn(usize) -> Request) {
    for size in SIZES {
        let mut connection = weir.connect();
        let _ = connection.send(&request(size).bytes());
        let answer = connection.read();
        answer.assert_error(status, None);
        connection.assert_usable_or_closed(&answer, &weir.request("GET", "/v1/models"));
    }
}

#[test]
fn row_032_after_401_the_connection_is_usable_or_announced_closed() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    assert_clean(&weir, 401, |size| weir.chat_request(vec![b'x'; size]).token(b"CANARY-7f3a-wrong"));
}

#[test]
fn row_032_after_404_the_connection_is_usable_or_announced_closed() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    assert_clean(&weir, 404, |size| weir.request("POST", "/v1/nowhere").body(vec![b'x'; size]));
}

#[test]
fn row_032_after_405_the_connection_is_usable_or_announced_closed() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    assert_clean(&weir, 405, |size| weir.request("POST", "/v1/models").body(vec![b'x'; size]));
}

#[test]
fn row_032_after_an_early_400_the_connection_is_usable_or_announced_closed() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    assert_clean(&weir, 400, |size| weir.chat_request(vec![b'x'; size]).header("Content-Encoding", "gzip"));
    assert_clean(&weir, 400, |size| weir.chat_request(vec![b'x'; size]));
}

#[test]
fn row_032_after_413_the_connection_is_announced_closed() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).limit("body = \"50 MiB\"").start();
    for size in SIZES {
        let mut connection = weir.connect();
        let request = weir.chat_request(vec![b'x'; size]).header("Content-Length", "52428801");
        let _ = connection.send(&request.bytes());
        let answer = connection.read();
        answer.assert_error(413, None);
        // The rest of the body is still to come: nothing after it can be a request.
        assert!(answer.closes());
        connection.half_close();
        assert!(connection.ends());
    }
}

#[test]
fn row_033_a_pipelined_request_behind_a_refused_one() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let bad = weir.chat_request(say("hi").to_string()).token(b"CANARY-7f3a-wrong");
    let good = weir.request("GET", "/v1/models");
    let mut connection = weir.connect();
    connection.send(&[bad.bytes(), good.bytes()].concat()).unwrap();
    let answer = connection.read();
    answer.assert_error(401, None);
    if answer.closes() {
        assert!(connection.ends());
    } else {
        assert_eq!(connection.read().status, 200);
    }
}

#[test]
fn row_034_a_client_that_writes_first_can_read_its_401() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let refused = weir.chat_request(vec![b'x'; 60_000_000]).token(b"CANARY-7f3a-wrong").bytes();
    for round in 0..5 {
        let mut connection = weir.connect();
        connection.send(&refused).unwrap_or_else(|error| panic!("round {round}: gave up writing: {error}"));
        connection.read().assert_error(401, None);
    }
}

#[test]
fn row_034_a_body_far_over_the_cap_can_be_written_whole_before_its_refusal_is_read() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).limit("body = \"50 MiB\"").start();
    let body = vec![b'x'; 150_000_000];
    let good = weir.chat_request(body.clone());
    let refusals = [(413, good), (401, weir.chat_request(body).token(b"CANARY-7f3a-wrong"))];
    for (status, request) in refusals {
        let mut connection = weir.connect();
        connection.send(&request.bytes()).unwrap_or_else(|error| panic!("{status}: gave up writing: {error}"));
        connection.read().assert_error(status, None);
    }
}

#[test]
fn row_035_a_trickle_after_a_refusal_is_cut_off() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let endless = weir.chat_request("").token(b"CANARY-7f3a-wrong").header("Content-Length", "1000000000000");
    let mut connection = weir.connect();
    connection.send(&endless.head_bytes()).unwrap();
    let answer = connection.read();
    answer.assert_error(401, None);
    assert!(answer.closes());
    let start = Instant::now();
    while connection.send(b"x").is_ok() {
        assert!(start.elapsed() < Duration::from_secs(12), "it still listens to the trickle");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn row_035_a_flood_after_a_refusal_is_cut_off() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).limit("body = \"50 MiB\"").start();
    let endless = weir.chat_request("").token(b"CANARY-7f3a-wrong").header("Content-Length", "1000000000000");
    let mut connection = weir.connect();
    connection.send(&endless.head_bytes()).unwrap();
    let piece = vec![b'x'; 1024 * 1024];
    let written = (0..1000).take_while(|_| connection.send(&piece).is_ok()).count();
    assert!(written < 400, "it read {written} MiB after the refusal");
}

#[test]
fn row_036_after_a_fully_read_refusal_the_connection_is_reused_or_closed() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let bad = weir.chat_request("[]");
    let mut connection = weir.connect();
    connection.send(&bad.bytes()).unwrap();
    let answer = connection.read();
    answer.assert_error(400, None);
    let good = weir.chat_request(say("hi").to_string());
    connection.assert_usable_or_closed(&answer, &good);
}

#[test]
fn row_036_turns_share_a_kept_connection() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let turn = weir.chat_request(say("hi").to_string());
    let mut connection = weir.connect();
    for _ in 0..3 {
        connection.send(&turn.bytes()).unwrap();
        let answer = connection.read();
        answer.assert_reply(REPLY);
        if answer.closes() {
            return;
        }
    }
}
