//! Ranks as processes: this test binary starts itself again. Killed ranks, and a root that is gone.
#![allow(unsafe_code, clippy::multiple_unsafe_ops_per_block)]

mod ranks;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use ranks::{Comm, Stream, ok, started, sum_on, watched};
use rejoin_host_nccl::abi::NcclUniqueId;
use rejoin_host_nccl::capi::*;

const COUNT: usize = 300_000;

/// A rank in a process of its own, driven by lines.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(rank: usize, nranks: usize) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("the test binary"))
            .args(["--exact", "rank_process", "--nocapture", "--test-threads=1"])
            .env("HOST_NCCL_RANK", rank.to_string())
            .env("HOST_NCCL_NRANKS", nranks.to_string())
            // A dead root is given up after three attempts, not after a minute.
            .env("NCCL_SOCKET_RETRY_CNT", "3")
            .env("NCCL_SOCKET_RETRY_SLEEP_MSEC", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the rank starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, input, output }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the rank reads");
    }

    /// The next answer; lines of the test harness are passed over.
    fn answer(&mut self) -> String {
        let mut line = String::new();
        while self.output.read_line(&mut line).expect("the rank answers") > 0 {
            if let Some((_, answer)) = line.trim_end().split_once("answer ") {
                return answer.to_owned();
            }
            line.clear();
        }
        panic!("the rank ended without an answer");
    }

    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer()
    }

    fn kill(mut self) {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("reaped");
    }

    fn end(mut self) {
        drop(self.input);
        let status = self.child.wait().expect("the rank ends");
        assert!(status.success(), "the rank ended with {status}");
    }
}

fn to_hex(id: &NcclUniqueId) -> String {
    id.internal.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> NcclUniqueId {
    let internal = core::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hex"));
    NcclUniqueId { internal }
}

/// The rank itself: does nothing when run as a test.
#[test]
fn rank_process() {
    let Ok(rank) = std::env::var("HOST_NCCL_RANK") else { return };
    let number = |text: &str| text.parse::<usize>().expect("a number");
    let rank = number(&rank);
    let nranks = number(&std::env::var("HOST_NCCL_NRANKS").expect("set"));
    let stream = Stream::create();
    let mut comm = None;
    // Never freed: a stuck collective may still read it while the process ends.
    let x: &mut [f32] = Vec::leak(vec![0.0_f32; COUNT]);
    for line in std::io::stdin().lines() {
        let line = line.expect("the parent lives");
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[0] {
            "id" => to_hex(&ranks::unique_id()),
            "init" => {
                comm = Some(Comm::init(nranks, from_hex(words[1]), rank, false));
                "joined".into()
            }
            "try-init" => {
                let mut new = core::ptr::null_mut();
                // SAFETY: the slot lives through the blocking call.
                let code = unsafe { ncclCommInitRank(&mut new, nranks as i32, from_hex(words[1]), rank as i32) };
                format!("{code} {}", new.is_null())
            }
            "start" => {
                x.fill(rank as f32 + 1.0);
                let comm = comm.expect("joined");
                let at = x.as_mut_ptr().cast();
                // SAFETY: `x` is never freed.
                started(unsafe { ncclAllReduce(at, at, COUNT, 7, 0, comm.0, stream.raw()) });
                comm.wait();
                "started".into()
            }
            "finish" => {
                stream.synchronize();
                let first = x[0];
                assert!(x.iter().all(|x| *x == first));
                format!("{first}")
            }
            "state" => format!("{} {}", comm.expect("joined").result(), stream.is_idle()),
            "shrink" => {
                let old = comm.expect("joined");
                let mut excluded = [words[1].parse::<i32>().expect("a rank")];
                let mut new = core::ptr::null_mut();
                // SAFETY: list and slot live until the parent is ready.
                ok(unsafe { ncclCommShrink(old.0, excluded.as_mut_ptr(), 1, &mut new, core::ptr::null(), 1) });
                old.wait();
                stream.synchronize();
                old.abort();
                let new = Comm(new);
                comm = Some(new);
                format!("{} of {}, sum {}", new.rank(), new.count(), sum_on(new, &stream, 1.0))
            }
            other => panic!("unknown command {other}"),
        };
        println!("answer {answer}");
    }
}

/// Starts `n` ranks that have joined under an id of rank 0's process.
fn job(n: usize) -> Vec<Process> {
    let mut ranks: Vec<_> = (0..n).map(|rank| Process::start(rank, n)).collect();
    let id = ranks[0].ask("id");
    ranks.iter_mut().for_each(|rank| rank.tell(&format!("init {id}")));
    ranks.iter_mut().for_each(|rank| assert_eq!(rank.answer(), "joined"));
    ranks
}

fn all_reduce(ranks: &mut [Process]) -> Vec<String> {
    ranks.iter_mut().for_each(|rank| assert_eq!(rank.ask("start"), "started"));
    ranks.iter_mut().map(|rank| rank.ask("finish")).collect()
}

#[test]
fn processes_share_a_communicator() {
    watched("processes", || {
        let mut ranks = job(4);
        for _ in 0..3 {
            assert_eq!(all_reduce(&mut ranks), ["10"; 4]);
        }
        ranks.into_iter().for_each(Process::end);
    });
}

#[test]
fn survivors_of_a_killed_rank_hang_without_an_error_and_shrink() {
    watched("killed rank", || {
        // The killed one is each time another; 0 is the root, whose process made the memory.
        for victim in 0..3 {
            let mut ranks = job(3);
            for (rank, process) in ranks.iter_mut().enumerate() {
                if rank != victim {
                    assert_eq!(process.ask("start"), "started");
                }
            }
            ranks.remove(victim).kill();
            for rank in &mut ranks {
                assert_eq!(rank.ask("state"), "0 false", "no error, still busy");
            }
            ranks.iter_mut().for_each(|rank| rank.tell(&format!("shrink {victim}")));
            for (new, rank) in ranks.iter_mut().enumerate() {
                assert_eq!(rank.answer(), format!("{new} of 2, sum 2"));
            }
            ranks.into_iter().for_each(Process::end);
        }
    });
}

#[test]
fn an_id_of_a_dead_process_gives_a_remote_error() {
    watched("dead root", || {
        let mut root = Process::start(0, 2);
        let id = root.ask("id");
        root.kill();
        let mut rank = Process::start(1, 2);
        assert_eq!(rank.ask(&format!("try-init {id}")), "6 true");
        rank.end();
    });
}

#[test]
fn process_exit_never_waits_for_a_stuck_collective() {
    watched("exit", || {
        let mut ranks = job(2);
        assert_eq!(ranks[0].ask("start"), "started");
        // Rank 1 never starts: rank 0 ends with its stream stuck.
        ranks.into_iter().for_each(Process::end);
    });
}

#[test]
fn nothing_is_left_in_dev_shm() {
    watched("dev shm", || {
        let names = || -> Vec<_> {
            std::fs::read_dir("/dev/shm")
                .map(|dir| dir.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
                .unwrap_or_default()
        };
        let before = names();
        let mut ranks = job(2);
        assert_eq!(all_reduce(&mut ranks), ["3"; 2]);
        let new: Vec<_> = names().into_iter().filter(|name| !before.contains(name) && name.contains("nccl")).collect();
        assert_eq!(new, Vec::<String>::new());
        ranks.into_iter().for_each(Process::kill);
    });
}

/// Does what the quirks are about; says how far it came.
#[test]
fn quirk_process() {
    let Ok(which) = std::env::var("HOST_NCCL_QUIRK_TEST") else { return };
    let id = ranks::unique_id();
    if which == "destroy-errored" {
        let mut comm = core::ptr::null_mut();
        let config = ranks::config(false);
        // SAFETY: slot and config live through the process.
        started(unsafe { ncclCommInitRankConfig(&mut comm, 2, id, 0, (&raw const config).cast()) });
        assert_eq!(ncclCommDestroy(comm), 7);
        // The group is still open: its end is not refused.
        println!("answer {}", ncclGroupEnd());
        return;
    }
    std::thread::scope(|s| {
        s.spawn(|| {
            Comm::init(2, id, 1, true);
        });
        let comm = Comm::init(2, id, 0, true);
        let (mut new, mut excluded) = (core::ptr::null_mut(), [1]);
        // SAFETY: list and slot live through the blocking call.
        ok(unsafe { ncclCommShrink(comm.0, excluded.as_mut_ptr(), 1, &mut new, core::ptr::null(), 1) });
        let destroy = s.spawn(move || {
            ok(ncclCommDestroy({ comm }.0));
        });
        if std::env::var_os("REJOIN_HOST_NCCL_QUIRKS").is_none() {
            destroy.join().expect("the destroy returns");
            println!("answer destroyed");
        } else {
            // A destroy that does not hang takes less than one of these.
            let stream = Stream::create();
            for _ in 0..2000 {
                assert_eq!(sum_on(Comm(new), &stream, 2.0), 2.0);
            }
            println!("answer hangs {}", !destroy.is_finished());
        }
        // Not even a thread that hangs in the library holds up the exit.
        std::process::exit(0);
    });
}

fn quirk(which: &str, on: bool) -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new(std::env::current_exe().expect("the test binary"));
    command.args(["--exact", "quirk_process", "--nocapture"]).env("HOST_NCCL_QUIRK_TEST", which);
    if on {
        command.env("REJOIN_HOST_NCCL_QUIRKS", format!("other, {which}"));
    }
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the process starts");
    let output = BufReader::new(child.stdout.take().expect("piped"));
    (child, output)
}

fn next_answer(output: &mut BufReader<ChildStdout>) -> Option<String> {
    output.lines().map_while(Result::ok).find_map(|line| line.split_once("answer ").map(|(_, answer)| answer.to_owned()))
}

#[test]
fn quirks_are_off_unless_asked_for() {
    watched("no quirks", || {
        let (mut child, mut output) = quirk("destroy-after-shrink", false);
        assert_eq!(next_answer(&mut output).as_deref(), Some("destroyed"));
        assert!(child.wait().expect("ends").success());
        let (mut child, mut output) = quirk("destroy-errored", false);
        assert_eq!(next_answer(&mut output).as_deref(), Some("5"), "no group is open");
        assert!(child.wait().expect("ends").success());
    });
}

#[test]
fn destroy_after_shrink_hangs_and_destroy_of_an_error_leaves_the_group_open_when_asked_for() {
    watched("quirks", || {
        let (mut child, mut output) = quirk("destroy-errored", true);
        assert_eq!(next_answer(&mut output).as_deref(), Some("0"), "the group was left open");
        assert!(child.wait().expect("ends").success());
        let (mut child, mut output) = quirk("destroy-after-shrink", true);
        assert_eq!(next_answer(&mut output).as_deref(), Some("hangs true"));
        assert!(child.wait().expect("ends").success());
    });
}
