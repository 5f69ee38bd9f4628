//! Weir behind a reverse proxy that keeps its connections to Weir in a pool, as the fronts do through which a phone comes.
//!
//! Needs nginx (Debian: nginx-light) and, for one test, what tests/real_llamacpp.rs needs.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]
#![allow(unreachable_pub, dead_code)]

mod common;

#[path = "real/colours.rs"]
mod colours;
#[path = "real/llama_server.rs"]
mod llama_server;

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use common::*;
use llama_server::{Launch, eventually, free_port};
use tempfile::TempDir;

const WRONG: &[u8] = b"CANARY-7f3a-wrong";
const SIZES: [usize; 3] = [1, 65_536, 5 * 1024 * 1024];

/// Whether nginx takes in a request whole before it passes it on; both kinds of fronts exist.
const BUFFERING: [&str; 2] = ["on", "off"];

/// A running nginx in front of one Weir; killed when dropped.
#[derive(Debug)]
struct Nginx {
    child: Child,
    address: SocketAddr,
    directory: TempDir,
}

impl Nginx {
    fn before(weir: &Weir, buffering: &str) -> Self {
        (0..10).find_map(|_| Self::try_start(weir.address(), free_port(), buffering)).expect("nginx does not start")
    }

    fn try_start(weir: SocketAddr, address: SocketAddr, buffering: &str) -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let folder = directory.path().display();
        let configuration = format!(
            "daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
            events {{ }}
            http {{
                access_log off;
                client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
                uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
                client_max_body_size 0;
                upstream weir {{ server {weir}; keepalive 4; }}
                server {{
                    listen {address};
                    location / {{
                        proxy_pass http://weir;
                        proxy_http_version 1.1;
                        proxy_set_header Connection \"\";
                        proxy_request_buffering {buffering};
                        proxy_next_upstream off;
                    }}
                }}
            }}"
        );
        let file = directory.path().join("nginx.conf");
        std::fs::write(&file, configuration).unwrap();
        let mut child = Command::new("nginx")
            .arg("-p")
            .arg(directory.path())
            .arg("-c")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx is needed for this test and is not installed (Debian: nginx-light)");
        let listens = eventually("nginx to listen or to give up", || {
            let ended = child.try_wait().unwrap().is_some();
            (ended || TcpStream::connect(address).is_ok()).then_some(!ended)
        });
        listens.then_some(Nginx { child, address, directory })
    }

    fn connect(&self) -> Connection {
        Connection::to(self.address)
    }

    /// The answer to this request, which was made for Weir itself, on a connection of its own.
    fn ask(&self, request: &Request) -> Response {
        let mut connection = self.connect();
        connection.send(&request.bytes()).expect("nginx cut the connection");
        connection.read()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read(self.directory.path().join("error.log")).unwrap_or_default();
            eprintln!("--- what nginx said ---\n{}", String::from_utf8_lossy(&log));
        }
    }
}

/// Runs `test` with each kind of front.
fn with_each_front(test: impl Fn(&Weir, &Nginx)) {
    for buffering in BUFFERING {
        let upstream = ScriptedUpstream::start();
        let weir = Weir::before(&upstream).limit("body = \"50 MiB\"").start();
        test(&weir, &Nginx::before(&weir, buffering));
    }
}

#[test]
fn row_157_turns_and_the_list_come_through_a_pooling_proxy() {
    with_each_front(|weir, nginx| {
        for _ in 0..20 {
            assert_eq!(nginx.ask(&weir.request("GET", "/v1/models")).status, 200);
            nginx.ask(&weir.chat_request(say(secret("hi")).to_string())).assert_reply(REPLY);
        }
    });
}

#[test]
fn row_157_two_refusals_on_one_connection() {
    with_each_front(|weir, nginx| {
        let bad = weir.chat_request(say(secret("hi")).to_string()).token(WRONG);
        let mut connection = nginx.connect();
        for _ in 0..2 {
            connection.send(&bad.bytes()).unwrap();
            connection.read().assert_error(401, None);
        }
    });
}

#[test]
fn row_157_a_refusal_spoils_no_connection_of_the_pool() {
    with_each_front(|weir, nginx| {
        let good = weir.chat_request(say(secret("hi")).to_string());
        for size in SIZES {
            let body = vec![b'x'; size];
            let refused = [
                (401, weir.chat_request(body.clone()).token(WRONG)),
                (404, weir.request("POST", "/v1/nowhere").body(body.clone())),
                (405, weir.request("POST", "/v1/models").body(body.clone())),
                (400, weir.chat_request(body.clone()).header("Content-Encoding", "gzip")),
                (400, weir.chat_request(body)),
            ];
            for (status, request) in refused {
                let mut connection = nginx.connect();
                connection.send(&request.bytes()).unwrap();
                let answer = connection.read();
                answer.assert_error(status, None);
                // Where it has not taken in the whole body, nginx itself closes after an early answer without announcing it.
                let next = weir.request("GET", "/v1/models").bytes();
                if connection.send(&next).is_ok()
                    && let Ok(answer) = connection.try_read(true)
                {
                    assert_eq!(answer.status, 200, "the next request on the phone's connection");
                }
                nginx.ask(&good).assert_reply(REPLY);
            }
        }
    });
}

#[test]
fn row_157_a_pipelined_request_behind_a_refused_one() {
    with_each_front(|weir, nginx| {
        let bad = weir.chat_request(say(secret("hi")).to_string()).token(WRONG);
        let good = weir.request("GET", "/v1/models");
        let mut connection = nginx.connect();
        connection.send(&[bad.bytes(), good.bytes()].concat()).unwrap();
        let answer = connection.read();
        answer.assert_error(401, None);
        if answer.closes() {
            assert!(connection.ends());
        } else {
            assert_eq!(connection.read().status, 200);
        }
    });
}

#[test]
fn row_157_a_large_upload_that_is_refused_early_gets_its_answer() {
    with_each_front(|weir, nginx| {
        let body = vec![b'x'; 60_000_000];
        let good = weir.chat_request(say(secret("hi")).to_string());
        for _ in 0..3 {
            nginx.ask(&weir.chat_request(body.clone()).token(WRONG)).assert_error(401, None);
            nginx.ask(&weir.chat_request(body.clone())).assert_error(413, None);
            nginx.ask(&good).assert_reply(REPLY);
        }
    });
}

#[test]
fn row_157_a_peer_that_announces_a_terabyte_or_stalls_is_cut_off_and_the_next_is_served() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).timeout("body = \"700ms\"").start();
    // Otherwise nginx waits for the body itself, and Weir never hears of it.
    let nginx = Nginx::before(&weir, "off");
    let good = weir.chat_request(say(secret("hi")).to_string());
    for (length, status) in [(1_000_000_000_000_u64, 413), (1_000_000, 408)] {
        let head = weir.chat_request("").header("Content-Length", length.to_string()).head_bytes();
        let mut connection = nginx.connect();
        connection.send(&head).unwrap();
        connection.send(b"{\"messages\":").unwrap();
        connection.read().assert_error(status, None);
        nginx.ask(&good).assert_reply(REPLY);
    }
    assert_eq!(upstream.chat_count(), 2);
}

#[test]
fn row_157_a_picture_comes_through_a_pooling_proxy_to_a_real_model() {
    let server = Launch::vision().start();
    let weir = server.behind_weir().start();
    for buffering in BUFFERING {
        let nginx = Nginx::before(&weir, buffering);
        let picture = colours::Colour::Blue.noisy_uri(600, 1);
        let body = say(vec![text(&secret("What colour?")), image(&picture)]);
        let mut connection = nginx.connect();
        connection.send(&weir.chat_request(body.to_string()).bytes()).unwrap();
        llama_server::finish(&mut connection).assert_reply(colours::Colour::Blue.answer());
    }
}
