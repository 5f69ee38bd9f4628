//! A real llama-server with one of the tiny models, for as long as a test needs it.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Builder, CEILING, Connection, Request, Response, Weir};

/// Loading two gigabytes on a machine that does something else as well takes a while. Only a guard.
const LOADING_CEILING: Duration = Duration::from_secs(180);

/// Turns that a real model answered through Weir in this process.
static TURNS: AtomicUsize = AtomicUsize::new(0);

/// What to start; the model's file name without its ending is also the name under which it is served.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Without one of its own it is a router of the models of a folder.
    model: &'static str,
    router: bool,
    context: u32,
    slots: u32,
    key: Option<&'static str>,
    arguments: Vec<String>,
}

impl Launch {
    fn new(model: &'static str, context: u32) -> Self {
        Launch { model, router: false, context, slots: 1, key: None, arguments: Vec::new() }
    }

    /// `tiny-chat`, text only: one slot of 8192 tokens.
    pub fn chat() -> Self {
        Self::new("tiny-chat", 8192)
    }

    /// `tiny-chat` with its vision projector: it names the colour of a picture.
    pub fn vision() -> Self {
        let projector = from_environment("WEIR_LLAMA_MODELS") + "/tiny-mmproj.gguf";
        Self::chat().argument("--mmproj").argument(&projector)
    }

    /// `tiny-slow`: 40 to 90 tokens a second.
    pub fn slow() -> Self {
        Self::new("tiny-slow", 16_384)
    }

    /// `tiny-big`, read into memory rather than mapped: it says for seconds that it is loading.
    pub fn big() -> Self {
        Self::new("tiny-big", 2048).argument("--load-mode").argument("none")
    }

    /// A router of the models in a folder, of which it keeps one loaded at a time.
    pub fn router(folder: &Path) -> Self {
        let folder = folder.to_str().unwrap();
        let router = Launch { router: true, ..Self::new("", 4096) };
        router.argument("--models-dir").argument(folder).argument("--models-max").argument("1")
    }

    /// The tokens of all slots together.
    pub fn context(mut self, tokens: u32) -> Self {
        self.context = tokens;
        self
    }

    /// How many turns it runs at once.
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }

    /// The key that it wants from then on.
    pub fn key(mut self, key: &'static str) -> Self {
        self.key = Some(key);
        self.argument("--api-key").argument(key)
    }

    /// One more word of the command line.
    pub fn argument(mut self, word: &str) -> Self {
        self.arguments.push(word.to_owned());
        self
    }

    /// Starts it on a free port and waits until it answers turns.
    pub fn start(self) -> LlamaServer {
        let server = self.start_loading();
        server.wait_until_loaded();
        server
    }

    /// Starts it on a free port and waits only until it says that it is loading, or is done already.
    pub fn start_loading(self) -> LlamaServer {
        // Somebody else may take the port between the look and the start.
        let started = (0..10).find_map(|_| self.clone().try_at(free_port()));
        started.expect("llama-server does not start")
    }

    /// The same at an address that Weir knows already.
    pub fn start_loading_at(self, address: SocketAddr) -> LlamaServer {
        eventually("the port to be free", || self.clone().try_at(address))
    }

    fn try_at(self, address: SocketAddr) -> Option<LlamaServer> {
        let directory = TempDir::new().unwrap();
        let log = File::create(directory.path().join("log")).unwrap();
        let mut command = Command::new(from_environment("WEIR_LLAMA_SERVER"));
        command.args(["--host", "127.0.0.1", "--port", &address.port().to_string()]);
        if !self.router {
            command.args(["-m", &model_file(self.model), "--alias", self.model]);
            command.args(["-c", &self.context.to_string(), "-np", &self.slots.to_string()]);
        }
        let child = command
            .args(["-t", "1", "--slots", "--offline", "--no-webui"])
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("WEIR_LLAMA_SERVER is no program that can be started");
        let mut server = LlamaServer { launch: self, address, child, directory };
        let ended = eventually("llama-server to listen or to give up", || {
            let ended = server.child.try_wait().unwrap().is_some();
            (ended || server.health().is_some()).then_some(ended)
        });
        if ended {
            server.show_log();
        }
        (!ended).then_some(server)
    }
}

/// The file of one of the tiny models.
pub fn model_file(model: &str) -> String {
    format!("{}/{model}.gguf", from_environment("WEIR_LLAMA_MODELS"))
}

/// What a variable says without which these tests can do nothing.
fn from_environment(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run tests/real/install_llama_server.sh, which prints the values of WEIR_LLAMA_SERVER and WEIR_LLAMA_MODELS")
    })
}

/// A port that nothing listens on, below those that systems hand out by themselves, so that no connection and no other test
/// takes it meanwhile.
pub fn free_port() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Two runs of the tests at the same time begin at different places.
    let begin = u16::try_from(std::process::id() % 9000).unwrap();
    loop {
        let port = 20_000 + (begin + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// Waits until `found` finds something.
pub fn eventually<T>(what: &str, found: impl FnMut() -> Option<T>) -> T {
    eventually_within(LOADING_CEILING, what, found)
}

fn eventually_within<T>(ceiling: Duration, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + ceiling;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A configuration with one llama-server, which need not be there yet.
pub fn in_front_of(address: SocketAddr) -> Builder {
    Builder::new().upstream("local", &format!("http://{address}")).kind("llamacpp")
}

/// A running llama-server; killed when dropped.
#[derive(Debug)]
pub struct LlamaServer {
    launch: Launch,
    address: SocketAddr,
    child: Child,
    directory: TempDir,
}

impl LlamaServer {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The name of its model.
    pub fn model(&self) -> &'static str {
        self.launch.model
    }

    /// A configuration with this server as the only one.
    pub fn behind_weir(&self) -> Builder {
        in_front_of(self.address)
    }

    /// Status and body of `/health`, if it listens.
    pub fn health(&self) -> Option<(u16, String)> {
        TcpStream::connect(self.address).ok()?;
        let mut connection = Connection::to(self.address);
        connection.send(&Request::new(self.address, "GET", "/health").bytes()).ok()?;
        let answer = connection.try_read(true).ok()?;
        Some((answer.status, String::from_utf8_lossy(&answer.body).into_owned()))
    }

    /// Waits until it answers turns.
    pub fn wait_until_loaded(&self) {
        eventually("llama-server to have loaded", || self.health().filter(|(status, _)| *status == 200));
    }

    /// How many of its slots work on a turn.
    pub fn busy_slots(&self) -> usize {
        let answer = self.request("GET", "/slots").send();
        assert_eq!(answer.status, 200);
        let slots = answer.json();
        slots.as_array().unwrap().iter().filter(|slot| slot["is_processing"] == true).count()
    }

    /// With what temperature its only slot sampled last.
    pub fn temperature_of_the_last_turn(&self) -> f64 {
        let answer = self.request("GET", "/slots").send();
        assert_eq!(answer.status, 200);
        answer.json()[0]["params"]["temperature"].as_f64().unwrap()
    }

    /// What a router says of one of its models: `unloaded`, `loading`, `loaded`.
    pub fn state_of(&self, model: &str) -> String {
        let answer = self.request("GET", "/v1/models").send();
        assert_eq!(answer.status, 200);
        let models = answer.json()["data"].as_array().unwrap().clone();
        let entry = models.iter().find(|entry| entry["id"] == model).unwrap();
        entry["status"]["value"].as_str().unwrap().to_owned()
    }

    /// Waits until exactly that many of its slots work.
    pub fn wait_for_busy_slots(&self, count: usize) {
        let what = format!("{count} busy slots");
        eventually_within(CEILING, &what, || (self.busy_slots() == count).then_some(()));
    }

    /// The tokens of the prompt that it makes of these messages, asked without Weir between.
    pub fn prompt_tokens(&self, messages: &Value) -> u64 {
        let body = serde_json::json!({"messages": messages, "max_tokens": 1});
        let answer = self.request("POST", "/v1/chat/completions").body(body.to_string()).send();
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        answer.json()["usage"]["prompt_tokens"].as_u64().unwrap()
    }

    fn request(&self, method: &str, path: &str) -> Request {
        let request = Request::new(self.address, method, path);
        match self.launch.key {
            Some(key) => request.token(key.as_bytes()),
            None => request,
        }
    }

    fn show_log(&self) {
        let log = std::fs::read(self.directory.path().join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let lines: Vec<&str> = log.lines().collect();
        eprintln!("--- the last that llama-server said ---");
        for line in &lines[lines.len().saturating_sub(20)..] {
            eprintln!("{line}");
        }
    }

    /// Ends it as a crash does (SIGKILL), and gives back what to start again, and where.
    pub fn crash(mut self) -> (Launch, SocketAddr) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        (self.launch.clone(), self.address)
    }
}

impl Drop for LlamaServer {
    fn drop(&mut self) {
        use std::io::Write as _;
        // Past the test runner's capture: a run that drove no real model must not look like one that did.
        let _ = writeln!(std::io::stderr(), "real turns: {}", TURNS.load(Ordering::Relaxed));
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            self.show_log();
        }
    }
}

/// One turn through Weir; counted if the model answers.
pub fn turn(weir: &Weir, body: &Value) -> Response {
    finish(&mut weir.chat_request(body.to_string()).open())
}

/// The answer of a turn that was sent already.
pub fn finish(connection: &mut Connection) -> Response {
    let until = Instant::now() + LOADING_CEILING;
    let response = loop {
        match connection.try_read(true) {
            Ok(response) => break response,
            // The client's own patience is shorter than a model may take to load.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < until => {}
            Err(error) => panic!("no whole answer came: {error}"),
        }
    };
    if response.status == 200 {
        TURNS.fetch_add(1, Ordering::Relaxed);
    }
    response
}
