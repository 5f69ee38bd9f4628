//! SIGHUP: the configuration and the tokens are read again while Weir serves.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;

const READ_AGAIN: &str = "the configuration was read again";

fn write_tokens(weir: &Weir, tokens: &[&str]) {
    std::fs::write(weir.folder().join("adapter.token"), tokens.join("\n")).unwrap();
}

fn change_configuration(weir: &Weir, from: &str, to: &str) {
    let path = weir.folder().join("adapter.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "the configuration has no {from}");
    std::fs::write(&path, text.replace(from, to)).unwrap();
}

fn status_with(weir: &Weir, token: &str) -> u16 {
    weir.stranger("GET", "/v1/models").token(token.as_bytes()).send().status
}

#[test]
fn during_a_rotation_every_token_of_the_file_is_let_in() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let new = secret("the-next-token");
    assert_eq!((status_with(&weir, TOKEN), status_with(&weir, &new)), (200, 401));
    write_tokens(&weir, &[TOKEN, "", &new]);
    weir.signal("HUP");
    weir.wait_for_log(READ_AGAIN);
    assert_eq!((status_with(&weir, TOKEN), status_with(&weir, &new)), (200, 200));
}

#[test]
fn a_token_that_was_taken_out_of_the_file_is_refused() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let new = secret("the-next-token");
    write_tokens(&weir, &[&new]);
    weir.signal("HUP");
    weir.wait_for_log(READ_AGAIN);
    assert_eq!((status_with(&weir, TOKEN), status_with(&weir, &new)), (401, 200));
}

#[test]
fn another_model_server_gets_the_next_turn() {
    let first = ScriptedUpstream::start();
    let second = ScriptedUpstream::start();
    second.models(&["other"]);
    let weir = Weir::in_front_of(&first);
    weir.ok("hello").assert_reply(REPLY);
    change_configuration(&weir, &first.url(), &second.url());
    weir.signal("HUP");
    weir.wait_for_log(READ_AGAIN);
    assert_eq!(weir.ids(), ["other"]);
    weir.ok("hello").assert_reply(REPLY);
    assert_eq!((first.chat_count(), second.chat_count()), (1, 1));
}

#[test]
fn a_turn_that_runs_is_not_cut() {
    let upstream = ScriptedUpstream::start();
    let gate = Gate::new();
    upstream.next(Script::text(REPLY).after(&gate));
    let weir = Weir::in_front_of(&upstream);
    let mut running = weir.chat_request(say(secret("hello")).to_string()).open();
    upstream.wait_for_chats(1);
    weir.signal("HUP");
    weir.wait_for_log(READ_AGAIN);
    gate.open();
    running.read().assert_reply(REPLY);
}

#[test]
fn a_faulty_configuration_changes_nothing_and_is_said_in_one_line() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    change_configuration(&weir, "token_file", "tokne_file");
    weir.signal("HUP");
    weir.wait_for_log("the configuration was not changed");
    let output = weir.output();
    let line = output.lines().find(|line| line.contains("was not changed")).unwrap();
    assert!(line.contains("tokne_file") && line.contains("token_file") && line.contains("adapter.toml"), "{line}");
    weir.ok("hello").assert_reply(REPLY);
    // And once it is mended, it is taken.
    change_configuration(&weir, "tokne_file", "token_file");
    weir.signal("HUP");
    weir.wait_for_log(READ_AGAIN);
    weir.ok("hello").assert_reply(REPLY);
}

#[test]
fn a_reload_gives_out_no_permit_that_a_running_turn_holds() {
    let upstream = ScriptedUpstream::start();
    upstream.always(Script::hang_before_head());
    let weir = Weir::before(&upstream).upstream_setting("concurrency = 1").limit("queue = 0").turn("20s").start();
    let _running = weir.chat_request(say("one").to_string()).open();
    upstream.wait_for_chats(1);
    assert_eq!(weir.ok("two").status, 429);
    weir.signal("HUP");
    weir.wait_for_log("the configuration was read again");
    let mut third = weir.chat_request(say("three").to_string()).open();
    assert!(third.answers_within(CEILING), "it was sent to the server, which runs one turn at a time");
    assert_eq!(third.read().status, 429);
    assert_eq!(upstream.chat_count(), 1);
}
