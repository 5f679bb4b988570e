//! [`Link`]: one connection, as either side sees it.
//!
//! Both sides are alike. Each may *expose* memory under a number, and the other reads or writes it
//! by offset (`transfer.rs`). Calls and answers pass through to the layer above, the [`Upper`].
//!
//! One thread at a time receives (`receiving.rs`); how threads wait is in `waiting.rs`. Memory that
//! the peer may access is in `exposed.rs`, and what waits until less is to be sent in `pauses.rs`.

#[cfg(test)]
mod conformance;
mod exposed;
mod pauses;
mod receiving;
mod registered;
mod transfer;
mod unsent;
mod waiting;

use std::fmt;
use std::future::poll_fn;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Poll, Waker as Task};
use std::time::Duration;

use farside_sys::process::Origin;
use farside_wire::Wire;

use self::exposed::{Entry, Exposed, Shares};
use self::pauses::Pauses;
use self::receiving::Receiving;
pub(crate) use self::registered::Local;
pub use self::transfer::TransferError;
pub(crate) use self::transfer::{Fetching, How, in_thread};
pub use self::unsent::Unsent;
pub(crate) use self::waiting::leave_turns_to_drive;
use crate::allocated::{Allocated, Sharer};
use crate::area::{Area, Asker, FillError, PassedOn, Refusal, Request};
use crate::frame::{AFTER_READS, BODY_BYTES_MAX, Fetch, HEAD_BYTES, Head, Kind, PIECE_BYTES, Take};
use crate::lock::lock;
use crate::path::{Frames, LinkEnd, Path};
use crate::patience::{Patience, WaitEnd, WaitedOn};
use crate::segments::Segments;
use crate::table::index;

/// The most bytes that one `Fetch` asks for.
pub(crate) const FETCH_BYTES_MAX: u64 = 1 << 20;
/// The most bytes that one `Take` offers.
const OFFER_BYTES: usize = 4 << 20;
/// The most bytes in the backlog for which this side serves a `Fetch` or goes on with a push.
const BACKLOG_BYTES_MAX: usize = 2 << 20;
/// The most frames that one step receives, so that other connections get their turn.
const FRAMES_PER_STEP: usize = 64;

/// A handler of the frames that are not about memory.
pub trait Upper: Send + Sync {
    /// Handles a frame. Must not wait for a frame of the same link.
    fn frame(&self, link: &Arc<Link>, head: Head, body: &[u8]) -> Result<(), LinkEnd>;

    /// The link has ended: nothing more arrives.
    fn ended(&self, end: &LinkEnd);

    /// Frames wait to be sent, and perhaps no thread of this side waits for the peer. A loop that
    /// receives sends them, too.
    fn has_backlog(&self, _link: &Arc<Link>) {}
}

/// One connection.
pub struct Link {
    path: Box<dyn Path>,
    /// A forked child has copies of the locks, and no thread that unlocks them.
    origin: Origin,
    upper: Box<dyn Upper>,
    exposed: Exposed,
    shares: Mutex<Shares>,
    receiving: Receiving,
    pauses: Pauses,
    end: OnceLock<LinkEnd>,
    limits: Limits,
    /// The bytes that the server's [`Unsent`] has counted for this link.
    unsent_bytes: AtomicUsize,
    /// True if the peer has failed to read this side's memory directly, as some systems forbid it.
    peer_cannot_read: AtomicBool,
    /// True if this side has failed to read the peer's memory directly.
    pub(crate) cannot_read_peer: AtomicBool,
}

/// The differences between the links of clients and of servers.
#[derive(Clone, Debug)]
pub struct Limits {
    /// True if the other end is a client. A client does not push.
    pub serves: bool,
    /// True if a loop receives for all threads: the server's, or a task of the client.
    pub has_loop: bool,
    /// For how long a waiting thread looks before it sleeps.
    pub spin: Duration,
    /// The link ends if more waits to be sent.
    pub backlog_bytes: usize,
    /// The bytes that wait on all links of a server.
    pub unsent: Option<Arc<Unsent>>,
}

impl Limits {
    /// The limits of a client.
    pub fn of_client(spin: Duration) -> Self {
        Self { serves: false, has_loop: false, spin, backlog_bytes: usize::MAX, unsent: None }
    }

    /// The limits of a server that allows this number of calls and has this number of threads for
    /// handlers, or none, so that its loop runs them.
    pub fn of_server(threads: usize, spin: Duration, calls_max: u32, unsent: Arc<Unsent>) -> Self {
        let answers = (calls_max as usize).saturating_mul(BODY_BYTES_MAX + HEAD_BYTES);
        // A handler that pushes adds a block to a backlog that is not full.
        let pushes = (threads + 1).saturating_mul(2 * FETCH_BYTES_MAX as usize);
        let backlog_bytes = answers.saturating_add(pushes).saturating_add(2 * BACKLOG_BYTES_MAX);
        Self { serves: true, has_loop: threads > 0, spin, backlog_bytes, unsent: Some(unsent) }
    }
}

/// The status of an `Ack`: the memory was taken back.
pub const GONE: u8 = 1;
/// The status of an `Ack`: the part is not inside the memory.
pub const OUT_OF_RANGE: u8 = 2;
/// The status of an `Ack`: the memory may only be read.
pub const READ_ONLY: u8 = 3;
pub(crate) const CROWDED: u8 = 4;
pub(crate) const UNREADABLE: u8 = 5;

fn status_of(refusal: Refusal) -> u8 {
    match refusal {
        Refusal::Gone => GONE,
        Refusal::OutOfRange => OUT_OF_RANGE,
        Refusal::ReadOnly => READ_ONLY,
    }
}

impl Link {
    /// Uses a path. `upper` gets the frames that are not about memory.
    pub fn new(path: Box<dyn Path>, upper: Box<dyn Upper>, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            path,
            origin: Origin::here(),
            upper,
            exposed: Exposed::default(),
            shares: Mutex::default(),
            receiving: Receiving::new(limits.has_loop),
            pauses: Pauses::default(),
            end: OnceLock::new(),
            limits,
            unsent_bytes: AtomicUsize::new(0),
            peer_cannot_read: AtomicBool::new(false),
            cannot_read_peer: AtomicBool::new(false),
        })
    }

    /// Waits until no thread handles frames. After the end of the link, none does so again.
    pub fn wait_for_step(&self) {
        drop(self.receiving.take());
    }

    /// The carrier of the frames.
    #[inline]
    pub fn path(&self) -> &dyn Path {
        &*self.path
    }

    /// Why the link has ended, if it has.
    #[inline]
    pub fn end(&self) -> Option<&LinkEnd> {
        if self.is_forked() { Some(&LinkEnd::Forked) } else { self.end.get() }
    }

    /// Returns whether this process is a forked child of the one to which the link belongs. Then
    /// nothing else may be done with it.
    #[inline]
    pub fn is_forked(&self) -> bool {
        !self.origin.is_here()
    }

    /// Ends the link on this side.
    pub fn close(&self, why: LinkEnd) {
        if self.is_forked() {
            return;
        }
        self.note_end(why);
        self.path.close();
        self.wake_driver();
    }

    fn note_end(&self, why: LinkEnd) {
        let mut is_new = false;
        let end = self.end.get_or_init(|| {
            is_new = true;
            why
        });
        if is_new {
            self.upper.ended(end);
            self.count_unsent();
            self.withdraw_results();
            self.wake_waiting();
            let tasks: Vec<_> = self.exposed.table().values().filter_map(|entry| entry.task.take()).collect();
            tasks.into_iter().for_each(Task::wake);
            self.pauses.wake();
        }
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// [`LinkEnd`] if the link has ended.
    #[inline]
    pub fn send(&self, head: Head, body: &[&[u8]]) -> Result<(), LinkEnd> {
        if let Some(end) = self.end() {
            return Err(end.clone());
        }
        debug_assert!(body.iter().map(|part| part.len()).sum::<usize>() <= BODY_BYTES_MAX, "bodies are short");
        // What arrived before a failure is still to be received, so the link does not end here.
        self.path.send(head, body)?;
        self.count_unsent();
        if self.receiving.poke.is_some() && self.path.backlog_bytes() > 0 {
            self.wake_driver();
        }
        Ok(())
    }

    /// Sends the frame that ends something. Afterwards perhaps no thread of this side waits for the
    /// peer, so the layer above has it sent when it cannot be sent at once.
    pub fn send_last(self: &Arc<Self>, head: Head) {
        // A peer that is gone needs no word.
        if self.send(head, &[]).is_ok() && self.path.backlog_bytes() > 0 {
            self.upper.has_backlog(self);
        }
    }

    /// Receives frames and handles them. Returns their number.
    ///
    /// # Errors
    /// [`LinkEnd`] once the link has ended.
    pub fn step(self: &Arc<Self>, scratch: &mut Vec<u8>) -> Result<usize, LinkEnd> {
        if let Some(end) = self.end() {
            return Err(end.clone());
        }
        let mut fault = None;
        if self.path.backlog_bytes() > self.limits.backlog_bytes {
            let end = LinkEnd::protocol("it does not read what is sent to it");
            self.close(end.clone());
            return Err(end);
        }
        let received = self.path.receive(scratch, FRAMES_PER_STEP, &mut |head, body| {
            if fault.is_none() {
                fault = self.handle(head, body).err();
            }
        });
        if self.pauses.has_deferred() && fault.is_none() {
            fault = self.serve_deferred().err();
        }
        if self.pauses.has_waiting() && !self.is_full() {
            self.pauses.wake();
            self.wake_waiting();
        }
        self.count_unsent();
        let failure = match (fault, received) {
            (None, Ok(count)) => return Ok(count),
            (Some(fault), _) | (None, Err(fault)) => fault,
        };
        self.close(failure.clone());
        Err(self.end.get().cloned().unwrap_or(failure))
    }

    /// Returns whether a transfer may go on: little waits to be sent. Otherwise
    /// [`step`](Self::step) wakes the waiting threads as soon as it may.
    pub(crate) fn may_go_on(&self) -> bool {
        self.pauses.begin();
        !self.is_full()
    }

    /// Waits in a task until a transfer may go on.
    fn room(&self) -> impl Future<Output = Result<(), LinkEnd>> {
        poll_fn(|context| {
            self.pauses.add(context.waker().clone());
            match self.end.get() {
                Some(end) => Poll::Ready(Err(end.clone())),
                None if self.may_go_on() => Poll::Ready(Ok(())),
                None => Poll::Pending,
            }
        })
    }

    /// Returns whether so much waits to be sent that transfers pause: on this link, or on all links
    /// of a server and some of it here.
    fn is_full(&self) -> bool {
        self.path.backlog_bytes() > BACKLOG_BYTES_MAX || self.is_crowded()
    }

    /// Returns whether something waits to be sent here, and much on all links of the server.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.limits.unsent.as_ref().is_some_and(|unsent| unsent.is_crowded()) && self.path.backlog_bytes() > 0
    }

    /// The bytes that are counted as waiting to be sent.
    pub fn unsent_bytes(&self) -> usize {
        self.unsent_bytes.load(Ordering::Relaxed)
    }

    /// Counts what waits to be sent. On a link that has ended, nothing does.
    #[inline]
    fn count_unsent(&self) {
        let Some(unsent) = &self.limits.unsent else { return };
        let now = if self.end.get().is_none() { self.path.backlog_bytes() } else { 0 };
        if now != self.unsent_bytes() {
            unsent.change(self.unsent_bytes.swap(now, Ordering::Relaxed), now);
        }
    }

    #[inline]
    fn handle(self: &Arc<Self>, head: Head, body: &[u8]) -> Result<(), LinkEnd> {
        match head.kind {
            Kind::Data => self.data_arrived(head, body),
            Kind::Fetch => self.accept_fetch(head.id, decode(body)?)?,
            Kind::Take if self.limits.serves => return Err(LinkEnd::protocol("a `Take` frame from a client")),
            Kind::Take => self.serve_take(head, decode(body)?)?,
            Kind::Settle => self.settle(head)?,
            Kind::Ack => self.operation_ended(head.id, head.status),
            Kind::Release => self.released(head.id),
            Kind::Forget => {
                self.path.direct().into_iter().for_each(|direct| direct.forget(head.id));
                self.path.rdma().into_iter().for_each(|rdma| rdma.forget(head.id));
            }
            Kind::Share => {
                let share = decode(body)?;
                if let Some(rdma) = self.path.rdma() {
                    let link: Weak<Self> = Arc::downgrade(self);
                    rdma.learn(link, head.id, &share);
                }
            }
            Kind::Forgotten => self.path.rdma().into_iter().for_each(|rdma| rdma.forgotten(head.id)),
            Kind::Call | Kind::Answer | Kind::Cancel | Kind::Item | Kind::Credit => {
                self.upper.frame(self, head, body)?;
            }
        }
        Ok(())
    }

    /// Exposes memory to the peer. Returns its number, and whether the peer may read it directly.
    pub(crate) fn expose(self: &Arc<Self>, area: Arc<Area>) -> (u64, bool) {
        let may_be_revoked = area.is_lent();
        self.expose_as(Entry::default(), area, may_be_revoked)
    }

    /// Exposes memory of an argument, until the call ends or the peer releases it.
    pub(crate) fn expose_argument(self: &Arc<Self>, area: Arc<Area>) -> (u64, bool) {
        let may_be_revoked = area.is_lent();
        self.expose_as(Entry { is_argument: true, ..Entry::default() }, area, may_be_revoked)
    }

    /// The peer needs memory no longer.
    fn released(&self, number: u64) {
        let is_argument = self.exposed.with(number, |entry| Some(entry.is_argument));
        if let Some(area) = self.withdraw(number).filter(|_| is_argument == Some(true)) {
            area.come_back();
        }
    }

    fn expose_as(self: &Arc<Self>, entry: Entry, area: Arc<Area>, may_be_revoked: bool) -> (u64, bool) {
        let entry = Entry { area: Some(area.clone()), ..entry };
        let (number, is_marked) = self.exposed.add(&*self.path, entry);
        if is_marked && may_be_revoked {
            // A peer that reads the memory directly must find out before the memory changes.
            let link = Arc::downgrade(self);
            area.when_revoked(move || drop(link.upgrade().and_then(|link| link.withdraw(number))));
        }
        (number, is_marked)
    }

    /// Ends the exposure of memory. The peer no longer finds it. The memory itself is free once its
    /// [`Area`] is dropped or revoked.
    pub fn withdraw(&self, number: u64) -> Option<Arc<Area>> {
        self.exposed.remove(&*self.path, number)
    }

    /// Exposes memory that the peer has until it releases it, or until the link ends.
    pub(crate) fn expose_in_result(self: &Arc<Self>, area: Arc<Area>) -> (u64, bool) {
        let exposed = self.expose_as(Entry { is_in_result: true, ..Entry::default() }, area, true);
        if self.end.get().is_some() {
            self.withdraw_results();
        }
        exposed
    }

    fn withdraw_results(&self) {
        let numbers = self.exposed.table().numbers(|entry| entry.is_in_result);
        for number in numbers {
            self.withdraw(number);
        }
    }

    /// Shares memory with the peer, unless the peer has it. Returns its number. `None` if the path
    /// does not share memory, or not so much of it.
    pub(crate) fn share(self: &Arc<Self>, memory: &Arc<Allocated>) -> Option<u64> {
        let (direct, rdma) = (self.path.direct(), self.path.rdma());
        let share = |number| match (direct, rdma) {
            (Some(direct), _) => direct.share(number, &memory.mapping),
            (None, Some(rdma)) => rdma.share(&**self, number, memory),
            (None, None) => false,
        };
        let (number, is_new) = lock(&self.shares).number(memory, share)?;
        if is_new {
            let sharer: Weak<Self> = Arc::downgrade(self);
            memory.is_shared(sharer, number);
        }
        Some(number)
    }

    /// The number of exposed areas and operations.
    pub fn exposed_count(&self) -> usize {
        self.exposed.count()
    }

    fn data_arrived(self: &Arc<Self>, head: Head, body: &[u8]) {
        let area = self.exposed.area(head.id);
        if let Some(memory) = passed_on(&area) {
            let write = Request::Write { offset: head.value, bytes: body.to_vec() };
            return memory.accept(self.clone(), head.id, write);
        }
        let done = area.and_then(|area| area.copy_in(head.value, body));
        let Some(task) = self.exposed.arrived(head.id, body.len() as u64, done) else { return };
        task.into_iter().for_each(Task::wake);
        self.wake_waiting();
        transfer::let_others_run(head.value.saturating_add(body.len() as u64));
    }

    fn settle(self: &Arc<Self>, head: Head) -> Result<(), LinkEnd> {
        let area = self.exposed.area(head.value);
        if let Some(memory) = passed_on(&area) {
            memory.accept(self.clone(), head.value, Request::Settle { operation: head.id });
            return Ok(());
        }
        // Only the area can say whether it is still there.
        let look = |area: Arc<Area>| match head.status {
            AFTER_READS => area.copy_out(0, &mut []),
            _ => area.copy_in(0, &[]),
        };
        self.acknowledge(head.id, area.and_then(look).map_err(status_of))
    }

    fn operation_ended(&self, number: u64, status: u8) {
        self.exposed.ended(number, status).into_iter().for_each(Task::wake);
        self.wake_waiting();
    }

    /// Serves a `Fetch`, or defers it while much waits to be sent.
    fn accept_fetch(self: &Arc<Self>, number: u64, fetch: Fetch) -> Result<(), LinkEnd> {
        if !self.pauses.has_deferred() && !self.is_full() {
            return self.serve_fetch(number, &fetch);
        }
        if self.pauses.defer(number, fetch) { Ok(()) } else { self.acknowledge(fetch.into, Err(CROWDED)) }
    }

    /// Serves what was deferred, as far as there is room.
    fn serve_deferred(self: &Arc<Self>) -> Result<(), LinkEnd> {
        while !self.is_full() {
            let Some((number, fetch)) = self.pauses.next() else { break };
            self.serve_fetch(number, &fetch)?;
        }
        Ok(())
    }

    fn serve_fetch(self: &Arc<Self>, number: u64, fetch: &Fetch) -> Result<(), LinkEnd> {
        let area = self.exposed.area(number);
        if let Some(memory) = passed_on(&area) {
            memory.accept(self.clone(), number, Request::Fetch(*fetch));
            return Ok(());
        }
        let sent = area.map_err(status_of).and_then(|area| self.send_pieces(&area, fetch));
        sent.unwrap_or_else(|status| self.acknowledge(fetch.into, Err(status)))
    }

    fn send_pieces(&self, area: &Area, fetch: &Fetch) -> Result<Result<(), LinkEnd>, u8> {
        if area.may_write() {
            return Err(READ_ONLY);
        }
        if fetch.bytes > FETCH_BYTES_MAX {
            return Err(OUT_OF_RANGE);
        }
        let mut piece = vec![0; PIECE_BYTES.min(fetch.bytes as usize)];
        let mut done = 0;
        while done < fetch.bytes {
            let bytes = piece.len().min((fetch.bytes - done) as usize);
            let offset = fetch.offset.checked_add(done).ok_or(OUT_OF_RANGE)?;
            area.copy_out(offset, &mut piece[..bytes]).map_err(status_of)?;
            let head = Head::new(Kind::Data, fetch.into).with_value(fetch.into_offset.wrapping_add(done));
            if let Err(end) = self.send(head, &[&piece[..bytes]]) {
                return Ok(Err(end));
            }
            done += bytes as u64;
        }
        transfer::let_others_run(done);
        Ok(Ok(()))
    }

    fn serve_take(self: &Arc<Self>, head: Head, take: Take) -> Result<(), LinkEnd> {
        let area = self.exposed.area(head.id);
        if let Some(memory) = passed_on(&area) {
            memory.accept(self.clone(), head.id, Request::Take { offset: head.value, take });
            return Ok(());
        }
        let taken = area
            .map_err(status_of)
            .and_then(|area| self.take(&take, |bytes, read| area.fill(head.value, bytes, |parts| read(parts))));
        self.acknowledge(take.operation, taken)
    }

    /// Reads memory that the peer offers. `fill` gets the number of bytes, and what reads them.
    fn take(
        &self,
        take: &Take,
        fill: impl FnOnce(
            usize,
            &mut dyn FnMut(&mut [IoSliceMut<'_>]) -> std::io::Result<()>,
        ) -> Result<(), FillError<std::io::Error>>,
    ) -> Result<(), u8> {
        let direct = self.path.direct().ok_or(UNREADABLE)?;
        let segments = Segments::unpack(&take.segments).ok_or(OUT_OF_RANGE)?;
        let bytes = segments.bytes();
        if bytes > OFFER_BYTES {
            return Err(OUT_OF_RANGE);
        }
        let segments: Vec<_> = segments.range(0, bytes).collect();
        let filled = fill(bytes, &mut |parts| direct.read(index(take.operation), take.operation, &segments, parts));
        transfer::let_others_run(bytes as u64);
        filled.map_err(|error| match error {
            FillError::Refused(refusal) => status_of(refusal),
            FillError::Failed(_) => UNREADABLE,
        })
    }
}

fn passed_on(area: &Result<Arc<Area>, Refusal>) -> Option<Arc<dyn PassedOn>> {
    area.as_ref().ok()?.passed_on().cloned()
}

fn decode<T: Wire>(body: &[u8]) -> Result<T, LinkEnd> {
    farside_wire::decode(farside_wire::Decoder::new(body), 0).map_err(LinkEnd::protocol)
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.is_forked() {
            return;
        }
        self.exposed.revoke_all(&*self.path);
        self.path.close();
        // A thread may have sent something while another one has ended the link.
        if let Some(unsent) = &self.limits.unsent {
            unsent.change(*self.unsent_bytes.get_mut(), 0);
        }
    }
}

impl Sharer for Link {
    fn forget(self: Arc<Self>, number: u64) {
        lock(&self.shares).forget(number);
        // A link that has ended has unmapped it.
        self.send_last(Head::new(Kind::Forget, number));
    }
}

impl Frames for Link {
    fn send_frame(&self, head: Head, body: &[&[u8]]) -> Result<(), LinkEnd> {
        self.send(head, body)
    }
}

impl Asker for Link {
    fn is_exposed(&self, number: u64) -> bool {
        self.exposed.with(number, |_| Some(())).is_some()
    }

    fn wait_for_room(self: Arc<Self>, patience: &Patience) -> Result<(), WaitEnd> {
        self.wait(patience, || self.may_go_on().then_some(()))
    }

    fn take(&self, take: &Take) -> Result<Vec<u8>, u8> {
        let mut found = Vec::new();
        self.take(take, |bytes, read| {
            found.resize(bytes, 0);
            read(&mut [IoSliceMut::new(&mut found)]).map_err(FillError::Failed)
        })?;
        Ok(found)
    }
}

impl WaitedOn for Link {
    fn wake_all(&self) {
        self.wake_waiting();
        self.wake_driver();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("path", &self.path).field("end", &self.end).finish_non_exhaustive()
    }
}
