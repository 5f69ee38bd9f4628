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

/// The commands that `weir --help` names.
fn commands() -> Vec<String> {
    let help = weir_command().arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    list.lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

/// What a command prints that succeeds.
fn printed(words: &[&str]) -> String {
    let output = weir_command().args(words).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_help_of_every_command_fits_a_screen_of_80_columns() {
    let mut pages = vec![printed(&["--help"]), printed(&["-h"])];
    pages.extend(commands().iter().map(|command| printed(&["help", command])));
    for line in pages.iter().flat_map(|page| page.lines()) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn the_completions_and_the_man_page_name_every_command_and_option() {
    let commands = commands();
    assert!(commands.len() > 8, "{commands:?}");
    let options = ["config", "yes", "url", "probe-images", "deep", "json", "output"];
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&["completions", shell]);
        for word in commands.iter().map(String::as_str).chain(options) {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    // In a man page a hyphen has a backslash before it.
    let page = printed(&["man"]).replace('\\', "");
    for command in commands.iter().filter(|command| *command != "help") {
        assert!(page.contains(&format!(".SS \"weir {command}\"")), "{command}");
    }
    for option in options {
        assert!(page.contains(&format!("--{option}")), "{option}");
    }
}

#[test]
fn bash_completes_a_command_its_options_and_a_shell() {
    let complete = |typed: &str| {
        let script = format!(
            "set -e; source <({} completions bash); COMP_WORDS=({typed}); [[ '{typed}' != *' ' ]] || COMP_WORDS+=('')
             COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); completer=$(complete -p weir | sed 's/.* -F \\([^ ]*\\) .*/\\1/')
             $completer weir \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"
             echo \"${{COMPREPLY[@]}}\"",
            env!("CARGO_BIN_EXE_weir")
        );
        bash(&script).trim_end().to_owned()
    };
    assert_eq!(complete("weir do"), "doctor");
    assert_eq!(complete("weir doctor --d"), "--deep");
    assert_eq!(complete("weir completions z"), "zsh");
    assert_eq!(complete("weir c"), "check completions");
}

#[test]
fn a_reader_of_the_completions_that_has_gone_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output =
        weir_command().args(["completions", "zsh"]).stdout(writer).spawn().unwrap().wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_reader_of_a_screen_that_has_gone_ends_the_command_without_a_word() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for word in ["check", "status", "doctor", "healthcheck", "token"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = weir_command();
        command.arg(word).stdout(writer);
        if word != "token" {
            command.arg("--config").arg(weir.folder().join("adapter.toml"));
            command.env("ADAPTER_PORT", weir.address().port().to_string());
        }
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{word}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{word}");
    }
}
