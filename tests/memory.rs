//! What large bodies and answers took goes back to the system, whatever their size: a home computer has other uses for it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;
use std::time::{Duration, Instant};

const MIB: usize = 1024 * 1024;

/// How much more than before the first of them may be held at rest, in KiB.
const MOST_KEPT: u64 = 12 * 1024;

fn assert_memory_comes_back(weir: &Weir, before: u64) {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let now = weir.memory("VmRSS:").unwrap();
        if now <= before + MOST_KEPT {
            println!("{before} KiB before, {now} KiB after");
            return;
        }
        assert!(Instant::now() < until, "{before} KiB before, {now} KiB after");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_bodies_of_photos_took_goes_back_to_the_system() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).upstream_setting("concurrency = 4").start();
    weir.ok("first").assert_reply(REPLY);
    let before = weir.memory("VmRSS:").unwrap();
    // As many at once as there are threads that have memory of their own, and more.
    for size in [3 * MIB, 24 * MIB, 12 * MIB] {
        let body = body_of_size(size);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| weir.chat_bytes(body.clone()).assert_reply(REPLY));
            }
        });
    }
    assert_memory_comes_back(&weir, before);
}

#[test]
fn what_events_without_end_took_goes_back_to_the_system() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).upstream_setting("concurrency = 4").start();
    weir.ok("first").assert_reply(REPLY);
    let before = weir.memory("VmRSS:").unwrap();
    let line = [format!("{:x}\r\ndata: ", 6 + MIB).as_bytes(), &vec![b'x'; MIB], b"\r\n"].concat();
    upstream.always(Script::endless(&line));
    for _ in 0..2 {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| weir.ok("hi").assert_error(502, "upstream_failure"));
            }
        });
    }
    assert_memory_comes_back(&weir, before);
}
