//! Records for tests: values written to and read from places of exact size and any alignment.

use std::fmt::Debug;
use std::mem::MaybeUninit;

use farside::Wire;
use farside::wire::{Reader, WireError};

/// The bytes of a value. Its padding is not initialised.
pub(crate) type Record = Box<[MaybeUninit<u8>]>;

const CANARY: u8 = 0xC5;
const MARGIN_BYTES: usize = 32;

/// Writes `value` at `misalignment` bytes past a multiple of 16 and returns the written bytes.
/// Panics if `write` wrote outside the bytes that `wire_bytes` announced.
pub(crate) fn write<T: Wire>(value: T, misalignment: usize) -> Record {
    let wire_bytes = value.wire_bytes();
    let mut buffer = vec![MaybeUninit::new(CANARY); wire_bytes + 2 * MARGIN_BYTES];
    let aligned = buffer.as_ptr().align_offset(16);
    let start = aligned + misalignment;
    assert!(start <= MARGIN_BYTES, "the margin is too small for misalignment {misalignment}");
    let out = buffer[start..].as_mut_ptr().cast::<u8>();
    // SAFETY: behind `start` there are `wire_bytes` bytes and the rest of the margin.
    unsafe { value.write(out) };
    let (before, rest) = buffer.split_at(start);
    let (record, after) = rest.split_at(wire_bytes);
    for byte in before.iter().chain(after) {
        // SAFETY: all bytes were initialised, and only initialised bytes can have been written over
        // these.
        let byte = unsafe { byte.assume_init() };
        assert_eq!(byte, CANARY, "written outside the record");
    }
    record.into()
}

/// Reads a `T` from the start of `record` and returns it with the number of bytes that are left.
///
/// # Safety
/// That of [`Wire::read`].
pub(crate) unsafe fn read<T: Wire>(record: &[MaybeUninit<u8>]) -> Result<(T, usize), WireError> {
    // SAFETY: the record is borrowed until the reader is gone.
    let mut input = unsafe { Reader::new(record.as_ptr().cast(), record.len()) };
    // SAFETY: the caller keeps the contract of `Wire::read`.
    let value = unsafe { T::read(&mut input) }?;
    Ok((value, input.remaining()))
}

/// Sends `value` through a record.
pub(crate) fn transfer<T: Wire>(value: T) -> T {
    let wire_bytes = value.wire_bytes();
    transfer_part(value, wire_bytes).unwrap()
}

/// Sends `value` through a record of which only the first `length` bytes arrive.
pub(crate) fn transfer_part<T: Wire>(value: T, length: usize) -> Result<T, WireError> {
    let record: Record = write(value, 0)[..length].into();
    // SAFETY: the record holds the start of a `T`, which is read once: every plain value that is
    // complete is valid.
    unsafe { read(&record) }.map(|(value, _)| value)
}

/// Checks that `value` arrives equal at every alignment, to its last byte, and that no part of its
/// record suffices.
pub(crate) fn check<T: Wire + Clone + PartialEq + Debug>(value: &T) {
    for misalignment in [0, 1, 2, 4, 8, 15] {
        let record = write(value.clone(), misalignment);
        if T::PLAIN {
            assert_eq!(record.len(), size_of::<T>());
        } else {
            assert_ne!(record.len(), 0, "a value that is not plain has at least one byte");
        }
        let misaligned: Record = [MaybeUninit::uninit()].repeat(misalignment).into_iter().chain(record).collect();
        // SAFETY: a `T` was written there.
        let (read, left_bytes) = unsafe { read::<T>(&misaligned[misalignment..]) }.unwrap();
        assert_eq!(&read, value);
        assert_eq!(left_bytes, 0);
    }
    check_truncated(value);
}

/// Checks that every record that ends too early is refused as truncated. Tries about a hundred
/// lengths of a large record.
fn check_truncated<T: Wire + Clone + Debug>(value: &T) {
    let whole = write(value.clone(), 0);
    for length in (0..whole.len()).step_by(whole.len() / 100 + 1) {
        // The part is a separate copy, so that a memory checker sees a read past its end.
        let part: Record = whole[..length].into();
        // SAFETY: the part is the start of a `T`: every plain value that is complete is valid.
        match unsafe { read::<T>(&part) } {
            Err(WireError::Truncated { wanted, available, .. }) => assert!(wanted > available && available <= length),
            other => panic!("{length} of {} bytes read as {other:?}", whole.len()),
        }
    }
}
