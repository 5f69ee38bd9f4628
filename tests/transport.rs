//! Chapter A: where Weir listens, and which request goes where.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use std::collections::BTreeSet;

/// The addresses of all sockets on which this process listens, as the kernel names them (`0100007F:PORT`).
#[cfg(target_os = "linux")]
fn listening(pid: u32) -> BTreeSet<String> {
    let mut inodes = BTreeSet::new();
    for descriptor in std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        let Ok(target) = std::fs::read_link(descriptor.unwrap().path()) else {
            continue;
        };
        if let Some(inode) = target.to_string_lossy().strip_prefix("socket:[") {
            inodes.insert(inode.trim_end_matches(']').to_owned());
        }
    }
    let mut addresses = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let table = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in table.lines().skip(1) {
            let columns: Vec<&str> = line.split_whitespace().collect();
            if columns[3] == "0A" && inodes.contains(columns[9]) {
                addresses.insert(columns[1].to_owned());
            }
        }
    }
    addresses
}

#[cfg(target_os = "linux")]
fn assert_loopback_only(weir: &Weir, sockets: usize) {
    let addresses = listening(weir.pid());
    assert_eq!(addresses.len(), sockets, "{addresses:?}");
    for address in &addresses {
        assert!(address.starts_with("0100007F:"), "listens on {address}");
    }
    assert!(addresses.contains(&format!("0100007F:{:04X}", weir.address().port())));
}

#[cfg(target_os = "linux")]
#[test]
fn row_001_listens_on_the_loopback_address_only() {
    let upstream = ScriptedUpstream::start();
    assert_loopback_only(&Weir::in_front_of(&upstream), 1);
}

#[cfg(target_os = "linux")]
#[test]
fn row_001_the_demo_listens_on_the_loopback_address_only() {
    let home = tempfile::TempDir::new().unwrap();
    let child = demo_command(home.path()).spawn().unwrap();
    let weir = Weir::attach(child, Some(home), TOKEN.as_bytes().to_vec());
    weir.chat(&say("Reply with exactly: pong")).assert_any_reply();
    for address in listening(weir.pid()) {
        assert!(address.starts_with("0100007F:"), "listens on {address}");
    }
}

#[test]
fn row_001_there_is_no_key_for_an_address() {
    for key in ["address", "host", "bind", "listen"] {
        let upstream = ScriptedUpstream::start();
        let refusal = Weir::before(&upstream).top(&format!("{key} = \"0.0.0.0\"")).refused();
        assert_eq!(refusal.code, 2);
        assert!(refusal.output.contains(key), "the message does not name the key {key}: {}", refusal.output);
    }
}

#[test]
fn row_002_a_tls_greeting_gets_no_tls() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let mut connection = weir.connect();
    let mut hello = vec![0x16, 0x03, 0x01, 0x00, 0x30, 0x01, 0x00, 0x00, 0x2C, 0x03, 0x03];
    hello.resize(53, 0x2A);
    connection.send(&hello).unwrap();
    connection.half_close();
    // Either nothing, or an answer in plain HTTP.
    if let Ok(answer) = connection.try_read(true) {
        assert_eq!(answer.status, 400);
    }
    assert_eq!(weir.get("/v1/models").status, 200);
}

#[test]
fn row_002_there_is_no_key_for_tls() {
    let upstream = ScriptedUpstream::start();
    let refusal = Weir::before(&upstream).toml("[tls]\ncertificate = \"x.pem\"").refused();
    assert_eq!(refusal.code, 2);
}

#[test]
fn row_003_the_query_is_ignored() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for target in ["/v1/models", "/v1/models?", "/v1/models?x=1&y", "/v1/models?limit=0#"] {
        let answer = weir.get(target);
        assert_eq!(answer.status, 200, "{target}");
        answer.assert_plain_json();
    }
    for query in ["?stream=true", "?x=/v1/models", "?"] {
        let target = format!("/v1/chat/completions{query}");
        weir.request("POST", &target).body(say("hi").to_string()).send().assert_reply(REPLY);
    }
    assert_eq!(upstream.last_chat().target, "/v1/chat/completions");
}

#[test]
fn row_004_an_unknown_path_is_404() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let paths = ["/", "/v1", "/v1/", "/v1/embeddings", "/health", "/v1/Models", "/metrics", "/v1/completions"];
    for path in paths {
        weir.get(path).assert_error(404, None);
        weir.request("POST", path).body(say("hi").to_string()).send().assert_error(404, None);
    }
    upstream.assert_no_chat();
}

#[test]
fn row_005_an_unknown_path_without_the_token_is_401() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for path in ["/", "/v1", "/health", "/healthz", "/metrics", "/v1/Models", "/favicon.ico"] {
        weir.stranger("GET", path).send().assert_error(401, None);
        weir.stranger("GET", path).token(b"CANARY-7f3a-wrong").send().assert_error(401, None);
    }
}

#[test]
fn row_006_a_known_path_with_a_wrong_method_is_405_and_names_the_right_one() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for method in ["POST", "PUT", "DELETE", "PATCH", "QUERY"] {
        let answer = weir.request(method, "/v1/models").body(say("hi").to_string()).send();
        answer.assert_error(405, None);
        assert_eq!(answer.header("allow"), Some("GET"));
    }
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        let answer = weir.request(method, "/v1/chat/completions").send();
        answer.assert_error(405, None);
        assert_eq!(answer.header("allow"), Some("POST"));
    }
    upstream.assert_no_chat();
}

#[test]
fn row_007_head_and_options_are_405_and_there_are_no_cors_headers() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for path in ["/v1/models", "/v1/chat/completions"] {
        let mut connection = weir.connect();
        let head = weir.request("HEAD", path);
        connection.send(&head.bytes()).unwrap();
        let answer = connection.read_without_body();
        assert_eq!(answer.status, 405);
        // A byte of a body would be taken for the next answer.
        connection.assert_usable_or_closed(&answer, &weir.request("GET", "/v1/models"));
        let answer = weir
            .request("OPTIONS", path)
            .header("Origin", "https://example.org")
            .header("Access-Control-Request-Method", "POST")
            .send();
        answer.assert_error(405, None);
    }
    let answer = weir.request("GET", "/v1/models").header("Origin", "https://example.org").send();
    answer.assert_plain_json();
}

#[test]
fn row_008_a_wrong_method_without_the_token_is_401() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for method in ["POST", "DELETE", "OPTIONS"] {
        weir.stranger(method, "/v1/models").send().assert_error(401, None);
    }
    weir.stranger("GET", "/v1/chat/completions").send().assert_error(401, None);
}

#[test]
fn row_009_the_path_is_matched_byte_for_byte() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let paths = [
        "/v1/models/",
        "//v1/models",
        "/v1/./models",
        "/v1/../v1/models",
        "/v1//models",
        "/v1/%6dodels",
        "/v1/models%20",
        "/v1/models%3Fx",
        "/V1/models",
        "/v1/models;a=b",
    ];
    for path in paths {
        let answer = weir.get(path);
        assert_eq!(answer.status, 404, "{path}");
        answer.assert_error(404, None);
    }
}

#[test]
fn row_010_the_absolute_form_of_a_target_works() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let base = format!("http://{}", weir.address());
    assert_eq!(weir.get(&format!("{base}/v1/models")).status, 200);
    weir.get(&format!("{base}/v1/other")).assert_error(404, None);
    weir.get(&base).assert_error(404, None);
}

#[test]
fn row_011_any_host_is_answered() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for host in ["evil.example", "phone.tail1234.ts.net", "127.0.0.1", "localhost:1", "[::1]:80"] {
        let answer = weir.request("GET", "/v1/models").header("Host", host).send();
        assert_eq!(answer.status, 200, "{host}");
        let answer = weir.chat_request(say("hi").to_string()).header("Host", host).send();
        answer.assert_reply(REPLY);
    }
    let chat = upstream.last_chat();
    assert_eq!(chat.header("host"), Some(upstream.address().to_string().as_str()));
}

#[test]
fn row_012_http_1_0_is_answered_and_closed() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let mut connection = weir.request("GET", "/v1/models").version("HTTP/1.0").open();
    assert_eq!(connection.read().status, 200);
    assert!(connection.ends());
    weir.chat_request(say("hi").to_string()).version("HTTP/1.0").send().assert_reply(REPLY);
}

#[test]
fn row_013_a_get_with_a_body_leaves_the_connection_clean() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    for size in [1, 65_536, 5 * 1024 * 1024] {
        let get = weir.request("GET", "/v1/models").body(vec![b'x'; size]);
        let mut connection = get.open();
        let answer = connection.read();
        assert_eq!(answer.status, 200, "{size}");
        connection.assert_usable_or_closed(&answer, &weir.request("GET", "/v1/models"));
    }
}

#[test]
fn row_014_a_redirect_is_never_given() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let elsewhere = b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n";
    upstream.always(Script::raw(elsewhere));
    let mut statuses = vec![weir.ok("hi").status];
    for path in ["/v1/models/", "//v1/models", "/v1", "/", "/v1/models?x", "/v1/chat/completions/"] {
        statuses.push(weir.get(path).status);
        statuses.push(weir.stranger("GET", path).send().status);
    }
    assert!(statuses.iter().all(|status| !(300..400).contains(status)), "{statuses:?}");
}

/// The timer column of /proc/net/tcp (Linux): 02 is the keep-alive timer.
#[cfg(target_os = "linux")]
fn timers_towards(port: u16) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let remote = format!(":{port:04X}");
    table
        .lines()
        .map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter(|cells| cells.len() > 5 && cells[2].ends_with(&remote) && cells[3] == "01")
        .map(|cells| cells[5].clone())
        .collect()
}

#[cfg(target_os = "linux")]
#[test]
fn a_model_server_that_vanishes_without_a_word_is_noticed_by_keep_alive_probes() {
    let upstream = ScriptedUpstream::start();
    upstream.close_after_discovery();
    upstream.always(Script::hang_before_head());
    let weir = Weir::in_front_of(&upstream);
    let turn = weir.chat_request(say("hi").to_string()).open();
    upstream.wait_for_chats(1);
    // Once what was sent is acknowledged, only that timer can run.
    let timers = timers_towards(upstream.address().port());
    assert!(!timers.is_empty());
    assert!(timers.iter().all(|timer| timer.starts_with("02:")), "{timers:?}");
    drop(turn);
}
