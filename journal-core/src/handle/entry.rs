//! The state word of a table entry.
//!
//! ```text
//! FREE --reserve--> RESERVED --bind--> LIVE --unbind--> UNBOUND --bind--> LIVE --retire--> FREE (generation + 1)
//! ```
//!
//! While an object is stored the word says so (BINDING, REBINDING, BINDING_AGAIN) and names the binder's slot. An
//! entry that is retired in that moment is RETIRED, and freed by its binder: never may the store of one object hit
//! the entry of the next one.

use super::HandleKind;
use super::virtual_handle::LAST_GENERATION;

/// No object; may be reserved if it has generations left.
pub const FREE: u64 = 0;
/// Taken; its object is being made.
pub const RESERVED: u64 = 1;
/// Has its object.
pub const LIVE: u64 = 2;
/// Its object was taken away; another one comes.
pub const UNBOUND: u64 = 3;
/// RESERVED, and the object is being stored.
pub const BINDING: u64 = 4;
/// LIVE, and another object is being stored: it leads to the old or the new one.
pub const REBINDING: u64 = 5;
/// UNBOUND, and the object is being stored.
pub const BINDING_AGAIN: u64 = 6;
/// Retired while an object was being stored; the binder frees it.
pub const RETIRED: u64 = 7;

/// From a settled state to the one while an object is stored.
const BIND: u64 = 3;

/// {state 8, kind 8, slot + 1 of who reserves or binds 16, generation 24} from the lowest bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word(pub u64);

impl Word {
    /// A word.
    #[inline(always)]
    pub fn new(state: u64, kind: HandleKind, owner: u64, generation: u32) -> Self {
        Self(state | (kind as u64) << 8 | (owner & 0xffff) << 16 | u64::from(generation) << 32)
    }

    /// State.
    #[inline(always)]
    pub fn state(self) -> u64 {
        self.0 & 0xff
    }

    /// Kind's number; any value in a damaged table.
    #[inline(always)]
    pub fn kind(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Slot + 1 of the thread that reserves or binds; 0 = nobody, or it has no slot.
    #[inline(always)]
    pub fn owner(self) -> u64 {
        self.0 >> 16 & 0xffff
    }

    /// Generation.
    #[inline(always)]
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32 & LAST_GENERATION
    }

    /// Leads to an object.
    #[inline(always)]
    pub fn is_live(self) -> bool {
        matches!(self.state(), LIVE | REBINDING)
    }

    /// Belongs to a handle that means something.
    #[inline(always)]
    pub fn is_taken(self) -> bool {
        matches!(self.state(), RESERVED..=BINDING_AGAIN)
    }

    /// The same entry in another state, in `owner`'s hands.
    fn with(self, state: u64, owner: u64) -> Self {
        Self(self.0 & !0xffff_00ff | state | (owner & 0xffff) << 16)
    }

    /// While `owner` stores an object. What a dead binder left is taken over.
    pub fn storing(self, owner: u64) -> Self {
        let state = if self.state() <= UNBOUND { self.state() + BIND } else { self.state() };
        self.with(state, owner)
    }

    /// With its object.
    pub fn bound(self) -> Self {
        self.with(LIVE, 0)
    }

    /// Without its object, for as long as it takes to make another.
    pub fn unbound(self) -> Self {
        self.with(UNBOUND, 0)
    }

    /// Free. Keeps the generation, which the next reservation counts on.
    pub fn freed(self) -> Self {
        Self(u64::from(self.generation()) << 32)
    }

    /// Meaningless for everybody, free once nobody stores to it.
    pub fn retired(self) -> Self {
        match self.state() {
            BINDING..=BINDING_AGAIN => self.with(RETIRED, self.owner()),
            _ => self.freed(),
        }
    }

    /// What it is once the thread that reserved it, or was storing an object, is dead.
    pub fn settled(self) -> Self {
        match self.state() {
            RESERVED | BINDING | RETIRED => self.freed(),
            // The object's word is the old one or the new one, whole.
            REBINDING => self.bound(),
            BINDING_AGAIN => self.unbound(),
            _ => self,
        }
    }
}
