//! What may travel inside a job: [`Wire`].

use std::marker::PhantomData;

/// A value that may travel from one process of a job to another.
///
/// # Safety
/// See the methods.
pub unsafe trait Wire: Sized + Send + 'static {
    /// Every value travels as its own `size_of::<Self>()` bytes, padding included.
    const PLAIN: bool;
    /// How many bytes [`write`](Self::write) will write.
    fn wire_bytes(&self) -> usize;
    /// Moves the value out to `out`.
    ///
    /// # Safety
    /// `out` is valid for writes of `self.wire_bytes()` bytes. It need not be aligned.
    unsafe fn write(self, out: *mut u8);
    /// Moves a value in.
    ///
    /// # Safety
    /// The bytes at `input` were written by `write` of the same type, by a process that runs the same binary.
    unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError>;
}

/// The bytes of a record that are still to be read.
#[derive(Debug)]
pub struct Reader<'a> {
    next: *const u8,
    end: *const u8,
    record: PhantomData<&'a [u8]>,
}

/// The bytes of a record do not hold what its type says.
#[derive(Debug)]
pub struct WireError;
