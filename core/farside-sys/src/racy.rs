//! Copies to and from memory that another process may write at the same time.
//!
//! A plain load of such memory is a data race, which is undefined behaviour. In practice the
//! compiler may read twice and assume that both reads agree. No `&T`, `&[u8]` or `&mut` may point
//! at it either. This module provides the access: [`copy_in`], [`copy_out`] and [`copy_between`]
//! for bytes, [`load`] and [`store`] for single words, [`atomic_u32`] and [`atomic_u64`] for words
//! that synchronise.
//!
//! # What a copy means
//!
//! A copy moves every byte with *relaxed* order, and nothing more:
//! - Each byte that arrives is a value that this byte of the source had during the copy.
//!   Neighbouring bytes may come from different moments, so a value wider than a byte may be torn.
//!   Validate it before you use it.
//! - Bytes may be read or written more than once, in any order. Bytes outside the ranges are
//!   neither read nor written.
//! - It orders nothing. Publish with a release store *after* [`copy_out`]; acquire *before*
//!   [`copy_in`]. (`rep movsb` may store out of order within itself, never past a later store. No
//!   non-temporal store is used.)
//!
//! # Why it is sound
//!
//! A copy of up to 64 bytes whose shared side is aligned for the widest word that fits uses relaxed
//! atomics of that width. They inline; a length known to the compiler becomes plain moves.
//!
//! Every other copy uses assembly, because the compiler does not vectorise atomics: word by word
//! costs three times a `memcpy` in the first-level cache, byte by byte twenty times. An assembly
//! block may do what *some* Rust code could have done in its place, and the compiler may assume no
//! more about it than about that code. These blocks stand for a loop of relaxed `AtomicU8`
//! operations on the shared side, and of plain `MaybeUninit<u8>` operations on the private side.
//! They have no `nomem`, so the compiler treats them as a call to such a loop. Under Miri, and on
//! architectures without an assembly path, that loop itself runs, with wider words where both sides
//! allow.
//!
//! **Mixed sizes.** Rust's memory model does not yet permit concurrent atomic accesses of
//! *different* widths to the same bytes if at least one of them is a write. The processors do: such
//! an access behaves as bytes. Between two processes the question does not arise inside one
//! abstract machine, but two threads of one process can raise it. Words that are used atomically
//! should therefore stay words: access them with [`atomic_u64`], [`load`] and [`store`], and do not
//! copy over them while they are in use.
//!
//! **Uninitialised bytes.** [`copy_out`] may read padding. Each word read from private memory
//! passes through an empty assembly block, which turns uninitialised bytes into bytes with some
//! fixed value at no cost.

#[cfg(not(miri))]
mod bulk;
mod freeze;
#[cfg(any(test, miri))]
mod portable;
mod side;
mod words;

#[cfg(miri)]
use portable as bulk;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU32, AtomicU64};

use side::{Private, Shared, Side};

pub use words::RacyWord;

/// The longest copy that uses inlined words.
const SMALL_BYTES: usize = 64;

/// Copies `len` bytes from shared memory into private memory.
///
/// *Cost*: no system call. A constant length up to 64 inlines to moves if `src` is aligned to the
/// widest word that fits (8 bytes, or less for a shorter copy). Any other copy is one call. The
/// compiler omits the alignment test where it knows the result: from a mask, or from
/// [`std::hint::assert_unchecked`].
///
/// # Safety
///
/// - `src` is valid for reads of `len` bytes. Other code may write there meanwhile, if it uses
///   atomics or this module, or runs in another process.
/// - `dst` is valid for writes of `len` bytes, and nothing else accesses them during the call.
/// - The two do not overlap.
#[inline]
pub unsafe fn copy_in(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's promises are exactly those of `copy` with a shared source and a private
    // destination.
    unsafe { copy::<Shared, Private>(src, dst, len) }
}

/// Copies `len` bytes from private memory out to shared memory.
///
/// Padding may be copied: the bytes of `src` need not be initialised, except under Miri and on
/// architectures without an assembly path (see the [module documentation](self)).
///
/// *Cost*: as for [`copy_in`], where the alignment of `dst` decides.
///
/// # Safety
///
/// - `src` is valid for reads of `len` bytes, and nothing writes them during the call.
/// - `dst` is valid for writes of `len` bytes. Other code may read or write there meanwhile, if it
///   uses atomics or this module, or runs in another process.
/// - The two do not overlap.
#[inline]
pub unsafe fn copy_out(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's promises are exactly those of `copy` with a private source and a shared
    // destination.
    unsafe { copy::<Private, Shared>(src, dst, len) }
}

/// Copies `len` bytes from shared memory to shared memory.
///
/// The two may overlap; then it is unspecified which bytes arrive.
///
/// *Cost*: as for [`copy_in`], where the alignment of both sides decides.
///
/// # Safety
///
/// `src` is valid for reads and `dst` for writes of `len` bytes. Other code may read or write both
/// meanwhile, if it uses atomics or this module, or runs in another process.
#[inline]
pub unsafe fn copy_between(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's promises are exactly those of `copy` with both sides shared.
    unsafe { copy::<Shared, Shared>(src, dst, len) }
}

/// Loads one word that other code may write, with relaxed order. The value is never torn.
///
/// The memory may be mapped read-only.
///
/// # Safety
///
/// `ptr` is aligned and valid for reads. Other code may write there meanwhile, if it uses atomics
/// of the same width or runs in another process.
#[inline]
pub unsafe fn load<T: RacyWord>(ptr: *const T) -> T {
    // SAFETY: the caller promises an aligned pointer that is valid for reads and raced by nothing
    // but atomics.
    unsafe { T::load_relaxed(ptr) }
}

/// Stores one word that other code may read or write, with relaxed order.
///
/// # Safety
///
/// `ptr` is aligned and valid for writes. Other code may read or write there meanwhile, if it uses
/// atomics of the same width or runs in another process.
#[inline]
pub unsafe fn store<T: RacyWord>(ptr: *mut T, value: T) {
    // SAFETY: the caller promises an aligned pointer that is valid for writes and raced by nothing
    // but atomics.
    unsafe { T::store_relaxed(ptr, value) }
}

/// Borrows the 32-bit word at `ptr` as an atomic.
///
/// Atomics are interior-mutable and made for sharing, so a reference to one is the only kind of
/// reference that may point at memory which another process writes.
///
/// # Safety
///
/// - `ptr` is aligned to 4 and valid for reads and writes for as long as `'a`.
/// - During `'a`, only atomics of this width, or other processes, access the four bytes.
#[inline]
pub unsafe fn atomic_u32<'a>(ptr: *mut u8) -> &'a AtomicU32 {
    let ptr = ptr.cast::<u32>();
    debug_assert!(ptr.is_aligned(), "a shared u32 must be aligned to 4: {ptr:p}");
    // SAFETY: the caller promises alignment, validity for `'a`, and that only atomics of this width
    // race with it.
    unsafe { AtomicU32::from_ptr(ptr) }
}

/// Borrows the 64-bit word at `ptr` as an atomic.
///
/// [`atomic_u32`] explains why this may be a reference.
///
/// # Safety
///
/// - `ptr` is aligned to 8 and valid for reads and writes for as long as `'a`.
/// - During `'a`, only atomics of this width, or other processes, access the eight bytes.
#[inline]
pub unsafe fn atomic_u64<'a>(ptr: *mut u8) -> &'a AtomicU64 {
    let ptr = ptr.cast::<u64>();
    debug_assert!(ptr.is_aligned(), "a shared u64 must be aligned to 8: {ptr:p}");
    // SAFETY: the caller promises alignment, validity for `'a`, and that only atomics of this width
    // race with it.
    unsafe { AtomicU64::from_ptr(ptr) }
}

/// The common implementation of the three copies.
///
/// # Safety
///
/// `src` is valid for reads and `dst` for writes of `len` bytes. Nothing else accesses a
/// [`Private`] destination during the call, and nothing writes a [`Private`] source. A [`Private`]
/// side does not overlap the other side. Only atomics, this module, or other processes race with a
/// [`Shared`] side.
#[inline(always)]
unsafe fn copy<S: Side, D: Side>(src: *const u8, dst: *mut u8, len: usize) {
    let shared_address = S::shared_address(src) | D::shared_address(dst);
    if len <= SMALL_BYTES && shared_address.is_multiple_of(words::widest(len)) {
        // SAFETY: as the caller promises; the shared sides are aligned to the widest word of `len`,
        // as just checked.
        unsafe { words::copy::<S, D>(src, dst, len) }
    } else {
        // SAFETY: as the caller promises; this path requires no alignment.
        unsafe { bulk::copy::<S, D>(src, dst, len) }
    }
}
