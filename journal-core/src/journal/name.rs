//! Names of segments: `rejoin.<job>.members`, `rejoin.<job>.r<rank>.<incarnation>`, and `….s<k>` for growth.

use std::fmt;
use std::path::{Path, PathBuf};

use super::SegmentError;

/// Where writers' segments live.
pub const SHARED_MEMORY_DIR: &str = "/dev/shm";

const PREFIX: &str = "rejoin.";

/// A published name: one path component that starts with `rejoin.` and a job of `[A-Za-z0-9_-]{1,64}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentName(String);

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SegmentRole {
    /// The job's members segment.
    Members,
    /// A journal; `growth` is 0 for the first segment.
    Journal {
        /// Rank that writes it.
        rank: u32,
        /// Process that held the rank.
        incarnation: u32,
        /// Number of the growth segment.
        growth: u32,
    },
}

impl SegmentName {
    /// The members segment of `job`.
    pub fn members(job: &str) -> Result<Self, SegmentError> {
        Ok(Self(format!("{PREFIX}{}.members", check_job(job)?)))
    }

    /// The journal of one incarnation of a rank.
    pub fn journal(job: &str, rank: u32, incarnation: u32) -> Result<Self, SegmentError> {
        Ok(Self(format!("{PREFIX}{}.r{rank}.{incarnation}", check_job(job)?)))
    }

    /// Growth segment `k` (from 1) of a journal.
    pub fn growth(&self, k: u32) -> Self {
        Self(format!("{}.s{k}", self.0))
    }

    /// The journal that a growth segment belongs to.
    pub fn base(&self) -> Option<Self> {
        match self.role() {
            SegmentRole::Journal { growth: 1.., .. } => Some(Self(self.0.rsplit_once('.')?.0.to_owned())),
            _ => None,
        }
    }

    /// Parses a file name found in the directory.
    pub fn parse(text: &str) -> Result<Self, SegmentError> {
        let name = Self(text.to_owned());
        match name.split() {
            Some(_) => Ok(name),
            None => Err(SegmentError::Name { name: text.to_owned() }),
        }
    }

    /// The job this segment belongs to.
    pub fn job(&self) -> &str {
        self.split().map_or("", |(job, _)| job)
    }

    /// Members or journal.
    pub fn role(&self) -> SegmentRole {
        self.split().map_or(SegmentRole::Members, |(_, role)| role)
    }

    /// The text, without a directory.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its path in `dir`.
    pub fn path_in(&self, dir: &Path) -> PathBuf {
        dir.join(&self.0)
    }

    /// Name under which process `pid` creates it; `attempt` tells several apart. `gc` reads the pid from it.
    pub(super) fn temporary(&self, pid: u32, attempt: u32) -> String {
        if attempt == 0 { format!(".{}.{pid}", self.0) } else { format!(".{}.{pid}-{attempt}", self.0) }
    }

    /// If `file_name` is a temporary name: the final name and the pid of its creator.
    pub fn parse_temporary(file_name: &str) -> Option<(Self, u32)> {
        let (name, owner) = file_name.strip_prefix('.')?.rsplit_once('.')?;
        let pid = owner.split_once('-').map_or(owner, |(pid, _)| pid).parse().ok()?;
        Some((Self::parse(name).ok()?, pid))
    }

    fn split(&self) -> Option<(&str, SegmentRole)> {
        let (job, rest) = self.0.strip_prefix(PREFIX)?.split_once('.')?;
        check_job(job).ok()?;
        if rest == "members" {
            return Some((job, SegmentRole::Members));
        }
        let mut parts = rest.strip_prefix('r')?.split('.');
        let rank = parts.next()?.parse().ok()?;
        let incarnation = parts.next()?.parse().ok()?;
        let growth = match parts.next() {
            None => 0,
            Some(text) => text.strip_prefix('s')?.parse().ok()?,
        };
        parts.next().is_none().then_some((job, SegmentRole::Journal { rank, incarnation, growth }))
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check_job(job: &str) -> Result<&str, SegmentError> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if (1..=64).contains(&job.len()) && job.bytes().all(allowed) {
        Ok(job)
    } else {
        Err(SegmentError::Name { name: job.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_as_they_were_built() {
        let journal = SegmentName::journal("job-1_x", 3, 2).unwrap();
        assert_eq!(journal.as_str(), "rejoin.job-1_x.r3.2");
        assert_eq!(journal.job(), "job-1_x");
        assert_eq!(journal.role(), SegmentRole::Journal { rank: 3, incarnation: 2, growth: 0 });
        let grown = SegmentName::parse("rejoin.job-1_x.r3.2.s7").unwrap();
        assert_eq!(grown, journal.growth(7));
        assert_eq!((grown.base(), journal.base()), (Some(journal.clone()), None));
        assert_eq!(SegmentName::members("a").unwrap().role(), SegmentRole::Members);
    }

    #[test]
    fn jobs_with_other_characters_are_refused() {
        for job in ["", "a/b", "a.b", "..", "ä", &"x".repeat(65)] {
            assert!(SegmentName::members(job).is_err(), "{job:?} was accepted");
        }
    }

    #[test]
    fn temporary_names_say_who_created_them() {
        let name = SegmentName::journal("j", 0, 0).unwrap();
        assert_eq!(SegmentName::parse_temporary(&name.temporary(42, 0)), Some((name.clone(), 42)));
        assert_eq!(SegmentName::parse_temporary(&name.temporary(42, 3)), Some((name.clone(), 42)));
        assert_eq!(SegmentName::parse_temporary(name.as_str()), None);
    }
}
