//! Opaque objects of C.
//!
//! A pointer that C holds leads to a shell, which is never freed: after the close it says so, and only after
//! [`QUARANTINE`] further closes of its kind does it become another object. So use after close, closing twice
//! and passing an object of another kind are a status, not a crash. The inside goes when the object is closed
//! and the last call that was running on it has left.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use journal_core::sync::announce::{self, Place};
use crate::boundary::{Failure, Result};
use crate::status::rejoin_status;

/// Closed shells that are kept as such.
const QUARANTINE: usize = 256;

/// The object is closed.
const CLOSED: u64 = 1 << 63;
/// Its inside is gone.
const EMPTIED: u64 = 1 << 62;
/// Below it calls are counted; from it up, how often the shell was used before.
const GENERATION: u64 = 1 << 32;

/// What can stand behind an opaque pointer.
pub trait Object: Sized + Send + Sync + 'static {
    /// Name of the C type.
    const NAME: &'static str;
    /// Tells kinds of objects apart; unlikely to be found in other memory.
    const MAGIC: u64;
    /// Retired shells of this kind.
    fn retired() -> &'static Mutex<VecDeque<Retired<Self>>>;
}

macro_rules! object {
    ($ty:ty, $name:literal, $magic:literal) => {
        impl $crate::shell::Object for $ty {
            const NAME: &'static str = $name;
            const MAGIC: u64 = u64::from_le_bytes(*$magic);
            fn retired() -> &'static std::sync::Mutex<std::collections::VecDeque<$crate::shell::Retired<Self>>> {
                static RETIRED: std::sync::Mutex<std::collections::VecDeque<$crate::shell::Retired<$ty>>> =
                    std::sync::Mutex::new(std::collections::VecDeque::new());
                &RETIRED
            }
        }
    };
}
pub(crate) use object;

/// The memory behind an opaque pointer. The magic comes first for every kind.
#[repr(C)]
pub struct Shell<T> {
    #[allow(dead_code, reason = "read through the pointer, before its kind is known")]
    magic: u64,
    /// Forks between the start of the first process and the one that made it.
    forks: AtomicU32,
    /// Running calls that are counted, generation, and [`CLOSED`]. Every pointer to the shell stays valid; this word
    /// says what it means.
    calls: AtomicU64,
    inside: UnsafeCell<MaybeUninit<T>>,
}

/// A closed shell.
pub struct Retired<T: 'static>(&'static Shell<T>);

// SAFETY: a reference to a shell whose inside is gone; all else in it is atomic or constant.
unsafe impl<T: Send + Sync> Send for Retired<T> {}
// SAFETY: `inside` is written only before the pointer is given out and dropped only by the last call, after
// CLOSED; in between it is read as `&T`.
unsafe impl<T: Send + Sync> Sync for Shell<T> {}

static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

fn forks() -> u32 {
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which is allowed in a forked child. A failure (no memory)
        // costs only the detection of forks.
        unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
    });
    FORKS.load(Ordering::Relaxed)
}

/// A call that runs on an object: written down in a place of this thread, or counted.
pub struct Call<'a, T: Object>(&'a Shell<T>, Option<Place>, PhantomData<*const ()>);

impl<T: Object> Deref for Call<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this call is written down or counted, so the cell is only read.
        let inside = unsafe { &*self.0.inside.get() };
        // SAFETY: initialised before the pointer was given out; dropped only after the last call.
        unsafe { inside.assume_init_ref() }
    }
}

impl<T: Object> Drop for Call<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let word = match &self.1 {
            Some(place) => {
                place.clear();
                // SYNC: a close that is not seen here sees the cleared place: see `announce`.
                self.0.calls.load(Ordering::Relaxed)
            }
            // SYNC: Release; pairs with the swap in `empty_if_unused`.
            None => self.0.calls.fetch_sub(1, Ordering::Release),
        };
        if word & CLOSED != 0 {
            self.0.empty_if_unused();
        }
    }
}

#[cold]
fn closed<T: Object>() -> Failure {
    Failure::new(rejoin_status::Closed, format!("this {} was closed", T::NAME))
}

impl<T: Object> Shell<T> {
    /// A pointer for C.
    pub fn create(value: T) -> *mut Self {
        let forks = forks();
        let mut retired = T::retired().lock().unwrap_or_else(PoisonError::into_inner);
        let reused = if retired.len() > QUARANTINE { retired.pop_front() } else { None };
        drop(retired);
        let Some(Retired(shell)) = reused else {
            let inside = UnsafeCell::new(MaybeUninit::new(value));
            let (forks, calls) = (AtomicU32::new(forks), AtomicU64::new(0));
            return Box::into_raw(Box::new(Self { magic: T::MAGIC, forks, calls, inside }));
        };
        // SAFETY: the shell is closed and no call runs on it, and it was taken out of the list: nobody else
        // touches its inside.
        let inside = unsafe { &mut *shell.inside.get() };
        inside.write(value);
        shell.forks.store(forks, Ordering::Relaxed);
        let generation = (shell.calls.load(Ordering::Relaxed) & !(CLOSED | EMPTIED)).wrapping_add(GENERATION) & (EMPTIED - 1);
        // SYNC: Release; pairs with the Acquire in `enter`: who sees it open sees the new inside.
        shell.calls.store(generation, Ordering::Release);
        core::ptr::from_ref(shell).cast_mut()
    }

    /// # Safety
    /// `pointer` is NULL or came from a function of this library, whatever object it was of.
    #[inline]
    unsafe fn find<'a>(pointer: *const Self) -> Result<&'a Self> {
        if pointer.is_null() {
            return Err(Failure::null(T::NAME));
        }
        // SAFETY: every shell begins with its magic, is aligned to 8 and is never freed.
        let magic = unsafe { pointer.cast::<u64>().read_unaligned() };
        if magic != T::MAGIC {
            return Err(Failure::invalid(format!("the pointer is not a {}: pass what the library gave", T::NAME)));
        }
        // SAFETY: the magic says that it is a shell of this kind; shells are never freed.
        Ok(unsafe { &*pointer })
    }

    /// Begins a call.
    ///
    /// # Safety
    /// As [`Self::find`].
    #[inline]
    pub unsafe fn enter<'a>(pointer: *const Self) -> Result<Call<'a, T>> {
        // SAFETY: passed on to the caller.
        let shell = unsafe { Self::find(pointer) }?;
        shell.check_process()?;
        if let Some(place) = Place::announce(core::ptr::from_ref(shell).addr()) {
            let call = Call(shell, Some(place), PhantomData);
            // SYNC: Acquire; pairs with the Release in `create`.
            return if shell.calls.load(Ordering::Acquire) & CLOSED == 0 { Ok(call) } else { Err(closed::<T>()) };
        }
        // A closed shell is never counted on: its last call has dropped, or will drop, the inside.
        let count = |calls: u64| (calls & CLOSED == 0).then_some(calls + 1);
        // SYNC: Acquire; as above.
        match shell.calls.fetch_update(Ordering::Acquire, Ordering::Relaxed, count) {
            Ok(_) => Ok(Call(shell, None, PhantomData)),
            Err(_) => Err(closed::<T>()),
        }
    }

    #[inline]
    fn check_process(&self) -> Result<()> {
        if self.forks.load(Ordering::Relaxed) == FORKS.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(Failure::new(
            rejoin_status::Forked,
            format!("this {} belongs to the process that forked this one; open another in this process", T::NAME),
        ))
    }

    /// Closes the object. Calls that run on it finish.
    ///
    /// # Safety
    /// As [`Self::find`].
    pub unsafe fn close(pointer: *mut Self) -> Result<()> {
        if pointer.is_null() {
            return Ok(());
        }
        // SAFETY: passed on to the caller.
        let shell = unsafe { Self::find(pointer) }?;
        shell.check_process()?;
        // SYNC: AcqRel; orders the mark before the look at who runs.
        if shell.calls.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED != 0 {
            return Err(closed::<T>());
        }
        shell.empty_if_unused();
        Ok(())
    }

    /// Drops the inside of a closed shell, unless a call runs on it: then that call does when it leaves.
    ///
    /// The closing thread and every leaving one that sees the mark come here, each after its own place is cleared. Of
    /// those the last to look finds no other.
    #[cold]
    fn empty_if_unused(&self) {
        // SYNC: Acquire; as the mark was seen before, and a later use of the shell has another generation.
        let word = self.calls.load(Ordering::Acquire);
        if word & CLOSED == 0 || word & EMPTIED != 0 || word & (GENERATION - 1) != 0 {
            return;
        }
        let announced = announce::may_run(core::ptr::from_ref(self).addr());
        // SYNC: AcqRel; what counted calls did with the inside happens before its drop.
        if announced || self.calls.compare_exchange(word, word | EMPTIED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return;
        }
        // SAFETY: closed, no call runs on it, and only one thread gets here: nobody reads the cell any more.
        let inside = unsafe { &mut *self.inside.get() };
        // SAFETY: initialised, and dropped once.
        unsafe { inside.assume_init_drop() };
        // SAFETY: shells are never freed.
        let kept: &'static Self = unsafe { &*core::ptr::from_ref(self) };
        T::retired().lock().unwrap_or_else(PoisonError::into_inner).push_back(Retired(kept));
    }
}

#[cfg(test)]
#[allow(clippy::multiple_unsafe_ops_per_block)]
mod tests {
    use super::*;
    use std::sync::Arc;

    struct Thing(Arc<AtomicU32>);
    object!(Thing, "thing", b"RJ-thing");
    struct Other;
    object!(Other, "other", b"RJ-other");

    impl Drop for Thing {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn status<T>(result: Result<T>) -> rejoin_status {
        result.err().map_or(rejoin_status::Ok, |failure| failure.status)
    }

    #[test]
    fn use_after_close_and_a_second_close_are_a_status() {
        let drops = Arc::new(AtomicU32::new(0));
        let pointer = Shell::create(Thing(drops.clone()));
        // SAFETY: pointers of this module.
        unsafe {
            let running = Shell::enter(pointer).expect("open");
            Shell::close(pointer).expect("open");
            assert_eq!(drops.load(Ordering::Relaxed), 0, "a call still runs on it");
            assert_eq!(status(Shell::enter(pointer)), rejoin_status::Closed);
            drop(running);
            assert_eq!(drops.load(Ordering::Relaxed), 1);
            assert_eq!(status(Shell::close(pointer)), rejoin_status::Closed);
            assert_eq!(status(Shell::enter(pointer.cast::<Shell<Other>>())), rejoin_status::InvalidArgument);
            assert_eq!(status(Shell::<Thing>::enter(core::ptr::null())), rejoin_status::NullArgument);
            Shell::<Thing>::close(core::ptr::null_mut()).expect("nothing to do");
        }
    }

    #[test]
    fn threads_that_close_while_others_call_drop_the_inside_once() {
        for _ in 0..200 {
            let drops = Arc::new(AtomicU32::new(0));
            let pointer = Shell::create(Thing(drops.clone())).expose_provenance();
            std::thread::scope(|scope| {
                for n in 0..4 {
                    scope.spawn(move || {
                        let pointer = core::ptr::with_exposed_provenance_mut::<Shell<Thing>>(pointer);
                        for _ in 0..20 {
                            // SAFETY: a pointer of this module.
                            let _ = unsafe { Shell::enter(pointer) }.map(|call| Deref::deref(&call).0.load(Ordering::Relaxed));
                        }
                        if n % 2 == 0 {
                            // SAFETY: a pointer of this module.
                            let _ = unsafe { Shell::close(pointer) };
                        }
                    });
                }
            });
            assert_eq!(drops.load(Ordering::Relaxed), 1);
        }
    }
}
