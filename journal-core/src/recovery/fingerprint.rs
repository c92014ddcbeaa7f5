//! The fingerprint: what the collectives of a step give for a known pattern, before and after a rebuild.
//!
//! Sums depend on the algorithm that NCCL picks and on the order of ranks. Bit identity across a recovery
//! is therefore checked, not assumed: the same (operation, type, size) set runs on the same pattern.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_64;

use crate::agent::{Agent, Communicator, poll};
use crate::backend::{Copy, DevicePtr, RealHandle};
use crate::error::Error;
use crate::nccl::clique::CliqueKey;
use crate::nccl::{Collective, DataType, Progress, RealCommunicator};

/// One collective of a step, without its buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Probe {
    kind: u8,
    datatype: i32,
    op: i32,
    root: i32,
    count: u64,
}

/// Bytes of a [`Probe`] in a blob.
pub const PROBE_BYTES: usize = 21;
/// Buffers beyond this are not probed; they would disturb the application's memory.
const LARGEST_PROBE_BYTES: u64 = 64 << 20;
/// Different collectives kept a clique.
const MOST_PROBES: usize = 64;

impl Probe {
    /// `None` for point-to-point calls (no arithmetic) and operators of the application's own.
    fn of(call: &Collective) -> Option<Self> {
        let (kind, count, datatype, op, root) = match *call {
            Collective::AllReduce { count, datatype, op, .. } => (1, count, datatype, op, 0),
            Collective::Broadcast { count, datatype, root, .. } => (2, count, datatype, 0, root),
            Collective::Bcast { count, datatype, root, .. } => (3, count, datatype, 0, root),
            Collective::Reduce { count, datatype, op, root, .. } => (4, count, datatype, op, root),
            Collective::AllGather { count, datatype, .. } => (5, count, datatype, 0, 0),
            Collective::ReduceScatter { count, datatype, op, .. } => (6, count, datatype, op, 0),
            Collective::AllToAll { count, datatype, .. } => (7, count, datatype, 0, 0),
            Collective::Gather { count, datatype, root, .. } => (8, count, datatype, 0, root),
            Collective::Scatter { count, datatype, root, .. } => (9, count, datatype, 0, root),
            Collective::Send { .. } | Collective::Recv { .. } => return None,
        };
        (count > 0 && (0..5).contains(&op) && DataType::element_bytes(datatype).is_some())
            .then_some(Self { kind, datatype, op, root, count })
    }

    fn call(self, send: DevicePtr, recv: DevicePtr) -> Option<Collective> {
        let Self { kind, datatype, op, root, count } = self;
        Some(match kind {
            1 => Collective::AllReduce { send, recv, count, datatype, op },
            2 => Collective::Broadcast { send, recv, count, datatype, root },
            3 => Collective::Bcast { buffer: recv, count, datatype, root },
            4 => Collective::Reduce { send, recv, count, datatype, op, root },
            5 => Collective::AllGather { send, recv, count, datatype },
            6 => Collective::ReduceScatter { send, recv, count, datatype, op },
            7 => Collective::AllToAll { send, recv, count, datatype },
            8 => Collective::Gather { send, recv, count, datatype, root },
            9 => Collective::Scatter { send, recv, count, datatype, root },
            _ => return None,
        })
    }

    /// Elements of the send and receive buffers.
    fn elements(self, nranks: u64) -> (u64, u64) {
        let (one, all) = (self.count, self.count.saturating_mul(nranks));
        match self.kind {
            5 | 8 => (one, all),
            6 | 9 => (all, one),
            7 => (all, all),
            _ => (one, one),
        }
    }

    /// For a blob.
    pub fn to_bytes(self) -> [u8; PROBE_BYTES] {
        let mut out = [0; PROBE_BYTES];
        out[0] = self.kind;
        out[1..5].copy_from_slice(&self.datatype.to_le_bytes());
        out[5..9].copy_from_slice(&self.op.to_le_bytes());
        out[9..13].copy_from_slice(&self.root.to_le_bytes());
        out[13..21].copy_from_slice(&self.count.to_le_bytes());
        out
    }

    /// The reverse.
    pub fn from_bytes(bytes: &[u8; PROBE_BYTES]) -> Self {
        let int = |at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        Self {
            kind: bytes[0],
            datatype: int(1),
            op: int(5),
            root: int(9),
            count: u64::from_le_bytes(bytes[13..21].try_into().expect("8 bytes")),
        }
    }
}

/// The collectives of this rank's steps, and what they gave when last probed.
#[derive(Debug, Default)]
pub struct Fingerprint(Mutex<BTreeMap<CliqueKey, Seen>>);

#[derive(Debug, Default, Clone)]
struct Seen {
    step: Vec<Probe>,
    recorded: Vec<(Probe, u64)>,
}

impl Fingerprint {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<CliqueKey, Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open step does `call` on a communicator of `clique`.
    pub fn note(&self, clique: CliqueKey, call: &Collective) {
        let Some(probe) = Probe::of(call) else { return };
        let mut map = self.lock();
        let seen = map.entry(clique).or_default();
        if !seen.step.contains(&probe) && seen.step.len() < MOST_PROBES {
            seen.step.push(probe);
        }
    }

    /// What has to be probed now that a step is committed: the set has changed since it was recorded.
    /// Forgets the set of the step.
    pub fn take_changed(&self, clique: CliqueKey) -> Option<Vec<Probe>> {
        let mut map = self.lock();
        let seen = map.get_mut(&clique)?;
        let mut step = core::mem::take(&mut seen.step);
        step.sort_unstable();
        (!step.is_empty() && !step.iter().eq(seen.recorded.iter().map(|(p, _)| p))).then_some(step)
    }

    /// The step is run again: forget what it has done so far.
    pub fn forget_step(&self) {
        self.lock().values_mut().for_each(|seen| seen.step.clear());
    }

    /// What was recorded for a clique.
    pub fn recorded(&self, clique: CliqueKey) -> Vec<(Probe, u64)> {
        self.lock().get(&clique).map(|s| s.recorded.clone()).unwrap_or_default()
    }

    /// Records what probes gave.
    pub fn record(&self, clique: CliqueKey, results: Vec<(Probe, u64)>) {
        self.lock().entry(clique).or_default().recorded = results;
    }
}

/// Runs `probes` on a communicator, with memory of its own that is free again afterwards.
/// Collective: all ranks of the communicator run the same ones.
pub fn run(
    agent: &Agent,
    communicator: &Communicator,
    probes: &[Probe],
    deadline: Instant,
    moved: &dyn Fn() -> bool,
) -> Result<Vec<(Probe, u64)>, Error> {
    probes.iter().map(|probe| Ok((*probe, run_one(agent, communicator, *probe, deadline, moved)?))).collect()
}

fn run_one(agent: &Agent, communicator: &Communicator, probe: Probe, deadline: Instant, moved: &dyn Fn() -> bool) -> Result<u64, Error> {
    let element = DataType::element_bytes(probe.datatype).unwrap_or(0);
    let (send_n, recv_n) = probe.elements(u64::try_from(communicator.nranks).unwrap_or(0));
    let (send_bytes, recv_bytes) = (send_n.saturating_mul(element), recv_n.saturating_mul(element));
    if element == 0 || send_bytes.max(recv_bytes) > LARGEST_PROBE_BYTES {
        return Ok(0);
    }
    let device = &*agent.device;
    let send = device.alloc(send_bytes)?;
    let recv = match device.alloc(recv_bytes) {
        Ok(recv) => recv,
        Err(error) => {
            device.free(send)?;
            return Err(error.into());
        }
    };
    let outcome = exchange(agent, communicator, probe, (send, send_bytes), (recv, recv_bytes), deadline, moved);
    // After an interruption a collective may still be using the memory; recovery aborts it first, and the
    // range stays allocated until then.
    if outcome.is_ok() {
        device.free(recv)?;
        device.free(send)?;
    } else {
        agent.free_after_quiesce([send, recv]);
    }
    outcome
}

fn exchange(
    agent: &Agent,
    communicator: &Communicator,
    probe: Probe,
    (send, send_bytes): (DevicePtr, u64),
    (recv, recv_bytes): (DevicePtr, u64),
    deadline: Instant,
    moved: &dyn Fn() -> bool,
) -> Result<u64, Error> {
    let input = pattern(probe.datatype, communicator.rank(), send_bytes);
    agent.copy_unrecorded(Copy::HostToDevice { dst: send, src: input.as_ptr() }, send_bytes)?;
    let start = pattern(probe.datatype, -1 - communicator.rank(), recv_bytes);
    agent.copy_unrecorded(Copy::HostToDevice { dst: recv, src: start.as_ptr() }, recv_bytes)?;
    let Some(call) = probe.call(send, recv) else { return Ok(0) };
    {
        let guard = communicator.lock();
        let real = guard.as_ref().ok_or(Error::Redo)?;
        real.enqueue(call, agent.device.stream_native(RealHandle(0)))?;
    }
    let what = || "the fingerprint of a collective".to_owned();
    poll::until(&*agent.device, &what, deadline, moved, || match communicator.lock().as_ref().map(RealCommunicator::state) {
        Some(Progress::Ready) => Ok(true),
        Some(Progress::InProgress) => Ok(false),
        Some(Progress::Failed(error)) => Err(error.into()),
        None => Err(Error::Redo),
    })?;
    poll::until(&*agent.device, &what, deadline, moved, || Ok(agent.device.stream_query(RealHandle(0))?))?;
    if moved() {
        return Err(Error::Redo);
    }
    let mut output = vec![0_u8; usize::try_from(recv_bytes).unwrap_or(0)];
    agent.copy_unrecorded(Copy::DeviceToHost { dst: output.as_mut_ptr(), src: recv }, recv_bytes)?;
    Ok(xxh3_64(&output))
}

/// Bytes that depend on the rank and the place, and that sum differently in another order: floats between
/// 1 and 2 with random mantissas, integers at random.
fn pattern(datatype: i32, rank: i32, bytes: u64) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ (rank as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut out: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| next().to_le_bytes()).collect();
    out.truncate(usize::try_from(bytes).unwrap_or(0));
    let fix = |out: &mut Vec<u8>, size: usize, apply: fn(&mut [u8])| out.chunks_exact_mut(size).for_each(apply);
    match datatype {
        6 => fix(&mut out, 2, |b| b[1] = b[1] & 0x03 | 0x3c),
        7 => fix(&mut out, 4, |b| (b[2], b[3]) = (b[2] & 0x7f | 0x80, 0x3f)),
        8 => fix(&mut out, 8, |b| (b[6], b[7]) = (b[6] & 0x0f | 0xf0, 0x3f)),
        9 => fix(&mut out, 2, |b| (b[0], b[1]) = (b[0] & 0x7f | 0x80, 0x3f)),
        10 => fix(&mut out, 1, |b| b[0] = b[0] & 0x07 | 0x38),
        11 => fix(&mut out, 1, |b| b[0] = b[0] & 0x03 | 0x3c),
        _ => {}
    }
    out
}

/// Deadline of probes outside recovery.
pub fn probe_deadline() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_survives_its_bytes() {
        let probe = Probe { kind: 4, datatype: 7, op: 2, root: 1, count: 1 << 40 };
        assert_eq!(Probe::from_bytes(&probe.to_bytes()), probe);
    }

    #[test]
    fn the_set_is_probed_only_when_it_changes() {
        let fingerprint = Fingerprint::default();
        let clique = CliqueKey([1; 16]);
        let call = Collective::AllReduce { send: DevicePtr(0), recv: DevicePtr(0), count: 8, datatype: 7, op: 0 };
        fingerprint.note(clique, &call);
        fingerprint.note(clique, &call);
        let changed = fingerprint.take_changed(clique).expect("never recorded");
        assert_eq!(changed.len(), 1);
        fingerprint.record(clique, vec![(changed[0], 5)]);
        fingerprint.note(clique, &call);
        assert_eq!(fingerprint.take_changed(clique), None);
    }

    #[test]
    fn float_patterns_are_between_one_and_two() {
        for value in pattern(7, 3, 4096).chunks_exact(4) {
            let value = f32::from_le_bytes(value.try_into().expect("4 bytes"));
            assert!((1.0..2.0).contains(&value), "{value}");
        }
        assert_ne!(pattern(7, 0, 64), pattern(7, 1, 64));
    }
}
