//! One value: read as what its key asks for, or refused.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use figment::value::Value;

use super::refusal::{Fault, SettingsError};

/// A value, and where it was found.
pub(super) struct Found {
    pub(super) value: Value,
    /// The key as a person writes it.
    pub(super) key: String,
    /// The file and line, or the variable.
    pub(super) place: String,
    /// What a relative path counts from; empty for the working folder.
    pub(super) folder: PathBuf,
    /// Whether nobody set it.
    pub(super) is_default: bool,
    /// The variable that set it, if one did.
    pub(super) variable: Option<String>,
}

impl Found {
    /// The refusal of this value.
    pub(super) fn refuse(
        &self,
        found: impl Into<String>,
        accepted: impl Into<String>,
        mend: impl Into<String>,
    ) -> SettingsError {
        Fault {
            place: self.place.clone(),
            key: self.key.clone(),
            found: found.into(),
            accepted: accepted.into(),
            mend: mend.into(),
        }
        .into()
    }

    /// How to set this key to such a value, in the file or in the environment.
    fn set_to(&self, value: &str) -> String {
        match &self.variable {
            Some(variable) => format!("Set {variable}={}.", value.trim_matches('"')),
            None => format!("Write {} = {value}.", self.key),
        }
    }

    /// A whole number in this range.
    pub(super) fn number(&self, range: RangeInclusive<u64>) -> Result<u64, SettingsError> {
        self.whole().and_then(|number| u64::try_from(number).ok()).filter(|number| range.contains(number)).ok_or_else(
            || {
                self.refuse(
                    self.shown(),
                    format!("a whole number from {} to {}", range.start(), range.end()),
                    self.set_to("N (a number without quotes)"),
                )
            },
        )
    }

    /// A number in this range that may have a fraction.
    pub(super) fn decimal(&self, range: RangeInclusive<f64>) -> Result<f64, SettingsError> {
        let number = self.whole().map(|number| number as f64).or_else(|| self.value.to_f64());
        // What is no number at all (nan) is in no range.
        number.filter(|number| range.contains(number)).ok_or_else(|| {
            self.refuse(
                self.shown(),
                format!("a number from {} to {}, such as 0.7", range.start(), range.end()),
                self.set_to("N (a number without quotes)"),
            )
        })
    }

    /// `true` or `false`.
    pub(super) fn switch(&self) -> Result<bool, SettingsError> {
        self.value
            .to_bool()
            .ok_or_else(|| self.refuse(self.shown(), "true or false", self.set_to("true (without quotes)")))
    }

    /// A number of bytes, as a plain integer or as a size with a unit.
    pub(super) fn size(&self) -> Result<u64, SettingsError> {
        let size = match (self.whole(), self.value.as_str()) {
            (Some(number), _) => u64::try_from(number).ok(),
            (None, Some(text)) => text.parse::<ByteSize>().ok().map(|size| size.as_u64()),
            (None, None) => None,
        };
        size.ok_or_else(|| {
            self.refuse(self.shown(), "a size such as \"64MiB\", or a whole number of bytes", self.set_to("\"64MiB\""))
        })
    }

    /// A length of time above zero and at most `longest`.
    pub(super) fn duration(&self, longest: Duration) -> Result<Duration, SettingsError> {
        let accepted = || {
            format!(
                "a length of time with its unit, such as \"90s\" or \"2m 30s\", above 0 and at most {}",
                humantime::format_duration(longest)
            )
        };
        self.value
            .as_str()
            .and_then(|text| humantime::parse_duration(text).ok())
            .filter(|duration| !duration.is_zero() && *duration <= longest)
            .ok_or_else(|| {
                // A bare number is most likely meant as seconds.
                let example = match self.whole() {
                    Some(seconds) if seconds > 0 => format!("\"{seconds}s\""),
                    _ => "\"90s\"".to_owned(),
                };
                self.refuse(self.shown(), accepted(), self.set_to(&example))
            })
    }

    /// A text that isn't empty.
    pub(super) fn text(&self, accepted: &str) -> Result<String, SettingsError> {
        self.value
            .as_str()
            .filter(|text| !text.trim().is_empty())
            .map(str::to_owned)
            .ok_or_else(|| self.refuse(self.shown(), accepted, self.set_to("\"…\"")))
    }

    /// One of these words.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, SettingsError> {
        let given = self.value.as_str();
        if let Some((_, meaning)) = words.iter().find(|(word, _)| Some(*word) == given) {
            return Ok(*meaning);
        }
        let mut nearest: Option<(f64, &str)> = None;
        for (word, _) in words {
            let likeness = strsim::normalized_damerau_levenshtein(word, &given.unwrap_or("").to_lowercase());
            if likeness >= 0.5 && nearest.is_none_or(|(best, _)| likeness > best) {
                nearest = Some((likeness, word));
            }
        }
        let list: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        Err(self.refuse(
            self.shown(),
            list.join(", "),
            match nearest {
                Some((_, word)) => format!("Did you mean {word:?}?"),
                None => "Write one of these, or remove the key for the default.".to_owned(),
            },
        ))
    }

    /// The path of a file, complete. A value that may be a secret put there by mistake is not shown.
    pub(super) fn file(&self) -> Result<PathBuf, SettingsError> {
        match self.value.as_str() {
            Some(path) if !path.trim().is_empty() => Ok(self.folder.join(path)),
            _ => Err(self.refuse(
                kind(&self.value),
                "the path of a file, in quotes",
                self.set_to("\"path/of/the/file\""),
            )),
        }
    }

    /// The value as a message shows it; only for keys that can't hold a secret.
    pub(super) fn shown(&self) -> String {
        match &self.value {
            Value::String(_, text) if text.is_empty() => "an empty text".to_owned(),
            Value::String(_, text) => {
                let short: String = text.chars().take(80).collect();
                format!("the text {short:?}")
            }
            Value::Bool(_, switch) => switch.to_string(),
            Value::Num(..) => match (self.value.to_i128(), self.value.to_f64()) {
                (Some(number), _) => number.to_string(),
                (None, Some(number)) => format!("{number:?}"),
                (None, None) => "a number".to_owned(),
            },
            other => kind(other).to_owned(),
        }
    }

    fn whole(&self) -> Option<i128> {
        self.value.to_i128()
    }
}

/// What sort of value this is, and nothing of it.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_, text) if text.trim().is_empty() => "an empty text",
        Value::String(..) | Value::Char(..) => "a text",
        Value::Bool(..) => "a switch (true or false)",
        Value::Num(..) => "a number",
        Value::Empty(..) => "nothing",
        Value::Dict(..) => "a date",
        Value::Array(..) => "a list",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn found(value: impl Into<Value>) -> Found {
        Found {
            value: value.into(),
            key: "k".to_owned(),
            place: "p".to_owned(),
            folder: PathBuf::new(),
            is_default: false,
            variable: None,
        }
    }

    #[test]
    fn sizes_are_plain_bytes_or_carry_a_unit() {
        assert_eq!(found(67_108_864).size().unwrap(), 67_108_864);
        assert_eq!(found("67108864").size().unwrap(), 67_108_864);
        assert_eq!(found("64MiB").size().unwrap(), 67_108_864);
        assert_eq!(found("64 MB").size().unwrap(), 64_000_000);
        for bad in ["", "MiB", "-1", "64 miles", "many"] {
            assert!(found(bad).size().is_err(), "{bad}");
        }
        assert!(found(-1).size().is_err());
        assert!(found(1.5).size().is_err());
    }

    #[test]
    fn durations_carry_a_unit_and_are_above_zero() {
        let longest = Duration::from_secs(295);
        let read = |text: &str| found(text).duration(longest).ok();
        assert_eq!(read("285s"), Some(Duration::from_secs(285)));
        assert_eq!(read("200ms"), Some(Duration::from_millis(200)));
        assert_eq!(read("4m 55s"), Some(longest));
        for bad in ["", "0s", "0ms", "296s", "4m 55s 1ms", "285", "-1s", "soon"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert!(found(285).duration(longest).is_err());
    }

    #[test]
    fn a_long_text_is_shown_in_part_and_on_one_line() {
        let shown = found(format!("\n{}", "a".repeat(1000))).shown();
        assert!(shown.len() < 100 && !shown.contains('\n'), "{shown}");
    }
}
