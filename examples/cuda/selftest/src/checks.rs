//! The checks of memory, copies, streams, events, modules and launches.

use crate::gpu::{DEFAULT, ONE, PTX, Stuck, bytes_of, download, finish, floats_of, kernel, open, upload};
use crate::table::{Checked, fine, refused};
use anyhow::ensure;
use journal_core::backend::cuda::{CudaDevice, CudaOptions};
use journal_core::backend::{Copy, Device, DeviceError, DevicePtr, LaunchShape, RealHandle, WINDOW_BASE};
use std::time::Instant;

const MIB: u64 = 1 << 20;

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8).collect()
}

pub fn window(device: &CudaDevice) -> Checked {
    let window = device.window();
    ensure!(window.base == WINDOW_BASE, "{window:x?}");
    let (free, total) = device.mem_info()?;
    ensure!(free <= total && window.bytes >= total);
    fine(format!("{} GiB at {:#x}; {} of {} MiB free", window.bytes >> 30, window.base, free / MIB, total / MIB))
}

pub fn wrong_device() -> Checked {
    let error = refused("device 99", CudaDevice::create(CudaOptions { ordinal: 99, ..CudaOptions::default() }))?;
    ensure!(matches!(error, DeviceError::Invalid { .. }), "{error}");
    fine(error.to_string())
}

pub fn window_taken() -> Checked {
    // Index 0 has it already.
    let error = refused("a second window at the same base", open(0).map_err(|error| match error.downcast::<DeviceError>() {
        Ok(error) => error,
        Err(other) => DeviceError::Module { reason: other.to_string() },
    }))?;
    ensure!(matches!(error, DeviceError::Window { .. }), "{error}");
    fine(error.to_string())
}

pub fn small_allocations(device: &CudaDevice) -> Checked {
    let before = device.mem_info()?.0;
    let all: Vec<_> = (0..1000).map(|n| device.alloc(1 + n % 700)).collect::<Result<_, _>>()?;
    ensure!(all.iter().all(|address| address.0.is_multiple_of(256)), "alignment");
    let used = before - device.mem_info()?.0;
    for address in &all {
        device.free(*address)?;
    }
    ensure!(used <= 4 * MIB, "{used} bytes for 1,000 small allocations");
    ensure!(device.allocations().is_empty());
    fine(format!("1,000 allocations took {used} bytes of the card"))
}

pub fn large_allocation(device: &CudaDevice) -> Checked {
    let bytes = 1 << 30;
    let start = Instant::now();
    let address = device.alloc(bytes)?;
    let taken = start.elapsed();
    device.memset(address, 0x5a, bytes, DEFAULT)?;
    let end = download(device, DevicePtr(address.0 + bytes - 100), 100)?;
    ensure!(end == [0x5a; 100]);
    let start = Instant::now();
    device.free(address)?;
    fine(format!("1 GiB: alloc {:.2} ms, free {:.2} ms", taken.as_secs_f64() * 1e3, start.elapsed().as_secs_f64() * 1e3))
}

pub fn out_of_memory(device: &CudaDevice) -> Checked {
    let (free, total) = device.mem_info()?;
    let wanted = (free + 64 * MIB).min(device.window().bytes);
    let error = refused("more than the card has", device.alloc(wanted))?;
    match error {
        DeviceError::OutOfMemory { requested, free, total: card } => {
            ensure!(requested == wanted && free < wanted && card == total, "{error}");
        }
        _ => anyhow::bail!("{error}"),
    }
    ensure!(device.allocations().is_empty());
    let address = device.alloc(64 * MIB)?;
    device.free(address)?;
    fine(error.to_string())
}

pub fn pageable_copies(device: &CudaDevice) -> Checked {
    for bytes in [1, 1000, 65_536, 3 * MIB as usize + 17, 40 * MIB as usize + 1] {
        let data = pattern(bytes);
        let a = upload(device, &data)?;
        let b = device.alloc(bytes as u64)?;
        device.copy(Copy::DeviceToDevice { dst: b, src: a }, bytes as u64, DEFAULT)?;
        ensure!(download(device, b, bytes)? == data, "{bytes} bytes");
        device.free(a)?;
        device.free(b)?;
    }
    let data = pattern(256 * MIB as usize);
    let start = Instant::now();
    let at = upload(device, &data)?;
    let up = start.elapsed();
    let start = Instant::now();
    download(device, at, data.len())?;
    let down = start.elapsed();
    device.free(at)?;
    let rate = |time: std::time::Duration| data.len() as f64 / time.as_secs_f64() / 1e9;
    fine(format!("256 MiB pageable: to device {:.1} GB/s, to host {:.1} GB/s", rate(up), rate(down)))
}

pub fn pinned_copies(device: &CudaDevice) -> Checked {
    let mut data = pattern(64 * MIB as usize);
    let expected = data.clone();
    device.host_register(data.as_mut_ptr().cast(), data.len() as u64, 0)?;
    ensure!(device.host_register(data.as_mut_ptr().cast(), 4096, 0).is_err(), "registered twice");
    let at = device.alloc(data.len() as u64)?;
    device.copy(Copy::HostToDevice { dst: at, src: data.as_ptr() }, data.len() as u64, DEFAULT)?;
    finish(device, DEFAULT)?;
    data.fill(0);
    let start = Instant::now();
    device.copy(Copy::DeviceToHost { dst: data.as_mut_ptr(), src: at }, data.len() as u64, DEFAULT)?;
    finish(device, DEFAULT)?;
    let rate = data.len() as f64 / start.elapsed().as_secs_f64() / 1e9;
    device.host_unregister(data.as_mut_ptr().cast())?;
    ensure!(device.host_unregister(data.as_mut_ptr().cast()).is_err(), "unregistered twice");
    device.free(at)?;
    ensure!(data == expected);
    fine(format!("{rate:.1} GB/s to page-locked memory"))
}

/// The point of the staging: no call waits for a stream that hangs.
pub fn calls_behind_a_running_kernel(device: &CudaDevice) -> Checked {
    let at = device.alloc(5 * MIB)?;
    let spare = device.alloc(5 * MIB)?;
    let unused = device.module_load(PTX)?;
    let stuck = Stuck::start(device)?;
    let (small, large) = (pattern(1000), pattern(5 * MIB as usize));
    let (mut small_back, mut large_back) = (vec![0u8; 1000], vec![0u8; large.len()]);
    let (small_to, large_to) = (small_back.as_mut_ptr() as usize, large_back.as_mut_ptr() as usize);
    let stream = stuck.stream;
    let text = stuck.while_stuck("a copy of pageable memory, an allocation, a free, an unload or a query", || {
        let mut slowest = (std::time::Duration::ZERO, "");
        let mut timed = |name, call: &mut dyn FnMut() -> anyhow::Result<()>| -> anyhow::Result<()> {
            let start = Instant::now();
            call()?;
            slowest = slowest.max((start.elapsed(), name));
            Ok(())
        };
        let up = |data: &[u8]| Ok(device.copy(Copy::HostToDevice { dst: at, src: data.as_ptr() }, data.len() as u64, stream)?);
        let down = |to: usize, bytes| Ok(device.copy(Copy::DeviceToHost { dst: to as *mut u8, src: at }, bytes, stream)?);
        timed("small to device", &mut || up(&small))?;
        timed("small to host", &mut || down(small_to, 1000))?;
        timed("large to device", &mut || up(&large))?;
        timed("large to host", &mut || down(large_to, 5 * MIB))?;
        timed("memset", &mut || Ok(device.memset(at, 0, 1, stream)?))?;
        timed("free", &mut || Ok(device.free(spare)?))?;
        timed("alloc", &mut || device.alloc(30 * MIB).and_then(|address| device.free(address)).map_err(Into::into))?;
        timed("unload", &mut || Ok(device.module_unload(unused)?))?;
        timed("query", &mut || device.stream_query(stream).map(|_| ()).map_err(Into::into))?;
        Ok(format!("slowest call: {} {:.2} ms", slowest.1, slowest.0.as_secs_f64() * 1e3))
    })?;
    ensure!(small_back.iter().chain(&large_back).all(|byte| *byte == 0), "a copy ran before the kernel ended");
    stuck.release()?;
    ensure!(small_back == small && large_back == large, "bytes differ after the kernel ended");
    device.free(at)?;
    fine(text)
}

pub fn streams_and_events(device: &CudaDevice) -> Checked {
    let stuck = Stuck::start(device)?;
    let other = device.stream_create(1, -1)?;
    let event = device.event_create(0)?;
    let at = device.alloc(4)?;
    ensure!(device.event_query(event)?, "an event that was never recorded is complete");
    device.memset(at, 7, 4, stuck.stream)?;
    device.event_record(event, stuck.stream)?;
    device.stream_wait_event(other, event, 0)?;
    let mut seen = [0u8; 4];
    device.copy(Copy::DeviceToHost { dst: seen.as_mut_ptr(), src: at }, 4, other)?;
    ensure!(!device.event_query(event)? && !device.stream_query(other)? && device.stream_query(DEFAULT)?);
    stuck.release()?;
    finish(device, other)?;
    ensure!(device.event_query(event)? && seen == [7; 4]);
    let end = device.event_create(0)?;
    ensure!(device.event_elapsed_ms(event, end).is_err(), "not recorded");
    device.event_record(end, other)?;
    finish(device, other)?;
    let ms = device.event_elapsed_ms(event, end)?;
    ensure!((0.0..30_000.0).contains(&ms), "{ms} ms between events");
    let untimed = device.event_create(2)?;
    device.event_record(untimed, other)?;
    finish(device, other)?;
    ensure!(device.event_elapsed_ms(event, untimed).is_err(), "without timing");
    for event in [event, end, untimed] {
        device.event_destroy(event)?;
    }
    ensure!(device.event_query(event).is_err(), "destroyed");
    device.stream_destroy(other)?;
    device.free(at)?;
    fine(format!("{ms:.3} ms between events"))
}

pub fn modules_and_launches(device: &CudaDevice) -> Checked {
    let add = kernel(device, "add_scaled")?;
    ensure!(add.param_bytes == [8, 8, 4, 4], "{:?}", add.param_bytes);
    let n = 100_000u32;
    let (x, y): (Vec<f32>, Vec<f32>) = (0..n).map(|i| (i as f32, 1.0)).unzip();
    let (px, py) = (upload(device, &bytes_of(&x))?, upload(device, &bytes_of(&y))?);
    let params = [&py.0.to_le_bytes()[..], &px.0.to_le_bytes(), &2f32.to_le_bytes(), &n.to_le_bytes()].concat();
    let shape = LaunchShape { grid: [n.div_ceil(256), 1, 1], block: [256, 1, 1], shared_bytes: 0 };
    device.launch(&add, shape, DEFAULT, &params)?;
    let found = floats_of(&download(device, py, 4 * n as usize)?);
    ensure!(found.iter().enumerate().all(|(i, value)| *value == 2.0 * i as f32 + 1.0), "y = y + 2 x");

    let mixed = kernel(device, "mixed")?;
    ensure!(mixed.param_bytes == [1, 2, 4, 8, 8], "{:?}", mixed.param_bytes);
    let out = device.alloc(32)?;
    let packed = [&[0xA1][..], &0xB2B2u16.to_le_bytes(), &0xC3C3_C3C3u32.to_le_bytes(), &0xD4D4_D4D4_D4D4_D4D4u64.to_le_bytes(), &out.0.to_le_bytes()];
    device.launch(&mixed, ONE, DEFAULT, &packed.concat())?;
    let words: Vec<_> = download(device, out, 32)?.chunks_exact(8).map(|b| b.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte))).collect();
    ensure!(words == [0xA1, 0xB2B2, 0xC3C3_C3C3, 0xD4D4_D4D4_D4D4_D4D4], "{words:x?}");
    ensure!(matches!(device.launch(&mixed, ONE, DEFAULT, &[0; 22]), Err(DeviceError::Invalid { .. })), "one byte missing");

    let error = refused("nonsense as a module", device.module_load(b".version 7.0\n.target sm_70\n.address_size 64\nnonsense\n"))?;
    ensure!(matches!(error, DeviceError::Module { .. }), "{error}");
    let module = device.module_load(PTX)?;
    ensure!(matches!(device.module_function(module, "absent"), Err(DeviceError::Module { .. })));
    device.module_unload(module)?;
    for address in [px, py, out] {
        device.free(address)?;
    }
    fine(format!("refused: {error}"))
}

/// What a launch and a query cost, without recording.
pub fn cost(device: &CudaDevice) -> Checked {
    let add = kernel(device, "add_scaled")?;
    let stream = device.stream_create(1, 0)?;
    let params = [0u8; 24];
    let mut rounds = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        for _ in 0..500 {
            device.launch(&add, ONE, stream, &params)?;
        }
        rounds.push(start.elapsed().as_nanos() / 500);
        finish(device, stream)?;
    }
    rounds.sort_unstable();
    let start = Instant::now();
    for _ in 0..10_000 {
        device.stream_query(stream)?;
    }
    let query = start.elapsed().as_nanos() / 10_000;
    device.stream_destroy(stream)?;
    fine(format!("launch {} ns (median of 20 × 500), idle query {query} ns", rounds[10]))
}

pub fn threads(device: &CudaDevice) -> Checked {
    std::thread::scope(|scope| {
        let run = |seed: usize| -> anyhow::Result<()> {
            let stream = device.stream_create(1, 0)?;
            for round in 0..50 {
                let data = pattern(10_000 + seed * 100 + round);
                let at = device.alloc(data.len() as u64)?;
                device.copy(Copy::HostToDevice { dst: at, src: data.as_ptr() }, data.len() as u64, stream)?;
                let mut back = vec![0; data.len()];
                device.copy(Copy::DeviceToHost { dst: back.as_mut_ptr(), src: at }, data.len() as u64, stream)?;
                finish(device, stream)?;
                ensure!(back == data);
                device.free(at)?;
            }
            Ok(device.stream_destroy(stream)?)
        };
        let threads: Vec<_> = (0..8).map(|seed| scope.spawn(move || run(seed))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked"))))
    })?;
    ensure!(device.allocations().is_empty());
    fine("8 threads, none of which made the context current")
}

pub fn reset(device: &CudaDevice) -> Checked {
    let take = || -> anyhow::Result<Vec<DevicePtr>> { Ok([100, 5 * MIB, 3].map(|bytes| device.alloc(bytes)).into_iter().collect::<Result<_, _>>()?) };
    let first = take()?;
    let event = device.event_create(0)?;
    device.memset(first[1], 1, 5 * MIB, DEFAULT)?;
    device.reset()?;
    ensure!(device.allocations().is_empty() && device.event_query(event).is_err());
    ensure!(take()? == first, "addresses differ after a reset");
    let recorded = device.allocations();
    device.reset()?;
    for (address, bytes) in recorded.iter().rev() {
        device.alloc_at(*address, *bytes)?;
    }
    ensure!(device.allocations() == recorded);
    device.reset()?;
    ensure!(device.stream_query(RealHandle(0))?);
    fine("same addresses, in any order")
}
