//! The configuration: one test for each rule. A refusal names the place, the key, what was found and what is accepted, and
//! never shows a secret.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod failures;
mod file;
mod models;
mod numbers;
mod reading;
mod tokens;
mod upstreams;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use tempfile::TempDir;
use weir::settings::{Environment, Settings, SettingsError, Source, load};

/// Stands wherever a secret may stand; no message may ever hold it.
const CANARY: &str = "CANARY-5f0c1d7e9b3a";
const UPSTREAM: &str = "[upstream.local]\nurl = \"http://127.0.0.1:11434\"\n";

/// A folder with a configuration file and a token file beside it.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.write("adapter.token", format!("{CANARY}\n"));
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file that only its owner can read.
    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).unwrap();
        self.mode(name, 0o600);
    }

    fn mode(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn load(&self, text: &str, environment: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        self.write("adapter.toml", text);
        load(&Source::File(self.path("adapter.toml")), &Environment::from_pairs(environment.iter().copied()))
    }
}

/// Loads `top`, a token file, one upstream and `tables`.
fn load_with(top: &str, tables: &str) -> Result<Settings, SettingsError> {
    Folder::new().load(&format!("token_file = \"adapter.token\"\n{top}\n{UPSTREAM}{tables}\n"), &[])
}

fn good(top: &str, tables: &str) -> Settings {
    load_with(top, tables).unwrap_or_else(|error| panic!("refused: {error}"))
}

/// The message of a refusal, checked for secrets.
#[track_caller]
fn message(result: Result<Settings, SettingsError>) -> String {
    let error = result.expect_err("this must be refused");
    let message = error.to_string();
    assert!(!message.contains(CANARY), "{message}");
    assert!(!format!("{error:?}").contains(CANARY), "{error:?}");
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[track_caller]
fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is missing in: {message}");
    }
}

/// Refused in the file, with these parts in the message.
#[track_caller]
fn refused(top: &str, tables: &str, parts: &[&str]) {
    let message = message(load_with(top, tables));
    says(&message, &["adapter.toml", "found ", "accepted: "]);
    says(&message, parts);
}

/// Refused in the environment, with these parts in the message.
#[track_caller]
fn refused_variable(name: &str, value: &str, parts: &[&str]) {
    let environment = Environment::from_pairs([
        ("ADAPTER_TOKEN", "t"),
        ("ADAPTER_UPSTREAM__LOCAL__URL", "http://127.0.0.1:11434"),
        (name, value),
    ]);
    let message = message(load(&Source::Nothing, &environment));
    says(&message, &["environment", name, "found ", "accepted: "]);
    says(&message, parts);
}
