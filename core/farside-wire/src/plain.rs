//! Plain values: numbers and other types that travel as their own bytes.

use std::marker::PhantomData;
use std::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroIsize, NonZeroU8, NonZeroU16, NonZeroU32,
    NonZeroU64, NonZeroU128, NonZeroUsize, Wrapping,
};
use std::time::Duration;

use super::{Decoder, Encoder, Reader, Schema, Wire, WireError, read_plain};

/// The common part of the implementations of plain types: everything but `read`.
#[doc(hidden)]
#[macro_export]
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
            unsafe { $crate::write_plain(self, out) };
        }
    };
}

/// The implementation of a plain type whose bytes are trusted, including `read`. Other crates use
/// it for types with parameters.
#[doc(hidden)]
#[macro_export]
macro_rules! plain_whole {
    () => {
        $crate::plain_but_read!();

        #[inline(always)]
        unsafe fn read(input: &mut $crate::Reader<'_>) -> std::result::Result<Self, $crate::WireError> {
            // SAFETY: the caller vouches for plain values.
            unsafe { $crate::read_plain(input) }
        }
    };
}

/// Implements types whose bytes are trusted: promises 1 to 5 of [`Wire`], for values without
/// address or destructor.
macro_rules! plain {
    ($($type:ty { $($portable:tt)* })*) => {$(
        // SAFETY: (1) a number or a time span, the same everywhere; (2, 4, 5) `write_plain` and
        // `read_plain` copy `size_of` bytes; (3) there is no destructor.
        unsafe impl Wire for $type {
            plain_whole!();

            $($portable)*
        }
    )*};
}

/// The bytes of numbers that are decoded at once. For longer copies, libc's `memcpy` uses `rep
/// movsb`. On Zen 4 that copies one byte a cycle if the target lies a few bytes behind the source,
/// modulo 4096. So do new memory and the bytes behind the length of a `Vec`.
const COPIED_AT_ONCE: usize = 1024;

/// Implements numbers. Between different binaries each travels as its own bytes, little endian.
macro_rules! numbers {
    ($($type:ident)*) => {
        plain! {$(
            $type {
                #[inline]
                fn describe(schema: &mut Schema) {
                    schema.word(stringify!($type));
                    schema.bytes(size_of::<Self>());
                }

                #[inline]
                fn encode(&self, out: &mut Encoder) {
                    out.bytes(&self.to_le_bytes());
                }

                #[inline]
                fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
                    Ok(Self::from_le_bytes(input.array::<Self, _>()?))
                }

                #[inline]
                fn encode_each(values: &[Self], out: &mut Encoder) {
                    let room = out.room(size_of_val(values));
                    for (place, value) in room.as_chunks_mut().0.iter_mut().zip(values) {
                        *place = value.to_le_bytes();
                    }
                }

                #[inline]
                fn decode_each(count: usize, input: &mut Decoder<'_>) -> Result<Vec<Self>, WireError> {
                    let bytes = input.take::<Vec<Self>>(count.saturating_mul(size_of::<Self>()))?;
                    let mut values = Vec::with_capacity(count);
                    for block in bytes.chunks(COPIED_AT_ONCE) {
                        values.extend(block.as_chunks().0.iter().map(|bytes| Self::from_le_bytes(*bytes)));
                    }
                    Ok(values)
                }
            }
        )*}
    };
}

/// Implements types that travel as another type between different binaries.
macro_rules! as_another {
    ($($type:ident = $raw:ty where $raw_of:expr, $made_of:expr;)*) => {
        plain! {$(
            $type {
                as_another!(@portable $type = $raw where $raw_of, $made_of);
            }
        )*}
    };
    (@portable $type:ident = $raw:ty where $raw_of:expr, $made_of:expr) => {
        #[inline]
        fn describe(schema: &mut Schema) {
            schema.word(stringify!($type));
            <$raw>::describe(schema);
        }

        #[inline]
        fn encode(&self, out: &mut Encoder) {
            let raw_of: fn(&Self) -> $raw = $raw_of;
            raw_of(self).encode(out);
        }

        #[inline]
        fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
            let made_of: fn($raw) -> Result<Self, WireError> = $made_of;
            made_of(<$raw>::decode(input)?)
        }
    };
}

/// Implements types that exclude some values of another type. A value that is read by itself is
/// checked, which costs a comparison. Inside a plain container its bytes are trusted.
macro_rules! plain_checked {
    ($($type:ident = $raw:ty where $check:expr, $raw_of:expr;)*) => {$(
        // SAFETY: (1) a number or a character, the same everywhere; (2, 4) it has the size of the
        // raw type, which is read, and is made from it by a checked conversion; (5) the check
        // changes nothing for valid bytes; (3) there is no destructor.
        unsafe impl Wire for $type {
            plain_but_read!();

            #[inline(always)]
            unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
                // SAFETY: any bytes are a valid number.
                let raw: $raw = unsafe { read_plain(input) }?;
                let check: fn($raw) -> Option<Self> = $check;
                check(raw).ok_or_else(|| WireError::invalid::<Self>(raw as u64))
            }

            as_another!(@portable $type = $raw where $raw_of, |raw| {
                let check: fn($raw) -> Option<Self> = $check;
                check(raw).ok_or_else(|| WireError::invalid::<Self>(raw as u64))
            });
        }
        const _: () = assert!(size_of::<$type>() == size_of::<$raw>());
    )*};
}

numbers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

as_another! {
    usize = u64 where |this| *this as u64, |raw| usize::try_from(raw).map_err(|_| WireError::invalid::<usize>(raw));
    isize = i64 where |this| *this as i64, |raw| isize::try_from(raw).map_err(|_| WireError::invalid::<isize>(raw as u64));
    Duration = (u64, u32) where |this| (this.as_secs(), this.subsec_nanos()), duration;
}

fn duration((seconds, nanoseconds): (u64, u32)) -> Result<Duration, WireError> {
    match nanoseconds {
        ..1_000_000_000 => Ok(Duration::new(seconds, nanoseconds)),
        _ => Err(WireError::invalid::<Duration>(nanoseconds)),
    }
}

plain! {
    () {
        #[inline]
        fn describe(schema: &mut Schema) {
            schema.word("()");
        }

        #[inline]
        fn encode(&self, _: &mut Encoder) {}

        #[inline]
        fn decode(_: &mut Decoder<'_>) -> Result<Self, WireError> {
            Ok(())
        }
    }
}

plain_checked! {
    bool = u8 where |raw| (raw < 2).then_some(raw == 1), |this| u8::from(*this);
    char = u32 where char::from_u32, |this| u32::from(*this);
    NonZeroU8 = u8 where Self::new, |this| this.get();
    NonZeroU16 = u16 where Self::new, |this| this.get();
    NonZeroU32 = u32 where Self::new, |this| this.get();
    NonZeroU64 = u64 where Self::new, |this| this.get();
    NonZeroU128 = u128 where Self::new, |this| this.get();
    NonZeroUsize = usize where Self::new, |this| this.get();
    NonZeroI8 = i8 where Self::new, |this| this.get();
    NonZeroI16 = i16 where Self::new, |this| this.get();
    NonZeroI32 = i32 where Self::new, |this| this.get();
    NonZeroI64 = i64 where Self::new, |this| this.get();
    NonZeroI128 = i128 where Self::new, |this| this.get();
    NonZeroIsize = isize where Self::new, |this| this.get();
}

// SAFETY: it has no bytes and no destructor.
unsafe impl<T: Send + 'static> Wire for PhantomData<T> {
    plain_but_read!();

    #[inline(always)]
    unsafe fn read(_input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self)
    }

    #[inline]
    fn describe(schema: &mut Schema) {
        schema.word("PhantomData");
    }

    #[inline]
    fn encode(&self, _: &mut Encoder) {}

    #[inline]
    fn decode(_: &mut Decoder<'_>) -> Result<Self, WireError> {
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
        // SAFETY: the caller keeps the contract of `T::write`, which is the same.
        unsafe { self.0.write(out) };
    }

    #[inline(always)]
    unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        // SAFETY: the caller keeps the contract of `T::read`, which is the same.
        unsafe { T::read(input) }.map(Self)
    }

    #[inline]
    fn describe(schema: &mut Schema) {
        T::describe(schema);
    }

    #[inline]
    fn encode(&self, out: &mut Encoder) {
        self.0.encode(out);
    }

    #[inline]
    fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
        T::decode(input).map(Self)
    }
}
