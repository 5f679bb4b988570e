//! The blocks of assembly for x86-64.

use std::arch::asm;

/// From here on one `rep movsb` is at least as fast as the vector loops, where the processor has fast strings and both sides begin at the same
/// place of a line (measured: equal to 4 MiB, then faster by half). Where they do not, it can take twice as long, at any size.
const STRING_BYTES: usize = 64 << 10;

/// Of a line of the cache.
const LINE_BYTES: usize = 64;

/// Up to here blocks of 16 bytes. What is copied has often been stored just now, and by words of no more than 16; loads of 32
/// would have to wait until such stores are in the cache (measured: 5 ns for 256 bytes).
const NARROW_BYTES: usize = 512;

/// Copies 64 bytes or more.
///
/// # Safety
///
/// As `racy::copy`, and `len >= 64`.
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

/// Copies 128 bytes or more, as this processor does it best.
///
/// Apart, since asking for features needs registers that shorter copies would have to save.
///
/// # Safety
///
/// As `racy::copy`, and `len >= 128`.
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

/// Whether `rep movsb` is fast here. *Cost*: one load; the answer is kept by the standard library.
#[inline]
fn has_fast_strings() -> bool {
    is_x86_feature_detected!("ermsb")
}

/// Whether the AVX2 loop may run here. *Cost*: as [`has_fast_strings`].
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
        #[doc = concat!("As `racy::copy`, and `", $bytes, " <= len <= 2 * ", $bytes, "`.")]
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

/// Copies blocks of 64 bytes, and the last 64 bytes whether or not a block has covered some of them.
///
/// # Safety
///
/// As `racy::copy`, and `len >= 64`.
pub(in crate::racy) unsafe fn blocks_sse2(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: a block starts at 0 or below `last`, so ends below `len`; the last one ends at `len`.
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

/// Copies the first 32 bytes, blocks of 128 bytes from where the destination is aligned, and the last 128 bytes,
/// whether or not some of them were covered before. A store that straddles two cache lines costs twice as much.
///
/// # Safety
///
/// As `racy::copy`, `len >= 128`, and the processor has AVX2.
pub(in crate::racy) unsafe fn blocks_avx2(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: a block starts below `last`, so ends below `len`; the last one ends at `len`. `at` starts at 1 to 32, so
    // no byte is left out. The registers are named, not allocated, since this function is compiled without AVX; their
    // upper halves are left clean.
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
/// As `racy::copy`.
pub(in crate::racy) unsafe fn string(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: it moves exactly `len` bytes upwards: the direction flag is clear on entry to every assembly block.
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
