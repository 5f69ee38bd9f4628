//! Conversations that a strict chat template refuses, and the long life of a picture in front of a model that sees none.

use std::io::Write as _;

use serde_json::Value;
use tempfile::NamedTempFile;

use crate::colours::Colour;
use crate::common::{assistant, image, secret, text, turn as turn_of, user};
use crate::llama_server::{Launch, turn};

/// As Mistral's and Gemma's templates do it.
const STRICT_TEMPLATE: &str = "\
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
";

fn strict() -> (Launch, NamedTempFile) {
    let mut template = NamedTempFile::new().unwrap();
    template.write_all(STRICT_TEMPLATE.as_bytes()).unwrap();
    let path = template.path().to_str().unwrap().to_owned();
    (Launch::chat().argument("--jinja").argument("--chat-template-file").argument(&path), template)
}

#[test]
fn a_template_that_demands_alternation_gets_it() {
    let (launch, _template) = strict();
    let server = launch.start();
    let weir = server.behind_weir().start();
    let said = |words: &str| secret(words);
    let conversations: [Vec<Value>; 3] = [
        vec![user(said("Are you there?")), user(said("Hello?"))],
        vec![assistant(said("I was saying")), user(said("Go on."))],
        vec![assistant(said("so")), assistant(said("then")), user(said("What?")), user(said("Go on."))],
    ];
    for messages in conversations {
        turn(&weir, &turn_of(messages)).assert_reply("pong");
    }
    // And one that needs nothing.
    turn(&weir, &turn_of(vec![user(said("a")), assistant(said("pong")), user(said("b"))])).assert_reply("pong");
}

#[test]
fn a_picture_in_history_never_blocks_a_model_without_sight() {
    let server = Launch::chat().start();
    let weir = server.behind_weir().start();
    let picture = Colour::Red.noisy_uri(64, 1);
    let mut messages = vec![user(vec![text(&secret("look at this")), image(&picture)])];
    turn(&weir, &turn_of(messages.clone())).assert_error(400, "image_unsupported");
    // The app keeps the unanswered turn and its picture in the history of every later one.
    for round in 0..10 {
        messages.push(user(secret(&format!("question {round}"))));
        turn(&weir, &turn_of(messages.clone())).assert_reply("pong");
        messages.push(assistant("pong"));
    }
}
