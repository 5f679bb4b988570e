//! Copies of any length in plain Rust, for Miri and for architectures without an assembly path.

use super::side::Side;
use super::words;

/// Copies `len` bytes: words if all shared sides can be aligned at once, otherwise bytes.
///
/// # Safety
///
/// The contract of `racy::copy`; and the bytes of a private source are initialised.
pub(super) unsafe fn copy<S: Side, D: Side>(src: *const u8, dst: *mut u8, len: usize) {
    let (from, to) = (S::shared_address(src), D::shared_address(dst));
    // An address of 0 means that this side needs no alignment.
    let head = match (from, to) {
        (0, to) => to.wrapping_neg() % 8,
        (from, 0) => from.wrapping_neg() % 8,
        (from, to) if (from ^ to) % 8 == 0 => from.wrapping_neg() % 8,
        _ => len,
    }
    .min(len);
    for at in 0..head {
        // SAFETY: `at < len`, and a byte is always aligned.
        unsafe { words::copy_unit::<u8, S, D>(src, dst, at) };
    }
    // SAFETY: these are the rest of both ranges; if it is not empty, the shared sides are now
    // aligned to 8.
    unsafe { words::copy::<S, D>(src.wrapping_add(head), dst.wrapping_add(head), len - head) };
}
