//! The link between each process of a job and the one that started it.
//!
//! A process says hello and is told to start; it says when it is idle or has failed, and is told of others' failures and of
//! the end. Where shared memory does not reach all, it also gives its address and is told those of the others. That is all:
//! nothing that processes have to say to each other goes this way. What is said when, the
//! [coordinator](crate::coordinator) decides.

pub(crate) mod frames;
pub(crate) mod link;
mod local;
mod message;
mod socket;
pub(crate) mod tcp;

use std::fmt::Debug;
use std::os::fd::BorrowedFd;

pub use local::LocalControl;
pub use message::fuzz_decode;
pub use message::{
    CARD_BYTES_MAX, Ending, FABRIC_BYTES_MAX, Greeting, JobShape, PeerCard, ToCoordinator, ToProcess, builds_messages,
    peers_messages,
};
pub use socket::SocketControl;
pub(crate) use tcp::TcpControl;

/// A process's end of its link with the coordinator.
pub trait Control: Send + Sync + Debug {
    /// Says something. It arrives, in order, or the link ends, which [`receive`](Self::receive) tells.
    fn send(&self, message: ToCoordinator);

    /// What the coordinator said, without waiting. When the link is closed this is [`ToProcess::Ended`], once.
    fn receive(&self) -> Option<ToProcess>;

    /// Becomes readable when there is something to receive. `None` when there is no descriptor to wait for: the link is
    /// at its end, or it wakes the process by itself.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Whether the coordinator has heard all that was said, as far as is known here.
    fn is_heard(&self) -> bool {
        true
    }

    /// Whether a process of the job is at the other end. When that one dies the link breaks.
    fn leads_to_a_process(&self) -> bool {
        false
    }

    /// This process has done its part in the job and says no more.
    fn leave(&self) {}
}
