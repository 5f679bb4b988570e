//! The blocks of assembly for x86-64.

use std::arch::asm;

/// From this length on, `rep movsb` is at least as fast as the vector loops. This requires fast
/// strings, and the same offset of both sides within a cache line. (Measured: equal up to 4 MiB,
/// then faster by half.) With different offsets it can take twice as long, at any length.
const STRING_BYTES: usize = 64 << 10;

/// The size of a cache line.
const LINE_BYTES: usize = 64;

/// Up to this length, blocks use 16-byte words. The source has often just been stored in words of
/// at most 16 bytes. A 32-byte load would wait until such stores have reached the cache (measured:
/// 5 ns for 256 bytes).
const NARROW_BYTES: usize = 512;

/// Copies 64 bytes or more.
///
/// # Safety
///
/// The contract of `racy::copy`, and `len >= 64`.
#[inline]
pub(super) unsafe fn long(src: *const u8, dst: *mut u8, len: usize) {
    if len <= NARROW_BYTES {
        // SAFETY: the caller's ranges, and len >= 64.
        unsafe { blocks_sse2(src, dst, len) }
    } else {
        // SAFETY: the caller's ranges, and len >= 128.
        unsafe { longer(src, dst, len) }
    }
}

/// Copies 128 bytes or more, with the fastest loop of this processor.
///
/// This is a function of its own because feature detection needs registers, which shorter copies
/// would have to save.
///
/// # Safety
///
/// The contract of `racy::copy`, and `len >= 128`.
#[inline(never)]
unsafe fn longer(src: *const u8, dst: *mut u8, len: usize) {
    let is_in_step = (src.addr() ^ dst.addr()).is_multiple_of(LINE_BYTES);
    if len >= STRING_BYTES && is_in_step && has_fast_strings() {
        // SAFETY: the caller's ranges.
        unsafe { string(src, dst, len) }
    } else if has_avx2() {
        // SAFETY: the caller's ranges, len >= 128, and the processor has AVX2.
        unsafe { blocks_avx2(src, dst, len) }
    } else {
        // SAFETY: the caller's ranges, and len >= 64.
        unsafe { blocks_sse2(src, dst, len) }
    }
}

/// Returns whether `rep movsb` is fast here. *Cost*: one load; the standard library caches the
/// answer.
#[inline]
fn has_fast_strings() -> bool {
    is_x86_feature_detected!("ermsb")
}

/// Returns whether the AVX2 loop may run here. *Cost*: as for [`has_fast_strings`].
#[inline]
pub(in crate::racy) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
}

macro_rules! ends {
    ($name:ident: $bytes:literal, $class:ident, $mov:literal, $width:literal) => {
        #[doc = concat!("Copies the first and the last ", $bytes, " bytes, which meet or overlap; reads come first.")]
        ///
        /// # Safety
        ///
        #[doc = concat!("The contract of `racy::copy`, and `", $bytes, " <= len <= 2 * ", $bytes, "`.")]
        #[inline(always)]
        pub(super) unsafe fn $name(src: *const u8, dst: *mut u8, len: usize) {
            // SAFETY: both words lie within the first `len` bytes of their side.
            unsafe {
                asm!(
                    concat!($mov, " {first", $width, "}, [{src}]"),
                    concat!($mov, " {last", $width, "}, [{src} + {tail}]"),
                    concat!($mov, " [{dst}], {first", $width, "}"),
                    concat!($mov, " [{dst} + {tail}], {last", $width, "}"),
                    src = in(reg) src,
                    dst = in(reg) dst,
                    tail = in(reg) len - $bytes,
                    first = out($class) _,
                    last = out($class) _,
                    options(nostack, preserves_flags),
                );
            }
        }
    };
}

ends!(ends_1: 1, reg_byte, "mov", "");
ends!(ends_2: 2, reg, "mov", ":x");
ends!(ends_4: 4, reg, "mov", ":e");
ends!(ends_8: 8, reg, "mov", ":r");
ends!(ends_16: 16, xmm_reg, "movdqu", "");

/// Copies blocks of 64 bytes, and then the last 64 bytes, whether or not a block covered some of
/// them.
///
/// # Safety
///
/// The contract of `racy::copy`, and `len >= 64`.
pub(in crate::racy) unsafe fn blocks_sse2(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: a block starts at 0 or below `last`, so it ends below `len`; the last one ends at
    // `len`.
    unsafe {
        asm!(
            "2:",
            "movdqu {a}, [{src} + {at}]",
            "movdqu {b}, [{src} + {at} + 16]",
            "movdqu {c}, [{src} + {at} + 32]",
            "movdqu {d}, [{src} + {at} + 48]",
            "movdqu [{dst} + {at}], {a}",
            "movdqu [{dst} + {at} + 16], {b}",
            "movdqu [{dst} + {at} + 32], {c}",
            "movdqu [{dst} + {at} + 48], {d}",
            "add {at}, 64",
            "cmp {at}, {last}",
            "jb 2b",
            "movdqu {a}, [{src} + {last}]",
            "movdqu {b}, [{src} + {last} + 16]",
            "movdqu {c}, [{src} + {last} + 32]",
            "movdqu {d}, [{src} + {last} + 48]",
            "movdqu [{dst} + {last}], {a}",
            "movdqu [{dst} + {last} + 16], {b}",
            "movdqu [{dst} + {last} + 32], {c}",
            "movdqu [{dst} + {last} + 48], {d}",
            src = in(reg) src,
            dst = in(reg) dst,
            last = in(reg) len - 64,
            at = inout(reg) 0_usize => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// Copies the first 32 bytes, then blocks of 128 bytes from an aligned destination address on, then
/// the last 128 bytes, whether or not some of them were copied before. A store that straddles two
/// cache lines costs twice as much.
///
/// # Safety
///
/// The contract of `racy::copy`, `len >= 128`, and the processor has AVX2.
pub(in crate::racy) unsafe fn blocks_avx2(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: a block starts below `last`, so it ends below `len`; the last one ends at `len`. `at`
    // starts at 1 to 32, so no byte is left out. The registers are named, not allocated, because
    // this function is compiled without AVX; their upper halves are cleared at the end.
    unsafe {
        asm!(
            "vmovdqu ymm0, [{src}]",
            "vmovdqu [{dst}], ymm0",
            "cmp {at}, {last}",
            "jae 3f",
            "2:",
            "vmovdqu ymm0, [{src} + {at}]",
            "vmovdqu ymm1, [{src} + {at} + 32]",
            "vmovdqu ymm2, [{src} + {at} + 64]",
            "vmovdqu ymm3, [{src} + {at} + 96]",
            "vmovdqa [{dst} + {at}], ymm0",
            "vmovdqa [{dst} + {at} + 32], ymm1",
            "vmovdqa [{dst} + {at} + 64], ymm2",
            "vmovdqa [{dst} + {at} + 96], ymm3",
            "add {at}, 128",
            "cmp {at}, {last}",
            "jb 2b",
            "3:",
            "vmovdqu ymm0, [{src} + {last}]",
            "vmovdqu ymm1, [{src} + {last} + 32]",
            "vmovdqu ymm2, [{src} + {last} + 64]",
            "vmovdqu ymm3, [{src} + {last} + 96]",
            "vmovdqu [{dst} + {last}], ymm0",
            "vmovdqu [{dst} + {last} + 32], ymm1",
            "vmovdqu [{dst} + {last} + 64], ymm2",
            "vmovdqu [{dst} + {last} + 96], ymm3",
            "vzeroupper",
            src = in(reg) src,
            dst = in(reg) dst,
            last = in(reg) len - 128,
            at = inout(reg) 32 - dst.addr() % 32 => _,
            out("ymm0") _,
            out("ymm1") _,
            out("ymm2") _,
            out("ymm3") _,
            options(nostack),
        );
    }
}

/// Copies with one string instruction.
///
/// # Safety
///
/// The contract of `racy::copy`.
pub(in crate::racy) unsafe fn string(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: it copies exactly `len` bytes upwards, because the direction flag is clear on entry
    // to every assembly block.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") src => _,
            inout("rdi") dst => _,
            options(nostack, preserves_flags),
        );
    }
}
