//! A model server on a real socket that records what it gets and does what the test says.
use super::port::{ReservedPort, runtime};
use super::recorded::{Recorded, read_request};
use super::script::{Script, Step};
use super::{CEILING, REPLY};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

#[derive(Debug)]
struct State {
    requests: Vec<Recorded>,
    models: Script,
    props: Script,
    routes: Vec<(String, Script)>,
    queue: VecDeque<Script>,
    chat: Script,
    streams: Vec<TcpStream>,
    close_discovery: bool,
    stopped: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The scripted model server.
#[derive(Debug)]
pub struct ScriptedUpstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    held: Mutex<Option<ReservedPort>>,
}

/// The answer to `GET /v1/models` that lists these ids.
pub fn models_answer(ids: &[&str], owner: &str) -> Value {
    let data: Vec<Value> = ids
        .iter()
        .map(|id| json!({"id": id, "object": "model", "created": 1_790_000_000, "owned_by": owner}))
        .collect();
    json!({"object": "list", "data": data})
}

impl ScriptedUpstream {
    /// Listens on any free port of the loopback address; has the model `m`.
    pub fn start() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    /// Listens on this socket.
    pub fn on(listener: TcpListener) -> Self {
        Self::prepared(listener, |_| {})
    }

    /// The same, but answers nothing before it is prepared.
    pub fn prepared(listener: TcpListener, prepare: impl FnOnce(&Self)) -> Self {
        let address = listener.local_addr().unwrap();
        let state = State {
            requests: Vec::new(),
            models: Script::json(200, &models_answer(&["m"], "somebody")),
            props: Script::json(404, &json!({"error": {"message": "not found"}})),
            routes: Vec::new(),
            queue: VecDeque::new(),
            chat: Script::text(REPLY),
            streams: Vec::new(),
            close_discovery: false,
            stopped: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        let upstream = Self { address, shared, held: Mutex::new(None) };
        prepare(&upstream);
        std::thread::spawn(move || accept(&listener, &accepting));
        upstream
    }

    /// As a llama.cpp server: says so, and says whether its model sees pictures.
    pub fn llamacpp(vision: bool) -> Self {
        let upstream = Self::start();
        upstream.set_models(Script::json(200, &models_answer(&["m"], "llamacpp")));
        upstream.set_props(Script::json(
            200,
            &json!({"modalities": {"vision": vision, "audio": false}, "total_slots": 4, "model_path": "m.gguf",
                    "default_generation_settings": {"n_ctx": 131_072}}),
        ));
        upstream
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The models it has, from now on.
    pub fn models(&self, ids: &[&str]) {
        self.set_models(Script::json(200, &models_answer(ids, "somebody")));
    }

    /// What it does with `GET /v1/models`, from now on.
    pub fn set_models(&self, script: Script) {
        self.shared.state.lock().unwrap().models = script;
    }

    /// What it does with `GET /props`, from now on.
    pub fn set_props(&self, script: Script) {
        self.shared.state.lock().unwrap().props = script;
    }

    /// What it does with requests for exactly this path, from now on; turns in its native language included.
    pub fn set_route(&self, path: &str, script: Script) {
        let mut state = self.shared.state.lock().unwrap();
        state.routes.retain(|(known, _)| known != path);
        state.routes.push((path.to_owned(), script));
    }

    /// Ends each connection after an answer that is not to a turn, so that a turn begins on a fresh one.
    pub fn close_after_discovery(&self) {
        self.shared.state.lock().unwrap().close_discovery = true;
    }

    /// What it does with the next turn that has no script yet. Called again: the one after that.
    pub fn next(&self, script: Script) {
        self.shared.state.lock().unwrap().queue.push_back(script);
    }

    /// What it does with every turn beyond those.
    pub fn always(&self, script: Script) {
        self.shared.state.lock().unwrap().chat = script;
    }

    /// Everything that arrived.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.state.lock().unwrap().requests.clone()
    }

    /// The turns that arrived.
    pub fn chats(&self) -> Vec<Recorded> {
        self.requests().into_iter().filter(Recorded::is_chat).collect()
    }

    /// How many turns arrived.
    pub fn chat_count(&self) -> usize {
        let state = self.shared.state.lock().unwrap();
        state.requests.iter().filter(|request| request.is_chat()).count()
    }

    /// The last turn that arrived.
    pub fn last_chat(&self) -> Recorded {
        self.chats().pop().expect("no turn reached the model server")
    }

    /// Nothing but discovery arrived.
    pub fn assert_no_chat(&self) {
        assert_eq!(self.chat_count(), 0, "a turn reached the model server");
    }

    /// Waits until this many turns have arrived.
    pub fn wait_for_chats(&self, count: usize) -> Vec<Recorded> {
        self.wait(CEILING, |state| state.requests.iter().filter(|request| request.is_chat()).count() >= count);
        self.chats()
    }

    /// Waits until this target was asked for that often.
    pub fn wait_for_request(&self, target: &str, count: usize) {
        self.wait(CEILING, |state| state.requests.iter().filter(|request| request.target == target).count() >= count);
    }

    /// Waits until the other side has closed the connection of turn `index`; when it did.
    pub fn wait_closed(&self, index: usize) -> Instant {
        let closed = |state: &State| {
            state.requests.iter().filter(|request| request.is_chat()).nth(index).and_then(|chat| chat.closed)
        };
        self.wait(CEILING, |state| closed(state).is_some());
        closed(&self.shared.state.lock().unwrap()).unwrap()
    }

    fn wait(&self, patience: Duration, condition: impl Fn(&State) -> bool) {
        let state = self.shared.state.lock().unwrap();
        let (_state, timeout) =
            self.shared.changed.wait_timeout_while(state, patience, |state| !condition(state)).unwrap();
        assert!(!timeout.timed_out(), "the model server waited in vain");
    }

    /// Goes away: open connections are cut and new ones are refused.
    pub fn stop(&self) {
        {
            let mut state = self.shared.state.lock().unwrap();
            if state.stopped {
                return;
            }
            state.stopped = true;
            for stream in state.streams.drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        self.shared.changed.notify_all();
        // Wakes the accepting thread, which then drops the listener; once that is done, connecting fails.
        let until = Instant::now() + CEILING;
        while TcpStream::connect(self.address).is_ok() {
            assert!(Instant::now() < until, "the listener did not close");
            std::thread::yield_now();
        }
        *self.held.lock().unwrap() = ReservedPort::bind(self.address).ok();
    }
}

impl Drop for ScriptedUpstream {
    fn drop(&mut self) {
        self.stop();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for (connection, stream) in listener.incoming().enumerate() {
        let Ok(stream) = stream else { return };
        {
            let mut state = shared.state.lock().unwrap();
            if state.stopped {
                return;
            }
            state.streams.push(stream.try_clone().unwrap());
        }
        let shared = Arc::clone(shared);
        std::thread::spawn(move || serve(connection, stream, &shared));
    }
}

fn serve(connection: usize, mut stream: TcpStream, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::new();
    while let Some(request) = read_request(connection, &mut stream, &mut buffer) {
        let (index, script, closes) = {
            let mut state = shared.state.lock().unwrap();
            let path = request.target.split('?').next().unwrap_or_default();
            let route = state.routes.iter().find(|(known, _)| known == path).map(|(_, script)| script.clone());
            let script = if let Some(script) = route {
                script
            } else if request.is_chat() {
                state.queue.pop_front().unwrap_or_else(|| state.chat.clone())
            } else if request.target.starts_with("/v1/models") {
                state.models.clone()
            } else if request.target.starts_with("/props") {
                state.props.clone()
            } else {
                Script::json(404, &json!({"error": {"message": "File Not Found"}}))
            };
            state.requests.push(request.clone());
            let closes = state.close_discovery && !request.is_chat();
            (state.requests.len() - 1, script, closes)
        };
        shared.changed.notify_all();
        let mut steps = script.for_request(&request);
        if closes {
            announce_close(&mut steps);
        }
        let open = steps.into_iter().all(|step| perform(step, &mut stream, shared));
        if !open {
            note_closed(shared, index);
            return;
        }
        // The next read tells when the connection of an answered request ends.
        if buffer.is_empty() && !wait_readable(&stream) {
            note_closed(shared, index);
            return;
        }
    }
}

fn note_closed(shared: &Shared, index: usize) {
    shared.state.lock().unwrap().requests[index].closed = Some(Instant::now());
    shared.changed.notify_all();
}

/// Makes an answer say that its connection ends behind it, and end it.
pub fn announce_close(steps: &mut Vec<Step>) {
    if let Some(Step::Send(bytes)) = steps.first_mut() {
        let end = bytes.windows(2).position(|two| two == b"\r\n").map_or(0, |end| end + 2);
        bytes.splice(end..end, *b"Connection: close\r\n");
    }
    steps.push(Step::Close);
}

/// Does one step; `false` when the connection is over.
fn perform(step: Step, stream: &mut TcpStream, shared: &Shared) -> bool {
    match step {
        Step::Send(bytes) => stream.write_all(&bytes).is_ok(),
        Step::Wait(pause) => {
            let until = Instant::now() + pause;
            while Instant::now() < until {
                if hung_up(stream) || stopped(shared) {
                    return false;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            true
        }
        Step::WaitFor(gate) => {
            while !gate.wait(Duration::from_millis(10)) {
                if hung_up(stream) || stopped(shared) {
                    return false;
                }
            }
            true
        }
        Step::Dribble(bytes, pause) => loop {
            if stream.write_all(&bytes).is_err() || hung_up(stream) || stopped(shared) {
                return false;
            }
            std::thread::sleep(pause);
        },
        Step::Hang => {
            let mut byte = [0];
            while matches!(super::read_some(stream, &mut byte), Ok(1..)) {}
            false
        }
        Step::Close => {
            let _ = stream.shutdown(Shutdown::Both);
            false
        }
        Step::Reset => {
            let runtime = runtime();
            let _entered = runtime.enter();
            let clone = stream.try_clone().unwrap();
            clone.set_nonblocking(true).unwrap();
            tokio::net::TcpStream::from_std(clone).unwrap().set_zero_linger().unwrap();
            // The clones that can close everything at the end would keep the socket open.
            let own = stream.peer_addr().ok();
            shared.state.lock().unwrap().streams.retain(|known| known.peer_addr().ok() != own);
            false
        }
    }
}

fn stopped(shared: &Shared) -> bool {
    shared.state.lock().unwrap().stopped
}

fn hung_up(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    match peeked {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

fn wait_readable(stream: &TcpStream) -> bool {
    matches!(stream.peek(&mut [0]), Ok(read) if read > 0)
}
