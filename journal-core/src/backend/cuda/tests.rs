//! The backend's own logic on a driver without a GPU. What only a GPU can show is in `examples/cuda/selftest`.

use super::fake::{FakeDriver, GRANULE};
use super::*;
use crate::backend::WINDOW_BASE;
use std::collections::BTreeMap;

const DEFAULT: RealHandle = RealHandle(0);
const ONE: LaunchShape = LaunchShape { grid: [1; 3], block: [1; 3], shared_bytes: 0 };
const WINDOW: u64 = 64 << 30;
const PTX: &[u8] = b".version 8.0\n.target sm_90\n.entry add() {}\n";
const ILLEGAL_ADDRESS: i32 = 700;

fn device_of(driver: &Arc<FakeDriver>) -> CudaDevice {
    CudaDevice::create_with(Arc::clone(driver) as Arc<dyn Driver>, CudaOptions::default()).unwrap()
}

fn pair() -> (Arc<FakeDriver>, CudaDevice) {
    let driver = FakeDriver::shared();
    let device = device_of(&driver);
    (driver, device)
}

fn refused(driver: FakeDriver, options: CudaOptions) -> DeviceError {
    let driver = Arc::new(driver);
    let error = CudaDevice::create_with(Arc::clone(&driver) as Arc<dyn Driver>, options).unwrap_err();
    driver.assert_all_given_back();
    error
}

fn upload(device: &CudaDevice, dst: DevicePtr, bytes: &[u8], stream: RealHandle) {
    device.copy(Copy::HostToDevice { dst, src: bytes.as_ptr() }, bytes.len() as u64, stream).unwrap();
}

fn download(device: &CudaDevice, src: DevicePtr, host: &mut [u8], stream: RealHandle) {
    device.copy(Copy::DeviceToHost { dst: host.as_mut_ptr(), src }, host.len() as u64, stream).unwrap();
}

fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8).wrapping_add(seed)).collect()
}

// ---- opening

#[test]
fn the_window_is_at_the_recorded_base_and_fits_the_card() {
    let (driver, device) = pair();
    assert_eq!(device.window(), Window { base: WINDOW_BASE, bytes: WINDOW });
    assert_eq!((device.kind(), device.ordinal()), (BackendKind::Cuda, 0));
    let second = CudaDevice::create_with(
        Arc::clone(&driver) as Arc<dyn Driver>,
        CudaOptions { session_index: 1, window_bytes: Some(1 << 30), ordinal: 1 },
    )
    .unwrap();
    assert_eq!(second.window(), Window { base: WINDOW_BASE + (1 << 30), bytes: 1 << 30 });
    drop((device, second));
    driver.assert_all_given_back();
}

#[test]
fn a_window_elsewhere_is_refused_with_both_addresses() {
    let driver = FakeDriver { reserve_at: Some(0x7f00_0000_0000), ..FakeDriver::new() };
    match refused(driver, CudaOptions::default()) {
        DeviceError::Window { base: WINDOW_BASE, bytes: WINDOW, reason } => {
            assert!(reason.contains("0x7f0000000000") && reason.contains("0x400000000000"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn windows_of_a_wrong_size_are_refused() {
    for window_bytes in [0, 4096, GRANULE + 1] {
        let options = CudaOptions { window_bytes: Some(window_bytes), ..CudaOptions::default() };
        let error = refused(FakeDriver::new(), options);
        assert!(matches!(error, DeviceError::Window { bytes, .. } if bytes == window_bytes), "{error}");
        assert!(error.to_string().contains("2097152"), "{error}");
    }
    let options = CudaOptions { session_index: u32::MAX, window_bytes: None, ordinal: 0 };
    assert!(refused(FakeDriver::new(), options).to_string().contains("use a smaller window"));
}

#[test]
fn a_device_that_is_not_there_is_named_with_the_number_there_are() {
    let error = refused(FakeDriver::new(), CudaOptions { ordinal: 2, ..CudaOptions::default() });
    assert!(matches!(error, DeviceError::Invalid { .. }));
    assert!(error.to_string().contains("device 2 asked for, but there are 2"), "{error}");
    let error = refused(FakeDriver { virtual_memory: false, ..FakeDriver::new() }, CudaOptions::default());
    assert!(error.to_string().contains("virtual memory"), "{error}");
}

#[test]
fn what_fails_while_opening_gives_everything_back() {
    for call in ["context_retain", "context_set_current", "granularity", "reserve", "host_alloc"] {
        let driver = FakeDriver::new();
        driver.fail(call, 1, 2);
        let error = refused(driver, CudaOptions::default());
        assert!(error.to_string().contains('2'), "{call}: {error}");
    }
}

#[test]
fn the_probe_names_every_device() {
    let system = probe::probe_with(&FakeDriver::new()).unwrap();
    assert_eq!(system.driver_cuda, "13.0");
    let expected = |ordinal: u32| CudaDeviceInfo {
        ordinal,
        name: format!("Fake {ordinal}"),
        total_bytes: 64 << 20,
        compute: (9, 0),
        virtual_memory: true,
    };
    assert_eq!(system.devices, [expected(0), expected(1)]);
}

#[test]
fn without_a_driver_the_error_names_the_library() {
    // On a machine with one this opens it, which must not fail in another way.
    match CudaDevice::create(CudaOptions::default()) {
        Ok(device) => assert_eq!(device.window().base, WINDOW_BASE),
        Err(DeviceError::Library { library, reason }) => {
            assert_eq!(library, "libcuda.so.1");
            assert!(!reason.is_empty());
        }
        Err(other) => panic!("{other:?}"),
    }
    assert_eq!(probe().is_ok(), CudaDevice::create(CudaOptions { session_index: 1, ..CudaOptions::default() }).is_ok());
}

// ---- memory

#[test]
fn small_allocations_share_a_granule() {
    let (driver, device) = pair();
    let [a, b, c] = [100, 70_000, 1].map(|bytes| device.alloc(bytes).unwrap());
    assert_eq!([a.0, b.0, c.0], [0, 256, 256 + 70_144].map(|offset| WINDOW_BASE + offset));
    assert_eq!(driver.mappings(), [(WINDOW_BASE, GRANULE)]);
    assert_eq!(device.allocations(), [(a, 100), (b, 70_000), (c, 1)]);
    for address in [a, b] {
        device.free(address).unwrap();
        assert_eq!(driver.held().0, GRANULE, "the last one still needs it");
    }
    device.free(c).unwrap();
    assert_eq!((driver.held().0, driver.mappings()), (0, vec![]));
    assert_eq!(device.alloc(5).unwrap(), a, "and the addresses begin again");
}

#[test]
fn a_large_allocation_gives_its_inner_granules_back_while_neighbours_live() {
    let (driver, device) = pair();
    let before = device.alloc(1000).unwrap();
    let large = device.alloc(10 * GRANULE).unwrap();
    let after = device.alloc(1000).unwrap();
    // Its last granule is partly used: first and last are shared, nine in between are its own.
    assert_eq!(driver.mappings(), [(WINDOW_BASE, GRANULE), (WINDOW_BASE + GRANULE, 9 * GRANULE), (WINDOW_BASE + 10 * GRANULE, GRANULE)]);
    let data = pattern(10 * GRANULE as usize, 1);
    upload(&device, large, &data, DEFAULT);
    let mut back = vec![0; data.len()];
    download(&device, large, &mut back, DEFAULT);
    assert!(back == data);
    device.free(large).unwrap();
    assert_eq!(driver.mappings(), [(WINDOW_BASE, GRANULE), (WINDOW_BASE + 10 * GRANULE, GRANULE)]);
    device.free(before).unwrap();
    device.free(after).unwrap();
    assert_eq!(driver.held().0, 0);
}

#[test]
fn memory_of_a_busy_device_is_given_back_once_it_is_idle() {
    let (driver, device) = pair();
    let stream = device.stream_create(1, 0).unwrap();
    let [a, b] = [3 * GRANULE, 100].map(|bytes| device.alloc(bytes).unwrap());
    driver.stick(stream.0);
    device.memset(b, 1, 100, stream).unwrap();
    device.free(a).unwrap();
    assert_eq!(driver.held().0, 4 * GRANULE, "kept while work runs");
    assert_eq!(device.alloc(GRANULE).unwrap(), a, "its addresses are free at once, over the same memory");
    assert_eq!(driver.held().0, 4 * GRANULE);
    device.free(a).unwrap();
    driver.release(stream.0);
    let c = device.alloc(200).unwrap();
    assert_eq!((c, driver.held().0), (a, 2 * GRANULE));
}

#[test]
fn work_of_a_destroyed_stream_keeps_memory_too() {
    let (driver, device) = pair();
    let stream = device.stream_create(0, 0).unwrap();
    let a = device.alloc(100).unwrap();
    driver.stick(stream.0);
    device.memset(a, 1, 100, stream).unwrap();
    device.stream_destroy(stream).unwrap();
    device.free(a).unwrap();
    assert_eq!(driver.held().0, GRANULE);
    driver.release(stream.0);
    device.alloc(1).and_then(|address| device.free(address)).unwrap();
    assert_eq!(driver.held().0, 0);
    drop(device);
    driver.assert_all_given_back();
}

#[test]
fn out_of_memory_says_how_much_there_is_and_changes_nothing() {
    let (driver, device) = pair();
    let a = device.alloc(20 * GRANULE).unwrap();
    let before = (driver.mappings(), driver.held(), device.allocations());
    // The card has 32 granules: the inner piece of this one does not fit.
    match device.alloc(15 * GRANULE + 1) {
        Err(DeviceError::OutOfMemory { requested, free, total }) => {
            assert_eq!((requested, free, total), (15 * GRANULE + 1, 12 * GRANULE, 32 * GRANULE));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((driver.mappings(), driver.held(), device.allocations()), before);
    device.alloc(12 * GRANULE).unwrap();
    device.free(a).unwrap();
    device.alloc(20 * GRANULE).unwrap();
    // More than the window.
    match device.alloc(WINDOW + 1) {
        Err(DeviceError::OutOfMemory { free, total, .. }) => assert_eq!((free, total), (WINDOW - 32 * GRANULE, WINDOW)),
        other => panic!("{other:?}"),
    }
    assert!(matches!(device.alloc(u64::MAX), Err(DeviceError::OutOfMemory { .. })));
    assert!(matches!(device.alloc(0), Err(DeviceError::Invalid { .. })));
}

#[test]
fn a_failure_anywhere_inside_an_allocation_is_rolled_back() {
    for call in ["memory_create", "memory_map", "memory_allow"] {
        for nth in 1..=3 {
            let (driver, device) = pair();
            let neighbour = device.alloc(1).unwrap();
            device.alloc_at(DevicePtr(WINDOW_BASE + 5 * GRANULE + 256), 1).unwrap();
            let before = (driver.mappings(), driver.held(), device.allocations());
            driver.fail(call, nth, 999);
            // Three new pieces: the granules at its ends, and those between.
            let place = DevicePtr(WINDOW_BASE + 8 * GRANULE + 256);
            match device.alloc_at(place, 4 * GRANULE) {
                Err(DeviceError::Call { code: 999, .. }) => {}
                other => panic!("{call} {nth}: {other:?}"),
            }
            assert_eq!((driver.mappings(), driver.held(), device.allocations()), before, "{call} {nth}");
            device.alloc_at(place, 4 * GRANULE).unwrap();
            device.free(neighbour).unwrap();
            drop(device);
            driver.assert_all_given_back();
        }
    }
}

#[test]
fn random_allocations_never_lose_a_granule() {
    // A fixed linear congruence: the same sequence in every run.
    let mut random = 12345u64;
    let mut next = move |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let (driver, device) = pair();
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let mut refused = 0;
    for _ in 0..2000 {
        if next(5) < 3 {
            let bytes = if next(4) == 0 { 1 + next(6 * GRANULE) } else { 1 + next(40_000) };
            if next(7) == 0 {
                let call = ["memory_create", "memory_map", "memory_allow"][next(3) as usize];
                driver.fail(call, 1 + next(3) as u32, 2);
            }
            match device.alloc(bytes) {
                Ok(address) => assert!(live.insert(address.0, bytes).is_none()),
                Err(_) => refused += 1,
            }
        } else if !live.is_empty() {
            let address = *live.keys().nth(next(live.len() as u64) as usize).unwrap();
            live.remove(&address);
            device.free(DevicePtr(address)).unwrap();
        }
        let found: Vec<_> = device.allocations().into_iter().map(|(address, bytes)| (address.0, bytes)).collect();
        assert_eq!(found, live.iter().map(|(a, b)| (*a, *b)).collect::<Vec<_>>());
        // Every granule that an allocation touches is mapped once, and none that nobody could need.
        let mappings = driver.mappings();
        for (address, bytes) in &live {
            let mut at = address / GRANULE * GRANULE;
            while at < address + bytes {
                assert_eq!(mappings.iter().filter(|(start, length)| (*start..start + length).contains(&at)).count(), 1);
                at += GRANULE;
            }
        }
        for (start, length) in &mappings {
            assert!(live.iter().any(|(address, bytes)| *address < start + length && address + bytes > *start), "a mapping without a user");
        }
        assert_eq!(driver.held().0, mappings.iter().map(|(_, bytes)| bytes).sum::<u64>());
    }
    assert!(refused > 20 && live.len() > 10, "{refused} refused, {} live", live.len());
    drop(device);
    driver.assert_all_given_back();
}

#[test]
fn recorded_addresses_come_back_in_any_order_and_others_are_refused() {
    let (driver, device) = pair();
    let [a, b, c] = [100, 3 * GRANULE, 7].map(|bytes| device.alloc(bytes).unwrap());
    device.free(b).unwrap();
    let next = device.alloc(1000).unwrap();
    drop(device);
    driver.assert_all_given_back();

    let device = device_of(&driver);
    device.alloc_at(c, 7).unwrap();
    device.alloc_at(a, 100).unwrap();
    assert_eq!(device.alloc(1000).unwrap(), next, "the next address follows from what is live");
    for (address, bytes) in [(c, 1), (DevicePtr(a.0 + 1), 1), (DevicePtr(0), 1), (DevicePtr(WINDOW_BASE + WINDOW), 1), (a, 0), (b, WINDOW)] {
        assert!(matches!(device.alloc_at(address, bytes), Err(DeviceError::Invalid { .. })), "{address:?} {bytes}");
    }
    for address in [DevicePtr(a.0 + 1), DevicePtr(0), DevicePtr(u64::MAX)] {
        assert!(matches!(device.free(address), Err(DeviceError::Invalid { .. })));
    }
}

#[test]
fn memory_info_is_what_card_and_window_both_have() {
    let driver = FakeDriver::shared();
    let options = CudaOptions { window_bytes: Some(8 * GRANULE), ..CudaOptions::default() };
    let device = CudaDevice::create_with(Arc::clone(&driver) as Arc<dyn Driver>, options).unwrap();
    assert_eq!(device.mem_info().unwrap(), (8 * GRANULE, 32 * GRANULE));
    device.alloc(3 * GRANULE).unwrap();
    assert_eq!(device.mem_info().unwrap(), (5 * GRANULE, 32 * GRANULE));
}

// ---- copies

#[test]
fn bytes_come_back_from_pageable_memory_of_any_size() {
    let (driver, device) = pair();
    let stream = device.stream_create(0, 0).unwrap();
    for (seed, bytes) in [1usize, 255, 4096, 2 << 20, (2 << 20) + 1, (7 << 20) + 13].into_iter().enumerate() {
        let data = pattern(bytes, seed as u8);
        let at = device.alloc(bytes as u64).unwrap();
        upload(&device, at, &data, stream);
        let copy = device.alloc(bytes as u64).unwrap();
        device.copy(Copy::DeviceToDevice { dst: copy, src: at }, bytes as u64, stream).unwrap();
        let mut back = vec![0; bytes];
        download(&device, copy, &mut back, stream);
        assert!(back == data, "{bytes} bytes");
        device.free(at).unwrap();
        device.free(copy).unwrap();
    }
    assert!(driver.calls("host_call") > 0);
}

#[test]
fn copies_of_pageable_memory_behind_a_stuck_stream_return_and_happen_later() {
    let (driver, device) = pair();
    let stream = device.stream_create(1, 0).unwrap();
    let at = device.alloc(5 << 20).unwrap();
    driver.stick(stream.0);
    let small = pattern(1000, 3);
    let mut taken = small.clone();
    upload(&device, at, &taken, stream);
    taken.fill(0);
    let mut early = vec![9; 1000];
    download(&device, at, &mut early, stream);
    let large = pattern(5 << 20, 4);
    upload(&device, at, &large, stream);
    let mut late = vec![9; 5 << 20];
    download(&device, at, &mut late, stream);
    assert!(early.iter().chain(&late).all(|byte| *byte == 9), "nothing has run");
    assert!(!device.stream_query(stream).unwrap());
    driver.release(stream.0);
    assert!(device.stream_query(stream).unwrap());
    assert!(early == small && late == large);
}

#[test]
fn more_copies_than_fit_into_pinned_memory_are_all_made() {
    let (driver, device) = pair();
    let stream = device.stream_create(1, 0).unwrap();
    let at = device.alloc(64 << 10).unwrap();
    driver.stick(stream.0);
    let data: Vec<_> = (0..400).map(|seed| pattern(64 << 10, seed as u8)).collect();
    let mut back = vec![vec![0u8; 64 << 10]; data.len()];
    for (data, back) in data.iter().zip(&mut back) {
        upload(&device, at, data, stream);
        download(&device, at, back, stream);
    }
    driver.release(stream.0);
    assert!(back == data);
    // All pieces are free again: a large copy has one of the largest.
    let before = driver.calls("host_call");
    let whole = device.alloc(2 << 20).unwrap();
    let mut once = vec![1; 2 << 20];
    download(&device, whole, &mut once, stream);
    assert_eq!(driver.calls("host_call") - before, 1);
}

#[test]
fn page_locked_memory_is_copied_without_a_detour() {
    let (driver, device) = pair();
    let at = device.alloc(4096).unwrap();
    let mut host = pattern(4096, 5);
    device.host_register(host.as_mut_ptr().cast(), 4096, 0).unwrap();
    assert!(matches!(device.host_register(host.as_mut_ptr().cast(), 16, 0), Err(DeviceError::Invalid { .. })));
    upload(&device, at, &host, DEFAULT);
    host.fill(0);
    let stream = device.stream_create(0, 0).unwrap();
    driver.stick(stream.0);
    device.memset(at, 7, 1, stream).unwrap();
    download(&device, at, &mut host, stream);
    assert_eq!(driver.calls("host_call"), 0);
    driver.release(stream.0);
    let mut expected = pattern(4096, 5);
    expected[0] = 7;
    assert_eq!(host, expected);
    device.host_unregister(host.as_mut_ptr().cast()).unwrap();
    assert!(matches!(device.host_unregister(host.as_mut_ptr().cast()), Err(DeviceError::Invalid { .. })));
    assert!(matches!(device.host_register(core::ptr::null_mut(), 16, 0), Err(DeviceError::Invalid { .. })));
    // A range that is page-locked at its start only goes the other way.
    device.host_register(host.as_mut_ptr().cast(), 100, 0).unwrap();
    download(&device, at, &mut host, DEFAULT);
    assert_eq!(driver.calls("host_call"), 1);
}

#[test]
fn ranges_outside_an_allocation_are_refused_and_foreign_ones_passed_on() {
    let (driver, device) = pair();
    let a = device.alloc(100).unwrap();
    let host = [0u8; 300];
    let up = |dst, bytes| device.copy(Copy::HostToDevice { dst, src: host.as_ptr() }, bytes, DEFAULT);
    assert!(up(a, 100).is_ok());
    for (dst, bytes) in [(a, 101), (DevicePtr(a.0 + 99), 2), (DevicePtr(a.0 + 256), 1), (DevicePtr(WINDOW_BASE - 1), 2), (a, u64::MAX)] {
        assert!(matches!(up(dst, bytes), Err(DeviceError::Invalid { .. })), "{dst:?} {bytes}");
        assert!(matches!(device.memset(dst, 0, bytes, DEFAULT), Err(DeviceError::Invalid { .. })));
    }
    assert!(matches!(device.copy(Copy::DeviceToDevice { dst: a, src: DevicePtr(a.0 + 50) }, 60, DEFAULT), Err(DeviceError::Invalid { .. })));
    let null = Copy::DeviceToHost { dst: core::ptr::null_mut(), src: a };
    assert!(matches!(device.copy(null, 1, DEFAULT), Err(DeviceError::Invalid { .. })));
    assert!(device.copy(null, 0, DEFAULT).is_ok());
    // Memory of another library: the fake knows it as a reservation of its own.
    let theirs = DevicePtr(0x2000_0000_0000);
    driver.reserve(theirs.0, GRANULE).unwrap();
    let memory = driver.memory_create(GRANULE, driver::MemoryKind { ordinal: 0, exportable: true, rdma: true }).unwrap();
    driver.memory_map(theirs.0, GRANULE, memory).unwrap();
    driver.memory_allow(theirs.0, GRANULE, 0).unwrap();
    up(theirs, 300).unwrap();
    device.memset(theirs, 3, 300, DEFAULT).unwrap();
    let mut back = [0; 300];
    download(&device, theirs, &mut back, DEFAULT);
    assert_eq!(back, [3; 300]);
}

// ---- streams, events, modules

#[test]
fn events_order_streams() {
    let (driver, device) = pair();
    let [a, b] = [0, 1].map(|flags| device.stream_create(flags, -1).unwrap());
    let event = device.event_create(0).unwrap();
    let at = device.alloc(1).unwrap();
    assert!(device.event_query(event).unwrap(), "nothing was recorded");
    driver.stick(a.0);
    device.memset(at, 1, 1, a).unwrap();
    device.event_record(event, a).unwrap();
    device.stream_wait_event(b, event, 0).unwrap();
    let mut seen = [9];
    download(&device, at, &mut seen, b);
    assert!(!device.event_query(event).unwrap() && !device.stream_query(b).unwrap() && device.stream_query(DEFAULT).unwrap());
    driver.release(a.0);
    assert!(device.event_query(event).unwrap() && device.stream_query(b).unwrap());
    assert_eq!(seen, [1]);
    assert_eq!((device.stream_native(a) as u64, device.stream_native(DEFAULT) as u64), (a.0, 0));
}

#[test]
fn elapsed_time_needs_two_timed_events_that_were_reached() {
    let (driver, device) = pair();
    let stream = device.stream_create(0, 0).unwrap();
    let [start, end] = [0, 0].map(|flags| device.event_create(flags).unwrap());
    let untimed = device.event_create(EVENT_DISABLE_TIMING).unwrap();
    device.event_record(start, stream).unwrap();
    let reason = |end| match device.event_elapsed_ms(start, end) {
        Err(DeviceError::Invalid { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert!(reason(end).contains("not recorded"));
    assert!(reason(untimed).contains("without timing"));
    driver.stick(stream.0);
    device.event_record(end, stream).unwrap();
    assert!(reason(end).contains("not reached"));
    driver.release(stream.0);
    assert_eq!(device.event_elapsed_ms(start, end).unwrap(), 1.5);
    device.event_destroy(end).unwrap();
    assert!(reason(end).contains("no event"));
}

#[test]
fn handles_that_are_no_more_are_refused() {
    let (_driver, device) = pair();
    let stream = device.stream_create(0, 0).unwrap();
    device.stream_destroy(stream).unwrap();
    for stream in [stream, DEFAULT, RealHandle(77)] {
        assert!(matches!(device.stream_destroy(stream), Err(DeviceError::Invalid { .. })));
    }
    let nothing = RealHandle(0x55);
    assert!(matches!(device.event_query(nothing), Err(DeviceError::Invalid { .. })));
    assert!(matches!(device.event_record(nothing, DEFAULT), Err(DeviceError::Invalid { .. })));
    assert!(matches!(device.stream_wait_event(DEFAULT, nothing, 0), Err(DeviceError::Invalid { .. })));
    assert!(matches!(device.module_unload(nothing), Err(DeviceError::Invalid { .. })));
    assert!(matches!(device.module_function(nothing, "add"), Err(DeviceError::Invalid { .. })));
}

#[test]
fn parameters_reach_the_kernel_one_by_one() {
    let (driver, device) = pair();
    let module = device.module_load(PTX).unwrap();
    let add = device.module_function(module, "add").unwrap();
    assert_eq!(add.param_bytes, [8, 8, 4]);
    let params = pattern(20, 1);
    device.launch(&add, ONE, DEFAULT, &params).unwrap();
    let many = device.module_function(module, "many").unwrap();
    let each = pattern(40, 2);
    device.launch(&many, ONE, DEFAULT, &each).unwrap();
    let nothing = device.module_function(module, "nothing").unwrap();
    device.launch(&nothing, ONE, DEFAULT, &[]).unwrap();
    let expected = [
        ("add".to_owned(), vec![params[..8].to_vec(), params[8..16].to_vec(), params[16..].to_vec()]),
        ("many".to_owned(), each.iter().map(|byte| vec![*byte]).collect()),
        ("nothing".to_owned(), vec![]),
    ];
    assert_eq!(driver.launched(), expected);

    assert!(matches!(device.launch(&add, ONE, DEFAULT, &params[1..]), Err(DeviceError::Invalid { .. })));
    let flat = LaunchShape { block: [1, 0, 1], ..ONE };
    assert!(matches!(device.launch(&add, flat, DEFAULT, &params), Err(DeviceError::Invalid { .. })));
    // Sizes are the module's, whatever the caller believes.
    let forged = Function { param_bytes: vec![1], ..add.clone() };
    assert!(matches!(device.launch(&forged, ONE, DEFAULT, &[1]), Err(DeviceError::Invalid { .. })));
    device.module_unload(module).unwrap();
    let error = device.launch(&add, ONE, DEFAULT, &params).unwrap_err();
    assert!(error.to_string().contains("unloaded"), "{error}");
    assert_eq!(driver.held().2, 0);
}

#[test]
fn a_module_stays_until_its_kernels_have_run() {
    let (driver, device) = pair();
    let module = device.module_load(PTX).unwrap();
    let add = device.module_function(module, "add").unwrap();
    driver.stick(0);
    device.launch(&add, ONE, DEFAULT, &[0; 20]).unwrap();
    device.module_unload(module).unwrap();
    assert_eq!(driver.held().2, 1);
    driver.release(0);
    assert_eq!(driver.launched().len(), 1);
    let other = device.module_load(PTX).unwrap();
    device.module_unload(other).unwrap();
    assert_eq!(driver.held().2, 0);
}

#[test]
fn a_module_that_is_none_is_refused_with_the_compilers_words() {
    let (_driver, device) = pair();
    let reason = |image: &[u8]| match device.module_load(image) {
        Err(DeviceError::Module { reason }) => reason,
        other => panic!("{other:?}"),
    };
    assert!(reason(b".version 8.0\nnonsense").contains("218 (FAKE_ERROR_218): line 1: no entry"));
    assert!(reason(b"\x7fELF").contains("cubin"));
    let module = device.module_load(PTX).unwrap();
    match device.module_function(module, "absent") {
        Err(DeviceError::Module { reason }) => assert!(reason.contains("absent"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(device.module_function(module, "a\0b"), Err(DeviceError::Invalid { .. })));
}

#[test]
fn any_thread_may_call() {
    let (driver, device) = pair();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let at = device.alloc(1000).unwrap();
                let data = pattern(1000, at.0 as u8);
                let stream = device.stream_create(1, 0).unwrap();
                for _ in 0..50 {
                    upload(&device, at, &data, stream);
                    let mut back = vec![0; 1000];
                    download(&device, at, &mut back, stream);
                    while !device.stream_query(stream).unwrap() {
                        std::thread::yield_now();
                    }
                    assert_eq!(back, data);
                }
                device.stream_destroy(stream).unwrap();
                device.free(at).unwrap();
            });
        }
    });
    assert_eq!(driver.held().0, 0);
}

// ---- faults

#[test]
fn every_sticky_error_loses_the_device_and_says_what_to_do() {
    for code in [214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 911] {
        let (driver, device) = pair();
        let at = device.alloc(1).unwrap();
        driver.break_down(code);
        let error = device.stream_query(DEFAULT).unwrap_err();
        assert!(error.is_lost());
        let text = error.to_string();
        assert!(text.contains(&code.to_string()) && text.contains("the process must be replaced"), "{text}");
        let queries = driver.calls("stream_query");
        for other in [
            device.alloc(1).unwrap_err(),
            device.alloc_at(DevicePtr(1), 1).unwrap_err(),
            device.free(at).unwrap_err(),
            device.memset(at, 0, 1, DEFAULT).unwrap_err(),
            device.stream_query(DEFAULT).unwrap_err(),
            device.make_current().unwrap_err(),
            device.module_load(PTX).unwrap_err(),
            device.reset().unwrap_err(),
        ] {
            assert_eq!(other, error, "the first error stands");
        }
        assert_eq!(driver.calls("stream_query"), queries, "the driver is not asked again");
    }
}

#[test]
fn other_errors_do_not_lose_the_device() {
    let (driver, device) = pair();
    driver.fail("stream_create", 1, 2);
    assert!(matches!(device.stream_create(0, 0), Err(DeviceError::Call { code: 2, .. })));
    assert!(matches!(device.stream_create(9, 0), Err(DeviceError::Call { code: 1, .. })));
    // A code that no list has.
    driver.fail("event_create", 1, 123_456);
    assert!(matches!(device.event_create(0), Err(DeviceError::Call { code: 123_456, .. })));
    assert!(device.stream_create(0, 0).is_ok() && device.alloc(1).is_ok());
}

#[test]
fn a_fault_of_a_kernel_shows_at_the_next_query() {
    let (_driver, device) = pair();
    let module = device.module_load(PTX).unwrap();
    let fault = device.module_function(module, "fault").unwrap();
    device.launch(&fault, ONE, DEFAULT, &[]).unwrap();
    let error = device.stream_query(DEFAULT).unwrap_err();
    assert!(error.is_lost() && error.to_string().contains("719"), "{error}");
    // Dropping it touches nothing: those calls could hang.
    drop(device);
}

#[test]
fn errors_in_the_middle_of_a_copy_or_a_release_lose_the_device_too() {
    for call in ["copy_to_host", "host_call", "event_record", "event_create"] {
        let (driver, device) = pair();
        let at = device.alloc(3 << 20).unwrap();
        driver.fail(call, 1, ILLEGAL_ADDRESS);
        let mut host = vec![0; 3 << 20];
        let error = device.copy(Copy::DeviceToHost { dst: host.as_mut_ptr(), src: at }, 3 << 20, DEFAULT).unwrap_err();
        assert!(error.is_lost(), "{call}: {error}");
    }
    for call in ["memory_unmap", "memory_release", "stream_query"] {
        let (driver, device) = pair();
        let at = device.alloc(1).unwrap();
        driver.fail(call, 1, ILLEGAL_ADDRESS);
        assert!(device.free(at).unwrap_err().is_lost(), "{call}");
    }
}

#[test]
fn reset_drops_everything_and_keeps_the_window() {
    let (driver, device) = pair();
    let take = || [100, 3 * GRANULE, 3].map(|bytes| device.alloc(bytes).unwrap());
    let first = take();
    upload(&device, first[1], &pattern(4096, 1), DEFAULT);
    let (stream, event) = (device.stream_create(0, 0).unwrap(), device.event_create(0).unwrap());
    let module = device.module_load(PTX).unwrap();
    let function = device.module_function(module, "add").unwrap();
    let mut host = [0u8; 64];
    device.host_register(host.as_mut_ptr().cast(), 64, 0).unwrap();
    device.reset().unwrap();
    assert!(device.allocations().is_empty());
    assert_eq!((driver.held().0, driver.held().1, driver.held().2), (0, 0, 0));
    assert!(device.event_query(event).is_err() && device.stream_destroy(stream).is_err());
    assert!(device.launch(&function, ONE, DEFAULT, &[0; 20]).is_err());
    assert_eq!(take(), first);
    device.host_register(host.as_mut_ptr().cast(), 64, 0).unwrap();
    device.reset().unwrap();
    drop(device);
    driver.assert_all_given_back();
}

#[test]
fn a_busy_device_is_left_alone_when_it_is_dropped() {
    let (driver, device) = pair();
    let at = device.alloc(1).unwrap();
    driver.stick(0);
    device.memset(at, 1, 1, DEFAULT).unwrap();
    drop(device);
    assert_eq!(driver.held().0, GRANULE);
    driver.release(0);
}

#[test]
fn a_poke_ends_a_wait() {
    let (_driver, device) = pair();
    let seen = device.activity();
    device.poke();
    assert_ne!(device.activity(), seen);
    device.activity_wait(seen, Duration::from_secs(3600));
}
