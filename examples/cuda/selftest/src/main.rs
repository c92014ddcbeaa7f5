//! Shows on a GPU what the tests of the CUDA backend assume; see README.md.

mod checks;
mod children;
mod digits;
mod gpu;
mod table;

use journal_core::backend::Device;
use journal_core::backend::cuda::{CudaDevice, probe};
use std::process::ExitCode;
use table::{Checked, Table};

type Check = fn(&CudaDevice) -> Checked;

const CHECKS: [(&str, Check); 15] = [
    ("window at its base", checks::window),
    ("a device that is not there", |_| checks::wrong_device()),
    ("a window that is taken", |_| checks::window_taken()),
    ("small allocations share granules", checks::small_allocations),
    ("a large allocation", checks::large_allocation),
    ("out of memory", checks::out_of_memory),
    ("copies of pageable memory", checks::pageable_copies),
    ("copies of page-locked memory", checks::pinned_copies),
    ("calls behind a running kernel", checks::calls_behind_a_running_kernel),
    ("streams and events", checks::streams_and_events),
    ("modules and launches", checks::modules_and_launches),
    ("cost of a call", checks::cost),
    ("many threads", checks::threads),
    ("digits kernels", digits::kernels),
    ("reset", checks::reset),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name] = &arguments[..]
        && flag == "--child"
    {
        return match children::run_child(name) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("child {name}: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let system = match probe() {
        Ok(system) => system,
        Err(error) => {
            println!("skipped: {error}");
            return ExitCode::from(77);
        }
    };
    println!("driver for CUDA {}", system.driver_cuda);
    for device in &system.devices {
        println!("device {}: {}, sm_{}{}, {} MiB", device.ordinal, device.name, device.compute.0, device.compute.1, device.total_bytes >> 20);
    }
    let wanted = |name: &str| arguments.is_empty() || arguments.iter().any(|part| name.contains(part.as_str()));
    let mut table = Table::default();
    // Before this process has a context, so that they are alone on the device.
    for (name, check) in [("100 fresh processes", children::fresh_processes as fn() -> Checked), ("sticky error", children::sticky_error)] {
        if wanted(name) {
            table.check(name, check);
        }
    }
    match gpu::open(0) {
        Ok(device) => {
            for (name, check) in CHECKS.into_iter().filter(|(name, _)| wanted(name)) {
                table.check(name, || check(&device));
            }
            if let Err(error) = device.make_current() {
                eprintln!("the device did not outlive the checks: {error}");
            }
        }
        Err(error) => table.check("open", || Err(error)),
    }
    if table.print() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
