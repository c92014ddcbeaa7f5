//! `rejoin demo`: trains the same network twice, undisturbed and with ranks killed, and compares the weights.

pub mod rank;
mod story;
mod results;

use crate::cli::{Backend, DemoOptions};
use crate::companion;
use crate::exit_code::ExitCode;
use crate::fault::{self, FaultPoint, Moment};
use crate::output;
use crate::progress::Narrator;
use crate::report::RecoveryLine;
use crate::run::environment::{self, Environment};
use crate::run::launcher::{JobSpec, Outcome, launch};
use crate::run::lines::OutputMode;
use crate::run::segment;
use crate::run::signals::Signals;
use anyhow::{Context, ensure};
use results::{JobResult, Results};
use serde::Serialize;
use journal_core::backend::cuda::probe;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// File name of the trainer's kernels for the host backend.
const KERNELS: &str = "libdigits_kernels.so";
/// The same for CUDA.
const CUBIN: &str = "digits.cubin";

/// What `--json` prints. The keys are stable.
#[derive(Debug, Serialize)]
pub struct DemoReport {
    /// host or cuda.
    pub backend: String,
    /// Number of ranks.
    pub ranks: u32,
    /// Training steps.
    pub steps: u32,
    /// Share of the 299 test images that are classified as labelled, after the run with kills.
    pub accuracy: f64,
    /// SHA-256 of the final weights, undisturbed.
    pub weights_sha256_clean: String,
    /// The same with ranks killed.
    pub weights_sha256_faulty: String,
    /// They are equal.
    pub identical: bool,
    /// What happened in the second run.
    pub recoveries: Vec<RecoveryLine>,
}

/// One of the two runs.
#[derive(Debug)]
pub struct Run {
    /// What its ranks agreed on.
    pub result: JobResult,
    /// From the start of its processes to the end of the last.
    pub duration: Duration,
    /// Its recoveries.
    pub recoveries: Vec<RecoveryLine>,
}

/// Runs the demo.
pub fn command(options: DemoOptions) -> anyhow::Result<ExitCode> {
    let faults = Faults::asked_for(&options)?;
    let backend = match options.backend {
        Some(backend) => environment::backend(Some(backend))?,
        None => choose_backend(options.json),
    };
    let mut signals = Signals::create()?;
    let mut demo = Demo { options: &options, backend, signals: &mut signals };
    let clean = match demo.run("undisturbed", &Faults::default())? {
        Ok(run) => run,
        Err(code) => return Ok(code),
    };
    let faulty = match demo.run("disturbed", &faults)? {
        Ok(run) => run,
        Err(code) => return Ok(code),
    };
    let identical = clean.result.weights_sha256 == faulty.result.weights_sha256;
    if options.json {
        output::json(&DemoReport {
            backend: backend.name().to_owned(),
            ranks: options.ranks,
            steps: options.steps,
            accuracy: faulty.result.accuracy(),
            weights_sha256_clean: clean.result.weights_sha256.clone(),
            weights_sha256_faulty: faulty.result.weights_sha256.clone(),
            identical,
            recoveries: faulty.recoveries,
        })?;
    } else {
        output::line(&story::tell(backend, options.ranks, options.steps, &faults, &clean, &faulty))?;
    }
    Ok(if identical { ExitCode::FINE } else { ExitCode::TROUBLE })
}

/// CUDA where there is a GPU and the kernels were compiled for it; otherwise the host backend, and why.
fn choose_backend(quiet: bool) -> Backend {
    let why = match (probe(), kernels(Backend::Cuda)) {
        (Ok(_), Ok(_)) => return Backend::Cuda,
        (Err(error), _) => error.to_string(),
        (_, Err(error)) => format!("{error:#}"),
    };
    if !quiet {
        eprintln!("rejoin: no usable GPU here, so the demo runs on CPU memory (--backend host); the reason: {why}");
    }
    Backend::Host
}

/// The trainer's kernels for a backend: `REJOIN_DIGITS_KERNELS`, else beside the program.
fn kernels(backend: Backend) -> anyhow::Result<PathBuf> {
    match (std::env::var_os("REJOIN_DIGITS_KERNELS"), backend) {
        (Some(path), Backend::Cuda) => Ok(path.into()),
        (_, Backend::Host) => companion::locate(KERNELS),
        (None, Backend::Cuda) => companion::locate(CUBIN)
            .context("compile examples/digits/kernels/digits.cu (nvcc -arch=sm_90 -cubin) and set REJOIN_DIGITS_KERNELS to the result"),
    }
}

/// What goes wrong in the second run.
#[derive(Debug, Default)]
pub struct Faults {
    /// Processes that are killed.
    pub kills: Vec<FaultPoint>,
    /// Devices that fail.
    pub devices: Vec<FaultPoint>,
}

impl Faults {
    /// As asked for, or one kill scaled to what was asked for.
    fn asked_for(options: &DemoOptions) -> anyhow::Result<Self> {
        let mut faults = Self { kills: options.kill.clone(), devices: options.fail_device.clone() };
        if faults.kills.is_empty() && faults.devices.is_empty() {
            let default = FaultPoint { rank: 2.min(options.ranks - 1), step: 100.min(options.steps / 2), moment: Moment::Reducing(0) };
            faults.kills.push(default);
        }
        for (option, points) in [("--kill", &faults.kills), ("--fail-device", &faults.devices)] {
            for point in points {
                ensure!(point.rank < options.ranks, "{option} {point}: the ranks are 0 to {}", options.ranks - 1);
                ensure!(point.step < options.steps, "{option} {point}: the steps are 0 to {}", options.steps - 1);
            }
        }
        Ok(faults)
    }
}

struct Demo<'a> {
    options: &'a DemoOptions,
    backend: Backend,
    signals: &'a mut Signals,
}

impl Demo<'_> {
    /// Runs the job once; the exit code if it did not get to its end.
    fn run(&mut self, title: &str, faults: &Faults) -> anyhow::Result<Result<Run, ExitCode>> {
        let results = Results::create(self.options.ranks)?;
        let spec = self.spec(&results, faults)?;
        let (ranks, steps) = (self.options.ranks, self.options.steps);
        let mut narrator = Narrator::create(self.options.json, format!("demo, {title}"), ranks, Some(steps));
        let begin = Instant::now();
        let outcome = launch(&spec, self.signals, &mut narrator)?;
        let duration = begin.elapsed();
        narrator.finish();
        if outcome.code != ExitCode::FINE {
            explain(title, &outcome);
            return Ok(Err(outcome.code));
        }
        let result = results.collect().with_context(|| format!("the run {title}"))?;
        Ok(Ok(Run { result, duration, recoveries: outcome.recoveries }))
    }

    fn spec(&self, results: &Results, faults: &Faults) -> anyhow::Result<JobSpec> {
        let mut environment: Environment = environment::of_backend(self.backend)?;
        environment.push(("REJOIN_FAULT".to_owned(), fault::to_environment(&faults.kills, &faults.devices).into()));
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let arguments = [
            program.into_os_string(),
            "demo-rank".into(),
            "--steps".into(),
            self.options.steps.to_string().into(),
            "--kernels".into(),
            kernels(self.backend)?.into(),
            "--result".into(),
            results.path().into(),
        ];
        Ok(JobSpec {
            options: segment::options(&segment::free_name(), self.options.ranks, self.backend.name(), &self.options.recovery)?,
            program: arguments.into(),
            environment,
            replacement_environment: Vec::new(),
            output: OutputMode::Keep,
            core: false,
        })
    }
}

fn explain(title: &str, outcome: &Outcome) {
    for line in &outcome.lines {
        eprintln!("{line}");
    }
    let reason = outcome.reason.as_deref().unwrap_or("no reason was given");
    eprintln!("rejoin: the run {title} did not get to its end: {reason}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn options(arguments: &[&str]) -> DemoOptions {
        let all = ["rejoin", "demo"].iter().chain(arguments);
        match Cli::try_parse_from(all).expect("valid").command {
            Command::Demo(options) => options,
            other => panic!("{other:?}"),
        }
    }

    fn texts(arguments: &[&str]) -> Vec<String> {
        Faults::asked_for(&options(arguments)).expect("valid kills").kills.iter().map(FaultPoint::to_string).collect()
    }

    #[test]
    fn the_default_kill_fits_the_job() {
        assert_eq!(texts(&[]), ["2@100"]);
        assert_eq!(texts(&["--ranks", "1", "--steps", "10"]), ["0@5"]);
        assert_eq!(texts(&["--kill", "0@50", "--kill", "3@120+300"]), ["0@50", "3@120+300"]);
    }

    #[test]
    fn a_kill_of_a_rank_or_step_that_does_not_exist_is_refused() {
        let error = |arguments: &[&str]| Faults::asked_for(&options(arguments)).expect_err("refused").to_string();
        assert!(error(&["--kill", "4@1"]).contains("0 to 3"));
        assert!(error(&["--kill", "0@200"]).contains("0 to 199"));
    }
}
