//! A rank's place in a region: joining it, waiting in it, letters to other ranks.

use core::sync::atomic::{AtomicU64, Ordering, fence};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::abort::AbortFlag;
use crate::error::{Error, Result};
use crate::region::Region;
use crate::region::layout::{
    AT_JOINED, AT_POISON_FROM, AT_POISON_UNTIL, BOX_LETTERS, LETTER_PAYLOAD, QUEUE_READ, QUEUE_WRITTEN, RANK_CLAIMED, RANK_DONE,
    RANK_POSTED,
};
use crate::unique_id::UniqueId;

/// Why a wait inside a collective ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// This rank's communicator was aborted.
    Aborted,
    /// Another rank aborted inside the same small collective: its garbage is taken for data.
    Poisoned,
}

/// A bootstrap message.
#[derive(Debug, Clone)]
struct Letter {
    source: u32,
    tag: u64,
    payload: [u8; LETTER_PAYLOAD],
}

/// A rank that has joined a region.
#[derive(Debug)]
pub struct Link {
    /// The shared memory.
    pub region: Arc<Region>,
    /// This rank.
    pub rank: u32,
    /// Ranks of the communicator.
    pub nranks: u32,
    /// Nonce of the id that made it: the identity of the clique.
    pub nonce: [u64; 2],
    /// Ends waits of this rank.
    pub abort: Arc<AbortFlag>,
    /// Rounds of collectives this rank has gone through; only the running batch changes it.
    pub rounds: AtomicU64,
    /// Held while a letter is put into a box: two splits in one group may send at once.
    sending: Mutex<()>,
    /// Letters that came while another tag was waited for.
    unexpected: Mutex<VecDeque<Letter>>,
}

impl Link {
    /// Opens the region and claims `rank`, without waiting for the others.
    pub fn claim(id: &UniqueId, nranks: u32, rank: u32, abort: &Arc<AbortFlag>) -> Result<Self> {
        let file = id.open(abort)?;
        let region = Arc::new(Region::open(&file, id.nonce, nranks)?);
        abort.watch(&region, rank);
        let claimed = region.u32(region.layout.rank(rank) + RANK_CLAIMED);
        claimed
            .compare_exchange(0, std::process::id(), Ordering::AcqRel, Ordering::Acquire)
            .map_err(|pid| Error::argument(format!("rank {rank} already checked in, from process {pid}")))?;
        // SYNC: AcqRel; whoever sees the count sees the claims before it.
        let joined = region.u32(AT_JOINED).fetch_add(1, Ordering::AcqRel) + 1;
        if joined >= nranks {
            (0..nranks).for_each(|rank| region.ring(rank));
        }
        Ok(Self {
            region,
            rank,
            nranks,
            nonce: id.nonce,
            abort: Arc::clone(abort),
            rounds: AtomicU64::new(0),
            sending: Mutex::default(),
            unexpected: Mutex::default(),
        })
    }

    /// Waits until all ranks have joined. A dead one is not noticed: only an abort ends that.
    pub fn wait_joined(&self) -> Result<()> {
        let joined = self.region.u32(AT_JOINED);
        self.wait(|| joined.load(Ordering::Acquire) >= self.nranks)
            .map_err(|_| Error::Aborted("waiting for the other ranks to join"))
    }

    /// [`Link::claim`] and [`Link::wait_joined`]; closes the file when this process created it.
    pub fn join(id: &UniqueId, nranks: u32, rank: u32, abort: &Arc<AbortFlag>) -> Result<Self> {
        let joined = Self::claim(id, nranks, rank, abort).and_then(|link| link.wait_joined().map(|()| link));
        match &joined {
            Ok(_) | Err(Error::Aborted(_)) => id.release(),
            Err(_) => {}
        }
        joined
    }

    /// Sleeps until `ready`, or gives [`Stop::Aborted`].
    pub fn wait(&self, ready: impl Fn() -> bool) -> Result<(), Stop> {
        self.wait_or(ready, || self.abort.is_set().then_some(Stop::Aborted))
    }

    /// [`Link::wait`] inside collective number `sequence`. `small` ones end with garbage when a peer
    /// aborts in them, larger ones hang on: the LL and Simple protocols of NCCL.
    pub fn wait_in_collective(&self, sequence: u64, small: bool, ready: impl Fn() -> bool) -> Result<(), Stop> {
        let (from, until) = (self.region.u64(AT_POISON_FROM), self.region.u64(AT_POISON_UNTIL));
        self.wait_or(ready, || {
            if self.abort.is_set() {
                Some(Stop::Aborted)
            } else {
                let poisoned = until.load(Ordering::SeqCst) > sequence && from.load(Ordering::SeqCst) <= sequence + 1;
                (small && poisoned).then_some(Stop::Poisoned)
            }
        })
    }

    fn wait_or(&self, ready: impl Fn() -> bool, stop: impl Fn() -> Option<Stop>) -> Result<(), Stop> {
        loop {
            let seen = self.region.bell(self.rank);
            if ready() {
                return Ok(());
            }
            if let Some(stop) = stop() {
                return Err(stop);
            }
            self.region.sleep(self.rank, seen);
        }
    }

    /// What an aborted rank does to its peers in a small collective.
    pub fn poison(&self, sequence: u64) {
        // The lower end first: a reader looks at the upper end first.
        let lower = |from: u64| (from == 0 || from > sequence + 1).then_some(sequence + 1);
        let _ = self.region.u64(AT_POISON_FROM).fetch_update(Ordering::SeqCst, Ordering::SeqCst, lower);
        self.region.u64(AT_POISON_UNTIL).fetch_max(sequence + 1, Ordering::SeqCst);
        self.ring_all();
    }

    /// Rings the bell of every rank.
    pub fn ring_all(&self) {
        (0..self.nranks).for_each(|rank| self.region.ring(rank));
    }

    /// Rings this rank's own bell: for waits on words of this process.
    pub fn ring_self(&self) {
        self.region.ring(self.rank);
    }

    fn posted_of(&self, part: usize, rank: u32) -> &AtomicU64 {
        self.region.u64(self.region.layout.rank(rank) + RANK_POSTED[part])
    }

    fn done_of(&self, rank: u32) -> &AtomicU64 {
        self.region.u64(self.region.layout.rank(rank) + RANK_DONE)
    }

    /// True when all of `sources` have published `part` of `round`.
    pub fn is_posted(&self, part: usize, round: u64, mut sources: impl Iterator<Item = u32>) -> bool {
        // SYNC: Acquire (by SeqCst); pairs with post(): the staged bytes are visible.
        sources.all(|rank| self.posted_of(part, rank).load(Ordering::SeqCst) > round)
    }

    /// Publishes this rank's `part` of `round`. Readers are woken once, by the last of `sources`.
    pub fn post(
        &self,
        part: usize,
        round: u64,
        sources: impl Iterator<Item = u32>,
        readers: impl Iterator<Item = u32>,
    ) {
        // SYNC: Release of the staged bytes; SeqCst with the fence, so that of two last ones at least one
        // sees the other in is_posted.
        self.posted_of(part, self.rank).store(round + 1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.is_posted(part, round, sources) {
            readers.filter(|&rank| rank != self.rank).for_each(|rank| self.region.ring(rank));
        }
    }

    /// True when every rank has gone through `rounds` rounds, so that their staging may be written again.
    pub fn all_done(&self, rounds: u64) -> bool {
        (0..self.nranks).all(|rank| self.done_of(rank).load(Ordering::SeqCst) >= rounds)
    }

    /// This rank has gone through `rounds` rounds. The slowest wakes the others.
    pub fn done(&self, rounds: u64) {
        // SYNC: SeqCst and fence as in post(); Release of our reads of the staging.
        self.done_of(self.rank).store(rounds, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.all_done(rounds) {
            (0..self.nranks).filter(|&rank| rank != self.rank).for_each(|rank| self.region.ring(rank));
        }
    }

    /// Sends a letter; waits while the box of that rank is full, or until `abort`, which must watch this
    /// rank's bell.
    pub fn send_letter(&self, to: u32, tag: u64, payload: &[u8], abort: &AbortFlag) -> Result<()> {
        let layout = &self.region.layout;
        let queue = layout.letter_box(self.rank, to);
        let written = self.region.u64(queue + QUEUE_WRITTEN);
        let read = self.region.u64(queue + QUEUE_READ);
        loop {
            let has_room = || written.load(Ordering::Acquire).wrapping_sub(read.load(Ordering::Acquire)) < BOX_LETTERS;
            self.wait_or(has_room, || abort.is_set().then_some(Stop::Aborted))
                .map_err(|_| Error::Aborted("sending to another rank"))?;
            let _alone = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
            if !has_room() {
                continue;
            }
            let number = written.load(Ordering::Relaxed);
            let at = layout.letter(self.rank, to, number);
            self.region.write(at, &tag.to_le_bytes());
            self.region.write(at + 8, payload);
            // SYNC: Release; pairs with the Acquire in take_letter.
            written.store(number.wrapping_add(1), Ordering::Release);
            self.region.ring(to);
            return Ok(());
        }
    }

    /// The next letter with `tag`, from `source` or from anyone. Others are kept for later.
    pub fn receive_letter(
        &self,
        source: Option<u32>,
        tag: u64,
        abort: &AbortFlag,
    ) -> Result<(u32, [u8; LETTER_PAYLOAD])> {
        let mut found = None;
        let wanted = |letter: &Letter| letter.tag == tag && source.is_none_or(|rank| rank == letter.source);
        loop {
            let seen = self.region.bell(self.rank);
            {
                let mut unexpected = self.unexpected.lock().unwrap_or_else(PoisonError::into_inner);
                for rank in 0..self.nranks {
                    while let Some(letter) = self.take_letter(rank) {
                        unexpected.push_back(letter);
                    }
                }
                if let Some(index) = unexpected.iter().position(wanted) {
                    found = unexpected.remove(index);
                }
            }
            if let Some(letter) = found {
                return Ok((letter.source, letter.payload));
            }
            if abort.is_set() {
                return Err(Error::Aborted("waiting for a message of another rank"));
            }
            self.region.sleep(self.rank, seen);
        }
    }

    /// Called with the lock of `unexpected` held: one reader of a box at a time.
    fn take_letter(&self, source: u32) -> Option<Letter> {
        let layout = &self.region.layout;
        let queue = layout.letter_box(source, self.rank);
        let read = self.region.u64(queue + QUEUE_READ);
        let number = read.load(Ordering::Relaxed);
        // SYNC: Acquire; pairs with the Release in send_letter.
        if self.region.u64(queue + QUEUE_WRITTEN).load(Ordering::Acquire) == number {
            return None;
        }
        let at = layout.letter(source, self.rank, number);
        let mut tag = [0; 8];
        let mut payload = [0; LETTER_PAYLOAD];
        self.region.read(at, &mut tag);
        self.region.read(at + 8, &mut payload);
        // SYNC: Release; the slot may be written again.
        read.store(number.wrapping_add(1), Ordering::Release);
        self.region.ring(source);
        Some(Letter { source, tag: u64::from_le_bytes(tag), payload })
    }
}
