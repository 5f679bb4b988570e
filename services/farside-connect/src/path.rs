//! [`Path`]: what carries the frames of one connection.
//!
//! In Mercury's terms (III-B), a `Call` is an unexpected message and an `Answer` an expected one.
//! `Cancel` cancels. Reads and writes of registered memory are `Fetch`, `Take`, `Data` and `Settle`
//! frames, which every path carries. A path may do better: [`Path::direct`] and [`Path::rdma`]. The
//! [link](crate::link) chooses. Tests hold both to the same suites: `path/conformance.rs` and
//! `link/conformance.rs`.

#[cfg(test)]
pub(crate) mod conformance;
pub(crate) mod rdma;
pub(crate) mod shm;
pub(crate) mod simulated;
pub(crate) mod tcp;

use std::fmt;
use std::io::{Error, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use farside_sys::shm::Mapping;

use crate::allocated::Allocated;
use crate::frame::Head;
use crate::segments::Segment;

/// Why a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkEnd {
    /// The peer closed it, or its process ended.
    #[error("the peer closed the connection or ended")]
    ByPeer,
    /// This side closed it.
    #[error("the connection was closed on this side")]
    Here,
    /// The system reported a failure.
    #[error("the connection failed: {0}")]
    Failed(String),
    /// The connection belongs to the process of which this one is a forked child.
    #[error("the connection belongs to the process that made it, which has forked this one; connect here anew")]
    Forked,
    /// The peer sent what no correct peer sends.
    #[error("the peer broke the protocol: {0}")]
    Protocol(String),
}

impl LinkEnd {
    /// The end that a failure of the system is.
    pub fn failed(error: &Error) -> Self {
        if farside_sys::net::is_end(error) { Self::ByPeer } else { Self::Failed(error.to_string()) }
    }

    /// The end of a connection whose peer broke the protocol.
    pub fn protocol(why: impl fmt::Display) -> Self {
        Self::Protocol(why.to_string())
    }
}

/// A sender of frames for memory that this side has of its peer.
pub(crate) trait Frames: Send + Sync + fmt::Debug {
    /// Sends a frame, as [`Path::send`] does.
    ///
    /// # Errors
    /// [`LinkEnd`] if the connection has ended.
    fn send_frame(&self, head: Head, body: &[&[u8]]) -> Result<(), LinkEnd>;
}

/// One end of a connection.
///
/// Any thread may send. One thread at a time receives: the caller sees to that.
pub trait Path: Send + Sync + fmt::Debug {
    /// The word for it.
    fn name(&self) -> &'static str;

    /// Sends a frame whose body consists of `body`'s parts. A frame that finds no room waits in a
    /// backlog on this side; the protocol above bounds it. The parts may be reused at once.
    ///
    /// # Errors
    /// [`LinkEnd`] if the connection has ended.
    fn send(&self, head: Head, body: &[&[u8]]) -> Result<(), LinkEnd>;

    /// Passes at most `max` frames to `take` and returns their number. `scratch` is memory that the
    /// path may use during the call. Also sends from the backlog.
    ///
    /// # Errors
    /// [`LinkEnd`] once the connection has ended and all that arrived before has been passed.
    fn receive(&self, scratch: &mut Vec<u8>, max: usize, take: &mut dyn FnMut(Head, &[u8])) -> Result<usize, LinkEnd>;

    /// Prepares to wait for the [descriptors](Self::descriptors). Returns false if there may be
    /// something to receive; then the caller must not wait.
    fn prepare_sleep(&self) -> bool;

    /// Ends a prepared wait.
    fn end_sleep(&self);

    /// The descriptors that become readable when something arrives or the connection ends: its
    /// socket, and a waker if it has one.
    fn descriptors(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>);

    /// Looks at the socket, where a path does not do so by itself with each receive.
    fn look(&self) {}

    /// On a simulated path: lets time pass until something arrives somewhere. Returns false if
    /// nothing is under way, and on other paths.
    fn pass_time(&self) -> bool {
        false
    }

    /// Returns whether the calling thread may receive. On a simulated path, only the one that lets
    /// time pass may.
    fn may_receive(&self) -> bool {
        true
    }

    /// The number of bytes that wait in the backlog. While there are some, the socket tells when
    /// it becomes writable.
    fn backlog_bytes(&self) -> usize;

    /// Notes that a descriptor reported the end of the connection.
    fn note_end(&self);

    /// Ends the connection. Both sides find out.
    fn close(&self);

    /// Transfers of registered memory by RDMA, if the connection has them.
    fn rdma(&self) -> Option<&rdma::RdmaPath> {
        None
    }

    /// Direct reads of the peer's memory, if the path has them.
    fn direct(&self) -> Option<&dyn Direct> {
        None
    }
}

/// Accesses to the peer's memory in which it takes no part.
///
/// Memory may be taken back while the peer reads it. Each side therefore has *marks* that both see.
/// The owner sets a mark to a number while the memory behind it stays as it is, and clears it
/// before it takes the memory back. A reader looks at the mark after it has read; if the number is
/// still there, what it read is right.
///
/// Memory that was allocated for this purpose can be *shared*: both sides map it.
pub trait Direct {
    /// Sets one of this side's marks. Returns false if it has no such mark.
    fn set_mark(&self, mark: usize, number: u64) -> bool;

    /// Clears one of this side's marks.
    fn clear_mark(&self, mark: usize);

    /// Returns whether the peer's mark holds `number`. What was read from its memory before is
    /// right then.
    fn is_marked(&self, mark: usize, number: u64) -> bool;

    /// Lets the peer map memory, under a number of this side. Returns false if that cannot be now.
    fn share(&self, number: u64, memory: &Mapping) -> bool;

    /// Memory that the peer has shared under this number.
    fn shared(&self, number: u64) -> Option<Arc<Allocated>>;

    /// Unmaps memory that the peer has shared.
    fn forget(&self, number: u64);

    /// Fills `into` from segments of the peer's memory, which have as many bytes.
    ///
    /// # Errors
    /// The system's error; `PermissionDenied` if it forbids such reads. `NotConnected` if the mark
    /// does not hold `number`, so that the memory was taken back.
    fn read(&self, mark: usize, number: u64, segments: &[Segment], into: &mut [IoSliceMut<'_>]) -> Result<(), Error>;
}
