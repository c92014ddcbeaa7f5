//! What the boundary of C costs: a call by the Rust API, and the same through the exported function.
#![allow(missing_docs)]

use core::ptr::null_mut;
use std::ffi::CString;

use criterion::{Criterion, criterion_group, criterion_main};
use journal_core::handle::HandleKind;
use journal_core::journal::{Journal, JournalOptions, Region};
use rejoin::handle::rejoin_handle_resolve;
use rejoin::journal::{rejoin_journal, rejoin_journal_append, rejoin_journal_close, rejoin_journal_open, rejoin_record_ref, rejoin_region};
use rejoin::status::rejoin_status;

fn boundary(criterion: &mut Criterion) {
    let options = JournalOptions { capacity_bytes: 64 << 20, ..JournalOptions::new(format!("bench-{}", std::process::id()), 0, 0) };
    let journal = Journal::create(&options).expect("room in /dev/shm");
    let name = CString::new(journal.name().as_str()).expect("no zero bytes");
    let mut from_c: *mut rejoin_journal = null_mut();
    // SAFETY: valid pointers.
    let opened = unsafe { rejoin_journal_open(name.as_ptr(), &raw mut from_c) };
    assert_eq!(opened, rejoin_status::Ok);

    let handle = journal.handles().reserve(HandleKind::Stream).expect("free");
    journal.handles().bind(handle, 7).expect("reserved");
    let mut group = criterion.benchmark_group("ns_per_resolve");
    group.bench_function("rust", |bencher| bencher.iter(|| journal.handles().resolve(handle, HandleKind::Stream)));
    group.bench_function("c", |bencher| {
        bencher.iter(|| {
            let mut real = 0;
            // SAFETY: valid pointers.
            let status = unsafe { rejoin_handle_resolve(from_c, handle.0, HandleKind::Stream as u32, &raw mut real) };
            assert_eq!((status, real), (rejoin_status::Ok, 7));
        });
    });
    group.finish();

    // Steps end before the journal is full: a commit every thousand appends is part of both.
    let mut count = 0_u32;
    let mut cut = |journal: &Journal| {
        count += 1;
        if count.is_multiple_of(1000) {
            journal.step_commit(count / 1000).expect("no one else commits");
        }
    };
    let payload = [7_u8; 64];
    let mut group = criterion.benchmark_group("ns_per_append/payload_64B");
    group.bench_function("rust", |bencher| {
        bencher.iter(|| {
            cut(&journal);
            journal.append(Region::Step, 0x8000, 0, &[&payload]).expect("room")
        });
    });
    group.bench_function("c", |bencher| {
        bencher.iter(|| {
            cut(&journal);
            let mut record = rejoin_record_ref { sequence: 0, position: 0 };
            let region = rejoin_region::Step as u32;
            // SAFETY: valid pointers.
            let status = unsafe { rejoin_journal_append(from_c, region, 0x8000, payload.as_ptr().cast(), 64, &raw mut record) };
            assert_eq!(status, rejoin_status::Ok);
        });
    });
    group.finish();
    // SAFETY: ours, once.
    let _ = unsafe { rejoin_journal_close(from_c) };
    journal.unlink().expect("ours");
}

criterion_group!(benches, boundary);
criterion_main!(benches);
