//! A rank's session: open, look, leave.

use core::ffi::c_char;
use std::sync::Mutex;
use std::time::Duration;

use journal_core::backend::BackendKind;
use journal_core::membership::{Incarnation, Rank};
use journal_core::session::launch_env::{DEFAULT_JOURNAL_BYTES, DEFAULT_PEER_TIMEOUT_S};
use journal_core::session::{Session, SessionOptions, Unregistered};

use crate::argument::{Out, Versioned, optional_text, options, text};
use crate::boundary::{Failure, Result, boundary};
use crate::event::EventThread;
use crate::journal::{JournalObject, rejoin_journal};
use crate::policy::PolicyFields;
use crate::shell::{Call, Shell, object};
use crate::status::rejoin_status;

/// A rank of a job in this process.
pub struct rejoin_session {
    _opaque: [u8; 0],
}

/// What is behind it.
pub struct SessionObject {
    /// Ours.
    pub session: Session,
    /// What the last setup_done or resume gave back.
    pub blob: Mutex<Vec<u8>>,
    /// After the session: its end is what ends the thread.
    pub events: Mutex<Option<EventThread>>,
}

object!(SessionObject, "rejoin_session", b"RJ-sessn");

/// Begins a call on a session.
///
/// # Safety
/// `session` is NULL or came from this library.
pub unsafe fn enter<'a>(session: *const rejoin_session) -> Result<Call<'a, SessionObject>> {
    // SAFETY: passed on to the caller.
    unsafe { Shell::enter(session.cast()) }
}

/// The library behind a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum rejoin_backend {
    /// CPU memory and librejoin_host_nccl.so.
    Host = 1,
    /// The CUDA driver and NVIDIA's NCCL.
    Cuda = 2,
}

/// What rejoin_setup_done() does about live device memory that no rejoin_state_register() has named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum rejoin_unregistered {
    /// Returns REJOIN_STATUS_WRONG_STATE; register or free it and call again.
    Refuse = 1,
    /// The launcher prints it, and the job goes on. For memory whose content nobody reads after a recovery.
    Warn = 2,
}

fn unregistered(number: u32) -> Result<Option<Unregistered>> {
    match number {
        0 => Ok(None),
        n if n == rejoin_unregistered::Refuse as u32 => Ok(Some(Unregistered::Refuse)),
        n if n == rejoin_unregistered::Warn as u32 => Ok(Some(Unregistered::Warn)),
        n => Err(Failure::invalid(format!("options.unregistered is {n}: use a rejoin_unregistered"))),
    }
}

/// How a session is opened. Initialise it with REJOIN_SESSION_OPTIONS_INIT.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct rejoin_session_options {
    /// Of this struct.
    pub size: u32,
    /// Of this struct.
    pub version: u32,
    /// Job name, [A-Za-z0-9_-]{1,64}. NULL: job, rank, nranks, incarnation, token and backend come from the
    /// environment that `rejoin run` sets, and the fields of these names do not matter.
    pub job: *const c_char,
    /// This process's rank.
    pub rank: u32,
    /// Ranks of the job.
    pub nranks: u32,
    /// The n-th process that holds the rank, from 0.
    pub incarnation: u32,
    /// A rejoin_backend.
    pub backend: i32,
    /// Proof that the job's launcher started this process.
    pub token: u64,
    /// NCCL to load; NULL: REJOIN_NCCL, else libnccl.so.2 or the host library.
    pub nccl: *const c_char,
    /// Device number; -1: REJOIN_DEVICE, else the local rank.
    pub device: i32,
    /// 0.
    pub reserved: u32,
    /// Device memory to reserve, the same in every incarnation; 0: the default.
    pub window_bytes: u64,
    /// Bytes of the journal; 0: the default, 4 MiB.
    pub journal_bytes: u64,
    /// Longest wait for peers in set-up and in a step; 0: the default, half an hour.
    pub peer_timeout_ms: u64,
    /// A rejoin_journal_policy for the rank's journal; 0: what the environment says where `job` is NULL, else ERROR.
    pub journal_policy: u32,
    /// A rejoin_unregistered; 0: what the environment's REJOIN_UNREGISTERED says, else REFUSE.
    pub unregistered: u32,
    /// Policy BLOCK: longest wait.
    pub block_timeout_ms: u64,
    /// Policy GROW: bytes of all segments together.
    pub grow_limit_bytes: u64,
    /// Policy SPILL: an existing folder, by its absolute path of at most 255 bytes.
    pub spill_directory: *const c_char,
}

// SAFETY: numbers and pointers only, head first.
unsafe impl Versioned for rejoin_session_options {
    const NAME: &'static str = "rejoin_session_options";

    fn defaults() -> Self {
        Self {
            size: size_of::<Self>() as u32,
            version: 1,
            job: core::ptr::null(),
            rank: 0,
            nranks: 0,
            incarnation: 0,
            backend: 0,
            token: 0,
            nccl: core::ptr::null(),
            device: -1,
            reserved: 0,
            window_bytes: 0,
            journal_bytes: 0,
            peer_timeout_ms: 0,
            journal_policy: 0,
            unregistered: 0,
            block_timeout_ms: 0,
            grow_limit_bytes: 0,
            spill_directory: core::ptr::null(),
        }
    }
}

impl rejoin_session_options {
    /// # Safety
    /// Its strings are NULL or terminated.
    unsafe fn to_options(self) -> Result<SessionOptions> {
        // SAFETY: the caller's promise.
        let job = unsafe { optional_text(self.job, "options.job") }?;
        // SAFETY: the caller's promise.
        let nccl = unsafe { optional_text(self.nccl, "options.nccl") }?;
        let mut result = match job {
            None => SessionOptions::from_env()?,
            Some(job) => SessionOptions {
                job: job.to_owned(),
                rank: Rank(self.rank),
                nranks: self.nranks,
                incarnation: Incarnation(self.incarnation),
                token: self.token,
                backend: backend(self.backend)?,
                nccl: std::env::var_os("REJOIN_NCCL").map(Into::into),
                device: 0,
                device_given: false,
                window_bytes: None,
                journal_bytes: DEFAULT_JOURNAL_BYTES,
                journal_policy: journal_core::journal::OverflowPolicy::Error,
                peer_timeout: Duration::from_secs(DEFAULT_PEER_TIMEOUT_S),
                unregistered: Unregistered::from_env()?,
            },
        };
        if let Some(path) = nccl {
            result.nccl = Some(path.into());
        }
        if let Ok(device) = u32::try_from(self.device) {
            (result.device, result.device_given) = (device, true);
        }
        if self.window_bytes != 0 {
            result.window_bytes = Some(self.window_bytes);
        }
        if self.journal_bytes != 0 {
            result.journal_bytes = self.journal_bytes;
        }
        if self.peer_timeout_ms != 0 {
            result.peer_timeout = Duration::from_millis(self.peer_timeout_ms);
        }
        let policy = PolicyFields {
            policy: self.journal_policy,
            block_timeout_ms: self.block_timeout_ms,
            grow_limit_bytes: self.grow_limit_bytes,
            spill_directory: self.spill_directory,
        };
        // SAFETY: the caller's promise.
        if let Some(policy) = unsafe { policy.to_policy() }? {
            result.journal_policy = policy;
        }
        if let Some(unregistered) = unregistered(self.unregistered)? {
            result.unregistered = unregistered;
        }
        Ok(result)
    }
}

fn backend(number: i32) -> Result<BackendKind> {
    match number {
        n if n == rejoin_backend::Host as i32 => Ok(BackendKind::Host),
        n if n == rejoin_backend::Cuda as i32 => Ok(BackendKind::Cuda),
        n => Err(Failure::invalid(format!("options.backend is {n}: use REJOIN_BACKEND_HOST or REJOIN_BACKEND_CUDA"))),
    }
}

/**
 * Joins a job as the rank that the launcher has given to this process: opens device, NCCL and journal, and
 * starts the threads that watch the other ranks. One session a process. A replacement waits here until the
 * process that it replaces is proven gone, since that may still hold device memory. After a failure the rank's token
 * may be used up: end the process, so that the launcher goes on.
 *
 * @param options      how; NULL: all from the environment that `rejoin run` sets
 * @param out_session  set on OK; leave with rejoin_session_finalize(), then give it to rejoin_session_close()
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_INVALID_ARGUMENT (not under `rejoin run`, for instance);
 *         REJOIN_STATUS_ACCESS (the launcher did not start this process); REJOIN_STATUS_NOT_FOUND (no such
 *         job); REJOIN_STATUS_EXISTS; REJOIN_STATUS_NO_SPACE; REJOIN_STATUS_DEVICE; REJOIN_STATUS_LIBRARY;
 *         REJOIN_STATUS_TIMEOUT (the replaced process, which the message names, has not ended within
 *         `rejoin run --stage-timeout`); REJOIN_STATUS_VERSION; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: one.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_session_open(
    options: *const rejoin_session_options,
    out_session: *mut *mut rejoin_session,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_session, "out_session") }?;
        let given = if options.is_null() {
            rejoin_session_options::defaults()
        } else {
            // SAFETY: a pointer of C, as the header says.
            unsafe { self::options(options, "options") }?
        };
        // SAFETY: strings of C, as the header says.
        let session = Session::open(unsafe { given.to_options() }?)?;
        out.set(Shell::create(SessionObject { session, blob: Mutex::default(), events: Mutex::default() }).cast());
        Ok(())
    })
}

/**
 * Leaves the job: waits until all ranks have come here. Without it the end of this process is a death, and
 * the launcher starts another one in its place.
 *
 * @param session  between steps; afterwards only rejoin_session_close() is left to do
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_WRONG_STATE (inside a step); REJOIN_STATUS_TIMEOUT;
 *         REJOIN_STATUS_CLOSED; REJOIN_STATUS_EVICTED; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: one; waits for all ranks, at most options.peer_timeout_ms.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_session_finalize(session: *mut rejoin_session) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let session = unsafe { enter(session) }?;
        Ok(session.session.clone().finalize()?)
    })
}

/**
 * Frees the session. Not the way to leave a job: see rejoin_session_finalize().
 *
 * @param session  NULL does nothing
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_CLOSED (a second time); REJOIN_STATUS_FORKED
 * Threads: any; calls of other threads that run on it finish.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_session_close(session: *mut rejoin_session) -> rejoin_status {
    // SAFETY: a pointer of C, as the header says.
    boundary(|| unsafe { Shell::<SessionObject>::close(session.cast()) })
}

/// What a session says about itself. Initialise it with REJOIN_SESSION_INFO_INIT.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct rejoin_session_info {
    /// Of this struct.
    pub size: u32,
    /// Of this struct.
    pub version: u32,
    /// This process's rank.
    pub rank: u32,
    /// Ranks of the job.
    pub nranks: u32,
    /// The n-th process that holds the rank, from 0.
    pub incarnation: u32,
    /// Grows with every change of membership.
    pub epoch: u32,
    /// 1: this process replaces one that died.
    pub is_replacement: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: numbers only, head first.
unsafe impl Versioned for rejoin_session_info {
    const NAME: &'static str = "rejoin_session_info";

    fn defaults() -> Self {
        Self { size: size_of::<Self>() as u32, version: 1, rank: 0, nranks: 0, incarnation: 0, epoch: 0, is_replacement: 0, reserved: 0 }
    }
}

/**
 * Says who this process is.
 *
 * @param session   open
 * @param out_info  initialised with REJOIN_SESSION_INFO_INIT; set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_session_get_info(
    session: *const rejoin_session,
    out_info: *mut rejoin_session_info,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { crate::argument::VersionedOut::new(out_info, "out_info") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let session = &object.session;
        out.set(&rejoin_session_info {
            rank: session.rank().0,
            nranks: session.nranks(),
            incarnation: session.incarnation().0,
            epoch: u32::from(session.epoch().0),
            is_replacement: u32::from(session.is_replacement()),
            ..rejoin_session_info::defaults()
        });
        Ok(())
    })
}

/**
 * Asks whether the open step still counts, so that a long computation on the CPU can stop early.
 *
 * @param session  open
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_REDO (doomed); REJOIN_STATUS_EVICTED; REJOIN_STATUS_CLOSED,
 *         REJOIN_STATUS_GAVE_UP and others (the job is over; the message says why);
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently. One load where all is well.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_session_check(session: *const rejoin_session) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        Ok(object.session.check()?)
    })
}

/**
 * The journal of this rank, for its handles and for records of the application's own. Its steps and what they begin
 * with are the session's: do not commit, discard, prepare or compact by yourself.
 *
 * @param session      open
 * @param out_journal  set on OK; give it to rejoin_journal_close()
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_session_journal(
    session: *const rejoin_session,
    out_journal: *mut *mut rejoin_journal,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_journal, "out_journal") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        out.set(JournalObject::create(object.session.journal().clone()));
        Ok(())
    })
}

/**
 * Publishes bytes under a key for all ranks, for a rendezvous of the application's own. A replacement that
 * publishes or awaits the key again gets along with what stands there.
 *
 * @param session  open
 * @param key      UTF-8
 * @param value    copied; at most 64 KiB a rank in all
 * @param value_bytes  its length
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NO_SPACE; REJOIN_STATUS_NULL_ARGUMENT;
 *         REJOIN_STATUS_INVALID_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_exchange_publish(
    session: *const rejoin_session,
    key: *const c_char,
    value: *const core::ffi::c_void,
    value_bytes: usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let key = unsafe { text(key, "key") }?;
        // SAFETY: a pointer of C, as the header says.
        let value = unsafe { crate::argument::bytes(value, value_bytes, "value") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.exchange(key, Some(value))?;
        Ok(())
    })
}

/**
 * Waits for what a rank publishes under a key.
 *
 * @param session     open
 * @param key         UTF-8
 * @param buffer      gets the value
 * @param capacity    of the buffer; 64 KiB is always enough
 * @param out_bytes   set on OK: length of the value
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_TIMEOUT (nobody published it within options.peer_timeout_ms);
 *         REJOIN_STATUS_INVALID_ARGUMENT (the buffer is too small; the message says what it needs);
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_exchange_await(
    session: *const rejoin_session,
    key: *const c_char,
    buffer: *mut core::ffi::c_void,
    capacity: usize,
    out_bytes: *mut usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_bytes, "out_bytes") }?;
        // SAFETY: a pointer of C, as the header says.
        let key = unsafe { text(key, "key") }?;
        // SAFETY: a pointer of C, as the header says.
        let buffer = unsafe { crate::argument::bytes_mut(buffer, capacity, "buffer") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.exchange(key, None)?;
        let room = buffer.get_mut(..value.len()).ok_or_else(|| {
            Failure::invalid(format!("the value of {key:?} has {} bytes, the buffer {capacity}", value.len()))
        })?;
        room.copy_from_slice(&value);
        out.set(value.len());
        Ok(())
    })
}
