//! The ways in which model servers are spoken to: ask what they have, write a question, read an answer.

mod llamacpp;
mod lmstudio;
pub mod ollama;
mod openai;
pub mod probe_image;
mod sglang;
mod vllm;

use http::StatusCode;
use serde_json::Value;

use super::body::SlicedBody;
use super::broken::Broken;
use super::client::{Client, Fetched};
use super::lenient;
use super::piece::{Piece, ToolCall};
use crate::contract::{Conversation, ImageKind, Text};
use crate::json::Node;
use crate::settings::{Kind, Reasoning};
use ollama::ShownModels;

/// What a tool's result says when an engine calls a tool that nobody offered.
const NO_SUCH_TOOL: &str = "This tool is not available. Answer without it.";

/// How one server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// `POST /v1/chat/completions`, with nothing else known about the server.
    #[default]
    OpenAi,
    /// The same toward llama.cpp's `llama-server`.
    LlamaCpp,
    /// The same toward vLLM.
    Vllm,
    /// The same toward LM Studio.
    LmStudio,
    /// Ollama's own `POST /api/chat`.
    Ollama,
}

/// What a model can see, and how that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sight {
    /// It accepts pictures.
    Sees(&'static str),
    /// It accepts text only.
    Blind(&'static str),
    /// Nothing tells. Treated as text-only for the current turn, and never announced as such.
    #[default]
    Unknown,
}

impl Sight {
    /// What is known from a source that tells.
    pub fn known(sees: bool, how: &'static str) -> Self {
        if sees { Sight::Sees(how) } else { Sight::Blind(how) }
    }

    /// For the list of models: unknown is left out.
    pub fn announced(self) -> Option<bool> {
        match self {
            Sight::Sees(_) => Some(true),
            Sight::Blind(_) => Some(false),
            Sight::Unknown => None,
        }
    }
}

/// What a server tells about one of its models.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelFacts {
    /// The name under which the server knows it.
    pub name: String,
    /// The name under which Weir lists it: the base name where the server's is a file path.
    pub id: String,
    /// What it can see.
    pub sight: Sight,
    /// How many tokens one conversation with it may have now, if that is known.
    pub context: Option<u64>,
    /// How many it was trained for, if that is known; more cannot be asked for.
    pub trained_context: Option<u64>,
    /// Whether it reasons before it answers, if that is known.
    pub reasons: Option<bool>,
    /// What a token of context costs in memory, in bytes, if that can be told.
    pub cache_bytes_a_token: Option<u64>,
    /// What tells this model from another under the same name.
    pub digest: Option<String>,
}

/// What a server tells about itself and its models.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Discovery {
    /// How it is spoken to from now on.
    pub dialect: Dialect,
    /// What it is, in its own word.
    pub server: Option<String>,
    /// Its version, if it tells.
    pub version: Option<String>,
    /// The models that can chat.
    pub models: Vec<ModelFacts>,
    /// What it lists and Weir does not: models that only embed, and models of somebody else's machine.
    pub left_out: Vec<String>,
    /// How many turns it really runs at once, if it tells.
    pub slots: Option<u32>,
    /// Whether its names carry a tag, and a name without one means `:latest` (Ollama).
    pub tagged: bool,
    /// Whether it is a router in front of its models, which it loads when they are needed (llama.cpp).
    pub router: bool,
}

impl Discovery {
    /// Whether this is an Ollama server that is not spoken to in its own language.
    pub fn is_ollama_behind_v1(&self) -> bool {
        self.tagged && self.dialect == Dialect::OpenAi
    }

    /// How the server is told to load a model, where it can be told so without a chat.
    pub fn load_request(&self, load: &Load<'_>) -> Option<LoadRequest> {
        match self.dialect {
            Dialect::Ollama => Some(ollama::load_request(load)),
            Dialect::LlamaCpp if self.router => Some(llamacpp::load_request(load)),
            Dialect::OpenAi | Dialect::LlamaCpp | Dialect::Vllm | Dialect::LmStudio => None,
        }
    }
}

/// A model that is to be loaded, with what turns ask of it: a server that is asked for something else then loads it twice.
#[derive(Debug)]
pub struct Load<'a> {
    /// The name under which the server knows the model.
    pub model: &'a str,
    /// The context in tokens that Ollama is asked for; `None` leaves that to it.
    pub context_to_ask_for: Option<u64>,
    /// How long Ollama keeps the model loaded, in its own words.
    pub keep_alive: Option<&'a str>,
}

/// The call that has a model loaded.
#[derive(Debug)]
pub struct LoadRequest {
    /// Where it goes.
    pub path: &'static str,
    /// What it says.
    pub body: Value,
}

/// Why a server's models are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// No answer.
    #[error("{0}")]
    Broken(#[from] Broken),
    /// It is there and still loading.
    #[error("it is still loading")]
    Loading,
    /// It does not accept the key, or wants one.
    #[error("it does not accept the key (status {0}); set api_key_file")]
    Credentials(StatusCode),
    /// It answered with a status that is no list.
    #[error("it answered the question for its models with status {0}; correct url, its port above all")]
    Refused(StatusCode),
    /// What it answered is no list of models.
    #[error("what it answered is no list of models; name a model server, with Ollama's or OpenAI's routes")]
    NotUnderstood,
}

/// One question: what is asked of which model.
#[derive(Debug)]
pub struct Question<'a> {
    /// The name under which the server knows the model.
    pub model: &'a str,
    /// What the model is told before the conversation, if anything.
    pub system_prompt: Option<&'a Text>,
    /// The conversation as it is to be sent.
    pub conversation: &'a Conversation,
    /// How much the model shall reason.
    pub reasoning: Reasoning,
    /// Whether it can, if that is known.
    pub reasons: Option<bool>,
    /// The context in tokens that Ollama is asked for; `None` leaves that to it.
    pub context_to_ask_for: Option<u64>,
    /// How long Ollama keeps the model loaded, in its own words.
    pub keep_alive: Option<&'a str>,
    /// Calls of tools that the model made a moment ago and that are now answered as not available.
    pub unanswered_calls: &'a [ToolCall],
    /// The most tokens that the answer may have, if it is to be limited.
    pub longest_answer: Option<u64>,
    /// How freely the model chooses its words; `None` leaves that to the server.
    pub temperature: Option<f64>,
}

impl Dialect {
    /// How a server is spoken to that has not told yet what it is.
    pub fn of_kind(kind: Kind) -> Self {
        match kind {
            Kind::Auto | Kind::OpenAi => Dialect::OpenAi,
            Kind::LlamaCpp => Dialect::LlamaCpp,
            Kind::Vllm => Dialect::Vllm,
            Kind::Ollama => Dialect::Ollama,
        }
    }

    /// How the server is spoken to, in words.
    pub fn describe(self) -> &'static str {
        match self {
            Dialect::OpenAi => "OpenAI chat completions",
            Dialect::LlamaCpp => "llama.cpp's OpenAI chat completions",
            Dialect::Vllm => "vLLM's OpenAI chat completions",
            Dialect::LmStudio => "LM Studio's OpenAI chat completions",
            Dialect::Ollama => "Ollama's own /api/chat",
        }
    }

    /// The path that turns are sent to.
    pub fn chat_path(self) -> &'static str {
        match self {
            Dialect::OpenAi | Dialect::LlamaCpp | Dialect::Vllm | Dialect::LmStudio => openai::CHAT,
            Dialect::Ollama => ollama::CHAT,
        }
    }

    /// Whether a connection can be used for another turn. llama-server ends the connection behind every streamed answer and does
    /// not announce it (build 11434).
    pub fn keeps_connections(self) -> bool {
        self != Dialect::LlamaCpp
    }

    /// Whether the server may refuse an output limit that is larger than what its context leaves, instead of ending there: vLLM
    /// up to 0.10 does, and nobody knows of the unknown ones.
    pub fn may_refuse_an_output_limit(self) -> bool {
        matches!(self, Dialect::OpenAi | Dialect::Vllm | Dialect::LmStudio)
    }

    /// Whether the server goes on reading a prompt after a hang-up: llama-server does so on its HTTP thread, in quadratic time for a
    /// long unbroken text, while `/health` says that all is well.
    pub fn cannot_be_stopped_while_reading(self) -> bool {
        self == Dialect::LlamaCpp
    }

    /// Writes a question as the server's request body.
    pub fn encode(self, question: &Question<'_>) -> SlicedBody {
        match self {
            Dialect::OpenAi | Dialect::LlamaCpp | Dialect::Vllm | Dialect::LmStudio => openai::encode(question),
            Dialect::Ollama => ollama::encode(question),
        }
    }

    /// Reads one document of an answer; `None` if it reports a failure. `plain` says that it is no event of a stream.
    pub fn decode(self, document: Node<'_>, plain: bool) -> Option<Piece<'_>> {
        match self {
            Dialect::OpenAi | Dialect::LlamaCpp | Dialect::Vllm | Dialect::LmStudio => openai::decode(document, plain),
            Dialect::Ollama => ollama::decode(document),
        }
    }

    /// Where the server counts a question's tokens without generating, and the field of the answer that has the count.
    pub fn token_count(self) -> Option<(&'static str, &'static str)> {
        match self {
            Dialect::OpenAi | Dialect::LmStudio | Dialect::Ollama => None,
            Dialect::LlamaCpp => Some(("/v1/chat/completions/input_tokens", "input_tokens")),
            Dialect::Vllm => Some(("/tokenize", "count")),
        }
    }

    /// Whether the server can decode pictures of that kind.
    pub fn decodes(self, kind: ImageKind) -> bool {
        match self {
            Dialect::OpenAi => openai::decodes(kind),
            Dialect::LlamaCpp => llamacpp::decodes(kind),
            Dialect::Vllm => vllm::decodes(kind),
            Dialect::LmStudio => lmstudio::decodes(kind),
            Dialect::Ollama => ollama::decodes(kind),
        }
    }

    /// How many turns such a server runs at once when neither it nor the settings tell.
    pub fn turns_at_once(self) -> usize {
        match self {
            // A router's children do not tell; one turn is what each always runs.
            Dialect::LlamaCpp => 1,
            // The whole server: two models may evict each other (OLLAMA_NUM_PARALLEL is 1 unless set).
            Dialect::Ollama => 1,
            // One of its engines may run several; it does not tell which model is on which.
            Dialect::LmStudio => 1,
            Dialect::OpenAi => 4,
            // Continuous batching.
            Dialect::Vllm => 64,
        }
    }
}

/// Finds out what a server is and what it has. Every call that is made loads nothing and wakes nothing.
///
/// What it is, is judged by what it says and never by a status alone: LM Studio answers 200 on paths that it does not know, and
/// SGLang, LocalAI and KoboldCpp imitate Ollama.
///
/// # Errors
/// The server is away, loading, or not one that is understood.
pub async fn discover(client: &Client, kind: Kind, shown: &ShownModels) -> Result<Discovery, DiscoveryError> {
    if kind == Kind::Ollama {
        match ollama::discover(client, shown).await {
            // A front that exposes only /v1 is spoken to there.
            Err(DiscoveryError::Refused(_) | DiscoveryError::NotUnderstood) => {}
            found => return found,
        }
    }
    let fetched = client.get("/v1/models").await?;
    let listed = document_of(&fetched).and_then(|list| openai::read_list(&list));
    let says_llamacpp = fetched.headers.get("server").is_some_and(|server| server == "llama.cpp");
    if kind == Kind::Auto && !says_llamacpp {
        let may_be_ollama = match &listed {
            Ok(list) => openai::may_be_ollamas(list),
            Err(error) => matches!(error, DiscoveryError::Refused(_) | DiscoveryError::NotUnderstood),
        };
        if may_be_ollama && is_ollama(client).await {
            return ollama::discover(client, shown).await;
        }
    }
    let list = listed?;
    let owner = list.owner.as_deref();
    // Ollama's list has the namespace of a model for an owner; behind a front that shows no more, that is all there is to see.
    let is_ollama_behind_v1 = kind == Kind::Ollama || (owner == Some("library") && kind != Kind::Vllm);
    let discovery = Discovery {
        server: if is_ollama_behind_v1 { Some("Ollama".to_owned()) } else { None },
        models: list.models,
        left_out: list.left_out,
        slots: is_ollama_behind_v1.then_some(1),
        tagged: is_ollama_behind_v1,
        ..Discovery::default()
    };
    let says_llamacpp = says_llamacpp && matches!(kind, Kind::Auto | Kind::OpenAi);
    match if says_llamacpp { Dialect::LlamaCpp } else { named(kind, owner) } {
        Dialect::LlamaCpp => llamacpp::complete(client, discovery, &list.entries).await,
        Dialect::Vllm => Ok(vllm::complete(client, discovery, &list.entries).await),
        Dialect::LmStudio => Ok(lmstudio::complete(client, discovery).await?),
        Dialect::OpenAi if owner == Some("sglang") => Ok(sglang::complete(client, discovery).await),
        Dialect::OpenAi | Dialect::Ollama => Ok(discovery),
    }
}

/// The dialect that the settings name; where they leave it open, the one of the server that calls itself the owner of the first
/// model of its list.
fn named(kind: Kind, owner: Option<&str>) -> Dialect {
    match (kind, owner) {
        (Kind::LlamaCpp, _) | (Kind::Auto | Kind::OpenAi, Some("llamacpp")) => Dialect::LlamaCpp,
        (Kind::Vllm, _) | (Kind::Auto, Some("vllm")) => Dialect::Vllm,
        (Kind::Auto, Some("organization_owner")) => Dialect::LmStudio,
        _ => Dialect::OpenAi,
    }
}

/// Ollama says so at its root and tells a version; KoboldCpp imitates both, and has a route of its own.
async fn is_ollama(client: &Client) -> bool {
    let root = client.get("/").await.is_ok_and(|root| root.body.trim_ascii() == b"Ollama is running");
    let says_version = |fetched: &Fetched| document_of(fetched).is_ok_and(|version| version.get("version").is_some());
    let says_kobold = |fetched: &Fetched| document_of(fetched).is_ok_and(|version| version.get("result").is_some());
    root && client.get("/api/version").await.is_ok_and(|fetched| says_version(&fetched))
        && !client.get("/api/extra/version").await.is_ok_and(|fetched| says_kobold(&fetched))
}

/// The JSON object of a discovery answer.
fn document_of(fetched: &Fetched) -> Result<Value, DiscoveryError> {
    match fetched.status {
        status if status.is_success() => lenient::read(&fetched.body).ok_or(DiscoveryError::NotUnderstood),
        status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Err(DiscoveryError::Credentials(status)),
        StatusCode::SERVICE_UNAVAILABLE => Err(DiscoveryError::Loading),
        status => Err(DiscoveryError::Refused(status)),
    }
}

/// Older builds of llama.cpp give a model's file path as its id; a phone should not see the host's folders.
fn base_of_path(id: &str) -> &str {
    let is_path = id.starts_with('/') || id.get(1..3) == Some(":\\") || id.ends_with(".gguf");
    if is_path { id.rsplit(['/', '\\']).next().unwrap_or(id) } else { id }
}
