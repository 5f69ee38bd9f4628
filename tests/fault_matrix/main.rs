//! Every fault of a model server, in every dialect: what the phone gets, and that everything comes back afterwards.
//!
//! The canary is in everything that is secret: the texts and pictures of the turn, the answer or error of the model server, the
//! token, the server's key. After each cell the model server has seen its connection closed, the one permit is free again (the
//! next turn is answered well), and no form of the canary stands in the phone's error or in the output, which is at its most
//! verbose.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod answers;
#[path = "../common/mod.rs"]
mod common;
mod connections;
mod fault;
mod server;
mod speech;
mod tables;

use common::*;
use server::{FaultyServer, GUARD};
use speech::{ANSWER, DIALECTS, Dialect, FINE, Speech};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tables::{Expected, HANGING, HANGING_AND_LARGE, QUICK, QUICK_AND_LARGE, REFUSING, Request as Carries, Row};

/// Long enough that a cell which should not last until the deadline fails if it does.
const FAR: &str = "30s";

/// The deadline where time is the subject.
const NEAR: &str = "1s";

/// The same for large bodies, which take a moment to be read.
const NEAR_FOR_LARGE: &str = "4s";

/// The most memory that a Weir may ever have had which was given no large body, in KiB. The largest event that it waits for
/// is 32 MiB, which is held twice while it grows.
const MOST_MEMORY: u64 = 160 * 1024;

fn builder(dialect: Dialect, url: &str, deadline: &str) -> Builder {
    let builder = Builder::new()
        .upstream("local", url)
        .kind(dialect.kind())
        .upstream_setting("concurrency = 1")
        .upstream_key(b"CANARY-7f3a-upstream-key")
        .limit("queue = 0")
        .limit("reply = \"1 MiB\"")
        .turn(deadline);
    if dialect == Dialect::OpenAi { builder.sees_pictures() } else { builder }
}

fn start(dialect: Dialect, deadline: &str) -> (FaultyServer, Weir) {
    let server = FaultyServer::start(dialect);
    let weir = builder(dialect, &format!("http://{}", server.address()), deadline).start();
    (server, weir)
}

/// A turn with everything that is secret: texts and pictures, earlier ones and the current one.
fn secrets() -> serde_json::Value {
    let earlier = vec![text(&secret("Look.")), image(&png_uri(3))];
    let current = vec![text(&secret("And this?")), image(&jpeg_uri(4))];
    turn(vec![user(earlier), assistant(secret("A grey square.")), user(current)])
}

/// A turn with a body of 50 MiB.
fn large() -> &'static [u8] {
    static BODY: OnceLock<Vec<u8>> = OnceLock::new();
    BODY.get_or_init(|| body_of_size(52_428_800))
}

/// One body of 50 MiB after another: all at once, their reading could take until the deadline.
static LARGE_TURN: Mutex<()> = Mutex::new(());

fn ask(server: &FaultyServer, weir: &Weir, carries: Carries) -> Response {
    match carries {
        Carries::Text => weir.chat(&secrets()),
        Carries::Large => {
            let head = weir.chat_request("").header("Content-Length", large().len().to_string()).head_bytes();
            let mut connection = weir.connect();
            let turn = LARGE_TURN.lock().unwrap_or_else(PoisonError::into_inner);
            connection.send(&head).unwrap();
            connection.send(large()).unwrap();
            server.wait_struck();
            drop(turn);
            connection.read()
        }
    }
}

fn assert_expected(answer: &Response, expected: Expected) {
    match expected {
        Expected::Error(status, code) => answer.assert_error(status, code),
        Expected::Answer => assert!(answer.text().starts_with(ANSWER), "not the whole answer"),
        Expected::NoSuchCell => unreachable!("cells that are none are not run"),
    }
}

/// The next turn is answered well. While llama-server is asked whether it is free, the permit may still be on its way.
fn assert_permit_is_back(weir: &Weir, fine: &str) {
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let answer = weir.ok("and now?");
        if answer.status != 429 || Instant::now() > until {
            answer.assert_reply(fine);
            return;
        }
        std::thread::yield_now();
    }
}

fn assert_output_is_clean(weir: &Weir) {
    assert_no_canary(&weir.output());
}

fn run_cell(server: &FaultyServer, weir: &Weir, row: &Row, dialect: Dialect, expected: Expected) {
    let fault = (row.fault)(Speech { dialect, form: row.form, text: ANSWER });
    server.arm(fault.clone());
    let answer = ask(server, weir, row.request);
    let struck = server.disarm();
    assert_expected(&answer, expected);
    // A turn that may have started is never sent again. One that was told to wait, or refused, has not.
    let refused = ["loading_for_ever", "refusal_that_repeats_the_question"].contains(&row.name);
    let may_come_again = refused || fault.at_accept.is_some();
    let once_more = usize::from(dialect.keeps_connections() && fault.looks_stale());
    assert!(
        (1..=1 + once_more).contains(&struck) || (may_come_again && struck > 1),
        "the fault happened {struck} times"
    );
    assert_permit_is_back(weir, FINE);
    // Where the answer came in order, its connection may be the one that the next turn came over.
    server.wait_closed().unwrap();
    assert_output_is_clean(weir);
}

/// Runs all cells of these rows in one dialect; each red one is named, and followed by a fresh start.
fn run(dialect: Dialect, rows: &[Row], deadline: &str) -> (usize, Vec<String>) {
    let column = DIALECTS.iter().position(|known| *known == dialect).unwrap();
    let (mut server, mut weir) = start(dialect, deadline);
    let mut red = Vec::new();
    let mut cells = 0;
    for row in rows {
        let expected = row.expected[column];
        if expected == Expected::NoSuchCell {
            continue;
        }
        cells += 1;
        let since = Instant::now();
        let green = catch_unwind(AssertUnwindSafe(|| run_cell(&server, &weir, row, dialect, expected))).is_ok();
        if std::env::var_os("WEIR_SHOW_CELLS").is_some() {
            println!(
                "{:>6} ms {green} {dialect:?} {:?} {:?} {}",
                since.elapsed().as_millis(),
                row.form,
                row.request,
                row.name
            );
        }
        if !green {
            red.push(format!("{} ({:?}, {:?}, {dialect:?})", row.name, row.form, row.request));
            let fresh = start(dialect, deadline);
            let spoilt = (std::mem::replace(&mut server, fresh.0), std::mem::replace(&mut weir, fresh.1));
            // Where a secret is in its output it panics when it is dropped, and there are more cells.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(spoilt)));
        }
    }
    if rows.iter().all(|row| row.request == Carries::Text)
        && let Some(peak) = weir.memory("VmHWM:")
    {
        println!("{dialect:?}: {peak} KiB at most");
        assert!(peak < MOST_MEMORY, "{dialect:?}: {peak} KiB");
    }
    (cells, red)
}

fn run_all(rows: &'static [Row], deadline: &'static str) {
    let running: Vec<_> = DIALECTS.iter().map(|dialect| spawn(move || run(*dialect, rows, deadline))).collect();
    let (mut cells, mut red) = (0, Vec::new());
    for each in running {
        let (more, failed) = each.join().unwrap();
        cells += more;
        red.extend(failed);
    }
    println!("{cells} cells, {} red", red.len());
    assert!(red.is_empty(), "{} of {cells} cells are red: {red:#?}", red.len());
}

#[test]
fn faults_that_end_before_the_deadline() {
    run_all(QUICK, FAR);
}

#[test]
fn faults_that_end_before_the_deadline_with_a_large_body() {
    run_all(QUICK_AND_LARGE, FAR);
}

#[test]
fn faults_that_last_until_the_deadline() {
    run_all(HANGING, NEAR);
}

#[test]
fn faults_that_last_until_the_deadline_with_a_large_body() {
    run_all(HANGING_AND_LARGE, NEAR_FOR_LARGE);
}

#[test]
fn a_server_that_refuses_connections() {
    let cell = |dialect: Dialect, seen: bool, expected: Expected| {
        let server = FaultyServer::start(dialect);
        let url = format!("http://{}", server.address());
        let (weir, refusing) = if seen {
            let weir = builder(dialect, &url, FAR).start();
            (weir, server.stop())
        } else {
            let refusing = server.stop();
            (builder(dialect, &url, FAR).models("default = \"m\"").start(), refusing)
        };
        let answer = weir.ok("hi");
        assert_expected(&answer, expected);
        let _back = FaultyServer::on(refusing.listen(), dialect);
        if !seen {
            // How it is spoken to is only known once it was looked at.
            weir.wait_for_log("upstream up");
        }
        assert_permit_is_back(&weir, FINE);
        assert_output_is_clean(&weir);
    };
    std::thread::scope(|scope| {
        for (seen, columns) in [true, false].into_iter().zip(REFUSING) {
            for (dialect, expected) in DIALECTS.into_iter().zip(columns) {
                scope.spawn(move || cell(dialect, seen, expected));
            }
        }
    });
}

#[test]
fn the_matrix_has_many_cells_and_none_twice() {
    let mut cells = BTreeSet::new();
    for row in [QUICK, QUICK_AND_LARGE, HANGING, HANGING_AND_LARGE].concat() {
        for (dialect, expected) in DIALECTS.iter().zip(row.expected) {
            if expected != Expected::NoSuchCell {
                let cell = format!("{} {:?} {:?} {dialect:?}", row.name, row.form, row.request);
                assert!(cells.insert(cell.clone()), "twice: {cell}");
            }
        }
    }
    let count = cells.len() + REFUSING.as_flattened().len();
    println!("{count} cells");
    assert!(count >= 120);
    assert!(GUARD > Duration::from_secs(5));
}
