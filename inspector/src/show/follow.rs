//! `rejoin show --follow`: records as they are written, each once, until their writer is gone.

use super::lines::{self, FollowLine};
use crate::exit_code::ExitCode;
use crate::output::{self, Format};
use journal_core::journal::{Event, JournalReader, Outcome};
use std::time::{Duration, Instant};

/// Events printed at a time: the memory that following takes is bounded by them.
const BATCH: usize = 256;
/// Longest wait before looking whether the writer lives.
const LOOK: Duration = Duration::from_millis(200);

/// Prints the journal from its first set-up record and the open step on; returns when the writer has ended and
/// everything is told, or stdout is closed. Exit 1 if a record is corrupt.
pub fn command(reader: JournalReader, format: Format) -> anyhow::Result<ExitCode> {
    let mut follower = reader.follow();
    let mut code = ExitCode::FINE;
    loop {
        // Asked before the look: what was written until then is told by it.
        let ended = follower.reader().writer_ended();
        let events = follower.wait(BATCH, Instant::now() + if ended { Duration::ZERO } else { LOOK })?;
        if ended && events.is_empty() {
            return Ok(code);
        }
        for event in &events {
            if matches!(event, Event::Record(record) if record.outcome == Outcome::Corrupt) {
                code = ExitCode::TROUBLE;
            }
            let Some(line) = lines::event(event) else { continue };
            match format {
                Format::Json => output::json(&FollowLine::Record(line))?,
                Format::Text => output::line(&super::record_cells(&line).join("  "))?,
            }
        }
    }
}
