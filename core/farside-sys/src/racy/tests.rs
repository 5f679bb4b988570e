//! Compares every copy with the standard library's, between guard bytes, at every alignment, and
//! under a concurrent writer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::side::{Private, Shared};
use super::*;

type Copy = unsafe fn(*const u8, *mut u8, usize);

/// The byte around a destination, which a copy must not change.
const GUARD: u8 = 0xA5;
const GUARD_BYTES: usize = if cfg!(miri) { 16 } else { 64 };
/// The alignments of each side. Miri uses a few, so that the test ends within a minute.
const ALIGNMENTS: &[usize] =
    if cfg!(miri) { &[0, 1, 4, 8] } else { &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15] };

/// Memory that starts at a multiple of 64 and is accessed only through raw pointers, as shared
/// memory is.
struct Arena {
    blocks: Vec<[u8; 64]>,
    bytes: usize,
}

impl Arena {
    fn new(bytes: usize) -> Arena {
        let blocks = vec![[0; 64]; bytes.div_ceil(64) + 1];
        Arena { blocks, bytes: bytes + 64 }
    }

    /// The first byte at a multiple of 64.
    fn base(&mut self) -> *mut u8 {
        let start = self.blocks.as_mut_ptr().cast::<u8>();
        start.wrapping_add(start.align_offset(64))
    }

    fn bytes(&mut self) -> &mut [u8] {
        let spare = self.base().addr() - self.blocks.as_ptr().addr();
        let len = self.bytes - 64;
        &mut self.blocks.as_flattened_mut()[spare..spare + len]
    }
}

/// Copies `len` bytes between every pair of alignments, and compares the whole destination with the
/// expected bytes.
fn check_alignments(name: &str, copy: Copy, len: usize, source: &mut Arena, target: &mut Arena) {
    for &from in ALIGNMENTS {
        for &to in ALIGNMENTS {
            let (start, end) = (GUARD_BYTES + to, GUARD_BYTES + to + len);
            target.bytes()[..end + GUARD_BYTES].fill(GUARD);
            let (src, dst) = (source.base().wrapping_add(from), target.base().wrapping_add(start));
            // SAFETY: both arenas hold `len` bytes from these addresses on, and belong to this
            // thread.
            unsafe { copy(src, dst, len) };
            let written = target.bytes();
            assert!(
                written[start..end] == source.bytes()[from..from + len],
                "{name}: wrong bytes: {len} from alignment {from} to {to}"
            );
            let guards = written[..start].iter().chain(&written[end..end + GUARD_BYTES]);
            assert!(guards.copied().all(|byte| byte == GUARD), "{name}: out of bounds: {len} from {from} to {to}");
        }
    }
}

/// Checks `copy` for all small lengths and around every power of two, from `least` bytes on.
fn check_lengths(name: &str, copy: Copy, least: usize) {
    let (small, largest_power) = if cfg!(miri) { (17, 6) } else { (300, 20) };
    let around_powers = (0..=largest_power).map(|k| 1_usize << k).flat_map(|power| [power - 1, power, power + 1]);
    let lengths = (0..=small).chain(around_powers.filter(|&len| len > small)).filter(|&len| len >= least);
    let room = (1 << largest_power) + 1 + 2 * GUARD_BYTES + 16;
    let (mut source, mut target) = (Arena::new(room), Arena::new(room));
    for (index, byte) in source.bytes().iter_mut().enumerate() {
        // A pattern without a period that a word, a block or a page could hide.
        *byte = (index.wrapping_mul(0x9E37_79B1) >> 13) as u8;
    }
    for len in lengths {
        check_alignments(name, copy, len, &mut source, &mut target);
    }
}

#[test]
fn copies_agree_with_the_standard_library() {
    for (name, copy) in [("in", copy_in as Copy), ("out", copy_out), ("between", copy_between)] {
        check_lengths(name, copy, 0);
    }
}

#[test]
fn portable_copies_agree_with_the_standard_library() {
    check_lengths("portable in", portable::copy::<Shared, Private>, 0);
    check_lengths("portable out", portable::copy::<Private, Shared>, 0);
    check_lengths("portable between", portable::copy::<Shared, Shared>, 0);
}

/// This processor selects only one of these loops for each length; the others must be right as
/// well.
#[cfg(not(miri))]
#[test]
fn every_x86_loop_agrees_with_the_standard_library() {
    use super::bulk::x86_64;

    check_lengths("sse2", x86_64::blocks_sse2, 64);
    if x86_64::has_avx2() {
        check_lengths("avx2", x86_64::blocks_avx2, 128);
    }
    check_lengths("string", x86_64::string, 0);
}

#[cfg_attr(miri, ignore = "without assembly nothing can freeze padding")]
#[test]
fn a_value_with_padding_travels() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct Padded {
        small: u8,
        large: u64,
    }

    let value = Padded { small: 7, large: u64::MAX - 1 };
    let mut shared = [0_u64; 2];
    let mut received = std::mem::MaybeUninit::<Padded>::uninit();
    // SAFETY: both are 16 bytes and belong to this thread.
    unsafe { copy_out((&raw const value).cast(), shared.as_mut_ptr().cast(), 16) };
    // SAFETY: both are 16 bytes and belong to this thread.
    unsafe { copy_in(shared.as_ptr().cast(), received.as_mut_ptr().cast(), 16) };
    // SAFETY: both fields were copied, and every bit pattern is a value of their types.
    assert_eq!(unsafe { received.assume_init() }, value);
}

#[test]
fn overlapping_shared_ranges_stay_in_bounds() {
    for len in [1_usize, 8, 63, 64, 65, 200, 2049] {
        for shift in [0_usize, 1, 8, 31] {
            let mut arena = Arena::new(len + shift + GUARD_BYTES);
            let pattern = |at: usize| (at % 128) as u8;
            for (at, byte) in arena.bytes().iter_mut().enumerate() {
                *byte = if at < len + shift { pattern(at) } else { GUARD };
            }
            let base = arena.base();
            // SAFETY: the arena holds `len + shift` bytes; the two ranges may overlap.
            unsafe { copy_between(base, base.wrapping_add(shift), len) };
            let bytes = arena.bytes();
            assert!((0..shift).all(|at| bytes[at] == pattern(at)), "before: {len} by {shift}");
            assert!(bytes[shift..len + shift].iter().all(|&byte| byte < 128), "inside: {len} by {shift}");
            assert!(bytes[len + shift..].iter().all(|&byte| byte == GUARD), "after: {len} by {shift}");
        }
    }
}

/// One writer alternates two patterns while a reader copies: every byte that arrives comes from one
/// of the two.
#[test]
fn under_a_concurrent_writer_every_byte_is_an_old_or_a_new_one() {
    const OLD: u8 = 0x11;
    const NEW: u8 = 0xEE;

    let (lens, rounds): (&[usize], _) =
        if cfg!(miri) { (&[8, 24], 5) } else { (&[1, 7, 8, 24, 64, 65, 127, 129, 1000, 2048, 4097], 300) };
    for &len in lens {
        for misaligned in [0, 3] {
            let shared: Vec<AtomicU64> =
                (0..len / 8 + 2).map(|_| AtomicU64::new(u64::from_ne_bytes([OLD; 8]))).collect();
            let address = shared.as_ptr().cast::<u8>().wrapping_add(misaligned).expose_provenance();
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let patterns = [vec![NEW; len], vec![OLD; len]];
                    while !stop.load(Ordering::Relaxed) {
                        for pattern in &patterns {
                            let dst = std::ptr::with_exposed_provenance_mut(address);
                            // SAFETY: `shared` outlives the scope, and only this module races with
                            // it.
                            unsafe { copy_out(pattern.as_ptr(), dst, len) };
                        }
                        std::thread::yield_now();
                    }
                });
                let mut seen = vec![GUARD; len + 2 * GUARD_BYTES];
                for _ in 0..rounds {
                    seen.fill(GUARD);
                    let src = std::ptr::with_exposed_provenance(address);
                    // SAFETY: `shared` outlives the scope, and only this module races with it;
                    // `seen` belongs to this thread.
                    unsafe { copy_in(src, seen[GUARD_BYTES..].as_mut_ptr(), len) };
                    let (before, rest) = seen.split_at(GUARD_BYTES);
                    let (body, after) = rest.split_at(len);
                    let intact = body.iter().all(|&byte| byte == OLD || byte == NEW);
                    let guarded = before.iter().chain(after).all(|&byte| byte == GUARD);
                    stop.fetch_or(!(intact && guarded), Ordering::Relaxed);
                    assert!(intact && guarded, "{len} bytes: {body:02x?}");
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
    }
}

#[test]
fn words_move_whole_and_atomics_see_them() {
    let mut memory = [0_u64; 2];
    let base = memory.as_mut_ptr().cast::<u8>();
    // SAFETY: aligned, in bounds, and only this thread accesses the memory.
    unsafe { store(base.cast::<u64>(), 0x0102_0304_0506_0708) };
    // SAFETY: aligned, in bounds, and only this thread accesses the memory.
    assert_eq!(unsafe { load(base.cast::<u64>()) }, 0x0102_0304_0506_0708);
    // SAFETY: aligned, in bounds, and only this thread accesses the memory.
    assert_eq!(unsafe { load(base.cast::<u8>()) }, 0x0102_0304_0506_0708_u64.to_ne_bytes()[0]);
    // SAFETY: aligned, in bounds, and only this thread accesses the memory.
    unsafe { store(base.wrapping_add(8).cast::<i16>(), -2) };
    // SAFETY: aligned, in bounds, and only this thread accesses the memory.
    assert_eq!(unsafe { load(base.wrapping_add(8).cast::<i16>()) }, -2);

    // SAFETY: aligned and in bounds; until its last use only the reference accesses the word.
    let word = unsafe { atomic_u64(base) };
    assert_eq!(word.fetch_add(1, Ordering::Relaxed), 0x0102_0304_0506_0708);
    // SAFETY: aligned, in bounds, and the reference above is no longer used.
    assert_eq!(unsafe { load(base.cast::<u64>()) }, 0x0102_0304_0506_0709);
    // SAFETY: aligned and in bounds; until its last use only the reference accesses the word.
    let word = unsafe { atomic_u32(base.wrapping_add(12)) };
    word.store(u32::MAX, Ordering::Relaxed);
    // SAFETY: aligned, in bounds, and the reference above is no longer used.
    assert_eq!(unsafe { load(base.wrapping_add(12).cast::<u32>()) }, u32::MAX);
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "aligned to 8")]
fn a_misaligned_atomic_is_refused() {
    let mut memory = [0_u64; 2];
    let base = memory.as_mut_ptr().cast::<u8>();
    // SAFETY: the assertion under test panics before the word is used.
    let _ = unsafe { atomic_u64(base.wrapping_add(4)) };
}
