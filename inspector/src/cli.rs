//! Arguments of `rejoin`. Options that name a feature of a later version are not accepted here.

use crate::fault::FaultPoint;
use crate::output::Format;
use journal_core::membership::{JobPolicy, JobStrategy};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Keeps a multi-process training job running when one of its ranks dies.
#[derive(Debug, Parser)]
#[command(name = "rejoin", version, arg_required_else_help = true)]
#[command(after_help = "Example:\n  rejoin demo --kill 2@100")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a job of N ranks and replace a rank that dies
    #[command(after_help = RUN_HELP)]
    Run(RunOptions),
    /// Train a small network twice, undisturbed and with a rank killed, and compare the weights
    #[command(after_help = "Exit code 0 only if the final weights are bit-identical.\n\n\
        Example:\n  rejoin demo --ranks 4 --kill 2@100")]
    Demo(DemoOptions),
    /// List the jobs of this machine
    #[command(after_help = "Example:\n  rejoin ls --format json")]
    Ls(LsOptions),
    /// Print the recoveries of a job, with milliseconds a stage
    #[command(after_help = "Example:\n  rejoin recovery my-job")]
    Recovery(RecoveryOptions),
    /// Print the journal of a rank, live or dead
    #[command(after_help = "Example:\n  rejoin show my-job/2")]
    Show(ShowOptions),
    /// Say whether the journals of a job can be replayed, before anything fails
    #[command(after_help = "Exit code 0: they can; 1: not; 2: could not look.\n\nExample:\n  rejoin verify my-job\n  rejoin verify my-job/2")]
    Verify(VerifyOptions),
    /// Remove segments that no process uses any more
    #[command(after_help = "Example:\n  rejoin gc --dry-run")]
    Gc(GcOptions),
    /// A rank of the demo
    #[command(hide = true)]
    DemoRank(DemoRankOptions),
}

const RUN_HELP: &str = "\
Exit codes: 0 every rank finalized; 2 could not start; 10 more deaths than --max-recoveries;
11 the same rank died twice in the same step; 12 the job could not be recovered;
13 a deadline passed; 14 a rank exited before it opened a session; 130, 143 interrupted.

Example:
  rejoin run -n 4 --backend host -- target/debug/digits --steps 200";

/// Which library does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// GPUs by the CUDA driver and NVIDIA's NCCL
    Cuda,
    /// CPU memory, no GPU needed
    Host,
}

impl Backend {
    /// As in `REJOIN_BACKEND`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Host => "host",
        }
    }
}

/// How communicators are rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Strategy {
    /// The one that fits the library
    #[default]
    Auto,
    /// A fresh communicator with the original ranks
    Reinit,
    /// Shrink, grow, split by original rank
    Grow,
    /// Shrink, then the three new-rank calls of the original system (host-nccl)
    NewRank,
}

impl From<Strategy> for JobStrategy {
    fn from(strategy: Strategy) -> Self {
        match strategy {
            Strategy::Auto => Self::Auto,
            Strategy::Reinit => Self::Reinit,
            Strategy::Grow => Self::Grow,
            Strategy::NewRank => Self::NewRank,
        }
    }
}

/// What happens to the step in which a rank died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Policy {
    /// The application runs it again
    #[default]
    Redo,
    /// Its recorded requests are issued again; the application sees one slow call
    Replay,
}

impl From<Policy> for JobPolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Redo => Self::Redo,
            Policy::Replay => Self::Replay,
        }
    }
}

/// What `run` and `demo` have in common.
#[derive(Debug, Clone, Args)]
pub struct RecoveryPolicy {
    /// How communicators are rebuilt
    #[arg(long, value_enum, default_value_t)]
    pub strategy: Strategy,
    /// What happens to the step in which a rank died
    #[arg(long, value_enum, default_value_t)]
    pub policy: Policy,
    /// Keep the numbering that grow and new-rank leave: survivors above the failed rank move down by one, the
    /// replacement is the last
    #[arg(long)]
    pub renumber: bool,
    /// Deaths after which the job is given up
    #[arg(long, value_name = "M", default_value_t = 8)]
    pub max_recoveries: u32,
    /// Limit of each stage of a recovery, in seconds
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds)]
    pub stage_timeout: Duration,
    /// Kill and replace a rank that is stopped, or behind all others, while the job makes no progress for so many
    /// seconds; choose it longer than anything one rank does alone [default: never]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub hang_timeout: Option<Duration>,
}

/// `rejoin run`.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// Number of ranks
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = ranks)]
    pub nranks: u32,
    /// Name of the job: letters, digits, - and _, at most 64 [default: one that is free]
    #[arg(long, value_name = "NAME", value_parser = job_name)]
    pub job: Option<String>,
    /// Which library does the work; never chosen silently [default: REJOIN_BACKEND]
    #[arg(long, value_enum)]
    pub backend: Option<Backend>,
    #[command(flatten)]
    pub recovery: RecoveryPolicy,
    /// Device that replacements use, where the rank's own is broken [default: the rank's own]
    #[arg(long, value_name = "ORDINAL")]
    pub replacement_device: Option<u32>,
    /// Let ranks dump core when they crash (delays recovery by the time of the dump)
    #[arg(long)]
    pub core: bool,
    /// Prefix each line that a rank prints with its number
    #[arg(long)]
    pub tag: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
    /// The program of every rank, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// `rejoin demo`.
#[derive(Debug, Args)]
pub struct DemoOptions {
    /// Number of ranks
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = demo_ranks)]
    pub ranks: u32,
    /// Training steps
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub steps: u32,
    /// Kill RANK inside the all-reduce of STEP, or so many microseconds later, or (+go) between the decision and its
    /// commit, or (+again) there and its replacement too; repeatable [default: 2@100]
    #[arg(long, value_name = "RANK@STEP[+US|+go|+again]")]
    pub kill: Vec<FaultPoint>,
    /// Make the device of RANK fail inside STEP, or (+go) between the decision and its commit; its process lives on;
    /// repeatable
    #[arg(long, value_name = "RANK@STEP[+go]")]
    pub fail_device: Vec<FaultPoint>,
    #[command(flatten)]
    pub recovery: RecoveryPolicy,
    /// Which library does the work [default: cuda where it can be used, else host]
    #[arg(long, value_enum)]
    pub backend: Option<Backend>,
    /// Print one JSON object and nothing else
    #[arg(long)]
    pub json: bool,
}

/// `rejoin ls`.
#[derive(Debug, Args)]
pub struct LsOptions {
    /// Text for people or JSON Lines
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Folder of the segments
    #[arg(long, value_name = "DIR", env = "REJOIN_DIR", default_value = "/dev/shm")]
    pub dir: PathBuf,
}

/// `rejoin recovery`.
#[derive(Debug, Args)]
pub struct RecoveryOptions {
    /// Name of the job
    #[arg(value_parser = job_name)]
    pub job: String,
    /// Text for people or JSON Lines
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Folder of the segments
    #[arg(long, value_name = "DIR", env = "REJOIN_DIR", default_value = "/dev/shm")]
    pub dir: PathBuf,
}

/// `rejoin show`.
#[derive(Debug, Args)]
pub struct ShowOptions {
    /// Job and rank, and the incarnation if not the newest
    #[arg(value_name = "JOB/RANK[.INCARNATION]")]
    pub journal: JournalPlace,
    /// Text for people or JSON Lines
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Folder of the segments
    #[arg(long, value_name = "DIR", env = "REJOIN_DIR", default_value = "/dev/shm")]
    pub dir: PathBuf,
}

/// `rejoin verify`.
#[derive(Debug, Args)]
pub struct VerifyOptions {
    /// A job, or one rank of it
    #[arg(value_name = "JOB[/RANK]")]
    pub place: JobPlace,
    /// Text for people or JSON Lines
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Folder of the segments
    #[arg(long, value_name = "DIR", env = "REJOIN_DIR", default_value = "/dev/shm")]
    pub dir: PathBuf,
}

/// A job or one rank of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPlace {
    /// Job name.
    pub job: String,
    /// One rank; all if not given.
    pub rank: Option<u32>,
}

impl std::str::FromStr for JobPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((job, rank)) = text.split_once('/') else { return Ok(Self { job: job_name(text)?, rank: None }) };
        let rank = rank.parse().map_err(|_| "expected JOB or JOB/RANK, for example my-job/2".to_owned())?;
        Ok(Self { job: job_name(job)?, rank: Some(rank) })
    }
}

/// One rank's journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalPlace {
    /// Job name.
    pub job: String,
    /// Rank.
    pub rank: u32,
    /// Which process of it; the newest if not given.
    pub incarnation: Option<u32>,
}

impl std::str::FromStr for JournalPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected JOB/RANK or JOB/RANK.INCARNATION, for example my-job/2".to_owned();
        let (job, place) = text.split_once('/').ok_or_else(wrong)?;
        let (rank, incarnation) = place.split_once('.').map_or((place, None), |(rank, n)| (rank, Some(n)));
        let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
        Ok(Self { job: job_name(job)?, rank: number(rank)?, incarnation: incarnation.map(number).transpose()? })
    }
}

/// `rejoin gc`.
#[derive(Debug, Args)]
pub struct GcOptions {
    /// Say what would be removed, remove nothing
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Text for people or JSON Lines
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Folder of the segments
    #[arg(long, value_name = "DIR", env = "REJOIN_DIR", default_value = "/dev/shm")]
    pub dir: PathBuf,
}

/// `rejoin demo-rank`, started by the demo.
#[derive(Debug, Args)]
pub struct DemoRankOptions {
    /// Training steps
    #[arg(long)]
    pub steps: u32,
    /// Shared object with the kernels
    #[arg(long)]
    pub kernels: PathBuf,
    /// File that gets this rank's result
    #[arg(long)]
    pub result: PathBuf,
}

impl RecoveryPolicy {
    /// Refuses combinations that cannot keep what they promise.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            !(self.renumber && self.policy == Policy::Replay),
            "--renumber and --policy replay exclude each other: a recorded request names the ranks as they were"
        );
        anyhow::ensure!(
            !self.renumber || matches!(self.strategy, Strategy::Grow | Strategy::NewRank),
            "--renumber needs --strategy grow or new-rank: reinit keeps the original ranks"
        );
        Ok(())
    }
}

fn ranks(text: &str) -> Result<u32, String> {
    within(text, 1024)
}

fn demo_ranks(text: &str) -> Result<u32, String> {
    within(text, 64)
}

fn within(text: &str, most: u32) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(0) => Err("a job needs at least one rank".to_owned()),
        Ok(n) if n <= most => Ok(n),
        _ => Err(format!("expected a number from 1 to {most}")),
    }
}

fn job_name(text: &str) -> Result<String, String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if (1..=64).contains(&text.len()) && text.bytes().all(fits) {
        return Ok(text.to_owned());
    }
    Err("a job name has 1 to 64 letters, digits, - and _".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value = text.parse::<f64>().map_err(|_| "expected seconds, for example 30 or 0.5".to_owned())?;
    if value > 0.0 && value <= 86_400.0 {
        return Ok(Duration::from_secs_f64(value));
    }
    Err("expected more than 0 and at most 86400 seconds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("rejoin").chain(arguments.iter().copied()))
    }

    #[test]
    fn the_argument_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_ends_its_help_with_an_example() {
        for command in Cli::command().get_subcommands().filter(|c| !c.is_hide_set()) {
            let help = command.clone().render_help().to_string();
            let tail = help.rsplit("Example:").next().unwrap_or_default();
            assert!(help.contains("Example:") && tail.contains("rejoin "), "{}: {help}", command.get_name());
        }
    }

    #[test]
    fn run_takes_everything_after_two_dashes_as_the_program() {
        let cli = parse(&["run", "-n", "4", "--", "prog", "-n", "7", "--job", "x"]).expect("valid");
        let Command::Run(run) = cli.command else { panic!("not run") };
        assert_eq!((run.nranks, run.job), (4, None));
        assert_eq!(run.program, ["prog", "-n", "7", "--job", "x"]);
    }

    #[test]
    fn a_job_without_ranks_is_refused() {
        let error = parse(&["run", "-n", "0", "--", "prog"]).expect_err("no ranks");
        assert!(error.to_string().contains("at least one rank"), "{error}");
        assert_eq!(error.exit_code(), 2);
        assert!(parse(&["run", "-n", "1025", "--", "prog"]).is_err());
        assert!(parse(&["run", "--", "prog"]).is_err());
    }

    #[test]
    fn a_program_is_required() {
        assert!(parse(&["run", "-n", "2"]).is_err());
        assert!(parse(&["run", "-n", "2", "--"]).is_err());
    }

    #[test]
    fn job_names_are_checked_before_they_become_file_names() {
        let name = |job: &str| parse(&["run", "-n", "1", "--job", job, "--", "prog"]).is_ok();
        assert!(name("a_B-9") && name(&"x".repeat(64)));
        assert!(!name("") && !name("a.b") && !name("a/b") && !name("ü") && !name(&"x".repeat(65)));
    }

    #[test]
    fn deadlines_are_positive_seconds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "-1", "nan", "inf", "x", "1e9"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_journal_is_named_by_job_rank_and_incarnation() {
        let place = |text: &str| text.parse::<JournalPlace>();
        assert_eq!(place("a/2"), Ok(JournalPlace { job: "a".into(), rank: 2, incarnation: None }));
        assert_eq!(place("a-b/0.3"), Ok(JournalPlace { job: "a-b".into(), rank: 0, incarnation: Some(3) }));
        for bad in ["", "a", "a/", "/1", "a/x", "a/1.", "../a/1", "a/1.2.3"] {
            assert!(place(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_hang_is_blamed_only_when_asked_for() {
        let of = |arguments: &[&str]| match parse(arguments).expect("valid").command {
            Command::Run(run) => run.recovery.hang_timeout,
            other => panic!("{other:?}"),
        };
        assert_eq!(of(&["run", "-n", "1", "--", "p"]), None);
        assert_eq!(of(&["run", "-n", "1", "--hang-timeout", "2.5", "--", "p"]), Some(Duration::from_millis(2500)));
    }

    #[test]
    fn verify_takes_a_job_or_one_of_its_ranks() {
        let place = |text: &str| text.parse::<JobPlace>();
        assert_eq!(place("a"), Ok(JobPlace { job: "a".into(), rank: None }));
        assert_eq!(place("a/3"), Ok(JobPlace { job: "a".into(), rank: Some(3) }));
        for bad in ["", "/1", "a/", "a/x", "a/1.0", "../a"] {
            assert!(place(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn demo_takes_several_kills() {
        let cli = parse(&["demo", "--kill", "0@50", "--kill", "3@120+200"]).expect("valid");
        let Command::Demo(demo) = cli.command else { panic!("not demo") };
        assert_eq!(demo.kill.len(), 2);
        assert_eq!((demo.ranks, demo.steps, demo.json), (4, 200, false));
    }
}
