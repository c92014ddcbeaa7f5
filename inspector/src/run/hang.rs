//! `--hang-timeout`: which rank holds a job up that makes no progress. A policy, not a proof: whoever is blamed is
//! killed, and only then replaced.
//!
//! All is read from outside: the decision word, votes and commits in the members segment, each rank's journal, and
//! from the kernel whether a process is stopped. Blamed are stopped processes, else the one rank that is behind all
//! others in requests of the open step. Set-up, recovery, and calls that load or create something are exempt.

use journal_core::journal::{JournalReader, Record, SegmentName, Snapshot};
use journal_core::membership::{Decision, Incarnation, Membership, Rank, ShmMembership};
use journal_core::request::{Class, OpCode};
use std::path::Path;
use std::time::{Duration, Instant};

/// Looks often enough to be late by an eighth, seldom enough to cost nothing.
const LOOKS_PER_LIMIT: u32 = 8;

/// How far a rank is in the open step. Compared in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    committed: bool,
    voted: bool,
    requests: usize,
}

/// One rank at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Look {
    incarnation: Incarnation,
    place: Place,
    /// Requests recorded since the journal was created, and those of the step that have returned.
    activity: (u64, usize),
    /// Inside a call that loads or creates something.
    exempt: bool,
    /// By SIGSTOP or a debugger.
    stopped: bool,
}

/// Who is blamed, if the job stands still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blame {
    /// These processes are stopped.
    Stopped(Vec<u32>),
    /// This rank is behind all others.
    Behind(u32),
    /// Nobody that could be told.
    Nobody,
}

/// Watches one job.
#[derive(Debug)]
pub struct HangWatch {
    limit: Duration,
    seen: Option<(Decision, Vec<Look>)>,
    since: Instant,
    next: Instant,
    told: bool,
}

impl HangWatch {
    /// Blames after `limit` without progress.
    pub fn create(limit: Duration) -> Self {
        Self { limit, seen: None, since: Instant::now(), next: Instant::now(), told: false }
    }

    /// Who holds the job up now; none while it makes progress, and once only for each stand.
    pub fn look(&mut self, membership: &ShmMembership, pids: &[Option<u32>]) -> Option<Blame> {
        let now = Instant::now();
        if now < self.next {
            return None;
        }
        self.next = now + self.limit / LOOKS_PER_LIMIT;
        let decision = membership.decision();
        let running = membership.setup_complete() && !decision.is_failed() && !decision.is_ended();
        let looks = running.then(|| looks(membership, &decision, pids)).flatten();
        let found = looks.map(|looks| (decision, looks));
        if found.is_none() || found != self.seen {
            (self.seen, self.since, self.told) = (found, now, false);
            return None;
        }
        if self.told || now - self.since < self.limit {
            return None;
        }
        self.told = true;
        self.seen.as_ref().map(|(_, looks)| blame(looks))
    }
}

/// A look at every rank; none if one of them cannot be looked at.
fn looks(membership: &ShmMembership, decision: &Decision, pids: &[Option<u32>]) -> Option<Vec<Look>> {
    let missing = membership.missing_votes(decision.epoch, decision.step);
    let look = |(rank, pid): (u32, &Option<u32>)| {
        let rank = Rank(rank);
        let incarnation = membership.seat(rank).incarnation;
        let name = SegmentName::journal(&membership.options().job, rank.0, incarnation.0).ok()?;
        let snapshot = JournalReader::open(&name).ok()?.snapshot().ok()?;
        let open = open_step(&snapshot);
        Some(Look {
            incarnation,
            place: Place {
                committed: membership.committed(rank, decision.step),
                voted: !missing.contains(rank),
                requests: open.len(),
            },
            activity: (snapshot.limit.0, open.iter().filter(|record| record.result.is_some()).count()),
            exempt: is_in_set_up_call(&snapshot),
            stopped: pid.is_some_and(is_stopped),
        })
    };
    (0..).zip(pids).map(look).collect()
}

/// Requests since the last step began; none between steps.
fn open_step(snapshot: &Snapshot) -> &[Record] {
    let begin = snapshot.step.iter().rposition(|record| record.kind == OpCode::StepBegin as u16);
    begin.map_or(&[], |at| &snapshot.step[at..])
}

fn is_in_set_up_call(snapshot: &Snapshot) -> bool {
    let last = snapshot.setup.iter().chain(&snapshot.step).max_by_key(|record| record.sequence);
    let class = |record: &Record| OpCode::from_code(record.kind).map(|op| op.row().class);
    last.is_some_and(|record| record.result.is_none() && class(record) == Some(Class::Setup))
}

/// The kernel's word on a process: T is stopped by a signal, t by a debugger.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap_or_default();
    // The name before the state may hold anything, even a bracket.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}

fn blame(looks: &[Look]) -> Blame {
    let stopped: Vec<u32> = (0..).zip(looks).filter(|(_, look)| look.stopped).map(|(rank, _)| rank).collect();
    // All of them: whoever stopped the whole job wants it so.
    if !stopped.is_empty() {
        return if stopped.len() < looks.len() { Blame::Stopped(stopped) } else { Blame::Nobody };
    }
    let Some((rank, last)) = (0..).zip(looks).min_by_key(|(_, look)| look.place) else { return Blame::Nobody };
    let alone = looks.len() > 1 && looks.iter().filter(|look| look.place == last.place).count() == 1;
    if alone && !last.exempt { Blame::Behind(rank) } else { Blame::Nobody }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(requests: usize) -> Look {
        Look {
            incarnation: Incarnation(0),
            place: Place { committed: false, voted: false, requests },
            activity: (0, 0),
            exempt: false,
            stopped: false,
        }
    }

    fn stopped(requests: usize) -> Look {
        Look { stopped: true, ..at(requests) }
    }

    #[test]
    fn only_a_rank_behind_all_others_is_blamed() {
        assert_eq!(blame(&[at(7), at(7), at(3), at(7)]), Blame::Behind(2));
        assert_eq!(blame(&[at(7), at(3), at(3), at(7)]), Blame::Nobody, "two are behind");
        assert_eq!(blame(&[at(7), at(7)]), Blame::Nobody, "they wait for something else");
        assert_eq!(blame(&[at(7)]), Blame::Nobody, "there is nobody to be behind of");
        assert_eq!(blame(&[]), Blame::Nobody);
    }

    #[test]
    fn votes_and_commits_count_more_than_requests() {
        let voted = |requests| Look { place: Place { voted: true, ..at(requests).place }, ..at(requests) };
        let committed = Look { place: Place { committed: true, voted: true, requests: 0 }, ..at(0) };
        assert_eq!(blame(&[voted(7), at(9), voted(7)]), Blame::Behind(1));
        assert_eq!(blame(&[committed.clone(), voted(9), committed]), Blame::Behind(1));
    }

    #[test]
    fn stopped_processes_are_blamed_before_the_slow_but_never_all() {
        assert_eq!(blame(&[at(7), stopped(7), at(3), stopped(9)]), Blame::Stopped(vec![1, 3]));
        assert_eq!(blame(&[stopped(7), stopped(3)]), Blame::Nobody);
    }

    #[test]
    fn loading_and_creating_are_exempt() {
        assert_eq!(blame(&[at(7), Look { exempt: true, ..at(3) }]), Blame::Nobody);
    }

    #[test]
    fn the_kernel_tells_a_stopped_process() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("started");
        assert!(!is_stopped(child.id()));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("its parent may");
        let waited = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::UNTRACED).expect("waited").expect("changed");
        assert!(waited.1.stopped());
        assert!(is_stopped(child.id()));
        child.kill().expect("killed");
        child.wait().expect("reaped");
        assert!(!is_stopped(u32::MAX), "no such process");
    }
}
