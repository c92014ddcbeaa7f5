//! Each test has a window of its own: a session index.

use super::*;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use rejoin_host_stream::{HOST_STREAM_BUSY, HOST_STREAM_LOST, HOST_STREAM_OK, HostStream, HostWork};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;

const MIB: u64 = 1 << 20;
const WINDOW: u64 = 16 * MIB;
const WATCHDOG: Duration = Duration::from_secs(60);
const DEFAULT: RealHandle = RealHandle(0);
const ONE: LaunchShape = LaunchShape { grid: [1; 3], block: [1; 3], shared_bytes: 0 };

fn device() -> HostDevice {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let session_index = NEXT.fetch_add(1, Ordering::Relaxed);
    HostDevice::create(HostOptions { session_index, window_bytes: WINDOW, ordinal: 3 }).unwrap()
}

/// Waits as the agent does: activity first, then the query.
fn wait(device: &HostDevice, what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + WATCHDOG;
    loop {
        let seen = device.activity();
        if done() {
            return;
        }
        let left = deadline.checked_duration_since(Instant::now()).unwrap_or_else(|| panic!("waited too long for {what}"));
        device.activity_wait(seen, left);
    }
}

fn synchronize(device: &HostDevice, stream: RealHandle) {
    wait(device, "a stream", || device.stream_query(stream).unwrap());
}

fn upload(device: &HostDevice, bytes: &[u8]) -> DevicePtr {
    let dst = device.alloc(bytes.len() as u64).unwrap();
    device.copy(Copy::HostToDevice { dst, src: bytes.as_ptr() }, bytes.len() as u64, DEFAULT).unwrap();
    synchronize(device, DEFAULT);
    dst
}

fn download(device: &HostDevice, src: DevicePtr, bytes: usize) -> Vec<u8> {
    let mut host = vec![0; bytes];
    device.copy(Copy::DeviceToHost { dst: host.as_mut_ptr(), src }, bytes as u64, DEFAULT).unwrap();
    synchronize(device, DEFAULT);
    host
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// Native work that runs until it is let go, like a collective whose peer is dead.
struct Stuck {
    started: mpsc::Receiver<()>,
    release: mpsc::SyncSender<()>,
}

struct StuckWork {
    started: mpsc::SyncSender<()>,
    release: mpsc::Receiver<()>,
}

impl Stuck {
    /// Enqueues it and waits until it runs.
    fn on(device: &HostDevice, stream: RealHandle) -> Self {
        let stuck = Self::queued(device, stream);
        stuck.started.recv_timeout(WATCHDOG).expect("the worker starts it");
        stuck
    }

    fn queued(device: &HostDevice, stream: RealHandle) -> Self {
        unsafe extern "C" fn work(arg: *mut c_void) {
            // SAFETY: enqueued below with this type, and called once.
            let work = unsafe { Box::from_raw(arg.cast::<StuckWork>()) };
            let _ = work.started.send(());
            let _ = work.release.recv_timeout(WATCHDOG);
        }
        let (started, on_start) = mpsc::sync_channel(1);
        let (release, on_release) = mpsc::sync_channel(1);
        let arg = Box::into_raw(Box::new(StuckWork { started, release: on_release })).cast();
        assert_eq!(native_enqueue(device.stream_native(stream), work, arg), HOST_STREAM_OK);
        Self { started: on_start, release }
    }

    fn release(&self) {
        let _ = self.release.send(());
    }
}

fn native_enqueue(stream: *mut c_void, work: HostWork, arg: *mut c_void) -> i32 {
    let stream = stream.cast::<HostStream>();
    // SAFETY: a stream of a device, never freed.
    let enqueue = unsafe { (*stream).enqueue };
    // SAFETY: as above; the tests pass an argument that fits the work.
    unsafe { enqueue(stream, work, arg) }
}

fn native_query(stream: *mut c_void) -> i32 {
    let stream = stream.cast::<HostStream>();
    // SAFETY: a stream of a device, never freed.
    let query = unsafe { (*stream).query };
    // SAFETY: as above.
    unsafe { query(stream) }
}

/// The digits kernels as cargo built them: beside the test binary.
fn digits_image() -> Vec<u8> {
    assert!(digits_kernels::rejoin_kernel_table.count > 0);
    let mut path = std::env::current_exe().unwrap();
    path.set_file_name("libdigits_kernels.so");
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Compiles kernels written in C.
fn c_image(source: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("kernels.c"), folder.path().join("kernels.so"));
    std::fs::write(&input, source).unwrap();
    let include = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../host-nccl/stream/include");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let compiled = Command::new(&compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-shared", "-fPIC", "-I"])
        .args([&include, &PathBuf::from("-o"), &output, &input])
        .output()
        .unwrap_or_else(|e| panic!("no C compiler {compiler:?}: {e}"));
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    std::fs::read(output).unwrap()
}

const C_KERNELS: &str = r#"
#include "rejoin_kernel.h"
static uint32_t loaded;
static int32_t count(const rejoin_host_launch *launch, const void *const *params) {
    uint32_t *out = *(uint32_t *const *)params[1];
    out[0] = ++loaded;
    out[1] = launch->grid[0] * launch->block[2] + launch->shared_bytes;
    out[2] = *(const uint8_t *)params[0];
    return 0;
}
static int32_t fault(const rejoin_host_launch *launch, const void *const *params) {
    (void)launch;
    return *(const int32_t *)params[0];
}
static const uint32_t count_params[] = {sizeof(uint8_t), sizeof(uint32_t *)};
static const uint32_t fault_params[] = {sizeof(int32_t)};
static const rejoin_host_kernel kernels[] = {{"count", count_params, 2, 0, count}, {"fault", fault_params, 1, 0, fault}};
REJOIN_KERNEL_TABLE(kernels);
"#;

// ---- memory

#[test]
fn allocations_are_aligned_and_in_the_window() {
    let device = device();
    let (a, b) = (device.alloc(1).unwrap(), device.alloc(1000).unwrap());
    assert_eq!((a.0, b.0), (device.window().base, device.window().base + 256));
    assert_eq!(device.allocations(), [(a, 1), (b, 1000)]);
    assert_eq!(device.mem_info().unwrap(), (WINDOW - 256 - 1024, WINDOW));
}

#[test]
fn bytes_go_there_and_back() {
    let device = device();
    let sent: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
    let a = upload(&device, &sent);
    let b = device.alloc(sent.len() as u64).unwrap();
    device.copy(Copy::DeviceToDevice { dst: b, src: a }, sent.len() as u64, DEFAULT).unwrap();
    device.memset(DevicePtr(b.0 + 10), 0xEE, 20, DEFAULT).unwrap();
    let back = download(&device, b, sent.len());
    assert_eq!((&back[..10], &back[30..]), (&sent[..10], &sent[30..]));
    assert_eq!(back[10..30], [0xEE; 20]);
}

#[test]
fn ranges_outside_a_live_allocation_are_refused() {
    let device = device();
    let p = device.alloc(100).unwrap();
    let host = [0u8; 200];
    let to = |address: u64, bytes| device.copy(Copy::HostToDevice { dst: DevicePtr(address), src: host.as_ptr() }, bytes, DEFAULT);
    to(p.0, 100).unwrap();
    for (address, bytes) in [(p.0, 101), (p.0 + 100, 1), (p.0 - 1, 1), (0, 1), (u64::MAX, 2), (p.0 + 1, u64::MAX)] {
        assert!(matches!(to(address, bytes), Err(DeviceError::Invalid { .. })), "{address:#x} {bytes}");
        assert!(device.memset(DevicePtr(address), 0, bytes, DEFAULT).is_err());
    }
    device.free(p).unwrap();
    assert!(to(p.0, 1).is_err());
    assert!(device.free(p).is_err());
}

#[test]
fn too_much_is_a_typed_error_with_the_numbers() {
    let device = device();
    device.alloc(WINDOW - 4096).unwrap();
    assert_eq!(device.alloc(4097), Err(DeviceError::OutOfMemory { requested: 4097, free: 4096, total: WINDOW }));
    assert!(matches!(device.alloc(u64::MAX), Err(DeviceError::OutOfMemory { .. })));
    assert!(matches!(device.alloc(0), Err(DeviceError::Invalid { .. })));
    device.alloc(4096).unwrap();
}

#[test]
fn freed_memory_goes_back_to_the_system_and_comes_back_as_zeros() {
    let device = device();
    let resident = || {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let window = device.window();
        let mut inside = false;
        let mut kib = 0;
        for line in maps.lines() {
            if let Some(start) = line.split_once('-').and_then(|(start, _)| u64::from_str_radix(start, 16).ok()) {
                inside = (window.base..window.base + window.bytes).contains(&start);
            } else if let Some(size) = line.strip_prefix("Rss:").filter(|_| inside) {
                kib += size.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
            }
        }
        kib * 1024
    };
    let small = upload(&device, &[7; 100]);
    let large = upload(&device, &vec![9; 4 * MIB as usize]);
    assert!(resident() >= 4 * MIB, "{}", resident());
    device.free(large).unwrap();
    assert!(resident() <= 4096, "{}", resident());
    assert_eq!(download(&device, small, 100), [7; 100], "a neighbour on the same page keeps its bytes");
    let again = device.alloc(4 * MIB).unwrap();
    assert_eq!(again, large);
    assert!(download(&device, again, 4 * MIB as usize)[4096..].iter().all(|byte| *byte == 0));
}

#[test]
fn memory_that_running_work_may_touch_stays_until_the_streams_are_idle() {
    let device = device();
    let stream = device.stream_create(STREAM_NON_BLOCKING, 0).unwrap();
    let p = upload(&device, &vec![1; MIB as usize]);
    let stuck = Stuck::on(&device, stream);
    device.memset(p, 2, MIB, stream).unwrap();
    device.free(p).unwrap();
    stuck.release();
    synchronize(&device, stream);
    assert_eq!(device.alloc(MIB).unwrap(), p);
}

#[test]
fn host_ranges_are_registered_once() {
    let device = device();
    let host = [0u8; 64];
    let at = host.as_ptr().cast_mut().cast::<c_void>();
    device.host_register(at, 64, 0).unwrap();
    assert!(device.host_register(at.wrapping_byte_add(32), 64, 0).is_err());
    device.host_unregister(at).unwrap();
    assert!(device.host_unregister(at).is_err());
    assert!(device.host_register(core::ptr::null_mut(), 64, 0).is_err());
}

// ---- the window

/// Body of a child process; prints the window and three addresses.
#[test]
#[ignore = "a child of other tests"]
fn child_prints_its_addresses() {
    match HostDevice::create(HostOptions { session_index: 0, ..HostOptions::default() }) {
        Ok(device) => {
            let (a, b) = (device.alloc(1000).unwrap(), device.alloc(5000).unwrap());
            device.free(a).unwrap();
            let c = device.alloc(200).unwrap();
            println!("\nADDRESSES {:#x} {:#x} {:#x} {:#x}", device.window().base, a.0, b.0, c.0);
        }
        Err(error) => println!("\nERROR {error}"),
    }
}

fn child(address_space: Option<u64>) -> String {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "backend::host::tests::child_prints_its_addresses", "--ignored", "--nocapture", "--test-threads=1"]);
    if let Some(limit) = address_space {
        let limits = rustix::process::Rlimit { current: Some(limit), maximum: Some(limit) };
        let limit = move || Ok(rustix::process::setrlimit(rustix::process::Resource::As, limits)?);
        // SAFETY: one system call, which is async-signal-safe.
        unsafe { command.pre_exec(limit) };
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with("ADDRESSES") || line.starts_with("ERROR"));
    line.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr))).to_owned()
}

#[test]
fn fresh_processes_get_the_same_addresses() {
    let first = child(None);
    assert!(first.starts_with("ADDRESSES 0x400000000000 0x400000000000 0x400000000400 "), "{first}");
    assert_eq!(first, child(None));
}

#[test]
fn a_limit_on_address_space_is_a_typed_error_that_names_it() {
    let line = child(Some(4 << 30));
    assert!(line.starts_with("ERROR device window of 68719476736 bytes at 0x400000000000 cannot be reserved"), "{line}");
    assert!(line.contains("ulimit -v"), "{line}");
}

#[test]
fn a_window_that_is_taken_is_a_typed_error() {
    let first = device();
    let session_index = ((first.window().base - WINDOW_BASE) / WINDOW) as u32;
    let options = HostOptions { session_index, window_bytes: WINDOW, ordinal: 0 };
    assert!(matches!(HostDevice::create(options), Err(DeviceError::Window { base, .. }) if base == first.window().base));
    drop(first);
    HostDevice::create(options).unwrap();
}

#[test]
fn windows_that_cannot_be_are_typed_errors() {
    for (session_index, window_bytes) in [(0, 0), (0, 100), (u32::MAX, 64 << 30), (1, u64::MAX)] {
        let created = HostDevice::create(HostOptions { session_index, window_bytes, ordinal: 0 });
        assert!(matches!(created, Err(DeviceError::Window { .. })), "{session_index} {window_bytes}");
    }
}

// ---- streams and events

#[test]
fn a_stream_runs_in_order_and_others_do_not_wait_for_it() {
    let device = device();
    let (a, b) = (device.stream_create(1, 0).unwrap(), device.stream_create(1, 0).unwrap());
    let p = device.alloc(4).unwrap();
    let stuck = Stuck::on(&device, a);
    device.memset(p, 5, 4, a).unwrap();
    device.memset(p, 6, 4, b).unwrap();
    synchronize(&device, b);
    assert!(!device.stream_query(a).unwrap());
    stuck.release();
    synchronize(&device, a);
    assert_eq!(download(&device, p, 4), [5; 4]);
}

#[test]
fn the_default_stream_orders_blocking_streams_but_not_others() {
    let device = device();
    let (blocking, free) = (device.stream_create(0, 0).unwrap(), device.stream_create(1, 0).unwrap());
    let p = device.alloc(4).unwrap();
    let stuck = Stuck::on(&device, blocking);
    device.memset(p, 1, 4, DEFAULT).unwrap();
    device.memset(p, 2, 4, blocking).unwrap();
    device.memset(p, 3, 1, free).unwrap();
    synchronize(&device, free);
    assert!(!device.stream_query(DEFAULT).unwrap());
    stuck.release();
    synchronize(&device, blocking);
    assert!(device.stream_query(DEFAULT).unwrap());
    assert_eq!(download(&device, p, 4), [2; 4]);
}

#[test]
fn an_event_is_reached_when_what_was_before_it_has_run() {
    let device = device();
    let stream = device.stream_create(1, 0).unwrap();
    let event = device.event_create(0).unwrap();
    assert!(device.event_query(event).unwrap(), "nothing recorded");
    let stuck = Stuck::on(&device, stream);
    device.event_record(event, stream).unwrap();
    assert!(!device.event_query(event).unwrap());
    stuck.release();
    wait(&device, "the event", || device.event_query(event).unwrap());
}

#[test]
fn a_stream_waits_for_an_event_as_it_was_recorded_then() {
    let device = device();
    let (a, b) = (device.stream_create(1, 0).unwrap(), device.stream_create(1, 0).unwrap());
    let event = device.event_create(0).unwrap();
    let (first, p) = (Stuck::on(&device, a), device.alloc(1).unwrap());
    device.event_record(event, a).unwrap();
    device.stream_wait_event(b, event, 0).unwrap();
    device.memset(p, 9, 1, b).unwrap();
    // Recorded again behind other stuck work: what waits already does not wait for that.
    let second = Stuck::queued(&device, a);
    device.event_record(event, a).unwrap();
    assert!(!device.stream_query(b).unwrap());
    first.release();
    synchronize(&device, b);
    assert!(!device.event_query(event).unwrap());
    second.release();
    wait(&device, "the second record", || device.event_query(event).unwrap());
    assert_eq!(download(&device, p, 1), [9]);
}

#[test]
fn time_between_events_needs_timing_and_both_reached() {
    let device = device();
    let (start, end, untimed) = (device.event_create(0).unwrap(), device.event_create(0).unwrap(), device.event_create(2).unwrap());
    assert!(device.event_elapsed_ms(start, end).is_err());
    for event in [start, end, untimed] {
        device.event_record(event, DEFAULT).unwrap();
    }
    synchronize(&device, DEFAULT);
    let elapsed = device.event_elapsed_ms(start, end).unwrap();
    assert!(elapsed >= 0.0);
    assert_eq!(device.event_elapsed_ms(end, start).unwrap(), -elapsed);
    assert!(device.event_elapsed_ms(start, untimed).is_err());
}

#[test]
fn a_destroyed_stream_still_runs_what_is_queued() {
    let device = device();
    let stream = device.stream_create(1, 0).unwrap();
    let p = device.alloc(1).unwrap();
    let (stuck, event) = (Stuck::on(&device, stream), device.event_create(0).unwrap());
    device.memset(p, 4, 1, stream).unwrap();
    device.event_record(event, stream).unwrap();
    let native = device.stream_native(stream);
    device.stream_destroy(stream).unwrap();
    assert!(device.stream_query(stream).is_err());
    assert!(device.stream_native(stream).is_null());
    assert_eq!(native_query(native), HOST_STREAM_BUSY);
    stuck.release();
    wait(&device, "the queue of a destroyed stream", || device.event_query(event).unwrap());
    assert_eq!(download(&device, p, 1), [4]);
    unsafe extern "C" fn never(_: *mut c_void) {
        panic!("work of a destroyed stream ran");
    }
    assert_eq!(native_enqueue(native, never, core::ptr::null_mut()), HOST_STREAM_LOST);
}

#[test]
fn handles_of_nothing_are_refused() {
    let device = device();
    let bogus = RealHandle(0xDEAD);
    assert!(device.stream_query(bogus).is_err());
    assert!(device.stream_destroy(DEFAULT).is_err());
    assert!(device.event_query(bogus).is_err() && device.event_destroy(bogus).is_err());
    assert!(device.event_record(bogus, DEFAULT).is_err());
    assert!(device.stream_wait_event(DEFAULT, bogus, 0).is_err());
    assert!(device.module_unload(bogus).is_err() && device.module_function(bogus, "x").is_err());
    assert!(device.stream_native(bogus).is_null() && !device.stream_native(DEFAULT).is_null());
}

#[test]
fn many_threads_use_one_stream() {
    let device = device();
    let p = device.alloc(8 * 64).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..64 {
                    device.memset(DevicePtr(p.0 + thread * 64 + round), thread as u8 + 1, 1, DEFAULT).unwrap();
                }
            });
        }
    });
    let bytes = download(&device, p, 8 * 64);
    assert!(bytes.chunks(64).enumerate().all(|(thread, bytes)| bytes.iter().all(|b| *b == thread as u8 + 1)));
}

// ---- activity

#[test]
fn a_poke_wakes_a_waiter_even_when_it_came_first() {
    let device = device();
    let seen = device.activity();
    device.poke();
    let start = Instant::now();
    device.activity_wait(seen, WATCHDOG);
    assert!(start.elapsed() < WATCHDOG);
}

#[test]
fn a_waiter_sleeps_until_work_completes() {
    let device = device();
    let stuck = Stuck::on(&device, DEFAULT);
    let seen = device.activity();
    let woken = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            device.activity_wait(seen, WATCHDOG);
            woken.store(true, Ordering::SeqCst);
        });
        stuck.release();
    });
    assert!(woken.load(Ordering::SeqCst));
    assert_ne!(device.activity(), seen);
}

// ---- modules

#[test]
fn a_kernel_of_a_rust_module_runs_with_the_parameters_of_the_launch() {
    let device = device();
    let module = device.module_load(&digits_image()).unwrap();
    let scale = device.module_function(module, "scale").unwrap();
    assert_eq!(scale.param_bytes, [8, 8, 4]);
    let x = upload(&device, &[1.0f32, 2.0, 3.0].map(f32::to_le_bytes).concat());
    let mut params = [&x.0.to_le_bytes()[..], &3u64.to_le_bytes(), &2.0f32.to_le_bytes()].concat();
    let stuck = Stuck::on(&device, DEFAULT);
    device.launch(&scale, ONE, DEFAULT, &params).unwrap();
    // The block was copied: this changes nothing.
    params.fill(0xFF);
    stuck.release();
    assert_eq!(floats(&download(&device, x, 12)), [2.0, 4.0, 6.0]);
}

#[test]
fn a_forward_and_backward_pass_through_launches_agrees_with_the_same_on_slices() {
    use digits_kernels::math;
    let device = device();
    let module = device.module_load(&digits_image()).unwrap();
    let run = |name: &str, params: &[&[u8]]| {
        let function = device.module_function(module, name).unwrap();
        device.launch(&function, ONE, DEFAULT, &params.concat()).unwrap();
    };
    let (batch, inputs, outputs) = (7u32, 64u32, 10u32);
    let (nx, nw, ny) = ((batch * inputs) as usize, (inputs * outputs) as usize, (batch * outputs) as usize);
    let buffer = |n: usize| device.alloc(4 * n as u64).unwrap().0.to_le_bytes();
    let (x, w, b, y, grad, loss) = (buffer(nx), buffer(nw), buffer(10), buffer(ny), buffer(ny), buffer(1));
    let (grad_w, grad_b, grad_x, correct) = (buffer(nw), buffer(10), buffer(nx), buffer(1));
    let labels: Vec<i32> = (0..batch as i32).collect();
    let labels_at = upload(&device, &labels.iter().flat_map(|l| l.to_le_bytes()).collect::<Vec<_>>()).0.to_le_bytes();
    let sizes = [batch.to_le_bytes(), inputs.to_le_bytes(), outputs.to_le_bytes()].concat();
    let scale = 0.125f32;
    for (buffer, n, seed) in [(x, nx, 1u64), (w, nw, 2), (b, 10, 3)] {
        run("uniform", &[&buffer, &(n as u64).to_le_bytes(), &seed.to_le_bytes(), &1.0f32.to_le_bytes()]);
    }
    run("dense_forward", &[&x, &w, &b, &y, &sizes]);
    run("softmax_cross_entropy", &[&y, &labels_at, &grad, &loss, &batch.to_le_bytes(), &outputs.to_le_bytes(), &scale.to_le_bytes()]);
    run("dense_backward_weights", &[&x, &grad, &grad_w, &grad_b, &sizes, &0u32.to_le_bytes()]);
    run("dense_backward_input", &[&grad, &w, &grad_x, &sizes]);
    run("count_correct", &[&y, &labels_at, &correct, &batch.to_le_bytes(), &outputs.to_le_bytes()]);

    let random = |n, seed| {
        let mut values = vec![0.0; n];
        math::uniform(&mut values, seed, 1.0);
        values
    };
    let (hx, hw, hb) = (random(nx, 1), random(nw, 2), random(10, 3));
    let (mut hy, mut hgrad, mut hgrad_w, mut hgrad_b, mut hgrad_x) = (vec![0.0; ny], vec![0.0; ny], vec![0.0; nw], vec![0.0; 10], vec![0.0; nx]);
    math::dense_forward(&hx, &hw, &hb, &mut hy);
    let hloss = math::softmax_cross_entropy(&hy, &labels, &mut hgrad, scale);
    math::dense_backward_weights(&hx, &hgrad, &mut hgrad_w, &mut hgrad_b, false);
    math::dense_backward_input(&hgrad, &hw, &mut hgrad_x, 10);
    let found = |at: [u8; 8], n: usize| floats(&download(&device, DevicePtr(u64::from_le_bytes(at)), 4 * n));
    assert_eq!(found(y, ny), hy);
    assert_eq!(found(loss, 1), [hloss]);
    assert_eq!(found(grad_w, nw), hgrad_w);
    assert_eq!(found(grad_b, 10), hgrad_b);
    assert_eq!(found(grad_x, nx), hgrad_x);
    assert_eq!(found(correct, 1)[0].to_bits(), math::count_correct(&hy, &labels));
}

#[test]
fn kernels_in_c_see_shape_and_parameters_and_a_module_loaded_again_starts_afresh() {
    let device = device();
    let image = c_image(C_KERNELS);
    let out = device.alloc(12).unwrap();
    let shape = LaunchShape { grid: [4, 1, 1], block: [1, 1, 8], shared_bytes: 100 };
    let params = [&[0xAB][..], &out.0.to_le_bytes()].concat();
    // All stay loaded: the linker must not take one for another because of its name.
    for _ in 0..3 {
        let module = device.module_load(&image).unwrap();
        let count = device.module_function(module, "count").unwrap();
        for calls in 1..=2u32 {
            device.launch(&count, shape, DEFAULT, &params).unwrap();
            let found = download(&device, out, 12);
            assert_eq!(found, [calls, 132, 0xAB].map(u32::to_le_bytes).concat());
        }
    }
}

#[test]
fn a_function_goes_with_its_module() {
    let device = device();
    let (kept, unloaded) = (device.module_load(&c_image(C_KERNELS)).unwrap(), device.module_load(&c_image(C_KERNELS)).unwrap());
    let (works, gone) = (device.module_function(kept, "fault").unwrap(), device.module_function(unloaded, "fault").unwrap());
    device.module_unload(unloaded).unwrap();
    assert!(device.launch(&gone, ONE, DEFAULT, &[0; 4]).is_err());
    device.launch(&works, ONE, DEFAULT, &[0; 4]).unwrap();
    synchronize(&device, DEFAULT);
}

#[test]
fn a_module_lives_until_its_last_launch_is_over() {
    let device = device();
    let module = device.module_load(&c_image(C_KERNELS)).unwrap();
    let count = device.module_function(module, "count").unwrap();
    let out = device.alloc(12).unwrap();
    let stuck = Stuck::on(&device, DEFAULT);
    device.launch(&count, ONE, DEFAULT, &[&[1][..], &out.0.to_le_bytes()].concat()).unwrap();
    device.module_unload(module).unwrap();
    stuck.release();
    assert_eq!(download(&device, out, 4), 1u32.to_le_bytes());
}

#[test]
fn what_is_no_module_or_no_launch_is_a_typed_error() {
    let device = device();
    let module_error = |image: &[u8]| match device.module_load(image) {
        Err(DeviceError::Module { reason }) => reason,
        other => panic!("{other:?}"),
    };
    assert!(module_error(b"").contains("no ELF header"));
    assert!(module_error(b"\x7fELF and then nothing").contains("dlopen"));
    assert!(module_error(&c_image("int x;")).contains("rejoin_kernel_table"));
    let wrong = C_KERNELS.replace("REJOIN_KERNEL_TABLE(kernels);", "const uint64_t rejoin_kernel_table[4] = {1};\nconst void *keep = kernels;");
    assert!(module_error(&c_image(&wrong)).contains("ABI"));

    let module = device.module_load(&c_image(C_KERNELS)).unwrap();
    match device.module_function(module, "nothing") {
        Err(DeviceError::Module { reason }) => assert!(reason.contains("count, fault"), "{reason}"),
        other => panic!("{other:?}"),
    }
    let fault = device.module_function(module, "fault").unwrap();
    assert!(matches!(device.launch(&fault, ONE, DEFAULT, &[0; 3]), Err(DeviceError::Invalid { .. })));
    let flat = LaunchShape { grid: [1, 0, 1], ..ONE };
    assert!(matches!(device.launch(&fault, flat, DEFAULT, &[0; 4]), Err(DeviceError::Invalid { .. })));
}

// ---- faults

#[test]
fn a_kernel_that_reports_a_fault_loses_the_device() {
    let device = device();
    let module = device.module_load(&c_image(C_KERNELS)).unwrap();
    let fault = device.module_function(module, "fault").unwrap();
    device.launch(&fault, ONE, DEFAULT, &77i32.to_le_bytes()).unwrap();
    wait(&device, "the fault", || device.stream_query(DEFAULT).is_err());
    let error = device.alloc(1).unwrap_err();
    assert!(error.is_lost());
    assert_eq!(error.to_string(), "device 3 is lost: kernel fault returned 77");
    device.inject(Fault::Lost { reason: "later".into() });
    assert_eq!(device.make_current().unwrap_err(), error, "the first error stands");
}

#[test]
fn a_lost_device_drops_queued_work_and_refuses_calls_until_reset() {
    let device = device();
    let stream = device.stream_create(1, 0).unwrap();
    let native = device.stream_native(stream);
    let p = device.alloc(8).unwrap();
    let stuck = Stuck::on(&device, stream);
    unsafe extern "C" fn never(_: *mut c_void) {
        panic!("work of a lost stream ran");
    }
    assert_eq!(native_enqueue(native, never, core::ptr::null_mut()), HOST_STREAM_OK);
    device.inject(Fault::Lost { reason: "told to".into() });
    assert_eq!(native_query(native), HOST_STREAM_LOST);
    assert_eq!(native_enqueue(native, never, core::ptr::null_mut()), HOST_STREAM_LOST);
    assert!(device.stream_query(stream).unwrap_err().is_lost());
    assert!(device.memset(p, 0, 1, stream).unwrap_err().is_lost());
    assert!(device.stream_create(0, 0).unwrap_err().is_lost());
    assert!(device.module_load(&digits_image()).unwrap_err().is_lost());
    stuck.release();
    device.reset().unwrap();
    device.make_current().unwrap();
}

#[test]
fn native_work_is_either_run_or_dropped_once() {
    static RUN: AtomicU32 = AtomicU32::new(0);
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn run(_: *mut c_void) {
        RUN.fetch_add(1, Ordering::SeqCst);
    }
    unsafe extern "C" fn drop_it(_: *mut c_void) {
        DROPPED.fetch_add(1, Ordering::SeqCst);
    }
    let device = device();
    let native = device.stream_native(DEFAULT).cast::<HostStream>();
    // SAFETY: a stream of a device, never freed.
    let enqueue = unsafe { (*native).enqueue_or_drop }.unwrap();
    // SAFETY: as above; the work ignores its argument.
    let enqueue = || unsafe { enqueue(native, run, drop_it, core::ptr::null_mut()) };
    let counts = || (RUN.load(Ordering::SeqCst), DROPPED.load(Ordering::SeqCst));
    assert_eq!(enqueue(), HOST_STREAM_OK);
    synchronize(&device, DEFAULT);
    assert_eq!(counts(), (1, 0));
    let stuck = Stuck::on(&device, DEFAULT);
    assert_eq!((enqueue(), enqueue()), (HOST_STREAM_OK, HOST_STREAM_OK));
    device.inject(Fault::Lost { reason: "told to".into() });
    assert_eq!(counts(), (1, 2));
    assert_eq!(enqueue(), HOST_STREAM_LOST, "refused: the caller keeps it");
    stuck.release();
    device.reset().unwrap();
    drop(device);
    assert_eq!(counts(), (1, 2));
}

#[test]
fn a_hung_device_takes_work_and_never_does_it() {
    let device = device();
    let p = upload(&device, &[1; 4]);
    device.inject(Fault::Hang);
    device.memset(p, 2, 4, DEFAULT).unwrap();
    let event = device.event_create(0).unwrap();
    device.event_record(event, DEFAULT).unwrap();
    assert!(!device.stream_query(DEFAULT).unwrap() && !device.event_query(event).unwrap());
    assert_eq!(native_query(device.stream_native(DEFAULT)), HOST_STREAM_BUSY);
    device.reset().unwrap();
    let again = upload(&device, &[3; 4]);
    assert_eq!((again, download(&device, again, 4)), (p, vec![3; 4]));
}

#[test]
fn reset_gives_the_same_addresses_again_and_drops_everything() {
    let device = device();
    let take = || [100, 70_000, 3].map(|bytes| device.alloc(bytes).unwrap());
    let first = take();
    let (stream, event) = (device.stream_create(0, 0).unwrap(), device.event_create(0).unwrap());
    let module = device.module_load(&digits_image()).unwrap();
    let function = device.module_function(module, "fill").unwrap();
    device.inject(Fault::Lost { reason: "told to".into() });
    device.reset().unwrap();
    assert!(device.allocations().is_empty());
    assert!(device.stream_query(stream).is_err() && device.event_query(event).is_err());
    assert!(device.launch(&function, ONE, DEFAULT, &[0; 20]).is_err());
    assert_eq!(take(), first);
    assert!(download(&device, first[1], 70_000).iter().all(|byte| *byte == 0));
}

#[test]
fn recorded_addresses_can_be_taken_again_in_any_order() {
    let device = device();
    let [a, b, c] = [100, 70_000, 3].map(|bytes| device.alloc(bytes).unwrap());
    device.free(b).unwrap();
    let next = device.alloc(1000).unwrap();
    device.free(next).unwrap();
    device.reset().unwrap();
    device.alloc_at(c, 3).unwrap();
    device.alloc_at(a, 100).unwrap();
    assert_eq!(device.alloc(1000).unwrap(), next, "the next address follows from what is live");
    for (address, bytes) in [(c, 1), (DevicePtr(a.0 + 1), 1), (DevicePtr(0), 1), (DevicePtr(device.window().base + WINDOW), 1), (a, 0)] {
        assert!(matches!(device.alloc_at(address, bytes), Err(DeviceError::Invalid { .. })), "{address:?}");
    }
}

#[test]
fn reset_and_drop_do_not_wait_for_a_stuck_worker() {
    let device = device();
    let stream = device.stream_create(1, 0).unwrap();
    let stuck = Stuck::on(&device, stream);
    device.inject(Fault::Lost { reason: "told to".into() });
    // The stuck work gives up after the watchdog; reset must be back long before.
    device.reset().unwrap();
    let p = upload(&device, &[5; 10]);
    assert_eq!(download(&device, p, 10), [5; 10], "new streams work beside the stuck one");
    let second = Stuck::on(&device, DEFAULT);
    drop(device);
    assert!(stuck.release.try_send(()).is_ok() && second.release.try_send(()).is_ok(), "both were still stuck");
}

#[test]
fn a_stream_that_waits_for_a_lost_one_is_dropped_with_it() {
    let device = device();
    let (a, b) = (device.stream_create(1, 0).unwrap(), device.stream_create(1, 0).unwrap());
    let event = device.event_create(0).unwrap();
    let stuck = Stuck::on(&device, a);
    device.event_record(event, a).unwrap();
    device.stream_wait_event(b, event, 0).unwrap();
    device.reset().unwrap();
    assert!(device.stream_query(DEFAULT).unwrap());
    stuck.release();
}
