//! Values made of parts: arrays, tuples, `Option`, `Result`. They are plain if all their parts are.

use std::array;

use super::{Decoder, Encoder, Reader, Schema, Wire, WireError, read_plain, write_next, write_plain};

/// The number of bytes of a variant's number on the wire, for enums that are not plain.
const TAG_BYTES: usize = size_of::<u32>();

// SAFETY: plain if its elements are, and then (5) one copy. Otherwise (1, 3) the elements travel,
// as `T` promises; (2, 4) `write` and `read` go through the same elements; (6) there is at least
// one element, as an empty array is plain.
unsafe impl<T: Wire, const N: usize> Wire for [T; N] {
    const PLAIN: bool = T::PLAIN || N == 0;

    #[inline(always)]
    fn wire_bytes(&self) -> usize {
        if Self::PLAIN {
            size_of::<Self>()
        } else {
            self.iter().fold(0, |sum: usize, element| sum.saturating_add(element.wire_bytes()))
        }
    }

    #[inline(always)]
    unsafe fn write(self, mut out: *mut u8) {
        if Self::PLAIN {
            // SAFETY: the caller passes room for `wire_bytes`; an array of plain elements is plain.
            unsafe { write_plain(self, out) };
        } else {
            for element in self {
                // SAFETY: the room that the caller passes is the sum of what the elements need.
                out = unsafe { write_next(element, out) };
            }
        }
    }

    #[inline(always)]
    unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        if Self::PLAIN {
            // SAFETY: the caller vouches for plain values, and an array of plain elements is one.
            unsafe { read_plain(input) }
        } else {
            // SAFETY: the caller vouches for the plain values in each element.
            array_of(|| unsafe { T::read(input) })
        }
    }

    #[inline]
    fn describe(schema: &mut Schema) {
        schema.word("array");
        schema.number(N as u64);
        schema.repeated(N, T::describe);
    }

    #[inline]
    fn encode(&self, out: &mut Encoder) {
        T::encode_each(self, out);
    }

    #[inline]
    fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
        array_of(|| T::decode(input))
    }
}

/// Reads an array element by element.
#[inline]
fn array_of<T, const N: usize>(mut read: impl FnMut() -> Result<T, WireError>) -> Result<[T; N], WireError> {
    let mut failure = None;
    let elements: [Option<T>; N] = array::from_fn(|_| {
        if failure.is_some() {
            return None;
        }
        read().map_err(|error| failure = Some(error)).ok()
    });
    match failure {
        Some(error) => Err(error),
        None => Ok(elements.map(|element| element.expect("each element was read, as none failed"))),
    }
}

// SAFETY: plain if the value is, and then (5) one copy. Otherwise (1, 3) the value travels, as `T`
// promises; (2, 4) the tag says whether it follows; (6) the tag has 4 bytes.
unsafe impl<T: Wire> Wire for Option<T> {
    const PLAIN: bool = T::PLAIN;

    #[inline(always)]
    fn wire_bytes(&self) -> usize {
        match self {
            _ if Self::PLAIN => size_of::<Self>(),
            None => TAG_BYTES,
            Some(value) => value.wire_bytes().saturating_add(TAG_BYTES),
        }
    }

    #[inline(always)]
    unsafe fn write(self, out: *mut u8) {
        if Self::PLAIN {
            // SAFETY: the caller passes room for `wire_bytes`; an option of a plain value is plain.
            return unsafe { write_plain(self, out) };
        }
        let tag = u32::from(self.is_some());
        // SAFETY: the caller passes room for `wire_bytes`, of which the tag is the first part.
        let out = unsafe { write_next(tag, out) };
        if let Some(value) = self {
            // SAFETY: the value is the rest.
            unsafe { value.write(out) };
        }
    }

    #[inline(always)]
    unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        if Self::PLAIN {
            // SAFETY: the caller vouches for plain values, and an option of one is one.
            return unsafe { read_plain(input) };
        }
        // SAFETY: any bytes are a valid `u32`.
        match unsafe { u32::read(input) }? {
            0 => Ok(None),
            // SAFETY: the caller vouches for the plain values in `T`.
            1 => unsafe { T::read(input) }.map(Some),
            tag => Err(WireError::invalid::<Self>(tag)),
        }
    }

    #[inline]
    fn describe(schema: &mut Schema) {
        schema.word("Option");
        schema.bytes(1);
        T::describe(schema);
    }

    #[inline]
    fn encode(&self, out: &mut Encoder) {
        out.bytes(&[u8::from(self.is_some())]);
        if let Some(value) = self {
            value.encode(out);
        }
    }

    #[inline]
    fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
        match input.array::<Self, 1>()? {
            [0] => Ok(None),
            [1] => T::decode(input).map(Some),
            [tag] => Err(WireError::invalid::<Self>(tag)),
        }
    }
}

// SAFETY: plain if both values are, and then (5) one copy. Otherwise (1, 3) the value travels, as
// `T` and `E` promise; (2, 4) the tag says which one follows; (6) the tag has 4 bytes.
unsafe impl<T: Wire, E: Wire> Wire for Result<T, E> {
    const PLAIN: bool = T::PLAIN && E::PLAIN;

    #[inline(always)]
    fn wire_bytes(&self) -> usize {
        match self {
            _ if Self::PLAIN => size_of::<Self>(),
            Ok(value) => value.wire_bytes().saturating_add(TAG_BYTES),
            Err(error) => error.wire_bytes().saturating_add(TAG_BYTES),
        }
    }

    #[inline(always)]
    unsafe fn write(self, out: *mut u8) {
        if Self::PLAIN {
            // SAFETY: the caller passes room for `wire_bytes`; a result of plain values is plain.
            return unsafe { write_plain(self, out) };
        }
        let tag = u32::from(self.is_err());
        // SAFETY: the caller passes room for `wire_bytes`, of which the tag is the first part.
        let out = unsafe { write_next(tag, out) };
        match self {
            // SAFETY: the value is the rest.
            Ok(value) => unsafe { value.write(out) },
            // SAFETY: the error is the rest.
            Err(error) => unsafe { error.write(out) },
        }
    }

    #[inline(always)]
    unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        if Self::PLAIN {
            // SAFETY: the caller vouches for plain values, and a result of plain values is one.
            return unsafe { read_plain(input) };
        }
        // SAFETY: any bytes are a valid `u32`.
        match unsafe { u32::read(input) }? {
            // SAFETY: the caller vouches for the plain values in `T`.
            0 => unsafe { T::read(input) }.map(Ok),
            // SAFETY: the caller vouches for the plain values in `E`.
            1 => unsafe { E::read(input) }.map(Err),
            tag => Err(WireError::invalid::<Self>(tag)),
        }
    }

    #[inline]
    fn describe(schema: &mut Schema) {
        schema.word("Result");
        schema.bytes(1);
        T::describe(schema);
        E::describe(schema);
    }

    #[inline]
    fn encode(&self, out: &mut Encoder) {
        out.bytes(&[u8::from(self.is_err())]);
        match self {
            Ok(value) => value.encode(out),
            Err(error) => error.encode(out),
        }
    }

    #[inline]
    fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
        match input.array::<Self, 1>()? {
            [0] => T::decode(input).map(Ok),
            [1] => E::decode(input).map(Err),
            [tag] => Err(WireError::invalid::<Self>(tag)),
        }
    }
}

/// Implements a tuple with the parts `$part`, whose fields are bound to `$field`.
macro_rules! tuple {
    ($($part:ident $field:ident),+) => {
        // SAFETY: plain if its parts are, and then (5) one copy. Otherwise (1, 3) the parts travel,
        // as their types promise; (2, 4) `write` and `read` go through the same parts; (6) the part
        // that is not plain has at least one byte.
        unsafe impl<$($part: Wire),+> Wire for ($($part,)+) {
            const PLAIN: bool = $($part::PLAIN)&&+;

            #[inline(always)]
            fn wire_bytes(&self) -> usize {
                if Self::PLAIN {
                    return size_of::<Self>();
                }
                let ($($field,)+) = self;
                0_usize$(.saturating_add($field.wire_bytes()))+
            }

            #[inline(always)]
            unsafe fn write(self, out: *mut u8) {
                if Self::PLAIN {
                    // SAFETY: the caller passes room for `wire_bytes`; a tuple of plain parts is
                    // plain.
                    return unsafe { write_plain(self, out) };
                }
                let ($($field,)+) = self;
                let end = out;
                $(
                    // SAFETY: the room that the caller passes is the sum of what the parts need.
                    let end = unsafe { write_next($field, end) };
                )+
                let _ = end;
            }

            #[inline(always)]
            unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
                if Self::PLAIN {
                    // SAFETY: the caller vouches for plain values, and a tuple of plain parts is
                    // one.
                    return unsafe { read_plain(input) };
                }
                $(
                    // SAFETY: the caller vouches for the plain values in each part.
                    let $field = unsafe { $part::read(input) }?;
                )+
                Ok(($($field,)+))
            }

            #[inline]
            fn describe(schema: &mut Schema) {
                schema.word("(");
                $($part::describe(schema);)+
                schema.word(")");
            }

            #[inline]
            fn encode(&self, out: &mut Encoder) {
                let ($($field,)+) = self;
                $($field.encode(out);)+
            }

            #[inline]
            fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
                Ok(($($part::decode(input)?,)+))
            }
        }
    };
}

tuple!(A a);
tuple!(A a, B b);
tuple!(A a, B b, C c);
tuple!(A a, B b, C c, D d);
tuple!(A a, B b, C c, D d, E e);
tuple!(A a, B b, C c, D d, E e, F f);
tuple!(A a, B b, C c, D d, E e, F f, G g);
tuple!(A a, B b, C c, D d, E e, F f, G g, H h);
tuple!(A a, B b, C c, D d, E e, F f, G g, H h, I i);
tuple!(A a, B b, C c, D d, E e, F f, G g, H h, I i, J j);
tuple!(A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k);
tuple!(A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k, L l);
