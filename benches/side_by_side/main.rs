//! Weir beside nginx as a plain reverse proxy, both in front of the same instant model server, everything on 127.0.0.1.
//!
//! `benches/side_by_side/run.sh` installs what this needs and starts it; `docs/performance.md` says how each figure comes about.
#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod client;
mod inside;
mod load;
mod memory;
mod process;
mod servers;
mod slow_upstream;
mod start;
mod table;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::{Parser, ValueEnum};
use table::Table;

/// Measures what Weir costs beside nginx and prints one table.
#[derive(Debug, Parser)]
struct Arguments {
    /// A build to measure, as NAME=PROGRAM; several are measured in the same rounds. Without it: the one of this checkout.
    #[arg(long, value_name = "NAME=PROGRAM", value_parser = build)]
    weir: Vec<Build>,
    /// The groups of rows to measure; all of them without it.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Group>,
    /// Rounds of 300 turns back to back, for latency and processor time.
    #[arg(long, default_value_t = 60)]
    rounds: usize,
    /// Rounds of 3 s with 16 connections, for throughput.
    #[arg(long, default_value_t = 5)]
    load_rounds: usize,
    /// LiteLLM's program, to measure its proxy beside the others.
    #[arg(long, value_name = "PROGRAM")]
    litellm: Option<PathBuf>,
    /// The container image whose size is looked up.
    #[arg(long, default_value = "weir")]
    image: String,
    /// What `cargo bench` passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A build of Weir.
#[derive(Debug, Clone)]
pub struct Build {
    /// What it is called in the table.
    pub name: String,
    /// Its program.
    pub program: PathBuf,
}

fn build(argument: &str) -> Result<Build, String> {
    let (name, program) = argument.split_once('=').ok_or("write NAME=PROGRAM")?;
    let program = std::fs::canonicalize(program).map_err(|error| format!("{program}: {error}"))?;
    Ok(Build { name: name.to_owned(), program })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Group {
    /// Latency and processor time on one connection.
    Latency,
    /// Throughput on 16 connections.
    Throughput,
    /// Resident memory; takes about 45 s a build.
    Memory,
    /// What is measured inside the process, without connections: of this checkout only.
    Inside,
    /// Sizes, and the time until Weir listens.
    Start,
}

fn main() {
    let mut arguments = Arguments::parse();
    for (program, package) in [("nginx", "nginx-light"), ("wrk", "wrk"), ("kill", "procps")] {
        let run = Command::new(program).arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if run.is_err() {
            eprintln!(
                "{program} is needed and is not installed (Debian: {package}); run.sh beside this file does that"
            );
            std::process::exit(2);
        }
    }
    if arguments.weir.is_empty() {
        arguments.weir.push(Build { name: "Weir".to_owned(), program: env!("CARGO_BIN_EXE_weir").into() });
    }
    let builds = &arguments.weir;
    let wanted = |group| arguments.only.is_empty() || arguments.only.contains(&group);
    let mut table = Table::new(builds.iter().map(|build| build.name.clone()));
    if wanted(Group::Latency) || wanted(Group::Throughput) {
        let rounds = if wanted(Group::Latency) { arguments.rounds } else { 0 };
        let load_rounds = if wanted(Group::Throughput) { arguments.load_rounds } else { 0 };
        load::measure(builds, arguments.litellm.as_deref(), rounds, load_rounds, &mut table);
    }
    if wanted(Group::Memory) {
        memory::measure(builds, &mut table);
    }
    if wanted(Group::Inside) {
        inside::measure(&mut table);
    }
    if wanted(Group::Start) {
        start::measure(builds, &arguments.image, &mut table);
    }
    table.print();
}
