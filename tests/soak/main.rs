//! The soak: 64 phones at once, a fifth of their turns hit by a fault, and for each turn the right outcome.
//!
//! The faults are drawn evenly from all those of the fault matrix that begin once a turn was read, in all dialects, and more
//! of a server and of a phone (`kinds.rs`). What is to happen to a turn stands in its text, so the servers keep no state, and
//! each good reply has the mark of its turn. Of a fault that lasts until the deadline most phones do not see the end: they
//! hang up in the middle of it. For each turn: the status, the code and the text; that the servers were asked as often as they had
//! to be; that they saw their connections closed; that there is one line in the log, with the right outcome. All the while the
//! list of models is answered. At the end: memory as after the warm-up, no turn running or waiting, no byte held, no file open that
//! was not at the start, no secret in the log.
//!
//! It takes a minute. `WEIR_SOAK_TURNS=200000 cargo test --release --test soak -- --nocapture` is the long form: at least so
//! many turns, and at least two minutes. `WEIR_SOAK_SEED` repeats the draws of an earlier run.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub, dead_code)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

#[path = "../fault_matrix/answers.rs"]
mod answers;
#[path = "../common/mod.rs"]
mod common;
#[path = "../fault_matrix/connections.rs"]
mod connections;
#[path = "../fault_matrix/fault.rs"]
mod fault;
mod house;
mod kinds;
mod mark;
mod phone;
mod process;
#[path = "../fault_matrix/speech.rs"]
mod speech;
#[path = "../fault_matrix/tables.rs"]
mod tables;
mod upstream;

use common::{Builder, CEILING, TOKEN};
use house::{House, NARROW, model_of};
use phone::{Connection, Phone, get};
use process::Process;
use speech::{DIALECTS, Dialect};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use upstream::Servers;

/// How many phones there are.
const PHONES: u64 = 64;

/// How many of them wait for an answer that comes at the deadline.
const PATIENT: u64 = 8;

/// The deadline of a turn: far longer than any fault takes that ends by itself, on a machine that has other things to do.
const DEADLINE: &str = "10s";

/// How many turns run at once on each server; fewer than come, so that there is a queue.
const AT_ONCE: usize = 10;

/// The warm-up and the least length of the short form, and of the long one.
const SHORT: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(60));
const LONG: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(120));

/// By how much memory may have grown since the warm-up, in KiB.
const GROWTH: u64 = 5 * 1024;

/// How many kinds of faults there are at the least.
const LEAST_KINDS: usize = 20;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().expect("a number"))
}

async fn start(servers: &Arc<Servers>) -> Process {
    let mut builder = Builder::new().limit("queue = 64").limit("reply = \"1 MiB\"").turn(DEADLINE);
    let dialects = DIALECTS.map(|dialect| (dialect.kind(), dialect, model_of(dialect), AT_ONCE));
    for (name, dialect, model, at_once) in dialects.into_iter().chain([(NARROW, Dialect::OpenAi, NARROW, 1)]) {
        let address = servers.start(dialect, model).await;
        builder = builder
            .upstream(name, &format!("http://{address}"))
            .kind(dialect.kind())
            .upstream_setting(&format!("concurrency = {at_once}"))
            .upstream_key(b"CANARY-7f3a-upstream-key");
        if dialect == Dialect::OpenAi {
            builder = builder.override_model(model, "images = true");
        }
    }
    Process::start(&builder.toml("[metrics]\nport = 0"))
}

/// Asks for the list of models until `house` comes to its end; how often, and the longest time that it took.
async fn watch_the_list(house: Arc<House>) -> (u64, Duration) {
    let request = get(house.address, "/v1/models").token(TOKEN.as_bytes()).bytes();
    let (mut times, mut slowest) = (0, Duration::ZERO);
    let mut connection = Connection::to(house.address).await.unwrap();
    while house.goes_on() {
        let since = Instant::now();
        let answer = connection.ask(&request).await.unwrap();
        slowest = slowest.max(since.elapsed());
        times += 1;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["data"].as_array().unwrap().len(), DIALECTS.len() + 1);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    (times, slowest)
}

/// Waits until something holds; says so if it never does.
async fn settle(what: &str, problems: &mut Vec<String>, mut holds: impl AsyncFnMut() -> Result<(), String>) {
    let until = Instant::now() + CEILING / 2;
    while let Err(found) = holds().await {
        if Instant::now() > until {
            problems.push(format!("{what}: {found}"));
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Nobody asks anything: no turn runs or waits, no byte of a body is held. The memory then.
async fn at_rest(house: &House, weir: &Process, problems: &mut Vec<String>) -> u64 {
    let _everybody = house.pause.write().await;
    settle("permits and bytes", problems, async || {
        let metrics = weir.metrics().await;
        let held = |gauge: &str| (metrics[gauge] != 0).then(|| format!("{gauge} {}", metrics[gauge]));
        let all = ["weir_turns_running", "weir_turns_queued", "weir_body_bytes_in_flight"].map(held);
        let held: Vec<String> = all.into_iter().flatten().collect();
        if held.is_empty() { Ok(()) } else { Err(held.join(", ")) }
    })
    .await;
    weir.memory()
}

/// The turns that the log and the metrics tell of are those that were.
async fn assert_accounted_for(house: &House, weir: &Process, problems: &mut Vec<String>) {
    let expected = house.endings();
    let lines: u64 = expected.values().sum();
    settle("lines in the log", problems, async || {
        let found = weir.counted(process::Counted::lines);
        if found == lines { Ok(()) } else { Err(format!("{found} instead of {lines}")) }
    })
    .await;
    weir.counted(|log| {
        let expected: BTreeMap<_, _> = expected
            .iter()
            .map(|((outcome, status, code), count)| (((*outcome).to_owned(), *status, code.clone()), *count))
            .collect();
        if log.turns != expected {
            problems.push(format!("the log tells of {:#?} instead of {expected:#?}", log.turns));
        }
        if log.highest != lines || log.doubled != 0 {
            problems
                .push(format!("{lines} turns, but the last is the {}th, {} are told twice", log.highest, log.doubled));
        }
    });
    let mut counters = BTreeMap::new();
    for ((outcome, _, code), count) in &expected {
        *counters.entry(format!("weir_turns_total{{outcome=\"{outcome}\",code=\"{code}\"}}")).or_default() += count;
    }
    let mut metrics = weir.metrics().await;
    metrics.retain(|name, _| name.starts_with("weir_turns_total"));
    if metrics != counters {
        problems.push(format!("the metrics tell of {metrics:#?} instead of {counters:#?}"));
    }
}

async fn soak() {
    let seed = number("WEIR_SOAK_SEED").unwrap_or_else(|| {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |passed| passed.as_nanos() as u64)
    });
    println!("WEIR_SOAK_SEED={seed}");
    let turns = number("WEIR_SOAK_TURNS");
    let (warm_up, least) = if turns.is_some() { LONG } else { SHORT };
    let servers = Arc::<Servers>::default();
    let weir = start(&servers).await;
    let mut problems = Vec::new();
    let listed = async || {
        let mut connection = Connection::to(weir.address()).await.unwrap();
        connection.ask(&get(weir.address(), "/v1/models").token(TOKEN.as_bytes()).bytes()).await.unwrap().status
    };
    assert_eq!(listed().await, 200);
    settle("files at the start", &mut problems, async || {
        let now = weir.files();
        tokio::time::sleep(Duration::from_millis(300)).await;
        if now == weir.files() { Ok(()) } else { Err("they change".to_owned()) }
    })
    .await;
    let files = weir.files();

    let house = Arc::new(House::new(weir.address(), Arc::clone(&servers), seed, turns.unwrap_or(0), least));
    let since = Instant::now();
    let list = tokio::spawn(watch_the_list(Arc::clone(&house)));
    let phones: Vec<_> = (0..PHONES)
        .map(|number| tokio::spawn(Phone::new(Arc::clone(&house), number, number < PATIENT).run()))
        .collect();
    tokio::time::sleep(warm_up).await;
    let warm = at_rest(&house, &weir, &mut problems).await;
    while house.goes_on() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let cold = at_rest(&house, &weir, &mut problems).await;
    house.dismissed.cancel();
    for phone in phones {
        phone.await.unwrap();
    }
    let passed = since.elapsed();
    let (listings, slowest) = list.await.unwrap();
    if slowest > Duration::from_secs(15) {
        problems.push(format!("the list of models took {slowest:?}"));
    }
    settle("files at the end", &mut problems, async || {
        let now = weir.files();
        if now <= files { Ok(()) } else { Err(format!("{now} are open, {files} were")) }
    })
    .await;
    assert_accounted_for(&house, &weir, &mut problems).await;
    let (status, log) = tokio::task::spawn_blocking(move || weir.stop()).await.unwrap();
    if status.code() != Some(0) {
        problems.push(format!("it ended with {status}"));
    }
    if log.secrets > 0 || log.others.keys().any(|line| line.contains("Weir itself failed") || line == "no JSON") {
        problems.push(format!("{} secrets in the output; {:?}", log.secrets, log.others));
    }
    // Of a turn that went wrong nobody waits for the end.
    if servers.unknown() > 0 && house.troubles() == 0 {
        problems.push(format!("{} turns came to a server that nobody had asked", servers.unknown()));
    }
    if cold > warm + GROWTH {
        problems.push(format!("memory grew from {warm} to {cold} KiB"));
    }
    let kinds = house.kinds();
    if kinds.len() <= LEAST_KINDS {
        problems.push(format!("only {} kinds", kinds.len()));
    }
    for (kind, count) in &kinds {
        println!("{count:>8} {kind}");
    }
    println!("{:?}", log.others);
    println!(
        "{} turns in {:.1} s, {:.0} a second; {} wrong, {} mixed; {} hit by one of {} kinds of faults; {} lines of turns; \
         memory {warm} KiB after {} s and {cold} KiB at the end; {files} files; {listings} lists of models, the slowest in {} ms",
        house.counted(),
        passed.as_secs_f64(),
        house.counted() as f64 / passed.as_secs_f64(),
        house.troubles(),
        house.mixed(),
        house.counted() - kinds.get("none").copied().unwrap_or(0),
        kinds.len() - 1,
        log.lines(),
        warm_up.as_secs(),
        slowest.as_millis(),
    );
    assert!(problems.is_empty() && house.troubles() == 0, "{} troubles; {problems:#?}", house.troubles());
}

#[test]
fn every_turn_of_many_phones_ends_right_and_nothing_is_lost_or_leaked() {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(soak());
}
