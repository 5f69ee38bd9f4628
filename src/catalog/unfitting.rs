//! Names in the settings that are those of no model that is served, or of one that is no use there.

use wildmatch::WildMatch;

use super::snapshot::{Entry, Snapshot, without_latest};
use crate::settings::{Fault, ModelSettings, Places};
use crate::upstream::dialect::{Dialect, Sight};

/// How many ids a message lists at the most.
const MOST_LISTED: usize = 5;

/// How alike two names must be, from 0 to 1, for one to be a slip of the other.
const LIKE_A_SLIP: f64 = 0.7;

/// What is to be said of the names in the settings, where servers have told what they have.
pub fn unfitting(snapshot: &Snapshot, settings: &ModelSettings, places: &Places) -> Vec<Fault> {
    let said = Saying { snapshot, places };
    let mut faults = Vec::new();
    for (key, id) in [("default", &settings.default), ("pictures", &settings.pictures)] {
        faults.extend(id.as_deref().and_then(|id| said.of_no_model(&["models", key], id, id)));
    }
    for (alias, target) in &settings.alias {
        faults.extend(said.of_no_model(&["models", "alias", alias], alias, target));
    }
    for id in settings.overrides.keys().filter(|id| !settings.alias.values().any(|target| target == *id)) {
        faults.extend(said.of_no_model(&["models", "override", id], id, id));
    }
    faults.extend(settings.expose.iter().flatten().filter_map(|pattern| said.of_no_use_as_a_pattern(pattern)));
    faults.extend(settings.pictures.as_deref().and_then(|id| said.of_no_use_for_pictures(id)));
    faults
}

struct Saying<'a> {
    snapshot: &'a Snapshot,
    places: &'a Places,
}

impl Saying<'_> {
    /// Unless `id` is served: that the key at `path` names `model`, which no server has.
    fn of_no_model(&self, path: &[&str], id: &str, model: &str) -> Option<Fault> {
        if self.snapshot.find(id).is_some() {
            return None;
        }
        let ids = || self.snapshot.entries.iter().map(|entry| entry.id.as_str());
        let likeness = |id: &str| strsim::normalized_damerau_levenshtein(id, model);
        let nearest = ids().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
        let nearest = nearest.filter(|id| likeness(id) >= LIKE_A_SLIP);
        let is_ollama = |entry: &Entry| entry.candidates.iter().any(|candidate| candidate.dialect == Dialect::Ollama);
        let can_pull = self.snapshot.entries.iter().any(is_ollama);
        let mend = match (nearest, can_pull) {
            (Some(nearest), true) => format!("Did you mean {nearest:?}? Otherwise run ollama pull {model}"),
            (Some(nearest), false) => format!("Did you mean {nearest:?}?"),
            (None, true) => format!("Name one of these, or run ollama pull {model}"),
            (None, false) => "Name one of these, or have a server load that model.".to_owned(),
        };
        let mut listed: Vec<String> = ids().take(MOST_LISTED).map(|id| format!("{id:?}")).collect();
        if self.snapshot.entries.len() > MOST_LISTED {
            listed.push("…".to_owned());
        }
        let accepted =
            if listed.is_empty() { "the id of a model that a server lists".to_owned() } else { listed.join(", ") };
        Some(self.places.fault(path, format!("{model:?}, which is none of the models here"), accepted, mend))
    }

    fn of_no_use_as_a_pattern(&self, pattern: &str) -> Option<Fault> {
        let fits = |entry: &Entry| {
            let bare = without_latest(&entry.id).unwrap_or(&entry.id);
            WildMatch::new(pattern).matches(&entry.id) || WildMatch::new(pattern).matches(bare)
        };
        (!self.snapshot.entries.iter().any(fits)).then(|| {
            self.places.fault(
                &["models", "expose"],
                format!("{pattern:?}, which fits no model"),
                "the id of a model, or a part of it and * for the rest".to_owned(),
                "Correct it, or remove the key: then all that can chat are offered, and weir check lists them."
                    .to_owned(),
            )
        })
    }

    /// Why the model that pictures are to go to does not get any.
    fn of_no_use_for_pictures(&self, id: &str) -> Option<Fault> {
        let candidate = self.snapshot.find(id)?.candidate().filter(|candidate| candidate.told)?;
        let (found, mend) = match candidate.sight {
            Sight::Sees(_) => return None,
            Sight::Blind(how) => (
                format!("{id:?}, which takes text only (from {how})"),
                "Name one that sees, or remove the key.".to_owned(),
            ),
            Sight::Unknown => (
                format!("{id:?}, of which nothing tells whether it sees, so it gets no pictures"),
                format!("If it sees, set images = true under [models.override.{id:?}]."),
            ),
        };
        Some(self.places.fault(&["models", "pictures"], found, "a model that sees pictures".to_owned(), mend))
    }
}
