//! Nanoseconds of an append and of storing a result.
//!
//! `cargo bench -p journal-core --bench journal`; pin it with `taskset -c 0`.

#![allow(missing_docs)]
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use journal_core::journal::{Journal, JournalOptions, Region};

fn journal(tag: &str) -> Journal {
    let options = JournalOptions {
        capacity_bytes: 16 << 20,
        ..JournalOptions::new(format!("bench-{tag}-{}", std::process::id()), 0, 0)
    };
    Journal::create(&options).expect("16 MiB of /dev/shm")
}

/// Appends `count` records, ending the step where it would not fit; only appends are timed.
fn timed_appends(journal: &Journal, payload: &[u8], count: u64) -> Duration {
    const BATCH: u64 = 4000;
    let mut total = Duration::ZERO;
    let mut left = count;
    while left > 0 {
        let batch = left.min(BATCH);
        let start = Instant::now();
        for _ in 0..batch {
            black_box(journal.append(Region::Step, 7, 0, &[black_box(payload)]).expect("the step was cut"));
        }
        total += start.elapsed();
        left -= batch;
        journal.step_commit(0).expect("nobody holds the admin lock");
    }
    total
}

fn append(c: &mut Criterion) {
    let journal = journal("append");
    let payload: Vec<u8> = (0..=255).collect();
    journal.append(Region::Step, 7, 0, &[&payload[..64]]).expect("empty journal");
    assert_eq!(journal.snapshot().step[0].payload, payload[..64]);
    let mut group = c.benchmark_group("ns_per_append/writers_1");
    for bytes in [0, 64, 96, 256, 1024] {
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("payload_{bytes}B"), |b| {
            b.iter_custom(|count| timed_appends(&journal, &payload.repeat(4)[..bytes], count));
        });
    }
    group.finish();
    let mut group = c.benchmark_group("ns_per_append/writers_2");
    group.bench_function("payload_64B", |b| {
        b.iter_custom(|count| {
            let stop = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        timed_appends(&journal, &payload[..64], 4000);
                    }
                });
                let total = timed_appends(&journal, &payload[..64], count);
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
                total
            })
        });
    });
    group.finish();
    let record = journal.append(Region::Step, 7, 0, &[&payload[..64]]).expect("the step was cut");
    c.bench_function("ns_per_complete", |b| b.iter(|| journal.complete(black_box(record), black_box(5))));
    journal.unlink().expect("it is ours");
}

criterion_group!(benches, append);
criterion_main!(benches);
