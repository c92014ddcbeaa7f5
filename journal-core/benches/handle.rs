//! Nanoseconds of resolving a handle, beside a mutex around an ordered map; of reserving, binding and retiring one.
//!
//! `cargo bench -p journal-core --bench handle`. With a rebinding writer two cores are needed.
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use criterion::{Bencher, Criterion, criterion_group, criterion_main};
use journal_core::handle::{HandleKind, VirtualHandle};
use journal_core::journal::{Journal, JournalOptions};

const HANDLES: u64 = 64;

fn journal(tag: &str) -> Journal {
    let options = JournalOptions {
        capacity_bytes: 16 << 20,
        ..JournalOptions::new(format!("bench-{tag}-{}", std::process::id()), 0, 0)
    };
    Journal::create(&options).expect("16 MiB of /dev/shm")
}

/// Runs `measure` while another thread repeats `disturb`.
fn beside<R>(disturb: impl Fn() + Send + Sync, measure: impl FnOnce() -> R) -> R {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                disturb();
            }
        });
        let result = measure();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

fn resolve(c: &mut Criterion) {
    let journal = journal("resolve");
    let table = journal.handles();
    let handles: Vec<VirtualHandle> = (0..HANDLES)
        .map(|real| {
            let handle = table.reserve(HandleKind::Stream).expect("an empty table");
            table.bind(handle, real).expect("just reserved");
            handle
        })
        .collect();
    let map: Mutex<BTreeMap<u64, u64>> = Mutex::new(handles.iter().zip(0..).map(|(handle, real)| (handle.0, real)).collect());
    let in_map = |handle: VirtualHandle| map.lock().expect("no panic").get(&handle.0).copied();
    for (real, handle) in handles.iter().enumerate() {
        assert_eq!(table.resolve(*handle, HandleKind::Stream), Ok(real as u64));
        assert_eq!(in_map(*handle), Some(real as u64));
    }
    let rebind = || {
        let table = journal.handles();
        handles.iter().zip(0..).for_each(|(handle, real)| table.rebind(*handle, real).expect("live"));
    };
    // What recovery does is rare; a writer that never rests is the worst case.
    let rebind_sometimes = || {
        rebind();
        (0..20_000).for_each(|_| std::hint::spin_loop());
    };
    let reinsert = || {
        handles.iter().zip(0..).for_each(|(handle, real)| {
            map.lock().expect("no panic").insert(handle.0, real);
        });
    };

    let mut group = c.benchmark_group("ns_per_resolve");
    // Round after round over all handles, so that the loop itself is a fraction of a nanosecond.
    let rounds = |count: u64, resolve: &dyn Fn(&[VirtualHandle]) -> u64| {
        let start = Instant::now();
        for _ in 0..count.div_ceil(HANDLES) {
            black_box(resolve(black_box(&handles)));
        }
        start.elapsed().mul_f64(count as f64 / (count.div_ceil(HANDLES) * HANDLES) as f64)
    };
    let by_table = |handles: &[VirtualHandle]| {
        handles.iter().fold(0, |sum: u64, handle| sum.wrapping_add(table.resolve(*handle, HandleKind::Stream).expect("live")))
    };
    let by_map = |handles: &[VirtualHandle]| {
        handles.iter().fold(0, |sum: u64, handle| sum.wrapping_add(in_map(*handle).expect("there")))
    };
    assert_eq!((by_table(&handles), by_map(&handles)), (2016, 2016));
    let by_table = |b: &mut Bencher| b.iter_custom(|count| rounds(count, &by_table));
    let by_map = |b: &mut Bencher| b.iter_custom(|count| rounds(count, &by_map));
    group.bench_function("alone/table", by_table);
    group.bench_function("alone/mutex_and_map", by_map);
    beside(rebind_sometimes, || {
        group.bench_function("rebound_every_50us/table", by_table);
    });
    beside(rebind, || {
        group.bench_function("rebound_without_rest/table", by_table);
    });
    beside(reinsert, || {
        group.bench_function("rebound_without_rest/mutex_and_map", by_map);
    });
    let read_table = || {
        handles.iter().for_each(|handle| {
            let _ = black_box(table.resolve(*handle, HandleKind::Stream));
        });
    };
    beside(read_table, || {
        group.bench_function("two_readers/table", by_table);
    });
    let read_map = || {
        handles.iter().for_each(|handle| {
            black_box(in_map(*handle));
        });
    };
    beside(read_map, || {
        group.bench_function("two_readers/mutex_and_map", by_map);
    });
    group.finish();
    journal.unlink().expect("it is ours");
}

fn life(c: &mut Criterion) {
    let journal = journal("life");
    let table = journal.handles();
    c.bench_function("ns_per_handle/reserve_bind_retire", |b| {
        b.iter(|| {
            let handle = table.reserve(HandleKind::Event).expect("the table has room");
            table.bind(handle, black_box(7)).expect("just reserved");
            table.retire(handle)
        });
    });
    journal.unlink().expect("it is ours");
}

criterion_group!(benches, resolve, life);
criterion_main!(benches);
