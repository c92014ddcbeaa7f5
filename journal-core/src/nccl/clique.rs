//! Cliques: the ranks of one communicator, with a name that is the same on all of them and in every
//! incarnation, and the virtual unique ids they come from.

use sha2::{Digest, Sha256};

use super::UNIQUE_ID_BYTES;

/// Names a clique: a hash of the unique id it was made from, or of (parent, split ordinal, color).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CliqueKey(pub [u8; 16]);

impl core::fmt::Display for CliqueKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0[..6].iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

fn hash(parts: &[&[u8]]) -> CliqueKey {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    CliqueKey(hasher.finalize()[..16].try_into().expect("32 bytes"))
}

/// What applications get for `ncclGetUniqueId`: {magic, job uuid, rank, ordinal}, zeros. It stays good
/// when its maker dies, and a replacement that asks again in the same order gets the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VirtualUniqueId(pub [u8; UNIQUE_ID_BYTES]);

const MAGIC: [u8; 8] = *b"RJUNIQID";

impl VirtualUniqueId {
    /// The `ordinal`-th id that `rank` asks for.
    pub fn new(job_uuid: &[u8; 16], rank: u32, ordinal: u32) -> Self {
        let mut id = [0; UNIQUE_ID_BYTES];
        id[..8].copy_from_slice(&MAGIC);
        id[8..24].copy_from_slice(job_uuid);
        id[24..28].copy_from_slice(&rank.to_le_bytes());
        id[28..32].copy_from_slice(&ordinal.to_le_bytes());
        Self(id)
    }

    /// True when it was made by this job.
    pub fn is_of(&self, job_uuid: &[u8; 16]) -> bool {
        self.0[..8] == MAGIC && self.0[8..24] == job_uuid[..]
    }

    /// The clique initialised with it.
    pub fn clique(&self) -> CliqueKey {
        hash(&[b"root", &self.0])
    }
}

impl CliqueKey {
    /// The clique that a split makes.
    pub fn split(parent: Self, ordinal: u32, color: i32) -> Self {
        hash(&[b"split", &parent.0, &ordinal.to_le_bytes(), &color.to_le_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_question_in_another_incarnation_gives_the_same_clique() {
        let id = VirtualUniqueId::new(&[3; 16], 1, 0);
        assert!(id.is_of(&[3; 16]) && !id.is_of(&[4; 16]));
        assert_eq!(id.clique(), VirtualUniqueId::new(&[3; 16], 1, 0).clique());
        assert_ne!(id.clique(), VirtualUniqueId::new(&[3; 16], 1, 1).clique());
        assert_ne!(CliqueKey::split(id.clique(), 0, 1), CliqueKey::split(id.clique(), 1, 1));
    }
}
