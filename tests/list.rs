//! Chapter K: the list of models, at once and whatever the model server does.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;
use serde_json::Value;
use std::time::{Duration, Instant};

#[test]
fn row_127_the_list_has_the_contracts_shape() {
    let upstream = ScriptedUpstream::start();
    upstream.models(&["m", "bad\nid", "", "also\u{0}bad", "fine"]);
    let weir = Weir::in_front_of(&upstream);
    let answer = weir.get("/v1/models");
    assert_eq!(answer.status, 200);
    answer.assert_plain_json();
    let list = answer.json();
    assert_eq!(list["object"], "list");
    let ids: Vec<&Value> = list["data"].as_array().unwrap().iter().map(|entry| &entry["id"]).collect();
    assert_eq!(ids, ["m", "fine"]);
    assert!(list["data"].as_array().unwrap().iter().all(|entry| entry["object"] == "model"));
}

/// The list comes in less than a second, in this state of the model server, once the first look is over.
fn assert_instant(weir: &Weir) {
    for _ in 0..3 {
        let start = Instant::now();
        let answer = weir.get("/v1/models");
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["data"][0]["id"], "m");
    }
}

#[test]
fn row_128_the_list_is_instant_while_the_model_server_is_down() {
    let down = ReservedPort::new();
    let weir = Builder::new().upstream("local", &down.url()).models("default = \"m\"").start();
    assert_instant(&weir);
}

#[test]
fn row_128_the_list_is_instant_while_the_model_server_hangs() {
    let upstream = ScriptedUpstream::start();
    upstream.set_models(Script::hang_before_head());
    let start = Instant::now();
    let weir = Weir::before(&upstream).models("default = \"m\"").start();
    assert!(start.elapsed() < Duration::from_secs(8), "the first look took {:?}", start.elapsed());
    assert_instant(&weir);
}

#[test]
fn row_128_the_list_is_instant_while_the_model_server_loads() {
    let upstream = ScriptedUpstream::start();
    upstream.set_models(Script::refusal(503, "Loading model"));
    upstream.always(Script::refusal(503, "Loading model"));
    assert_instant(&Weir::before(&upstream).models("default = \"m\"").start());
}

#[test]
fn row_128_the_list_is_instant_after_the_model_server_went_away() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    upstream.stop();
    assert_instant(&weir);
}

#[test]
fn row_128_the_list_is_instant_while_every_place_is_taken() {
    let upstream = ScriptedUpstream::start();
    upstream.always(Script::hang_before_head());
    let weir = Weir::before(&upstream).upstream_setting("concurrency = 1").limit("queue = 1").start();
    let turn = weir.chat_request(say("hi").to_string());
    let waiting: Vec<Connection> = (0..4).map(|_| turn.open()).collect();
    upstream.wait_for_chats(1);
    assert_instant(&weir);
    drop(waiting);
}

#[test]
fn row_129_listing_asks_the_model_server_for_nothing() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    weir.get("/v1/models");
    let before = upstream.requests().len();
    for _ in 0..20 {
        assert_eq!(weir.get("/v1/models").status, 200);
    }
    assert!(upstream.requests().len() < before + 5, "each listing asks the model server");
    for request in upstream.requests() {
        assert_eq!(request.method, "GET", "{} {}", request.method, request.target);
        assert!(!request.is_chat());
    }
}

#[test]
fn row_130_with_the_model_server_down_since_the_start_configured_ids_are_listed() {
    let down = ReservedPort::new();
    let weir = Builder::new().upstream("local", &down.url()).models("default = \"m\"").start();
    assert_eq!(weir.ids(), ["m"]);
    weir.ok("hi").assert_error(502, "upstream_failure");
}

#[test]
fn row_130_with_nothing_configured_and_nothing_seen_the_list_is_502_and_never_empty() {
    let down = ReservedPort::new();
    let weir = Builder::new().upstream("local", &down.url()).start();
    weir.get("/v1/models").assert_error(502, "upstream_failure");
    weir.ok("hi").assert_error(502, "upstream_failure");
}

#[test]
fn row_131_a_hundred_listings_at_once_are_fine() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let get = weir.request("GET", "/v1/models");
    let connections: Vec<Connection> = (0..100).map(|_| get.open()).collect();
    for mut connection in connections {
        assert_eq!(connection.read().status, 200);
    }
}
