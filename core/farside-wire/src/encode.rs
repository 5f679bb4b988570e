//! Whole values to and from byte buffers, for transfers that are not calls.

use std::any::Any;
use std::arch::asm;

use super::{Reader, Wire, WireError};

/// Moves `value` out to a new buffer.
///
/// Every byte is initialised, padding included, so the buffer may be read, compared and copied as
/// bytes.
///
/// # Cost
/// One allocation, zeroed, and one [`Wire::write`].
pub fn to_bytes<T: Wire>(value: T) -> Vec<u8> {
    let mut bytes = vec![0; value.wire_bytes()];
    write_to(value, &mut bytes);
    bytes
}

/// Moves a value out to an existing buffer, as [`to_bytes`] does to a new one.
///
/// # Panics
/// If the buffer is not exactly as long as the value.
pub fn write_to<T: Wire>(value: T, bytes: &mut [u8]) {
    assert_eq!(bytes.len(), value.wire_bytes(), "the buffer must be as long as the value");
    // SAFETY: the buffer has exactly `wire_bytes` bytes.
    unsafe { value.write(bytes.as_mut_ptr()) };
    settle_padding(bytes);
}

/// Moves a value in from a buffer that [`to_bytes`] made.
///
/// # Errors
/// [`WireError`] if `bytes` is not exactly one `T`.
///
/// # Safety
/// That of [`Wire::read`], with `bytes` as the input.
pub unsafe fn from_bytes<T: Wire>(bytes: &[u8]) -> Result<T, WireError> {
    // SAFETY: the slice stays borrowed, and so readable and unchanged, until this function returns.
    let input = unsafe { Reader::new(bytes.as_ptr(), bytes.len()) };
    // SAFETY: the caller vouches for the plain values in `bytes`.
    unsafe { read_all(input) }
}

/// Moves a value in as [`from_bytes`] does, with the [context](Reader::context) that handles need
/// to become usable.
///
/// # Errors
/// [`WireError`] if `bytes` is not exactly one `T`.
///
/// # Safety
/// That of [`from_bytes`].
pub unsafe fn from_bytes_in<T: Wire>(bytes: &[u8], context: &dyn Any) -> Result<T, WireError> {
    // SAFETY: the slice stays borrowed, and so readable and unchanged, until this function returns.
    let input = unsafe { Reader::new(bytes.as_ptr(), bytes.len()) };
    // SAFETY: the caller vouches for the plain values in `bytes`.
    unsafe { read_all(input.within(context)) }
}

/// # Safety
/// That of [`Wire::read`].
unsafe fn read_all<T: Wire>(mut input: Reader<'_>) -> Result<T, WireError> {
    // SAFETY: the caller keeps the contract of `Wire::read`, which is that of this function.
    let value = unsafe { T::read(&mut input) }?;
    match input.remaining() {
        0 => Ok(value),
        left_bytes => Err(WireError::left_over::<T>(left_bytes)),
    }
}

/// Makes padding that was moved into `bytes` count as initialised.
///
/// A move leaves the padding of a type uninitialised as far as the compiler knows, whatever the
/// memory holds.
fn settle_padding(bytes: &mut [u8]) {
    // SAFETY: the assembly contains no instruction. The compiler sees the address escape to code
    // that may write the bytes behind it. So from here on each byte has the value that the memory
    // holds. The pages were zeroed or written, so that value is stable.
    unsafe { asm!("/* {0} */", in(reg) bytes.as_mut_ptr(), options(nostack, preserves_flags)) };
}

#[cfg(test)]
mod tests {
    use farside_macros::Wire;

    use super::*;

    #[test]
    fn bytes_round_trip() {
        let value = (7_u8, String::from("seven"), vec![(1_u8, 2_u64); 3], Some(Box::new(-1_i16)));
        let bytes = to_bytes(value.clone());
        assert_eq!(bytes.len(), value.wire_bytes());
        // SAFETY: just written by `to_bytes` of the same type.
        assert_eq!(unsafe { from_bytes(&bytes) }, Ok(value));
    }

    #[test]
    fn padding_is_initialised() {
        #[derive(Clone, Wire)]
        #[wire(crate = "crate")]
        #[repr(C)]
        struct Gaps(u8, u64, u16);

        let bytes = to_bytes(vec![Gaps(0xA1, 0xB2, 0xC3); 4]);
        assert_eq!(bytes.len(), 8 + 4 * size_of::<Gaps>());
        // Reading every byte would detect uninitialised padding.
        assert!(bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>() >= 4 * (0xA1 + 0xB2 + 0xC3));
    }

    #[test]
    fn bytes_behind_the_value_are_refused() {
        let mut bytes = to_bytes(0x0102_0304_u32);
        bytes.push(5);
        // SAFETY: any bytes are a valid `u32`.
        let error = unsafe { from_bytes::<u32>(&bytes) }.unwrap_err();
        assert_eq!(error, WireError::LeftOver { type_name: "u32", left_bytes: 1 });
    }

    #[test]
    fn the_empty_value_has_no_bytes() {
        assert_eq!(to_bytes(()), Vec::<u8>::new());
        // SAFETY: `()` has no bytes.
        assert_eq!(unsafe { from_bytes::<()>(&[]) }, Ok(()));
    }
}
