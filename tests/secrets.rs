//! Chapter N: what never leaves. Every test of the harness looks for the canary; these look where it would be easiest.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use serde_json::json;

#[test]
fn row_151_success_and_every_error_leave_no_secret_in_the_output() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream)
        .upstream_key(b"CANARY-7f3a-upstream-key")
        .sees_pictures()
        .limit("image = \"100 KiB\"")
        .turn("1s")
        .start();
    let picture = || vec![text(&secret("look")), image(&png_uri(3))];
    weir.chat(&say(picture())).assert_reply(REPLY);
    weir.chat(&turn(vec![user(picture()), assistant(secret("seen")), user(secret("and now"))])).assert_reply(REPLY);
    let scripts = [
        Script::refusal(400, "no"),
        Script::refusal(401, "no"),
        Script::refusal(404, "The model `m` does not exist"),
        Script::refusal(413, "too large"),
        Script::refusal(429, "busy"),
        Script::refusal(500, "crash"),
        Script::refusal(503, "Loading model"),
        Script::body(500, "text/plain", CANARY.as_bytes()),
        Script::body(200, "text/html", CANARY.as_bytes()),
        Script::raw(b"CANARY-7f3a is not HTTP\r\n\r\n"),
        Script::raw(b"HTTP/1.1 200 OK\r\nX-Secret: CANARY-7f3a\r\nContent-Length: 99\r\n\r\nCANARY-7f3a"),
        Script::raw(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/CANARY-7f3a\r\nContent-Length: 0\r\n\r\n"),
        Script::events(&[CANARY]),
        Script::events(&[&json!({"error": {"message": CANARY}}).to_string()]),
        Script::events(&[&json!({"CANARY-7f3a": CANARY}).to_string()]),
        Script::hang_mid_body(),
        Script::close_mid_body(),
        Script::reset_mid_body(),
    ];
    for script in scripts {
        upstream.always(script);
        let answer = weir.chat(&say(picture()));
        assert!(answer.status >= 400, "{}", answer.status);
        assert!(!String::from_utf8_lossy(&answer.body).contains(CANARY));
    }
    let refused = [
        format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"{CANARY}\""),
        format!("{{\"messages\":\"{CANARY}\"}}"),
        format!("{{\"messages\":[{{\"role\":\"{CANARY}\",\"content\":\"a\"}}]}}"),
        format!("{{\"messages\":[{{\"role\":\"user\",\"content\":[{{\"type\":\"{CANARY}\"}}]}}]}}"),
        format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"a\",\"content\":\"{CANARY}\"}}]}}"),
        format!("{CANARY}{{"),
        say(vec![image(&format!("http://{CANARY}.example/x.png"))]).to_string(),
        say(vec![image(&format!("data:{CANARY};base64,QUJD"))]).to_string(),
        say(vec![image(&data_uri("image/png", &png(1, 200_000)))]).to_string(),
    ];
    for body in refused {
        let answer = weir.chat_bytes(body);
        assert!([400, 413].contains(&answer.status));
        assert!(!String::from_utf8_lossy(&answer.body).contains(CANARY));
    }
    weir.get(&format!("/{CANARY}?{CANARY}")).assert_error(404, None);
    let odd = weir.request("GET", "/v1/models").header("Cookie", CANARY).header("User-Agent", CANARY);
    assert_eq!(odd.send().status, 200);
    let mut unparsable = weir.connect();
    unparsable.send(b"CANARY-7f3a CANARY-7f3a\r\n\r\n").unwrap();
    let _ = unparsable.try_read(true);
    for form in canary_forms() {
        assert!(!weir.output().contains(&form));
    }
    assert!(!weir.output().is_empty(), "at the most verbose level there is something to search");
}

#[test]
fn row_152_a_model_name_from_a_request_is_logged_only_if_it_is_on_the_list() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let names = [CANARY.to_owned(), format!("m\n{CANARY} forged=line"), format!("\u{1b}[31m{CANARY}")];
    for name in names {
        weir.chat(&say_to(name.as_str(), "hi")).assert_error(400, "model_not_found");
    }
    weir.wait_for_log(" turn=3 ");
    assert!(!weir.output().contains(CANARY));
    assert!(!weir.output().contains("forged=line"));
}

#[cfg(target_os = "linux")]
#[test]
fn row_153_the_token_is_on_no_command_line() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let arguments = std::fs::read(format!("/proc/{}/cmdline", weir.pid())).unwrap();
    assert!(!String::from_utf8_lossy(&arguments).contains(CANARY));
    assert!(!weir.output().contains(CANARY));
}

#[test]
fn row_153_help_shows_no_token_and_no_option_takes_one() {
    for arguments in [&["--help"][..], &["serve", "--help"], &["check", "--help"], &["token", "--help"]] {
        let child = weir_command().args(arguments).env("ADAPTER_TOKEN", TOKEN).spawn().unwrap();
        let (code, output) = run_to_end(child);
        assert_eq!(code, 0, "{output}");
        assert!(!output.is_empty());
        assert!(!output.contains("--token "), "an option takes a token: {output}");
    }
}

#[test]
fn row_153_a_token_in_the_configuration_is_refused_without_being_shown() {
    for line in ["token = \"CANARY-7f3a\"", "tokens = [\"CANARY-7f3a\"]", "bearer_token = \"CANARY-7f3a\""] {
        let upstream = ScriptedUpstream::start();
        let refusal = Weir::before(&upstream).top(line).refused();
        assert_eq!(refusal.code, 2);
        assert!(!refusal.output.contains(CANARY), "{line}");
    }
    let upstream = ScriptedUpstream::start();
    let refusal = Weir::before(&upstream).upstream_setting("api_key = \"CANARY-7f3a\"").refused();
    assert_eq!(refusal.code, 2);
    let down = "http://user:CANARY-7f3a@127.0.0.1:1";
    assert_eq!(Builder::new().upstream("local", down).refused().code, 2);
}

#[test]
fn row_153_the_token_may_come_from_the_environment() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream)
        .token(b"CANARY-7f3a-from-the-environment")
        .token_file(b"CANARY-7f3a-from-the-file\n")
        .environment("ADAPTER_TOKEN", "CANARY-7f3a-from-the-environment")
        .start();
    weir.ok("hi").assert_reply(REPLY);
}

#[test]
fn row_153_check_shows_no_secret() {
    let upstream = ScriptedUpstream::start();
    let directory = tempfile::TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("adapter.token"), TOKEN).unwrap();
    std::fs::write(path("key"), "CANARY-7f3a-upstream-key").unwrap();
    let file = format!(
        "port = 0\ntoken_file = \"adapter.token\"\n[upstream.local]\nurl = \"{}\"\nkind = \"openai\"\napi_key_file = \"key\"\n",
        upstream.url()
    );
    std::fs::write(path("adapter.toml"), file).unwrap();
    let child = weir_command().arg("check").arg("--config").arg(path("adapter.toml")).spawn().unwrap();
    let (code, output) = run_to_end(child);
    assert_eq!(code, 0, "{output}");
    assert!(output.contains('m'));
}

#[test]
fn row_154_whatever_comes_nothing_panics_and_no_body_is_shown() {
    // Each running Weir is also searched for a panic when it is dropped, with full backtraces on.
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().start();
    let good = turn(vec![user(vec![text(&secret("a")), image(&png_uri(1))]), user(secret("b"))]).to_string();
    let mut state = 7u32;
    for round in 0..300 {
        let mut bytes = good.clone().into_bytes();
        for _ in 0..=round % 4 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = state as usize % bytes.len();
            bytes[at] = (state >> 24) as u8;
        }
        if round % 5 == 0 {
            bytes.truncate(state as usize % bytes.len());
        }
        let answer = weir.chat_bytes(bytes);
        assert!([200, 400, 413].contains(&answer.status), "{}", answer.status);
    }
    weir.ok("still there").assert_reply(REPLY);
}
