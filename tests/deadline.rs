//! Chapter M: time, places, hang-ups. The real deadline is 285 s; here it is short.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;
use serde_json::json;
use std::time::{Duration, Instant};

/// In front of this model server with a deadline of two seconds.
fn two_seconds(upstream: &ScriptedUpstream) -> Builder {
    Weir::before(upstream).turn("2s")
}

/// Where one turn has to wait behind another for all of its time: it may come up to 0.8 s later, and still never starts.
fn eight_seconds(upstream: &ScriptedUpstream) -> Builder {
    Weir::before(upstream).timeout("turn = \"8s\"")
}

/// The deadline was kept, give or take a second.
fn assert_at_deadline(start: Instant) {
    let passed = start.elapsed();
    assert!(passed > Duration::from_millis(1_000) && passed < Duration::from_millis(3_000), "{passed:?}");
}

#[test]
fn row_139_every_way_to_hang_is_504_at_the_deadline_without_a_word_of_the_partial_text() {
    let hangs = [Script::hang_before_head(), Script::hang_after_head(), Script::hang_mid_body(), Script::dribble()];
    let running: Vec<_> = hangs
        .into_iter()
        .map(|script| {
            spawn(move || {
                let upstream = ScriptedUpstream::start();
                upstream.always(script);
                let weir = two_seconds(&upstream).start();
                let start = Instant::now();
                weir.ok("hi").assert_error(504, "upstream_timeout");
                assert_at_deadline(start);
                assert_eq!(upstream.chat_count(), 1);
            })
        })
        .collect();
    for each in running {
        each.join().unwrap();
    }
}

#[test]
fn row_140_the_clock_starts_at_the_last_byte_of_the_body() {
    let upstream = ScriptedUpstream::start();
    upstream.always(Script::hang_before_head());
    let weir = two_seconds(&upstream).start();
    let body = say(secret("hi")).to_string();
    let request = weir.chat_request(body.clone());
    let mut connection = weir.connect();
    connection.send(&request.head_bytes()).unwrap();
    for piece in body.as_bytes().chunks(body.len().div_ceil(5)) {
        std::thread::sleep(Duration::from_millis(500));
        connection.send(piece).unwrap();
    }
    let start = Instant::now();
    connection.read().assert_error(504, "upstream_timeout");
    assert_at_deadline(start);
}

#[test]
fn row_141_a_turn_that_never_starts_is_overloaded_and_never_504() {
    let upstream = ScriptedUpstream::start();
    upstream.always(Script::hang_before_head());
    let weir = eight_seconds(&upstream).upstream_setting("concurrency = 1").start();
    let mut first = weir.chat_request(say("first").to_string()).open();
    upstream.wait_for_chats(1);
    let start = Instant::now();
    weir.chat(&say("second")).assert_overloaded();
    assert!(start.elapsed() < Duration::from_millis(8_500), "{:?}", start.elapsed());
    first.read().assert_error(504, "upstream_timeout");
}

#[test]
fn row_142_at_the_deadline_the_model_server_is_hung_up_on_and_the_place_is_free() {
    let upstream = ScriptedUpstream::start();
    upstream.next(Script::hang_mid_body());
    let weir = two_seconds(&upstream).upstream_setting("concurrency = 1").start();
    weir.ok("hi").assert_error(504, "upstream_timeout");
    let answered = Instant::now();
    let closed = upstream.wait_closed(0);
    assert!(closed.saturating_duration_since(answered) < Duration::from_secs(1));
    weir.ok("next").assert_reply(REPLY);
}

#[test]
fn row_143_a_turn_whose_time_passed_in_the_queue_is_never_sent() {
    let upstream = ScriptedUpstream::start();
    upstream.next(Script::hang_before_head());
    let weir = eight_seconds(&upstream).upstream_setting("concurrency = 1").start();
    let mut first = weir.chat_request(say("first").to_string()).open();
    upstream.wait_for_chats(1);
    weir.chat(&say("second")).assert_overloaded();
    first.read().assert_error(504, "upstream_timeout");
    weir.chat(&say("third")).assert_reply(REPLY);
    let sent: Vec<_> = upstream.chats().iter().map(|chat| chat.messages()[0]["content"].clone()).collect();
    assert_eq!(sent, ["first", "third"]);
}

#[test]
fn row_144_a_reply_before_the_deadline_is_200_and_one_after_it_is_504_only() {
    let upstream = ScriptedUpstream::start();
    upstream.next(Script::text("in time").later(Duration::from_millis(1_200)));
    upstream.next(Script::text("too late").later(Duration::from_millis(3_500)));
    let weir = two_seconds(&upstream).start();
    weir.ok("hi").assert_reply("in time");
    let mut connection = weir.chat_request(say("hi").to_string()).open();
    connection.read().assert_error(504, "upstream_timeout");
    upstream.wait_closed(1);
    assert!(!connection.answers_within(Duration::from_millis(300)), "a second answer");
}

/// With one place taken and one place to wait: which of two more turns waits, the other having got its 429.
fn one_waits(weir: &Weir) -> Connection {
    let request = weir.chat_request(say("waits").to_string());
    let mut pair = [request.open(), request.open()];
    let until = Instant::now() + CEILING;
    loop {
        for index in 0..2 {
            if pair[index].answers_within(Duration::from_millis(50)) {
                let answer = pair[index].read();
                answer.assert_error(429, "overloaded");
                assert!(answer.header("retry-after").is_some());
                let [first, second] = pair;
                return if index == 0 { second } else { first };
            }
        }
        assert!(Instant::now() < until, "neither of two turns for one place to wait was turned away");
    }
}

fn one_place_and_one_to_wait(upstream: &ScriptedUpstream) -> Weir {
    Weir::before(upstream).upstream_setting("concurrency = 1").limit("queue = 1").start()
}

#[test]
fn row_144_an_answer_that_is_whole_by_the_deadline_is_given_though_its_stream_does_not_end() {
    let upstream = ScriptedUpstream::start();
    let mut events = text_events(REPLY, "stop");
    assert_eq!(events.pop().unwrap(), "[DONE]");
    let script = Script::events(&events);
    upstream.always(Script::from_fn(move |request| {
        let mut steps = script.for_request(request);
        if let Some(Step::Send(bytes)) = steps.first_mut() {
            // Without its last chunk.
            bytes.truncate(bytes.len() - 5);
        }
        steps.push(Step::Hang);
        steps
    }));
    let weir = two_seconds(&upstream).start();
    let start = Instant::now();
    weir.ok("hi").assert_reply(REPLY);
    assert_at_deadline(start);
}

#[test]
fn row_145_a_full_queue_is_429_at_once() {
    let upstream = ScriptedUpstream::start();
    let gate = Gate::new();
    upstream.always(Script::text(REPLY).after(&gate));
    let weir = one_place_and_one_to_wait(&upstream);
    let mut first = weir.chat_request(say("first").to_string()).open();
    upstream.wait_for_chats(1);
    let mut waiting = one_waits(&weir);
    let start = Instant::now();
    let answer = weir.ok("one too many");
    answer.assert_error(429, "overloaded");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=300).contains(&seconds));
    assert_eq!(upstream.chat_count(), 1);
    gate.open();
    first.read().assert_reply(REPLY);
    waiting.read().assert_reply(REPLY);
    assert_eq!(upstream.chat_count(), 2);
}

#[test]
fn row_145_a_turn_that_has_no_chance_by_what_turns_took_lately_is_429_at_once() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).timeout("turn = \"6s\"").upstream_setting("concurrency = 1").start();
    for _ in 0..4 {
        upstream.next(Script::text(REPLY).later(Duration::from_millis(1_800)));
        weir.ok("one of a few that tell how long turns take").assert_reply(REPLY);
    }
    let gate = Gate::new();
    upstream.always(Script::text(REPLY).after(&gate));
    let turn = weir.chat_request(say("hi").to_string());
    let mut running = turn.open();
    upstream.wait_for_chats(5);
    // Of three more, the last in the line would start after more than five seconds.
    let mut waiting = [turn.open(), turn.open(), turn.open()];
    let start = Instant::now();
    let refused = loop {
        let answered = waiting.iter().position(|connection| connection.answers_within(Duration::from_millis(20)));
        assert!(start.elapsed() < Duration::from_secs(1), "nobody was turned away");
        if let Some(index) = answered {
            break index;
        }
    };
    waiting[refused].read().assert_error(429, "overloaded");
    gate.open();
    running.read().assert_reply(REPLY);
    for (_, connection) in waiting.iter_mut().enumerate().filter(|(index, _)| *index != refused) {
        connection.read().assert_reply(REPLY);
    }
    assert_eq!(upstream.chat_count(), 7);
}

#[test]
fn row_146_a_phone_that_hangs_up_while_waiting_gives_its_place_back() {
    let upstream = ScriptedUpstream::start();
    let gate = Gate::new();
    upstream.always(Script::text(REPLY).after(&gate));
    let weir = one_place_and_one_to_wait(&upstream);
    let mut first = weir.chat_request(say("first").to_string()).open();
    upstream.wait_for_chats(1);
    drop(one_waits(&weir));
    // The place to wait is free again once a later turn is not turned away at once.
    let until = Instant::now() + CEILING;
    let mut later = loop {
        let mut later = weir.chat_request(say("later").to_string()).open();
        if !later.answers_within(Duration::from_millis(400)) {
            break later;
        }
        later.read().assert_error(429, "overloaded");
        assert!(Instant::now() < until, "the place to wait was never given back");
    };
    gate.open();
    first.read().assert_reply(REPLY);
    later.read().assert_reply(REPLY);
    let sent: Vec<_> = upstream.chats().iter().map(|chat| chat.messages()[0]["content"].clone()).collect();
    assert_eq!(sent, ["first", "later"]);
}

#[test]
fn row_146_a_phone_that_hangs_up_ends_the_running_turn() {
    for script in [Script::hang_before_head(), Script::hang_after_head(), Script::dribble()] {
        let upstream = ScriptedUpstream::start();
        upstream.next(script);
        let weir = Weir::before(&upstream).upstream_setting("concurrency = 1").start();
        let connection = weir.chat_request(say("hi").to_string()).open();
        upstream.wait_for_chats(1);
        let left = Instant::now();
        drop(connection);
        let closed = upstream.wait_closed(0);
        assert!(closed.saturating_duration_since(left) < Duration::from_secs(2));
        weir.ok("next").assert_reply(REPLY);
        assert_eq!(upstream.chat_count(), 2);
    }
}

/// What makes Weir ask a second time, and a server that says nothing to that.
fn calls_a_tool_and_hangs() -> ScriptedUpstream {
    let upstream = ScriptedUpstream::start();
    let call = json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": null,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]}}]});
    upstream.next(Script::json(200, &call));
    upstream.next(Script::hang_before_head());
    upstream
}

#[test]
fn row_146_a_phone_that_hangs_up_while_its_turn_is_asked_a_second_time_ends_that_too() {
    let upstream = calls_a_tool_and_hangs();
    let weir = Weir::before(&upstream).upstream_setting("concurrency = 1").start();
    let connection = weir.chat_request(say("hi").to_string()).open();
    upstream.wait_for_chats(2);
    drop(connection);
    upstream.wait_closed(1);
    weir.ok("next").assert_reply(REPLY);
    assert_eq!(upstream.chat_count(), 3);
}

#[test]
fn row_139_the_deadline_counts_for_both_times_that_a_turn_is_asked() {
    let upstream = calls_a_tool_and_hangs();
    let weir = two_seconds(&upstream).start();
    let start = Instant::now();
    weir.ok("hi").assert_error(504, "upstream_timeout");
    assert_at_deadline(start);
    upstream.wait_closed(1);
    weir.ok("next").assert_reply(REPLY);
}

#[test]
fn row_147_a_half_close_is_a_hang_up() {
    let upstream = ScriptedUpstream::start();
    upstream.next(Script::hang_before_head());
    let weir = Weir::in_front_of(&upstream);
    let connection = weir.chat_request(say("hi").to_string()).open();
    upstream.wait_for_chats(1);
    let left = Instant::now();
    connection.half_close();
    let closed = upstream.wait_closed(0);
    assert!(closed.saturating_duration_since(left) < Duration::from_secs(2));
}

#[test]
fn row_148_parallel_conversations_never_mix() {
    let upstream = ScriptedUpstream::start();
    upstream.always(Script::echo());
    let weir = Weir::before(&upstream).upstream_setting("concurrency = 8").start();
    std::thread::scope(|scope| {
        for conversation in 0..4 {
            let weir = &weir;
            scope.spawn(move || {
                let mut connection = weir.connect();
                for round in 0..100 {
                    let message = format!("marker {conversation} {round} {CANARY}");
                    let request = weir.chat_request(say(message.as_str()).to_string());
                    connection.send(&request.bytes()).unwrap();
                    let answer = connection.read();
                    answer.assert_reply(&format!("echo {message}"));
                    if answer.closes() {
                        connection = weir.connect();
                    }
                }
            });
        }
    });
    assert_eq!(upstream.chat_count(), 400);
}

#[test]
fn row_149_a_turn_that_may_have_started_is_never_sent_again() {
    let scripts = [
        Script::reset(),
        Script::close_at_once(),
        Script::reset_mid_body(),
        Script::close_mid_body(),
        Script::refusal(500, "the runner has crashed"),
        Script::body(502, "text/html", b"<html>bad gateway</html>"),
        Script::raw(b"HTTP/1.1 200 OK\r\n"),
    ];
    for script in scripts {
        let upstream = ScriptedUpstream::start();
        // Nothing before this turn, so the connection cannot be one that had gone stale.
        upstream.close_after_discovery();
        upstream.always(script);
        let weir = Weir::in_front_of(&upstream);
        weir.ok("hi").assert_error(502, "upstream_failure");
        assert_eq!(upstream.chat_count(), 1);
    }
}

/// On how many connections turns came.
fn connections(upstream: &ScriptedUpstream) -> usize {
    upstream.chats().iter().map(|chat| chat.connection).collect::<std::collections::HashSet<_>>().len()
}

#[test]
fn row_149_a_connection_that_the_server_keeps_is_used_for_the_next_turn_and_not_for_long() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for script in [Script::text(REPLY), Script::refusal(400, "no"), Script::text(REPLY)] {
        upstream.next(script);
        weir.ok("hi");
    }
    assert_eq!((upstream.chat_count(), connections(&upstream)), (3, 1));
    let answered = Instant::now();
    // uvicorn, cpp-httplib and LM Studio hang up after 5 s.
    let idle = upstream.wait_closed(2) - answered;
    assert!(idle > Duration::from_secs(2), "{idle:?}");
}

#[test]
fn row_149_toward_llama_server_each_turn_has_a_connection_of_its_own_since_it_hangs_up_without_a_word() {
    let upstream = ScriptedUpstream::llamacpp(false);
    let weir = Weir::in_front_of(&upstream);
    for _ in 0..3 {
        weir.ok("hi").assert_reply(REPLY);
    }
    assert_eq!(connections(&upstream), 3);
    assert!(upstream.chats().iter().all(|chat| chat.header("connection") == Some("close")));
}

#[test]
fn row_149_a_turn_that_met_a_connection_just_being_closed_is_sent_once_more_on_a_new_one() {
    for closing in [Script::close_at_once(), Script::reset()] {
        let upstream = ScriptedUpstream::start();
        let weir = Weir::in_front_of(&upstream);
        weir.ok("one").assert_reply(REPLY);
        upstream.next(closing.clone());
        weir.ok("two").assert_reply(REPLY);
        assert_eq!((upstream.chat_count(), connections(&upstream)), (3, 2));
        upstream.always(closing);
        weir.ok("three").assert_error(502, "upstream_failure");
        assert_eq!(upstream.chat_count(), 5, "only once");
    }
}

#[test]
fn row_149_a_turn_that_was_given_up_on_a_kept_connection_is_not_sent_again_once_it_may_have_begun() {
    let given_up = [
        // Nobody takes more than a second to close a connection that is closed already.
        Script::close_at_once().later(Duration::from_millis(1_500)),
        Script::raw(b"HTTP/1.1 102 Processing\r\n\r\n"),
        Script::raw(b"H"),
        Script::close_mid_body(),
        Script::reset_mid_body(),
    ];
    for script in given_up {
        let upstream = ScriptedUpstream::start();
        let weir = Weir::in_front_of(&upstream);
        weir.ok("one").assert_reply(REPLY);
        upstream.next(script);
        weir.ok("two").assert_error(502, "upstream_failure");
        assert_eq!((upstream.chat_count(), connections(&upstream)), (2, 1));
    }
}

#[test]
fn row_149_what_is_left_of_an_answer_is_never_taken_for_the_next_one() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let whole = Script::text("the first").for_request(&upstream.requests()[0]);
    let Some(Step::Send(bytes)) = whole.first() else { panic!("a script of one step") };
    // The same answer twice, as a server does that answers a request which nobody made.
    upstream.next(Script::steps(vec![Step::Send([&bytes[..], &bytes[..]].concat())]));
    weir.ok("one").assert_reply("the first");
    weir.ok("two").assert_reply(REPLY);
    assert_eq!(connections(&upstream), 2);
}

#[test]
fn row_149_a_turn_whose_answer_breaks_off_anywhere_is_not_sent_again() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let broken: [&[u8]; 6] = [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Ty",
        b"NOT HTTP AT ALL\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 102 Processing\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {",
    ];
    for (sent_before, answer) in broken.into_iter().enumerate() {
        upstream.next(Script::raw(answer));
        weir.ok("hi").assert_error(502, "upstream_failure");
        assert_eq!(upstream.chat_count(), sent_before + 1, "{}", String::from_utf8_lossy(answer));
    }
}

#[test]
fn row_149_a_model_server_that_is_back_within_seconds_gets_the_turn() {
    let upstream = ScriptedUpstream::start();
    let address = upstream.address();
    let weir = Weir::before(&upstream).turn("20s").start();
    weir.ok("one").assert_reply(REPLY);
    upstream.stop();
    drop(upstream);
    let mut waiting = weir.chat_request(say(secret("two")).to_string()).open();
    let at_once = waiting.answers_within(Duration::from_millis(300));
    assert!(!at_once, "a refused connection is not a started turn and is tried again");
    let again = ReservedPort::bind(address).unwrap().start();
    waiting.read().assert_reply(REPLY);
    assert_eq!(again.chat_count(), 1);
}

#[test]
fn row_149_a_model_server_that_was_alive_lately_and_stays_away_is_503() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).turn("10s").start();
    weir.ok("one").assert_reply(REPLY);
    upstream.stop();
    weir.ok("two").assert_error(503, "overloaded");
}

#[test]
fn row_150_at_a_stop_the_running_turn_is_finished_and_nothing_new_is_taken() {
    let upstream = ScriptedUpstream::start();
    let gate = Gate::new();
    upstream.always(Script::text(REPLY).after(&gate));
    let mut weir = Weir::before(&upstream).timeout("shutdown = \"10s\"").start();
    let mut running = weir.chat_request(say("hi").to_string()).open();
    upstream.wait_for_chats(1);
    weir.terminate();
    let until = Instant::now() + CEILING;
    while std::net::TcpStream::connect(weir.address()).is_ok() {
        assert!(Instant::now() < until, "it still accepts");
        std::thread::sleep(Duration::from_millis(10));
    }
    gate.open();
    let answer = running.read();
    if answer.status == 200 {
        answer.assert_reply(REPLY);
    } else {
        answer.assert_error(503, "overloaded");
    }
    assert_eq!(weir.wait_end().code(), Some(0));
}

#[test]
fn row_150_a_turn_that_does_not_end_in_the_grace_is_503() {
    let upstream = ScriptedUpstream::start();
    upstream.always(Script::hang_before_head());
    let mut weir = Weir::before(&upstream).timeout("shutdown = \"1s\"").start();
    let mut running = weir.chat_request(say("hi").to_string()).open();
    upstream.wait_for_chats(1);
    let start = Instant::now();
    weir.terminate();
    running.read().assert_error(503, "overloaded");
    assert_eq!(weir.wait_end().code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    upstream.wait_closed(0);
}

#[test]
fn row_150_an_idle_weir_stops_at_once() {
    let upstream = ScriptedUpstream::start();
    let mut weir = Weir::in_front_of(&upstream);
    let idle = weir.connect();
    let mut kept = weir.connect();
    kept.send(&weir.request("GET", "/v1/models").bytes()).unwrap();
    assert_eq!(kept.read().status, 200);
    let start = Instant::now();
    weir.terminate();
    assert_eq!(weir.wait_end().code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(5), "idle connections held it up: {:?}", start.elapsed());
    drop(idle);
}

/// An answer of `/slots` in which every slot works, or none.
fn slots(working: bool) -> Script {
    Script::json(200, &json!([{"id": 0, "is_processing": working}]))
}

#[test]
fn a_llama_server_that_still_reads_an_abandoned_prompt_gets_no_other_turn_meanwhile() {
    let upstream = ScriptedUpstream::llamacpp(false);
    upstream.set_route("/slots", slots(true));
    upstream.next(Script::hang_before_head());
    let weir = Weir::before(&upstream).kind("llamacpp").upstream_setting("concurrency = 1").start();
    let abandoned = weir.chat_request(say(secret("read this")).to_string()).open();
    upstream.wait_for_chats(1);
    drop(abandoned);
    upstream.wait_closed(0);
    let mut next = weir.chat_request(say(secret("and this")).to_string()).open();
    upstream.wait_for_request("/slots", 2);
    assert_eq!(upstream.chat_count(), 1, "the turn was sent to a server that is not free");
    upstream.set_route("/slots", slots(false));
    next.read().assert_reply(REPLY);
}

#[test]
fn row_139_a_flood_of_interim_answers_keeps_nobody_else_waiting() {
    let upstream = ScriptedUpstream::start();
    let interim = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(2000);
    upstream.always(Script::steps(vec![Step::Dribble(interim, Duration::ZERO)]));
    let weir = Weir::before(&upstream).upstream_setting("concurrency = 4").turn("20s").start();
    let _flooded: Vec<_> = (0..4).map(|_| weir.chat_request(say("hi").to_string()).open()).collect();
    upstream.wait_for_chats(4);
    let mut slowest = Duration::ZERO;
    for _ in 0..5 {
        let since = Instant::now();
        assert_eq!(weir.get("/v1/models").status, 200);
        slowest = slowest.max(since.elapsed());
    }
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
}
