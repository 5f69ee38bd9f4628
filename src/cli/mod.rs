//! What a person types, and what they are told.

mod check;
mod demo;
pub mod doctor;
mod healthcheck;
mod init;
pub mod png;
mod report;
mod running;
mod screen;
mod search;
mod serve;
mod service_manager;
mod shell;
mod status;
pub mod token;
mod unreachable;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueHint};

use crate::observe;
use crate::settings::{self, Environment, Origin, Settings, SettingsError};
use crate::upstream::classify::Classifier;

/// The adapter between the Conduck app and the model server that you run at home.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about, propagate_version = true)]
pub struct Arguments {
    /// The configuration file, instead of looking for one.
    // Without it: what settings::find says; with no file anywhere, Weir looks for a model server on this machine by itself.
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,

    #[command(subcommand)]
    command: Option<Command>,
}

// What is said of a command or an option here is its help, and fits a screen of 80 columns.
#[derive(Debug, Clone, Subcommand)]
enum Command {
    /// Serve the app (this is also what happens without a command).
    Serve,
    /// Serve the app with a demo instead of a model; each reply says so.
    Demo,
    /// Look for model servers, and write adapter.toml and a token file.
    Init {
        /// Ask nothing; an adapter.toml that is there is kept.
        #[arg(long)]
        yes: bool,
        /// Look here, not at the usual ports; may be repeated.
        #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
        url: Vec<String>,
    },
    /// Validate the configuration, ask the model servers, say what holds.
    Check {
        /// Show a picture to each model that may or may not see.
        #[arg(long)]
        probe_images: bool,
    },
    /// Test a running adapter, and what around it could bite.
    Doctor {
        /// Also show the model a picture with digits.
        #[arg(long)]
        deep: bool,
        /// Print one JSON document instead of lines.
        #[arg(long)]
        json: bool,
    },
    /// Show what a running adapter does, and how its last turns ended.
    Status,
    /// Ask a running adapter whether it is well (for containers).
    Healthcheck,
    /// Make a new token.
    Token {
        /// Write it to this new file, readable by you alone.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        output: Option<PathBuf>,
    },
    /// Print what a shell needs to complete Weir's command line.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Print the man page.
    Man,
}

/// Why a command ends badly: words for the person, and the exit code.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The configuration is at fault; nothing was started (exit code 2).
    #[error("{0}")]
    Configuration(String),
    /// Anything else (exit code 1).
    #[error("{0}")]
    Failed(String),
    /// The same, where the screen has said it all.
    #[error("it failed, as was shown")]
    FailedAsShown,
}

impl From<SettingsError> for CommandError {
    fn from(error: SettingsError) -> Self {
        CommandError::Configuration(error.to_string())
    }
}

/// Runs one command and turns what became of it into words and an exit code: 0, 2 for a configuration error, 1 otherwise.
pub fn run(arguments: Arguments) -> ExitCode {
    observe::quiet_panics();
    // One thread: a turn that wakes another thread for each of its steps costs more than it gains (docs/performance.md).
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("weir: the runtime could not be started: {}", error.kind());
            return ExitCode::FAILURE;
        }
    };
    let config = arguments.config.as_deref();
    let command = arguments.command.unwrap_or(Command::Serve);
    let takes_no_configuration =
        matches!(command, Command::Demo | Command::Token { .. } | Command::Completions { .. } | Command::Man);
    let result = match command {
        _ if config.is_some() && takes_no_configuration => {
            Err(CommandError::Configuration("this command reads no configuration file; leave --config out".to_owned()))
        }
        Command::Serve => runtime.block_on(serve::run(config)),
        Command::Demo => runtime.block_on(demo::run()),
        Command::Init { yes, url } => runtime.block_on(init::run(config, &url, yes)),
        Command::Check { probe_images } => runtime.block_on(check::run(config, probe_images)),
        Command::Doctor { deep, json } => runtime.block_on(doctor::run(config, deep, json)),
        Command::Status => runtime.block_on(status::run(config)),
        Command::Healthcheck => runtime.block_on(healthcheck::run(config)),
        Command::Token { output } => token::run(output.as_deref()),
        Command::Completions { shell } => {
            shell::completions(shell);
            Ok(())
        }
        Command::Man => shell::man(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, CommandError::FailedAsShown) {
                screen::say_why(&error.to_string());
            }
            match error {
                CommandError::Configuration(_) => ExitCode::from(2),
                CommandError::Failed(_) | CommandError::FailedAsShown => ExitCode::FAILURE,
            }
        }
    }
}

/// The settings from the configuration, or those of a model server that was found because there is no configuration.
async fn settings_or_search(config: Option<&std::path::Path>) -> Result<Settings, CommandError> {
    let environment = Environment::from_process();
    match settings::load(&settings::find(config)?, &environment) {
        Ok(settings) => Ok(settings),
        Err(SettingsError::NothingConfigured) => search::settings(&environment).await,
        Err(refused) => Err(refused.into()),
    }
}

/// The settings for asking an adapter that runs: only its port and its tokens matter, so no model server is looked for and
/// nothing is made.
fn settings_of_running(config: Option<&std::path::Path>) -> Result<Settings, CommandError> {
    let environment = Environment::from_process();
    match settings::load(&settings::find(config)?, &environment) {
        Err(SettingsError::NothingConfigured) => {
            let token_file = if environment.names_a_token() { PathBuf::new() } else { token::own_path()? };
            Ok(Settings::found(Vec::new(), &token_file, &environment)?)
        }
        settings => Ok(settings?),
    }
}

/// How this program was called, for commands that a person is to type: its path, unless it is found without one.
fn program() -> String {
    let called = std::env::args_os().next().map(PathBuf::from).filter(|path| path.components().count() > 1);
    called.map_or_else(|| "weir".to_owned(), |path| settings::as_shell_word(&path))
}

/// The failure classifier with the person's own rows.
fn classifier(settings: &Settings) -> Result<Classifier, CommandError> {
    Classifier::with_rows(&settings.failures).map_err(|missed| {
        let file = match &settings.origin {
            Origin::File(path) => path.display().to_string(),
            Origin::Environment | Origin::Found | Origin::Demo => "the configuration".to_owned(),
        };
        CommandError::Configuration(format!(
            "{file}: {missed}. Correct the row's conditions or the example, or move the row up."
        ))
    })
}
