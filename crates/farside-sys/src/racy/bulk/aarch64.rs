//! The blocks of assembly for AArch64.

use std::arch::asm;

macro_rules! ends {
    ($name:ident: $bytes:literal, $class:ident, $load:literal, $store:literal, $width:literal) => {
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
                    concat!($load, " {first", $width, "}, [{src}]"),
                    concat!($load, " {last", $width, "}, [{src}, {tail}]"),
                    concat!($store, " {first", $width, "}, [{dst}]"),
                    concat!($store, " {last", $width, "}, [{dst}, {tail}]"),
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

ends!(ends_1: 1, reg, "ldrb", "strb", ":w");
ends!(ends_2: 2, reg, "ldrh", "strh", ":w");
ends!(ends_4: 4, reg, "ldr", "str", ":w");
ends!(ends_8: 8, reg, "ldr", "str", ":x");
ends!(ends_16: 16, vreg, "ldr", "str", ":q");

/// Copies blocks of 64 bytes, and then the last 64 bytes, whether or not a block covered some of
/// them.
///
/// # Safety
///
/// The contract of `racy::copy`, and `len >= 64`.
pub(super) unsafe fn long(src: *const u8, dst: *mut u8, len: usize) {
    let last = len - 64;
    // SAFETY: a block starts at 0 or below `last`, so it ends below `len`; the last one ends at
    // `len`.
    unsafe {
        asm!(
            "2:",
            "ldp {a:q}, {b:q}, [{src}]",
            "ldp {c:q}, {d:q}, [{src}, #32]",
            "add {src}, {src}, #64",
            "stp {a:q}, {b:q}, [{dst}]",
            "stp {c:q}, {d:q}, [{dst}, #32]",
            "add {dst}, {dst}, #64",
            "cmp {src}, {last_src}",
            "b.lo 2b",
            "ldp {a:q}, {b:q}, [{last_src}]",
            "ldp {c:q}, {d:q}, [{last_src}, #32]",
            "stp {a:q}, {b:q}, [{last_dst}]",
            "stp {c:q}, {d:q}, [{last_dst}, #32]",
            src = inout(reg) src => _,
            dst = inout(reg) dst => _,
            last_src = in(reg) src.wrapping_add(last),
            last_dst = in(reg) dst.wrapping_add(last),
            a = out(vreg) _,
            b = out(vreg) _,
            c = out(vreg) _,
            d = out(vreg) _,
            options(nostack),
        );
    }
}
