//! The segment itself: creation, reading, damage.

use std::path::Path;

use journal_core::journal::SegmentError;
use journal_core::membership::*;

use crate::processes::*;

#[test]
fn what_the_launcher_fixed_is_what_everybody_reads() {
    let mut given = options(&job_name("options"), 5);
    given.strategy = JobStrategy::NewRank;
    given.policy = JobPolicy::Replay;
    given.renumber = true;
    given.hang_timeout = Some(std::time::Duration::from_millis(1500));
    given.backend = "x".repeat(64);
    let _unlink = Unlink(given.job.clone());
    let launcher = ShmMembership::create(&given).unwrap();
    let observer = ShmMembership::open_read_only(Path::new("/dev/shm"), &given.job).unwrap();
    assert_eq!((launcher.options(), observer.options()), (&given, &given));
    assert_eq!(observer.launcher(), (Identity::own().unwrap(), LauncherState::Alive));
    assert!(matches!(ShmMembership::create(&given).unwrap_err(), MembershipError::Segment(SegmentError::Exists { .. })));
    assert!(!observer.setup_complete() && observer.end_code().is_none());
    for (nranks, backend) in [(0, "host"), (MAX_RANKS + 1, "host"), (1, &*"y".repeat(65))] {
        let bad = JobOptions { nranks, backend: backend.to_owned(), ..options(&job_name("bad"), 1) };
        assert!(matches!(ShmMembership::create(&bad).unwrap_err(), MembershipError::InvalidArgument { .. }));
    }
}

#[test]
fn a_reader_cannot_write_and_a_writer_that_is_no_member_cannot_act_as_one() {
    let name = job_name("roles");
    let _unlink = Unlink(name.clone());
    let launcher = ShmMembership::create(&options(&name, 2)).unwrap();
    let reader = ShmMembership::open_read_only(Path::new("/dev/shm"), &name).unwrap();
    let failure = Failure { rank: Rank(0), incarnation: Incarnation(0), cause: Cause::Died };
    let refused = [
        reader.vote(Epoch(0), Step(0)).map(|_| ()).unwrap_err(),
        reader.report_failures(&[failure]).map(|_| ()).unwrap_err(),
        reader.allocate(Rank(0)).map(|_| ()).unwrap_err(),
        reader.publish(BlobScope::Permanent, "k", b"").unwrap_err(),
        launcher.commit(Step(0)).map(|_| ()).unwrap_err(),
    ];
    for error in refused {
        assert!(matches!(error, MembershipError::WrongRole { .. }), "{error}");
    }
    reader.end(1);
    assert!(reader.scan().is_empty() && reader.take_kill_time_ns(Rank(0)).is_none());
    assert!(!launcher.decision().is_ended());
}

/// A copy of a segment in a folder of its own.
fn copied(job: &str, bytes: &[u8]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(format!("rejoin.{job}.members")), bytes).unwrap();
    dir
}

fn image(job: &str) -> Vec<u8> {
    std::fs::read(format!("/dev/shm/rejoin.{job}.members")).unwrap()
}

#[test]
fn a_changed_byte_anywhere_in_the_header_is_refused() {
    let name = job_name("header");
    let _unlink = Unlink(name.clone());
    let _launcher = ShmMembership::create(&options(&name, 2)).unwrap();
    let good = image(&name);
    let dir = copied(&name, &good);
    ShmMembership::open_read_only(dir.path(), &name).unwrap();
    for at in 0..0x200 {
        let mut bad = good[..].to_vec();
        bad[at] ^= 1 << (at % 8);
        let dir = copied(&name, &bad);
        match ShmMembership::open_read_only(dir.path(), &name) {
            Err(MembershipError::Segment(
                SegmentError::Corrupt { .. } | SegmentError::Version { .. } | SegmentError::Layout { .. },
            )) => {}
            other => panic!("byte {at:#x}: {other:?}"),
        }
    }
    for len in [0, 8, 0x1ff, 0x200, 0x1000, good.len() - 4096] {
        let dir = copied(&name, &good[..len]);
        assert!(ShmMembership::open_read_only(dir.path(), &name).is_err(), "{len} bytes");
    }
}

#[test]
fn readers_survive_any_bytes_behind_the_header() {
    let name = job_name("noise");
    let _unlink = Unlink(name.clone());
    let _launcher = ShmMembership::create(&options(&name, 3)).unwrap();
    let good = image(&name);
    let mut random = Random::new();
    for round in 0..40 {
        let mut bad = good.clone();
        // Dense noise, sparse noise, all ones.
        for byte in &mut bad[0x200..] {
            match round % 4 {
                0 => *byte = random.below(256) as u8,
                1 if random.below(50) == 0 => *byte ^= random.below(256) as u8,
                2 if random.below(9) == 0 => *byte = [0, 1, 2, 0xff][random.below(4) as usize],
                3 => *byte = 0xff,
                _ => {}
            }
        }
        let dir = copied(&name, &bad);
        let reader = ShmMembership::open_read_only(dir.path(), &name).unwrap();
        let now = reader.decision();
        let _ = (now.to_string(), reader.failed_set(&now), reader.seats(), reader.launcher());
        let _ = (reader.cliques(), reader.find_clique(&[3; 16]), reader.reports(), reader.end_code());
        for rank in (0..3).map(Rank) {
            let _ = (reader.acknowledged(rank), reader.kill_time_ns(rank), reader.committed(rank, Step(1)));
            for incarnation in (0..4).map(Incarnation) {
                let _ = (reader.identity(rank, incarnation), reader.exit_evidence(rank, incarnation));
            }
            for scope in [BlobScope::Permanent, BlobScope::Epoch(Epoch(0)), BlobScope::Epoch(Epoch(255))] {
                let _ = reader.find_blob_of(rank, scope, "");
                let _ = reader.find_blob_of(rank, scope, "k1");
            }
        }
        let _ = (reader.gather_contributions(Epoch(1)), reader.missing_votes(Epoch(0), Step(0)));
    }
}

#[test]
fn a_clique_registered_by_two_members_is_one() {
    let name = job_name("cliques");
    let _unlink = Unlink(name.clone());
    let launcher = ShmMembership::create(&options(&name, 2)).unwrap();
    let members: Vec<ShmMembership> = (0..2)
        .map(|rank| {
            let (incarnation, token) = launcher.allocate(Rank(rank)).unwrap();
            ShmMembership::join(&name, Rank(rank), incarnation, token).unwrap()
        })
        .collect();
    let world = CliqueDescription { key: [5; 16], kind: CliqueKind::Root, nranks: 2, config: vec![1, 2, 3] };
    // Communicator ranks need not be job ranks.
    assert_eq!(members[0].register_clique(&world, 1).unwrap(), 0);
    assert!(!launcher.cliques().unwrap()[0].is_complete());
    assert_eq!(members[1].register_clique(&world, 0).unwrap(), 0);
    let clique = launcher.find_clique(&[5; 16]).unwrap().unwrap();
    assert!(clique.is_complete());
    assert_eq!((clique.rank_of(Rank(0)), clique.rank_of(Rank(1))), (Some(1), Some(0)));
    assert_eq!(clique.description, world);
}

#[test]
fn the_largest_job_has_room_for_all_its_ranks() {
    let name = job_name("largest");
    let _unlink = Unlink(name.clone());
    let launcher = ShmMembership::create(&options(&name, MAX_RANKS)).unwrap();
    let last = Rank(MAX_RANKS - 1);
    let (incarnation, token) = launcher.allocate(last).unwrap();
    let member = ShmMembership::join(&name, last, incarnation, token).unwrap();
    member.publish(BlobScope::Permanent, "k", b"last").unwrap();
    assert_eq!(launcher.find_blob(BlobScope::Permanent, "k").unwrap().as_deref(), Some(&b"last"[..]));
    let failures: Vec<Failure> = launcher
        .seats()
        .iter()
        .zip((0..).map(Rank))
        .filter(|(seat, _)| seat.state.is_held())
        .map(|(seat, rank)| Failure { rank, incarnation: seat.incarnation, cause: Cause::DeviceLost })
        .collect();
    let now = launcher.report_failures(&failures).unwrap();
    // The launcher's slot comes after that of the last rank.
    assert_eq!(u32::from(now.slot), MAX_RANKS);
    assert_eq!(member.failed_set(&now).unwrap().iter().collect::<Vec<_>>(), failures);
}
