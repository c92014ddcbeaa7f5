//! SIGINT, SIGTERM and SIGHUP of the launcher as something that `poll` can wait for.

use anyhow::Context;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// Signals that end a job, received through a socket pair since a handler may do little else than write.
pub struct Signals {
    receivers: Vec<(i32, UnixStream)>,
    ids: Vec<signal_hook::SigId>,
}

impl Signals {
    /// Takes over the signals until dropped.
    pub fn create() -> anyhow::Result<Self> {
        let mut signals = Self { receivers: Vec::new(), ids: Vec::new() };
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let (receiver, sender) = UnixStream::pair().context("cannot create a socket pair for signals")?;
            receiver.set_nonblocking(true)?;
            let id = signal_hook::low_level::pipe::register(signal, sender).context("cannot register a signal")?;
            signals.ids.push(id);
            signals.receivers.push((signal, receiver));
        }
        Ok(signals)
    }

    /// What becomes readable when a signal came.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.receivers.iter().map(|(_, receiver)| receiver.as_fd())
    }

    /// The next signal that came, if any.
    pub fn take(&mut self) -> Option<i32> {
        self.receivers.iter_mut().find_map(|(signal, receiver)| {
            let mut byte = [0; 1];
            matches!(receiver.read(&mut byte), Ok(1)).then_some(*signal)
        })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_taken_once() {
        let mut signals = Signals::create().expect("signals");
        assert_eq!(signals.take(), None);
        signal_hook::low_level::raise(libc::SIGHUP).expect("raise");
        assert_eq!(signals.take(), Some(libc::SIGHUP));
        assert_eq!(signals.take(), None);
    }
}
