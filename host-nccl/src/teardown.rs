//! Ending communicators: finalize, destroy, abort, revoke, and the interruption that a shrink can ask for.

use std::sync::Arc;

use crate::abi::{self, ResultCode};
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::group::{self, Group, Job};
use crate::host_controls::quirks;

/// Ends everything under way on `comm` and waits until it has left; then the flag is taken back. Blocks
/// while a batch of it is queued behind something stuck, as NCCL does: abort or revoke all first.
pub fn interrupt(comm: &Comm) {
    comm.raise_abort();
    drop(comm.wait_life(|life| life.holding == 0 && life.jobs == 0));
    comm.abort.clear();
    comm.life().shrunk_by_abort = true;
}

/// `ncclCommFinalize`: waits for what was launched.
pub fn finalize(group: &mut Group, comm: &Arc<Comm>) -> Result<()> {
    comm.ready()?;
    group.join(comm.config.blocking)?;
    {
        let mut life = comm.life();
        if life.finalize_called || life.destroyed || life.revoked {
            return Err(Error::argument("the communicator was finalized, revoked or destroyed before"));
        }
        life.finalize_called = true;
    }
    let run = {
        let comm = Arc::clone(comm);
        move || {
            flush(&comm);
            Ok(())
        }
    };
    group.push_job(Job::new(comm, run));
    Ok(())
}

fn flush(comm: &Comm) {
    drop(comm.wait_life(|life| life.launched == 0 || comm.abort.is_set()));
}

/// `ncclCommDestroy`. On a communicator with an error it gives that error and destroys nothing.
pub fn destroy(group: &mut Group, comm: &Arc<Comm>) -> Result<()> {
    if comm.life().destroyed {
        return Err(Error::argument("the communicator was destroyed or aborted before"));
    }
    let result = comm.result();
    if result != abi::SUCCESS {
        return Err(Error::Sticky(result));
    }
    comm.life().destroyed = true;
    group.make_blocking();
    let run = {
        let comm = Arc::clone(comm);
        move || {
            if comm.life().shrunk_by_abort && quirks().destroy_after_shrink {
                drop(comm.wait_life(|_| false));
            }
            flush(&comm);
            comm.retire();
            Ok(())
        }
    };
    group.push_job(Job::new(comm, run).ending());
    Ok(())
}

/// The quirk of destroying a communicator that cannot be.
pub fn after_destroy(outcome: &Result<ResultCode>) {
    if quirks().destroy_errored && matches!(outcome, Err(Error::Sticky(_))) {
        group::leave_open();
    }
}

/// `ncclCommAbort`: the flag is set at once, even inside a group; the end of the group waits.
pub fn abort(group: &mut Group, comm: &Arc<Comm>) -> Result<()> {
    {
        let mut life = comm.life();
        if life.destroyed {
            return Err(Error::argument("the communicator was destroyed or aborted before"));
        }
        life.destroyed = true;
    }
    comm.raise_abort();
    group.make_blocking();
    let run = {
        let comm = Arc::clone(comm);
        move || {
            let hung = quirks().hung_abort;
            drop(comm.wait_life(|life| life.holding == 0 && life.jobs == 0 && !hung));
            comm.retire();
            Ok(())
        }
    };
    group.push_job(Job::new(comm, run).ending());
    Ok(())
}

/// `ncclCommRevoke`: ends what is under way and refuses further work; the communicator can still be
/// shrunk, split and destroyed.
pub fn revoke(group: &mut Group, comm: &Arc<Comm>) -> Result<()> {
    {
        let mut life = comm.life();
        if life.revoked || life.finalize_called || life.destroyed {
            return Err(Error::argument("the communicator was revoked, finalized or destroyed before"));
        }
        life.revoked = true;
    }
    comm.raise_abort();
    group.join(comm.config.blocking)?;
    let run = {
        let comm = Arc::clone(comm);
        move || {
            drop(comm.wait_life(|life| life.holding == 0 && life.jobs == 0));
            comm.abort.clear();
            Ok(())
        }
    };
    group.push_job(Job::new(comm, run).ending());
    Ok(())
}
