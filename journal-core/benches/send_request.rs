//! Nanoseconds of a whole request on a device that does nothing: gate, append, resolve, call, result.
//!
//! `cargo bench -p journal-core --bench send_request`; pin it with `taskset -c 0`. What is timed is what an
//! application pays for Rejoin beside the call itself: `memcpy_dtod_async(dst, src, bytes, stream)`, four arguments,
//! one of them a handle.
#![allow(missing_docs)]

use core::ffi::c_void;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use journal_core::agent::{Agent, AgentParts, HostMemory, Phase};
use journal_core::backend::{
    BackendKind, Copy, Device, DevicePtr, DeviceResult, Function, LaunchShape, RealHandle, Window,
};
use journal_core::handle::HandleKind;
use journal_core::journal::{Journal, JournalOptions, SegmentName, SharedSegment};
use journal_core::membership::{Epoch, Incarnation, JobOptions, JobPolicy, JobStrategy, Rank, ShmMembership};
use journal_core::nccl::NcclLibrary;
use journal_core::nccl::library::locate;
use journal_core::request;

/// Counts copies and does nothing else.
#[derive(Default)]
struct Nothing {
    copies: AtomicU64,
    bytes: AtomicU64,
    stream: AtomicU64,
}

impl Device for Nothing {
    fn kind(&self) -> BackendKind {
        BackendKind::Host
    }
    fn ordinal(&self) -> u32 {
        0
    }
    fn window(&self) -> Window {
        Window { base: 0x4000_0000_0000, bytes: 1 << 30 }
    }
    fn make_current(&self) -> DeviceResult<()> {
        Ok(())
    }
    fn reset(&self) -> DeviceResult<()> {
        Ok(())
    }
    fn alloc(&self, _: u64) -> DeviceResult<DevicePtr> {
        Ok(DevicePtr(self.window().base))
    }
    fn alloc_at(&self, _: DevicePtr, _: u64) -> DeviceResult<()> {
        Ok(())
    }
    fn free(&self, _: DevicePtr) -> DeviceResult<()> {
        Ok(())
    }
    fn mem_info(&self) -> DeviceResult<(u64, u64)> {
        Ok((0, 0))
    }
    fn allocations(&self) -> Vec<(DevicePtr, u64)> {
        Vec::new()
    }
    fn host_register(&self, _: *mut c_void, _: u64, _: u32) -> DeviceResult<()> {
        Ok(())
    }
    fn host_unregister(&self, _: *mut c_void) -> DeviceResult<()> {
        Ok(())
    }
    fn copy(&self, _: Copy, bytes: u64, stream: RealHandle) -> DeviceResult<()> {
        // Plain loads and stores: an atomic addition would be a good part of what is measured.
        self.copies.store(self.copies.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.stream.store(stream.0, Ordering::Relaxed);
        Ok(())
    }
    fn memset(&self, _: DevicePtr, _: u8, _: u64, _: RealHandle) -> DeviceResult<()> {
        Ok(())
    }
    fn stream_create(&self, _: u32, _: i32) -> DeviceResult<RealHandle> {
        Ok(RealHandle(77))
    }
    fn stream_destroy(&self, _: RealHandle) -> DeviceResult<()> {
        Ok(())
    }
    fn stream_query(&self, _: RealHandle) -> DeviceResult<bool> {
        Ok(true)
    }
    fn stream_wait_event(&self, _: RealHandle, _: RealHandle, _: u32) -> DeviceResult<()> {
        Ok(())
    }
    fn stream_native(&self, _: RealHandle) -> *mut c_void {
        core::ptr::null_mut()
    }
    fn event_create(&self, _: u32) -> DeviceResult<RealHandle> {
        Ok(RealHandle(1))
    }
    fn event_destroy(&self, _: RealHandle) -> DeviceResult<()> {
        Ok(())
    }
    fn event_record(&self, _: RealHandle, _: RealHandle) -> DeviceResult<()> {
        Ok(())
    }
    fn event_query(&self, _: RealHandle) -> DeviceResult<bool> {
        Ok(true)
    }
    fn event_elapsed_ms(&self, _: RealHandle, _: RealHandle) -> DeviceResult<f32> {
        Ok(0.0)
    }
    fn module_load(&self, _: &[u8]) -> DeviceResult<RealHandle> {
        Ok(RealHandle(1))
    }
    fn module_unload(&self, _: RealHandle) -> DeviceResult<()> {
        Ok(())
    }
    fn module_function(&self, _: RealHandle, _: &str) -> DeviceResult<Function> {
        Ok(Function { real: RealHandle(1), param_bytes: Vec::new() })
    }
    fn launch(&self, _: &Function, _: LaunchShape, _: RealHandle, _: &[u8]) -> DeviceResult<()> {
        Ok(())
    }
    fn activity(&self) -> u32 {
        0
    }
    fn activity_wait(&self, _: u32, _: Duration) {}
    fn poke(&self) {}
}

fn job() -> JobOptions {
    JobOptions {
        job: format!("bench-send-{}", std::process::id()),
        nranks: 1,
        uuid: [1; 16],
        strategy: JobStrategy::Reinit,
        policy: JobPolicy::Redo,
        renumber: false,
        max_recoveries: 1,
        stage_timeout: Duration::from_secs(30),
        hang_timeout: None,
        backend: "none".into(),
    }
}

fn send(c: &mut Criterion) {
    let job = job();
    let membership = ShmMembership::create(&job).expect("room in /dev/shm");
    let options = JournalOptions { capacity_bytes: 16 << 20, ..JournalOptions::new(job.job.clone(), 0, 0) };
    let journal = Journal::create(&options).expect("16 MiB of /dev/shm");
    let device = Arc::new(Nothing::default());
    let nccl = NcclLibrary::load(&locate(None, BackendKind::Host)).expect("the host NCCL, a dev-dependency");
    let agent = Agent::new(AgentParts {
        device: device.clone(),
        nccl: Arc::new(nccl),
        journal: journal.clone(),
        membership: Arc::new(membership),
        rank: Rank(0),
        incarnation: Incarnation(0),
        peer_timeout: Duration::from_secs(30),
        epoch: Epoch(0),
        replacement: false,
        faults: Default::default(),
    });
    let stream = agent.create(HandleKind::Stream, |stream| request::stream_create(stream, 1, 0)).expect("a stream");
    agent.phase.set(Phase::InStep(0));
    let (dst, src) = (DevicePtr(0x4000_0000_0000), DevicePtr(0x4000_0000_1000));
    let issue = |bytes| {
        let request = request::memcpy_dtod_async(black_box(dst), black_box(src), black_box(bytes), black_box(stream));
        agent.send(&request, HostMemory::default())
    };

    issue(4711).expect("a copy");
    let copies = || device.copies.load(Ordering::Relaxed);
    assert_eq!((copies(), device.bytes.load(Ordering::Relaxed), device.stream.load(Ordering::Relaxed)), (1, 4711, 77));
    let snapshot = journal.snapshot();
    let record = snapshot.step.last().expect("the copy is recorded");
    let read = request::decode(record.kind, &record.payload).expect("whole");
    assert!(matches!(read.call(), request::Call::MemcpyDtoDAsync { bytes: 4711, .. }));
    assert_eq!(record.result, Some(0));

    let mut step = 0;
    c.bench_function("ns_per_send_request/memcpy_dtod_async", |b| {
        b.iter_custom(|count| {
            // The step is cut where it would not fit into the journal; only requests are timed.
            let mut total = Duration::ZERO;
            let mut left = count;
            while left > 0 {
                let batch = left.min(4000);
                let before = copies();
                let start = Instant::now();
                for _ in 0..batch {
                    black_box(issue(64).expect("a copy"));
                }
                total += start.elapsed();
                assert_eq!(copies() - before, batch);
                left -= batch;
                journal.step_commit(step).expect("nobody holds the admin lock");
                step += 1;
            }
            total
        });
    });
    journal.unlink().expect("it is ours");
    SharedSegment::unlink(&SegmentName::members(&job.job).expect("a name")).expect("it is ours");
}

criterion_group!(benches, send);
criterion_main!(benches);
