//! Runs `rejoin demo` many times with a rank killed at a random step and a random moment inside it, and prints how
//! many runs ended with identical weights, the time from the kill to the next commit, and where the time went.

use anyhow::{Context, ensure};
use clap::Parser;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Kill a random rank at a random moment, many times
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  scripts/random-kills --runs 100 --ranks 4")]
struct Options {
    /// Number of demo runs
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Number of ranks of each
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    ranks: u32,
    /// Steps of each
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Longest delay of a kill after its all-reduce was issued, in microseconds
    #[arg(long, default_value_t = 3000)]
    longest_delay_us: u64,
    /// Choose strategy, policy, renumbering and the kind of failure (one or two ranks, process or device, in the step
    /// or after its decision, the replacement too) at random as well
    #[arg(long)]
    mix: bool,
    /// Seed of the kills [default: from the clock; it is printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Further arguments of `rejoin demo`
    #[arg(last = true)]
    demo: Vec<String>,
}

/// What `rejoin demo --json` prints.
#[derive(Debug, Deserialize)]
struct Report {
    identical: bool,
    recoveries: Vec<Recovery>,
}

#[derive(Debug, Deserialize)]
struct Recovery {
    strategy: String,
    replayed_requests: u64,
    detect_ms: f64,
    agree_ms: f64,
    fence_ms: f64,
    quiesce_ms: f64,
    rebuild_ms: f64,
    replay_ms: f64,
    restore_ms: f64,
    verify_ms: f64,
    total_ms: f64,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let rejoin = rejoin()?;
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64);
    let mut random = Random(options.seed.unwrap_or(clock).max(1));
    println!("seed {}", random.0);
    let (mut identical, mut refused, mut recoveries) = (0, 0, Vec::new());
    for run in 1..=options.runs {
        let arguments = choose(&options, &mut random);
        let said = arguments.join(" ");
        match demo(&rejoin, &options, &arguments) {
            Ok(Outcome::Refused { code, why }) => {
                refused += 1;
                println!("run {run}: {said}: refused with exit code {code}: {why}");
            }
            Ok(Outcome::Trained(report)) => {
                identical += u32::from(report.identical);
                let times: Vec<String> = report.recoveries.iter().map(|r| format!("{:.1} ms", r.total_ms)).collect();
                let weights = if report.identical { "identical" } else { "DIFFERENT" };
                println!("run {run}: {said}: {weights}, recovered in {}", times.join(", "));
                recoveries.extend(report.recoveries);
            }
            Err(error) => println!("run {run}: {said}: FAILED: {error:#}"),
        }
    }
    println!("\n{identical} of {} runs identical, {refused} refused as documented, {} recoveries", options.runs, recoveries.len());
    let kind = |r: &Recovery| match r.replayed_requests {
        0 => r.strategy.clone(),
        _ => format!("{} with replay of a device", r.strategy),
    };
    let kinds: std::collections::BTreeSet<String> = recoveries.iter().map(kind).collect();
    for name in &kinds {
        let of_kind: Vec<&Recovery> = recoveries.iter().filter(|r| kind(r) == *name).collect();
        println!("\n{name}: {} recoveries", of_kind.len());
        print_times(&of_kind);
    }
    let bad = options.runs - identical - refused;
    ensure!(bad == 0, "{bad} runs were neither identical nor refused as documented");
    ensure!(!recoveries.is_empty(), "no rank was ever lost");
    Ok(())
}

fn print_times(recoveries: &[&Recovery]) {
    type Time = fn(&Recovery) -> f64;
    let columns: [(&str, Time); 9] = [
        ("detect", |r| r.detect_ms),
        ("agree", |r| r.agree_ms),
        ("fence", |r| r.fence_ms),
        ("quiesce", |r| r.quiesce_ms),
        ("rebuild", |r| r.rebuild_ms),
        ("replay", |r| r.replay_ms),
        ("restore", |r| r.restore_ms),
        ("verify", |r| r.verify_ms),
        ("kill to commit", |r| r.total_ms),
    ];
    println!("{:<16} {:>10} {:>10}", "stage", "median ms", "worst ms");
    for (name, time) in columns {
        let mut times: Vec<f64> = recoveries.iter().map(|r| time(r)).collect();
        times.sort_by(f64::total_cmp);
        let (Some(median), Some(worst)) = (times.get(times.len() / 2), times.last()) else { return };
        println!("{name:<16} {median:>10.2} {worst:>10.2}");
    }
}

/// Arguments of one demo run.
fn choose(options: &Options, random: &mut Random) -> Vec<String> {
    let (ranks, steps) = (u64::from(options.ranks), u64::from(options.steps));
    let (rank, step) = (random.below(ranks), random.below(steps));
    let kill = |rank, step, random: &mut Random| {
        ["--kill".to_owned(), format!("{rank}@{step}+{}", random.below(options.longest_delay_us + 1))]
    };
    if !options.mix {
        return kill(rank, step, random).into();
    }
    let strategy = ["auto", "reinit", "grow", "new-rank"][random.below(4) as usize];
    let policy = ["redo", "redo", "replay"][random.below(3) as usize];
    let mut arguments: Vec<String> = ["--strategy", strategy, "--policy", policy].map(str::to_owned).into();
    let second = (rank + 1 + random.below(ranks.max(2) - 1)) % ranks;
    if policy == "redo" && matches!(strategy, "grow" | "new-rank") && random.below(2) == 0 {
        arguments.push("--renumber".to_owned());
    }
    match random.below(9) {
        5 => arguments.extend(["--kill".to_owned(), format!("{rank}@{step}+go")]),
        6 => arguments.extend(["--fail-device".to_owned(), format!("{rank}@{step}+go")]),
        7 => arguments.extend(["--kill".to_owned(), format!("{rank}@{step}+again")]),
        // The second one dies in the same step, after it was run again and decided.
        8 => arguments.extend(kill(rank, step, random).into_iter().chain(["--kill".to_owned(), format!("{second}@{step}+go")])),
        0 | 1 => arguments.extend(kill(rank, step, random)),
        2 => arguments.extend(["--fail-device".to_owned(), format!("{rank}@{step}")]),
        3 => arguments.extend(kill(rank, step, random).into_iter().chain(kill(second, step, random))),
        _ => {
            arguments.extend(kill(rank, step, random));
            arguments.extend(["--fail-device".to_owned(), format!("{second}@{}", (step + random.below(3)).min(steps - 1))]);
        }
    }
    arguments
}

/// The binary built together with this one.
fn rejoin() -> anyhow::Result<PathBuf> {
    let exe = std::env::current_exe().context("cannot find the path of this program")?;
    let path = exe.with_file_name("rejoin");
    ensure!(path.is_file(), "{} is missing: build it with cargo build", path.display());
    Ok(path)
}

/// How one run ended.
enum Outcome {
    Trained(Report),
    /// With one of the codes of docs/recovery.md that say why a job cannot go on.
    Refused { code: i32, why: String },
}

fn demo(rejoin: &Path, options: &Options, faults: &[String]) -> anyhow::Result<Outcome> {
    let mut command = Command::new(rejoin);
    command.args(["demo", "--json"]).args(faults);
    command.args(["--ranks", &options.ranks.to_string(), "--steps", &options.steps.to_string()]).args(&options.demo);
    let output = command.output().context("cannot start rejoin")?;
    if let Some(code @ 10..=12) = output.status.code() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Ok(Outcome::Refused { code, why: said.lines().last().unwrap_or_default().to_owned() });
    }
    serde_json::from_slice(&output.stdout)
        .map(Outcome::Trained)
        .with_context(|| format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}

/// xorshift64* (Vigna 2016, <https://arxiv.org/abs/1402.6246>); the seed is not 0.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % limit.max(1)
    }
}
