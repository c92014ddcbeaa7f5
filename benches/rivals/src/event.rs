//! The futex doorbell beside raw_sync's Event: latency, and what a killed waiter does to the next `set`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use raw_sync::Timeout;
use raw_sync::events::{Event, EventImpl, EventInit, EventState};

const ROUNDS: u32 = 20_000;
/// A `set` that takes longer has hung: it is a few instructions.
const HUNG: Duration = Duration::from_secs(5);

fn shared() -> *mut u8 {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping that lives as long as the process.
    unsafe { libc::mmap(std::ptr::null_mut(), 4096, prot, flags, -1, 0) }.cast()
}

/// Forks a child that runs `work` and leaves.
fn child(work: impl FnOnce()) -> libc::pid_t {
    // SAFETY: one thread; the child leaves by _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        work();
        // SAFETY: ends the child without exit handlers.
        unsafe { libc::_exit(0) };
    }
    pid
}

/// Whether the child ends within [`HUNG`]; it is killed if not.
fn ends(pid: libc::pid_t) -> bool {
    let start = Instant::now();
    loop {
        // SAFETY: our child.
        if unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) } == pid {
            return true;
        }
        if start.elapsed() > HUNG {
            kill(pid);
            return false;
        }
        std::thread::yield_now();
    }
}

fn kill(pid: libc::pid_t) {
    // SAFETY: our child.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    // SAFETY: as above.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

fn asleep(pid: libc::pid_t) {
    let start = Instant::now();
    while !std::fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|at| at.contains("futex")) {
        assert!(start.elapsed() < HUNG, "the waiter does not fall asleep");
        std::thread::yield_now();
    }
}

/// Kills one waiter, then lets others wait and be woken.
fn goes_on(wait: &dyn Fn(), wake: &dyn Fn()) -> bool {
    let victim = child(wait);
    asleep(victim);
    kill(victim);
    (0..20).all(|_| {
        let waiter = child(wait);
        asleep(waiter);
        let mut woken = false;
        // A wake-up may go to the dead waiter: a second one may not.
        for _ in 0..2 {
            if !woken {
                if !ends(child(wake)) {
                    kill(waiter);
                    return false;
                }
                let start = Instant::now();
                while !woken && start.elapsed() < Duration::from_millis(200) {
                    // SAFETY: our child.
                    woken = unsafe { libc::waitpid(waiter, std::ptr::null_mut(), libc::WNOHANG) } == waiter;
                    std::thread::yield_now();
                }
            }
        }
        if !woken {
            kill(waiter);
        }
        woken
    })
}

fn futex(word: &AtomicU32, op: i32, value: u32) {
    let limit = libc::timespec { tv_sec: 1, tv_nsec: 0 };
    // SAFETY: the word is mapped; the limit outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, value, &raw const limit, 0, 0) };
}

fn wait(word: &AtomicU32, below: u32) {
    loop {
        let now = word.load(Ordering::Acquire);
        if now >= below {
            return;
        }
        futex(word, libc::FUTEX_WAIT, now);
    }
}

fn ring(word: &AtomicU32) {
    word.fetch_add(1, Ordering::Release);
    futex(word, libc::FUTEX_WAKE, i32::MAX as u32);
}

/// Half of a round trip between two processes.
fn per_round(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / f64::from(2 * ROUNDS)
}

pub fn run() {
    // SAFETY: zeroed shared memory, aligned, for the life of the process.
    let words: &[AtomicU32; 64] = unsafe { &*shared().cast() };
    let (ping, pong) = (&words[0], &words[32]);
    let peer = child(|| (1..=ROUNDS).for_each(|i| { wait(ping, i); ring(pong) }));
    let start = Instant::now();
    (1..=ROUNDS).for_each(|i| { ring(ping); wait(pong, i) });
    let doorbell = per_round(start);
    assert!(ends(peer));

    // SAFETY: shared memory large enough, only used by these events.
    let new = || unsafe { Event::new(shared(), true) }.expect("an event").0;
    let (ping, pong) = (new(), new());
    let peer = child(|| (0..ROUNDS).for_each(|_| {
        ping.wait(Timeout::Infinite).expect("set");
        pong.set(EventState::Signaled).expect("set");
    }));
    let start = Instant::now();
    (0..ROUNDS).for_each(|_| {
        ping.set(EventState::Signaled).expect("set");
        pong.wait(Timeout::Infinite).expect("set");
    });
    let event = per_round(start);
    assert!(ends(peer));

    let bell = &words[16];
    let doorbell_goes_on = goes_on(&|| wait(bell, bell.load(Ordering::Acquire) + 1), &|| ring(bell));
    let broken = new();
    let event_goes_on = goes_on(
        &|| broken.wait(Timeout::Infinite).expect("set"),
        &|| broken.set(EventState::Signaled).expect("set"),
    );

    println!("| wake-up of another process | ns one way | 20 waits and wake-ups after a waiter was killed |");
    println!("|---|---:|---|");
    let said = |goes_on| if goes_on { "go on" } else { "hang, or wake nobody" };
    println!("| shared futex (the journal's doorbell) | {doorbell:.0} | {} |", said(doorbell_goes_on));
    println!("| raw_sync 0.1.5 Event | {event:.0} | {} |", said(event_goes_on));
    assert!(doorbell_goes_on, "the doorbell hangs");
}
