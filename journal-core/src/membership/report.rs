//! Reports: what each recovery did and how long its stages took.
//!
//! Every rank writes its share ([`Contribution`]) into its own row before the last barrier of a recovery; one rank,
//! whoever reopened the job, gathers them and writes the report into a ring. The last committer of the next step adds
//! the total. Writers announce themselves in the head of a row, so a reader takes whole reports only; a writer that is
//! killed leaves a report that is never shown.

use super::decision::Strided;
use super::{Cause, Epoch, ExitEvidence, Incarnation, JobStrategy, Rank, Step};
use crate::sync::{Ordering, Words, fence};

/// Reports kept; older ones are overwritten.
pub const RING: u16 = 64;
/// Failed processes described in one report; `failed_total` counts all.
pub const FAILED_KEPT: usize = 16;
/// Bytes of a request's text.
pub const TEXT_BYTES: usize = 64;

/// Nanoseconds a stage, 0 where it did not take place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct StageTimes {
    pub detect_ns: u64,
    pub agree_ns: u64,
    pub fence_ns: u64,
    pub quiesce_ns: u64,
    /// From the death notice until the replacement took part.
    pub start_ns: u64,
    pub rebuild_ns: u64,
    pub replay_ns: u64,
    pub restore_ns: u64,
    pub verify_ns: u64,
}

const STAGE_COUNT: usize = 9;

impl StageTimes {
    fn to_array(self) -> [u64; STAGE_COUNT] {
        let Self { detect_ns, agree_ns, fence_ns, quiesce_ns, start_ns, rebuild_ns, replay_ns, restore_ns, verify_ns } = self;
        [detect_ns, agree_ns, fence_ns, quiesce_ns, start_ns, rebuild_ns, replay_ns, restore_ns, verify_ns]
    }

    fn from_array(times: [u64; STAGE_COUNT]) -> Self {
        let [detect_ns, agree_ns, fence_ns, quiesce_ns, start_ns, rebuild_ns, replay_ns, restore_ns, verify_ns] = times;
        Self { detect_ns, agree_ns, fence_ns, quiesce_ns, start_ns, rebuild_ns, replay_ns, restore_ns, verify_ns }
    }

    /// The longer of each.
    pub fn max(self, other: Self) -> Self {
        let (mine, theirs) = (self.to_array(), other.to_array());
        Self::from_array(core::array::from_fn(|i| mine[i].max(theirs[i])))
    }
}

/// What one rank did in a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Contribution {
    /// Its times.
    pub times: StageTimes,
    /// Requests it replayed.
    pub replayed_requests: u64,
    /// Bytes of state that were restored on it.
    pub restored_bytes: u64,
    /// Who gave them.
    pub donor: Option<Rank>,
}

impl Contribution {
    /// Of two ranks together: the longer times, the sums, the first donor.
    pub fn merge(self, other: Self) -> Self {
        Self {
            times: self.times.max(other.times),
            replayed_requests: self.replayed_requests.saturating_add(other.replayed_requests),
            restored_bytes: self.restored_bytes.saturating_add(other.restored_bytes),
            donor: self.donor.or(other.donor),
        }
    }
}

/// How a recovery ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RecoveryOutcome {
    /// The job goes on.
    Recovered = 1,
    /// A further failure; the next epoch's report continues.
    Superseded = 2,
    /// The job ended.
    GaveUp = 3,
}

/// A failed process in a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRank {
    /// Rank.
    pub rank: Rank,
    /// Which process.
    pub incarnation: Incarnation,
    /// How it failed.
    pub cause: Cause,
    /// How its process ended, where the launcher has seen it.
    pub exit: Option<ExitEvidence>,
    /// The last request of its journal, shortened to [`TEXT_BYTES`].
    pub last_request: String,
}

/// One recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Its epoch.
    pub epoch: Epoch,
    /// Who failed; at most [`FAILED_KEPT`] are described.
    pub failed: Vec<FailedRank>,
    /// How many failed.
    pub failed_total: u32,
    /// How communicators were rebuilt (after fallbacks).
    pub strategy: JobStrategy,
    /// The longest time of any rank, a stage.
    pub times: StageTimes,
    /// CLOCK_MONOTONIC ns at the kill, or at detection where the kill was not ours.
    pub started_ns: u64,
    /// `started_ns` is the kill.
    pub from_kill: bool,
    /// From `started_ns` to the next committed step; `None` until then. Not written by `write`.
    pub total_ns: Option<u64>,
    /// Where the job went on.
    pub resumed_step: Step,
    /// Requests replayed, by all ranks.
    pub replayed_requests: u64,
    /// Who gave state.
    pub donor: Option<Rank>,
    /// Bytes of state restored.
    pub restored_bytes: u64,
    /// How it ended.
    pub outcome: RecoveryOutcome,
}

const FAILED_WORDS: usize = 4 + TEXT_BYTES / 8;
const BODY_WORDS: usize = 6 + STAGE_COUNT + FAILED_KEPT * FAILED_WORDS;
/// Words of a row before its body: {epoch + 1, state}, total.
const HEAD: u64 = 16;
/// Bytes of a report.
pub const REPORT_BYTES: u64 = (HEAD + BODY_WORDS as u64 * 8).next_multiple_of(64);
const SHARE_WORDS: usize = 3 + STAGE_COUNT;
/// Bytes of a rank's two rows of contributions, by epoch & 1.
pub const SHARES_BYTES: u64 = 2 * SHARE_BYTES;
const SHARE_BYTES: u64 = (HEAD + SHARE_WORDS as u64 * 8).next_multiple_of(64);

const WRITING: u64 = 1;
const WHOLE: u64 = 2;

/// The reports over some words.
pub struct Reports<'a, W> {
    words: &'a W,
    ring: u64,
    shares: Strided,
    nranks: u32,
}

impl<'a, W: Words> Reports<'a, W> {
    /// `ring`: [`RING`] reports; `shares`: [`SHARES_BYTES`] for each rank.
    pub fn new(words: &'a W, ring: u64, shares: Strided, nranks: u32) -> Self {
        Self { words, ring, shares, nranks }
    }

    fn write_row(&self, at: u64, epoch: Epoch, body: &[u64]) {
        let head = self.words.word(at);
        head.store((u64::from(epoch.0) + 1) << 8 | WRITING, Ordering::Relaxed);
        // SYNC: Release; pairs with the Acquire fence in `read_row`.
        fence(Ordering::Release);
        self.words.word(at + 8).store(0, Ordering::Relaxed);
        for (cell, word) in self.words.words(at + HEAD, body.len()).iter().zip(body) {
            cell.store(*word, Ordering::Relaxed);
        }
        // SYNC: Release; pairs with the Acquire in `read_row`.
        head.store((u64::from(epoch.0) + 1) << 8 | WHOLE, Ordering::Release);
    }

    /// Epoch, total and body of a row, if it is whole.
    fn read_row<const N: usize>(&self, at: u64) -> Option<(Epoch, u64, [u64; N])> {
        let head = self.words.word(at);
        // SYNC: Acquire; pairs with the last store of `write_row`.
        let seen = head.load(Ordering::Acquire);
        let epoch = Epoch(u16::try_from((seen >> 8).checked_sub(1)?).ok()?);
        if seen & 0xff != WHOLE {
            return None;
        }
        let total = self.words.word(at + 8).load(Ordering::Relaxed);
        let cells = self.words.words(at + HEAD, N);
        let body = core::array::from_fn(|i| cells[i].load(Ordering::Relaxed));
        // SYNC: Acquire; pairs with the Release fence in `write_row`.
        fence(Ordering::Acquire);
        (head.load(Ordering::Relaxed) == seen).then_some((epoch, total, body))
    }

    fn share(&self, rank: Rank, epoch: Epoch) -> u64 {
        self.shares.of(rank) + u64::from(epoch.0 & 1) * SHARE_BYTES
    }

    /// Stores what `rank` did in `epoch`. One thread of the rank at a time.
    pub fn contribute(&self, rank: Rank, epoch: Epoch, share: &Contribution) {
        let donor = share.donor.map_or(0, |rank| u64::from(rank.0) + 1);
        let mut body = [share.replayed_requests, share.restored_bytes, donor].to_vec();
        body.extend(share.times.to_array());
        self.write_row(self.share(rank, epoch), epoch, &body);
    }

    /// What all ranks did in `epoch`, together.
    pub fn gather(&self, epoch: Epoch) -> Contribution {
        let shares = (0..self.nranks).filter_map(|rank| {
            let (of, _, body) = self.read_row::<SHARE_WORDS>(self.share(Rank(rank), epoch))?;
            let [replayed_requests, restored_bytes, donor, times @ ..] = body;
            (of == epoch).then(|| Contribution {
                times: StageTimes::from_array(times),
                replayed_requests,
                restored_bytes,
                donor: rank_from(donor, self.nranks),
            })
        });
        shares.fold(Contribution::default(), Contribution::merge)
    }

    fn slot(&self, epoch: Epoch) -> u64 {
        self.ring + u64::from(epoch.0 % RING) * REPORT_BYTES
    }

    /// Stores the report of its epoch, without a total. One process at a time.
    pub fn write(&self, report: &RecoveryReport) {
        let mut body = vec![
            u64::from(report.failed_total) << 32
                | (report.failed.len().min(FAILED_KEPT) as u64) << 24
                | u64::from(report.from_kill) << 16
                | (report.outcome as u64) << 8
                | report.strategy as u64,
            report.resumed_step.0.into(),
            report.started_ns,
            report.replayed_requests,
            report.restored_bytes,
            report.donor.map_or(0, |rank| u64::from(rank.0) + 1),
        ];
        body.extend(report.times.to_array());
        for failed in report.failed.iter().take(FAILED_KEPT) {
            let text = shortened(&failed.last_request);
            body.extend([
                u64::from(failed.rank.0) << 32 | failed.cause as u64,
                failed.incarnation.0.into(),
                failed.exit.map_or(0, |exit| 1 << 32 | u64::from(exit.wait_status as u32)),
                text.len() as u64,
            ]);
            let mut bytes = [0; TEXT_BYTES];
            bytes[..text.len()].copy_from_slice(text.as_bytes());
            body.extend(bytes.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().expect("8 bytes"))));
        }
        self.write_row(self.slot(report.epoch), report.epoch, &body);
    }

    /// Adds the total to the report of `epoch`, if it is there, the job resumed, and it has none.
    pub fn complete(&self, epoch: Epoch, now_ns: u64) {
        let Some(report) = self.get(epoch) else { return };
        if report.outcome == RecoveryOutcome::Recovered && report.total_ns.is_none() {
            let total = now_ns.saturating_sub(report.started_ns).max(1);
            // A loser's total is no better than the winner's.
            let cell = self.words.word(self.slot(epoch) + 8);
            let _ = cell.compare_exchange(0, total, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The report of `epoch`, if it is kept and whole.
    pub fn get(&self, epoch: Epoch) -> Option<RecoveryReport> {
        let (of, total, body) = self.read_row::<BODY_WORDS>(self.slot(epoch))?;
        if of != epoch {
            return None;
        }
        let shape = body[0];
        let mut times = [0; STAGE_COUNT];
        times.copy_from_slice(&body[6..6 + STAGE_COUNT]);
        let failed = body[6 + STAGE_COUNT..]
            .chunks_exact(FAILED_WORDS)
            .take((shape >> 24 & 0xff) as usize)
            .map(|words| {
                let text: Vec<u8> = words[4..].iter().flat_map(|word| word.to_le_bytes()).collect();
                Some(FailedRank {
                    rank: Rank((words[0] >> 32) as u32),
                    incarnation: Incarnation(words[1] as u32),
                    cause: Cause::from_number(words[0] & 0xffff_ffff)?,
                    exit: (words[2] >> 32 != 0).then_some(ExitEvidence { wait_status: words[2] as u32 as i32 }),
                    last_request: String::from_utf8_lossy(&text[..(words[3] as usize).min(TEXT_BYTES)]).into_owned(),
                })
            })
            .collect::<Option<_>>()?;
        Some(RecoveryReport {
            epoch,
            failed,
            failed_total: (shape >> 32) as u32,
            strategy: JobStrategy::from_number(shape & 0xff)?,
            times: StageTimes::from_array(times),
            started_ns: body[2],
            from_kill: shape >> 16 & 0xff != 0,
            total_ns: (total != 0).then_some(total),
            resumed_step: Step(body[1] as u32),
            replayed_requests: body[3],
            donor: rank_from(body[5], self.nranks),
            restored_bytes: body[4],
            outcome: match shape >> 8 & 0xff {
                1 => RecoveryOutcome::Recovered,
                2 => RecoveryOutcome::Superseded,
                3 => RecoveryOutcome::GaveUp,
                _ => return None,
            },
        })
    }

    /// All that are kept, by epoch.
    pub fn all(&self) -> Vec<RecoveryReport> {
        let epochs = (0..RING).filter_map(|i| {
            Some(self.read_row::<0>(self.ring + u64::from(i) * REPORT_BYTES)?.0).filter(|epoch| epoch.0 % RING == i)
        });
        let mut reports: Vec<_> = epochs.filter_map(|epoch| self.get(epoch)).collect();
        reports.sort_by_key(|report| report.epoch);
        reports
    }
}

fn rank_from(word: u64, nranks: u32) -> Option<Rank> {
    (1..=u64::from(nranks)).contains(&word).then(|| Rank(word as u32 - 1))
}

fn shortened(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::HeapWords;

    const SHARES: Strided = Strided { base: RING as u64 * REPORT_BYTES, stride: SHARES_BYTES };

    fn words() -> HeapWords {
        HeapWords::zeroed(SHARES.base + 3 * SHARES_BYTES)
    }

    fn report(epoch: u16) -> RecoveryReport {
        RecoveryReport {
            epoch: Epoch(epoch),
            failed: vec![FailedRank {
                rank: Rank(2),
                incarnation: Incarnation(1),
                cause: Cause::Hung,
                exit: Some(ExitEvidence { wait_status: 9 }),
                last_request: "ncclAllReduce(count=2410)".to_owned(),
            }],
            failed_total: 1,
            strategy: JobStrategy::Reinit,
            times: StageTimes { detect_ns: 1, start_ns: 5, verify_ns: 8, ..Default::default() },
            started_ns: 100,
            from_kill: true,
            total_ns: None,
            resumed_step: Step(51),
            replayed_requests: 0,
            donor: Some(Rank(0)),
            restored_bytes: 4096,
            outcome: RecoveryOutcome::Recovered,
        }
    }

    #[test]
    fn a_report_is_read_back_as_written_and_gets_its_total_once() {
        let words = words();
        let reports = Reports::new(&words, 0, SHARES, 3);
        reports.write(&report(1));
        assert_eq!(reports.all(), [report(1)]);
        reports.complete(Epoch(1), 350);
        reports.complete(Epoch(1), 999);
        assert_eq!(reports.get(Epoch(1)).unwrap().total_ns, Some(250));
        reports.complete(Epoch(2), 1);
        assert_eq!(reports.get(Epoch(2)), None);
    }

    #[test]
    fn the_ring_keeps_the_last_reports() {
        let words = words();
        let reports = Reports::new(&words, 0, SHARES, 3);
        for epoch in 1..=RING + 5 {
            reports.write(&report(epoch));
        }
        let epochs: Vec<u16> = reports.all().iter().map(|report| report.epoch.0).collect();
        assert_eq!(epochs, (6..=RING + 5).collect::<Vec<_>>());
    }

    #[test]
    fn a_report_whose_writer_was_killed_is_not_shown() {
        let words = words();
        let reports = Reports::new(&words, 0, SHARES, 3);
        reports.write(&report(1));
        words.word(reports.slot(Epoch(1))).store(2 << 8 | WRITING, Ordering::Relaxed);
        assert!(reports.all().is_empty());
    }

    #[test]
    fn shares_of_an_epoch_are_put_together_and_others_left_out() {
        let words = words();
        let reports = Reports::new(&words, 0, SHARES, 3);
        let share = |ns, donor| Contribution {
            times: StageTimes { quiesce_ns: ns, ..Default::default() },
            replayed_requests: 2,
            restored_bytes: 10,
            donor,
        };
        reports.contribute(Rank(0), Epoch(3), &share(5, None));
        reports.contribute(Rank(1), Epoch(3), &share(9, Some(Rank(0))));
        reports.contribute(Rank(2), Epoch(1), &share(100, None));
        let all = reports.gather(Epoch(3));
        assert_eq!((all.times.quiesce_ns, all.replayed_requests, all.donor), (9, 4, Some(Rank(0))));
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let words = words();
        let reports = Reports::new(&words, 0, SHARES, 3);
        let mut long = report(1);
        long.failed[0].last_request = "ä".repeat(40) + "x";
        long.failed = vec![long.failed[0].clone(); 20];
        long.failed_total = 20;
        reports.write(&long);
        let read = reports.get(Epoch(1)).unwrap();
        assert_eq!((read.failed.len(), read.failed_total), (FAILED_KEPT, 20));
        assert_eq!(read.failed[0].last_request, "ä".repeat(32));
    }
}
