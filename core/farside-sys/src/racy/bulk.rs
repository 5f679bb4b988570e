//! Copies of any length at any alignment, in assembly.
//!
//! The module `x86_64` provides the assembly blocks; this module selects one by length. Every
//! block stands for a bytewise relaxed copy; `racy` explains why that is sound.

pub(super) mod x86_64;

use x86_64 as arch;

use super::side::Side;

/// Copies `len` bytes. The kinds of the two sides do not matter: assembly treats them alike.
///
/// # Safety
///
/// The contract of `racy::copy`.
#[inline(always)]
pub(super) unsafe fn copy<S: Side, D: Side>(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: as the caller promises.
    unsafe { copy_bytes(src, dst, len) }
}

/// Copies `len` bytes: with two words that meet or overlap if they suffice, otherwise with a loop.
///
/// # Safety
///
/// The contract of `racy::copy`.
#[inline(never)]
unsafe fn copy_bytes(src: *const u8, dst: *mut u8, len: usize) {
    // Longer copies come first because they are the most frequent here: short aligned ones are
    // inlined elsewhere.
    match len {
        // SAFETY: the caller's ranges, and len >= 64.
        65.. => unsafe { arch::long(src, dst, len) },
        33.. => {
            // SAFETY: the first 32 bytes of the caller's ranges.
            unsafe { arch::ends_16(src, dst, 32) };
            let rest = len - 32;
            // SAFETY: the last 32 bytes of the caller's ranges.
            unsafe { arch::ends_16(src.wrapping_add(rest), dst.wrapping_add(rest), 32) };
        }
        // SAFETY: the caller's ranges, and 16 <= len <= 32.
        16.. => unsafe { arch::ends_16(src, dst, len) },
        // SAFETY: the caller's ranges, and 8 <= len <= 16.
        8.. => unsafe { arch::ends_8(src, dst, len) },
        // SAFETY: the caller's ranges, and 4 <= len <= 8.
        4.. => unsafe { arch::ends_4(src, dst, len) },
        // SAFETY: the caller's ranges, and 2 <= len <= 4.
        2.. => unsafe { arch::ends_2(src, dst, len) },
        // SAFETY: the caller's ranges, and 1 <= len <= 2.
        1 => unsafe { arch::ends_1(src, dst, len) },
        0 => {}
    }
}
