//! Segments of a job that is no more: found by name, judged by the kernel's own proof, removed.

use anyhow::{Context, bail};
use journal_core::journal::SegmentName;
use journal_core::journal::name::SHARED_MEMORY_DIR;
use journal_core::membership::{Membership, MembershipError, Rank, ShmMembership};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Who of a job lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lives {
    /// Its launcher.
    pub launcher: bool,
    /// Ranks whose process holds its seat.
    pub ranks: Vec<u32>,
}

impl Lives {
    /// Looks at the mutexes of everybody, without touching them.
    pub fn of(membership: &ShmMembership) -> Self {
        let ranks = (0..membership.nranks()).filter(|&rank| membership.rank_lives(Rank(rank))).collect();
        Self { launcher: membership.launcher_lives(), ranks }
    }

    /// Whether anybody lives.
    pub fn anyone(&self) -> bool {
        self.launcher || !self.ranks.is_empty()
    }
}

/// Other launchers that may take a name at the same time before this one gives up.
const RIVALS: u32 = 16;

/// Makes a job's name free: nothing to do, or its owner is provably dead and everything of it is removed.
pub fn clear(job: &str) -> anyhow::Result<()> {
    let path = SegmentName::members(job)?.path_in(Path::new(SHARED_MEMORY_DIR));
    for _ in 0..RIVALS {
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return remove_all(job),
            Err(error) => return Err(error).with_context(|| taken(job, "and its segment cannot be opened")),
        };
        // Two launchers must not both remove what they saw: the second would remove the first one's new segment.
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!(taken(job, "another launcher is taking over its name right now; choose another --job"));
        }
        let is_current = std::fs::metadata(&path).is_ok_and(|now| file.metadata().is_ok_and(|held| same_file(&now, &held)));
        if is_current {
            refuse_living(job, &path)?;
            return remove_all(job);
        }
    }
    bail!(taken(job, "launchers keep taking its name; choose another --job"))
}

fn refuse_living(job: &str, path: &Path) -> anyhow::Result<()> {
    let membership = match ShmMembership::open(job) {
        Ok(membership) => membership,
        Err(MembershipError::Segment(error)) => {
            let remove = format!("and cannot be read; if no such job runs, remove {}", path.display());
            return Err(anyhow::Error::from(error).context(taken(job, &remove)));
        }
        Err(error) => return Err(error.into()),
    };
    let lives = Lives::of(&membership);
    let pid = |rank: u32| membership.identity(Rank(rank), membership.seat(Rank(rank)).incarnation).map_or(0, |id| id.pid);
    match (lives.launcher, lives.ranks.first()) {
        (true, _) => {
            let launcher = membership.launcher().0.pid;
            bail!(taken(job, &format!("it is running (launcher pid {launcher}); choose another --job")))
        }
        (false, Some(&rank)) => {
            let pid = pid(rank);
            bail!(taken(job, &format!("its launcher is dead but rank {rank} still runs (pid {pid}); end it or choose another --job")))
        }
        (false, None) => Ok(()),
    }
}

fn taken(job: &str, why: &str) -> String {
    format!("job name {job} is taken: {why}")
}

fn same_file(a: &std::fs::Metadata, b: &std::fs::Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Removes every segment of a job. The caller knows that nobody of it lives.
pub fn remove_all(job: &str) -> anyhow::Result<()> {
    journal_core::membership::remove_all(job).with_context(|| format!("cannot remove the segments of job {job}"))
}

/// Jobs that have a members segment in a folder, by name.
pub fn jobs_in(dir: &Path) -> anyhow::Result<Vec<String>> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut jobs: Vec<String> = names
        .filter(|name| name.ends_with(".members"))
        .filter_map(|name| Some(SegmentName::parse(&name).ok()?.job().to_owned()))
        .collect();
    jobs.sort();
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_what_has_a_members_segment() {
        let folder = tempfile::tempdir().expect("temporary folder");
        for name in ["rejoin.a.members", "rejoin.a.r0.0", "rejoin.ab.members", "rejoin.b.r0.0", "rejoin.a", "other"] {
            std::fs::write(folder.path().join(name), b"").expect("file");
        }
        assert_eq!(jobs_in(folder.path()).expect("listed"), ["a", "ab"]);
    }
}
