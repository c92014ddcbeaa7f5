//! The members segment across processes: deaths, eviction, a lost launcher, damaged bytes.
#![cfg(not(loom))]
#![allow(missing_docs)]

mod job;
mod kills;
mod processes;
mod segment;

/// Entry of the processes that tests start; does nothing in a test run itself.
#[test]
fn child() {
    processes::child();
}
