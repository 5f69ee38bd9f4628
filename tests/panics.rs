//! A panic inside a turn: it leaks nothing, is answered and logged as a failure of the adapter, and costs no permit.
//!
//! Weir has no switch that makes it panic. Each test starts itself once more, as a program that is the whole of Weir with one
//! addition: whoever hears of its events panics at one that only a turn sends, in the middle of it and on its thread.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use clap::Parser as _;
use common::*;
use std::net::SocketAddr;
use std::process::Command;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Names the configuration of the program that a test becomes when it is started once more.
const CONFIGURATION: &str = "WEIR_THAT_PANICS";

/// Panics where a turn says that it mends what the model server refused, with a message that holds what is secret.
struct PanicsInATurn;

impl<S: Subscriber> Layer<S> for PanicsInATurn {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if metadata.target() == "weir::turn::run" && *metadata.level() == Level::DEBUG {
            panic!("in a turn about {:?} and {CANARY}", CANARY.as_bytes());
        }
    }
}

/// Becomes the program, where this process was started to be it. Does not come back then.
fn be_the_program(json: bool) {
    let Some(file) = std::env::var_os(CONFIGURATION) else { return };
    let log = weir::observe::log(LevelFilter::TRACE, json, std::io::stderr);
    tracing_subscriber::registry().with(log).with(PanicsInATurn).init();
    let arguments = weir::cli::Arguments::parse_from(["weir".into(), "--config".into(), file]);
    // libtest would print what became of it, and has hidden nothing until then.
    let _ = weir::cli::run(arguments);
    std::process::exit(0);
}

/// Starts this test once more, as the program.
fn start(builder: &Builder, test: &str) -> Weir {
    let (directory, child) = builder.launch(|file| {
        let mut command = prepared(Command::new(std::env::current_exe().unwrap()));
        command.args([test, "--exact", "--nocapture"]).env(CONFIGURATION, file);
        command
    });
    let weir = Weir::attach(child, Some(directory), TOKEN.as_bytes().to_vec());
    weir.get("/v1/models");
    weir
}

/// A refusal that two messages of the same role bring about and that merging them mends.
fn refuse_two_of_a_role() -> Script {
    Script::from_fn(|request| {
        if request.messages().len() > 1 {
            Script::refusal(400, "Conversation roles must alternate user/assistant/user/assistant/...")
                .for_request(request)
        } else {
            Script::text(REPLY).for_request(request)
        }
    })
}

fn a_panic_is_a_502_that_leaks_nothing(test: &str, placed: &str, lines: &[&str]) {
    let upstream = ScriptedUpstream::start();
    upstream.always(refuse_two_of_a_role());
    let builder = Weir::before(&upstream)
        .upstream_key(b"CANARY-7f3a-upstream-key")
        .upstream_setting("concurrency = 1")
        .limit("queue = 0")
        .sees_pictures()
        .toml("[metrics]\nport = 0");
    let weir = start(&builder, test);
    let picture = vec![text(&secret("Look.")), image(&png_uri(3))];
    let panicking = turn(vec![user(secret("first")), user(picture)]).to_string();
    const PANICS: usize = 5;
    for _ in 0..PANICS {
        let mut connection = weir.chat_request(panicking.clone()).open();
        let answer = connection.read();
        answer.assert_error(502, "upstream_failure");
        assert!(answer.closes() && connection.ends(), "nobody knows what of the connection is still whole");
        // The one permit is free, and others are served as before.
        weir.ok("and now?").assert_reply(REPLY);
    }
    weir.get("/v1/models").assert_plain_json();
    let log = weir.output();
    let metrics: SocketAddr =
        log.split_once("metrics on http://").unwrap().1.split_once("/metrics").unwrap().0.parse().unwrap();
    let scraped = Request::new(metrics, "GET", "/metrics").token(weir.token()).send();
    let scraped = String::from_utf8(scraped.body).unwrap();
    for counted in [
        "weir_turns_total{outcome=\"panicked\",code=\"upstream_failure\"} 5",
        "weir_turns_total{outcome=\"answered\",code=\"\"} 5",
        "weir_turns_running 0",
        "weir_body_bytes_in_flight 0",
    ] {
        assert!(scraped.lines().any(|line| line == counted), "{counted} is not in\n{scraped}");
    }
    assert!(!shows_canary(&scraped));
    // One line says where, and one is the turn's own. The log of this test is written at once.
    let log = weir.output();
    let with = |text: &str| log.lines().filter(|line| line.contains(text)).collect::<Vec<_>>();
    let failed = with("Weir itself failed; this is a fault of Weir's own");
    assert_eq!(failed.len(), PANICS, "{failed:#?}");
    assert!(failed.iter().all(|line| line.contains(placed)), "{failed:#?}");
    let turns = with("panicked");
    assert_eq!(turns.len(), PANICS, "{turns:#?}");
    assert!(turns.iter().all(|turn| lines.iter().all(|part| turn.contains(part))), "{turns:#?}");
    assert_no_canary(&log);
}

#[test]
fn a_panic_inside_a_turn_leaks_nothing_and_is_a_502_with_its_place_in_the_log() {
    be_the_program(false);
    a_panic_is_a_502_that_leaks_nothing(
        "a_panic_inside_a_turn_leaks_nothing_and_is_a_502_with_its_place_in_the_log",
        "place=\"tests/panics.rs:",
        &["outcome=\"panicked\"", "status=502", "code=\"upstream_failure\"", "model=\"m\"", "images=1"],
    );
}

#[test]
fn the_same_in_a_log_for_machines() {
    be_the_program(true);
    a_panic_is_a_502_that_leaks_nothing(
        "the_same_in_a_log_for_machines",
        "\"place\":\"tests/panics.rs:",
        &["\"outcome\":\"panicked\"", "\"status\":502", "\"code\":\"upstream_failure\"", "\"model\":\"m\""],
    );
}

#[test]
fn a_panic_before_there_is_a_log_leaks_nothing() {
    if std::env::var_os(CONFIGURATION).is_some() {
        weir::observe::quiet_panics();
        panic!("about {CANARY}");
    }
    let mut command = prepared(Command::new(std::env::current_exe().unwrap()));
    command.args(["a_panic_before_there_is_a_log_leaks_nothing", "--exact", "--nocapture"]);
    let (_, output) = run_to_end(command.env(CONFIGURATION, "").spawn().unwrap());
    assert!(output.contains("weir: Weir itself failed at tests/panics.rs:"), "{output}");
}
