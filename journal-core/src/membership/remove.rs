//! Taking a job's segments away: by its launcher, by `rejoin gc`, or by its ranks when the launcher is dead.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::{MembershipError, ShmMembership};
use crate::journal::SegmentName;
use crate::journal::name::SHARED_MEMORY_DIR;

impl ShmMembership {
    /// Removes every name of this job, if the name still is this job's: a new job may have taken it since. Mappings
    /// stay. Ranks do it when the launcher is dead and the job over; several at once are fine.
    pub fn remove_segments(&self) -> Result<(), MembershipError> {
        let job = &self.options().job;
        let path = SegmentName::members(job)?.path_in(Path::new(SHARED_MEMORY_DIR));
        let failed = |source| MembershipError::Io { action: "remove the segments of an ended job", source };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        // The same lock as a launcher takes that clears a name for itself: held by one that is about to be done.
        rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockExclusive)).map_err(|error| failed(error.into()))?;
        let is_current = std::fs::metadata(&path).is_ok_and(|now| file.metadata().is_ok_and(|held| same_file(&now, &held)));
        if !is_current || Self::open_read_only(Path::new(SHARED_MEMORY_DIR), job)?.options().uuid != self.options().uuid {
            return Ok(());
        }
        remove_all(job).map_err(failed)
    }
}

fn same_file(a: &std::fs::Metadata, b: &std::fs::Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Removes every segment of a job, unfinished ones and spill files too. The caller knows that nobody of it lives, or owns
/// the job.
pub fn remove_all(job: &str) -> io::Result<()> {
    let dir = Path::new(SHARED_MEMORY_DIR);
    let files = files_of(dir, job)?;
    // First: the bases say where the rest is.
    for path in &files {
        if let Some(name) = path.file_name().and_then(|name| SegmentName::parse(name.to_str()?).ok()) {
            crate::journal::remove_growth(dir, &name);
        }
    }
    for path in files {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Every file of a job, the members segment last: as long as it is there, the others can be found through it.
fn files_of(dir: &Path, job: &str) -> io::Result<Vec<PathBuf>> {
    let names = std::fs::read_dir(dir)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| job_of(name).as_deref() == Some(job)).collect();
    names.sort_by_key(|name| name.ends_with(".members"));
    Ok(names.iter().map(|name| dir.join(name)).collect())
}

fn job_of(file_name: &str) -> Option<String> {
    let name = SegmentName::parse_temporary(file_name).map(|(name, _)| name);
    Some(name.or_else(|| SegmentName::parse(file_name).ok())?.job().to_owned())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn spill_files_go_with_their_job() {
        use crate::journal::{Journal, JournalOptions, OverflowPolicy, Region};
        let folder = tempfile::tempdir().expect("temporary folder");
        let job = format!("remove-spill-{}", std::process::id());
        let options = JournalOptions {
            capacity_bytes: 512 << 10,
            chunk_bytes: 4096,
            max_slots: 4,
            max_handles: 64,
            policy: OverflowPolicy::Spill { directory: folder.path().to_owned() },
            ..JournalOptions::new(job.clone(), 0, 0)
        };
        let journal = Journal::create(&options).expect("/dev/shm has room for a small journal");
        for _ in 0..300 {
            journal.append(Region::Setup, 1, 0, &[&[1; 3000]]).expect("it spills");
        }
        let spilled = || std::fs::read_dir(folder.path()).expect("listed").count();
        assert!(spilled() > 0);
        remove_all(&job).expect("removed");
        assert_eq!(spilled(), 0);
        assert_eq!(files_of(Path::new(SHARED_MEMORY_DIR), &job).expect("listed"), Vec::<PathBuf>::new());
    }

    #[test]
    fn only_files_of_the_job_are_found_and_its_members_segment_is_the_last() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let names = ["rejoin.a.members", "rejoin.a.r0.0", ".rejoin.a.r1.0.77", "rejoin.a.r0.0.s1", "rejoin.ab.members", "rejoin.a", "other"];
        for name in names {
            std::fs::write(folder.path().join(name), b"").expect("file");
        }
        let files = files_of(folder.path(), "a").expect("listed");
        let mut found: Vec<&str> = files.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        assert_eq!(found.pop(), Some("rejoin.a.members"));
        found.sort_unstable();
        assert_eq!(found, [".rejoin.a.r1.0.77", "rejoin.a.r0.0", "rejoin.a.r0.0.s1"]);
    }
}
