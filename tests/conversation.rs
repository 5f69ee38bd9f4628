//! Chapter F: messages, roles, and nothing but what was sent.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use serde_json::{Value, json};

/// Each of these bodies is E(400) without a code, and nothing goes upstream.
fn assert_all_refused(bodies: &[Value]) {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for body in bodies {
        let answer = weir.chat(body);
        assert_eq!(answer.status, 400, "{body}");
        answer.assert_error(400, None);
    }
    upstream.assert_no_chat();
}

#[test]
fn row_060_messages_must_be_a_list_with_something_in_it() {
    let mut bodies = vec![json!({"stream": false}), json!({"message": []})];
    for messages in [json!(null), json!({}), json!("x"), json!([]), json!(3), json!(false)] {
        bodies.push(json!({"messages": messages, "stream": false}));
    }
    assert_all_refused(&bodies);
}

#[test]
fn row_061_a_message_needs_a_role_and_a_content_of_the_right_shape() {
    let mut bodies = Vec::new();
    let last = user("hi");
    for element in [json!(null), json!("hi"), json!(1), json!([]), json!({}), json!({"content": "hi"})] {
        bodies.push(turn(vec![element.clone()]));
        bodies.push(turn(vec![element, last.clone()]));
    }
    for role in [json!(null), json!(1), json!([]), json!({}), json!(true), json!("")] {
        bodies.push(turn(vec![json!({"role": role, "content": "hi"})]));
    }
    bodies.push(turn(vec![json!({"role": "user"})]));
    for content in [json!(null), json!(1), json!(true), json!({"type": "text", "text": "hi"})] {
        bodies.push(turn(vec![json!({"role": "user", "content": content})]));
        bodies.push(turn(vec![json!({"role": "assistant", "content": content}), last.clone()]));
    }
    assert_all_refused(&bodies);
}

#[test]
fn row_062_only_user_and_assistant_are_roles() {
    let mut bodies = Vec::new();
    for role in ["system", "developer", "tool", "function", "User", " user", "user ", "ASSISTANT", "agent"] {
        bodies.push(turn(vec![json!({"role": role, "content": "hi"})]));
        bodies.push(turn(vec![json!({"role": role, "content": "hi"}), user("hi")]));
    }
    assert_all_refused(&bodies);
}

#[test]
fn row_063_the_last_message_is_the_users() {
    assert_all_refused(&[turn(vec![assistant("hi")]), turn(vec![user("hi"), assistant("ho")])]);
}

#[test]
fn row_064_every_order_of_roles_is_answered() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let long: Vec<Value> = (0..41)
        .map(|index| if index % 2 == 0 { user(secret(&format!("u{index}"))) } else { assistant(format!("a{index}")) })
        .collect();
    let conversations = [
        vec![user("a"), user("b")],
        vec![user("a"), user("b"), user("c"), assistant("d"), assistant("e"), user("f")],
        vec![assistant("a"), user("b")],
        vec![assistant("a"), assistant("b"), user("c"), user("d")],
        long,
    ];
    for conversation in conversations {
        weir.chat(&turn(conversation.clone())).assert_reply(REPLY);
        assert_eq!(upstream.last_chat().messages(), conversation);
    }
}

/// Answers as a chat template does that wants user and assistant in turn, beginning with the user.
fn strict_template(words: &'static str) -> Script {
    Script::from_fn(move |request| {
        let messages = request.messages();
        let expected = ["user", "assistant"].iter().cycle();
        let alternates = messages.iter().zip(expected).all(|(message, role)| message["role"] == *role);
        let answer = if alternates { Script::text(REPLY) } else { Script::refusal(400, words) };
        answer.for_request(request)
    })
}

#[test]
fn row_064_a_template_that_wants_alternating_roles_gets_runs_merged_in_order() {
    let upstream = ScriptedUpstream::start();
    upstream.always(strict_template("Conversation roles must alternate user/assistant/user/assistant/..."));
    let weir = Weir::in_front_of(&upstream);
    let conversation = vec![
        user(secret("first")),
        user(secret("second")),
        assistant(secret("third")),
        assistant(secret("fourth")),
        user(secret("fifth")),
        user(vec![text(&secret("sixth")), text("")]),
    ];
    weir.chat(&turn(conversation.clone())).assert_reply(REPLY);
    let sent = upstream.last_chat().messages();
    let expected = [&["first", "second"][..], &["third", "fourth"], &["fifth", "sixth"]];
    assert_eq!(sent.len(), expected.len());
    for (message, words) in sent.iter().zip(expected) {
        let content = message["content"].as_str().unwrap();
        let mut rest = content;
        for word in words {
            rest = rest.split_once(&secret(word)).unwrap_or_else(|| panic!("{word} was lost")).1;
        }
    }
    // What the template wants is known now: the next turn is right at once.
    let before = upstream.chat_count();
    weir.chat(&turn(conversation)).assert_reply(REPLY);
    assert_eq!(upstream.chat_count(), before + 1);
}

#[test]
fn row_064_a_template_that_names_the_first_message_gets_a_note_before_the_window() {
    let upstream = ScriptedUpstream::start();
    upstream.always(strict_template("Jinja Exception: Conversation must start with a user message"));
    let weir = Weir::in_front_of(&upstream);
    weir.chat(&turn(vec![assistant("a"), user("b")])).assert_reply(REPLY);
    let note = user("[The beginning of this conversation is not included.]");
    assert_eq!(upstream.last_chat().messages(), [note, assistant("a"), user("b")]);
}

#[test]
fn row_064_a_template_that_wants_the_user_first_gets_a_note_before_the_window() {
    let upstream = ScriptedUpstream::start();
    upstream.always(strict_template(
        "After the optional system message, conversation roles must alternate user/assistant/user/assistant/...",
    ));
    let weir = Weir::in_front_of(&upstream);
    weir.chat(&turn(vec![assistant(secret("a")), user(secret("b"))])).assert_reply(REPLY);
    let note = user("[The beginning of this conversation is not included.]");
    assert_eq!(upstream.last_chat().messages(), [note, assistant(secret("a")), user(secret("b"))]);
}

#[test]
fn row_064_a_template_that_cannot_be_satisfied_is_a_failure() {
    let upstream = ScriptedUpstream::start();
    upstream.always(Script::refusal(400, "Conversation roles must alternate user/assistant/user/assistant/..."));
    let weir = Weir::in_front_of(&upstream);
    weir.chat(&turn(vec![user("a"), user("b")])).assert_error(502, "upstream_failure");
    assert!(upstream.chat_count() <= 4, "each repair is tried once");
}

#[test]
fn row_065_roles_and_order_arrive_as_they_were_sent() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let conversation = vec![
        user(secret("one")),
        assistant(secret("  two\r\n")),
        assistant(""),
        user("three"),
        user("three"),
        assistant("\u{1F600}"),
        user(secret("four")),
    ];
    weir.chat(&turn(conversation.clone())).assert_reply(REPLY);
    let sent = upstream.last_chat();
    assert_eq!(sent.messages(), conversation);
    assert_eq!(sent.method, "POST");
}

#[test]
fn row_066_nothing_is_remembered_and_nothing_is_deduplicated() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let whole = [user("a"), assistant("b"), user("c"), assistant("d"), user("e")];
    let windows = [&whole[..], &whole[..], &whole[2..], &whole[..3], &whole[4..]];
    for window in windows {
        weir.chat(&turn(window.to_vec())).assert_reply(REPLY);
        assert_eq!(upstream.last_chat().messages(), window);
    }
    assert_eq!(upstream.chat_count(), windows.len());
    let twice = vec![user(secret("same")), user(secret("same"))];
    weir.chat(&turn(twice.clone())).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().messages(), twice);
}

#[test]
fn row_067_no_session_is_kept_with_the_model_server() {
    let upstream = ScriptedUpstream::start();
    let answer = String::from_utf8(http_answer(
        200,
        "application/json",
        json!({"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}]})
            .to_string()
            .as_bytes(),
    ))
    .unwrap();
    let with_cookie = answer.replacen("\r\n", "\r\nSet-Cookie: session=1\r\n", 1);
    upstream.always(Script::steps(vec![Step::Send(with_cookie.into_bytes())]));
    let weir = Weir::in_front_of(&upstream);
    let chat = weir.chat_request(say("hi").to_string()).header("Cookie", "phone=1").header("X-Session-Id", "7");
    for _ in 0..2 {
        chat.send().assert_reply("x");
        let sent = upstream.last_chat();
        for header in ["cookie", "x-session-id", "x-forwarded-for", "accept-language"] {
            assert_eq!(sent.header(header), None, "{header} was sent on");
        }
        for key in ["cache_prompt", "id_slot", "session_id", "slot_id", "context"] {
            assert_eq!(sent.json().get(key), None);
        }
    }
    let chats = upstream.chats();
    assert_eq!(chats[0].messages(), chats[1].messages());
}

#[test]
fn row_068_a_thousand_messages_are_accepted() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let conversation: Vec<Value> = (0..1000).map(|index| user(format!("message {index}"))).collect();
    weir.chat(&turn(conversation.clone())).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().messages(), conversation);
}

#[test]
fn row_069_no_system_prompt_is_added() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    weir.ok("hi").assert_reply(REPLY);
    assert_eq!(upstream.last_chat().messages(), [user(secret("hi"))]);
    assert_eq!(upstream.last_chat().json()["stream"], true);
    assert_eq!(upstream.last_chat().json()["stream_options"]["include_usage"], true);
}
