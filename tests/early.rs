//! A rank that is killed while the kernel takes its time to end it: only its main thread is held at its exit (by ptrace),
//! so its mutex tells the death and the process cannot be reaped.

mod support;

use journal_core::membership::{Incarnation, Membership, Rank, Seat, SeatState, ShmMembership};
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};
use support::{Running, job_name, rejoin, segments};

/// A thread of another process, held when it exits. Let go when the tracing thread ends, at the latest.
struct HeldAtExit(libc::pid_t);

impl HeldAtExit {
    fn seize(pid: u32) -> Self {
        let pid = pid.cast_signed();
        // SAFETY: changes nothing in this process; the other one is a descendant, which may be traced.
        let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, libc::PTRACE_O_TRACEEXIT) };
        assert_eq!(seized, 0, "{}", std::io::Error::last_os_error());
        Self(pid)
    }

    /// Waits until it is at its exit.
    fn wait(&self) {
        until("the killed process to be at its exit", || {
            let mut status = 0;
            // SAFETY: writes the status of a traced thread.
            let waited = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL | libc::WNOHANG) };
            waited == self.0 && status >> 8 == libc::SIGTRAP | libc::PTRACE_EVENT_EXIT << 8
        });
    }

    fn let_go(self) {
        // SAFETY: a stopped thread that this one traces.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0, 0) }, 0);
    }
}

fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let watchdog = Instant::now() + Duration::from_secs(support::WATCHDOG_S as u64);
    while !ready() {
        assert!(Instant::now() < watchdog, "waited for {what}");
        std::thread::yield_now();
    }
}

#[test]
fn the_replacement_of_a_killed_rank_joins_before_its_exit_and_nobody_goes_on_before_it() {
    let name = job_name("early");
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_rejoin")).parent().expect("target folder");
    let mut command = rejoin();
    command.args(["run", "-n", "4", "--backend", "host", "--job", &name, "--"]);
    let mut running = Running::start(command.arg(folder.join("grid")).args(["--steps", "4000000000"]));
    let mut members = None;
    until("the job to run", || {
        members = ShmMembership::open_read_only("/dev/shm".as_ref(), &name).ok();
        members.as_ref().is_some_and(|members| members.setup_complete() && members.decision().step.0 >= 3)
    });
    let members = members.expect("the segment");
    for life in 0..2 {
        let (old, new) = (Incarnation(life), Incarnation(life + 1));
        let pid = members.identity(Rank(1), old).expect("joined").pid;
        let held = HeldAtExit::seize(pid);
        kill_process(Pid::from_raw(pid.cast_signed()).expect("a pid"), Signal::KILL).expect("a rank of this test");
        held.wait();
        until("the replacement to join", || members.seat(Rank(1)) == Seat { incarnation: new, state: SeatState::Joined });
        assert_eq!(members.exit_evidence(Rank(1), old), None, "it has not been reaped");
        assert_eq!(members.exiting_predecessor(Rank(1), new), Some(old));
        assert!(members.decision().is_failed(), "nobody goes on without the proof");
        held.let_go();
        running.wait_for_stderr("rank 1 died (SIGKILL)");
        running.wait_for_stderr("replacement of rank 1 started");
        running.wait_for_stderr("recovered");
        let evidence = members.exit_evidence(Rank(1), old).expect("proven");
        assert_eq!(evidence.signal(), Some(9), "recorded for the process that it belongs to");
        assert_eq!(members.exit_evidence(Rank(1), new), None);
    }
    running.signal(Signal::INT);
    running.finish().expect_code(130);
    assert_eq!(segments(&name), [""; 0]);
}
