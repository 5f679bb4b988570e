//! Prefetching: hints to load memory before it is needed.

/// Asks the processor to load the cache line at `address`. This is a hint: any address is allowed,
/// and the program performs no access.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    // SAFETY: a prefetch of any address, valid or not, affects only caches.
    unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast()) };
}

/// Asks the processor to load the cache line at `address` for writing. The line is taken from the
/// caches of other processors now, so that the first store does not wait for it.
#[inline(always)]
pub fn prefetch_to_write(address: *const u8) {
    // SAFETY: a prefetch of any address, valid or not, affects only caches. Processors without this
    // instruction execute it as a no-op.
    unsafe {
        std::arch::asm!("prefetchw [{address}]", address = in(reg) address, options(nostack, preserves_flags, readonly))
    };
}
