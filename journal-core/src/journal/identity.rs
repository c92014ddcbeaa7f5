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


    /// Whether the creating process is known to be gone. False where that cannot be seen, as from another pid namespace.
    pub fn creator_is_gone(&self) -> bool {
        if self.boot_id != boot_id() {
            return true;
        }
        let path = format!("/proc/{}/stat", self.creator_pid);
        self.pid_namespace == pid_namespace() && self.creator_start != 0 && state_and_start(&path).is_none_or(|(state, start)| {
            // A zombie runs no more.
            start != self.creator_start || matches!(state, 'Z' | 'X')
        })
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

fn start_time(path: &str) -> Option<u64> {
    state_and_start(path).map(|(_, start)| start)
}

/// Fields 3 and 22 of a stat file, found from the last `)`: the name before them may hold anything.
fn state_and_start(path: &str) -> Option<(char, u64)> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
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
        assert!(!identity.creator_is_gone());
        assert!(JournalIdentity { creator_start: 1, ..identity.clone() }.creator_is_gone(), "another process of that pid");
        assert!(JournalIdentity { boot_id: [1; 16], ..identity.clone() }.creator_is_gone());
        assert!(thread_start() >= identity.creator_start);
    }
}
