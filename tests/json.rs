//! Chapter E: strict about the grammar, lenient about what it does not know.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use serde_json::json;

/// Each of these bodies is E(400) without a code, and nothing goes upstream.
fn assert_all_refused<B: AsRef<[u8]>>(bodies: &[B]) {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().start();
    for body in bodies {
        let body = body.as_ref();
        let answer = weir.chat_bytes(body);
        assert_eq!(answer.status, 400, "{:.300}", String::from_utf8_lossy(body));
        answer.assert_error(400, None);
    }
    upstream.assert_no_chat();
}

/// Each of these bodies is answered, and what arrives is one user message `hi` and nothing unknown.
fn assert_all_mean_hi<B: AsRef<[u8]>>(bodies: &[B]) {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for body in bodies {
        let body = body.as_ref();
        let answer = weir.chat_bytes(body);
        assert_eq!(answer.status, 200, "{:.300}", String::from_utf8_lossy(body));
        assert_eq!(upstream.last_chat().messages(), [user("hi")]);
    }
}

#[test]
fn row_049_what_is_not_an_object_is_400() {
    assert_all_refused(&["", " ", "[]", "\"x\"", "null", "42", "true", "hello", "{", "{\"messages\":", "{}"]);
}

#[test]
fn row_050_bytes_behind_the_object_are_400() {
    let good = say("hi").to_string();
    assert_all_refused(&[format!("{good}garbage"), format!("{good}{good}"), format!("{good},"), format!("{good}\0")]);
}

#[test]
fn row_050_space_around_the_object_is_fine() {
    let good = say("hi");
    assert_all_mean_hi(&[format!(" \r\n\t{good} \r\n\t\n"), serde_json::to_string_pretty(&good).unwrap()]);
}

#[test]
fn row_051_what_only_looks_like_json_is_400() {
    assert_all_refused(&[
        r#"{"messages":[{"role":"user","content":"hi"}],"x":NaN}"#,
        r#"{"messages":[{"role":"user","content":"hi"}],"x":Infinity}"#,
        r#"{"messages":[{"role":"user","content":"hi"}],"x":-Infinity}"#,
        r#"{'messages':[{'role':'user','content':'hi'}]}"#,
        r#"{messages:[{"role":"user","content":"hi"}]}"#,
        r#"{"messages":[{"role":"user","content":"hi"}] /* note */}"#,
        "// note\n{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
        r#"{"messages":[{"role":"user","content":"hi"},]}"#,
        r#"{"messages":[{"role":"user","content":"hi"}],}"#,
        r#"{"messages":[{"role":"user","content":"hi"}],"x":01}"#,
        r#"{"messages":[{"role":"user","content":"hi"}],"x":"\q"}"#,
        r#"{"messages":[{"role":"user","content":"hi"}],"x":True}"#,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\nb\"}]}",
    ]);
}

#[test]
fn row_052_only_utf_8_without_a_mark_is_json() {
    let good = say("hi").to_string();
    let utf_16: Vec<u8> = good.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let utf_16_marked: Vec<u8> = [&[0xFF, 0xFE][..], &utf_16].concat();
    assert_all_refused(&[
        [b"\xEF\xBB\xBF", good.as_bytes()].concat(),
        b"{\"messages\":[{\"role\":\"user\",\"content\":\"\xFF\"}]}".to_vec(),
        b"{\"messages\":[{\"role\":\"user\",\"content\":\"\xED\xA0\x80\"}]}".to_vec(),
        b"{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"x\":\"\xC3\"}".to_vec(),
        utf_16,
        utf_16_marked,
    ]);
}

#[test]
fn row_053_unknown_keys_are_ignored_everywhere_and_not_forwarded() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().start();
    let picture = png_uri(10);
    let body = json!({
        "messages": [
            {"role": "assistant", "content": "a", "name": "n", "tool_calls": [], "refusal": null, "audio": {"id": 1}},
            {"role": "user", "name": "n", "id": 7, "content": [
                {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}, "annotations": []},
                {"type": "image_url", "image_url": {"url": picture, "detail": "high", "x": 1}, "cache_control": {}},
            ]},
        ],
        "stream": false, "user": "u", "metadata": {"a": "b"}, "store": true, "conversation": "c", "messages_": [],
    });
    weir.chat(&body).assert_reply(REPLY);
    let sent = upstream.last_chat();
    assert_eq!(sent.messages(), [assistant("a"), user(vec![text("b"), image(&picture)])]);
    let sent = sent.json();
    for key in sent.as_object().unwrap().keys() {
        let own = ["model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens"];
        assert!(own.contains(&key.as_str()), "{key} was forwarded");
    }
}

#[test]
fn row_054_an_unknown_key_may_hold_anything_that_is_json() {
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    let values = [
        "1e999",
        "-1e-999",
        "1234567890123456789012345678901234567890",
        "0.1234567890123456789012345678901234567890e+10",
        r#""\ud800""#,
        r#""\udc00\ud800 and \u0000""#,
        r#"{"a":{"b":[1,2,{"c":null}]},"a":1}"#,
        "\"\"",
        deep.as_str(),
    ];
    let mut bodies = Vec::new();
    for value in values {
        bodies.push(format!(r#"{{"x":{value},"messages":[{{"role":"user","content":"hi"}}]}}"#));
        bodies.push(format!(r#"{{"messages":[{{"role":"user","x":{value},"content":"hi"}}],"y":{value}}}"#));
        bodies.push(format!(
            r#"{{"messages":[{{"role":"user","content":[{{"x":{value},"type":"text","text":"hi"}}]}}]}}"#
        ));
        // Keys of unknown meaning may be odd too.
        bodies.push(format!(r#"{{"\ud800":{value},"messages":[{{"role":"user","content":"hi"}}]}}"#));
    }
    assert_all_mean_hi(&bodies);
}

#[test]
fn row_055_a_known_key_given_twice_is_400() {
    let picture = png_uri(1);
    let with_picture =
        |part: &str| format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}]}}"#).replace("PICTURE", &picture);
    assert_all_refused(&[
        r#"{"messages":[{"role":"user","content":"hi"}],"messages":[{"role":"user","content":"ho"}]}"#.to_owned(),
        r#"{"messages":[{"role":"user","content":"hi","content":"ho"}]}"#.to_owned(),
        r#"{"messages":[{"role":"user","role":"assistant","content":"hi"},{"role":"user","content":"ho"}]}"#.to_owned(),
        r#"{"model":"m","model":"m","messages":[{"role":"user","content":"hi"}]}"#.to_owned(),
        r#"{"m\u006fdel":"m","model":"m","messages":[{"role":"user","content":"hi"}]}"#.to_owned(),
        r#"{"messages":[{"role":"user","content":[{"type":"text","type":"text","text":"hi"}]}]}"#.to_owned(),
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"hi","text":"ho"}]}]}"#.to_owned(),
        with_picture(r#"{"type":"image_url","image_url":{"url":"PICTURE","url":"PICTURE"}}"#),
        with_picture(r#"{"type":"image_url","image_url":{"url":"PICTURE"},"image_url":{"url":"PICTURE"}}"#),
    ]);
}

#[test]
fn row_055_an_unknown_key_given_twice_is_ignored() {
    assert_all_mean_hi(&[
        r#"{"x":1,"x":2,"messages":[{"role":"user","content":"hi"}]}"#,
        r#"{"messages":[{"role":"user","x":1,"content":"hi","x":2}]}"#,
        r#"{"messages":[{"role":"user","content":[{"x":1,"type":"text","x":[],"text":"hi"}]}]}"#,
    ]);
}

#[test]
fn row_056_deep_nesting_does_not_overflow_the_stack() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let deep = 100_000;
    let lists = format!("{}{}", "[".repeat(deep), "]".repeat(deep));
    let objects = format!("{}1{}", "{\"a\":".repeat(deep), "}".repeat(deep));
    for value in [&lists, &objects, &"[".repeat(deep)] {
        let bodies = [
            value.to_string(),
            format!(r#"{{"x":{value},"messages":[{{"role":"user","content":"hi"}}]}}"#),
            format!(r#"{{"messages":[{{"role":"user","x":{value},"content":"hi"}}]}}"#),
        ];
        for body in bodies {
            let answer = weir.chat_bytes(body);
            assert!([200, 400].contains(&answer.status), "{}", answer.status);
        }
        for place in ["messages", "model"] {
            let body = format!(r#"{{"messages":[{{"role":"user","content":"hi"}}],"{place}":{value}}}"#);
            weir.chat_bytes(body).assert_error(400, None);
        }
        weir.chat_bytes(format!(r#"{{"messages":[{{"role":"user","content":{value}}}]}}"#)).assert_error(400, None);
    }
    weir.ok("still there").assert_reply(REPLY);
}

#[test]
fn row_057_escapes_are_understood() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().start();
    let picture = jpeg_uri(3);
    assert!(picture.contains("//"), "a picture without a slash proves nothing");
    let escaped = picture.replace('/', "\\/");
    let body = format!(
        r#"{{"m\u0065ssages":[{{"role":"\u0075ser","content":[{{"type":"t\u0065xt","text":"\u0041\ud83d\ude00\/\\\"\n"}},{{"type":"image_url","image_url":{{"url":"{escaped}"}}}}]}}]}}"#
    );
    weir.chat_bytes(body).assert_reply(REPLY);
    let sent = upstream.last_chat();
    assert_eq!(sent.messages(), [user(vec![text("A\u{1F600}/\\\"\n"), image(&picture)])]);
    // The data URI itself may be written in any escape.
    let unicode: String = picture.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"{unicode}"}}}}]}}]}}"#
    );
    weir.chat_bytes(body).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().messages(), [user(vec![image(&picture)])]);
}

#[test]
fn row_058_the_order_of_keys_does_not_matter() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().start();
    let picture = png_uri(4);
    let part = [
        format!(r#"{{"type":"image_url","image_url":{{"url":"{picture}"}}}}"#),
        format!(r#"{{"image_url":{{"url":"{picture}"}},"type":"image_url"}}"#),
    ];
    let label = [r#"{"type":"text","text":"a"}"#, r#"{"text":"a","type":"text"}"#];
    for which in 0..2 {
        let content = format!("[{},{}]", label[which], part[which]);
        let messages = [
            format!(r#"[{{"role":"user","content":{content}}}]"#),
            format!(r#"[{{"content":{content},"role":"user"}}]"#),
        ];
        let bodies = [
            format!(r#"{{"messages":{0},"stream":false,"model":"m"}}"#, messages[which]),
            format!(r#"{{"stream":false,"model":"m","messages":{0}}}"#, messages[which]),
            format!(r#"{{"model":"m","messages":{0},"stream":false}}"#, messages[1 - which]),
        ];
        for body in bodies {
            weir.chat_bytes(body).assert_reply(REPLY);
            let sent = upstream.last_chat();
            assert_eq!(sent.messages(), [user(vec![text("a"), image(&picture)])]);
            assert_eq!(sent.json()["model"], "m");
        }
    }
}

#[test]
fn row_059_half_a_character_in_a_text_is_400() {
    assert_all_refused(&[
        r#"{"messages":[{"role":"user","content":"a\ud800b"}]}"#,
        r#"{"messages":[{"role":"user","content":"\udc00"}]}"#,
        r#"{"messages":[{"role":"user","content":"\ud800\ud800"}]}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"\ud83d"}]}]}"#,
        r#"{"messages":[{"role":"assistant","content":"\ud83dx"},{"role":"user","content":"a"}]}"#,
    ]);
}
