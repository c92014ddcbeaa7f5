//! Making communicators: from a unique id, by split, shrink and grow, and by adding a rank in place.
//!
//! Ranks of a parent talk by letters in its memory; a child gets memory of its own, created by one of
//! them. Nothing has a time limit, because NCCL has none: a rank that never comes is waited for until
//! somebody aborts.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use crate::abi::{self, MAX_RANKS, ResultCode, UNIQUE_ID_BYTES};
use crate::comm::Comm;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::group::{Group, Job, LateSlot};
use crate::host_controls;
use crate::link::Link;
use crate::region::layout::LETTER_PAYLOAD;
use crate::stream::DefaultStream;
use crate::unique_id::UniqueId;

/// What a letter is about; the rest of the tag tells generations apart.
#[derive(Debug, Clone, Copy)]
#[repr(u64)]
enum Tag {
    SplitRequest = 1,
    SplitAnswer = 2,
    SplitId = 3,
    ShrinkId = 4,
    GrowId = 5,
}

impl Tag {
    fn with(self, rest: u64) -> u64 {
        (rest << 8) | self as u64
    }
}

/// Checks the size of a communicator and a rank in it.
pub fn check_rank(nranks: i32, rank: i32) -> Result<(u32, u32)> {
    let size = u32::try_from(nranks).ok().filter(|n| (1..=MAX_RANKS).contains(n));
    let size = size.ok_or_else(|| Error::argument(format!("{nranks} ranks: must be 1..={MAX_RANKS}")))?;
    let rank = u32::try_from(rank)
        .ok()
        .filter(|rank| *rank < size)
        .ok_or_else(|| Error::argument(format!("rank {rank} of {nranks} is out of range")))?;
    Ok((size, rank))
}

/// `ncclCommInitRank` and its variants.
pub fn init(
    group: &mut Group,
    slot: LateSlot,
    (nranks, rank): (u32, u32),
    id: UniqueId,
    config: Config,
    device: i32,
) -> Result<()> {
    group.join(config.blocking)?;
    let comm = Comm::create(config, device, Arc::new(DefaultStream::default()));
    slot.store(comm.publish());
    let run = {
        let comm = Arc::clone(&comm);
        move || {
            let made = Link::join(&id, nranks, rank, &comm.abort).map(|link| comm.set_link(Arc::new(link)));
            settle_early(&comm, slot, made)
        }
    };
    group.push_job(Job::new(&comm, run).or(cancel_early(&comm, slot)));
    Ok(())
}

/// What becomes of a handle that was stored when the group of its call fails.
fn cancel_early(comm: &Arc<Comm>, slot: LateSlot) -> impl FnOnce(ResultCode) + Send + 'static {
    let comm = Arc::clone(comm);
    move |code| {
        comm.set_result(code);
        let _ = settle_early(&comm, slot, Err(Error::Sticky(code)));
    }
}

/// The handle of an init is stored at once. When it fails, a blocking call takes it back; a non-blocking
/// one leaves it to be aborted.
fn settle_early(comm: &Arc<Comm>, slot: LateSlot, made: Result<()>) -> Result<()> {
    if made.is_err() && comm.config.blocking && !comm.life().destroyed {
        comm.retire();
        slot.store(core::ptr::null_mut());
    }
    made
}

/// The handle of a split or shrink is stored when it is made; also, with the error in it, when it fails.
fn settle_late(parent: &Comm, child: &Arc<Comm>, slot: LateSlot, made: Result<()>) -> Result<()> {
    parent.release_child(child);
    match &made {
        Ok(()) => child.finish_progress(),
        Err(error) => child.set_result(error.code()),
    }
    if made.is_ok() || !parent.config.blocking {
        slot.store(child.publish());
    }
    made
}

/// `ncclCommSplit`. Every rank calls it; `color` < 0 (`NCCL_SPLIT_NOCOLOR`) gets no communicator.
pub fn split(
    group: &mut Group,
    parent: &Arc<Comm>,
    color: i32,
    key: i32,
    slot: LateSlot,
    config: Config,
) -> Result<()> {
    if color < 0 && color != abi::SPLIT_NOCOLOR {
        return Err(Error::argument(format!("color {color} is negative and not NCCL_SPLIT_NOCOLOR")));
    }
    let link = parent.ready()?;
    group.join(parent.config.blocking)?;
    let generation = bump_children(parent);
    let child = Comm::create(config, parent.device, Arc::clone(&parent.stream));
    parent.adopt(&child);
    let cancel = cancel_late(parent, &child);
    let parent_of_job = Arc::clone(parent);
    let run = move || match join_split(&link, &child, generation, color, key) {
        Ok(None) => {
            parent_of_job.release_child(&child);
            Ok(())
        }
        Ok(Some(made)) => {
            child.set_link(Arc::new(made));
            settle_late(&parent_of_job, &child, slot, Ok(()))
        }
        Err(error) => settle_late(&parent_of_job, &child, slot, Err(error)),
    };
    group.push_job(Job::new(parent, run).or(cancel));
    Ok(())
}

/// A child whose call's group fails was never seen by the caller.
fn cancel_late(parent: &Arc<Comm>, child: &Arc<Comm>) -> impl FnOnce(ResultCode) + Send + 'static {
    let (parent, child) = (Arc::clone(parent), Arc::clone(child));
    move |_| parent.release_child(&child)
}

fn bump_children(parent: &Comm) -> u64 {
    let mut life = parent.life();
    life.children_made += 1;
    life.children_made
}

/// Rank 0 collects colors and keys and tells each rank its place and its neighbours in a tree, through
/// which the id of the child then goes from its root.
fn join_split(link: &Link, child: &Comm, generation: u64, color: i32, key: i32) -> Result<Option<Link>> {
    let abort = &child.abort;
    let request: Vec<u8> = [color.to_le_bytes(), key.to_le_bytes()].concat();
    link.send_letter(0, Tag::SplitRequest.with(generation), &request, abort)?;
    if link.rank == 0 {
        answer_split(link, generation, abort)?;
    }
    if color == abi::SPLIT_NOCOLOR {
        return Ok(None);
    }
    let (_, answer) = link.receive_letter(Some(0), Tag::SplitAnswer.with(generation), abort)?;
    let [rank, nranks, left, right] = read_words(&answer);
    let id = if rank == 0 {
        UniqueId::create(0)?
    } else {
        read_id(&link.receive_letter(None, Tag::SplitId.with(generation), abort)?.1)?
    };
    for next in [left, right].into_iter().filter(|next| *next < link.nranks) {
        link.send_letter(next, Tag::SplitId.with(generation), &id.to_bytes().internal, abort)?;
    }
    if nranks == 0 || rank >= nranks || nranks > link.nranks {
        return Err(Error::system("split", "rank 0 of the parent gave an impossible answer"));
    }
    Link::join(&id, nranks, rank, abort).map(Some)
}

fn answer_split(link: &Link, generation: u64, abort: &crate::abort::AbortFlag) -> Result<()> {
    let mut ranks = Vec::new();
    for source in 0..link.nranks {
        let (_, request) = link.receive_letter(Some(source), Tag::SplitRequest.with(generation), abort)?;
        let [color, key, ..] = read_words(&request);
        ranks.push((color as i32, key as i32, source));
    }
    ranks.retain(|(color, ..)| *color != abi::SPLIT_NOCOLOR);
    // By color, then key, then rank in the parent.
    ranks.sort_unstable();
    for members in ranks.chunk_by(|a, b| a.0 == b.0) {
        for (rank, (_, _, of_parent)) in members.iter().enumerate() {
            let at = |index: usize| members.get(index).map_or(u32::MAX, |member| member.2);
            let words = [rank as u32, members.len() as u32, at(2 * rank + 1), at(2 * rank + 2)];
            let answer: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            link.send_letter(*of_parent, Tag::SplitAnswer.with(generation), &answer, abort)?;
        }
    }
    Ok(())
}

/// `ncclCommShrink`: the ranks that are not in `excluded` (sorted) make a communicator of their own, in
/// the same order. With `abort`, collectives under way on the parent are ended first, on this thread.
pub fn shrink(
    group: &mut Group,
    parent: &Arc<Comm>,
    excluded: &[i32],
    slot: LateSlot,
    config: Config,
    abort: bool,
) -> Result<()> {
    // A communicator that is still being made has no rank to exclude.
    let link = parent.link()?;
    if excluded.contains(&(link.rank as i32)) {
        return Err(Error::argument(format!("rank {} is in its own list of excluded ranks", link.rank)));
    }
    // NCCL compares nothing: duplicates and ranks out of range give a wrong size, and then a hang.
    let nranks = u32::try_from(link.nranks as usize - excluded.len().min(link.nranks as usize)).unwrap_or(0);
    let below = |limit: i32| excluded.iter().filter(|rank| **rank < limit).count() as u32;
    let rank = link.rank.checked_sub(below(link.rank as i32)).filter(|rank| *rank < nranks);
    let Some(rank) = rank else {
        return Err(Error::argument("the list of excluded ranks leaves no place for this one"));
    };
    if abort {
        crate::teardown::interrupt(parent);
    }
    let link = parent.ready()?;
    group.join(parent.config.blocking)?;
    let child = Comm::create(config, parent.device, Arc::clone(&parent.stream));
    parent.adopt(&child);
    let survivors: Vec<u32> = (0..link.nranks).filter(|rank| !excluded.contains(&(*rank as i32))).collect();
    let mut list = DefaultHasher::new();
    excluded.iter().for_each(|rank| list.write_i32(*rank));
    // As in NCCL, the number of children is not part of it.
    let tag = Tag::ShrinkId.with(list.finish() >> 8);
    let cancel = cancel_late(parent, &child);
    let parent_of_job = Arc::clone(parent);
    let run = move || {
        let made = join_shrunk(&link, &child, &survivors, tag, nranks, rank).map(|link| child.set_link(Arc::new(link)));
        settle_late(&parent_of_job, &child, slot, made)
    };
    group.push_job(Job::new(parent, run).or(cancel));
    Ok(())
}

fn join_shrunk(link: &Link, child: &Comm, survivors: &[u32], tag: u64, nranks: u32, rank: u32) -> Result<Link> {
    let abort = &child.abort;
    let root = *survivors.first().ok_or_else(|| Error::argument("no rank is left"))?;
    let id = if link.rank == root {
        let id = UniqueId::create(0)?;
        for survivor in survivors.iter().filter(|rank| **rank != root) {
            link.send_letter(*survivor, tag, &id.to_bytes().internal, abort)?;
        }
        id
    } else {
        read_id(&link.receive_letter(Some(root), tag, abort)?.1)?
    };
    Link::join(&id, nranks, rank, abort)
}

/// `ncclCommGetUniqueId`: an id for one grow of `parent`; its other ranks are told by letter.
pub fn grow_id(parent: &Arc<Comm>) -> Result<UniqueId> {
    let link = parent.ready()?;
    let generation = {
        let life = parent.life();
        if life.grow_id.is_some() {
            return Err(Error::usage("an id for growing this communicator was made and not used yet"));
        }
        life.children_made + 1
    };
    let id = UniqueId::create(link.nranks)?;
    let mut payload = id.to_bytes().internal.to_vec();
    payload.extend(generation.to_le_bytes());
    for rank in (0..link.nranks).filter(|rank| *rank != link.rank) {
        link.send_letter(rank, Tag::GrowId.with(0), &payload, &parent.abort)?;
    }
    parent.life().grow_id = Some((id, generation));
    Ok(id)
}

/// `ncclCommGrow` of a rank of the parent. `given` is the id that the caller passed, if any; only the one
/// rank of a parent of size 1 needs it.
pub fn grow_existing(
    group: &mut Group,
    parent: &Arc<Comm>,
    nranks: i32,
    given: Option<UniqueId>,
    slot: LateSlot,
    config: Config,
) -> Result<()> {
    let link = parent.ready()?;
    let (nranks, rank) = check_rank(nranks, link.rank as i32)?;
    if nranks <= link.nranks {
        return Err(Error::argument(format!("growing {} ranks to {nranks} adds none", link.nranks)));
    }
    if link.nranks == 1 && given.is_none() {
        return Err(Error::argument("the only rank of a communicator must pass the unique id to grow it"));
    }
    group.join(config.blocking)?;
    let (generation, own) = {
        let mut life = parent.life();
        life.children_made += 1;
        (life.children_made, life.grow_id.take())
    };
    let child = Comm::create(config, parent.device, Arc::clone(&parent.stream));
    parent.adopt(&child);
    slot.store(child.publish());
    let run = {
        let (parent, child) = (Arc::clone(parent), Arc::clone(&child));
        move || {
            let made = find_grow_id(&link, &child, own, given, generation)
                .and_then(|id| Link::join(&id, nranks, rank, &child.abort))
                .map(|link| child.set_link(Arc::new(link)));
            parent.release_child(&child);
            settle_early(&child, slot, made)
        }
    };
    let (undo_early, undo_late) = (cancel_early(&child, slot), cancel_late(parent, &child));
    let cancel = move |code| {
        undo_early(code);
        undo_late(code);
    };
    group.push_job(Job::new(&child, run).with(parent).or(cancel));
    Ok(())
}

fn find_grow_id(
    link: &Link,
    child: &Comm,
    own: Option<(UniqueId, u64)>,
    given: Option<UniqueId>,
    generation: u64,
) -> Result<UniqueId> {
    let (id, of_generation) = match (own, given) {
        (Some(own), _) => own,
        (None, Some(given)) if link.nranks == 1 => (given, generation),
        _ => {
            let (_, letter) = link.receive_letter(None, Tag::GrowId.with(0), &child.abort)?;
            let word = letter[UNIQUE_ID_BYTES..UNIQUE_ID_BYTES + 8].try_into().expect("eight bytes");
            (read_id(&letter)?, u64::from_le_bytes(word))
        }
    };
    if of_generation != generation {
        return Err(Error::argument("magic mismatch: the id was made before another split or grow of the parent"));
    }
    Ok(id)
}

/// `ncclCommGrow` of a new rank.
pub fn grow_new(
    group: &mut Group,
    nranks: i32,
    id: UniqueId,
    rank: i32,
    slot: LateSlot,
    config: Config,
) -> Result<()> {
    let place = check_rank(nranks, rank)?;
    if place.1 < id.parent_nranks {
        return Err(Error::argument(format!(
            "new rank {rank} is not behind the {} ranks of the parent",
            id.parent_nranks
        )));
    }
    init(group, slot, place, id, config, 0)
}

/// `ncclCommInitNewRank`: this process will be the last of `nranks`, under the rendezvous id.
pub fn init_new_rank(slot: LateSlot, nranks: i32) -> Result<()> {
    let (nranks, rank) = check_rank(nranks, nranks.saturating_sub(1))?;
    let id = need_rendezvous()?;
    let comm = Comm::create(Config::default(), 0, Arc::new(DefaultStream::default()));
    let link = Link::claim(&id, nranks, rank, &comm.abort)?;
    comm.life().joining = Some(Arc::new(link));
    // Claimed, not joined: queries answer, work is refused until ncclCommSetupNewRank.
    comm.finish_progress();
    slot.store(comm.publish());
    Ok(())
}

/// `ncclCommAddNewRank`: a rank of the existing communicator announces that one more will be in it.
pub fn add_new_rank(comm: &Arc<Comm>) -> Result<()> {
    let link = comm.ready_for_work()?;
    let id = need_rendezvous()?;
    let (nranks, rank) = check_rank(link.nranks as i32 + 1, link.rank as i32)?;
    {
        let life = comm.life();
        if life.joining.is_some() {
            return Err(Error::usage("a rank is being added already: call ncclCommSetupNewRank first"));
        }
        if life.launched > 0 {
            return Err(Error::usage("collectives are under way on the communicator: wait for its streams first"));
        }
    }
    let grown = Link::claim(&id, nranks, rank, &comm.abort)?;
    comm.life().joining = Some(Arc::new(grown));
    Ok(())
}

fn need_rendezvous() -> Result<UniqueId> {
    host_controls::rendezvous().ok_or_else(|| {
        Error::usage("the new-rank calls have no rendezvous: call ncclHostSetNewRankRendezvous with a unique id")
    })
}

/// `ncclCommSetupNewRank`: all ranks, old and new; afterwards the same handle has one rank more.
pub fn setup_new_rank(group: &mut Group, comm: &Arc<Comm>) -> Result<()> {
    if comm.result() != abi::SUCCESS {
        comm.ready()?;
    }
    group.join(comm.config.blocking)?;
    let joining = comm.life().joining.take();
    let Some(joining) = joining else {
        return Err(Error::usage("ncclCommInitNewRank or ncclCommAddNewRank was not called before"));
    };
    // Whichever process made the rendezvous keeps it until then.
    let id = host_controls::rendezvous().filter(|id| id.nonce == joining.nonce);
    let run = {
        let comm = Arc::clone(comm);
        move || {
            joining.wait_joined()?;
            if let Some(id) = id {
                id.release();
            }
            let mut launch = comm.launch.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            launch.next_collective = 0;
            comm.set_link(joining);
            Ok(())
        }
    };
    group.push_job(Job::new(comm, run));
    Ok(())
}

fn read_words(payload: &[u8; LETTER_PAYLOAD]) -> [u32; 4] {
    core::array::from_fn(|i| u32::from_le_bytes(payload[4 * i..4 * i + 4].try_into().expect("four bytes")))
}

fn read_id(payload: &[u8; LETTER_PAYLOAD]) -> Result<UniqueId> {
    UniqueId::from_bytes(payload[..UNIQUE_ID_BYTES].try_into().expect("the payload is longer than an id"))
}
