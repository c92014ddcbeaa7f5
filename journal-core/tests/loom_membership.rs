//! Models of the decision word, the barrier, the failed set and the blobs: every interleaving that loom finds.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p journal-core --test loom_membership --target-dir target/loom`
#![cfg(loom)]

use journal_core::membership::barrier::{BarrierPlace, Barriers};
use journal_core::membership::blob::{AREAS_BYTES, Blobs};
use journal_core::membership::decision::{DecisionPlace, Decisions, SeqCstFence, StoreScanFence, Strided};
use journal_core::membership::failed::FailedSlots;
use journal_core::membership::seat::Seats;
use journal_core::membership::{
    BarrierOutcome, BlobScope, Cause, CommitOutcome, Decision, DecisionState, Epoch, FailedSet, Failure, Incarnation,
    ProposeOutcome, Rank, RankSet, Stage, Step, Verdict, VoteOutcome,
};
use journal_core::sync::HeapWords;
use loom::sync::Arc;
use loom::thread;

/// What a mutant has in place of the fence.
struct NoFence;

impl StoreScanFence for NoFence {
    fn store_scan() {}
}

const FIRST: Incarnation = Incarnation(0);

fn place(nranks: u32) -> DecisionPlace {
    let n = u64::from(nranks) * 8;
    let of = |i| Strided { base: 8 + i * n, stride: 8 };
    DecisionPlace {
        nranks,
        word: 0,
        votes: of(0),
        commits: of(1),
        seats: Seats(of(2)),
        slots: FailedSlots { base: 8 + 3 * n, nranks },
    }
}

/// A job of `nranks` at its start.
fn job(nranks: u32) -> Arc<HeapWords> {
    let bytes = 8 + 3 * u64::from(nranks) * 8 + (u64::from(nranks) + 1) * 2 * u64::from(nranks) * 8;
    let words = Arc::new(HeapWords::zeroed(bytes));
    Decisions::new(&*words, place(nranks)).init();
    words
}

fn died(rank: u32) -> FailedSet {
    [Failure { rank: Rank(rank), incarnation: FIRST, cause: Cause::Died }].into_iter().collect()
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

fn two_last_votes<F: StoreScanFence>() {
    model(|| {
        let words = job(2);
        let other = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                Decisions::<_, F>::with_fence(&*words, place(2)).vote(Rank(1), FIRST, Epoch(0), Step(0))
            })
        };
        let decisions = Decisions::<_, F>::with_fence(&*words, place(2));
        let mine = decisions.vote(Rank(0), FIRST, Epoch(0), Step(0));
        let theirs = other.join().unwrap();
        assert_eq!(decisions.load().state, DecisionState::Go, "both last voters missed each other");
        assert_eq!([mine, theirs].iter().filter(|outcome| **outcome == VoteOutcome::Went).count(), 1);
    });
}

#[test]
fn the_last_two_voters_never_miss_each_other() {
    two_last_votes::<SeqCstFence>();
}

#[test]
#[should_panic(expected = "both last voters missed each other")]
fn without_the_fence_the_last_two_voters_can_miss_each_other() {
    two_last_votes::<NoFence>();
}

#[test]
fn a_step_never_has_both_go_and_a_failure_before_go() {
    model(|| {
        let words = job(2);
        let voter = |rank| {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                let decisions = Decisions::new(&*words, place(2));
                let vote = decisions.vote(Rank(rank), FIRST, Epoch(0), Step(0));
                (vote, decisions.verdict(Epoch(0), Step(0)))
            })
        };
        let (first, second) = (voter(0), voter(1));
        let decisions = Decisions::new(&*words, place(2));
        let won = match decisions.propose(2, Epoch(0), &died(1)).unwrap() {
            ProposeOutcome::Won(now) => now,
            ProposeOutcome::Lost(now) => panic!("nobody else proposes, found {now}"),
        };
        let seen = [first.join().unwrap(), second.join().unwrap()];
        assert_eq!(decisions.load(), won, "nothing moves a proposed epoch but a proposal or the recovery");
        let go = won.state == DecisionState::FailedGo;
        for (vote, verdict) in seen {
            match verdict {
                Some(Verdict::Go) => assert!(go, "a voter saw GO in a step that failed before GO"),
                Some(Verdict::Moved(now)) => assert!(!go && now == won),
                None => {}
            }
            assert!(vote != VoteOutcome::Went || go);
        }
        // After the proposal every voter gets the same verdict.
        let verdict = decisions.verdict(Epoch(0), Step(0)).unwrap();
        assert_eq!(verdict == Verdict::Go, go);
        assert_eq!(decisions.failed_set(&won), Ok(died(1)));
        assert_eq!(decisions.reopen(Epoch(1)), Ok((Step(u32::from(go)), true)));
    });
}

fn two_last_commits<F: StoreScanFence>() {
    model(|| {
        let words = job(2);
        let decisions = Decisions::<_, F>::with_fence(&*words, place(2));
        for rank in 0..2 {
            decisions.vote(Rank(rank), FIRST, Epoch(0), Step(0));
        }
        let other = {
            let words = Arc::clone(&words);
            thread::spawn(move || Decisions::<_, F>::with_fence(&*words, place(2)).commit(Rank(1), Step(0)))
        };
        let mine = decisions.commit(Rank(0), Step(0));
        let theirs = other.join().unwrap();
        let now = decisions.load();
        assert_eq!((now.step, now.state), (Step(1), DecisionState::Open), "both last committers missed each other");
        let opened = [mine, theirs].iter().filter(|outcome| **outcome == Ok(CommitOutcome::Opened)).count();
        assert_eq!(opened, 1);
    });
}

#[test]
fn the_last_two_committers_never_miss_each_other() {
    two_last_commits::<SeqCstFence>();
}

#[test]
#[should_panic(expected = "both last committers missed each other")]
fn without_the_fence_the_last_two_committers_can_miss_each_other() {
    two_last_commits::<NoFence>();
}

#[test]
fn a_failure_among_commits_resumes_after_the_step_that_went() {
    model(|| {
        let words = job(2);
        let decisions = Decisions::new(&*words, place(2));
        for rank in 0..2 {
            decisions.vote(Rank(rank), FIRST, Epoch(0), Step(0));
        }
        let committer = |rank| {
            let words = Arc::clone(&words);
            thread::spawn(move || Decisions::new(&*words, place(2)).commit(Rank(rank), Step(0)))
        };
        let (first, second) = (committer(0), committer(1));
        let ProposeOutcome::Won(won) = decisions.propose(2, Epoch(0), &died(1)).unwrap() else { panic!("alone") };
        for commit in [first.join().unwrap(), second.join().unwrap()] {
            match won.state {
                // Step 1 was open before the failure: both had committed and one had opened it.
                DecisionState::FailedOpen => assert!(commit.is_ok()),
                _ => assert_eq!(commit, Ok(CommitOutcome::Marked)),
            }
        }
        assert!(decisions.missing_commits(Step(0), &RankSet::all(2)).is_empty());
        assert_eq!(won.resume_step(), Step(1), "step 0 went and is never redone: {won}");
    });
}

#[test]
fn whoever_waits_for_commits_sees_that_of_a_step_opened_before_the_failure() {
    model(|| {
        let words = job(1);
        let decisions = Decisions::new(&*words, place(1));
        decisions.vote(Rank(0), FIRST, Epoch(0), Step(0));
        let committer = {
            let words = Arc::clone(&words);
            thread::spawn(move || Decisions::new(&*words, place(1)).commit(Rank(0), Step(0)).unwrap())
        };
        let ProposeOutcome::Won(won) = decisions.propose(1, Epoch(0), &died(0)).unwrap() else { panic!("alone") };
        let missing = decisions.missing_commits(Step(0), &RankSet::all(1));
        let outcome = committer.join().unwrap();
        if won.state == DecisionState::FailedOpen {
            assert!(missing.is_empty());
            assert_eq!(outcome, CommitOutcome::Opened);
        } else {
            assert_eq!(outcome, CommitOutcome::Marked);
        }
    });
}

#[test]
fn of_two_proposals_one_wins_and_its_set_is_what_everybody_reads() {
    model(|| {
        let words = job(2);
        let proposer = |slot: u16, set: FailedSet| {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                let won = Decisions::new(&*words, place(2)).propose(slot, Epoch(0), &set).unwrap();
                (matches!(won, ProposeOutcome::Won(_)), set)
            })
        };
        let both: FailedSet = died(0).iter().chain(died(1).iter()).collect();
        let (first, second) = (proposer(0, both), proposer(1, died(0)));
        let decisions = Decisions::new(&*words, place(2));
        let early = decisions.load();
        let read = decisions.failed_set(&early);
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        assert!(first.0 != second.0, "exactly one wins");
        let winner = if first.0 { first.1 } else { second.1 };
        match read {
            Ok(set) if early.epoch == Epoch(1) => assert_eq!(set, winner),
            Ok(set) => assert!(set.is_empty()),
            Err(now) => assert_eq!(now.epoch, Epoch(1)),
        }
    });
}

#[test]
fn a_reader_never_takes_the_set_of_a_later_epoch_for_its_own() {
    model(|| {
        let words = job(2);
        let decisions = Decisions::new(&*words, place(2));
        decisions.propose(0, Epoch(0), &died(1)).unwrap();
        let reader = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                let decisions = Decisions::new(&*words, place(2));
                let now = decisions.load();
                (now.epoch, decisions.failed_set(&now))
            })
        };
        // Epoch 2 is another rank's, epoch 3 uses the slot and parity of epoch 1 again.
        decisions.propose(1, Epoch(1), &died(0)).unwrap();
        let both: FailedSet = died(0).iter().chain(died(1).iter()).collect();
        decisions.propose(0, Epoch(2), &both).unwrap();
        let (epoch, read) = reader.join().unwrap();
        if let Ok(set) = read {
            assert_eq!(set, [died(1), died(0), both][usize::from(epoch.0) - 1]);
        }
    });
}

/// Only stage 0 is used, so only its outcome has a word.
const BARRIER: BarrierPlace = BarrierPlace { arrivals: Strided { base: 0, stride: 8 }, outcomes: 16 };
const BARRIER_BYTES: u64 = 24;

fn two_last_arrivals<F: StoreScanFence>() {
    model(|| {
        let words = Arc::new(HeapWords::zeroed(BARRIER_BYTES));
        let all = RankSet::all(2);
        let other = {
            let (words, all) = (Arc::clone(&words), all.clone());
            thread::spawn(move || {
                Barriers::<_, F>::with_fence(&*words, BARRIER).arrive(Rank(1), Epoch(1), Stage(0), false, &all)
            })
        };
        let barriers = Barriers::<_, F>::with_fence(&*words, BARRIER);
        let mine = barriers.arrive(Rank(0), Epoch(1), Stage(0), true, &all);
        let theirs = other.join().unwrap();
        let outcome = barriers.outcome(Epoch(1), Stage(0));
        assert_eq!(outcome, Some(BarrierOutcome::Failed(Rank(1))), "both last arrivals missed each other");
        assert!(mine != theirs, "exactly one decides");
    });
}

#[test]
fn the_last_two_arrivals_never_miss_each_other() {
    two_last_arrivals::<SeqCstFence>();
}

#[test]
#[should_panic(expected = "both last arrivals missed each other")]
fn without_the_fence_the_last_two_arrivals_can_miss_each_other() {
    two_last_arrivals::<NoFence>();
}

#[test]
fn a_participant_that_gives_up_and_one_that_arrives_see_the_same_outcome() {
    model(|| {
        let words = Arc::new(HeapWords::zeroed(BARRIER_BYTES));
        let all = RankSet::all(2);
        let late = {
            let (words, all) = (Arc::clone(&words), all.clone());
            thread::spawn(move || {
                let barriers = Barriers::new(&*words, BARRIER);
                barriers.arrive(Rank(1), Epoch(1), Stage(0), true, &all);
                barriers.outcome(Epoch(1), Stage(0))
            })
        };
        let barriers = Barriers::new(&*words, BARRIER);
        barriers.arrive(Rank(0), Epoch(1), Stage(0), true, &all);
        let (stands, _) = barriers.give_up(Epoch(1), Stage(0), Rank(1));
        let seen = late.join().unwrap();
        assert!(seen.is_none() || seen == stands, "{seen:?} and {stands:?}");
        assert_eq!(barriers.outcome(Epoch(1), Stage(0)), stands);
    });
}

const AREAS: Strided = Strided { base: 0, stride: AREAS_BYTES };

#[test]
fn a_blob_is_found_whole_or_not_at_all() {
    model(|| {
        let words = Arc::new(HeapWords::zeroed(AREAS_BYTES));
        let writer = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                assert!(Blobs::new(&*words, AREAS, 1).publish(Rank(0), BlobScope::Permanent, "k", b"0123456789").unwrap());
            })
        };
        let found = Blobs::new(&*words, AREAS, 1).find(BlobScope::Permanent, "k");
        assert!(found.is_none_or(|(_, bytes)| bytes == b"0123456789"));
        writer.join().unwrap();
    });
}

#[test]
fn a_blob_of_an_epoch_is_not_found_in_the_next_use_of_its_area() {
    model(|| {
        let words = Arc::new(HeapWords::zeroed(AREAS_BYTES));
        let scope = |epoch| BlobScope::Epoch(Epoch(epoch));
        assert!(Blobs::new(&*words, AREAS, 1).publish(Rank(0), scope(1), "k", b"first").unwrap());
        let writer = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                assert!(Blobs::new(&*words, AREAS, 1).publish(Rank(0), scope(3), "k", b"third").unwrap());
            })
        };
        let blobs = Blobs::new(&*words, AREAS, 1);
        assert!(blobs.find(scope(1), "k").is_none_or(|(_, bytes)| bytes == b"first"));
        assert!(blobs.find(scope(3), "k").is_none_or(|(_, bytes)| bytes == b"third"));
        writer.join().unwrap();
    });
}

#[test]
fn the_start_of_a_job_is_open_at_step_zero() {
    model(|| assert_eq!(Decisions::new(&*job(1), place(1)).load(), Decision::START));
}
