//! The application's state: which device buffers must be right after a recovery, and where from.

use crate::backend::DevicePtr;
use crate::error::Error;
use crate::nccl::clique::CliqueKey;

/// Where a buffer's content comes from on a replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum StateKind {
    /// The same on all ranks of its clique; from a donor. Written only after GO.
    Replicated = 1,
    /// Its own; from the rank's PREPARED copy, on replacements and on REDO. Final at `step_end`.
    PerRank = 2,
    /// Zeroed at every step begin; nobody's content is kept.
    Scratch = 3,
    /// Written in set-up only. The replacement's own set-up makes it again; if its content differs from that of the
    /// rank's first process, it comes from a donor of the clique.
    Constant = 4,
}

impl StateKind {
    /// The kind with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Replicated, Self::PerRank, Self::Scratch, Self::Constant].into_iter().find(|k| *k as u32 == number)
    }
}

/// One registered buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Unique within the rank, at most 64 bytes.
    pub name: String,
    /// Where it is.
    pub address: DevicePtr,
    /// Its length.
    pub bytes: u64,
    /// Where its content comes from.
    pub kind: StateKind,
    /// Who holds replicas.
    pub clique: Option<CliqueKey>,
    /// The application got the memory by itself: the address is this process's alone.
    pub foreign: bool,
}

/// Buffers in the order of registration, which is the same in every incarnation of a rank.
#[derive(Debug, Default, Clone)]
pub struct StateTable(Vec<State>);

impl StateTable {
    /// Adds one; names are unique, ranges do not overlap, replicated ones name a clique.
    pub fn register(&mut self, state: State) -> Result<(), Error> {
        let refuse = |what: String| Err(Error::InvalidArgument { what });
        if state.name.is_empty() || state.name.len() > 64 {
            return refuse(format!("state name {:?} must have 1 to 64 bytes", state.name));
        }
        if state.bytes == 0 {
            return refuse(format!("state {:?} has no bytes", state.name));
        }
        if state.clique.is_none() && state.kind == StateKind::Replicated {
            return refuse(format!("replicated state {:?} needs the communicator whose ranks hold it", state.name));
        }
        for other in &self.0 {
            if other.name == state.name {
                return refuse(format!("state {:?} is registered already", state.name));
            }
            let end = |s: &State| s.address.0.saturating_add(s.bytes);
            if state.address.0 < end(other) && other.address.0 < end(&state) {
                return refuse(format!("state {:?} overlaps state {:?}", state.name, other.name));
            }
        }
        self.0.push(state);
        Ok(())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &State> {
        self.0.iter()
    }

    /// Those of one kind.
    pub fn of_kind(&self, kind: StateKind) -> impl Iterator<Item = &State> {
        self.0.iter().filter(move |s| s.kind == kind)
    }

    /// Parts of an allocation that no state covers.
    pub fn gaps(&self, base: DevicePtr, bytes: u64) -> Vec<(DevicePtr, u64)> {
        let end = base.0.saturating_add(bytes);
        let mut covered: Vec<(u64, u64)> = self.0.iter().map(|s| (s.address.0, s.address.0.saturating_add(s.bytes))).collect();
        covered.sort_unstable();
        let (mut at, mut gaps) = (base.0, Vec::new());
        for (from, to) in covered.into_iter().filter(|(from, to)| *to > base.0 && *from < end) {
            if from > at {
                gaps.push((DevicePtr(at), from - at));
            }
            at = at.max(to);
        }
        if at < end {
            gaps.push((DevicePtr(at), end - at));
        }
        gaps
    }

    /// For the members segment: who holds what, so that recovery can name a lost buffer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for s in &self.0 {
            out.extend_from_slice(&(s.kind as u32).to_le_bytes());
            out.extend_from_slice(&s.bytes.to_le_bytes());
            // A replacement's table must be its predecessor's, and its own memory lies elsewhere.
            let address = if s.foreign { 0 } else { s.address.0 };
            out.extend_from_slice(&address.to_le_bytes());
            out.extend_from_slice(&s.clique.map_or([0; 16], |c| c.0));
            out.push(s.name.len() as u8);
            out.extend_from_slice(s.name.as_bytes());
        }
        out
    }

    /// The reverse, of another rank's bytes. Stops at what does not fit.
    pub fn from_bytes(mut bytes: &[u8]) -> Self {
        let mut table = Vec::new();
        while let Some((head, rest)) = bytes.split_at_checked(37) {
            let at = |from: usize, to: usize| &head[from..to];
            let name_bytes = usize::from(head[36]);
            let Some((name, rest)) = rest.split_at_checked(name_bytes) else { break };
            let Some(kind) = StateKind::from_number(u32::from_le_bytes(at(0, 4).try_into().expect("4 bytes"))) else { break };
            let clique: [u8; 16] = at(20, 36).try_into().expect("16 bytes");
            let address = u64::from_le_bytes(at(12, 20).try_into().expect("8 bytes"));
            table.push(State {
                name: String::from_utf8_lossy(name).into_owned(),
                address: DevicePtr(address),
                foreign: address == 0,
                bytes: u64::from_le_bytes(at(4, 12).try_into().expect("8 bytes")),
                kind,
                clique: (clique != [0; 16]).then_some(CliqueKey(clique)),
            });
            bytes = rest;
        }
        Self(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(name: &str, at: u64, bytes: u64, kind: StateKind) -> State {
        State { name: name.into(), address: DevicePtr(at), bytes, kind, clique: Some(CliqueKey([7; 16])), foreign: false }
    }

    #[test]
    fn a_foreign_buffer_may_lie_elsewhere_in_the_next_process() {
        let table = |at: u64| {
            let mut table = StateTable::default();
            table.register(State { foreign: true, ..state("weights", at, 64, StateKind::Replicated) }).unwrap();
            table.to_bytes()
        };
        assert_eq!(table(4096), table(8192));
        assert!(StateTable::from_bytes(&table(4096)).iter().all(|s| s.foreign));
    }

    #[test]
    fn a_table_survives_its_bytes_and_hostile_ones_do_not_panic() {
        let mut table = StateTable::default();
        table.register(state("w", 256, 100, StateKind::Replicated)).expect("first");
        table.register(state("rng", 512, 8, StateKind::PerRank)).expect("second");
        let bytes = table.to_bytes();
        assert_eq!(StateTable::from_bytes(&bytes).0, table.0);
        for cut in 0..bytes.len() {
            assert!(StateTable::from_bytes(&bytes[..cut]).0.len() <= 2);
        }
    }

    #[test]
    fn gaps_are_what_no_state_covers() {
        let mut table = StateTable::default();
        table.register(state("a", 256, 100, StateKind::Replicated)).expect("first");
        table.register(state("b", 512, 256, StateKind::Scratch)).expect("second");
        assert_eq!(table.gaps(DevicePtr(256), 100), []);
        assert_eq!(table.gaps(DevicePtr(0), 300), [(DevicePtr(0), 256)]);
        assert_eq!(table.gaps(DevicePtr(256), 600), [(DevicePtr(356), 156), (DevicePtr(768), 88)]);
        assert_eq!(table.gaps(DevicePtr(4096), 16), [(DevicePtr(4096), 16)]);
    }

    #[test]
    fn overlaps_and_doubled_names_are_refused_by_name() {
        let mut table = StateTable::default();
        table.register(state("w", 256, 100, StateKind::Replicated)).expect("first");
        let error = table.register(state("v", 355, 8, StateKind::Scratch)).expect_err("overlap");
        assert!(error.to_string().contains("\"w\""), "{error}");
        table.register(state("w", 512, 8, StateKind::Scratch)).expect_err("name taken");
    }
}
