//! A server that is slow, stuck, gone or not there yet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{CEILING, Connection, Gate, Weir, say, secret, spawn};
use crate::llama_server::{Launch, LlamaServer, eventually, finish, free_port, in_front_of, turn};

/// Begins a turn that would never end, and waits until the model is at it.
fn begin_endless_turn(weir: &Weir, server: &LlamaServer) -> Connection {
    let before = server.busy_slots();
    let connection = weir.chat_request(say(secret("Please count")).to_string()).open();
    server.wait_for_busy_slots(before + 1);
    connection
}

#[test]
fn a_turn_that_takes_too_long_ends_at_the_deadline_and_the_slot_is_free_again() {
    let server = Launch::slow().start();
    let weir = server.behind_weir().turn("3s").start();
    let since = Instant::now();
    let mut connection = begin_endless_turn(&weir, &server);
    finish(&mut connection).assert_error(504, "upstream_timeout");
    assert!(since.elapsed() >= Duration::from_millis(2900), "after {:?}", since.elapsed());
    server.wait_for_busy_slots(0);
    // What a busy machine may need longer for is not the question here.
    turn(&server.behind_weir().start(), &say(secret("Hello"))).assert_reply("pong");
}

#[test]
fn a_phone_that_hangs_up_frees_the_slot_for_the_turn_that_waits() {
    let server = Launch::slow().start();
    let weir = server.behind_weir().start();
    let connection = begin_endless_turn(&weir, &server);
    let mut waiting = weir.chat_request(say(secret("Hello")).to_string()).open();
    assert!(!waiting.answers_within(Duration::from_millis(500)), "one slot ran two turns");
    drop(connection);
    finish(&mut waiting).assert_reply("pong");
    server.wait_for_busy_slots(0);
}

#[test]
fn two_slots_run_two_turns_at_once() {
    let server = Launch::slow().slots(2).start();
    let weir = server.behind_weir().start();
    let endless = begin_endless_turn(&weir, &server);
    turn(&weir, &say(secret("Hello"))).assert_reply("pong");
    assert_eq!(server.busy_slots(), 1, "the first turn still runs");
    drop(endless);
    server.wait_for_busy_slots(0);
}

/// Three conversations at once, each of which must get its own answers and none other.
fn talk_at_once(server: &LlamaServer, rounds: usize) {
    let weir = Arc::new(server.behind_weir().start());
    let begin = Gate::new();
    let talks = [("think of it", "The answer is 42."), ("an emoji", "Hi \u{1F389} !"), ("Hello", "pong")];
    let talks = talks.map(|(question, answer)| {
        let (weir, begin) = (Arc::clone(&weir), begin.clone());
        spawn(move || {
            begin.wait(CEILING);
            for round in 0..rounds {
                turn(&weir, &say(secret(&format!("{question} {round}")))).assert_reply(answer);
            }
        })
    });
    begin.open();
    let ended = talks.map(std::thread::JoinHandle::join);
    assert!(ended.iter().all(Result::is_ok), "a conversation went wrong");
}

#[test]
fn turns_that_run_at_once_are_never_mixed_up() {
    talk_at_once(&Launch::slow().slots(2).start(), 5);
}

#[test]
fn turns_that_follow_one_another_at_once_are_all_answered() {
    talk_at_once(&Launch::chat().start(), 20);
}

#[test]
fn a_server_that_dies_in_a_turn_is_told_truly_and_found_again_when_it_is_back() {
    let server = Launch::slow().start();
    let weir = server.behind_weir().start();
    let mut connection = begin_endless_turn(&weir, &server);
    let (launch, address) = server.crash();
    finish(&mut connection).assert_error(502, "upstream_failure");
    // It was there a moment ago, so it may be restarting.
    turn(&weir, &say(secret("Hello"))).assert_error(503, "overloaded");
    assert_eq!(weir.ids(), ["tiny-slow"], "what was there when it was last seen stays listed");

    let server = launch.start_loading_at(address);
    server.wait_until_loaded();
    turn(&weir, &say(secret("Hello"))).assert_reply("pong");
}

#[test]
fn a_turn_waits_for_a_server_that_is_still_loading() {
    let address = free_port();
    let configured = || in_front_of(address).models("default = \"tiny-big\"");
    let weir = configured().start();
    let impatient = configured().turn("400ms").start();

    let server = Launch::big().start_loading_at(address);
    let (status, health) = server.health().unwrap();
    assert_eq!(status, 503, "it was loaded before anything could be tried");
    assert!(health.contains("Loading model"), "{health}");
    let mut patient = weir.chat_request(say(secret("Hello")).to_string()).open();
    turn(&impatient, &say(secret("Hello"))).assert_error(503, "overloaded");
    let since = Instant::now();
    assert_eq!(weir.ids(), ["tiny-big"]);
    assert!(since.elapsed() < Duration::from_secs(5), "the list took {:?}", since.elapsed());

    finish(&mut patient).assert_reply("pong");
    // What the model can see is learned without a restart.
    eventually("Weir to have looked again", || {
        let list = weir.get("/v1/models").json();
        (list["data"][0]["conduck"]["input_modalities"] == serde_json::json!(["text"])).then_some(())
    });
}

#[test]
fn an_address_where_nothing_listens_fails_without_an_empty_list() {
    let address = free_port();
    let configured = in_front_of(address).models("default = \"tiny-chat\"").start();
    assert_eq!(configured.ids(), ["tiny-chat"]);
    turn(&configured, &say(secret("Hello"))).assert_error(502, "upstream_failure");
    let unconfigured = in_front_of(address).start();
    unconfigured.get("/v1/models").assert_error(502, "upstream_failure");
    turn(&unconfigured, &say(secret("Hello"))).assert_error(502, "upstream_failure");
}

#[test]
fn an_answer_that_would_not_fit_the_time_is_ended_by_the_model_and_not_by_the_deadline() {
    let server = Launch::slow().start();
    let weir = server.behind_weir().turn("4s").start();
    // The first turn measures: nobody knew how slow the model is. On a machine that gets busier meanwhile another may have to.
    turn(&weir, &say(secret("Please count."))).assert_error(504, "upstream_timeout");
    let answered = (0..4).find_map(|_| {
        server.wait_for_busy_slots(0);
        let answer = turn(&weir, &say(secret("Please count.")));
        (answer.status == 200).then_some(answer)
    });
    let reply = answered.expect("an answer within the time").assert_any_reply();
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    assert!(reply["usage"]["completion_tokens"].as_u64().unwrap() > 32, "{}", reply["usage"]);
}
