//! Arguments of C into safe values.

use core::ffi::{CStr, c_char, c_void};
use core::mem::MaybeUninit;

use journal_core::handle::VirtualHandle;
use journal_core::request::ReduceOperator;

use crate::boundary::{Failure, Result};
use crate::communicator::rejoin_unique_id;
use crate::status::rejoin_status;

/// `length` bytes. NULL is allowed where there are none.
///
/// # Safety
/// `pointer` is NULL or readable for `length` bytes while the result lives.
pub unsafe fn bytes<'a>(pointer: *const c_void, length: usize, name: &str) -> Result<&'a [u8]> {
    if length == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Failure::null(name));
    }
    if isize::try_from(length).is_err() {
        return Err(Failure::invalid(format!("{name} has {length} bytes, more than an address space")));
    }
    // SAFETY: not NULL, of a possible length, readable by the caller's promise.
    Ok(unsafe { core::slice::from_raw_parts(pointer.cast(), length) })
}

/// `length` writable bytes.
///
/// # Safety
/// `pointer` is NULL or writable for `length` bytes while the result lives, and nobody else uses them.
pub unsafe fn bytes_mut<'a>(pointer: *mut c_void, length: usize, name: &str) -> Result<&'a mut [u8]> {
    if length == 0 {
        return Ok(&mut []);
    }
    if pointer.is_null() {
        return Err(Failure::null(name));
    }
    if isize::try_from(length).is_err() {
        return Err(Failure::invalid(format!("{name} has {length} bytes, more than an address space")));
    }
    // SAFETY: not NULL, of a possible length, ours by the caller's promise.
    Ok(unsafe { core::slice::from_raw_parts_mut(pointer.cast(), length) })
}

/// A string.
///
/// # Safety
/// `pointer` is NULL or leads to a terminated string that stays while the result lives.
pub unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str> {
    // SAFETY: passed on to the caller.
    unsafe { optional_text(pointer, name) }?.ok_or_else(|| Failure::null(name))
}

/// A string, or NULL.
///
/// # Safety
/// As [`text`].
pub unsafe fn optional_text<'a>(pointer: *const c_char, name: &str) -> Result<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL, terminated by the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Failure::invalid(format!("{name} is not UTF-8")))
}

/// An output that is there: written only when the call succeeds.
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Checks it, before the call does anything.
    ///
    /// # Safety
    /// `pointer` is NULL or writable until the call returns.
    pub unsafe fn new(pointer: *mut T, name: &str) -> Result<Self> {
        if pointer.is_null() { Err(Failure::null(name)) } else { Ok(Self(pointer)) }
    }

    /// Sets it.
    pub fn set(self, value: T) {
        // SAFETY: writable by the promise given to `new`.
        unsafe { self.0.write_unaligned(value) };
    }
}

/// A value of C, copied.
///
/// # Safety
/// `pointer` is NULL or readable; any bytes are a value of `T`.
pub unsafe fn copied<T: Copy>(pointer: *const T, name: &str) -> Result<T> {
    if pointer.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: not NULL, readable by the caller's promise.
    Ok(unsafe { pointer.read_unaligned() })
}

/// `count` values of C, copied. NULL is allowed where there are none.
///
/// # Safety
/// `pointer` is NULL or readable for `count` values; any bytes are a value of `T`.
pub unsafe fn list<T: Copy>(pointer: *const T, count: usize, name: &str) -> Result<Vec<T>> {
    let length = count.saturating_mul(size_of::<T>());
    // SAFETY: passed on to the caller.
    let bytes = unsafe { bytes(pointer.cast(), length, name) }?;
    let values = bytes.chunks_exact(size_of::<T>()).map(|value| {
        // SAFETY: as long as a value, whose bytes may be any, at any address.
        unsafe { value.as_ptr().cast::<T>().read_unaligned() }
    });
    Ok(values.collect())
}

/// A struct that begins with its size and version, and grows at its end only.
///
/// # Safety
/// It is `repr(C)`, begins with two `u32`, and any bytes are a value of it.
pub unsafe trait Versioned: Copy {
    /// Name of the C type.
    const NAME: &'static str;
    /// What a caller that knows fewer fields gets for the others.
    fn defaults() -> Self;
}

const HEAD: usize = 8;
/// No version of any struct will be larger: beyond it the size was not initialised.
const LARGEST: usize = 1 << 16;

/// Size and version as the caller set them.
///
/// # Safety
/// `pointer` is NULL or leads to a struct of at least its own `size` bytes.
unsafe fn head<T: Versioned>(pointer: *const T, name: &str) -> Result<usize> {
    if pointer.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: every such struct begins with two `u32`.
    let [size, version] = unsafe { pointer.cast::<[u32; 2]>().read_unaligned() };
    let size = size as usize;
    if !(HEAD..=LARGEST).contains(&size) || version == 0 {
        return Err(Failure::invalid(format!(
            "{name} has size {size} and version {version}: initialise it with {}_INIT",
            T::NAME.to_uppercase()
        )));
    }
    Ok(size)
}

/// Reads options of this, an older or a newer version of the header. What a newer one adds must be unset.
///
/// # Safety
/// `pointer` is NULL or leads to a struct of at least its own `size` bytes.
pub unsafe fn options<T: Versioned>(pointer: *const T, name: &str) -> Result<T> {
    // SAFETY: passed on to the caller.
    let size = unsafe { head(pointer, name) }?;
    // SAFETY: the struct has `size` bytes by the caller's promise.
    let given: &[u8] = unsafe { core::slice::from_raw_parts(pointer.cast(), size) };
    let (known, unknown) = given.split_at(size.min(size_of::<T>()));
    if unknown.iter().any(|byte| *byte != 0) {
        return Err(Failure::new(
            rejoin_status::Version,
            format!("{name} sets a field that this library does not know: the program was compiled with a newer rejoin.h"),
        ));
    }
    let mut value = MaybeUninit::new(T::defaults());
    // SAFETY: `known` is no longer than the value, and they do not overlap.
    unsafe { core::ptr::copy_nonoverlapping(known.as_ptr(), value.as_mut_ptr().cast(), known.len()) };
    // SAFETY: initialised; any bytes are a value.
    Ok(unsafe { value.assume_init() })
}

/// An output struct that the caller initialised with its size: gets the fields that it has room for.
pub struct VersionedOut<T> {
    pointer: *mut T,
    size: usize,
}

impl<T: Versioned> VersionedOut<T> {
    /// Checks it, before the call does anything.
    ///
    /// # Safety
    /// `pointer` is NULL or leads to a writable struct of at least its own `size` bytes until the call returns.
    pub unsafe fn new(pointer: *mut T, name: &str) -> Result<Self> {
        // SAFETY: passed on to the caller.
        let size = unsafe { head(pointer.cast_const(), name) }?;
        Ok(Self { pointer, size })
    }

    /// Sets it, but not its size and version.
    pub fn set(self, value: &T) {
        let length = self.size.min(size_of::<T>());
        // SAFETY: both have `length` bytes, of which the first eight stay.
        let source = unsafe { core::ptr::from_ref(value).cast::<u8>().add(HEAD) };
        // SAFETY: as above.
        let target = unsafe { self.pointer.cast::<u8>().add(HEAD) };
        // SAFETY: as above; the value is not the caller's struct.
        unsafe { core::ptr::copy_nonoverlapping(source, target, length - HEAD) };
    }
}

/// A buffer that gets a string with its end, cut at the capacity, and the length that it would have.
pub struct TextOut<'a> {
    room: &'a mut [u8],
    length: Out<usize>,
}

impl TextOut<'_> {
    /// Checks it, before the call does anything.
    ///
    /// # Safety
    /// `buffer` is NULL or writable for `capacity` bytes, `out_length` is NULL or writable, until the call returns.
    pub unsafe fn new(buffer: *mut c_char, capacity: usize, out_length: *mut usize) -> Result<Self> {
        // SAFETY: passed on to the caller.
        let length = unsafe { Out::new(out_length, "out_length") }?;
        // SAFETY: passed on to the caller.
        let room = unsafe { bytes_mut(buffer.cast(), capacity, "buffer") }?;
        Ok(Self { room, length })
    }

    /// Sets it.
    pub fn set(self, text: &str) {
        let mut cut = text.len().min(self.room.len().saturating_sub(1));
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        if let Some(end) = self.room.get_mut(cut) {
            *end = 0;
            self.room[..cut].copy_from_slice(&text.as_bytes()[..cut]);
        }
        self.length.set(text.len());
    }
}

/// Host memory of a request, as it is recorded.
pub fn pointer(pointer: *mut c_void, name: &str) -> Result<u64> {
    if pointer.is_null() { Err(Failure::null(name)) } else { Ok(pointer.expose_provenance() as u64) }
}

/// A reduction operator: NCCL's own numbers are small, virtual handles never are.
pub fn operator(op: u64) -> ReduceOperator {
    match i32::try_from(op) {
        Ok(number) => ReduceOperator::BuiltIn(number),
        Err(_) => ReduceOperator::Custom(VirtualHandle(op)),
    }
}

/// Unique ids, one after the other.
///
/// # Safety
/// `ids` is NULL or readable for `count` ids while the result lives.
pub unsafe fn unique_ids<'a>(ids: *const rejoin_unique_id, count: usize, name: &str) -> Result<&'a [u8]> {
    // SAFETY: an id is an array of bytes.
    unsafe { bytes(ids.cast(), count.saturating_mul(size_of::<rejoin_unique_id>()), name) }
}

/// Rank numbers as they are recorded.
///
/// # Safety
/// `ranks` is NULL or readable for `count` numbers.
pub unsafe fn ranks(ranks: *const i32, count: usize, name: &str) -> Result<Vec<u8>> {
    // SAFETY: passed on to the caller; numbers are recorded in the byte order of all supported machines.
    unsafe { bytes(ranks.cast(), count.saturating_mul(size_of::<i32>()), name) }.map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Sample {
        size: u32,
        version: u32,
        first: u64,
        second: u64,
    }

    // SAFETY: numbers only, head first.
    unsafe impl Versioned for Sample {
        const NAME: &'static str = "sample";
        fn defaults() -> Self {
            Self { size: 24, version: 1, first: 10, second: 20 }
        }
    }

    #[repr(C)]
    struct Newer(Sample, u64);

    fn read(newer: &Newer) -> Result<Sample> {
        // SAFETY: the sizes given by the tests are within it.
        unsafe { options(&raw const newer.0, "options") }
    }

    #[test]
    fn an_older_callers_struct_gets_defaults_and_a_newer_ones_must_be_unset() {
        let given = |size, version, added| Newer(Sample { size, version, first: 1, second: 2 }, added);
        assert_eq!(read(&given(24, 1, 9)).expect("ours").second, 2);
        let older = read(&given(16, 1, 9)).expect("older");
        assert_eq!((older.first, older.second), (1, 20));
        assert_eq!(read(&given(32, 2, 0)).expect("newer, unset").second, 2);
        assert_eq!(read(&given(32, 2, 5)).expect_err("newer, set").status, rejoin_status::Version);
        for (size, version) in [(0, 1), (7, 1), (24, 0), (u32::MAX, 1)] {
            let failure = read(&given(size, version, 0)).expect_err("not initialised");
            assert!(failure.message.contains("_INIT"), "{}", failure.message);
        }
    }

    #[test]
    fn a_list_is_read_at_any_address_and_none_needs_no_pointer() {
        let words = [1_u8, 2, 0, 0, 0, 3, 0, 0, 0];
        // SAFETY: two numbers from the second byte on.
        let found = unsafe { list::<u32>(words.as_ptr().wrapping_add(1).cast(), 2, "numbers") }.expect("readable");
        assert_eq!(found, [2, 3]);
        let read = |pointer: *const u32, count| {
            // SAFETY: nothing is read: there is nothing, or it is refused.
            unsafe { list(pointer, count, "numbers") }.map_err(|failure| failure.status)
        };
        let none = read(core::ptr::null(), 0);
        let some = read(core::ptr::null(), 1);
        let many = read(words.as_ptr().cast(), usize::MAX);
        assert_eq!((none, some, many), (Ok(vec![]), Err(rejoin_status::NullArgument), Err(rejoin_status::InvalidArgument)));
    }

    #[test]
    fn an_output_never_goes_beyond_the_callers_size() {
        let mut room = Newer(Sample { size: 16, version: 1, first: 0, second: 77 }, 88);
        // SAFETY: the size is within it.
        let out = unsafe { VersionedOut::new(&raw mut room.0, "out") }.expect("fits");
        out.set(&Sample { size: 24, version: 1, first: 5, second: 6 });
        assert_eq!(room.0, Sample { size: 16, version: 1, first: 5, second: 77 });
        assert_eq!(room.1, 88);
    }

    #[test]
    fn a_text_is_cut_at_a_character_and_always_ended() {
        let (mut buffer, mut length) = ([1; 4], 0);
        // SAFETY: the buffer has four bytes.
        unsafe { TextOut::new(buffer.as_mut_ptr().cast(), 4, &raw mut length) }.expect("writable").set("aäö");
        assert_eq!((&buffer[..], length), (&[b'a', 0xc3, 0xa4, 0][..], 5));
        // SAFETY: no buffer.
        unsafe { TextOut::new(core::ptr::null_mut(), 0, &raw mut length) }.expect("no room").set("abc");
        assert_eq!(length, 3);
    }
}
