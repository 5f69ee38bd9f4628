//! Chapter B: the token, before anything else.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;
use std::time::{Duration, Instant};

const ROUTES: [(&str, &str); 2] = [("GET", "/v1/models"), ("POST", "/v1/chat/completions")];

/// Both routes with this `Authorization` value get 401, and nothing goes upstream.
fn assert_refused(weir: &Weir, authorization: &[u8]) {
    for (method, path) in ROUTES {
        let mut request = weir.stranger(method, path).header("Authorization", authorization);
        if method == "POST" {
            request = request.body(say(secret("hi")).to_string());
        }
        let answer = request.send();
        assert_eq!(answer.status, 401, "{:?} on {path}", String::from_utf8_lossy(authorization));
        answer.assert_error(401, None);
    }
}

/// Both routes with this `Authorization` value work.
fn assert_accepted(weir: &Weir, authorization: &[u8]) {
    let get = weir.stranger("GET", "/v1/models").header("Authorization", authorization);
    assert_eq!(get.send().status, 200, "{:.80?}", String::from_utf8_lossy(authorization));
    let chat = weir.chat_request(say("hi").to_string()).header("Authorization", authorization);
    chat.send().assert_reply(REPLY);
}

#[test]
fn row_015_no_token_is_401_in_the_error_shape() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    weir.stranger("GET", "/v1/models").send().assert_error(401, None);
    let chat = weir.stranger("POST", "/v1/chat/completions").body(say("hi").to_string());
    chat.send().assert_error(401, None);
    upstream.assert_no_chat();
}

#[test]
fn row_016_a_wrong_token_is_401() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let flipped = TOKEN.replace("abcdef", "abcdeg");
    let longer = format!("{TOKEN}0");
    let upper = TOKEN.to_uppercase();
    let shorter = &TOKEN[..TOKEN.len() - 1];
    for token in [flipped.as_str(), longer.as_str(), upper.as_str(), shorter, "C", ""] {
        assert_refused(&weir, format!("Bearer {token}").as_bytes());
    }
    upstream.assert_no_chat();
}

#[test]
fn row_017_a_wrong_token_is_never_403() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for (method, path) in ROUTES {
        let answer = weir.stranger(method, path).token(b"CANARY-7f3a-wrong").send();
        assert_eq!(answer.status, 401);
    }
}

#[test]
fn row_018_the_answer_comes_before_the_body() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let request =
        weir.stranger("POST", "/v1/chat/completions").token(b"CANARY-7f3a-wrong").header("Content-Length", "50000000");
    let mut connection = weir.connect();
    let start = Instant::now();
    connection.send(&request.head_bytes()).unwrap();
    connection.read().assert_error(401, None);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[test]
fn row_019_whatever_the_body_a_wrong_token_is_401() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let bodies = [
        b"{not json".to_vec(),
        Vec::new(),
        say_to("no-such-model", secret("hi")).to_string().into_bytes(),
        br#"{"messages":[{"role":"system","content":"CANARY-7f3a"}]}"#.to_vec(),
        vec![b'['; 100_000],
        vec![b'x'; 100 * 1024 * 1024],
    ];
    for body in bodies {
        let chat = weir.stranger("POST", "/v1/chat/completions").token(b"CANARY-7f3a-wrong").body(body);
        chat.send().assert_error(401, None);
    }
    upstream.assert_no_chat();
}

#[test]
fn row_020_expect_continue_gets_its_final_answer_at_once_or_the_go_ahead() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let body = say("hi").to_string();
    let good = weir.chat_request(body.clone()).header("Expect", "100-continue");
    let bad = good.clone().token(b"CANARY-7f3a-wrong");
    let mut connection = weir.connect();
    connection.send(&bad.head_bytes()).unwrap();
    let answer = connection.read();
    assert_eq!(answer.informational, [] as [u16; 0]);
    answer.assert_error(401, None);
    let mut connection = weir.connect();
    connection.send(&good.head_bytes()).unwrap();
    assert_eq!(connection.read_head().unwrap().status, 100);
    connection.send(body.as_bytes()).unwrap();
    connection.read().assert_reply(REPLY);
}

#[test]
fn row_021_the_scheme_is_accepted_in_any_case() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for scheme in ["Bearer", "bearer", "BEARER", "bEaReR"] {
        assert_accepted(&weir, format!("{scheme} {TOKEN}").as_bytes());
    }
}

#[test]
fn row_022_after_the_scheme_come_exactly_one_space_and_the_exact_token() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let basic = format!("Basic {}", base64(format!("user:{TOKEN}").as_bytes()));
    let values = [
        format!("Bearer  {TOKEN}"),
        format!("Bearer\t{TOKEN}"),
        format!("Bearer \t{TOKEN}"),
        format!("Bearer{TOKEN}"),
        format!("Bearer=\"{TOKEN}\""),
        format!("Bearer \"{TOKEN}\""),
        format!("Token {TOKEN}"),
        TOKEN.to_owned(),
        basic,
        "Bearer".to_owned(),
    ];
    for value in values {
        assert_refused(&weir, value.as_bytes());
    }
    upstream.assert_no_chat();
}

#[test]
fn row_023_space_around_the_field_value_does_not_count() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    assert_accepted(&weir, format!(" \t Bearer {TOKEN} \t ").as_bytes());
}

#[test]
fn row_023_a_token_that_can_never_match_refuses_to_start() {
    for file in
        [&b" CANARY-7f3a-tok\n"[..], b"CANARY-7f3a-tok \n", b"\tCANARY-7f3a-tok", b"good\nCANARY-7f3a-tok\t\r\n"]
    {
        let upstream = ScriptedUpstream::start();
        let refusal = Weir::before(&upstream).token_file(file).refused();
        assert_eq!(refusal.code, 2);
        assert!(refusal.output.contains("adapter.token"), "names no file: {}", refusal.output);
    }
}

#[test]
fn row_023_no_token_at_all_refuses_to_start() {
    for file in [&b""[..], b"\n", b"\r\n\r\n"] {
        let upstream = ScriptedUpstream::start();
        assert_eq!(Weir::before(&upstream).token_file(file).refused().code, 2);
    }
}

#[test]
fn row_023_a_token_file_holds_one_token_a_line() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream)
        .token_file(b"\r\nCANARY-7f3a-one\r\n\nCANARY-7f3a-two\n\n")
        .token(b"CANARY-7f3a-one")
        .start();
    assert_accepted(&weir, b"Bearer CANARY-7f3a-one");
    assert_accepted(&weir, b"Bearer CANARY-7f3a-two");
    assert_refused(&weir, b"Bearer CANARY-7f3a-oneCANARY-7f3a-two");
    assert_refused(&weir, b"Bearer ");
}

#[test]
fn row_024_two_authorization_headers_are_refused() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let good = format!("Bearer {TOKEN}");
    let bad = "Bearer CANARY-7f3a-wrong";
    for (first, second) in [(good.as_str(), bad), (bad, good.as_str()), (good.as_str(), good.as_str())] {
        for (method, path) in ROUTES {
            let request =
                weir.stranger(method, path).header("Authorization", first).add_header("authorization", second);
            request.send().assert_error(401, None);
        }
    }
}

#[test]
fn row_025_two_tokens_in_one_header_are_refused() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    assert_refused(&weir, format!("Bearer {TOKEN}, Bearer {TOKEN}").as_bytes());
    assert_refused(&weir, format!("Bearer {TOKEN}, Bearer CANARY-7f3a-wrong").as_bytes());
}

#[test]
fn row_026_any_token_works() {
    let tokens = [
        b"x".to_vec(),
        [CANARY.as_bytes(), &vec![b'k'; 4096 - CANARY.len()]].concat(),
        br#"CANARY-7f3a "\ :;=,% '#{}"#.to_vec(),
        b"CANARY-7f3a two  spaces inside".to_vec(),
        b"Bearer CANARY-7f3a".to_vec(),
    ];
    for token in tokens {
        let upstream = ScriptedUpstream::start();
        let weir = Weir::before(&upstream).token(&token).start();
        assert_accepted(&weir, &[b"Bearer ", &token[..]].concat());
        assert_refused(&weir, &[b"Bearer ", &token[..token.len() - 1]].concat());
    }
}

#[test]
fn row_027_a_token_is_bytes() {
    for token in ["CANARY-7f3a-ключ".as_bytes(), b"CANARY-7f3a-\xFF\xFE\x80", "CANARY-7f3a-e\u{301}".as_bytes()] {
        let upstream = ScriptedUpstream::start();
        let weir = Weir::before(&upstream).token(token).start();
        assert_accepted(&weir, &[b"Bearer ", token].concat());
        assert_refused(&weir, "Bearer CANARY-7f3a-\u{e9}".as_bytes());
        assert_refused(&weir, b"Bearer CANARY-7f3a-\xFF\xFE\x81");
    }
}

#[test]
fn row_028_a_token_elsewhere_does_not_count() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for query in ["token", "access_token", "api_key", "key"] {
        weir.stranger("GET", &format!("/v1/models?{query}={TOKEN}")).send().assert_error(401, None);
    }
    for header in ["X-Api-Key", "Cookie", "Proxy-Authorization", "X-Authorization", "Api-Key"] {
        for value in [TOKEN.to_owned(), format!("Bearer {TOKEN}"), format!("token={TOKEN}")] {
            weir.stranger("GET", "/v1/models").header(header, value).send().assert_error(401, None);
        }
    }
}

#[test]
fn row_029_401_names_the_bearer_scheme_and_never_basic() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for (method, path) in ROUTES {
        let answer = weir.stranger(method, path).send();
        let challenges: Vec<&str> = answer
            .headers
            .iter()
            .filter(|(name, _)| name == "www-authenticate")
            .map(|(_, value)| value.as_str())
            .collect();
        assert_eq!(challenges.len(), 1);
        assert!(challenges[0].starts_with("Bearer"), "{challenges:?}");
        assert!(!challenges[0].contains("Basic"));
    }
}

#[test]
fn row_030_no_token_and_no_near_miss_is_logged() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).upstream_key(b"CANARY-7f3a-upstream-key\n").start();
    weir.ok("hi").assert_reply(REPLY);
    assert_eq!(upstream.last_chat().header("authorization"), Some("Bearer CANARY-7f3a-upstream-key"));
    assert_refused(&weir, format!("Bearer {}", &TOKEN[..TOKEN.len() - 1]).as_bytes());
    assert_refused(&weir, TOKEN.as_bytes());
    assert_refused(&weir, format!("Basic {}", base64(CANARY.as_bytes())).as_bytes());
    weir.stranger("GET", &format!("/v1/models?token={TOKEN}")).send().assert_error(401, None);
    weir.get(&format!("/v1/models?token={TOKEN}"));
    assert!(!weir.output().contains(CANARY));
}
