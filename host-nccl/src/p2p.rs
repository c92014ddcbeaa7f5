//! Send and receive: one byte ring for each pair of ranks.
//!
//! All sends and receives of a group progress together, so exchanges of any size cannot deadlock. Sizes
//! are not compared (NCCL does not either): a longer send waits for further receives.

use core::sync::atomic::Ordering;

use crate::collective::{GARBAGE, fill};
use crate::link::{Link, Stop};
use crate::region::layout::{QUEUE_READ, QUEUE_WRITTEN};

/// Up to this size an aborted sender's garbage ends its peer's receive (LL in NCCL).
const SMALL_BYTES: usize = 16 * 1024;

/// Direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// `ncclSend`.
    Send,
    /// `ncclRecv`.
    Receive,
}

/// One send or receive.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    /// Which way.
    pub direction: Direction,
    /// The other rank; may be this one.
    pub peer: u32,
    /// Address of the caller's buffer.
    pub buffer: usize,
    /// Its size.
    pub bytes: usize,
}

/// Runs all transfers of a group. After an abort the received data are garbage, as with NCCL.
pub fn run(transfers: &[Transfer], link: &Link) {
    let mut done = vec![0_usize; transfers.len()];
    loop {
        let moved = advance(transfers, &mut done, link);
        if done.iter().zip(transfers).all(|(done, transfer)| *done == transfer.bytes) {
            return;
        }
        if !moved && link.wait(|| first_of_each(transfers, &done).any(|(_, t)| ready_bytes(t, link) > 0)) == Err(Stop::Aborted) {
            break;
        }
    }
    for (transfer, done) in transfers.iter().zip(&done) {
        abandon(transfer, *done, link);
    }
}

/// What happens to transfers that an abort finds queued.
pub fn abandon_all(transfers: &[Transfer], link: &Link) {
    transfers.iter().for_each(|transfer| abandon(transfer, 0, link));
}

/// The first unfinished transfer of each (peer, direction): a ring is a queue.
fn first_of_each<'a>(transfers: &'a [Transfer], done: &'a [usize]) -> impl Iterator<Item = (usize, &'a Transfer)> {
    transfers.iter().enumerate().filter(move |(index, transfer)| {
        done[*index] < transfer.bytes
            && !transfers[..*index].iter().zip(done).any(|(earlier, done)| {
                earlier.peer == transfer.peer && earlier.direction == transfer.direction && *done < earlier.bytes
            })
    })
}

/// Moves what can be moved now; true if anything was.
fn advance(transfers: &[Transfer], done: &mut [usize], link: &Link) -> bool {
    let mut moved = false;
    let first: Vec<usize> = first_of_each(transfers, done).map(|(index, _)| index).collect();
    for index in first {
        let transfer = &transfers[index];
        let bytes = ready_bytes(transfer, link).min(transfer.bytes - done[index]);
        if bytes > 0 {
            match transfer.direction {
                Direction::Send => put(link, transfer.peer, bytes, |offset, at, len| {
                    let from = core::ptr::with_exposed_provenance(transfer.buffer + done[index] + at);
                    link.region.copy_in(offset, from, len);
                }),
                Direction::Receive => take(link, transfer.peer, bytes, |offset, at, len| {
                    let to = core::ptr::with_exposed_provenance_mut(transfer.buffer + done[index] + at);
                    link.region.copy_out(offset, to, len);
                }),
            }
            done[index] += bytes;
            moved = true;
        }
    }
    moved
}

/// Bytes that can be written (send) or read (receive) now. A peer's wrong counters cannot exceed the ring.
fn ready_bytes(transfer: &Transfer, link: &Link) -> usize {
    let layout = &link.region.layout;
    let ring = layout.ring_bytes;
    let queue = match transfer.direction {
        Direction::Send => layout.channel(link.rank, transfer.peer),
        Direction::Receive => layout.channel(transfer.peer, link.rank),
    };
    // SYNC: Acquire; pairs with the Release stores in put and take.
    let written = link.region.u64(queue + QUEUE_WRITTEN).load(Ordering::Acquire);
    let read = link.region.u64(queue + QUEUE_READ).load(Ordering::Acquire);
    let filled = usize::try_from(written.wrapping_sub(read)).map_or(ring, |filled| filled.min(ring));
    match transfer.direction {
        Direction::Send => ring - filled,
        Direction::Receive => filled,
    }
}

/// Appends `bytes` to the ring to `peer`; `copy(offset, at, len)` is called for one or two runs.
fn put(link: &Link, peer: u32, bytes: usize, copy: impl Fn(usize, usize, usize)) {
    let layout = &link.region.layout;
    let word = link.region.u64(layout.channel(link.rank, peer) + QUEUE_WRITTEN);
    let position = word.load(Ordering::Relaxed);
    runs(layout.ring(link.rank, peer), layout.ring_bytes, position, bytes, copy);
    word.store(position.wrapping_add(bytes as u64), Ordering::Release);
    link.region.ring(peer);
}

/// Takes `bytes` from the ring of `peer`.
fn take(link: &Link, peer: u32, bytes: usize, copy: impl Fn(usize, usize, usize)) {
    let layout = &link.region.layout;
    let word = link.region.u64(layout.channel(peer, link.rank) + QUEUE_READ);
    let position = word.load(Ordering::Relaxed);
    runs(layout.ring(peer, link.rank), layout.ring_bytes, position, bytes, copy);
    word.store(position.wrapping_add(bytes as u64), Ordering::Release);
    link.region.ring(peer);
}

fn runs(ring: usize, ring_bytes: usize, position: u64, bytes: usize, copy: impl Fn(usize, usize, usize)) {
    let start = (position % ring_bytes as u64) as usize;
    let first = bytes.min(ring_bytes - start);
    copy(ring + start, 0, first);
    if first < bytes {
        copy(ring, first, bytes - first);
    }
}

/// An aborted rank runs on: its buffer is garbage, and so is what it still sends, where there is room.
fn abandon(transfer: &Transfer, done: usize, link: &Link) {
    let left = transfer.bytes - done;
    match transfer.direction {
        Direction::Receive => {
            if left > 0 {
                fill(transfer.buffer, GARBAGE, transfer.bytes);
            }
        }
        Direction::Send if left > 0 && transfer.bytes <= SMALL_BYTES => {
            let bytes = left.min(ready_bytes(transfer, link));
            let garbage = vec![GARBAGE; bytes];
            put(link, transfer.peer, bytes, |offset, at, len| link.region.write(offset, &garbage[at..at + len]));
        }
        Direction::Send => {}
    }
}
