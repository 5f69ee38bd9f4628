//! `weir completions` and `weir man`: what a shell and `man` are told about the command line, from the same definitions that
//! read it.

use std::io::Write as _;

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};

use super::screen::end_if_unread;
use super::{Arguments, CommandError};

/// What no option says, and a reader of the page looks for.
const FURTHER: [(&str, &[(&str, &str)]); 3] = [
    (
        "FILES",
        &[
            ("./adapter.toml", "The configuration, if it is there; README.md and adapter.toml.example list its keys."),
            (
                "~/.config/weir/adapter.toml",
                "The configuration otherwise. Where XDG_CONFIG_HOME is set, it takes the place of ~/.config.",
            ),
            ("~/.config/weir/adapter.token", "The token file that a start without any configuration makes."),
        ],
    ),
    (
        "ENVIRONMENT",
        &[
            ("ADAPTER_TOKEN", "The token that is let in, in place of token_file."),
            (
                "ADAPTER_…",
                "A key of the configuration: its path in capitals with two underscores between the parts, such as \
                 ADAPTER_UPSTREAM__LOCAL__URL. It wins over the file.",
            ),
            ("NO_COLOR", "If set, nothing is shown in colour."),
            ("NOTIFY_SOCKET, WATCHDOG_USEC", "Set by systemd: it is told when Weir is ready, and that it lives."),
        ],
    ),
    (
        "EXIT STATUS",
        &[
            ("0", "Success; for the adapter itself: it was asked to stop, and has."),
            ("2", "The configuration or the command line is faulty, and nothing was started."),
            ("1", "Anything else."),
        ],
    ),
];

/// Prints the completions for a shell.
pub(super) fn completions(shell: Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "weir", &mut script);
    end_if_unread(std::io::stdout().write_all(&script));
}

/// Prints the man page.
pub(super) fn man() -> Result<(), CommandError> {
    let page = page().map_err(|error| CommandError::Failed(format!("there is no man page: {}", error.kind())))?;
    end_if_unread(std::io::stdout().write_all(&page));
    Ok(())
}

/// One page for all commands, since `weir --help` is one screen as well.
fn page() -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let weir = Arguments::command().override_usage("weir [--config FILE] [COMMAND]");
    let man = Man::new(weir.clone());
    // clap_mangen's own title loses the date that isn't given.
    let version = format!("weir {}", weir.get_version().unwrap_or_default());
    writeln!(page, ".TH WEIR 1 \"\" \"{version}\"")?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    let mut roff = Roff::new();
    roff.control("SH", ["COMMANDS"]);
    for command in weir.get_subcommands() {
        describe(command, &mut roff);
    }
    for (heading, entries) in FURTHER {
        roff.control("SH", [heading]);
        for (name, meaning) in entries {
            roff.control("TP", []).text([bold(*name)]).text([roman(*meaning)]);
        }
    }
    roff.to_writer(&mut page)?;
    Ok(page)
}

/// A command with the options that are its own.
fn describe(command: &Command, roff: &mut Roff) {
    roff.control("SS", [format!("weir {}", command.get_name()).as_str()]);
    roff.text([roman(command.get_about().map(ToString::to_string).unwrap_or_default())]);
    for argument in command.get_arguments() {
        let name = argument.get_long().map(|long| format!("--{long}")).unwrap_or_default();
        let value = argument.get_action().takes_values().then(|| argument.get_value_names()).flatten();
        let value = value.map(|names| names.iter().map(ToString::to_string).collect::<String>()).unwrap_or_default();
        let between = if name.is_empty() || value.is_empty() { "" } else { " " };
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        roff.control("TP", []).text([bold(name), roman(between), italic(value)]).text([roman(help)]);
    }
}
