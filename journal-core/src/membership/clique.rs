//! The clique table: every communicator of the job, in the order in which they were first made.
//!
//! Every member registers its clique. An entry is claimed by swapping the key in; what all members say alike is then
//! written by all of them alike (a digest swapped in first settles whose description counts), and each member adds
//! its own job rank. So a member that is killed anywhere leaves an entry that the others complete.

use super::{MembershipError, Rank};
use crate::sync::{Ordering, Words};

/// Bytes of configuration an entry can hold.
pub const CONFIG_BYTES: usize = 256;

/// Cliques of a job of `nranks` ranks.
pub const fn capacity(nranks: u32) -> u32 {
    256 + nranks
}

/// How a clique came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CliqueKind {
    /// From a unique id.
    Root,
    /// By a split of `parent`.
    Split {
        /// Key of the clique that was split.
        parent: [u8; 16],
        /// The n-th split of it, from 0.
        ordinal: u32,
        /// As given to the split.
        color: i32,
    },
}

/// What all members of a clique say alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliqueDescription {
    /// Its name, the same on all members and in every incarnation. Neither half is zero.
    pub key: [u8; 16],
    /// Root or split.
    pub kind: CliqueKind,
    /// Members.
    pub nranks: u32,
    /// Configuration, at most [`CONFIG_BYTES`].
    pub config: Vec<u8>,
}

/// A clique of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clique {
    /// Place in the order of creation.
    pub index: u32,
    /// What all members say.
    pub description: CliqueDescription,
    /// Job rank of each communicator rank; `None`: it has not registered yet.
    pub members: Vec<Option<Rank>>,
}

impl Clique {
    /// All members have registered.
    pub fn is_complete(&self) -> bool {
        self.members.iter().all(Option::is_some)
    }

    /// The communicator rank of a job rank.
    pub fn rank_of(&self, rank: Rank) -> Option<u32> {
        self.members.iter().position(|member| *member == Some(rank)).map(|at| at as u32)
    }
}

// An entry: {key 2 words, digest, ready, shape, parent 2 words, ordinal and color, config, member words}.
const KEY: u64 = 0;
/// {nonzero CRC of the description}; swapped in by the first member.
const DIGEST: u64 = 16;
/// 1 when all words of the description stand; written by every member.
const READY: u64 = 24;
/// {kind 8, config bytes 24, nranks 32}; this and what follows is written by every member, alike.
const SHAPE: u64 = 32;
const PARENT: u64 = 40;
const ORDINAL_COLOR: u64 = 56;
const CONFIG: u64 = 64;
const MEMBERS: u64 = CONFIG + CONFIG_BYTES as u64;
const _: () = assert!(MEMBERS.is_multiple_of(64));

const ROOT: u64 = 1;
const SPLIT: u64 = 2;

/// Bytes of one entry: a word for each possible member, {job rank + 1}, swapped in by that member.
pub const fn entry_bytes(nranks: u32) -> u64 {
    (MEMBERS + nranks as u64 * 8).next_multiple_of(64)
}

/// The table over some words.
pub struct Cliques<'a, W> {
    words: &'a W,
    base: u64,
    nranks: u32,
}

impl<'a, W: Words> Cliques<'a, W> {
    /// `base`: [`capacity`] entries of [`entry_bytes`].
    pub fn new(words: &'a W, base: u64, nranks: u32) -> Self {
        Self { words, base, nranks }
    }

    fn entry(&self, index: u32) -> u64 {
        self.base + u64::from(index) * entry_bytes(self.nranks)
    }

    fn load(&self, at: u64) -> u64 {
        self.words.word(at).load(Ordering::Acquire)
    }

    fn swap_in(&self, at: u64, value: u64) -> Result<(), u64> {
        match self.words.word(at).compare_exchange(0, value, Ordering::AcqRel, Ordering::Acquire) {
            Err(found) if found != value => Err(found),
            _ => Ok(()),
        }
    }

    /// Registers `rank` as `comm_rank` of a clique; again and by a replacement is fine. Returns its index.
    pub fn register(&self, description: &CliqueDescription, comm_rank: u32, rank: Rank) -> Result<u32, MembershipError> {
        self.check(description, comm_rank)?;
        let index = self.claim(description)?;
        let at = self.entry(index);
        let mismatch = |what| MembershipError::CliqueMismatch { key: hex(&description.key), what };
        self.swap_in(at + DIGEST, digest(description)).map_err(|_| mismatch("kind, parent, size or configuration"))?;
        for (offset, word) in to_words(description) {
            self.words.word(at + offset).store(word, Ordering::Relaxed);
        }
        // SYNC: Release; pairs with the Acquire in `get`.
        self.words.word(at + READY).store(1, Ordering::Release);
        for other in (0..description.nranks).filter(|other| *other != comm_rank) {
            if self.load(at + MEMBERS + u64::from(other) * 8) == u64::from(rank.0) + 1 {
                return Err(mismatch("one rank of the job has two communicator ranks"));
            }
        }
        self.swap_in(at + MEMBERS + u64::from(comm_rank) * 8, u64::from(rank.0) + 1)
            .map_err(|_| mismatch("two ranks of the job have the same communicator rank"))?;
        Ok(index)
    }

    /// Moves `rank` to another place among the members, after a recovery that renumbers. All members do it, each
    /// for its own new place, and meet in a barrier before anyone reads the members again. A death in between
    /// leaves the places inconsistent, which the next recovery finds.
    pub fn renumber(&self, index: u32, comm_rank: u32, rank: Rank) {
        if index < capacity(self.nranks) && comm_rank < self.nranks {
            self.words.word(self.entry(index) + MEMBERS + u64::from(comm_rank) * 8).store(u64::from(rank.0) + 1, Ordering::Release);
        }
    }

    fn check(&self, description: &CliqueDescription, comm_rank: u32) -> Result<(), MembershipError> {
        let invalid = |what: String| Err(MembershipError::InvalidArgument { what });
        // A zero half would look free.
        if matches!(key_words(&description.key), (0, _) | (_, 0)) {
            return invalid("a clique's key must not have a zero half".to_owned());
        }
        if description.nranks == 0 || description.nranks > self.nranks || comm_rank >= description.nranks {
            return invalid(format!(
                "rank {comm_rank} of a communicator of {} in a job of {}",
                description.nranks, self.nranks
            ));
        }
        if description.config.len() > CONFIG_BYTES {
            return invalid(format!("configuration of {} bytes, at most {CONFIG_BYTES}", description.config.len()));
        }
        Ok(())
    }

    fn claim(&self, description: &CliqueDescription) -> Result<u32, MembershipError> {
        let (low, high) = key_words(&description.key);
        for index in 0..capacity(self.nranks) {
            let at = self.entry(index);
            if self.swap_in(at + KEY, low).is_ok() && self.swap_in(at + KEY + 8, high).is_ok() {
                return Ok(index);
            }
        }
        Err(MembershipError::CliquesFull { capacity: capacity(self.nranks) })
    }

    /// The clique at `index`; `None`: not there, or its first member has not finished describing it.
    /// Error: what stands there was not written by a member.
    pub fn get(&self, index: u32) -> Result<Option<Clique>, MembershipError> {
        if index >= capacity(self.nranks) || self.load(self.entry(index) + READY) == 0 {
            return Ok(None);
        }
        let at = self.entry(index);
        let shape = self.load(at + SHAPE);
        let (kind, config_bytes, nranks) = (shape >> 56, shape >> 32 & 0xff_ffff, shape as u32);
        let corrupt = |offset, what| MembershipError::Corrupt { offset: at + offset, what };
        if config_bytes as usize > CONFIG_BYTES || nranks == 0 || nranks > self.nranks {
            return Err(corrupt(SHAPE, "a clique's size is out of range"));
        }
        let mut key = [0; 16];
        let mut parent = [0; 16];
        for (bytes, offset) in [(&mut key, KEY), (&mut parent, PARENT)] {
            bytes[..8].copy_from_slice(&self.load(at + offset).to_le_bytes());
            bytes[8..].copy_from_slice(&self.load(at + offset + 8).to_le_bytes());
        }
        let ordinal_color = self.load(at + ORDINAL_COLOR);
        let kind = match kind {
            ROOT => CliqueKind::Root,
            SPLIT => {
                CliqueKind::Split { parent, ordinal: (ordinal_color >> 32) as u32, color: ordinal_color as u32 as i32 }
            }
            _ => return Err(corrupt(SHAPE, "a clique's kind is unknown")),
        };
        let mut config: Vec<u8> =
            (0..CONFIG_BYTES as u64 / 8).flat_map(|i| self.load(at + CONFIG + i * 8).to_le_bytes()).collect();
        config.truncate(config_bytes as usize);
        let members = (0..u64::from(nranks))
            .map(|i| match self.load(at + MEMBERS + i * 8) {
                0 => Ok(None),
                rank if rank <= u64::from(self.nranks) => Ok(Some(Rank(rank as u32 - 1))),
                _ => Err(corrupt(MEMBERS + i * 8, "a clique's member is out of range")),
            })
            .collect::<Result<_, _>>()?;
        Ok(Some(Clique { index, description: CliqueDescription { key, kind, nranks, config }, members }))
    }

    /// The clique with `key`.
    pub fn find(&self, key: &[u8; 16]) -> Result<Option<Clique>, MembershipError> {
        let words = key_words(key);
        for index in 0..capacity(self.nranks) {
            let at = self.entry(index);
            match (self.load(at + KEY), self.load(at + KEY + 8)) {
                (0, _) => return Ok(None),
                found if found == words => return self.get(index),
                _ => {}
            }
        }
        Ok(None)
    }

    /// All of them, in the order of creation.
    pub fn all(&self) -> Result<Vec<Clique>, MembershipError> {
        let mut cliques = Vec::new();
        for index in 0..capacity(self.nranks) {
            if self.load(self.entry(index) + KEY) == 0 {
                break;
            }
            cliques.extend(self.get(index)?);
        }
        Ok(cliques)
    }
}

fn key_words(key: &[u8; 16]) -> (u64, u64) {
    let half = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    (half(&key[..8]), half(&key[8..]))
}

fn to_words(description: &CliqueDescription) -> Vec<(u64, u64)> {
    let (kind, parent, ordinal_color) = match description.kind {
        CliqueKind::Root => (ROOT, (0, 0), 0),
        CliqueKind::Split { parent, ordinal, color } => {
            (SPLIT, key_words(&parent), u64::from(ordinal) << 32 | u64::from(color as u32))
        }
    };
    let shape = kind << 56 | (description.config.len() as u64) << 32 | u64::from(description.nranks);
    let mut words = vec![(SHAPE, shape), (PARENT, parent.0), (PARENT + 8, parent.1), (ORDINAL_COLOR, ordinal_color)];
    for (i, chunk) in description.config.chunks(8).enumerate() {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        words.push((CONFIG + i as u64 * 8, u64::from_le_bytes(word)));
    }
    words
}

fn digest(description: &CliqueDescription) -> u64 {
    let bytes: Vec<u8> = to_words(description).iter().flat_map(|(_, word)| word.to_le_bytes()).collect();
    1 << 32 | u64::from(crc32c::crc32c(&bytes))
}

fn hex(key: &[u8; 16]) -> String {
    key[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::HeapWords;

    const NRANKS: u32 = 4;

    fn table() -> HeapWords {
        HeapWords::zeroed(u64::from(capacity(NRANKS)) * entry_bytes(NRANKS))
    }

    fn root(first: u8, nranks: u32) -> CliqueDescription {
        CliqueDescription { key: [first; 16], kind: CliqueKind::Root, nranks, config: vec![first; 13] }
    }

    #[test]
    fn members_of_one_clique_share_an_entry_and_the_order_is_that_of_creation() {
        let words = table();
        let cliques = Cliques::new(&words, 0, NRANKS);
        let split = CliqueDescription {
            key: [9; 16],
            kind: CliqueKind::Split { parent: [1; 16], ordinal: 3, color: -1 },
            nranks: 2,
            config: Vec::new(),
        };
        assert_eq!(cliques.register(&root(1, 3), 2, Rank(0)).unwrap(), 0);
        assert_eq!(cliques.register(&split, 0, Rank(0)).unwrap(), 1);
        assert_eq!(cliques.register(&root(1, 3), 0, Rank(3)).unwrap(), 0);
        assert_eq!(cliques.register(&root(1, 3), 0, Rank(3)).unwrap(), 0, "again");
        let all = cliques.all().unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].members, [Some(Rank(3)), None, Some(Rank(0))]);
        assert_eq!((&all[1].description, all[1].index), (&split, 1));
        assert_eq!(cliques.find(&[9; 16]).unwrap().unwrap().description, split);
        assert_eq!(cliques.find(&[8; 16]).unwrap(), None);
    }

    #[test]
    fn members_that_do_not_agree_are_told_what_differs() {
        let words = table();
        let cliques = Cliques::new(&words, 0, NRANKS);
        cliques.register(&root(1, 3), 0, Rank(0)).unwrap();
        for (description, comm_rank, rank) in [(root(1, 2), 1, 1), (root(1, 3), 0, 1), (root(1, 3), 1, 0)] {
            let error = cliques.register(&description, comm_rank, Rank(rank)).unwrap_err();
            assert!(matches!(error, MembershipError::CliqueMismatch { .. }), "{error}");
        }
        assert_eq!(cliques.all().unwrap()[0].description, root(1, 3));
    }

    #[test]
    fn an_entry_that_a_killed_member_only_claimed_is_completed_by_the_next() {
        let words = table();
        let cliques = Cliques::new(&words, 0, NRANKS);
        words.word(KEY).store(key_words(&[1; 16]).0, Ordering::Relaxed);
        assert!(cliques.all().unwrap().is_empty());
        assert_eq!(cliques.register(&root(1, 3), 1, Rank(2)).unwrap(), 0);
        assert_eq!(cliques.all().unwrap().len(), 1);
    }

    #[test]
    fn a_full_table_is_an_error() {
        let words = table();
        let cliques = Cliques::new(&words, 0, NRANKS);
        let numbered = |i: u32| CliqueDescription {
            key: [i.to_le_bytes(), [1; 4], [2; 4], [3; 4]].concat().try_into().unwrap(),
            ..root(1, 1)
        };
        for i in 0..capacity(NRANKS) {
            assert_eq!(cliques.register(&numbered(i), 0, Rank(0)).unwrap(), i);
        }
        let error = cliques.register(&numbered(9999), 0, Rank(0)).unwrap_err();
        assert!(matches!(error, MembershipError::CliquesFull { capacity: 260 }), "{error}");
    }

    #[test]
    fn damaged_entries_are_errors_with_their_offset() {
        let words = table();
        let cliques = Cliques::new(&words, 0, NRANKS);
        cliques.register(&root(1, 3), 0, Rank(0)).unwrap();
        words.word(MEMBERS).store(77, Ordering::Relaxed);
        assert!(matches!(cliques.get(0).unwrap_err(), MembershipError::Corrupt { offset: MEMBERS, .. }));
        words.word(SHAPE).store(u64::MAX, Ordering::Relaxed);
        assert!(matches!(cliques.get(0).unwrap_err(), MembershipError::Corrupt { offset: SHAPE, .. }));
    }
}
