//! What the table says about one API: its arguments, its class, how it is replayed.

use super::argument::ArgType;
use super::opcode::OpCode;
use crate::handle::HandleKind;

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    /// Its number, which is the record's kind.
    pub opcode: OpCode,
    /// The function's name in CUDA, NCCL or Rejoin.
    pub name: &'static str,
    /// Name of the constructor in this module, and of the C constant.
    pub constructor: &'static str,
    /// Arguments in the order of the C function; one that comes back in the result is last.
    pub args: &'static [Arg],
    /// What it does to the job.
    pub class: Class,
    /// What stage 1 (set-up) and stage 2 (open step) of a replay do with it.
    pub replay: (Rule, Rule),
}

/// One argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arg {
    /// Name in the C function.
    pub name: &'static str,
    /// Who gives it.
    pub direction: Direction,
    /// Its type.
    pub ty: ArgType,
    /// The call uses up this handle: it is retired when the call succeeds.
    pub consumed: bool,
    /// Does it have to be equal when a replacement's call is matched to a recorded one?
    pub matching: Matching,
    /// Where a record keeps it.
    pub slot: Slot,
}

/// Who gives an argument. A virtual handle given back is reserved, and recorded, before the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Direction {
    In,
    Out,
}

/// How an argument takes part in matching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matching {
    /// Must be the same.
    Identity,
    /// May differ (outputs, host addresses).
    Ignore,
}

/// Where a record keeps an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// n-th 64-bit word.
    Word(u8),
    /// n-th run of bytes.
    Bytes(u8),
    /// In the record's result: known only after the call.
    Result,
}

/// What a request does to the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Creates or configures something that lives on.
    Setup,
    /// Releases something.
    Teardown,
    /// Work on the device: copies, launches, waits.
    Step,
    /// All ranks of a communicator together.
    Collective,
    /// Two ranks of a communicator.
    PointToPoint,
    /// Changes nothing.
    Query,
    /// Opens or closes a group.
    Group,
}

/// What a stage of a replay does with a recorded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Executed again with the recorded arguments; an allocation at its recorded address.
    Execute,
    /// Not executed again; its effect is nothing, or comes back by restore.
    Skip,
    /// Not executed here: recovery makes the object anew (identifiers and values differ) and binds it.
    Rebuild,
    /// Cannot be replayed.
    Refuse(Reason),
}

/// Why a request cannot be replayed. Numbers are in records: fixed, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// Calls a function of the application.
    HostCallback = 1,
    /// Work goes into a graph instead of being done.
    GraphCapture = 2,
    /// Memory or an event of another process.
    IpcImport = 3,
    /// An API that the table does not know.
    UnknownCall = 4,
    /// A stream or pointer that Rejoin did not make.
    ForeignArgument = 5,
    /// Only size and checksum of the bytes were recorded.
    BytesNotRecorded = 6,
    /// Communicators change only before the first step.
    CommunicatorInStep = 7,
    /// One-sided access to a window of another rank.
    OneSided = 8,
    /// The application reset the device itself.
    DeviceReset = 9,
    /// A user request whose process has no replay function for it.
    UserRequest = 10,
    /// Several devices in one process.
    SeveralDevices = 11,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 11] = [
        Self::HostCallback,
        Self::GraphCapture,
        Self::IpcImport,
        Self::UnknownCall,
        Self::ForeignArgument,
        Self::BytesNotRecorded,
        Self::CommunicatorInStep,
        Self::OneSided,
        Self::DeviceReset,
        Self::UserRequest,
        Self::SeveralDevices,
    ];

    /// The reason with this number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u8 == code)
    }

    /// What it means and what to do instead.
    pub fn text(self) -> &'static str {
        match self {
            Self::HostCallback => "it calls a function of the application; use policy redo",
            Self::GraphCapture => "it works through a captured graph; launch the kernels directly, or use policy redo",
            Self::IpcImport => "it maps memory of another process; use policy redo",
            Self::UnknownCall => "the call is not in the table of requests; use policy redo",
            Self::ForeignArgument => "it uses a stream or pointer that Rejoin did not make; use policy redo",
            Self::BytesNotRecorded => "its bytes were not recorded, only their checksum; run with policy replay",
            Self::CommunicatorInStep => "it changes communicators inside a step; create them before setup_done",
            Self::OneSided => "it accesses a window of another rank; use policy redo",
            Self::DeviceReset => "the application reset the device itself",
            Self::UserRequest => "it is a request of the application's own without a replay function",
            Self::SeveralDevices => "it uses several devices in one process; use one process a device",
        }
    }
}

impl core::fmt::Display for Reason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.text())
    }
}

impl Row {
    /// Position of the communicator argument, counted from 0; a communicator that is created does not count.
    pub fn communicator(&self) -> Option<usize> {
        self.args.iter().position(|arg| {
            arg.direction == Direction::In && matches!(arg.ty, ArgType::Handle { kind: HandleKind::Communicator, .. })
        })
    }

    /// Stage 1 does not execute it.
    pub fn in_skip_set(&self) -> bool {
        matches!(self.replay.0, Rule::Skip | Rule::Rebuild)
    }

    /// Handles that the call creates: position and kind.
    pub fn creates(&self) -> impl Iterator<Item = (usize, HandleKind)> {
        self.args.iter().enumerate().filter_map(|(position, arg)| match arg.ty {
            ArgType::Handle { kind, .. } if arg.direction == Direction::Out => Some((position, kind)),
            _ => None,
        })
    }

    /// Handles that the call uses up: position and kind.
    pub fn destroys(&self) -> impl Iterator<Item = (usize, HandleKind)> {
        self.args.iter().enumerate().filter_map(|(position, arg)| match arg.ty {
            ArgType::Handle { kind, .. } if arg.consumed => Some((position, kind)),
            _ => None,
        })
    }

    /// Handles that must resolve before the call: position, kind, may it be null.
    pub fn uses(&self) -> impl Iterator<Item = (usize, HandleKind, bool)> {
        self.args.iter().enumerate().filter_map(|(position, arg)| match arg.ty {
            ArgType::Handle { kind, nullable } if arg.direction == Direction::In => Some((position, kind, nullable)),
            _ => None,
        })
    }

    /// 64-bit words that its records carry.
    pub const fn words(&self) -> usize {
        count(self.args, false)
    }

    /// Runs of bytes that its records carry.
    pub const fn byte_runs(&self) -> usize {
        count(self.args, true)
    }
}

const fn count(args: &[Arg], bytes: bool) -> usize {
    let (mut n, mut i) = (0, 0);
    while i < args.len() {
        match args[i].slot {
            Slot::Word(_) if !bytes => n += 1,
            Slot::Bytes(_) if bytes => n += 1,
            _ => {}
        }
        i += 1;
    }
    n
}

/// Gives each argument its place in a record, in order.
pub(super) const fn placed<const N: usize>(mut args: [Arg; N]) -> [Arg; N] {
    let (mut words, mut bytes, mut i) = (0, 0, 0);
    while i < N {
        if !matches!(args[i].slot, Slot::Result) {
            if args[i].ty.is_bytes() {
                args[i].slot = Slot::Bytes(bytes);
                bytes += 1;
            } else {
                args[i].slot = Slot::Word(words);
                words += 1;
            }
        }
        i += 1;
    }
    assert!(words as usize <= super::MAX_WORDS && bytes as usize <= super::MAX_BYTE_RUNS && N <= 16);
    args
}
