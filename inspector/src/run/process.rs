//! One process of a rank: started in a process group of its own, watched by pidfd, ended with its group.

use anyhow::Context;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A started process that has not been reaped yet.
pub struct RankProcess {
    child: Child,
    pidfd: OwnedFd,
    /// Its output, when it was asked to be piped.
    pub output: Vec<OutputPipe>,
}

/// A pipe from a rank and whether it is its stderr.
pub struct OutputPipe {
    /// Read end.
    pub pipe: OwnedFd,
    /// stderr rather than stdout.
    pub is_stderr: bool,
}

/// Where the output of ranks goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankOutput {
    /// To the launcher's own.
    Inherit,
    /// Through pipes, so that lines can be tagged or kept.
    Pipe,
}

impl RankProcess {
    /// Starts `program`. No code of ours runs between fork and exec, so the C library can use its fast path.
    pub fn start(program: &[OsString], environment: &[(String, OsString)], output: RankOutput) -> anyhow::Result<Self> {
        let (name, arguments) = program.split_first().context("no program was given")?;
        let stdio = || match output {
            RankOutput::Inherit => Stdio::inherit(),
            RankOutput::Pipe => Stdio::piped(),
        };
        let mut command = Command::new(name);
        command.args(arguments).envs(environment.iter().map(|(key, value)| (key, value)));
        // A rank in the background that read the terminal would be stopped.
        command.stdin(Stdio::null()).stdout(stdio()).stderr(stdio()).process_group(0);
        let mut child = command.spawn().with_context(|| format!("cannot start {}", name.display()))?;
        let pidfd = match pidfd_open(pid_of(&child), PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                // Nothing may be left running that nobody watches.
                let _ = child.kill();
                let _ = child.wait();
                return Err(error).context("cannot watch a rank (pidfd_open, Linux 5.3 or newer)");
            }
        };
        let mut pipes = Vec::new();
        pipes.extend(child.stdout.take().map(|pipe| OutputPipe { pipe: pipe.into(), is_stderr: false }));
        pipes.extend(child.stderr.take().map(|pipe| OutputPipe { pipe: pipe.into(), is_stderr: true }));
        Ok(Self { child, pidfd, output: pipes })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Readable when the process has exited.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Sends a signal to the whole group. The leader has not been reaped, so the group is still this one.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process_group(pid_of(&self.child), signal);
    }

    /// After the descriptor became readable: ends what the process left behind in its group, and reaps it.
    pub fn reap(mut self) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::KILL);
        self.child.wait().context("cannot learn how a rank ended")
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Finds what exec would run, so that a missing program is told before anything is created.
pub fn find_program(name: &OsStr) -> anyhow::Result<PathBuf> {
    let shown = name.display();
    if name.as_encoded_bytes().contains(&b'/') {
        return executable(Path::new(name)).with_context(|| format!("cannot run {shown}"));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut refused = None;
    for folder in std::env::split_paths(&path) {
        match executable(&folder.join(name)) {
            Ok(found) => return Ok(found),
            Err(error) if folder.join(name).is_file() => refused = Some(error),
            Err(_) => {}
        }
    }
    match refused {
        Some(error) => Err(error).with_context(|| format!("cannot run {shown}")),
        None => anyhow::bail!("cannot run {shown}: not found in PATH (use ./{shown} for a file of this folder)"),
    }
}

fn executable(path: &Path) -> anyhow::Result<PathBuf> {
    let data = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => anyhow::anyhow!("no such file"),
        _ => error.into(),
    })?;
    anyhow::ensure!(data.is_file(), "it is not a file");
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).map_err(|_| anyhow::anyhow!("it is not executable"))?;
    Ok(path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::evidence::Exit;
    use rustix::event::{PollFd, PollFlags, poll};

    fn wait(process: &RankProcess) {
        let mut set = [PollFd::from_borrowed_fd(process.descriptor(), PollFlags::IN)];
        let limit = rustix::time::Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(poll(&mut set, Some(&limit)).expect("poll"), 1, "the process did not exit");
    }

    fn shell(script: &str) -> RankProcess {
        let program = ["/bin/sh".into(), "-c".into(), script.into()];
        RankProcess::start(&program, &[("MARK".to_owned(), "7".into())], RankOutput::Inherit).expect("started")
    }

    #[test]
    fn an_exit_is_seen_by_the_descriptor_and_told_as_it_was() {
        let process = shell("exit $MARK");
        wait(&process);
        assert_eq!(Exit::from(process.reap().expect("reaped")), Exit::Code(7));
        let process = shell("kill -9 $$");
        wait(&process);
        assert_eq!(Exit::from(process.reap().expect("reaped")), Exit::Signal(9));
    }

    #[test]
    fn a_signal_reaches_the_whole_group() {
        let process = shell("sleep 1000 & sleep 1000");
        process.signal(Signal::TERM);
        wait(&process);
        assert_eq!(Exit::from(process.reap().expect("reaped")), Exit::Signal(15));
    }

    #[test]
    fn a_missing_or_plain_file_is_no_program() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let plain = folder.path().join("plain");
        std::fs::write(&plain, "text").expect("file");
        let error = |name: &OsStr| format!("{:#}", find_program(name).expect_err("no program"));
        assert!(error(plain.as_os_str()).contains("not executable"));
        assert!(error(folder.path().as_os_str()).contains("not a file"));
        assert!(error(folder.path().join("none").as_os_str()).contains("no such file"));
        assert!(error(OsStr::new("rejoin-no-such-program")).contains("not found in PATH"));
        assert!(find_program(OsStr::new("sh")).is_ok());
    }
}
