//! The digits trainer as a program for `rejoin run`; see README.md.

use anyhow::Context;
use clap::Parser;
use digits::{DEFAULT_SEED, Options, Trainer};
use journal_core::error::{EVICTED_EXIT, Error};
use journal_core::nccl::library::find_companion;
use journal_core::session::{Session, SessionOptions};
use std::path::PathBuf;

const KERNELS: &str = "libdigits_kernels.so";

/// Train a classifier of handwritten digits; start it with rejoin run
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  rejoin run -n 4 --backend host -- target/debug/digits --steps 200")]
struct Arguments {
    /// Steps of 256 samples
    #[arg(long, default_value_t = 200)]
    steps: u32,
    /// Of initial parameters and of the order of samples
    #[arg(long, default_value_t = DEFAULT_SEED)]
    seed: u64,
    /// Shared object with the kernels [default: libdigits_kernels.so beside this program]
    #[arg(long)]
    kernels: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let outcome = run();
    if let Some(error @ Error::Evicted { .. }) = outcome.as_ref().err().and_then(|error| error.downcast_ref()) {
        eprintln!("{error}");
        std::process::exit(EVICTED_EXIT);
    }
    outcome
}

fn run() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let kernels = match arguments.kernels {
        Some(path) => path,
        None => find_companion(KERNELS).with_context(|| format!("{KERNELS} is not beside this program; give --kernels"))?,
    };
    let session = Session::open(SessionOptions::from_env()?)?;
    let trainer = Trainer::create(&session, Options { steps: arguments.steps, seed: arguments.seed, kernels })?;
    let outcome = trainer.run()?;
    if session.rank().0 == 0 {
        println!("{} of {} test images are right, weights {}", outcome.correct, outcome.tested, outcome.weights_sha256);
    }
    drop(trainer);
    session.finalize()?;
    Ok(())
}
