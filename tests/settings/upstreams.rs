//! The rules for `[upstream.NAME]`.

use secrecy::ExposeSecret;
use weir::settings::{Settings, SettingsError};

use crate::{CANARY, Folder, UPSTREAM, message, refused, says};

#[test]
fn a_file_without_a_model_server_is_refused() {
    let message = message(Folder::new().load("token_file = \"adapter.token\"", &[]));
    says(&message, &["adapter.toml", "[upstream.NAME]", "no model server", "[upstream.local]"]);
}

#[test]
fn a_model_server_needs_an_address_and_a_plain_name() {
    refused("", "[upstream.b]\nkind = \"auto\"", &["line 5: upstream.b.url: ", "no address"]);
    refused("", "[upstream.Big]\nurl = \"http://h\"", &["upstream.Big: ", "a to z"]);
    refused("", "[upstream.\"a b\"]\nurl = \"http://h\"", &["upstream.\"a b\": ", "a to z"]);
    refused("", "[upstream.\"\"]\nurl = \"http://h\"", &["upstream.\"\": ", "a to z"]);
}

/// Loads a configuration with this address.
fn with_url(url: &str) -> Result<Settings, SettingsError> {
    let text = format!("token_file = \"adapter.token\"\n[upstream.local]\nurl = \"{url}\"\n");
    Folder::new().load(&text, &[])
}

#[test]
fn the_end_of_an_address_that_means_the_same_is_taken_off() {
    for (given, base) in [
        ("http://127.0.0.1:11434", "http://127.0.0.1:11434/"),
        ("http://127.0.0.1:11434/", "http://127.0.0.1:11434/"),
        ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/"),
        ("http://127.0.0.1:11434/v1/", "http://127.0.0.1:11434/"),
        ("https://h.example/llm/v1", "https://h.example/llm"),
        ("https://h.example/llm//", "https://h.example/llm"),
        ("https://h.example/api/v1", "https://h.example/api"),
        ("http://[::1]:8000", "http://[::1]:8000/"),
    ] {
        let settings = with_url(given).unwrap_or_else(|error| panic!("{given}: {error}"));
        assert_eq!(settings.upstreams[0].url.as_str(), base);
    }
}

#[test]
fn an_address_with_a_secret_in_it_is_refused_without_showing_it() {
    for url in [
        format!("http://me:{CANARY}@127.0.0.1:11434"),
        format!("http://{CANARY}@127.0.0.1:11434"),
        format!("http://127.0.0.1:11434/?key={CANARY}"),
        format!("http://127.0.0.1:11434/#{CANARY}"),
        format!("http://me:{CANARY}@"),
        format!("ftp://me:{CANARY}@h"),
        format!("me:{CANARY}@h"),
        format!("http://me:{CANARY}@h:99999"),
    ] {
        let message = message(with_url(&url));
        says(&message, &["adapter.toml, line 3: upstream.local.url: ", "isn't shown"]);
    }
    says(&message(with_url("http://u:p@h")), &["user name", "api_key_file"]);
}

#[test]
fn an_address_that_leads_nowhere_is_refused() {
    for url in ["", "127.0.0.1:11434", "localhost:11434", "ftp://h/", "https://", "http://h:99999", "unix:/run/x"] {
        let message = message(with_url(url));
        says(&message, &["line 3: upstream.local.url: ", "an http or https address"]);
        says(&message, &[if url.is_empty() { "an empty text" } else { url }]);
    }
    for url in
        ["http://h/v1/chat/completions", "http://h/v1/models/", "http://h/api", "http://h/api/chat", "http://h/x/v1/y"]
    {
        says(&message(with_url(url)), &[url, "one route"]);
    }
    let itself = message(with_url("http://localhost:8480"));
    says(&itself, &["upstream.local.url", "8480", "Weir's own port"]);
}

#[test]
fn words_and_numbers_of_a_model_server_are_known() {
    refused(
        "",
        "kind = \"olama\"",
        &[
            "line 5: upstream.local.kind: ",
            "\"olama\"",
            "\"auto\", \"ollama\", \"llamacpp\", \"vllm\", \"openai\"",
            "Did you mean \"ollama\"?",
        ],
    );
    for bad in ["0", "1025", "\"many\"", "-1", "true"] {
        refused(
            "",
            &format!("concurrency = {bad}"),
            &["upstream.local.concurrency", "\"auto\", or a whole number from 1 to 1024"],
        );
    }
    for bad in ["0", "-1", "\"auto\"", "4294967296"] {
        refused("", &format!("context = {bad}"), &["upstream.local.context", "1 to 4294967295"]);
    }
    for bad in ["5", "\"\"", "\"for ever\"", "\"5 minutes\""] {
        refused("", &format!("keep_alive = {bad}"), &["upstream.local.keep_alive", "\"30m\""]);
    }
}

#[test]
fn a_key_file_holds_one_line() {
    for (content, found) in [
        (String::new(), "no key"),
        (format!("{CANARY}\n{CANARY}\n"), "more than one line"),
        (format!("{CANARY}é"), "HTTP can't carry"),
        (format!("{CANARY}\u{1}a"), "HTTP can't carry"),
    ] {
        let folder = Folder::new();
        folder.write("up.key", content);
        let text = format!("token_file = \"adapter.token\"\n{UPSTREAM}api_key_file = \"up.key\"\n");
        says(&message(folder.load(&text, &[])), &["line 4: upstream.local.api_key_file: ", found, "up.key"]);
    }
    let folder = Folder::new();
    folder.write("up.key", "  the key\r\n");
    let text = format!("token_file = \"adapter.token\"\n{UPSTREAM}api_key_file = \"up.key\"\n");
    let settings = folder.load(&text, &[]).unwrap();
    let key = settings.upstreams[0].api_key.as_ref().unwrap();
    assert_eq!(key.expose_secret(), "the key");
    refused("", "api_key_file = \"missing.key\"", &["upstream.local.api_key_file", "no file at", "missing.key"]);
}

#[test]
fn a_file_of_certificates_holds_certificates() {
    let authority = include_str!("fixtures/authority.pem");
    let folder = Folder::new();
    let text = "token_file = \"adapter.token\"\n[upstream.local]\nurl = \"https://h\"\nca_file = \"ca.pem\"\n";
    folder.write("ca.pem", authority);
    let settings = folder.load(text, &[]).unwrap();
    assert_eq!(settings.upstreams[0].certificate_authorities.as_deref(), Some(authority.as_bytes()));
    let key = format!("-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n");
    for (content, found) in [
        (String::new(), "no certificate in"),
        (CANARY.to_owned(), "no certificate in"),
        (key, "certificate"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(), "can't be read"),
    ] {
        folder.write("ca.pem", content);
        says(&message(folder.load(text, &[])), &["line 4: upstream.local.ca_file: ", found, "ca.pem"]);
    }
    refused("", "ca_file = \"missing.pem\"", &["upstream.local.ca_file", "http address", "https"]);
}

#[test]
fn a_relative_path_counts_from_the_file_it_stands_in() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("inner")).unwrap();
    folder.write("inner/adapter.token", "inner");
    let text = format!("token_file = \"inner/adapter.token\"\n{UPSTREAM}");
    let settings = folder.load(&text, &[]).unwrap();
    assert_eq!(settings.tokens.iter().collect::<Vec<_>>(), [b"inner"]);
    // From the environment it counts from the working folder, where this file is not.
    let said = message(folder.load(&text, &[("ADAPTER_TOKEN_FILE", "inner/adapter.token")]));
    says(&said, &["ADAPTER_TOKEN_FILE", "no file at \"inner/adapter.token\""]);
}
