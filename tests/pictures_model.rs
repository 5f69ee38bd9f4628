//! `models.pictures`: which model a picture goes to when the app names none and the default does not see.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use serde_json::{Value, json};

/// A server with these models.
fn with_models(ids: &[&str]) -> ScriptedUpstream {
    let upstream = ScriptedUpstream::start();
    upstream.models(ids);
    upstream
}

/// A default that takes text only, and a model that sees.
fn before(upstream: &ScriptedUpstream) -> Builder {
    Weir::before(upstream)
        .models("default = \"blind\"")
        .models("pictures = \"sees\"")
        .override_model("blind", "images = false")
        .override_model("sees", "images = true")
}

fn picture() -> Vec<Value> {
    vec![text("look"), image(&png_uri(1))]
}

/// The model that was asked for, as it arrived.
fn asked(upstream: &ScriptedUpstream) -> Value {
    upstream.last_chat().json()["model"].clone()
}

#[test]
fn a_picture_goes_to_the_model_that_sees_and_everything_else_to_the_default() {
    let upstream = with_models(&["blind", "sees"]);
    let weir = before(&upstream).start();
    let reply = weir.chat(&say(picture())).assert_reply(REPLY);
    assert_eq!((asked(&upstream), &reply["model"]), (json!("sees"), &json!("sees")));
    assert_eq!(upstream.last_chat().messages(), [user(picture())]);

    weir.chat(&say("hi")).assert_reply(REPLY);
    assert_eq!(asked(&upstream), "blind");
    // The next question about it: the picture is in an earlier message.
    weir.chat(&turn(vec![user(picture()), assistant("a cat"), user("what colour?")])).assert_reply(REPLY);
    assert_eq!(asked(&upstream), "blind");
    assert_eq!(upstream.last_chat().messages()[0], user(format!("look\n{DISCLOSURE}")));
}

#[test]
fn a_model_that_the_app_names_is_the_one_that_is_meant() {
    let upstream = with_models(&["blind", "sees"]);
    let weir = before(&upstream).start();
    weir.chat(&say_to("blind", picture())).assert_error(400, "image_unsupported");
    upstream.assert_no_chat();
}

#[test]
fn a_default_that_sees_keeps_its_pictures() {
    let upstream = with_models(&["default", "sees"]);
    let weir = Weir::before(&upstream)
        .models("pictures = \"sees\"")
        .override_model("default", "images = true")
        .override_model("sees", "images = true")
        .start();
    weir.chat(&say(picture())).assert_reply(REPLY);
    assert_eq!(asked(&upstream), "default");
}

#[test]
fn a_default_of_which_nothing_is_known_gives_them_away_rather_than_declining_them() {
    let upstream = with_models(&["unknown", "sees"]);
    let weir = Weir::before(&upstream).models("pictures = \"sees\"").override_model("sees", "images = true").start();
    weir.chat(&say(picture())).assert_reply(REPLY);
    assert_eq!(asked(&upstream), "sees");
}

#[test]
fn it_may_be_an_alias_on_another_server_and_need_not_be_exposed() {
    let (first, second) = (with_models(&["blind", "other"]), with_models(&["llava:7b", "more"]));
    let weir = before(&first)
        .upstream("second", &second.url())
        .models("expose = [\"blind\"]")
        .toml("[models.alias]\nsees = \"llava:7b\"")
        .start();
    assert_eq!(weir.ids(), ["blind", "sees"]);
    weir.chat(&say(picture())).assert_reply(REPLY);
    assert_eq!(asked(&second), "llava:7b");
    first.assert_no_chat();

    let upstream = with_models(&["blind", "sees", "other"]);
    let weir = before(&upstream).models("expose = [\"blind\"]").start();
    assert_eq!(weir.ids(), ["blind", "sees"]);
}

#[test]
fn a_picture_waits_for_a_server_that_still_loads_the_model_that_sees() {
    let (first, second) = (with_models(&["blind"]), with_models(&[]));
    second.set_models(Script::refusal(503, "Loading model"));
    let weir = before(&first).upstream("second", &second.url()).start();
    let mut waiting = weir.chat_request(say(picture()).to_string()).open();
    weir.chat(&say("hi")).assert_reply(REPLY);
    second.models(&["sees"]);
    waiting.read().assert_reply(REPLY);
    assert_eq!(asked(&second), "sees");
}

#[test]
fn a_name_that_no_server_has_is_said_once_and_changes_nothing() {
    let upstream = with_models(&["blind"]);
    let weir = before(&upstream).start();
    weir.wait_for_log("models.pictures");
    weir.chat(&say(picture())).assert_error(400, "image_unsupported");
    weir.chat(&say("hi")).assert_reply(REPLY);
    weir.wait_for_log(" turn=2 ");
    let words = "models.pictures: found \"sees\", which is none of the models here";
    assert_eq!(weir.output().matches(words).count(), 1, "{}", weir.output());
}

#[test]
fn a_model_that_gets_no_pictures_is_no_use_there_and_check_says_so() {
    let upstream = with_models(&["default", "one"]);
    let said = |images: &str| {
        let builder = Weir::before(&upstream).models("pictures = \"one\"").override_model("one", images);
        let (code, said) = builder.check();
        assert_eq!(code, 0, "{said}");
        said
    };
    let blind = said("images = false");
    assert!(blind.contains("models.pictures: found \"one\", which takes text only"), "{blind}");
    let unknown = said("images = \"auto\"");
    for words in
        ["models.pictures: found \"one\", of which nothing tells", "images = true under [models.override.\"one\"]"]
    {
        assert!(unknown.contains(words), "{words:?} is missing in {unknown}");
    }
    assert!(!said("images = true").contains("warning"));
}

#[test]
fn check_and_status_say_who_gets_the_pictures_of_a_default_that_does_not_see() {
    let upstream = with_models(&["default", "one", "other"]);
    let before = |default: &str| {
        let builder = Weir::before(&upstream).models("default = \"default\"").models("pictures = \"one\"");
        builder.override_model("one", "images = true").override_model("default", default)
    };
    let said = |default: &str| {
        let (code, said) = before(default).check();
        assert_eq!(code, 0, "{said}");
        said
    };
    let shown = |default: &str| {
        let weir = before(default).start();
        weir.ok("hi").assert_reply(REPLY);
        let mut command = weir_command();
        command.arg("status").arg("--config").arg(weir.folder().join("adapter.toml"));
        command.env("ADAPTER_PORT", weir.address().port().to_string());
        let (code, shown) = run_to_end(command.spawn().unwrap());
        assert_eq!(code, 0, "{shown}");
        shown.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let unknown = said("images = \"auto\"");
    let words = "one gets them where the app names no model; where it names this one, unknown, so declined";
    assert!(unknown.contains(&format!("pictures: {words}")), "{unknown}");
    // Nobody takes those of a model that is asked for by its name.
    assert_eq!(unknown.matches("pictures: unknown, so declined; `weir check --probe-images`").count(), 1, "{unknown}");
    let unknown = shown("images = \"auto\"");
    assert!(unknown.contains(&format!("default: {}", words.replace("them", "pictures"))), "{unknown}");
    assert!(unknown.contains("other: pictures unknown, so declined"), "{unknown}");
    let blind = said("images = false");
    assert!(blind.contains("pictures: no (from models.override"), "{blind}");
    assert!(blind.contains("; one gets them where the app names no model"), "{blind}");
    let blind = shown("images = false");
    assert!(blind.contains("default: text only; one gets pictures where the app names no model"), "{blind}");
    for sees in [said("images = true"), shown("images = true")] {
        assert!(!sees.contains("gets them") && !sees.contains("gets pictures"), "{sees}");
    }
}
