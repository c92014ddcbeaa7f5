//! What a full journal does.

use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::layout::SPILL_DIRECTORY_WORDS;

/// Chosen at creation and kept in the header, so that every writer acts alike and `rejoin show` can tell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OverflowPolicy {
    /// An append returns [`AppendError::Full`](super::AppendError::Full).
    #[default]
    Error,
    /// An append waits for a step commit to make room, then is an error.
    Block {
        /// How long.
        timeout: Duration,
    },
    /// Further segments in shared memory.
    Grow {
        /// Bytes of all segments together.
        limit_bytes: u64,
    },
    /// Further segments are files, mapped shared: the same format with the capacity of a disk.
    Spill {
        /// An existing directory; its path has at most 255 bytes.
        directory: PathBuf,
    },
}

/// A policy as the header stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packed {
    pub number: u64,
    pub limit: u64,
    pub directory: [u64; SPILL_DIRECTORY_WORDS],
}

impl OverflowPolicy {
    /// Whether it makes further segments.
    pub(super) fn grows(&self) -> bool {
        matches!(self, Self::Grow { .. } | Self::Spill { .. })
    }

    /// `None` if the directory's path is too long or relative: peers have other working directories.
    pub(super) fn pack(&self) -> Option<Packed> {
        let plain = |number, limit| Some(Packed { number, limit, directory: [0; SPILL_DIRECTORY_WORDS] });
        match self {
            Self::Error => plain(0, 0),
            Self::Block { timeout } => plain(1, u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)),
            Self::Grow { limit_bytes } => plain(2, *limit_bytes),
            Self::Spill { directory } => {
                let path = directory.as_os_str().as_bytes();
                let mut bytes = [0; SPILL_DIRECTORY_WORDS * 8];
                // A zero ends the path.
                if !directory.is_absolute() || path.len() >= bytes.len() {
                    return None;
                }
                bytes[..path.len()].copy_from_slice(path);
                let (words, _) = bytes.as_chunks::<8>();
                let directory = std::array::from_fn(|i| u64::from_le_bytes(words[i]));
                Some(Packed { number: 3, limit: 0, directory })
            }
        }
    }

    pub(super) fn unpack(packed: &Packed) -> Option<Self> {
        match packed.number {
            0 => Some(Self::Error),
            1 => Some(Self::Block { timeout: Duration::from_nanos(packed.limit) }),
            2 => Some(Self::Grow { limit_bytes: packed.limit }),
            3 => {
                let bytes: Vec<u8> = packed.directory.iter().flat_map(|word| word.to_le_bytes()).collect();
                let len = bytes.iter().position(|byte| *byte == 0)?;
                let directory = PathBuf::from(std::ffi::OsString::from_vec(bytes[..len].to_vec()));
                directory.is_absolute().then_some(Self::Spill { directory })
            }
            _ => None,
        }
    }
}

/// As [`OverflowPolicy::from_str`] reads it.
impl fmt::Display for OverflowPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error => f.write_str("error"),
            Self::Block { timeout } => write!(f, "block:{}", timeout.as_millis()),
            Self::Grow { limit_bytes } => write!(f, "grow:{limit_bytes}"),
            Self::Spill { directory } => write!(f, "spill:{}", directory.display()),
        }
    }
}

/// Not a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a journal policy; use error, block:MILLISECONDS, grow:BYTES or spill:/DIRECTORY")]
pub struct ParsePolicyError(String);

impl FromStr for OverflowPolicy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParsePolicyError(text.to_owned());
        let number = |text: &str| text.parse::<u64>().map_err(|_| refused());
        match text.split_once(':') {
            None if text == "error" => Ok(Self::Error),
            Some(("block", ms)) => Ok(Self::Block { timeout: Duration::from_millis(number(ms)?) }),
            Some(("grow", bytes)) => Ok(Self::Grow { limit_bytes: number(bytes)? }),
            Some(("spill", dir)) if dir.starts_with('/') => Ok(Self::Spill { directory: PathBuf::from(dir) }),
            _ => Err(refused()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_survive_the_header_and_the_environment() {
        for text in ["error", "block:1500", "grow:1073741824", "spill:/var/tmp"] {
            let policy: OverflowPolicy = text.parse().unwrap();
            assert_eq!(policy.to_string(), text);
            assert_eq!(OverflowPolicy::unpack(&policy.pack().unwrap()), Some(policy));
        }
        for text in ["", "grow", "grow:x", "block:-1", "spill:relative", "other:1"] {
            assert!(text.parse::<OverflowPolicy>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_directory_that_peers_could_not_find_is_refused() {
        let long = PathBuf::from(format!("/{}", "x".repeat(255)));
        for directory in [PathBuf::from("relative"), long] {
            assert_eq!(OverflowPolicy::Spill { directory }.pack(), None);
        }
    }
}
