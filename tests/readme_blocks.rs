//! The blocks of README and its like: each command is run as it stands, or it is said why it can't be; each piece of a
//! configuration serves.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;
use std::fmt::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

const DOCUMENTS: [(&str, &str); 7] = [
    ("README.md", include_str!("../README.md")),
    ("CONTRIBUTING.md", include_str!("../CONTRIBUTING.md")),
    ("docs/adding-a-backend.md", include_str!("../docs/adding-a-backend.md")),
    ("docs/architecture.md", include_str!("../docs/architecture.md")),
    ("docs/performance.md", include_str!("../docs/performance.md")),
    ("docs/troubleshooting.md", include_str!("../docs/troubleshooting.md")),
    ("tests/README.md", include_str!("README.md")),
];

/// What becomes of a block of commands, which is known by its first line.
enum Fate {
    /// It is run.
    Runs(fn(&Reader, &str)),
    /// It isn't, for this reason.
    Cannot(&'static str),
}
use Fate::{Cannot, Runs};

const COMMANDS: &[(&str, Fate)] = &[
    // Start
    ("cargo run --release", Runs(Reader::starts_or_says_what_to_start)),
    ("curl -H \"Authorization:", Runs(Reader::asks_the_demo)),
    ("cargo run --release -- demo", Runs(Reader::serves_the_demo)),
    ("cargo test", Cannot("it runs this very test")),
    // In front of your model server
    ("weir init", Runs(Reader::writes_a_configuration_that_serves)),
    ("llama-server -m", Cannot("another program; tests/real_llamacpp.rs starts a real one")),
    ("vllm serve", Cannot("another program; scripts/try_with_vllm.sh starts a real one")),
    // Connect the phone
    ("curl -fsSLO https://github.com/", Cannot("it needs the network, and somebody with a phone")),
    ("weir doctor --deep", Runs(Reader::examines_the_demo)),
    ("CONDUCK_TOKEN=", Cannot("the app maker's script comes over the network; scripts/check_with_conduck_connect.sh")),
    // Docker, and as a service
    (
        "sudo install -m 600",
        Cannot("it needs Docker; tests/container/run.sh builds the image and runs it by compose.yaml"),
    ),
    ("sudo install target/release/weir", Cannot("it changes the system, and needs systemd")),
    // Commands
    ("mkdir -p ~/.local/share/bash-completion", Runs(Reader::installs_completions_and_the_man_page)),
    // CONTRIBUTING.md
    ("cargo run -- demo", Cannot("its second line runs this very test; README's demo is run")),
    // docs/performance.md
    ("benches/side_by_side/run.sh  ", Cannot("it measures for minutes, and needs nginx and wrk")),
    ("benches/side_by_side/run.sh --only", Cannot("it measures for minutes, and needs nginx and wrk")),
];

/// A fenced block.
#[derive(Debug)]
struct Block {
    place: String,
    language: String,
    text: String,
}

/// Every fenced block; one that is only indented would be passed over by whoever looks for fences, so there is none.
fn blocks() -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for (document, text) in DOCUMENTS {
        let mut open = false;
        let mut before = "";
        for (number, line) in text.lines().enumerate() {
            let place = format!("{document}, line {}", number + 1);
            match (open, line.strip_prefix("```")) {
                (false, Some(language)) => {
                    blocks.push(Block { place, language: language.to_owned(), text: String::new() });
                    open = true;
                }
                (true, Some(_)) => open = false,
                (true, None) => writeln!(blocks.last_mut().unwrap().text, "{line}").unwrap(),
                (false, None) => {
                    assert!(!(before.is_empty() && line.starts_with("    ")), "{place}: a block without a fence");
                }
            }
            before = line;
        }
        assert!(!open, "{document}: a block that isn't closed");
    }
    blocks
}

/// Somebody who types what README says, with an empty home. `weir` is in the path; so is a `cargo` that runs the binary that
/// is built already.
struct Reader {
    home: TempDir,
}

impl Reader {
    fn new() -> Self {
        let home = TempDir::new().unwrap();
        let programs = home.path().join("bin");
        std::fs::create_dir(&programs).unwrap();
        symlink(env!("CARGO_BIN_EXE_weir"), programs.join("weir")).unwrap();
        let cargo = "#!/bin/sh\n[ \"$1\" = run ] || exit 99\nshift\n[ \"$1\" != --release ] || shift\n\
                     [ \"$1\" != -- ] || shift\nexec weir \"$@\"\n";
        std::fs::write(programs.join("cargo"), cargo).unwrap();
        std::fs::set_permissions(programs.join("cargo"), std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { home }
    }

    /// A shell that runs this; a fixed port of the documents is this port.
    fn shell(&self, commands: &str, port: u16) -> Command {
        let mut shell = prepared(Command::new("bash"));
        let path = std::env::join_paths(
            std::iter::once(self.home.path().join("bin"))
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
        );
        shell
            .args(["-euc", &commands.replace("8480", &port.to_string())])
            .current_dir(self.home.path())
            .env("HOME", self.home.path())
            .env_remove("XDG_CONFIG_HOME")
            // For curl, which obeys the proxies that the harness sets.
            .env("NO_PROXY", "127.0.0.1")
            .env("PATH", path.unwrap())
            .env("ADAPTER_PORT", port.to_string());
        shell
    }

    fn file(&self, path: &str) -> PathBuf {
        self.home.path().join(path)
    }

    /// The only server is the one that the reader may run at a usual port, so either it serves or it says what to do.
    fn starts_or_says_what_to_start(&self, commands: &str) {
        let mut child = self.shell(&format!("exec {commands}"), 0).spawn().unwrap();
        let output = Output::collect(&mut child);
        let serves =
            output.wait_for_standard_output(|text| text.contains("listening on http://127.0.0.1:").then_some(()));
        if serves.is_some() {
            let _ = child.kill();
        }
        let status = child.wait().unwrap();
        let said = output.finish();
        let token = self.file(".config/weir/adapter.token");
        if serves.is_some() {
            assert!(token.exists(), "{said}");
        } else {
            assert_eq!(status.code(), Some(1), "{said}");
            assert!(said.contains("ollama serve") && said.contains("weir demo"), "{said}");
            assert!(!token.exists(), "{said}");
        }
    }

    fn demo(&self) -> Weir {
        let child = self.shell("exec weir demo", 0).spawn().unwrap();
        Weir::attach(child, None, Vec::new())
    }

    fn serves_the_demo(&self, commands: &str) {
        let child = self.shell(&format!("exec {commands}"), 0).spawn().unwrap();
        let weir = Weir::attach(child, None, Vec::new());
        assert_eq!(weir.stranger("GET", "/v1/models").send().status, 401);
    }

    fn asks_the_demo(&self, commands: &str) {
        let weir = self.demo();
        let answer = self.succeeds(commands, weir.address().port());
        let answer: serde_json::Value = serde_json::from_str(&answer).expect(&answer);
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(text.contains("demo"), "{text}");
    }

    fn examines_the_demo(&self, commands: &str) {
        let weir = self.demo();
        self.succeeds(commands, weir.address().port());
    }

    fn writes_a_configuration_that_serves(&self, commands: &str) {
        let upstream = ScriptedUpstream::ollama();
        // The usual ports belong to whoever runs the tests.
        self.succeeds(&format!("{} --url {}", commands.trim_end(), upstream.url()), 0);
        let token = std::fs::read_to_string(self.file(".config/weir/adapter.token")).unwrap();
        let child = self.shell("exec weir", 0).spawn().unwrap();
        let weir = Weir::attach(child, None, token.trim_end().as_bytes().to_vec());
        weir.ok("hello").assert_reply(REPLY);
    }

    fn installs_completions_and_the_man_page(&self, commands: &str) {
        self.succeeds(commands, 0);
        let load = "source ~/.local/share/bash-completion/completions/weir; complete -p weir";
        assert!(self.succeeds(load, 0).contains("weir"));
        let page = std::fs::read_to_string(self.file(".local/share/man/man1/weir.1")).unwrap();
        assert!(page.contains(".TH WEIR 1"), "{page}");
    }

    /// Runs this to its end; what it prints on its standard output.
    fn succeeds(&self, commands: &str, port: u16) -> String {
        let output = self.shell(commands, port).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let printed = text(&output.stdout);
        assert!(output.status.success(), "{commands}\n{printed}{}", text(&output.stderr));
        printed
    }
}

#[test]
fn every_block_of_commands_is_run_or_says_why_not() {
    let blocks = blocks();
    let mut used = vec![0; COMMANDS.len()];
    for block in blocks.iter().filter(|block| block.language == "sh") {
        let fits = |(start, _): &(&str, Fate)| block.text.starts_with(start);
        // The longest beginning is the one that was meant.
        let at = (0..COMMANDS.len()).filter(|at| fits(&COMMANDS[*at])).max_by_key(|at| COMMANDS[*at].0.len());
        let at = at.unwrap_or_else(|| panic!("{}: neither run nor excused:\n{}", block.place, block.text));
        used[at] += 1;
        eprintln!("{}", block.place);
        match &COMMANDS[at].1 {
            Runs(run) => run(&Reader::new(), &block.text),
            Cannot(why) => assert!(!why.is_empty()),
        }
    }
    for (at, (start, _)) in COMMANDS.iter().enumerate() {
        assert_eq!(used[at], 1, "{start}: as many blocks begin so");
    }
}

#[test]
fn every_piece_of_a_configuration_serves() {
    let upstream = ScriptedUpstream::start();
    let pieces: Vec<Block> = blocks().into_iter().filter(|block| block.language == "toml").collect();
    assert!(pieces.len() >= 3, "{pieces:?}");
    for piece in pieces {
        let mut text = piece.text;
        for port in ["11434", "8080", "8000", "1234"] {
            text = text.replace(&format!("http://127.0.0.1:{port}"), &upstream.url());
        }
        assert!(text.contains(&upstream.url()), "{}: it names no model server at a usual port", piece.place);
        let (code, said) = Builder::new().toml(&text).check();
        assert_eq!(code, 0, "{}: {said}", piece.place);
    }
}

#[test]
fn every_block_is_of_a_kind_that_is_tested_or_only_read() {
    for block in blocks() {
        let known = ["sh", "toml", "text", "json"].contains(&block.language.as_str());
        assert!(known, "{}: a block of {:?}", block.place, block.language);
        if block.language == "json" {
            for line in block.text.lines() {
                let _: serde_json::Value = serde_json::from_str(line).expect(&block.place);
            }
        }
    }
}
