//! The running binary.
use super::client::{Connection, Request, Response};
use super::json::say;
use super::pictures::canary_forms;
use super::{CEILING, TOKEN, secret};
use serde_json::Value;
use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What a child writes, collected while it runs: its standard output and its standard error, apart.
#[derive(Debug)]
pub struct Output {
    streams: [Stream; 2],
}

#[derive(Debug)]
struct Stream {
    text: Arc<(Mutex<Vec<u8>>, Condvar)>,
    reader: JoinHandle<()>,
}

impl Stream {
    fn collect(mut source: impl Read + Send + 'static) -> Self {
        let text = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let collected = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 16_384];
            while let Ok(read @ 1..) = super::read_some(&mut source, &mut piece) {
                collected.0.lock().unwrap().extend_from_slice(&piece[..read]);
                collected.1.notify_all();
            }
            collected.1.notify_all();
        });
        Self { text, reader }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.text.0.lock().unwrap()).into_owned()
    }

    fn wait_for<T>(&self, found: impl Fn(&str) -> Option<T>) -> Option<T> {
        let until = Instant::now() + CEILING;
        let mut text = self.text.0.lock().unwrap();
        loop {
            if let Some(result) = found(&String::from_utf8_lossy(&text)) {
                return Some(result);
            }
            if Instant::now() > until || self.reader.is_finished() {
                return None;
            }
            text = self.text.1.wait_timeout(text, Duration::from_millis(200)).unwrap().0;
        }
    }
}

impl Output {
    /// Reads both streams of the child on their own threads.
    pub fn collect(child: &mut Child) -> Self {
        let standard_output = Stream::collect(child.stdout.take().unwrap());
        // A test that has something in mind with the log has taken it away.
        let standard_error = child.stderr.take().map_or_else(|| Stream::collect(std::io::empty()), Stream::collect);
        Self { streams: [standard_output, standard_error] }
    }

    /// What was written so far, standard output first.
    pub fn so_far(&self) -> String {
        self.streams.iter().map(Stream::so_far).collect()
    }

    /// Waits until standard output holds something that `found` accepts.
    pub fn wait_for_standard_output<T>(&self, found: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.streams[0].wait_for(found)
    }

    /// Waits until the log on standard error holds something that `found` accepts.
    pub fn wait_for_log<T>(&self, found: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.streams[1].wait_for(found)
    }

    /// Everything, once the child has ended.
    pub fn finish(self) -> String {
        let mut all = String::new();
        for stream in self.streams {
            let _ = stream.reader.join();
            all.push_str(&String::from_utf8_lossy(&stream.text.0.lock().unwrap()));
        }
        all
    }
}

/// Fails where the output shows any form of the canary, or a panic.
pub fn assert_no_canary(output: &str) {
    for form in canary_forms() {
        if let Some(at) = output.find(&form) {
            let line = output[..at].lines().count();
            panic!("a secret reached the output, line {line}");
        }
    }
    assert!(!output.contains("panicked at"), "it panicked");
}

/// A running Weir; ended when dropped, and its output searched then.
#[derive(Debug)]
pub struct Weir {
    child: Child,
    output: Option<Output>,
    address: SocketAddr,
    token: Vec<u8>,
    directory: Option<TempDir>,
}

impl Weir {
    /// Takes over a started child and waits for the line that says where it listens.
    pub fn attach(mut child: Child, directory: Option<TempDir>, token: Vec<u8>) -> Self {
        let output = Output::collect(&mut child);
        let address = output.wait_for_standard_output(|text| {
            let line = text.split_once("listening on http://")?.1;
            line.split_once('\n')?.0.trim().parse().ok()
        });
        let Some(address) = address else {
            let _ = child.kill();
            let _ = child.wait();
            panic!("it does not serve:\n{}", output.finish());
        };
        Self { child, output: Some(output), address, token, directory }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it wrote so far.
    pub fn output(&self) -> String {
        self.output.as_ref().map(Output::so_far).unwrap_or_default()
    }

    /// Waits until its log holds a text.
    pub fn wait_for_log(&self, text: &str) {
        let output = self.output.as_ref().unwrap();
        let found = output.wait_for_log(|log| log.contains(text).then_some(()));
        assert!(found.is_some(), "never logged {text}");
    }

    /// A new connection.
    pub fn connect(&self) -> Connection {
        Connection::to(self.address)
    }

    /// A request with the token.
    pub fn request(&self, method: &str, target: &str) -> Request {
        Request::new(self.address, method, target).token(&self.token)
    }

    /// A request without a token.
    pub fn stranger(&self, method: &str, target: &str) -> Request {
        Request::new(self.address, method, target)
    }

    /// `GET` with the token.
    pub fn get(&self, target: &str) -> Response {
        self.request("GET", target).send()
    }

    /// A turn as JSON.
    pub fn chat(&self, body: &Value) -> Response {
        self.chat_bytes(body.to_string().into_bytes())
    }

    /// A turn as bytes.
    pub fn chat_bytes(&self, body: impl Into<Vec<u8>>) -> Response {
        self.chat_request(body).send()
    }

    /// A turn as bytes, to be changed or sent later.
    pub fn chat_request(&self, body: impl Into<Vec<u8>>) -> Request {
        self.request("POST", "/v1/chat/completions").body(body)
    }

    /// A turn of one short secret text.
    pub fn ok(&self, message: &str) -> Response {
        self.chat(&say(secret(message)))
    }

    /// The ids it advertises.
    pub fn ids(&self) -> Vec<String> {
        let answer = self.get("/v1/models");
        assert_eq!(answer.status, 200);
        let data = answer.json()["data"].as_array().unwrap().clone();
        data.iter().map(|entry| entry["id"].as_str().unwrap().to_owned()).collect()
    }

    /// A line of `/proc/PID/status`, in KiB.
    pub fn memory(&self, key: &str) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        let line = status.lines().find(|line| line.starts_with(key))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status().unwrap();
        assert!(status.success());
    }

    /// The folder with its configuration and its token file.
    pub fn folder(&self) -> &std::path::Path {
        self.directory.as_ref().expect("a Weir with a folder").path()
    }

    /// Waits until the process has ended by itself.
    pub fn wait_end(&mut self) -> ExitStatus {
        let until = Instant::now() + CEILING;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "it did not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The usual token.
    pub fn token(&self) -> &[u8] {
        if self.token.is_empty() { TOKEN.as_bytes() } else { &self.token }
    }
}

/// So long an end may take whose last lines are wanted; a Weir that is busy with a large body does not hear that it is asked.
const LAST_LINES: Duration = Duration::from_millis(500);

impl Drop for Weir {
    fn drop(&mut self) {
        let until = Instant::now() + LAST_LINES;
        let running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        if running(&mut self.child) {
            // Asked a second time it ends at once, but writes the last lines of its log.
            for signal in ["-TERM", "-INT"] {
                let _ = Command::new("kill").arg(signal).arg(self.pid().to_string()).status();
            }
            while running(&mut self.child) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let output = self.output.take().map(Output::finish).unwrap_or_default();
        if std::thread::panicking() {
            let lines: Vec<&str> = output.lines().collect();
            eprintln!("--- the last that Weir said ---");
            for line in &lines[lines.len().saturating_sub(30)..] {
                eprintln!("{line}");
            }
        } else {
            assert_no_canary(&output);
        }
    }
}
