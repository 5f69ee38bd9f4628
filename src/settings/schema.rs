//! Every key that the configuration knows, and what is said about one that it doesn't.

/// How a key's value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Text, also when it looks like a number.
    Text,
    /// The path of a file. Its value may be a secret that was put there by mistake.
    File,
    /// An address that may hold a password by mistake.
    Address,
    /// One of a few words.
    Word,
    /// A length of time with its unit.
    Time,
    /// A number, or a word in its place.
    Number,
    /// A number of bytes, with or without a unit, or a word in its place.
    Size,
    /// A number that may have a fraction.
    Decimal,
    /// `true`, `false` or a word.
    Switch,
    /// A list of texts.
    List,
    /// Rows under heads in double brackets, whose keys are read where the rows are.
    Rows,
}

/// One key: its path, with `*` for a name that the person chooses.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) path: &'static [&'static str],
    pub(super) shape: Shape,
}

const fn key(path: &'static [&'static str], shape: Shape) -> Key {
    Key { path, shape }
}

/// Every key that the configuration knows.
pub(super) static KEYS: &[Key] = &[
    key(&["port"], Shape::Number),
    key(&["token_file"], Shape::File),
    key(&["upstream", "*", "url"], Shape::Address),
    key(&["upstream", "*", "kind"], Shape::Word),
    key(&["upstream", "*", "api_key_file"], Shape::File),
    key(&["upstream", "*", "ca_file"], Shape::File),
    key(&["upstream", "*", "concurrency"], Shape::Number),
    key(&["upstream", "*", "context"], Shape::Number),
    key(&["upstream", "*", "keep_alive"], Shape::Text),
    key(&["models", "default"], Shape::Text),
    key(&["models", "pictures"], Shape::Text),
    key(&["models", "warm_up"], Shape::Switch),
    key(&["models", "expose"], Shape::List),
    key(&["models", "alias", "*"], Shape::Text),
    key(&["models", "override", "*", "images"], Shape::Switch),
    key(&["models", "override", "*", "context"], Shape::Number),
    key(&["models", "override", "*", "reasoning"], Shape::Word),
    key(&["models", "override", "*", "temperature"], Shape::Decimal),
    key(&["models", "override", "*", "longest_answer"], Shape::Number),
    key(&["models", "override", "*", "system_prompt"], Shape::Text),
    key(&["failures"], Shape::Rows),
    key(&["limits", "body"], Shape::Size),
    key(&["limits", "image"], Shape::Size),
    key(&["limits", "reply"], Shape::Size),
    key(&["limits", "in_flight"], Shape::Size),
    key(&["limits", "queue"], Shape::Number),
    key(&["limits", "connections"], Shape::Number),
    key(&["timeouts", "turn"], Shape::Time),
    key(&["timeouts", "body"], Shape::Time),
    key(&["timeouts", "head"], Shape::Time),
    key(&["timeouts", "connect"], Shape::Time),
    key(&["timeouts", "keep_alive"], Shape::Time),
    key(&["timeouts", "shutdown"], Shape::Time),
    key(&["log", "level"], Shape::Word),
    key(&["log", "format"], Shape::Word),
    key(&["metrics", "port"], Shape::Number),
];

/// What stands at a path.
pub(super) enum Step {
    /// A key with a value.
    Value(&'static Key),
    /// A table of further keys.
    Table,
    /// Nothing that is known.
    Unknown,
}

/// What stands at this path.
pub(super) fn look_up<S: AsRef<str>>(path: &[S]) -> Step {
    let fits = |key: &&Key| {
        key.path.len() >= path.len()
            && key.path.iter().zip(path).all(|(known, given)| *known == "*" || *known == given.as_ref())
    };
    match KEYS.iter().find(fits) {
        Some(key) if key.path.len() == path.len() => Step::Value(key),
        Some(_) => Step::Table,
        None => Step::Unknown,
    }
}

/// The path as a person writes it: a part that isn't a bare TOML key stands in quotes.
pub(super) fn written<S: AsRef<str>>(path: &[S]) -> String {
    let parts = path.iter().map(|part| {
        let part = part.as_ref();
        let bare =
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        if bare { part.to_owned() } else { format!("{:?}", part.chars().take(80).collect::<String>()) }
    });
    parts.collect::<Vec<_>>().join(".")
}

/// The variable that sets this key, if the path is one that a variable can name.
pub fn variable<S: AsRef<str>>(path: &[S]) -> String {
    let parts = path.iter().map(|part| part.as_ref().to_ascii_uppercase());
    format!("ADAPTER_{}", parts.collect::<Vec<_>>().join("__"))
}

/// What is accepted in the place of an unknown key, and how to mend it.
pub(super) struct Advice {
    pub(super) accepted: String,
    pub(super) mend: String,
}

/// What to say about an unknown key of the file, or about an unknown variable (which can't name a table).
pub(super) fn advise<S: AsRef<str>>(path: &[S], in_file: bool) -> Advice {
    let last = path.last().map_or("", |part| part.as_ref()).to_ascii_lowercase();
    let first = path.first().map_or("", |part| part.as_ref()).to_ascii_lowercase();
    let nearest = nearest(path, in_file);
    let nearest = if in_file { written(&nearest) } else { variable(&nearest) };
    match last.as_str() {
        "token" | "tokens" => Advice {
            accepted: "token_file (the path of a file with one token a line), or ADAPTER_TOKEN in the environment"
                .to_owned(),
            mend: "A token doesn't stand in the configuration itself: move it into a file, name the file with \
                   token_file, and take a new token if this one was shown to anybody."
                .to_owned(),
        },
        "api_key" | "key" | "apikey" => Advice {
            accepted: "upstream.NAME.api_key_file (the path of a file that holds the key)".to_owned(),
            mend: "A key doesn't stand in the configuration itself: move it into a file and name the file with \
                   api_key_file."
                .to_owned(),
        },
        _ if is_address(&last) || is_address(&first) => Advice {
            accepted: "no address, only port".to_owned(),
            mend: "The address is always 127.0.0.1, so there is no key for it: remove the key.".to_owned(),
        },
        _ => Advice {
            accepted: if in_file {
                siblings(path)
            } else {
                "ADAPTER_TOKEN, or ADAPTER_ and the path of a key with __ between its parts".to_owned()
            },
            mend: format!("Did you mean {nearest}?"),
        },
    }
}

fn is_address(word: &str) -> bool {
    matches!(word, "address" | "addr" | "host" | "hostname" | "bind" | "listen" | "interface")
}

/// The known path that is most like this one: the same name in another table counts more than a like name in this one.
fn nearest<S: AsRef<str>>(path: &[S], tables: bool) -> Vec<&str> {
    let given = path.last().map_or("", |part| part.as_ref());
    let score = |known: &[&str]| {
        let name = known.last().copied().unwrap_or("");
        let likeness = strsim::normalized_damerau_levenshtein(&name.to_lowercase(), &given.to_lowercase());
        let whole = strsim::normalized_damerau_levenshtein(
            &written(known),
            &written(&path.iter().map(AsRef::as_ref).collect::<Vec<&str>>()),
        );
        likeness + whole / 2.0
    };
    let mut best: (f64, Vec<&str>) = (f64::MIN, Vec::new());
    for key in KEYS {
        // Tables are candidates too: a misspelt table is found before its keys are looked at.
        for length in 1..=key.path.len() {
            let Some(known) = key.path.get(..length) else {
                continue;
            };
            if known.last() == Some(&"*") || (!tables && length < key.path.len()) {
                continue;
            }
            let named: Vec<&str> = known
                .iter()
                .enumerate()
                .map(|(at, part)| match (*part, path.get(at)) {
                    ("*", Some(given)) if at + 1 < path.len() => given.as_ref(),
                    ("*", _) => "NAME",
                    (part, _) => part,
                })
                .collect();
            let score = score(&named);
            if score > best.0 {
                best = (score, named);
            }
        }
    }
    best.1
}

/// The keys that are known in the table of this path.
fn siblings<S: AsRef<str>>(path: &[S]) -> String {
    let table: Vec<&str> = path.iter().take(path.len().saturating_sub(1)).map(AsRef::as_ref).collect();
    let mut known: Vec<&str> = Vec::new();
    for key in KEYS {
        let inside = key.path.len() > table.len()
            && key.path.iter().zip(&table).all(|(part, given)| *part == "*" || part == given);
        if !inside {
            continue;
        }
        let name = key.path.get(table.len()).copied().unwrap_or("");
        let name = if name == "*" { "NAME" } else { name };
        if !known.contains(&name) {
            known.push(name);
        }
    }
    known.join(", ")
}
