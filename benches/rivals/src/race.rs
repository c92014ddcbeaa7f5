//! N processes that append as fast as they can, started together.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Instant;

/// Warm-up appends of each producer.
const WARM: u64 = 20_000;

/// What parent and children share.
#[repr(C)]
struct Page {
    go: AtomicU64,
    ready: AtomicU64,
    finished: AtomicU64,
    nanos: [AtomicU64; 8],
}

/// Forks `producers` children, each with an appender of its own, and returns the mean nanoseconds of an append.
/// Every producer goes on until all have been timed. `consume` runs in the parent: it sets up, calls the first
/// argument once producers may start, and drains until the second says that they are done.
pub fn race(
    producers: u64,
    count: u64,
    producer: impl Fn(u64) -> Box<dyn FnMut()>,
    consume: impl FnOnce(&dyn Fn(), &dyn Fn() -> bool),
) -> f64 {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping; zeros are a valid page; it lives to the end of the process.
    let page = unsafe { &*libc::mmap(std::ptr::null_mut(), 4096, prot, flags, -1, 0).cast::<Page>() };
    let mut pids = Vec::new();
    for i in 0..producers {
        // SAFETY: this process has one thread; the child leaves by _exit.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(page, i, producers, count, &producer)));
            page.finished.fetch_add(u64::from(ran.is_err()) * 100, SeqCst);
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(i32::from(ran.is_err())) };
        }
        pids.push(pid);
    }
    let running = || page.finished.load(SeqCst) < producers;
    consume(&|| page.go.store(1, SeqCst), &running);
    let mut ok = true;
    for pid in pids {
        let mut status = 0;
        // SAFETY: a child made above.
        ok &= unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid && status == 0;
    }
    assert!(ok, "a producer failed");
    (0..producers as usize).map(|i| page.nanos[i].load(SeqCst) as f64 / count as f64).sum::<f64>() / producers as f64
}

fn run(page: &Page, i: u64, producers: u64, count: u64, producer: &impl Fn(u64) -> Box<dyn FnMut()>) {
    while page.go.load(SeqCst) == 0 {
        std::thread::yield_now();
    }
    let mut append = producer(i);
    (0..WARM).for_each(|_| append());
    page.ready.fetch_add(1, SeqCst);
    while page.ready.load(SeqCst) < producers {
        append();
    }
    let start = Instant::now();
    (0..count).for_each(|_| append());
    page.nanos[i as usize].store(start.elapsed().as_nanos() as u64, SeqCst);
    page.finished.fetch_add(1, SeqCst);
    while page.finished.load(SeqCst) < producers {
        append();
    }
}

/// For producers without a consumer.
pub fn alone(go: &dyn Fn(), running: &dyn Fn() -> bool) {
    go();
    while running() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
