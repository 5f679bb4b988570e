//! The service messages of the checker.

use farside_fabric::ProcessId;

use super::CheckRoom;
use super::epochs::{AccessState, Lifetime, Standing};
use super::shadow::Record;
use crate::Wire;
use crate::error::Result;
use crate::runtime::process::Process;
use crate::wire::{self, Decoder};

/// A message between the service threads of two processes.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(crate) enum CheckMessage {
    /// To the owner of memory: a worker of the sender is about to make this access. `ended` is the
    /// access that the last answer named, if that one has ended.
    Enter { request: u64, standing: Standing, ended: Option<(u32, Lifetime)>, access: Record },
    /// The answer: the access is recorded.
    Entered { request: u64 },
    /// The answer: the access conflicts with an earlier one.
    Met { request: u64, earlier: Record },
    /// To any process: is this access of the worker open, as far as the process knows?
    Ask { request: u64, worker: u32, lifetime: Lifetime },
    /// The answer.
    State { request: u64, state: AccessState },
    /// To the owner of memory: an operation of a worker of the sender completed in this epoch.
    Completed { worker: u32, operation: u64, epoch: u64 },
    /// To the owner of memory: forget the accesses of an operation of a worker of the sender.
    Ended { worker: u32, operation: u64 },
}

/// Sends a message to the service thread of a process.
pub(super) fn send(process: &Process, to: ProcessId, message: &CheckMessage) -> Result<()> {
    process.send::<CheckRoom>(to, message)
}

pub(super) fn encode<T: Wire>(value: &T) -> Vec<u8> {
    wire::encode(value, Vec::new())
}

/// Returns `None` when the bytes are no such value.
pub(super) fn decode<T: Wire>(bytes: &[u8]) -> Option<T> {
    wire::decode(Decoder::new(bytes), 0).ok()
}
