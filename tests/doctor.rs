//! `weir doctor`: it finds what is wrong with an adapter, and nothing wrong with one that is well.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod broken_adapters;
mod common;

use base64::Engine as _;
use broken_adapters::{BrokenAdapter, Fault, VARIANTS};
use common::*;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use weir::cli::doctor::picture::Digits;

/// What the doctor said in JSON, and how it ended.
struct Diagnosis {
    code: i32,
    output: String,
    findings: Vec<Value>,
}

impl Diagnosis {
    fn with(&self, verdict: &str) -> Vec<&str> {
        let with = self.findings.iter().filter(|finding| finding["verdict"] == verdict);
        with.map(|finding| finding["id"].as_str().unwrap()).collect()
    }

    fn find(&self, id: &str) -> &Value {
        let found = self.findings.iter().find(|finding| finding["id"] == id);
        found.unwrap_or_else(|| panic!("nothing about {id} in {}", self.output))
    }

    /// The three parts that a finding says which is not a good one.
    fn parts(&self, id: &str) -> [&str; 3] {
        ["seen", "why", "mend"].map(|part| self.find(id)[part].as_str().expect(part))
    }
}

/// Runs the doctor with these words, this configuration, and this port in the environment.
fn run(words: &[&str], config: &Path, port: u16) -> (i32, String) {
    let mut command = weir_command();
    command.arg("doctor").args(words).arg("--config").arg(config).env("ADAPTER_PORT", port.to_string());
    run_to_end(command.spawn().unwrap())
}

fn diagnose(words: &[&str], config: &Path, port: u16) -> Diagnosis {
    let (code, output) = run(&[words, &["--json"]].concat(), config, port);
    let document: Value = serde_json::from_str(&output).expect(&output);
    assert_eq!(document["passed"], code == 0, "{output}");
    let findings = document["findings"].as_array().unwrap().clone();
    Diagnosis { code, output, findings }
}

/// Looks at a running Weir by its own configuration.
fn diagnose_weir(weir: &Weir, words: &[&str]) -> Diagnosis {
    diagnose(words, &weir.folder().join("adapter.toml"), weir.address().port())
}

/// A folder with a configuration whose model server is not there.
fn configuration() -> (tempfile::TempDir, PathBuf, ReservedPort) {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("adapter.toml");
    let nobody = ReservedPort::new();
    let text = format!("token_file = \"adapter.token\"\n[upstream.local]\nurl = \"{}\"\n", nobody.url());
    std::fs::write(&file, text).unwrap();
    let token_file = folder.path().join("adapter.token");
    std::fs::write(&token_file, TOKEN).unwrap();
    std::fs::set_permissions(&token_file, std::fs::Permissions::from_mode(0o600)).unwrap();
    (folder, file, nobody)
}

#[test]
fn every_broken_adapter_fails_for_its_own_fault_and_no_other() {
    let (_folder, config, _nobody) = configuration();
    // A few at a time: each is sent a body of 50 MiB.
    for variants in VARIANTS.chunks(4) {
        std::thread::scope(|scope| {
            for variant in variants {
                let config = &config;
                scope.spawn(move || {
                    let adapter = BrokenAdapter::start(variant.fault, TOKEN, 0).unwrap();
                    let diagnosis = diagnose(&["--deep"], config, adapter.address().port());
                    assert_eq!(diagnosis.with("failed"), variant.fails, "{}: {}", variant.name, diagnosis.output);
                    assert_eq!(diagnosis.code, i32::from(!variant.fails.is_empty()), "{}", variant.name);
                    for id in variant.fails {
                        let [seen, why, mend] = diagnosis.parts(id);
                        for part in [seen, why, mend] {
                            assert!(!part.is_empty() && !part.contains('\n'), "{}: {part}", variant.name);
                        }
                        // It is not folded, so that it can be copied.
                        assert!(mend.chars().count() <= 66, "{}: {mend}", variant.name);
                    }
                });
            }
        });
    }
}

#[test]
fn a_connection_that_ends_unannounced_is_a_warning() {
    let (_folder, config, _nobody) = configuration();
    let adapter = BrokenAdapter::start(Fault::ClosesUnsaid, TOKEN, 0).unwrap();
    let diagnosis = diagnose(&[], &config, adapter.address().port());
    for id in ["refused-token", "refused-large"] {
        assert_eq!(diagnosis.find(id)["verdict"], "warning", "{}", diagnosis.output);
    }
}

#[test]
fn nothing_is_wrong_with_a_weir_that_is_well() {
    let upstream = ScriptedUpstream::llamacpp(false);
    upstream.always(Script::text("pong"));
    let weir = Weir::before(&upstream).kind("llamacpp").start();
    let diagnosis = diagnose_weir(&weir, &["--deep"]);
    assert_eq!(diagnosis.code, 0, "{}", diagnosis.output);
    assert!(diagnosis.with("warning").is_empty() && diagnosis.with("skipped").is_empty(), "{}", diagnosis.output);
    assert!(diagnosis.find("turn-picture")["seen"].as_str().unwrap().contains("declined"));
    assert!(diagnosis.find("context")["seen"].as_str().unwrap().contains("131072 tokens"));
}

/// The digits of the doctor's picture in a turn, by comparing it with pictures of each digit.
fn read_digits(chat: &Value) -> String {
    let messages = chat["messages"].as_array().unwrap();
    let parts = messages.last().unwrap()["content"].as_array().unwrap();
    let url = parts.iter().find_map(|part| part["image_url"]["url"].as_str()).unwrap();
    let bytes = |url: &str| {
        let data = url.strip_prefix("data:image/png;base64,").unwrap();
        base64::engine::general_purpose::STANDARD.decode(data).unwrap()
    };
    let picture = bytes(url);
    let known: Vec<Vec<u8>> = (0..10).map(|digit| bytes(&Digits([digit; 6]).data_uri())).collect();
    // One row is 80 bytes of pixels behind one of filtering; the pixels begin behind 48 bytes of the file.
    let column = |at: usize| (at.saturating_sub(48) % 81).saturating_sub(1);
    let place_of = |at: usize| column(at).checked_sub(12).map(|column| column / 10);
    (0..6)
        .map(|place| {
            let alike = |one: &Vec<u8>| {
                (48..picture.len() - 20).filter(|at| place_of(*at) == Some(place) && one[*at] != picture[*at]).count()
            };
            let digit = known.iter().position(|known| alike(known) == 0).expect("no digit there");
            char::from_digit(u32::try_from(digit).unwrap(), 10).unwrap()
        })
        .collect()
}

#[test]
fn the_picture_reaches_the_model_whole_and_its_digits_are_the_proof() {
    let upstream = ScriptedUpstream::llamacpp(true);
    upstream.always(Script::from_fn(|request| {
        let chat = request.json();
        let shows = chat["messages"].as_array().unwrap().last().unwrap()["content"].is_array();
        let reply = if shows { read_digits(&chat) } else { "pong".to_owned() };
        Script::text(&reply).for_request(request)
    }));
    let weir = Weir::before(&upstream).kind("llamacpp").start();
    let diagnosis = diagnose_weir(&weir, &["--deep"]);
    assert_eq!(diagnosis.code, 0, "{}", diagnosis.output);
    assert!(diagnosis.find("turn-picture")["seen"].as_str().unwrap().contains("reads it"));

    upstream.always(Script::text("A fine picture of 123 cats."));
    let diagnosis = diagnose_weir(&weir, &["--deep"]);
    assert_eq!(diagnosis.with("failed"), ["turn-picture"], "{}", diagnosis.output);
    assert_eq!(diagnosis.code, 1);

    // A model that was given more for the picture than for its words has got it, whatever it makes of it.
    upstream.always(Script::from_fn(|request| {
        let content = &request.json()["messages"][0]["content"];
        let tokens = if content.is_array() { 11 + 64 } else { 11 };
        let mut events = text_events("A fine picture of 123 cats.", "stop");
        let usage = events.iter_mut().find(|event| event.contains("prompt_tokens")).unwrap();
        *usage = usage.replace(":11,", &format!(":{tokens},"));
        Script::events(&events).for_request(request)
    }));
    let diagnosis = diagnose_weir(&weir, &["--deep"]);
    assert_eq!(diagnosis.code, 0, "{}", diagnosis.output);
    assert_eq!(diagnosis.find("turn-picture")["verdict"], "warning", "{}", diagnosis.output);
    assert!(diagnosis.find("turn-picture")["seen"].as_str().unwrap().contains("the picture arrives"));

    let diagnosis = diagnose_weir(&weir, &[]);
    assert!(diagnosis.findings.iter().all(|finding| finding["id"] != "turn-picture"), "it was not asked for");
}

#[test]
fn where_no_turn_is_answered_the_reason_is_said_and_the_rest_is_skipped() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).models("default = \"m\"").start();
    upstream.stop();
    let diagnosis = diagnose_weir(&weir, &[]);
    assert_eq!(diagnosis.code, 1);
    assert_eq!(diagnosis.with("failed"), ["turn-default", "turn-model"], "{}", diagnosis.output);
    assert_eq!(diagnosis.with("skipped"), ["turn-unknown-model", "turn-history-picture", "turn-stream"]);
    // In a container the address is the likelier reason.
    let id = if Path::new("/.dockerenv").exists() { "container" } else { "upstream" };
    assert!(diagnosis.parts(id)[0].starts_with("local"), "{}", diagnosis.output);
}

#[test]
fn an_adapter_that_is_not_there_is_said_to_be_so() {
    let (_folder, config, _nobody) = configuration();
    let diagnosis = diagnose(&[], &config, ReservedPort::new().address().port());
    assert_eq!(diagnosis.code, 1);
    assert_eq!(diagnosis.with("failed"), ["models"]);
    let [seen, _, mend] = diagnosis.parts("models");
    assert!(seen.contains("nothing listens"), "{seen}");
    assert_eq!(mend, "weir");
}

#[test]
fn an_adapter_with_another_token_is_told_from_one_that_is_broken() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    std::fs::write(weir.folder().join("adapter.token"), secret("another-token")).unwrap();
    let diagnosis = diagnose_weir(&weir, &[]);
    assert_eq!(diagnosis.with("failed"), ["models"], "{}", diagnosis.output);
    assert!(diagnosis.parts("models")[2].contains("restart"));
    upstream.assert_no_chat();
}

#[test]
fn a_configuration_that_names_no_port_or_is_faulty_ends_with_2() {
    let (_folder, config, _nobody) = configuration();
    let (code, output) = run(&[], &config, 0);
    assert_eq!(code, 2);
    assert!(output.contains("port is 0"), "{output}");
    std::fs::write(&config, "prot = 1\n").unwrap();
    assert_eq!(run(&[], &config, 8480).0, 2);
}

#[test]
fn without_a_configuration_the_token_in_the_environment_is_enough_and_nothing_is_made() {
    let home = tempfile::TempDir::new().unwrap();
    let weir = Weir::attach(demo_command(home.path()).spawn().unwrap(), None, Vec::new());
    let doctor = || {
        let mut command = weir_command();
        command.args(["doctor", "--json"]).current_dir(home.path());
        command.env("HOME", home.path()).env("XDG_CONFIG_HOME", home.path());
        command.env("ADAPTER_PORT", weir.address().port().to_string());
        command
    };
    let (code, output) = run_to_end(doctor().env("ADAPTER_TOKEN", TOKEN).spawn().unwrap());
    assert_eq!(code, 0, "{output}");
    let (code, output) = run_to_end(doctor().spawn().unwrap());
    assert_eq!(code, 2, "{output}");
    assert!(output.contains("token"), "{output}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "something was made");
}

#[test]
fn what_around_an_adapter_could_bite_is_said_with_what_mends_it() {
    let upstream = ScriptedUpstream::ollama();
    let localhost = upstream.url().replace("127.0.0.1", "localhost");
    let weir = Builder::new().upstream("home", &localhost).kind("auto").models("default = \"tiny-vision\"").start();
    let token_file = weir.folder().join("adapter.token");
    std::fs::set_permissions(&token_file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let diagnosis = diagnose_weir(&weir, &[]);
    // Each works, so none fails.
    assert_eq!(diagnosis.code, 0, "{}", diagnosis.output);
    let mend = |id: &str, verdict: &str| {
        assert_eq!(diagnosis.find(id)["verdict"], verdict, "{}", diagnosis.output);
        diagnosis.parts(id)[2].to_owned()
    };
    assert!(diagnosis.parts("context")[0].contains("4096 tokens, about 10 turns"));
    assert_eq!(mend("context", "warning"), "context = 16384 below [upstream.home]");
    assert_eq!(mend("secret-file", "warning"), format!("chmod 600 {}", token_file.display()));
    assert_eq!(mend("address", "note"), format!("url = \"{}\"", upstream.url()));
    assert!(mend("front-time", "note").contains("[timeouts]"));
    assert_eq!(mend("front-body", "note"), "client_max_body_size 64m;");
    // `weir_command` sets proxies.
    assert!(mend("proxy", "note").contains("NO_PROXY=127.0.0.1"));
    assert!(!diagnosis.output.contains("127.0.0.1:9\""), "the proxy's address is shown");
}

#[test]
fn limits_that_no_front_gets_in_the_way_of_are_well() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).turn("95s").limit("body = \"128MiB\"").start();
    let diagnosis = diagnose_weir(&weir, &[]);
    assert_eq!(diagnosis.find("front-time")["verdict"], "ok");
    assert!(diagnosis.parts("front-body")[1].contains("Cloudflare"), "{}", diagnosis.output);
    assert_eq!(diagnosis.find("front-body")["verdict"], "warning");
}

#[test]
fn the_screen_is_80_columns_wide_and_has_colours_only_where_they_are_wanted() {
    let (_folder, config, _nobody) = configuration();
    let adapter = BrokenAdapter::start(Fault::HistoryRefused, TOKEN, 0).unwrap();
    let port = adapter.address().port();
    let (code, plain) = run(&[], &config, port);
    assert_eq!(code, 1);
    assert!(!plain.contains('\u{1b}'), "colours in a pipe");
    for line in plain.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(plain.contains("FAIL  turn-history-picture"), "{plain}");

    let mut command = weir_command();
    command.args(["doctor", "--config"]).arg(&config).env("ADAPTER_PORT", port.to_string()).env("CLICOLOR_FORCE", "1");
    let (_, coloured) = run_to_end(command.spawn().unwrap());
    assert!(coloured.contains("\u{1b}[1m\u{1b}[31mFAIL\u{1b}[0m"), "{coloured:?}");
}

#[test]
fn neither_a_token_nor_a_reply_is_shown() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for words in [&["--deep"][..], &["--deep", "--json"]] {
        let (code, output) = run(words, &weir.folder().join("adapter.toml"), weir.address().port());
        // `run_to_end` looks for the canary, which the token and the reply carry.
        assert_eq!(code, 0, "{output}");
        assert!(!output.contains("The answer of the model"));
    }
    let asked: Vec<Value> = upstream.chats().iter().map(|chat| json!(chat.messages().len())).collect();
    assert!(asked.contains(&json!(3)), "a turn with a history was sent: {asked:?}");
}
