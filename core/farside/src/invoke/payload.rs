//! The payload of a record: everything besides its header.

use crate::wire::Wire;

/// A payload that can be written into a record, and that is handed back when there is no room.
pub trait Payload: Sized {
    fn bytes(&self) -> usize;

    /// # Safety
    /// `out` is valid for writes of `self.bytes()` bytes and aligned to 8.
    unsafe fn write(self, out: *mut u8);
}

/// A payload of any type, for the slow paths, which are compiled once for all types. Writing it
/// consumes it.
pub(crate) trait AnyPayload {
    fn bytes(&self) -> usize;

    /// # Safety
    /// The contract of [`Payload::write`].
    unsafe fn write(&mut self, out: *mut u8);
}

impl<P: Payload> AnyPayload for Option<P> {
    fn bytes(&self) -> usize {
        self.as_ref().map_or(0, P::bytes)
    }

    unsafe fn write(&mut self, out: *mut u8) {
        if let Some(payload) = self.take() {
            // SAFETY: by the contract.
            unsafe { payload.write(out) };
        }
    }
}

impl Payload for &mut (dyn AnyPayload + '_) {
    fn bytes(&self) -> usize {
        (**self).bytes()
    }

    unsafe fn write(self, out: *mut u8) {
        // SAFETY: by the contract.
        unsafe { (*self).write(out) };
    }
}

/// The arguments of a call.
#[derive(Debug)]
pub(crate) struct Arguments<A>(pub(crate) A);

impl<A: Wire> Payload for Arguments<A> {
    #[inline(always)]
    fn bytes(&self) -> usize {
        if A::PLAIN { size_of::<A>() } else { self.0.wire_bytes() }
    }

    #[inline(always)]
    unsafe fn write(self, out: *mut u8) {
        // SAFETY: by the contract `out` has room for `bytes` bytes: `wire_bytes`, which for a plain
        // type is its size.
        unsafe { self.0.write(out) };
    }
}

/// The arguments of a call, and a buffer that travels with them.
///
/// On the wire: the buffer's length, the buffer, zeroes to a multiple of 8, the arguments.
#[derive(Debug)]
pub(crate) struct WithBuffer<'a, A> {
    pub(crate) arguments: A,
    pub(crate) buffer: &'a [u8],
}

/// The bytes before the buffer: its length.
pub(crate) const BUFFER_LENGTH_BYTES: usize = 8;

impl<A: Wire> Payload for WithBuffer<'_, A> {
    fn bytes(&self) -> usize {
        // A slice is at most `isize::MAX` long, so only the arguments could overflow the sum.
        (BUFFER_LENGTH_BYTES + self.buffer.len().next_multiple_of(8)).saturating_add(self.arguments.wire_bytes())
    }

    unsafe fn write(self, out: *mut u8) {
        let length = out.cast::<u64>();
        // SAFETY: `out` has room for 8 bytes and is aligned to 8.
        unsafe { length.write(self.buffer.len() as u64) };
        let buffer_at = out.wrapping_add(BUFFER_LENGTH_BYTES);
        // SAFETY: `out` has room for the buffer after its length; a record's memory is not a slice
        // of this process.
        unsafe { std::ptr::copy_nonoverlapping(self.buffer.as_ptr(), buffer_at, self.buffer.len()) };
        let arguments_at = buffer_at.wrapping_add(self.buffer.len().next_multiple_of(8));
        // SAFETY: `bytes` reserved `wire_bytes` bytes behind the padded buffer.
        unsafe { self.arguments.write(arguments_at) };
    }
}
