//! The service messages about memory that processes have of each other.

use super::{MemoryRefusal, RemoteMemory};
use crate::Wire;

/// The requested place of memory in the process that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(crate) enum Locality {
    /// Anywhere.
    Anywhere,
    /// On the NUMA node of this number.
    Node(u32),
    /// On the NUMA node that this thread of the process is bound to.
    Thread(u32),
}

/// A message between the service threads of two processes.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(crate) enum MemoryMessage {
    /// To an owner: allocate this much for the sender.
    Allocate { request: u32, bytes: u64, near: Locality },
    /// The answer: the memory.
    Allocated { request: u32, memory: RemoteMemory },
    /// To an owner: take this memory back. The note is for the owner's observer of accesses.
    Release { request: u32, memory: RemoteMemory, note: Vec<u8> },
    /// The answer: the memory is released.
    Released { request: u32 },
    /// The answer to either: the owner refuses.
    Refused { request: u32, why: MemoryRefusal },
}
