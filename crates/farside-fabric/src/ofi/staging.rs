//! Registered memory that messages are sent from and received into.

use std::sync::Arc;

use farside_sys::shm::SharedMemory;

use super::port::{Port, Registration, Rights};
use crate::transport::FabricError;

/// The size of a slot, and so of the longest message with its header. What is longer the `rxm` layer would not send at once.
pub(super) const SLOT_BYTES: usize = 16 << 10;
/// Slots that messages are received into.
pub(super) const RECEIVE_SLOTS: usize = 64;
/// Slots that messages are sent from.
pub(super) const SEND_SLOTS: usize = 64;

/// What an endpoint takes beside the memory that is registered: slots to receive into and to send from.
pub const PROCESS_BYTES: usize = (RECEIVE_SLOTS + SEND_SLOTS) * SLOT_BYTES;

/// The memory: first the slots to receive, then those to send.
///
/// A slot is the library's, a peer's message's, or free; it is accessed here only while it is free or its message has come.
#[derive(Debug)]
pub(super) struct Staging {
    memory: Arc<SharedMemory>,
    registration: Option<Registration>,
    free: Vec<usize>,
    /// Messages that are filled in and not on their way.
    waiting: usize,
}

impl Staging {
    /// Memory of a port.
    pub(super) fn new(port: &mut Port) -> Result<Self, FabricError> {
        let bytes = PROCESS_BYTES;
        let memory = Arc::new(SharedMemory::create("farside-staging", bytes)?);
        let registration = if port.attributes().registers_local {
            // SAFETY: the port is dropped before the memory, in `State`, whose fields stand in that order.
            Some(unsafe { port.register(memory.base().as_ptr(), bytes, 0, Rights::All) }?)
        } else {
            None
        };
        Ok(Self { memory, registration, free: (RECEIVE_SLOTS..RECEIVE_SLOTS + SEND_SLOTS).collect(), waiting: 0 })
    }

    pub(super) fn registration(&self) -> Option<Registration> {
        self.registration
    }

    /// A slot to send from, if one is free.
    pub(super) fn take(&mut self) -> Option<usize> {
        self.free.pop()
    }

    /// Gives a slot to send from back.
    pub(super) fn give_back(&mut self, slot: usize) {
        debug_assert!(!self.free.contains(&slot));
        self.free.push(slot);
    }

    pub(super) fn address(&self, slot: usize) -> *mut u8 {
        assert!(slot < RECEIVE_SLOTS + SEND_SLOTS, "there is such a slot");
        self.memory.base().as_ptr().wrapping_add(slot * SLOT_BYTES)
    }

    /// Whether some message is filled in and not [on its way](Self::left).
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// A message that was filled in is on its way, or never will be.
    pub(super) fn left(&mut self) {
        debug_assert!(self.waiting > 0);
        self.waiting -= 1;
    }

    /// Writes the parts one after the other into a slot that was [taken](Self::take), and says how long they are together.
    ///
    /// # Panics
    /// When they do not fit.
    pub(super) fn fill(&mut self, slot: usize, parts: &[&[u8]]) -> usize {
        let bytes = parts.iter().map(|part| part.len()).sum();
        assert!(bytes <= SLOT_BYTES, "a message fits into its slot");
        let mut to = self.address(slot);
        for part in parts {
            // SAFETY: the slot is ours while it is taken and not posted, and has room for all the parts.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len()) };
            to = to.wrapping_add(part.len());
        }
        self.waiting += 1;
        bytes
    }

    /// The message that came into a slot.
    pub(super) fn read(&self, slot: usize, bytes: usize) -> Vec<u8> {
        let bytes = bytes.min(SLOT_BYTES);
        let mut message = Vec::with_capacity(bytes);
        // SAFETY: the receive has ended, so nobody writes the slot, which has as many bytes; the vector has room for them.
        unsafe { std::ptr::copy_nonoverlapping(self.address(slot), message.as_mut_ptr(), bytes) };
        // SAFETY: so many were just written.
        unsafe { message.set_len(bytes) };
        message
    }
}
