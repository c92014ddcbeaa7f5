//! NCCL on CPU memory: its C ABI, its arithmetic, and the way it fails.
//!
//! ```text
//! capi        exported functions: arguments into safe values
//!   │
//! group       calls of a thread until its outermost group end
//!   ├─ bootstrap, teardown   communicators are made and ended     (jobs: threads for what finishes later)
//!   └─ batch                 collectives and transfers are enqueued on a stream
//!        ├─ collective       rounds over staging slots, folded in rank order by reduce
//!        └─ p2p              byte rings
//!              │
//! link        a rank's place: waits, posts, letters
//! region      the memory that the ranks of a communicator share: an anonymous file
//! ```
//!
//! A dead rank is never noticed. Every wait for a peer sleeps until the peer acts or this rank's
//! communicator is aborted; then the collective completes on its stream as if all were well, with garbage.
//! Whoever uses this library needs a detector of his own, as with NCCL on one host.
#![deny(unsafe_code)]

pub mod abi;
mod abort;
mod batch;
mod bootstrap;
#[allow(unsafe_code)]
pub mod capi;
#[allow(unsafe_code)]
mod collective;
mod comm;
#[allow(unsafe_code)]
pub mod config;
pub mod datatype;
pub mod error;
#[allow(unsafe_code)]
mod group;
mod host_controls;
mod jobs;
mod link;
mod p2p;
mod redop;
mod reduce;
#[allow(unsafe_code)]
mod region;
#[allow(unsafe_code)]
mod stream;
mod teardown;
mod unique_id;
