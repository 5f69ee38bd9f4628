//! What a person sees: at most 80 columns wide, and in colour only where a terminal shows it and `NO_COLOR` doesn't forbid it
//! (`anstream` decides, and takes the colours out of everything else).

use std::fmt::Arguments;
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::process;

use anstyle::{AnsiColor, Style};
use textwrap::{Options, WordSplitter};

/// Something is as it should be.
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
/// Something is wrong.
pub(super) const BAD: Style = AnsiColor::Red.on_default().bold();
/// Something works and should be changed. Not yellow: on a white screen most terminals show that too light to read.
pub(super) const CAUTION: Style = AnsiColor::Magenta.on_default();
/// What stands out.
pub(super) const STRONG: Style = Style::new().bold();
/// What may be passed over.
pub(super) const QUIET: Style = Style::new().dimmed();

/// How wide a screen is taken to be, in columns: what every terminal has.
pub(super) const WIDTH: usize = 80;

/// Prints a line, as `println!` does with what it is given; a reader that has gone ends the command without a word.
macro_rules! tell {
    ($($text:tt)*) => {
        $crate::cli::screen::print_line(format_args!($($text)*))
    };
}
pub(super) use tell;

/// Prints a text behind `first`, folded at spaces; the lines after the first are indented by so many columns. What has no space
/// in it, such as a path or an address, is never torn.
pub(super) fn say(first: &str, indent: usize, text: &str) {
    tell!("{}", folded(first, indent, text));
}

/// What [`tell!`] does.
pub(super) fn print_line(line: Arguments<'_>) {
    end_if_unread(writeln!(anstream::stdout(), "{line}"));
}

/// Ends the command where its screen can't be written. A reader that has seen enough, such as `head`, is no failure.
pub(super) fn end_if_unread(written: io::Result<()>) {
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => process::exit(0),
        Err(error) => {
            eprintln!("weir: nothing can be printed: {}", error.kind());
            process::exit(1);
        }
    }
}

/// Prints why a command ended, on standard error; folded for a person, on one line for a program.
pub(super) fn say_why(why: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("{}", folded("weir: ", 0, why));
    } else {
        eprintln!("weir: {why}");
    }
}

fn folded(first: &str, indent: usize, text: &str) -> String {
    let indent = " ".repeat(indent);
    let options = Options::new(WIDTH)
        .initial_indent(first)
        .subsequent_indent(&indent)
        .break_words(false)
        .word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(text, options)
}
