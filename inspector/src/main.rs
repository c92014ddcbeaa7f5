//! The command `rejoin`: starts jobs, shows what recovery does, and looks at jobs from outside.
//!
//! ```text
//! cli -> run     launcher: members segment, ranks, replacements, signals
//!     -> demo    the same launcher twice: undisturbed and with ranks killed; compares the weights
//!     -> ls, recovery    read-only views of the members segments
//!     -> show, verify    read-only views of a rank's journal
//!     -> gc      removes what the kernel says nobody uses
//! ```
//! Exit codes stand in [`exit_code`]. Data goes to stdout, messages go to stderr.
#![deny(unsafe_code)]

mod cli;
mod companion;
mod demo;
mod exit_code;
mod fault;
mod gc;
mod journal;
#[allow(unsafe_code)]
mod lease;
mod ls;
mod output;
mod progress;
mod recovery;
mod report;
mod run;
mod show;
mod verify;

use clap::Parser;
use cli::{Cli, Command};
use exit_code::ExitCode;

/// What the library tells, on stderr, as far as `REJOIN_LOG` asks for it (`debug`, `journal_core=trace`).
fn start_log() {
    if let Ok(filter) = tracing_subscriber::EnvFilter::try_from_env("REJOIN_LOG") {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
}

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    start_log();
    let result = match cli.command {
        Command::Run(options) => run::command(options),
        Command::Demo(options) => demo::command(options),
        Command::DemoRank(options) => demo::rank::command(options),
        Command::Ls(options) => ls::command(&options),
        Command::Recovery(options) => recovery::command(&options),
        Command::Show(options) => show::command(&options),
        Command::Verify(options) => verify::command(&options),
        Command::Gc(options) => gc::command(&options),
    };
    let code = result.unwrap_or_else(|error| {
        if output::is_broken_pipe(&error) {
            return ExitCode::FINE;
        }
        eprintln!("rejoin: {error:#}");
        ExitCode::COULD_NOT_RUN
    });
    code.into()
}
