//! The loop of the launcher: one `poll` over every process, signal and pipe of a job.

use super::environment::{self, Environment};
use super::evidence::Exit;
use super::hang::{Blame, HangWatch};
use super::lines::{Lines, OutputMode};
use super::process::{RankOutput, RankProcess};
use super::segment::JobSegment;
use super::signals::Signals;
use super::supervisor::{Supervisor, Verdict};
use crate::exit_code::ExitCode;
use crate::report::RecoveryLine;
use anyhow::Context;
use journal_core::error::EndReason;
use journal_core::membership::JobOptions;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use rustix::time::Timespec;
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// How long ranks may take to end after SIGTERM, before SIGKILL.
const TERMINATE_LIMIT: Duration = Duration::from_secs(5);
/// How long the kernel may take to end a process after SIGKILL (its memory may be large, its device slow).
const KILL_LIMIT: Duration = Duration::from_secs(60);
/// How often a watcher is told how far the job is.
const TICK: Duration = Duration::from_millis(100);
/// The same while a recovery is under way, so that its report is shown soon.
const RECOVERY_TICK: Duration = Duration::from_millis(10);

/// A job to run.
#[derive(Debug, Clone)]
pub struct JobSpec {
    /// What its segment is created with.
    pub options: JobOptions,
    /// Program and arguments of every rank.
    pub program: Vec<OsString>,
    /// What every rank finds in its environment.
    pub environment: Environment,
    /// What a replacement finds besides.
    pub replacement_environment: Environment,
    /// Where ranks' output goes.
    pub output: OutputMode,
    /// Ranks may dump core.
    pub core: bool,
}

/// How a job ended.
#[derive(Debug)]
pub struct Outcome {
    /// For the launcher's own exit.
    pub code: ExitCode,
    /// Why, unless all ranks finalized.
    pub reason: Option<String>,
    /// One for each recovery.
    pub recoveries: Vec<RecoveryLine>,
    /// The last lines of ranks, when they were kept.
    pub lines: Vec<String>,
}

/// What happens to a job while it runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// All ranks were started.
    Started {
        /// The job.
        job: &'a str,
        /// Its ranks.
        nranks: u32,
    },
    /// Nothing new, but time has passed.
    Tick {
        /// The open step; none before set-up is complete.
        step: Option<u32>,
    },
    /// A rank ended without having finalized.
    Died {
        /// The rank.
        rank: u32,
        /// How.
        exit: Exit,
        /// The open step; none before set-up was complete.
        step: Option<u32>,
    },
    /// The job has made no progress for `--hang-timeout`.
    Hung {
        /// Who is killed for it.
        blame: &'a Blame,
        /// That time.
        limit: Duration,
    },
    /// The next incarnation of a rank was started.
    Replaced {
        /// The rank.
        rank: u32,
        /// Process id.
        pid: u32,
    },
    /// Something that the program should do otherwise.
    Warning(&'a str),
    /// A rank died before set-up was complete: all ranks are started anew.
    Restarted,
    /// A recovery is complete.
    Recovered(&'a RecoveryLine),
    /// A signal ends the job.
    Interrupted {
        /// The signal.
        signal: i32,
    },
}

/// Is told what happens.
pub trait Watcher {
    /// Called from the launcher's loop, so it must be quick.
    fn event(&mut self, event: &Event<'_>);
}

/// Runs a job to its end. Whatever happens, no process and no segment of it is left.
pub fn launch(spec: &JobSpec, signals: &mut Signals, watcher: &mut dyn Watcher) -> anyhow::Result<Outcome> {
    if !spec.core {
        forbid_core_dumps()?;
    }
    let mut supervisor = Supervisor::create(spec.options.max_recoveries);
    loop {
        let segment = JobSegment::create(&spec.options)?;
        let mut job = Job {
            spec,
            ranks: (0..spec.options.nranks).map(|_| None).collect(),
            lines: Lines::create(spec.output),
            segment,
            recoveries: Vec::new(),
            recovering: false,
            failed_after_finalize: None,
            warned: false,
            hangs: spec.options.hang_timeout.map(HangWatch::create),
        };
        match job.run(&mut supervisor, signals, watcher)? {
            End::Job { code, reason } => {
                job.collect_reports(watcher, true);
                let recoveries = std::mem::take(&mut job.recoveries);
                return Ok(Outcome { code, reason, recoveries, lines: job.lines.take_kept() });
            }
            End::Restart => watcher.event(&Event::Restarted),
        }
    }
}

/// Inherited by every rank. A dump would delay the notice of a death by seconds.
fn forbid_core_dumps() -> anyhow::Result<()> {
    let maximum = getrlimit(Resource::Core).maximum;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum }).context("cannot forbid core dumps")
}

enum End {
    Job { code: ExitCode, reason: Option<String> },
    Restart,
}

/// One life of a job, from the creation of its segment. Dropping it leaves no process behind.
struct Job<'a> {
    spec: &'a JobSpec,
    // Before the segment, so that no rank outlives it.
    ranks: Vec<Option<RankProcess>>,
    lines: Lines,
    segment: JobSegment,
    recoveries: Vec<RecoveryLine>,
    recovering: bool,
    /// A rank that left the job in good order and then failed by itself.
    failed_after_finalize: Option<String>,
    hangs: Option<HangWatch>,
    /// What set-up left to say has been said.
    warned: bool,
}

impl Job<'_> {
    fn run(&mut self, supervisor: &mut Supervisor, signals: &mut Signals, watcher: &mut dyn Watcher) -> anyhow::Result<End> {
        for rank in 0..self.spec.options.nranks {
            self.start(rank)?;
        }
        watcher.event(&Event::Started { job: &self.spec.options.job, nranks: self.spec.options.nranks });
        loop {
            let tick = if self.recovering { RECOVERY_TICK } else { TICK };
            let exited = self.wait(Some(signals), tick)?;
            if !exited.is_empty() {
                self.warn(watcher)?;
            }
            for rank in exited {
                if let Some(end) = self.exited(rank, supervisor, watcher)? {
                    return Ok(end);
                }
            }
            self.lines.read();
            if let Some(signal) = signals.take() {
                watcher.event(&Event::Interrupted { signal });
                let reason = format!("interrupted by {}", Exit::Signal(signal));
                self.segment.end(EndReason::Interrupted);
                self.terminate(if signal == libc::SIGINT { Signal::INT } else { Signal::TERM }, Some(signals))?;
                return Ok(End::Job { code: ExitCode::of_signal(signal), reason: Some(reason) });
            }
            if self.ranks.iter().all(Option::is_none) {
                let reason = self.failed_after_finalize.take();
                let code = if reason.is_some() { ExitCode::TROUBLE } else { ExitCode::FINE };
                return Ok(End::Job { code, reason });
            }
            self.warn(watcher)?;
            self.collect_reports(watcher, false);
            self.end_hung_ranks(watcher)?;
            watcher.event(&Event::Tick { step: self.segment.open_step() });
        }
    }

    /// Once, when set-up is complete.
    fn warn(&mut self, watcher: &mut dyn Watcher) -> anyhow::Result<()> {
        if !self.warned && self.segment.open_step().is_some() {
            self.warned = true;
            self.segment.warnings()?.iter().for_each(|text| watcher.event(&Event::Warning(text)));
        }
        Ok(())
    }

    /// Declares ranks that hold the job up failed, then kills them; their exit leads to the replacement.
    fn end_hung_ranks(&mut self, watcher: &mut dyn Watcher) -> anyhow::Result<()> {
        let pids: Vec<Option<u32>> = self.ranks.iter().map(|process| process.as_ref().map(RankProcess::pid)).collect();
        let Some(hangs) = &mut self.hangs else { return Ok(()) };
        let Some(blame) = hangs.look(self.segment.membership(), &pids) else { return Ok(()) };
        let limit = self.spec.options.hang_timeout.unwrap_or_default();
        watcher.event(&Event::Hung { blame: &blame, limit });
        let ranks = match blame {
            Blame::Stopped(ranks) => ranks,
            Blame::Behind(rank) => vec![rank],
            Blame::Nobody => Vec::new(),
        };
        for rank in ranks {
            self.segment.declare_hung(rank)?;
            if let Some(process) = &self.ranks[rank as usize] {
                process.signal(Signal::KILL);
            }
        }
        Ok(())
    }

    fn start(&mut self, rank: u32) -> anyhow::Result<u32> {
        let admission = self.segment.admit(rank)?;
        let (job, nranks) = (&self.spec.options.job, self.spec.options.nranks);
        let mut environment = environment::of_rank(job, rank, nranks, admission.incarnation, admission.token);
        environment.extend(self.spec.environment.iter().cloned());
        if admission.incarnation > 0 {
            environment.extend(self.spec.replacement_environment.iter().cloned());
        }
        let output = if self.spec.output == OutputMode::Inherit { RankOutput::Inherit } else { RankOutput::Pipe };
        let mut process = RankProcess::start(&self.spec.program, &environment, output)?;
        self.lines.add(rank, std::mem::take(&mut process.output))?;
        let pid = process.pid();
        self.ranks[rank as usize] = Some(process);
        Ok(pid)
    }

    /// Reaps a rank and does what follows from its exit.
    fn exited(&mut self, rank: u32, supervisor: &mut Supervisor, watcher: &mut dyn Watcher) -> anyhow::Result<Option<End>> {
        let Some(process) = self.ranks[rank as usize].take() else { return Ok(None) };
        let status = process.reap()?;
        let exit = Exit::from(status);
        let standing = self.segment.record_exit(rank, status)?;
        let verdict = supervisor.judge(rank, exit, standing);
        // The replacement is started before anything is printed.
        let replaced = match verdict {
            Verdict::Finished => {
                if exit != Exit::Code(0) {
                    self.failed_after_finalize = Some(format!("rank {rank} ended with {exit} after all ranks had finalized"));
                }
                return Ok(None);
            }
            Verdict::Replace => Some(self.start(rank)?),
            _ => None,
        };
        let step = standing.setup_complete.then_some(standing.step);
        watcher.event(&Event::Died { rank, exit, step });
        match verdict {
            Verdict::RestartJob => {
                self.kill()?;
                return Ok(Some(End::Restart));
            }
            Verdict::End { reason, text } => {
                self.segment.end(reason);
                let text = self.segment.end_text().unwrap_or(text);
                self.terminate(Signal::TERM, None)?;
                return Ok(Some(End::Job { code: ExitCode::of_end(reason), reason: Some(format!("{text} (rank {rank}: {exit})")) }));
            }
            Verdict::Replace | Verdict::Finished => {}
        }
        if let Some(pid) = replaced {
            self.recovering = true;
            watcher.event(&Event::Replaced { rank, pid });
        }
        Ok(None)
    }

    fn collect_reports(&mut self, watcher: &mut dyn Watcher, at_end: bool) {
        for report in self.segment.new_recoveries(at_end) {
            watcher.event(&Event::Recovered(&report));
            self.recoveries.push(report);
            self.recovering = false;
        }
    }

    /// Asks all ranks to end, then makes them. A further signal to the launcher shortens the wait.
    fn terminate(&mut self, signal: Signal, signals: Option<&mut Signals>) -> anyhow::Result<()> {
        self.signal_all(signal);
        self.reap_until(Instant::now() + TERMINATE_LIMIT, signals)?;
        self.kill()
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.signal_all(Signal::KILL);
        self.reap_until(Instant::now() + KILL_LIMIT, None)?;
        let left: Vec<String> = self.alive().map(|(rank, process)| format!("rank {rank} (pid {})", process.pid())).collect();
        anyhow::ensure!(left.is_empty(), "waited {} s for SIGKILL to end {}", KILL_LIMIT.as_secs(), left.join(", "));
        Ok(())
    }

    fn signal_all(&self, signal: Signal) {
        self.alive().for_each(|(_, process)| process.signal(signal));
    }

    fn reap_until(&mut self, deadline: Instant, mut signals: Option<&mut Signals>) -> anyhow::Result<()> {
        while self.alive().next().is_some() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || signals.as_deref_mut().is_some_and(|signals| signals.take().is_some()) {
                return Ok(());
            }
            for rank in self.wait(signals.as_deref(), left)? {
                if let Some(process) = self.ranks[rank as usize].take() {
                    process.reap()?;
                }
            }
            self.lines.read();
        }
        Ok(())
    }

    fn alive(&self) -> impl Iterator<Item = (u32, &RankProcess)> {
        self.ranks.iter().zip(0..).filter_map(|(process, rank)| Some((rank, process.as_ref()?)))
    }

    /// Waits for anything to happen; returns the ranks whose process has exited.
    fn wait(&self, signals: Option<&Signals>, limit: Duration) -> anyhow::Result<Vec<u32>> {
        let ranks: Vec<u32> = self.alive().map(|(rank, _)| rank).collect();
        let mut set: Vec<PollFd<'_>> = self.alive().map(|(_, process)| readable(process.descriptor())).collect();
        set.extend(self.lines.descriptors().map(readable));
        set.extend(signals.into_iter().flat_map(Signals::descriptors).map(readable));
        let limit = Timespec::try_from(limit).context("a time limit is out of range")?;
        match poll(&mut set, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for ranks"),
        }
        let ended = ranks.iter().zip(&set).filter(|(_, fd)| fd.revents().contains(PollFlags::IN));
        Ok(ended.map(|(&rank, _)| rank).collect())
    }
}

fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

impl Drop for Job<'_> {
    /// On an error path ranks still run.
    fn drop(&mut self) {
        if self.alive().next().is_some() {
            self.signal_all(Signal::KILL);
            if let Err(error) = self.reap_until(Instant::now() + KILL_LIMIT, None) {
                eprintln!("rejoin: {error:#}");
            }
        }
    }
}
