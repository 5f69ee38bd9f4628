//! What a service manager (systemd) is told over its socket: when Weir serves, reads its configuration again, stops, and
//! that it lives.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use common::*;
use std::os::unix::net::UnixDatagram;
use tempfile::TempDir;

/// The manager's side of the protocol: a datagram socket in a folder of its own.
struct Manager {
    socket: UnixDatagram,
    folder: TempDir,
}

impl Manager {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(CEILING)).unwrap();
        Self { socket, folder }
    }

    fn before(&self, upstream: &ScriptedUpstream) -> Builder {
        let path = self.folder.path().join("notify");
        Weir::before(upstream).environment("NOTIFY_SOCKET", path.to_str().unwrap())
    }

    /// The lines of the next message.
    fn told(&self) -> Vec<String> {
        let mut message = [0; 4096];
        let length = self.socket.recv(&mut message).expect("the manager was told nothing");
        std::str::from_utf8(&message[..length]).unwrap().lines().map(str::to_owned).collect()
    }

    /// The next message of which `line` is a part; what is said before is passed over.
    fn wait_for(&self, line: &str) -> Vec<String> {
        loop {
            let told = self.told();
            if told.iter().any(|said| said == line) {
                return told;
            }
        }
    }

    fn assert_no_more(&self) {
        self.socket.set_nonblocking(true).unwrap();
        let mut message = [0; 4096];
        assert_eq!(self.socket.recv(&mut message).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}

#[test]
fn it_is_ready_when_the_port_is_open_and_says_where() {
    let upstream = ScriptedUpstream::start();
    let manager = Manager::new();
    let weir = manager.before(&upstream).start_cold();
    assert_eq!(manager.told(), ["READY=1".to_owned(), format!("STATUS=listening on http://{}", weir.address())]);
    weir.ok("hello").assert_reply(REPLY);
}

#[test]
fn a_start_that_fails_is_never_called_ready() {
    let upstream = ScriptedUpstream::start();
    let manager = Manager::new();
    let occupant = ScriptedUpstream::start();
    let taken = occupant.address().port();
    let refusal = manager.before(&upstream).top(&format!("port = {taken}")).refused();
    assert_eq!(refusal.code, 1, "{}", refusal.output);
    manager.assert_no_more();
}

#[test]
fn a_reload_is_begun_and_ended_whatever_became_of_it() {
    let upstream = ScriptedUpstream::start();
    let manager = Manager::new();
    let weir = manager.before(&upstream).start_cold();
    manager.wait_for("READY=1");
    let reload = || {
        weir.signal("HUP");
        let begun = manager.told();
        assert_eq!(begun[0], "RELOADING=1");
        let time = begun[1].strip_prefix("MONOTONIC_USEC=").expect("systemd wants to know when");
        assert!(time.parse::<u64>().unwrap() > 0);
        manager.told()
    };
    assert_eq!(reload(), ["READY=1", "STATUS=the configuration was read again"]);
    std::fs::write(weir.folder().join("adapter.toml"), "nonsense").unwrap();
    let kept = "STATUS=the configuration is faulty and was not changed; the log says why";
    assert_eq!(reload(), ["READY=1", kept]);
}

#[test]
fn the_watchdog_is_fed_until_the_last_turn_has_ended() {
    let upstream = ScriptedUpstream::start();
    let gate = Gate::new();
    upstream.next(Script::text(REPLY).after(&gate));
    let manager = Manager::new();
    let mut weir = manager.before(&upstream).environment("WATCHDOG_USEC", "100000").start();
    for _ in 0..3 {
        assert_eq!(manager.wait_for("WATCHDOG=1"), ["WATCHDOG=1"]);
    }
    let mut running = weir.chat_request(say(secret("hello")).to_string()).open();
    upstream.wait_for_chats(1);
    weir.terminate();
    manager.wait_for("STOPPING=1");
    for _ in 0..3 {
        assert_eq!(manager.told(), ["WATCHDOG=1"]);
    }
    gate.open();
    running.read().assert_reply(REPLY);
    assert!(weir.wait_end().success());
}

#[test]
fn without_a_watchdog_nothing_is_said_between_the_start_and_the_end() {
    for watchdog in [None, Some("0"), Some("soon")] {
        let upstream = ScriptedUpstream::start();
        let manager = Manager::new();
        let mut builder = manager.before(&upstream);
        if let Some(watchdog) = watchdog {
            builder = builder.environment("WATCHDOG_USEC", watchdog);
        }
        let mut weir = builder.start();
        weir.ok("hello").assert_reply(REPLY);
        weir.terminate();
        assert!(weir.wait_end().success());
        assert_eq!(manager.told()[0], "READY=1");
        assert_eq!(manager.told()[0], "STOPPING=1");
        manager.assert_no_more();
        assert!(!weir.output().contains("Weir itself failed"), "{}", weir.output());
    }
}

#[test]
fn a_manager_that_is_not_there_is_logged_and_keeps_nobody_from_an_answer() {
    let upstream = ScriptedUpstream::start();
    let nowhere = TempDir::new().unwrap().path().join("notify");
    let weir = Weir::before(&upstream).environment("NOTIFY_SOCKET", nowhere.to_str().unwrap()).start();
    weir.wait_for_log("NOTIFY_SOCKET");
    weir.ok("hello").assert_reply(REPLY);
}
