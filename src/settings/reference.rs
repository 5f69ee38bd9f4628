//! Makes `docs/configuration.md` out of the doc comments of this folder, the built-in defaults and what Weir itself says it accepts, and
//! fails where the file is another. `WEIR_WRITE_REFERENCE=1 cargo test --lib reference` writes the file anew.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::failures::ROW_KEYS;
use super::schema::{self, KEYS, Key, Shape, Step};
use super::{Environment, SettingsError, Source, layers, load};

const PAGE: &str = "docs/configuration.md";

const INTRODUCTION: &str = r#"# Configuration

<!-- Made from the doc comments in src/settings. Change those, then run: WEIR_WRITE_REFERENCE=1 cargo test --lib reference -->

Every key of `adapter.toml`. README says which file is read; `adapter.toml.example` shows the keys in their places, and
`weir check` prints what is effective. A key that is not on this page is an error.

- A key with one value can also be set in the environment, which wins over the file. Its variable is given here with `NAME`
  or `ID` in the place of your own name in capital letters, which is read in small ones. Shells set no variable whose name
  has a `-`, a `.` or a `:`; a key under such a name, or under one with capital letters, belongs into the file.
- A name with other characters than letters, digits, `_` and `-` stands in quotes: `[models.override."qwen3:14b"]`.
- A size is a whole number of bytes, or carries a unit: `"64MiB"` is 67108864 bytes, `"64MB"` is 64000000.
- A length of time carries a unit: `"285s"`, `"2m 30s"`, `"200ms"`.
- What is accepted is in the words that Weir uses when it refuses something else.
- A running Weir reads the file again at SIGHUP. README says which keys need a restart.
"#;

/// Values of which at least one is refused for every key; what is accepted then is in the message.
const PROBES: [&str; 7] = ["false", "\"\"", "\"x\"", "-1", "1", "8480", "1000000000000"];

/// The doc comments of some source files.
#[derive(Default)]
struct Docs {
    /// Those on types, by their names.
    types: BTreeMap<String, String>,
    /// Those on the fields of a type, with the name of the field's own type, and on its variants.
    members: BTreeMap<String, Vec<Member>>,
}

struct Member {
    name: String,
    of: String,
    doc: String,
}

impl Docs {
    fn read() -> Self {
        let mut docs = Self::default();
        for source in [include_str!("mod.rs"), include_str!("failures.rs")] {
            for item in syn::parse_file(source).unwrap().items {
                docs.add(item);
            }
        }
        docs
    }

    fn add(&mut self, item: syn::Item) {
        let (name, attributes, members) = match item {
            syn::Item::Struct(item) => {
                let member = |field: syn::Field| {
                    let of = match field.ty {
                        syn::Type::Path(path) => path.path.segments.last().unwrap().ident.to_string(),
                        _ => String::new(),
                    };
                    Some(Member { name: field.ident?.to_string(), of, doc: first_paragraph(&field.attrs) })
                };
                (item.ident, item.attrs, item.fields.into_iter().filter_map(member).collect())
            }
            syn::Item::Enum(item) => {
                let member = |variant: syn::Variant| Member {
                    name: variant.ident.to_string(),
                    of: String::new(),
                    doc: first_paragraph(&variant.attrs),
                };
                (item.ident, item.attrs, item.variants.into_iter().map(member).collect())
            }
            _ => return,
        };
        self.types.insert(name.to_string(), first_paragraph(&attributes));
        self.members.insert(name.to_string(), members);
    }

    fn field(&self, of: &str, name: &str) -> &Member {
        let found = self.members[of].iter().find(|member| member.name == name);
        found
            .unwrap_or_else(|| panic!("{of} has no field {name}; if it is read under another name, say so in field_of"))
    }

    /// The doc comment on the variant that a word of the file stands for.
    fn variant(&self, of: &str, word: &str) -> &str {
        let plain = |name: &str| name.replace('_', "").to_lowercase();
        let found = self.members[of].iter().find(|member| plain(&member.name) == plain(word));
        &found.unwrap_or_else(|| panic!("{of} has no variant for {word:?}")).doc
    }
}

/// The first paragraph of a doc comment, on one line.
fn first_paragraph(attributes: &[syn::Attribute]) -> String {
    let line = |attribute: &syn::Attribute| match &attribute.meta {
        syn::Meta::NameValue(syn::MetaNameValue {
            path,
            value: syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }),
            ..
        }) if path.is_ident("doc") => Some(text.value().trim().to_owned()),
        _ => None,
    };
    let lines: Vec<String> = attributes.iter().filter_map(line).take_while(|line| !line.is_empty()).collect();
    lines.join(" ")
}

/// The type and the field that a key is read into.
fn field_of(key: &Key) -> (&'static str, &'static str) {
    match *key.path {
        ["token_file"] => ("Settings", "tokens"),
        ["upstream", _, "api_key_file"] => ("UpstreamSettings", "api_key"),
        ["upstream", _, "ca_file"] => ("UpstreamSettings", "certificate_authorities"),
        ["upstream", _, name] => ("UpstreamSettings", name),
        ["models", "alias", _] => ("ModelSettings", "alias"),
        ["models", "override", _, name] => ("ModelOverride", name),
        ["models", name] => ("ModelSettings", name),
        ["limits", name] => ("Limits", name),
        ["timeouts", name] => ("Timeouts", name),
        ["log", name] => ("LogSettings", name),
        ["metrics", name] => ("MetricsSettings", name),
        [name] => ("Settings", name),
        ref other => panic!("{other:?}: say in field_of which type it is read into"),
    }
}

/// What the page says of how a value is written.
fn shape_in_words(shape: Shape) -> &'static str {
    match shape {
        Shape::Text => "text",
        Shape::File => "path of a file",
        Shape::Address => "address",
        Shape::Word => "word",
        Shape::Time => "length of time",
        Shape::Number => "whole number",
        Shape::Size => "size",
        Shape::Decimal => "number",
        Shape::Switch => "switch",
        Shape::List => "list of texts",
        Shape::Rows => "rows",
    }
}

/// The path with `NAME`, or `ID` for that of a model, in the place of what the person chooses.
fn path_with_names(path: &[&'static str]) -> Vec<&'static str> {
    let name = if path.starts_with(&["models", "override"]) { "ID" } else { "NAME" };
    path.iter().map(|part| if *part == "*" { name } else { part }).collect()
}

/// A path as the page writes it; an id stands in quotes, since most have a colon.
fn written(path: &[&'static str]) -> String {
    path_with_names(path).join(".").replace(".ID", ".\"ID\"")
}

fn default_of(key: &Key) -> Option<toml::Value> {
    let defaults = toml::Value::Table(toml::from_str(layers::DEFAULTS).unwrap());
    key.path.iter().try_fold(defaults, |value, part| value.get(part).cloned())
}

/// What Weir says it accepts when `configuration` is wrong, if it is.
fn accepted_instead(folder: &Path, configuration: &str) -> Option<String> {
    let file = folder.join("adapter.toml");
    std::fs::write(&file, configuration).unwrap();
    match load(&Source::File(file), &Environment::default()) {
        Ok(_) => None,
        Err(SettingsError::Refused(message)) => {
            let (_, after) = message.split_once("; accepted: ").unwrap();
            let (accepted, _) = after.split_once(". ").unwrap();
            Some(accepted.to_owned())
        }
        Err(other) => panic!("{other}"),
    }
}

/// Everything that Weir says of what a key accepts, where `configure` puts a value in.
fn accepted(configure: impl Fn(&str) -> String) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("adapter.token"), "a-token\n").unwrap();
    let mut said = Vec::new();
    for probe in PROBES {
        let accepted = accepted_instead(folder.path(), &configure(probe));
        said.extend(accepted.filter(|accepted| !said.contains(accepted)));
    }
    assert!(!said.is_empty(), "nothing is refused in {}", configure("…"));
    // A file is named by its path whatever it holds.
    said.retain(|accepted| accepted != "the path of a file, in quotes");
    said
}

/// A good configuration but for this key. What is set in it already is set anew.
fn configuration_with(key: &Key, value: &str) -> String {
    let path: Vec<&str> = key.path.iter().map(|part| if *part == "*" { "local" } else { part }).collect();
    let mut lines = BTreeMap::from([
        ("token_file".to_owned(), "\"adapter.token\"".to_owned()),
        ("upstream.local.url".to_owned(), "\"https://127.0.0.1:11434\"".to_owned()),
    ]);
    lines.insert(path.join("."), value.to_owned());
    lines.iter().fold(String::new(), |text, (key, value)| text + key + " = " + value + "\n")
}

/// A good configuration with one row, but for this key of the row.
fn configuration_with_row(name: &str, value: &str) -> String {
    let mut row = BTreeMap::from([("meaning", "\"busy\""), ("contains", "[\"no seat\"]")]);
    row.insert(name, value);
    let row = row.iter().fold(String::new(), |text, (key, value)| format!("{text}{key} = {value}\n"));
    format!("token_file = \"adapter.token\"\nupstream.local.url = \"http://127.0.0.1:11434\"\n[[failures]]\n{row}")
}

/// A list item or a paragraph, folded.
fn fold(page: &mut String, first: &str, next: &str, text: &str) {
    let options = textwrap::Options::new(120).initial_indent(first).subsequent_indent(next);
    writeln!(page, "{}", textwrap::fill(text, options.break_words(false))).unwrap();
}

/// Writes what a key, or a key of a row, accepts: each word with what it means where the code says so.
fn write_accepted(page: &mut String, docs: &Docs, member: &Member, accepted: &[String]) {
    if !docs.members.contains_key(&member.of) {
        return fold(page, "- accepted: ", "  ", &accepted.join("; "));
    }
    let [words] = accepted else { panic!("{}: {accepted:?}", member.name) };
    writeln!(page, "- accepted:").unwrap();
    for word in words.split(", ") {
        fold(page, "  - ", "    ", &format!("`{word}`: {}", docs.variant(&member.of, word.trim_matches('"'))));
    }
}

fn write_key(page: &mut String, docs: &Docs, key: &Key) {
    let (of, name) = field_of(key);
    let member = docs.field(of, name);
    assert!(!member.doc.is_empty(), "{of}.{name} has no doc comment");
    writeln!(page, "\n### `{}`\n", written(key.path)).unwrap();
    fold(page, "", "", &member.doc);
    writeln!(page, "\n- type: {}", shape_in_words(key.shape)).unwrap();
    match default_of(key) {
        Some(default) => writeln!(page, "- default: `{default}`").unwrap(),
        None => writeln!(page, "- default: none").unwrap(),
    }
    write_accepted(page, docs, member, &accepted(|value| configuration_with(key, value)));
    match key.shape {
        Shape::List | Shape::Rows => writeln!(page, "- variable: none, since it holds a list").unwrap(),
        _ => writeln!(page, "- variable: `{}`", schema::variable(&path_with_names(key.path))).unwrap(),
    }
}

/// The keys of a row of `[[failures]]`.
fn write_rows(page: &mut String, docs: &Docs) {
    writeln!(page).unwrap();
    fold(page, "", "", &docs.types["FailureRow"]);
    assert_eq!(docs.members["FailureRow"].len(), ROW_KEYS.len(), "each field of a row is a key, and no other is");
    for name in ROW_KEYS {
        let member = docs.field("FailureRow", if name == "type" { "kind" } else { name });
        writeln!(page, "\n#### `{name}`\n").unwrap();
        fold(page, "", "", &member.doc);
        writeln!(page).unwrap();
        write_accepted(page, docs, member, &accepted(|value| configuration_with_row(name, value)));
    }
}

/// The whole page.
fn page() -> String {
    let docs = Docs::read();
    let mut page = INTRODUCTION.to_owned();
    let mut section = "";
    for key in KEYS {
        let (of, _) = field_of(key);
        let table = key.path.split_last().map_or("".to_owned(), |(_, table)| written(table));
        let heading = match key.shape {
            Shape::Rows => format!("## `[[{}]]`", written(key.path)),
            _ if table.is_empty() => "## Without a table".to_owned(),
            _ => format!("## `[{table}]`"),
        };
        if !page.contains(&format!("\n{heading}\n")) {
            writeln!(page, "\n{heading}").unwrap();
            if of != section && of != "Settings" {
                writeln!(page).unwrap();
                fold(&mut page, "", "", &docs.types[of]);
            }
            section = of;
        }
        write_key(&mut page, &docs, key);
        if key.shape == Shape::Rows {
            write_rows(&mut page, &docs);
        }
    }
    page
}

#[test]
fn the_reference_says_what_the_code_says() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = page();
    if std::env::var_os("WEIR_WRITE_REFERENCE").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == page,
        "{PAGE} is not what the code says. Look at the change that this makes to it: WEIR_WRITE_REFERENCE=1 cargo test --lib reference"
    );
}

#[test]
fn every_key_has_one_entry_and_every_entry_is_of_a_key() {
    let page = page();
    let entries = page.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'));
    let mut seen: Vec<&[&str]> = Vec::new();
    for entry in entries {
        let path: Vec<&str> = entry.split('.').map(|part| part.trim_matches('"')).collect();
        let Step::Value(key) = schema::look_up(&path) else { panic!("{entry} is no key") };
        assert!(!seen.contains(&key.path), "{entry} stands twice");
        seen.push(key.path);
    }
    assert_eq!(seen.len(), KEYS.len());
}
