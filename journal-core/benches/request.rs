//! What it costs to make a request and to lay it out for the journal.
#![allow(missing_docs)]

use criterion::{Criterion, criterion_group, criterion_main};
use journal_core::backend::DevicePtr;
use journal_core::handle::VirtualHandle;
use journal_core::request;
use std::hint::black_box;

fn all_reduce() -> request::Request<'static> {
    let address = DevicePtr(black_box(0x4000_0000_0000));
    request::all_reduce(address, address, black_box(2410), 7, 0.into(), VirtualHandle(black_box(1)), VirtualHandle(2))
}

fn encode(c: &mut Criterion) {
    let payload = all_reduce().to_vec();
    let read = request::decode(request::OpCode::AllReduce as u16, &payload).expect("just encoded");
    assert_eq!(read.as_request(), all_reduce());

    c.bench_function("ns_per_request/all_reduce/make_and_encode", |b| {
        b.iter(|| {
            let request = all_reduce();
            let parts = request.parts();
            black_box(parts.last().map(|part| part.as_ptr()))
        });
    });
    c.bench_function("ns_per_request/all_reduce/decode", |b| {
        b.iter(|| request::decode_borrowed(black_box(0x0801), black_box(&payload)).map(|request| request.code()));
    });
    let params = [0u8; 64];
    c.bench_function("ns_per_request/launch_kernel/make_and_encode", |b| {
        b.iter(|| {
            let (function, stream) = (VirtualHandle(black_box(3)), VirtualHandle(black_box(4)));
            let request = request::launch_kernel(function, 1, 1, 1, 256, 1, 1, 0, stream, black_box(&params));
            let parts = request.parts();
            black_box(parts.last().map(|part| part.as_ptr()))
        });
    });
}

criterion_group!(benches, encode);
criterion_main!(benches);
