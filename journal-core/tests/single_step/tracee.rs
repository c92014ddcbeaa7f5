//! A forked child that stops itself before and after an operation, and is stepped in between.

use std::sync::atomic::{AtomicU64, Ordering};

/// A word that parent and child share.
pub struct SharedWord(*mut AtomicU64);

impl SharedWord {
    pub fn new() -> Self {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, prot, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at.cast())
    }

    pub fn get(&self) -> &AtomicU64 {
        // SAFETY: mapped for as long as `self` lives, and only used as an atomic.
        unsafe { &*self.0 }
    }
}

impl Drop for SharedWord {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which nobody refers to any more.
        unsafe { libc::munmap(self.0.cast(), 4096) };
    }
}

/// A traced child. Killed on drop.
pub struct Tracee {
    pid: libc::pid_t,
    gone: bool,
}

/// How a step ended.
pub enum Step {
    Instruction,
    /// The operation is over and acknowledged.
    Done,
}

impl Tracee {
    /// Forks; the child prepares, stops, acts, sets `done` and stops again. Returns at its first stop.
    pub fn start(done: &SharedWord, prepare: impl FnOnce(), act: impl FnOnce()) -> Self {
        done.get().store(0, Ordering::SeqCst);
        // SAFETY: the child runs `prepare` and `act` and leaves by a signal or _exit.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                prepare();
                // SAFETY: the parent traces its child from here on.
                unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
                // SAFETY: stops this process until the tracer goes on.
                unsafe { libc::raise(libc::SIGSTOP) };
                act();
                done.get().store(1, Ordering::SeqCst);
                // SAFETY: as above.
                unsafe { libc::raise(libc::SIGSTOP) };
            }));
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(i32::from(outcome.is_err())) };
        }
        assert!(pid > 0);
        let mut child = Self { pid, gone: false };
        assert_eq!(child.wait(), libc::SIGSTOP, "the child did not get ready");
        child
    }

    pub fn pid(&self) -> u32 {
        self.pid.cast_unsigned()
    }

    /// Executes one instruction.
    pub fn step(&mut self) -> Step {
        // SAFETY: a stopped child that this thread traces.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.pid, 0, 0) }, 0);
        match self.wait() {
            libc::SIGTRAP => Step::Instruction,
            libc::SIGSTOP => Step::Done,
            signal => panic!("the operation raised signal {signal}"),
        }
    }

    /// The signal it stopped with.
    fn wait(&mut self) -> i32 {
        let mut status = 0;
        // SAFETY: waits for a child of this thread.
        assert_eq!(unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) }, self.pid);
        if !libc::WIFSTOPPED(status) {
            self.gone = true;
            panic!("the child ended, status {status:#x}: the operation failed");
        }
        libc::WSTOPSIG(status)
    }

    /// kill -9, and waits until it is gone.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if std::mem::replace(&mut self.gone, true) {
            return;
        }
        // SAFETY: a child of ours that has not been waited for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        let mut status = 0;
        // SAFETY: as above.
        while unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) } == self.pid && !libc::WIFSIGNALED(status) {}
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        self.end();
    }
}
