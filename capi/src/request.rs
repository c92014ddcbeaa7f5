//! Requests by number: built argument by argument, sent by a session or appended to a journal; and in words.

use core::ffi::{c_char, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use journal_core::handle::VirtualHandle;
use journal_core::request::{self, ArgType, Direction, ENCODING_VERSION, OpCode, Reason, Request, Row, Slot};

use crate::argument::{Out, TextOut, bytes};
use crate::boundary::{Failure, Result, boundary};
use crate::journal::{region, rejoin_journal, rejoin_record_ref};
use crate::session::{enter, rejoin_session};
use crate::shell::{Shell, object};
use crate::status::rejoin_status;

/// A request that is being put together.
pub struct rejoin_request {
    _opaque: [u8; 0],
}

struct Parts {
    code: u16,
    row: &'static Row,
    words: Vec<u64>,
    runs: Vec<Vec<u8>>,
    /// A bit for each argument that is foreign.
    foreign: u16,
    reason: Option<Reason>,
}

struct RequestObject(Mutex<Parts>);

object!(RequestObject, "rejoin_request", b"RJ-reqst");

impl RequestObject {
    fn lock(&self) -> MutexGuard<'_, Parts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parts {
    fn argument(&self, position: u32) -> Result<&'static request::Arg> {
        self.row.args.get(position as usize).filter(|arg| arg.slot != Slot::Result).ok_or_else(|| {
            Failure::invalid(format!("{} has no argument {position} to be set", self.row.name))
        })
    }

    /// As a record's payload: decoding it checks every argument.
    fn payload(&self) -> Vec<u8> {
        let reason = self.reason.map_or(0, |reason| reason as u64);
        let counts = (self.words.len() as u64) << 16 | (self.runs.len() as u64) << 24;
        let lead = u64::from(self.foreign) | counts | reason << 32 | u64::from(ENCODING_VERSION) << 40;
        let lengths = self.runs.iter().map(|run| run.len() as u64);
        let head = [lead].into_iter().chain(self.words.iter().copied()).chain(lengths);
        head.flat_map(u64::to_le_bytes).chain(self.runs.iter().flatten().copied()).collect()
    }
}

/// Functions that do more than send the request of their row.
fn own_function(op: OpCode) -> Option<&'static str> {
    Some(match op {
        OpCode::GetUniqueId => "rejoin_get_unique_id",
        OpCode::CommInitRank => "rejoin_comm_init_rank",
        OpCode::CommInitRankConfig => "rejoin_comm_init_rank_config",
        OpCode::CommSplit => "rejoin_comm_split",
        OpCode::MemcpyHtoDDigest => "rejoin_memcpy_htod",
        OpCode::MemcpyHtoDAsyncDigest => "rejoin_memcpy_htod_async",
        OpCode::Exchange => "rejoin_exchange_publish",
        OpCode::StateRegister => "rejoin_state_register",
        OpCode::SetupDone => "rejoin_setup_done",
        OpCode::StepBegin => "rejoin_step_begin",
        OpCode::StepEnd => "rejoin_step_end",
        OpCode::StepCommit => "rejoin_step_commit",
        _ => return None,
    })
}

/**
 * Begins a request by its number. All arguments are 0 or empty.
 *
 * @param opcode       REJOIN_REQUEST_…, or REJOIN_REQUEST_USER_OPAQUE + a number of your own
 * @param out_request  set on OK; give it to rejoin_request_close()
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_INVALID_ARGUMENT (no such number); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_request_create(opcode: u16, out_request: *mut *mut rejoin_request) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_request, "out_request") }?;
        let row = OpCode::from_code(opcode)
            .ok_or_else(|| Failure::invalid(format!("opcode {opcode:#06x} is not in this version's table")))?
            .row();
        let (words, runs) = (vec![0; row.words()], vec![Vec::new(); row.byte_runs()]);
        let parts = Parts { code: opcode, row, words, runs, foreign: 0, reason: None };
        out.set(Shell::create(RequestObject(Mutex::new(parts))).cast());
        Ok(())
    })
}

/**
 * Frees a request. What was sent or appended stays.
 *
 * @param request  NULL does nothing
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_CLOSED (a second time); REJOIN_STATUS_FORKED
 * Threads: any; calls of other threads that run on it finish.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_request_close(request: *mut rejoin_request) -> rejoin_status {
    // SAFETY: a pointer of C, as the header says.
    boundary(|| unsafe { Shell::<RequestObject>::close(request.cast()) })
}

/**
 * Sets an argument that is a number, a handle or a pointer. Signed numbers and floats by their 32 bits.
 *
 * @param request   open
 * @param position  from 0, as in docs/requests.md
 * @param word      its value
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_INVALID_ARGUMENT (that argument is bytes);
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any; one at a time is served.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_request_set_word(request: *mut rejoin_request, position: u32, word: u64) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { Shell::<RequestObject>::enter(request.cast()) }?;
        let mut parts = object.lock();
        let argument = parts.argument(position)?;
        let Slot::Word(n) = argument.slot else {
            return Err(Failure::invalid(format!("{} is bytes: use rejoin_request_set_bytes", argument.name)));
        };
        parts.words[usize::from(n)] = word;
        Ok(())
    })
}

/**
 * Sets an argument that is bytes or text (without a terminating zero).
 *
 * @param request      open
 * @param position     from 0, as in docs/requests.md
 * @param value        copied
 * @param value_bytes  its length
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_INVALID_ARGUMENT (that argument is a word);
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any; one at a time is served.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_request_set_bytes(
    request: *mut rejoin_request,
    position: u32,
    value: *const c_void,
    value_bytes: usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let value = unsafe { bytes(value, value_bytes, "value") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { Shell::<RequestObject>::enter(request.cast()) }?;
        let mut parts = object.lock();
        let argument = parts.argument(position)?;
        let Slot::Bytes(n) = argument.slot else {
            return Err(Failure::invalid(format!("{} is a word: use rejoin_request_set_word", argument.name)));
        };
        parts.runs[usize::from(n)] = value.to_vec();
        Ok(())
    })
}

/**
 * Says that an argument is foreign: a stream or pointer of CUDA's own instead of a handle or an address of the
 * session. It is passed through as it is; no replay executes the request.
 *
 * @param request   open
 * @param position  from 0, as in docs/requests.md
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_INVALID_ARGUMENT (a size or bytes, which cannot be foreign);
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any; one at a time is served.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_request_set_foreign(request: *mut rejoin_request, position: u32) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { Shell::<RequestObject>::enter(request.cast()) }?;
        let mut parts = object.lock();
        let argument = parts.argument(position)?;
        if !argument.ty.may_be_foreign() {
            return Err(Failure::invalid(format!("{} is no stream or pointer, so it cannot be foreign", argument.name)));
        }
        parts.foreign |= 1 << position;
        Ok(())
    })
}

/// Why a request cannot be replayed. Numbers are in records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum rejoin_reason {
    /// It calls a function of the application.
    HostCallback = 1,
    /// Work goes into a graph instead of being done.
    GraphCapture = 2,
    /// It maps memory or an event of another process.
    IpcImport = 3,
    /// The call is not in the table.
    UnknownCall = 4,
    /// A stream or pointer that Rejoin did not make.
    ForeignArgument = 5,
    /// Only size and checksum of the bytes were recorded.
    BytesNotRecorded = 6,
    /// It changes communicators inside a step.
    CommunicatorInStep = 7,
    /// It accesses a window of another rank.
    OneSided = 8,
    /// The application reset the device itself.
    DeviceReset = 9,
    /// It is the application's own, without a replay function.
    UserRequest = 10,
    /// Several devices in one process.
    SeveralDevices = 11,
}

/**
 * Says why a request cannot be replayed, although its row can: `rejoin verify` and rejoin_snapshot_get_obstacle()
 * tell it.
 *
 * @param request  open
 * @param reason   a rejoin_reason; 0: as its row says
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_INVALID_ARGUMENT; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any; one at a time is served.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_request_set_reason(request: *mut rejoin_request, reason: u32) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { Shell::<RequestObject>::enter(request.cast()) }?;
        let known = u8::try_from(reason).ok().and_then(Reason::from_code);
        if reason != 0 && known.is_none() {
            return Err(Failure::invalid(format!("reason {reason}: use a rejoin_reason")));
        }
        object.lock().reason = known;
        Ok(())
    })
}

/**
 * Records and executes a request. A handle that it creates is reserved first.
 *
 * @param session    open
 * @param request    stays; may be sent again
 * @param out_value  set on OK: the handle that was created, else the request's result, else 0
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_REDO; REJOIN_STATUS_UNSUPPORTED (it has a function of its own,
 *         which the message names, or this backend cannot do it); REJOIN_STATUS_INVALID_ARGUMENT; all that
 *         the request itself can return; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently with other requests.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_request_send(
    session: *const rejoin_session,
    request: *const rejoin_request,
    out_value: *mut u64,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_value, "out_value") }?;
        if request.is_null() {
            return Err(Failure::null("request"));
        }
        // SAFETY: a pointer of C, as the header says.
        let session = unsafe { enter(session) }?;
        // SAFETY: a pointer of C, as the header says.
        let (code, payload) = unsafe { encoded(request) }?;
        let request = request::decode_borrowed(code, &payload)?;
        check_pointers(&request)?;
        if let Some(name) = own_function(request.op()) {
            let message = format!("{} is more than a request: call {name}", request.row().name);
            return Err(Failure::new(rejoin_status::Unsupported, message));
        }
        let made = request.row().creates().next();
        out.set(match made {
            Some((position, kind)) => session.session.create(kind, |handle| with_handle(request, position, handle))?.0,
            None => session.session.send(&request)?,
        });
        Ok(())
    })
}

/// Number and payload of a request.
///
/// # Safety
/// `request` is NULL or came from this library.
unsafe fn encoded(request: *const rejoin_request) -> Result<(u16, Vec<u8>)> {
    // SAFETY: passed on to the caller.
    let object = unsafe { Shell::<RequestObject>::enter(request.cast()) }?;
    let parts = object.lock();
    Ok((parts.code, parts.payload()))
}

fn with_handle(mut request: Request<'_>, position: usize, handle: VirtualHandle) -> Request<'_> {
    request.set_word(position, handle.0);
    request
}

/// Host pointers are used: NULL is an error before anything is recorded.
fn check_pointers(request: &Request<'_>) -> Result<()> {
    for (position, argument) in request.row().args.iter().enumerate() {
        let is_pointer = argument.ty == ArgType::HostPtr && argument.direction == Direction::In;
        if is_pointer && request.word(position) == Some(0) {
            return Err(Failure::null(argument.name));
        }
    }
    Ok(())
}

/**
 * Appends a request to a journal without executing it, as rejoin_journal_append() does with bytes.
 *
 * @param journal     open for writing
 * @param region      a rejoin_region
 * @param request     stays; may be appended again
 * @param out_record  set on OK
 * @return as rejoin_journal_append()
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_request_append(
    journal: *const rejoin_journal,
    region: u32,
    request: *const rejoin_request,
    out_record: *mut rejoin_record_ref,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_record, "out_record") }?;
        if request.is_null() {
            return Err(Failure::null("request"));
        }
        // SAFETY: a pointer of C, as the header says.
        let journal = unsafe { crate::journal::enter(journal) }?;
        // SAFETY: a pointer of C, as the header says.
        let (code, payload) = unsafe { encoded(request) }?;
        request::decode_borrowed(code, &payload)?;
        out.set(journal.journal.append(self::region(region)?, code, 0, &[&payload])?.into());
        Ok(())
    })
}

/**
 * Records a request of the application's own in the rank's journal. Rejoin executes nothing.
 *
 * @param session        open
 * @param number         below 0x8000
 * @param payload        copied, opaque
 * @param payload_bytes  its length
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_REDO; REJOIN_STATUS_JOURNAL_FULL;
 *         REJOIN_STATUS_INVALID_ARGUMENT; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_user_request(
    session: *const rejoin_session,
    number: u16,
    payload: *const c_void,
    payload_bytes: usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let payload = unsafe { bytes(payload, payload_bytes, "payload") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let request = Request::user(number, payload)
            .ok_or_else(|| Failure::invalid(format!("user request {number:#x}: numbers go from 0 to 0x7fff")))?;
        object.session.send(&request)?;
        Ok(())
    })
}

/**
 * A record in words, such as `ncclAllReduce(sendbuff=0x400000000000, count=1024, …)`.
 *
 * @param kind           of the record
 * @param payload        of the record
 * @param payload_bytes  its length
 * @param buffer         gets UTF-8 with a terminating zero, cut where it is too long
 * @param capacity       of the buffer; 0: only the length is wanted
 * @param out_length     set on OK: length of the whole text, without the zero
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_INVALID_ARGUMENT (it is not a request of this version);
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_request_describe(
    kind: u16,
    payload: *const c_void,
    payload_bytes: usize,
    buffer: *mut c_char,
    capacity: usize,
    out_length: *mut usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let payload = unsafe { bytes(payload, payload_bytes, "payload") }?;
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { TextOut::new(buffer, capacity, out_length) }?;
        out.set(&request::decode_borrowed(kind, payload)?.to_string());
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_the_cores_numbers_and_a_request_keeps_its_marks() {
        use rejoin_reason as C;
        let all = [
            C::HostCallback, C::GraphCapture, C::IpcImport, C::UnknownCall, C::ForeignArgument, C::BytesNotRecorded,
            C::CommunicatorInStep, C::OneSided, C::DeviceReset, C::UserRequest, C::SeveralDevices,
        ];
        assert_eq!(all.len(), Reason::ALL.len());
        for (c, core) in all.into_iter().zip(Reason::ALL) {
            assert_eq!((c as u32, format!("{c:?}")), (core as u32, format!("{core:?}")));
        }
        let row = OpCode::StreamSynchronize.row();
        let parts = Parts { code: row.opcode as u16, row, words: vec![77], runs: vec![], foreign: 1, reason: Some(Reason::OneSided) };
        let payload = parts.payload();
        let decoded = request::decode_borrowed(parts.code, &payload).expect("as the core writes it");
        let expected = request::stream_synchronize(VirtualHandle(77)).foreign(0).with_reason(Reason::OneSided);
        assert_eq!(decoded, expected);
    }
}
