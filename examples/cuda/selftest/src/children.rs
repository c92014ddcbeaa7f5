//! Checks that need a process of their own: fresh addresses, and faults that nothing but a new process mends.

use crate::gpu::{DEFAULT, ONE, finish, kernel, open};
use crate::table::{Checked, fine, refused};
use anyhow::{Context, ensure};
use journal_core::backend::{Device, DeviceError};
use std::process::{Command, Stdio};

const FRESH_PROCESSES: usize = 100;

/// Runs this program again as a child and gives back what it printed.
fn child(name: &str) -> anyhow::Result<String> {
    let output = Command::new(std::env::current_exe()?).args(["--child", name]).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "child {name} ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// What a child does.
pub fn run_child(name: &str) -> anyhow::Result<()> {
    match name {
        "addresses" => print_addresses(),
        "fault" => fault(),
        other => anyhow::bail!("no child {other}"),
    }
}

fn print_addresses() -> anyhow::Result<()> {
    let device = open(0)?;
    let window = device.window();
    print!("{:#x}+{:#x}", window.base, window.bytes);
    for bytes in [1, 300, 5 << 20, 64 << 20, 17] {
        print!(" {:#x}", device.alloc(bytes)?.0);
    }
    println!();
    Ok(())
}

/// The same addresses in many fresh processes.
pub fn fresh_processes() -> Checked {
    let first = child("addresses")?;
    for index in 1..FRESH_PROCESSES {
        let next = child("addresses")?;
        ensure!(next == first, "process {index}: {next}, first: {first}");
    }
    fine(format!("{FRESH_PROCESSES} processes: {}", first.trim()))
}

fn fault() -> anyhow::Result<()> {
    let device = open(0)?;
    let at = device.alloc(100)?;
    device.launch(&kernel(&device, "fault")?, ONE, DEFAULT, &[])?;
    let error = finish(&device, DEFAULT).err().context("the fault was not noticed")?;
    let error = error.downcast::<DeviceError>()?;
    ensure!(error.is_lost(), "{error}");
    let calls = [
        refused("alloc", device.alloc(1))?,
        refused("free", device.free(at))?,
        refused("memset", device.memset(at, 0, 1, DEFAULT))?,
        refused("make_current", device.make_current())?,
        refused("reset", device.reset())?,
    ];
    ensure!(calls.iter().all(|other| *other == error), "{calls:?}");
    println!("{error}");
    Ok(())
}

/// A fault loses the device for its process, and only for that.
pub fn sticky_error() -> Checked {
    let text = child("fault")?;
    ensure!(text.contains("the process must be replaced"), "{text}");
    child("addresses").context("after the fault of another process")?;
    fine(text.trim())
}
