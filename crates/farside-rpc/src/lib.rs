//! Remote procedure calls between separate programs, with bulk data.
//!
//! A server and its clients need no common start, job, binary or version of a program. They agree
//! on an [`Address`], and on the names and types of procedures.
//!
//! | to | use |
//! |---|---|
//! | serve | [`Server`], or [`server::Turns`] in an event loop of your own |
//! | call | [`Client`] |
//! | name procedures and their handlers | [`Service`] |
//! | move large data | [`bulk`] |
//! | know who calls | [`Peer`], [`Tokens`], [`Credentials`] |
//!
//! The library reimplements the ideas of Mercury: small arguments travel in messages; large data is
//! described, and the handler moves it.
//!
//! # Trust
//! What comes from the other side is checked before it is used. On one machine the system vouches
//! for the user at the other end; everywhere else a [token](Tokens) does. *Nothing is encrypted.*
//! Between machines that others can listen to, use a tunnel.
//!
//! # Rooms
//!
//! From the bottom up.
//!
//! | room | contents |
//! |---|---|
//! | [`Address`], `frame`, `table`, `area` | names of servers; headers; numbers that peers repeat; memory that is accessed for a peer |
//! | `path` | what carries frames: shared memory, TCP |
//! | `link` | one connection: exposed memory, transfers, waiting |
//! | `greeting`, `socket`, `door`, `dial` | how a connection begins |
//! | [`bulk`], `call`, `service`, `answer` | what handlers see, and what travels |
//! | [`server`], `client` | the two ends |

mod address;
mod answer;
mod area;
pub mod bulk;
mod call;
mod client;
mod dial;
mod door;
mod error;
mod frame;
mod greeting;
#[cfg(test)]
mod hostile;
mod link;
mod path;
mod peer;
pub mod server;
mod service;
mod socket;
mod table;

pub use address::{Address, AddressError};
pub use bulk::Bulk;
pub use call::Call;
pub use client::{Client, Connect, Pending, Procedure, Signature, Stub};
pub use error::{CallError, ConnectError, Never, Ran, Stage};
pub use greeting::{Credentials, Refusal, Tokens};
pub use link::TransferError;
pub use path::LinkEnd;
pub use peer::Peer;
pub use server::Server;
pub use service::{Handling, Service};
