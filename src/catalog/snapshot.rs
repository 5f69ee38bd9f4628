//! What Weir serves at one moment: the models of all servers in one list, by the ids that it advertises.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use bytes::Bytes;
use wildmatch::WildMatch;

use crate::contract::Text;
use crate::contract::models::{self, ListedModel};
use crate::observe::status::ModelStatus;
use crate::settings::{ModelOverride, ModelSettings, Reasoning};
use crate::upstream::dialect::{Dialect, Discovery, ModelFacts, Sight};

/// What is known of one server.
#[derive(Debug, Clone, Default)]
pub struct ServerState {
    /// What it told when it last answered.
    pub discovery: Option<Discovery>,
    /// Whether it answered when it was last asked.
    pub up: bool,
    /// Whether it said then that it is still loading.
    pub loading: bool,
    /// How it is spoken to until it has told what it is.
    pub assumed: Dialect,
    /// The context that the settings want on it, in tokens.
    pub context: Option<u32>,
    /// How many turns the settings let run on it at once.
    pub concurrency: Option<NonZeroU32>,
}

/// One server that has a model.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The place of the server in the settings.
    pub upstream: usize,
    /// Whether it answered when it was last asked.
    pub up: bool,
    /// How it is spoken to.
    pub dialect: Dialect,
    /// How many turns run on it at once: as the settings say, else as it tells, else as such a server does.
    pub turns_at_once: usize,
    /// Whether a name without a tag means the same as with `:latest` there.
    pub tagged: bool,
    /// The name under which it knows the model.
    pub name: String,
    /// What the model can see there, after the user's own word on it.
    pub sight: Sight,
    /// How many tokens a conversation may have, if that is known.
    pub context: Option<u64>,
    /// The context that Ollama is asked for, if the settings want one.
    pub context_to_ask_for: Option<u64>,
    /// Whether the model reasons, if that is known.
    pub reasons: Option<bool>,
    /// What a token of context costs in memory, in bytes, if that can be told.
    pub cache_bytes_a_token: Option<u64>,
    /// Whether the server has told of it; else it is only named in the settings.
    pub told: bool,
    /// Which server and model this is, as far as they tell: what was learned of one is forgotten when this changes.
    pub identity: String,
}

/// One advertised model.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The id that a request names.
    pub id: String,
    /// How much it shall reason.
    pub reasoning: Reasoning,
    /// How freely it shall choose its words, if the settings say.
    pub temperature: Option<f64>,
    /// The most tokens that an answer shall have, if the settings say.
    pub longest_answer: Option<u64>,
    /// What it is told before every conversation, if the settings say.
    pub system_prompt: Option<Text>,
    /// The servers that have it, in the order of the settings; never empty.
    pub candidates: Vec<Candidate>,
}

/// About how many turns of a chat fit into a context: a message with its answer takes some 400 tokens.
pub fn turns_in(context: u64) -> u64 {
    context / 400
}

impl Entry {
    /// The servers that have it: those that answered when last asked, then the others.
    pub fn in_order_of_asking(&self) -> impl Iterator<Item = &Candidate> {
        let up = self.candidates.iter().filter(|candidate| candidate.up);
        up.chain(self.candidates.iter().filter(|candidate| !candidate.up))
    }

    /// The server that gets the next turn.
    pub fn candidate(&self) -> Option<&Candidate> {
        self.in_order_of_asking().next()
    }
}

/// The catalog at one moment. The default model comes first.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// What is served.
    pub entries: Vec<Entry>,
    /// The id that a request without one gets. It may be the id of nothing: a default that its server does not have.
    pub default: Option<String>,
    /// The id that a request without one and with a picture gets where the default does not see; it may be the id of nothing, too.
    pub pictures: Option<String>,
    /// The body of `GET /v1/models`.
    pub list: Bytes,
    /// Whether every server was asked at least once, whatever came of it.
    pub looked: bool,
    /// Whether a server said when it was last asked that it is still loading.
    pub loading: bool,
}

impl Snapshot {
    /// Puts together what the servers told and what the settings say.
    pub fn new(settings: &ModelSettings, states: &[ServerState], looked: bool) -> Self {
        let mut entries: Vec<Entry> = Vec::new();
        let known: Vec<Vec<ModelFacts>> = states.iter().map(|state| known_models(settings, states, state)).collect();
        for (upstream, (state, models)) in states.iter().zip(&known).enumerate() {
            // An alias is the user's own word: it hides a model of the same name.
            let models = models.iter().filter(|facts| !settings.alias.contains_key(&facts.id));
            for facts in models.filter(|facts| is_exposed(settings, state, &facts.id)) {
                add(&mut entries, settings, &facts.id, upstream, state, facts);
            }
        }
        for (alias, target) in &settings.alias {
            for (upstream, (state, models)) in states.iter().zip(&known).enumerate() {
                if let Some(facts) = models.iter().find(|facts| is_same(state, &facts.id, target)) {
                    add(&mut entries, settings, alias, upstream, state, facts);
                }
            }
        }
        let loading = states.iter().any(|state| state.loading);
        let default = settings.default.clone().or_else(|| entries.first().map(|entry| entry.id.clone()));
        let pictures = settings.pictures.clone();
        let mut snapshot = Snapshot { entries, default, pictures, list: Bytes::new(), looked, loading };
        if let Some(at) = snapshot.default.as_deref().and_then(|default| snapshot.position(default)) {
            snapshot.entries[..=at].rotate_right(1);
        }
        snapshot.list = Bytes::from(models::to_json(&snapshot.listed()));
        snapshot
    }

    fn listed(&self) -> Vec<ListedModel> {
        let listed = |entry: &Entry| ListedModel {
            id: entry.id.clone(),
            images: entry.candidate().and_then(|candidate| candidate.sight.announced()),
        };
        self.entries.iter().map(listed).collect()
    }

    /// The advertised models and what is known of them, in words for a person.
    pub fn model_statuses(&self) -> Vec<ModelStatus> {
        let status = |entry: &Entry| {
            let candidate = entry.candidate();
            ModelStatus {
                id: entry.id.clone(),
                default: self.default.as_ref() == Some(&entry.id),
                images: candidate.and_then(|candidate| match candidate.sight {
                    Sight::Sees(_) => Some(true),
                    Sight::Blind(_) => Some(false),
                    Sight::Unknown => None,
                }),
                pictures_go_to: self.takes_pictures_of(entry).map(str::to_owned),
                context: candidate.and_then(|candidate| candidate.context),
            }
        };
        self.entries.iter().map(status).collect()
    }

    /// The id of the model for a request that names none; `with_picture` if its current turn has one. A default that does not see,
    /// or is not known to, gives a picture to the model that the settings name for that.
    pub fn id_for_nameless(&self, with_picture: bool) -> Option<&str> {
        let default = self.default.as_deref();
        let blind = |entry: &Entry| {
            entry.candidate().is_some_and(|candidate| candidate.told && !matches!(candidate.sight, Sight::Sees(_)))
        };
        let gives_it_away = with_picture && default.and_then(|id| self.find(id)).is_some_and(blind);
        let pictures = self.pictures.as_deref().filter(|id| gives_it_away && self.find(id).is_some());
        pictures.or(default)
    }

    /// The model that sees and gets the pictures of this one where the app names no model, if there is one.
    pub fn takes_pictures_of(&self, entry: &Entry) -> Option<&str> {
        let sees = |id: &&str| {
            let candidate = self.find(id).and_then(Entry::candidate);
            candidate.is_some_and(|candidate| matches!(candidate.sight, Sight::Sees(_)))
        };
        let is_default = self.default.as_ref() == Some(&entry.id);
        self.id_for_nameless(true).filter(|id| is_default && *id != entry.id).filter(sees)
    }

    /// Whether a server has told of the model of this id.
    pub fn tells_of(&self, id: &str) -> bool {
        self.find(id).and_then(Entry::candidate).is_some_and(|candidate| candidate.told)
    }

    /// The entry that a request means by `id`, byte for byte. One equivalence: on an Ollama server a name without a tag means
    /// the same as with `:latest`, which is Ollama's own rule.
    pub fn find(&self, id: &str) -> Option<&Entry> {
        self.position(id).map(|at| &self.entries[at])
    }

    fn position(&self, id: &str) -> Option<usize> {
        let exact = self.entries.iter().position(|entry| entry.id == id);
        exact.or_else(|| {
            self.entries.iter().position(|entry| {
                entry.candidates.iter().any(|candidate| candidate.tagged) && is_same_tagged(&entry.id, id)
            })
        })
    }
}

/// The models of a server; of one that has not answered yet, those that the settings name and no other server has.
fn known_models(settings: &ModelSettings, states: &[ServerState], state: &ServerState) -> Vec<ModelFacts> {
    if let Some(discovery) = &state.discovery {
        return discovery.models.clone();
    }
    let literal = |glob: &&String| !glob.contains(['*', '?']);
    let chosen = settings.default.iter().chain(&settings.pictures).filter(|id| !settings.alias.contains_key(*id));
    let named = chosen
        .chain(settings.alias.values())
        .chain(settings.expose.iter().flatten().filter(literal))
        .chain(settings.overrides.keys().filter(|name| !settings.alias.contains_key(*name)));
    let mut seen = BTreeSet::new();
    named
        .filter(|name| seen.insert(name.as_str()) && !states.iter().any(|other| has(other, name)))
        .map(|name| ModelFacts { name: name.clone(), id: name.clone(), ..ModelFacts::default() })
        .collect()
}

/// Whether a server told that it has a model.
fn has(state: &ServerState, name: &str) -> bool {
    state.discovery.iter().flat_map(|discovery| &discovery.models).any(|facts| is_same(state, &facts.id, name))
}

/// What `models.expose` lets through; the default and the model for pictures are served in any case.
fn is_exposed(settings: &ModelSettings, state: &ServerState, id: &str) -> bool {
    let Some(globs) = &settings.expose else { return true };
    let bare = without_latest(id).filter(|_| is_tagged(state));
    let fits = |glob: &String| [Some(id), bare].into_iter().flatten().any(|name| WildMatch::new(glob).matches(name));
    let mut chosen = settings.default.iter().chain(&settings.pictures);
    chosen.any(|chosen| is_same(state, id, chosen)) || globs.iter().any(fits)
}

/// What the settings say of a model, under its alias or its own name.
fn override_of<'a>(
    settings: &'a ModelSettings,
    state: &ServerState,
    id: &str,
    facts: &ModelFacts,
) -> Option<&'a ModelOverride> {
    let overrides = &settings.overrides;
    let same = || overrides.iter().find(|(name, _)| is_same(state, &facts.id, name)).map(|(_, word)| word);
    overrides.get(id).or_else(|| overrides.get(&facts.id)).or_else(same)
}

fn is_tagged(state: &ServerState) -> bool {
    state.discovery.as_ref().is_some_and(|discovery| discovery.tagged)
}

fn is_same(state: &ServerState, id: &str, wanted: &str) -> bool {
    id == wanted || (is_tagged(state) && is_same_tagged(id, wanted))
}

/// Whether two names of an Ollama server differ only in that one leaves `:latest` out.
fn is_same_tagged(one: &str, other: &str) -> bool {
    without_latest(one) == Some(other) || without_latest(other) == Some(one)
}

/// The name without its tag, if that is `:latest`. What is left has no tag then: a colon before the last `/` is that of a port.
pub(super) fn without_latest(name: &str) -> Option<&str> {
    let bare = name.strip_suffix(":latest")?;
    let last = bare.rsplit('/').next().unwrap_or(bare);
    (!last.contains(':')).then_some(bare)
}

fn add(
    entries: &mut Vec<Entry>,
    settings: &ModelSettings,
    id: &str,
    upstream: usize,
    state: &ServerState,
    facts: &ModelFacts,
) {
    let word = override_of(settings, state, id, facts);
    let dialect = state.discovery.as_ref().map_or(state.assumed, |discovery| discovery.dialect);
    let told = state.discovery.as_ref().and_then(|discovery| discovery.slots).filter(|slots| *slots > 0);
    let turns = state.concurrency.map(NonZeroU32::get).or(told).map(|turns| turns as usize);
    let wanted = word.and_then(|word| word.context).or(state.context).map(u64::from);
    let asked = wanted.map(|wanted| facts.trained_context.map_or(wanted, |trained| wanted.min(trained)));
    let version = state.discovery.as_ref().and_then(|discovery| discovery.version.as_deref());
    let candidate = Candidate {
        upstream,
        up: state.up,
        dialect,
        turns_at_once: turns.unwrap_or_else(|| dialect.turns_at_once()),
        tagged: state.discovery.as_ref().is_some_and(|discovery| discovery.tagged),
        name: facts.name.clone(),
        sight: overridden_sight(word, facts.sight),
        context: asked.or(facts.context),
        context_to_ask_for: asked,
        reasons: facts.reasons,
        cache_bytes_a_token: facts.cache_bytes_a_token,
        told: state.discovery.is_some(),
        identity: format!("{version:?} {:?}", facts.digest),
    };
    match entries.iter_mut().find(|entry| entry.id == id) {
        // One server listing an id twice is one model; another server that has it, too, is another place to ask.
        Some(entry) if entry.candidates.iter().any(|known| known.upstream == upstream) => {}
        Some(entry) => entry.candidates.push(candidate),
        None => {
            let word = word.cloned().unwrap_or_default();
            entries.push(Entry {
                id: id.to_owned(),
                reasoning: word.reasoning,
                temperature: word.temperature,
                longest_answer: word.longest_answer.map(u64::from),
                system_prompt: word.system_prompt,
                candidates: vec![candidate],
            });
        }
    }
}

fn overridden_sight(word: Option<&ModelOverride>, told: Sight) -> Sight {
    match word.and_then(|word| word.images) {
        Some(sees) => Sight::known(sees, "models.override in the configuration"),
        None => told,
    }
}
