//! Calls to all workers of a job, over a tree (Seriema's `broadcast` and `broadcast_buffer`).
//!
//! The tree is binomial among the processes: a process that has the call sends it on to as many
//! others as there are levels below it. One worker of each process does that, and hands the call to
//! the other workers of its process. In the caller's process it is the caller; in all others it is
//! worker 0.

use std::marker::PhantomData;
use std::panic::Location;

use farside_fabric::{ProcessId, WorkerId};

use super::fetch::fetch;
use super::lent::Written;
use crate::Wire;
use crate::error::{Error, FullCause, Refused, Result};
use crate::invoke::call::{Sends, To, WhenFull};
use crate::invoke::caller::Waiter;
use crate::invoke::notify::{Counted, LatchAddress, Synchronizer};
use crate::invoke::outcome::{Outcome, settle};
use crate::invoke::payload::Arguments;
use crate::invoke::remote::{ByPointer, Callee, after, read_arguments};
use crate::invoke::table::Remote;
use crate::memory::{Extent, Registered, RemoteMemory};
use crate::runtime::observer::{AccessKind, InUse, Touch};
use crate::runtime::worker::Worker;
use farside_launch::kill_point::KillPoint;

/// The path from a worker to all workers of the job, itself included. Made by [`Worker::everyone`].
///
/// ```no_run
/// # use farside::prelude::*;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let all = me.synchronizer(me.worker_count())?;
/// me.everyone().notify(&all).call("hello".to_owned(), |there, word| {
///     println!("{word} from {}", there.id());
/// })?;
/// all.wait()?;
/// # Ok(())
/// # }
/// ```
///
/// The arguments are cloned for each worker, which runs the function when it makes progress. A
/// worker with processes below it in the tree sends the call on first, so these processes depend on
/// its progress, too. The order between two such calls of one worker, or between such a call and a
/// call to a single worker, is not defined.
///
/// *Memory*: a worker keeps the calls that it cannot send on yet. For each caller, it keeps at most
/// [`Job::queue_cap_bytes`](crate::Job::queue_cap_bytes) bytes of calls, or one call if that call
/// is larger. Before a caller exceeds this limit, it waits until all workers have received its
/// earlier calls, for the job's deadline at most. In a handler, which cannot wait, the call fails
/// with [`FullCause::Everyone`].
///
/// *When a process dies*, the [`Synchronizer`] says [`Error::PeerLost`]. A process that finds one
/// below it dead sends on to those below that. Calls that a process had received and not sent on
/// when it died are lost: the workers below it never run them. Only that error tells the survivors.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Everyone<'w> {
    worker: &'w Worker,
    notify: Option<LatchAddress>,
}

/// A buffer that is lent to a call to everyone until all workers have read it.
///
/// If it is dropped before that, its memory is kept until the job ends, because a worker may still
/// read it.
#[derive(Debug)]
#[must_use = "it gives the buffer back"]
pub struct LentToAll<'w> {
    read: Synchronizer<'w>,
    buffer: Option<Registered>,
    /// The checker's mark that the buffer is lent.
    in_use: Option<Box<InUse>>,
}

/// The place of a call in the tree.
#[derive(Clone, Copy, Debug, Wire)]
struct Spot {
    /// The caller.
    root: WorkerId,
    /// The place of the process in the tree, counted from the root's; [`LEAF`] for a worker that
    /// sends nothing on.
    place: u32,
}

const LEAF: u32 = u32::MAX;

/// A kind of call to everyone: its load, and what each worker does with it.
trait Body: 'static {
    type Load: Wire + Clone + 'static;

    /// Runs the function that the operand names, and counts. Returns `false` if the operand names
    /// none.
    fn run(there: &Worker, operand: u32, load: Self::Load, counted: Option<LatchAddress>) -> bool;
}

/// Arguments without a buffer.
struct Plain<A, R>(PhantomData<fn(A) -> R>);

impl<A: Wire + Clone + 'static, R: Outcome + 'static> Body for Plain<A, R> {
    type Load = A;

    fn run(there: &Worker, operand: u32, load: A, counted: Option<LatchAddress>) -> bool {
        let Some(function) = <ByPointer as Callee<fn(&Worker, A) -> R>>::find(there, operand) else { return false };
        settle(function(there, load));
        counted.count(there.process_handle());
        true
    }
}

/// Arguments with a buffer that travels in each record.
struct Inline<A, R>(PhantomData<fn(A) -> R>);

impl<A: Wire + Clone + 'static, R: Outcome + 'static> Body for Inline<A, R> {
    type Load = (A, Vec<u8>);

    fn run(there: &Worker, operand: u32, (arguments, buffer): Self::Load, counted: Option<LatchAddress>) -> bool {
        let function = <ByPointer as Callee<fn(&Worker, A, &[u8]) -> R>>::find(there, operand);
        let Some(function) = function else { return false };
        settle(function(there, arguments, &buffer));
        counted.count(there.process_handle());
        true
    }
}

/// Arguments with the places into which a buffer was written, one for each process.
struct Put<A, R>(PhantomData<fn(A) -> R>);

impl<A: Wire + Clone + 'static, R: Outcome + 'static> Body for Put<A, R> {
    type Load = (A, Vec<Written>);

    fn run(there: &Worker, operand: u32, (arguments, places): Self::Load, counted: Option<LatchAddress>) -> bool {
        let function = <ByPointer as Callee<fn(&Worker, (A, Written)) -> R>>::find(there, operand);
        let (Some(function), Some(written)) = (function, places.get(there.process().index())) else { return false };
        settle(function(there, (arguments, *written)));
        counted.count(there.process_handle());
        true
    }
}

/// Arguments with a buffer that each worker reads from the caller's memory.
struct Get<A, R>(PhantomData<fn(A) -> R>);

#[derive(Clone, Copy, Debug, Wire)]
struct Shown {
    memory: Extent,
    read: LatchAddress,
}

impl<A: Wire + Clone + 'static, R: Outcome + 'static> Body for Get<A, R> {
    type Load = (Shown, A);

    fn run(there: &Worker, operand: u32, (shown, arguments): Self::Load, counted: Option<LatchAddress>) -> bool {
        let function = <ByPointer as Callee<fn(&Worker, A, &[u8]) -> R>>::find(there, operand);
        let Some(function) = function else { return false };
        fetch(there, shown.memory, false, move |there, buffer| {
            // The buffer's owner has died, so no caller waits for this.
            let Ok(buffer) = buffer else { return };
            shown.read.count(there.process_handle());
            settle(function(there, arguments, &buffer));
            counted.count(there.process_handle());
        });
        true
    }
}

/// Sends a call on, and runs it.
struct Broadcast<B>(PhantomData<B>);

impl<B: Body> Remote for Broadcast<B> {
    unsafe fn run(worker: &Worker, payload: *const u8, end: *const u8, operand: u32) -> *const u8 {
        // SAFETY: the contract of `run` includes that of `read_arguments`; the sender wrote such a
        // triple for this trampoline.
        let read = unsafe { read_arguments::<(Spot, Option<LatchAddress>, B::Load)>(worker, payload, end) };
        let Some((spot, counted, load)) = read else { return std::ptr::null() };
        if spot.place != LEAF {
            let call =
                Onward::<B> { worker, operand, root: spot.root, counted, load: &load, when_full: WhenFull::Spill };
            call.to_local();
            call.to_children(spot.place);
            worker.process_handle().kill_point(KillPoint::SentOn);
        }
        if !B::run(worker, operand, load, counted) {
            return std::ptr::null();
        }
        after::<(Spot, Option<LatchAddress>, B::Load)>(payload, end)
    }
}

/// A call to everyone at a worker that sends it on.
struct Onward<'a, B: Body> {
    worker: &'a Worker,
    operand: u32,
    root: WorkerId,
    counted: Option<LatchAddress>,
    load: &'a B::Load,
    when_full: WhenFull,
}

impl<B: Body> Onward<'_, B> {
    /// Returns the children of a place in the tree: the place with one bit added below its lowest.
    /// The largest subtrees come first.
    fn children(&self, place: u32) -> impl Iterator<Item = u32> + use<B> {
        let count = u64::from(self.worker.process_count());
        let bits = if place == 0 { u32::BITS - 1 } else { place.trailing_zeros() };
        let children = (0..bits).rev().map(move |bit| u64::from(place) + (1 << bit));
        children.filter(move |child| *child < count).map(|child| child as u32)
    }

    fn process_at(&self, place: u32) -> ProcessId {
        let count = u64::from(self.worker.process_count());
        let root = u64::from(self.worker.process_of(self.root).number());
        ProcessId::new(((root + u64::from(place)) % count) as u32)
    }

    fn to_children(&self, place: u32) {
        self.children(place).for_each(|child| self.to_subtree(child));
    }

    /// Sends to the worker that sends on at a place of the tree, or, if it is gone, to those below
    /// it.
    fn to_subtree(&self, place: u32) {
        let first = self.worker.process_handle().shape().worker_at(self.process_at(place), 0);
        if self.send(first, place).is_err() {
            self.to_children(place);
        }
    }

    /// Sends to the other workers of this process.
    fn to_local(&self) {
        let shape = self.worker.process_handle().shape();
        let workers = (0..shape.threads as usize).map(|local| shape.worker_at(self.worker.process(), local));
        for other in workers.filter(|other| *other != self.worker.id()) {
            // Workers of this process die with it, so no thread could see the error.
            let _ = self.send(other, LEAF);
        }
    }

    /// Sends to one worker. Keeps the call for later if this worker cannot wait for room, or has
    /// waited for room in vain.
    ///
    /// # Errors
    /// Lasting errors only.
    fn send(&self, to: WorkerId, place: u32) -> Result<()> {
        let spot = Spot { root: self.root, place };
        let way = self.worker.to(to);
        let sent = submit::<B>(way.when_full(self.when_full), self.operand, (spot, self.counted, self.load.clone()));
        let sent = match sent {
            Err((Error::Full { .. } | Error::InHandler { .. } | Error::Borrowed { .. }, load)) => {
                submit::<B>(way.when_full(WhenFull::Spill), self.operand, load)
            }
            other => other,
        };
        sent.map_err(|(error, _)| error)
    }
}

type Triple<B> = (Spot, Option<LatchAddress>, <B as Body>::Load);

fn submit<B: Body>(way: To<'_>, operand: u32, load: Triple<B>) -> Result<(), (Error, Triple<B>)> {
    Worker::submit::<Broadcast<B>, _, _>(&way, Ok(operand), Arguments(load))
        .map_err(|(error, Arguments(load))| (error, load))
}

impl Worker {
    /// Returns the path to all workers of the job, this one included: a tree of calls.
    pub fn everyone(&self) -> Everyone<'_> {
        Everyone::new(self)
    }
}

impl<'w> Everyone<'w> {
    pub(crate) fn new(worker: &'w Worker) -> Self {
        Self { worker, notify: None }
    }

    /// Counts `synchronizer` down each time a worker has run the function: once for each worker.
    pub fn notify(mut self, synchronizer: &'w Synchronizer<'w>) -> Self {
        (0..self.worker.process_count()).for_each(|process| synchronizer.asks(ProcessId::new(process)));
        self.notify = Some(synchronizer.address());
        self
    }

    /// Runs `function(there, arguments)` on every worker.
    ///
    /// *Completion*: the arguments were copied when this returns. *Cost*: with n processes, this
    /// worker sends to about log₂ n of them, and to the other workers of its own process.
    ///
    /// # Errors
    /// [`Error::PeerLost`] when a process is known to be lost; the workers of the other processes
    /// still run the function. After any other error no worker runs it:
    /// [`Error::DifferentBinaries`], [`Error::ForeignFunction`], [`Error::TooLarge`], and
    /// [`Error::Deadline`] or [`Error::Full`] while too many bytes of earlier calls are under way.
    pub fn call<A, R>(self, arguments: A, function: fn(&Worker, A) -> R) -> Result<(), Refused<A>>
    where
        A: Wire + Clone + 'static,
        R: Outcome + 'static,
    {
        self.begin::<Plain<A, R>>(function as usize, arguments)
    }

    /// Calls as [`call`](Self::call) does, with a buffer that travels in the same records.
    ///
    /// *Cost*: each process copies the buffer once for each worker that it sends to.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process is known to be lost; the workers of the other processes
    /// still run the function. After any other error no worker runs it:
    /// [`Error::DifferentBinaries`], [`Error::ForeignFunction`], [`Error::TooLarge`], and
    /// [`Error::Deadline`] or [`Error::Full`] while too many bytes of earlier calls are under way.
    pub fn call_buffer<A, R>(
        self,
        arguments: A,
        buffer: &[u8],
        function: fn(&Worker, A, &[u8]) -> R,
    ) -> Result<(), Refused<A>>
    where
        A: Wire + Clone + 'static,
        R: Outcome + 'static,
    {
        let begun = self.begin::<Inline<A, R>>(function as usize, (arguments, buffer.to_vec()));
        begun.map_err(|Refused { error, arguments: (arguments, _) }| Refused { error, arguments })
    }

    /// Calls as [`call`](Self::call) does, after writing a buffer into a place in each process.
    /// `places` has one for each process, in order.
    ///
    /// *Cost*: a put for each process, one after the other; the caller waits for those that are not
    /// mapped. Only the call travels down the tree. [`call_buffer`](Self::call_buffer) sends the
    /// bytes down the tree, too, and is the form for many processes.
    ///
    /// # Errors
    /// [`Error::UnknownProcess`] if the number of places is not the number of processes;
    /// [`Error::WrongProcess`] if a place is in another process than its turn. [`Error::Fabric`]
    /// with `OutOfRange`, if the owner does not answer in time, or if the transport fails;
    /// [`MemoryError::Released`](crate::memory::MemoryError::Released) if the release is detected;
    /// [`Error::InHandler`] in a handler, if the memory is not mapped. [`Error::PeerLost`] if a
    /// process is known to be lost; the workers of the other processes still run the function.
    /// After any other error no worker runs it: [`Error::DifferentBinaries`],
    /// [`Error::ForeignFunction`], [`Error::TooLarge`], and [`Error::Deadline`] or [`Error::Full`]
    /// while too many bytes of earlier calls are under way.
    #[track_caller]
    pub fn call_buffer_put<A, R>(
        self,
        arguments: A,
        buffer: &[u8],
        places: &[(RemoteMemory, u64)],
        function: fn(&Worker, (A, Written)) -> R,
    ) -> Result<(), Refused<A>>
    where
        A: Wire + Clone + 'static,
        R: Outcome + 'static,
    {
        let worker = self.worker;
        let site = Location::caller();
        let put = || {
            if places.len() != worker.process_count() as usize {
                let process = ProcessId::new(places.len() as u32);
                return Err(Error::UnknownProcess { process, count: worker.process_count() });
            }
            let all = (0..).map(ProcessId::new).zip(places);
            all.map(|(process, (memory, offset))| {
                if memory.process() != process {
                    return Err(Error::WrongProcess { memory: memory.process(), wanted: process });
                }
                memory.put_from(worker, *offset, buffer, site)?;
                Ok(Written { memory: *memory, offset: *offset, bytes: buffer.len() as u64 })
            })
            .collect::<Result<Vec<_>>>()
        };
        match put() {
            Ok(written) => {
                let begun = self.begin::<Put<A, R>>(function as usize, (arguments, written));
                begun.map_err(|Refused { error, arguments: (arguments, _) }| Refused { error, arguments })
            }
            Err(error) => Err(Refused { error, arguments }),
        }
    }

    /// Calls as [`call`](Self::call) does, with a buffer that every worker reads from the memory of
    /// this process.
    ///
    /// *Completion*: the [`LentToAll`] gives the buffer back when all have read it. *Cost*: each
    /// worker of the job reads all bytes from this process.
    ///
    /// # Errors
    /// With the buffer: [`Error::PeerLost`] if a process is known to be lost; the workers of the
    /// other processes still run the function. After any other error no worker runs it:
    /// [`Error::DifferentBinaries`], [`Error::ForeignFunction`], [`Error::TooLarge`], also when no
    /// synchronizer is left, and [`Error::Deadline`] or [`Error::Full`] while too many bytes of
    /// earlier calls are under way.
    #[track_caller]
    pub fn call_buffer_get<A, R>(
        self,
        arguments: A,
        buffer: Registered,
        function: fn(&Worker, A, &[u8]) -> R,
    ) -> Result<LentToAll<'w>, Refused<Box<(A, Registered)>>>
    where
        A: Wire + Clone + 'static,
        R: Outcome + 'static,
    {
        let worker = self.worker;
        let in_use = match worker.open_buffer(&buffer, Touch::here(AccessKind::Read)) {
            Ok(in_use) => in_use,
            Err(error) => return Err(Refused { error, arguments: Box::new((arguments, buffer)) }),
        };
        let read = match Synchronizer::new(Waiter::Worker(worker), worker.worker_count()) {
            Ok(read) => read,
            Err(error) => return Err(Refused { error, arguments: Box::new((arguments, buffer)) }),
        };
        let shown = Shown { memory: Extent::of(&buffer), read: read.address() };
        for process in (0..worker.process_count()).map(ProcessId::new) {
            read.asks(process);
            worker.process_handle().links.offer(process, shown.memory);
        }
        match self.begin::<Get<A, R>>(function as usize, (shown, arguments)) {
            Ok(()) => Ok(LentToAll { read, buffer: Some(buffer), in_use }),
            Err(Refused { error, arguments: (_, arguments) }) => {
                Err(Refused { error, arguments: Box::new((arguments, buffer)) })
            }
        }
    }

    fn begin<B: Body>(self, function: usize, load: B::Load) -> Result<(), Refused<B::Load>> {
        let worker = self.worker;
        let check = || {
            let process = worker.process_handle();
            let others = (0..worker.process_count()).map(ProcessId::new);
            match others.clone().find(|other| !process.job.is_alike(*other)) {
                Some(other) => Err(Error::DifferentBinaries { a: worker.process(), b: other }),
                None => process.calls.table.offset_of(function),
            }
        };
        match check().and_then(|operand| self.make_room(load.wire_bytes()).map(|()| operand)) {
            Ok(operand) => self.send::<B>(operand, load),
            Err(error) => Err(Refused { error, arguments: load }),
        }
    }

    /// Waits until a call of this size does not exceed the limit. Calls before the last mark use at
    /// most half of the limit, and calls after that mark use at most the other half.
    fn make_room(self, bytes: usize) -> Result<()> {
        const DOING: &str = "waiting until all workers have received earlier calls to everyone";
        let worker = self.worker;
        let process = worker.process_handle();
        let (room, sent) = (process.settings().queue_cap_bytes / 2, worker.sent_to_all());
        loop {
            let unreceived_bytes = sent.bytes.get().saturating_add(bytes);
            if unreceived_bytes <= room {
                sent.bytes.set(unreceived_bytes);
                return Ok(());
            }
            // After a loss, some answers never come.
            let is_answered =
                |worker: &Worker| worker.sent_to_all().unanswered.get() == 0 || worker.any_lost().is_some();
            if is_answered(worker) {
                sent.bytes.set(bytes);
                sent.unanswered.set(worker.worker_count());
                let operand = process.calls.table.offset_of(answer_mark as fn(&Worker, WorkerId) as usize)?;
                // A loss is the only error, and the call itself meets it, too.
                let _ = Self::new(worker).send::<Plain<WorkerId, ()>>(operand, worker.id());
                return Ok(());
            }
            let answered = |worker: &Worker| is_answered(worker).then_some(Ok(()));
            worker.wait_until(DOING, worker.default_deadline(), answered).map_err(|error| match error {
                Error::InHandler { .. } | Error::Borrowed { .. } => {
                    Error::Full { to: worker.id(), cause: FullCause::Everyone { unreceived_bytes } }
                }
                other => other,
            })?;
        }
    }

    fn send<B: Body>(self, operand: u32, load: B::Load) -> Result<(), Refused<B::Load>> {
        let worker = self.worker;
        let (root, counted) = (worker.id(), self.notify);
        // The caller's own call comes first: an error that refuses it for good would refuse all.
        let spot = Spot { root, place: LEAF };
        match submit::<B>(worker.to(root), operand, (spot, counted, load.clone())) {
            Ok(()) => {}
            Err((error, _)) => return Err(Refused { error, arguments: load }),
        }
        let when_full = if worker.is_in_handler() { WhenFull::Spill } else { WhenFull::Retry };
        let call = Onward::<B> { worker, operand, root, counted, load: &load, when_full };
        call.to_children(0);
        call.to_local();
        match (0..worker.process_count()).find_map(|process| worker.lost(ProcessId::new(process))) {
            Some(error) => Err(Refused { error, arguments: load }),
            None => Ok(()),
        }
    }
}

/// Tells the sender of a mark that it has arrived here.
fn answer_mark(there: &Worker, sender: WorkerId) {
    let answered = there.to(sender).call((), |sender, ()| {
        let unanswered = &sender.sent_to_all().unanswered;
        unanswered.set(unanswered.get().saturating_sub(1));
    });
    // A lost sender needs no answer.
    drop(answered);
}

impl LentToAll<'_> {
    /// Waits until all workers have read the buffer, and gives it back. Waits for the job's
    /// deadline at most.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process is lost before it has read the buffer; [`Error::Deadline`]
    /// if a worker does not read it in time; [`Error::InHandler`] in a handler. The buffer's memory
    /// is then kept until the job ends.
    #[track_caller]
    pub fn wait(mut self) -> Result<Registered> {
        self.read.wait()?;
        Ok(self.buffer.take().expect("the buffer was already given back"))
    }
}

impl Drop for LentToAll<'_> {
    fn drop(&mut self) {
        if self.read.left() > 0 {
            // A worker may still read the buffer.
            std::mem::forget((self.buffer.take(), self.in_use.take()));
        }
    }
}
