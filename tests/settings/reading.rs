//! What is read from the file, the environment and the defaults, and what counts as nothing.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use url::Url;
use weir::settings::{
    Environment, Format, Kind, Level, Origin, Reasoning, Settings, SettingsError, Source, UpstreamSettings, load,
};

use crate::{CANARY, Folder, UPSTREAM, good, message, says};

#[test]
fn what_nobody_sets_has_its_default() {
    let settings = good("", "");
    assert_eq!(settings.port, 8480);
    let limits = settings.limits;
    assert_eq!((limits.body, limits.image, limits.reply, limits.in_flight), (64 << 20, None, 15 << 20, 512 << 20));
    assert_eq!((limits.queue, limits.connections), (8, 512));
    let seconds = Duration::from_secs;
    let timeouts = settings.timeouts;
    assert_eq!(timeouts.turn, seconds(285));
    assert_eq!(timeouts.body, seconds(600));
    assert_eq!(timeouts.head, seconds(10));
    assert_eq!(timeouts.connect, seconds(5));
    assert_eq!(timeouts.keep_alive, seconds(180));
    assert_eq!(timeouts.shutdown, seconds(10));
    assert_eq!(settings.log.level, Level::Info);
    assert_eq!(settings.log.format, Format::Text);
    assert!(settings.metrics.is_none());
    assert!(settings.models.default.is_none() && settings.models.expose.is_none());
    assert!(settings.models.pictures.is_none() && !settings.models.warm_up);
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
}

#[test]
fn what_the_file_sets_is_read() {
    let settings = good(
        "port = 0",
        r#"
kind = "llamacpp"
concurrency = 4
context = 8192
keep_alive = "-1"

[upstream.a-second_1]
url = "https://models.example/api/v1/"

[models]
default = "qwen3:14b"
expose = ["qwen3*"]
alias = { home = "qwen3:14b" }

[models.override."qwen2.5:7b"]
images = true
context = 4096
reasoning = "off"

[models.override.plain]

[limits]
body = 52428800
image = "20MiB"
reply = "1MiB"
in_flight = "50MiB"
queue = 0
connections = 1

[timeouts]
turn = "295s"
body = "200ms"

[log]
level = "trace"
format = "json"

[metrics]
port = 9000
"#,
    );
    assert!(matches!(&settings.origin, Origin::File(path) if path.ends_with("adapter.toml")));
    let names: Vec<&str> = settings.upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
    assert_eq!(names, ["a-second_1", "local"]);
    assert_eq!(settings.upstreams[0].url.as_str(), "https://models.example/api");
    let local = &settings.upstreams[1];
    assert_eq!(local.kind, Kind::LlamaCpp);
    assert_eq!(local.concurrency, NonZeroU32::new(4));
    assert_eq!(local.context, Some(8192));
    assert_eq!(local.keep_alive.as_deref(), Some("-1"));
    assert_eq!(settings.models.alias["home"], "qwen3:14b");
    assert_eq!(settings.models.expose.unwrap(), ["qwen3*"]);
    let special = &settings.models.overrides["qwen2.5:7b"];
    assert_eq!((special.images, special.context), (Some(true), Some(4096)));
    assert_eq!(special.reasoning, Reasoning::Off);
    let plain = &settings.models.overrides["plain"];
    assert_eq!((plain.images, plain.context), (None, None));
    assert_eq!(plain.reasoning, Reasoning::Default);
    assert_eq!((plain.temperature, plain.longest_answer, &plain.system_prompt), (None, None, &None));
    assert_eq!(settings.limits.image, Some(20 << 20));
    assert_eq!(settings.limits.body, 52_428_800);
    assert_eq!(settings.limits.queue, 0);
    assert_eq!(settings.timeouts.turn, Duration::from_secs(295));
    assert_eq!(settings.timeouts.body, Duration::from_millis(200));
    assert_eq!(settings.log.format, Format::Json);
    assert_eq!(settings.metrics.unwrap().port, 9000);
}

#[test]
fn the_environment_wins_over_the_file() {
    let text = format!("port = 1\ntoken_file = \"adapter.token\"\n{UPSTREAM}");
    let settings = Folder::new()
        .load(
            &text,
            &[
                ("ADAPTER_PORT", "9001"),
                ("ADAPTER_UPSTREAM__LOCAL__KIND", "ollama"),
                ("ADAPTER_LIMITS__IN_FLIGHT", "1GiB"),
                ("ADAPTER_TIMEOUTS__KEEP_ALIVE", "4m"),
                ("ADAPTER_MODELS__OVERRIDE__QWEN__IMAGES", "false"),
                ("UNRELATED", "x"),
            ],
        )
        .unwrap();
    assert_eq!(settings.port, 9001);
    assert_eq!(settings.upstreams[0].kind, Kind::Ollama);
    assert_eq!(settings.limits.in_flight, 1 << 30);
    assert_eq!(settings.timeouts.keep_alive, Duration::from_secs(240));
    assert_eq!(settings.models.overrides["qwen"].images, Some(false));
}

#[test]
fn the_environment_alone_is_enough() {
    let environment = Environment::from_pairs([
        ("ADAPTER_TOKEN", "t"),
        ("ADAPTER_UPSTREAM__MY_BOX__URL", "http://127.0.0.1:8080/v1"),
    ]);
    let settings = load(&Source::Nothing, &environment).unwrap();
    assert_eq!(settings.origin, Origin::Environment);
    assert_eq!(settings.upstreams[0].name, "my_box");
    assert_eq!(settings.upstreams[0].url.as_str(), "http://127.0.0.1:8080/");
}

#[test]
fn text_from_the_environment_stays_text() {
    for text in ["123", "0123", "true", "[a]", "\"quoted\"", "1e5", "{}"] {
        let environment = Environment::from_pairs([
            ("ADAPTER_TOKEN", text),
            ("ADAPTER_UPSTREAM__LOCAL__URL", "http://127.0.0.1:11434"),
            ("ADAPTER_MODELS__DEFAULT", text),
            ("ADAPTER_MODELS__ALIAS__HOME", text),
        ]);
        let settings = load(&Source::Nothing, &environment).unwrap();
        assert_eq!(settings.models.default.as_deref(), Some(text));
        assert_eq!(settings.models.alias["home"], text);
        assert_eq!(settings.tokens.iter().collect::<Vec<_>>(), [text.as_bytes()]);
    }
}

#[test]
fn nothing_configured_is_told_from_something_wrong() {
    for pairs in [vec![], vec![("ADAPTER_PORT", "9000"), ("ADAPTER_TOKEN", "t")]] {
        let environment = Environment::from_pairs(pairs);
        assert!(matches!(load(&Source::Nothing, &environment), Err(SettingsError::NothingConfigured)));
    }
    let environment = Environment::from_pairs([("ADAPTER_PORT", "many")]);
    assert!(matches!(load(&Source::Nothing, &environment), Err(SettingsError::Refused(_))));
}

#[test]
fn a_found_server_is_served_with_the_tokens_of_the_file() {
    let folder = Folder::new();
    let upstream = || UpstreamSettings {
        context: Some(16_384),
        ..UpstreamSettings::new("local", Url::parse("http://127.0.0.1:11434").unwrap())
    };
    let file = folder.path("adapter.token");
    let environment = Environment::from_pairs([("ADAPTER_PORT", "0")]);
    assert!(!environment.names_a_token());
    let settings = Settings::found(vec![upstream()], &file, &environment).unwrap();
    assert_eq!(settings.origin, Origin::Found);
    assert_eq!(settings.port, 0);
    assert_eq!(settings.upstreams.len(), 1);
    assert_eq!(settings.upstreams[0].context, Some(16_384));
    assert_eq!(settings.tokens.iter().collect::<Vec<_>>(), [CANARY.as_bytes()]);

    let environment = Environment::from_pairs([("ADAPTER_TOKEN", "other")]);
    assert!(environment.names_a_token());
    let settings = Settings::found(vec![upstream()], Path::new("/nowhere/at/all"), &environment).unwrap();
    assert_eq!(settings.tokens.iter().collect::<Vec<_>>(), [b"other"]);

    let message = message(Settings::found(vec![upstream()], Path::new("/nowhere/at/all"), &Environment::default()));
    says(&message, &["/nowhere/at/all", "token_file", "no file"]);
}
