//! Unique ids: where the memory of a communicator can be opened.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::abi::{NcclUniqueId, UNIQUE_ID_BYTES};
use crate::abort::AbortFlag;
use crate::error::{Error, Result};
use crate::region;

/// "RJNCCLID", little-endian.
const MAGIC: u64 = u64::from_le_bytes(*b"RJNCCLID");

/// What the 128 bytes say. They are single use: a rank can be claimed once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UniqueId {
    /// Process that holds the file.
    pub pid: u32,
    /// Its descriptor there.
    pub fd: i32,
    /// When that process started, in clock ticks since boot: tells a reused pid apart.
    pub started: u64,
    /// Random; also in the header of the file.
    pub nonce: [u64; 2],
    /// For grow: size of the parent, else 0.
    pub parent_nranks: u32,
}

/// Files whose id was given away and not yet used by all ranks.
static HELD: LazyLock<Mutex<HashMap<[u64; 2], OwnedFd>>> = LazyLock::new(Mutex::default);
static CREATED: AtomicU64 = AtomicU64::new(0);

impl UniqueId {
    /// Creates the memory of a new communicator. This process must live until all ranks have joined.
    pub fn create(parent_nranks: u32) -> Result<Self> {
        let pid = std::process::id();
        let started = start_time(pid).ok_or_else(|| Error::system("/proc", "own start time cannot be read"))?;
        let random = RandomState::new();
        let mut other = RandomState::new().build_hasher();
        other.write_u64(CREATED.fetch_add(1, Ordering::Relaxed));
        other.write_u64(started ^ u64::from(pid));
        let nonce = [random.build_hasher().finish(), other.finish()];
        let file = region::create_file(nonce)?;
        let id = Self { pid, fd: file.as_raw_fd(), started, nonce, parent_nranks };
        HELD.lock().unwrap_or_else(PoisonError::into_inner).insert(nonce, file);
        Ok(id)
    }

    /// Closes the file if this process created it: all ranks have it mapped, or it is given up.
    pub fn release(&self) {
        HELD.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.nonce);
    }

    /// Opens the file, here or through /proc. When its process is gone: NCCL tries to connect for about a
    /// minute, then gives `ncclRemoteError`; so do we, unless `abort` comes first.
    pub fn open(&self, abort: &AbortFlag) -> Result<OwnedFd> {
        let (attempts, pause) = retry_settings();
        for attempt in 1..=attempts {
            if abort.is_set() {
                return Err(Error::Aborted("opening the memory of the root"));
            }
            if let Some(file) = self.try_open()? {
                return Ok(file);
            }
            if attempt < attempts && abort.wait_for(pause.saturating_mul(attempt)) {
                return Err(Error::Aborted("waiting for the root"));
            }
        }
        Err(Error::Remote(format!(
            "process {}, which created the unique id, is gone: get a new id from a live rank",
            self.pid
        )))
    }

    fn try_open(&self) -> Result<Option<OwnedFd>> {
        if self.pid == std::process::id() {
            let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(file) = held.get(&self.nonce) {
                return file.try_clone().map(Some).map_err(|e| Error::system("dup", e));
            }
            return Err(Error::argument("the unique id was used before: each id makes one communicator"));
        }
        if start_time(self.pid) != Some(self.started) {
            return Ok(None);
        }
        let path = format!("/proc/{}/fd/{}", self.pid, self.fd);
        // NONBLOCK: should the number now name a pipe, opening it must not wait for its other end.
        match rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty()) {
            Ok(file) => Ok(Some(file)),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::SRCH) if start_time(self.pid) == Some(self.started) => {
                Err(Error::argument("the unique id was used before: each id makes one communicator"))
            }
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::SRCH) => Ok(None),
            Err(e) => Err(Error::system("open", format_args!("{e} for {path} (ranks need the same user)"))),
        }
    }

    /// The 128 bytes.
    pub fn to_bytes(self) -> NcclUniqueId {
        let mut internal = [0; UNIQUE_ID_BYTES];
        internal[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        internal[8..12].copy_from_slice(&self.pid.to_le_bytes());
        internal[12..16].copy_from_slice(&self.fd.to_le_bytes());
        internal[16..24].copy_from_slice(&self.started.to_le_bytes());
        internal[24..32].copy_from_slice(&self.nonce[0].to_le_bytes());
        internal[32..40].copy_from_slice(&self.nonce[1].to_le_bytes());
        internal[40..44].copy_from_slice(&self.parent_nranks.to_le_bytes());
        NcclUniqueId { internal }
    }

    /// Reads what [`UniqueId::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8; UNIQUE_ID_BYTES]) -> Result<Self> {
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if u64_at(0) != MAGIC {
            return Err(Error::argument("the unique id was not made by this library's ncclGetUniqueId"));
        }
        Ok(Self {
            pid: u32_at(8),
            fd: u32_at(12) as i32,
            started: u64_at(16),
            nonce: [u64_at(24), u64_at(32)],
            parent_nranks: u32_at(40),
        })
    }
}

/// NCCL's own variables: attempts, and the pause that grows by itself with each.
fn retry_settings() -> (u32, Duration) {
    let number = |name: &str, default: u32| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let attempts = number("NCCL_SOCKET_RETRY_CNT", 34).max(1);
    (attempts, Duration::from_millis(u64::from(number("NCCL_SOCKET_RETRY_SLEEP_MSEC", 100))))
}

/// Field 22 of /proc/PID/stat; the command name before it may contain anything, so count from its end.
/// None for a process that is gone, or dead and not yet reaped.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_and_garbage_is_refused() {
        let id = UniqueId::create(3).unwrap();
        assert_eq!(UniqueId::from_bytes(&id.to_bytes().internal).unwrap(), id);
        assert!(UniqueId::from_bytes(&[0; 128]).is_err());
        assert!(id.open(&AbortFlag::default()).is_ok());
        id.release();
        assert!(id.open(&AbortFlag::default()).is_err());
    }

    #[test]
    fn start_time_tells_this_process_from_none() {
        assert!(start_time(std::process::id()).is_some());
        assert_eq!(start_time(u32::MAX), None);
    }
}
