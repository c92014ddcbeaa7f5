//! The element types of NCCL.

use crate::error::{Error, Result};

/// `ncclDataType_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum DataType {
    Int8 = 0,
    Uint8 = 1,
    Int32 = 2,
    Uint32 = 3,
    Int64 = 4,
    Uint64 = 5,
    Float16 = 6,
    Float32 = 7,
    Float64 = 8,
    Bfloat16 = 9,
    Float8e4m3 = 10,
    Float8e5m2 = 11,
}

impl DataType {
    /// All types, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Int8,
        Self::Uint8,
        Self::Int32,
        Self::Uint32,
        Self::Int64,
        Self::Uint64,
        Self::Float16,
        Self::Float32,
        Self::Float64,
        Self::Bfloat16,
        Self::Float8e4m3,
        Self::Float8e5m2,
    ];

    /// The type with this number, or `ncclInvalidArgument`.
    pub fn from_code(code: i32) -> Result<Self> {
        usize::try_from(code)
            .ok()
            .and_then(|index| Self::ALL.get(index).copied())
            .ok_or_else(|| Error::argument(format!("data type {code} is not one of 0..=11")))
    }

    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 | Self::Float8e4m3 | Self::Float8e5m2 => 1,
            Self::Float16 | Self::Bfloat16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float32 => 4,
            Self::Int64 | Self::Uint64 | Self::Float64 => 8,
        }
    }

    /// True for the integer types.
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::Int8 | Self::Uint8 | Self::Int32 | Self::Uint32 | Self::Int64 | Self::Uint64)
    }
}
