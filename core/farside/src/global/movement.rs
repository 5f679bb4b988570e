//! Operations that do not wait: copies from anywhere to anywhere, puts, gets and changes of words,
//! with their order.
//!
//! Each has a [`Handle`]. [`Worker::complete`](crate::MoveMemory::complete) waits for it and all
//! before it, and [`Order`] says when it may start. `movement/README.md` follows one copy, and
//! proves that orders are kept.

mod complete;
mod error;
mod flow;
mod handle;
mod incoming;
mod issue;
mod message;
#[cfg(test)]
mod model;
mod orders;
mod put_signal;
mod room;
mod table;
mod work;

pub use self::complete::Completing;
pub(super) use self::error::Failure;
pub use self::error::MovementError;
pub use self::handle::{Handle, Order};
pub use self::incoming::{Incoming, OperationValue};
pub(crate) use self::message::MoveMessage;
pub(crate) use self::room::Movement;

#[cfg(doc)]
use crate::Worker;
