use super::*;
use crate::handle::virtual_handle::LAST_GENERATION;
use crate::handle::{FixedSeat, recover};
use crate::journal::chunk;
use crate::journal::layout::{ChunkClass, Geometry, HANDLE_DIRECTORY, HANDLE_DIRECTORY_ENTRIES, OWNER_JOURNAL};
use crate::sync::HeapWords;

fn store(handles: u32) -> Store<HeapWords> {
    let geometry = Geometry::base(1 << 20, 4096, 4, handles).expect("fits");
    Store::new(HeapWords::zeroed(1 << 20), geometry)
}

/// Takes every chunk, so that the table cannot grow.
fn without_chunks(store: &Store<HeapWords>) {
    while chunk::claim(store, OWNER_JOURNAL, ChunkClass::Setup, 1).is_some() {}
}

macro_rules! table {
    ($table:ident, $handles:expr) => {
        let store = store($handles);
        without_chunks(&store);
        let $table = HandleTable::new(&store, &FixedSeat(1));
    };
}

#[test]
fn a_stale_handle_is_an_error_even_when_its_slot_is_used_again() {
    table!(table, 1);
    let first = table.reserve(HandleKind::Stream).expect("free");
    assert_eq!(table.resolve(first, HandleKind::Stream), Err(HandleError::Unbound { handle: first }));
    table.bind(first, 7).expect("reserved");
    assert_eq!(table.resolve(first, HandleKind::Stream), Ok(7));
    assert_eq!(table.reserve(HandleKind::Stream), Err(HandleError::Full { capacity: 1 }));
    table.retire(first).expect("live");
    let second = table.reserve(HandleKind::Stream).expect("free again");
    table.bind(second, 9).expect("reserved");
    assert_eq!(first.index(), second.index());
    assert!(matches!(table.resolve(first, HandleKind::Stream), Err(HandleError::Stale { found: 2, .. })));
    assert!(matches!(table.retire(first), Err(HandleError::Stale { .. })));
    assert_eq!(table.resolve(second, HandleKind::Stream), Ok(9));
}

#[test]
fn pointers_and_handles_of_another_kind_are_told_apart() {
    table!(table, 4);
    let stream = table.reserve(HandleKind::Stream).expect("free");
    table.bind(stream, 7).expect("reserved");
    assert!(matches!(table.resolve(stream, HandleKind::Event), Err(HandleError::WrongKind { .. })));
    assert_eq!(table.resolve(VirtualHandle(0), HandleKind::Stream), Err(HandleError::Null));
    let pointer = VirtualHandle(0x7fff_1234_5678);
    assert_eq!(table.resolve(pointer, HandleKind::Stream), Err(HandleError::NotVirtual { value: pointer.0 }));
    let beyond = VirtualHandle(stream.0 + 100);
    assert!(matches!(table.resolve(beyond, HandleKind::Stream), Err(HandleError::OutOfRange { .. })));
}

#[test]
fn an_unbound_handle_says_so_until_it_is_rebound() {
    table!(table, 4);
    let comm = table.reserve(HandleKind::Communicator).expect("free");
    let stream = table.reserve(HandleKind::Stream).expect("free");
    table.bind(comm, 1).expect("reserved");
    table.bind(stream, 2).expect("reserved");
    table.unbind_kind(HandleKind::Communicator);
    assert_eq!(table.resolve(comm, HandleKind::Communicator), Err(HandleError::Unbound { handle: comm }));
    assert_eq!(table.resolve(stream, HandleKind::Stream), Ok(2));
    table.rebind(comm, 3).expect("unbound");
    assert_eq!(table.resolve(comm, HandleKind::Communicator), Ok(3));
    assert_eq!(table.live(), [(comm, Some(3)), (stream, Some(2))]);
}

#[test]
fn a_slot_without_generations_left_is_not_used_again() {
    table!(table, 2);
    table.base[0][0].store(u64::from(LAST_GENERATION - 1) << 32, Ordering::Relaxed);
    let last = table.reserve(HandleKind::User).expect("free");
    assert_eq!((last.index(), last.generation()), (0, LAST_GENERATION));
    table.retire(last).expect("reserved");
    assert_eq!(table.reserve(HandleKind::User).expect("free").index(), 1);
    assert_eq!(table.reserve(HandleKind::User), Err(HandleError::Full { capacity: 2 }));
}

#[test]
fn threads_take_handles_from_blocks_of_their_own() {
    let store = store(256);
    let reserve = |seat: u64| HandleTable::new(&store, &FixedSeat(seat)).reserve(HandleKind::Event).expect("free").index();
    let first: Vec<u32> = [1, 2, 3, 1, 2, 3].map(reserve).into();
    assert_eq!(first, [0, 64, 128, 1, 65, 129]);
    // A thread without a slot takes what is free anywhere.
    assert!(reserve(0) < 256);
    // A thread that has used its block up takes another one, and none of another thread's.
    let more: Vec<u32> = (0..100).map(|_| reserve(1)).collect();
    assert!(more.iter().all(|index| *index < 64 || (192..256).contains(index) || *index >= 256), "{more:?}");
}

#[test]
fn the_table_grows_by_chunks_and_says_when_it_cannot() {
    let store = store(64);
    let table = HandleTable::new(&store, &FixedSeat(1));
    let mut handles = Vec::new();
    let error = loop {
        match table.reserve(HandleKind::User) {
            Ok(handle) => {
                table.bind(handle, handles.len() as u64 + 7).expect("reserved");
                handles.push(handle);
            }
            Err(error) => break error,
        }
    };
    // A chunk of 4 KiB holds 64 more, and the table takes a quarter of the chunks.
    let chunks = store.chunk_count().div_ceil(4);
    assert_eq!(handles.len() as u64, 64 + 64 * chunks);
    assert_eq!(error, HandleError::Full { capacity: handles.len() as u32 });
    assert!(error.to_string().contains("max_handles"), "{error}");
    for (i, handle) in handles.iter().enumerate() {
        assert_eq!(handle.index(), i as u32);
        assert_eq!(table.resolve(*handle, HandleKind::User), Ok(i as u64 + 7));
    }
    assert_eq!(table.live().len(), handles.len());
    let last = *handles.last().expect("some");
    table.retire(last).expect("live");
    assert!(matches!(table.resolve(last, HandleKind::User), Err(HandleError::Stale { .. })));
    assert_eq!(table.reserve(HandleKind::User).expect("free again").index(), last.index());
    assert!(chunk::claim(&store, 1, ChunkClass::Setup, 1).is_some(), "records have room");
}

#[test]
fn what_a_dead_thread_left_is_settled_and_its_blocks_are_taken_again() {
    let store = store(64);
    without_chunks(&store);
    let dead = HandleTable::new(&store, &FixedSeat(1));
    let handles = [(); 64].map(|()| dead.reserve(HandleKind::Stream).expect("free"));
    handles[..60].iter().for_each(|handle| dead.bind(*handle, 5).expect("reserved"));
    // Killed with an object in its hands, in each of the three ways, and once over a handle that another one retired.
    let dying = |i: usize, from: Word| dead.base[i][0].store(from.storing(1).0, Ordering::Relaxed);
    let word = |i: usize| Word(dead.base[i][0].load(Ordering::Relaxed));
    dying(60, word(60));
    dying(59, word(59));
    dying(58, word(58).unbound());
    dead.base[57][0].store(word(57).storing(1).retired().0, Ordering::Relaxed);
    let table = HandleTable::new(&store, &FixedSeat(2));
    assert!(matches!(table.reserve(HandleKind::Stream), Err(HandleError::Full { .. })));
    recover(&store, 1);
    recover(&store, 1);
    assert_eq!(table.resolve(handles[59], HandleKind::Stream), Ok(5));
    assert_eq!(table.resolve(handles[58], HandleKind::Stream), Err(HandleError::Unbound { handle: handles[58] }));
    table.bind(handles[58], 6).expect("recovery gives it an object");
    let again: Vec<u32> = std::iter::from_fn(|| table.reserve(HandleKind::Event).ok()).map(VirtualHandle::index).collect();
    assert_eq!(again, [57, 60, 61, 62, 63]);
    for gone in [57, 60, 61] {
        assert!(matches!(table.resolve(handles[gone], HandleKind::Stream), Err(HandleError::Stale { .. })));
    }
}

#[test]
fn a_chunk_taken_by_a_dying_thread_is_the_tables_or_free() {
    let store = store(0);
    let table = HandleTable::new(&store, &FixedSeat(1));
    let handle = table.reserve(HandleKind::Event).expect("the table grows");
    table.bind(handle, 9).expect("reserved");
    let link = store.word(HANDLE_DIRECTORY).load(Ordering::Relaxed);
    let named = store.link(link).expect("a chunk").expect("there is one");
    // As it is when the owner dies right after it has named the chunk.
    store.chunk(named).owner().store(1, Ordering::Relaxed);
    let unnamed = chunk::claim(&store, 1, ChunkClass::Handles, 1).expect("room");
    crate::journal::reap::resume(&store, 0, true).expect("an empty lane");
    assert_eq!(store.chunk(named).owner().load(Ordering::Relaxed), OWNER_JOURNAL);
    assert_eq!(store.chunk(unnamed).owner().load(Ordering::Relaxed), 0);
    assert_eq!(table.resolve(handle, HandleKind::Event), Ok(9));
}

#[test]
fn hostile_words_never_lead_outside() {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 20
    };
    for round in 0..50 {
        let store = store(100);
        for place in 0..HANDLE_DIRECTORY_ENTRIES {
            let word = if round % 2 == 0 { next() } else { next() % 300 };
            store.word(HANDLE_DIRECTORY + 8 * place).store(word, Ordering::Relaxed);
        }
        for index in 0..100 {
            let at = store.base().handle(index);
            store.words(at, 8).iter().for_each(|word| word.store(next() << 16 ^ next(), Ordering::Relaxed));
        }
        for slot in 0..4 {
            store.slot_word(slot, crate::journal::layout::SLOT_HANDLE_HINT).store(next() << 20 ^ next(), Ordering::Relaxed);
        }
        let seat = FixedSeat(1 + next() % 4);
        let table = HandleTable::new(&store, &seat);
        let _ = table.live();
        for _ in 0..200 {
            let _ = table.resolve(VirtualHandle(1 << 63 | next() << 24 ^ next()), HandleKind::Event);
            let _ = table.bind(VirtualHandle(1 << 63 | 3 << 56 | (next() % 3) << 32 | next() % 20_000), 1);
            let _ = table.reserve(HandleKind::Event);
        }
        recover(&store, 1);
        table.unbind_kind(HandleKind::Event);
    }
}
