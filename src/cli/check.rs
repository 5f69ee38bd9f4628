//! `weir check`: is the configuration sound, do the model servers answer, what is effective?

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;

use super::screen::{BAD, CAUTION, GOOD, STRONG, say, tell};
use super::unreachable::{Surroundings, fault_of};
use super::{CommandError, classifier, report, settings_or_search};
use crate::catalog::snapshot::{Candidate, Entry, turns_in};
use crate::catalog::{Catalog, OLLAMA_BEHIND_V1, unfitting};
use crate::contract::{Conversation, Failure};
use crate::observe::TurnRecord;
use crate::settings::{Fault, Reasoning, Settings};
use crate::turn::Turns;
use crate::upstream::classify::Classifier;
use crate::upstream::dialect::{Discovery, DiscoveryError, Sight, probe_image};

/// Prints what is effective; `probe_images` also shows a picture to each model of unknown sight.
pub(super) async fn run(config: Option<&Path>, probe_images: bool) -> Result<(), CommandError> {
    let settings = settings_or_search(config).await?;
    let classifier = classifier(&settings)?;
    for line in report::effective(&settings) {
        say("", 2, &line);
    }
    for warning in &settings.warnings {
        say_warning(&warning.to_string());
    }
    let catalog = Catalog::new(&settings).map_err(|error| CommandError::Configuration(error.to_string()))?;
    let here = Surroundings::here();
    let mut silent = Vec::new();
    for (place, upstream) in catalog.upstreams().iter().enumerate() {
        let found = catalog.look(place).await;
        let name = &upstream.settings.name;
        tell!("");
        say("", 2, &format!("{STRONG}upstream {name}{STRONG:#} ({}): {}", upstream.settings.url, describe(&found)));
        match &found {
            Ok(discovery) => {
                if discovery.is_ollama_behind_v1() {
                    say_warning(&format!("only part of it can be used{OLLAMA_BEHIND_V1}"));
                }
                if !discovery.left_out.is_empty() {
                    let left_out = discovery.left_out.join(", ");
                    say("  ", 4, &format!("not served, since they only embed or run elsewhere: {left_out}"));
                }
            }
            Err(error) => {
                let fault = fault_of(&upstream.settings, error, &settings.places, &here);
                say(&format!("{BAD}fault{BAD:#}: "), 2, &fault.to_string());
                silent.push(name.as_str());
            }
        }
    }
    let snapshot = catalog.now();
    if !snapshot.entries.is_empty() {
        tell!("\n{STRONG}models{STRONG:#}, the default first");
    }
    for entry in &snapshot.entries {
        tell!("  {STRONG}{}{STRONG:#}", entry.id);
        for candidate in &entry.candidates {
            if catalog.upstreams().len() > 1 {
                tell!("    on {}", catalog.upstream(candidate.upstream).settings.name);
            }
            describe_model(entry, candidate, snapshot.takes_pictures_of(entry));
        }
    }
    let is_of_default = |fault: &Fault| fault.key == "models.default";
    let unfitting = unfitting(&snapshot, &settings.models, &settings.places);
    let (without_default, others): (Vec<_>, Vec<_>) = unfitting.into_iter().partition(is_of_default);
    for fault in others {
        say_warning(&fault.to_string());
    }
    if snapshot.entries.is_empty() {
        return not_well("no model can be served".to_owned());
    }
    if !silent.is_empty() {
        return not_well(format!("no answer from upstream {}", silent.join(", ")));
    }
    if let Some(fault) = without_default.first() {
        return not_well(fault.to_string());
    }
    if probe_images {
        let unknown = |entry: &&Entry| entry.candidate().is_some_and(|candidate| candidate.sight == Sight::Unknown);
        for entry in snapshot.entries.iter().filter(unknown) {
            probe(&settings, &classifier, &entry.id).await?;
        }
    }
    tell!("\n{GOOD}all is well{GOOD:#}");
    Ok(())
}

/// The verdict where not all is well, with an empty line before it as the other has.
fn not_well(why: String) -> Result<(), CommandError> {
    tell!("");
    Err(CommandError::Failed(why))
}

fn say_warning(text: &str) {
    say(&format!("{CAUTION}warning{CAUTION:#}: "), 2, text);
}

fn describe(found: &Result<Discovery, DiscoveryError>) -> String {
    match found {
        Ok(discovery) => {
            let slots = discovery.slots.map(|slots| format!(", {slots} turn(s) at once")).unwrap_or_default();
            format!("{}, spoken to as {}{slots}", report::server(discovery), discovery.dialect.describe())
        }
        Err(_) => "no list of models".to_owned(),
    }
}

fn describe_model(entry: &Entry, candidate: &Candidate, another: Option<&str>) {
    let sight = match (candidate.sight, another) {
        (Sight::Sees(how), _) => format!("yes (from {how})"),
        (Sight::Blind(how), None) => format!("no (from {how})"),
        (Sight::Blind(how), Some(id)) => format!("no (from {how}); {id} gets them where the app names no model"),
        (Sight::Unknown, None) => "unknown, so declined; `weir check --probe-images` tries one".to_owned(),
        (Sight::Unknown, Some(id)) => {
            format!("{id} gets them where the app names no model; where it names this one, unknown, so declined")
        }
    };
    say("    ", 6, &format!("pictures: {sight}"));
    match candidate.context {
        Some(tokens) => tell!("    context: {tokens} tokens, about {} turn(s)", turns_in(tokens)),
        None => tell!("    context: unknown until the server refuses or loads it"),
    }
    let reasons = candidate.reasons.map_or("unknown", |reasons| if reasons { "yes" } else { "no" });
    tell!("    reasoning: {reasons}; set to {}", describe_reasoning(entry.reasoning));
    if let Some(answers) = describe_answers(entry) {
        say("    ", 6, &format!("answers: {answers}"));
    }
    tell!("    turns at once: {}", candidate.turns_at_once);
}

/// What the settings say of its answers, if anything; of a system prompt only how long it is.
fn describe_answers(entry: &Entry) -> Option<String> {
    let temperature = entry.temperature.map(|temperature| format!("temperature {temperature}"));
    let longest = entry.longest_answer.map(|tokens| format!("at most {tokens} tokens"));
    let told = entry.system_prompt.as_ref().map(|text| format!("after a system prompt of {} bytes", text.len()));
    let said: Vec<String> = [temperature, longest, told].into_iter().flatten().collect();
    (!said.is_empty()).then(|| said.join(", "))
}

fn describe_reasoning(reasoning: Reasoning) -> &'static str {
    match reasoning {
        Reasoning::Default => "the model's own default",
        Reasoning::Off => "off",
        Reasoning::Low => "low",
        Reasoning::Medium => "medium",
        Reasoning::High => "high",
    }
}

/// Shows one picture of one colour to a model, as a real turn, and says which key to add.
async fn probe(settings: &Settings, classifier: &Classifier, id: &str) -> Result<(), CommandError> {
    let mut settings = settings.clone();
    settings.models.overrides.entry(id.to_owned()).or_default().images = Some(true);
    let catalog = Catalog::new(&settings).map_err(|error| CommandError::Configuration(error.to_string()))?;
    let catalog = Arc::new(catalog);
    for place in 0..catalog.upstreams().len() {
        // It answered a moment ago; if it does not now, the turn says so.
        let _ = catalog.look(place).await;
    }
    let turns = Turns::new(&settings, catalog, classifier.clone(), None);
    let question = "What colour is this picture? Answer with one word.";
    let image = json!({"type": "image_url", "image_url": {"url": probe_image::DATA_URI}});
    let content = json!([{"type": "text", "text": question}, image]);
    let body = json!({"model": id, "messages": [{"role": "user", "content": content}]}).to_string();
    let now = Instant::now();
    let mut record = TurnRecord::new(now, body.len() as u64, Arc::default());
    let result: Result<_, Failure> = async {
        let conversation = Conversation::parse(&Bytes::from(body), None)?;
        turns.run(conversation, now, &mut record).await
    }
    .await;
    record.finish(result.as_ref().err());
    let key = format!("[models.override.{id:?}]\nimages =");
    match result {
        Ok(reply) if reply.content.to_lowercase().contains(probe_image::COLOUR) => {
            tell!("\n{id} saw the colour of a picture. Add to the configuration:\n{key} true");
        }
        Ok(_) => tell!(
            "\n{id} answered, but did not name the colour of a picture, so it may not have seen it. Unless you know better, add \
             to the configuration:\n{key} false"
        ),
        Err(failure) => {
            tell!("\n{id} did not take a picture ({}). Add to the configuration:\n{key} false", failure.message)
        }
    }
    Ok(())
}
