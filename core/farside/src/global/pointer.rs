//! Global addresses of single values.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use farside_fabric::ProcessId;
use farside_sys::prefetch;

use super::slice::GlobalSlice;
use crate::error::Result;
use crate::memory::address::GlobalAddress;
use crate::runtime::worker::Worker;
use crate::wire::{Decoder, Encoder, Reader, Schema, Wire, WireError};

/// The address of a value of a type, anywhere in the job.
///
/// It is copied, compared and computed with like a pointer, and used through a [`Worker`]. Values
/// are copied in and out, so all bytes must be a value of their type ([`Pod`]: numbers, arrays of
/// them, and `#[repr(C)]` structures that derive it). No reference points to the memory. A global
/// pointer is itself such a value, so memory may hold global pointers.
///
/// ```no_run
/// # use farside::prelude::*;
/// use farside::{GlobalAddress, GlobalPtr};
///
/// # fn example(me: &Worker) -> farside::Result<()> {
/// // A counter in the starter memory of process 0, whose address every process knows.
/// let counter: GlobalPtr<u64> = GlobalAddress::starter(ProcessId::new(0), 0).cast();
/// let ticket = counter.fetch_add(me, 1)?;
/// // Memory of another process, and the address of its third number.
/// let memory = me.allocate_at(ProcessId::new(1), 4096)?;
/// let numbers: GlobalPtr<f64> = memory.address()?.cast();
/// numbers.add(2)?.put(me, 0.5)?;
/// assert_eq!(numbers.add(2)?.get(me)?, 0.5);
/// # let _ = ticket;
/// # Ok(())
/// # }
/// ```
///
/// [`field!`](crate::field) leads from the address of a structure to that of one of its fields.
#[repr(transparent)]
pub struct GlobalPtr<T> {
    address: GlobalAddress,
    of: PhantomData<fn() -> T>,
}

impl<T> GlobalPtr<T> {
    /// The null pointer.
    pub const NULL: Self = Self::new(GlobalAddress::NULL);

    /// Returns the address as that of a value. Nothing is checked; a value that is not aligned
    /// there is an error when it is used.
    pub const fn new(address: GlobalAddress) -> Self {
        Self { address, of: PhantomData }
    }

    /// Returns the address without the type.
    pub const fn address(self) -> GlobalAddress {
        self.address
    }

    /// Returns whether it is null.
    pub const fn is_null(self) -> bool {
        self.address.is_null()
    }

    /// Returns the process whose memory it names; `None` for null.
    pub const fn process(self) -> Option<ProcessId> {
        self.address.process()
    }

    /// Returns the same address, as that of another type.
    pub const fn cast<U>(self) -> GlobalPtr<U> {
        GlobalPtr::new(self.address)
    }

    /// Returns the address `count` values further.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) beyond the last address of the
    /// process, and for null. An address outside of its region is refused when it is used.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "as pointers of the language have it")]
    pub fn add(self, count: usize) -> Result<Self> {
        match (count as u64).checked_mul(size_of::<T>() as u64).and_then(|bytes| self.address.checked_add(bytes)) {
            Some(address) => Ok(Self::new(address)),
            None => Err(self.address.moved_outside(count as u64, size_of::<T>())),
        }
    }

    /// Returns the address `count` values before.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) before the first address of
    /// the process, and for null. An address outside of its region is refused when it is used.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "as pointers of the language have it")]
    pub fn sub(self, count: usize) -> Result<Self> {
        match (count as u64).checked_mul(size_of::<T>() as u64).and_then(|bytes| self.address.checked_sub(bytes)) {
            Some(address) => Ok(Self::new(address)),
            None => Err(self.address.moved_outside(count as u64, size_of::<T>())),
        }
    }

    /// Returns the number of values from `earlier` to this address. `None` if they are in different
    /// processes, in the other order, or no whole number of values apart. The distance between
    /// addresses of different regions means nothing.
    pub fn offset_from(self, earlier: Self) -> Option<usize> {
        let bytes = self.address.bytes_from(earlier.address)? as usize;
        let size = size_of::<T>().max(1);
        bytes.is_multiple_of(size).then(|| bytes / size)
    }

    /// Returns the slice of `len` values that begins here.
    pub const fn slice(self, length: usize) -> GlobalSlice<T> {
        GlobalSlice::new(self, length)
    }

    /// Asks the processor for the cache line of the value, which this worker will read soon. Many
    /// values are read faster if each is asked for while earlier ones are read.
    ///
    /// This is a hint and reads nothing. It has an effect where the memory is mapped and this
    /// worker has accessed its region before. The value may be freed or elsewhere.
    ///
    /// *Cost*: about a nanosecond.
    ///
    /// ```
    /// # use farside::prelude::*;
    /// # farside::simulate(2, 1, 1, |me| {
    /// let numbers = me.global_array::<u64>(1000)?;
    /// let at = |index: usize| numbers.at(index * 7 % 1000);
    /// let mut sum = 0;
    /// for index in 0..1000 {
    ///     at(index + 8)?.prefetch(me);
    ///     sum += at(index)?.get(me)?;
    /// }
    /// assert_eq!(sum, 0);
    /// # me.barrier()
    /// # }).unwrap();
    /// ```
    #[inline]
    pub fn prefetch(self, me: &Worker) {
        if let Some(place) = me.mapped(self.address, size_of::<T>()) {
            prefetch::prefetch(place);
        }
    }

    /// Asks the processor for the cache line of the value, which this worker will change soon: a
    /// [`prefetch`](Self::prefetch) that also takes the line from other processors.
    #[inline]
    pub fn prefetch_to_write(self, me: &Worker) {
        if let Some(place) = me.mapped(self.address, size_of::<T>()) {
            prefetch::prefetch_to_write(place);
        }
    }

    /// Returns the address of a part of the value, for [`field!`](crate::field).
    #[doc(hidden)]
    #[inline]
    pub fn project<F>(self, offset: usize, _part: fn(&T) -> &F) -> Result<GlobalPtr<F>> {
        match self.address.checked_add(offset as u64) {
            Some(address) => Ok(GlobalPtr::new(address)),
            None => Err(self.address.moved_outside(1, offset)),
        }
    }
}

impl<T: Pod> GlobalPtr<T> {
    /// Writes a value.
    ///
    /// *Completion*: when it returns, the value is visible to any worker that learns of the put.
    /// Workers that read it meanwhile may see a part of it, unless it is a word of at most eight
    /// bytes.
    ///
    /// *Cost*: about 2 ns for a number where the memory is mapped; otherwise a round trip. The
    /// first use of a region asks its owner's service thread for it.
    ///
    /// ACP's copy, where one end is a value of the caller.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, or one out of range; [`Error::PeerLost`](crate::Error::PeerLost) if
    /// the owner is lost; [`Error::Fabric`](crate::Error::Fabric) if it does not answer in time, or
    /// the transport fails; [`Error::InHandler`](crate::Error::InHandler) if a handler would have
    /// to wait for it.
    #[inline]
    #[track_caller]
    pub fn put(self, me: &Worker, value: T) -> Result<()> {
        me.put_value(self.address, &value)
    }

    /// Reads a value.
    ///
    /// *Cost*: that of [`put`](Self::put). A value of more than eight bytes that other workers
    /// write meanwhile may be torn.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale or
    /// misaligned address, or one out of range; [`Error::PeerLost`](crate::Error::PeerLost) if the
    /// owner is lost; [`Error::Fabric`](crate::Error::Fabric) if it does not answer in time, or the
    /// transport fails; [`Error::InHandler`](crate::Error::InHandler) if a handler would have to
    /// wait for it.
    #[inline]
    #[track_caller]
    pub fn get(self, me: &Worker) -> Result<T> {
        let mut value = T::zeroed();
        me.get_value(self.address, &mut value)?;
        Ok(value)
    }

    /// Reads a value that other workers may write meanwhile, and that the caller verifies. It is a
    /// [`get`](Self::get) that the [access checker](crate::check) does not report.
    ///
    /// This is for optimistic reads: the value may be a mix of old and new bytes, so something in
    /// it or next to it must show whether it is whole. A version that changes with each write does
    /// so where the memory is mapped: [`load`](Self::load) the version, look, make a
    /// [`fence`](std::sync::atomic::fence) with acquire ordering, and load the version again. Where
    /// a put may arrive in pieces, only a checksum does.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale or
    /// misaligned address, or one out of range; [`Error::PeerLost`](crate::Error::PeerLost) if the
    /// owner is lost; [`Error::Fabric`](crate::Error::Fabric) if it does not answer in time, or the
    /// transport fails; [`Error::InHandler`](crate::Error::InHandler) if a handler would have to
    /// wait for it.
    #[inline]
    #[track_caller]
    pub fn look(self, me: &Worker) -> Result<T> {
        let mut value = T::zeroed();
        me.look_value(self.address, &mut value)?;
        Ok(value)
    }
}

impl GlobalAddress {
    /// The address as that of a value.
    pub const fn cast<T>(self) -> GlobalPtr<T> {
        GlobalPtr::new(self)
    }
}

// SAFETY: it is a `GlobalAddress`, for which all zero is null.
unsafe impl<T> Zeroable for GlobalPtr<T> {}
// SAFETY: transparently a `GlobalAddress`, which is `Pod`: any 64 bits are one. It owns no `T`.
unsafe impl<T: 'static> Pod for GlobalPtr<T> {}

// SAFETY: all five promises are those of the `GlobalAddress` that it transparently is.
unsafe impl<T: 'static> Wire for GlobalPtr<T> {
    const PLAIN: bool = GlobalAddress::PLAIN;

    #[inline(always)]
    fn wire_bytes(&self) -> usize {
        self.address.wire_bytes()
    }

    #[inline(always)]
    unsafe fn write(self, out: *mut u8) {
        // SAFETY: the caller passes room for as many bytes as the address has.
        unsafe { self.address.write(out) };
    }

    #[inline(always)]
    unsafe fn read(input: &mut Reader<'_>) -> std::result::Result<Self, WireError> {
        // SAFETY: the caller promises that plain values may be believed.
        let address = unsafe { GlobalAddress::read(input) };
        address.map(Self::new)
    }

    fn describe(schema: &mut Schema) {
        GlobalAddress::describe(schema);
    }

    fn encode(&self, out: &mut Encoder) {
        self.address.encode(out);
    }

    fn decode(input: &mut Decoder<'_>) -> std::result::Result<Self, WireError> {
        GlobalAddress::decode(input).map(Self::new)
    }
}

// Implemented by hand, since a derive would require the same of `T`.
impl<T> Clone for GlobalPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for GlobalPtr<T> {}

impl<T> Default for GlobalPtr<T> {
    fn default() -> Self {
        Self::NULL
    }
}

impl<T> PartialEq for GlobalPtr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl<T> Eq for GlobalPtr<T> {}

impl<T> PartialOrd for GlobalPtr<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for GlobalPtr<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.address.cmp(&other.address)
    }
}

impl<T> Hash for GlobalPtr<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address.hash(state);
    }
}

impl<T> fmt::Debug for GlobalPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.address, f)
    }
}

/// Returns the address of a field: `field!(pointer, Type, field)`, or of a nested one,
/// `field!(pointer, Type, field.inner)`.
///
/// ```
/// use farside::bytemuck::{Pod, Zeroable};
/// use farside::{GlobalPtr, GlobalAddress, ProcessId, field};
///
/// #[derive(Clone, Copy, Pod, Zeroable)]
/// #[bytemuck(crate = "farside::bytemuck")]
/// #[repr(C)]
/// struct Node {
///     next: GlobalPtr<Node>,
///     value: u64,
/// }
///
/// # fn main() -> farside::Result<()> {
/// let node: GlobalPtr<Node> = GlobalAddress::starter(ProcessId::new(0), 64).cast();
/// let value: GlobalPtr<u64> = field!(node, Node, value)?;
/// assert_eq!(value.address().offset(), 72);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`GlobalError::Address`](crate::global::GlobalError::Address) beyond the last address of the
/// process, and for null.
#[macro_export]
macro_rules! field {
    ($pointer:expr, $type:ty, $($field:ident).+) => {
        $crate::GlobalPtr::<$type>::project(
            $pointer,
            ::std::mem::offset_of!($type, $($field).+),
            |whole| &whole.$($field).+,
        )
    };
}
