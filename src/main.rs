//! The `weir` binary: parses the command line and runs one command.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    weir::cli::run(weir::cli::Arguments::parse())
}
