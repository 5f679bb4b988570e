//! Copies to and from memory that another process may write at the same time.
//!
//! A plain load of such memory is a data race: undefined behaviour, and in practice a licence for the compiler to read
//! twice and to believe that both reads agree. No `&T`, `&[u8]` or `&mut` may point at it either. This module is the
//! way in and out: [`copy_in`], [`copy_out`] and [`copy_between`] for bytes, [`load`] and [`store`] for single words,
//! [`atomic_u32`] and [`atomic_u64`] for words that synchronise.
//!
//! # What a copy means
//!
//! A copy moves every byte with *relaxed* order, and nothing more:
//! - Each byte that arrives is a value which that byte of the source had during the copy. Neighbouring bytes may come
//!   from different moments, so a value wider than a byte may be torn. Check it before you believe it.
//! - Bytes may be read or written more than once, in any order. Bytes outside the ranges are neither read nor written.
//! - It orders nothing. Publish with a release store *after* [`copy_out`]; acquire *before* [`copy_in`].
//!   (`rep movsb` may store out of order within itself, never past a later store. No non-temporal store is used.)
//!
//! # Why it is sound
//!
//! Up to 64 bytes, when the shared side is aligned for the widest word that fits, the shared side is touched with
//! relaxed atomics of that width. They inline; a length known to the compiler becomes plain moves.
//!
//! Everything else goes through assembly, because the compiler does not vectorise atomics: word by word costs three
//! times a `memcpy` in the first-level cache, byte by byte twenty times. An assembly block may do what *some* Rust code
//! could have done in its place, and the compiler may assume no more about it than about that code. These blocks stand
//! for a loop of relaxed `AtomicU8` operations on the shared side, and of plain `MaybeUninit<u8>` ones on the private
//! side. They have no `nomem`, so the compiler treats them as such a call. Under Miri, and on architectures without an
//! assembly path, that loop is what runs, with wider words where both sides allow.
//!
//! **Mixed sizes.** Rust's memory model does not yet bless concurrent atomic accesses of *different* widths to the same
//! bytes, at least one of them a write. The processors do: such an access behaves as bytes. Between two processes the
//! question does not arise inside one abstract machine, but two threads of one process can raise it. Words that are
//! used atomically should therefore stay words: reach them with [`atomic_u64`], [`load`] and [`store`], and do not copy
//! over them while they are in use.
//!
//! **Uninitialised bytes.** [`copy_out`] may read padding. Each word read from private memory passes through an empty
//! assembly block, which turns bytes of no value into bytes of some value at no cost.

#[cfg(all(any(target_arch = "aarch64", target_arch = "x86_64"), not(miri)))]
mod bulk;
mod freeze;
#[cfg(any(test, miri, not(any(target_arch = "aarch64", target_arch = "x86_64"))))]
mod portable;
mod side;
mod words;

#[cfg(any(miri, not(any(target_arch = "aarch64", target_arch = "x86_64"))))]
use portable as bulk;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU32, AtomicU64};

use side::{Private, Shared, Side};

pub use words::RacyWord;

/// The longest copy that is made of inlined words.
const SMALL_BYTES: usize = 64;

/// Copies `len` bytes from shared memory into private memory.
///
/// *Cost*: no system call. A constant length up to 64 inlines to moves if `src` is aligned to the widest word that
/// fits (8 bytes, or less for less); anything else is one call. The test of the alignment goes away where the compiler
/// knows the answer: from a mask, or from [`std::hint::assert_unchecked`].
///
/// # Safety
///
/// - `src` is valid for reads of `len` bytes. Others may write there meanwhile, if they use atomics, this module, or
///   run in another process.
/// - `dst` is valid for writes of `len` bytes, and nobody else touches them during the call.
/// - The two do not overlap.
#[inline]
pub unsafe fn copy_in(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's promises are exactly those of `copy` with a shared source and a private destination.
    unsafe { copy::<Shared, Private>(src, dst, len) }
}

/// Copies `len` bytes from private memory out to shared memory.
///
/// Padding may be copied: the bytes of `src` need not be initialised, except under Miri and on architectures without
/// an assembly path (see the module's notes).
///
/// *Cost*: as [`copy_in`], with `dst` as the side whose alignment counts.
///
/// # Safety
///
/// - `src` is valid for reads of `len` bytes, and nobody writes them during the call.
/// - `dst` is valid for writes of `len` bytes. Others may read or write there meanwhile, if they use atomics, this
///   module, or run in another process.
/// - The two do not overlap.
#[inline]
pub unsafe fn copy_out(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's promises are exactly those of `copy` with a private source and a shared destination.
    unsafe { copy::<Private, Shared>(src, dst, len) }
}

/// Copies `len` bytes from shared memory to shared memory.
///
/// The two may overlap; which bytes then arrive is not specified.
///
/// *Cost*: as [`copy_in`], with both sides' alignment counting.
///
/// # Safety
///
/// `src` is valid for reads and `dst` for writes of `len` bytes. Others may read or write both meanwhile, if they use
/// atomics, this module, or run in another process.
#[inline]
pub unsafe fn copy_between(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's promises are exactly those of `copy` with both sides shared.
    unsafe { copy::<Shared, Shared>(src, dst, len) }
}

/// Loads one word that others may write, with relaxed order. The value is never torn.
///
/// The memory may be mapped read-only.
///
/// # Safety
///
/// `ptr` is aligned and valid for reads. Others may write there meanwhile, if they use atomics of the same width, or
/// run in another process.
#[inline]
pub unsafe fn load<T: RacyWord>(ptr: *const T) -> T {
    // SAFETY: the caller promises an aligned pointer that is valid for reads and raced by nothing but atomics.
    unsafe { T::load_relaxed(ptr) }
}

/// Stores one word that others may read or write, with relaxed order.
///
/// # Safety
///
/// `ptr` is aligned and valid for writes. Others may read or write there meanwhile, if they use atomics of the same
/// width, or run in another process.
#[inline]
pub unsafe fn store<T: RacyWord>(ptr: *mut T, value: T) {
    // SAFETY: the caller promises an aligned pointer that is valid for writes and raced by nothing but atomics.
    unsafe { T::store_relaxed(ptr, value) }
}

/// The 32-bit word at `ptr`, to be used atomically.
///
/// An atomic is interior-mutable and made for sharing, so it is the one kind of reference that may point at memory
/// which another process writes.
///
/// # Safety
///
/// - `ptr` is aligned to 4 and valid for reads and writes for as long as `'a`.
/// - During `'a`, the four bytes are touched only by atomics of this width, or by other processes.
#[inline]
pub unsafe fn atomic_u32<'a>(ptr: *mut u8) -> &'a AtomicU32 {
    let ptr = ptr.cast::<u32>();
    debug_assert!(ptr.is_aligned(), "a shared u32 must be aligned to 4: {ptr:p}");
    // SAFETY: the caller promises alignment, validity for `'a`, and that only atomics of this width race with it.
    unsafe { AtomicU32::from_ptr(ptr) }
}

/// The 64-bit word at `ptr`, to be used atomically.
///
/// See [`atomic_u32`] for why this may be a reference.
///
/// # Safety
///
/// - `ptr` is aligned to 8 and valid for reads and writes for as long as `'a`.
/// - During `'a`, the eight bytes are touched only by atomics of this width, or by other processes.
#[inline]
pub unsafe fn atomic_u64<'a>(ptr: *mut u8) -> &'a AtomicU64 {
    let ptr = ptr.cast::<u64>();
    debug_assert!(ptr.is_aligned(), "a shared u64 must be aligned to 8: {ptr:p}");
    // SAFETY: the caller promises alignment, validity for `'a`, and that only atomics of this width race with it.
    unsafe { AtomicU64::from_ptr(ptr) }
}

/// The one body behind the three copies.
///
/// # Safety
///
/// `src` is valid for reads and `dst` for writes of `len` bytes. A [`Private`] side is touched by nobody else meanwhile
/// (a source: written by nobody), and does not overlap the other side. A [`Shared`] side is raced only by atomics, by
/// this module, or by other processes.
#[inline(always)]
unsafe fn copy<S: Side, D: Side>(src: *const u8, dst: *mut u8, len: usize) {
    let shared_address = S::shared_address(src) | D::shared_address(dst);
    if len <= SMALL_BYTES && shared_address.is_multiple_of(words::widest(len)) {
        // SAFETY: as the caller promises; the shared sides are aligned to the widest word of `len`, as just checked.
        unsafe { words::copy::<S, D>(src, dst, len) }
    } else {
        // SAFETY: as the caller promises; this path has no demand on alignment.
        unsafe { bulk::copy::<S, D>(src, dst, len) }
    }
}
