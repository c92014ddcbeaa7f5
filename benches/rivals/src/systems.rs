//! One appender a system.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use journal_core::journal::{Journal, JournalOptions, Region};
use journal_core::sync::robust::{Lock, ROBUST_MUTEX_BYTES, RobustMutex};

use crate::race::{alone, race};

const COUNT: u64 = 1_000_000;
const SLOW_COUNT: u64 = 200_000;

/// Nanoseconds of an append.
pub fn measure(system: &str, bytes: usize, producers: u64) -> anyhow::Result<f64> {
    match system {
        "journal" => journal(bytes, producers),
        "mutex" => Ok(mutex(bytes, producers)),
        "pipe" => pipe(bytes, producers),
        "rtrb" if bytes == 64 => Ok(rtrb::<64>()),
        "rtrb" => Ok(rtrb::<256>()),
        "crossbeam" if bytes == 64 => Ok(crossbeam::<64>(producers)),
        "crossbeam" => Ok(crossbeam::<256>(producers)),
        #[cfg(feature = "iceoryx2")]
        "iceoryx2" => iceoryx2(bytes, producers),
        #[cfg(feature = "aeron")]
        "aeron" => aeron(bytes, producers),
        other => anyhow::bail!("{other} was not built"),
    }
}

fn journal(bytes: usize, producers: u64) -> anyhow::Result<f64> {
    let options = JournalOptions {
        capacity_bytes: 16 << 20,
        ..JournalOptions::new(format!("rivals-{}", std::process::id()), 0, 0)
    };
    let journal = Journal::create(&options)?;
    let nanos = race(
        producers,
        COUNT,
        |_| {
            let (journal, payload, mut left) = (journal.clone(), vec![7_u8; bytes], 0);
            Box::new(move || {
                journal.append(Region::Step, 7, 0, &[&payload]).expect("the step is cut often enough");
                left += 1;
                if left % 4000 == 0 {
                    journal.step_commit(0).expect("nobody keeps the admin lock");
                }
            })
        },
        alone,
    );
    journal.unlink()?;
    Ok(nanos)
}

/// A ring in shared memory behind a robust mutex, with the same checksum and a sequence number.
fn mutex(bytes: usize, producers: u64) -> f64 {
    const RING: usize = 8 << 20;
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_POPULATE);
    // SAFETY: a new mapping that lives as long as the process.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), RING + 4096, prot, flags, -1, 0) }.cast::<u8>();
    // SAFETY: the first bytes of the mapping.
    let lock = unsafe { RobustMutex::at(base) };
    lock.init().expect("a mutex");
    let ring = base as usize + 4096;
    // Next position, sequence: behind the mutex's bytes.
    let heads = base as usize + ROBUST_MUTEX_BYTES as usize;
    race(
        producers,
        COUNT,
        move |_| {
            let payload = vec![7_u8; bytes];
            Box::new(move || {
                let got = loop {
                    match lock.try_lock() {
                        Lock::Busy => {
                            if let got @ (Lock::Acquired | Lock::OwnerDied) = lock.lock_for(Duration::from_secs(5)) {
                                break got;
                            }
                        }
                        got => break got,
                    }
                };
                assert!(matches!(got, Lock::Acquired));
                // SAFETY: only the holder of the lock touches these.
                let heads = unsafe { &mut *(heads as *mut [u64; 2]) };
                let need = 32 + payload.len();
                let at = if heads[0] as usize + need > RING { 0 } else { heads[0] as usize };
                let crc = journal_core::journal::checksum::of_words(
                    payload.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("eight"))),
                );
                // SAFETY: within the ring, as just checked; under the lock.
                unsafe { (ring as *mut u8).add(at + 32).copy_from_nonoverlapping(payload.as_ptr(), payload.len()) };
                // SAFETY: as above.
                unsafe { (ring as *mut u8).add(at).cast::<[u64; 3]>().write([heads[1], payload.len() as u64, u64::from(crc)]) };
                *heads = [(at + need) as u64, heads[1] + 1];
                lock.unlock();
            })
        },
        alone,
    )
}

fn pipe(bytes: usize, producers: u64) -> anyhow::Result<f64> {
    let mut fds = [0; 2];
    // SAFETY: two descriptors are written.
    anyhow::ensure!(unsafe { libc::pipe(fds.as_mut_ptr()) } == 0);
    let [read, write] = fds;
    Ok(race(
        producers,
        SLOW_COUNT,
        |_| {
            let payload = vec![7_u8; bytes];
            // SAFETY: writes from a live buffer; shorter than PIPE_BUF, so whole.
            Box::new(move || assert!(unsafe { libc::write(write, payload.as_ptr().cast(), payload.len()) } as usize == payload.len()))
        },
        |go, running| {
            // SAFETY: makes reads return when there is nothing.
            unsafe { libc::fcntl(read, libc::F_SETFL, libc::O_NONBLOCK) };
            go();
            let mut sink = vec![0_u8; 64 << 10];
            while running() {
                // SAFETY: reads into a live buffer.
                if unsafe { libc::read(read, sink.as_mut_ptr().cast(), sink.len()) } <= 0 {
                    std::thread::yield_now();
                }
            }
        },
    ))
}

fn rtrb<const N: usize>() -> f64 {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<[u8; N]>::new(16384);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                while let Ok(record) = consumer.pop() {
                    std::hint::black_box(record);
                }
            }
        });
        let start = Instant::now();
        for _ in 0..COUNT {
            while producer.push(std::hint::black_box([7; N])).is_err() {
                std::hint::spin_loop();
            }
        }
        let nanos = start.elapsed().as_nanos() as f64 / COUNT as f64;
        done.store(true, Ordering::Relaxed);
        nanos
    })
}

fn crossbeam<const N: usize>(producers: u64) -> f64 {
    let (sender, receiver) = crossbeam_channel::bounded::<[u8; N]>(16384);
    let total = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..producers {
            let (sender, total) = (sender.clone(), &total);
            scope.spawn(move || {
                let start = Instant::now();
                for _ in 0..COUNT {
                    sender.send(std::hint::black_box([7; N])).expect("the receiver drains");
                }
                total.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
            });
        }
        drop(sender);
        receiver.iter().for_each(|record| {
            std::hint::black_box(record);
        });
    });
    total.load(Ordering::Relaxed) as f64 / (COUNT * producers) as f64
}

#[cfg(feature = "iceoryx2")]
fn iceoryx2(bytes: usize, producers: u64) -> anyhow::Result<f64> {
    use iceoryx2::prelude::*;
    let name = format!("rivals-{}", std::process::id());
    let open = move || {
        let node = NodeBuilder::new().create::<ipc::Service>().expect("a node");
        let service = node
            .service_builder(&name.as_str().try_into().expect("a name"))
            .publish_subscribe::<[u8]>()
            .max_publishers(4)
            .subscriber_max_buffer_size(1024)
            .enable_safe_overflow(true)
            .open_or_create()
            .expect("a service");
        (node, service)
    };
    Ok(race(
        producers,
        SLOW_COUNT,
        |_| {
            let (node, service) = open();
            let publisher = service.publisher_builder().initial_max_slice_len(bytes).create().expect("a publisher");
            let payload = vec![7_u8; bytes];
            Box::new(move || {
                let _alive = &node;
                let sample = publisher.loan_slice_uninit(payload.len()).expect("a sample");
                sample.write_from_slice(&payload).send().expect("sent");
            })
        },
        |go, running| {
            let (_node, service) = open();
            let subscriber = service.subscriber_builder().create().expect("a subscriber");
            go();
            while running() {
                while let Ok(Some(sample)) = subscriber.receive() {
                    std::hint::black_box(sample.payload());
                }
                std::thread::yield_now();
            }
        },
    ))
}

#[cfg(feature = "aeron")]
fn aeron(bytes: usize, producers: u64) -> anyhow::Result<f64> {
    use rusteron_client::*;
    const STREAM: i32 = 1001;
    let dir = format!("/dev/shm/aeron-rivals-{}", std::process::id());
    let client = |dir: &str| -> anyhow::Result<Aeron> {
        let context = AeronContext::new()?;
        context.set_dir(&std::ffi::CString::new(dir)?.as_c_str().to_owned())?;
        let aeron = Aeron::new(&context)?;
        aeron.start()?;
        Ok(aeron)
    };
    let nanos = race(
        producers,
        SLOW_COUNT,
        |_| {
            let aeron = client(&dir).expect("a client");
            let publication = aeron
                .async_add_publication(AERON_IPC_STREAM, STREAM)
                .and_then(|wanted| wanted.poll_blocking(Duration::from_secs(10)))
                .expect("a publication");
            let payload = vec![7_u8; bytes];
            Box::new(move || {
                let _alive = &aeron;
                while publication.offer(&payload).is_err() {
                    std::thread::yield_now();
                }
            })
        },
        |go, running| {
            let context = rusteron_media_driver::AeronDriverContext::new().expect("a context");
            context.set_dir(&std::ffi::CString::new(dir.as_str()).expect("no zero")).expect("a folder");
            let (stop, driver) = rusteron_media_driver::AeronDriver::launch_embedded(context, false);
            let aeron = client(&dir).expect("a client");
            let subscription = aeron
                .async_add_subscription(AERON_IPC_STREAM, STREAM, Handlers::NONE, Handlers::NONE)
                .and_then(|wanted| wanted.poll_blocking(Duration::from_secs(10)))
                .expect("a subscription");
            go();
            while running() {
                if subscription.poll_fn(|bytes: &[u8], _| { std::hint::black_box(bytes); }, 256).unwrap_or(0) == 0 {
                    std::thread::yield_now();
                }
            }
            stop.store(true, Ordering::SeqCst);
            let _ = driver.join();
        },
    );
    let _ = std::fs::remove_dir_all(&dir);
    Ok(nanos)
}
