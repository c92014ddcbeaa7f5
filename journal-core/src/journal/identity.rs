//! Whose journal it is, and on which boot, in which pid namespace it was written.

use std::os::unix::fs::MetadataExt;

/// Written into the header by the creator.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct JournalIdentity {
    pub job_uuid: [u8; 16],
    pub rank: u32,
    pub incarnation: u32,
    pub creator_pid: u32,
    /// Start time in clock ticks since boot: tells a reused pid apart.
    pub creator_start: u64,
    pub boot_id: [u8; 16],
    pub pid_namespace: u64,
}

impl JournalIdentity {
    /// Of this process.
    pub fn of_this_process(job_uuid: [u8; 16], rank: u32, incarnation: u32) -> Self {
        Self {
            job_uuid,
            rank,
            incarnation,
            creator_pid: std::process::id(),
            creator_start: start_time("/proc/self/stat").unwrap_or(0),
            boot_id: boot_id(),
            pid_namespace: pid_namespace(),
        }
    }
}

/// The kernel's id of this boot; zeros where it cannot be read.
pub fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

/// Inode of this process's pid namespace; 0 where it cannot be read.
pub fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino())
}

/// Start time of this thread.
pub fn thread_start() -> u64 {
    start_time("/proc/thread-self/stat").unwrap_or(0)
}

/// Field 22 of a stat file, found from the last `)`: the name before it may hold anything.
fn start_time(path: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_told_apart() {
        let identity = JournalIdentity::of_this_process([7; 16], 3, 1);
        assert_ne!(identity.boot_id, [0; 16]);
        assert_ne!(identity.pid_namespace, 0);
        assert_ne!(identity.creator_start, 0);
        assert!(thread_start() >= identity.creator_start);
    }
}
