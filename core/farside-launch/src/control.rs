//! The link between each process of a job and the coordinator.
//!
//! A process greets and receives the order to start. It reports when it is idle or has failed, and
//! learns of losses and of the end of the job. Where shared memory does not connect all processes,
//! it also sends its address on the fabric and receives those of its peers. The
//! [coordinator](crate::coordinator) decides the order of all this. Processes send each other
//! nothing by this link.

pub(crate) mod frames;
pub(crate) mod link;
mod local;
mod message;
mod socket;
pub(crate) mod tcp;

use std::fmt::Debug;
use std::os::fd::BorrowedFd;

use farside_wire::check::MessageKind;

pub use local::LocalControl;
pub use message::{
    CARD_BYTES_MAX, Ending, FABRIC_BYTES_MAX, Greeting, JobShape, PeerCard, TOLD_BYTES_MAX, ToCoordinator, ToProcess,
};
pub(crate) use message::{builds_messages, peers_messages};
pub use socket::SocketControl;
pub(crate) use tcp::TcpControl;

/// A process's end of its link with the coordinator.
pub trait Control: Send + Sync + Debug {
    /// Sends a message. Messages arrive in order, unless the link ends, which
    /// [`receive`](Self::receive) reports.
    fn send(&self, message: ToCoordinator);

    /// Returns the next message from the coordinator, without waiting. The end of the link is one
    /// [`ToProcess::Ended`].
    fn receive(&self) -> Option<ToProcess>;

    /// Returns a descriptor that becomes readable when there is something to receive. `None` if
    /// there is none to wait for: the link has ended, or it wakes the process by itself.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Returns whether the coordinator has received all messages, as far as this process knows.
    fn is_heard(&self) -> bool {
        true
    }

    /// Returns whether a process of the job holds the other end. The link breaks when that process
    /// dies.
    fn leads_to_a_process(&self) -> bool {
        false
    }

    /// Ends this process's part in the job. It sends nothing afterwards.
    fn leave(&self) {}
}

/// The messages of the control link, for tests of their decoders.
pub(crate) fn message_kinds() -> Vec<MessageKind> {
    [message::message_kinds(), vec![frames::message_kind()]].concat()
}
