//! Threads for calls that finish later. A job may wait for other ranks without limit, so there is always
//! a thread for the next one; idle threads are used again.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

struct Pool {
    waiting: VecDeque<Job>,
    idle: usize,
    process: u32,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { waiting: VecDeque::new(), idle: 0, process: 0 });
static CHANGED: Condvar = Condvar::new();

/// Runs `job` on a thread of the library. Threads are detached: they never hold up process exit.
pub fn spawn(job: impl FnOnce() + Send + 'static) {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if pool.process != process {
        // A forked child has none of its parent's threads.
        *pool = Pool { waiting: VecDeque::new(), idle: 0, process };
    }
    pool.waiting.push_back(Box::new(job));
    if pool.idle >= pool.waiting.len() {
        CHANGED.notify_one();
        return;
    }
    let thread = std::thread::Builder::new().name("hostnccl-job".into()).spawn(work);
    if thread.is_err() {
        // No thread to be had: do it here rather than never.
        if let Some(job) = pool.waiting.pop_back() {
            drop(pool);
            job();
        }
    }
}

fn work() {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        while let Some(job) = pool.waiting.pop_front() {
            drop(pool);
            let _ = std::panic::catch_unwind(core::panic::AssertUnwindSafe(job));
            pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        }
        pool.idle += 1;
        pool = CHANGED.wait(pool).unwrap_or_else(PoisonError::into_inner);
        pool.idle -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier};

    #[test]
    fn every_job_runs_even_when_all_threads_wait() {
        let barrier = Arc::new(Barrier::new(9));
        for _ in 0..8 {
            let barrier = Arc::clone(&barrier);
            spawn(move || {
                barrier.wait();
            });
        }
        barrier.wait();
    }
}
