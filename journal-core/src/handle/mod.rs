//! Virtual handles: what an application holds instead of a real object, so that the object can be replaced.

mod error;
pub mod kind;
pub mod table;
pub mod virtual_handle;

pub use error::HandleError;
pub use kind::HandleKind;
pub use table::HandleTable;
pub use virtual_handle::VirtualHandle;
