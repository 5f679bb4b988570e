//! Registered memory that puts and gets go through on providers that want their buffers registered.
//!
//! Registering a buffer takes system calls and pins its pages. A cache of registrations by address would not be sound: the heap gives
//! an address out again, and libfabric would not know that other memory is there. So what is not too long is copied into a slot that is
//! registered already. When none is free, a buffer is registered by itself, and that is counted.

use std::sync::Arc;

use farside_sys::shm::SharedMemory;

use super::port::{Port, Registration};
use crate::transport::FabricError;

/// The longest buffer that is copied. A copy of more takes longer than a registration.
pub(super) const SLOT_BYTES: usize = 64 << 10;
/// 2 MiB together: a quarter of what may be locked where nobody has raised the limit.
const SLOTS: usize = 32;

/// The slots. They are made when the first is asked for.
#[derive(Debug)]
pub(super) struct Pool {
    slots: Option<Slots>,
    refused: bool,
    free: Vec<usize>,
    /// How many buffers were registered by themselves.
    passed_by: u64,
}

#[derive(Debug)]
struct Slots {
    memory: Arc<SharedMemory>,
    registration: Registration,
}

impl Pool {
    pub(super) fn new() -> Self {
        Self { slots: None, refused: false, free: (0..SLOTS).collect(), passed_by: 0 }
    }

    /// A slot for a buffer of so many bytes; `None` when it is to be registered by itself.
    pub(super) fn take(&mut self, port: &mut Port, bytes: usize) -> Option<usize> {
        let slot = if bytes <= SLOT_BYTES && self.is_there(port) { self.free.pop() } else { None };
        self.passed_by += u64::from(slot.is_none());
        slot
    }

    /// Nobody uses a slot any more.
    pub(super) fn give_back(&mut self, slot: usize) {
        debug_assert!(!self.free.contains(&slot));
        self.free.push(slot);
    }

    /// Where a slot that was taken lies, and what it is registered as.
    ///
    /// # Panics
    /// When none was taken.
    pub(super) fn slot(&self, slot: usize) -> (*mut u8, Registration) {
        let slots = self.slots.as_ref().expect("a slot was taken");
        assert!(slot < SLOTS, "there is such a slot");
        (slots.memory.base().as_ptr().wrapping_add(slot * SLOT_BYTES), slots.registration)
    }

    /// How many buffers found no slot, or were too long for one.
    pub(super) fn passed_by(&self) -> u64 {
        self.passed_by
    }

    /// Where there is no memory for it, there is no pool.
    fn is_there(&mut self, port: &mut Port) -> bool {
        if self.slots.is_none() && !self.refused {
            self.slots = Slots::new(port).ok();
            self.refused = self.slots.is_none();
        }
        self.slots.is_some()
    }
}

impl Slots {
    fn new(port: &mut Port) -> Result<Self, FabricError> {
        let bytes = SLOTS * SLOT_BYTES;
        let memory = Arc::new(SharedMemory::create("farside-pool", bytes)?);
        // SAFETY: the port is dropped before the pool, in `State`, whose fields stand in that order.
        let registration = unsafe { port.register(memory.base().as_ptr(), bytes, 0) }?;
        Ok(Self { memory, registration })
    }
}
