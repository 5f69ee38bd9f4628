//! The servers that are measured and the instant one behind them.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::client::TOKEN;
use super::fixtures::{MODEL, plain_answer, vllm_stream};
use super::process::Process;

/// How long a server may take to listen.
const CEILING: Duration = Duration::from_secs(120);

/// Chunks of the streamed answer.
const CHUNKS: usize = 40;

/// nginx takes no longer word than this in its configuration.
const LONGEST_WORD: usize = 2000;

/// What the model server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// One JSON document.
    Json,
    /// Server-sent events.
    Sse,
}

/// nginx with two addresses, one for each answer.
#[derive(Debug)]
pub struct Nginx {
    pub process: Process,
    json: SocketAddr,
    sse: SocketAddr,
}

impl Nginx {
    /// An instant model server: it answers as soon as it has the head of a request, always the same.
    pub fn upstream(folder: &Path) -> Self {
        Self::start(folder, "upstream", |answer, address| {
            let (kind, text) = match answer {
                Answer::Json => ("application/json", plain_answer()),
                Answer::Sse => ("text/event-stream", vllm_stream(CHUNKS)),
            };
            let models = format!(r#"{{"object":"list","data":[{{"id":"{MODEL}","object":"model"}}]}}"#);
            let (parts, whole) = in_words(&text);
            format!(
                "server {{
                    listen {address};
                    location = /v1/models {{ default_type application/json; return 200 '{models}'; }}
                    location / {{ default_type {kind}; {parts} return 200 {whole}; }}
                }}"
            )
        })
    }

    /// A plain reverse proxy that keeps its connections to the model server.
    pub fn proxy(folder: &Path, upstream: &Nginx) -> Self {
        Self::start(folder, "proxy", |answer, address| {
            let upstream = upstream.address(answer);
            format!(
                "upstream {answer:?} {{ server {upstream}; keepalive 64; keepalive_requests 100000000; }}
                server {{
                    listen {address};
                    location / {{ proxy_pass http://{answer:?}; proxy_http_version 1.1; proxy_set_header Connection \"\"; }}
                }}"
            )
        })
    }

    /// Where it gives this answer.
    pub fn address(&self, answer: Answer) -> SocketAddr {
        match answer {
            Answer::Json => self.json,
            Answer::Sse => self.sse,
        }
    }

    fn start(folder: &Path, name: &str, server: impl Fn(Answer, SocketAddr) -> String) -> Self {
        // Another program may take a port between its choice and its use.
        (0..10).find_map(|_| Self::try_start(folder, name, &server)).expect("nginx starts")
    }

    fn try_start(folder: &Path, name: &str, server: impl Fn(Answer, SocketAddr) -> String) -> Option<Self> {
        let (json, sse) = (free_port(), free_port());
        let at = folder.display();
        let configuration = format!(
            "daemon off; worker_processes auto; pid {at}/{name}.pid; error_log {at}/{name}.log;
            events {{ worker_connections 1024; }}
            http {{
                access_log off; keepalive_requests 100000000; client_max_body_size 0;
                client_body_temp_path {at}/{name}.body; proxy_temp_path {at}/{name}.proxy;
                fastcgi_temp_path {at}/{name}.fastcgi; uwsgi_temp_path {at}/{name}.uwsgi; scgi_temp_path {at}/{name}.scgi;
                {} {}
            }}",
            server(Answer::Json, json),
            server(Answer::Sse, sse)
        );
        let file = folder.join(format!("{name}.conf"));
        std::fs::write(&file, configuration).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(folder).arg("-c").arg(&file).stdout(Stdio::null());
        let mut process = Process::start(&mut command, &folder.join(format!("{name}.out")));
        listens(&mut process, sse).then_some(Nginx { process, json, sse })
    }
}

/// A long text as nginx wants it: variables that hold its parts, and the word that puts them together.
fn in_words(text: &str) -> (String, String) {
    let mut rest = text;
    let (mut parts, mut whole) = (String::new(), String::new());
    while !rest.is_empty() {
        let end = (0..=LONGEST_WORD.min(rest.len())).rev().find(|end| rest.is_char_boundary(*end)).unwrap_or(0);
        let (part, more) = rest.split_at(end);
        let name = whole.len();
        parts += &format!("set $part{name} '{}'; ", part.replace('\\', "\\\\").replace('\'', "\\'"));
        whole += &format!("$part{name}");
        rest = more;
    }
    (parts, format!("\"{whole}\""))
}

/// Weir, serving.
#[derive(Debug)]
pub struct Weir {
    pub process: Process,
    pub address: SocketAddr,
}

impl Weir {
    /// Starts it in front of this model server and waits until it listens; `settings` are further lines of its file.
    pub fn start(program: &Path, folder: &Path, name: &str, upstream: SocketAddr, settings: &str) -> Self {
        let folder = folder.join(name);
        let file = Self::configure(&folder, upstream, settings);
        let mut process = Process::start(&mut Self::command(program, &file), &folder.join("log"));
        let line = first_line(&mut process);
        let address = line.strip_prefix("listening on http://").and_then(|address| address.trim().parse().ok());
        let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        Weir { process, address: address.unwrap_or_else(|| panic!("Weir does not listen: {}", log())) }
    }

    /// Writes its file and its token; its log is on, as it is for everybody.
    pub fn configure(folder: &Path, upstream: SocketAddr, settings: &str) -> std::path::PathBuf {
        std::fs::create_dir_all(folder).unwrap();
        let token = folder.join("adapter.token");
        std::fs::write(&token, TOKEN).unwrap();
        std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
        let file = folder.join("adapter.toml");
        let text = format!(
            "port = 0\ntoken_file = \"adapter.token\"\n[upstream.local]\nurl = \"http://{upstream}\"\nkind = \"openai\"\n{settings}\n"
        );
        std::fs::write(&file, text).unwrap();
        file
    }

    /// The command that serves with this file.
    pub fn command(program: &Path, file: &Path) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ADAPTER_")) {
            command.env_remove(name);
        }
        command.arg("--config").arg(file).stdout(Stdio::piped());
        command
    }
}

/// The first line that a process writes; empty if it ends without one.
pub fn first_line(process: &mut Process) -> String {
    let mut line = String::new();
    BufReader::new(process.output()).read_line(&mut line).unwrap();
    line
}

/// LiteLLM's proxy.
#[derive(Debug)]
pub struct LiteLlm {
    pub process: Process,
    pub address: SocketAddr,
}

impl LiteLlm {
    /// Starts it in front of this model server and waits until it listens.
    pub fn start(program: &Path, folder: &Path, upstream: SocketAddr) -> Self {
        let address = free_port();
        let file = folder.join("litellm.yaml");
        let text = format!(
            "model_list:\n- model_name: {MODEL}\n  litellm_params:\n    model: openai/{MODEL}\n    api_base: http://{upstream}/v1\n    \
             api_key: none\ngeneral_settings:\n  master_key: {TOKEN}\n"
        );
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(program);
        command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("LITELLM_TELEMETRY", "False");
        command.arg("--config").arg(&file).args(["--host", "127.0.0.1", "--port"]).arg(address.port().to_string());
        let mut process = Process::start(command.stdout(Stdio::null()), &folder.join("litellm.log"));
        assert!(listens(&mut process, address), "LiteLLM does not start");
        LiteLlm { process, address }
    }
}

/// Waits until something listens there; false if the process ended first.
fn listens(process: &mut Process, address: SocketAddr) -> bool {
    let until = Instant::now() + CEILING;
    while Instant::now() < until && !process.has_ended() {
        if TcpStream::connect(address).is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// An address that nobody uses at the moment.
fn free_port() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr()).expect("a free port")
}
