//! The file as text, and the names of keys and variables.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use proptest::prelude::*;
use weir::settings::{Environment, Source, find, load};

use crate::{CANARY, Folder, message, refused, refused_variable, says};

#[test]
fn an_explicit_file_that_is_missing_is_refused() {
    let message = find(Some(Path::new("/nowhere/adapter.toml"))).unwrap_err().to_string();
    says(&message, &["/nowhere/adapter.toml", "adapter.toml.example"]);
    let folder = Folder::new();
    folder.write("mine.toml", "");
    let path = folder.path("mine.toml");
    assert_eq!(find(Some(&path)).unwrap(), Source::File(path));
}

#[test]
fn a_file_that_is_missing_a_folder_or_not_text_is_refused() {
    let folder = Folder::new();
    folder.write("bytes.toml", b"port = \xff");
    let cases = [("missing.toml", "no file there"), ("", "a folder"), ("bytes.toml", "not UTF-8")];
    for (name, found) in cases {
        let path = folder.path(name);
        let message = message(load(&Source::File(path.clone()), &Environment::default()));
        says(&message, &[&path.display().to_string(), found]);
    }
}

#[test]
fn a_syntax_error_names_the_line_and_shows_nothing_of_it() {
    let cases = [
        (format!("token = \"{CANARY}"), 1, 29),
        (format!("port = 1\n\n{CANARY}"), 3, 0),
        (format!("token = {CANARY}"), 1, 9),
        (format!("[upstream.{CANARY}"), 1, 0),
        (format!("port = [1, \"{CANARY}\""), 1, 0),
        (format!("token = '{CANARY}' x"), 1, 0),
        (format!("{CANARY} = 1\n{CANARY} = 2"), 2, 1),
        (format!("\"{CANARY}\" 1"), 1, 0),
        (format!("token = \"\\q{CANARY}\""), 1, 0),
    ];
    for (text, line, column) in cases {
        let message = message(Folder::new().load(&text, &[]));
        says(&message, &["adapter.toml", &format!("line {line}, column "), "accepted: "]);
        if column > 0 {
            says(&message, &[&format!("column {column}:")]);
        }
    }
}

#[test]
fn a_syntax_error_says_what_is_wrong() {
    for (text, found) in [
        ("token_file = adapter", "a text without quotes"),
        ("token_file = \"adapter", "isn't closed"),
        ("token_file = \"C:\\queue\"", "in double quotes"),
        ("port = 1\nport = 2", "stands twice"),
        ("[limits]\n[limits]", "stands twice"),
        ("[limits", "a table's head"),
        ("port 5", "a key without ="),
        ("port = 08", "isn't TOML"),
    ] {
        says(&message(Folder::new().load(text, &[])), &[found]);
    }
}

proptest! {
    #[test]
    fn no_message_shows_a_token_in_the_file_whatever_stands_around_it(
        before in r#"[\[\]="'#.a\\ \n]{0,12}"#,
        after in r#"[\[\]="'#.a\\ \n]{0,12}"#,
    ) {
        let text = format!("{before}\ntoken = \"{CANARY}{after}\n");
        if let Err(error) = Folder::new().load(&text, &[]) {
            prop_assert!(!error.to_string().contains(CANARY), "{error}");
        }
    }
}

#[test]
fn a_value_of_the_wrong_sort_names_its_line() {
    let unnamed = message(Folder::new().load("[upstream]\nurl = \"http://h\"", &[]));
    says(&unnamed, &["line 2: upstream.url: ", "a text", "[upstream.local]"]);
    refused("port = \"x\"", "", &["line 2: port: ", "the text \"x\"", "0 to 65535"]);
    refused("port = true", "", &["true", "whole number"]);
    refused("port = 8480.5", "", &["8480.5", "whole number"]);
    refused("port = 1979-05-27", "", &["port", "a date"]);
    refused("limits = 5", "", &["line 2: limits: ", "a number", "a table"]);
    refused("log = [1979-05-27]", "", &["log", "a list", "a table"]);
    refused("[port]\na = 1", "", &["port", "a table", "a value"]);
    refused("", "kind = 5", &["line 5: upstream.local.kind: ", "5"]);
    refused("", "[models]\ndefault = 5", &["models.default", "5"]);
}

#[test]
fn an_unknown_key_names_the_nearest_known_one() {
    refused("prot = 1", "", &["line 2: prot: ", "Did you mean port?", "token_file"]);
    refused("tokenfile = \"a.b\"", "", &["Did you mean token_file?"]);
    refused("[limit]\nbody = 1", "", &["limit: ", "Did you mean limits?"]);
    refused("", "[limits]\nconections = 1", &["limits.conections", "Did you mean limits.connections?"]);
    refused("", "knid = \"auto\"", &["upstream.local.knid", "Did you mean upstream.local.kind?"]);
    refused("", "[models]\nalias.a = \"b\"\naliases.a = \"b\"", &["Did you mean models.alias?"]);
    refused("url = \"http://h\"", "", &["url: ", "Did you mean upstream.NAME.url?"]);
    refused("", "[log]\ntoken_file = \"a.b\"", &["log.token_file", "Did you mean token_file?"]);
    refused(
        "",
        "[models.override.\"a:b\"]\nimage = true",
        &["models.override.\"a:b\".image", "Did you mean models.override.\"a:b\".images?"],
    );
    refused("", "[models.override.\"*\"]\nimages = true", &["models.override.\"*\""]);
}

#[test]
fn a_token_or_a_key_in_the_file_is_refused_without_showing_it() {
    let token = format!("token = \"{CANARY}\"");
    refused(&token, "", &["token: ", "token_file", "ADAPTER_TOKEN"]);
    refused("", &token, &["upstream.local.token: ", "token_file", "ADAPTER_TOKEN"]);
    refused(&format!("tokens = [\"{CANARY}\"]"), "", &["token_file"]);
    refused("", &format!("api_key = \"{CANARY}\""), &["upstream.local.api_key: ", "api_key_file"]);
    refused(&format!("password = \"{CANARY}\""), "", &["password"]);
}

#[test]
fn there_is_no_key_for_an_address() {
    for key in ["address", "host", "bind", "listen"] {
        refused(&format!("{key} = \"0.0.0.0\""), "", &[&format!("{key}: "), "127.0.0.1"]);
        refused("", &format!("[server]\n{key} = \"0.0.0.0\""), &["server"]);
        refused("", &format!("[metrics]\n{key} = \"0.0.0.0\""), &["always 127.0.0.1"]);
    }
    refused_variable("ADAPTER_HOST", "0.0.0.0", &["always 127.0.0.1"]);
}

#[test]
fn an_unknown_variable_names_the_nearest_known_one() {
    refused_variable("ADAPTER_PROT", CANARY, &["Did you mean ADAPTER_PORT?"]);
    refused_variable("ADAPTER_LIMIT__BODY", CANARY, &["Did you mean ADAPTER_LIMITS__BODY?"]);
    refused_variable("ADAPTER_UPSTREAM__LOCAL__ULR", CANARY, &["Did you mean ADAPTER_UPSTREAM__LOCAL__URL?"]);
    refused_variable("ADAPTER_LIMITS", CANARY, &["unknown variable"]);
    refused_variable("ADAPTER_TOKENS", CANARY, &["ADAPTER_TOKEN"]);
    refused_variable("ADAPTER_", CANARY, &["unknown variable"]);
    refused_variable("ADAPTER_port", CANARY, &["Did you mean ADAPTER_PORT?"]);
    refused_variable("ADAPTER_UPSTREAM____URL", CANARY, &["unknown variable"]);
    refused_variable("ADAPTER_UPSTREAM__LOCAL__API_KEY", CANARY, &["api_key_file"]);
}

#[test]
fn a_bad_value_in_the_environment_names_the_variable() {
    refused_variable("ADAPTER_PORT", "65536", &["65536", "0 to 65535"]);
    refused_variable("ADAPTER_PORT", "", &["an empty text"]);
    refused_variable("ADAPTER_PORT", "tcp://10.0.0.1:80", &["tcp://10.0.0.1:80"]);
    refused_variable("ADAPTER_LIMITS__BODY", "1MiB", &["1.0 MiB", "52428800"]);
    refused_variable("ADAPTER_TIMEOUTS__TURN", "5m", &["5m", "4m 55s"]);
    refused_variable("ADAPTER_MODELS__EXPOSE", "a", &["list", "models.expose"]);
    refused_variable("ADAPTER_MODELS__DEFAULT", " ", &["models.default"]);
    let environment = Environment::from_pairs([(OsString::from("ADAPTER_PORT"), OsString::from_vec(b"\xff".to_vec()))]);
    says(&message(load(&Source::Nothing, &environment)), &["ADAPTER_PORT", "UTF-8"]);
}
