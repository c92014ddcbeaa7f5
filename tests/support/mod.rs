//! What tests of whole processes share: `rejoin` started under a watchdog, and a look at /dev/shm.
#![allow(dead_code)]

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use rustix::time::Timespec;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Far above what any test needs: a job that hangs is ended and reported.
pub const WATCHDOG_S: i64 = 120;

/// The binary under test.
pub fn rejoin() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rejoin"));
    for variable in ["REJOIN_BACKEND", "REJOIN_DIR", "REJOIN_JOB", "REJOIN_RANK", "REJOIN_FAULT"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// A job name that no other test uses.
pub fn job_name(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Files of a job in /dev/shm, temporary ones included.
pub fn segments(job: &str) -> Vec<String> {
    let (published, temporary) = (format!("rejoin.{job}."), format!(".rejoin.{job}."));
    let names = std::fs::read_dir("/dev/shm").expect("/dev/shm").filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&published) || name.starts_with(&temporary)).collect()
}

/// What a process ended with.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Checks the exit code; shows all output if it is another.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        self
    }

    /// Checks that stderr says something.
    #[track_caller]
    pub fn expect_stderr(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "`{text}` is missing in {self:#?}");
        self
    }
}

/// Runs to the end, or to the watchdog.
#[track_caller]
pub fn run(command: &mut Command) -> Ended {
    Running::start(command).finish()
}

/// A process under the watchdog. Killed when dropped.
pub struct Running {
    child: Child,
    pidfd: OwnedFd,
    stderr: BufReader<ChildStderr>,
    seen: String,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("pidfd");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        Self { child, pidfd, stderr, seen: String::new() }
    }

    /// Reads stderr until a line contains `text`.
    #[track_caller]
    pub fn wait_for_stderr(&mut self, text: &str) {
        loop {
            let mut line = String::new();
            if self.stderr.buffer().is_empty() {
                wait_readable(self.stderr.get_ref(), &format!("`{text}` on stderr after {:?}", self.seen));
            }
            let bytes = self.stderr.read_line(&mut line).expect("stderr");
            assert!(bytes > 0, "the process ended without `{text}`: {:?}", self.seen);
            self.seen.push_str(&line);
            if line.contains(text) {
                return;
            }
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signalled");
    }

    #[track_caller]
    pub fn finish(mut self) -> Ended {
        let stdout = self.child.stdout.take().expect("piped");
        // Both pipes are emptied at once, so that the process is never stopped by a full one.
        let stdout = std::thread::spawn(move || {
            let mut text = String::new();
            BufReader::new(stdout).read_to_string(&mut text).map(|_| text)
        });
        wait_readable(&self.pidfd, "the process to exit");
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).expect("stderr");
        let status = self.child.wait().expect("reaped");
        let stderr = std::mem::take(&mut self.seen) + &rest;
        Ended { status, stdout: stdout.join().expect("reader").expect("stdout"), stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn wait_readable(fd: &impl std::os::fd::AsFd, what: &str) {
    let limit = Timespec { tv_sec: WATCHDOG_S, tv_nsec: 0 };
    let mut set = [PollFd::new(fd, PollFlags::IN)];
    let ready = rustix::io::retry_on_intr(|| poll(&mut set, Some(&limit))).expect("poll");
    assert_eq!(ready, 1, "waited {WATCHDOG_S} s for {what}");
}

/// Waits until a process that is no child of this one is gone.
#[track_caller]
pub fn wait_for_end(pid: u32) {
    let raw = Pid::from_raw(pid.cast_signed()).expect("a process id");
    if let Ok(pidfd) = pidfd_open(raw, PidfdFlags::empty()) {
        wait_readable(&pidfd, &format!("pid {pid} to end"));
    }
}

/// Process ids that a script wrote, one a line.
pub fn pids(path: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}
