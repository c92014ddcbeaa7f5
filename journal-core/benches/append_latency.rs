//! How long single appends of 64 B take, one writer and two: median, 99th percentile and worst, by the time stamp counter.
//!
//! The two reads of the counter are included; what they take alone is printed beside. Checks what it wrote first.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod measured {
    use std::sync::Barrier;
    use std::time::{Duration, Instant};

    use journal_core::journal::{Journal, JournalOptions, Region};

    const APPENDS: usize = 400_000;
    const RUNS: usize = 7;
    /// Well below a journal of 64 MiB.
    const PER_STEP: usize = 100_000;

    fn ticks() -> u64 {
        // SAFETY: reads a counter.
        unsafe { core::arch::x86_64::_rdtsc() }
    }

    fn ticks_per_ns() -> f64 {
        let (start, from) = (Instant::now(), ticks());
        while start.elapsed() < Duration::from_millis(50) {}
        (ticks() - from) as f64 / start.elapsed().as_nanos() as f64
    }

    fn appends(journal: &Journal, ends_steps: bool) -> Vec<u64> {
        let payload = [7; 64];
        let mut taken = Vec::with_capacity(APPENDS);
        for i in 0..APPENDS {
            let from = ticks();
            let appended = journal.append(Region::Step, 1, 0, &[&payload]);
            let to = ticks();
            appended.expect("steps are ended in time");
            taken.push(to - from);
            if ends_steps && i % PER_STEP == PER_STEP - 1 {
                journal.step_commit((i / PER_STEP) as u32).expect("nobody holds the lock");
            }
        }
        taken.sort_unstable();
        taken
    }

    fn run(writers: usize) -> Vec<u64> {
        let name = format!("bench-latency-{}-{writers}", std::process::id());
        let options = JournalOptions { capacity_bytes: 256 << 20, ..JournalOptions::new(name, 0, 0) };
        let journal = Journal::create(&options).expect("256 MiB of /dev/shm");
        let start = Barrier::new(writers);
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let (journal, start) = (&journal, &start);
            let threads: Vec<_> = (0..writers)
                .map(|_| {
                    scope.spawn(move || {
                        journal.append(Region::Setup, 1, 0, &[]).expect("a lane");
                        start.wait();
                        appends(journal, writers == 1)
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        let snapshot = journal.snapshot();
        journal.unlink().expect("its own name");
        assert!(snapshot.is_whole() && snapshot.limit.0 as usize == writers * (APPENDS + 1) + 1);
        all.sort_unstable();
        all
    }

    pub fn main() {
        let per_ns = ticks_per_ns();
        let at = |all: &[u64], share: f64| all[((all.len() - 1) as f64 * share) as usize] as f64 / per_ns;
        let pair = || {
            let from = ticks();
            ticks() - from
        };
        let mut empty: Vec<u64> = (0..APPENDS).map(|_| pair()).collect();
        empty.sort_unstable();
        println!("the counter alone: median {:.0} ns, p99 {:.0} ns", at(&empty, 0.5), at(&empty, 0.99));
        for writers in [1, 2] {
            let mut runs: Vec<[f64; 4]> = (0..RUNS)
                .map(|_| run(writers))
                .map(|all| [at(&all, 0.5), at(&all, 0.99), at(&all, 0.999), at(&all, 1.0)])
                .collect();
            runs.sort_by(|a, b| a[1].total_cmp(&b[1]));
            for (what, run) in [("least", runs[0]), ("median", runs[RUNS / 2])] {
                let [median, p99, p999, worst] = run;
                println!("{writers} writers, {what} run by p99: median {median:.0}, p99 {p99:.0}, p99.9 {p999:.0}, worst {worst:.0} ns");
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn main() {
    measured::main();
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("measured on x86-64 only");
}
