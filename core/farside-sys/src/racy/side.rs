//! The two kinds of side that a copy can have.

use std::mem::MaybeUninit;

use super::words::Unit;

/// The kind of one side of a copy: [`Private`] or [`Shared`].
pub(super) trait Side {
    /// The address, if the side must be aligned for its words; otherwise 0, which is aligned for
    /// every word.
    fn shared_address(at: *const u8) -> usize;

    /// Reads one word.
    ///
    /// # Safety
    ///
    /// `at` is valid for reads of a `U`. Shared: aligned, and only atomics race with the read.
    /// Private: nothing writes it meanwhile, and it is initialised under Miri and on architectures
    /// without an assembly path.
    unsafe fn load<U: Unit>(at: *const u8) -> U;

    /// Writes one word.
    ///
    /// # Safety
    ///
    /// `at` is valid for writes of a `U`. Shared: aligned, and only atomics race with the write.
    /// Private: nothing else accesses it meanwhile.
    unsafe fn store<U: Unit>(at: *mut u8, unit: U);
}

/// Memory that only this thread touches during the copy.
pub(super) struct Private;

impl Side for Private {
    #[inline(always)]
    fn shared_address(_: *const u8) -> usize {
        0
    }

    #[inline(always)]
    unsafe fn load<U: Unit>(at: *const u8) -> U {
        // SAFETY: valid for reads and not written meanwhile, as the caller promises; any bytes are
        // a `MaybeUninit`, at any alignment.
        let unit = unsafe { at.cast::<MaybeUninit<U>>().read_unaligned() };
        // SAFETY: initialised where that is required, as the caller promises.
        unsafe { U::frozen(unit) }
    }

    #[inline(always)]
    unsafe fn store<U: Unit>(at: *mut u8, unit: U) {
        // SAFETY: valid for writes and accessed by nothing else, as the caller promises.
        unsafe { at.cast::<U>().write_unaligned(unit) }
    }
}

/// Memory that other threads or processes may read or write during the copy.
pub(super) struct Shared;

impl Side for Shared {
    #[inline(always)]
    fn shared_address(at: *const u8) -> usize {
        at.addr()
    }

    #[inline(always)]
    unsafe fn load<U: Unit>(at: *const u8) -> U {
        // SAFETY: aligned, valid for reads and raced by atomics only, as the caller promises.
        unsafe { U::load_relaxed(at.cast()) }
    }

    #[inline(always)]
    unsafe fn store<U: Unit>(at: *mut u8, unit: U) {
        // SAFETY: aligned, valid for writes and raced by atomics only, as the caller promises.
        unsafe { U::store_relaxed(at.cast(), unit) }
    }
}
