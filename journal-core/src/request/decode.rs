//! A record's payload as a request. Any bytes give a request or an error, never a panic.

use super::encode::ENCODING_VERSION;
use crate::journal::layout::ABSENT_DESCRIPTOR;
use super::row::{Reason, Slot};
use super::head::Head;
use super::{Call, MAX_BYTE_RUNS, OpCode, Request};

/// Why a payload is not a request. Offsets are in bytes from the start of the payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Written by a newer version.
    #[error("opcode {code:#06x} is not in this version's table")]
    UnknownOpCode {
        /// The record's kind.
        code: u16,
    },
    /// Another layout.
    #[error("payload layout {found}, this version reads {expected}")]
    Version {
        /// As written.
        found: u8,
        /// As understood.
        expected: u8,
    },
    /// Shorter than what it says it holds.
    #[error("payload ends at {len}, {needed} bytes needed")]
    Short {
        /// Its length.
        len: usize,
        /// What it says it needs; saturated.
        needed: usize,
    },
    /// Longer than what it says it holds.
    #[error("{extra} bytes after the end of the request at {offset}")]
    Trailing {
        /// End of the request.
        offset: usize,
        /// Bytes after it.
        extra: usize,
    },
    /// Counts of another row.
    #[error("{name} has {expected_words} words and {expected_runs} byte runs, payload has {words} and {runs}")]
    Shape {
        /// Name of the row.
        name: &'static str,
        /// By the table.
        expected_words: usize,
        /// By the table.
        expected_runs: usize,
        /// Found.
        words: usize,
        /// Found.
        runs: usize,
    },
    /// An argument does not fit its type.
    #[error("argument {argument} of {name} at {offset} is not a {expected}")]
    Argument {
        /// Name of the row.
        name: &'static str,
        /// Name of the argument.
        argument: &'static str,
        /// Where it is.
        offset: usize,
        /// Type by the table.
        expected: String,
    },
    /// Bits of the lead word that mean nothing.
    #[error("lead word {lead:#018x} has bits that mean nothing for {name}")]
    Lead {
        /// Name of the row.
        name: &'static str,
        /// The word.
        lead: u64,
    },
}

/// A request with bytes of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedRequest {
    code: u16,
    op: OpCode,
    head: Head,
    bytes: [Vec<u8>; MAX_BYTE_RUNS],
}

impl OwnedRequest {
    /// The same, borrowing its bytes.
    pub fn as_request(&self) -> Request<'_> {
        Request { code: self.code, op: self.op, head: self.head, bytes: [&self.bytes[0], &self.bytes[1]] }
    }

    /// Its arguments by name.
    pub fn call(&self) -> Call<'_> {
        self.as_request().call()
    }

    /// Its row's number.
    pub fn op(&self) -> OpCode {
        self.op
    }
}

impl Request<'_> {
    /// A copy with bytes of its own.
    pub fn to_owned(&self) -> OwnedRequest {
        OwnedRequest { code: self.code, op: self.op, head: self.head, bytes: [self.bytes[0].to_vec(), self.bytes[1].to_vec()] }
    }
}

impl core::fmt::Display for OwnedRequest {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.as_request().fmt(f)
    }
}

/// What is left of a request whose runs of bytes were not recorded ([`Outcome::Absent`](crate::journal::Outcome)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbsentRequest {
    /// The request with empty runs.
    pub head: OwnedRequest,
    /// Bytes that its runs had together.
    pub bytes: u64,
}

impl core::fmt::Display for AbsentRequest {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} without its {} bytes", self.head, self.bytes)
    }
}

/// Reads the payload of an absent record of kind `code`.
pub fn decode_absent(code: u16, payload: &[u8]) -> Result<AbsentRequest, DecodeError> {
    let op = OpCode::from_code(code).ok_or(DecodeError::UnknownOpCode { code })?;
    let (words, runs) = (op.row().words(), op.row().byte_runs());
    let (from, to) = (ABSENT_DESCRIPTOR as usize + 8 * (1 + words), ABSENT_DESCRIPTOR as usize + 8 * (1 + words + runs));
    let short = DecodeError::Short { len: payload.len(), needed: to };
    let Some(lengths) = payload.get(from..to) else { return Err(short) };
    let bytes = lengths.as_chunks::<8>().0.iter().fold(0_u64, |sum, length| sum.saturating_add(u64::from_le_bytes(*length)));
    let mut head = payload[ABSENT_DESCRIPTOR as usize..to].to_vec();
    head[8 * (1 + words)..].fill(0);
    Ok(AbsentRequest { head: decode(code, &head)?, bytes })
}

/// Reads the payload of a record of kind `code`.
pub fn decode(code: u16, payload: &[u8]) -> Result<OwnedRequest, DecodeError> {
    decode_borrowed(code, payload).map(|request| request.to_owned())
}

/// [`decode`] without copying runs of bytes.
pub fn decode_borrowed(code: u16, payload: &[u8]) -> Result<Request<'_>, DecodeError> {
    let op = OpCode::from_code(code).ok_or(DecodeError::UnknownOpCode { code })?;
    let row = op.row();
    let short = |needed: usize| DecodeError::Short { len: payload.len(), needed };
    let word_at = |index: usize| -> Result<u64, DecodeError> {
        let bytes = payload.get(index * 8..index * 8 + 8).ok_or_else(|| short(index * 8 + 8))?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes were taken")))
    };

    let lead = word_at(0)?;
    let [f0, f1, words, runs, reason_code, version, z0, z1] = lead.to_le_bytes();
    if version != ENCODING_VERSION {
        return Err(DecodeError::Version { found: version, expected: ENCODING_VERSION });
    }
    let (words, runs) = (usize::from(words), usize::from(runs));
    let (expected_words, expected_runs) = (row.words(), row.byte_runs());
    if (words, runs) != (expected_words, expected_runs) {
        return Err(DecodeError::Shape { name: row.name, expected_words, expected_runs, words, runs });
    }
    let foreign = u16::from_le_bytes([f0, f1]);
    let foreign_makes_sense = (0..16).filter(|bit| foreign >> bit & 1 == 1).all(|bit| {
        row.args.get(bit).is_some_and(|arg| arg.ty.may_be_foreign() && arg.slot != Slot::Result)
    });
    let knows_reason = reason_code == 0 || Reason::from_code(reason_code).is_some();
    if !foreign_makes_sense || (z0, z1) != (0, 0) || !knows_reason {
        return Err(DecodeError::Lead { name: row.name, lead });
    }

    let mut request = Request::empty(op);
    request.code = code;
    request.head.mark_as(lead);
    for index in 0..words {
        request.push_word(word_at(1 + index)?);
    }
    let mut at = 8 * (1 + words + runs);
    for index in 0..runs {
        let length = usize::try_from(word_at(1 + words + index)?).unwrap_or(usize::MAX);
        let end = at.saturating_add(length);
        request.push_bytes(payload.get(at..end).ok_or_else(|| short(end))?);
        at = end;
    }
    let request = request.with_lengths();
    if payload.len() != at {
        return Err(DecodeError::Trailing { offset: at, extra: payload.len() - at });
    }

    let mut run_offset = 8 * (1 + words + runs);
    for arg in row.args {
        let (fits, offset) = match arg.slot {
            Slot::Word(n) => (arg.ty.word_fits(request.head.words()[usize::from(n)]), 8 * (1 + usize::from(n))),
            Slot::Bytes(n) => {
                let run = request.bytes[usize::from(n)];
                run_offset += run.len();
                (arg.ty.bytes_fit(run), run_offset - run.len())
            }
            Slot::Result => continue,
        };
        if !fits {
            return Err(DecodeError::Argument { name: row.name, argument: arg.name, offset, expected: arg.ty.to_string() });
        }
    }
    Ok(request)
}
