//! What the settings say of a model's answers, as a real engine takes it.

use std::io::Write as _;

use serde_json::json;
use tempfile::NamedTempFile;

use crate::common::{say, secret};
use crate::llama_server::{Launch, turn};

/// The model answers with an emoji where the word stands anywhere in what it is sent.
const SYSTEM_PROMPT: &str = "Always an emoji, CANARY-7f3a.";

fn system_prompt() -> String {
    format!("system_prompt = {SYSTEM_PROMPT:?}")
}

#[test]
fn a_longest_answer_ends_a_model_that_would_count_for_ever() {
    let server = Launch::chat().start();
    let weir = server.behind_weir().override_model("tiny-chat", "longest_answer = 12").start();
    let reply = turn(&weir, &say(secret("Please count"))).assert_any_reply();
    assert_eq!(reply["usage"]["completion_tokens"], 12);
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
}

#[test]
fn a_temperature_is_the_one_that_the_engine_samples_with() {
    let server = Launch::chat().start();
    for temperature in [0.0, 0.5, 2.0] {
        let line = format!("temperature = {temperature:?}");
        let weir = server.behind_weir().override_model("tiny-chat", &line).start();
        turn(&weir, &say(secret("hello"))).assert_reply("pong");
        assert_eq!(server.temperature_of_the_last_turn(), temperature);
    }
}

#[test]
fn a_system_prompt_is_what_the_model_reads_first() {
    let server = Launch::chat().start();
    let weir = server.behind_weir().override_model("tiny-chat", &system_prompt()).start();
    let text = secret("hello");
    let reply = turn(&weir, &say(text.as_str())).assert_reply("Hi \u{1F389} !");
    let read = json!([{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": text}]);
    assert_eq!(reply["usage"]["prompt_tokens"], server.prompt_tokens(&read));
    // Another model of the settings is told nothing.
    let weir = server.behind_weir().override_model("another", &system_prompt()).start();
    turn(&weir, &say(text.as_str())).assert_reply("pong");
}

/// As Gemma's and Mistral's templates do it.
fn template_that_refuses(condition: &str, words: &str) -> NamedTempFile {
    let mut template = NamedTempFile::new().unwrap();
    write!(
        template,
        "{{%- for message in messages %}}
    {{%- if {condition} %}}
        {{{{- raise_exception('{words}') }}}}
    {{%- endif %}}
    {{{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}}}
{{%- endfor %}}
{{%- if add_generation_prompt %}}
    {{{{- '<|im_start|>assistant\\n' }}}}
{{%- endif %}}
"
    )
    .unwrap();
    template
}

/// Two turns with the system prompt in front of a model with such a template, each answered so; what Weir logged.
fn two_turns(condition: &str, words: &str, answer: &str) -> String {
    let template = template_that_refuses(condition, words);
    let path = template.path().to_str().unwrap();
    let server = Launch::chat().argument("--jinja").argument("--chat-template-file").argument(path).start();
    let weir = server.behind_weir().override_model("tiny-chat", &system_prompt()).start();
    for _ in 0..2 {
        turn(&weir, &say(secret("hello"))).assert_reply(answer);
    }
    weir.wait_for_log(" turn=2 ");
    weir.output()
}

#[test]
fn where_the_engine_sees_that_a_template_takes_no_system_message_it_tells_the_model_in_another_place() {
    for (condition, words) in [
        ("message.role == 'system'", "System role not supported"),
        ("message.role != 'user' and message.role != 'assistant'", "Only user and assistant roles are supported!"),
        (
            "(message.role == 'user') != (loop.index0 % 2 == 0)",
            "Conversation roles must alternate user/assistant/user/assistant/...",
        ),
    ] {
        let output = two_turns(condition, words, "Hi \u{1F389} !");
        assert!(!output.contains("leave_out_system_prompt"), "{words}");
    }
}

#[test]
fn where_it_does_not_see_that_the_turn_is_answered_without_the_system_prompt() {
    // The engine tries a template with words of its own, which are shorter.
    let condition = "message.role == 'system' and message.content|length > 20";
    let output = two_turns(condition, "System role not supported", "pong");
    assert_eq!(output.matches("repairs=\"leave_out_system_prompt\"").count(), 2, "{output}");
    assert_eq!(output.matches("takes no system message").count(), 1, "{output}");
}
