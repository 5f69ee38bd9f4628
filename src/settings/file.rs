//! The text of the configuration file: syntax, the line of each key, and keys that nobody knows.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::places::Places;
use super::refusal::{Fault, SettingsError};
use super::schema::{self, Shape, Step};

/// A configuration file whose syntax and keys are in order; its values are not looked at yet.
#[derive(Debug)]
pub(super) struct File {
    pub(super) text: String,
    pub(super) places: Places,
}

impl File {
    /// Reads the file and refuses what isn't TOML and what isn't known.
    pub(super) fn read(path: &Path) -> Result<Self, SettingsError> {
        let refuse = |found: &str, mend: &str| -> SettingsError {
            Fault {
                place: path.display().to_string(),
                key: "the configuration file".to_owned(),
                found: found.to_owned(),
                accepted: "a readable text file in TOML".to_owned(),
                mend: mend.to_owned(),
            }
            .into()
        };
        if path.is_dir() {
            return Err(refuse("a folder", "Name the file in it."));
        }
        let bytes = std::fs::read(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                refuse("no file there", "Correct the path, or copy adapter.toml.example to it.")
            }
            std::io::ErrorKind::PermissionDenied => {
                refuse("a file that this user may not read", "Let this user read it, or start Weir as its owner.")
            }
            _ => refuse("a file that can't be read", "Check the disk it lies on."),
        })?;
        let text =
            String::from_utf8(bytes).map_err(|_| refuse("bytes that are not UTF-8 text", "Save it again as UTF-8."))?;
        let table: toml::Table = toml::from_str(&text).map_err(|error| syntax(path, &text, &error))?;
        let mut lines = HashMap::new();
        // A date has no place here anyway, and is the one thing whose keys have no lines.
        if let Ok(tree) = toml::from_str::<Tree>(&text) {
            tree.note_lines(&text, &mut Vec::new(), &mut lines);
        }
        let places = Places { file: Some(path.to_owned()), lines, ..Places::default() };
        let file = Self { text, places };
        file.check_keys(&table, &mut Vec::new())?;
        Ok(file)
    }

    fn check_keys(&self, table: &toml::Table, path: &mut Vec<String>) -> Result<(), SettingsError> {
        for (name, value) in table {
            path.push(name.clone());
            let refuse = |found: &str, accepted: String, mend: String| -> SettingsError {
                Fault {
                    place: self.places.of(path),
                    key: schema::written(path),
                    found: found.to_owned(),
                    accepted,
                    mend,
                }
                .into()
            };
            // `*` is the name of the defaults' own tables.
            let step = if name == "*" { Step::Unknown } else { schema::look_up(path) };
            match (step, value) {
                (Step::Unknown, _) => {
                    let advice = schema::advise(path, true);
                    return Err(refuse("an unknown key", advice.accepted, advice.mend));
                }
                (Step::Table, toml::Value::Table(inner)) => self.check_keys(inner, path)?,
                (Step::Table, other) => {
                    let mend = if path.first().is_some_and(|first| first == "upstream") {
                        "Give the model server a name of your own: write [upstream.local] with its keys below."
                            .to_owned()
                    } else {
                        format!("Write it as [{}] with its keys below.", schema::written(path))
                    };
                    return Err(refuse(kind(other), "a table".to_owned(), mend));
                }
                (Step::Value(key), toml::Value::Table(_)) => {
                    let written = schema::written(path);
                    let (accepted, mend) = match key.shape {
                        Shape::Rows => {
                            ("rows", format!("Write [[{written}]] with double brackets, once for each row."))
                        }
                        _ => ("a value", format!("Write it as {written} = … in one line.")),
                    };
                    return Err(refuse("a table", accepted.to_owned(), mend));
                }
                (Step::Value(_), _) => {}
            }
            path.pop();
        }
        Ok(())
    }
}

fn kind(value: &toml::Value) -> &'static str {
    match value {
        toml::Value::String(_) => "a text",
        toml::Value::Integer(_) | toml::Value::Float(_) => "a number",
        toml::Value::Boolean(_) => "a switch (true or false)",
        toml::Value::Datetime(_) => "a date",
        toml::Value::Array(_) => "a list",
        toml::Value::Table(_) => "a table",
    }
}

/// Says where the text isn't TOML, without a word of the text: that line may hold a secret.
fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> SettingsError {
    let at = error.span().map_or(0, |span| span.start).min(text.len());
    let before = text.get(..at).unwrap_or("");
    let line = before.matches('\n').count() + 1;
    let line_before = before.rsplit('\n').next().unwrap_or("");
    let column = line_before.chars().count() + 1;
    let message = error.message();
    if let Some(key) = twice(message) {
        let mend = if key.starts_with("upstream.") {
            "Give each model server a name of its own, such as [upstream.second]."
        } else {
            "Keep one of the two."
        };
        return Fault {
            place: format!("{}, line {line}, column {column}", path.display()),
            key,
            found: "a key or a table that stands twice".to_owned(),
            accepted: "each key and each table once".to_owned(),
            mend: mend.to_owned(),
        }
        .into();
    }
    let found = if message.contains("duplicate key") {
        "a key or a table that stands twice"
    } else if message.contains("escape") {
        "a \\ in double quotes that TOML doesn't know (in single quotes a text stands as it is)"
    } else if message.contains("string") && !line_before.contains(['"', '\'']) {
        "a text without quotes"
    } else if message.contains("string") {
        "a text in quotes that isn't closed or holds a character that TOML doesn't allow"
    } else if message.contains("table header") {
        "a table's head that isn't complete"
    } else if message.contains("array") {
        "a list that isn't complete"
    } else if message.contains("expected `.`, `=`") {
        "a key without = behind it"
    } else {
        "something that isn't TOML"
    };
    Fault {
        place: format!("{}, line {line}, column {column}", path.display()),
        key: "the configuration file".to_owned(),
        found: found.to_owned(),
        accepted: "key = value lines and [table] heads; texts stand in double quotes, each key stands once".to_owned(),
        mend: "Compare the line with adapter.toml.example.".to_owned(),
    }
    .into()
}

/// The key that stands twice, if that is what the message of the parser says and the key is one that is known: another may be a
/// secret that was put there by mistake.
fn twice(message: &str) -> Option<String> {
    let (_, after) = message.split_once("duplicate key `")?;
    let (name, rest) = after.split_once('`')?;
    let table = rest.strip_prefix(" in table `").and_then(|rest| rest.split('`').next());
    let path: Vec<&str> = table.into_iter().flat_map(|table| table.split('.')).chain([name]).collect();
    (!matches!(schema::look_up(&path), Step::Unknown)).then(|| schema::written(&path))
}

/// The keys of a TOML text with their places, and nothing of the values.
enum Tree {
    Table(Vec<(toml::Spanned<String>, Tree)>),
    List(Vec<Tree>),
    Value,
}

impl Tree {
    fn note_lines(&self, text: &str, path: &mut Vec<String>, lines: &mut HashMap<Vec<String>, usize>) {
        match self {
            Self::Table(entries) => {
                for (name, inner) in entries {
                    path.push(name.get_ref().clone());
                    lines.insert(path.clone(), line_of(text, name));
                    inner.note_lines(text, path, lines);
                    path.pop();
                }
            }
            // The entries of a list count from 1; a table among them begins where its first key stands.
            Self::List(entries) => {
                for (index, inner) in entries.iter().enumerate() {
                    path.push((index + 1).to_string());
                    inner.note_lines(text, path, lines);
                    if let Self::Table(keys) = inner
                        && let Some((first, _)) = keys.first()
                    {
                        lines.insert(path.clone(), line_of(text, first));
                    }
                    path.pop();
                }
            }
            Self::Value => {}
        }
    }
}

fn line_of(text: &str, key: &toml::Spanned<String>) -> usize {
    let before = text.get(..key.span().start).unwrap_or("");
    before.matches('\n').count() + 1
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Tree::Table(entries))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = sequence.next_element()? {
            entries.push(entry);
        }
        Ok(Tree::List(entries))
    }

    fn visit_str<E>(self, _: &str) -> Result<Tree, E> {
        Ok(Tree::Value)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
        Ok(Tree::Value)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
        Ok(Tree::Value)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
        Ok(Tree::Value)
    }
}
