//! PREPARED: what a rank needs to begin a step, written before it votes for the step before.
//!
//! Two slots in the journal, by the parity of the step they prepare: writing one never touches the one that
//! a redo would need. Content: the application's blob, and a copy of every per-rank buffer.

use crate::agent::Agent;
use crate::backend::Copy;
use crate::error::Error;
use crate::journal::{Journal, prepared::bytes_for};
use crate::session::state::{State, StateKind, StateTable};

fn per_rank(table: &StateTable) -> Vec<&State> {
    table.of_kind(StateKind::PerRank).collect()
}

/// Bytes that a PREPARED copy of `table` with a blob of `blob_bytes` needs.
pub fn size(table: &StateTable, blob_bytes: usize) -> u64 {
    bytes_for(blob_bytes, per_rank(table).iter().map(|s| usize::try_from(s.bytes).unwrap_or(usize::MAX)))
}

/// Copies the per-rank buffers and the blob, as what `next_step` begins with.
pub fn write(agent: &Agent, table: &StateTable, next_step: u32, blob: &[u8]) -> Result<(), Error> {
    let mut copies = Vec::new();
    for state in per_rank(table) {
        let mut bytes = vec![0_u8; usize::try_from(state.bytes).unwrap_or(0)];
        agent.copy_unrecorded(Copy::DeviceToHost { dst: bytes.as_mut_ptr(), src: state.address }, state.bytes)?;
        copies.push(bytes);
    }
    let parts: Vec<(u32, &[u8])> = copies.iter().enumerate().map(|(i, bytes)| (i as u32, bytes.as_slice())).collect();
    Ok(agent.journal.prepared_write(next_step, blob, &parts)?)
}

/// Writes the per-rank buffers back to what they were when `step` began.
pub fn restore(agent: &Agent, table: &StateTable, step: u32) -> Result<(), Error> {
    let states = per_rank(table);
    if states.is_empty() {
        return Ok(());
    }
    let prepared = read(&agent.journal, step)?;
    for (index, state) in states.iter().enumerate() {
        let part = prepared.parts.iter().find(|(id, _)| *id as usize == index).map(|(_, bytes)| bytes);
        let bytes = part.filter(|b| b.len() as u64 == state.bytes).ok_or_else(|| Error::NotRecoverable {
            what: format!("the copy of per-rank state {:?} for step {step} is missing or has another size", state.name),
        })?;
        agent.copy_unrecorded(Copy::HostToDevice { dst: state.address, src: bytes.as_ptr() }, state.bytes)?;
    }
    Ok(())
}

/// The blob that the application gave for `step`.
pub fn blob(journal: &Journal, step: u32) -> Result<Vec<u8>, Error> {
    Ok(read(journal, step)?.blob)
}

fn read(journal: &Journal, step: u32) -> Result<crate::journal::Prepared, Error> {
    journal.prepared_read(step).ok_or_else(|| Error::NotRecoverable {
        what: format!("this rank's journal holds no PREPARED record for step {step}"),
    })
}
