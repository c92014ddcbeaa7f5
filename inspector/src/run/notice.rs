//! The notice of a death as something that `poll` can wait for: a rank's peers learn of it from the kernel at once,
//! while its process becomes waitable only after its memory, and that of its device, has been taken down.

use anyhow::Context;
use journal_core::membership::{Membership, ShmMembership};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bound of a wait: a proposer that dies between its proposal and the wake-up wakes nobody.
const SLICE: Duration = Duration::from_millis(20);

/// A thread that waits for the job's epoch to move.
pub struct DeathNotice {
    receiver: UnixStream,
    membership: Arc<ShmMembership>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DeathNotice {
    /// Waits from now on.
    pub fn create(membership: &Arc<ShmMembership>) -> anyhow::Result<Self> {
        let (receiver, sender) = UnixStream::pair().context("cannot create a socket pair for death notices")?;
        receiver.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (of_thread, stopped) = (Arc::clone(membership), Arc::clone(&stop));
        let body = move || watch(&of_thread, &stopped, &sender);
        let thread = std::thread::Builder::new().name("rejoin-notice".to_owned()).spawn(body).context("cannot start a thread")?;
        Ok(Self { receiver, membership: Arc::clone(membership), stop, thread: Some(thread) })
    }

    /// Becomes readable when the job has entered a recovery, or another one.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }

    /// Takes what was readable.
    pub fn take(&self) {
        let mut bytes = [0; 64];
        while matches!((&self.receiver).read(&mut bytes), Ok(1..)) {}
    }
}

impl Drop for DeathNotice {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.membership.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(membership: &ShmMembership, stop: &AtomicBool, mut sender: &UnixStream) {
    let mut told = None;
    while !stop.load(Ordering::Acquire) {
        let now = membership.decision();
        if now.is_failed() && told != Some(now.epoch) {
            told = Some(now.epoch);
            // Full: then it is readable already.
            let _ = sender.write(&[1]);
        }
        membership.wait_for_epoch(now, Instant::now() + SLICE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal_core::membership::{Cause, Failure, Incarnation, JobOptions, JobPolicy, JobStrategy, Rank};
    use rustix::event::{PollFd, PollFlags, poll};

    #[test]
    fn a_proposal_makes_it_readable_once() {
        let options = JobOptions {
            job: format!("t{}-notice", std::process::id()),
            nranks: 2,
            uuid: [5; 16],
            strategy: JobStrategy::Reinit,
            policy: JobPolicy::Redo,
            renumber: false,
            max_recoveries: 1,
            stage_timeout: Duration::from_secs(30),
            hang_timeout: None,
            backend: "host".to_owned(),
        };
        let membership = Arc::new(ShmMembership::create(&options).expect("a job"));
        let (incarnation, _) = membership.allocate(Rank(1)).expect("a seat");
        let notice = DeathNotice::create(&membership).expect("a thread");
        let readable = |limit_s| {
            let mut set = [PollFd::from_borrowed_fd(notice.descriptor(), PollFlags::IN)];
            poll(&mut set, Some(&rustix::time::Timespec { tv_sec: limit_s, tv_nsec: 0 })).expect("poll") == 1
        };
        assert!(!readable(0), "nothing has happened");
        let died = |rank, incarnation| Failure { rank: Rank(rank), incarnation, cause: Cause::Died };
        membership.report_failures(&[died(1, incarnation)]).expect("proposed");
        assert!(readable(60), "the notice came");
        notice.take();
        assert!(!readable(0), "it is told once");
        membership.allocate(Rank(0)).expect("a seat");
        membership.report_failures(&[died(0, Incarnation(0))]).expect("proposed");
        assert!(readable(60), "another death is another notice");
        drop(notice);
        ShmMembership::unlink(&options.job).expect("removed");
    }
}
