//! Where the tokens come from, which ones could never match, and that nothing prints a secret.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use secrecy::ExposeSecret;
use weir::settings::{Environment, Source, load};

use crate::{CANARY, Folder, UPSTREAM, message, says};

#[test]
fn a_start_without_any_token_is_refused() {
    let message = message(Folder::new().load(UPSTREAM, &[]));
    says(&message, &["adapter.toml", "token_file", "no token", "ADAPTER_TOKEN", "weir token"]);
}

#[test]
fn the_token_of_the_environment_wins_over_the_file() {
    let folder = Folder::new();
    let text = format!("token_file = \"missing.token\"\n{UPSTREAM}");
    let settings = folder.load(&text, &[("ADAPTER_TOKEN", "mine")]).unwrap();
    assert_eq!(settings.tokens.iter().collect::<Vec<_>>(), [b"mine"]);
}

#[test]
fn the_token_of_the_environment_is_any_bytes() {
    let bytes = b"\xff\xfe token".to_vec();
    let environment = Environment::from_pairs([
        (OsString::from("ADAPTER_TOKEN"), OsString::from_vec(bytes.clone())),
        ("ADAPTER_UPSTREAM__LOCAL__URL".into(), "http://127.0.0.1:1".into()),
    ]);
    let settings = load(&Source::Nothing, &environment).unwrap();
    assert_eq!(settings.tokens.iter().collect::<Vec<_>>(), [bytes]);
}

#[test]
fn a_token_of_the_environment_that_could_never_match_is_refused() {
    for (token, found) in [
        (String::new(), "an empty token"),
        (format!("{CANARY} "), "white space"),
        (format!("\t{CANARY}"), "white space"),
        (format!("{CANARY}\n"), "line break"),
        (format!("a\u{1}{CANARY}"), "control character"),
    ] {
        let text = format!("token_file = \"adapter.token\"\n{UPSTREAM}");
        let message = message(Folder::new().load(&text, &[("ADAPTER_TOKEN", &token)]));
        says(&message, &["environment", "ADAPTER_TOKEN", found]);
    }
}

#[test]
fn a_token_file_holds_one_token_a_line() {
    let folder = Folder::new();
    folder.write("adapter.token", b"one\r\n\n\r\ntw o\nthr\xffee");
    let settings = folder.load(&format!("token_file = \"adapter.token\"\n{UPSTREAM}"), &[]).unwrap();
    let expected: [&[u8]; 3] = [b"one", b"tw o", b"thr\xffee"];
    assert_eq!(settings.tokens.iter().collect::<Vec<_>>(), expected);
}

#[test]
fn a_token_in_a_file_that_could_never_match_is_refused_by_its_line() {
    for (content, found, line) in [
        (format!("good\n{CANARY} \n"), "white space", 2),
        (format!(" {CANARY}\n"), "white space", 1),
        (format!("\n\n{CANARY}\u{1}\n"), "control character", 3),
        (format!("{CANARY}\r{CANARY}\n"), "control character", 1),
        ("   \n".to_owned(), "white space", 1),
    ] {
        let folder = Folder::new();
        folder.write("adapter.token", content);
        let text = format!("token_file = \"adapter.token\"\n{UPSTREAM}");
        let message = message(folder.load(&text, &[]));
        let file = folder.path("adapter.token").display().to_string();
        says(&message, &["adapter.toml, line 1: token_file: ", found, &format!("line {line} of"), &file]);
    }
}

#[test]
fn a_token_file_that_is_missing_a_folder_or_empty_is_refused() {
    let folder = Folder::new();
    folder.write("empty.token", "\n\r\n");
    std::fs::create_dir(folder.path("folder.d")).unwrap();
    for (name, found) in [("missing.token", "no file at"), ("folder.d", "a folder at"), ("empty.token", "no token in")]
    {
        let text = format!("token_file = \"{name}\"\n{UPSTREAM}");
        let message = message(folder.load(&text, &[]));
        let file = folder.path(name).display().to_string();
        says(&message, &["adapter.toml, line 1: token_file: ", found, &file, "one token a line"]);
    }
    let text = format!("token_file = 5\n{UPSTREAM}");
    says(&message(folder.load(&text, &[])), &["token_file", "a number"]);
}

#[test]
fn a_token_file_that_may_not_be_read_is_refused() {
    let folder = Folder::new();
    folder.mode("adapter.token", 0o000);
    // The superuser may read everything, so that there is nothing to refuse.
    if std::fs::read(folder.path("adapter.token")).is_ok() {
        return;
    }
    let text = format!("token_file = \"adapter.token\"\n{UPSTREAM}");
    says(&message(folder.load(&text, &[])), &["token_file", "may not read", "adapter.token"]);
}

#[test]
fn a_token_in_the_place_of_its_file_is_not_shown() {
    let hex = "0123456789abcdef".repeat(4);
    for secret in [&hex, CANARY, &format!("sk-proj.{hex}")] {
        for key in ["token_file", "api_key_file"] {
            let text = match key {
                "token_file" => format!("token_file = \"{secret}\"\n{UPSTREAM}"),
                _ => format!("token_file = \"adapter.token\"\n{UPSTREAM}{key} = \"{secret}\""),
            };
            let message = message(Folder::new().load(&text, &[]));
            says(&message, &[key, "not shown", "no file"]);
            assert!(!message.contains(secret), "{message}");
        }
    }
}

#[test]
fn a_secret_that_others_can_read_is_a_warning() {
    let folder = Folder::new();
    folder.write("key", "k");
    folder.mode("adapter.token", 0o644);
    folder.mode("key", 0o640);
    let text = format!("token_file = \"adapter.token\"\n{UPSTREAM}api_key_file = \"./key\"\n");
    let settings = folder.load(&text, &[]).unwrap();
    assert_eq!(settings.warnings.len(), 2, "{:?}", settings.warnings);
    for file in ["adapter.token", "key"] {
        let mend = format!("chmod 600 {}", folder.0.path().display());
        assert!(
            settings.warnings.iter().any(|warning| warning.seen.contains(file) && warning.mend.starts_with(&mend)),
            "{:?}",
            settings.warnings
        );
    }
}

#[test]
fn nothing_prints_a_secret() {
    let folder = Folder::new();
    folder.write("key", CANARY);
    let text = format!("token_file = \"adapter.token\"\n{UPSTREAM}api_key_file = \"./key\"\n");
    let settings = folder.load(&text, &[]).unwrap();
    let key = settings.upstreams[0].api_key.as_ref().unwrap();
    assert_eq!(key.expose_secret(), CANARY);
    assert!(!format!("{settings:?} {settings:#?}").contains(CANARY));
    let environment = Environment::from_pairs([("ADAPTER_TOKEN", CANARY), ("ADAPTER_TOKEN_FILE", CANARY)]);
    assert!(!format!("{environment:?}").contains(CANARY));
}
