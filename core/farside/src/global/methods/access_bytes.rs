//! Bytes at any address, and where an address is.

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::memory::GlobalAddress;
use crate::runtime::worker::{Worker, extension};

extension! {
    /// Bytes at any address, and where an address is.
    ///
    /// This is a part of [`Worker`]. The prelude brings it in.
    AccessBytes:

    /// Writes bytes.
    ///
    /// *Completion*, cost: as [`GlobalPtr::put`](crate::GlobalPtr::put), and a copy.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale or read-only
    /// address, or one out of range; [`Error::PeerLost`] if the owner is lost; [`Error::Fabric`] if
    /// it does not answer in time, or the transport fails; [`Error::InHandler`] if a handler would
    /// have to wait for it.
    fn put_bytes(&self, address: GlobalAddress, data: &[u8]) -> Result<()>;

    /// Reads bytes until `data` is full.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null or stale address,
    /// or one out of range; [`Error::PeerLost`] if the owner is lost; [`Error::Fabric`] if it does
    /// not answer in time, or the transport fails; [`Error::InHandler`] if a handler would have to
    /// wait for it. The contents of `data` are unspecified then.
    fn get_bytes(&self, address: GlobalAddress, data: &mut [u8]) -> Result<()>;

    /// Returns whether accesses to an address are this worker's own loads and stores. They are for
    /// memory of its own process, and for memory that processes of its machine have allocated.
    /// [Registered](crate::RegisterMemory::register) memory of other processes is not mapped.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null or stale address,
    /// or one out of range; [`Error::PeerLost`] if the owner is lost; [`Error::Fabric`] if it does
    /// not answer in time, or the transport fails.
    fn is_mapped(&self, address: GlobalAddress) -> Result<bool>;

    /// Returns where a byte lies in this process, or `None` if it is not this process's own.
    ///
    /// The pointer is valid while the memory is registered or allocated. Other workers may write
    /// there at any time, so no reference to it may be made, except as
    /// [`read_epoch`](crate::Worker::read_epoch) allows. The inverse is
    /// [`address_at`](Self::address_at).
    ///
    /// *Cost*: one look at a table of this process, under a lock.
    ///
    /// ACP's `acp_query_address`.
    fn local_address(&self, address: GlobalAddress) -> Option<*mut u8>;

    /// Returns the global address of a byte of this process's memory, if it has one. If several
    /// regions contain it, the first one counts.
    ///
    /// *Cost*: a look at all slots of this process, some ten microseconds. A program that has the
    /// [buffer](crate::RegisterMemory::address_of) or registration should ask that instead.
    ///
    /// ACP's `acp_query_ga`.
    fn address_at(&self, pointer: *const u8) -> Option<GlobalAddress>;
}
