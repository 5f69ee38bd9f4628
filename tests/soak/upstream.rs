//! The model servers: they keep no state, but do with each turn what its mark says, and tell the phone what they saw of it.
use super::fault::{Step, leave_open};
use super::kinds::server_faults;
use super::mark::{GOOD, Mark};
use super::speech::{Dialect, Form, Speech, chunk};
use memchr::memmem;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How the base64 of the pictures begins that a current message carries.
pub const CURRENT_PICTURE: &str = "/9j/4";

/// What a phone says that sends one.
pub const WITH_A_PICTURE: &str = "Look at my picture";

/// Between two writes of a stream without end.
const PAUSE: Duration = Duration::from_millis(5);

/// Between two bytes of a drip.
const DRIP: Duration = Duration::from_millis(15);

/// What the servers saw of one turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// How often it was sent.
    pub asked: usize,
    /// How often everything was done that is ever done without the other side.
    pub begun: usize,
    /// How many of its connections the other side has closed, or the server has cut, or are free for another turn.
    pub closed: usize,
}

/// What all model servers share.
#[derive(Debug, Default)]
pub struct Servers {
    turns: Mutex<HashMap<Mark, watch::Sender<Seen>>>,
    unknown: AtomicU64,
}

/// A turn that a phone is about to send.
#[derive(Debug)]
pub struct Watched {
    servers: Arc<Servers>,
    mark: Mark,
    seen: watch::Receiver<Seen>,
}

impl Servers {
    fn lock(&self) -> MutexGuard<'_, HashMap<Mark, watch::Sender<Seen>>> {
        self.turns.lock().unwrap()
    }

    /// From now on it is noted what comes of this turn.
    pub fn expect(self: &Arc<Self>, mark: Mark) -> Watched {
        let (sender, seen) = watch::channel(Seen::default());
        assert!(self.lock().insert(mark, sender).is_none(), "a mark is used once");
        Watched { servers: Arc::clone(self), mark, seen }
    }

    fn note(&self, mark: Mark, change: impl FnOnce(&mut Seen)) {
        match self.lock().get(&mark) {
            Some(sender) => sender.send_modify(change),
            None => _ = self.unknown.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// How many turns came, or went on, that no phone was waiting for.
    pub fn unknown(&self) -> u64 {
        self.unknown.load(Ordering::Relaxed)
    }

    /// Starts a server with one model; its address.
    pub async fn start(self: &Arc<Self>, dialect: Dialect, model: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let servers = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let servers = Arc::clone(&servers);
                tokio::spawn(async move { servers.serve(stream, dialect, model).await });
            }
        });
        address
    }

    async fn serve(&self, mut stream: TcpStream, dialect: Dialect, model: &str) {
        stream.set_nodelay(true).unwrap();
        while let Some((target, body)) = read_request(&mut stream).await {
            if target != dialect.chat_path() {
                let _ = stream.write_all(&dialect.discovery(&target, model)).await;
                let _ = stream.shutdown().await;
                ends(&mut stream).await;
                return;
            }
            let Some(mark) = Mark::last_in(&body) else {
                self.unknown.fetch_add(1, Ordering::Relaxed);
                return;
            };
            self.note(mark, |seen| seen.asked += 1);
            let (steps, paced) = steps(mark, dialect, &body);
            drop(body);
            let kept = dialect.keeps_connections() && leave_open(&steps);
            let open = self.perform(&mut stream, mark, steps, paced).await;
            if open && !kept {
                ends(&mut stream).await;
            }
            // A kept one is free for another turn, which is as good.
            self.note(mark, |seen| seen.closed += 1);
            if !kept {
                return;
            }
        }
    }

    /// Does the steps, to the last or to the end of the connection; says whether that is open yet.
    async fn perform(&self, stream: &mut TcpStream, mark: Mark, steps: Vec<Step>, paced: bool) -> bool {
        let begun = || self.note(mark, |seen| seen.begun += 1);
        for step in steps {
            match step {
                // The whole request was read to find its mark.
                Step::Read(_) | Step::ReadAll | Step::ReadSlowly => {}
                Step::Send(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        break;
                    }
                }
                Step::Flood(bytes) | Step::Stream(bytes) => {
                    begun();
                    while stream.write_all(&bytes).await.is_ok() {
                        if paced {
                            tokio::time::sleep(PAUSE).await;
                        }
                    }
                    return false;
                }
                Step::Drip(bytes) => {
                    begun();
                    for byte in bytes.iter().cycle() {
                        if stream.write_all(&[*byte]).await.is_err() {
                            return false;
                        }
                        tokio::time::sleep(DRIP).await;
                    }
                }
                Step::Hang => break,
                Step::Close => _ = stream.shutdown().await,
                Step::Reset => {
                    stream.set_zero_linger().unwrap();
                    begun();
                    return false;
                }
            }
        }
        begun();
        true
    }
}

impl Watched {
    /// What was seen so far.
    pub fn so_far(&self) -> Seen {
        *self.seen.borrow()
    }

    /// Waits until the server has done what it does without the other side.
    pub async fn begun(&mut self) {
        self.seen.wait_for(|seen| seen.begun > 0).await.unwrap();
    }

    /// Waits until every connection that carried the turn is closed.
    pub async fn closed(&mut self) {
        self.seen.wait_for(|seen| seen.closed == seen.asked).await.unwrap();
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.servers.lock().remove(&self.mark);
    }
}

/// Reads until the other side ends the connection.
async fn ends(stream: &mut TcpStream) {
    let mut piece = [0; 1024];
    while matches!(stream.read(&mut piece).await, Ok(1..)) {}
}

/// The target and the body of the next request of a connection.
async fn read_request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::with_capacity(4096);
    let end = loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        if let Some(end) = memmem::find(&bytes, b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = std::str::from_utf8(&bytes[..end]).ok()?.to_owned();
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok())
        .unwrap_or(0);
    bytes.reserve((end + length).saturating_sub(bytes.len()));
    while bytes.len() < end + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    bytes.drain(..end);
    Some((head.split(' ').nth(1)?.to_owned(), bytes))
}

/// What is done with a turn, and whether streams without end are paced: those of a fault that ends by itself are not.
fn steps(mark: Mark, dialect: Dialect, body: &[u8]) -> (Vec<Step>, bool) {
    let answer = mark.answer();
    let fault = (mark.kind != GOOD).then(|| &server_faults()[mark.kind]);
    match fault {
        Some(fault) if memmem::find(body, fault.mended_by.as_bytes()).is_none() => {
            let speech = Speech { dialect, form: fault.row.form, text: &answer };
            ((fault.row.fault)(speech).steps, fault.waits)
        }
        _ => (good(mark, dialect, body), false),
    }
}

/// A good answer, cut anywhere on its way.
fn good(mark: Mark, dialect: Dialect, body: &[u8]) -> Vec<Step> {
    let mut random = mark.random();
    let form = if mark.turn.is_multiple_of(5) { Form::Plain } else { Form::Stream };
    let mut text = if mark.kind == GOOD { mark.long_answer() } else { mark.answer() };
    let has_picture = memmem::find(body, CURRENT_PICTURE.as_bytes()).is_some();
    if memmem::find(body, WITH_A_PICTURE.as_bytes()).is_some() && !has_picture {
        text = "The picture is gone.".to_owned();
    }
    let speech = Speech { dialect, form, text: &text };
    if form == Form::Plain {
        return vec![Step::Send(speech.answer(&speech.whole(&text)).into_bytes())];
    }
    let characters: Vec<char> = text.chars().collect();
    let mut events = String::new();
    for piece in characters.chunks(characters.len().div_ceil(1 + random.below(40))) {
        events.push_str(&speech.piece(&piece.iter().collect::<String>()));
    }
    events.push_str(&speech.end("stop"));
    events.push_str(speech.done_mark());
    let mut bytes = speech.chunked_head().into_bytes();
    let middle = 1 + random.below(events.len() - 1);
    for part in [&events.as_bytes()[..middle], &events.as_bytes()[middle..]] {
        bytes.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(chunk("").as_bytes());
    let rest = bytes.split_off(random.below(bytes.len()));
    vec![Step::Send(bytes), Step::Send(rest)]
}
