//! Programs that use a session wrongly, or die where they should not: the rank of each test is this very test binary.

mod support;

use journal_core::Error;
use journal_core::backend::DevicePtr;
use journal_core::membership::{Incarnation, Seat, SeatState, ShmMembership};
use journal_core::handle::VirtualHandle;
use journal_core::nccl::clique::VirtualUniqueId;
use journal_core::nccl::{CommConfig, DataType, ReduceOp};
use journal_core::session::{Decided, Session, SessionOptions, StateKind};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Running, job_name, rejoin, run, segments, wait_for_end};

const FLOATS: u64 = 16;

/// A rank of one communicator and one replicated buffer.
struct Rank {
    session: Session,
    communicator: VirtualHandle,
    stream: VirtualHandle,
    buffer: DevicePtr,
    sum: DevicePtr,
}

impl Rank {
    fn open() -> Self {
        let session = Session::open(SessionOptions::from_env().expect("under rejoin run")).expect("session");
        let own = (session.rank().0 == 0).then(|| session.nccl_unique_id().expect("id"));
        let id = session.exchange("id", own.as_ref().map(|id| id.0.as_slice())).expect("exchanged");
        let id = VirtualUniqueId(id.as_slice().try_into().expect("128 bytes"));
        let communicator = session.comm_init_rank(session.nranks(), &id, session.rank().0, &CommConfig::default()).expect("communicator");
        let stream = session.stream_create(0, 0).expect("stream");
        let new = |name: &str, kind| {
            let buffer = session.mem_alloc(4 * FLOATS).expect("memory");
            session.memcpy_htod(buffer, &[0; 4 * FLOATS as usize]).expect("zeroed");
            session.state_register(name, buffer, 4 * FLOATS, kind, Some(communicator)).expect("registered");
            buffer
        };
        let (buffer, sum) = (new("parameters", StateKind::Replicated), new("sum", StateKind::Scratch));
        Self { session, communicator, stream, buffer, sum }
    }

    fn all_reduce(&self) -> Result<(), Error> {
        self.session.all_reduce(self.sum, self.sum, FLOATS, DataType::Float32, ReduceOp::Sum, self.communicator, self.stream)
    }

    /// Steps until the last one; `before` each of them.
    fn steps(&self, last: u32, before: impl Fn(u32)) {
        self.steps_with(last, before, |_| ());
    }

    /// The same with something between the decision and the commit.
    fn steps_with(&self, last: u32, before: impl Fn(u32), decided: impl Fn(u32)) {
        let mut step = self.session.setup_done().expect("set up").step;
        while step < last {
            before(step);
            match self.step(step, &decided) {
                Ok(()) => step += 1,
                Err(error) if error.is_redo() => step = self.session.resume().expect("resumed").step,
                Err(error) => panic!("step {step}: {error}"),
            }
        }
    }

    fn step(&self, step: u32, decided: impl Fn(u32)) -> Result<(), Error> {
        self.session.step_begin(step)?;
        self.all_reduce()?;
        if self.session.step_end(&[])? == Decided::Redo {
            return Err(Error::Redo);
        }
        decided(step);
        self.session.memcpy_dtod(self.buffer, self.sum, 4 * FLOATS)?;
        self.session.step_commit()
    }
}

/// Leaves a file that tells the others, where a test has given a folder for it.
fn mark(what: &str) {
    let number = |name| std::env::var(name).expect("under rejoin run").parse().expect("a number");
    if let Some(path) = mark_path(what, number("REJOIN_RANK"), number("REJOIN_INCARNATION")) {
        std::fs::write(path, b"").expect("marked");
    }
}

fn mark_path(what: &str, rank: u32, incarnation: u32) -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("TEST_MARKS")?).join(format!("{what}.{rank}.{incarnation}")))
}

fn marked(what: &str, rank: u32, incarnation: u32) -> bool {
    mark_path(what, rank, incarnation).expect("TEST_MARKS").exists()
}

fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let watchdog = Instant::now() + Duration::from_secs(support::WATCHDOG_S as u64 / 2);
    while !ready() {
        assert!(Instant::now() < watchdog, "waited for {what}");
        std::thread::yield_now();
    }
}

fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    unreachable!("SIGKILL cannot be survived")
}

/// What a rank does, by the name that the test gives in its environment.
#[test]
#[ignore = "the rank of the other tests"]
fn rank() {
    let role = std::env::var("TEST_ROLE").expect("a role");
    let rank = Rank::open();
    mark("opened");
    let (number, incarnation) = (rank.session.rank().0, rank.session.incarnation().0);
    match role.as_str() {
        "well" => {
            rank.steps(5, |_| ());
            rank.session.finalize().expect("left");
        }
        "no-collective" => {
            let mut step = rank.session.setup_done().expect("set up").step;
            while step < 5 {
                rank.session.step_begin(step).expect("begun");
                let ended = rank.session.step_end(&[]).and_then(|decided| match decided {
                    Decided::Go => rank.session.step_commit(),
                    Decided::Redo => Err(Error::Redo),
                });
                match ended {
                    Ok(()) => step += 1,
                    Err(error) if error.is_redo() => step = rank.session.resume().expect("resumed").step,
                    Err(error) => panic!("step {step}: {error}"),
                }
            }
            rank.session.finalize().expect("left");
        }
        "exits-without-finalize" => {
            rank.steps(5, |step| {
                if step == 3 && number == 1 && incarnation == 0 {
                    std::process::exit(0);
                }
            });
            rank.session.finalize().expect("left");
        }
        "stays-when-it-is-dead" | "stays-for-ever" => {
            if number != 1 || incarnation != 0 {
                rank.steps(6, |_| ());
                return rank.session.finalize().expect("left");
            }
            rank.steps(3, |_| ());
            // Gives its mutex up like a process that dies, and lives on like one whose exit takes its time.
            drop(rank);
            if role == "stays-for-ever" {
                loop {
                    std::thread::park();
                }
            }
            let job = std::env::var("REJOIN_JOB").expect("a job");
            let members = ShmMembership::open_read_only("/dev/shm".as_ref(), &job).expect("the segment");
            let replacement = Seat { incarnation: Incarnation(1), state: SeatState::Joined };
            until("the replacement to join", || members.seat(journal_core::membership::Rank(1)) == replacement);
            assert_eq!(members.exit_evidence(journal_core::membership::Rank(1), Incarnation(0)), None);
            assert!(!marked("opened", 1, 1), "its session opens after the exit of the process before it");
            std::process::exit(3);
        }
        "dies-in-every-life" => rank.steps(50, |step| {
            if step == 3 + incarnation && number == 1 {
                die();
            }
        }),
        "dies-at-the-same-step" => rank.steps(50, |step| {
            if step == 3 && number == 1 {
                die();
            }
        }),
        "dies-before-set-up" => {
            let mark = std::path::PathBuf::from(std::env::var_os("TEST_MARK").expect("a file"));
            if number == 1 && !mark.exists() {
                std::fs::write(mark, b"").expect("marked");
                die();
            }
            rank.steps(5, |_| ());
            rank.session.finalize().expect("left");
        }
        "gives-other-constants" | "gives-other-constants-of-its-own" => {
            let others = if role.ends_with("own") { None } else { Some(rank.communicator) };
            let constant = rank.session.mem_alloc(4 * FLOATS).expect("memory");
            let content = [7 + incarnation as u8; 4 * FLOATS as usize];
            rank.session.memcpy_htod(constant, &content).expect("filled");
            rank.session.state_register("lookup table", constant, 4 * FLOATS, StateKind::Constant, others).expect("registered");
            rank.steps(6, |step| {
                let mut now = [0; 4 * FLOATS as usize];
                match rank.session.memcpy_dtoh(&mut now, constant) {
                    Ok(()) => assert_eq!(now, [7; 4 * FLOATS as usize], "the content of the first set-up"),
                    // The death was noticed before this rank had begun its step.
                    Err(error) => assert!(error.is_redo(), "{error}"),
                }
                if step == 3 && number == 1 && incarnation == 0 {
                    die();
                }
            });
            rank.session.finalize().expect("left");
        }
        "forgets-a-buffer" => {
            let forgotten = rank.session.mem_alloc(5000).expect("memory");
            match rank.session.setup_done() {
                Ok(_) => {}
                Err(error @ Error::Unregistered { .. }) => {
                    eprintln!("refused: {error}");
                    rank.session.state_register("forgotten", forgotten, 5000, StateKind::Scratch, None).expect("registered");
                    rank.session.setup_done().expect("set up");
                }
                Err(error) => panic!("{error}"),
            }
            rank.session.finalize().expect("left");
        }
        "waits-in-a-step" => {
            rank.steps(6, |step| {
                if step == 3 && number == 1 && incarnation == 0 {
                    loop {
                        std::thread::park();
                    }
                }
            });
            rank.session.finalize().expect("left");
        }
        "waits-before-its-commit" => {
            rank.steps_with(6, |_| (), |step| {
                if step == 3 && number == 1 && incarnation == 0 {
                    loop {
                        std::thread::park();
                    }
                }
            });
            rank.session.finalize().expect("left");
        }
        "stops-in-a-step" => {
            rank.steps(6, |step| {
                if step == 3 && number == 1 && incarnation == 0 {
                    rustix::process::kill_process(rustix::process::getpid(), Signal::STOP).expect("stopped");
                    // The signal may reach another thread first, and this one would go on for a while.
                    loop {
                        std::thread::park();
                    }
                }
            });
            rank.session.finalize().expect("left");
        }
        "all-wait-in-a-step" => rank.steps(6, |step| {
            if step == 3 {
                loop {
                    std::thread::park();
                }
            }
        }),
        "collective-outside-a-step" => {
            rank.session.setup_done().expect("set up");
            let error = rank.all_reduce().expect_err("refused");
            eprintln!("refused: {error}");
            rank.session.finalize().expect("left");
        }
        "waits" => {
            rank.session.setup_done().expect("set up");
            eprintln!("rank-is-ready");
            loop {
                std::thread::park();
            }
        }
        other => panic!("no role {other}"),
    }
}

fn job(name: &str, ranks: u32, role: &str, options: &[&str]) -> Command {
    let mut command = rejoin();
    command.args(["run", "-n", &ranks.to_string(), "--backend", "host", "--job", name]).args(options).arg("--");
    command.arg(std::env::current_exe().expect("this test")).args(["--ignored", "--exact", "rank", "--nocapture"]);
    command.env("TEST_ROLE", role);
    command
}

#[test]
fn a_job_whose_ranks_finalize_succeeds_and_leaves_nothing() {
    let name = job_name("well");
    run(&mut job(&name, 3, "well", &[])).expect_code(0);
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn a_planned_fault_comes_in_a_step_without_a_collective_too() {
    let name = job_name("quiet-step");
    let mut command = job(&name, 3, "no-collective", &[]);
    let ended = run(command.env("REJOIN_FAULT", "kill:1@2")).expect_code(0);
    ended.expect_stderr("recovered").expect_stderr("rank 1");
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn a_constant_that_a_new_set_up_gives_differently_comes_from_a_donor_or_ends_the_job_by_name() {
    let name = job_name("constant");
    for strategy in ["reinit", "grow"] {
        let ended = run(&mut job(&name, 3, "gives-other-constants", &["--strategy", strategy]));
        ended.expect_code(0).expect_stderr("recovered");
    }
    let ended = run(&mut job(&name, 3, "gives-other-constants-of-its-own", &[]));
    ended.expect_code(12).expect_stderr("\"lookup table\"");
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn memory_without_a_state_kind_is_refused_with_its_place_or_told() {
    let name = job_name("forgotten");
    let ended = run(&mut job(&name, 2, "forgets-a-buffer", &[])).expect_code(0);
    let ended = ended.expect_stderr("refused: device memory without a state kind").expect_stderr("5000 bytes at 0x4000").expect_stderr("(request ");
    assert!(!ended.stderr.contains("warning"), "{ended:#?}");
    let mut command = job(&name, 2, "forgets-a-buffer", &[]);
    let ended = run(command.env("REJOIN_UNREGISTERED", "warn")).expect_code(0);
    let ended = ended.expect_stderr("warning: rank 1: device memory without a state kind");
    assert!(!ended.stderr.contains("refused: "), "{ended:#?}");
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn replicated_state_with_one_holder_is_told_at_the_start() {
    let name = job_name("single");
    run(&mut job(&name, 1, "well", &[])).expect_code(0).expect_stderr("warning: replicated state \"parameters\" has one holder, rank 0");
    let ended = run(&mut job(&name, 2, "well", &[])).expect_code(0);
    assert!(!ended.stderr.contains("warning"), "{ended:#?}");
}

#[test]
fn exit_without_finalize_is_a_death_and_is_replaced() {
    let name = job_name("silent");
    let ended = run(&mut job(&name, 3, "exits-without-finalize", &[])).expect_code(0);
    ended.expect_stderr("rank 1 ended without finalize (exit code 0) at step 3").expect_stderr("recovered");
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn a_replacement_starts_while_the_dead_process_exits_and_opens_its_session_after_that() {
    let name = job_name("stays");
    let folder = tempfile::tempdir().expect("temporary folder");
    for strategy in ["reinit", "grow"] {
        let mut command = job(&name, 3, "stays-when-it-is-dead", &["--strategy", strategy]);
        let ended = run(command.env("TEST_MARKS", folder.path())).expect_code(0);
        let ended = ended.expect_stderr("rank 1 ended without finalize (exit code 3) at step 3").expect_stderr("recovered");
        assert_eq!(ended.stderr.matches("replacement of rank").count(), 1, "{ended:#?}");
        assert!(folder.path().join("opened.1.1").exists());
        std::fs::remove_file(folder.path().join("opened.1.1")).expect("removed");
    }
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn a_dead_process_that_never_exits_ends_the_job_by_its_name() {
    let name = job_name("lasting");
    let ended = run(&mut job(&name, 3, "stays-for-ever", &["--stage-timeout", "1"])).expect_code(12);
    ended.expect_stderr("no proof within 1000 ms that rank 1 incarnation 0 has exited");
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn deaths_beyond_the_limit_end_the_job_with_its_own_code() {
    let name = job_name("many");
    run(&mut job(&name, 3, "dies-in-every-life", &["--max-recoveries", "2"])).expect_code(10).expect_stderr("--max-recoveries");
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn the_same_rank_twice_in_a_step_ends_the_job() {
    let name = job_name("twice");
    run(&mut job(&name, 3, "dies-at-the-same-step", &[])).expect_code(11).expect_stderr("twice in");
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn a_rank_that_hangs_is_replaced_when_asked_for() {
    let name = job_name("hang");
    for role in ["waits-in-a-step", "waits-before-its-commit"] {
        let ended = run(&mut job(&name, 3, role, &["--hang-timeout", "2"])).expect_code(0);
        let ended = ended.expect_stderr("no progress for 2 s: rank 1 is behind all others").expect_stderr("recovered");
        assert_eq!(ended.stderr.matches("replacement of rank").count(), 1, "nobody else is blamed: {ended:#?}");
    }
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn a_stopped_rank_is_replaced_when_asked_for() {
    let name = job_name("stop");
    let ended = run(&mut job(&name, 3, "stops-in-a-step", &["--hang-timeout", "2", "--strategy", "grow"])).expect_code(0);
    let ended = ended.expect_stderr("rank 1 is stopped").expect_stderr("recovered");
    assert_eq!(ended.stderr.matches("replacement of rank").count(), 1, "nobody else is blamed: {ended:#?}");
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn a_job_that_stands_still_as_a_whole_is_told_and_left_alone() {
    let name = job_name("still");
    let mut running = Running::start(&mut job(&name, 2, "all-wait-in-a-step", &["--hang-timeout", "0.5"]));
    running.wait_for_stderr("no rank is to blame alone");
    running.signal(Signal::INT);
    let ended = running.finish().expect_code(130);
    assert!(!ended.stderr.contains("replacement"), "{ended:#?}");
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn a_death_before_set_up_is_complete_starts_all_ranks_anew() {
    let name = job_name("restart");
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut command = job(&name, 3, "dies-before-set-up", &[]);
    command.env("TEST_MARK", folder.path().join("mark"));
    run(&mut command).expect_code(0).expect_stderr("all ranks are started anew");
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn a_collective_outside_a_step_is_refused_and_nothing_is_lost() {
    let name = job_name("outside");
    let ended = run(&mut job(&name, 2, "collective-outside-a-step", &[])).expect_code(0);
    ended.expect_stderr("refused: ").expect_stderr("step_begin");
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn a_running_job_is_listed_and_a_signal_ends_it() {
    let name = job_name("listed");
    let mut running = Running::start(&mut job(&name, 2, "waits", &[]));
    running.wait_for_stderr("rank-is-ready");
    running.wait_for_stderr("rank-is-ready");
    let listed = run(rejoin().args(["ls", "--format", "json"]));
    let row = listed.stdout.lines().find(|line| line.contains(&name)).expect("listed");
    let row: serde_json::Value = serde_json::from_str(row).expect("json");
    assert_eq!((&row["state"], &row["ranks_alive"], &row["launcher_alive"]), (&"running".into(), &2.into(), &true.into()));
    run(rejoin().args(["recovery", &name])).expect_code(0);
    running.signal(Signal::INT);
    running.finish().expect_code(130);
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn a_name_whose_ranks_outlived_their_launcher_is_refused() {
    let name = job_name("orphans");
    let mut running = Running::start(&mut job(&name, 2, "waits", &[]));
    running.wait_for_stderr("rank-is-ready");
    running.wait_for_stderr("rank-is-ready");
    let row = run(rejoin().args(["ls", "--format", "json"])).stdout;
    assert!(row.contains(&name), "{row}");
    let ranks = ranks_of(&name);
    assert_eq!(ranks.len(), 2);
    running.signal(Signal::KILL);
    drop(running);
    run(&mut job(&name, 2, "well", &[])).expect_code(2).expect_stderr("still runs");
    for pid in ranks {
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid.cast_signed()).expect("pid"), Signal::KILL).expect("a rank");
        wait_for_end(pid);
    }
    run(&mut job(&name, 2, "well", &[])).expect_code(0);
    assert_eq!(segments(&name), [""; 0]);
}

/// Processes that hold a seat of the job.
fn ranks_of(job: &str) -> Vec<u32> {
    use journal_core::membership::{Rank, ShmMembership};
    let membership = ShmMembership::open_read_only(std::path::Path::new("/dev/shm"), job).expect("segment");
    let identity = |rank| Some(membership.identity(Rank(rank), membership.seat(Rank(rank)).incarnation)?.pid);
    (0..membership.options().nranks).filter_map(identity).collect()
}
