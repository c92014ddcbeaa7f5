//! Lines that ranks print: tagged with the rank, or kept for the case that the job fails.

use super::process::OutputPipe;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};

/// What happens to the output of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputMode {
    /// It goes where the launcher's goes.
    Inherit,
    /// Each line gets the rank's number in front.
    Tag,
    /// The last lines are kept.
    Keep,
}

/// Lines kept a job.
const KEPT_LINES: usize = 200;
/// A line longer than this is cut in pieces, so that a rank cannot fill the launcher's memory.
const LONGEST_LINE: usize = 64 * 1024;

/// Reads the pipes of all ranks.
pub struct Lines {
    mode: OutputMode,
    sources: Vec<Source>,
    kept: VecDeque<String>,
}

struct Source {
    rank: u32,
    pipe: OutputPipe,
    partial: Vec<u8>,
}

impl Lines {
    /// Without sources.
    pub fn create(mode: OutputMode) -> Self {
        Self { mode, sources: Vec::new(), kept: VecDeque::new() }
    }

    /// Adds the pipes of a process.
    pub fn add(&mut self, rank: u32, pipes: Vec<OutputPipe>) -> anyhow::Result<()> {
        for pipe in pipes {
            let flags = fcntl_getfl(&pipe.pipe)?;
            fcntl_setfl(&pipe.pipe, flags | OFlags::NONBLOCK)?;
            self.sources.push(Source { rank, pipe, partial: Vec::new() });
        }
        Ok(())
    }

    /// What to poll for reading.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sources.iter().map(|source| source.pipe.pipe.as_fd())
    }

    /// Takes what is there, without waiting; forgets pipes that were closed.
    pub fn read(&mut self) {
        let (mode, kept) = (self.mode, &mut self.kept);
        self.sources.retain_mut(|source| {
            let mut buffer = [0; 16 * 1024];
            loop {
                match rustix::io::read(&source.pipe.pipe, &mut buffer) {
                    Ok(0) => {
                        source.flush(mode, kept);
                        return false;
                    }
                    Ok(bytes) => source.take(&buffer[..bytes], mode, kept),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(rustix::io::Errno::AGAIN) => return true,
                    Err(_) => return false,
                }
            }
        });
    }

    /// The last lines that were kept.
    pub fn take_kept(&mut self) -> Vec<String> {
        self.read();
        std::mem::take(&mut self.kept).into()
    }
}

impl Source {
    fn take(&mut self, bytes: &[u8], mode: OutputMode, kept: &mut VecDeque<String>) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.partial.len() >= LONGEST_LINE {
                self.flush(mode, kept);
            }
        }
    }

    fn flush(&mut self, mode: OutputMode, kept: &mut VecDeque<String>) {
        if self.partial.is_empty() {
            return;
        }
        let text = String::from_utf8_lossy(&self.partial);
        let line = format!("[{}] {}", self.rank, text.trim_end_matches('\n'));
        self.partial.clear();
        match mode {
            OutputMode::Keep => {
                if kept.len() == KEPT_LINES {
                    kept.pop_front();
                }
                kept.push_back(line);
            }
            // A closed stdout of the launcher must not end the job.
            _ if self.pipe.is_stderr => drop(writeln!(std::io::stderr(), "{line}")),
            _ => drop(writeln!(std::io::stdout(), "{line}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;

    #[test]
    fn lines_are_kept_whole_and_with_their_rank() {
        let (reader, writer) = pipe().expect("pipe");
        let mut lines = Lines::create(OutputMode::Keep);
        lines.add(3, vec![OutputPipe { pipe: reader, is_stderr: false }]).expect("added");
        rustix::io::write(&writer, b"one\ntw").expect("write");
        lines.read();
        rustix::io::write(&writer, b"o\nrest").expect("write");
        drop(writer);
        lines.read();
        assert_eq!(lines.descriptors().count(), 0, "a closed pipe is forgotten");
        assert_eq!(lines.take_kept(), ["[3] one", "[3] two", "[3] rest"]);
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let (reader, writer) = pipe().expect("pipe");
        let mut lines = Lines::create(OutputMode::Keep);
        lines.add(0, vec![OutputPipe { pipe: reader, is_stderr: true }]).expect("added");
        for number in 0..KEPT_LINES + 5 {
            rustix::io::write(&writer, format!("{number}\n").as_bytes()).expect("write");
        }
        let kept = lines.take_kept();
        assert_eq!((kept.len(), kept[0].as_str()), (KEPT_LINES, "[0] 5"));
    }
}
