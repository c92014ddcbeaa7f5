//! Keeps a multi-GPU training job running when one of its ranks dies.
//!
//! ```text
//! request -> journal -> handle -> backend / nccl      what an application asks for, recorded before it is done
//!                \________ agent ________/            send_request: gate, resolve, append, execute, bind
//! membership -> recovery -> session                   who is alive, how a rank comes back, what an application sees
//! ```
#![deny(unsafe_code)]

pub mod sync;

pub mod error;
pub mod request;
pub mod journal;
pub mod handle;
pub mod backend;
#[allow(unsafe_code)]
pub mod nccl;
pub mod agent;
pub mod membership;
pub mod recovery;
pub mod session;

pub use error::{EndReason, Error, Status};
pub use session::{Session, SessionOptions};
