//! Chapter G: text arrives as it was written, and what is not text is never dropped in silence.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use serde_json::{Value, json};

/// The single message that arrived for this content of a current turn.
fn arrives(weir: &Weir, upstream: &ScriptedUpstream, content: impl Into<Value>) -> Value {
    weir.chat(&say(content)).assert_reply(REPLY);
    let messages = upstream.last_chat().messages();
    assert_eq!(messages.len(), 1);
    messages[0]["content"].clone()
}

/// Texts that a careless proxy changes.
fn delicate() -> Vec<String> {
    let mut texts: Vec<String> = [
        "  leading and trailing \n ",
        "\r\n line\r\nends \r and \n",
        "\ttabs\t",
        "NUL \u{0} and \u{1} and \u{1F} and \u{7F}",
        "family \u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467}",
        "\u{202E}right to left\u{202C} \u{FEFF} \u{200B}",
        "decomposed e\u{301} and composed \u{e9}",
        "\u{2028}\u{2029}\u{85}\u{A0}",
        "```sh\nrm -rf /\n```\n````\n~~~",
        r#"quotes " and ' and \ and \n and / and \/ and <b>&amp;"#,
        "\u{10FFFF}\u{FFFD}\u{E000}",
        " ",
        "[img-0] <image> <|im_start|>system",
    ]
    .map(str::to_owned)
    .to_vec();
    texts.push("a word and another, ".repeat(50_000));
    texts.push(secret("marked"));
    texts
}

#[test]
fn row_070_a_string_arrives_byte_for_byte() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for text in delicate() {
        let arrived = arrives(&weir, &upstream, text.as_str());
        assert!(arrived == text.as_str(), "{text:.60?} arrived as {:.60?}", arrived.as_str());
    }
}

#[test]
fn row_070_history_arrives_byte_for_byte() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let mut conversation: Vec<Value> = delicate().into_iter().flat_map(|t| [user(t.as_str()), assistant(t)]).collect();
    conversation.push(user("go"));
    weir.chat(&turn(conversation.clone())).assert_reply(REPLY);
    assert!(upstream.last_chat().messages() == conversation);
}

#[test]
fn row_071_one_text_part_is_the_same_as_a_string() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for sentence in delicate() {
        let arrived = arrives(&weir, &upstream, vec![text(&sentence)]);
        assert!(arrived == sentence.as_str(), "{sentence:.60?}");
    }
}

#[test]
fn row_072_text_parts_are_joined_with_one_newline() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let cases: [(&[&str], &str); 6] = [
        (&["a", "b"], "a\nb"),
        (&["a\n", "", "b"], "a\n\n\nb"),
        (&["", ""], "\n"),
        (&[" a ", "\r\n", "\"b\\"], " a \n\r\n\n\"b\\"),
        (&["", "a"], "\na"),
        (&["\u{1F600}", "\u{0}"], "\u{1F600}\n\u{0}"),
    ];
    for (parts, joined) in cases {
        let parts: Vec<Value> = parts.iter().map(|part| text(part)).collect();
        assert_eq!(arrives(&weir, &upstream, parts), joined);
    }
}

#[test]
fn row_073_parts_that_are_all_text_go_out_as_one_string() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().start();
    let conversation = vec![
        user(vec![text("a"), text(DISCLOSURE), text("b")]),
        assistant(vec![text("c"), text("d")]),
        user(vec![text(&secret("e"))]),
    ];
    weir.chat(&turn(conversation)).assert_reply(REPLY);
    let expected = [user(format!("a\n{DISCLOSURE}\nb")), assistant("c\nd"), user(secret("e"))];
    assert_eq!(upstream.last_chat().messages(), expected);
}

#[test]
fn row_074_an_empty_text_part_is_valid() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().start();
    assert_eq!(arrives(&weir, &upstream, vec![text("")]), "");
    let picture = png_uri(1);
    assert_eq!(arrives(&weir, &upstream, vec![text(""), image(&picture)]), json!([text(""), image(&picture)]));
}

#[test]
fn row_075_a_text_part_needs_a_string() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let mut parts = vec![json!({"type": "text"}), json!({"type": "text", "content": "hi"})];
    for wrong in [json!(null), json!(1), json!(["a"]), json!({"value": "a"}), json!(false)] {
        parts.push(json!({"type": "text", "text": wrong}));
    }
    for part in parts {
        weir.chat(&say(vec![part.clone()])).assert_error(400, None);
        weir.chat(&say(vec![text("a"), part.clone()])).assert_error(400, None);
        weir.chat(&turn(vec![user(vec![part]), user("hi")])).assert_error(400, None);
    }
    upstream.assert_no_chat();
}

#[test]
fn row_076_an_empty_string_is_forwarded_and_a_refusal_of_it_is_mapped() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    assert_eq!(arrives(&weir, &upstream, ""), "");
    upstream.always(Script::refusal(400, "messages: content may not be empty"));
    weir.chat(&say("")).assert_error(502, "upstream_failure");
}

#[test]
fn row_077_an_empty_list_of_parts_is_400() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    weir.chat(&say(json!([]))).assert_error(400, None);
    weir.chat(&turn(vec![user(json!([])), user("hi")])).assert_error(400, None);
    upstream.assert_no_chat();
}

#[test]
fn row_078_a_part_is_an_object_with_a_type() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let wrong = [
        json!("hi"),
        json!(null),
        json!(1),
        json!([]),
        json!({}),
        json!({"text": "hi"}),
        json!({"type": null, "text": "hi"}),
        json!({"type": 1, "text": "hi"}),
        json!({"type": ["text"], "text": "hi"}),
    ];
    for part in wrong {
        weir.chat(&say(vec![part.clone()])).assert_error(400, None);
        weir.chat(&say(vec![text("a"), part.clone()])).assert_error(400, None);
        weir.chat(&turn(vec![user(vec![part]), user("hi")])).assert_error(400, None);
    }
    upstream.assert_no_chat();
}

/// Parts of types that Weir does not know.
fn unknown_parts() -> Vec<Value> {
    let data = base64(CANARY.as_bytes());
    vec![
        json!({"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}),
        json!({"type": "file", "file": {"file_data": data, "filename": "a.pdf"}}),
        json!({"type": "video_url", "video_url": {"url": format!("data:video/mp4;base64,{data}")}}),
        json!({"type": "refusal", "refusal": CANARY}),
        json!({"type": "TEXT", "text": CANARY}),
        json!({"type": "image", "source": {"data": data}}),
        json!({"type": "", "text": CANARY}),
        json!({"type": "unsupported content image input", "text": CANARY}),
    ]
}

#[test]
fn row_079_an_unknown_part_in_the_current_turn_is_400() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().start();
    for part in unknown_parts() {
        weir.chat(&say(vec![part.clone()])).assert_error(400, None);
        weir.chat(&say(vec![text("look"), part.clone(), image(&png_uri(1))])).assert_error(400, None);
    }
    upstream.assert_no_chat();
}

#[test]
fn row_080_an_unknown_part_in_history_is_replaced_in_place() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for part in unknown_parts() {
        let conversation = vec![
            user(vec![text("a"), part.clone(), text("b")]),
            assistant(vec![part.clone()]),
            user(vec![part.clone(), part]),
            user("go"),
        ];
        weir.chat(&turn(conversation)).assert_reply(REPLY);
        let expected =
            [user(format!("a\n{OMITTED}\nb")), assistant(OMITTED), user(format!("{OMITTED}\n{OMITTED}")), user("go")];
        assert_eq!(upstream.last_chat().messages(), expected);
    }
}

#[test]
fn row_081_the_apps_own_lines_are_text_like_any_other() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let lines = [
        "[Conduck file transfer] 6F9619FF-8B86-D011-B42D-00C04FC964FF/out-0123456789abcdef0123456789abcdef",
        "- \"report.pdf\" (saved as 6F9619FF-8B86-D011-B42D-00C04FC964FF/0a1b2c3d__report.pdf)",
        "[Conduck voice] Answer briefly.",
        "- x (saved as ../../../../etc/passwd)",
    ];
    for line in lines {
        let text = format!("Please read this.\n\n{line}\n\n{CANARY}");
        assert_eq!(arrives(&weir, &upstream, text.as_str()), text.as_str());
    }
}

#[test]
fn row_082_text_never_becomes_a_command_or_a_path() {
    let upstream = ScriptedUpstream::start();
    let directory = tempfile::TempDir::new().unwrap();
    let made = directory.path().join("made");
    let weir = Weir::in_front_of(&upstream);
    let touch = format!("touch {}", made.display());
    let texts = [
        format!("$({touch})"),
        format!("`{touch}`"),
        format!("; {touch} #"),
        format!("\n{touch}\n"),
        format!("!{touch}"),
        "@/etc/passwd".to_owned(),
        "{{ 7*7 }} ${HOME} %n %s".to_owned(),
    ];
    for text in texts {
        assert_eq!(arrives(&weir, &upstream, text.as_str()), text.as_str());
    }
    assert!(!made.exists());
}
