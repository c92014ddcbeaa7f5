//! What members of one process tell each other: votes, barriers, seats, blobs, the end.

use std::time::{Duration, Instant};

use journal_core::membership::*;

use crate::processes::*;

/// A job whose ranks are all members in this process.
fn local_job(test: &str, nranks: u32) -> (ShmMembership, Vec<ShmMembership>, Unlink) {
    let name = job_name(test);
    let unlink = Unlink(name.clone());
    let launcher = ShmMembership::create(&options(&name, nranks)).unwrap();
    let members = (0..nranks)
        .map(Rank)
        .map(|rank| {
            let (incarnation, token) = launcher.allocate(rank).unwrap();
            ShmMembership::join(&name, rank, incarnation, token).unwrap()
        })
        .collect();
    (launcher, members, unlink)
}

const AT_ONCE: Duration = Duration::ZERO;

#[test]
fn a_seat_is_given_only_to_the_process_it_was_allocated_to() {
    let (launcher, members, unlink) = local_job("seats", 2);
    let job = &unlink.0;
    let first = Incarnation(0);
    assert!(matches!(ShmMembership::join(job, Rank(0), first, 1).unwrap_err(), MembershipError::Access { .. }));
    assert!(matches!(ShmMembership::join(job, Rank(7), first, 1).unwrap_err(), MembershipError::InvalidArgument { .. }));
    assert!(matches!(ShmMembership::join(job, Rank(0), Incarnation(1), 1).unwrap_err(), MembershipError::Access { .. }));
    // A new process for rank 1: its holder is declared dead first, and learns of it.
    let (incarnation, token) = launcher.allocate(Rank(1)).unwrap();
    assert_eq!((incarnation, launcher.decision().epoch), (Incarnation(1), Epoch(1)));
    assert!(matches!(members[1].check().unwrap_err(), MembershipError::Evicted { .. }));
    assert!(matches!(ShmMembership::join(job, Rank(1), first, token).unwrap_err(), MembershipError::Evicted { .. }));
    let replacement = ShmMembership::join(job, Rank(1), incarnation, token).unwrap();
    replacement.check().unwrap();
    assert!(matches!(
        ShmMembership::join(job, Rank(1), incarnation, token).unwrap_err(),
        MembershipError::Access { .. }
    ));
    assert_eq!(launcher.identity(Rank(1), incarnation), Some(Identity::own().unwrap()));
    assert!(matches!(members[0].allocate(Rank(1)).unwrap_err(), MembershipError::WrongRole { .. }));
}

#[test]
fn a_forked_child_may_not_act_as_its_parent() {
    let mut job = Job::start("fork", 1, "fork");
    assert_eq!(job.ranks[0].wait(), 0);
}

#[test]
fn steps_go_on_by_votes_and_commits_and_a_failure_redoes_the_open_one() {
    let (launcher, members, _unlink) = local_job("steps", 3);
    for step in (0..5).map(Step) {
        for member in &members {
            member.vote(Epoch(0), step).unwrap();
        }
        for member in &members {
            assert_eq!(member.await_verdict(Epoch(0), step, watchdog()).unwrap(), Verdict::Go);
            member.commit(step).unwrap();
        }
        assert_eq!(launcher.decision().step, step.next());
    }
    // Two of three have voted for step 5 when the third loses its device.
    members[0].vote(Epoch(0), Step(5)).unwrap();
    members[1].vote(Epoch(0), Step(5)).unwrap();
    let timeout = members[0].await_verdict(Epoch(0), Step(5), Instant::now() + AT_ONCE).unwrap_err();
    assert!(matches!(&timeout, MembershipError::Timeout { missing, .. } if *missing == [Rank(2)]), "{timeout}");
    let lost = Failure { rank: Rank(2), incarnation: Incarnation(0), cause: Cause::DeviceLost };
    let now = members[2].report_failures(&[lost]).unwrap();
    assert_eq!((now.epoch, now.state), (Epoch(1), DecisionState::FailedOpen));
    assert_eq!(members[0].await_verdict(Epoch(0), Step(5), watchdog()).unwrap(), Verdict::Moved(now));
    members[2].check().expect("a rank whose device is lost lives on");
    assert_eq!(members[2].report_failures(&[lost]).unwrap(), now, "known already");
    // Its recovery fails once more: the set is kept in the next epoch.
    let again = members[2].propose(Epoch(1), &[]).unwrap();
    let ProposeOutcome::Won(now) = again else { panic!("{again:?}") };
    assert_eq!(members[1].failed_set(&now).unwrap().of(Rank(2)), Some(lost));
    assert!(matches!(members[0].reopen(Epoch(1)).unwrap_err(), MembershipError::Moved { .. }));
    assert_eq!(members[0].reopen(Epoch(2)).unwrap(), Step(5));
    assert_eq!(members[1].reopen(Epoch(2)).unwrap(), Step(5));
    // Votes of epoch 0 do not count in epoch 2.
    assert_eq!(members[2].vote(Epoch(2), Step(5)).unwrap(), VoteOutcome::Counted);
    assert_eq!(members[1].vote(Epoch(2), Step(5)).unwrap(), VoteOutcome::Counted);
    assert_eq!(members[0].vote(Epoch(2), Step(5)).unwrap(), VoteOutcome::Went);
    let wrong = members[0].commit(Step(4)).unwrap_err();
    assert!(matches!(wrong, MembershipError::WrongState { .. }), "{wrong}");
}

#[test]
fn a_failure_after_go_waits_for_the_commits_and_resumes_with_the_next_step() {
    let (launcher, members, _unlink) = local_job("after-go", 3);
    for member in &members {
        member.vote(Epoch(0), Step(0)).unwrap();
    }
    members[0].commit(Step(0)).unwrap();
    let died = Failure { rank: Rank(2), incarnation: Incarnation(0), cause: Cause::Died };
    let now = launcher.report_failures(&[died]).unwrap();
    assert_eq!(now.state, DecisionState::FailedGo);
    let survivors = launcher.failed_set(&now).unwrap().survivors(3);
    let timeout = members[0].await_commits(Epoch(1), Step(0), &survivors, Instant::now() + AT_ONCE).unwrap_err();
    assert!(matches!(&timeout, MembershipError::Timeout { missing, .. } if *missing == [Rank(1)]), "{timeout}");
    assert_eq!(members[1].await_verdict(Epoch(0), Step(0), watchdog()).unwrap(), Verdict::Go, "GO beats doomed");
    assert_eq!(members[1].commit(Step(0)).unwrap(), CommitOutcome::Marked);
    members[0].await_commits(Epoch(1), Step(0), &survivors, watchdog()).unwrap();
    assert!(matches!(members[2].commit(Step(0)).unwrap_err(), MembershipError::Evicted { .. }));
    assert_eq!(members[0].reopen(Epoch(1)).unwrap(), Step(1));
}

#[test]
fn a_barrier_gives_all_the_same_outcome_and_names_who_is_missing() {
    let (launcher, members, _unlink) = local_job("barrier", 3);
    let all = RankSet::all(3);
    let meet = |stage: u16, ok: [bool; 3]| -> Vec<Result<(), MembershipError>> {
        let (members, all) = (&members, &all);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|i| scope.spawn(move || members[i].barrier(Epoch(0), Stage(stage), ok[i], all, watchdog())))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    };
    assert!(meet(0, [true; 3]).iter().all(Result::is_ok));
    for result in meet(1, [true, false, false]) {
        let error = result.unwrap_err();
        assert!(matches!(error, MembershipError::StageFailed { rank: Rank(1), arrived: true, .. }), "{error}");
    }
    let error = members[0].barrier(Epoch(0), Stage(2), true, &all, Instant::now() + AT_ONCE).unwrap_err();
    assert!(matches!(&error, MembershipError::Timeout { missing, .. } if *missing == [Rank(1), Rank(2)]), "{error}");
    assert!(error.to_string().contains("missing: rank 1 and 2"), "{error}");
    let late = members[1].barrier(Epoch(0), Stage(2), true, &all, watchdog()).unwrap_err();
    assert!(matches!(late, MembershipError::StageFailed { arrived: false, .. }), "{late}");
    // A moved epoch breaks it for those who wait.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| members[0].barrier(Epoch(0), Stage(3), true, &all, watchdog()));
        let died = Failure { rank: Rank(2), incarnation: Incarnation(0), cause: Cause::Died };
        launcher.report_failures(&[died]).unwrap();
        assert!(waiting.join().unwrap().unwrap_err().is_moved());
    });
    let outside = members[0].barrier(Epoch(1), Stage(64), true, &all, watchdog()).unwrap_err();
    assert!(matches!(outside, MembershipError::InvalidArgument { .. }));
}

#[test]
fn blobs_reach_whoever_waits_and_those_of_an_old_epoch_nobody() {
    let (launcher, members, _unlink) = local_job("blobs", 2);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| members[1].await_blob(BlobScope::Permanent, "uid", watchdog()).unwrap());
        members[0].publish(BlobScope::Permanent, "uid", b"abc").unwrap();
        assert_eq!(waiting.join().unwrap(), b"abc");
    });
    members[0].publish(BlobScope::Epoch(Epoch(0)), "uid", b"old").unwrap();
    let lost = Failure { rank: Rank(0), incarnation: Incarnation(0), cause: Cause::DeviceLost };
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| members[1].await_blob(BlobScope::Epoch(Epoch(0)), "never", watchdog()));
        members[0].report_failures(&[lost]).unwrap();
        waiting.join().unwrap()
    });
    assert!(waiting.unwrap_err().is_moved());
    assert!(members[0].publish(BlobScope::Epoch(Epoch(0)), "late", b"x").unwrap_err().is_moved());
    let scope = BlobScope::Epoch(Epoch(1));
    let timeout = members[1].await_blob(scope, "uid", Instant::now() + AT_ONCE).unwrap_err();
    assert!(matches!(timeout, MembershipError::Timeout { .. }), "{timeout}");
    assert_eq!(launcher.find_blob(BlobScope::Permanent, "uid").unwrap().as_deref(), Some(&b"abc"[..]));
}

#[test]
fn the_end_reaches_everybody_with_its_first_code() {
    let (launcher, members, _unlink) = local_job("end", 2);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| members[1].await_blob(BlobScope::Permanent, "never", watchdog()));
        members[0].end(3);
        launcher.end(9);
        assert!(matches!(waiting.join().unwrap().unwrap_err(), MembershipError::Ended { code: 3 }));
    });
    assert_eq!(launcher.end_code(), Some(3));
    assert!(matches!(members[0].vote(Epoch(0), Step(0)).unwrap_err(), MembershipError::Ended { code: 3 }));
    assert!(launcher.decision().is_ended());
}

#[test]
fn the_last_commit_after_a_recovery_completes_its_report() {
    let (launcher, members, _unlink) = local_job("report", 2);
    let lost = Failure { rank: Rank(1), incarnation: Incarnation(0), cause: Cause::DeviceLost };
    members[1].note_kill_time();
    let epoch = members[1].report_failures(&[lost]).unwrap().epoch;
    for (member, bytes) in members.iter().zip([0, 100]) {
        let share = Contribution { restored_bytes: bytes, donor: Some(Rank(0)), ..Default::default() };
        member.contribute(epoch, &share).unwrap();
    }
    let resumed_step = members[0].reopen(epoch).unwrap();
    let gathered = launcher.gather_contributions(epoch);
    let started_ns = members[0].take_kill_time_ns(Rank(1)).unwrap();
    assert_eq!(members[0].take_kill_time_ns(Rank(1)), None);
    members[0]
        .write_report(&RecoveryReport {
            epoch,
            failed: Vec::new(),
            failed_total: 1,
            strategy: JobStrategy::Reinit,
            times: gathered.times,
            started_ns,
            from_kill: true,
            total_ns: None,
            resumed_step,
            replayed_requests: gathered.replayed_requests,
            donor: gathered.donor,
            restored_bytes: gathered.restored_bytes,
            outcome: RecoveryOutcome::Recovered,
        })
        .unwrap();
    assert_eq!(launcher.reports()[0].total_ns, None);
    for member in &members {
        member.vote(epoch, resumed_step).unwrap();
    }
    for member in &members {
        member.commit(resumed_step).unwrap();
    }
    let report = &launcher.reports()[0];
    assert!(report.total_ns.is_some_and(|total| total > 0));
    assert_eq!((report.restored_bytes, report.donor), (100, Some(Rank(0))));
}
