//! The questions that `weir init` asks.

use std::io::{IsTerminal as _, Write as _, stdin};

use crate::cli::CommandError;
use crate::cli::screen::{STRONG, tell};

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// Nobody: every question has its usual answer (`--yes`).
    Nobody,
    /// A person at a terminal. The end of the input means stop.
    Person,
    /// Lines of a pipe or a file, one an answer. After their end every question has its usual answer.
    Lines,
}

impl Asked {
    /// Whoever is there.
    pub(super) fn from_stdin(yes: bool) -> Self {
        if yes {
            Asked::Nobody
        } else if stdin().is_terminal() {
            Asked::Person
        } else {
            Asked::Lines
        }
    }

    /// An empty line before a question, where one is asked.
    pub(super) fn leave_a_line(self) {
        if self != Asked::Nobody {
            tell!("");
        }
    }

    /// Asks one question. An empty answer is the usual one; `read` makes sense of an answer, or says what is wrong with it. A
    /// person is asked again; a line that makes no sense ends the command.
    pub(super) fn ask<T>(
        self,
        question: &str,
        usual: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, CommandError> {
        let wrong = |why: String| CommandError::Failed(format!("{why}; nothing was written"));
        if self == Asked::Nobody {
            return read(usual).map_err(wrong);
        }
        loop {
            let shown = if usual.is_empty() { String::new() } else { format!(" [{usual}]") };
            anstream::print!("{STRONG}{question}{STRONG:#}{shown}: ");
            // A question that can't be shown shows in what comes of it.
            let _ = std::io::stdout().flush();
            let mut line = String::new();
            let read_bytes = stdin().read_line(&mut line);
            let answer = match (self, line.trim()) {
                (Asked::Person, _) if matches!(read_bytes, Ok(0) | Err(_)) => {
                    tell!("");
                    return Err(wrong("stopped".to_owned()));
                }
                (_, "") => usual,
                (_, answer) => answer,
            };
            if self == Asked::Lines {
                tell!("{answer}");
            }
            match read(answer) {
                Ok(answer) => return Ok(answer),
                Err(why) if self == Asked::Person => tell!("  {why}"),
                Err(why) => return Err(wrong(why)),
            }
        }
    }
}

/// Reads a yes or a no.
pub(super) fn yes_or_no(answer: &str) -> Result<bool, String> {
    match answer.to_lowercase().as_str() {
        "y" | "yes" => Ok(true),
        "n" | "no" => Ok(false),
        _ => Err("answer y or n".to_owned()),
    }
}
