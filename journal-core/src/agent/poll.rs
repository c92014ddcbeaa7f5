//! Waiting by polling: for a device, a library or another rank, together with the job's epoch.

use std::time::{Duration, Instant};

use crate::backend::Device;
use crate::error::Error;

/// Longest pause between two looks; a completion of the device, or a moved epoch, ends it at once.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);
const FIRST_PAUSE: Duration = Duration::from_micros(10);
/// Until then pauses stay short: NCCL's thread launches a collective in 0.1 to 0.3 ms, and a longer pause here
/// would be part of every such call.
const SOON: Duration = Duration::from_micros(300);

/// Looks until `done`, at most until `deadline`. `moved` is asked between looks; true ends the wait
/// with [`Error::Redo`].
pub fn until(
    device: &dyn Device,
    what: &dyn Fn() -> String,
    deadline: Instant,
    moved: &dyn Fn() -> bool,
    mut done: impl FnMut() -> Result<bool, Error>,
) -> Result<(), Error> {
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let seen = device.activity();
        if done()? {
            return Ok(());
        }
        if moved() {
            return Err(Error::Redo);
        }
        let now = Instant::now();
        if now >= deadline {
            return Err(Error::Timeout {
                what: what(),
                limit_ms: u64::try_from((now - started).as_millis()).unwrap_or(u64::MAX),
                missing: Vec::new(),
            });
        }
        device.activity_wait(seen, pause.min(deadline - now));
        if now - started > SOON {
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
