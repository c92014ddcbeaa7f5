//! What one group launches on one communicator.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};

use crate::collective::Collective;
use crate::comm::Comm;
use crate::error::Result;
use crate::link::Link;
use crate::p2p::{self, Transfer};
use crate::stream::Target;

/// One call of a group.
#[derive(Debug, Clone)]
pub enum Task {
    /// A collective.
    Collective(Collective),
    /// A send or receive.
    Transfer(Transfer),
}

/// The calls of one group on one communicator: collectives in order, then all transfers together.
#[derive(Debug)]
struct Batch {
    comm: Arc<Comm>,
    link: Arc<Link>,
    ticket: u64,
    collectives: Vec<(u64, Collective)>,
    transfers: Vec<Transfer>,
    /// Further streams of the group whose turn has come; the work starts when it has come on all.
    arrived: AtomicU32,
    further_streams: u32,
    finished: AtomicBool,
}

/// Held by the work on the stream: says that the batch has left, run or dropped.
struct Running {
    batch: Arc<Batch>,
    holding: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        let comm = &self.batch.comm;
        comm.turn.fetch_max(self.batch.ticket + 1, Ordering::SeqCst);
        self.batch.finished.store(true, Ordering::SeqCst);
        self.batch.link.ring_self();
        let mut life = comm.life();
        life.launched -= 1;
        if self.holding {
            life.holding -= 1;
        }
        drop(life);
        comm.notify();
    }
}

/// Enqueues the calls of a group on their streams.
pub fn launch(comm: &Arc<Comm>, link: &Arc<Link>, tasks: Vec<(Target, Task)>) -> Result<()> {
    let mut streams: Vec<Target> = Vec::new();
    for (stream, _) in &tasks {
        if !streams.iter().any(|other| other.is_same(stream)) {
            streams.push(stream.clone());
        }
    }
    let Some((main, further)) = streams.split_first() else { return Ok(()) };

    // Held until everything is enqueued, so that ticket order is stream order.
    let mut numbers = comm.launch.lock().unwrap_or_else(PoisonError::into_inner);
    let ticket = numbers.next_ticket;
    numbers.next_ticket += 1;
    let mut collectives = Vec::new();
    let mut transfers = Vec::new();
    for (_, task) in tasks {
        match task {
            Task::Collective(collective) => {
                collectives.push((numbers.next_collective, collective));
                numbers.next_collective += 1;
            }
            Task::Transfer(transfer) => transfers.push(transfer),
        }
    }
    let batch = Arc::new(Batch {
        comm: Arc::clone(comm),
        link: Arc::clone(link),
        ticket,
        collectives,
        transfers,
        arrived: AtomicU32::new(0),
        further_streams: further.len() as u32,
        finished: AtomicBool::new(false),
    });
    let holding = main.drops_lost_work();
    let mut life = comm.life();
    life.launched += 1;
    life.holding += u32::from(holding);
    drop(life);
    let mut running = Running { batch: Arc::clone(&batch), holding };
    main.enqueue(Box::new(move || {
        let buffers_are_valid = running.begin();
        running.batch.run(buffers_are_valid);
    }))?;
    for stream in further {
        let batch = Arc::clone(&batch);
        stream.enqueue(Box::new(move || batch.join()))?;
    }
    Ok(())
}

impl Running {
    /// False when an abort may have returned without waiting for this batch: its buffers may be gone.
    fn begin(&mut self) -> bool {
        if self.holding {
            return true;
        }
        // An abort sets its flag, then takes this lock to look at `holding`.
        let mut life = self.batch.comm.life();
        if self.batch.is_aborted() {
            return false;
        }
        life.holding += 1;
        drop(life);
        self.holding = true;
        true
    }
}

impl Batch {
    fn is_aborted(&self) -> bool {
        self.comm.abort.is_set() || self.ticket < self.comm.aborted_below.load(Ordering::SeqCst)
    }

    fn run(&self, buffers_are_valid: bool) {
        if !buffers_are_valid {
            return;
        }
        let comm = &self.comm;
        let turn_has_come = || {
            comm.turn.load(Ordering::SeqCst) >= self.ticket
                && self.arrived.load(Ordering::SeqCst) >= self.further_streams
        };
        // An aborted batch goes on at once; what it then does needs no order.
        let _ = self.link.wait(|| turn_has_come() || self.is_aborted());
        for (sequence, collective) in &self.collectives {
            if self.is_aborted() {
                collective.abandon(&self.link, *sequence);
            } else {
                collective.run(&self.link, *sequence);
            }
        }
        if self.is_aborted() {
            p2p::abandon_all(&self.transfers, &self.link);
        } else {
            p2p::run(&self.transfers, &self.link);
        }
    }

    /// On a further stream of the group: later work there waits for the batch.
    fn join(&self) {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        self.link.ring_self();
        let _ = self.link.wait(|| self.finished.load(Ordering::SeqCst) || self.is_aborted());
    }
}
