//! Execution of operations on memory of this process.

use farside_sys::racy;
use farside_sys::shm::SharedMemory;

use crate::operation::{AtomicChange, FabricError, Operation, Outcome, RemoteKey};

/// Executes an operation on memory that is mapped here. For transports that carry the operation to
/// the owner, or find that the target is mapped.
///
/// # Errors
/// [`FabricError::OutOfRange`], [`FabricError::Misaligned`].
///
/// # Panics
/// If the key names more bytes than are mapped.
pub fn execute(key: RemoteKey, memory: &SharedMemory, operation: Operation) -> Result<Outcome, FabricError> {
    assert!(key.bytes as usize <= memory.bytes(), "a key names memory that is mapped");
    // SAFETY: the mapping covers the region, is writable, and begins at a page.
    unsafe { execute_at(key, memory.base().as_ptr(), operation) }
}

/// Executes an operation on memory at an address.
///
/// # Safety
/// The region's bytes are at `base`, and racy copies and atomics may access them during the call.
/// They are writable if the operation is a put or an atomic. The word of an atomic is aligned there
/// if its offset is in the region.
pub(crate) unsafe fn execute_at(key: RemoteKey, base: *mut u8, operation: Operation) -> Result<Outcome, FabricError> {
    match operation {
        Operation::Put { offset, data } => {
            key.check(offset, data.len())?;
            let target = base.wrapping_add(offset as usize);
            // SAFETY: `check` found the range inside the region, which is at `base`.
            unsafe { racy::copy_out(data.as_ptr(), target, data.len()) };
            Ok(Outcome::Put(data))
        }
        Operation::Get { offset, mut room } => {
            key.check(offset, room.len())?;
            let source = base.wrapping_add(offset as usize);
            // SAFETY: `check` found the range inside the region, which is at `base`; `room` has the
            // same length.
            unsafe { racy::copy_in(source, room.as_mut_ptr(), room.len()) };
            Ok(Outcome::Got(room))
        }
        Operation::Atomic64 { offset, change } => {
            key.check_word(offset, 8)?;
            // SAFETY: the word lies in the region, as was just checked, and is aligned by the
            // contract.
            Ok(Outcome::Previous(unsafe { apply64(base.wrapping_add(offset as usize), change) }))
        }
        Operation::Atomic32 { offset, change } => {
            key.check_word(offset, 4)?;
            // SAFETY: the word lies in the region, as was just checked, and is aligned by the
            // contract.
            Ok(Outcome::Previous(unsafe { apply32(base.wrapping_add(offset as usize), change) }.into()))
        }
    }
}

macro_rules! apply {
    ($name:ident, $word:ty, $at:path) => {
        /// # Safety
        /// An aligned word is at the address, and atomics may change it during the call.
        #[inline]
        pub(super) unsafe fn $name(address: *mut u8, change: AtomicChange<$word>) -> $word {
            // SAFETY: by the contract; the reference ends with this function.
            change.apply(unsafe { $at(address) })
        }
    };
}

apply!(apply64, u64, racy::atomic_u64);
apply!(apply32, u32, racy::atomic_u32);
