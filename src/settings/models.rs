//! The rules for `[models]`.

use std::collections::BTreeMap;

use figment::value::Value;

use super::layers::Layers;
use super::refusal::{Refusal, SettingsError};
use super::{ModelOverride, ModelSettings, Reasoning, schema};

pub(super) fn read(layers: &Layers) -> Result<ModelSettings, SettingsError> {
    let default = layers
        .get(&["models", "default"])
        .map(|found| found.text("the id of a model, as your model server lists it"))
        .transpose()?;
    Ok(ModelSettings { default, expose: expose(layers)?, alias: aliases(layers)?, overrides: overrides(layers)? })
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
                return Err(found.refuse(format!("a list that holds {}", super::value::kind(entry)), accepted, mend));
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
        let context = layers
            .get(&path("context"))
            .map(|found| found.number(1..=u64::from(u32::MAX)))
            .transpose()?
            .and_then(|context| u32::try_from(context).ok());
        let reasoning = layers.require(&path("reasoning"))?.word(&[
            ("default", Reasoning::Default),
            ("off", Reasoning::Off),
            ("low", Reasoning::Low),
            ("medium", Reasoning::Medium),
            ("high", Reasoning::High),
        ])?;
        overrides.insert(name.clone(), ModelOverride { images: sees, context, reasoning });
    }
    Ok(overrides)
}

/// Refuses a name of nothing but white space: no app could choose it.
fn named(layers: &Layers, path: &[&str]) -> Result<(), SettingsError> {
    if path.last().is_some_and(|name| !name.trim().is_empty()) {
        return Ok(());
    }
    Err(Refusal {
        place: layers.place(path),
        key: &schema::written(path),
        found: "an empty name".to_owned(),
        accepted: "the id of a model".to_owned(),
        mend: "Name the model.".to_owned(),
    }
    .into())
}
