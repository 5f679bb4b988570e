//! Copies, puts, gets and changes of memory anywhere that are started in a defined order and
//! awaited later.

use std::time::Duration;

use farside_fabric::ProcessId;
use farside_fabric::transport::AtomicChange;

#[cfg(doc)]
use crate::error::Error;
use crate::error::{Refused, Result};
use crate::global::{Completing, GlobalPtr, Handle, Incoming, Order, Signal, Unsigned};
use crate::memory::GlobalAddress;
use crate::runtime::worker::{Worker, extension};

extension! {
    /// Copies, puts, gets and changes of memory anywhere that are started in a defined order and
    /// awaited later.
    ///
    /// This is a part of [`Worker`]. The prelude brings it in.
    MoveMemory:

    /// Starts a copy of bytes from any place to any other: of this process, of another, or, as a
    /// third party, from one process to another.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # use farside::{GlobalAddress, Order};
    /// # fn example(
    /// #     me: &Worker,
    /// #     block: GlobalAddress,
    /// #     flag: GlobalAddress,
    /// # ) -> farside::Result<()> {
    /// let there = GlobalAddress::starter(ProcessId::new(2), 0);
    /// let copied = me.copy(there, block, 1024, Order::None)?;
    /// // The flag is not seen before the block.
    /// let told = me.start_put(flag, &1_u64.to_le_bytes(), Order::After(copied))?;
    /// me.complete(told)
    /// # }
    /// ```
    ///
    /// *Completion*: when [`complete`](Self::complete) has returned, the source may change, and the
    /// copy is visible to any worker that learns of it.
    ///
    /// *Cost*: a copy by the caller if both places are mapped here and nothing is to be waited for.
    /// Otherwise puts or gets, if one of the places is mapped. If neither is, a command to the
    /// service thread of the process that owns the source, which puts the bytes; no worker is
    /// needed there. Large copies are made in pieces of 512 KiB, of which four are under way. The
    /// first use of a region asks its owner's service thread for it.
    ///
    /// ACP's `acp_copy`.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null or stale address,
    /// or one out of range; [`Error::PeerLost`] if an owner is lost;
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `Overlap`, `TooMany`,
    /// or, for the handle in `order`, `Foreign` or `NeverStarted`; [`Error::Deadline`], or
    /// [`Error::InHandler`] in a handler, if 256 operations of this worker are open and none ends.
    /// Nothing was started then. Later failures are reported when the operation is completed.
    fn copy(&self, target: GlobalAddress, source: GlobalAddress, bytes: u64, order: Order) -> Result<Handle>;

    /// Starts a put of a few bytes, which the call copies.
    ///
    /// *Cost*: a store if the place is mapped here and nothing is to be waited for; otherwise a put
    /// and two allocations for copies of the bytes, one kept by the operation and one by the
    /// fabric. If it is ordered after an operation that another process executes, it is sent there,
    /// and waits there.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null or stale address,
    /// or one out of range; [`Error::PeerLost`] if its owner is lost;
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `TooLong` for more than
    /// 64 bytes, `TooMany`, or, for the handle in `order`, `Foreign` or `NeverStarted`;
    /// [`Error::Deadline`], or [`Error::InHandler`] in a handler, if 256 operations of this worker
    /// are open and none ends.
    fn start_put(&self, target: GlobalAddress, data: &[u8], order: Order) -> Result<Handle>;

    /// Starts a put of the bytes of a buffer, which is handed over and returned when they are
    /// there.
    ///
    /// *Cost*: a copy if the place is mapped here and nothing is to be waited for; otherwise a put
    /// from the buffer itself. More than 64 MiB take puts of 512 KiB, four at a time, and a copy of
    /// the bytes for them.
    ///
    /// # Errors
    /// With the buffer: [`GlobalError::Address`](crate::global::GlobalError::Address) for a null or
    /// stale address, or one out of range; [`Error::PeerLost`] if its owner is lost;
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `TooMany`, or, for the
    /// handle in `order`, `Foreign` or `NeverStarted`; [`Error::Deadline`], or [`Error::InHandler`]
    /// in a handler, if 256 operations of this worker are open and none ends.
    fn start_put_owned(
        &self,
        target: GlobalAddress,
        buffer: Vec<u8>,
        order: Order,
    ) -> Result<Incoming<Vec<u8>>, Refused<Vec<u8>>>;

    /// Starts a get of as many bytes as a buffer has. The buffer is handed over and returned with
    /// them.
    ///
    /// *Cost*: a copy if the place is mapped here and nothing is to be waited for; otherwise a get
    /// into the buffer itself. More than 64 MiB take gets of 512 KiB, four at a time, that are
    /// copied into it.
    ///
    /// # Errors
    /// With the buffer: [`GlobalError::Address`](crate::global::GlobalError::Address) for a null or
    /// stale address, or one out of range; [`Error::PeerLost`] if its owner is lost;
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `TooMany`, or, for the
    /// handle in `order`, `Foreign` or `NeverStarted`; [`Error::Deadline`], or [`Error::InHandler`]
    /// in a handler, if 256 operations of this worker are open and none ends.
    fn start_get(
        &self,
        source: GlobalAddress,
        buffer: Vec<u8>,
        order: Order,
    ) -> Result<Incoming<Vec<u8>>, Refused<Vec<u8>>>;

    /// Starts an atomic change of a word, whose result is the earlier value. Drop the result if you
    /// do not need it.
    ///
    /// *Cost*: a read-modify-write instruction if the word is mapped here and nothing is to be
    /// waited for.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale or
    /// misaligned address, or one out of range; [`Error::PeerLost`] if its owner is lost;
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `TooMany`, or, for the
    /// handle in `order`, `Foreign` or `NeverStarted`; [`Error::Deadline`], or [`Error::InHandler`]
    /// in a handler, if 256 operations of this worker are open and none ends.
    fn start_change [W: Unsigned](
        &self,
        word: GlobalPtr<W>,
        change: AtomicChange<W>,
        order: Order,
    ) -> Result<Incoming<W>>;

    /// Starts an atomic change of a word that stores the earlier value at a place of this process.
    ///
    /// ACP's atomics.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale or
    /// misaligned address, or one out of range; [`Error::PeerLost`] if an owner is lost;
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `NotOwn` if `old` is of
    /// another process, `TooMany`, or, for the handle in `order`, `Foreign` or `NeverStarted`;
    /// [`Error::Deadline`], or [`Error::InHandler`] in a handler, if 256 operations of this worker
    /// are open and none ends.
    fn change_into [W: Unsigned](
        &self,
        old: GlobalPtr<W>,
        word: GlobalPtr<W>,
        change: AtomicChange<W>,
        order: Order,
    ) -> Result<Handle>;

    /// Starts a put of the bytes of a buffer, followed by a signal that they are there, as
    /// [`put_signal`](crate::AwaitSignals::put_signal); but does not wait for either. The buffer is
    /// handed over and returned. A worker that finds the signal in its word sees the bytes.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # use farside::{GlobalAddress, GlobalPtr, Order, Signal};
    /// # fn example(
    /// #     me: &Worker,
    /// #     there: GlobalAddress,
    /// #     flag: GlobalPtr<u64>,
    /// #     mut row: Vec<u8>,
    /// # ) -> farside::Result<()> {
    /// for step in 1..=10 {
    ///     let sent = me.start_put_signal(there, row, flag, Signal::Set(step), Order::None);
    ///     let sent = sent.map_err(|refused| refused.error)?;
    ///     // Compute meanwhile.
    ///     row = sent.take(me)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It is one operation: an operation that is ordered after it begins when the signal was given,
    /// and a fence for the process of the data or of the signal applies to all of it.
    ///
    /// *Completion*: when it has ended, data and signal are visible to all.
    ///
    /// *Cost*: that of [`put_signal`](crate::AwaitSignals::put_signal) if everything is mapped here
    /// and nothing is to be waited for. Otherwise data for the process of the signal travels in one
    /// message with it, up to the same size. More data is put as by
    /// [`start_put_owned`](Self::start_put_owned), and the signal is requested when that has ended.
    /// This process's service thread does so while the worker computes.
    ///
    /// # Errors
    /// With the buffer: [`GlobalError::Address`](crate::global::GlobalError::Address) for a null or
    /// stale address, one out of range, or a signal that is misaligned or inside the data;
    /// [`Error::PeerLost`] if an owner is lost;
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `TooMany`, or, for the
    /// handle in `order`, `Foreign` or `NeverStarted`; [`Error::Deadline`], or [`Error::InHandler`]
    /// in a handler, if 256 operations of this worker are open and none ends. If the operation
    /// fails later, the signal was not given, unless the answer was lost with the process or did
    /// not arrive in time.
    fn start_put_signal(
        &self,
        address: GlobalAddress,
        buffer: Vec<u8>,
        signal: GlobalPtr<u64>,
        what: Signal,
        order: Order,
    ) -> Result<Incoming<Vec<u8>>, Refused<Vec<u8>>>;

    /// Waits until an operation, and all that this worker started before it, have ended. Waits at
    /// most for the job's deadline.
    ///
    /// *Cost*: nothing if no operation is open.
    ///
    /// ACP's `acp_complete`.
    ///
    /// # Errors
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `Failed` or
    /// `NotStarted` for the first of the operations that failed and was not reported, the next one
    /// at the next call; or with `Foreign` or `NeverStarted` for a wrong handle.
    /// [`Error::Deadline`], after which the operations continue; [`Error::InHandler`] in a handler.
    fn complete(&self, handle: Handle) -> Result<()>;

    /// Like [`complete`](Self::complete), for at most `time`.
    ///
    /// # Errors
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `Failed` or
    /// `NotStarted` for the first of the operations that failed and was not reported, the next one
    /// at the next call; or with `Foreign` or `NeverStarted` for a wrong handle.
    /// [`Error::Deadline`], after which the operations continue; [`Error::InHandler`] in a handler.
    fn complete_within(&self, handle: Handle, time: Duration) -> Result<()>;

    /// Waits until one of some operations has ended, whether or not those before it have, and
    /// returns the index of its handle. Waits for at most `time`.
    ///
    /// A failed operation has ended. Its failure is reported when it is
    /// [completed](Self::complete).
    ///
    /// # Errors
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `Foreign` or
    /// `NeverStarted` for a wrong handle; [`Error::Deadline`] if none ends in time, and at once if
    /// there are no handles; [`Error::InHandler`] in a handler.
    fn complete_any(&self, handles: &[Handle], time: Duration) -> Result<usize>;

    /// Waits until at least one of some operations has ended, and returns the indices of the
    /// handles of all that have. Waits for at most `time`.
    ///
    /// # Errors
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `Foreign` or
    /// `NeverStarted` for a wrong handle; [`Error::Deadline`] if none ends in time;
    /// [`Error::InHandler`] in a handler. Without handles, it returns an empty list at once.
    fn complete_some(&self, handles: &[Handle], time: Duration) -> Result<Vec<usize>>;

    /// Waits until all of some operations have ended, whether or not those between them have. Waits
    /// for at most `time`.
    ///
    /// # Errors
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `Failed` or
    /// `NotStarted` for the first of these operations that failed and was not reported, the next
    /// one at the next call; or with `Foreign` or `NeverStarted` for a wrong handle.
    /// [`Error::Deadline`], after which the operations continue; [`Error::InHandler`] in a handler.
    fn complete_all(&self, handles: &[Handle], time: Duration) -> Result<()>;

    /// Returns a future of the end of an operation and of all before it.
    ///
    /// The future completes when threads of this process make progress, as
    /// [`block_on`](Worker::block_on) does.
    fn completion(&self, handle: Handle) -> Completing<'_>;

    /// Returns whether an operation, and all before it, have ended. If so,
    /// [`complete`](Self::complete) does not wait, and reports whether one has failed.
    ///
    /// It makes no [progress](Worker::progress): a worker that only polls must make progress in
    /// between.
    ///
    /// ACP's `acp_inquire`, which has two meanings; `true` is what its manual says for 0.
    ///
    /// # Errors
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `Foreign` or
    /// `NeverStarted`.
    fn inquire(&self, handle: Handle) -> Result<bool>;

    /// Waits until all operations of this worker that access memory of a process have ended. Waits
    /// at most for the job's deadline.
    ///
    /// OpenSHMEM's `quiet`, for one process.
    ///
    /// # Errors
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `Failed` or
    /// `NotStarted` for the first of these operations that failed and was not reported, the next
    /// one at the next call. [`Error::Deadline`], after which the operations continue;
    /// [`Error::InHandler`] in a handler.
    fn flush_peer(&self, peer: ProcessId) -> Result<()>;

    /// Waits until all operations of this worker have ended. Waits at most for the job's deadline.
    ///
    /// OpenSHMEM's `quiet`, UPC's `upc_fence`.
    ///
    /// # Errors
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `Failed` or
    /// `NotStarted` for the first of the operations that failed and was not reported, the next one
    /// at the next call. [`Error::Deadline`], after which the operations continue;
    /// [`Error::InHandler`] in a handler.
    fn flush_all(&self) -> Result<()>;

    /// Orders operations on the memory of a process: those that this worker starts from now on
    /// start after those that it has started before. Does not wait.
    ///
    /// It applies to operations that are *started*, of any order. An access that returns its result
    /// ([`GlobalPtr::put`](crate::GlobalPtr::put) and the like) is made at once: call
    /// [`flush_peer`](Self::flush_peer) before it.
    ///
    /// OpenSHMEM's `fence`.
    fn fence_peer(&self, peer: ProcessId);

    /// Like [`fence_peer`](Self::fence_peer), for every process by itself.
    fn fence_all(&self);
}
