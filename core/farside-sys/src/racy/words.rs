//! Words: the integers that move as one relaxed atomic, and short copies made of them.

use std::mem::MaybeUninit;
use std::sync::atomic::{
    AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    Ordering,
};

use super::freeze;
use super::side::Side;

/// An integer that [`load`](super::load) and [`store`](super::store) move as a whole. Sealed: the
/// integers of up to 64 bits.
pub trait RacyWord: sealed::Relaxed {}

mod sealed {
    /// Relaxed access to one aligned word.
    pub trait Relaxed: Copy {
        /// # Safety
        ///
        /// The contract of [`load`](crate::racy::load).
        unsafe fn load_relaxed(ptr: *const Self) -> Self;

        /// # Safety
        ///
        /// The contract of [`store`](crate::racy::store).
        unsafe fn store_relaxed(ptr: *mut Self, value: Self);
    }
}

macro_rules! racy_words {
    ($($word:ty: $atomic:ty),* $(,)?) => {$(
        impl RacyWord for $word {}

        impl sealed::Relaxed for $word {
            #[inline(always)]
            unsafe fn load_relaxed(ptr: *const Self) -> Self {
                // SAFETY: the caller promises an aligned pointer that is valid for reads, which is
                // all that a relaxed load of at most a machine word requires, and that only atomics
                // race with it.
                unsafe { <$atomic>::from_ptr(ptr.cast_mut()) }.load(Ordering::Relaxed)
            }

            #[inline(always)]
            unsafe fn store_relaxed(ptr: *mut Self, value: Self) {
                // SAFETY: the caller promises an aligned pointer that is valid for writes, and that
                // only atomics race with it.
                unsafe { <$atomic>::from_ptr(ptr) }.store(value, Ordering::Relaxed);
            }
        }
    )*};
}

racy_words! {
    u8: AtomicU8, u16: AtomicU16, u32: AtomicU32, u64: AtomicU64, usize: AtomicUsize,
    i8: AtomicI8, i16: AtomicI16, i32: AtomicI32, i64: AtomicI64, isize: AtomicIsize,
}

/// A word that copies are composed of.
pub(super) trait Unit: RacyWord {
    /// Returns the same bits, with some fixed value in place of every uninitialised one.
    ///
    /// # Safety
    ///
    /// Under Miri, and on architectures without an assembly path, every byte is initialised.
    unsafe fn frozen(unit: MaybeUninit<Self>) -> Self;
}

macro_rules! units {
    ($($word:ident),*) => {$(
        impl Unit for $word {
            #[inline(always)]
            unsafe fn frozen(unit: MaybeUninit<Self>) -> Self {
                // SAFETY: the same contract.
                unsafe { freeze::$word(unit) }
            }
        }
    )*};
}

units!(u8, u16, u32, u64);

/// The widest word that a copy of `len` bytes uses: the largest power of two that is at most `len`,
/// within 1 to 8.
#[inline(always)]
pub(super) fn widest(len: usize) -> usize {
    1 << (len | 1).ilog2().min(3)
}

/// Copies `len` bytes as eight-byte words and a tail.
///
/// # Safety
///
/// The contract of `racy::copy`, and each shared side is aligned to [`widest`]`(len)`.
#[inline(always)]
pub(super) unsafe fn copy<S: Side, D: Side>(src: *const u8, dst: *mut u8, len: usize) {
    let whole = len & !7;
    for at in (0..whole).step_by(8) {
        // SAFETY: `at + 8 <= len`. Such a word exists only if `len >= 8`, so shared sides are
        // aligned to 8, and so is `at`.
        unsafe { copy_unit::<u64, S, D>(src, dst, at) };
    }
    let mut at = whole;
    if len & 4 != 0 {
        // SAFETY: `at + 4 <= len`. `len >= 4`, so shared sides are aligned to 4, and `at` is a
        // multiple of 8.
        unsafe { copy_unit::<u32, S, D>(src, dst, at) };
        at += 4;
    }
    if len & 2 != 0 {
        // SAFETY: `at + 2 <= len`. `len >= 2`, so shared sides are aligned to 2, and `at` is a
        // multiple of 4.
        unsafe { copy_unit::<u16, S, D>(src, dst, at) };
        at += 2;
    }
    if len & 1 != 0 {
        // SAFETY: `at` is the last byte.
        unsafe { copy_unit::<u8, S, D>(src, dst, at) };
    }
}

/// Copies the one word at offset `at`.
///
/// # Safety
///
/// The contract of `racy::copy` for the bytes `at..at + size_of::<U>()`, and shared sides are
/// aligned for `U` at that offset.
#[inline(always)]
pub(super) unsafe fn copy_unit<U: Unit, S: Side, D: Side>(src: *const u8, dst: *mut u8, at: usize) {
    // SAFETY: the bytes are readable and, where shared, aligned, as the caller promises.
    let unit = unsafe { S::load::<U>(src.wrapping_add(at)) };
    // SAFETY: the bytes are writable and, where shared, aligned, as the caller promises.
    unsafe { D::store(dst.wrapping_add(at), unit) };
}
