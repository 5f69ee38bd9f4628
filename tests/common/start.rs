//! How the binary is started: its configuration file, its token file, its environment.
use super::upstream::ScriptedUpstream;
use super::weir::{Output, Weir, assert_no_canary};
use super::{CEILING, TOKEN};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What a start-up refusal looked like.
#[derive(Debug)]
pub struct Refusal {
    /// The exit code.
    pub code: i32,
    /// Standard output and standard error.
    pub output: String,
}

#[derive(Debug)]
struct Upstream {
    name: String,
    url: String,
    kind: String,
    settings: Vec<String>,
    key: Option<Vec<u8>>,
}

/// Everything a test may want to be different.
#[derive(Debug)]
pub struct Builder {
    upstreams: Vec<Upstream>,
    top: Vec<String>,
    models: Vec<String>,
    overrides: Vec<(String, String)>,
    limits: Vec<String>,
    timeouts: Vec<String>,
    extra: Vec<String>,
    token: Vec<u8>,
    token_file: Option<Vec<u8>>,
    environment: Vec<(String, String)>,
}

impl Builder {
    /// No model server yet, port 0, the usual token.
    pub fn new() -> Self {
        Self {
            upstreams: Vec::new(),
            top: vec!["port = 0".to_owned()],
            models: Vec::new(),
            overrides: Vec::new(),
            limits: Vec::new(),
            timeouts: Vec::new(),
            extra: Vec::new(),
            token: TOKEN.as_bytes().to_vec(),
            token_file: None,
            environment: Vec::new(),
        }
    }

    /// One more model server at this URL.
    pub fn upstream(mut self, name: &str, url: &str) -> Self {
        self.upstreams.push(Upstream {
            name: name.to_owned(),
            url: url.to_owned(),
            kind: "openai".to_owned(),
            settings: Vec::new(),
            key: None,
        });
        self
    }

    fn last_upstream(&mut self) -> &mut Upstream {
        self.upstreams.last_mut().expect("name the upstream first")
    }

    /// The kind of the last named model server.
    pub fn kind(mut self, kind: &str) -> Self {
        kind.clone_into(&mut self.last_upstream().kind);
        self
    }

    /// A line for the last named model server.
    pub fn upstream_setting(mut self, line: &str) -> Self {
        self.last_upstream().settings.push(line.to_owned());
        self
    }

    /// The key of the last named model server, through a file.
    pub fn upstream_key(mut self, key: &[u8]) -> Self {
        self.last_upstream().key = Some(key.to_vec());
        self
    }

    /// A line at the top of the file; `port` replaces the usual one.
    pub fn top(mut self, line: &str) -> Self {
        if line.starts_with("port") {
            self.top.clear();
        }
        self.top.push(line.to_owned());
        self
    }

    /// A line of `[models]`.
    pub fn models(mut self, line: &str) -> Self {
        self.models.push(line.to_owned());
        self
    }

    /// A line of `[models.override."ID"]`.
    pub fn override_model(mut self, id: &str, line: &str) -> Self {
        self.overrides.push((id.to_owned(), line.to_owned()));
        self
    }

    /// The model `m` sees pictures.
    pub fn sees_pictures(self) -> Self {
        self.override_model("m", "images = true")
    }

    /// A line of `[limits]`.
    pub fn limit(mut self, line: &str) -> Self {
        self.limits.push(line.to_owned());
        self
    }

    /// A line of `[timeouts]`.
    pub fn timeout(mut self, line: &str) -> Self {
        self.timeouts.push(line.to_owned());
        self
    }

    /// The deadline of a turn, such as `2s`.
    pub fn turn(self, deadline: &str) -> Self {
        self.timeout(&format!("turn = \"{deadline}\""))
    }

    /// Whole tables at the end of the file.
    pub fn toml(mut self, text: &str) -> Self {
        self.extra.push(text.to_owned());
        self
    }

    /// The token, in a file of one line; the client uses it too.
    pub fn token(mut self, token: &[u8]) -> Self {
        self.token = token.to_vec();
        self
    }

    /// The whole token file, where it is not just one line.
    pub fn token_file(mut self, bytes: &[u8]) -> Self {
        self.token_file = Some(bytes.to_vec());
        self
    }

    /// A variable of the environment.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    fn configuration(&self, directory: &Path) -> String {
        let mut file = format!("{}\ntoken_file = \"adapter.token\"\n", self.top.join("\n"));
        for upstream in &self.upstreams {
            let Upstream { name, url, kind, settings, key } = upstream;
            write!(file, "[upstream.{name}]\nurl = \"{url}\"\nkind = \"{kind}\"\n").unwrap();
            if let Some(key) = key {
                std::fs::write(directory.join(format!("{name}.key")), key).unwrap();
                writeln!(file, "api_key_file = \"{name}.key\"").unwrap();
            }
            writeln!(file, "{}", settings.join("\n")).unwrap();
        }
        for (table, lines) in [("models", &self.models), ("limits", &self.limits), ("timeouts", &self.timeouts)] {
            write!(file, "[{table}]\n{}\n", lines.join("\n")).unwrap();
        }
        let mut ids: Vec<&String> = self.overrides.iter().map(|(id, _)| id).collect();
        ids.dedup();
        for id in ids {
            writeln!(file, "[models.override.\"{id}\"]").unwrap();
            for (_, line) in self.overrides.iter().filter(|(known, _)| known == id) {
                writeln!(file, "{line}").unwrap();
            }
        }
        write!(file, "[log]\nlevel = \"trace\"\n{}\n", self.extra.join("\n")).unwrap();
        file
    }

    /// Writes the configuration into a folder of its own and starts the command that is made with the path of the file.
    pub fn launch(&self, command: impl FnOnce(&Path) -> Command) -> (TempDir, Child) {
        let directory = TempDir::new().unwrap();
        let token = self.token_file.clone().unwrap_or_else(|| [&self.token[..], b"\n"].concat());
        let token_file = directory.path().join("adapter.token");
        std::fs::write(&token_file, token).unwrap();
        std::fs::set_permissions(&token_file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let file = directory.path().join("adapter.toml");
        std::fs::write(&file, self.configuration(directory.path())).unwrap();
        let mut command = command(&file);
        command.current_dir(directory.path());
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        let child = command.spawn().unwrap();
        (directory, child)
    }

    fn spawn(&self, command_words: &[&str]) -> (TempDir, Child) {
        self.launch(|file| {
            let mut command = weir_command();
            command.args(command_words).arg("--config").arg(file);
            command
        })
    }

    /// Starts Weir and waits until it serves, but not until it has looked at its model servers.
    pub fn start_cold(self) -> Weir {
        let (directory, child) = self.spawn(&[]);
        Weir::attach(child, Some(directory), self.token)
    }

    /// Starts Weir and lets it look at its model servers, as the app's first call does.
    pub fn start(self) -> Weir {
        let weir = self.start_cold();
        weir.get("/v1/models");
        weir
    }

    /// Runs `weir check` with the same configuration; its exit code and all that it says, with the lines that were folded for a
    /// screen as one again.
    pub fn check(self) -> (i32, String) {
        let (_directory, child) = self.spawn(&["check"]);
        let (code, said) = run_to_end(child);
        (code, said.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// Starts Weir with a configuration that it must not accept.
    pub fn refused(self) -> Refusal {
        let (_directory, child) = self.spawn(&[]);
        let (code, output) = run_to_end(child);
        assert!(!output.contains("listening on"), "it served in spite of a bad configuration");
        Refusal { code, output }
    }
}

impl Weir {
    /// In front of one model server.
    pub fn before(upstream: &ScriptedUpstream) -> Builder {
        Builder::new().upstream("local", &upstream.url())
    }

    /// Started in front of one model server, with nothing special.
    pub fn in_front_of(upstream: &ScriptedUpstream) -> Weir {
        Self::before(upstream).start()
    }
}

/// The binary, prepared as [`prepared`] says.
pub fn weir_command() -> Command {
    prepared(Command::new(env!("CARGO_BIN_EXE_weir")))
}

/// A command without anything of the outer environment that Weir reads, and with proxies that it must not use.
pub fn prepared(mut command: Command) -> Command {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ADAPTER_")) {
        command.env_remove(name);
    }
    for proxy in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        command.env(proxy, "http://127.0.0.1:9");
    }
    // Those of a service manager that runs the tests.
    for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
        command.env_remove(name);
    }
    command
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .env("RUST_BACKTRACE", "full")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Waits for a run that ends by itself; its exit code and all its output, which has no canary.
pub fn run_to_end(mut child: Child) -> (i32, String) {
    let output = Output::collect(&mut child);
    let until = Instant::now() + CEILING;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            panic!("it was expected to end by itself");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = output.finish();
    assert_no_canary(&text);
    (status.code().unwrap_or(-1), text)
}

/// `weir demo`, in an empty home, on any free port, with the usual token.
pub fn demo_command(home: &Path) -> Command {
    let mut command = weir_command();
    command
        .arg("demo")
        .current_dir(home)
        .env("HOME", home)
        .env("XDG_CONFIG_HOME", home)
        .env("ADAPTER_PORT", "0")
        .env("ADAPTER_TOKEN", TOKEN);
    command
}
