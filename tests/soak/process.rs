//! The running Weir: its log, read line by line and counted; its memory, its files, its metrics.
use super::common::{Builder, CANARY, CEILING, TOKEN, canary_forms, weir_command};
use super::phone::{Connection, get};
use memchr::memmem::Finder;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How a turn ended, as its line and the metrics tell it: outcome, status (none for who hung up), code (or nothing).
pub type Ending = (&'static str, Option<u64>, String);

/// What stood in the log.
#[derive(Debug, Default)]
pub struct Counted {
    /// Lines of turns by how those ended.
    pub turns: BTreeMap<(String, Option<u64>, String), u64>,
    /// All other lines by their message.
    pub others: BTreeMap<String, u64>,
    /// Lines that show something secret.
    pub secrets: u64,
    /// Turns with more than one line.
    pub doubled: u64,
    /// The highest number of a turn.
    pub highest: u64,
    seen: Vec<u64>,
    last: VecDeque<String>,
}

impl Counted {
    /// How many turns have a line.
    pub fn lines(&self) -> u64 {
        self.turns.values().sum()
    }

    fn take(&mut self, line: &str) {
        self.last.push_back(line.to_owned());
        if self.last.len() > 20 {
            self.last.pop_front();
        }
        let Ok(line) = serde_json::from_str::<Value>(line) else {
            *self.others.entry("no JSON".to_owned()).or_default() += 1;
            return;
        };
        let word = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let Some(turn) = line["turn"].as_u64() else {
            // Numbers in a message would make each its own.
            let message = word("message").split(':').next().unwrap_or_default().to_owned();
            *self.others.entry(message).or_default() += 1;
            return;
        };
        *self.turns.entry((word("outcome"), line["status"].as_u64(), word("code"))).or_default() += 1;
        self.highest = self.highest.max(turn);
        let (place, bit) = ((turn / 64) as usize, 1 << (turn % 64));
        if self.seen.len() <= place {
            self.seen.resize(place + 1, 0);
        }
        self.doubled += u64::from(self.seen[place] & bit != 0);
        self.seen[place] |= bit;
    }
}

/// The process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    readers: Vec<JoinHandle<()>>,
    log: Arc<Mutex<Counted>>,
    address: SocketAddr,
    metrics: SocketAddr,
    _directory: TempDir,
}

impl Process {
    /// Starts Weir and waits until it listens.
    pub fn start(builder: &Builder) -> Self {
        let (directory, mut child) = builder.launch(|file| {
            let mut command = weir_command();
            command.arg("--config").arg(file).env("ADAPTER_LOG__FORMAT", "json");
            command
        });
        let log = Arc::new(Mutex::new(Counted::default()));
        let (said, hears) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        let errors = BufReader::new(child.stderr.take().unwrap());
        let readers = vec![read(output, &log, said.clone(), false), read(errors, &log, said, true)];
        let (mut metrics, mut address) = (None, None);
        while metrics.is_none() || address.is_none() {
            let line = hears.recv_timeout(CEILING).expect("it does not serve");
            metrics = metrics.or(address_behind("metrics on http://", &line));
            address = address.or(address_behind("listening on http://", &line));
        }
        let (metrics, address) = (metrics.unwrap(), address.unwrap());
        Self { child, readers, log, address, metrics, _directory: directory }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Looks at what stood in the log so far.
    pub fn counted<T>(&self, look: impl FnOnce(&Counted) -> T) -> T {
        look(&self.log.lock().unwrap())
    }

    /// The resident memory in KiB; 0 where the system does not tell.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }

    /// The number of open files; 0 where the system does not tell.
    pub fn files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).map_or(0, Iterator::count)
    }

    /// All metrics that are whole numbers.
    pub async fn metrics(&self) -> BTreeMap<String, u64> {
        let mut connection = Connection::to(self.metrics).await.unwrap();
        let answer = connection.ask(&get(self.metrics, "/metrics").token(TOKEN.as_bytes()).bytes()).await.unwrap();
        assert_eq!(answer.status, 200);
        let text = String::from_utf8(answer.body).unwrap();
        assert!(!text.contains(CANARY));
        let whole_number = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        text.lines().filter_map(whole_number).collect()
    }

    /// Sends SIGTERM and waits for the end; what then stood in the log.
    pub fn stop(mut self) -> (ExitStatus, Counted) {
        let sent = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success());
        let until = Instant::now() + CEILING;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it did not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        let counted = std::mem::take(&mut *self.log.lock().unwrap());
        (status, counted)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the last that Weir said ---");
            for line in &self.log.lock().unwrap().last {
                eprintln!("{line}");
            }
        }
    }
}

fn address_behind(words: &str, line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(words)?;
    let end = rest.find(|character: char| character != '.' && character != ':' && !character.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().ok()
}

/// Reads a stream of the process to its end, on a thread of its own.
fn read(
    stream: BufReader<impl Read + Send + 'static>,
    log: &Arc<Mutex<Counted>>,
    said: Sender<String>,
    is_log: bool,
) -> JoinHandle<()> {
    let log = Arc::clone(log);
    std::thread::spawn(move || {
        let forms = canary_forms();
        let secrets: Vec<Finder<'_>> = forms.iter().map(Finder::new).collect();
        for line in stream.split(b'\n') {
            let line = String::from_utf8_lossy(&line.unwrap()).into_owned();
            let mut counted = log.lock().unwrap();
            counted.secrets += u64::from(secrets.iter().any(|secret| secret.find(line.as_bytes()).is_some()));
            if is_log {
                counted.take(&line);
            }
            drop(counted);
            // Only the start waits for what is said.
            let _ = said.send(line);
        }
    })
}
