//! What a process learns from its launcher through the environment.

use std::path::PathBuf;
use std::time::Duration;

use crate::backend::BackendKind;
use crate::error::Error;
use crate::journal::OverflowPolicy;
use crate::membership::{Incarnation, Rank};

/// How a session is opened. [`SessionOptions::from_env`] is what a program under `rejoin run` uses.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Job name, [A-Za-z0-9_-]{1,64}.
    pub job: String,
    /// This process's rank.
    pub rank: Rank,
    /// Number of ranks of the job.
    pub nranks: u32,
    /// The n-th process that holds the rank, from 0.
    pub incarnation: Incarnation,
    /// Proves that this process was started by the job's launcher.
    pub token: u64,
    /// Host or CUDA; never chosen silently.
    pub backend: BackendKind,
    /// NCCL to load; `None`: `libnccl.so.2`, or `librejoin_host_nccl.so` beside the program for the host backend.
    pub nccl: Option<PathBuf>,
    /// Device number on this host.
    pub device: u32,
    /// That number was asked for; otherwise it is the local rank, and ranks share devices where there are fewer.
    pub device_given: bool,
    /// Bytes of address space to reserve for device memory, the same in every incarnation. `None`: 64 GiB on
    /// the host, the GPU's memory on CUDA.
    pub window_bytes: Option<u64>,
    /// Bytes of the journal segment.
    pub journal_bytes: u64,
    /// What the journal does when it is full.
    pub journal_policy: OverflowPolicy,
    /// How long peers may take in set-up and in a step before the wait is an error.
    pub peer_timeout: Duration,
    /// What `setup_done` does about device memory without a state kind.
    pub unregistered: Unregistered,
}

/// What to do about device memory that has no state kind at `setup_done`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unregistered {
    /// `setup_done` returns [`Error::Unregistered`]; register or free it and call again.
    #[default]
    Refuse,
    /// The launcher tells it; the job goes on. For memory whose content nobody reads after a recovery.
    Warn,
}

impl SessionOptions {
    /// Reads `REJOIN_JOB`, `REJOIN_RANK`, `REJOIN_NRANKS`, `REJOIN_INCARNATION`, `REJOIN_TOKEN`,
    /// `REJOIN_BACKEND`, and where set `REJOIN_NCCL`, `REJOIN_DEVICE` (else the local rank on CUDA, 0 on
    /// the host), `REJOIN_WINDOW_BYTES`, `REJOIN_JOURNAL_BYTES`, `REJOIN_JOURNAL_POLICY`
    /// (`error`, `block:MS`, `grow:BYTES`, `spill:/DIR`), `REJOIN_PEER_TIMEOUT_S`, `REJOIN_UNREGISTERED` (refuse or warn).
    pub fn from_env() -> Result<Self, Error> {
        let backend = match required("REJOIN_BACKEND")?.as_str() {
            "host" => BackendKind::Host,
            "cuda" => BackendKind::Cuda,
            other => return Err(invalid("REJOIN_BACKEND", other, "host or cuda")),
        };
        Ok(Self {
            job: required("REJOIN_JOB")?,
            rank: Rank(number("REJOIN_RANK")?),
            nranks: number("REJOIN_NRANKS")?,
            incarnation: Incarnation(number("REJOIN_INCARNATION")?),
            token: number("REJOIN_TOKEN")?,
            backend,
            nccl: std::env::var_os("REJOIN_NCCL").map(PathBuf::from),
            device: optional("REJOIN_DEVICE")?.map_or_else(
                || if backend == BackendKind::Cuda { optional("LOCAL_RANK").map(Option::unwrap_or_default) } else { Ok(0) },
                Ok,
            )?,
            device_given: std::env::var_os("REJOIN_DEVICE").is_some(),
            window_bytes: optional("REJOIN_WINDOW_BYTES")?,
            journal_bytes: optional("REJOIN_JOURNAL_BYTES")?.unwrap_or(DEFAULT_JOURNAL_BYTES),
            journal_policy: optional("REJOIN_JOURNAL_POLICY")?.unwrap_or_default(),
            peer_timeout: Duration::from_secs(optional("REJOIN_PEER_TIMEOUT_S")?.unwrap_or(DEFAULT_PEER_TIMEOUT_S)),
            unregistered: Unregistered::from_env()?,
        })
    }
}

impl Unregistered {
    /// `REJOIN_UNREGISTERED`.
    pub fn from_env() -> Result<Self, Error> {
        match std::env::var("REJOIN_UNREGISTERED").as_deref() {
            Err(_) | Ok("refuse") => Ok(Self::Refuse),
            Ok("warn") => Ok(Self::Warn),
            Ok(other) => Err(invalid("REJOIN_UNREGISTERED", other, "refuse or warn")),
        }
    }
}

/// 64 GiB of address space; memory is taken only where it is used.
pub const DEFAULT_WINDOW_BYTES: u64 = 64 << 30;
/// 4 MiB.
pub const DEFAULT_JOURNAL_BYTES: u64 = 4 << 20;
/// Half an hour: loading and compiling in set-up count.
pub const DEFAULT_PEER_TIMEOUT_S: u64 = 1800;

fn required(name: &'static str) -> Result<String, Error> {
    std::env::var(name).map_err(|_| Error::InvalidArgument {
        what: format!("{name} is not set: start the program with `rejoin run -n N -- PROGRAM`, or give the options yourself"),
    })
}

fn invalid(name: &str, found: &str, expected: &str) -> Error {
    Error::InvalidArgument { what: format!("{name} is {found:?}, expected {expected}") }
}

fn number<T: std::str::FromStr>(name: &'static str) -> Result<T, Error> {
    let text = required(name)?;
    text.parse().map_err(|_| invalid(name, &text, "a number"))
}

fn optional<T: std::str::FromStr>(name: &'static str) -> Result<Option<T>, Error> {
    match std::env::var(name) {
        Err(_) => Ok(None),
        Ok(text) => text.parse().map(Some).map_err(|_| invalid(name, &text, "a number")),
    }
}
