//! The process whose place this one takes: it may still be exiting, since a replacement is started at the notice of a
//! death, and the kernel takes device memory away only after that.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::membership::{Incarnation, Membership, Rank, ShmMembership};

/// The earlier processes of a rank, as seen by its newest one.
pub(super) struct Predecessor<'a> {
    membership: &'a ShmMembership,
    rank: Rank,
    incarnation: Incarnation,
    limit: Duration,
}

impl<'a> Predecessor<'a> {
    /// Of the process that has joined as `incarnation` of `rank`.
    pub(super) fn of(membership: &'a ShmMembership, rank: Rank, incarnation: Incarnation) -> Self {
        Self { membership, rank, incarnation, limit: membership.options().stage_timeout }
    }

    fn exiting(&self) -> Option<Incarnation> {
        self.membership.exiting_predecessor(self.rank, self.incarnation)
    }

    /// Does `open`, which takes little of the device, beside the exit. Where that fails (a device that allows one
    /// process only, or that has no room left), it is done again after the exit.
    pub(super) fn open_beside<T>(&self, open: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        let exiting = self.exiting();
        match open() {
            Err(error) if exiting.is_some() => {
                tracing::debug!(%error, "tried again when the process before this one has exited");
                self.await_exit()?;
                open()
            }
            outcome => outcome,
        }
    }

    /// Returns when the launcher has recorded how each of them ended.
    pub(super) fn await_exit(&self) -> Result<(), Error> {
        let deadline = Instant::now() + self.limit;
        loop {
            let seen = self.membership.event();
            let Some(exiting) = self.exiting() else { return Ok(()) };
            self.membership.check()?;
            if !self.membership.wait(seen, deadline) {
                return Err(Error::Timeout {
                    what: format!("the exit of rank {} incarnation {exiting}, whose device this process takes over", self.rank),
                    limit_ms: u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX),
                    missing: vec![self.rank.0],
                });
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::membership::{JobOptions, JobPolicy, JobStrategy};
    use core::cell::Cell;

    /// A job of one rank whose second process has joined while the first has not been seen to exit.
    struct Job {
        launcher: ShmMembership,
        member: ShmMembership,
    }

    impl Job {
        fn create(name: &str, stage_timeout: Duration) -> Self {
            let options = JobOptions {
                job: format!("t{}-{name}", std::process::id()),
                nranks: 1,
                uuid: [3; 16],
                strategy: JobStrategy::Reinit,
                policy: JobPolicy::Redo,
                renumber: false,
                max_recoveries: 1,
                stage_timeout,
                hang_timeout: None,
                backend: "host".to_owned(),
            };
            let launcher = ShmMembership::create(&options).expect("a job");
            launcher.allocate(Rank(0)).expect("the first seat");
            let (incarnation, token) = launcher.allocate(Rank(0)).expect("the seat of a replacement");
            let member = ShmMembership::join(&options.job, Rank(0), incarnation, token).expect("joined");
            Self { launcher, member }
        }

        fn predecessor(&self) -> Predecessor<'_> {
            Predecessor::of(&self.member, Rank(0), Incarnation(1))
        }

        fn first_exits(&self) {
            assert!(self.launcher.process_exited(Rank(0), Incarnation(0), 9).expect("recorded"));
        }
    }

    impl Drop for Job {
        fn drop(&mut self) {
            let _ = ShmMembership::unlink(&self.launcher.options().job);
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_replacement_waits_until_its_predecessor_is_proven_to_have_exited() {
        let job = Job::create("awaits", LONG);
        let epoch = job.launcher.decision().epoch;
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| job.predecessor().await_exit());
            job.first_exits();
            waiting.join().expect("no panic").expect("the exit is proven");
        });
        assert_eq!(job.launcher.decision().epoch, epoch, "an exit that follows a known death is no other death");
        job.member.check().expect("the replacement is not touched by it");
    }

    #[test]
    fn a_predecessor_that_does_not_exit_is_named_after_the_deadline() {
        let job = Job::create("stuck", Duration::from_millis(20));
        let error = job.predecessor().await_exit().expect_err("no proof").to_string();
        assert!(error.contains("rank 0 incarnation 0"), "{error}");
    }

    #[test]
    fn the_end_of_the_job_ends_the_wait() {
        let job = Job::create("ended", LONG);
        job.launcher.end(10);
        assert!(matches!(job.predecessor().await_exit(), Err(Error::Ended { .. })));
    }

    #[test]
    fn a_device_that_cannot_be_opened_beside_the_predecessor_is_opened_after_it() {
        let job = Job::create("beside", LONG);
        let tries = Cell::new(0);
        let open = || {
            tries.set(tries.get() + 1);
            if tries.get() == 1 {
                job.first_exits();
                return Err(Error::Unsupported { what: "a second process".to_owned() });
            }
            Ok(tries.get())
        };
        assert_eq!(job.predecessor().open_beside(open).expect("opened"), 2);
        // Once it is gone, an error is one.
        let fails = || Err::<(), _>(Error::Unsupported { what: "no device".to_owned() });
        assert!(matches!(job.predecessor().open_beside(fails), Err(Error::Unsupported { .. })));
    }
}
