//! Values that own heap memory: `String`, `Vec<T>`, `Box<[T]>`, `Box<T>`.

use super::{Decoder, Encoder, Reader, Schema, Wire, WireError, read_plain, write_next};

/// The number of bytes of a length on the wire.
const LENGTH_BYTES: usize = size_of::<u64>();

/// The memory reserved for elements before they are read, in bytes per remaining record byte.
/// Values that are not plain may be wider in memory than on the wire: a `String` has 24 bytes
/// against at least 8.
const ELEMENT_BYTES_PER_WIRE_BYTE: usize = 4;

// SAFETY: (1, 3) the elements travel, as `T` promises, and the buffer stays at the sender; (2) the
// length and the elements are what `wire_bytes` counts; (4) the length is checked against the bytes
// that are left: by `take_for` for plain elements, and by `read_length` for others, as each of
// those has at least one byte; (6) the length has 8 bytes.
unsafe impl<T: Wire> Wire for Vec<T> {
    const PLAIN: bool = false;

    #[inline]
    fn wire_bytes(&self) -> usize {
        elements_bytes(self)
    }

    #[inline]
    unsafe fn write(mut self, out: *mut u8) {
        // SAFETY: the caller passes room for `wire_bytes`, of which the length is the first part.
        let mut out = unsafe { write_next(self.len() as u64, out) };
        if T::PLAIN {
            let bytes = size_of_val(self.as_slice());
            // The elements leave: the end of this function drops only the buffer.
            // SAFETY: 0 is within the capacity, and no element becomes initialised by this.
            unsafe { self.set_len(0) };
            // SAFETY: the elements are still in the buffer, which does not overlap `out`; behind
            // the length there is room for them. They are plain, so their bytes are their wire
            // form. Bytes may be uninitialised, which an untyped copy allows.
            unsafe { out.copy_from_nonoverlapping(self.as_ptr().cast(), bytes) };
        } else {
            for element in self {
                // SAFETY: the room that the caller passes is the sum of what the elements need.
                out = unsafe { write_next(element, out) };
            }
        }
    }

    #[inline]
    unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let length = read_length::<T>(input)?;
        if T::PLAIN {
            // SAFETY: the caller vouches for plain values, and `T` is plain.
            unsafe { read_all_plain(length, input) }
        } else {
            // SAFETY: the caller vouches for the plain values in each element.
            unsafe { read_each(length, input) }
        }
    }

    #[inline]
    fn describe(schema: &mut Schema) {
        schema.container::<Self>("Vec", T::describe);
    }

    #[inline]
    fn encode(&self, out: &mut Encoder) {
        out.elements(self);
    }

    #[inline]
    fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
        input.elements()
    }
}

/// Returns the number of bytes of a length and these elements.
#[inline]
fn elements_bytes<T: Wire>(elements: &[T]) -> usize {
    if T::PLAIN {
        LENGTH_BYTES + size_of_val(elements)
    } else {
        elements.iter().fold(LENGTH_BYTES, |sum, element| sum.saturating_add(element.wire_bytes()))
    }
}

/// Reads a length. Refuses it if the remaining bytes cannot hold that many elements.
#[inline]
fn read_length<T: Wire>(input: &mut Reader<'_>) -> Result<usize, WireError> {
    // SAFETY: any bytes are a valid `u64`.
    let length: u64 = unsafe { read_plain(input) }?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let least_bytes = if T::PLAIN { length.saturating_mul(size_of::<T>()) } else { length };
    if least_bytes > input.remaining() {
        return Err(WireError::truncated::<Vec<T>>(least_bytes, input.remaining()));
    }
    Ok(length)
}

/// Reads `length` plain elements with one copy.
///
/// # Safety
/// `T` is plain. `input` holds `length` values of it, unless it is too short.
#[inline]
unsafe fn read_all_plain<T: Wire>(length: usize, input: &mut Reader<'_>) -> Result<Vec<T>, WireError> {
    let bytes = length.saturating_mul(size_of::<T>());
    let from = input.take_for::<Vec<T>>(bytes)?;
    let mut elements = Vec::<T>::with_capacity(length);
    // SAFETY: `from` has `bytes` readable bytes, the fresh buffer has as many, and the two do not
    // overlap.
    unsafe { elements.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(from, bytes) };
    // SAFETY: the capacity is at least `length`, and the bytes of that many valid elements are
    // there.
    unsafe { elements.set_len(length) };
    Ok(elements)
}

/// Reads `length` elements one by one.
///
/// # Safety
/// That of [`Wire::read`] for each element.
#[inline]
unsafe fn read_each<T: Wire>(length: usize, input: &mut Reader<'_>) -> Result<Vec<T>, WireError> {
    let memory_bytes = input.remaining().saturating_mul(ELEMENT_BYTES_PER_WIRE_BYTE);
    let mut elements = Vec::with_capacity(length.min(memory_bytes / size_of::<T>().max(1)));
    for _ in 0..length {
        // SAFETY: the caller vouches for the plain values in each element.
        elements.push(unsafe { T::read(input) }?);
    }
    Ok(elements)
}

// SAFETY: it travels as the `Vec` of the same elements.
unsafe impl<T: Wire> Wire for Box<[T]> {
    const PLAIN: bool = false;

    #[inline]
    fn wire_bytes(&self) -> usize {
        elements_bytes(self)
    }

    #[inline]
    unsafe fn write(self, out: *mut u8) {
        // SAFETY: the caller passes room for `wire_bytes`, which is that of the `Vec`.
        unsafe { self.into_vec().write(out) };
    }

    #[inline]
    unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        // SAFETY: the caller vouches for the plain values in each element.
        unsafe { Vec::read(input) }.map(Vec::into_boxed_slice)
    }

    #[inline]
    fn describe(schema: &mut Schema) {
        Vec::<T>::describe(schema);
    }

    #[inline]
    fn encode(&self, out: &mut Encoder) {
        out.elements(self);
    }

    #[inline]
    fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
        Vec::decode(input).map(Vec::into_boxed_slice)
    }
}

/// The byte in front of the value of a `Box`. A value that is not plain must have at least one
/// byte, and without the tag the box of an empty value would have none.
const BOX_TAG: u8 = 1;

// SAFETY: (1, 3) the value travels, as `T` promises, and its memory stays at the sender; (2, 4) the
// tag and the value are what `wire_bytes` counts; (6) the tag is a byte.
unsafe impl<T: Wire> Wire for Box<T> {
    const PLAIN: bool = false;

    #[inline]
    fn wire_bytes(&self) -> usize {
        T::wire_bytes(self).saturating_add(size_of_val(&BOX_TAG))
    }

    #[inline]
    unsafe fn write(self, out: *mut u8) {
        // SAFETY: the caller passes room for `wire_bytes`, of which the tag is the first part.
        let out = unsafe { write_next(BOX_TAG, out) };
        // SAFETY: the value is the rest.
        unsafe { T::write(*self, out) };
    }

    #[inline]
    unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        // SAFETY: any byte is a valid `u8`.
        match unsafe { u8::read(input) }? {
            // SAFETY: the caller vouches for the plain values in `T`.
            BOX_TAG => unsafe { T::read(input) }.map(Self::new),
            tag => Err(WireError::invalid::<Self>(tag)),
        }
    }

    #[inline]
    fn describe(schema: &mut Schema) {
        schema.container::<Self>("Box", T::describe);
    }

    #[inline]
    fn encode(&self, out: &mut Encoder) {
        T::encode(self, out);
    }

    #[inline]
    fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
        input.inside::<Self, _>(T::decode).map(Self::new)
    }
}

// SAFETY: it travels as the `Vec<u8>` of its bytes, which are checked to be UTF-8 when they arrive.
unsafe impl Wire for String {
    const PLAIN: bool = false;

    #[inline]
    fn wire_bytes(&self) -> usize {
        LENGTH_BYTES + self.len()
    }

    #[inline]
    unsafe fn write(self, out: *mut u8) {
        // SAFETY: the caller passes room for `wire_bytes`, which is that of the `Vec`.
        unsafe { self.into_bytes().write(out) };
    }

    #[inline]
    unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        // SAFETY: any bytes are valid `u8`s.
        let bytes = unsafe { Vec::<u8>::read(input) }?;
        text(bytes)
    }

    #[inline]
    fn describe(schema: &mut Schema) {
        schema.word("String");
        u8::describe(schema);
        schema.any_bytes();
    }

    #[inline]
    fn encode(&self, out: &mut Encoder) {
        out.elements(self.as_bytes());
    }

    #[inline]
    fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
        text(Vec::decode(input)?)
    }
}

fn text(bytes: Vec<u8>) -> Result<String, WireError> {
    String::from_utf8(bytes).map_err(|error| WireError::NotUtf8 { valid_bytes: error.utf8_error().valid_up_to() })
}
