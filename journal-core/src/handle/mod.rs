//! Virtual handles.

pub mod kind;
pub mod virtual_handle;

pub use kind::HandleKind;
pub use virtual_handle::VirtualHandle;
mod stub; pub use stub::*;
