//! Chapter O, as far as it is about what a person types, and the bounds of the configuration.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

/// What bash prints when it runs this with `TOKEN` set.
fn bash(script: &str) -> String {
    let output = Command::new("bash").arg("-c").arg(script).env("TOKEN", TOKEN).output().expect("bash is needed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn row_158_the_three_commands_of_the_self_test_print_what_the_contract_says() {
    assert!(!bash("command -v curl").is_empty(), "curl is needed for this test and is not installed");
    let upstream = ScriptedUpstream::start();
    upstream.always(Script::text("pong"));
    let weir = Weir::in_front_of(&upstream);
    let here = |command: &str| bash(&command.replace("8480", &weir.address().port().to_string()));

    let models = here(r#"curl -s -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8480/v1/models"#);
    let models: serde_json::Value = serde_json::from_str(&models).unwrap();
    assert_eq!(models["object"], "list");
    assert_eq!(models["data"][0]["object"], "model");
    assert_eq!(models["data"][0]["id"], "m");

    let status = here(r"curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8480/v1/models");
    assert_eq!(status, "401");

    let reply = here(
        r#"curl -s -X POST -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" \
  -d '{"messages":[{"role":"user","content":"Reply with exactly: pong"}],"stream":false}' \
  http://127.0.0.1:8480/v1/chat/completions"#,
    );
    let reply: serde_json::Value = serde_json::from_str(&reply).unwrap();
    let message = &reply["choices"][0]["message"];
    assert_eq!(message["role"], "assistant");
    assert_eq!(message["content"], "pong");
}

#[test]
fn row_159_a_deadline_that_the_app_would_not_wait_for_refuses_to_start() {
    for turn in ["296s", "300s", "10m", "0s"] {
        let upstream = ScriptedUpstream::start();
        let refusal = Weir::before(&upstream).turn(turn).refused();
        assert_eq!(refusal.code, 2, "{turn}");
        assert!(refusal.output.contains("turn"), "{}", refusal.output);
    }
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).turn("295s").start();
    weir.ok("hi").assert_reply(REPLY);
}

/// 32 bytes as hexadecimal digits.
fn assert_token(token: &str) {
    assert_eq!(token.len(), 64, "{} characters", token.len());
    assert!(token.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)));
}

#[test]
fn row_159_a_new_token_is_32_random_bytes_in_hexadecimal() {
    let new = || {
        let output = weir_command().arg("token").output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    let (one, two) = (new(), new());
    assert_token(&one);
    assert_token(&two);
    assert_ne!(one, two);
}

#[test]
fn row_159_a_token_file_is_private_whatever_the_umask_and_never_overwritten() {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("new.token");
    let write = || {
        let script = format!("umask 000; exec {} token --output {}", env!("CARGO_BIN_EXE_weir"), file.display());
        Command::new("bash").arg("-c").arg(script).output().unwrap()
    };
    let first = write();
    assert_eq!(first.status.code(), Some(0), "{}", String::from_utf8_lossy(&first.stderr));
    let token = std::fs::read_to_string(&file).unwrap();
    assert_token(token.trim_end());
    let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    for stream in [&first.stdout, &first.stderr] {
        assert!(!String::from_utf8_lossy(stream).contains(token.trim_end()), "it was shown");
    }
    assert_ne!(write().status.code(), Some(0), "an existing file was taken");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), token);
}

#[test]
fn the_health_check_needs_no_configuration_and_no_model_server() {
    let home = tempfile::TempDir::new().unwrap();
    let weir = Weir::attach(demo_command(home.path()).spawn().unwrap(), None, Vec::new());
    let port = weir.address().port().to_string();
    let check = |port: &str| {
        let mut command = weir_command();
        command.arg("healthcheck").env("ADAPTER_PORT", port).env("ADAPTER_TOKEN", TOKEN).env("HOME", home.path());
        run_to_end(command.spawn().unwrap())
    };
    let (code, output) = check(&port);
    assert_eq!(code, 0, "{output}");
    let nobody = ReservedPort::new();
    let (code, output) = check(&nobody.address().port().to_string());
    assert_eq!(code, 1);
    assert!(output.contains("is the adapter running"), "{output}");
}

#[test]
fn a_command_that_reads_no_configuration_refuses_one() {
    for command_word in ["demo", "token"] {
        let mut command = weir_command();
        command.args([command_word, "--config", "adapter.toml"]);
        let (code, output) = run_to_end(command.spawn().unwrap());
        assert_eq!(code, 2, "{command_word}");
        assert!(output.contains("--config"), "{output}");
    }
}
