//! Collectives, sends and receives.

use core::ffi::c_void;
use std::sync::{Arc, PoisonError};

use super::boundary;
use crate::abi::{CommHandle, ResultCode, StreamHandle};
use crate::batch::Task;
use crate::collective::{Collective, Kind, Reduction};
use crate::comm::Comm;
use crate::datatype::DataType;
use crate::error::{Error, Result};
use crate::group;
use crate::link::Link;
use crate::p2p::{Direction, Transfer};
use crate::reduce::Operator;
use crate::stream::Target;

type ConstPtr = *const c_void;
type MutPtr = *mut c_void;

/// Where a call goes.
struct Place {
    comm: CommHandle,
    stream: StreamHandle,
}

/// Checks what all calls share and hands the task to the group.
fn enqueue(place: Place, make: impl FnOnce(&Arc<Comm>, &Link) -> Result<Option<Task>>) -> ResultCode {
    boundary(|| {
        let comm = Comm::from_handle(place.comm)?;
        group::within(|group| {
            let link = comm.ready_for_work()?;
            let stream = Target::from_handle(place.stream, &comm.stream)?;
            if let Some(task) = make(&comm, &link)? {
                group.join(comm.config.blocking)?;
                group.push_task(&comm, stream, task);
            }
            Ok(())
        })
    })
}

/// Checks a rank argument.
fn rank_of(link: &Link, rank: i32, what: &str) -> Result<u32> {
    u32::try_from(rank)
        .ok()
        .filter(|rank| *rank < link.nranks)
        .ok_or_else(|| Error::argument(format!("{what} {rank} is not one of the {} ranks", link.nranks)))
}

/// Buffers of a collective.
struct Buffers {
    send: ConstPtr,
    recv: MutPtr,
    count: usize,
    datatype: i32,
}

impl Buffers {
    /// The task, or None when there is nothing to move.
    fn task(&self, link: &Link, kind: Kind, reduction: impl FnOnce(DataType) -> Result<Reduction>) -> Result<Option<Task>> {
        let datatype = DataType::from_code(self.datatype)?;
        let reduction = reduction(datatype)?;
        if self.count == 0 {
            return Ok(None);
        }
        let bytes = self.count.checked_mul(datatype.bytes()).and_then(|n| n.checked_mul(link.nranks as usize));
        if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(Error::argument(format!("a count of {} is out of range", self.count)));
        }
        if kind.is_source(link.rank) && self.send.is_null() {
            return Err(Error::argument("the send buffer is NULL"));
        }
        if kind.is_reader(link.rank) && self.recv.is_null() {
            return Err(Error::argument("the receive buffer is NULL"));
        }
        Ok(Some(Task::Collective(Collective {
            kind,
            send: self.send.expose_provenance(),
            recv: self.recv.expose_provenance(),
            count: self.count,
            datatype,
            reduction,
        })))
    }

    fn reducing(&self, comm: &Comm, link: &Link, kind: Kind, op: i32) -> Result<Option<Task>> {
        let redops = comm.redops.lock().unwrap_or_else(PoisonError::into_inner);
        self.task(link, kind, |datatype| redops.resolve(op, datatype, link.nranks))
    }

    fn moving(&self, link: &Link, kind: Kind) -> Result<Option<Task>> {
        self.task(link, kind, |_| Ok(Reduction::Fixed(Operator::Sum)))
    }
}

/// `ncclAllReduce`.
///
/// # Safety
/// Buffers have `count` elements and stay valid until the operation has left `stream`; `comm` and `stream`
/// are handles or NULL. The same holds for all calls of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllReduce(
    send: ConstPtr,
    recv: MutPtr,
    count: usize,
    datatype: i32,
    op: i32,
    comm: CommHandle,
    stream: StreamHandle,
) -> ResultCode {
    let buffers = Buffers { send, recv, count, datatype };
    enqueue(Place { comm, stream }, |comm, link| buffers.reducing(comm, link, Kind::AllReduce, op))
}

/// `ncclReduce`: `recv` is used at `root` only.
///
/// # Safety
/// As [`ncclAllReduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclReduce(
    send: ConstPtr,
    recv: MutPtr,
    count: usize,
    datatype: i32,
    op: i32,
    root: i32,
    comm: CommHandle,
    stream: StreamHandle,
) -> ResultCode {
    let buffers = Buffers { send, recv, count, datatype };
    enqueue(Place { comm, stream }, |comm, link| {
        let root = rank_of(link, root, "root")?;
        buffers.reducing(comm, link, Kind::Reduce { root }, op)
    })
}

/// `ncclReduceScatter`: `count` elements are received, nranks × `count` sent.
///
/// # Safety
/// As [`ncclAllReduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclReduceScatter(
    send: ConstPtr,
    recv: MutPtr,
    count: usize,
    datatype: i32,
    op: i32,
    comm: CommHandle,
    stream: StreamHandle,
) -> ResultCode {
    let buffers = Buffers { send, recv, count, datatype };
    enqueue(Place { comm, stream }, |comm, link| buffers.reducing(comm, link, Kind::ReduceScatter, op))
}

/// `ncclBroadcast`: `send` is used at `root` only.
///
/// # Safety
/// As [`ncclAllReduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclBroadcast(
    send: ConstPtr,
    recv: MutPtr,
    count: usize,
    datatype: i32,
    root: i32,
    comm: CommHandle,
    stream: StreamHandle,
) -> ResultCode {
    let buffers = Buffers { send, recv, count, datatype };
    enqueue(Place { comm, stream }, |_, link| {
        buffers.moving(link, Kind::Broadcast { root: rank_of(link, root, "root")? })
    })
}

/// `ncclBcast`: in place.
///
/// # Safety
/// As [`ncclAllReduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclBcast(
    buffer: MutPtr,
    count: usize,
    datatype: i32,
    root: i32,
    comm: CommHandle,
    stream: StreamHandle,
) -> ResultCode {
    // SAFETY: the caller's promise.
    unsafe { ncclBroadcast(buffer, buffer, count, datatype, root, comm, stream) }
}

/// `ncclAllGather`.
///
/// # Safety
/// As [`ncclAllReduce`]; `recv` has nranks × `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllGather(
    send: ConstPtr,
    recv: MutPtr,
    count: usize,
    datatype: i32,
    comm: CommHandle,
    stream: StreamHandle,
) -> ResultCode {
    let buffers = Buffers { send, recv, count, datatype };
    enqueue(Place { comm, stream }, |_, link| buffers.moving(link, Kind::AllGather))
}

/// `ncclAlltoAll`.
///
/// # Safety
/// As [`ncclAllReduce`]; both buffers have nranks × `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAlltoAll(
    send: ConstPtr,
    recv: MutPtr,
    count: usize,
    datatype: i32,
    comm: CommHandle,
    stream: StreamHandle,
) -> ResultCode {
    let buffers = Buffers { send, recv, count, datatype };
    enqueue(Place { comm, stream }, |_, link| buffers.moving(link, Kind::AllToAll))
}

/// `ncclGather`: `recv` is used at `root` only, nranks × `count` elements.
///
/// # Safety
/// As [`ncclAllReduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGather(
    send: ConstPtr,
    recv: MutPtr,
    count: usize,
    datatype: i32,
    root: i32,
    comm: CommHandle,
    stream: StreamHandle,
) -> ResultCode {
    let buffers = Buffers { send, recv, count, datatype };
    enqueue(Place { comm, stream }, |_, link| {
        buffers.moving(link, Kind::Gather { root: rank_of(link, root, "root")? })
    })
}

/// `ncclScatter`: `send` is used at `root` only, nranks × `count` elements.
///
/// # Safety
/// As [`ncclAllReduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclScatter(
    send: ConstPtr,
    recv: MutPtr,
    count: usize,
    datatype: i32,
    root: i32,
    comm: CommHandle,
    stream: StreamHandle,
) -> ResultCode {
    let buffers = Buffers { send, recv, count, datatype };
    enqueue(Place { comm, stream }, |_, link| {
        buffers.moving(link, Kind::Scatter { root: rank_of(link, root, "root")? })
    })
}

fn transfer(
    direction: Direction,
    buffer: ConstPtr,
    count: usize,
    datatype: i32,
    peer: i32,
    place: Place,
) -> ResultCode {
    enqueue(place, |_, link| {
        let peer = rank_of(link, peer, "peer")?;
        let size = DataType::from_code(datatype)?.bytes();
        let bytes = count.checked_mul(size).filter(|bytes| *bytes <= isize::MAX as usize);
        let bytes = bytes.ok_or_else(|| Error::argument(format!("a count of {count} is out of range")))?;
        if bytes == 0 {
            return Ok(None);
        }
        if buffer.is_null() {
            return Err(Error::argument("the buffer is NULL"));
        }
        Ok(Some(Task::Transfer(Transfer { direction, peer, buffer: buffer.expose_provenance(), bytes })))
    })
}

/// `ncclSend`.
///
/// # Safety
/// As [`ncclAllReduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclSend(
    send: ConstPtr,
    count: usize,
    datatype: i32,
    peer: i32,
    comm: CommHandle,
    stream: StreamHandle,
) -> ResultCode {
    transfer(Direction::Send, send, count, datatype, peer, Place { comm, stream })
}

/// `ncclRecv`.
///
/// # Safety
/// As [`ncclAllReduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclRecv(
    recv: MutPtr,
    count: usize,
    datatype: i32,
    peer: i32,
    comm: CommHandle,
    stream: StreamHandle,
) -> ResultCode {
    recv.expose_provenance();
    transfer(Direction::Receive, recv, count, datatype, peer, Place { comm, stream })
}
