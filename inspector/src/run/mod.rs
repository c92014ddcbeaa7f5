//! `rejoin run`: the launcher. It owns the members segment, starts ranks and replaces those that die.
//!
//! ```text
//! launcher    poll over pidfds, signals, pipes
//!   process     one rank: start, signal, reap            evidence   how it ended
//!   supervisor  exit -> replace | restart | end          (pure)
//!   segment     the members segment as the launcher uses it: seats, evidence, reports
//!   hang        who holds a job up (--hang-timeout)
//!   leftovers   what a dead job has left under a name, and the proof that it is dead
//! ```

pub mod environment;
pub mod evidence;
pub mod hang;
pub mod launcher;
pub mod leftovers;
pub mod lines;
pub mod process;
pub mod segment;
pub mod signals;
pub mod supervisor;

use crate::cli::RunOptions;
use crate::exit_code::ExitCode;
use crate::progress::Narrator;
use launcher::{JobSpec, launch};
use lines::OutputMode;
use signals::Signals;

/// Runs a job to its end.
pub fn command(options: RunOptions) -> anyhow::Result<ExitCode> {
    process::find_program(&options.program[0])?;
    let backend = environment::backend(options.backend)?;
    let job = match options.job {
        Some(job) => job,
        None => segment::free_name(),
    };
    let spec = JobSpec {
        options: segment::options(&job, options.nranks, backend.name(), &options.recovery)?,
        environment: environment::of_backend(backend)?,
        replacement_environment: environment::of_replacement(options.replacement_device),
        program: options.program,
        output: if options.tag { OutputMode::Tag } else { OutputMode::Inherit },
        core: options.core,
    };
    if let Some(text) = environment::multicast_warning(backend).filter(|_| !options.quiet) {
        eprintln!("rejoin: warning: {text}");
    }
    let mut signals = Signals::create()?;
    let mut narrator = Narrator::for_run(options.quiet, options.nranks);
    let outcome = launch(&spec, &mut signals, &mut narrator)?;
    narrator.finish();
    if let Some(reason) = &outcome.reason {
        eprintln!("rejoin: job {job} ended: {reason}");
    }
    Ok(outcome.code)
}
