//! How long do an all-reduce and an init take? Ranks are threads; the waits are those of processes.
#![allow(unsafe_code, missing_docs)]

#[path = "../tests/ranks/mod.rs"]
mod ranks;

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ranks::{Comm, ok, ranks, threads, unique_id};
use rejoin_host_nccl::capi::ncclAllReduce;

/// The longest time of any rank for `iterations` all-reduces of `bytes`.
fn all_reduces(nranks: usize, bytes: usize, iterations: u64) -> Duration {
    let times = ranks("bench", nranks, true, |r| {
        let mut x = vec![1.0_f32; bytes / 4];
        assert_eq!(r.sum(1.0), nranks as f32);
        let at = x.as_mut_ptr().cast();
        let start = Instant::now();
        for _ in 0..iterations {
            // SAFETY: the buffer lives until the stream is idle.
            ok(unsafe { ncclAllReduce(at, at, bytes / 4, 7, 2, r.comm.0, r.stream.raw()) });
            r.stream.synchronize();
        }
        start.elapsed()
    });
    times.into_iter().max().unwrap_or_default()
}

fn all_reduce(c: &mut Criterion) {
    let mut group = c.benchmark_group("ns_per_all_reduce");
    group.sample_size(10).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(300));
    for (bytes, name) in [(1024, "1KiB"), (64 * 1024, "64KiB"), (4 << 20, "4MiB"), (64 << 20, "64MiB")] {
        for nranks in [2, 4, 8] {
            group.throughput(Throughput::Bytes(bytes as u64));
            group.bench_function(format!("{name}/ranks_{nranks}"), |b| {
                b.iter_custom(|iterations| all_reduces(nranks, bytes, iterations));
            });
        }
    }
}

fn init(c: &mut Criterion) {
    let mut group = c.benchmark_group("ns_per_init");
    group.sample_size(10).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(300));
    for nranks in [4, 8] {
        group.bench_function(format!("ranks_{nranks}"), |b| {
            b.iter_custom(|iterations| {
                let ids: Vec<_> = (0..iterations).map(|_| unique_id()).collect();
                let times = threads("bench init", nranks, |rank, _| {
                    let start = Instant::now();
                    for id in &ids {
                        Comm::init(nranks, *id, rank, true).destroy();
                    }
                    start.elapsed()
                });
                times.into_iter().max().unwrap_or_default()
            });
        });
    }
}

criterion_group!(benches, all_reduce, init);
criterion_main!(benches);
