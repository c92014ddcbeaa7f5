//! Requests in words, as the inspector prints them.

use super::argument::{ArgType, DATA_TYPES, REDUCE_OPERATORS, ReduceOperator, kind_name, mark};
use super::row::Slot;
use super::{OpCode, Request};
use core::fmt;

/// Bytes of a run that are printed.
const SHOWN_BYTES: usize = 16;

impl fmt::Display for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.row();
        match self.user_number() {
            Some(number) if self.op() == OpCode::User => write!(f, "{} {number}(", row.name)?,
            _ => write!(f, "{}(", row.name)?,
        }
        let mut separator = "";
        for (position, arg) in row.args.iter().enumerate() {
            if arg.slot == Slot::Result {
                continue;
            }
            write!(f, "{separator}{}=", arg.name)?;
            separator = ", ";
            if self.is_foreign(position) {
                f.write_str("foreign ")?;
            }
            match arg.slot {
                Slot::Word(n) => write_word(f, arg.ty, self.head.words()[usize::from(n)], self.is_foreign(position))?,
                Slot::Bytes(n) => write_bytes(f, arg.ty, self.bytes[usize::from(n)])?,
                Slot::Result => {}
            }
        }
        f.write_str(")")
    }
}

impl Request<'_> {
    /// The record's result in words, if the row has one.
    pub fn result_text(&self, result: u64) -> Option<String> {
        struct Word(ArgType, u64);
        impl fmt::Display for Word {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_word(f, self.0, self.1, false)
            }
        }
        let arg = self.row().args.iter().find(|arg| arg.slot == Slot::Result)?;
        Some(format!("{}={}", arg.name, Word(arg.ty, result)))
    }
}

fn write_word(f: &mut fmt::Formatter<'_>, ty: ArgType, word: u64, foreign: bool) -> fmt::Result {
    let named = |f: &mut fmt::Formatter<'_>, names: &[&str], value: i32| match names.get(value as usize) {
        Some(name) if value >= 0 => f.write_str(name),
        _ => write!(f, "{value}"),
    };
    match ty {
        ArgType::U32 => write!(f, "{}", word as u32),
        ArgType::I32 => write!(f, "{}", word as u32 as i32),
        ArgType::F32 => write!(f, "{}", f32::from_bits(word as u32)),
        ArgType::Flags | ArgType::DevicePtr | ArgType::HostPtr => write!(f, "{word:#x}"),
        ArgType::DataType => named(f, &DATA_TYPES, word as u32 as i32),
        ArgType::ReduceOperator => match mark::operator_from_word(word) {
            ReduceOperator::BuiltIn(value) => named(f, &REDUCE_OPERATORS, value),
            ReduceOperator::Custom(handle) => write!(f, "redop:{:#x}", handle.0),
        },
        ArgType::Handle { .. } if foreign => write!(f, "{word:#x}"),
        ArgType::Handle { .. } if word == 0 => f.write_str("null"),
        ArgType::Handle { kind, .. } => write!(f, "{}:{word:#x}", kind_name(kind)),
        _ => write!(f, "{word}"),
    }
}

fn write_bytes(f: &mut fmt::Formatter<'_>, ty: ArgType, bytes: &[u8]) -> fmt::Result {
    match ty {
        ArgType::Text => write!(f, "{:?}", String::from_utf8_lossy(bytes)),
        ArgType::Ranks => {
            f.write_str("[")?;
            for (n, rank) in bytes.chunks_exact(4).enumerate() {
                let rank = i32::from_le_bytes(rank.try_into().expect("chunks of four"));
                write!(f, "{}{rank}", if n == 0 { "" } else { ", " })?;
            }
            f.write_str("]")
        }
        ArgType::Config if bytes.is_empty() => f.write_str("null"),
        _ => {
            write!(f, "<{} bytes", bytes.len())?;
            if !bytes.is_empty() {
                f.write_str(" ")?;
            }
            for byte in bytes.iter().take(SHOWN_BYTES) {
                write!(f, "{byte:02x}")?;
            }
            f.write_str(if bytes.len() > SHOWN_BYTES { "…>" } else { ">" })
        }
    }
}
