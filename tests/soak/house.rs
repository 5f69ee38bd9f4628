//! What all phones share: where everything is, what happened, and for how long it goes on.
use super::kinds::PhoneFault;
use super::phone::Trouble;
use super::process::Ending;
use super::speech::Dialect;
use super::upstream::Servers;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// The model on the server that runs one turn at once.
pub const NARROW: &str = "narrow";

/// After so many troubles nothing more is learned.
const ENOUGH: u64 = 50;

/// The model of the server that speaks so.
pub fn model_of(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::OpenAi => "of-openai",
        Dialect::LlamaCpp => "of-llamacpp",
        Dialect::Vllm => "of-vllm",
        Dialect::Ollama => "of-ollama",
    }
}

/// What is shared.
#[derive(Debug)]
pub struct House {
    /// Where Weir listens.
    pub address: SocketAddr,
    /// Where the random numbers begin.
    pub seed: u64,
    /// The model servers.
    pub servers: Arc<Servers>,
    /// A model for turns that never come to it.
    pub any_model: &'static str,
    /// What a phone can do wrong.
    pub phone_faults: Vec<PhoneFault>,
    /// Held for reading during a turn.
    pub pause: tokio::sync::RwLock<()>,
    /// Cancelled when the phones may end their connections.
    pub dismissed: CancellationToken,
    /// Who holds the one permit of the narrow server.
    pub narrow: tokio::sync::Mutex<()>,
    /// The least number of turns.
    pub turns: u64,
    /// Until when it goes on at the least.
    pub until: Instant,
    counted: AtomicU64,
    troubles: AtomicU64,
    mixed: AtomicU64,
    kinds: Mutex<BTreeMap<String, u64>>,
    endings: Mutex<BTreeMap<Ending, u64>>,
}

impl House {
    /// A house in which nothing has happened yet.
    pub fn new(address: SocketAddr, servers: Arc<Servers>, seed: u64, turns: u64, least: Duration) -> Self {
        Self {
            address,
            seed,
            servers,
            any_model: model_of(Dialect::OpenAi),
            phone_faults: super::kinds::phone_faults(),
            pause: tokio::sync::RwLock::default(),
            dismissed: CancellationToken::new(),
            narrow: tokio::sync::Mutex::default(),
            turns,
            until: Instant::now() + least,
            counted: AtomicU64::new(0),
            troubles: AtomicU64::new(0),
            mixed: AtomicU64::new(0),
            kinds: Mutex::default(),
            endings: Mutex::default(),
        }
    }

    /// Whether there is another turn.
    pub fn goes_on(&self) -> bool {
        (self.counted() < self.turns || Instant::now() < self.until) && self.troubles() < ENOUGH
    }

    /// Counts a turn that met this fault.
    pub fn count(&self, kind: String) {
        self.counted.fetch_add(1, Ordering::Relaxed);
        *self.kinds.lock().unwrap().entry(kind).or_default() += 1;
    }

    /// How many turns there were.
    pub fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    /// From now on there has to be one line more in the log of a turn that ended so.
    pub fn expect_line(&self, outcome: &'static str, status: Option<u16>, code: Option<&str>) {
        let ending = (outcome, status.map(u64::from), code.unwrap_or_default().to_owned());
        *self.endings.lock().unwrap().entry(ending).or_default() += 1;
    }

    /// How many turns ended how.
    pub fn endings(&self) -> BTreeMap<Ending, u64> {
        self.endings.lock().unwrap().clone()
    }

    /// How many turns met which fault.
    pub fn kinds(&self) -> BTreeMap<String, u64> {
        self.kinds.lock().unwrap().clone()
    }

    /// Something was not as it has to be.
    pub fn note_trouble(&self, kind: &str, trouble: &Trouble) {
        println!("{kind}: {trouble:?}");
        self.troubles.fetch_add(1, Ordering::Relaxed);
        self.mixed.fetch_add(u64::from(matches!(trouble, Trouble::Mixed(_))), Ordering::Relaxed);
    }

    /// How many troubles there were, mixed-up replies included.
    pub fn troubles(&self) -> u64 {
        self.troubles.load(Ordering::Relaxed)
    }

    /// How many replies held something of another turn.
    pub fn mixed(&self) -> u64 {
        self.mixed.load(Ordering::Relaxed)
    }
}
