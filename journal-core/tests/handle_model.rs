//! Random lives of handles against a plain map.
#![cfg(not(loom))]

use std::collections::HashMap;

use journal_core::handle::{FixedSeat, HandleError, HandleKind, HandleTable, VirtualHandle};
use journal_core::journal::layout::Geometry;
use journal_core::journal::reap;
use journal_core::journal::store::Store;
use journal_core::sync::HeapWords;
use proptest::prelude::*;

const SEATS: u64 = 3;
const KINDS: [HandleKind; 3] = [HandleKind::Stream, HandleKind::Event, HandleKind::Communicator];

#[derive(Debug, Clone)]
enum Op {
    Reserve { seat: u64, kind: usize },
    Bind { seat: u64, which: usize, real: u64 },
    Rebind { seat: u64, which: usize, real: u64 },
    Resolve { which: usize, kind: usize },
    Unbind { kind: usize },
    Retire { seat: u64, which: usize },
    /// The thread of a seat dies; its slot is reaped.
    Kill { seat: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let (seat, kind, which, real) = (1..=SEATS, 0..KINDS.len(), any::<usize>(), any::<u64>());
    prop_oneof![
        8 => (seat.clone(), kind.clone()).prop_map(|(seat, kind)| Op::Reserve { seat, kind }),
        8 => (seat.clone(), which, real).prop_map(|(seat, which, real)| Op::Bind { seat, which, real }),
        2 => (seat.clone(), which, real).prop_map(|(seat, which, real)| Op::Rebind { seat, which, real }),
        6 => (which, kind.clone()).prop_map(|(which, kind)| Op::Resolve { which, kind }),
        1 => kind.prop_map(|kind| Op::Unbind { kind }),
        4 => (seat.clone(), which).prop_map(|(seat, which)| Op::Retire { seat, which }),
        1 => seat.prop_map(|seat| Op::Kill { seat }),
    ]
}

/// What the table should say about a handle that means something.
#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Reserved { by: u64 },
    Live(u64),
    Unbound,
}

struct Model {
    known: HashMap<VirtualHandle, (HandleKind, State)>,
    /// Every handle ever given, so that stale ones are asked for too.
    given: Vec<VirtualHandle>,
}

impl Model {
    fn pick(&self, which: usize) -> Option<VirtualHandle> {
        (!self.given.is_empty()).then(|| self.given[which % self.given.len()])
    }
}

fn run(handles: u32, grows: bool, ops: &[Op]) -> Result<(), TestCaseError> {
    let geometry = Geometry::base(1 << 18, 4096, SEATS as u32, handles).expect("fits");
    let store = Store::new(HeapWords::zeroed(1 << 18), geometry);
    if !grows {
        let class = journal_core::journal::layout::ChunkClass::Setup;
        while journal_core::journal::chunk::claim(&store, 0xFFFF, class, 1).is_some() {}
    }
    let seats = [1, 2, 3].map(FixedSeat);
    let table = |seat: u64| HandleTable::new(&store, &seats[seat as usize - 1]);
    let mut model = Model { known: HashMap::new(), given: Vec::new() };
    for op in ops {
        match *op {
            Op::Reserve { seat, kind } => match table(seat).reserve(KINDS[kind]) {
                Ok(handle) => {
                    prop_assert!(!model.given.contains(&handle), "{handle:?} was given twice");
                    prop_assert!(model.known.keys().all(|other| other.index() != handle.index()), "a taken index");
                    model.known.insert(handle, (KINDS[kind], State::Reserved { by: seat }));
                    model.given.push(handle);
                }
                Err(error) => {
                    prop_assert_eq!(error, HandleError::Full { capacity: table(seat).capacity() });
                    prop_assert_eq!(model.known.len(), table(seat).capacity() as usize, "full, and not all are in use");
                }
            },
            Op::Bind { seat, which, real } | Op::Rebind { seat, which, real } => {
                let Some(handle) = model.pick(which) else { continue };
                let result = match op {
                    Op::Rebind { .. } => table(seat).rebind(handle, real),
                    _ => table(seat).bind(handle, real),
                };
                match model.known.get_mut(&handle) {
                    Some((_, state)) => {
                        prop_assert_eq!(result, Ok(()));
                        *state = State::Live(real);
                    }
                    None => prop_assert!(matches!(result, Err(HandleError::Stale { .. })), "{:?}", result),
                }
            }
            Op::Resolve { which, kind } => {
                let Some(handle) = model.pick(which) else { continue };
                let result = table(1).resolve(handle, KINDS[kind]);
                match model.known.get(&handle) {
                    None => prop_assert!(matches!(result, Err(HandleError::Stale { .. })), "{:?}", result),
                    Some((is, _)) if *is != KINDS[kind] => {
                        prop_assert!(matches!(result, Err(HandleError::WrongKind { .. })), "{:?}", result);
                    }
                    Some((_, State::Live(real))) => prop_assert_eq!(result, Ok(*real)),
                    Some(_) => prop_assert_eq!(result, Err(HandleError::Unbound { handle })),
                }
            }
            Op::Unbind { kind } => {
                table(1).unbind_kind(KINDS[kind]);
                for (is, state) in model.known.values_mut() {
                    if *is == KINDS[kind] && matches!(state, State::Live(_)) {
                        *state = State::Unbound;
                    }
                }
            }
            Op::Retire { seat, which } => {
                let Some(handle) = model.pick(which) else { continue };
                let result = table(seat).retire(handle);
                match model.known.remove(&handle) {
                    Some(_) => prop_assert_eq!(result, Ok(())),
                    None => prop_assert!(matches!(result, Err(HandleError::Stale { .. })), "{:?}", result),
                }
            }
            Op::Kill { seat } => {
                reap::resume(&store, seat as u16 - 1, true).expect("an empty lane");
                model.known.retain(|_, (_, state)| *state != State::Reserved { by: seat });
            }
        }
        let mut live = table(1).live();
        live.sort_unstable();
        let mut expected: Vec<_> = model
            .known
            .iter()
            .map(|(handle, (_, state))| (*handle, match state { State::Live(real) => Some(*real), _ => None }))
            .collect();
        expected.sort_unstable();
        prop_assert_eq!(live, expected);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_table_is_a_map_whatever_happens(handles in 0_u32..200, grows: bool, ops in prop::collection::vec(op(), 1..300)) {
        run(handles, grows, &ops)?;
    }

    /// Few entries, so that each is used again and again.
    #[test]
    fn a_full_table_is_a_map_too(handles in 1_u32..6, ops in prop::collection::vec(op(), 1..300)) {
        run(handles, false, &ops)?;
    }
}
