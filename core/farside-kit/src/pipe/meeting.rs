//! The state of the room in each process: how the two ends of a pipe meet.
//!
//! The memory of a pipe lies in its reader's process. That process makes it when its worker opens
//! the pipe or when the writer's process asks, whichever comes first. So a writer needs progress of
//! the service thread only.
//!
//! # When memory is reused
//!
//! Only the writer's process and the reader's process write to a pipe's memory, as with rings. It
//! is free once the reader's end is dropped and the writer's process has sent `WriterClosed`. That
//! process sends it once the writer's end is dropped and no put is in progress; the writer's link
//! to the memory is dropped before. Memory that a lost process may still be writing is never
//! reused.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use farside::kit::{Extent, Process, Room, Seed, allocate_piece, free_piece, mapped_piece};
use farside::memory::MemoryRefusal;
use farside_fabric::clock::lock;
use farside_fabric::memory::Registered;
use farside_fabric::{ProcessId, WorkerId};
use farside_launch::kill_point::KillPoint;
use farside_sys::racy;

use super::ends::{Bell, Inlet, Link, Outlet};
use super::error::{PipeCause, PipeError, PipeName, Result};
use super::message::{PipeBody, PipeMessage};
use super::protocol::{Flag, Kind, deliver};
use super::shape::{INLINE_BYTES_MAX, Slots, Terms};

/// The pipes whose ends are in one process.
#[derive(Debug, Default)]
pub(crate) struct Pipes(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    /// The pipes that are read here, or will be.
    incoming: HashMap<PipeName, Incoming>,
    /// The memory of pipes whose reader is gone and whose writer may still write.
    leaving: HashMap<(PipeName, u32), Extent>,
    /// The pipes that are written here.
    outgoing: HashMap<PipeName, Arc<Outlet>>,
    /// The buffers that closed writers have offered and whose readers may still fetch them.
    lent: HashMap<(PipeName, u32), Vec<Registered>>,
    sessions: u32,
}

#[derive(Debug)]
struct Incoming {
    inlet: Arc<Inlet>,
    writer: Writer,
    /// A worker of this process has the reading end.
    is_read: bool,
    /// The next writer of this name. It came before the reader was done with the current one.
    next: Option<(u32, Terms)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    None,
    Open(u32),
    Closed(u32),
    Lost,
}

impl Room for Pipes {
    const TAG: u8 = 5;

    type Message = PipeMessage;

    type Local = ();

    fn new(_: &Seed<'_>) -> Self {
        Self::default()
    }

    fn local(&self, _: &Arc<Process>, _: usize) {}

    fn take(&self, process: &Arc<Process>, from: ProcessId, message: PipeMessage) {
        Meeting(process).take_pipe_message(from, message);
    }

    fn find_absent(&self, process: &Arc<Process>, absent: ProcessId) {
        Meeting(process).find_absent(absent);
    }

    fn lose(&self, process: &Process, lost: ProcessId) {
        Meeting(process).lose_pipes(lost);
    }
}

#[cfg(test)]
impl Pipes {
    /// Returns the number of pipes that are read here, or will be.
    pub(super) fn incoming(&self) -> usize {
        lock(&self.0).incoming.len()
    }
}

impl Books {
    /// Returns the bytes held only for other processes: of pipes without a reading end here. The
    /// memory of an open reading end counts as this process's own.
    fn held_for_others(&self) -> u64 {
        let unread = self.incoming.values().filter(|known| !known.is_read).map(|known| known.inlet.piece);
        unread.chain(self.leaving.values().copied()).map(|piece| piece.bytes).sum()
    }
}

/// The pipes of one process: what their ends and the messages about them do to the [`Books`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Meeting<'a>(pub(super) &'a Process);

impl Deref for Meeting<'_> {
    type Target = Process;

    #[inline(always)]
    fn deref(&self) -> &Process {
        self.0
    }
}

// The reader's side.
impl Meeting<'_> {
    fn new_inlet(&self, terms: Terms) -> farside::Result<Arc<Inlet>> {
        let piece = allocate_piece(self, terms.shape.bytes())?;
        let memory = mapped_piece(self, piece).expect("own memory is mapped");
        let slots =
            Slots::new(memory, piece.offset as usize, terms.shape).expect("a piece is as long as was asked for");
        Ok(Arc::new(Inlet::new(slots, piece, terms)))
    }

    /// Opens the reading end.
    pub(super) fn open_inlet(&self, name: PipeName, terms: Terms) -> Result<Arc<Inlet>> {
        let refused = |cause| Err(PipeError::Pipe { pipe: name, cause });
        let mut books = lock(&self.room::<Pipes>().0);
        let books = &mut *books;
        if let Some(known) = books.incoming.get_mut(&name) {
            let there = &known.inlet.terms;
            if known.is_read {
                return refused(PipeCause::Taken);
            }
            if there.shape != terms.shape {
                return refused(terms.mismatch(there));
            }
            known.is_read = true;
            return Ok(known.inlet.clone());
        }
        let inlet = self.new_inlet(terms)?;
        let incoming = Incoming { inlet: inlet.clone(), writer: Writer::None, is_read: true, next: None };
        books.incoming.insert(name, incoming);
        Ok(inlet)
    }

    /// Closes the reading end, after `taken` messages.
    ///
    /// # Errors
    /// The reason why a writer that has not closed got no message.
    pub(super) fn close_inlet(&self, name: PipeName, taken: u64) -> farside::Result<()> {
        let mut books = lock(&self.room::<Pipes>().0);
        let Some(Incoming { inlet, writer, next, .. }) = books.incoming.remove(&name) else { return Ok(()) };
        // The next writer's pipe enters the books under the same lock: that writer may close at
        // this moment.
        let next = next.map(|(session, terms)| (session, self.make_for_writer(&mut books, name, session, terms)));
        match writer {
            Writer::None | Writer::Closed(_) => free_piece(self, inlet.piece),
            // A lost process may still be writing to it.
            Writer::Lost => {}
            Writer::Open(session) => _ = books.leaving.insert((name, session), inlet.piece),
        }
        drop(books);
        self.kill_point(KillPoint::PipeLeft);
        let mut told = Ok(());
        if let Writer::Open(session) | Writer::Closed(session) = writer {
            told = self.try_tell(name.writer, PipeMessage { name, session, body: PipeBody::ReaderClosed { taken } });
        }
        if let Some((session, answer)) = next {
            self.kill_point(KillPoint::PipeMade);
            self.tell_writer(name, session, answer);
        }
        match writer {
            Writer::Lost => {
                self.job.place_of(name.writer).and_then(|(process, _)| self.losses.lost(process)).map_or(Ok(()), Err)
            }
            Writer::Open(_) => told,
            // The writer has closed, or never came.
            Writer::Closed(_) | Writer::None => Ok(()),
        }
    }

    /// Handles the request of a writer's process for a pipe.
    fn meet_writer(&self, name: PipeName, session: u32, terms: Terms) {
        let mut books = lock(&self.room::<Pipes>().0);
        // A loss is noted before its pipes leave the books, so an entry made after that would never
        // be removed.
        if self.job.place_of(name.writer).is_none_or(|(process, _)| self.losses.lost(process).is_some()) {
            return;
        }
        let answer = self.answer_writer(&mut books, name, session, terms);
        drop(books);
        self.kill_point(KillPoint::PipeMade);
        if let Some(answer) = answer {
            self.tell_writer(name, session, answer);
            self.kill_point(KillPoint::PipeAnswered);
            self.wake(name.reader);
        }
    }

    /// Returns the answer to the writer, or `None` if it must wait for the end of an earlier pipe
    /// of this name.
    fn answer_writer(&self, books: &mut Books, name: PipeName, session: u32, terms: Terms) -> Option<PipeBody> {
        let Some(known) = books.incoming.get_mut(&name) else {
            return Some(self.make_for_writer(books, name, session, terms));
        };
        if known.writer != Writer::None {
            known.next = Some((session, terms));
            return None;
        }
        let there = &known.inlet.terms;
        if there.shape != terms.shape {
            let answer = PipeBody::Mismatch { terms: there.clone() };
            known.inlet.set_mismatch(terms);
            return Some(answer);
        }
        known.inlet.set_session(session);
        known.writer = Writer::Open(session);
        Some(PipeBody::Opened { piece: known.inlet.piece })
    }

    /// Makes a pipe that no worker here has opened for reading.
    fn make_for_writer(&self, books: &mut Books, name: PipeName, session: u32, terms: Terms) -> PipeBody {
        let (held, limit) = (books.held_for_others(), self.settings().remote_memory_limit);
        if held.saturating_add(terms.shape.bytes() as u64) > limit {
            return PipeBody::NoMemory { held, limit };
        }
        let Ok(inlet) = self.new_inlet(terms) else { return PipeBody::NoMemory { held: 0, limit: 0 } };
        inlet.set_session(session);
        let piece = inlet.piece;
        books.incoming.insert(name, Incoming { inlet, writer: Writer::Open(session), is_read: false, next: None });
        PipeBody::Opened { piece }
    }

    /// Returns the open pipe of a writer's process.
    fn inlet_of(&self, name: PipeName, session: u32) -> Option<Arc<Inlet>> {
        let books = lock(&self.room::<Pipes>().0);
        let known = books.incoming.get(&name)?;
        (known.writer == Writer::Open(session)).then(|| known.inlet.clone())
    }

    /// Stores a message from a writer that has not mapped this memory.
    fn take_data(&self, name: PipeName, session: u32, number: u64, flag: Flag, inside: &[u8]) {
        let Some(inlet) = self.inlet_of(name, session) else { return };
        inlet.meet_messages();
        let shape = inlet.slots.shape();
        let is_inside = match flag.kind {
            Kind::Inline => inside.len() == flag.bytes,
            Kind::Slot => inside.is_empty() || inside.len() == flag.bytes,
            Kind::Offered => inside.len() <= INLINE_BYTES_MAX,
        };
        if !is_inside || !shape.can_have(flag) {
            return;
        }
        deliver(&inlet.slots, shape.width, number, flag, |slot| {
            let place = if flag.kind == Kind::Slot { inlet.slots.data(slot) } else { inlet.slots.inline(slot) };
            // SAFETY: `is_inside` and `can_have` have checked the lengths. There are
            // `INLINE_BYTES_MAX` bytes behind a flag. Bytes for the data of a slot are more than
            // those and no more than the pipe's longest message (`can_have`), so that data exists
            // and has room. `slots` keeps the memory mapped.
            unsafe { racy::copy_out(inside.as_ptr(), place, inside.len()) };
        });
        self.wake(name.reader);
    }

    fn meet_writers_end(&self, name: PipeName, session: u32, sent: u64) {
        let mut books = lock(&self.room::<Pipes>().0);
        if let Some(piece) = books.leaving.remove(&(name, session)) {
            free_piece(self, piece);
        } else if let Some(known) = books.incoming.get_mut(&name) {
            match (known.writer, &known.next) {
                (Writer::Open(open), _) if open == session => {
                    known.writer = Writer::Closed(session);
                    known.inlet.close(sent);
                }
                // The writer closed before its turn came.
                (_, Some((waiting, _))) if *waiting == session => known.next = None,
                _ => {}
            }
        }
        drop(books);
        self.wake(name.reader);
    }

    fn tell_writer(&self, name: PipeName, session: u32, body: PipeBody) {
        if let (PipeBody::Opened { piece }, Some((writer, _))) = (&body, self.job.place_of(name.writer)) {
            self.links.offer(writer, *piece);
        }
        self.tell(name.writer, PipeMessage { name, session, body });
    }

    /// Tells the writer's process the number of messages taken.
    pub(super) fn tell_taken(&self, name: PipeName, session: u32, taken: u64) {
        self.tell_writer(name, session, PipeBody::Took { taken });
    }
}

// The writer's side.
impl Meeting<'_> {
    /// Opens the writing end. Sends nothing yet.
    pub(super) fn open_outlet(&self, name: PipeName, terms: Terms) -> Result<Arc<Outlet>> {
        let mut books = lock(&self.room::<Pipes>().0);
        if books.outgoing.contains_key(&name) {
            return Err(PipeError::Pipe { pipe: name, cause: PipeCause::Taken });
        }
        let session = books.sessions;
        books.sessions = session.wrapping_add(1);
        let outlet = Arc::new(Outlet::new(name, terms, session));
        books.outgoing.insert(name, outlet.clone());
        Ok(outlet)
    }

    /// Asks the reader's process for the pipe.
    pub(super) fn ask_for_pipe(&self, outlet: &Outlet) -> farside::Result<()> {
        let asked = self.tell_reader(outlet, PipeBody::Open { terms: outlet.terms.clone() });
        self.kill_point(KillPoint::PipeAsked);
        asked
    }

    /// Closes the writing end, after `sent` messages. From now on only puts in progress write into
    /// the pipe. `lent` are the buffers that its reader may still read.
    pub(super) fn close_outlet(&self, outlet: &Outlet, was_asked: bool, sent: u64, lent: Vec<Registered>) {
        let mut books = lock(&self.room::<Pipes>().0);
        books.outgoing.remove(&outlet.name);
        // If the reader closed just now, nothing would ever remove the buffers from the books.
        let is_read = !outlet.reader_is_closed()
            && self.job.place_of(outlet.name.reader).is_some_and(|(reader, _)| !self.losses.is_lost(reader));
        let over = if is_read && !lent.is_empty() {
            books.lent.insert((outlet.name, outlet.session), lent)
        } else {
            Some(lent)
        };
        drop(books);
        drop(over);
        self.kill_point(KillPoint::PipeLeft);
        if was_asked && outlet.close_writer(sent) {
            self.tell_writers_end(outlet, sent);
        }
    }

    pub(super) fn tell_writers_end(&self, outlet: &Outlet, sent: u64) {
        // If the reader is gone, it need not know.
        let _ = self.tell_reader(outlet, PipeBody::WriterClosed { sent });
    }

    /// Sends a message about a pipe to its reader's process.
    pub(super) fn tell_reader(&self, outlet: &Outlet, body: PipeBody) -> farside::Result<()> {
        let Outlet { name, session, .. } = *outlet;
        self.try_tell(name.reader, PipeMessage { name, session, body })
    }

    /// Makes the link to the memory that the reader's process names. Refuses memory that cannot be
    /// the pipe's.
    fn link_to(&self, from: ProcessId, outlet: &Outlet, piece: Extent) -> Result<Link, PipeCause> {
        let corrupt = PipeCause::Corrupt { why: "its memory is not where its reader says" };
        let is_inside = piece.key.is_internal() && piece.key.check(piece.offset, outlet.terms.shape.bytes()).is_ok();
        if piece.key.process != from || !is_inside || piece.bytes < outlet.terms.shape.bytes() as u64 {
            return Err(corrupt);
        }
        let mapped = mapped_piece(self, piece).zip(Bell::mapped(self, outlet.name.reader));
        let Some((memory, bell)) = mapped else { return Ok(Link::Posted { piece }) };
        let slots =
            usize::try_from(piece.offset).ok().and_then(|offset| Slots::new(memory, offset, outlet.terms.shape));
        slots.map(|slots| Link::Mapped { slots, bell }).ok_or(corrupt)
    }

    fn take_answer_to_writer(&self, from: ProcessId, outlet: &Outlet, body: PipeBody) {
        match body {
            PipeBody::Opened { piece } => outlet.set_answer(self.link_to(from, outlet, piece)),
            PipeBody::NoMemory { held: 0, limit: 0 } => {
                outlet.set_answer(Err(PipeCause::Memory(MemoryRefusal::NoMemory)))
            }
            PipeBody::NoMemory { held, limit } => {
                outlet.set_answer(Err(PipeCause::Memory(MemoryRefusal::Limit { held, limit })));
            }
            PipeBody::Mismatch { terms } => {
                if terms.is_possible() {
                    outlet.set_answer(Err(outlet.terms.mismatch(&terms)));
                }
            }
            PipeBody::Took { taken } => _ = outlet.taken.fetch_max(taken, Ordering::Release),
            // Noted by the caller.
            PipeBody::ReaderClosed { .. } => {}
            PipeBody::Open { .. } | PipeBody::Data { .. } | PipeBody::WriterClosed { .. } => {}
        }
        self.wake(outlet.name.writer);
    }
}

// Both.
impl Meeting<'_> {
    /// Handles a message of another process about a pipe.
    pub(super) fn take_pipe_message(&self, from: ProcessId, message: PipeMessage) {
        let PipeMessage { name, session, body } = message;
        let process_of = |worker: WorkerId| self.job.place_of(worker).map(|(process, _)| process);
        let (writer, reader) = (process_of(name.writer), process_of(name.reader));
        let to_reader = matches!(body, PipeBody::Open { .. } | PipeBody::Data { .. } | PipeBody::WriterClosed { .. });
        let (sender, receiver) = if to_reader { (writer, reader) } else { (reader, writer) };
        // No correct process sends this.
        if sender != Some(from) || receiver != Some(self.id()) {
            return;
        }
        match body {
            PipeBody::Open { terms } => {
                if terms.is_possible() {
                    self.meet_writer(name, session, terms);
                }
            }
            PipeBody::Data { number, kind, bytes, inside } => {
                let Some(kind) = Kind::ALL.get(usize::from(kind)).copied() else { return };
                let flag = Flag { kind, bytes: bytes as usize };
                self.take_data(name, session, number, flag, &inside);
            }
            PipeBody::WriterClosed { sent } => self.meet_writers_end(name, session, sent),
            body => {
                let mut books = lock(&self.room::<Pipes>().0);
                let outlet = books.outgoing.get(&name).filter(|outlet| outlet.session == session).cloned();
                let over =
                    if let PipeBody::ReaderClosed { .. } = body { books.lent.remove(&(name, session)) } else { None };
                if let (PipeBody::ReaderClosed { taken }, Some(outlet)) = (&body, &outlet) {
                    // Under the lock of the books: the writing end is either open and learns of
                    // this, or it has left its lent buffers here.
                    outlet.close_reader(*taken);
                }
                drop(books);
                drop(over);
                if let Some(outlet) = outlet {
                    self.take_answer_to_writer(from, &outlet, body);
                }
            }
        }
    }

    fn tell(&self, worker: WorkerId, message: PipeMessage) {
        // If the process is gone, it need not know.
        let _ = self.try_tell(worker, message);
    }

    fn try_tell(&self, worker: WorkerId, message: PipeMessage) -> farside::Result<()> {
        self.accesses.end();
        match self.job.place_of(worker) {
            Some((process, _)) if process == self.id() => self.take_pipe_message(process, message),
            Some((process, _)) => self.send::<Pipes>(process, &message)?,
            None => {}
        }
        Ok(())
    }

    /// Wakes a worker of this process if it sleeps.
    pub(super) fn wake(&self, worker: WorkerId) {
        if let Some((process, local)) = self.job.place_of(worker)
            && process == self.id()
        {
            self.home().doorbell(local).ring_if_asleep();
        }
    }

    /// Handles the answer of a process without pipes to a request of a writer here.
    fn find_absent(&self, absent: ProcessId) {
        let books = lock(&self.room::<Pipes>().0);
        let asked = books
            .outgoing
            .values()
            .filter(|outlet| self.job.place_of(outlet.name.reader).is_some_and(|(process, _)| process == absent));
        // An outlet that has an answer keeps it.
        let asked: Vec<_> = asked.cloned().collect();
        drop(books);
        for outlet in asked {
            outlet.set_answer(Err(PipeCause::Absent { process: absent }));
            self.wake(outlet.name.writer);
        }
    }

    /// Handles the loss of a process. Its messages can still be read, and its memory is never
    /// reused.
    fn lose_pipes(&self, lost: ProcessId) {
        let is_of = |worker: WorkerId| self.job.place_of(worker).is_some_and(|(process, _)| process == lost);
        let mut books = lock(&self.room::<Pipes>().0);
        books.lent.retain(|(name, _), _| !is_of(name.reader));
        // The lost process may still be writing to this memory.
        books.leaving.retain(|(name, _), _| !is_of(name.writer));
        for (_, incoming) in books.incoming.iter_mut().filter(|(name, _)| is_of(name.writer)) {
            incoming.next = None;
            if let Writer::Open(_) = incoming.writer {
                incoming.writer = Writer::Lost;
            }
        }
    }
}
