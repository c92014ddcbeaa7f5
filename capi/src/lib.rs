//! librejoin: Rejoin's C ABI. `include/rejoin.h` is generated from this crate; its prose is the contract.
//!
//! ```text
//! boundary    errors become a status and a message of the thread; a panic stops here
//! shell       opaque objects: use after close is a status, a forked child is told apart
//! argument    pointers into safe values; options by size and version
//!    │
//! session, state, step, communicator, recovery, event, memory, generated_requests, request     a rank of a job
//! journal, snapshot, handle                                                   any process, no job needed
//! ```
#![deny(unsafe_code)]
// Every function takes pointers of C: which are valid, and for how long, is said in the header, once for all.
#![allow(clippy::missing_safety_doc, non_camel_case_types)]

#[allow(unsafe_code)]
pub mod status;
mod boundary;
#[allow(unsafe_code)]
#[allow(unsafe_code)]
mod shell;
#[allow(unsafe_code)]
mod argument;

#[allow(unsafe_code)]
pub mod version;
#[allow(unsafe_code)]
pub mod session;
#[allow(unsafe_code)]
pub mod communicator;
#[allow(unsafe_code)]
pub mod state;
#[allow(unsafe_code)]
pub mod foreign;
#[allow(unsafe_code)]
pub mod step;
#[allow(unsafe_code)]
pub mod recovery;
#[allow(unsafe_code)]
pub mod event;
#[allow(unsafe_code)]
pub mod memory;
#[allow(unsafe_code)]
pub mod generated_requests;
#[allow(unsafe_code)]
pub mod request;
#[allow(unsafe_code)]
pub mod journal;
#[allow(unsafe_code)]
pub mod snapshot;
#[allow(unsafe_code)]
pub mod handle;
