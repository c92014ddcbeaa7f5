//! What a reader can tell about a journal without reading its records.

use journal_core::journal::OverflowPolicy;

use crate::argument::{Versioned, VersionedOut};
use crate::boundary::boundary;
use crate::policy;
use crate::snapshot::{enter_reader, rejoin_reader};
use crate::status::rejoin_status;

/// What a journal says about itself. Initialise it with REJOIN_READER_INFO_INIT.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct rejoin_reader_info {
    /// Of this struct.
    pub size: u32,
    /// Of this struct.
    pub version: u32,
    /// Rank that writes it.
    pub rank: u32,
    /// The n-th process that held the rank.
    pub incarnation: u32,
    /// Process that created it.
    pub creator_pid: u32,
    /// 1: nobody will write any more. The writer finished in good order, or it and all who held a lane are gone; a
    /// copy of a journal has ended. A process that only opened it and has not appended yet is not seen.
    pub writer_ended: u32,
    /// Step records below it are over.
    pub boundary: u64,
    /// Step to run next; 0: none was committed.
    pub next_step: u64,
    /// A rejoin_journal_policy.
    pub policy: u32,
    /// Segments that it has grown by.
    pub growth_segments: u32,
    /// Bytes of them.
    pub growth_bytes: u64,
    /// Policy BLOCK: longest wait.
    pub block_timeout_ms: u64,
    /// Policy GROW: bytes of all segments together.
    pub grow_limit_bytes: u64,
    /// Tells jobs of one name apart.
    pub job_uuid: [u8; 16],
}

// SAFETY: numbers only, head first.
unsafe impl Versioned for rejoin_reader_info {
    const NAME: &'static str = "rejoin_reader_info";

    fn defaults() -> Self {
        Self {
            size: size_of::<Self>() as u32,
            version: 1,
            rank: 0,
            incarnation: 0,
            creator_pid: 0,
            writer_ended: 0,
            boundary: 0,
            next_step: 0,
            policy: 0,
            growth_segments: 0,
            growth_bytes: 0,
            block_timeout_ms: 0,
            grow_limit_bytes: 0,
            job_uuid: [0; 16],
        }
    }
}

/**
 * Whose journal it is, where it stands, and whether anybody will still write. Cheap: reads no records.
 *
 * @param reader    open
 * @param out_info  initialised with REJOIN_READER_INFO_INIT; set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently; slows no writer.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_reader_get_info(reader: *const rejoin_reader, out_info: *mut rejoin_reader_info) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { VersionedOut::new(out_info, "out_info") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter_reader(reader) }?;
        let reader = &object.0;
        let (identity, boundary, segments) = (reader.identity(), reader.boundary(), reader.growth_segments());
        let (block_timeout_ms, grow_limit_bytes) = match reader.policy() {
            OverflowPolicy::Block { timeout } => (u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX), 0),
            OverflowPolicy::Grow { limit_bytes } => (0, *limit_bytes),
            _ => (0, 0),
        };
        out.set(&rejoin_reader_info {
            rank: identity.rank,
            incarnation: identity.incarnation,
            creator_pid: identity.creator_pid,
            writer_ended: u32::from(reader.writer_ended()),
            boundary: boundary.sequence.0,
            next_step: boundary.next_step.unwrap_or(0),
            policy: policy::number(reader.policy()),
            growth_segments: segments.len() as u32,
            growth_bytes: segments.iter().map(|(_, bytes)| bytes).sum(),
            block_timeout_ms,
            grow_limit_bytes,
            job_uuid: identity.job_uuid,
            ..rejoin_reader_info::defaults()
        });
        Ok(())
    })
}
