//! Virtual handles: what an application holds instead of a real object, so that the object can be replaced.

mod blocks;
mod entry;
mod error;
pub mod kind;
mod seat;
pub mod table;
pub mod virtual_handle;

pub use blocks::BLOCK_HANDLES;
pub(crate) use blocks::recover;
pub use error::HandleError;
pub use kind::HandleKind;
pub use seat::{FixedSeat, NoSeat, Seat};
pub use table::HandleTable;
pub use virtual_handle::VirtualHandle;
