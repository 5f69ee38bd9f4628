//! Weir in front of a real llama-server. The models are tiny and their weights set by hand, so that every answer is known:
//! tests/real/make_tiny_models.py says which words in a conversation give which.
//!
//! Needs the variables WEIR_LLAMA_SERVER and WEIR_LLAMA_MODELS: the two lines that tests/real/install_llama_server.sh prints.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]
#![allow(unreachable_pub)]

mod common;

#[path = "real/colours.rs"]
mod colours;
#[path = "real/llama_server.rs"]
mod llama_server;

#[path = "real/configurations.rs"]
mod configurations;
#[path = "real/conversations.rs"]
mod conversations;
#[path = "real/mends.rs"]
mod mends;
#[path = "real/overrides.rs"]
mod overrides;
#[path = "real/pictures.rs"]
mod pictures;
#[path = "real/router.rs"]
mod router;
#[path = "real/tools.rs"]
mod tools;
#[path = "real/trouble.rs"]
mod trouble;

use colours::Colour;
use common::{assistant, image, secret, text, turn as turn_of, user};
use llama_server::{Launch, turn};

const MIB: usize = 1024 * 1024;

#[test]
fn row_161_a_history_with_50_mib_of_pictures_reaches_the_model_whole() {
    let server = Launch::vision().start();
    let weir = server.behind_weir().start();
    let mut messages = Vec::new();
    for seed in 0..10 {
        let picture = Colour::Green.noisy_uri(1160, seed);
        messages.push(user(vec![text(&secret("look")), image(&picture)]));
        messages.push(assistant(secret("I looked.")));
    }
    messages.push(user(secret("What did you see?")));
    let body = turn_of(messages);
    let size = body.to_string().len();
    assert!((50 * MIB..64 * MIB).contains(&size), "the request has {size} bytes");

    let json = turn(&weir, &body).assert_reply(Colour::Green.answer());
    // Each picture is 16 tokens, so one that was left out or that could not be read would show.
    assert_eq!(json["usage"]["prompt_tokens"], server.prompt_tokens(&body["messages"]));
}
