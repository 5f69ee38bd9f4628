//! The three layers (defaults, file, environment) over each other, read key by key.

use std::path::{Path, PathBuf};

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::environment::Environment;
use super::file::File;
use super::places::Places;
use super::refusal::SettingsError;
use super::schema;
use super::source::Source;
use super::value::Found;

/// Every default, as the binary carries it.
pub(super) const DEFAULTS: &str = include_str!("../../config/defaults.toml");

const FROM_DEFAULTS: &str = "defaults";
const FROM_FILE: &str = "file";
const FROM_ENVIRONMENT: &str = "environment";

/// The layers, laid over each other.
pub(super) struct Layers {
    figment: Figment,
    values: Dict,
    places: Places,
}

/// One layer under a name by which its values are known again.
struct Layer {
    name: &'static str,
    values: Map<Profile, Dict>,
}

impl Layer {
    /// The text is TOML already; what figment would say about it is not passed on, since it quotes the text.
    fn from_toml(name: &'static str, text: &str) -> Result<Self, SettingsError> {
        let values = Toml::string(text)
            .data()
            .map_err(|_| SettingsError::Refused(format!("the {name} could not be read as TOML")))?;
        Ok(Self { name, values })
    }
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(self.values.clone())
    }
}

impl Layers {
    /// Reads the layers; the file's syntax and all names of keys and variables are checked here, no value yet.
    pub(super) fn read(source: &Source, environment: &Environment) -> Result<Self, SettingsError> {
        let file = match source {
            Source::File(path) => Some(File::read(path)?),
            Source::Nothing => None,
        };
        let mut figment = Figment::from(Layer::from_toml(FROM_DEFAULTS, DEFAULTS)?);
        if let Some(file) = &file {
            figment = figment.merge(Layer::from_toml(FROM_FILE, &file.text)?);
        }
        figment =
            figment.merge(Layer { name: FROM_ENVIRONMENT, values: Profile::Default.collect(environment.values()?) });
        let mut values = Dict::new();
        for top in schema::KEYS.iter().filter_map(|key| key.path.first()) {
            if let Ok(value) = figment.find_value(top) {
                values.insert((*top).to_owned(), value);
            }
        }
        let mut places = file.map(|file| file.places).unwrap_or_default();
        places.variables = environment.names();
        Ok(Self { figment, values, places })
    }

    /// The value of a key, or of the defaults' table `*` in the place of a name.
    pub(super) fn get(&self, path: &[&str]) -> Option<Found> {
        let value = self.value(path).or_else(|| {
            let (last, table) = path.split_last()?;
            let (_, parents) = table.split_last()?;
            let fallback: Vec<&str> = parents.iter().copied().chain(["*", last]).collect();
            self.value(&fallback)
        })?;
        let layer = self.figment.get_metadata(value.tag()).map_or("", |metadata| metadata.name.as_ref());
        let (place, folder) = match (layer, &self.places.file) {
            (FROM_ENVIRONMENT, _) => (self.place(path), PathBuf::new()),
            (FROM_FILE, Some(file)) => (self.place(path), file.parent().map_or_else(PathBuf::new, Path::to_owned)),
            _ => (FROM_DEFAULTS.to_owned(), PathBuf::new()),
        };
        Some(Found {
            value: value.clone(),
            key: schema::written(path),
            place,
            folder,
            is_default: layer == FROM_DEFAULTS,
            variable: (layer == FROM_ENVIRONMENT).then(|| schema::variable(path)),
        })
    }

    /// The value of a key that the defaults always have.
    pub(super) fn require(&self, path: &[&str]) -> Result<Found, SettingsError> {
        self.get(path).ok_or_else(|| {
            SettingsError::Refused(format!(
                "config/defaults.toml: {} is missing; this is a fault of Weir itself",
                schema::written(path)
            ))
        })
    }

    /// The names that stand in a table, in their order.
    pub(super) fn names(&self, table: &[&str]) -> Vec<String> {
        match self.value(table) {
            Some(Value::Dict(_, entries)) => entries.keys().filter(|name| *name != "*").cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// Where this key stands, or would have to.
    pub(super) fn place(&self, path: &[&str]) -> String {
        self.places.of(path)
    }

    /// Where each key stands.
    pub(super) fn places(&self) -> Places {
        self.places.clone()
    }

    fn value(&self, path: &[&str]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        let mut value = self.values.get(*first)?;
        for part in rest {
            let Value::Dict(_, inner) = value else {
                return None;
            };
            value = inner.get(*part)?;
        }
        Some(value)
    }
}
