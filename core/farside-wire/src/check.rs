//! One door through which tests drive every decoder of bytes that come from a peer or a socket.
//!
//! Each crate lists its messages as [`MessageKind`]s. A test and a fuzz target pass arbitrary bytes
//! to [`MessageKind::check`]. Both programs install [`Watched`] as their allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::any::type_name;
use std::cell::Cell;
use std::hint::black_box;

use super::{Decoder, Wire, WireError, decode, encode};

/// The memory that decoding a message and encoding it again may request: so much for each byte of
/// the message, unless its kind [says otherwise](MessageKind::requesting), and a fixed part.
const REQUEST_BYTES_PER_BYTE: u64 = 16;
const REQUEST_BYTES_FIXED: u64 = 1024;
/// More variants than any message has.
const VARIANTS_MAX: u32 = 256;

/// A kind of message, with its decoder.
#[derive(Clone, Copy, Debug)]
pub struct MessageKind {
    /// The name of its type.
    pub name: &'static str,
    /// The bytes with which every message begins.
    pub start: &'static [u8],
    /// The number of variants, whose number follows the start. 0 if the message has no variants.
    pub variants: u32,
    has_payload: bool,
    request_bytes_per_byte: u64,
    recode: Recode,
}

/// Decodes a message and encodes it again. Returns `None` if the bytes are refused.
type Recode = fn(&[u8]) -> Option<Vec<u8>>;

impl MessageKind {
    /// A message that is a `T` and nothing else.
    #[must_use]
    pub fn of<T: Wire>() -> Self {
        let is_refused = |variant: &u32| {
            let outcome = T::decode(&mut Decoder::new(&variant.to_le_bytes()));
            matches!(outcome, Err(WireError::Invalid { type_name: name, .. }) if name == type_name::<T>())
        };
        let variants = (0..VARIANTS_MAX).find(is_refused).unwrap_or(0);
        let recode: Recode = |bytes| decode::<T>(Decoder::new(bytes), 0).ok().map(|value| encode(&value, Vec::new()));
        Self { variants, has_payload: false, ..Self::by_hand(type_name::<T>(), recode) }
    }

    /// The message after `start`, decoded and encoded by `recode` as the program does it.
    #[must_use]
    pub fn through(self, start: &'static [u8], recode: Recode) -> Self {
        Self { start, recode, ..self }
    }

    /// A message with a payload behind it: bytes of any length that the decoder passes on.
    #[must_use]
    pub fn with_payload(self, recode: Recode) -> Self {
        Self { has_payload: true, recode, ..self }
    }

    /// A message of the hot path, which is encoded by hand and has a payload.
    #[must_use]
    pub fn by_hand(name: &'static str, recode: Recode) -> Self {
        let request_bytes_per_byte = REQUEST_BYTES_PER_BYTE;
        Self { name, start: &[], variants: 0, has_payload: true, request_bytes_per_byte, recode }
    }

    /// The same message, which may request this many bytes for each of its own: its parts take more
    /// memory than bytes.
    #[must_use]
    pub fn requesting(self, request_bytes_per_byte: u64) -> Self {
        Self { request_bytes_per_byte, ..self }
    }

    /// Decodes every prefix of `bytes`, and returns the last one that is a message.
    ///
    /// # Errors
    /// The rule that the decoder breaks:
    /// - It requests memory in proportion to its input.
    /// - A message encodes to the bytes that it was decoded from.
    /// - No prefix of a message is a message, unless it has a payload.
    ///
    /// # Panics
    /// If the decoder panics, or [`Watched`] is not the program's allocator.
    pub fn check<'a>(&self, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, String> {
        assert!(requested_by(|| black_box(Box::new(0_u64))).1 >= 8, "`Watched` must be the program's allocator");
        let mut message = None;
        for prefix in (0..=bytes.len()).map(|end| &bytes[..end]) {
            let (again, requested) = requested_by(|| (self.recode)(prefix));
            let max = REQUEST_BYTES_FIXED + self.request_bytes_per_byte * prefix.len() as u64;
            if requested > max {
                return Err(self.broken(prefix, &format!("{requested} B of memory requested, more than {max}")));
            }
            match again {
                None => continue,
                Some(again) if again != prefix => return Err(self.broken(prefix, "encoded to other bytes")),
                Some(_) if message.is_some() && !self.has_payload => {
                    return Err(self.broken(prefix, "a message, and so is a prefix of it"));
                }
                Some(_) => message = Some(prefix),
            }
        }
        Ok(message)
    }

    fn broken(&self, bytes: &[u8], what: &str) -> String {
        format!("{}: {bytes:?}: {what}", self.name)
    }
}

thread_local! {
    /// The bytes that this thread has requested so far.
    static REQUESTED_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// Returns the result of `run`, and the bytes that it requested from [`Watched`].
pub fn requested_by<T>(run: impl FnOnce() -> T) -> (T, u64) {
    let before = REQUESTED_BYTES.get();
    let result = run();
    (result, REQUESTED_BYTES.get() - before)
}

/// The system's allocator, which counts the bytes that each thread requests.
#[derive(Debug)]
pub struct Watched;

fn count(bytes: usize) {
    REQUESTED_BYTES.set(REQUESTED_BYTES.get().saturating_add(bytes as u64));
}

// SAFETY: every request goes to the system's allocator; a thread-local without destructor neither
// allocates nor unwinds.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and the memory came from `System`.
        unsafe { System.dealloc(memory, layout) };
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        count(new_bytes);
        // SAFETY: the caller keeps the contract of `realloc`, and the memory came from `System`.
        unsafe { System.realloc(memory, layout, new_bytes) }
    }
}
