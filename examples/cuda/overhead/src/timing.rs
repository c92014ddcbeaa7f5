//! Batches of calls, timed until they return and until they are done.

use std::time::Instant;

/// How a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// NCCL directly, a blocking communicator.
    Blocking,
    /// NCCL directly, a non-blocking communicator, polled after each call.
    NonBlocking,
    /// Through a session.
    Rejoin,
}

/// Nanoseconds a call of one batch: until it returned, until its work was done.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    returned: f64,
    done: f64,
}

/// One batch.
pub fn measure(
    calls: usize,
    mut call: impl FnMut() -> anyhow::Result<()>,
    finish: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Times> {
    let start = Instant::now();
    for _ in 0..calls {
        call()?;
    }
    let returned = start.elapsed().as_nanos() as f64 / calls as f64;
    finish()?;
    Ok(Times { returned, done: start.elapsed().as_nanos() as f64 / calls as f64 })
}

/// The batches of one row.
#[derive(Default)]
pub struct Samples {
    all: Vec<(Way, Times)>,
}

impl Samples {
    /// Adds a batch.
    pub fn add(&mut self, way: Way, times: Times) {
        self.all.push((way, times));
    }

    fn median(&self, way: Way, of: fn(&Times) -> f64) -> f64 {
        let mut values: Vec<f64> = self.all.iter().filter(|(w, _)| *w == way).map(|(_, times)| of(times)).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Prints the rows of a table.
    pub fn print(&self, what: &str, bytes: u64) {
        let blocking = self.median(Way::Blocking, |t| t.done);
        let non_blocking = self.median(Way::NonBlocking, |t| t.returned);
        for (way, name) in [(Way::Blocking, "blocking"), (Way::NonBlocking, "non-blocking"), (Way::Rejoin, "Rejoin")] {
            // A launch has no communicator.
            if bytes == 0 && way == Way::NonBlocking {
                continue;
            }
            let (returned, done) = (self.median(way, |t| t.returned), self.median(way, |t| t.done));
            let name = if bytes == 0 && way == Way::Blocking { "driver" } else { name };
            println!(
                "| {what} | {bytes} | {name} | {returned:.0} | {:.0} | {:.2} | {:.3} |",
                returned - non_blocking,
                done / 1e3,
                done / blocking
            );
        }
    }
}
