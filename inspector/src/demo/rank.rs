//! A rank of the demo: the digits trainer, which hands its result to the demo.

use super::results::{self, RankResult};
use crate::cli::DemoRankOptions;
use crate::exit_code::ExitCode;
use digits::{DEFAULT_SEED, Options, Trainer};
use journal_core::session::{Session, SessionOptions};

/// Trains and leaves.
pub fn command(options: DemoRankOptions) -> anyhow::Result<ExitCode> {
    let session = Session::open(SessionOptions::from_env()?)?;
    let trainer = Trainer::create(&session, Options { steps: options.steps, seed: DEFAULT_SEED, kernels: options.kernels })?;
    let outcome = trainer.run()?;
    drop(trainer);
    let result = RankResult { weights_sha256: outcome.weights_sha256, correct: outcome.correct, tested: outcome.tested };
    // Before leaving: a rank that has left is not replaced, so its result would be lost with it.
    results::write(&options.result, session.rank().0, &result)?;
    session.finalize()?;
    Ok(ExitCode::FINE)
}
