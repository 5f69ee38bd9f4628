//! The log never stands in the way of a turn.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{BufRead as _, BufReader};

use common::*;
use serde_json::json;

/// With a line each, more than a pipe and what Weir keeps of its log can hold.
const TURNS: usize = 2600;

#[test]
fn a_log_that_is_hardly_read_stops_no_turn_and_all_that_was_lost_is_counted() {
    const ROUNDS: usize = 3;
    let upstream = ScriptedUpstream::start();
    let (log, unread) = std::io::pipe().unwrap();
    let (folder, child) = Weir::before(&upstream).launch(|file| {
        let mut command = weir_command();
        command.arg("--config").arg(file).stderr(unread);
        command
    });
    let mut weir = Weir::attach(child, Some(folder), TOKEN.as_bytes().to_vec());
    let mut log = BufReader::new(log).lines().map(|line| line.unwrap()).inspect(|line| assert_no_canary(line));
    let mut lines: Vec<String> = Vec::new();
    let mut phone = weir.connect();
    let refused = weir.chat_request(json!({"messages": []}).to_string()).bytes();
    for _ in 0..ROUNDS {
        for _ in 0..TURNS {
            phone.send(&refused).unwrap();
            phone.read().assert_error(400, None);
        }
        weir.ok("hello").assert_reply(REPLY);
        lines.extend(log.by_ref().take(300));
    }
    // Now somebody reads all of it.
    let rest = spawn(move || log.collect::<Vec<_>>());
    weir.ok("hello again").assert_reply(REPLY);
    weir.terminate();
    assert!(weir.wait_end().success());
    lines.extend(rest.join().unwrap());

    let written = lines.iter().filter(|line| line.contains("outcome=\"refused\"")).count();
    let told: Vec<usize> = lines.iter().filter_map(|line| line.split_once(" lost=")?.1.parse().ok()).collect();
    let (lost, missing) = (*told.last().unwrap(), ROUNDS * TURNS - written);
    assert!(missing > 0 && told.is_sorted(), "{missing} missing, {told:?}");
    // The turns that were answered have a few lines, too.
    assert!((missing..missing + 100).contains(&lost), "{missing} missing, {lost} lost");
}

#[test]
fn the_last_line_is_written_before_the_end() {
    let upstream = ScriptedUpstream::start();
    for _ in 0..5 {
        let mut weir = Weir::in_front_of(&upstream);
        weir.terminate();
        assert!(weir.wait_end().success());
        weir.wait_for_log("INFO stopped");
    }
}
