//! Clients that are slow, lie, flood or vanish: Weir answers others meanwhile, and afterwards everything has come back.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A Weir with its metrics, and what it had open before anybody came.
struct House {
    upstream: ScriptedUpstream,
    weir: Weir,
    metrics: SocketAddr,
    files: usize,
}

impl House {
    fn with(change: impl FnOnce(Builder) -> Builder) -> Self {
        let upstream = ScriptedUpstream::start();
        // So that no connection toward it outlives its turn, and files can be counted.
        let good = Script::text(REPLY);
        upstream.always(Script::from_fn(move |request| {
            let mut steps = good.for_request(request);
            announce_close(&mut steps);
            steps
        }));
        upstream.close_after_discovery();
        let builder = Weir::before(&upstream).upstream_setting("concurrency = 1").toml("[metrics]\nport = 0");
        let weir = change(builder).start();
        weir.ok("first").assert_reply(REPLY);
        let log = weir.output();
        let metrics = log.split_once("metrics on http://").unwrap().1.split_once('/').unwrap().0.parse().unwrap();
        let mut house = Self { upstream, weir, metrics, files: 0 };
        house.files = house.settled_files();
        house
    }

    fn gauge(&self, name: &str) -> u64 {
        let answer =
            Request::new(self.metrics, "GET", "/metrics").token(self.weir.token()).header("Connection", "close").send();
        assert_eq!(answer.status, 200);
        let text = String::from_utf8(answer.body).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no gauge {name}")).parse().unwrap()
    }

    fn wait_for(&self, what: &str, condition: impl Fn() -> bool) {
        let until = Instant::now() + CEILING;
        while !condition() {
            assert!(Instant::now() < until, "waited in vain for: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[cfg(target_os = "linux")]
    fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.weir.pid())).unwrap().count()
    }

    #[cfg(not(target_os = "linux"))]
    fn open_files(&self) -> usize {
        0
    }

    /// The number of open files once it stays the same.
    fn settled_files(&self) -> usize {
        let mut last = (self.open_files(), Instant::now());
        while last.1.elapsed() < Duration::from_millis(300) {
            let now = self.open_files();
            if now != last.0 {
                last = (now, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        last.0
    }

    /// Nothing runs, waits or is held any more, no file is open that was not before, and the next turn is answered.
    fn assert_as_before(&self) {
        for gauge in ["weir_turns_running", "weir_turns_queued", "weir_body_bytes_in_flight"] {
            self.wait_for(gauge, || self.gauge(gauge) == 0);
        }
        self.weir.ok("and now?").assert_reply(REPLY);
        self.wait_for("files are closed", || self.open_files() <= self.files);
    }

    fn turn(&self) -> Request {
        self.weir.chat_request(say(secret("hi")).to_string())
    }
}

/// Cuts a connection with a reset, or ends it in order.
fn leave(connection: Connection, reset: bool) {
    if reset { connection.reset() } else { drop(connection) }
}

#[test]
fn slow_heads_are_cut_off_and_others_are_served() {
    let house = House::with(|builder| builder.timeout("head = \"500ms\"").timeout("keep_alive = \"2s\""));
    let head = house.turn().head_bytes();
    let mut slow: Vec<Connection> = (1..40).map(|_| house.weir.connect()).collect();
    for (index, connection) in slow.iter_mut().enumerate() {
        connection.send(&head[..1 + index * 3]).unwrap();
    }
    house.weir.ok("meanwhile").assert_reply(REPLY);
    let start = Instant::now();
    for connection in &mut slow {
        assert!(connection.ends(), "a slow head was answered");
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    house.assert_as_before();
}

#[test]
fn a_head_that_drips_is_cut_off_all_the_same() {
    let house = House::with(|builder| builder.timeout("head = \"500ms\""));
    let mut connection = house.weir.connect();
    let start = Instant::now();
    let head = house.turn().header("X-Long", "x".repeat(10_000)).head_bytes();
    let sent = head.iter().take_while(|byte| {
        std::thread::sleep(Duration::from_millis(5));
        connection.send(&[**byte]).is_ok()
    });
    assert!(sent.count() < head.len());
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    house.assert_as_before();
}

#[test]
fn slow_bodies_are_cut_off_and_hold_nothing_afterwards() {
    let house = House::with(|builder| builder.timeout("body = \"700ms\""));
    let mut slow: Vec<Connection> = (0..20).map(|_| house.weir.connect()).collect();
    for (index, connection) in slow.iter_mut().enumerate() {
        let turn = house.turn();
        let request = if index % 2 == 0 {
            turn.header("Content-Length", "20000000").head_bytes()
        } else {
            let head = turn.without("Content-Length").header("Transfer-Encoding", "chunked").head_bytes();
            [&head[..], b"ffff\r\n{\"messages\""].concat()
        };
        connection.send(&request).unwrap();
        connection.send(b"{").unwrap();
    }
    house.weir.ok("meanwhile").assert_reply(REPLY);
    house.wait_for("bodies to be held", || house.gauge("weir_body_bytes_in_flight") > 0);
    for connection in &mut slow {
        connection.read().assert_error(408, None);
        connection.half_close();
        assert!(connection.ends());
    }
    drop(slow);
    assert_eq!(house.upstream.chat_count(), 2);
    house.assert_as_before();
}

#[test]
fn a_body_shorter_than_it_was_said_to_be_is_no_turn() {
    let house = House::with(|builder| builder);
    let body = say(secret("hi")).to_string();
    for longer in [1, 1000, 10_000_000] {
        for reset in [false, true] {
            let length = (body.len() + longer).to_string();
            let connection = house.turn().header("Content-Length", length).open();
            leave(connection, reset);
        }
        let length = (body.len() + longer).to_string();
        let mut connection = house.turn().header("Content-Length", length).open();
        connection.half_close();
        // Either nothing, or a word about it.
        if let Ok(answer) = connection.try_read(true) {
            answer.assert_error(400, None);
        }
    }
    assert_eq!(house.upstream.chat_count(), 1, "a cut body became a turn");
    house.assert_as_before();
}

#[test]
fn what_stands_behind_a_body_shorter_than_it_is_never_becomes_a_request() {
    let house = House::with(|builder| builder);
    let body = say(secret("hi")).to_string();
    for rubbish in ["rubbish\r\n\r\n", "\0\0\0\0", "}}}}", "GET /v1/models HTTP/1.1\n"] {
        let request = house.turn().bytes();
        let mut connection = house.weir.connect();
        connection.send(&[&request[..], rubbish.as_bytes()].concat()).unwrap();
        connection.read().assert_reply(REPLY);
        connection.half_close();
        if let Ok(answer) = connection.try_read(true) {
            assert!(answer.status == 400, "{}", answer.status);
        }
        assert!(connection.ends());
    }
    // A length that ends inside the JSON.
    let mut connection = house.turn().header("Content-Length", (body.len() - 3).to_string()).open();
    connection.read().assert_error(400, None);
    house.assert_as_before();
}

#[test]
fn a_length_beside_chunks_smuggles_nothing() {
    let house = House::with(|builder| builder);
    let smuggled = house.weir.request("GET", "/v1/models").bytes();
    let body = say(secret("hi")).to_string();
    let chunked = house.turn().chunked(body.as_bytes(), 64);
    for length in [0, 1, body.len(), 1_000_000] {
        // The bytes behind the last chunk are the next request, whatever the length says.
        let mut connection = house.weir.connect();
        let both = chunked.clone().add_header("Content-Length", length.to_string()).bytes();
        connection.send(&[&both[..], &smuggled[..]].concat()).unwrap();
        let answer = connection.read();
        if answer.status == 400 {
            assert!(connection.ends());
            continue;
        }
        answer.assert_reply(REPLY);
        if answer.closes() {
            assert!(connection.ends());
        } else {
            assert_eq!(connection.read().status, 200);
        }
    }
    for odd in ["chunked, identity", "gzip, chunked", "identity", "chunked, chunked", " chunked", "xchunked"] {
        let mut connection = chunked.clone().header("Transfer-Encoding", odd).open();
        connection.half_close();
        if let Ok(answer) = connection.try_read(true) {
            assert!([200, 400, 501].contains(&answer.status), "{odd}: {}", answer.status);
        }
    }
    house.assert_as_before();
}

#[test]
fn heads_without_measure_are_refused_within_it() {
    let house = House::with(|builder| builder);
    let floods: [(&[u8], &[u8]); 4] = [
        (b"GET /", b"xxxxxxxxxxxxxxxx"),
        (b"GET /v1/models HTTP/1.1\r\nX-Long: ", b"CANARY-7f3a"),
        (b"GET /v1/models HTTP/1.1\r\n", b"X-Many: CANARY-7f3a\r\n"),
        (b"", b"\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n"),
    ];
    for (start, again) in floods {
        let mut connection = house.weir.connect();
        let piece = again.repeat(65_536 / again.len());
        let mut sent = 0;
        let mut on = connection.send(start).is_ok();
        while on && sent < 64 * 1024 * 1024 {
            on = connection.send(&piece).is_ok();
            sent += piece.len();
        }
        // Empty lines before a request are skipped, and cost nothing.
        assert!(!on || start.is_empty(), "64 MiB of a head were taken");
    }
    let peak = house.weir.memory("VmHWM:").unwrap_or(0);
    assert!(peak < 64 * 1024, "{peak} KiB");
    house.assert_as_before();
}

#[test]
fn bytes_that_are_no_http_are_refused() {
    let house = House::with(|builder| builder);
    let odd: [&[u8]; 8] = [
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\0\0\0\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\n folded: x\r\n\r\n",
    ];
    for bytes in odd {
        let mut connection = house.weir.connect();
        connection.send(bytes).unwrap();
        connection.half_close();
        while let Ok(answer) = connection.try_read(true) {
            assert!((400..600).contains(&answer.status), "{}", answer.status);
        }
    }
    house.assert_as_before();
}

#[test]
fn whoever_vanishes_does_so_without_a_trace_whatever_the_moment() {
    let house = House::with(|builder| builder.limit("queue = 2"));
    let request = house.turn().bytes();
    let head = house.turn().head_bytes().len();
    for reset in [false, true] {
        for part in [1, head / 2, head, head + 5, request.len() - 1] {
            let mut connection = house.weir.connect();
            connection.send(&request[..part]).unwrap();
            leave(connection, reset);
        }
        let before = house.upstream.chat_count();
        // While it runs.
        house.upstream.next(Script::hang_mid_body());
        let running = house.turn().open();
        house.upstream.wait_for_chats(before + 1);
        // While it waits.
        let waiting = house.turn().open();
        house.wait_for("a turn waits", || house.gauge("weir_turns_queued") == 1);
        leave(waiting, reset);
        house.wait_for("no turn waits", || house.gauge("weir_turns_queued") == 0);
        leave(running, reset);
        house.upstream.wait_closed(before);
        house.wait_for("no turn runs", || house.gauge("weir_turns_running") == 0);
        assert_eq!(house.upstream.chat_count(), before + 1, "the turn of somebody who had left was sent");
        // While the answer is written.
        house.upstream.next(Script::text(&secret(&"long ".repeat(2_000_000))));
        let connection = house.turn().open();
        assert!(connection.answers_within(CEILING));
        leave(connection, reset);
        house.assert_as_before();
    }
}

#[test]
fn a_hang_up_is_noticed_behind_bytes_of_a_later_request() {
    let house = House::with(|builder| builder.limit("queue = 2"));
    let flood = vec![b'x'; 8 * 1024 * 1024];
    for (behind, resets) in [
        (b"x".to_vec(), &[false, true][..]),
        (house.turn().bytes(), &[false, true]),
        (vec![b'x'; 64 * 1024], &[false, true]),
        // Behind more than the sockets hold, an end in order is not even sent.
        (flood, &[true]),
    ] {
        for waits in [false, true] {
            for &reset in resets {
                let before = house.upstream.chat_count();
                let first = waits.then(|| {
                    house.upstream.next(Script::hang_before_head());
                    let first = house.turn().open();
                    house.upstream.wait_for_chats(before + 1);
                    first
                });
                house.upstream.next(Script::hang_before_head());
                let mut connection = house.turn().open();
                if waits {
                    house.wait_for("a turn waits", || house.gauge("weir_turns_queued") == 1);
                } else {
                    house.upstream.wait_for_chats(before + 1);
                }
                connection.send_what_is_taken(&behind);
                let left = Instant::now();
                leave(connection, reset);
                let gauge = if waits { "weir_turns_queued" } else { "weir_turns_running" };
                house.wait_for("the turn ends", || house.gauge(gauge) == 0);
                assert!(left.elapsed() < Duration::from_secs(3), "{:?}", left.elapsed());
                drop(first);
                house.upstream.wait_closed(before);
                if waits {
                    // Its script was for the turn that never came.
                    assert_eq!(house.upstream.chat_count(), before + 1);
                    let connection = house.turn().open();
                    house.upstream.wait_for_chats(before + 2);
                    drop(connection);
                    house.upstream.wait_closed(before + 1);
                }
            }
        }
    }
    house.assert_as_before();
}

#[test]
fn an_answer_that_nobody_reads_is_given_up() {
    let house = House::with(|builder| builder.timeout("keep_alive = \"1s\""));
    house.upstream.next(Script::text(&secret(&"long ".repeat(2_900_000))));
    let unread = house.turn().open();
    assert!(unread.answers_within(CEILING));
    house.wait_for("the permit to be back", || house.gauge("weir_turns_running") == 0);
    house.assert_as_before();
    drop(unread);
}

/// Connects until that takes too long or `most` are open.
fn connect_many(address: SocketAddr, most: usize) -> Vec<TcpStream> {
    // Long enough for one that the kernel's line had no room for at first: it tries again after a second.
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(2_500)).ok();
    std::iter::from_fn(connect).take(most).collect()
}

/// Cuts them all, so that none lingers in the kernel.
fn reset_all(connections: Vec<TcpStream>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let _entered = runtime.enter();
    for stream in connections {
        stream.set_nonblocking(true).unwrap();
        tokio::net::TcpStream::from_std(stream).unwrap().set_zero_linger().unwrap();
    }
}

#[test]
fn idle_connections_make_room_for_whoever_has_something_to_say() {
    let house = House::with(|builder| builder.limit("connections = 64"));
    let open = connect_many(house.weir.address(), 120);
    assert_eq!(open.len(), 120);
    house.wait_for("places to be taken", || house.open_files() >= house.files + 64);
    assert!(house.open_files() <= house.files + 64 + 2, "more than limits.connections were accepted");
    // They would stay for three minutes.
    let start = Instant::now();
    house.weir.ok("me, too").assert_reply(REPLY);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    reset_all(open);
    house.assert_as_before();
}

#[test]
fn connections_at_work_keep_their_places_and_one_more_waits() {
    let house = House::with(|builder| builder.limit("connections = 3"));
    let gate = Gate::new();
    house.upstream.next(Script::text(REPLY).after(&gate));
    let mut turn = house.turn().open();
    house.upstream.wait_for_chats(2);
    let mut body = house.weir.connect();
    body.send(&house.turn().header("Content-Length", "1000").head_bytes()).unwrap();
    let mut head = house.weir.connect();
    head.send(b"GET /v1/models HTTP/1.1\r\n").unwrap();
    let mut waiting = house.weir.request("GET", "/v1/models").open();
    assert!(!waiting.answers_within(Duration::from_millis(500)), "there was no place");
    gate.open();
    turn.read().assert_reply(REPLY);
    assert_eq!(waiting.read().status, 200);
    assert!(turn.ends(), "the idle connection had to go");
    drop((body, head, waiting));
    house.assert_as_before();
}

#[test]
fn uploads_that_have_stalled_are_given_up_long_before_the_clock_of_a_body() {
    let house = House::with(|builder| builder.timeout("body = \"10m\""));
    let start = Instant::now();
    let mut stalled: Vec<Connection> = (0..100).map(|_| house.weir.connect()).collect();
    for connection in &mut stalled {
        connection.send(&house.turn().header("Content-Length", "4000000").head_bytes()).unwrap();
        connection.send(&[b' '; 50_000]).unwrap();
    }
    house.weir.ok("meanwhile").assert_reply(REPLY);
    for connection in &mut stalled {
        connection.read().assert_error(408, None);
        connection.half_close();
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    house.assert_as_before();
}

#[cfg(target_os = "linux")]
#[test]
fn as_many_connections_as_the_machine_allows_shut_nobody_out() {
    let house = House::with(|builder| builder.limit("connections = 65535"));
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let files =
        limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok());
    // What the tests themselves need stays free; the run stays bounded.
    let most = files.unwrap_or(1024usize).saturating_sub(400).min(20_000);
    let start = Instant::now();
    let mut open = Vec::with_capacity(most);
    while open.len() < most {
        // Fewer at a time than the kernel's line has room for: beyond that a connection waits for a whole second.
        open.extend(connect_many(house.weir.address(), 100.min(most - open.len())));
        house.wait_for("all to be accepted", || house.open_files() >= house.files + open.len());
    }
    println!("{} connections were open at once, after {} ms", open.len(), start.elapsed().as_millis());
    house.weir.ok("me, too").assert_reply(REPLY);
    let memory = house.weir.memory("VmRSS:").unwrap();
    println!("{memory} KiB resident");
    reset_all(open);
    house.assert_as_before();
}
