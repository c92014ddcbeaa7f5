//! Types of arguments: how each is given, recorded and printed.

use super::Request;
use crate::backend::DevicePtr;
use crate::handle::{HandleKind, VirtualHandle};
use core::fmt;

/// Type of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgType {
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 64 bits; sizes and counts.
    U64,
    /// A float's bits.
    F32,
    /// 32 bits of flags.
    Flags,
    /// `ncclDataType_t`.
    DataType,
    /// `ncclRedOp_t`, or the virtual handle of one that the application made.
    ReduceOperator,
    /// A virtual handle.
    Handle {
        /// Of this kind.
        kind: HandleKind,
        /// NULL means something (the default stream, no communicator).
        nullable: bool,
    },
    /// An address in the device's window.
    DevicePtr,
    /// An address of the process that recorded it; for reading by people only.
    HostPtr,
    /// Bytes of any length.
    Data,
    /// UTF-8.
    Text,
    /// One or more unique ids of 128 bytes (virtual ones).
    UniqueId,
    /// A flattened `ncclConfig_t`; empty for NULL.
    Config,
    /// 32-bit rank numbers.
    Ranks,
    /// Parameters of a kernel, packed.
    Params,
}

/// Length of a unique id.
pub const UNIQUE_ID_BYTES: usize = 128;

impl ArgType {
    /// Recorded as a run of bytes, not as a word.
    pub const fn is_bytes(self) -> bool {
        matches!(self, Self::Data | Self::Text | Self::UniqueId | Self::Config | Self::Ranks | Self::Params)
    }

    /// Does a recorded word fit the type?
    pub(super) const fn word_fits(self, word: u64) -> bool {
        match self {
            Self::U32 | Self::I32 | Self::F32 | Self::Flags | Self::DataType => word >> 32 == 0,
            _ => true,
        }
    }

    /// Do recorded bytes fit the type?
    pub(super) fn bytes_fit(self, bytes: &[u8]) -> bool {
        match self {
            Self::Text => core::str::from_utf8(bytes).is_ok(),
            Self::UniqueId => bytes.len().is_multiple_of(UNIQUE_ID_BYTES),
            Self::Ranks => bytes.len().is_multiple_of(4),
            _ => true,
        }
    }

    /// A foreign stream or pointer may stand here.
    pub const fn may_be_foreign(self) -> bool {
        matches!(self, Self::Handle { .. } | Self::DevicePtr | Self::HostPtr)
    }
}

impl fmt::Display for ArgType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::U64 => "u64",
            Self::F32 => "f32",
            Self::Flags => "flags",
            Self::DataType => "data type",
            Self::ReduceOperator => "reduction operator",
            Self::DevicePtr => "device pointer",
            Self::HostPtr => "host pointer",
            Self::Data => "bytes",
            Self::Text => "text",
            Self::UniqueId => "unique id",
            Self::Config => "config",
            Self::Ranks => "ranks",
            Self::Params => "kernel parameters",
            Self::Handle { kind, nullable } => {
                return write!(f, "{}{}", kind_name(*kind), if *nullable { " or null" } else { "" });
            }
        })
    }
}

/// A kind of handle in words.
pub fn kind_name(kind: HandleKind) -> &'static str {
    match kind {
        HandleKind::Communicator => "communicator",
        HandleKind::Stream => "stream",
        HandleKind::Event => "event",
        HandleKind::Module => "module",
        HandleKind::Function => "function",
        HandleKind::GraphExec => "graph",
        HandleKind::Library => "library",
        HandleKind::RedOp => "redop",
        HandleKind::Registration => "registration",
        HandleKind::Window => "window",
        HandleKind::User => "user",
    }
}

/// Names of `ncclDataType_t`, by value.
pub const DATA_TYPES: [&str; 12] = [
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16", "float8e4m3",
    "float8e5m2",
];

/// Names of the built-in `ncclRedOp_t`, by value.
pub const REDUCE_OPERATORS: [&str; 5] = ["sum", "prod", "max", "min", "avg"];

/// A reduction operator: one of NCCL's own, or the virtual handle of one that the application made
/// (whose real value changes with its communicator).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReduceOperator {
    /// `ncclSum` 0 … `ncclAvg` 4.
    BuiltIn(i32),
    /// Made by `ncclRedOpCreatePreMulSum`.
    Custom(VirtualHandle),
}

impl From<i32> for ReduceOperator {
    fn from(value: i32) -> Self {
        Self::BuiltIn(value)
    }
}

impl From<VirtualHandle> for ReduceOperator {
    fn from(handle: VirtualHandle) -> Self {
        Self::Custom(handle)
    }
}

/// How a type of the table is put into a request and read back. Implemented by the markers in [`mark`].
pub trait Wire {
    /// The type in Rust.
    type Value<'a>;
    /// The type in the table.
    const TYPE: ArgType;
    /// Appends it to a request.
    fn put<'a>(value: Self::Value<'a>, request: &mut Request<'a>);
    /// Reads the next one of a request.
    fn take<'a>(cursor: &mut Cursor<'a, '_>) -> Self::Value<'a>;
}

/// Reads a request's words and bytes in order.
pub struct Cursor<'a, 'r> {
    request: &'r Request<'a>,
    words: usize,
    bytes: usize,
}

impl<'a, 'r> Cursor<'a, 'r> {
    pub(super) fn new(request: &'r Request<'a>) -> Self {
        Self { request, words: 0, bytes: 0 }
    }

    #[inline(always)]
    fn word(&mut self) -> u64 {
        self.words += 1;
        self.request.head.word(self.words - 1).unwrap_or(0)
    }

    #[inline(always)]
    fn bytes(&mut self) -> &'a [u8] {
        self.bytes += 1;
        self.request.bytes.get(self.bytes - 1).copied().unwrap_or(&[])
    }
}

/// The types that rows of the table name. None of them has values.
#[allow(missing_docs)]
pub mod mark {
    use super::*;

    macro_rules! words {
        ($($mark:ident: $value:ty = $ty:expr, $to:expr, $from:expr;)*) => {$(
            pub enum $mark {}
            impl Wire for $mark {
                type Value<'a> = $value;
                const TYPE: ArgType = $ty;
                #[inline(always)]
                fn put<'a>(value: $value, request: &mut Request<'a>) {
                    let to: fn($value) -> u64 = $to;
                    request.push_word(to(value));
                }
                #[inline(always)]
                fn take<'a>(cursor: &mut Cursor<'a, '_>) -> $value {
                    let from: fn(u64) -> $value = $from;
                    from(cursor.word())
                }
            }
        )*};
    }

    macro_rules! handles {
        ($($mark:ident = $kind:ident, $nullable:literal;)*) => { words! {$(
            $mark: VirtualHandle = ArgType::Handle { kind: HandleKind::$kind, nullable: $nullable }, |v| v.0, VirtualHandle;
        )*} };
    }

    macro_rules! bytes {
        ($($mark:ident = $ty:ident;)*) => {$(
            pub enum $mark {}
            impl Wire for $mark {
                type Value<'a> = &'a [u8];
                const TYPE: ArgType = ArgType::$ty;
                #[inline(always)]
                fn put<'a>(value: &'a [u8], request: &mut Request<'a>) {
                    request.push_bytes(value);
                }
                #[inline(always)]
                fn take<'a>(cursor: &mut Cursor<'a, '_>) -> &'a [u8] {
                    cursor.bytes()
                }
            }
        )*};
    }

    words! {
        U32: u32 = ArgType::U32, u64::from, |w| w as u32;
        I32: i32 = ArgType::I32, |v| u64::from(v as u32), |w| w as u32 as i32;
        U64: u64 = ArgType::U64, |v| v, |w| w;
        F32: f32 = ArgType::F32, |v| u64::from(v.to_bits()), |w| f32::from_bits(w as u32);
        Flags: u32 = ArgType::Flags, u64::from, |w| w as u32;
        DataType: i32 = ArgType::DataType, |v| u64::from(v as u32), |w| w as u32 as i32;
        DevPtr: DevicePtr = ArgType::DevicePtr, |v| v.0, DevicePtr;
        HostPtr: u64 = ArgType::HostPtr, |v| v, |w| w;
        Operator: ReduceOperator = ArgType::ReduceOperator, operator_to_word, operator_from_word;
    }

    handles! {
        Comm = Communicator, false;
        CommOrNull = Communicator, true;
        Stream = Stream, true;
        Event = Event, false;
        Module = Module, false;
        Function = Function, false;
        GraphExec = GraphExec, false;
        Library = Library, false;
        RedOp = RedOp, false;
        Registration = Registration, false;
        Window = Window, false;
    }

    bytes! { Data = Data; UniqueId = UniqueId; Config = Config; Ranks = Ranks; Params = Params; }

    pub enum Text {}
    impl Wire for Text {
        type Value<'a> = &'a str;
        const TYPE: ArgType = ArgType::Text;
        #[inline(always)]
        fn put<'a>(value: &'a str, request: &mut Request<'a>) {
            request.push_bytes(value.as_bytes());
        }
        #[inline(always)]
        fn take<'a>(cursor: &mut Cursor<'a, '_>) -> &'a str {
            // Decoding has checked it; nothing else makes a request of other bytes.
            core::str::from_utf8(cursor.bytes()).unwrap_or_default()
        }
    }

    // A built-in operator is an int of C; a virtual handle never fits in 32 bits.
    fn operator_to_word(operator: ReduceOperator) -> u64 {
        match operator {
            ReduceOperator::BuiltIn(value) => u64::from(value as u32),
            ReduceOperator::Custom(handle) => handle.0,
        }
    }

    pub(in crate::request) fn operator_from_word(word: u64) -> ReduceOperator {
        match u32::try_from(word) {
            Ok(value) => ReduceOperator::BuiltIn(value as i32),
            Err(_) => ReduceOperator::Custom(VirtualHandle(word)),
        }
    }
}
