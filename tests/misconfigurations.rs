//! What a person is told who got the configuration wrong: each fault is one message, and each message says where it is, which
//! key, what was found, what is accepted, and what mends it. The messages stand here whole.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]
#![allow(unreachable_pub)]

mod common;
#[path = "tls/front.rs"]
#[allow(dead_code)]
mod front;

use common::*;
use front::{Authority, HOST, TlsFront};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// The parts of a message.
struct Message<'a> {
    place: &'a str,
    key: &'a str,
    found: &'a str,
    accepted: &'a str,
    mend: &'a str,
}

/// A folder with a token file and this configuration.
struct Folder(TempDir);

impl Folder {
    fn with(configuration: &str) -> Self {
        let folder = Self(TempDir::new().unwrap());
        folder.write("adapter.token", TOKEN, 0o600);
        folder.write("adapter.toml", configuration, 0o600);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        std::fs::write(self.path(name), text).unwrap();
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn command(&self, word: &str) -> Command {
        let mut command = weir_command();
        command.arg(word).arg("--config").arg(self.path("adapter.toml")).env_remove("container");
        command
    }

    /// `weir check` says exactly this once, and ends with this code. `FOLDER` stands for the folder.
    #[track_caller]
    fn check(&self, code: i32, message: &Message<'_>) {
        self.says(self.command("check"), code, message);
    }

    /// So does `weir serve`, and serves nobody.
    #[track_caller]
    fn refused(&self, message: &Message<'_>) {
        self.check(2, message);
        self.says(self.command("serve"), 2, message);
    }

    #[track_caller]
    fn says(&self, mut command: Command, code: i32, message: &Message<'_>) {
        let (ended, output) = run_to_end(command.spawn().unwrap());
        let Message { place, key, found, accepted, mend } = message;
        for part in [place, key, found, accepted, mend] {
            assert!(!part.is_empty());
        }
        // A screen folds it.
        let said = output.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = said.replace(self.0.path().to_str().unwrap(), "FOLDER");
        let whole = format!("{place}: {key}: found {found}; accepted: {accepted}. {mend}");
        assert_eq!(said.matches(&whole).count(), 1, "{whole}\nis not what was said:\n{said}");
        assert_eq!(ended, code, "{said}");
        assert!(!output.contains("listening on"), "{output}");
    }
}

/// A configuration with this model server and these further lines.
fn configuration(url: &str, further: &str) -> String {
    format!("port = 0\ntoken_file = \"adapter.token\"\n\n[upstream.local]\nurl = \"{url}\"\n{further}")
}

/// The address of a model server that nobody asks.
const UNASKED: &str = "http://127.0.0.1:11434";

#[test]
fn a_port_where_something_else_than_a_model_server_listens() {
    let other = ScriptedUpstream::start();
    other.set_models(Script::refusal(404, "not here"));
    let folder = Folder::with(&configuration(&other.url(), "kind = \"openai\"\n"));
    folder.check(
        1,
        &Message {
            place: "FOLDER/adapter.toml, line 5",
            key: "upstream.local.url",
            found: &format!("{}, and it answered the question for its models with status 404 Not Found", other.url()),
            accepted: "the address of a running model server",
            mend: "Correct url, its port above all.",
        },
    );
}

#[test]
fn a_model_server_that_is_down() {
    let nobody = ReservedPort::new();
    Folder::with(&configuration(&nobody.url(), "")).check(
        1,
        &Message {
            place: "FOLDER/adapter.toml, line 5",
            key: "upstream.local.url",
            found: &format!("{}, and nothing listens there", nobody.url()),
            accepted: "the address of a running model server",
            mend: "Start the server, or correct the port in its url.",
        },
    );
}

#[test]
fn a_model_that_is_not_pulled() {
    let ollama = ScriptedUpstream::ollama();
    let folder = Folder::with(&configuration(&ollama.url(), "\n[models]\ndefault = \"qwen3:14b\"\n"));
    folder.check(
        1,
        &Message {
            place: "FOLDER/adapter.toml, line 8",
            key: "models.default",
            found: "\"qwen3:14b\", which is none of the models here",
            accepted: "\"tiny-chat:latest\", \"tiny-vision:latest\"",
            mend: "Name one of these, or run ollama pull qwen3:14b",
        },
    );
}

#[test]
fn a_token_file_that_is_missing() {
    let folder = Folder::with(&configuration(UNASKED, ""));
    std::fs::remove_file(folder.path("adapter.token")).unwrap();
    folder.refused(&Message {
        place: "FOLDER/adapter.toml, line 2",
        key: "token_file",
        found: "no file at \"FOLDER/adapter.token\"",
        accepted: "the path of a readable file with one token a line",
        mend: "Correct the path (a relative one counts from the file it stands in), or make the file: weir token \
               --output does.",
    });
}

#[test]
fn a_token_file_that_is_empty() {
    let folder = Folder::with(&configuration(UNASKED, ""));
    folder.write("adapter.token", "\n\r\n", 0o600);
    folder.refused(&Message {
        place: "FOLDER/adapter.toml, line 2",
        key: "token_file",
        found: "no token in \"FOLDER/adapter.token\"",
        accepted: "one token a line",
        mend: "Write the token that the app sends into it; `weir token` makes one.",
    });
}

#[test]
fn a_token_file_that_others_can_read_is_a_warning() {
    let upstream = ScriptedUpstream::start();
    let folder = Folder::with(&configuration(&upstream.url(), ""));
    folder.write("adapter.token", TOKEN, 0o644);
    folder.check(
        0,
        &Message {
            place: "warning: FOLDER/adapter.toml, line 2",
            key: "token_file",
            found: "FOLDER/adapter.token, to which other users of this machine have access (mode 644)",
            accepted: "a file for its owner alone (mode 600)",
            mend: "Run chmod 600 FOLDER/adapter.token",
        },
    );
}

#[test]
fn a_cap_on_bodies_that_is_too_small() {
    Folder::with(&configuration(UNASKED, "\n[limits]\nbody = \"10MiB\"\n")).refused(&Message {
        place: "FOLDER/adapter.toml, line 8",
        key: "limits.body",
        found: "10485760 bytes (10.0 MiB)",
        accepted: "at least 52428800 bytes (50 MiB)",
        mend: "The contract fixes this floor: a smaller cap breaks picture turns. Write \"50MiB\" or more, or remove the key.",
    });
}

#[test]
fn a_typo_in_a_key() {
    Folder::with(&configuration(UNASKED, "contxt = 16384\n")).refused(&Message {
        place: "FOLDER/adapter.toml, line 6",
        key: "upstream.local.contxt",
        found: "an unknown key",
        accepted: "url, kind, api_key_file, ca_file, concurrency, context, keep_alive",
        mend: "Did you mean upstream.local.context?",
    });
}

#[test]
fn a_value_of_the_wrong_type() {
    Folder::with("port = \"8480\"\ntoken_file = \"adapter.token\"\n").refused(&Message {
        place: "FOLDER/adapter.toml, line 1",
        key: "port",
        found: "the text \"8480\"",
        accepted: "a whole number from 0 to 65535",
        mend: "Write port = N (a number without quotes).",
    });
}

#[test]
fn an_address_with_the_path_of_a_route() {
    let url = "http://127.0.0.1:11434/v1/chat/completions";
    Folder::with(&configuration(url, "")).refused(&Message {
        place: "FOLDER/adapter.toml, line 5",
        key: "upstream.local.url",
        found: &format!("the text {url:?}, with the path of one route"),
        accepted: "an http or https address such as \"http://127.0.0.1:11434\", without user name, password, query or route",
        mend: "Write the address up to the server's own name, or up to /v1; Weir adds the routes itself.",
    });
}

#[test]
fn localhost_in_a_container() {
    let nobody = ReservedPort::new();
    let url = nobody.url().replace("127.0.0.1", "localhost");
    let folder = Folder::with(&configuration(&url, ""));
    let mut command = folder.command("check");
    command.env("container", "podman");
    folder.says(
        command,
        1,
        &Message {
            place: "FOLDER/adapter.toml, line 5",
            key: "upstream.local.url",
            found: &format!("{url}, and nothing listens there"),
            accepted: "the address of a running model server",
            mend: "Start the server, or correct the port in its url. This is a container: unless it is on the host's network \
                   (network_mode: host), that address is the container itself.",
        },
    );
}

#[test]
fn a_proxy_that_would_be_needed() {
    // No loopback address, and yet one for which nothing leaves this machine.
    let nobody = ReservedPort::new();
    let url = nobody.url().replace("127.0.0.1", "0.0.0.0");
    let folder = Folder::with(&configuration(&url, ""));
    let mut command = folder.command("check");
    for name in ["HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(name);
    }
    folder.says(
        command,
        1,
        &Message {
            place: "environment",
            key: "HTTP_PROXY",
            found: &format!("a proxy, which Weir doesn't use, and no connection to {url} without it"),
            accepted: "an address in upstream.local.url that is reached without a proxy",
            mend: "Name such an address, or give this machine a way to that one; the proxy may stay set.",
        },
    );
}

#[test]
fn two_model_servers_with_one_name() {
    Folder::with(&configuration(UNASKED, "\n[upstream.local]\nurl = \"http://127.0.0.1:8080\"\n")).refused(&Message {
        place: "FOLDER/adapter.toml, line 7, column 1",
        key: "upstream.local",
        found: "a key or a table that stands twice",
        accepted: "each key and each table once",
        mend: "Give each model server a name of its own, such as [upstream.second].",
    });
}

#[test]
fn a_default_model_that_nobody_has() {
    let upstream = ScriptedUpstream::start();
    upstream.models(&["llama-3.2-3b", "qwen3-14b"]);
    let folder = Folder::with(&configuration(&upstream.url(), "\n[models]\ndefault = \"lama-3.2-3b\"\n"));
    folder.check(
        1,
        &Message {
            place: "FOLDER/adapter.toml, line 8",
            key: "models.default",
            found: "\"lama-3.2-3b\", which is none of the models here",
            accepted: "\"llama-3.2-3b\", \"qwen3-14b\"",
            mend: "Did you mean \"llama-3.2-3b\"?",
        },
    );
}

#[test]
fn a_certificate_of_an_authority_that_is_not_trusted() {
    let upstream = ScriptedUpstream::start();
    let front = TlsFront::before(upstream.address(), &Authority::new("office").issue(HOST));
    let folder = Folder::with("");
    let trusted = Authority::new("home").write(folder.0.path());
    let text = configuration(&front.url(), &format!("ca_file = {trusted:?}\n"));
    folder.write("adapter.toml", &text, 0o600);
    folder.check(
        1,
        &Message {
            place: "FOLDER/adapter.toml, line 6",
            key: "upstream.local.ca_file",
            found: &format!("{}, and its certificate is of no authority that is trusted here", front.url()),
            accepted: "a certificate that is a server's, of an authority that is trusted",
            mend: "Put the certificate of its authority (PEM) into a file and name that in ca_file.",
        },
    );
}

#[test]
fn a_port_that_another_program_uses() {
    let occupant = ScriptedUpstream::start();
    let port = occupant.address().port();
    let text = configuration(UNASKED, "").replace("port = 0", &format!("port = {port}"));
    let folder = Folder::with(&text);
    folder.says(
        folder.command("serve"),
        1,
        &Message {
            place: "FOLDER/adapter.toml, line 1",
            key: "port",
            found: &format!("{port}, which another program uses (another Weir, perhaps)"),
            accepted: "a port of 127.0.0.1 that is free",
            mend: "Stop that program, or choose another number there or with ADAPTER_PORT.",
        },
    );
}

#[test]
fn a_configuration_that_may_not_be_read() {
    let folder = Folder::with(&configuration(UNASKED, ""));
    folder.write("adapter.toml", "", 0o000);
    let mut command = folder.command("check");
    if std::fs::read(folder.path("adapter.toml")).is_ok() {
        // The superuser may read everything; so it is somebody else who runs a copy of the program from this folder.
        let copy = folder.path("weir");
        std::fs::copy(env!("CARGO_BIN_EXE_weir"), &copy).unwrap();
        for path in [folder.0.path(), &copy] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        command = prepared(Command::new(copy));
        command.arg("check").arg("--config").arg(folder.path("adapter.toml")).uid(65_534).gid(65_534);
    }
    folder.says(
        command,
        2,
        &Message {
            place: "FOLDER/adapter.toml",
            key: "the configuration file",
            found: "a file that this user may not read",
            accepted: "a readable text file in TOML",
            mend: "Let this user read it, or start Weir as its owner.",
        },
    );
}

#[test]
fn a_time_without_its_unit() {
    Folder::with(&configuration(UNASKED, "\n[timeouts]\nturn = 240\n")).refused(&Message {
        place: "FOLDER/adapter.toml, line 8",
        key: "timeouts.turn",
        found: "240",
        accepted: "a length of time with its unit, such as \"90s\" or \"2m 30s\", above 0 and at most 4m 55s",
        mend: "Write timeouts.turn = \"240s\".",
    });
}

#[test]
fn a_size_that_is_none() {
    Folder::with(&configuration(UNASKED, "\n[limits]\nbody = \"64 megs\"\n")).refused(&Message {
        place: "FOLDER/adapter.toml, line 8",
        key: "limits.body",
        found: "the text \"64 megs\"",
        accepted: "a size such as \"64MiB\", or a whole number of bytes",
        mend: "Write limits.body = \"64MiB\".",
    });
}

#[test]
fn an_alias_to_nothing() {
    let upstream = ScriptedUpstream::start();
    let folder = Folder::with(&configuration(&upstream.url(), "\n[models.alias]\nhome = \"qwen3-14b\"\n"));
    folder.check(
        0,
        &Message {
            place: "warning: FOLDER/adapter.toml, line 8",
            key: "models.alias.home",
            found: "\"qwen3-14b\", which is none of the models here",
            accepted: "\"m\"",
            mend: "Name one of these, or have a server load that model.",
        },
    );
}

#[test]
fn a_pattern_of_models_that_fits_nothing() {
    let upstream = ScriptedUpstream::start();
    let folder = Folder::with(&configuration(&upstream.url(), "\n[models]\nexpose = [\"m\", \"qwen*\"]\n"));
    folder.check(
        0,
        &Message {
            place: "warning: FOLDER/adapter.toml, line 8",
            key: "models.expose",
            found: "\"qwen*\", which fits no model",
            accepted: "the id of a model, or a part of it and * for the rest",
            mend: "Correct it, or remove the key: then all that can chat are offered, and weir check lists them.",
        },
    );
}

#[test]
fn a_fault_of_a_variable_names_the_variable() {
    let nobody = ReservedPort::new();
    let folder = Folder::with(&configuration(UNASKED, ""));
    let mut command = folder.command("check");
    command.env("ADAPTER_UPSTREAM__LOCAL__URL", nobody.url());
    folder.says(
        command,
        1,
        &Message {
            place: "environment, ADAPTER_UPSTREAM__LOCAL__URL",
            key: "upstream.local.url",
            found: &format!("{}, and nothing listens there", nobody.url()),
            accepted: "the address of a running model server",
            mend: "Start the server, or correct the port in its url.",
        },
    );
}
