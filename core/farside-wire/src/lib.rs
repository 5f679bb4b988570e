//! The codec of a job's messages: [`Wire`], the trait of the values that may travel.
//!
//! This crate knows no process and no worker. Handles get what they need from the context of a
//! [`Reader`] or [`Decoder`].
//!
//! Processes that run the same binary need no schema and no tags. Most values are *plain*, and
//! travel as the bytes that they already are. The sender takes apart a value that owns heap memory,
//! and the receiver puts it together again.
//!
//! | type | on the wire |
//! |---|---|
//! | plain: numbers, `bool`, `char`, `Duration`, arrays, tuples, `Option`, `Result` and derived types of plain parts | its own `size_of` bytes, padding included |
//! | `String`, `Vec<T>`, `Box<[T]>` | the length as `u64`, then the elements (one copy if `T` is plain) |
//! | `Box<T>` | a byte that is 1, then `T` |
//! | `Option`, `Result` and derived enums with a part that is not plain | the variant as `u32`, then its fields |
//! | arrays, tuples and derived structs with a part that is not plain | the parts in order |
//!
//! Nothing on the wire is aligned. All of it is in the byte order of the machine.
//!
//! # Between different binaries
//!
//! If separately built programs form one job, the layout of a type is not the same everywhere, and
//! no received bytes can be trusted. Values then travel in another encoding, in which every part is
//! checked when it is read: [`Wire::encode`] and [`Wire::decode`]. [`Wire::describe`] serves to
//! compare the types. Calls by name use this encoding, and so do collectives in such a job. A
//! derived `Wire` has all three functions. Encoding copies a value; the sender drops its own as
//! usual.

/// Paths for derived code, not for programs.
#[doc(hidden)]
pub mod wire {
    pub use crate::*;
}

mod attachment;
mod boxed;
#[doc(hidden)]
pub mod check;
mod compound;
mod encode;
mod error;
mod plain;
mod portable;
mod reader;
mod schema;

use std::mem::MaybeUninit;

pub use attachment::Attachment;
pub use encode::{from_bytes, from_bytes_in, to_bytes, write_to};
pub use error::WireError;
/// The derive macro for [`Wire`](trait@Wire).
pub use farside_macros::Wire;
pub use portable::{Decoder, Encoder, decode, encode};
pub use reader::Reader;
pub use schema::{Schema, hash_name, type_hash};
#[doc(hidden)]
pub use schema::{Shape, ShapeKind, Variant};

/// A value that may travel from one process of a job to another.
///
/// Sending is a *move*: the value leaves the sender, whose destructor does not run, and lives on at
/// the receiver. A record that never arrives, because its receiver died, leaks what it carries.
///
/// References, raw pointers, function pointers, `Rc`, `Arc` and guards are not `Wire`: they are
/// addresses of one process.
///
/// # Deriving
/// `#[derive(Wire)]` writes the implementation for structs and enums whose fields are all `Wire`,
/// also for types that implement `Drop`. Type parameters get the bound `T: Wire`. `#[wire(crate =
/// "path")]` names this crate if it is not `::farside`.
///
/// As with deserialising, any program that can send bytes can make any value of the type, whatever
/// the visibility of its fields. So methods check what must hold of a value, as for values from
/// elsewhere.
///
/// `#[wire(extensible)]` lets later versions of a struct have further fields at the end, between
/// processes of different binaries: a reader skips what it does not know, and a field that was not
/// sent has its default. All fields implement [`Default`].
///
/// `#[wire(word = "crate::Type")]` adds a word to the [description](Self::describe): a type without
/// it, but with the same fields, is then another type.
///
/// ```
/// # extern crate farside_wire as farside;
/// # fn main() {}
/// use farside::Wire;
///
/// #[derive(Wire)]
/// struct Visit {
///     node: u64,
///     moves: [u8; 16],
/// }
///
/// #[derive(Wire)]
/// enum Answer<T> {
///     Found(T),
///     Missing { reason: String },
/// }
///
/// const { assert!(Visit::PLAIN) }
/// const { assert!(!Answer::<u64>::PLAIN) }
/// ```
///
/// # Safety
/// Code that allocates the record, and code that copies whole containers, relies on the
/// implementation without checking it. An implementation promises that:
///
/// 1. `Self` means the same in every process of the job: it holds no address, file descriptor or
///    thread identity of the process that made it, unless [`read`](Self::read) translates it.
/// 2. [`write`](Self::write) writes exactly [`wire_bytes`](Self::wire_bytes) bytes from `out` on,
///    and needs no alignment.
/// 3. `write` takes the value: neither it nor any part of it is dropped or used at the sender
///    afterwards, except for memory that only held the parts.
/// 4. [`read`](Self::read) consumes exactly the bytes that `write` wrote, through the [`Reader`]
///    alone, and checks lengths and tags before it acts on them. Bytes of the wrong length or with
///    a wrong tag are an error; only plain values may be trusted.
/// 5. If [`PLAIN`](Self::PLAIN) is true, `write` and `read` do no more than copy
///    `size_of::<Self>()` bytes. Containers of `Self` then make one copy of all elements and never
///    call them.
/// 6. If `PLAIN` is false, every value writes at least one byte. So a length that exceeds the
///    remaining bytes is wrong, and is refused before anything is allocated.
///
/// # Examples
/// An implementation by hand, for a type that the derive cannot see into, with the helpers of this
/// module:
///
/// ```
/// # extern crate farside_wire as farside;
/// use farside::wire::{self, Reader, Wire, WireError};
///
/// /// A half-open range of rows.
/// struct Rows(std::ops::Range<u64>);
///
/// // SAFETY: (1) two numbers; (2, 4) both go through `write_next` and `read`, in the same order;
/// // (3) numbers have no destructor; (6) they are 16 bytes.
/// unsafe impl Wire for Rows {
///     const PLAIN: bool = false;
///
///     fn wire_bytes(&self) -> usize {
///         self.0.start.wire_bytes() + self.0.end.wire_bytes()
///     }
///
///     unsafe fn write(self, out: *mut u8) {
///         // SAFETY: `out` has room for both ends, the start first.
///         let out = unsafe { wire::write_next(self.0.start, out) };
///         // SAFETY: behind the start there is room for the end.
///         unsafe { self.0.end.write(out) };
///     }
///
///     unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
///         // SAFETY: any bytes are a valid `u64`.
///         let start = unsafe { u64::read(input) }?;
///         // SAFETY: any bytes are a valid `u64`.
///         let end = unsafe { u64::read(input) }?;
///         Ok(Self(start..end))
///     }
/// }
/// ```
///
/// # Cost
/// A plain value is one copy with a size known at compile time. Other values cost one pass over
/// their parts to size them and one to write them. The receiver allocates once for each `String`,
/// `Vec` and `Box`. Each surrounding container sizes its parts again, so deep nesting costs
/// its depth once more.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel to another process",
    label = "this type is not `Wire`",
    note = "values travel by copy: numbers, `String`, `Vec<T>`, `Option<T>`, tuples, arrays, and types with `#[derive(Wire)]`",
    note = "references, pointers, `Rc`, `Arc` and guards are addresses of this process, and mean nothing in another"
)]
pub unsafe trait Wire: Sized + Send + 'static {
    /// True if every value travels as its own `size_of::<Self>()` bytes, padding included.
    const PLAIN: bool;

    /// Returns the number of bytes that [`write`](Self::write) will write. A sum that exceeds
    /// `usize` saturates, and fits no buffer.
    fn wire_bytes(&self) -> usize;

    /// Moves the value out to `out`.
    ///
    /// # Safety
    /// `out` is valid for writes of `self.wire_bytes()` bytes. It need not be aligned.
    unsafe fn write(self, out: *mut u8);

    /// Moves a value in.
    ///
    /// # Errors
    /// [`WireError`] if too few bytes are left, or they are not a value of the type. The number of
    /// bytes consumed by then is not specified.
    ///
    /// # Safety
    /// Wherever `Self` reads a plain value, `input` holds one: written by a process that runs the
    /// same binary. Everything else is checked. A value is read once: reading moves it.
    unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError>;

    // Between different binaries. No unsafe code relies on these functions.

    /// Describes the type, so that processes of other binaries can compare it. A type that does not
    /// implement this cannot travel to them.
    fn describe(schema: &mut Schema) {
        schema.not_portable::<Self>();
    }

    /// Writes the value in the form that [`decode`](Self::decode) reads, in any binary that
    /// describes its type in the same way.
    fn encode(&self, out: &mut Encoder) {
        let _ = out;
    }

    /// Reads a value from untrusted bytes.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not a value of the type.
    fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
        let _ = input;
        Err(WireError::not_portable::<Self>())
    }

    /// Writes values one after the other.
    #[doc(hidden)]
    #[inline]
    fn encode_each(values: &[Self], out: &mut Encoder) {
        values.iter().for_each(|value| value.encode(out));
    }

    /// Reads `count` values.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not that many values of the type.
    #[doc(hidden)]
    #[inline]
    fn decode_each(count: usize, input: &mut Decoder<'_>) -> Result<Vec<Self>, WireError> {
        input.one_by_one(count)
    }
}

/// Moves a plain value out: [`Wire::write`] for types with [`Wire::PLAIN`].
///
/// # Safety
/// `T` is plain. `out` is valid for writes of `size_of::<T>()` bytes. It need not be aligned.
///
/// # Cost
/// One copy with a size known at compile time.
#[inline(always)]
pub unsafe fn write_plain<T: Wire>(value: T, out: *mut u8) {
    debug_assert!(T::PLAIN);
    let out = out.cast::<MaybeUninit<T>>();
    // SAFETY: the caller passes room for a `T`, and `MaybeUninit<T>` has the same size; the write
    // needs no alignment. Padding travels as uninitialised bytes.
    unsafe { out.write_unaligned(MaybeUninit::new(value)) };
}

/// Moves a plain value in: [`Wire::read`] for types with [`Wire::PLAIN`].
///
/// # Errors
/// [`WireError::Truncated`] if fewer than `size_of::<T>()` bytes are left.
///
/// # Safety
/// `T` is plain. The next `size_of::<T>()` bytes, if that many are left, are a valid `T`, moved out
/// by [`write_plain`] and read only once.
///
/// # Cost
/// One comparison and one copy with a size known at compile time.
#[inline(always)]
pub unsafe fn read_plain<T: Wire>(input: &mut Reader<'_>) -> Result<T, WireError> {
    debug_assert!(T::PLAIN);
    let from = input.take_for::<T>(size_of::<T>())?.cast::<T>();
    // SAFETY: `take_for` returned `size_of::<T>()` readable bytes, which the caller guarantees are
    // a `T`; the read needs no alignment.
    Ok(unsafe { from.read_unaligned() })
}

/// Moves `value` out to `out` and returns the address for the next value.
///
/// # Safety
/// `out` is valid for writes of `value.wire_bytes()` bytes.
///
/// # Cost
/// That of [`Wire::wire_bytes`] and [`Wire::write`].
#[inline(always)]
pub unsafe fn write_next<T: Wire>(value: T, out: *mut u8) -> *mut u8 {
    let bytes = value.wire_bytes();
    // SAFETY: the caller passes room for `wire_bytes` bytes.
    unsafe { value.write(out) };
    // SAFETY: those bytes are one allocation, so its end may be computed.
    unsafe { out.add(bytes) }
}
