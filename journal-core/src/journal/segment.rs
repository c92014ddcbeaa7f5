//! A named object of shared memory: created under a temporary name, reserved, filled, then published.
//!
//! The published name only ever shows a complete object. `shared_memory` creates, maps and opens what
//! writers use (it only truncates and it unlinks on drop, hence the reservation and the hard link here);
//! readers map read-only, and files outside /dev/shm are mapped by `memmap2`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::FallocateFlags;
use shared_memory::{Shmem, ShmemConf, ShmemError};

use super::name::SHARED_MEMORY_DIR;
use super::{SegmentError, SegmentName};
use crate::sync::{AtomicU64, Words};

/// fallocate in pieces, so that a signal or a full file system shows early.
const RESERVE_PIECE: u64 = 16 << 20;
/// Temporary names tried when a dead process of the same pid left some.
pub(super) const TEMPORARY_ATTEMPTS: u32 = 64;

enum Mapping {
    Shared(Shmem),
    #[allow(dead_code, reason = "held so that it stays mapped")]
    File(MmapRaw),
}

/// A mapped segment. Unmapped on drop; the published name stays until [`SharedSegment::unlink`].
pub struct SharedSegment {
    base: *mut u8,
    len: u64,
    name: SegmentName,
    dir: PathBuf,
    writable: bool,
    /// Second descriptor of the object, to ask for its size.
    file: File,
    _mapping: Mapping,
}

// SAFETY: the mapping is not bound to a thread; all access goes through atomics or raw pointers whose users
// state their own rules.
unsafe impl Send for SharedSegment {}
// SAFETY: as above.
unsafe impl Sync for SharedSegment {}

impl SharedSegment {
    /// Creates `name` with `bytes` zero bytes in /dev/shm, lets `init` fill it, and publishes it.
    ///
    /// `init` writes the header, magic last. On any error nothing stays behind. A crash leaves at most the
    /// temporary name, which [`SegmentName::parse_temporary`] attributes to its creator.
    pub fn create<E: From<SegmentError>>(
        name: &SegmentName,
        bytes: u64,
        init: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<Self, E> {
        Self::create_unpublished(name, bytes)?.publish(init)
    }

    /// Like [`Self::create`], as a file in `dir` (spilled journals).
    pub fn create_in<E: From<SegmentError>>(
        dir: &Path,
        name: &SegmentName,
        bytes: u64,
        init: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<Self, E> {
        if dir == Path::new(SHARED_MEMORY_DIR) {
            return Self::create(name, bytes, init);
        }
        Self::create_file(dir, name, bytes)?.publish(init)
    }

    fn create_unpublished(name: &SegmentName, bytes: u64) -> Result<Unpublished, SegmentError> {
        let dir = Path::new(SHARED_MEMORY_DIR);
        preflight(dir, name, bytes)?;
        keep_standard_descriptors(name)?;
        let (shmem, temporary) = create_temporary(name, bytes)?;
        let unpublished = TemporaryFile(dir.join(&temporary));
        let file = open_file(&unpublished.0, name, dir, true)?;
        reserve(&file, dir, name, bytes)?;
        file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(io_error(name, "set the mode of"))?;
        let segment = Self {
            base: shmem.as_ptr(),
            len: bytes,
            name: name.clone(),
            dir: dir.to_owned(),
            writable: true,
            file,
            _mapping: Mapping::Shared(shmem),
        };
        segment.populate()?;
        Ok(Unpublished { segment, temporary: unpublished })
    }

    fn create_file(dir: &Path, name: &SegmentName, bytes: u64) -> Result<Unpublished, SegmentError> {
        preflight(dir, name, bytes)?;
        let mut attempt = 0;
        let (file, path) = loop {
            let path = dir.join(name.temporary(std::process::id(), attempt));
            match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => break (file, path),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && attempt < TEMPORARY_ATTEMPTS => attempt += 1,
                Err(e) => return Err(open_error(e, &path, name, dir)),
            }
        };
        let temporary = TemporaryFile(path);
        reserve(&file, dir, name, bytes)?;
        let map = MmapOptions::new()
            .len(usize::try_from(bytes).expect("64-bit target"))
            .map_raw(&file)
            .map_err(|e| map_error(e, name, bytes))?;
        let segment = Self {
            base: map.as_mut_ptr(),
            len: bytes,
            name: name.clone(),
            dir: dir.to_owned(),
            writable: true,
            file,
            _mapping: Mapping::File(map),
        };
        Ok(Unpublished { segment, temporary })
    }

    /// Maps a published segment of /dev/shm for reading and writing. Refused for another user's.
    pub fn open(name: &SegmentName) -> Result<Self, SegmentError> {
        let dir = Path::new(SHARED_MEMORY_DIR);
        keep_standard_descriptors(name)?;
        let file = open_file(&name.path_in(dir), name, dir, true)?;
        let size = checked_size(&file, name)?;
        let shmem = ShmemConf::new().os_id(name.as_str()).open().map_err(|e| shmem_error(e, name, dir, size))?;
        if shmem.len() as u64 != size {
            // Removed and created again between the two opens.
            return Err(SegmentError::NotFound { name: name.to_string(), dir: dir.to_owned() });
        }
        Ok(Self {
            base: shmem.as_ptr(),
            len: size,
            name: name.clone(),
            dir: dir.to_owned(),
            writable: true,
            file,
            _mapping: Mapping::Shared(shmem),
        })
    }

    /// Maps a published segment of any directory for reading and writing (growth segments may be spill files).
    pub fn open_in(dir: &Path, name: &SegmentName) -> Result<Self, SegmentError> {
        if dir == Path::new(SHARED_MEMORY_DIR) { Self::open(name) } else { Self::open_mapped(dir, name, true) }
    }

    /// Maps a published segment for reading only: a store through it faults, so nothing can be changed by
    /// mistake. Works in any directory and on copies of segments.
    pub fn open_read_only(dir: &Path, name: &SegmentName) -> Result<Self, SegmentError> {
        Self::open_mapped(dir, name, false)
    }

    fn open_mapped(dir: &Path, name: &SegmentName, writable: bool) -> Result<Self, SegmentError> {
        let file = open_file(&name.path_in(dir), name, dir, writable)?;
        let size = checked_size(&file, name)?;
        let mut options = MmapOptions::new();
        options.len(usize::try_from(size).expect("64-bit target"));
        let map = if writable { options.map_raw(&file) } else { options.map_raw_read_only(&file) }
            .map_err(|e| map_error(e, name, size))?;
        Ok(Self {
            base: map.as_mut_ptr(),
            len: size,
            name: name.clone(),
            dir: dir.to_owned(),
            writable,
            file,
            _mapping: Mapping::File(map),
        })
    }

    /// Removes the published name; mappings of it stay valid.
    pub fn unlink(name: &SegmentName) -> Result<(), SegmentError> {
        Self::unlink_in(Path::new(SHARED_MEMORY_DIR), name)
    }

    /// [`Self::unlink`] in any directory.
    pub fn unlink_in(dir: &Path, name: &SegmentName) -> Result<(), SegmentError> {
        let path = name.path_in(dir);
        fs::remove_file(&path).map_err(|e| open_error(e, &path, name, dir))
    }

    /// First byte of the mapping, page-aligned.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Mapped bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Its published name.
    pub fn name(&self) -> &SegmentName {
        &self.name
    }

    /// Where it is published.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether stores are possible.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Asks the file system whether the object still has the mapped size: after a truncation by somebody else
    /// reading beyond its end would raise SIGBUS. Long reads call this between pieces.
    pub fn check_len(&self) -> Result<(), SegmentError> {
        let now = self.file.metadata().map_err(io_error(&self.name, "ask for the size of"))?.len();
        if now < self.len {
            return Err(SegmentError::Corrupt {
                name: self.name.to_string(),
                offset: now,
                what: "it was truncated while it was open",
            });
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    #[cfg_attr(loom, allow(dead_code))]
    fn outside(&self, offset: u64, count: usize) -> ! {
        panic!("{count} words at {offset:#x} are not in a segment of {:#x} bytes", self.len)
    }

    fn populate(&self) -> Result<(), SegmentError> {
        let len = usize::try_from(self.len).expect("64-bit target");
        // SAFETY: the range is exactly this process's own mapping, which nobody else refers to yet; populating
        // writes no contents.
        let result = unsafe { rustix::mm::madvise(self.base.cast(), len, rustix::mm::Advice::LinuxPopulateWrite) };
        match result {
            Ok(()) => Ok(()),
            // Before Linux 5.14: pages come on first touch, which the reservation made safe.
            Err(rustix::io::Errno::INVAL) => Ok(()),
            Err(rustix::io::Errno::FAULT | rustix::io::Errno::NOMEM) => {
                Err(no_space(&self.dir, &self.name, self.len))
            }
            Err(e) => Err(io_error(&self.name, "populate")(e.into())),
        }
    }
}

#[cfg(not(loom))]
impl Words for SharedSegment {
    #[inline(always)]
    fn word(&self, offset: u64) -> &AtomicU64 {
        &self.words(offset, 1)[0]
    }

    #[inline(always)]
    fn words(&self, offset: u64, count: usize) -> &[AtomicU64] {
        if offset % 8 != 0 || offset > self.len || count as u64 > (self.len - offset) / 8 {
            self.outside(offset, count);
        }
        // SAFETY: the offset is within the mapping (checked above).
        let first = unsafe { self.base.add(offset as usize) };
        // SAFETY: aligned (base is page-aligned, offset a multiple of 8), in bounds, mapped for as long as `self`
        // lives; every access of any process goes through atomics of this size.
        unsafe { core::slice::from_raw_parts(first.cast::<AtomicU64>(), count) }
    }
}

/// Loom's atomics are larger than a word and know their own identity: models run on heap words.
#[cfg(loom)]
impl Words for SharedSegment {
    fn word(&self, _: u64) -> &AtomicU64 {
        panic!("mapped memory cannot stand under loom's atomics; use HeapWords")
    }

    fn words(&self, _: u64, _: usize) -> &[AtomicU64] {
        panic!("mapped memory cannot stand under loom's atomics; use HeapWords")
    }
}

impl std::fmt::Debug for SharedSegment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedSegment").field("name", &self.name.as_str()).field("len", &self.len).finish()
    }
}

/// Removes the temporary name whatever happens.
struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::debug!(path = %self.0.display(), %error, "temporary segment name stays");
            }
        }
    }
}

struct Unpublished {
    segment: SharedSegment,
    temporary: TemporaryFile,
}

impl Unpublished {
    fn publish<E: From<SegmentError>>(
        self,
        init: impl FnOnce(&SharedSegment) -> Result<(), E>,
    ) -> Result<SharedSegment, E> {
        let Self { mut segment, temporary } = self;
        init(&segment)?;
        let path = segment.name.path_in(&segment.dir);
        // SYNC: the link makes everything written above visible with the name; who opens it sees a whole object.
        fs::hard_link(&temporary.0, &path).map_err(|e| open_error(e, &path, &segment.name, &segment.dir))?;
        drop(temporary);
        if let Mapping::Shared(shmem) = &mut segment._mapping {
            // The temporary name is gone; neither this process nor a forked child has anything to unlink.
            shmem.set_owner(false);
        }
        tracing::trace!(name = %segment.name, bytes = segment.len, "segment published");
        Ok(segment)
    }
}

fn create_temporary(name: &SegmentName, bytes: u64) -> Result<(Shmem, String), SegmentError> {
    let size = usize::try_from(bytes).expect("64-bit target");
    let mut attempt = 0;
    loop {
        let temporary = name.temporary(std::process::id(), attempt);
        match ShmemConf::new().os_id(&temporary).size(size).create() {
            Ok(shmem) => return Ok((shmem, temporary)),
            Err(ShmemError::MappingIdExists) if attempt < TEMPORARY_ATTEMPTS => attempt += 1,
            Err(e) => return Err(shmem_error(e, name, Path::new(SHARED_MEMORY_DIR), bytes)),
        }
    }
}

/// `shared_memory` takes descriptor 0 for "none": with a closed standard stream it would leak the object.
fn keep_standard_descriptors(name: &SegmentName) -> Result<(), SegmentError> {
    loop {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")
            .map_err(io_error(name, "keep descriptors 0 to 2 open for"))?;
        if std::os::fd::AsRawFd::as_raw_fd(&file) > 2 {
            return Ok(());
        }
        std::mem::forget(file);
    }
}

fn preflight(dir: &Path, name: &SegmentName, bytes: u64) -> Result<(), SegmentError> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
    if let Some(limit) = limit.current.filter(|limit| *limit < bytes) {
        // Growing a file beyond the limit would raise SIGXFSZ.
        return Err(SegmentError::FileLimit { name: name.to_string(), needed: bytes, limit });
    }
    match rustix::fs::statvfs(dir) {
        // A tmpfs without a limit reports no blocks at all.
        Ok(fs) if fs.f_blocks != 0 && fs.f_bavail.saturating_mul(fs.f_frsize) < bytes => {
            Err(no_space(dir, name, bytes))
        }
        Ok(_) => Ok(()),
        Err(e) => Err(open_error(e.into(), dir, name, dir)),
    }
}

fn reserve(file: &File, dir: &Path, name: &SegmentName, bytes: u64) -> Result<(), SegmentError> {
    let mut at = 0;
    while at < bytes {
        let piece = RESERVE_PIECE.min(bytes - at);
        match rustix::fs::fallocate(file.as_fd(), FallocateFlags::empty(), at, piece) {
            Ok(()) => at += piece,
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::NOSPC | rustix::io::Errno::NOMEM | rustix::io::Errno::DQUOT) => {
                return Err(no_space(dir, name, bytes));
            }
            Err(rustix::io::Errno::OPNOTSUPP) => {
                write_zeros(file, at, piece).map_err(|e| match e.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => no_space(dir, name, bytes),
                    _ => io_error(name, "reserve space for")(e),
                })?;
                at += piece;
            }
            Err(e) => return Err(io_error(name, "reserve space for")(e.into())),
        }
    }
    Ok(())
}

fn write_zeros(file: &File, at: u64, bytes: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let zeros = vec![0_u8; 1 << 20];
    let mut done = 0;
    while done < bytes {
        let piece = (bytes - done).min(zeros.len() as u64);
        file.write_all_at(&zeros[..piece as usize], at + done)?;
        done += piece;
    }
    Ok(())
}

fn open_file(path: &Path, name: &SegmentName, dir: &Path, writable: bool) -> Result<File, SegmentError> {
    let file = OpenOptions::new()
        .read(true)
        .write(writable)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(|e| open_error(e, path, name, dir))?;
    let meta = file.metadata().map_err(io_error(name, "ask for the owner of"))?;
    let user = rustix::process::geteuid().as_raw();
    // Root may look at anybody's, but writing into another user's segment would make its trust in it void.
    if meta.uid() != user && (writable || user != 0) {
        return Err(SegmentError::Access { name: name.to_string(), owner: meta.uid(), user });
    }
    Ok(file)
}

fn checked_size(file: &File, name: &SegmentName) -> Result<u64, SegmentError> {
    let meta = file.metadata().map_err(io_error(name, "ask for the size of"))?;
    let corrupt = |what| SegmentError::Corrupt { name: name.to_string(), offset: meta.len(), what };
    if !meta.is_file() {
        return Err(corrupt("it is not a regular file"));
    }
    if meta.len() < 4096 || meta.len() % 8 != 0 {
        return Err(corrupt("it is too short to be a segment"));
    }
    Ok(meta.len())
}

fn no_space(dir: &Path, name: &SegmentName, needed: u64) -> SegmentError {
    let free = rustix::fs::statvfs(dir).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    SegmentError::NoSpace { name: name.to_string(), dir: dir.to_owned(), needed, free }
}

fn io_error(name: &SegmentName, action: &'static str) -> impl FnOnce(io::Error) -> SegmentError {
    let name = name.to_string();
    move |source| SegmentError::Io { name, action, source }
}

fn open_error(source: io::Error, path: &Path, name: &SegmentName, dir: &Path) -> SegmentError {
    let name = name.to_string();
    match source.kind() {
        io::ErrorKind::NotFound => SegmentError::NotFound { name, dir: dir.to_owned() },
        io::ErrorKind::AlreadyExists => SegmentError::Exists { name },
        io::ErrorKind::PermissionDenied => {
            let owner = fs::symlink_metadata(path).or_else(|_| fs::metadata(dir)).map_or(0, |meta| meta.uid());
            SegmentError::Access { name, owner, user: rustix::process::geteuid().as_raw() }
        }
        _ => SegmentError::Io { name, action: "open", source },
    }
}

fn map_error(source: io::Error, name: &SegmentName, needed: u64) -> SegmentError {
    if source.raw_os_error() == Some(libc::ENOMEM) {
        return SegmentError::AddressSpace { name: name.to_string(), needed };
    }
    io_error(name, "map")(source)
}

fn shmem_error(error: ShmemError, name: &SegmentName, dir: &Path, bytes: u64) -> SegmentError {
    let code = match error {
        ShmemError::MapCreateFailed(code) | ShmemError::MapOpenFailed(code) | ShmemError::UnknownOsError(code) => code,
        ShmemError::MappingIdExists => return SegmentError::Exists { name: name.to_string() },
        other => return io_error(name, "open")(io::Error::other(other)),
    };
    let source = io::Error::from_raw_os_error(i32::try_from(code).unwrap_or(libc::EIO));
    match source.raw_os_error() {
        Some(libc::ENOMEM) => SegmentError::AddressSpace { name: name.to_string(), needed: bytes },
        Some(libc::ENOSPC) => no_space(dir, name, bytes),
        _ => open_error(source, &name.path_in(dir), name, dir),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    fn unique(tag: &str) -> SegmentName {
        SegmentName::journal(&format!("unit-{tag}-{}", std::process::id()), 0, 0).unwrap()
    }

    #[test]
    fn a_segment_is_seen_whole_by_name_and_outlives_its_creator() {
        let name = unique("publish");
        let created = SharedSegment::create(&name, 1 << 20, |s| {
            assert!(SharedSegment::open(&name).is_err(), "visible before it was filled");
            s.word(4096).store(7, Ordering::Relaxed);
            Ok::<(), SegmentError>(())
        })
        .unwrap();
        drop(created);
        let reader = SharedSegment::open_read_only(Path::new(SHARED_MEMORY_DIR), &name).unwrap();
        assert_eq!(reader.word(4096).load(Ordering::Relaxed), 7);
        assert_eq!(reader.len(), 1 << 20);
        let mode = fs::metadata(name.path_in(Path::new(SHARED_MEMORY_DIR))).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        SharedSegment::unlink(&name).unwrap();
        reader.check_len().unwrap();
        assert!(matches!(SharedSegment::open(&name), Err(SegmentError::NotFound { .. })));
    }

    #[test]
    fn a_taken_name_is_an_error_and_leaves_nothing() {
        let name = unique("taken");
        let first = SharedSegment::create(&name, 8192, |_| Ok::<(), SegmentError>(())).unwrap();
        let second = SharedSegment::create(&name, 8192, |_| Ok::<(), SegmentError>(()));
        assert!(matches!(second, Err(SegmentError::Exists { .. })), "{second:?}");
        let left = fs::read_dir(SHARED_MEMORY_DIR)
            .unwrap()
            .filter_map(|e| e.unwrap().file_name().into_string().ok())
            .filter(|file| SegmentName::parse_temporary(file).is_some_and(|(of, _)| of == name))
            .count();
        assert_eq!(left, 0);
        drop(first);
        SharedSegment::unlink(&name).unwrap();
    }

    #[test]
    fn a_failed_init_leaves_nothing() {
        let name = unique("init");
        let result = SharedSegment::create(&name, 8192, |_| Err(SegmentError::Exists { name: "x".into() }));
        assert!(result.is_err());
        assert!(matches!(SharedSegment::open(&name), Err(SegmentError::NotFound { .. })));
    }

    #[test]
    fn more_than_the_file_system_has_is_refused_before_anything_is_touched() {
        let name = unique("space");
        let result = SharedSegment::create(&name, 1 << 50, |_| Ok::<(), SegmentError>(()));
        assert!(matches!(result, Err(SegmentError::NoSpace { needed, .. }) if needed == 1 << 50), "{result:?}");
    }

    #[test]
    fn a_truncated_segment_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let name = unique("short");
        let segment = SharedSegment::create_in(dir.path(), &name, 1 << 16, |_| Ok::<(), SegmentError>(())).unwrap();
        segment.check_len().unwrap();
        OpenOptions::new().write(true).open(name.path_in(dir.path())).unwrap().set_len(4096).unwrap();
        assert!(matches!(segment.check_len(), Err(SegmentError::Corrupt { offset: 4096, .. })));
        OpenOptions::new().write(true).open(name.path_in(dir.path())).unwrap().set_len(100).unwrap();
        assert!(matches!(SharedSegment::open_read_only(dir.path(), &name), Err(SegmentError::Corrupt { .. })));
    }
}
