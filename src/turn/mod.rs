//! The life of one turn: which model, whether it can take the pictures, a permit, the question, the answer, one clock over
//! all of it.

pub mod admission;
pub mod collapse;
pub mod mends;
pub mod outcome;
pub mod reasoning;
mod run;
pub mod speed;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use crate::catalog::Catalog;
use crate::catalog::snapshot::{Candidate, Entry, Snapshot};
use crate::contract::{Conversation, Failure, Reply};
use crate::observe::TurnRecord;
use crate::settings::Settings;
use crate::upstream::Upstream;
use crate::upstream::classify::Classifier;
use crate::upstream::dialect::Sight;
use admission::{Admission, HeldPermit, NotAdmitted};
use mends::{Prompt, Remembered};
use run::Run;
use speed::Speeds;

/// More text than this for each token of a known context cannot fit, whatever the tokenizer: refused before it is sent, since
/// llama-server would read it for minutes first.
const MOST_BYTES_A_TOKEN: u64 = 16;

/// What all turns share.
#[derive(Debug)]
pub struct Turns {
    /// From the last byte of the body to the answer.
    time: Duration,
    /// The most text of a reply in bytes.
    reply_cap: u64,
    catalog: Arc<Catalog>,
    classifier: Classifier,
    admissions: Vec<Admission>,
    remembered: Remembered,
    speeds: Speeds,
}

impl Turns {
    /// Gets ready for turns on the servers of the catalog. Of those that `before` had, the permits are taken over: turns that run
    /// there hold theirs, whatever the settings are now.
    pub fn new(settings: &Settings, catalog: Arc<Catalog>, classifier: Classifier, before: Option<&Turns>) -> Self {
        let queue = settings.limits.queue;
        let carried_over = |upstream: &Upstream| {
            let before = before?;
            let same = |known: &Arc<Upstream>| {
                known.settings.name == upstream.settings.name && known.settings.url == upstream.settings.url
            };
            let place = before.catalog.upstreams().iter().position(same)?;
            Some(before.admissions[place].carried_over(queue))
        };
        let admissions = catalog.upstreams().iter();
        let admissions =
            admissions.map(|upstream| carried_over(upstream).unwrap_or_else(|| Admission::new(queue))).collect();
        let (time, reply_cap) = (settings.timeouts.turn, settings.limits.reply);
        Turns {
            time,
            reply_cap,
            catalog,
            classifier,
            admissions,
            remembered: Remembered::default(),
            speeds: Speeds::default(),
        }
    }

    /// Turns that run and turns that wait, over all servers.
    pub fn load(&self) -> (usize, usize) {
        let sum = |count: fn(&Admission) -> usize| self.admissions.iter().map(count).sum();
        (sum(Admission::running), sum(Admission::waiting))
    }

    /// Runs one turn. `received` is when the last byte of the request body was there: the clock starts then. Dropping the future
    /// (the phone hung up) closes the connection to the server and returns the permit.
    ///
    /// # Errors
    /// The failure that the phone is told.
    pub async fn run(
        &self,
        mut conversation: Conversation,
        received: Instant,
        record: &mut TurnRecord,
    ) -> Result<Reply, Failure> {
        let clock = Clock { received, deadline: received + self.time };
        let mut snapshot = self.catalog.after_first_look().await;
        let named = conversation.model.as_deref();
        let with_picture = conversation.has_current_image();
        let tells_of_the_model = |snapshot: &Snapshot| {
            let id = named.or_else(|| snapshot.id_for_nameless(with_picture));
            id.is_some_and(|id| snapshot.tells_of(id))
        };
        if snapshot.loading && !tells_of_the_model(&snapshot) {
            // Which models it has, and what they can see, is known once it has loaded.
            snapshot = self.catalog.after_loading(clock.latest_start(), tells_of_the_model).await;
            if snapshot.loading && !tells_of_the_model(&snapshot) {
                return Err(Failure::overloaded("the model server is still loading"));
            }
        }
        let entry = self.select(&snapshot, named, with_picture)?;
        record.model = Some(entry.id.clone());
        let mut servers = entry.in_order_of_asking().peekable();
        while let Some(candidate) = servers.next() {
            let others = servers.peek().is_some();
            // Mostly there is one server, which needs no copy.
            let conversation = if others { conversation.clone() } else { std::mem::take(&mut conversation) };
            match self.run_on(entry, candidate, conversation, clock, others, record).await {
                // Nothing was sent, so another server that has the model can take the turn.
                Err(Ended::NotReached(_)) if others => {}
                Err(Ended::NotReached(failure) | Ended::Failed(failure)) => return Err(failure),
                Ok(reply) => return Ok(reply),
            }
        }
        Err(Failure::upstream_failure("no model server has this model at the moment"))
    }

    /// Runs a turn on one server; `others` says that there is another one to go to if this one cannot be reached.
    async fn run_on(
        &self,
        entry: &Entry,
        candidate: &Candidate,
        mut conversation: Conversation,
        clock: Clock,
        others: bool,
        record: &mut TurnRecord,
    ) -> Result<Reply, Ended> {
        let upstream = self.catalog.upstream(candidate.upstream);
        record.upstream = Some(upstream.settings.name.clone());
        apply_image_policy(&mut conversation, entry, candidate)?;
        refuse_what_cannot_fit(&conversation, candidate)?;

        let admission = &self.admissions[candidate.upstream];
        admission.resize(candidate.turns_at_once);
        let queued = Instant::now();
        let permit = admission.admit(clock.latest_start(), clock.deadline).await.map_err(|refused| match refused {
            NotAdmitted::QueueFull => Failure::queue_full("all places are taken and the queue is full"),
            NotAdmitted::NoChance => {
                Failure::queue_full("the turns before this one leave it no time, by what turns took lately")
            }
            NotAdmitted::NeverStarted => {
                Failure::queue_full("the turn waited in the queue and could not start in time")
            }
        });
        record.queued += queued.elapsed();
        let permit = HeldPermit::new(permit?, Arc::clone(upstream), candidate.dialect);

        let prompt = Prompt { system_prompt: entry.system_prompt.clone(), conversation };
        let run = Run { turns: self, entry, candidate, upstream, permit, clock, others };
        run.refuse_what_is_counted_too_long(&prompt).await?;
        run.to_the_end(prompt, record).await
    }

    /// The model of a turn: the one that the app named, else the default, or the one for pictures.
    fn select<'a>(
        &self,
        snapshot: &'a Snapshot,
        named: Option<&str>,
        with_picture: bool,
    ) -> Result<&'a Entry, Failure> {
        match (named, snapshot.id_for_nameless(with_picture)) {
            // Nothing at all is known: whether the name is right cannot be told.
            (Some(_), _) if snapshot.entries.is_empty() => {
                Err(Failure::upstream_failure("no model server has given a list of models yet; the log says why"))
            }
            (Some(named), _) => snapshot.find(named).ok_or_else(Failure::model_not_found),
            (None, Some(default)) => snapshot.find(default).ok_or_else(|| {
                warn!(default, "models.default is on no model server; GET /v1/models lists what is there");
                Failure::upstream_failure("the default model is not on the model server")
            }),
            (None, None) => Err(Failure::upstream_failure("no model server answers with a model that can chat")),
        }
    }
}

/// The one clock of a turn.
#[derive(Debug, Clone, Copy)]
struct Clock {
    /// When the last byte of the request body was there.
    received: Instant,
    /// When the phone gets its answer at the latest.
    deadline: Instant,
}

impl Clock {
    /// Until when a turn may wait for its start: shortly before its deadline, so that one that never started says so.
    fn latest_start(self) -> Instant {
        let turn = self.deadline - self.received;
        self.deadline - (turn / 10).min(Duration::from_secs(2))
    }
}

/// How a turn on one server ended without a reply.
enum Ended {
    /// No connection came about, so nothing was sent.
    NotReached(Failure),
    /// Any other way.
    Failed(Failure),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Ended::Failed(failure)
    }
}

/// A picture never vanishes: the current one is refused where it cannot be seen, earlier ones are disclosed.
fn apply_image_policy(conversation: &mut Conversation, entry: &Entry, candidate: &Candidate) -> Result<(), Failure> {
    let sees = matches!(candidate.sight, Sight::Sees(_));
    if let Some(current) = conversation.current()
        && conversation.has_current_image()
    {
        if candidate.sight == Sight::Unknown && !candidate.told {
            return Err(Failure::upstream_failure("the model server has not answered yet"));
        }
        if candidate.sight == Sight::Unknown {
            warn!(
                model = entry.id,
                "a picture was declined: nothing tells whether this model sees pictures; if it does, set images = true \
                 under [models.override.\"{}\"]",
                entry.id
            );
        }
        if !sees {
            return Err(Failure::image_unsupported(match candidate.sight {
                Sight::Unknown => {
                    "nothing tells whether this model sees pictures; the adapter's log says how to change that"
                }
                _ => "this model takes text only",
            }));
        }
        if !current.images().all(|image| candidate.dialect.decodes(image.kind())) {
            return Err(Failure::image_unsupported("the model server cannot decode a picture of this kind"));
        }
    }
    conversation.disclose_historical_images_where(|image| !sees || !candidate.dialect.decodes(image.kind()));
    Ok(())
}

fn refuse_what_cannot_fit(conversation: &Conversation, candidate: &Candidate) -> Result<(), Failure> {
    let most = candidate.context.map(|tokens| tokens.saturating_mul(MOST_BYTES_A_TOKEN));
    match most {
        Some(most) if conversation.text_bytes() as u64 > most => Err(Failure::context_too_long()),
        _ => Ok(()),
    }
}
