//! Model servers behind TLS: a private authority, a key, certificates that are not good, and another server where one is gone.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]
#![allow(unreachable_pub)]

#[path = "../common/mod.rs"]
mod common;
mod front;

use common::*;
use front::{Authority, HOST, Identity, TlsFront};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const KEY: &str = "CANARY-7f3a-upstream-key";

/// The configuration that README names for a server that is many machines.
const CLUSTER: &str = include_str!("../../config/examples/cluster.toml");

fn before(url: &str, authority: &Path) -> Builder {
    Builder::new()
        .upstream("local", url)
        .upstream_key(KEY.as_bytes())
        .upstream_setting(&format!("ca_file = {authority:?}"))
        // So that turns go there, though it never told what it has.
        .models("default = \"m\"")
}

/// In front of this server, a turn is 502, and the log and `weir check` say these words; the latter makes two sentences of what
/// stands before and behind a semicolon.
#[track_caller]
fn assert_not_trusted(configure: impl Fn() -> Builder, words: &[&str]) {
    let weir = configure().start();
    let start = Instant::now();
    weir.ok("hi").assert_error(502, "upstream_failure");
    // Only what may pass is tried again, for three seconds.
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    weir.wait_for_log("no trusted connection to the model server comes about");
    let (code, said) = configure().check();
    assert_eq!(code, 1, "{said}");
    for word in words {
        weir.wait_for_log(word);
        for part in word.split("; ") {
            assert!(said.to_lowercase().contains(&part.to_lowercase()), "{part:?} is missing in {said}");
        }
    }
}

#[test]
fn a_turn_is_answered_through_tls_of_a_private_authority_and_the_key_arrives() {
    let (folder, upstream) = (TempDir::new().unwrap(), ScriptedUpstream::start());
    let authority = Authority::new("home");
    let front = TlsFront::before(upstream.address(), &authority.issue(HOST));
    let url = format!("{}/v1/", front.url());
    let weir = before(&url, &authority.write(folder.path())).start();
    assert_eq!(weir.ids(), ["m"]);
    weir.ok("hi").assert_reply(REPLY);
    let expected = format!("Bearer {KEY}");
    for request in upstream.requests() {
        assert_eq!(request.header("authorization"), Some(expected.as_str()), "{}", request.target);
    }
    let (code, said) = before(&url, &authority.write(folder.path())).check();
    assert_eq!(code, 0, "{said}");
}

#[test]
fn a_certificate_of_another_authority_is_not_trusted_and_the_server_gets_nothing() {
    let folder = TempDir::new().unwrap();
    // The second is the same authority made anew, as happens when somebody runs the same commands again.
    for other in ["office", "home"] {
        let upstream = ScriptedUpstream::start();
        let front = TlsFront::before(upstream.address(), &Authority::new(other).issue(HOST));
        let trusted = Authority::new("home").write(folder.path());
        let words = "its certificate is of no authority that is trusted here; put the certificate of its authority (PEM) into a \
                     file and name that in ca_file";
        assert_not_trusted(|| before(&front.url(), &trusted), &[words]);
        assert_eq!(upstream.requests().len(), 0);
    }
}

#[test]
fn without_a_ca_file_the_systems_authorities_count_and_the_mend_is_the_same() {
    let (folder, upstream) = (TempDir::new().unwrap(), ScriptedUpstream::start());
    let authority = Authority::new("home");
    let front = TlsFront::before(upstream.address(), &authority.issue(HOST));
    // What the system trusts is in this file here, so that the machine's own makes no difference.
    let trusting = |authority: &Authority| {
        let file = authority.write(folder.path());
        let builder = Builder::new().upstream("local", &front.url()).models("default = \"m\"");
        builder.environment("SSL_CERT_FILE", file.to_str().unwrap())
    };
    let another = Authority::new("the system's");
    assert_not_trusted(|| trusting(&another), &["no authority that is trusted here", "name that in ca_file"]);
    trusting(&authority).start().ok("hi").assert_reply(REPLY);
}

#[test]
fn a_server_that_was_trusted_a_moment_ago_is_not_called_busy() {
    let (folder, upstream) = (TempDir::new().unwrap(), ScriptedUpstream::start());
    let authority = Authority::new("home");
    let mut front = TlsFront::before(upstream.address(), &authority.issue(HOST));
    let weir = before(&front.url(), &authority.write(folder.path())).start();
    weir.ok("hi").assert_reply(REPLY);
    front.come_back_as(upstream.address(), &Authority::new("office").issue(HOST));
    weir.ok("hi").assert_error(502, "upstream_failure");
    weir.wait_for_log("name that in ca_file");
    assert_eq!(upstream.chat_count(), 1);
}

#[test]
fn a_certificate_for_another_host_is_not_trusted_and_that_is_not_the_authoritys_fault() {
    let (folder, upstream) = (TempDir::new().unwrap(), ScriptedUpstream::start());
    let authority = Authority::new("home");
    let trusted = authority.write(folder.path());
    for host in ["models.example", "127.0.0.2"] {
        let front = TlsFront::before(upstream.address(), &authority.issue(host));
        let words = "its certificate is for another host; write url with a name that stands in the certificate";
        assert_not_trusted(|| before(&front.url(), &trusted), &[words, "(ca_file cannot mend that)"]);
    }
    assert_eq!(upstream.requests().len(), 0);
}

#[test]
fn a_certificate_that_is_out_of_date_is_called_so() {
    let (folder, upstream) = (TempDir::new().unwrap(), ScriptedUpstream::start());
    let authority = Authority::new("home");
    let front = TlsFront::before(upstream.address(), &authority.issue_expired(HOST));
    let trusted = authority.write(folder.path());
    assert_not_trusted(|| before(&front.url(), &trusted), &["is not valid at this time; renew it"]);
}

#[test]
fn a_certificate_that_signs_itself_is_its_own_authority_unless_it_is_one_of_others_too() {
    let (folder, upstream) = (TempDir::new().unwrap(), ScriptedUpstream::start());
    let identity = Identity::self_signed(HOST, false);
    let front = TlsFront::before(upstream.address(), &identity);
    before(&front.url(), &identity.write(folder.path())).start().ok("hi").assert_reply(REPLY);

    let identity = Identity::self_signed(HOST, true);
    let front = TlsFront::before(upstream.address(), &identity);
    let trusted = identity.write(folder.path());
    assert_not_trusted(|| before(&front.url(), &trusted), &["cannot be used by a server", "CA:FALSE"]);
}

/// The address of a server that finds a TLS greeting to be bad HTTP.
fn plain_http() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let _ = client.read(&mut [0; 4096]);
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    address
}

#[test]
fn a_server_that_speaks_no_tls_is_called_so() {
    let folder = TempDir::new().unwrap();
    let trusted = Authority::new("home").write(folder.path());
    let url = format!("https://{}", plain_http());
    assert_not_trusted(|| before(&url, &trusted), &["does not speak TLS; write http:// in its url"]);
}

#[test]
fn a_server_whose_certificate_is_not_trusted_leaves_its_turns_to_the_next() {
    let (folder, first, second) = (TempDir::new().unwrap(), ScriptedUpstream::start(), ScriptedUpstream::start());
    let authority = Authority::new("home");
    let trusted = authority.write(folder.path());
    let fronts = [
        TlsFront::before(first.address(), &Authority::new("office").issue(HOST)),
        TlsFront::before(second.address(), &authority.issue(HOST)),
    ];
    let ca_file = format!("ca_file = {trusted:?}");
    let weir = Builder::new()
        .upstream("first", &fronts[0].url())
        .upstream_setting(&ca_file)
        .upstream("second", &fronts[1].url())
        .upstream_setting(&ca_file)
        .models("default = \"m\"")
        .start();
    weir.ok("hi").assert_reply(REPLY);
    assert_eq!((first.requests().len(), second.chat_count()), (0, 1));
}

/// The documented configuration, with the addresses and names of this test in the place of the example's.
fn cluster(router: &str, spare: &str, folder: TempDir, authority: &Authority) -> Weir {
    let mut text = CLUSTER.to_owned();
    for (shown, real) in [
        ("port = 8480", "port = 0"),
        ("https://router.models.example/v1", router),
        ("https://spare.models.example/v1", spare),
    ] {
        assert_eq!(text.matches(shown).count(), 1, "{shown} is not in the example once");
        text = text.replace(shown, real);
    }
    let write = |name: &str, bytes: &str| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("adapter.toml", &text);
    write("adapter.token", TOKEN);
    write("router.key", KEY);
    write("spare.key", KEY);
    std::fs::rename(authority.write(folder.path()), folder.path().join("models-ca.pem")).unwrap();
    let child = weir_command().arg("--config").arg(folder.path().join("adapter.toml")).spawn().unwrap();
    Weir::attach(child, Some(folder), TOKEN.as_bytes().to_vec())
}

#[test]
fn the_documented_configuration_for_many_machines_works_and_its_spare_takes_over() {
    let (router, spare) = (ScriptedUpstream::start(), ScriptedUpstream::start());
    let model = "Qwen/Qwen3-32B";
    for upstream in [&router, &spare] {
        upstream.set_models(Script::json(200, &models_answer(&[model], "vllm")));
    }
    let authority = Authority::new("models");
    let mut fronts = [&router, &spare].map(|upstream| TlsFront::before(upstream.address(), &authority.issue(HOST)));
    let weir = cluster(&fronts[0].url(), &fronts[1].url(), TempDir::new().unwrap(), &authority);
    assert_eq!(weir.ids(), [model]);
    weir.ok("hi").assert_reply(REPLY);
    assert_eq!((router.chat_count(), spare.chat_count()), (1, 0));
    fronts[0].stop();
    for _ in 0..2 {
        let start = Instant::now();
        weir.ok("hi").assert_reply(REPLY);
        // A server without a second beside it is tried again for three seconds.
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }
    assert_eq!((router.chat_count(), spare.chat_count()), (1, 2));
    let expected = format!("Bearer {KEY}");
    assert_eq!(spare.last_chat().header("authorization"), Some(expected.as_str()));
}
