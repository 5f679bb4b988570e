//! Registered memory for sending and receiving messages.

use std::sync::Arc;

use farside_sys::shm::SharedMemory;

use super::port::{Port, Registration, Rights, random_key};
use crate::transport::FabricError;

/// Size of a slot, and thus of the longest message with its header. The `rxm` layer would not send
/// a longer one at once.
pub(super) const SLOT_BYTES: usize = 16 << 10;
/// Number of slots for received messages.
pub(super) const RECEIVE_SLOTS: usize = 64;
/// Number of slots for sent messages.
pub(super) const SEND_SLOTS: usize = 64;

/// Memory that an endpoint uses in addition to registered memory: the slots.
pub const PROCESS_BYTES: usize = (RECEIVE_SLOTS + SEND_SLOTS) * SLOT_BYTES;

/// The slots: first those for receives, then those for sends.
///
/// A slot belongs to the library, holds a peer's message, or is free. This process accesses it only
/// while it is free or after its message has arrived.
#[derive(Debug)]
pub(super) struct Staging {
    memory: Arc<SharedMemory>,
    registration: Option<Registration>,
    free: Vec<usize>,
    /// Number of messages that are filled in and not yet in flight.
    waiting: usize,
}

impl Staging {
    /// Creates the slots of a port.
    pub(super) fn new(port: &mut Port) -> Result<Self, FabricError> {
        let bytes = PROCESS_BYTES;
        let memory = Arc::new(SharedMemory::create("farside-staging", bytes)?);
        let registration = if port.attributes().registers_local {
            // SAFETY: `State` drops the port before the memory, in the order of its fields.
            Some(unsafe { port.register(memory.base().as_ptr(), bytes, random_key()?, Rights::Local) }?)
        } else {
            None
        };
        Ok(Self { memory, registration, free: (RECEIVE_SLOTS..RECEIVE_SLOTS + SEND_SLOTS).collect(), waiting: 0 })
    }

    pub(super) fn registration(&self) -> Option<Registration> {
        self.registration
    }

    /// Takes a slot for a message to send, if one is free.
    pub(super) fn take(&mut self) -> Option<usize> {
        self.free.pop()
    }

    /// Returns a slot for sends.
    pub(super) fn give_back(&mut self, slot: usize) {
        debug_assert!(!self.free.contains(&slot));
        self.free.push(slot);
    }

    pub(super) fn address(&self, slot: usize) -> *mut u8 {
        assert!(slot < RECEIVE_SLOTS + SEND_SLOTS, "the slot exists");
        self.memory.base().as_ptr().wrapping_add(slot * SLOT_BYTES)
    }

    /// Returns whether a message is filled in and not yet [in flight](Self::left).
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Records that a filled-in message is in flight, or never will be.
    pub(super) fn left(&mut self) {
        debug_assert!(self.waiting > 0);
        self.waiting -= 1;
    }

    /// Fills a slot that was [taken](Self::take) with a header and `bytes` bytes that `write`
    /// writes. Returns the total length.
    ///
    /// # Panics
    /// If they do not fit.
    pub(super) fn fill(&mut self, slot: usize, header: &[u8], bytes: usize, write: &mut dyn FnMut(&mut [u8])) -> usize {
        let total = header.len() + bytes;
        assert!(total <= SLOT_BYTES, "a message fits into its slot");
        // SAFETY: the slot has `SLOT_BYTES` initialized bytes. It belongs to this process while it
        // is taken and not posted, peers have no rights to this memory, and `self` is borrowed
        // mutably.
        let message = unsafe { std::slice::from_raw_parts_mut(self.address(slot), total) };
        message[..header.len()].copy_from_slice(header);
        write(&mut message[header.len()..]);
        self.waiting += 1;
        total
    }

    /// The message in a receive slot whose receive has ended.
    pub(super) fn message(&self, slot: usize, bytes: usize) -> &[u8] {
        // SAFETY: the slot has `SLOT_BYTES` initialized bytes. The receive has ended and is posted
        // again only through a mutable borrow, so nothing writes them meanwhile.
        unsafe { std::slice::from_raw_parts(self.address(slot), bytes.min(SLOT_BYTES)) }
    }
}
