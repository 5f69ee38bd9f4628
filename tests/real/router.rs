//! A llama-server that is a router of several models.

use std::os::unix::fs::symlink;

use serde_json::json;
use tempfile::TempDir;

use crate::common::{Builder, say, say_to, secret};
use crate::llama_server::{Launch, LlamaServer, eventually, model_file, turn};

/// A router of `tiny-chat` and `tiny-slow`, of which it keeps one loaded at a time.
fn router(folder: &TempDir) -> LlamaServer {
    for model in ["tiny-chat", "tiny-slow"] {
        symlink(model_file(model), folder.path().join(format!("{model}.gguf"))).unwrap();
    }
    Launch::router(folder.path()).start()
}

#[test]
fn each_model_of_a_router_is_listed_and_answers_under_its_own_name() {
    let folder = TempDir::new().unwrap();
    let server = router(&folder);
    for kind in ["auto", "llamacpp", "openai"] {
        let url = format!("http://{}", server.address());
        let weir = Builder::new().upstream("router", &url).kind(kind).models("default = \"tiny-slow\"").start();
        assert_eq!(weir.ids(), ["tiny-slow", "tiny-chat"], "{kind}");
        let listed = weir.get("/v1/models").json();
        assert_eq!(listed["data"][0]["conduck"]["input_modalities"], json!(["text"]), "{kind}");
        // Each of these makes the router put the other model away.
        for model in ["tiny-chat", "tiny-slow", "tiny-chat"] {
            let reply = turn(&weir, &say_to(model, secret("Are you there?"))).assert_reply("pong");
            assert_eq!(reply["model"], model, "{kind}");
        }
        assert_eq!(turn(&weir, &say(secret("hello"))).assert_reply("pong")["model"], "tiny-slow", "{kind}");
        turn(&weir, &say_to("tiny-none", secret("hello"))).assert_error(400, "model_not_found");
    }
}

#[test]
fn the_default_model_of_a_router_is_loaded_before_its_first_turn() {
    let folder = TempDir::new().unwrap();
    let server = router(&folder);
    let url = format!("http://{}", server.address());
    let warmed = || {
        let builder = Builder::new().upstream("router", &url).kind("auto");
        builder.models("default = \"tiny-slow\"").models("warm_up = true").start()
    };
    assert_eq!(server.state_of("tiny-slow"), "unloaded");
    let weir = warmed();
    weir.wait_for_log("has loaded the default model");
    eventually("the model to be loaded", || (server.state_of("tiny-slow") == "loaded").then_some(()));
    assert_eq!(turn(&weir, &say(secret("hello"))).assert_reply("pong")["model"], "tiny-slow");
    // One that is loaded already is no failure.
    let again = warmed();
    again.wait_for_log("has loaded the default model");
}
