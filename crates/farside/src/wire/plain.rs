//! Numbers and other values that are their own bytes.

use farside_fabric::{MachineId, ProcessId, RemoteKey, WorkerId};
use std::marker::PhantomData;
use std::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroIsize, NonZeroU8, NonZeroU16, NonZeroU32,
    NonZeroU64, NonZeroU128, NonZeroUsize, Wrapping,
};
use std::time::Duration;

use super::{Reader, Wire, WireError, read_plain, write_plain};

/// What the implementations of plain types have in common: all but `read`.
macro_rules! plain_but_read {
    () => {
        const PLAIN: bool = true;

        #[inline(always)]
        fn wire_bytes(&self) -> usize {
            size_of::<Self>()
        }

        #[inline(always)]
        unsafe fn write(self, out: *mut u8) {
            // SAFETY: the caller passes room for `wire_bytes`, the size of the type.
            unsafe { write_plain(self, out) };
        }
    };
}

/// Types whose bytes are believed: promises 1 to 5 of [`Wire`], for values without address or destructor.
macro_rules! plain {
    ($($type:ty),* $(,)?) => {$(
        // SAFETY: (1) a number or a time span, the same everywhere; (2, 4, 5) `write_plain` and `read_plain` copy
        // `size_of` bytes; (3) there is no destructor.
        unsafe impl Wire for $type {
            plain_but_read!();

            #[inline(always)]
            unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
                // SAFETY: the caller vouches for plain values.
                unsafe { read_plain(input) }
            }
        }
    )*};
}

/// Types that are another type with some values left out. Where one is read by itself this is checked, as that costs a
/// comparison; inside a plain container its bytes are believed.
macro_rules! plain_checked {
    ($($type:ty = $raw:ty where $check:expr),* $(,)?) => {$(
        // SAFETY: (1) a number or a character, the same everywhere; (2, 4) it has the size of the raw type, which is
        // read, and is made from it by a checked conversion; (5) that adds nothing for valid bytes; (3) there is no
        // destructor.
        unsafe impl Wire for $type {
            plain_but_read!();

            #[inline(always)]
            unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
                // SAFETY: any bytes are a valid number.
                let raw: $raw = unsafe { read_plain(input) }?;
                let check: fn($raw) -> Option<Self> = $check;
                check(raw).ok_or_else(|| WireError::invalid::<Self>(raw as u64))
            }
        }
        const _: () = assert!(size_of::<$type>() == size_of::<$raw>());
    )*};
}

plain!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64, Duration, ());
// The names of the fabric travel as the numbers they are.
plain!(ProcessId, WorkerId, MachineId, RemoteKey);

plain_checked!(
    bool = u8 where |raw| (raw < 2).then_some(raw == 1),
    char = u32 where char::from_u32,
    NonZeroU8 = u8 where Self::new,
    NonZeroU16 = u16 where Self::new,
    NonZeroU32 = u32 where Self::new,
    NonZeroU64 = u64 where Self::new,
    NonZeroU128 = u128 where Self::new,
    NonZeroUsize = usize where Self::new,
    NonZeroI8 = i8 where Self::new,
    NonZeroI16 = i16 where Self::new,
    NonZeroI32 = i32 where Self::new,
    NonZeroI64 = i64 where Self::new,
    NonZeroI128 = i128 where Self::new,
    NonZeroIsize = isize where Self::new,
);

// SAFETY: it has no bytes and no destructor.
unsafe impl<T: Send + 'static> Wire for PhantomData<T> {
    plain_but_read!();

    #[inline(always)]
    unsafe fn read(_input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self)
    }
}

// SAFETY: a `Wrapping<T>` is a `T` (`repr(transparent)`), and does what `T` promises.
unsafe impl<T: Wire> Wire for Wrapping<T> {
    const PLAIN: bool = T::PLAIN;

    #[inline(always)]
    fn wire_bytes(&self) -> usize {
        self.0.wire_bytes()
    }

    #[inline(always)]
    unsafe fn write(self, out: *mut u8) {
        // SAFETY: as for `T`.
        unsafe { self.0.write(out) };
    }

    #[inline(always)]
    unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        // SAFETY: as for `T`.
        unsafe { T::read(input) }.map(Self)
    }
}
