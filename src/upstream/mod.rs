//! HTTP as the model servers see it: the client, the framing of their answers, their failures, their dialects.

pub mod body;
pub mod broken;
pub mod classify;
pub mod client;
pub mod connection;
pub mod dialect;
pub mod document;
pub mod exchange;
pub mod framing;
pub mod lenient;
pub mod pace;
pub mod pattern;
pub mod piece;
pub mod tls;

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::settings::UpstreamSettings;
use body::SlicedBody;
use broken::Broken;
use client::{Client, ClientError, Fetched};
use dialect::ollama::ShownModels;
use dialect::{Dialect, Discovery, DiscoveryError, LoadRequest};
use exchange::Answer;

/// For how long after a sign of life a server that cannot be reached counts as restarting rather than as away.
const LATELY: Duration = Duration::from_secs(150);

/// One model server.
#[derive(Debug)]
pub struct Upstream {
    /// Its settings.
    pub settings: UpstreamSettings,
    client: Client,
    shown: ShownModels,
    last_seen: Mutex<Option<Instant>>,
}

impl Upstream {
    /// Gets ready to talk to a server, to which a connection may take `connect` to come about; opens none yet.
    ///
    /// # Errors
    /// The settings cannot be turned into a client; see [`Client::new`].
    pub fn new(settings: UpstreamSettings, connect: Duration) -> Result<Self, ClientError> {
        let client = Client::new(&settings, connect)?;
        Ok(Upstream { settings, client, shown: ShownModels::default(), last_seen: Mutex::new(None) })
    }

    /// Finds out what the server has, without loading anything.
    ///
    /// # Errors
    /// See [`dialect::discover`].
    pub async fn discover(&self) -> Result<Discovery, DiscoveryError> {
        let result = dialect::discover(&self.client, self.settings.kind, &self.shown).await;
        if !matches!(result, Err(DiscoveryError::Broken(_))) {
            self.mark_seen();
        }
        result
    }

    /// Sends one question. Dropping the future, or what it gives, closes the connection.
    ///
    /// # Errors
    /// There is no head of an answer.
    pub async fn ask(
        &self,
        dialect: Dialect,
        body: SlicedBody,
        classifier: &classify::Classifier,
    ) -> Result<Answer, Broken> {
        let response = self.client.post(dialect.chat_path(), body, dialect.keeps_connections()).await?;
        self.mark_seen();
        exchange::begin(response, dialect, classifier).await
    }

    /// Tells the server to load a model, and waits for its answer for `patience` at most.
    ///
    /// # Errors
    /// There is no whole answer, whatever its status.
    pub async fn load(&self, request: &LoadRequest, patience: Duration) -> Result<Fetched, Broken> {
        self.client.ask_within(request.path, &request.body, patience).await
    }

    /// Asks how many tokens a question has, where the server tells that without generating. `None` where it does not, or not at
    /// once: then its own refusal is the only word on it.
    pub async fn count_tokens(&self, dialect: Dialect, body: SlicedBody) -> Option<u64> {
        let (path, field) = dialect.token_count()?;
        let counted = self.client.send(path, body).await.ok()?;
        lenient::read(&counted.body)?.get(field)?.as_u64()
    }

    /// Whether a llama-server has a slot that works on nothing. One that does not tell counts as free.
    pub async fn has_free_slot(&self) -> bool {
        let Ok(answer) = self.client.get("/slots").await else { return true };
        let Ok(slots) = serde_json::from_slice::<Vec<serde_json::Value>>(&answer.body) else { return true };
        slots.iter().any(|slot| slot.get("is_processing").and_then(serde_json::Value::as_bool) != Some(true))
    }

    /// Whether the server gave a sign of life lately.
    pub fn seen_lately(&self) -> bool {
        let last_seen = self.last_seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        last_seen.is_some_and(|at| at.elapsed() < LATELY)
    }

    fn mark_seen(&self) {
        *self.last_seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(Instant::now());
    }
}
