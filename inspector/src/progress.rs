//! Progress of a job on stderr: a line that moves on a terminal, plain lines in a pipe.

use crate::report::{milliseconds, name_ranks};
use crate::run::evidence::Exit;
use crate::run::hang::Blame;
use crate::run::launcher::{Event, Watcher};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// In a pipe, the step is told this often.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// Tells what happens to a job.
pub struct Narrator {
    quiet: bool,
    terminal: bool,
    /// In front of every line.
    title: String,
    nranks: u32,
    /// Steps in all, where known.
    steps: Option<u32>,
    /// A moving line stands on the terminal.
    moving: bool,
    last_step: Option<u32>,
    last_plain: Instant,
}

impl Narrator {
    /// For `rejoin run`.
    pub fn for_run(quiet: bool, nranks: u32) -> Self {
        Self::create(quiet, "rejoin".to_owned(), nranks, None)
    }

    /// With a title and the number of steps where it is known.
    pub fn create(quiet: bool, title: String, nranks: u32, steps: Option<u32>) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { quiet, terminal, title, nranks, steps, moving: false, last_step: None, last_plain: Instant::now() }
    }

    /// Takes the moving line away.
    pub fn finish(&mut self) {
        if std::mem::take(&mut self.moving) {
            write_quietly("\r\x1b[K");
        }
    }

    fn say(&mut self, text: &str) {
        if !self.quiet {
            self.finish();
            write_quietly(&format!("{}: {text}\n", self.title));
        }
    }

    fn tick(&mut self, step: Option<u32>) {
        if self.quiet || step == self.last_step {
            return;
        }
        let Some(step) = step else { return };
        self.last_step = Some(step);
        if self.terminal {
            self.moving = true;
            write_quietly(&format!("\r\x1b[K{}: {}", self.title, step_text(step, self.steps)));
        } else if self.last_plain.elapsed() >= PLAIN_INTERVAL {
            self.last_plain = Instant::now();
            self.say(&step_text(step, self.steps));
        }
    }
}

/// A closed stderr must not end a job.
fn write_quietly(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes());
    let _ = err.flush();
}

fn step_text(step: u32, steps: Option<u32>) -> String {
    const WIDTH: u32 = 24;
    match steps {
        Some(steps) => {
            let done = (u64::from(step) * u64::from(WIDTH) / u64::from(steps.max(1))).min(u64::from(WIDTH)) as usize;
            format!("step {step} of {steps} [{}{}]", "=".repeat(done), " ".repeat(WIDTH as usize - done))
        }
        None => format!("step {step}"),
    }
}

/// One line for an event, if it is worth one.
fn describe(event: &Event<'_>, nranks: u32) -> Option<String> {
    let text = match event {
        Event::Tick { .. } => return None,
        Event::Started { job, nranks } => format!("job {job} started, {nranks} ranks"),
        Event::Died { rank, exit, step } => {
            let how = match exit {
                Exit::Signal(_) => format!("died ({exit})"),
                Exit::Code(_) => format!("ended without finalize ({exit})"),
            };
            let place = step.map_or("before set-up was complete".to_owned(), |step| format!("at step {step}"));
            format!("rank {rank} {how} {place}")
        }
        Event::Hung { blame, limit } => {
            let what = match blame {
                Blame::Stopped(ranks) if ranks.len() == 1 => format!("{} is stopped and will be replaced", name_ranks(ranks)),
                Blame::Stopped(ranks) => format!("{} are stopped and will be replaced", name_ranks(ranks)),
                Blame::Behind(rank) => format!("rank {rank} is behind all others and will be replaced"),
                Blame::Nobody => "no rank is to blame alone, so the job is left as it is".to_owned(),
            };
            format!("no progress for {} s: {what}", limit.as_secs_f64())
        }
        Event::Replaced { rank, pid } => format!("replacement of rank {rank} started (pid {pid})"),
        Event::Warning(text) => format!("warning: {text}"),
        Event::Restarted => "all ranks are started anew".to_owned(),
        Event::Recovered(report) => {
            let survivors = report.survivors(nranks);
            let mut text = format!("recovered in {}, training goes on at step {}", milliseconds(report.total_ms), report.resumed_step);
            if report.spared_processes() {
                text = format!("the device of {} failed; {text}; all processes went on", name_ranks(&report.failed));
            } else if !survivors.is_empty() {
                text += &format!("; {} went on in their processes", name_ranks(&survivors));
            }
            if let Some(order) = report.order_text() {
                text += &format!("; {order}");
            }
            text
        }
        Event::Interrupted { signal } => format!("interrupted by {}, ending all ranks", Exit::Signal(*signal)),
    };
    Some(text)
}

impl Watcher for Narrator {
    fn event(&mut self, event: &Event<'_>) {
        if let Event::Tick { step } = event {
            return self.tick(*step);
        }
        if let Some(text) = describe(event, self.nranks) {
            self.say(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::RecoveryLine;

    #[test]
    fn a_death_tells_how_and_where() {
        let died = |exit, step| describe(&Event::Died { rank: 2, exit, step }, 4).expect("told");
        assert_eq!(died(Exit::Signal(9), Some(100)), "rank 2 died (SIGKILL) at step 100");
        assert_eq!(died(Exit::Code(0), None), "rank 2 ended without finalize (exit code 0) before set-up was complete");
    }

    #[test]
    fn a_recovery_tells_its_time_and_who_went_on() {
        let report = crate::report::tests::sample();
        let text = describe(&Event::Recovered(&report), 4).expect("told");
        assert_eq!(text, "recovered in 42 ms, training goes on at step 100; ranks 0, 1 and 3 went on in their processes");
    }

    #[test]
    fn a_failed_device_and_moved_ranks_are_told() {
        let device = RecoveryLine { cause: "device_lost".to_owned(), ..crate::report::tests::sample() };
        let text = describe(&Event::Recovered(&device), 4).expect("told");
        assert_eq!(text, "the device of rank 2 failed; recovered in 42 ms, training goes on at step 100; all processes went on");
        let moved = RecoveryLine { order: Some(vec![0, 1, 3, 2]), ..crate::report::tests::sample() };
        let text = describe(&Event::Recovered(&moved), 4).expect("told");
        assert!(text.ends_with("the communicator has the ranks in the order 0, 1, 3, 2"), "{text}");
    }

    #[test]
    fn a_hang_names_who_is_blamed_or_says_that_nobody_is() {
        let told = |blame| describe(&Event::Hung { blame: &blame, limit: Duration::from_millis(2500) }, 4).expect("told");
        assert_eq!(told(Blame::Behind(1)), "no progress for 2.5 s: rank 1 is behind all others and will be replaced");
        assert_eq!(told(Blame::Stopped(vec![1, 3])), "no progress for 2.5 s: ranks 1 and 3 are stopped and will be replaced");
        assert!(told(Blame::Nobody).contains("left as it is"));
    }

    #[test]
    fn the_bar_never_leaves_its_frame() {
        assert_eq!(step_text(0, Some(2)), "step 0 of 2 [                        ]");
        assert_eq!(step_text(3, Some(2)), "step 3 of 2 [========================]");
        assert_eq!(step_text(7, None), "step 7");
    }
}
