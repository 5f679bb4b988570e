//! A put or get by libfabric itself, in as many pieces as the provider needs.

use crate::emulated::NativeAccess;
use crate::ofi::port::{Kind, Registration};
use crate::transport::{Completion, FabricError, Operation, Outcome, RemoteKey};

/// Names a transfer while it is in flight.
pub(super) type TransferId = u64;

/// A transfer, from its posting until libfabric has released its buffer.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) key: RemoteKey,
    pub(super) access: NativeAccess,
    pub(super) offset: u64,
    pub(super) kind: Kind,
    /// The buffer. This process does not touch it while pieces are in flight.
    pub(super) data: Vec<u8>,
    /// The memory that libfabric accesses.
    pub(super) lent: Lent,
    /// Number of bytes posted.
    pub(super) posted: usize,
    /// Number of pieces in flight.
    pub(super) pieces: usize,
    /// The first failure.
    pub(super) error: Option<FabricError>,
    /// `None` if the end was already reported: the peer is lost, and the buffer is in quarantine.
    pub(super) completion: Option<Completion>,
}

/// The memory that libfabric accesses for a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lent {
    /// The buffer.
    Buffer,
    /// The buffer, registered as the provider requires.
    Registered(Registration),
    /// A slot of the pool.
    Slot(usize),
}

impl Kind {
    /// The operation that requested such a transfer.
    pub(super) fn of(self, offset: u64, data: Vec<u8>) -> Operation {
        match self {
            Kind::Put => Operation::Put { offset, data },
            Kind::Get => Operation::Get { offset, room: data },
        }
    }
}

impl Transfer {
    /// Returns whether its end is awaited: its peer is not lost, and it was not cancelled.
    /// Otherwise its buffer is in quarantine.
    pub(super) fn is_wanted(&self) -> bool {
        self.completion.as_ref().is_some_and(|completion| !completion.has_ended())
    }

    /// Returns whether nothing of it is in flight, and nothing more will be posted.
    pub(super) fn is_over(&self) -> bool {
        self.pieces == 0 && (self.posted == self.data.len() || self.error.is_some() || !self.is_wanted())
    }

    /// Returns whether there is something to post.
    pub(super) fn has_more(&self) -> bool {
        self.posted < self.data.len() && self.error.is_none() && self.is_wanted()
    }

    /// Reports the end, if that has not happened yet.
    pub(super) fn tell(self) {
        let Some(completion) = self.completion else { return };
        completion.end(match (self.error, self.kind) {
            (Some(error), _) => Err(error),
            (None, Kind::Put) => Ok(Outcome::Put(self.data)),
            (None, Kind::Get) => Ok(Outcome::Got(self.data)),
        });
    }
}
