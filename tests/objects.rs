//! Objects that a program makes and ends: thousands of them in its set-up, and in the middle of its steps. The ranks of
//! each test are this very test binary.

mod support;

use journal_core::Error;
use journal_core::backend::{DevicePtr, LaunchShape};
use journal_core::handle::VirtualHandle;
use journal_core::journal::JournalReader;
use journal_core::nccl::clique::VirtualUniqueId;
use journal_core::nccl::{CommConfig, DataType, ReduceOp};
use journal_core::session::{Decided, HostSlice, Session, SessionOptions, StateKind};
use std::cell::RefCell;
use std::process::Command;
use support::{Ended, job_name, rejoin, run, segments};

const FLOATS: u64 = 64;
const BYTES: u64 = 4 * FLOATS;
const RANKS: u32 = 3;

/// A rank whose parameters are the sum of what all ranks have given in all steps: one that is lost, given twice or
/// garbled shows at the end.
struct Rank {
    session: Session,
    communicator: VirtualHandle,
    stream: VirtualHandle,
    parameters: DevicePtr,
    sum: DevicePtr,
    of_steps: RefCell<OfSteps>,
}

/// What steps have made and not ended yet.
#[derive(Default)]
struct OfSteps {
    /// Made in one step, used in later ones, ended in another.
    kept: Option<Kept>,
    /// Made in a step, ended in the next one.
    event: Option<VirtualHandle>,
    /// Allocated in a step that was given up.
    memory: Vec<DevicePtr>,
}

#[derive(Clone, Copy)]
struct Kept {
    stream: VirtualHandle,
    module: VirtualHandle,
    add_scaled: VirtualHandle,
}

fn kernels() -> Vec<u8> {
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_rejoin")).parent().expect("target folder");
    let paths = [folder.to_owned(), folder.join("deps")].map(|folder| folder.join("libdigits_kernels.so"));
    paths.iter().find_map(|path| std::fs::read(path).ok()).expect("built with this test")
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
            let buffer = session.mem_alloc(BYTES).expect("memory");
            session.memcpy_htod(buffer, &[0; BYTES as usize]).expect("zeroed");
            session.state_register(name, buffer, BYTES, kind, Some(communicator)).expect("registered");
            buffer
        };
        let (parameters, sum) = (new("parameters", StateKind::Replicated), new("sum", StateKind::Scratch));
        Self { session, communicator, stream, parameters, sum, of_steps: RefCell::default() }
    }

    /// Steps until the last one, then what the parameters are on standard output.
    fn steps(self, last: u32, give: impl Fn(&Self, u32) -> Result<(), Error>, committed: impl Fn(&Self, u32)) {
        let mut step = self.session.setup_done().expect("set up").step;
        while step < last {
            match self.step(step, &give) {
                Ok(()) => {
                    committed(&self, step);
                    step += 1;
                }
                Err(error) if error.is_redo() => {
                    step = self.session.resume().expect("resumed").step;
                    eprintln!("a rank runs a step again");
                }
                Err(error) => panic!("step {step}: {error}"),
            }
        }
        let mut found = [0_u8; BYTES as usize];
        self.session.memcpy_dtoh(&mut found, self.parameters).expect("read");
        println!("rank {} ends with {}", self.session.rank().0, f32::from_le_bytes(found[..4].try_into().expect("4 bytes")));
        assert!(found.chunks(4).all(|value| value == &found[..4]));
        self.session.finalize().expect("left");
    }

    fn step(&self, step: u32, give: impl Fn(&Self, u32) -> Result<(), Error>) -> Result<(), Error> {
        let s = &self.session;
        s.step_begin(step)?;
        give(self, step)?;
        // Once over all ranks.
        if s.rank().0 == 0 {
            self.add(self.sum, self.parameters)?;
        }
        s.all_reduce(self.sum, self.sum, FLOATS, DataType::Float32, ReduceOp::Sum, self.communicator, self.stream)?;
        if s.step_end(&[])? == Decided::Redo {
            return Err(Error::Redo);
        }
        s.memcpy_dtod(self.parameters, self.sum, BYTES)?;
        s.step_commit()
    }

    /// `to += from`, by a module that is loaded for it.
    fn add(&self, to: DevicePtr, from: DevicePtr) -> Result<(), Error> {
        let module = self.session.module_load(&kernels())?;
        let add_scaled = self.session.module_function(module, "add_scaled")?;
        self.launch(add_scaled, self.stream, to, from)?;
        self.session.stream_synchronize(self.stream)?;
        self.session.module_unload(module)
    }

    fn launch(&self, function: VirtualHandle, stream: VirtualHandle, to: DevicePtr, from: DevicePtr) -> Result<(), Error> {
        let params = [to.0.to_le_bytes(), from.0.to_le_bytes(), FLOATS.to_le_bytes()].concat();
        let params = [&params[..], &1_f32.to_le_bytes()].concat();
        self.session.launch(function, LaunchShape { grid: [1; 3], block: [1; 3], shared_bytes: 0 }, stream, &params)
    }

    /// What this rank gives to a step: its rank + 1, and 10 in every third step.
    fn given(&self, step: u32) -> f32 {
        (self.session.rank().0 + 1 + if step.is_multiple_of(3) { 10 } else { 0 }) as f32
    }

    fn give(&self, step: u32) -> Result<(), Error> {
        let values: Vec<u8> = (0..FLOATS).flat_map(|_| self.given(step).to_le_bytes()).collect();
        self.session.memcpy_htod(self.sum, &values)
    }

    /// The same by way of objects that this step and others make and end. It may be run again from any point.
    #[allow(unsafe_code)]
    fn give_by_objects(&self, step: u32) -> Result<(), Error> {
        let s = &self.session;
        let mut own = self.of_steps.borrow_mut();
        while let Some(address) = own.memory.last() {
            s.mem_free(*address)?;
            own.memory.pop();
        }
        if let Some(event) = own.event {
            s.event_destroy(event)?;
            own.event = None;
        }
        let event = s.event_create(2)?;
        own.event = Some(event);
        let kept = match own.kept {
            Some(kept) => kept,
            None => {
                let (stream, module) = (s.stream_create(1, 0)?, s.module_load(&kernels())?);
                let kept = Kept { stream, module, add_scaled: s.module_function(module, "add_scaled")? };
                own.kept = Some(kept);
                kept
            }
        };
        let (once, done) = (s.stream_create(1, 0)?, s.event_create(2)?);
        // A step that is given up may still read it.
        let values = (0..FLOATS).flat_map(|_| self.given(step).to_le_bytes()).collect::<Vec<u8>>().leak();
        // Of different sizes at the same address.
        own.memory.push(s.mem_alloc(8 * BYTES)?);
        s.mem_free(own.memory[0])?;
        own.memory.clear();
        let part = s.mem_alloc(BYTES)?;
        own.memory.push(part);
        // SAFETY: the values live for ever.
        unsafe { s.memcpy_htod_async(part, HostSlice { pointer: values.as_mut_ptr(), bytes: BYTES }, once)? };
        s.event_record(done, once)?;
        s.stream_wait_event(kept.stream, done)?;
        self.launch(kept.add_scaled, kept.stream, self.sum, part)?;
        s.event_record(event, kept.stream)?;
        s.stream_wait_event(self.stream, event)?;
        s.stream_synchronize(self.stream)?;
        s.stream_destroy(once)?;
        s.event_destroy(done)?;
        s.mem_free(part)?;
        own.memory.clear();
        if step % 4 == 2 {
            s.stream_destroy(kept.stream)?;
            s.module_unload(kept.module)?;
            own.kept = None;
        }
        Ok(())
    }

    /// A table of more bytes than the journal holds, which others hold too or not.
    fn upload_large(&self, others: Option<VirtualHandle>) -> DevicePtr {
        let table = self.session.mem_alloc(LARGE).expect("memory");
        self.session.memcpy_htod(table, &large()).expect("uploaded all the same");
        self.session.state_register("large table", table, LARGE, StateKind::Constant, others).expect("registered");
        // One that nothing is left of.
        let staging = self.session.mem_alloc(LARGE).expect("memory");
        self.session.memcpy_htod(staging, &large()).expect("uploaded all the same");
        self.session.mem_free(staging).expect("freed");
        table
    }

    /// Nothing is left of them when the set-up is over.
    fn make_and_end_many(&self) {
        let s = &self.session;
        for round in 0..1500_u32 {
            let event = s.event_create(2).expect("event");
            let buffer = s.mem_alloc(256 * u64::from(1 + round % 7)).expect("memory");
            s.memcpy_htod(buffer, &[round as u8; 200]).expect("uploaded");
            if round % 100 == 0 {
                let stream = s.stream_create(1, 0).expect("stream");
                s.event_record(event, stream).expect("recorded");
                s.stream_synchronize(stream).expect("waited");
                s.stream_destroy(stream).expect("ended");
            }
            s.mem_free(buffer).expect("freed");
            s.event_destroy(event).expect("ended");
        }
    }
}

/// More than a journal of 4 MiB takes in one piece.
const LARGE: u64 = 5 << 20;

fn large() -> Vec<u8> {
    (0..LARGE as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// What a rank does, by the name that the test gives in its environment.
#[test]
#[ignore = "the rank of the other tests"]
fn rank() {
    let role = std::env::var("TEST_ROLE").expect("a role");
    let rank = Rank::open();
    match role.as_str() {
        "objects-of-steps" => rank.steps(12, Rank::give_by_objects, |_, _| ()),
        "many-in-set-up" => {
            rank.make_and_end_many();
            let kept = rank.session.event_create(2).expect("event");
            let recorded = |rank: &Rank| JournalReader::open(rank.session.journal().name()).expect("own").snapshot().expect("read").setup.len();
            let before = recorded(&rank);
            let give = |rank: &Rank, step| {
                rank.session.event_record(kept, rank.stream)?;
                rank.give(step)
            };
            rank.steps(8, give, |rank, step| {
                let now = recorded(rank);
                assert!(before > 7000 && now < 100, "compacted at the commit of step {step}: {before} records, then {now}");
            });
        }
        "uploads-more-than-its-journal-holds" | "is-alone-with-it" => {
            let others = (role != "is-alone-with-it").then_some(rank.communicator);
            let table = rank.upload_large(others);
            rank.steps(8, Rank::give, |rank, step| {
                if step == 1 && rank.session.rank().0 == 0 {
                    let verified = run(rejoin().args(["verify", &std::env::var("REJOIN_JOB").expect("a job")]));
                    eprintln!("verified: {:?} {}", verified.status.code(), verified.stdout);
                }
                let mut now = vec![0; LARGE as usize];
                match rank.session.memcpy_dtoh(&mut now, table) {
                    Ok(()) => assert!(now == large(), "after step {step}"),
                    Err(error) => assert!(error.is_redo(), "{error}"),
                }
            });
        }
        other => panic!("no role {other}"),
    }
}

fn job(name: &str, role: &str, fault: &str, options: &[&str]) -> Command {
    let mut command = rejoin();
    command.args(["run", "-n", &RANKS.to_string(), "--backend", "host", "--job", name]).args(options).arg("--");
    command.arg(std::env::current_exe().expect("this test")).args(["--ignored", "--exact", "rank", "--nocapture"]);
    command.env("TEST_ROLE", role).env("REJOIN_FAULT", fault);
    command
}

/// A run that ends with what was given in all steps.
#[track_caller]
fn ends_right(role: &str, steps: u32, fault: &str, options: &[&str]) -> Ended {
    let name = job_name("objects");
    let ended = run(&mut job(&name, role, fault, options)).expect_code(0);
    let of_ranks: u32 = (1..=RANKS).sum();
    let expected: u32 = (0..steps).map(|step| of_ranks + if step % 3 == 0 { 10 * RANKS } else { 0 }).sum();
    let found: Vec<&str> = ended.stdout.lines().filter_map(|line| line.split("ends with ").nth(1)).collect();
    assert_eq!(found, vec![expected.to_string(); RANKS as usize], "{fault} {options:?}: {ended:#?}");
    let failures = fault.split(';').filter(|one| !one.is_empty()).count();
    assert_eq!(ended.stderr.matches("recovered").count(), failures, "{fault} {options:?}: {ended:#?}");
    // Under policy replay a rank whose process lives does not notice, unless its device failed after the decision.
    let is_replayed = options.contains(&"replay");
    if !(is_replayed && fault.contains("+go")) {
        assert_eq!(ended.stderr.contains("a rank runs a step again"), failures > 0 && !is_replayed, "{fault} {options:?}: {ended:#?}");
    }
    assert_eq!(segments(&name), [""; 0]);
    ended
}

#[test]
fn what_steps_make_and_end_is_right_again_after_a_device_failed() {
    ends_right("objects-of-steps", 12, "", &[]);
    // In the step that makes, in those that use and in the one that ends; then in later ones.
    for fault in ["fail-device:1@0;fail-device:1@1", "fail-device:1@2;fail-device:1@3", "fail-device:0@4;fail-device:0@6+go;fail-device:0@8"] {
        for policy in ["redo", "replay"] {
            ends_right("objects-of-steps", 12, fault, &["--policy", policy]);
        }
    }
}

#[test]
fn what_steps_make_and_end_is_right_again_after_a_death() {
    for fault in ["kill:1@2", "kill:0@3;fail-device:2@6", "kill:2@6+go;kill:1@9"] {
        for policy in ["redo", "replay"] {
            ends_right("objects-of-steps", 12, fault, &["--policy", policy]);
        }
    }
}

#[test]
fn a_compacted_set_up_is_replayed_and_a_replacement_goes_on_beside_it() {
    let whole = ends_right("many-in-set-up", 8, "", &[]);
    assert!(!whole.stderr.contains("replayed"), "{whole:#?}");
    for fault in ["fail-device:1@3", "kill:1@3", "kill:2@3;fail-device:0@5;fail-device:1@6"] {
        ends_right("many-in-set-up", 8, fault, &[]);
    }
    ends_right("many-in-set-up", 8, "fail-device:1@3;kill:0@5", &["--policy", "replay"]);
}

#[test]
fn an_upload_that_the_journal_cannot_hold_comes_from_a_donor_or_is_named_beforehand() {
    for fault in ["", "fail-device:1@3", "kill:1@3;fail-device:0@5"] {
        let ended = ends_right("uploads-more-than-its-journal-holds", 8, fault, &[]);
        ended.expect_stderr("verified: Some(0)").expect_stderr("can be replayed");
    }
    let name = job_name("alone");
    let ended = run(&mut job(&name, "is-alone-with-it", "fail-device:1@3", &[])).expect_code(12);
    let ended = ended.expect_stderr("verified: Some(1)").expect_stderr("FATAL set-up").expect_stderr("REJOIN_JOURNAL_BYTES");
    ended.expect_stderr("without its 5242880 bytes) of rank 1 cannot be replayed");
    assert_eq!(segments(&name), [""; 0]);
}
