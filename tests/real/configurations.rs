//! How Weir is set up in front of a real server, and what it says about it.

use std::path::Path;
use std::process::Output;

use tempfile::TempDir;

use crate::common::{CANARY, TOKEN, say, secret, weir_command};
use crate::llama_server::{Launch, LlamaServer, free_port, turn};

const KEY: &str = "CANARY-7f3a-key-of-the-model-server";

#[test]
fn the_kind_of_the_server_is_recognised() {
    let server = Launch::vision().start();
    for kind in ["auto", "openai"] {
        let weir = server.behind_weir().kind(kind).start();
        turn(&weir, &say(secret("Hello"))).assert_reply("pong");
        weir.wait_for_log("up: llama.cpp");
    }
}

#[test]
fn with_its_key_a_guarded_server_answers() {
    let server = Launch::chat().key(KEY).start();
    let weir = server.behind_weir().upstream_key(KEY.as_bytes()).start();
    assert_eq!(weir.ids(), ["tiny-chat"]);
    turn(&weir, &say(secret("Hello"))).assert_reply("pong");
}

#[test]
fn without_its_key_a_guarded_server_is_a_failure_that_the_log_explains() {
    let server = Launch::chat().key(KEY).start();
    let wrong = server.behind_weir().upstream_key(b"CANARY-7f3a-another-key");
    for builder in [server.behind_weir(), wrong] {
        let weir = builder.models("default = \"tiny-chat\"").start();
        // Never 401: the phone's own token is right.
        turn(&weir, &say(secret("Hello"))).assert_error(502, "upstream_failure");
        weir.wait_for_log("api_key_file");
    }
}

/// A configuration file for this server, and its folder.
fn configuration(server: &LlamaServer, port: u16) -> TempDir {
    let directory = TempDir::new().unwrap();
    let file = format!("port = {port}\n[upstream.local]\nurl = \"http://{}/v1\"\n", server.address());
    std::fs::write(directory.path().join("adapter.toml"), file).unwrap();
    directory
}

fn weir(directory: &Path, command: &str) -> Output {
    let mut weir = weir_command();
    weir.arg(command).current_dir(directory).env("ADAPTER_TOKEN", TOKEN);
    weir.output().unwrap()
}

#[test]
fn check_prints_what_the_model_sees_and_holds() {
    for (launch, pictures) in [(Launch::vision(), "pictures: yes"), (Launch::chat(), "pictures: no")] {
        let server = launch.context(4096).start();
        let directory = configuration(&server, 0);
        let output = weir(directory.path(), "check");
        let said = String::from_utf8_lossy(&output.stdout);
        // The lines are folded for a screen.
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(0), "{said}");
        for expected in ["llama.cpp", "1 turn(s) at once", server.model(), pictures, "context: 4096 tokens"] {
            assert!(said.contains(expected), "{expected} is not in:\n{said}");
        }
        assert!(!said.contains(CANARY), "check prints the token");
    }
}

#[test]
fn check_fails_when_the_server_is_gone() {
    let server = Launch::chat().start();
    let directory = configuration(&server, 0);
    server.crash();
    assert_eq!(weir(directory.path(), "check").status.code(), Some(1));
}

#[test]
fn healthcheck_is_well_while_weir_serves_and_ill_otherwise() {
    let server = Launch::chat().start();
    let port = free_port().port();
    let directory = configuration(&server, port);
    assert_eq!(weir(directory.path(), "healthcheck").status.code(), Some(1));
    let serving = server.behind_weir().top(&format!("port = {port}")).start();
    assert_eq!(serving.address().port(), port);
    assert_eq!(weir(directory.path(), "healthcheck").status.code(), Some(0));
    turn(&serving, &say(secret("Hello"))).assert_reply("pong");
}
