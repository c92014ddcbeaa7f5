//! Requests: one API call each, complete enough to be executed in another process.
//!
//! ```text
//! opcode (the table) -> constructors -> Request -> encode -> record payload -> decode -> Request -> call() -> executor
//! ```
//!
//! ```
//! use journal_core::{backend::DevicePtr, handle::VirtualHandle, request};
//! let (p, comm, stream) = (DevicePtr(0x4000_0000_0000), VirtualHandle(1), VirtualHandle(0));
//! let request = request::all_reduce(p, p, 1024, 7, 0.into(), comm, stream);
//! let read = request::decode(request.code(), &request.to_vec())?;
//! assert!(matches!(read.call(), request::Call::AllReduce { count: 1024, .. }));
//! assert_eq!(request.row().communicator(), Some(5));
//! # Ok::<(), request::DecodeError>(())
//! ```

pub mod argument;
mod compaction;
mod decode;
mod derivation;
mod display;
mod encode;
mod head;
mod opcode;
mod reference;
mod row;

pub use argument::{ArgType, ReduceOperator};
pub use compaction::unneeded;
use head::Head;

pub use decode::{AbsentRequest, DecodeError, OwnedRequest, decode, decode_absent, decode_borrowed};
pub use encode::{ENCODING_VERSION, Parts};
pub use opcode::constructors::*;
pub use opcode::{Call, OpCode};
pub use reference::{c_constants, c_name, markdown};
pub use row::{Arg, Class, Direction, Matching, Reason, Row, Rule, Slot};

/// Most words that a request carries.
pub const MAX_WORDS: usize = 12;
/// Most runs of bytes that a request carries.
pub const MAX_BYTE_RUNS: usize = 2;
/// First number of user requests.
pub const USER_BASE: u16 = 0x8000;

/// Which part of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The set-up.
    Setup,
    /// The open step.
    Step,
}

/// One API call. Made by the constructors, one a row, or by [`decode_borrowed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    code: u16,
    op: OpCode,
    head: Head,
    bytes: [&'a [u8]; MAX_BYTE_RUNS],
}

impl<'a> Request<'a> {
    #[inline(always)]
    fn empty(op: OpCode) -> Self {
        Self {
            code: op as u16,
            op,
            head: Head::EMPTY,
            bytes: [&[]; MAX_BYTE_RUNS],
        }
    }

    #[inline(always)]
    fn push_word(&mut self, word: u64) {
        self.head.push_word(word);
    }

    #[inline(always)]
    fn push_bytes(&mut self, run: &'a [u8]) {
        self.bytes[self.head.push_run()] = run;
    }

    /// The last word has been pushed.
    #[inline(always)]
    fn with_lengths(mut self) -> Self {
        for (n, run) in self.bytes[..self.head.runs()].iter().enumerate() {
            self.head.set_length(n, run.len());
        }
        self
    }

    /// A request of the application's own. None when `number` is 0x8000 or more.
    pub fn user(number: u16, payload: &'a [u8]) -> Option<Self> {
        let mut request = user_opaque(payload);
        request.code = (number < USER_BASE).then_some(USER_BASE | number)?;
        Some(request)
    }

    /// Marks the argument at `position` as foreign: a native stream or pointer, passed through as it is.
    /// Arguments that cannot be foreign (sizes, bytes) are left alone.
    pub fn foreign(mut self, position: usize) -> Self {
        if self.row().args.get(position).is_some_and(|arg| arg.ty.may_be_foreign() && arg.slot != Slot::Result) {
            self.head.add_foreign(position);
        }
        self
    }

    /// Records that it cannot be replayed although its row can.
    pub fn with_reason(mut self, reason: Reason) -> Self {
        self.head.set_reason(reason);
        self
    }

    /// Its row's number.
    #[inline]
    pub fn op(&self) -> OpCode {
        self.op
    }

    /// The record's kind: [`Self::op`], with the application's number in a user request.
    #[inline]
    pub fn code(&self) -> u16 {
        self.code
    }

    /// What the table says about it.
    #[inline]
    pub fn row(&self) -> &'static Row {
        self.op.row()
    }

    /// Number of a user request.
    pub fn user_number(&self) -> Option<u16> {
        self.code.checked_sub(USER_BASE)
    }

    /// Its arguments by name.
    #[inline]
    pub fn call(&self) -> Call<'a> {
        Call::of(self)
    }

    /// The word of the argument at `position` (a handle, a pointer, a number); None for bytes and results.
    #[inline]
    pub fn word(&self, position: usize) -> Option<u64> {
        match self.row().args.get(position)?.slot {
            Slot::Word(n) => self.head.word(usize::from(n)),
            _ => None,
        }
    }

    /// Replaces that word: how a replay puts in another handle.
    pub fn set_word(&mut self, position: usize, word: u64) -> bool {
        match self.row().args.get(position).map(|arg| arg.slot) {
            Some(Slot::Word(n)) => {
                self.head.set_word(usize::from(n), word);
                true
            }
            _ => false,
        }
    }

    /// The bytes of the argument at `position`; None for words and results.
    pub fn bytes(&self, position: usize) -> Option<&'a [u8]> {
        match self.row().args.get(position)?.slot {
            Slot::Bytes(n) => Some(self.bytes[usize::from(n)]),
            _ => None,
        }
    }

    /// Is the argument at `position` foreign?
    #[inline]
    pub fn is_foreign(&self, position: usize) -> bool {
        position < 16 && self.head.foreign() >> position & 1 == 1
    }

    /// Positions of foreign arguments, one bit each.
    pub fn foreign_mask(&self) -> u16 {
        self.head.foreign()
    }

    /// What a stage of a replay does with this request.
    pub fn rule(&self, stage: Stage) -> Rule {
        let by_row = match stage {
            Stage::Setup => self.row().replay.0,
            Stage::Step => self.row().replay.1,
        };
        match (by_row, self.head.reason()) {
            // What is not executed again needs no argument either.
            (Rule::Skip | Rule::Refuse(_), _) => by_row,
            (_, Some(reason)) => Rule::Refuse(reason),
            _ if self.head.foreign() != 0 => Rule::Refuse(Reason::ForeignArgument),
            _ => by_row,
        }
    }

    /// Why it cannot be replayed in this stage, if it cannot.
    pub fn obstacle(&self, stage: Stage) -> Option<Reason> {
        match self.rule(stage) {
            Rule::Refuse(reason) => Some(reason),
            _ => None,
        }
    }

    /// Is this the same request, as far as a replacement's call can be? Outputs and host addresses may differ.
    pub fn matches(&self, other: &Request<'_>) -> bool {
        self.code == other.code
            && self.head.foreign() == other.head.foreign()
            && self.row().args.iter().filter(|arg| arg.matching == Matching::Identity).all(|arg| match arg.slot {
                Slot::Word(n) => self.head.word(usize::from(n)) == other.head.word(usize::from(n)),
                Slot::Bytes(n) => self.bytes[usize::from(n)] == other.bytes[usize::from(n)],
                Slot::Result => true,
            })
    }
}

/// What stage 1 does not execute.
pub fn skip_set() -> impl Iterator<Item = OpCode> {
    OpCode::ALL.iter().copied().filter(|op| op.row().in_skip_set())
}

#[cfg(test)]
mod tests;
