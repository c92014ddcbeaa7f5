//! Processes that are killed, stopped, or end.

use journal_core::membership::{
    BlobScope, Cause, DecisionState, FailedSet, Failure, Incarnation, LauncherState, Membership, Rank, SeatState,
    ShmMembership,
};

use crate::processes::*;

/// Waits until survivors alone (the launcher says nothing) have proposed exactly `expected`.
fn wait_for_failed(job: &Job, expected: &FailedSet) {
    job.wait_until("the survivors to propose the dead ranks", |launcher| {
        let now = launcher.decision();
        now.is_failed() && launcher.failed_set(&now).is_ok_and(|set| set == *expected)
    });
}

fn death(job: &Job, rank: Rank) -> Failure {
    Failure { rank, incarnation: job.launcher.seat(rank).incarnation, cause: Cause::Died }
}

#[test]
fn survivors_see_every_random_kill_and_the_job_reopens_each_time() {
    const RANKS: u32 = 6;
    const ROUNDS: u32 = 200;
    let mut random = Random::new();
    let mut job = Job::start("rounds", RANKS, "recover");
    for round in 0..ROUNDS {
        // One, often two at once, sometimes all but one.
        let deaths = [1, 1, 2, 2, 3, RANKS - 1][random.below(6) as usize];
        let mut victims: Vec<Rank> = (0..RANKS).map(Rank).collect();
        while victims.len() > deaths as usize {
            victims.remove(random.below(victims.len() as u32) as usize);
        }
        let mut failed: FailedSet = victims.iter().map(|rank| death(&job, *rank)).collect();
        victims.iter().for_each(|rank| job.ranks[rank.index()].kill());
        wait_for_failed(&job, &failed);
        if deaths < RANKS - 1 && random.below(3) == 0 {
            // Another one while the first are being recovered from.
            let alive: Vec<Rank> = (0..RANKS).map(Rank).filter(|rank| !victims.contains(rank)).collect();
            let second = alive[random.below(alive.len() as u32) as usize];
            failed.add(death(&job, second));
            job.ranks[second.index()].kill();
            victims.push(second);
            wait_for_failed(&job, &failed);
        }
        let now = job.launcher.decision();
        for rank in failed.survivors(RANKS).iter() {
            job.wait_until("every survivor to see the failed set", |launcher| {
                let seen = launcher.find_blob_of(rank, BlobScope::Epoch(now.epoch), "seen").unwrap();
                seen.is_some_and(|text| text == seen_text(&failed).as_bytes())
            });
        }
        for rank in &victims {
            assert_eq!(job.launcher.seat(*rank).state, SeatState::Dead, "round {round}");
            job.replace(*rank);
        }
        if random.below(4) == 0 {
            // A replacement that dies early: before it holds its mutex only the launcher can know.
            let rank = victims[0];
            let incarnation = job.launcher.seat(rank).incarnation;
            job.ranks[rank.index()].kill();
            let status = job.ranks[rank.index()].wait();
            assert!(job.launcher.process_exited(rank, incarnation, status).unwrap());
            assert_eq!(job.launcher.exit_evidence(rank, incarnation).unwrap().signal(), Some(libc::SIGKILL));
            job.replace(rank);
        }
        job.wait_until("the job to reopen", |launcher| {
            launcher.decision().state == DecisionState::Open && launcher.seats().iter().all(|seat| seat.state.is_held())
        });
    }
    job.launcher.end(0);
    for process in &mut job.ranks {
        assert_eq!(process.wait(), 0);
    }
}

#[test]
fn an_exit_without_leaving_is_a_death_and_leaving_is_not() {
    let mut job = Job::start("exits", 3, "exit");
    // Input ends: rank 1 exits with code 0 while the others hold on.
    drop(job.ranks[1].0.stdin.take());
    let failed = [death(&job, Rank(1))].into_iter().collect();
    wait_for_failed(&job, &failed);
    let status = job.ranks[1].wait();
    assert!(job.launcher.process_exited(Rank(1), Incarnation(0), status).unwrap());
    assert_eq!(job.launcher.exit_evidence(Rank(1), Incarnation(0)).unwrap().code(), Some(0));

    let mut job = Job::start("leaves", 3, "leave");
    drop(job.ranks[1].0.stdin.take());
    let status = job.ranks[1].wait();
    assert_eq!(status, 0);
    assert!(!job.launcher.process_exited(Rank(1), Incarnation(0), status).unwrap());
    assert_eq!(job.launcher.seat(Rank(1)).state, SeatState::Left);
    // The ring closes over the rank that left: the next death is still seen.
    job.ranks[2].kill();
    wait_for_failed(&job, &[death(&job, Rank(2))].into_iter().collect());
}

#[test]
fn the_launcher_proposes_for_a_job_of_one_rank() {
    let mut job = Job::start("single", 1, "recover");
    job.ranks[0].kill();
    let status = job.ranks[0].wait();
    assert!(job.launcher.process_exited(Rank(0), Incarnation(0), status).unwrap());
    let now = job.launcher.decision();
    assert_eq!((now.state, now.slot), (DecisionState::FailedOpen, 1));
    job.replace(Rank(0));
    job.wait_until("the job to reopen", |launcher| launcher.decision().state == DecisionState::Open);
}

#[test]
fn a_stopped_process_that_was_declared_hung_is_evicted_at_its_next_write() {
    let mut job = Job::start("stopped", 3, "recover");
    let hung = Failure { rank: Rank(1), incarnation: Incarnation(0), cause: Cause::Hung };
    job.ranks[1].signal(libc::SIGSTOP);
    let now = job.launcher.report_failures(&[hung]).unwrap();
    assert_eq!(job.launcher.failed_set(&now).unwrap(), [hung].into_iter().collect());
    assert_eq!(job.launcher.seat(Rank(1)).state, SeatState::Dead);
    for rank in [Rank(0), Rank(2)] {
        job.wait_until("the others to see it", |launcher| launcher.acknowledged(rank) == Some(now.epoch));
    }
    assert_ne!(job.launcher.acknowledged(Rank(1)), Some(now.epoch));
    job.ranks[1].signal(libc::SIGCONT);
    let status = job.ranks[1].wait();
    assert_eq!(status, EVICTED_EXIT << 8);
    // Its end is known already and starts no further epoch.
    job.launcher.process_exited(Rank(1), Incarnation(0), status).unwrap();
    assert_eq!(job.launcher.decision().epoch, now.epoch);
}

#[test]
fn ranks_see_that_their_launcher_died_and_run_on() {
    let name = job_name("launcher");
    let _unlink = Unlink(name.clone());
    let mut launcher = Process::start("launcher", &name, Rank(0), Incarnation(0), 0);
    let tokens: Vec<u64> = launcher.line_after("tokens:").split(',').map(|token| token.parse().unwrap()).collect();
    let _ranks: Vec<Process> = (0..2)
        .map(|rank| Process::start("recover", &name, Rank(rank), Incarnation(0), tokens[rank as usize]))
        .collect();
    let observer = ShmMembership::open(&name).unwrap();
    wait_until(&observer, "both ranks to join", |observer| observer.seats().iter().all(|seat| seat.state.is_held()));
    assert_eq!(observer.launcher().0.pid, launcher.0.id());
    assert_eq!(observer.launcher().1, LauncherState::Alive);
    launcher.kill();
    wait_until(&observer, "the launcher's death to be seen", |observer| observer.launcher().1 == LauncherState::Gone);
    assert_eq!(observer.decision().epoch.0, 0, "the job runs on until the next failure");
    assert!(observer.seats().iter().all(|seat| seat.state.is_held()));
    observer.end(5);
}

#[test]
fn a_writer_killed_anywhere_in_a_publication_leaves_only_whole_blobs() {
    let mut random = Random::new();
    for round in 0..60 {
        let mut job = Job::start(&format!("torn{round}"), 1, "publish");
        let last = random.below(14);
        job.wait_until("some blobs", |launcher| {
            launcher.find_blob(BlobScope::Permanent, &format!("k{last}")).unwrap().is_some()
        });
        job.ranks[0].kill();
        let status = job.ranks[0].wait();
        let found: Vec<Option<Vec<u8>>> = (0..20)
            .map(|i| job.launcher.find_blob(BlobScope::Permanent, &format!("k{i}")).unwrap())
            .collect();
        let count = found.iter().flatten().count() as u32;
        assert!(count > last, "what was seen before the kill is gone");
        for (i, blob) in (0..count).zip(&found) {
            assert_eq!(blob.as_deref(), Some(&*blob_of(i)), "round {round}: what is there is whole and a prefix");
        }
        // The next process of the rank goes on in the same area, behind what its predecessor left.
        job.launcher.process_exited(Rank(0), Incarnation(0), status).unwrap();
        job.replace(Rank(0));
        job.wait_until("the replacement", |launcher| {
            launcher.find_blob(BlobScope::Permanent, &format!("k{}", (last + 1).min(13))).unwrap().is_some()
        });
    }
}
