//! `weir init`: from a model server that runs to a configuration that serves.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;
use serde_json::json;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use tempfile::TempDir;

/// An empty home.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join("weir").join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap()
    }

    fn configuration(&self) -> toml::Table {
        self.read("adapter.toml").parse().unwrap()
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(self.0.path()).unwrap().next().is_none()
    }

    fn command(&self) -> std::process::Command {
        let mut command = weir_command();
        command.current_dir(self.0.path()).env("HOME", self.0.path()).env("XDG_CONFIG_HOME", self.0.path());
        // The usual one may be taken on the machine that runs the tests.
        command.env("ADAPTER_PORT", ReservedPort::new().address().port().to_string());
        command
    }

    /// Runs `weir init` with these words and these lines on its standard input.
    fn init(&self, words: &[&str], lines: &str) -> (i32, String) {
        let mut child = self.command().arg("init").args(words).stdin(Stdio::piped()).spawn().unwrap();
        // It may end without reading them.
        let _ = child.stdin.take().unwrap().write_all(lines.as_bytes());
        run_to_end(child)
    }
}

#[test]
fn a_server_that_is_found_is_written_down_and_serves() {
    let upstream = ScriptedUpstream::ollama();
    let home = Home::new();
    let (code, output) = home.init(&["--yes", "--url", &upstream.url()], "");
    assert_eq!(code, 0, "{output}");
    let configuration = home.configuration();
    assert_eq!(configuration["upstream"]["local"]["url"].as_str(), Some(upstream.url().as_str()));
    assert_eq!(configuration["upstream"]["local"]["context"].as_integer(), Some(16_384));
    assert_eq!(configuration["models"]["default"].as_str(), Some("tiny-chat:latest"));
    for said in
        ["tiny-vision:latest", "text, pictures", "about 40 turns", "MiB of memory", "conduck-connect.sh --generic"]
    {
        assert!(output.contains(said), "{said}: {output}");
    }
    upstream.assert_no_chat();

    // The next command of the screen.
    let mut command = home.command();
    command.env("ADAPTER_PORT", "0");
    let token = home.read("adapter.token").trim_end().as_bytes().to_vec();
    let weir = Weir::attach(command.spawn().unwrap(), None, token);
    weir.ok("hi").assert_reply(REPLY);
    assert_eq!(upstream.last_chat().json()["options"]["num_ctx"], 16_384);
}

#[test]
fn the_port_of_the_screen_is_the_one_that_is_served() {
    let upstream = ScriptedUpstream::start();
    let home = Home::new();
    let mut command = home.command();
    command.args(["init", "--yes", "--url", &upstream.url()]).env("ADAPTER_PORT", "18481");
    let (code, output) = run_to_end(command.spawn().unwrap());
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("http://127.0.0.1:18481") && output.contains("port, 18481,"), "{output}");
}

#[test]
fn the_token_file_is_private_whatever_the_umask_and_never_shown() {
    let upstream = ScriptedUpstream::start();
    let home = Home::new();
    let script = "umask 000; exec \"$WEIR\" init --yes --url \"$URL\"";
    let mut command = home.command();
    command.env("WEIR", env!("CARGO_BIN_EXE_weir")).env("URL", upstream.url());
    let environment: Vec<_> =
        command.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
    let mut shell = std::process::Command::new("bash");
    shell.arg("-c").arg(script).current_dir(home.0.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, value) in environment {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let (code, output) = run_to_end(shell.spawn().unwrap());
    assert_eq!(code, 0, "{output}");
    let mode = std::fs::metadata(home.file("adapter.token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = home.read("adapter.token");
    assert_eq!(token.trim_end().len(), 64);
    assert!(!output.contains(token.trim_end()), "it was shown");
}

#[test]
fn without_a_server_nothing_is_written_and_it_is_said_what_to_start() {
    let home = Home::new();
    let nobody = ReservedPort::new();
    for words in [&["--yes", "--url", &nobody.url()][..], &["--url", &nobody.url()]] {
        let (code, output) = home.init(words, "");
        assert_eq!(code, 1, "{output}");
        assert!(output.contains("nothing listens there") && output.contains("nothing was written"), "{output}");
    }
    assert!(home.is_empty());
}

#[test]
fn a_server_that_wants_a_key_is_said_to_and_not_written() {
    let upstream = ScriptedUpstream::start();
    upstream.set_models(Script::json(401, &json!({"error": {"message": "key"}})));
    let home = Home::new();
    let (code, output) = home.init(&["--yes", "--url", &upstream.url()], "");
    assert_eq!(code, 1, "{output}");
    assert!(output.contains("api_key_file") && !output.contains("usual ports"), "{output}");
    assert!(home.is_empty());
}

#[test]
fn an_existing_configuration_is_never_replaced_without_asking() {
    let upstream = ScriptedUpstream::start();
    let home = Home::new();
    std::fs::create_dir(home.file("")).unwrap();
    std::fs::write(home.file("adapter.toml"), "mine = true\n").unwrap();
    let url = upstream.url();
    for (words, lines, said) in [
        (&["--yes", "--url", &url][..], "y\n", "without --yes"),
        (&["--url", &url], "n\n", "was left as it is"),
        (&["--url", &url], "\n", "was left as it is"),
        (&["--url", &url], "", "was left as it is"),
        (&["--url", &url], "perhaps\n", "answer y or n"),
    ] {
        let (code, output) = home.init(words, lines);
        assert_eq!(code, 1, "{output}");
        assert!(output.contains(said), "{output}");
        assert_eq!(home.read("adapter.toml"), "mine = true\n");
        assert!(!home.file("adapter.token").exists());
    }
    let (code, output) = home.init(&["--url", &url], "y\n");
    assert_eq!(code, 0, "{output}");
    assert_eq!(home.configuration()["models"]["default"].as_str(), Some("m"));
}

#[test]
fn a_token_that_is_there_is_kept_so_that_the_phone_stays_paired() {
    let upstream = ScriptedUpstream::start();
    let home = Home::new();
    std::fs::create_dir(home.file("")).unwrap();
    std::fs::write(home.file("adapter.token"), TOKEN).unwrap();
    std::fs::set_permissions(home.file("adapter.token"), std::fs::Permissions::from_mode(0o640)).unwrap();
    let (code, output) = home.init(&["--yes", "--url", &upstream.url()], "");
    assert_eq!(code, 0, "{output}");
    assert_eq!(home.read("adapter.token"), TOKEN);
    assert!(output.contains("was there already") && output.contains("chmod 600"), "{output}");
}

#[test]
fn a_token_file_without_a_token_is_a_configuration_error() {
    let upstream = ScriptedUpstream::start();
    let home = Home::new();
    std::fs::create_dir(home.file("")).unwrap();
    std::fs::write(home.file("adapter.token"), "\n").unwrap();
    let (code, output) = home.init(&["--yes", "--url", &upstream.url()], "");
    assert_eq!(code, 2, "{output}");
    assert!(output.contains("no token in"), "{output}");
}

#[test]
fn the_default_model_is_chosen_by_its_number_or_its_name() {
    let upstream = ScriptedUpstream::ollama();
    for (lines, chosen) in [
        ("2\n", "tiny-vision:latest"),
        ("tiny-vision:latest\n", "tiny-vision:latest"),
        ("\n", "tiny-chat:latest"),
        ("", "tiny-chat:latest"),
    ] {
        let home = Home::new();
        let (code, output) = home.init(&["--url", &upstream.url()], lines);
        assert_eq!(code, 0, "{output}");
        assert_eq!(home.configuration()["models"]["default"].as_str(), Some(chosen), "{lines:?}");
    }
    for lines in ["3\n", "0\n", "vectors:335m\n"] {
        let home = Home::new();
        let (code, output) = home.init(&["--url", &upstream.url()], lines);
        assert_eq!(code, 1, "{output}");
        assert!(output.contains("none of the models above"), "{output}");
        assert!(home.is_empty());
    }
}

#[test]
fn of_several_servers_all_are_taken_or_those_that_are_named() {
    let ollama = ScriptedUpstream::ollama();
    let llamacpp = ScriptedUpstream::llamacpp(false);
    let words = ["--url", &ollama.url(), "--url", &llamacpp.url()];
    let tables = |home: &Home| home.configuration()["upstream"].as_table().unwrap().keys().cloned().collect::<Vec<_>>();
    let home = Home::new();
    let (code, output) = home.init(&words, "all\n3\n");
    assert_eq!(code, 0, "{output}");
    assert_eq!(tables(&home), ["llamacpp", "ollama"]);
    assert_eq!(home.configuration()["models"]["default"].as_str(), Some("m"));
    let home = Home::new();
    let (code, output) = home.init(&words, "llamacpp\n");
    assert_eq!(code, 0, "{output}");
    assert_eq!(tables(&home), ["llamacpp"]);
    assert!(!home.configuration()["upstream"]["llamacpp"].as_table().unwrap().contains_key("context"));
    let home = Home::new();
    let (code, output) = home.init(&words, "vllm\n");
    assert_eq!(code, 1, "{output}");
    assert!(home.is_empty());
}

#[test]
fn no_more_context_is_asked_for_than_a_model_was_trained_for() {
    let upstream = ScriptedUpstream::ollama();
    let mut shown = ollama_json("show_chat.json");
    shown["model_info"]["llama.context_length"] = json!(8192);
    upstream.set_route("/api/show", Script::json(200, &shown));
    let home = Home::new();
    let (code, output) = home.init(&["--yes", "--url", &upstream.url()], "");
    assert_eq!(code, 0, "{output}");
    assert_eq!(home.configuration()["upstream"]["local"]["context"].as_integer(), Some(8192));
    assert!(output.contains("about 20 turns"), "{output}");
}

#[test]
fn a_server_without_a_model_yet_is_written_down_with_how_to_get_one() {
    let upstream = ScriptedUpstream::ollama();
    upstream.set_route("/api/tags", Script::json(200, &json!({"models": []})));
    upstream.set_models(Script::json(200, &json!({"object": "list", "data": null})));
    let home = Home::new();
    let (code, output) = home.init(&["--yes", "--url", &upstream.url()], "");
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("ollama pull"), "{output}");
    assert!(!home.configuration().contains_key("models"));
}

#[test]
fn the_file_goes_where_it_is_wanted_and_the_next_commands_name_it() {
    let upstream = ScriptedUpstream::start();
    let home = Home::new();
    let config = home.0.path().join("a folder").join("mine.toml");
    let (code, output) = home.init(&["--yes", "--url", &upstream.url(), "--config", config.to_str().unwrap()], "");
    assert_eq!(code, 0, "{output}");
    assert!(config.exists() && config.with_file_name("adapter.token").exists());
    assert!(output.contains(&format!("--config '{}'", config.display())), "{output}");
    assert!(!home.file("adapter.toml").exists());
}

#[test]
fn an_address_may_be_given_in_short_and_a_wrong_one_is_refused() {
    let upstream = ScriptedUpstream::start();
    let home = Home::new();
    let (code, output) = home.init(&["--yes", "--url", &upstream.address().to_string()], "");
    assert_eq!(code, 0, "{output}");
    let home = Home::new();
    let (code, output) = home.init(&["--yes", "--url", "http://127.0.0.1:1/v1/chat/completions"], "");
    assert_eq!(code, 2, "{output}");
    assert!(output.contains("the path of one route"), "{output}");
    assert!(home.is_empty());
}

#[test]
fn the_screen_is_80_columns_wide_and_has_no_colours_in_a_pipe() {
    let upstream = ScriptedUpstream::ollama();
    let home = Home::new();
    let (_, output) = home.init(&["--url", &upstream.url()], "1\n");
    assert!(!output.contains('\u{1b}'));
    // Paths and commands are not folded.
    for line in output.lines().filter(|line| !line.contains('/')) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}
