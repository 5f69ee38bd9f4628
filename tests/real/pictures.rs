//! Pictures: a model that sees names the colour, which proves that the picture arrived; one that does not see is never asked.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::colours::Colour;
use crate::common::{
    Builder, DISCLOSURE, Weir, assistant, image, run_to_end, say, secret, text, turn as turn_of, user, weir_command,
};
use crate::llama_server::{Launch, finish, turn};

fn modalities(weir: &Weir) -> Value {
    let list = weir.get("/v1/models").json();
    assert_eq!(list["data"].as_array().map(Vec::len), Some(1));
    list["data"][0]["conduck"]["input_modalities"].clone()
}

#[test]
fn the_list_says_which_model_sees() {
    let vision = Launch::vision().start();
    assert_eq!(modalities(&vision.behind_weir().start()), json!(["text", "image"]));
    let chat = Launch::chat().start();
    assert_eq!(modalities(&chat.behind_weir().start()), json!(["text"]));
}

#[test]
fn the_model_names_the_colour_of_each_picture() {
    let server = Launch::vision().start();
    let weir = server.behind_weir().start();
    for colour in [Colour::Red, Colour::Green, Colour::Blue] {
        let picture = image(&colour.uri());
        let question = text(&secret("What colour is this?"));
        turn(&weir, &say(vec![question.clone(), picture.clone()])).assert_reply(colour.answer());
        turn(&weir, &say(vec![picture.clone(), question])).assert_reply(colour.answer());
        // As the app sends a turn without words, and without even an empty text.
        turn(&weir, &say(vec![text(""), picture.clone()])).assert_reply(colour.answer());
        turn(&weir, &say(vec![picture])).assert_reply(colour.answer());
    }
}

#[test]
fn a_picture_as_the_app_escapes_it_arrives() {
    let server = Launch::vision().start();
    let weir = server.behind_weir().start();
    let body = say(vec![text(&secret("What colour?")), image(&Colour::Blue.noisy_uri(64, 7))]);
    let escaped = body.to_string().replace('/', "\\/");
    assert!(escaped.contains("image\\/png"));
    let mut connection = weir.chat_request(escaped).open();
    finish(&mut connection).assert_reply(Colour::Blue.answer());
}

#[test]
fn two_pictures_of_one_turn_both_arrive() {
    let server = Launch::vision().start();
    let weir = server.behind_weir().start();
    let pictures = vec![image(&Colour::Red.uri()), text(&secret("and")), image(&Colour::Red.noisy_uri(80, 3))];
    let body = say(pictures);
    let reply = turn(&weir, &body).assert_reply(Colour::Red.answer());
    assert_eq!(reply["usage"]["prompt_tokens"], server.prompt_tokens(&body["messages"]));
}

#[test]
fn the_doctor_says_of_a_model_that_sees_and_reads_no_digits_that_the_picture_arrives() {
    let server = Launch::vision().start();
    let weir = server.behind_weir().start();
    let mut command = weir_command();
    command.args(["doctor", "--deep", "--json", "--config"]).arg(weir.folder().join("adapter.toml"));
    command.env("ADAPTER_PORT", weir.address().port().to_string());
    let (code, said) = run_to_end(command.spawn().unwrap());
    let document: Value = serde_json::from_str(&said).unwrap();
    let findings = document["findings"].as_array().unwrap();
    let picture = findings.iter().find(|finding| finding["id"] == "turn-picture").unwrap();
    assert_eq!((&picture["verdict"], code), (&json!("warning"), 0), "{said}");
    assert!(picture["seen"].as_str().unwrap().contains("the picture arrives"), "{said}");
    // The one in the history is a picture that the server can read, too.
    assert!(!weir.output().contains("disclose_historical_images"), "{}", weir.output());
}

#[test]
fn the_probe_finds_out_that_a_model_sees_where_nothing_tells() {
    let server = Launch::vision().start();
    // A Weir in between passes pictures on, and tells nothing that is known of the server behind it.
    let between = server.behind_weir().start();
    let url = format!("http://{}", between.address());
    let weir = Builder::new().upstream("between", &url).upstream_key(between.token()).start();
    let mut command = weir_command();
    command.args(["check", "--probe-images", "--config"]).arg(weir.folder().join("adapter.toml"));
    let (code, said) = run_to_end(command.spawn().unwrap());
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("saw the colour of a picture") && said.contains("images = true"), "{said}");
}

#[test]
fn a_picture_of_an_earlier_message_is_still_seen() {
    let server = Launch::vision().start();
    let weir = server.behind_weir().start();
    let body = turn_of(vec![
        user(vec![text(&secret("Look at this")), image(&Colour::Green.uri())]),
        assistant(secret("I looked at it.")),
        user(secret("Which colour was it?")),
    ]);
    let reply = turn(&weir, &body).assert_reply(Colour::Green.answer());
    assert_eq!(reply["usage"]["prompt_tokens"], server.prompt_tokens(&body["messages"]));
}

#[test]
fn a_model_that_does_not_see_is_not_asked_about_a_current_picture() {
    let server = Launch::chat().start();
    let weir = server.behind_weir().start();
    let body = say(vec![text(&secret("What colour?")), image(&Colour::Red.uri())]);
    let since = Instant::now();
    turn(&weir, &body).assert_error(400, "image_unsupported");
    assert!(since.elapsed() < Duration::from_secs(5), "the refusal took {:?}", since.elapsed());
    turn(&weir, &say(secret("Without it, then"))).assert_reply("pong");
}

#[test]
fn a_model_that_does_not_see_is_told_about_an_earlier_picture() {
    let server = Launch::chat().start();
    let weir = server.behind_weir().start();
    let history = |picture: Value| {
        let look = user(vec![text(&secret("Look at this")), picture, text("please")]);
        vec![look, assistant(secret("I cannot.")), user(secret("Never mind"))]
    };
    let reply = turn(&weir, &turn_of(history(image(&Colour::Red.uri())))).assert_reply("pong");
    let disclosed = json!([
        user(format!("{}\n{DISCLOSURE}\nplease", secret("Look at this"))),
        assistant(secret("I cannot.")),
        user(secret("Never mind")),
    ]);
    assert_eq!(reply["usage"]["prompt_tokens"], server.prompt_tokens(&disclosed));
}

#[test]
fn a_picture_that_the_server_cannot_read_is_refused_and_blocks_nothing_later() {
    let server = Launch::vision().start();
    let weir = server.behind_weir().start();
    // Begins as a PNG does, and is none.
    let broken = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA";
    turn(&weir, &say(vec![text(&secret("What colour?")), image(broken)])).assert_error(400, "image_unsupported");
    // In the history it does not block the conversation.
    let body = turn_of(vec![
        user(vec![text(&secret("Look")), image(broken)]),
        assistant(secret("I cannot.")),
        user(secret("Never mind")),
    ]);
    turn(&weir, &body).assert_reply("pong");
}
