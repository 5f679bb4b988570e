//! Buffers that travel with a call through registered memory.

use std::panic::Location;

use farside_fabric::ProcessId;

use super::buffered::{CallBufferGet, CallInto, LentBuffer};
use super::result_place::ResultPlace;
use crate::Wire;
use crate::error::{Error, Refused, Result};
use crate::invoke::call::{Sends, To};
use crate::invoke::notify::{Counted, Notify};
use crate::invoke::outcome::Outcome;
use crate::invoke::payload::Arguments;
use crate::invoke::pending::{FromLike, Pending};
use crate::invoke::remote::ByPointer;
use crate::memory::{Extent, Registered, RemoteMemory};
use crate::runtime::observer::{AccessKind, InUse, Touch};
use crate::runtime::worker::Worker;

/// Bytes that were written into memory of the receiver's process before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(word = "farside::Written")]
pub struct Written {
    /// The memory.
    pub memory: RemoteMemory,
    /// The offset of the bytes in the memory.
    pub offset: u64,
    /// The number of bytes.
    pub bytes: u64,
}

impl Written {
    /// Returns a copy of the bytes.
    ///
    /// # Errors
    /// [`Error::Fabric`] with `OutOfRange`, if the owner does not answer in time, or if the
    /// transport fails; [`Error::PeerLost`] if the owner is lost;
    /// [`MemoryError::Released`](crate::memory::MemoryError::Released) if the release is detected;
    /// [`Error::InHandler`] in a handler, if the memory is not mapped.
    #[track_caller]
    pub fn to_vec(&self, me: &Worker) -> Result<Vec<u8>> {
        let length = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        // Checked before the allocation, because the length came from another process.
        self.memory.region(me)?;
        self.memory.check_inside(self.offset, length)?;
        let mut bytes = vec![0; length];
        self.memory.get(me, self.offset, &mut bytes)?;
        Ok(bytes)
    }
}

/// A lent buffer, with the checker's mark that it is lent.
#[derive(Debug)]
struct Loan {
    buffer: Registered,
    _in_use: Option<Box<InUse>>,
}

/// A buffer that is lent to a call until its receiver has read it.
///
/// Dropping it lets the call go on; the buffer is freed when it was read.
#[derive(Debug)]
#[must_use = "it gives the buffer back"]
pub struct Lent<'w> {
    /// `None` when the buffer was given back.
    lent: Option<(Pending<'w, ()>, Loan)>,
    worker: &'w Worker,
}

impl<'w> Lent<'w> {
    /// Waits until the receiver has read the buffer, and gives it back. Waits for the job's
    /// deadline at most.
    ///
    /// # Errors
    /// [`Error::PeerLost`] when the receiver is gone, and [`Error::ReplyDropped`] when it could not
    /// read the buffer. The call did not run then, and the buffer is freed. After
    /// [`Error::Deadline`], [`Error::InHandler`], and any other error that ends a wait, the call
    /// goes on, and the buffer is freed when it was read.
    #[track_caller]
    pub fn wait(mut self) -> Result<Registered> {
        let deadline = self.worker.default_deadline();
        let Some((pending, _)) = &mut self.lent else { unreachable!("the buffer was already given back") };
        match pending.wait_for(deadline) {
            // The wait itself failed: the call goes on, and dropping `self` takes care of the
            // buffer.
            Err(error) if !pending.is_taken() => Err(error),
            read => {
                let (_, loan) = self.take();
                read.map(|()| loan.buffer)
            }
        }
    }

    /// Gives the buffer back if the receiver has read it; otherwise returns itself.
    ///
    /// # Errors
    /// In the `Ok`: [`Error::PeerLost`] if the receiver is lost, or [`Error::ReplyDropped`] if it
    /// could not read the buffer. The call did not run then, and the buffer is freed.
    pub fn try_take(mut self) -> Result<Result<Registered>, Self> {
        let Some((pending, _)) = &mut self.lent else { unreachable!("the buffer was already given back") };
        match pending.poll() {
            None => Err(self),
            Some(read) => {
                let (_, loan) = self.take();
                Ok(read.map(|()| loan.buffer))
            }
        }
    }

    fn take(&mut self) -> (Pending<'w, ()>, Loan) {
        self.lent.take().expect("the buffer was already given back")
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some((pending, loan)) = self.lent.take() {
            // The memory must not be reused before it was read.
            pending.then(move |_, _| drop(loan));
        }
    }
}

impl<'w, N: Counted> To<'w, Worker, N> {
    /// Writes `buffer` into memory of the receiver's process, and then runs `function(there,
    /// arguments, written)` there. The bytes are in place when the function runs.
    ///
    /// *Completion*: `buffer` may be reused when this returns. The bytes are in place then, and
    /// `On::Sent` adds nothing to that. The place belongs to the call until it has run. *Order*:
    /// that of any call made now. *Cost*: a copy into the place if it is mapped; otherwise this
    /// waits for one round trip. The receiver copies nothing.
    ///
    /// # Errors
    /// [`Error::WrongProcess`] if the memory does not belong to the receiver's process;
    /// [`Error::Fabric`] with `OutOfRange`, if the owner does not answer in time, or if the
    /// transport fails; [`Error::PeerLost`] if the owner is lost;
    /// [`MemoryError::Released`](crate::memory::MemoryError::Released) if the release is detected;
    /// [`Error::InHandler`] in a handler, if the memory is not mapped. [`Error::Full`], or
    /// [`Error::Deadline`] after a wait, if the receiver has no room; [`Error::TooLarge`];
    /// [`Error::UnknownWorker`]; [`Error::PeerLost`] if the receiver is lost;
    /// [`Error::DifferentBinaries`] or [`Error::ForeignFunction`] if it cannot find the function;
    /// [`Error::InHandler`] if a handler would have to wait.
    #[track_caller]
    pub fn call_buffer_put<A: Wire, R: Outcome>(
        self,
        arguments: A,
        buffer: &[u8],
        (memory, offset): (RemoteMemory, u64),
        function: fn(&Worker, (A, Written)) -> R,
    ) -> Result<(), Refused<A>> {
        let site = Location::caller();
        let put = || {
            self.check_place(memory.process())?;
            memory.put_from(self.from, offset, buffer, site)
        };
        if let Err(error) = put() {
            return Err(Refused { error, arguments });
        }
        let written = Written { memory, offset, bytes: buffer.len() as u64 };
        let called = self.call((arguments, written), function);
        called.map_err(|Refused { error, arguments: (arguments, _) }| Refused { error, arguments })
    }

    fn check_place(&self, process: ProcessId) -> Result<()> {
        match self.from.process_handle().job.place_of(self.to) {
            None => Err(self.from.unknown(self.to)),
            Some((of, _)) if of == process => Ok(()),
            Some((of, _)) => Err(Error::WrongProcess { memory: process, wanted: of }),
        }
    }

    /// Runs `function(there, arguments, buffer)` on the other worker, which first reads the buffer
    /// from the memory of this process.
    ///
    /// *Completion*: the [`Lent`] gives the buffer back when it was read. `On::Sent` counts down
    /// then, and `On::Executed` when the function has run. *Order*: that of any call made now:
    /// later calls of this worker to the same receiver run after it. *Cost*: one copy, by the
    /// receiver. If the memory is mapped, the receiver's thread makes it. Otherwise the receiver's
    /// process reads the buffer while its workers do other things; only this worker's later calls
    /// wait.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let buffer = me.allocate(1 << 20)?;
    /// buffer.fill(7);
    /// let peer = me.to(me.neighbor(1));
    /// let lent = peer.call_buffer_get("sevens".to_owned(), buffer, |there, name, bytes| {
    ///     println!("{}: {} {name}", there.id(), bytes.len());
    /// })?;
    /// let buffer = lent.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Full`], or [`Error::Deadline`] after a wait, if the receiver has no room;
    /// [`Error::TooLarge`]; [`Error::UnknownWorker`]; [`Error::PeerLost`] if the receiver is lost;
    /// [`Error::DifferentBinaries`] or [`Error::ForeignFunction`] if it cannot find the function;
    /// [`Error::InHandler`] if a handler would have to wait. The arguments and the buffer come
    /// back.
    #[track_caller]
    pub fn call_buffer_get<A: Wire + 'static, R: Outcome + 'static>(
        self,
        arguments: A,
        buffer: Registered,
        function: fn(&Worker, A, &[u8]) -> R,
    ) -> Result<Lent<'w>, Refused<Box<(A, Registered)>>> {
        self.lend(arguments, buffer, function, false, Touch::here(AccessKind::Read))
    }

    /// Calls as [`call_buffer_get`](Self::call_buffer_get) does, but later calls do not wait for
    /// the buffer. A thread of the receiver's process reads it, and the function runs afterwards.
    /// For large buffers that are not urgent.
    ///
    /// *Order*: none. Calls made afterwards may run before it.
    ///
    /// # Errors
    /// [`Error::Full`], or [`Error::Deadline`] after a wait, if the receiver has no room;
    /// [`Error::TooLarge`]; [`Error::UnknownWorker`]; [`Error::PeerLost`] if the receiver is lost;
    /// [`Error::DifferentBinaries`] or [`Error::ForeignFunction`] if it cannot find the function;
    /// [`Error::InHandler`] if a handler would have to wait. The arguments and the buffer come
    /// back.
    #[track_caller]
    pub fn call_buffer_get_unordered<A: Wire + 'static, R: Outcome + 'static>(
        self,
        arguments: A,
        buffer: Registered,
        function: fn(&Worker, A, &[u8]) -> R,
    ) -> Result<Lent<'w>, Refused<Box<(A, Registered)>>> {
        self.lend(arguments, buffer, function, true, Touch::here(AccessKind::Read))
    }

    fn lend<A: Wire + 'static, R: Outcome + 'static>(
        mut self,
        arguments: A,
        buffer: Registered,
        function: fn(&Worker, A, &[u8]) -> R,
        is_unordered: bool,
        touch: Touch,
    ) -> Result<Lent<'w>, Refused<Box<(A, Registered)>>> {
        let operand = self.operand_of(function as usize);
        let lend = || {
            let in_use = self.from.open_buffer(&buffer, touch)?;
            Ok((in_use, Worker::reserve(&self, 0, FromLike)?))
        };
        let (in_use, (pending, read)) = match lend() {
            Ok(lent) => lent,
            Err(error) => return Err(Refused { error, arguments: Box::new((arguments, buffer)) }),
        };
        let counted = self.notify.executed();
        // A sent call does not mean that the buffer was read, so the receiver counts this latch
        // down.
        let on_read = match std::mem::replace(&mut self.notify, Notify::Nothing) {
            Notify::Sent(latch) => Some(latch),
            Notify::Nothing | Notify::Executed(_) => None,
        };
        let lent = LentBuffer { memory: Extent::of(&buffer), read, on_read, is_unordered };
        let process = self.from.process_handle();
        if let Some((to, _)) = process.job.place_of(self.to) {
            process.links.offer(to, lent.memory);
        }
        let payload = Arguments((lent, counted, arguments));
        type Form<A, R, N> = CallBufferGet<ByPointer, fn(&Worker, A, &[u8]) -> R, A, R, N>;
        match Worker::submit::<Form<A, R, N>, _, _>(&self, operand, payload) {
            Ok(()) => Ok(Lent { lent: Some((pending, Loan { buffer, _in_use: in_use })), worker: self.from }),
            Err((error, Arguments((_, _, arguments)))) => {
                Err(Refused { error, arguments: Box::new((arguments, buffer)) })
            }
        }
    }

    /// Calls as [`call`](Self::call) does, and puts the result into registered memory of any
    /// process, which the caller names.
    ///
    /// *Completion*: when the [`ResultPlace`] has the result. `On::Executed` counts down after
    /// that. *Cost*: one copy more than [`call_return`](Self::call_return), and no reserved room at
    /// this worker. If the result cannot be stored because the memory was released or its owner
    /// died, no error is reported.
    ///
    /// # Errors
    /// [`Error::Full`], or [`Error::Deadline`] after a wait, if the receiver has no room;
    /// [`Error::TooLarge`]; [`Error::UnknownWorker`]; [`Error::PeerLost`] if the receiver is lost;
    /// [`Error::DifferentBinaries`] or [`Error::ForeignFunction`] if it cannot find the function;
    /// [`Error::InHandler`] if a handler would have to wait.
    pub fn call_into<A: Wire, R: Wire + 'static>(
        self,
        arguments: A,
        function: fn(&Worker, A) -> R,
        place: ResultPlace<R>,
    ) -> Result<(), Refused<A>> {
        let operand = self.operand_of(function as usize);
        let payload = Arguments((place, self.notify.executed(), arguments));
        match Worker::submit::<CallInto<ByPointer, fn(&Worker, A) -> R, A, R, N>, _, _>(&self, operand, payload) {
            Ok(()) => Ok(()),
            Err((error, Arguments((_, _, arguments)))) => Err(Refused { error, arguments }),
        }
    }
}
