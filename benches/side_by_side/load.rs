//! Latency, processor time and throughput, in rounds in which everybody has a turn, in another order each time.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::Build;
use super::client::{Connection, TOKEN, request};
use super::fixtures::text_turn;
use super::process::Process;
use super::servers::{Answer, LiteLlm, Nginx, Weir};
use super::table::{Figure, Table, Target, median};

/// Turns of one subject in a round.
const TURNS: usize = 300;

/// The same for LiteLLM, which takes a hundred times as long.
const FEW_TURNS: usize = 5;

const CONNECTIONS: &str = "16";
const SECONDS: &str = "3";

/// wrk counts an answer that takes longer as a wrong one; LiteLLM's take their time with 16 connections.
const PATIENCE: &str = "60s";

/// More than the connections, so that nothing of Weir's own makes a turn wait or refuses it.
const WEIR: &str = "concurrency = 64\n[limits]\nqueue = 64";

/// One that answers.
struct Subject<'a> {
    address: SocketAddr,
    /// What its processor time is read from.
    process: Option<&'a Process>,
    turns: usize,
}

/// What came of a subject.
#[derive(Default)]
struct Outcome {
    /// The median of each round in microseconds, or its turns a second.
    rounds: Vec<f64>,
    turns: f64,
    /// Seconds.
    processor_time: f64,
}

impl Outcome {
    /// Milliseconds of processor time for 1000 turns.
    fn cost(&self) -> f64 {
        self.processor_time * 1e6 / self.turns
    }
}

/// Measures both answers back to back, then the plain one under load.
pub fn measure(builds: &[Build], litellm: Option<&Path>, rounds: usize, load_rounds: usize, table: &mut Table) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    let upstream = Nginx::upstream(folder);
    let nginx = Nginx::proxy(folder, &upstream);
    let litellm = litellm.map(|program| LiteLlm::start(program, folder, upstream.address(Answer::Json)));
    let body = text_turn();
    for answer in [Answer::Json, Answer::Sse] {
        let start = |(index, build): (usize, &Build)| {
            Weir::start(&build.program, folder, &format!("weir-{answer:?}-{index}"), upstream.address(answer), WEIR)
        };
        let weirs: Vec<Weir> = builds.iter().enumerate().map(start).collect();
        let mut subjects = vec![
            Subject { address: upstream.address(answer), process: None, turns: TURNS },
            Subject { address: nginx.address(answer), process: Some(&nginx.process), turns: TURNS },
        ];
        subjects.extend(weirs.iter().map(|weir| Subject {
            address: weir.address,
            process: Some(&weir.process),
            turns: TURNS,
        }));
        if answer == Answer::Json {
            subjects.extend(litellm.iter().map(|litellm| Subject {
                address: litellm.address,
                process: Some(&litellm.process),
                turns: FEW_TURNS,
            }));
        }
        if rounds > 0 {
            let outcomes = back_to_back(&subjects, &request(&body), rounds);
            tell_latency(answer, &outcomes, builds.len(), table);
        }
        if load_rounds > 0 && answer == Answer::Json {
            let outcomes = under_load(&subjects[1..], &body, folder, load_rounds);
            tell_throughput(&outcomes, builds.len(), table);
        }
    }
}

/// Runs `round` for each subject in each round, each time beginning with another one, and adds up processor times.
fn interleaved(subjects: &[Subject<'_>], rounds: usize, mut round: impl FnMut(usize) -> (f64, f64)) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = subjects.iter().map(|_| Outcome::default()).collect();
    let used = |subject: &Subject<'_>| subject.process.map_or(0.0, Process::processor_time);
    let before: Vec<f64> = subjects.iter().map(used).collect();
    for number in 0..rounds {
        for place in 0..subjects.len() {
            let index = (number + place) % subjects.len();
            let (figure, turns) = round(index);
            outcomes[index].rounds.push(figure);
            outcomes[index].turns += turns;
        }
    }
    for ((outcome, subject), before) in outcomes.iter_mut().zip(subjects).zip(before) {
        outcome.processor_time = used(subject) - before;
    }
    outcomes
}

/// One connection, kept alive, one turn after the other. Each round has a new one, since not everybody keeps one that waits.
fn back_to_back(subjects: &[Subject<'_>], request: &[u8], rounds: usize) -> Vec<Outcome> {
    interleaved(subjects, rounds, |index| {
        let Subject { address, turns, .. } = subjects[index];
        let mut connection = Connection::to(address);
        let answer = connection.ask(request);
        assert!(memchr::memmem::find(answer, b" answer").is_some(), "an answer without its text");
        let times = (0..turns).map(|_| {
            let since = Instant::now();
            connection.ask(request);
            since.elapsed().as_secs_f64() * 1e6
        });
        (median(times.collect()), turns as f64 + 1.0)
    })
}

/// 16 connections of wrk's.
fn under_load(subjects: &[Subject<'_>], body: &[u8], folder: &Path, rounds: usize) -> Vec<Outcome> {
    let (body_file, script) = (folder.join("body"), folder.join("wrk.lua"));
    std::fs::write(&body_file, body).unwrap();
    let text = format!(
        "local file = io.open({:?}, 'rb')
        wrk.method, wrk.body = 'POST', file:read('*a')
        file:close()
        wrk.headers['Authorization'] = 'Bearer {TOKEN}'
        wrk.headers['Content-Type'] = 'application/json'
        function done(summary)
            local e = summary.errors
            local wrong = e.connect + e.read + e.write + e.status + e.timeout
            io.write(string.format('RESULT %d %d %d\\n', summary.requests, summary.duration, wrong))
        end",
        body_file.display().to_string()
    );
    std::fs::write(&script, text).unwrap();
    interleaved(subjects, rounds, |index| {
        let url = format!("http://{}/v1/chat/completions", subjects[index].address);
        let mut wrk = Command::new("wrk");
        wrk.args(["-t", "1", "-c", CONNECTIONS, "-d", SECONDS, "--timeout", PATIENCE, "-s"]).arg(&script).arg(&url);
        let output = wrk.output().expect("wrk runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let result = text.lines().find_map(|line| line.strip_prefix("RESULT "));
        let numbers = result.map(|result| result.split(' ').filter_map(|word| word.parse().ok()).collect::<Vec<f64>>());
        let Some(&[turns, microseconds, wrong]) = numbers.as_deref() else { panic!("wrk told no result: {text}") };
        assert!(wrong == 0.0, "{wrong} of {turns} turns went wrong at {url}");
        (turns / microseconds * 1e6, turns)
    })
}

/// Of each round, how much more than the model server itself a subject took in it; the rounds' medians are compared in pairs, so
/// that what disturbs a round disturbs both sides.
fn tell_latency(answer: Answer, outcomes: &[Outcome], builds: usize, table: &mut Table) {
    let direct = &outcomes[0];
    let added = |outcome: &Outcome| -> Vec<f64> {
        outcome.rounds.iter().zip(&direct.rounds).map(|(with, without)| with - without).collect()
    };
    let nginx = added(&outcomes[1]);
    let name = match answer {
        Answer::Json => "JSON",
        Answer::Sse => "SSE",
    };
    let figures = outcomes[2..2 + builds].iter().map(|outcome| {
        let weir = added(outcome);
        let ratios = weir.iter().zip(&nginx).map(|(weir, nginx)| weir / nginx).collect();
        let note = format!("{:.0} µs, nginx {:.0} µs", median(weir), median(nginx.clone()));
        Some(Figure { value: median(ratios), note })
    });
    // The plain answer alone has a target.
    let target = if answer == Answer::Json { Target::AtMost(2.5) } else { Target::None };
    table.row(&format!("added latency of a turn, p50, {name}, beside nginx"), "×", target, figures.collect());
    tell_cost(
        &format!("processor time of a turn, {name}, one connection, beside nginx"),
        3.0,
        &outcomes[1..],
        builds,
        table,
    );
    for litellm in &outcomes[2 + builds..] {
        let (added, cost) = (median(added(litellm)) / 1000.0, litellm.cost());
        table.remark(format!("LiteLLM's proxy adds {added:.1} ms (p50, {name}); 1000 turns cost it {cost:.0} ms."));
    }
}

fn tell_throughput(outcomes: &[Outcome], builds: usize, table: &mut Table) {
    let nginx = &outcomes[0];
    let figures = outcomes[1..=builds].iter().map(|outcome| {
        let ratios = outcome.rounds.iter().zip(&nginx.rounds).map(|(weir, nginx)| weir / nginx).collect();
        let a_second = |outcome: &Outcome| median(outcome.rounds.clone());
        let note = format!("{:.0}/s, nginx {:.0}/s", a_second(outcome), a_second(nginx));
        Some(Figure { value: median(ratios), note })
    });
    table.row("throughput, JSON, 16 connections, beside nginx", "×", Target::AtLeast(0.5), figures.collect());
    tell_cost("processor time of a turn, JSON, 16 connections, beside nginx", 0.0, outcomes, builds, table);
    for litellm in &outcomes[1 + builds..] {
        table.remark(format!("LiteLLM's proxy: {:.0} turns a second.", median(litellm.rounds.clone())));
    }
}

/// The first outcome is nginx's; without a `most` the row is only shown.
fn tell_cost(what: &str, most: f64, outcomes: &[Outcome], builds: usize, table: &mut Table) {
    let nginx = outcomes[0].cost();
    let figures = outcomes[1..=builds].iter().map(|outcome| {
        let note = format!("{:.0} ms per 1000 turns, nginx {nginx:.0} ms", outcome.cost());
        Some(Figure { value: outcome.cost() / nginx, note })
    });
    let target = if most > 0.0 { Target::AtMost(most) } else { Target::None };
    table.row(what, "×", target, figures.collect());
}
