//! The configuration: `adapter.toml`, the environment and the embedded defaults, read once into [`Settings`].
//!
//! figment lays the three over each other (the environment wins over the file, the file over the defaults). Everything
//! that can be wrong is found here, before a port is bound, and said in one message that names the place, the key, what
//! was found and what is accepted. No message holds a secret: figment's and toml's own texts print values and source
//! lines, so none of them is passed on.
//!
//! `docs/configuration.md` is made from this folder (`reference.rs`): the first paragraph on a field that holds a key is what the page
//! says of that key, and is written for the person who configures. What only the code needs to know follows in another paragraph.

mod environment;
#[cfg(test)]
mod example;
mod failures;
mod file;
mod layers;
mod models;
mod places;
#[cfg(test)]
mod reference;
mod refusal;
mod rules;
mod schema;
mod secret_file;
mod source;
mod tokens;
mod upstream;
mod value;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use crate::contract::Text;

pub use environment::Environment;
pub use failures::{FailureExample, FailureRow, Meaning};
pub use places::Places;
pub use refusal::{Fault, SettingsError};
pub use schema::variable;
pub use secret_file::as_shell_word;
pub use source::{Source, configuration_folder, find};
pub use tokens::Tokens;
pub use upstream::address;

/// Everything that Weir was told, checked and complete.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the settings came from.
    pub origin: Origin,
    /// The port on 127.0.0.1; `0` takes any free one. There is no key for the address: it is always 127.0.0.1.
    pub port: u16,
    /// The tokens that are let in: one on each line of this file, where empty lines don't count. A relative path counts from the
    /// folder of the configuration file, or from the working folder if a variable names it. The variable `ADAPTER_TOKEN` holds one
    /// token and is used in the file's stead. Where nothing is configured, the file is `adapter.token` in `~/.config/weir`, made at
    /// the first start.
    ///
    /// There is at least one.
    pub tokens: Tokens,
    /// The model servers, in the order of their names; at least one.
    pub upstreams: Vec<UpstreamSettings>,
    /// Which models are offered, under which names, and what is known about them.
    pub models: ModelSettings,
    /// What an error of your model server means, where Weir takes it for something else: rows, each under a line `[[failures]]`. They
    /// are tried in their order, and before those that come with Weir.
    pub failures: Vec<FailureRow>,
    /// Caps on sizes and numbers.
    pub limits: Limits,
    /// Caps on time.
    pub timeouts: Timeouts,
    /// What is logged, and how.
    pub log: LogSettings,
    /// The metrics listener; `None` when it is off.
    pub metrics: Option<MetricsSettings>,
    /// What works and should be changed nevertheless, such as a token file that other users can read; said once at the start.
    pub warnings: Vec<Warning>,
    /// Where each key stands, for what is found out about its value later.
    pub places: Places,
}

/// Something that works and should be changed nevertheless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The file (and line) or the variable.
    pub place: String,
    /// The key.
    pub key: String,
    /// What was seen.
    pub seen: String,
    /// What would be right.
    pub accepted: String,
    /// The command that mends it.
    pub mend: String,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { place, key, seen, accepted, mend } = self;
        write!(formatter, "{place}: {key}: found {seen}; accepted: {accepted}. Run {mend}")
    }
}

/// Where the settings came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// This configuration file (and the environment over it).
    File(PathBuf),
    /// The environment alone.
    Environment,
    /// Nothing was configured: Weir found the model server by itself.
    Found,
    /// The demo, which is in front of its own engine whatever is configured.
    Demo,
}

/// One model server. The name of its table is yours (`a` to `z`, `0` to `9`, `_` and `-`) and appears in logs. At least one table is
/// needed where there is a configuration file. Servers that have the same model are asked in the order of their names.
#[derive(Clone)]
pub struct UpstreamSettings {
    /// The name of its table: `[a-z0-9_-]+`.
    pub name: String,
    /// Where the server listens, with or without a `/v1` at the end.
    ///
    /// The base to which `/v1/…` is appended: http or https, no user info, no query, no trailing `/v1` or `/`. The path of
    /// a bare origin is `/`, as always with [`Url`].
    pub url: Url,
    /// Which language the server speaks.
    pub kind: Kind,
    /// The key that the server asks for: the only line of this file. A relative path counts as that of `token_file` does.
    pub api_key: Option<SecretString>,
    /// The certificates that are trusted for this server, and no others, as PEM; only with an https address. Without the key, those
    /// that the system trusts. A relative path counts as that of `token_file` does.
    pub certificate_authorities: Option<Vec<u8>>,
    /// How many turns the server runs at once; more wait in the queue. `"auto"` is what the server tells, else what a server of its
    /// kind does by itself.
    ///
    /// `None` is `"auto"`.
    pub concurrency: Option<NonZeroU32>,
    /// Ollama: the context in tokens to ask for (`num_ctx`), or what a model was trained for if that is less. A value that another
    /// client does not use makes Ollama load the model again. Without the key nothing is asked for, and Ollama's own rules count.
    /// With any other server nothing can be asked for: it is what Weir takes the context to be.
    pub context: Option<u32>,
    /// Ollama: how long a model stays loaded after a turn. Without the key, as Ollama is set up.
    ///
    /// In Ollama's own words: a duration such as `30m`, or a bare number of seconds such as `-1`, which Ollama takes only as a JSON
    /// number.
    pub keep_alive: Option<String>,
}

impl UpstreamSettings {
    /// The settings of a model server that was found by itself: nothing is known but its name and address.
    pub fn new(name: &str, url: Url) -> Self {
        Self {
            name: name.to_owned(),
            url,
            kind: Kind::Auto,
            api_key: None,
            certificate_authorities: None,
            concurrency: None,
            context: None,
            keep_alive: None,
        }
    }
}

/// Leaves the certificates out: a file of certificates may hold a private key by mistake.
impl std::fmt::Debug for UpstreamSettings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("UpstreamSettings")
            .field("name", &self.name)
            .field("url", &self.url.as_str())
            .field("kind", &self.kind)
            .field("api_key", &self.api_key)
            .field("concurrency", &self.concurrency)
            .field("context", &self.context)
            .field("keep_alive", &self.keep_alive)
            .finish_non_exhaustive()
    }
}

/// Which language a model server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Weir finds out, by what the server answers.
    Auto,
    /// Ollama, over its own `/api`.
    Ollama,
    /// llama.cpp's `llama-server`.
    LlamaCpp,
    /// vLLM.
    Vllm,
    /// Any other server with the OpenAI routes.
    OpenAi,
}

/// Which models are offered, under which names, and what is known about them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelSettings {
    /// The model that answers when the app names none. Without the key, the first that can chat.
    pub default: Option<String>,
    /// The model that gets a turn with a new picture when the app names none and the default is not known to see. Without the key the
    /// default model gets every turn, and declines a picture that it can't see.
    pub pictures: Option<String>,
    /// Whether the default model is loaded at the start, and again after its server came back, instead of with the first turn. Ollama
    /// and llama.cpp's router can do that; no chat is sent, and no turn waits for it.
    pub warm_up: bool,
    /// Patterns of the models that are offered, where `*` is any text and `?` any one character. The models that `default` and
    /// `pictures` name are offered in any case. Without the key, all that can chat.
    ///
    /// Never empty.
    pub expose: Option<Vec<String>>,
    /// Another name for a model: the key is the name that the app sees, the value is the model behind it, which is no alias itself.
    pub alias: BTreeMap<String, String>,
    /// What the person knows better than the server, by model id.
    pub overrides: BTreeMap<String, ModelOverride>,
}

/// What you know better than the server about one model, by its id or its alias, and how it is to answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelOverride {
    /// Whether the model sees pictures. `"auto"` is as the server says; a model of which no server says so is not sent any.
    ///
    /// `None` is `"auto"`.
    pub images: Option<bool>,
    /// The model's context in tokens, in the place of `upstream.NAME.context`. Without either, as the server says.
    pub context: Option<u32>,
    /// How much the model is asked to reason before it answers, where the server offers a choice.
    pub reasoning: Reasoning,
    /// How freely the model chooses its words: `0` is always the likeliest. Without the key, as the server does by itself.
    pub temperature: Option<f64>,
    /// The most tokens of an answer, reasoning included; the app shows a longer one as cut. What the turn's time holds is the limit in
    /// any case.
    pub longest_answer: Option<u32>,
    /// What the model is told before every conversation, as a system message. It isn't sent to a model whose template refuses one.
    ///
    /// Never empty.
    pub system_prompt: Option<Text>,
}

/// How much a model is asked to reason before it answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reasoning {
    /// As the model does by itself.
    #[default]
    Default,
    /// Not at all.
    Off,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

/// Caps on sizes, in bytes, and on numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest request. A history of pictures arrives in one, and the contract asks for 50 MiB at least.
    pub body: u64,
    /// The largest picture of the current turn. `"off"` sets no cap of its own, beside that on the request.
    ///
    /// `None` is `"off"`.
    pub image: Option<u64>,
    /// The largest answer, as encoded JSON. The app takes less than 16 MiB.
    pub reply: u64,
    /// The bytes that all requests may take together; a request that doesn't fit is refused as overloaded.
    pub in_flight: u64,
    /// How many turns may wait for their start. More are refused at once as overloaded; `0` lets none wait.
    pub queue: usize,
    /// How many connections may be open at once. Idle ones make room for new ones.
    pub connections: usize,
}

/// Caps on time; each is above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From the last byte of a request to its answer, waiting included. The app gives up at 300 s.
    pub turn: Duration,
    /// To receive the body of a request, from the end of its head on. One that stalls (less than 4 KiB a second) is given up after 15 s.
    pub body: Duration,
    /// To receive the head of a request, from its first byte on.
    pub head: Duration,
    /// To connect to a model server.
    pub connect: Duration,
    /// How long an idle connection stays open: longer than the 90 s for which cloudflared and Tailscale keep theirs, or a request may
    /// meet a connection that is just being closed.
    pub keep_alive: Duration,
    /// How long running turns may take to end after the signal to stop.
    pub shutdown: Duration,
}

/// What is logged, and how. The log goes to stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSettings {
    /// The least important thing that is logged. No level shows messages, pictures, answers or tokens.
    pub level: Level,
    /// How a line of the log looks.
    pub format: Format,
}

/// How important a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something failed.
    Error,
    /// Something needs a person's eye.
    Warn,
    /// What happened, one line for each turn.
    Info,
    /// How it happened.
    Debug,
    /// Everything.
    Trace,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For a person.
    Text,
    /// One JSON object a line.
    Json,
}

/// The metrics for Prometheus, at `/metrics` on a port of their own and behind the same tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricsSettings {
    /// The port on 127.0.0.1; `0` takes any free one. Without the key there are no metrics.
    pub port: u16,
}

/// Reads and checks the settings of this source, with the environment over them.
///
/// # Errors
/// [`SettingsError::NothingConfigured`] if the source is [`Source::Nothing`] and the environment names no model server
/// either, with everything else in order: the caller may then look for one and go on with [`Settings::found`].
/// [`SettingsError::Refused`] for whatever is wrong.
pub fn load(source: &Source, environment: &Environment) -> Result<Settings, SettingsError> {
    let layers = layers::Layers::read(source, environment)?;
    let origin = match source {
        Source::File(path) => Origin::File(path.clone()),
        Source::Nothing => Origin::Environment,
    };
    let mut settings = rules::without_secrets(&layers, origin)?;
    settings.upstreams = upstream::read_all(&layers, &mut settings.warnings)?;
    if settings.upstreams.is_empty() {
        return Err(match source {
            Source::Nothing => SettingsError::NothingConfigured,
            Source::File(path) => refusal::Fault {
                place: path.display().to_string(),
                key: "[upstream.NAME]".to_owned(),
                found: "no model server".to_owned(),
                accepted: "at least one table for a model server".to_owned(),
                mend: "Add [upstream.local] with url = \"http://127.0.0.1:11434\", or where your server listens."
                    .to_owned(),
            }
            .into(),
        });
    }
    upstream::refuse_weir_itself(&layers, &settings)?;
    settings.tokens = tokens::read(&layers, environment, None, &mut settings.warnings)?;
    Ok(settings)
}

impl Settings {
    /// The settings of a start without configuration: the defaults, the environment over them, and the model servers that
    /// were found. The tokens are `ADAPTER_TOKEN`, else those of `ADAPTER_TOKEN_FILE`, else those of `token_file`
    /// ([`Environment::names_a_token`] says whether that file is needed at all).
    ///
    /// # Errors
    /// [`SettingsError::Refused`] for whatever is wrong in the environment or with the token file.
    pub fn found(
        upstreams: Vec<UpstreamSettings>,
        token_file: &Path,
        environment: &Environment,
    ) -> Result<Self, SettingsError> {
        let layers = layers::Layers::read(&Source::Nothing, environment)?;
        let mut settings = rules::without_secrets(&layers, Origin::Found)?;
        settings.upstreams = upstreams;
        settings.tokens = tokens::read(&layers, environment, Some(token_file), &mut settings.warnings)?;
        Ok(settings)
    }
}
