//! Calls that carry buffers in registered memory, results that go into registered memory, and calls
//! to all workers.
//!
//! This module stands above [`invoke`](crate::invoke) and [`memory`](crate::memory). It adds forms
//! of calls to [`To`](crate::To) and [`Worker`](crate::Worker), and neither of the two modules
//! depends on it.

mod broadcast;
mod buffered;
mod fetch;
mod lent;
mod result_place;

pub use broadcast::{Everyone, LentToAll};
pub use lent::{Lent, Written};
pub use result_place::ResultPlace;
