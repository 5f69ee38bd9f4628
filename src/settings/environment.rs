//! The part of the environment that is Weir's: the `ADAPTER_…` variables.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;

use figment::value::{Dict, Value};
use secrecy::SecretSlice;

use super::refusal::{Fault, SettingsError};
use super::schema::{self, Shape, Step};

const PREFIX: &str = "ADAPTER_";
const TOKEN: &str = "ADAPTER_TOKEN";

/// The `ADAPTER_…` variables as they stood at one moment. `ADAPTER_TOKEN` is kept apart from the others, as bytes, and
/// never reaches figment, which guesses types and prints values.
#[derive(Clone, Default)]
pub struct Environment {
    token: Option<SecretSlice<u8>>,
    variables: Vec<(String, OsString)>,
}

impl Environment {
    /// The variables of this process, now.
    pub fn from_process() -> Self {
        Self::from_pairs(std::env::vars_os())
    }

    /// The variables among these pairs whose name begins with `ADAPTER_`.
    pub fn from_pairs<I, N, V>(pairs: I) -> Self
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<OsString>,
        V: Into<OsString>,
    {
        let mut environment = Self::default();
        for (name, value) in pairs {
            let name = name.into().to_string_lossy().into_owned();
            if name == TOKEN {
                environment.token = Some(value.into().into_vec().into());
            } else if name.starts_with(PREFIX) {
                environment.variables.push((name, value.into()));
            }
        }
        environment.variables.sort_by(|one, other| one.0.cmp(&other.0));
        environment
    }

    /// Whether `ADAPTER_TOKEN` or `ADAPTER_TOKEN_FILE` says which tokens are let in, so that no token file is needed.
    pub fn names_a_token(&self) -> bool {
        let token_file = schema::variable(&["token_file"]);
        self.token.is_some() || self.variables.iter().any(|(name, _)| *name == token_file)
    }

    /// The names of all variables but `ADAPTER_TOKEN`.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.variables.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The value of `ADAPTER_TOKEN`.
    pub(super) fn token(&self) -> Option<&SecretSlice<u8>> {
        self.token.as_ref()
    }

    /// The variables as one layer of values, each in the form that its key asks for; a value that doesn't fit stays text
    /// and is refused where it is read.
    pub(super) fn values(&self) -> Result<Dict, SettingsError> {
        let mut values = Dict::new();
        for (name, value) in &self.variables {
            let refuse = |found: &str, accepted: String, mend: String| -> SettingsError {
                Fault {
                    place: "environment".to_owned(),
                    key: name.chars().take(120).collect(),
                    found: found.to_owned(),
                    accepted,
                    mend,
                }
                .into()
            };
            let path: Vec<String> = name.trim_start_matches(PREFIX).split("__").map(str::to_ascii_lowercase).collect();
            let key = match schema::look_up(&path) {
                Step::Value(key)
                    if *name == schema::variable(&path) && path.iter().all(|part| !part.is_empty() && part != "*") =>
                {
                    key
                }
                _ => {
                    let advice = schema::advise(&path, false);
                    return Err(refuse("an unknown variable", advice.accepted, advice.mend));
                }
            };
            if matches!(key.shape, Shape::List | Shape::Rows) {
                let written = schema::written(&path);
                return Err(refuse(
                    "a variable for a key that holds a list",
                    "the key in the configuration file".to_owned(),
                    match key.shape {
                        Shape::Rows => format!("Write rows under [[{written}]] there."),
                        _ => format!("Write {written} = [\"…\"] there."),
                    },
                ));
            }
            let Some(text) = value.to_str() else {
                return Err(refuse(
                    "bytes that are not UTF-8",
                    "UTF-8 text".to_owned(),
                    "Set it again as UTF-8.".to_owned(),
                ));
            };
            insert(&mut values, &path, typed(text, key.shape));
        }
        Ok(values)
    }
}

/// Names only: a value may be a secret.
impl fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_set()
            .entries(self.token.iter().map(|_| TOKEN))
            .entries(self.variables.iter().map(|(name, _)| name))
            .finish()
    }
}

fn typed(text: &str, shape: Shape) -> Value {
    match (shape, text) {
        (Shape::Switch, "true") => true.into(),
        (Shape::Switch, "false") => false.into(),
        (Shape::Number | Shape::Size, digits) => match digits.parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) => text.into(),
        },
        (Shape::Decimal, digits) => match digits.parse::<f64>() {
            Ok(number) => number.into(),
            Err(_) => text.into(),
        },
        _ => text.into(),
    }
}

fn insert(values: &mut Dict, path: &[String], value: Value) {
    match path {
        [] => {}
        [last] => {
            values.insert(last.clone(), value);
        }
        [first, rest @ ..] => {
            let inner = values.entry(first.clone()).or_insert_with(|| Dict::new().into());
            if let Value::Dict(_, inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_value_takes_the_form_that_its_key_asks_for() {
        let values = Environment::from_pairs([
            ("ADAPTER_PORT", "9000"),
            ("ADAPTER_MODELS__DEFAULT", "0123"),
            ("ADAPTER_LIMITS__BODY", "64MiB"),
            ("ADAPTER_MODELS__OVERRIDE__QWEN__IMAGES", "true"),
            ("ADAPTER_MODELS__OVERRIDE__QWEN__REASONING", "true"),
            ("ADAPTER_MODELS__OVERRIDE__QWEN__TEMPERATURE", "0.5"),
            ("OTHER", "1"),
        ])
        .values()
        .unwrap();
        let at = |path: &str| Value::from(values.clone()).find(path).unwrap_or_else(|| panic!("{path} is missing"));
        assert_eq!(at("port").to_i128(), Some(9000));
        assert_eq!(at("models.default").as_str(), Some("0123"));
        assert_eq!(at("limits.body").as_str(), Some("64MiB"));
        assert_eq!(at("models.override.qwen.images").to_bool(), Some(true));
        assert_eq!(at("models.override.qwen.reasoning").as_str(), Some("true"));
        assert_eq!(at("models.override.qwen.temperature").to_f64(), Some(0.5));
    }

    #[test]
    fn neither_the_token_nor_a_foreign_variable_is_among_the_values() {
        let environment = Environment::from_pairs([("ADAPTER_TOKEN", "canary"), ("PATH", "canary")]);
        assert!(environment.values().unwrap().is_empty());
        assert!(!format!("{environment:?}").contains("canary"));
    }
}
