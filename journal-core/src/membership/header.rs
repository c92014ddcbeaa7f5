//! The constant part of the segment: what is fixed for a job, written before publication, checked by every opener.

use std::time::Duration;

use super::decision::Decisions;
use super::layout::*;
use super::memory::{Memory, initialise_mutexes};
use super::{Identity, MembershipError};
use crate::journal::{SegmentError, SharedSegment};
use crate::sync::{Ordering, Words};

/// How communicators are rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum JobStrategy {
    Auto = 1,
    Reinit = 2,
    Grow = 3,
    NewRank = 4,
}

impl JobStrategy {
    /// As in `--strategy` and in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Reinit => "reinit",
            Self::Grow => "grow",
            Self::NewRank => "new-rank",
        }
    }

    pub(super) fn from_number(number: u64) -> Option<Self> {
        [Self::Auto, Self::Reinit, Self::Grow, Self::NewRank].into_iter().find(|strategy| *strategy as u64 == number)
    }
}

/// What happens to a doomed step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum JobPolicy {
    /// The application runs it again.
    Redo = 1,
    /// Rejoin issues its requests again.
    Replay = 2,
}

impl JobPolicy {
    /// As in `--policy`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Redo => "redo",
            Self::Replay => "replay",
        }
    }
}

/// What is fixed for a job. The launcher gives it; everybody else reads it from the segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOptions {
    /// Name, [A-Za-z0-9_-]{1,64}.
    pub job: String,
    /// Ranks, 1 to 1,024.
    pub nranks: u32,
    /// Tells this job from an earlier one of the same name.
    pub uuid: [u8; 16],
    /// How communicators are rebuilt.
    pub strategy: JobStrategy,
    /// What happens to a doomed step.
    pub policy: JobPolicy,
    /// Survivors above a failed rank move down by one in rebuilt communicators.
    pub renumber: bool,
    /// Recoveries before the job gives up.
    pub max_recoveries: u32,
    /// Deadline of each stage of a recovery.
    pub stage_timeout: Duration,
    /// A rank that is behind all others for this long is declared hung; `None`: never.
    pub hang_timeout: Option<Duration>,
    /// Name of the backend, at most 64 bytes.
    pub backend: String,
}

/// Fills a segment that is not published yet.
pub(super) fn initialise(
    segment: &SharedSegment,
    layout: Layout,
    options: &JobOptions,
    launcher: Identity,
) -> Result<(), MembershipError> {
    let store = |at, value| segment.word(at).store(value, Ordering::Relaxed);
    for (at, value) in header_words(options, &layout) {
        store(at, value);
    }
    store(AT_LAUNCHER_PID, launcher.pid.into());
    store(AT_LAUNCHER_START, launcher.start_time);
    Decisions::new(segment, layout.decision()).init();
    initialise_mutexes(segment, &layout)?;
    segment.word(AT_HEADER_CRC).store(header_crc(segment), Ordering::Relaxed);
    // SYNC: Release; pairs with the Acquire in `open_memory`. The name is linked later still.
    segment.word(AT_MAGIC).store(MAGIC, Ordering::Release);
    Ok(())
}

fn header_words(options: &JobOptions, layout: &Layout) -> Vec<(u64, u64)> {
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let created = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let choices = u64::from(options.renumber) << 16 | (options.policy as u64) << 8 | options.strategy as u64;
    let mut words = vec![
        (AT_FORMAT, u64::from(FORMAT) | 64 << 32 | 0x1234 << 40),
        (AT_LAYOUT_HASH, LAYOUT_HASH),
        (AT_BYTES, layout.bytes),
        (AT_NRANKS, options.nranks.into()),
        (AT_CHOICES, choices),
        (AT_MAX_RECOVERIES, options.max_recoveries.into()),
        (AT_STAGE_TIMEOUT, nanos(options.stage_timeout)),
        (AT_HANG_TIMEOUT, options.hang_timeout.map_or(0, nanos)),
        (AT_CREATED, created),
    ];
    for (at, bytes) in [(AT_UUID, &options.uuid[..]), (AT_JOB, options.job.as_bytes()), (AT_BACKEND, options.backend.as_bytes())] {
        words.extend(bytes.chunks(8).enumerate().map(|(i, chunk)| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            (at + i as u64 * 8, u64::from_le_bytes(word))
        }));
    }
    words
}

/// Over the constant header without the magic and the CRC itself.
fn header_crc(segment: &SharedSegment) -> u64 {
    let bytes: Vec<u8> = (8..HEADER_BYTES)
        .step_by(8)
        .filter(|at| *at != AT_HEADER_CRC)
        .flat_map(|at| segment.word(at).load(Ordering::Relaxed).to_le_bytes())
        .collect();
    crc32c::crc32c(&bytes).into()
}

/// Checks the header before anything else of the segment is used.
pub(super) fn open_memory(segment: SharedSegment) -> Result<(Memory, JobOptions), MembershipError> {
    let name = || segment.name().to_string();
    let corrupt = |offset, what| MembershipError::Segment(SegmentError::Corrupt { name: name(), offset, what });
    if segment.len() < HEADER_BYTES {
        return Err(corrupt(segment.len(), "it is shorter than a header"));
    }
    // SYNC: Acquire; pairs with the Release in `initialise`.
    if segment.word(AT_MAGIC).load(Ordering::Acquire) != MAGIC {
        return Err(corrupt(AT_MAGIC, "it has no magic: not a members segment"));
    }
    let load = |at| segment.word(at).load(Ordering::Relaxed);
    let format = load(AT_FORMAT);
    if format as u32 != FORMAT {
        return Err(SegmentError::Version { name: name(), found: format as u32, expected: FORMAT }.into());
    }
    if format >> 32 != (64 | 0x1234 << 8) {
        return Err(corrupt(AT_FORMAT, "written with another word size or byte order"));
    }
    if load(AT_LAYOUT_HASH) != LAYOUT_HASH {
        let found = load(AT_LAYOUT_HASH);
        return Err(SegmentError::Layout { name: name(), found, expected: LAYOUT_HASH }.into());
    }
    if load(AT_HEADER_CRC) != header_crc(&segment) {
        return Err(corrupt(AT_HEADER_CRC, "the header's checksum does not match"));
    }
    let layout = u32::try_from(load(AT_NRANKS)).ok().and_then(Layout::new);
    let layout = layout.ok_or_else(|| corrupt(AT_NRANKS, "the number of ranks is out of range"))?;
    if load(AT_BYTES) != layout.bytes || segment.len() < layout.bytes {
        return Err(corrupt(AT_BYTES, "its length does not fit its number of ranks"));
    }
    let bytes = |at: u64, count: usize| -> Vec<u8> {
        (0..count as u64 / 8).flat_map(|i| load(at + i * 8).to_le_bytes()).collect()
    };
    let text = |at, count| -> Result<String, MembershipError> {
        let mut bytes = bytes(at, count);
        bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(count));
        String::from_utf8(bytes).map_err(|_| corrupt(at, "a text is not UTF-8"))
    };
    let choices = load(AT_CHOICES);
    let options = JobOptions {
        job: text(AT_JOB, JOB_BYTES)?,
        nranks: layout.nranks,
        uuid: bytes(AT_UUID, 16).try_into().expect("16 bytes"),
        strategy: JobStrategy::from_number(choices & 0xff)
            .ok_or_else(|| corrupt(AT_CHOICES, "the strategy is unknown"))?,
        policy: match choices >> 8 & 0xff {
            1 => JobPolicy::Redo,
            2 => JobPolicy::Replay,
            _ => return Err(corrupt(AT_CHOICES, "the policy is unknown")),
        },
        renumber: choices >> 16 & 0xff != 0,
        max_recoveries: load(AT_MAX_RECOVERIES) as u32,
        stage_timeout: Duration::from_nanos(load(AT_STAGE_TIMEOUT)),
        hang_timeout: Some(load(AT_HANG_TIMEOUT)).filter(|ns| *ns != 0).map(Duration::from_nanos),
        backend: text(AT_BACKEND, BACKEND_BYTES)?,
    };
    Ok((Memory::new(segment, layout), options))
}
