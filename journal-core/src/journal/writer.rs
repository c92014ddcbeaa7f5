//! The journal as its writers see it.

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as Counter, Ordering as CounterOrdering};
use std::time::{Duration, Instant};

use super::append_error::AppendError;
use super::checksum::{self, Hardware};
use super::lane::{self, Append, AppendAtOnce, RecordRef};
use super::layout::{
    ADMIN, DROPPED, FINISHED, FLAG_ABSENT, FLAG_ARENA, Geometry, INCOMPLETE_FROM, RECORD_HEADER, SEGMENT_SHIFT, SEGMENTS, WAITERS,
};
use super::lock::{self, Holder};
use super::store::{Memory, Store};
use super::{
    Boundary, Compaction, JournalIdentity, OverflowPolicy, Prepared, Region, SegmentError, SegmentName, Sequence, SharedSegment,
    Snapshot, arena, chunk, claim, compact, context, doorbell, growth, header, prepared, snapshot,
};
use crate::handle::HandleTable;
use crate::sync::{Ordering, Words};
use crate::sync::robust::Lock;

/// How a journal is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalOptions {
    /// Job name, `[A-Za-z0-9_-]{1,64}`.
    pub job: String,
    /// The job's identity: two jobs of one name are told apart.
    pub job_uuid: [u8; 16],
    /// Rank that writes.
    pub rank: u32,
    /// Process that holds the rank.
    pub incarnation: u32,
    /// Bytes of the base segment.
    pub capacity_bytes: u64,
    /// Threads that may append at the same time.
    pub max_slots: u32,
    /// Bytes of a chunk, a power of two.
    pub chunk_bytes: u64,
    /// Handles that may live at the same time before the table takes chunks, at most a quarter of the journal's.
    pub max_handles: u32,
    /// What an append does when no chunk is free.
    pub policy: OverflowPolicy,
}

impl JournalOptions {
    /// Defaults: 4 MiB, 64 slots, chunks of 64 KiB, 4,096 handles, an error when it is full.
    pub fn new(job: impl Into<String>, rank: u32, incarnation: u32) -> Self {
        Self {
            job: job.into(),
            job_uuid: [0; 16],
            rank,
            incarnation,
            capacity_bytes: 4 << 20,
            max_slots: 64,
            chunk_bytes: 64 << 10,
            max_handles: 4096,
            policy: OverflowPolicy::Error,
        }
    }

    fn geometry(&self) -> Option<Geometry> {
        Geometry::base(self.capacity_bytes, self.chunk_bytes, self.max_slots, self.max_handles)
    }
}

/// What all handles of a journal in this process share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Store<Memory>,
    /// Number in this process, from 1.
    pub(super) id: u64,
    pub(super) identity: JournalIdentity,
    pub(super) policy: OverflowPolicy,
    pub(super) futex_offset: u8,
    pub(super) crc: Option<Hardware>,
}

/// An open journal. Clones are the same journal; any thread may append, each gets a lane of its own at its first
/// append and gives it back when it ends.
#[derive(Debug, Clone)]
pub struct Journal {
    shared: Arc<Shared>,
    _open: Arc<Open>,
}

/// Gives the last dropper's lane back.
#[derive(Debug)]
struct Open(u64);

impl Drop for Open {
    fn drop(&mut self) {
        context::leave(self.0);
    }
}

/// Larger payloads go to spill files only: shared memory is the ranks' own memory.
const PAYLOAD_LIMIT: u64 = 64 << 20;

/// Bytes of an absent payload's first part that its record keeps.
const ABSENT_KEEPS: usize = 256;

/// Longest hold of the admin lock is a PREPARED copy or the making of a segment; far above that, its holder is stopped.
const ADMIN_LIMIT: Duration = Duration::from_secs(10);

impl Journal {
    /// Creates and publishes the journal of one incarnation of a rank.
    pub fn create(options: &JournalOptions) -> Result<Self, SegmentError> {
        let name = SegmentName::journal(&options.job, options.rank, options.incarnation)?;
        let Some(geometry) = options.geometry() else {
            return Err(SegmentError::Capacity {
                name: name.to_string(),
                capacity: options.capacity_bytes,
                chunk: options.chunk_bytes,
            });
        };
        if options.policy.pack().is_none() {
            return Err(SegmentError::SpillDirectory { name: name.to_string() });
        }
        let identity = JournalIdentity::of_this_process(options.job_uuid, options.rank, options.incarnation);
        let segment = SharedSegment::create(&name, geometry.total_len, |segment| {
            header::fill_base(segment, &geometry, &identity, &options.policy)
        })?;
        Self::over(segment)
    }

    /// Opens a published journal to append to it, from this or another process of the same user.
    pub fn open(name: &SegmentName) -> Result<Self, SegmentError> {
        Self::over(SharedSegment::open(name)?)
    }

    fn over(segment: SharedSegment) -> Result<Self, SegmentError> {
        static IDS: Counter = Counter::new(1);
        let checked = header::check_base(&segment)?;
        let id = IDS.fetch_add(1, CounterOrdering::Relaxed);
        let shared = Arc::new(Shared {
            store: Store::growing(Memory::new(segment), checked.geometry),
            id,
            identity: checked.identity,
            policy: checked.policy,
            futex_offset: checked.futex_offset,
            crc: Hardware::detect(),
        });
        Ok(Self { shared, _open: Arc::new(Open(id)) })
    }

    /// Appends one record: committed, and visible to readers, on return. Only then issue the call.
    ///
    /// The payload is `parts` one after the other; what does not fit into a chunk goes to the arena. `kind` and the
    /// lower twelve bits of `flags` are the caller's. Wait-free except at the first append of a thread and where a
    /// chunk ends.
    #[inline]
    pub fn append(&self, region: Region, kind: u16, flags: u16, parts: &[&[u8]]) -> Result<RecordRef, AppendError> {
        match self.append_at_once(region, kind, flags, parts) {
            Some(record) => Ok(record),
            None => self.append_checked(region, kind, flags, parts, false),
        }
    }

    /// The usual append: this thread has a lane with room. A function of its own whose arguments and result travel in
    /// registers; all else is another's business.
    #[inline(never)]
    fn append_at_once(&self, region: Region, kind: u16, flags: u16, parts: &[&[u8]]) -> Option<RecordRef> {
        let shared = &*self.shared;
        lane::check_flags(flags).ok()?;
        let crc = shared.crc?;
        let record = context::with_last_lane(shared, |lane| {
            let store = &shared.store;
            checksum::run(Some(crc), AppendAtOnce(Append { lane, store, region, kind, flags, parts }))
        })?;
        self.ring();
        Some(record)
    }

    #[cold]
    #[inline(never)]
    fn append_checked(&self, region: Region, kind: u16, flags: u16, parts: &[&[u8]], vital: bool) -> Result<RecordRef, AppendError> {
        lane::check_flags(flags)?;
        self.append_any(region, kind, flags, parts, vital)
    }

    /// Appends a record of a payload whose bytes can be had elsewhere: its length and CRC32C, and at most the first
    /// 256 bytes of the first part. Readers tell it as [`Outcome::Absent`](super::Outcome::Absent), and no replay
    /// executes it. For payloads that [`Self::append`] refuses as too large.
    pub fn append_absent(&self, region: Region, kind: u16, flags: u16, parts: &[&[u8]]) -> Result<RecordRef, AppendError> {
        lane::check_flags(flags)?;
        let len = lane::payload_len(parts);
        let sum = parts.iter().fold(0, |sum, part| crc32c::crc32c_append(sum, part));
        let sum = crc32c::crc32c_append(sum, &[0; 8][..(len.next_multiple_of(8) - len) as usize]);
        let first = parts.first().map_or(&[][..], |part| &part[..part.len().min(ABSENT_KEEPS)]);
        self.append_any(region, kind, flags | FLAG_ABSENT, &[&len.to_le_bytes(), &u64::from(sum).to_le_bytes(), first], false)
    }

    fn append_any(&self, region: Region, kind: u16, flags: u16, parts: &[&[u8]], vital: bool) -> Result<RecordRef, AppendError> {
        let record = match self.append_once(region, kind, flags, parts) {
            Err(error) if error.is_full() => self.append_full(region, kind, flags, parts, vital)?,
            done => done?,
        };
        self.ring();
        Ok(record)
    }

    /// [`Self::append`] for what takes a full journal apart, such as the end of an object: where nothing else is free
    /// it uses chunks kept back for it.
    #[inline]
    pub fn append_vital(&self, region: Region, kind: u16, flags: u16, parts: &[&[u8]]) -> Result<RecordRef, AppendError> {
        match self.append_at_once(region, kind, flags, parts) {
            Some(record) => Ok(record),
            None => self.append_checked(region, kind, flags, parts, true),
        }
    }

    /// The caller goes on without a record that was refused: the journal says from now on that it is incomplete, and
    /// nobody replays it.
    pub fn note_dropped(&self) {
        let store = &self.shared.store;
        let now = store.sequence().load(Ordering::Acquire);
        store.word(INCOMPLETE_FROM).fetch_min(now, Ordering::AcqRel);
        store.word(DROPPED).fetch_add(1, Ordering::Release);
        tracing::warn!(journal = %self.name(), from = now, "a record was dropped: this journal cannot be replayed");
    }

    /// Wakes those who said that they sleep.
    #[inline]
    fn ring(&self) {
        let base = self.shared.store.memory().base();
        if base.word(WAITERS).load(Ordering::Relaxed) != 0 {
            doorbell::ring(base);
        }
    }

    fn append_once(&self, region: Region, kind: u16, flags: u16, parts: &[&[u8]]) -> Result<RecordRef, AppendError> {
        let shared = &*self.shared;
        if lane::payload_len(parts) > shared.store.base().inline_limit() {
            return self.append_large(region, kind, flags, parts);
        }
        context::with_lane(&self.shared, |lane| {
            checksum::run(shared.crc, Append { lane, store: &shared.store, region, kind, flags, parts })
        })
    }

    /// Makes room as the policy says, and tries again.
    #[cold]
    #[inline(never)]
    fn append_full(
        &self,
        region: Region,
        kind: u16,
        flags: u16,
        parts: &[&[u8]],
        vital: bool,
    ) -> Result<RecordRef, AppendError> {
        let shared = &*self.shared;
        let started = Instant::now();
        loop {
            let grown = shared.store.word(SEGMENTS).load(Ordering::Acquire);
            let rung = doorbell::count(shared.store.memory().base());
            if self.is_blocking(region) {
                doorbell::arm(shared.store.memory().base());
            }
            claim::recycle_idle(shared);
            let full = match self.append_once(region, kind, flags, parts) {
                Err(error) if error.is_full() => error,
                done => return done,
            };
            let chunks = lane::payload_len(parts).div_ceil(shared.store.base().chunk_bytes).max(1);
            let relief = match &shared.policy {
                OverflowPolicy::Grow { .. } | OverflowPolicy::Spill { .. } => self.grow_unless_grown(grown, chunks),
                OverflowPolicy::Block { timeout } if region == Region::Step => {
                    let deadline = started + *timeout;
                    if Instant::now() < deadline {
                        doorbell::sleep(shared.store.memory().base(), rung, deadline);
                        Ok(())
                    } else {
                        Err(AppendError::Blocked { waited_ms: timeout.as_millis() as u64 })
                    }
                }
                // Set-up records are not freed by a step's end.
                OverflowPolicy::Block { .. } | OverflowPolicy::Error => Err(full),
            };
            match relief {
                Ok(()) => {}
                Err(_) if vital => return self.append_from_reserve(region, kind, flags, parts),
                Err(error) => return Err(error),
            }
        }
    }

    fn is_blocking(&self, region: Region) -> bool {
        matches!(self.shared.policy, OverflowPolicy::Block { .. }) && region == Region::Step
    }

    /// Another thread may have grown the journal while this one waited for the lock.
    fn grow_unless_grown(&self, seen: u64, chunks: u64) -> Result<(), AppendError> {
        self.administer(|shared| {
            if shared.store.word(SEGMENTS).load(Ordering::Acquire) != seen { Ok(()) } else { growth::grow(shared, chunks) }
        })
    }

    fn append_from_reserve(
        &self,
        region: Region,
        kind: u16,
        flags: u16,
        parts: &[&[u8]],
    ) -> Result<RecordRef, AppendError> {
        let mark = |vital| {
            context::with_lane(&self.shared, |lane| {
                lane.vital = vital;
                Ok(())
            })
        };
        mark(true)?;
        let done = self.append_once(region, kind, flags, parts);
        mark(false)?;
        done
    }

    #[cold]
    fn append_large(&self, region: Region, kind: u16, flags: u16, parts: &[&[u8]]) -> Result<RecordRef, AppendError> {
        let (store, crc) = (&self.shared.store, self.shared.crc);
        let len = lane::payload_len(parts);
        if len > PAYLOAD_LIMIT && !matches!(self.shared.policy, OverflowPolicy::Spill { .. }) {
            return Err(AppendError::TooLarge { len, limit: PAYLOAD_LIMIT });
        }
        context::with_lane(&self.shared, |lane| {
            lane.recycle(store);
            let placed = arena::place(store, crc, lane.owner(), region, parts)?;
            let naming = &[&placed.descriptor[..]];
            let flags = flags | FLAG_ARENA;
            match checksum::run(crc, Append { lane, store, region, kind, flags, parts: naming }) {
                Ok(record) => {
                    arena::publish(store, placed, record.sequence().0);
                    match region {
                        Region::Setup => lane.setup_chunks += len.div_ceil(store.base().chunk_bytes) as u32,
                        Region::Step => lane.step_arenas += 1,
                    }
                    Ok(record)
                }
                Err(error) => {
                    arena::discard(store, placed);
                    Err(error)
                }
            }
        })
    }

    /// Stores what the call gave (63 bits) beside its record. False if the record is gone with its step. By the
    /// thread that appended it, or before the step's commit.
    #[inline]
    pub fn complete(&self, record: RecordRef, result: u64) -> bool {
        lane::complete(&self.shared.store, record, result)
    }

    /// Names a record again by what its [`RecordRef`] told. `None` where no record can be.
    pub fn record_at(&self, position: u64, sequence: Sequence) -> Option<RecordRef> {
        let segment = u32::try_from(position >> SEGMENT_SHIFT).ok()?;
        let offset = position & ((1 << SEGMENT_SHIFT) - 1);
        let geometry = self.shared.store.geometry(segment)?;
        let inside = position.is_multiple_of(8) && offset.checked_add(RECORD_HEADER)? <= geometry.total_len;
        Some(RecordRef { address: position, sequence: NonZeroU64::new(sequence.0).filter(|_| inside)? })
    }

    /// Ends step `step`: its records no longer count. One store is the commit; a death leaves the old or the new
    /// boundary. A consistent cut needs the caller to have ordered other threads' calls before this one.
    pub fn step_commit(&self, step: u32) -> Result<Sequence, AppendError> {
        self.cut(Some(u64::from(step) + 1))
    }

    /// Drops the records of a step that will be run again, without ending it.
    pub fn step_discard(&self) -> Result<Sequence, AppendError> {
        self.cut(None)
    }

    /// Moves the boundary; takes no chunk and waits for nobody, so a full journal can always be cut.
    fn cut(&self, next_step: Option<u64>) -> Result<Sequence, AppendError> {
        let shared = &*self.shared;
        let boundary = context::with_lane(&self.shared, |lane| Ok(Boundary::advance(&shared.store, lane.slot, next_step)))?;
        // Whoever holds the lock, if anybody does, may be stopped: the next commit puts chunks aside.
        if chunk::reserve_is_short(&shared.store) {
            let mutex = lock::mutex(shared.store.memory().base(), ADMIN);
            let locked = mutex.try_lock();
            if locked == Lock::OwnerDied {
                mutex.make_consistent();
            }
            if matches!(locked, Lock::Acquired | Lock::OwnerDied) {
                chunk::restock(&shared.store);
                mutex.unlock();
            }
        }
        self.ring();
        Ok(boundary.sequence)
    }

    /// Whether this thread's set-up records have grown enough to look for some that no replay needs. Cheap.
    pub fn wants_compaction(&self) -> bool {
        context::with_lane(&self.shared, |lane| Ok(lane.setup_chunks >= lane.look_at_chunks)).unwrap_or(false)
    }

    /// Leaves out this thread's set-up records that `dead` names, if they are more than half of its bytes and it has
    /// more than one chunk of them. `dead` gets all that the journal holds, and this thread's slot; it names records of
    /// that slot below the boundary only, since others' numbers are still looked for.
    ///
    /// Records get another place: results of the remaining ones must have been stored before. `None`: nothing was worth
    /// it, or no chunk is free to copy into. Readers are not held up; a death leaves the records as they were or
    /// without the dead ones.
    pub fn compact(&self, dead: impl FnOnce(&Snapshot, u16) -> HashSet<Sequence>) -> Result<Option<Compaction>, AppendError> {
        let shared = &*self.shared;
        context::with_lane(&self.shared, |lane| {
            let snapshot = self.snapshot();
            let mut dead = dead(&snapshot, lane.slot);
            dead.retain(|sequence| *sequence < snapshot.boundary.sequence);
            let done = compact::compact(&shared.store, lane, &dead)?;
            if let Some(done) = done {
                tracing::debug!(journal = %self.name(), ?done, "compacted the set-up records");
            }
            Ok(done)
        })
    }

    /// The current boundary.
    pub fn boundary(&self) -> Boundary {
        Boundary::read(&self.shared.store)
    }

    /// Makes room for PREPARED contents of `bytes_max` (see [`prepared::bytes_for`]), so that later writes of up to
    /// that size cannot fail for space.
    pub fn prepared_reserve(&self, bytes_max: u64) -> Result<(), AppendError> {
        self.administer(|shared| growing(shared, bytes_max, || prepared::reserve(&shared.store, bytes_max)))
    }

    /// Writes the PREPARED content that `step` begins with. The content for `step - 1` stays.
    pub fn prepared_write(&self, step: u32, blob: &[u8], parts: &[(u32, &[u8])]) -> Result<(), AppendError> {
        let bytes = prepared::bytes_for(blob.len(), parts.iter().map(|(_, bytes)| bytes.len()));
        self.administer(|shared| {
            growing(shared, bytes, || prepared::write(&shared.store, shared.crc, step, blob, parts))
        })
    }

    /// The PREPARED content for `step`.
    pub fn prepared_read(&self, step: u32) -> Option<Prepared> {
        prepared::read(&self.shared.store, step)
    }

    /// The handle table of this rank.
    #[inline]
    pub fn handles(&self) -> HandleTable<'_, Memory> {
        HandleTable::new(&self.shared.store, &self.shared)
    }

    /// What a reader would see now.
    pub fn snapshot(&self) -> Snapshot {
        snapshot::take(&self.shared.store, &self.shared.identity, self.shared.futex_offset)
    }

    /// Seals what dead threads and processes left in this journal; how many slots were reaped.
    pub fn reap(&self) -> Result<u32, AppendError> {
        claim::reap_dead(&self.shared)
    }

    /// The writer has come to a good end: readers need not suspect a death.
    pub fn finish(&self) {
        self.shared.store.word(FINISHED).store(1, Ordering::Release);
    }

    /// Whose journal it is.
    pub fn identity(&self) -> &JournalIdentity {
        &self.shared.identity
    }

    /// What it does when it is full.
    pub fn policy(&self) -> &OverflowPolicy {
        &self.shared.policy
    }

    /// Its published name.
    pub fn name(&self) -> &SegmentName {
        self.shared.store.memory().base().name()
    }

    /// Removes the published name (growth segments included); open mappings stay valid.
    pub fn unlink(&self) -> Result<(), SegmentError> {
        growth::remove(self.name())
    }

    /// Runs `work` under the admin lock. Its former holder may have died at any point: every step it guards is
    /// either a single store or repeated from the start.
    fn administer<R>(&self, work: impl FnOnce(&Shared) -> Result<R, AppendError>) -> Result<R, AppendError> {
        let shared = &*self.shared;
        let mutex = lock::mutex(shared.store.memory().base(), ADMIN);
        match mutex.lock_for(ADMIN_LIMIT) {
            Lock::Acquired => {}
            Lock::OwnerDied => mutex.make_consistent(),
            Lock::Busy => {
                let holder = match lock::holder(&shared.store, ADMIN, shared.futex_offset) {
                    Holder::Alive(tid) => tid,
                    Holder::Nobody | Holder::Died => 0,
                };
                return Err(AppendError::Busy { holder, waited_ms: ADMIN_LIMIT.as_millis() as u64 });
            }
            Lock::Unusable(code) => {
                let source = std::io::Error::from_raw_os_error(code);
                return Err(AppendError::Io { action: "lock the journal's admin mutex", source });
            }
        }
        let result = work(shared);
        mutex.unlock();
        result
    }
}

/// Repeats `work`, of `bytes` in a row, after growing the journal for it. Under the admin lock.
fn growing<R>(shared: &Shared, bytes: u64, work: impl Fn() -> Result<R, AppendError>) -> Result<R, AppendError> {
    loop {
        match work() {
            Err(error) if error.is_full() && shared.policy.grows() => {
                growth::grow(shared, bytes.div_ceil(shared.store.base().chunk_bytes).max(1))?;
            }
            done => return done,
        }
    }
}
