//! `weir init`: from a model server that runs to a configuration and a token, in at most three questions.

mod file;
mod questions;

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tokio::time::Duration;

use super::screen::{CAUTION, GOOD, QUIET, STRONG, say, tell};
use super::search::{self, CHOSEN_CONTEXT, Looked};
use super::{CommandError, program, report, token};
use crate::catalog::snapshot::turns_in;
use crate::server::listener;
use crate::settings::{self, Environment, Settings, Source, Warning};
use crate::upstream::dialect::{Dialect, ModelFacts, Sight};
use questions::{Asked, yes_or_no};

/// How long a server may take to tell of all its models.
const PATIENCE: Duration = Duration::from_secs(5);

/// The context of an Ollama that nobody has set up otherwise, in tokens.
const OLLAMAS_OWN_CONTEXT: u64 = 4096;

/// A model server that is there.
#[derive(Debug)]
pub(super) struct Server {
    /// The name of its table.
    name: String,
    looked: Looked,
}

impl Server {
    /// What it is and where, on one line.
    fn describe(&self) -> String {
        let what = match &self.looked.told {
            Ok(discovery) => report::server(discovery),
            Err(error) => format!("a model server ({error})"),
        };
        format!("{} at {}", report::on_one_line(&what), self.looked.settings.url.as_str().trim_end_matches('/'))
    }

    fn models(&self) -> &[ModelFacts] {
        self.looked.told.as_ref().map(|discovery| discovery.models.as_slice()).unwrap_or_default()
    }

    /// How many tokens a conversation with this model has once this configuration is in force, if that is known.
    fn context_of(&self, model: &ModelFacts) -> Option<u64> {
        let asked = self.looked.settings.context.map(u64::from);
        asked.map(|asked| model.trained_context.map_or(asked, |trained| asked.min(trained))).or(model.context)
    }
}

/// Looks, asks, writes, and says what to do next. `urls` are looked at in the place of the usual ports.
pub(super) async fn run(config: Option<&Path>, urls: &[String], yes: bool) -> Result<(), CommandError> {
    let asked = Asked::from_stdin(yes);
    let environment = Environment::from_process();
    let target = target(config)?;
    let replaces = may_replace(&target, asked)?;
    let mut servers = servers(urls, asked).await?;
    let models: Vec<String> = servers.iter().flat_map(Server::models).map(|model| model.id.clone()).collect();
    show(&servers);
    if servers.len() > 1 {
        servers = choose_servers(servers, asked)?;
    }
    let default = choose_default(&servers, &models, asked)?;
    choose_context(&mut servers, default.as_deref());
    let token_file = target.with_file_name("adapter.token");
    let is_new_token = token::make_or_keep(&token_file)?;
    write(&target, &file::text(&servers, default.as_deref()), replaces)?;
    tell!("");
    say_made(&target, "");
    say_made(&token_file, if is_new_token { ", readable by you alone" } else { ", which was there already" });
    let settings = settings::load(&Source::File(target.clone()), &environment)?;
    caution(&settings, &environment);
    say_next(&settings, &servers, default.as_deref(), config.is_some().then_some(&target), &token_file);
    Ok(())
}

/// The file that is written: the one that is named, else the one that Weir would read here, else the one in the user's folder.
fn target(config: Option<&Path>) -> Result<PathBuf, CommandError> {
    if let Some(path) = config {
        return Ok(path.to_owned());
    }
    match settings::find(None)? {
        Source::File(path) => Ok(path),
        Source::Nothing => {
            settings::configuration_folder().map(|folder| folder.join("adapter.toml")).ok_or_else(|| {
                CommandError::Failed(
                    "there is no folder for the configuration: HOME is not set. Set it, or name a file with --config"
                        .to_owned(),
                )
            })
        }
    }
}

/// Whether the file is there and may be replaced; an error if it may not.
fn may_replace(target: &Path, asked: Asked) -> Result<bool, CommandError> {
    if !target.try_exists().unwrap_or(true) {
        return Ok(false);
    }
    let path = target.display();
    if asked == Asked::Nobody {
        return Err(CommandError::Failed(format!(
            "{path} is there already and was left as it is. Run `weir init` without --yes to be asked whether to replace it, \
             or name another file with --config"
        )));
    }
    say("", 0, &format!("There is a configuration already: {path}"));
    if asked.ask("Replace it? y or n", "n", yes_or_no)? {
        return Ok(true);
    }
    Err(CommandError::Failed(format!("{path} was left as it is")))
}

/// The model servers that are there, at the given addresses or at the usual ports.
async fn servers(urls: &[String], asked: Asked) -> Result<Vec<Server>, CommandError> {
    let mut looked = Vec::new();
    if urls.is_empty() {
        say("", 0, &format!("Looking for model servers on 127.0.0.1, ports {}.", search::usual_ports()));
        looked = search::at_usual_ports(PATIENCE).await;
        looked.retain(Looked::is_there);
    }
    for url in urls {
        looked.push(look_at(url).await?);
    }
    if looked.is_empty() && asked != Asked::Nobody {
        let answer =
            asked.ask("None answers there. The address of yours (empty: stop)", "", |url| Ok(url.to_owned()))?;
        if !answer.is_empty() {
            looked.push(look_at(&answer).await?);
        }
    }
    // What asks for a key has to be written by hand, since nothing here may ask for a secret.
    let keyed: Vec<Looked> = looked.extract_if(.., |looked| !looked.is_usable()).collect();
    for Looked { settings, .. } in &keyed {
        let url = settings.url.as_str().trim_end_matches('/');
        let text = format!(
            "The server at {url} wants a key. To use it, put the key into a file and add to adapter.toml: \
             [upstream.keyed], url = \"{url}\", api_key_file = \"FILE\"."
        );
        say("", 0, &text);
    }
    if looked.is_empty() {
        let ports = search::usual_ports();
        return Err(CommandError::Failed(if keyed.is_empty() {
            format!(
                "no model server was found on 127.0.0.1 at the usual ports ({ports}); nothing was written. Start one (for \
                 example `ollama serve`, or `llama-server -m MODEL.gguf`) and run `weir init` again, or name one that listens \
                 elsewhere: `weir init --url http://HOST:PORT`. `weir demo` tries Weir without a model"
            )
        } else {
            "no other model server was found; nothing was written".to_owned()
        }));
    }
    Ok(named(looked))
}

/// Looks at an address that somebody gave: there has to be a server.
async fn look_at(url: &str) -> Result<Looked, CommandError> {
    let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let looked = search::at(settings::address(&url)?, PATIENCE).await;
    match &looked.told {
        Err(error) if !looked.is_there() => {
            Err(CommandError::Failed(format!("no model server at {url}: {error}; nothing was written")))
        }
        _ => Ok(looked),
    }
}

/// Gives each a name of its own: one alone is `local`, several are called what they are.
fn named(looked: Vec<Looked>) -> Vec<Server> {
    let alone = looked.len() == 1;
    let mut servers: Vec<Server> = Vec::new();
    for looked in looked {
        let name = match looked.told.as_ref().map(|discovery| discovery.dialect) {
            _ if alone => "local",
            Ok(Dialect::Ollama) => "ollama",
            Ok(Dialect::LlamaCpp) => "llamacpp",
            Ok(Dialect::Vllm) => "vllm",
            Ok(Dialect::LmStudio) => "lmstudio",
            Ok(Dialect::OpenAi) | Err(_) => "local",
        };
        let same = servers.iter().filter(|known| known.name.split('-').next() == Some(name)).count();
        let name = if same == 0 { name.to_owned() } else { format!("{name}-{}", same + 1) };
        servers.push(Server { name, looked });
    }
    servers
}

/// Lists the servers and their models, numbered through, with what each can do.
fn show(servers: &[Server]) {
    let mut number = 0;
    let ids = servers.iter().flat_map(Server::models).map(|model| model.id.chars().count());
    // A longer name has a line of its own.
    let widest = ids.filter(|width| *width <= 30).max().unwrap_or(0);
    for server in servers {
        let name = if servers.len() > 1 { format!("{}: ", server.name) } else { String::new() };
        tell!("");
        say("", 0, &format!("{name}{}", server.describe()));
        for model in server.models() {
            number += 1;
            let context = server.context_of(model).map(|tokens| format!(", {tokens} tokens")).unwrap_or_default();
            let what = format!("{}{context}", capabilities(model));
            let id = &model.id;
            if id.chars().count() > widest {
                say(&format!("{number:>4}  "), 6, id);
                say(&" ".repeat(widest + 8), widest + 8, &what);
            } else {
                say(&format!("{number:>4}  {id:widest$}  "), widest + 8, &what);
            }
        }
        let left_out = server.looked.told.as_ref().map(|told| told.left_out.join(", ")).unwrap_or_default();
        if !left_out.is_empty() {
            say("      ", 6, &format!("not served, since they only embed or run elsewhere: {left_out}"));
        }
        if server.looked.told.is_ok() && server.models().is_empty() {
            say("      ", 6, "no model that can chat yet");
        }
    }
}

/// What a model can do, in words.
fn capabilities(model: &ModelFacts) -> String {
    let pictures = match model.sight {
        Sight::Sees(_) => ", pictures",
        Sight::Blind(_) => "",
        Sight::Unknown => ", pictures unknown",
    };
    let reasoning = if model.reasons == Some(true) { ", reasoning" } else { "" };
    format!("text{pictures}{reasoning}")
}

fn choose_servers(servers: Vec<Server>, asked: Asked) -> Result<Vec<Server>, CommandError> {
    asked.leave_a_line();
    let names: Vec<String> = servers.iter().map(|server| server.name.clone()).collect();
    let chosen = asked.ask("Which of these servers shall Weir use?", "all", |answer| {
        if answer.eq_ignore_ascii_case("all") {
            return Ok(names.clone());
        }
        let chosen: Vec<String> = answer.split([',', ' ']).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        match chosen.iter().find(|name| !names.contains(name)) {
            Some(_) => Err(format!("answer \"all\", or some of: {}", names.join(", "))),
            None => Ok(chosen),
        }
    })?;
    let mut servers = servers;
    servers.retain(|server| chosen.contains(&server.name));
    Ok(servers)
}

/// The model that answers when the app names none; `None` if there is none yet. `numbered` are all ids that were shown.
fn choose_default(servers: &[Server], numbered: &[String], asked: Asked) -> Result<Option<String>, CommandError> {
    let ids: Vec<&String> = servers.iter().flat_map(Server::models).map(|model| &model.id).collect();
    let [first, _, ..] = ids.as_slice() else { return Ok(ids.first().map(|only| (*only).clone())) };
    asked.leave_a_line();
    let usual = numbered.iter().position(|id| id == *first).map_or(1, |at| at + 1).to_string();
    let chosen = asked.ask("Which model answers when the app names none? Number or name", &usual, |answer| {
        let by_number = answer.parse::<usize>().ok().and_then(|number| numbered.get(number.checked_sub(1)?));
        let id = by_number.map_or(answer, String::as_str);
        let known = ids.iter().find(|known| known.as_str() == id);
        known.map(|known| (*known).clone()).ok_or_else(|| "that is none of the models above".to_owned())
    })?;
    Ok(Some(chosen))
}

/// Fits the context of each Ollama to its models, and says what that of the default model costs and holds.
fn choose_context(servers: &mut [Server], default: Option<&str>) {
    for server in servers {
        if server.looked.settings.context.is_none() {
            continue;
        }
        let trained = server.models().iter().map(|model| model.trained_context);
        // What every model of the server was trained for less than is of no use to ask for.
        let most = trained.collect::<Option<Vec<u64>>>().and_then(|all| all.into_iter().max());
        let context =
            most.and_then(|most| u32::try_from(most).ok()).map_or(CHOSEN_CONTEXT, |most| most.min(CHOSEN_CONTEXT));
        server.looked.settings.context = Some(context);
        let Some(model) = server.models().iter().find(|model| Some(model.id.as_str()) == default) else { continue };
        let tokens = server.context_of(model).unwrap_or_default();
        let memory = model.cache_bytes_a_token.map(|bytes| bytes.saturating_mul(tokens));
        let memory = memory.map(|bytes| format!(" and take about {} of memory besides the model", report::size(bytes)));
        tell!("");
        let text = format!(
            "By default Ollama gives a chat {OLLAMAS_OWN_CONTEXT} tokens, which hold about {} turns; what is longer is \
             refused, and the phone says so. Weir will ask for {tokens}, which hold about {} turns{}. The key is context in \
             adapter.toml.",
            turns_in(OLLAMAS_OWN_CONTEXT),
            turns_in(tokens),
            memory.unwrap_or_default()
        );
        say("", 0, &text);
    }
}

/// Writes the file; one that is there only where it `replaces` it.
fn write(target: &Path, text: &str, replaces: bool) -> Result<(), CommandError> {
    let mut options = OpenOptions::new();
    options.write(true).truncate(replaces).create_new(!replaces);
    let written = options.open(target).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::AlreadyExists => "it has appeared meanwhile",
            io::ErrorKind::PermissionDenied => "this user may not write it",
            io::ErrorKind::StorageFull => "the disk is full",
            _ => "the system refuses it",
        };
        CommandError::Failed(format!("{} was not written: {why}", target.display()))
    })
}

fn say_made(path: &Path, note: &str) {
    say(&format!("{GOOD}ready{GOOD:#}  "), 7, &format!("{}{note}", path.display()));
}

/// What may surprise about what was just written.
fn caution(settings: &Settings, environment: &Environment) {
    let say = |text: &str| say(&format!("{CAUTION}note{CAUTION:#}   "), 7, text);
    for Warning { seen, mend, .. } in &settings.warnings {
        say(&format!("{seen}. To mend it: {mend}"));
    }
    if environment.names_a_token() {
        say("a token is set in the environment here, and wins over the token file wherever it is set.");
    }
    if let Err(error) = listener::bind(settings.port)
        && error.kind() == io::ErrorKind::AddrInUse
    {
        say(&format!(
            "port {} is in use just now, perhaps by another Weir. Stop that first, or write port = {} at the top of \
             adapter.toml.",
            settings.port,
            settings.port.checked_add(1).unwrap_or(8481)
        ));
    }
}

/// The commands that come next. `config` is the file where it has to be named.
fn say_next(
    settings: &Settings,
    servers: &[Server],
    default: Option<&str>,
    config: Option<&PathBuf>,
    token_file: &Path,
) {
    let option = config.map(|path| format!(" --config {}", settings::as_shell_word(path))).unwrap_or_default();
    let command = |line: &str, what: &str| {
        tell!("  {STRONG}{line}{STRONG:#}");
        if !what.is_empty() {
            say(&format!("      {QUIET}"), 6, &format!("{what}{QUIET:#}"));
        }
    };
    let weir = program();
    tell!("\nNext:\n");
    let is_ollama = |server: &Server| server.looked.settings.context.is_some();
    if default.is_none() && servers.iter().any(is_ollama) {
        command("ollama pull llama3.2:3b", "fetches a model, since there is none yet");
    }
    let models = servers.iter().flat_map(Server::models);
    if models.filter(|model| Some(model.id.as_str()) == default).any(|model| model.sight == Sight::Unknown) {
        let line = format!("{weir} check --probe-images{option}");
        command(&line, "finds out whether the model sees pictures, and which key to set");
    }
    command(&format!("{weir}{option}"), &format!("starts Weir, on http://127.0.0.1:{}", settings.port));
    tell!("\nand in a second terminal on this machine:\n");
    command(&format!("{weir} doctor{option}"), "checks the running Weir from end to end");
    command(
        "curl -fsSLO https://github.com/gigaduckai/conduck-connect/releases/latest/download/conduck-connect.sh",
        "",
    );
    let what = format!(
        "connects the phone: gives Weir an HTTPS address and shows a code to scan. It asks for the port, {}, and for the \
         token, which is in {}",
        settings.port,
        token_file.display()
    );
    command("bash conduck-connect.sh --generic", &what);
}
