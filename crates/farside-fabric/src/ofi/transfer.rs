//! A put or get of libfabric's own, in as many pieces as the provider needs.

use crate::by_message::NativeAccess;
use crate::ofi::port::Registration;
use crate::transport::{Completion, FabricError, Operation, Outcome, RemoteKey};

/// Names a transfer while it is under way.
pub(super) type TransferId = u64;

/// From when it is posted until libfabric has let go of its buffer.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) key: RemoteKey,
    pub(super) access: NativeAccess,
    pub(super) offset: u64,
    pub(super) kind: Kind,
    /// The buffer. It is not touched here while pieces are under way.
    pub(super) data: Vec<u8>,
    /// Where libfabric finds the bytes.
    pub(super) lent: Lent,
    /// So many bytes are posted.
    pub(super) posted: usize,
    /// So many pieces are under way.
    pub(super) pieces: usize,
    /// The first that went wrong.
    pub(super) error: Option<FabricError>,
    /// `None` when it was told already: the peer is lost, and the buffer is in quarantine.
    pub(super) completion: Option<Completion>,
}

/// The memory that libfabric is given for a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lent {
    /// The buffer.
    Buffer,
    /// The buffer, registered, as the provider asks for.
    Registered(Registration),
    /// A slot of the pool.
    Slot(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Put,
    Get,
}

impl Kind {
    /// What such a transfer was asked for as.
    pub(super) fn of(self, offset: u64, data: Vec<u8>) -> Operation {
        match self {
            Kind::Put => Operation::Put { offset, data },
            Kind::Get => Operation::Get { offset, room: data },
        }
    }
}

impl Transfer {
    /// Somebody waits for it: its peer is not lost, and it was not cancelled. Otherwise its buffer is in quarantine.
    pub(super) fn is_wanted(&self) -> bool {
        self.completion.as_ref().is_some_and(|completion| !completion.has_ended())
    }

    /// Nothing of it is under way, and nothing more is to be posted.
    pub(super) fn is_over(&self) -> bool {
        self.pieces == 0 && (self.posted == self.data.len() || self.error.is_some() || !self.is_wanted())
    }

    /// Whether there is something to post.
    pub(super) fn has_more(&self) -> bool {
        self.posted < self.data.len() && self.error.is_none() && self.is_wanted()
    }

    /// Tells the end, if it was not told.
    pub(super) fn tell(self) {
        let Some(completion) = self.completion else { return };
        completion.end(match (self.error, self.kind) {
            (Some(error), _) => Err(error),
            (None, Kind::Put) => Ok(Outcome::Put(self.data)),
            (None, Kind::Get) => Ok(Outcome::Got(self.data)),
        });
    }
}
