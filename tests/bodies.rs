//! Chapter D: the size of a body and how it is framed.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;
use std::time::{Duration, Instant};

const FLOOR: usize = 52_428_800;

#[test]
fn row_037_a_body_of_the_contracts_floor_is_answered() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let body = body_of_size(FLOOR);
    weir.chat_bytes(body).assert_reply(REPLY);
    let arrived = upstream.last_chat();
    let content = arrived.messages()[0]["content"].as_str().unwrap().len();
    assert_eq!(content, FLOOR - br#"{"messages":[{"role":"user","content":""}],"stream":false}"#.len());
}

#[test]
fn row_038_a_body_of_exactly_the_cap_is_read_and_one_byte_more_is_413_unread() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).limit("body = \"50 MiB\"").start();
    // Valid JSON is not needed to see that it was read: its refusal comes from the parser, not from the cap.
    let mut exact = vec![b' '; FLOOR];
    exact[0] = b'{';
    weir.chat_bytes(exact).assert_error(400, None);
    let over = weir.chat_request("").header("Content-Length", (FLOOR + 1).to_string());
    let mut connection = weir.connect();
    connection.send(&over.head_bytes()).unwrap();
    connection.read().assert_error(413, None);
    upstream.assert_no_chat();
}

#[test]
fn row_038_the_default_cap_is_64_mib() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let over = weir.chat_request("").header("Content-Length", (64 * 1024 * 1024 + 1).to_string());
    let mut connection = weir.connect();
    connection.send(&over.head_bytes()).unwrap();
    connection.read().assert_error(413, None);
    let exact =
        weir.chat_request("").header("Content-Length", (64 * 1024 * 1024).to_string()).header("Expect", "100-continue");
    let mut connection = weir.connect();
    connection.send(&exact.head_bytes()).unwrap();
    assert_eq!(connection.read_head().unwrap().status, 100);
}

#[test]
fn row_038_a_cap_under_the_contracts_floor_refuses_to_start() {
    for cap in ["\"49 MiB\"", "\"50 MB\"", "\"1 MiB\""] {
        let upstream = ScriptedUpstream::start();
        let refusal = Weir::before(&upstream).limit(&format!("body = {cap}")).refused();
        assert_eq!(refusal.code, 2, "{cap}");
        assert!(refusal.output.contains("body"), "{}", refusal.output);
    }
}

#[test]
fn row_039_a_chunked_body_over_the_cap_is_413_and_memory_stays_bounded() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).limit("body = \"50 MiB\"").start();
    let head = weir.chat_request("").without("Content-Length").header("Transfer-Encoding", "chunked");
    let mut connection = weir.connect();
    connection.send(&head.head_bytes()).unwrap();
    let mut chunk = format!("{:x}\r\n", 1024 * 1024).into_bytes();
    chunk.extend(std::iter::repeat_n(b'x', 1024 * 1024));
    chunk.extend_from_slice(b"\r\n");
    // Read to the cap, and then discarded for a bounded while, so that the refusal can be read.
    let written = (0..1000).take_while(|_| connection.send(&chunk).is_ok()).count();
    assert!(written < 400, "it read {written} MiB of a body that may have 50");
    upstream.assert_no_chat();
    if let Some(peak) = weir.memory("VmHWM") {
        assert!(peak < 170 * 1024, "a peak of {peak} KiB for a body of 50 MiB");
    }
    // Just over the cap and then complete, so that the answer can be read.
    let over = weir.chat_request("").chunked(&vec![b'x'; FLOOR + 1], 1024 * 1024);
    over.send().assert_error(413, None);
}

#[test]
fn row_040_a_wrong_token_comes_before_the_cap() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let over = weir.chat_request("").header("Content-Length", "100000000").token(b"CANARY-7f3a-wrong");
    let mut connection = weir.connect();
    connection.send(&over.head_bytes()).unwrap();
    connection.read().assert_error(401, None);
}

#[test]
fn row_041_a_chunked_body_is_answered() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let body = say(secret("hi")).to_string();
    for size in [1, 7, body.len()] {
        weir.chat_request("").chunked(body.as_bytes(), size).send().assert_reply(REPLY);
        let sent = upstream.last_chat();
        assert_eq!(sent.messages()[0]["content"], secret("hi"));
        // Some servers refuse a body without a length.
        assert_eq!(sent.header("content-length"), Some(sent.body.len().to_string().as_str()));
        assert_eq!(sent.header("content-type"), Some("application/json"));
    }
}

#[test]
fn row_042_no_length_and_no_chunks_is_an_empty_body() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    weir.request("POST", "/v1/chat/completions").send().assert_error(400, None);
    weir.chat_request("").send().assert_error(400, None);
    upstream.assert_no_chat();
}

#[test]
fn row_043_a_length_beside_chunks_smuggles_nothing() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let body = format!("{}\r\n\r\n", say("hi"));
    let good = weir.request("GET", "/v1/models");
    let lengths = ["4".to_owned(), "100000".to_owned(), body.len().to_string()];
    for length in lengths {
        for length_first in [true, false] {
            let request = weir.chat_request("").chunked(body.as_bytes(), 1000);
            let request = if length_first {
                let request = request.without("Transfer-Encoding").header("Content-Length", &length);
                request.header("Transfer-Encoding", "chunked")
            } else {
                request.header("Content-Length", &length)
            };
            let mut connection = weir.connect();
            connection.send(&[request.bytes(), good.bytes()].concat()).unwrap();
            let answer = connection.read();
            assert!([200, 400].contains(&answer.status), "{}", answer.status);
            if let Ok(next) = connection.try_read(true) {
                assert_eq!(next.status, 200);
                assert!(next.json()["data"].is_array(), "an answer to a request nobody framed");
            }
            connection.half_close();
            assert!(connection.ends(), "a third answer to two requests");
        }
    }
}

#[test]
fn row_043_an_ambiguous_length_is_400_and_closed() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let body = say("hi").to_string();
    let request = weir.chat_request(body.clone());
    let bad = [
        request.clone().add_header("Content-Length", (body.len() + 1).to_string()),
        request.clone().header("Content-Length", format!("+{}", body.len())),
        request.clone().header("Content-Length", "-1"),
        request.clone().header("Content-Length", "1 2"),
        request.clone().header("Content-Length", "0x10"),
        request.header("Content-Length", "99999999999999999999999999"),
    ];
    for request in bad {
        let mut connection = request.open();
        let answer = connection.read();
        assert_eq!(answer.status, 400);
        connection.half_close();
        assert!(connection.ends());
    }
    upstream.assert_no_chat();
}

#[test]
fn row_044_a_compressed_body_is_refused_and_never_inflated() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for encoding in ["gzip", "deflate", "br", "zstd", "gzip, gzip"] {
        let chat = weir.chat_request(say("hi").to_string()).header("Content-Encoding", encoding);
        chat.send().assert_error(400, None);
    }
    upstream.assert_no_chat();
    let plain = weir.chat_request(say("hi").to_string()).header("Content-Encoding", "identity");
    plain.send().assert_reply(REPLY);
}

#[test]
fn row_045_the_content_type_is_ignored() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let chat = weir.chat_request(say("hi").to_string());
    chat.clone().without("Content-Type").send().assert_reply(REPLY);
    for kind in ["text/plain", "application/json; charset=latin-1", "multipart/form-data", "nonsense"] {
        chat.clone().header("Content-Type", kind).send().assert_reply(REPLY);
    }
    assert_eq!(upstream.last_chat().header("content-type"), Some("application/json"));
}

#[test]
fn row_046_a_truncated_body_goes_nowhere() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let request = weir.chat_request(say(secret("hi")).to_string());
    let bytes = request.bytes();
    for cut in [bytes.len() - 1, bytes.len() - 20] {
        let mut connection = weir.connect();
        connection.send(&bytes[..cut]).unwrap();
        connection.half_close();
        if let Ok(answer) = connection.try_read(true) {
            answer.assert_error(400, None);
        }
    }
    let chunked = weir.chat_request("").chunked(say("hi").to_string().as_bytes(), 10).bytes();
    let mut connection = weir.connect();
    connection.send(&chunked[..chunked.len() - 5]).unwrap();
    drop(connection);
    request.send().assert_reply(REPLY);
    assert_eq!(upstream.chat_count(), 1);
}

#[test]
fn row_047_the_time_of_the_upload_does_not_count_for_the_turn() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).turn("2s").start();
    let body = say(secret("hi")).to_string();
    let request = weir.chat_request(body.clone());
    let mut connection = weir.connect();
    connection.send(&request.head_bytes()).unwrap();
    for piece in body.as_bytes().chunks(body.len().div_ceil(6)) {
        std::thread::sleep(Duration::from_millis(500));
        connection.send(piece).unwrap();
    }
    connection.read().assert_reply(REPLY);
}

#[test]
fn row_047_a_body_that_does_not_come_is_given_up() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).timeout("body = \"1s\"").start();
    let request = weir.chat_request(say("hi").to_string());
    let mut connection = weir.connect();
    connection.send(&request.head_bytes()).unwrap();
    connection.send(b"{\"mess").unwrap();
    let start = Instant::now();
    if let Ok(answer) = connection.try_read(true) {
        assert!((400..500).contains(&answer.status), "{}", answer.status);
        assert!(answer.closes());
    }
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    upstream.assert_no_chat();
}

#[test]
fn row_048_bodies_beyond_the_byte_budget_are_turned_away() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).limit("in_flight = \"70 MiB\"").start();
    let body = body_of_size(FLOOR);
    let large = weir.chat_request(body.clone()).header("Expect", "100-continue");
    let mut first = weir.connect();
    first.send(&large.head_bytes()).unwrap();
    assert_eq!(first.read_head().unwrap().status, 100);
    let mut second = weir.connect();
    second.send(&large.head_bytes()).unwrap();
    let answer = second.read();
    assert_eq!(answer.informational, [] as [u16; 0]);
    answer.assert_overloaded();
    // A small turn still fits, and the budget comes back.
    weir.ok("hi").assert_reply(REPLY);
    first.send(&body).unwrap();
    first.read().assert_reply(REPLY);
    weir.chat_bytes(body).assert_reply(REPLY);
}
