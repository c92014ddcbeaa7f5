//! The shared memory of a communicator: an anonymous file that its ranks map.
//!
//! Only atomics by reference and copies by raw pointer touch it; whatever another process writes there
//! can give wrong numbers, never an access outside.

pub mod layout;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use self::layout::{
    ABI, AT_ABI, AT_MAGIC, AT_NONCE, AT_NRANKS, HEADER_BYTES, Layout, MAGIC, RANK_BELL, RANK_SLEEPERS,
};
use crate::error::{Error, Result};

/// A mapping of (the first bytes of) a region.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is only accessed by atomics and raw copies, and unmapped once, by its owner's drop.
unsafe impl Send for Mapping {}
// SAFETY: as for Send; a shared reference gives no plain reference into the bytes.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and bytes are those that mmap gave; nobody holds a reference past our lifetime.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

impl Mapping {
    fn create(file: impl AsFd, bytes: usize) -> Result<Self> {
        // SAFETY: a new shared mapping at an address of the kernel's choice overlaps nothing of ours.
        let base = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        }
        .map_err(|e| Error::system("mmap", format_args!("{e} for {bytes} bytes of a communicator")))?;
        let base = NonNull::new(base.cast()).ok_or_else(|| Error::system("mmap", "gave address zero"))?;
        Ok(Self { base, bytes })
    }

    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "offset {offset} outside the region");
        // SAFETY: checked above: the result stays within the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    fn u32(&self, offset: usize) -> &AtomicU32 {
        let word = self.at(offset, 4).cast::<u32>();
        assert!(word.is_aligned());
        // SAFETY: inside the mapping, aligned, and accessed as an atomic by everybody, for our lifetime.
        unsafe { AtomicU32::from_ptr(word) }
    }

    fn u64(&self, offset: usize) -> &AtomicU64 {
        let word = self.at(offset, 8).cast::<u64>();
        assert!(word.is_aligned());
        // SAFETY: inside the mapping, aligned, and accessed as an atomic by everybody, for our lifetime.
        unsafe { AtomicU64::from_ptr(word) }
    }
}

/// Makes the file of a new region, header only; its size is fixed when the first rank joins.
pub fn create_file(nonce: [u64; 2]) -> Result<OwnedFd> {
    let file = rustix::fs::memfd_create("rejoin-host-nccl", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(|e| Error::system("memfd_create", e))?;
    rustix::fs::ftruncate(&file, HEADER_BYTES as u64).map_err(|e| Error::system("ftruncate", e))?;
    // Nobody can shrink it under a peer, which would be SIGBUS there.
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).map_err(|e| Error::system("fcntl", e))?;
    let header = Mapping::create(&file, HEADER_BYTES)?;
    header.u32(AT_ABI).store(ABI, Ordering::Relaxed);
    header.u64(AT_NONCE).store(nonce[0], Ordering::Relaxed);
    header.u64(AT_NONCE + 8).store(nonce[1], Ordering::Relaxed);
    // SYNC: Release; pairs with the Acquire in Region::open.
    header.u64(AT_MAGIC).store(MAGIC, Ordering::Release);
    Ok(file)
}

/// The whole region, mapped.
#[derive(Debug)]
pub struct Region {
    map: Mapping,
    /// Where things stand.
    pub layout: Layout,
}

impl Region {
    /// Checks the header, agrees on the number of ranks and maps everything.
    pub fn open(file: impl AsFd, nonce: [u64; 2], nranks: u32) -> Result<Self> {
        let stat = rustix::fs::fstat(&file).map_err(|e| Error::system("fstat", e))?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile
            || size < HEADER_BYTES as u64
        {
            return Err(Error::argument("the unique id names no communicator of this library"));
        }
        let header = Mapping::create(&file, HEADER_BYTES)?;
        // SYNC: Acquire; pairs with the Release in create_file.
        let magic = header.u64(AT_MAGIC).load(Ordering::Acquire);
        let found = [header.u64(AT_NONCE).load(Ordering::Relaxed), header.u64(AT_NONCE + 8).load(Ordering::Relaxed)];
        let abi = header.u32(AT_ABI).load(Ordering::Relaxed);
        if magic != MAGIC || found != nonce {
            return Err(Error::argument("the unique id names no communicator of this library, or one of the past"));
        }
        if abi != ABI {
            return Err(Error::usage(format!("mismatched library version: layout {abi} there, {ABI} here")));
        }
        if let Err(first) = header.u32(AT_NRANKS).compare_exchange(0, nranks, Ordering::AcqRel, Ordering::Acquire)
            && first != nranks
        {
            return Err(Error::argument(format!("mismatch in rank count: {nranks} here, {first} by the first rank")));
        }
        let layout = Layout::new(nranks);
        if size < layout.bytes as u64 {
            // The kernel would answer with a signal.
            let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
            if limit.is_some_and(|limit| limit < layout.bytes as u64) {
                return Err(Error::system(
                    "ftruncate",
                    format_args!("{} bytes are over the file size limit (ulimit -f)", layout.bytes),
                ));
            }
            rustix::fs::ftruncate(&file, layout.bytes as u64)
                .map_err(|e| Error::system("ftruncate", format_args!("{e} for {} bytes", layout.bytes)))?;
        }
        Ok(Self { map: Mapping::create(&file, layout.bytes)?, layout })
    }

    /// A 32-bit word.
    pub fn u32(&self, offset: usize) -> &AtomicU32 {
        self.map.u32(offset)
    }

    /// A 64-bit word.
    pub fn u64(&self, offset: usize) -> &AtomicU64 {
        self.map.u64(offset)
    }

    /// Copies `bytes` from an address of this process to `offset`.
    pub fn copy_in(&self, offset: usize, from: *const u8, bytes: usize) {
        let to = self.map.at(offset, bytes);
        // SAFETY: `to` was checked; `from` is the caller's buffer of at least `bytes`, as NCCL's contract
        // says. Other processes may race on the shared bytes: they are bytes without invariants.
        unsafe { core::ptr::copy(from, to, bytes) }
    }

    /// Copies `bytes` at `offset` to an address of this process.
    pub fn copy_out(&self, offset: usize, to: *mut u8, bytes: usize) {
        let from = self.map.at(offset, bytes);
        // SAFETY: `from` was checked; `to` is the caller's buffer of at least `bytes`; races as in copy_in.
        unsafe { core::ptr::copy(from, to, bytes) }
    }

    /// Copies private bytes in.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.copy_in(offset, bytes.as_ptr(), bytes.len());
    }

    /// Copies bytes out to private memory.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.copy_out(offset, bytes.as_mut_ptr(), bytes.len());
    }

    /// The bell of a rank now; see [`Region::sleep`].
    pub fn bell(&self, rank: u32) -> u32 {
        // SYNC: SeqCst; pairs with ring(): what was stored before the ring is seen after this load.
        self.u32(self.layout.rank(rank) + RANK_BELL).load(Ordering::SeqCst)
    }

    /// Wakes all threads of `rank` that sleep on its bell, and those about to.
    pub fn ring(&self, rank: u32) {
        let entry = self.layout.rank(rank);
        let bell = self.u32(entry + RANK_BELL);
        // SYNC: SeqCst; either sleep() sees the new bell in the kernel, or we see its sleeper here.
        bell.fetch_add(1, Ordering::SeqCst);
        if self.u32(entry + RANK_SLEEPERS).load(Ordering::SeqCst) != 0 {
            // SAFETY: FUTEX_WAKE uses only the address of the aligned word that `bell` borrows.
            unsafe {
                libc::syscall(libc::SYS_futex, bell.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
            }
        }
    }

    /// Sleeps until the bell of `rank` is no longer `seen`. May return early. Without a limit, as NCCL
    /// waits for its peers: an abort rings the bell.
    pub fn sleep(&self, rank: u32, seen: u32) {
        let entry = self.layout.rank(rank);
        let bell = self.u32(entry + RANK_BELL);
        let sleepers = self.u32(entry + RANK_SLEEPERS);
        sleepers.fetch_add(1, Ordering::SeqCst);
        // SAFETY: FUTEX_WAIT reads the aligned word that `bell` borrows; a null timeout means none.
        unsafe {
            libc::syscall(libc::SYS_futex, bell.as_ptr(), libc::FUTEX_WAIT, seen, core::ptr::null::<libc::timespec>());
        }
        sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_refused_with_another_nonce_or_rank_count() {
        let file = create_file([7, 9]).unwrap();
        assert!(matches!(Region::open(&file, [7, 8], 2), Err(Error::InvalidArgument(_))));
        let region = Region::open(&file, [7, 9], 2).unwrap();
        assert!(matches!(Region::open(&file, [7, 9], 3), Err(Error::InvalidArgument(_))));
        let again = Region::open(&file, [7, 9], 2).unwrap();
        region.write(region.layout.slot(1, 1), b"seen");
        let mut bytes = [0; 4];
        again.read(again.layout.slot(1, 1), &mut bytes);
        assert_eq!(&bytes, b"seen");
    }

    #[test]
    fn a_ring_is_never_missed_by_a_sleeper() {
        let file = create_file([1, 2]).unwrap();
        let region = Region::open(&file, [1, 2], 1).unwrap();
        let turn = AtomicU32::new(0);
        std::thread::scope(|s| {
            for me in 0..2 {
                let (region, turn) = (&region, &turn);
                s.spawn(move || {
                    for i in 0..2000 {
                        loop {
                            let seen = region.bell(0);
                            if turn.load(Ordering::SeqCst) == 2 * i + me {
                                break;
                            }
                            region.sleep(0, seen);
                        }
                        turn.fetch_add(1, Ordering::SeqCst);
                        region.ring(0);
                    }
                });
            }
        });
        assert_eq!(turn.load(Ordering::SeqCst), 4000);
    }
}
