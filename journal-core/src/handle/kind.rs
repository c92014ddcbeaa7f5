//! What a virtual handle stands for.

/// Kind of object behind a virtual handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum HandleKind {
    Communicator = 1,
    Stream = 2,
    Event = 3,
    Module = 4,
    Function = 5,
    GraphExec = 6,
    Library = 7,
    RedOp = 8,
    Registration = 9,
    Window = 10,
    User = 11,
}

impl HandleKind {
    /// The kind with this number.
    #[inline]
    pub fn from_number(number: u8) -> Option<Self> {
        use HandleKind::*;
        const ALL: [HandleKind; 11] =
            [Communicator, Stream, Event, Module, Function, GraphExec, Library, RedOp, Registration, Window, User];
        ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}
