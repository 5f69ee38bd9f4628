//! The rules for `[models]`.

use std::collections::BTreeMap;

use figment::value::Value;

use super::layers::Layers;
use super::refusal::{Fault, SettingsError};
use super::value::{Found, kind};
use super::{ModelOverride, ModelSettings, Reasoning, schema};
use crate::contract::Text;

/// The highest temperature that model servers take.
const HIGHEST_TEMPERATURE: f64 = 2.0;

pub(super) fn read(layers: &Layers) -> Result<ModelSettings, SettingsError> {
    let id = |key| {
        let found = layers.get(&["models", key]);
        found.map(|found| found.text("the id of a model, as your model server lists it")).transpose()
    };
    Ok(ModelSettings {
        default: id("default")?,
        pictures: id("pictures")?,
        warm_up: layers.require(&["models", "warm_up"])?.switch()?,
        expose: expose(layers)?,
        alias: aliases(layers)?,
        overrides: overrides(layers)?,
    })
}

fn expose(layers: &Layers) -> Result<Option<Vec<String>>, SettingsError> {
    let Some(found) = layers.get(&["models", "expose"]) else {
        return Ok(None);
    };
    let accepted = "a list of one or more patterns such as [\"qwen3*\", \"llama3.2:3b\"]";
    let mend = "Name what is to be offered, or remove the key to offer all that can chat.";
    let Value::Array(_, entries) = &found.value else {
        return Err(found.refuse(found.shown(), accepted, mend));
    };
    if entries.is_empty() {
        return Err(found.refuse("an empty list", accepted, mend));
    }
    let mut patterns = Vec::new();
    for entry in entries {
        match entry.as_str() {
            Some(pattern) if !pattern.trim().is_empty() => patterns.push(pattern.to_owned()),
            _ => {
                return Err(found.refuse(format!("a list that holds {}", kind(entry)), accepted, mend));
            }
        }
    }
    Ok(Some(patterns))
}

fn aliases(layers: &Layers) -> Result<BTreeMap<String, String>, SettingsError> {
    let table = ["models", "alias"];
    let names = layers.names(&table);
    let mut aliases = BTreeMap::new();
    for name in &names {
        let path = ["models", "alias", name];
        named(layers, &path)?;
        let found = layers.require(&path)?;
        let target = found.text("the id of a model, as your model server lists it")?;
        if target == *name {
            return Err(found.refuse(
                "an alias for itself",
                "the id of a model, as your model server lists it",
                "Name the model, or remove the alias.",
            ));
        }
        if names.contains(&target) {
            return Err(found.refuse(
                format!("{target:?}, which is an alias too"),
                "the id of a model, as your model server lists it",
                "Let each alias name the model itself.",
            ));
        }
        aliases.insert(name.clone(), target);
    }
    Ok(aliases)
}

fn overrides(layers: &Layers) -> Result<BTreeMap<String, ModelOverride>, SettingsError> {
    let mut overrides = BTreeMap::new();
    for name in layers.names(&["models", "override"]) {
        let path = |key| ["models", "override", name.as_str(), key];
        named(layers, &["models", "override", &name])?;
        let images = layers.require(&path("images"))?;
        let sees = match (images.value.to_bool(), images.value.as_str()) {
            (Some(sees), _) => Some(sees),
            (None, Some("auto")) => None,
            _ => {
                return Err(images.refuse(
                    images.shown(),
                    "\"auto\", true or false",
                    "Write true for a model that sees pictures, false for one that doesn't.",
                ));
            }
        };
        let tokens = |key| -> Result<_, SettingsError> {
            let number = layers.get(&path(key)).map(|found| found.number(1..=u64::from(u32::MAX))).transpose()?;
            Ok(number.and_then(|tokens| u32::try_from(tokens).ok()))
        };
        let reasoning = layers.require(&path("reasoning"))?.word(&[
            ("default", Reasoning::Default),
            ("off", Reasoning::Off),
            ("low", Reasoning::Low),
            ("medium", Reasoning::Medium),
            ("high", Reasoning::High),
        ])?;
        let temperature = layers.get(&path("temperature"));
        let word = ModelOverride {
            images: sees,
            context: tokens("context")?,
            reasoning,
            temperature: temperature.map(|found| found.decimal(0.0..=HIGHEST_TEMPERATURE)).transpose()?,
            longest_answer: tokens("longest_answer")?,
            system_prompt: layers.get(&path("system_prompt")).map(|found| system_prompt(&found)).transpose()?,
        };
        overrides.insert(name.clone(), word);
    }
    Ok(overrides)
}

/// It is content, so no message shows what was found.
fn system_prompt(found: &Found) -> Result<Text, SettingsError> {
    match found.value.as_str() {
        Some(text) if !text.trim().is_empty() => Ok(Text::new(text)),
        _ => Err(found.refuse(
            kind(&found.value),
            "a text in quotes that isn't empty",
            "Write what the model is to be told, in three quotes if it has several lines, or remove the key.",
        )),
    }
}

/// Refuses a name of nothing but white space: no app could choose it.
fn named(layers: &Layers, path: &[&str]) -> Result<(), SettingsError> {
    if path.last().is_some_and(|name| !name.trim().is_empty()) {
        return Ok(());
    }
    Err(Fault {
        place: layers.place(path),
        key: schema::written(path),
        found: "an empty name".to_owned(),
        accepted: "the id of a model".to_owned(),
        mend: "Name the model.".to_owned(),
    }
    .into())
}
