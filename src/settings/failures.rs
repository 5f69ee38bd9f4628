//! `[[failures]]`: what the errors of a model server mean that Weir does not know.

use figment::value::{Dict, Value};
use serde::Deserialize;

use super::layers::Layers;
use super::refusal::SettingsError;
use super::value::{Found, kind};

/// What a model server's refusal or error means, whatever its status and wording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meaning {
    /// The conversation does not fit into the model's context.
    ContextTooLong,
    /// The model, or the server, takes no pictures at all.
    ///
    /// This tells something about the model.
    ImageUnsupported,
    /// This picture was not taken: it cannot be fetched or decoded, or is in a form that the server does not read. Another
    /// picture may do.
    ImageUnreadable,
    /// A picture has too many bytes, pixels or tokens.
    ImageTooLarge,
    /// More pictures in one request than the server takes; fewer, but at least one, would do.
    TooManyImages,
    /// The server does not have this model, or has it but cannot chat with it.
    ModelNotFound,
    /// The server has no room for another turn right now.
    Busy,
    /// The server is up, but the model is not loaded yet.
    Loading,
    /// Something between here and the model gave up waiting.
    Timeout,
    /// The server wants a key, or other credentials than it was given.
    Credentials,
    /// The request has more bytes than the server, or something in front of it, takes.
    ///
    /// Whether a picture or the text is to blame, only the caller knows.
    BodyTooLarge,
    /// The model's template wants user and assistant to take turns.
    RolesMustAlternate,
    /// The model's template wants the user to speak first.
    FirstMessageMustBeUser,
    /// The server does not take a message without text.
    EmptyPrompt,
    /// The model's template knows no system messages.
    SystemPromptUnsupported,
    /// The output limit that came with the request is more than the server allows, or it knows no such limit; the conversation itself
    /// may be fine.
    OutputLimitTooHigh,
    /// Nothing of the kind is at this address: a wrong base URL, or another server than it used to be.
    WrongAddress,
    /// Anything else: a crash, a bug, a request that the server does not understand.
    Failure,
}

/// The words for meanings in a file.
const MEANINGS: [(&str, Meaning); 18] = [
    ("context_too_long", Meaning::ContextTooLong),
    ("image_unsupported", Meaning::ImageUnsupported),
    ("image_unreadable", Meaning::ImageUnreadable),
    ("image_too_large", Meaning::ImageTooLarge),
    ("too_many_images", Meaning::TooManyImages),
    ("model_not_found", Meaning::ModelNotFound),
    ("busy", Meaning::Busy),
    ("loading", Meaning::Loading),
    ("timeout", Meaning::Timeout),
    ("credentials", Meaning::Credentials),
    ("body_too_large", Meaning::BodyTooLarge),
    ("roles_must_alternate", Meaning::RolesMustAlternate),
    ("first_message_must_be_user", Meaning::FirstMessageMustBeUser),
    ("empty_prompt", Meaning::EmptyPrompt),
    ("system_prompt_unsupported", Meaning::SystemPromptUnsupported),
    ("output_limit_too_high", Meaning::OutputLimitTooHigh),
    ("wrong_address", Meaning::WrongAddress),
    ("failure", Meaning::Failure),
];

/// One row: when all of its conditions hold, the error has its meaning. The first row that matches decides. Upper and lower case, white
/// space, `-` and `_` make no difference anywhere, and "n't" is the same as " not".
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureRow {
    /// What the error means.
    pub meaning: Meaning,
    /// Texts that must all occur in the error's message, in any order. A `|` stands between alternatives: `"too long|too big"`. A
    /// space at an end is the edge of a word.
    #[serde(default)]
    pub contains: Vec<String>,
    /// Texts of which none may occur in the error's message.
    #[serde(default)]
    pub unless: Vec<String>,
    /// The error's type must be one of these. Without the key it makes no difference.
    #[serde(default, rename = "type")]
    pub kind: Vec<String>,
    /// The error's code must be one of these (a number in quotes, too). Without the key it makes no difference.
    #[serde(default)]
    pub code: Vec<String>,
    /// The HTTP status must be one of these. Without the key it makes no difference.
    #[serde(default)]
    pub status: Vec<u16>,
    /// Which server says this, and in which version; for the reader only.
    pub seen: Option<String>,
    /// An answer that this row must be the first to match, by its `status` (200 for an error inside a stream) and its `body` (all of
    /// it, or the message alone). Weir does not start if another row matches it first, or none does.
    pub example: Option<FailureExample>,
}

/// An answer that a row is meant for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureExample {
    /// The HTTP status, 200 for an error inside a stream.
    pub status: u16,
    /// The body, or just the message: a plain text body is a message too.
    pub body: String,
}

/// The keys of a row.
pub(super) const ROW_KEYS: [&str; 8] = ["meaning", "contains", "unless", "type", "code", "status", "seen", "example"];

const STATUS: std::ops::RangeInclusive<u64> = 100..=599;

/// Reads the rows in their order; none without `[[failures]]`.
pub(super) fn read(layers: &Layers) -> Result<Vec<FailureRow>, SettingsError> {
    let Some(found) = layers.get(&["failures"]) else {
        return Ok(Vec::new());
    };
    let accepted = "rows, each under a line [[failures]] of its own";
    let mend = "Write [[failures]] and the row's keys below it, as adapter.toml.example shows.";
    let Value::Array(_, entries) = &found.value else {
        return Err(found.refuse(kind(&found.value), accepted, mend));
    };
    let read_row = |(index, entry): (usize, &Value)| match entry {
        Value::Dict(_, fields) => Row { layers, number: index + 1, fields }.read(),
        other => Err(found.refuse(format!("a list that holds {}", kind(other)), accepted, mend)),
    };
    entries.iter().enumerate().map(read_row).collect()
}

/// A row as it stands in the file, counted from 1.
struct Row<'a> {
    layers: &'a Layers,
    number: usize,
    fields: &'a Dict,
}

impl Row<'_> {
    fn read(&self) -> Result<FailureRow, SettingsError> {
        self.refuse_unknown_keys(self.fields, &ROW_KEYS)?;
        let row = FailureRow {
            meaning: self.meaning()?,
            contains: self.texts("contains", |fragment| fragment.split('|').all(says_something))?,
            unless: self.texts("unless", says_something)?,
            kind: self.texts("type", names_something)?,
            code: self.texts("code", names_something)?,
            status: self.statuses()?,
            seen: self.get("seen").map(|found| self.text(&found, "a text")).transpose()?,
            example: self.example()?,
        };
        if row.contains.is_empty() && row.kind.is_empty() && row.code.is_empty() && row.status.is_empty() {
            return Err(self.found("contains", Value::from(false)).refuse(
                "no condition, so that the row would fit every error",
                "at least one of contains, type, code and status",
                "Write contains = [\"…\"] with words of the error, or remove the row.",
            ));
        }
        Ok(row)
    }

    /// A value of this row for a message: the key names the row, the place its line where that is known.
    fn found(&self, field: &str, value: Value) -> Found {
        let number = self.number.to_string();
        let path = ["failures", &number, field];
        let place = if self.fields.contains_key(field) { &path[..] } else { &path[..2] };
        Found {
            value,
            key: format!("[[failures]], row {number}, {field}"),
            place: self.layers.place(place),
            folder: std::path::PathBuf::new(),
            is_default: false,
            variable: None,
        }
    }

    fn get(&self, field: &str) -> Option<Found> {
        self.fields.get(field).map(|value| self.found(field, value.clone()))
    }

    fn refuse_unknown_keys(&self, fields: &Dict, known: &[&str]) -> Result<(), SettingsError> {
        let Some(unknown) = fields.keys().find(|key| !known.contains(&key.as_str())) else {
            return Ok(());
        };
        let likeness =
            |word: &&&str| (strsim::normalized_damerau_levenshtein(word, &unknown.to_lowercase()) * 1e6) as u64;
        let nearest = known.iter().max_by_key(likeness).copied().unwrap_or_default();
        let shown: String = unknown.chars().take(80).collect();
        Err(self.found(unknown, Value::from(false)).refuse(
            format!("an unknown key {shown:?}"),
            known.join(", "),
            format!("Did you mean {nearest}?"),
        ))
    }

    fn meaning(&self) -> Result<Meaning, SettingsError> {
        match self.get("meaning") {
            Some(found) => found.word(&MEANINGS),
            None => Err(self.found("meaning", Value::from(false)).refuse(
                "no meaning",
                MEANINGS.map(|(word, _)| format!("{word:?}")).join(", "),
                "Write meaning = \"…\" with one of these.",
            )),
        }
    }

    fn text(&self, found: &Found, accepted: &str) -> Result<String, SettingsError> {
        match found.value.as_str() {
            Some(text) if !text.trim().is_empty() => Ok(text.to_owned()),
            _ => Err(found.refuse(kind(&found.value), accepted, "Write it in quotes, or remove the key.")),
        }
    }

    /// A list of texts that each say something.
    fn texts(&self, field: &str, is_sound: fn(&str) -> bool) -> Result<Vec<String>, SettingsError> {
        let Some(found) = self.get(field) else {
            return Ok(Vec::new());
        };
        let accepted = "a list of texts such as [\"too long\"], each with a letter or digit";
        let mend = "Write each in quotes (a number, too), or remove the key if it makes no difference.";
        let Value::Array(_, entries) = &found.value else {
            return Err(found.refuse(kind(&found.value), accepted, mend));
        };
        if entries.is_empty() {
            return Err(found.refuse("an empty list", accepted, mend));
        }
        let read_one = |entry: &Value| match entry.as_str() {
            Some(text) if is_sound(text) => Ok(text.to_owned()),
            Some(_) => Err(found.refuse("a list that holds an empty text or fragment", accepted, mend)),
            None => Err(found.refuse(format!("a list that holds {}", kind(entry)), accepted, mend)),
        };
        entries.iter().map(read_one).collect()
    }

    fn statuses(&self) -> Result<Vec<u16>, SettingsError> {
        let Some(found) = self.get("status") else {
            return Ok(Vec::new());
        };
        let refuse = |what: String| {
            let accepted = "a list of HTTP statuses from 100 to 599, such as [400, 500]";
            found.refuse(what, accepted, "Write numbers without quotes, or remove the key if it makes no difference.")
        };
        let Value::Array(_, entries) = &found.value else {
            return Err(refuse(kind(&found.value).to_owned()));
        };
        if entries.is_empty() {
            return Err(refuse("an empty list".to_owned()));
        }
        let holds =
            |entry: &Value| refuse(format!("a list that holds {}", self.found("status", entry.clone()).shown()));
        entries.iter().map(|entry| status(entry).ok_or_else(|| holds(entry))).collect()
    }

    fn example(&self) -> Result<Option<FailureExample>, SettingsError> {
        let Some(found) = self.get("example") else {
            return Ok(None);
        };
        let refuse = |what: &str| {
            let accepted = "a table such as { status = 400, body = \"prompt is too long\" }";
            found.refuse(what, accepted, "Write both keys: the status, and the body or its message.")
        };
        let Value::Dict(_, fields) = &found.value else {
            return Err(refuse(kind(&found.value)));
        };
        self.refuse_unknown_keys(fields, &["status", "body"])?;
        match (fields.get("status").and_then(status), fields.get("body").and_then(Value::as_str)) {
            (Some(status), Some(body)) => Ok(Some(FailureExample { status, body: body.to_owned() })),
            (None, _) => Err(refuse("no HTTP status from 100 to 599 in it")),
            (_, None) => Err(refuse("no text as its body")),
        }
    }
}

fn status(value: &Value) -> Option<u16> {
    let status = value.to_i128().and_then(|status| u64::try_from(status).ok())?;
    STATUS.contains(&status).then(|| u16::try_from(status).ok()).flatten()
}

/// A fragment of nothing but what makes no difference would be in every message.
fn says_something(fragment: &str) -> bool {
    fragment.chars().any(|character| !character.is_whitespace() && !matches!(character, '-' | '_'))
}

/// Types and codes are compared by their letters and digits.
fn names_something(name: &str) -> bool {
    name.chars().any(|character| character.is_ascii_alphanumeric())
}
