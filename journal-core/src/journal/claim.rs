//! A thread takes a slot of the registry by its robust mutex and continues the lane it finds there.

use std::sync::Arc;

use super::append_error::AppendError;
use super::lane::Lane;
use super::layout::{SLOT_OWNER, SLOT_OWNER_NAMESPACE, SLOT_OWNER_START, SLOT_STATE};
use super::writer::Shared;
use super::{identity, lock, reap};
use crate::sync::Ordering;
use crate::sync::robust::{Lock, RobustMutex};

/// A slot held by the calling thread.
pub struct Claim {
    /// Held; unlocked when the thread is done.
    pub mutex: RobustMutex,
    /// The lane to go on with.
    pub lane: Lane,
}

/// Takes the first slot that is free or whose owner died. Never waits.
pub fn claim(shared: &Arc<Shared>) -> Result<Claim, AppendError> {
    let mut damaged = None;
    for slot in 0..shared.store.base().max_slots as u16 {
        match take(shared, slot) {
            Ok(None) => {}
            Ok(Some(claim)) => return Ok(claim),
            Err(error) => {
                tracing::debug!(slot, %error, "slot cannot be continued");
                damaged = Some(error);
            }
        }
    }
    Err(damaged.unwrap_or(AppendError::NoSlot { max: shared.store.base().max_slots }))
}

fn take(shared: &Shared, slot: u16) -> Result<Option<Claim>, AppendError> {
    let store = &shared.store;
    let mutex = lock::mutex(store.memory().base(), store.base().slot(slot));
    let died = match mutex.try_lock() {
        Lock::Acquired => false,
        Lock::OwnerDied => true,
        Lock::Busy | Lock::Unusable(_) => return Ok(None),
    };
    let resumed = reap::resume(store, slot, died);
    if died {
        // Also when the lane is damaged: the next claimer sees the same.
        mutex.make_consistent();
    }
    let lane = match resumed {
        Ok(lane) => lane,
        Err(error) => {
            mutex.unlock();
            return Err(error);
        }
    };
    let owner = u64::from(std::process::id())
        | u64::from(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()) << 32;
    store.slot_word(slot, SLOT_OWNER).store(owner, Ordering::Relaxed);
    store.slot_word(slot, SLOT_OWNER_START).store(identity::thread_start(), Ordering::Relaxed);
    store.slot_word(slot, SLOT_OWNER_NAMESPACE).store(identity::pid_namespace(), Ordering::Relaxed);
    let state = store.slot_word(slot, SLOT_STATE);
    // SYNC: Release; pairs with the Acquire in snapshot.rs: a slot that counts has its owner's identity.
    state.store(((state.load(Ordering::Relaxed) >> 32) + 1) << 32 | 1, Ordering::Release);
    tracing::trace!(slot, died, "lane claimed");
    Ok(Some(Claim { mutex, lane }))
}

/// Seals what dead owners left, in every slot that nobody holds; how many were reaped.
pub fn reap_dead(shared: &Shared) -> Result<u32, AppendError> {
    let store = &shared.store;
    let mut reaped = 0;
    for slot in 0..store.base().max_slots as u16 {
        let at = store.base().slot(slot);
        if lock::holder(store, at, shared.futex_offset) != lock::Holder::Died {
            continue;
        }
        let mutex = lock::mutex(store.memory().base(), at);
        if mutex.try_lock() == Lock::OwnerDied {
            let resumed = reap::resume(store, slot, true);
            mutex.make_consistent();
            mutex.unlock();
            resumed?;
            reaped += 1;
        }
    }
    Ok(reaped)
}

/// Gives back the chunks that lanes without an owner keep from earlier steps: nobody else will.
pub fn recycle_idle(shared: &Shared) {
    let store = &shared.store;
    for slot in 0..store.base().max_slots as u16 {
        if store.slot_word(slot, SLOT_STATE).load(Ordering::Acquire) == 0 {
            continue;
        }
        let at = store.base().slot(slot);
        if matches!(lock::holder(store, at, shared.futex_offset), lock::Holder::Alive(_)) {
            continue;
        }
        let mutex = lock::mutex(store.memory().base(), at);
        let died = match mutex.try_lock() {
            Lock::Acquired => false,
            Lock::OwnerDied => true,
            Lock::Busy | Lock::Unusable(_) => continue,
        };
        // A damaged lane keeps what it has.
        if let Ok(mut lane) = reap::resume(store, slot, died) {
            lane.recycle(store);
        }
        if died {
            mutex.make_consistent();
        }
        mutex.unlock();
    }
}
