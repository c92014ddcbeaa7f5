//! The kernel's word that nobody has a file open for writing, in any process of any namespace.
//!
//! Every writer of a segment has it open for writing as long as it lives, its mapping included, so a read lease
//! (fcntl(2), F_SETLEASE) is granted only when all writers are gone. Readers do not count.

use std::fs::File;
use std::os::fd::AsRawFd;

/// What the kernel said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// Nobody has it open for writing.
    None,
    /// Somebody has.
    Some,
    /// The file belongs to another user, or its file system knows no leases.
    Unknown,
}

/// Asks for a lease and gives it back. `file` is open for reading only.
pub fn writers(file: &File) -> Writers {
    match set_lease(file, libc::F_RDLCK) {
        Ok(()) => match set_lease(file, libc::F_UNLCK) {
            Ok(()) => Writers::None,
            Err(_) => Writers::Unknown,
        },
        Err(libc::EAGAIN) => Writers::Some,
        Err(_) => Writers::Unknown,
    }
}

fn set_lease(file: &File, kind: i32) -> Result<(), i32> {
    // SAFETY: F_SETLEASE takes an int and touches no memory of ours; the descriptor is open for the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_is_seen_until_it_closes_the_file() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("temporary folder");
        let path = folder.path().join("file");
        let writer = File::create(&path).expect("created");
        let reader = File::open(&path).expect("opened");
        let other_reader = File::open(&path).expect("opened");
        assert_eq!(writers(&reader), Writers::Some);
        drop(writer);
        assert_eq!(writers(&reader), Writers::None);
        assert_eq!(writers(&other_reader), Writers::None, "a lease that was given back is in nobody's way");
    }
}
