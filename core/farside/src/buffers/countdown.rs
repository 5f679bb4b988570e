//! Counting calls in registered memory, which every process can watch.
//!
//! Making a countdown, adding to it and reading it access the word at once. Where the word is not
//! mapped, they wait without running calls, and handlers are refused.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use farside_fabric::transport::{AtomicChange, Operation};

use crate::Wire;
use crate::error::Result;
use crate::invoke::notify::Counted;
use crate::memory::RemoteMemory;
use crate::runtime::process::Process;
use crate::runtime::worker::Worker;

/// A counter in registered memory of any process, which calls count down when they have run
/// (Seriema's `Synchronizer` in a `RemoteObject`).
///
/// It is a plain value. Any worker that has it can let calls count it down
/// ([`To::counting`](crate::To::counting)), and can watch it. Calls of different workers and
/// processes may share one. By contrast, a [`Synchronizer`](crate::Synchronizer) belongs to one
/// worker, and wakes it.
///
/// ```no_run
/// # use farside::prelude::*;
/// # use farside::Countdown;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let memory = me.allocate_at(me.process(), 64)?;
/// let done = Countdown::new(me, memory, 0, 2)?;
/// for to in [me.neighbor(1), me.neighbor(2)] {
///     me.to(to).counting(done).call((), |there, ()| println!("{} was here", there.id()))?;
/// }
/// // A third may wait for it as well.
/// me.call_return(me.neighbor(3), done, |there, done| done.left(there).is_ok())?.wait()?;
/// done.wait(me)?;
/// me.release(memory)
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(word = "farside::Countdown")]
pub struct Countdown {
    memory: RemoteMemory,
    offset: u64,
}

impl Countdown {
    /// Creates a counter of `calls` calls in the word at `offset` of this memory. `offset` is a
    /// multiple of 8.
    ///
    /// *Cost*: that of an atomic change of the word.
    ///
    /// # Errors
    /// [`Error::Fabric`](crate::Error::Fabric) with `OutOfRange` or `Misaligned`, if the owner does
    /// not answer in time, or if the transport fails; [`Error::PeerLost`](crate::Error::PeerLost)
    /// if the owner is lost; [`MemoryError::Released`](crate::memory::MemoryError::Released) if the
    /// release is detected; [`Error::InHandler`](crate::Error::InHandler) in a handler, if the
    /// memory is not mapped.
    #[track_caller]
    pub fn new(me: &Worker, memory: RemoteMemory, offset: u64, calls: u64) -> Result<Self> {
        memory.atomic64(me, offset, AtomicChange::Swap(calls))?;
        Ok(Self { memory, offset })
    }

    /// Returns the number of calls left.
    ///
    /// # Errors
    /// [`Error::Fabric`](crate::Error::Fabric) with `OutOfRange` or `Misaligned`, if the owner does
    /// not answer in time, or if the transport fails; [`Error::PeerLost`](crate::Error::PeerLost)
    /// if the owner is lost; [`MemoryError::Released`](crate::memory::MemoryError::Released) if the
    /// release is detected; [`Error::InHandler`](crate::Error::InHandler) in a handler, if the
    /// memory is not mapped.
    #[track_caller]
    pub fn left(&self, me: &Worker) -> Result<u64> {
        self.memory.atomic64(me, self.offset, AtomicChange::Load)
    }

    /// Adds `calls` calls to the count.
    ///
    /// # Errors
    /// [`Error::Fabric`](crate::Error::Fabric) with `OutOfRange` or `Misaligned`, if the owner does
    /// not answer in time, or if the transport fails; [`Error::PeerLost`](crate::Error::PeerLost)
    /// if the owner is lost; [`MemoryError::Released`](crate::memory::MemoryError::Released) if the
    /// release is detected; [`Error::InHandler`](crate::Error::InHandler) in a handler, if the
    /// memory is not mapped.
    #[track_caller]
    pub fn add(&self, me: &Worker, calls: u64) -> Result<()> {
        self.memory.atomic64(me, self.offset, AtomicChange::Add(calls)).map(drop)
    }

    /// Waits until no call is left, and meanwhile runs calls that arrive here. Waits for the job's
    /// deadline at most.
    ///
    /// *Cost*: a sleeping worker is not woken; it looks every 100 µs.
    ///
    /// # Errors
    /// [`Error::Deadline`](crate::Error::Deadline) if calls are left in the end, also after the
    /// loss of a process that was to count: the counter does not know which processes those are.
    /// [`Error::InHandler`](crate::Error::InHandler) in a handler.
    /// [`Error::Fabric`](crate::Error::Fabric) with `OutOfRange` or `Misaligned`, if the owner does
    /// not answer in time, or if the transport fails; [`Error::PeerLost`](crate::Error::PeerLost)
    /// if the owner is lost; [`MemoryError::Released`](crate::memory::MemoryError::Released) if the
    /// release is detected.
    #[track_caller]
    pub fn wait(&self, me: &Worker) -> Result<()> {
        self.wait_for(me, me.default_deadline())
    }

    /// Waits for at most this long.
    ///
    /// # Errors
    /// [`Error::Deadline`](crate::Error::Deadline) if calls are left in the end, also after the
    /// loss of a process that was to count: the counter does not know which processes those are.
    /// [`Error::InHandler`](crate::Error::InHandler) in a handler.
    /// [`Error::Fabric`](crate::Error::Fabric) with `OutOfRange` or `Misaligned`, if the owner does
    /// not answer in time, or if the transport fails; [`Error::PeerLost`](crate::Error::PeerLost)
    /// if the owner is lost; [`MemoryError::Released`](crate::memory::MemoryError::Released) if the
    /// release is detected.
    #[track_caller]
    pub fn wait_for(&self, me: &Worker, time: Duration) -> Result<()> {
        let site = Location::caller();
        let left = |me: &Worker| self.memory.atomic64_from(me, self.offset, AtomicChange::Load, site);
        me.watch_until("watching a countdown", time, |me| match left(me) {
            Ok(0) => Some(Ok(())),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        })
    }
}

impl Counted for Countdown {
    /// Counts one call down. An error is ignored if the memory is gone: there is no caller to tell.
    fn count(self, process: &Arc<Process>) {
        process.accesses.end();
        let change = AtomicChange::Add(u64::MAX);
        self.memory.change_soon(process, Operation::Atomic64 { offset: self.offset, change }, |_| ());
    }
}
