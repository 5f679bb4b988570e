//! Global addresses of contiguous values.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use bytemuck::Pod;

use super::pointer::GlobalPtr;
use crate::error::Result;
use crate::global::AddressFault;
use crate::memory::{Place, RemoteMemory};
use crate::runtime::worker::Worker;
use crate::wire::{Decoder, Encoder, Schema, Wire, WireError, plain_whole};

/// Contiguous values of a type, anywhere in the job. They are copied in and out.
///
/// It is an address and a length, and can be sent to any worker. Nothing is checked before it is
/// used: an access that leaves its memory is an error then.
///
/// ```no_run
/// # use farside::prelude::*;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let (memory, numbers) = me.allocate_array::<u64>(me.neighbor(1), 100)?;
/// numbers.put(me, 10, &[1, 2, 3])?;
/// let mut back = [0; 3];
/// numbers.get(me, 10, &mut back)?;
/// assert_eq!((back, numbers.at(11)?.get(me)?), ([1, 2, 3], 2));
/// me.release(memory)
/// # }
/// ```
pub struct GlobalSlice<T> {
    start: GlobalPtr<T>,
    length: usize,
}

impl<T> GlobalSlice<T> {
    pub(crate) const fn new(start: GlobalPtr<T>, length: usize) -> Self {
        Self { start, length }
    }

    /// Returns the address of the first value.
    pub const fn start(&self) -> GlobalPtr<T> {
        self.start
    }

    /// Returns the number of values.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether it is empty.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the address of the value at `index`.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) if `index` is beyond the end.
    #[inline]
    pub fn at(&self, index: usize) -> Result<GlobalPtr<T>> {
        if index < self.length { self.start.add(index) } else { Err(self.outside(index, 1)) }
    }

    /// Returns a part of it.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) if the range ends beyond the
    /// end of the slice or before its own start.
    pub fn part(&self, range: Range<usize>) -> Result<Self> {
        let Some(length) = range.end.checked_sub(range.start) else {
            return Err(self.start.address().refused(AddressFault::Backwards { start: range.start, end: range.end }));
        };
        self.check(range.start, length)?;
        Ok(Self { start: self.start.add(range.start)?, length })
    }

    fn check(&self, index: usize, count: usize) -> Result<()> {
        match index.checked_add(count) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(self.outside(index, count)),
        }
    }

    #[cold]
    fn outside(&self, index: usize, count: usize) -> crate::Error {
        let bytes = |count: usize| (count as u64).saturating_mul(size_of::<T>() as u64);
        self.start.address().beyond(bytes(index).saturating_add(bytes(count)), bytes(self.length))
    }
}

impl<T: Pod> GlobalSlice<T> {
    /// Writes values at `index`.
    ///
    /// *Completion* and *cost*: those of [`GlobalPtr::put`], and a copy.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, or one out of range; [`Error::PeerLost`](crate::Error::PeerLost) if
    /// the owner is lost; [`Error::Fabric`](crate::Error::Fabric) if it does not answer in time, or
    /// the transport fails; [`Error::InHandler`](crate::Error::InHandler) if a handler would have
    /// to wait for it. If the values do not all fit, nothing is written.
    #[inline]
    #[track_caller]
    pub fn put(&self, me: &Worker, index: usize, values: &[T]) -> Result<()> {
        self.check(index, values.len())?;
        me.put_values(self.start.add(index)?.address(), values)
    }

    /// Reads values at `index` until `values` is full.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale or
    /// misaligned address, or one out of range; [`Error::PeerLost`](crate::Error::PeerLost) if the
    /// owner is lost; [`Error::Fabric`](crate::Error::Fabric) if it does not answer in time, or the
    /// transport fails; [`Error::InHandler`](crate::Error::InHandler) if a handler would have to
    /// wait for it. The contents of `values` are unspecified then.
    #[inline]
    #[track_caller]
    pub fn get(&self, me: &Worker, index: usize, values: &mut [T]) -> Result<()> {
        self.check(index, values.len())?;
        me.get_values(self.start.add(index)?.address(), values)
    }

    /// Reads values at `index` until `values` is full, as [`GlobalPtr::look`] does: other workers
    /// may write them meanwhile, and the caller verifies what was read.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale or
    /// misaligned address, or one out of range; [`Error::PeerLost`](crate::Error::PeerLost) if the
    /// owner is lost; [`Error::Fabric`](crate::Error::Fabric) if it does not answer in time, or the
    /// transport fails; [`Error::InHandler`](crate::Error::InHandler) if a handler would have to
    /// wait for it. The contents of `values` are unspecified then.
    #[inline]
    #[track_caller]
    pub fn look(&self, me: &Worker, index: usize, values: &mut [T]) -> Result<()> {
        self.check(index, values.len())?;
        me.look_values(self.start.add(index)?.address(), values)
    }

    /// Reads all values.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale or
    /// misaligned address, or one out of range; [`Error::PeerLost`](crate::Error::PeerLost) if the
    /// owner is lost; [`Error::Fabric`](crate::Error::Fabric) if it does not answer in time, or the
    /// transport fails; [`Error::InHandler`](crate::Error::InHandler) if a handler would have to
    /// wait for it.
    #[track_caller]
    pub fn to_vec(&self, me: &Worker) -> Result<Vec<T>> {
        me.check_address(self.start.address(), size_of::<T>().saturating_mul(self.length))?;
        let mut values = vec![T::zeroed(); self.length];
        self.get(me, 0, &mut values)?;
        Ok(values)
    }
}

// SAFETY: (1) a global address and a length mean the same in every process; (2, 4, 5) `write_plain`
// and `read_plain` copy `size_of` bytes, of which any are an address and a length; (3) there is no
// destructor.
unsafe impl<T: 'static> Wire for GlobalSlice<T> {
    plain_whole!();

    fn describe(schema: &mut Schema) {
        schema.word("GlobalSlice");
        <(GlobalPtr<T>, usize)>::describe(schema);
    }

    fn encode(&self, out: &mut Encoder) {
        (self.start, self.length).encode(out);
    }

    fn decode(input: &mut Decoder<'_>) -> std::result::Result<Self, WireError> {
        Wire::decode(input).map(|(start, length)| Self::new(start, length))
    }
}

impl Worker {
    pub(crate) fn allocate_array<T: Pod>(
        &self,
        place: impl Into<Place>,
        length: usize,
    ) -> Result<(RemoteMemory, GlobalSlice<T>)> {
        let memory = self.allocate_at(place, (length as u64).saturating_mul(size_of::<T>() as u64))?;
        match memory.address() {
            Ok(address) => Ok((memory, address.cast().slice(length))),
            Err(error) => self.release(memory).and(Err(error)),
        }
    }
}

// Implemented by hand, since a derive would require the same of `T`.
impl<T> Clone for GlobalSlice<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for GlobalSlice<T> {}

impl<T> PartialEq for GlobalSlice<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.start, self.length) == (other.start, other.length)
    }
}

impl<T> Eq for GlobalSlice<T> {}

impl<T> Hash for GlobalSlice<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.start, self.length).hash(state);
    }
}

impl<T> fmt::Debug for GlobalSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values at {:?}", self.length, self.start)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::memory::address::GlobalAddress;
    use crate::wire::{decode, encode, from_bytes, to_bytes};

    /// A type that implements neither `Wire` nor any of these traits.
    struct Bare;

    proptest! {
        #[test]
        fn any_bytes_are_a_slice_or_too_few(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let decoded = decode::<GlobalSlice<Bare>>(Decoder::new(&bytes), 0);
            prop_assert_eq!(decoded.is_ok(), bytes.len() == 16);
            if let Ok(slice) = decoded {
                prop_assert_eq!(encode(&slice, Vec::new()), bytes);
            }
        }

        #[test]
        fn a_slice_travels(bits: u64, length: usize) {
            let slice = GlobalAddress::from_bits(bits).cast::<Bare>().slice(length);
            prop_assert_eq!(slice.wire_bytes(), 16);
            // SAFETY: the bytes are those of the same type.
            let read = unsafe { from_bytes::<GlobalSlice<Bare>>(&to_bytes(slice)) };
            prop_assert_eq!(read, Ok(slice));
            prop_assert_eq!(decode(Decoder::new(&encode(&slice, Vec::new())), 0), Ok(slice));
            // So does one in a container, which is copied as a whole.
            // SAFETY: the bytes are those of the same type.
            let read = unsafe { from_bytes::<Vec<GlobalSlice<Bare>>>(&to_bytes(vec![slice; 3])) };
            prop_assert_eq!(read, Ok(vec![slice; 3]));
        }
    }

    #[test]
    fn slices_differ_by_place_and_length() {
        let start = GlobalAddress::from_bits(1 << 46).cast::<Bare>();
        let slices = [start.slice(1), start.slice(2), GlobalPtr::NULL.slice(1), start.slice(1)];
        assert_eq!(slices.into_iter().collect::<HashSet<_>>().len(), 3);
        assert_eq!(Schema::of::<GlobalSlice<Bare>>().unportable(), None);
    }
}
