//! Connections between separate programs, and memory that is read and written over them.
//!
//! `farside-rpc` makes calls and streams of it. A program that calls or serves takes that crate,
//! which passes on what programs need of this one.
//!
//! | to | use |
//! |---|---|
//! | wait for connections, or make one | [`door`], [`dial`] |
//! | send and receive over a connection | [`link`], [`frame`], [`patience`] |
//! | read and write memory of the peer | [`bulk`], [`attachments`] |
//! | test, without sockets and with many connections | [`simulated`] |
//!
//! # Trust
//! What comes from the other side is checked before it is used. On one machine the system vouches
//! for the user at the other end; everywhere else a [token](Tokens) does. *Nothing is encrypted.*
//!
//! # Rooms
//!
//! From the bottom up.
//!
//! | room | contents |
//! |---|---|
//! | [`Address`], [`frame`], [`table`], `segments` | names of servers; headers; numbers that peers repeat; memory of a peer, described |
//! | `lock`, `allocated`, `path` | memory that peers map; what carries frames: shared memory, TCP, a simulated network; [`Rdma`] for bulk data |
//! | [`patience`], `area`, [`link`] | how long threads wait; memory that is accessed for a peer; one connection: exposed memory, transfers, waiting |
//! | `remote`, `relay`, `lent`, `memory`, [`bulk`] | memory of the peer; passing it on to a third party; memory that a program lends, or allocates; [`Bulk`](bulk::Bulk) |
//! | [`Peer`], `greeting`, `socket`, [`door`], `dial` | how a connection begins |

mod address;
mod allocated;
mod area;
pub mod bulk;
mod dial;
pub mod door;
mod error;
pub mod frame;
#[cfg(test)]
mod golden;
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub, reason = "tests of the layers above use it"))]
mod greeting;
#[cfg(feature = "testing")]
mod kills;
/// Without tests, no process is killed.
#[cfg(not(feature = "testing"))]
mod kills {
    #[inline(always)]
    pub(crate) fn point() {}
}
mod lent;
pub mod link;
mod lock;
mod memory;
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub, reason = "tests of the layers above use it"))]
mod path;
pub mod patience;
mod peer;
mod relay;
mod remote;
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub, reason = "tests of the layers above use it"))]
mod segments;
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub, reason = "tests of the layers above use it"))]
mod socket;
pub mod table;
#[cfg(feature = "tokio")]
mod watched;

pub use address::{Address, AddressError};
pub use dial::{Ways, dial};
pub use error::ConnectError;
pub use greeting::{Credentials, Refusal, Tokens, Welcome};
pub use link::TransferError;
pub use lock::lock;
pub use path::rdma::Rdma;
pub use path::{LinkEnd, Path};
pub use peer::Peer;
#[cfg(feature = "tokio")]
pub use watched::Watched;

/// Memory that goes with messages, for the layer that sends them.
pub mod attachments {
    pub use crate::area::{Area, Owner};
    pub use crate::bulk::{Received, WORD, attached};
    pub use crate::remote::{Description, Holder, expose, expose_in_result, pull_described, pull_described_async};
}

/// Connections over a network that is simulated, in one thread.
pub mod simulated {
    pub use crate::path::simulated::{Network, Profile, Run};
}

/// The parts that tests of the layers above use: points at which they kill a process, and the parts
/// of a connection.
#[cfg(feature = "testing")]
pub mod testing {
    pub use crate::door::abstract_name;
    pub use crate::greeting::{Hello, MAGIC, Mac32, Nonce, Proof, Reply, Secret, Side, VERSION};
    pub use crate::kills::die_after;
    pub use crate::link::{GONE, OUT_OF_RANGE, READ_ONLY};
    pub use crate::path::shm::{Offer, ShmPath, Wakers};
    pub use crate::segments::{Segment, pack};
    pub use crate::socket::{Socket, Stream};
}

/// The messages of this crate, for tests of their decoders.
#[doc(hidden)]
pub fn message_kinds() -> Vec<farside_wire::check::MessageKind> {
    let frames = vec![path::tcp::message_kind(), segments::message_kind()];
    [greeting::message_kinds(), frames, frame::message_kinds(), remote::message_kinds()].concat()
}
