//! Calls: running functions on other workers.
//!
//! `README.md` in this folder follows one call from end to end.

pub(crate) mod call;
pub(crate) mod caller;
pub(crate) mod calls;
#[cfg(test)]
mod corruption;
pub(crate) mod fetches;
pub(crate) mod frames;
pub(crate) mod function;
pub(crate) mod inbox;
pub(crate) mod message;
pub(crate) mod message_replies;
pub(crate) mod named;
pub(crate) mod notify;
pub(crate) mod outbox;
pub(crate) mod outcome;
pub(crate) mod payload;
pub(crate) mod pending;
pub(crate) mod remote;
pub(crate) mod reply;
pub(crate) mod reply_slots;
pub(crate) mod ring;
pub(crate) mod staged;
pub(crate) mod table;
