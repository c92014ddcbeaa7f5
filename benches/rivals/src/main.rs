//! "Append one record of 64 or 256 bytes, from one process and from two that saturate": the journal and its rivals.
//!
//! `scripts/rivals` installs, builds and runs all of it. `rivals SYSTEM BYTES PRODUCERS` is one measurement.

#![allow(missing_docs)]
mod event;
mod race;
mod systems;

use std::process::Command;

/// A row of the table.
struct Row {
    system: &'static str,
    name: &'static str,
    /// Across processes; else across threads of one.
    processes: bool,
    two: bool,
    /// What is measured, and what it promises after kill -9.
    note: &'static str,
}

const RUNS: usize = 5;
const ROWS: &[Row] = &[
    Row { system: "journal", name: "this journal", processes: true, two: true, note: "copy, CRC32C, total order; every acknowledged record is readable, others go on, at most one number lost" },
    Row { system: "mutex", name: "robust mutex around an append", processes: true, two: true, note: "copy, CRC32C, total order; EOWNERDEAD tells the next locker, who must repair; a stopped holder stops all" },
    Row { system: "rtrb", name: "rtrb 0.4", processes: false, two: false, note: "copy, one producer, consumer drains; threads: all dies with the process" },
    Row { system: "crossbeam", name: "crossbeam-channel 0.5, bounded", processes: false, two: true, note: "copy, order, consumer drains; threads: all dies with the process" },
    Row { system: "iceoryx2", name: "iceoryx2 0.10, loan + copy + send", processes: true, two: true, note: "copy, no checksum, overflow on, one subscriber; claims that others go on; samples not received may go" },
    Row { system: "aeron", name: "Aeron ipc, offer", processes: true, two: true, note: "copy, order, no checksum, subscriber drains, waits under back pressure; an unblocker skips a dead claim after a timeout" },
    Row { system: "lttng", name: "LTTng-UST 2.13, overwrite 4x4 MiB", processes: true, two: true, note: "copy, clock, per-CPU order only; a death between reserve and commit spoils a sub-buffer" },
    Row { system: "boost", name: "boost message_queue", processes: true, two: true, note: "copy, order, consumer drains; a killed holder of its mutex blocks all others for ever" },
    Row { system: "pipe", name: "pipe write", processes: true, two: true, note: "system call, copy, order, consumer drains; what was written stays while a reader lives" },
];

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [] => table(),
        [what] if what == "event" => {
            event::run();
            Ok(())
        }
        [system, bytes, producers] => {
            println!("{:.1}", systems::measure(system, bytes.parse()?, producers.parse()?)?);
            Ok(())
        }
        _ => anyhow::bail!("usage: rivals [SYSTEM BYTES PRODUCERS]"),
    }
}

/// Median of [`RUNS`] processes of its own each, or why there is none.
fn median(row: &Row, bytes: u64, producers: u64) -> Result<f64, String> {
    let mut found = Vec::new();
    for _ in 0..RUNS {
        let foreign = std::env::var(format!("RIVALS_{}", row.system.to_uppercase())).ok();
        let mut command = match &foreign {
            Some(program) if program.starts_with("absent:") => return Err(program.clone()),
            Some(program) => Command::new(program),
            None => Command::new(std::env::current_exe().map_err(|e| e.to_string())?),
        };
        if foreign.is_none() {
            command.arg(row.system);
        }
        let out = Command::new("timeout").arg("60").arg(command.get_program()).args(command.get_args())
            .args([bytes.to_string(), producers.to_string()]).output().map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&out.stdout);
        let last = text.lines().last().and_then(|line| line.trim().parse::<f64>().ok());
        match last {
            Some(nanos) if out.status.success() => found.push(nanos),
            _ => {
                let error = String::from_utf8_lossy(&out.stderr);
                return Err(match out.status.code() {
                    Some(124) => "did not end within 60 s".to_owned(),
                    _ => format!("failed: {} {}", out.status, error.lines().last().unwrap_or_default()),
                });
            }
        }
    }
    found.sort_by(f64::total_cmp);
    Ok(found[RUNS / 2])
}

fn table() -> anyhow::Result<()> {
    println!("| system | among | 64 B ns (ratio) | 256 B ns (ratio) | 2 producers 64 B | 2 producers 256 B | includes; after kill -9 |");
    println!("|---|---|---:|---:|---:|---:|---|");
    let mut ours = [f64::NAN; 4];
    for row in ROWS {
        let mut cells = Vec::new();
        for (i, (bytes, producers)) in [(64, 1), (256, 1), (64, 2), (256, 2)].into_iter().enumerate() {
            if producers == 2 && !row.two {
                cells.push("one producer only".to_owned());
                continue;
            }
            cells.push(match median(row, bytes, producers) {
                Ok(nanos) => {
                    if row.system == "journal" {
                        ours[i] = nanos;
                    }
                    format!("{nanos:.0} ({:.1})", nanos / ours[i])
                }
                Err(reason) => reason,
            });
        }
        let among = if row.processes { "processes" } else { "threads" };
        println!("| {} | {among} | {} | {} |", row.name, cells.join(" | "), row.note);
    }
    Ok(())
}
