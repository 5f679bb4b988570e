//! How the two ends of a pipe find each other: the books of each process, and what service threads do with them.
//!
//! The memory of a pipe lies at its reader's process, which makes it when its worker opens the pipe or when the writer's process asks, whichever
//! is first. So a writer needs nobody's attention but the service thread's.
//!
//! # When memory may be given out again
//!
//! As with rings (`job/pool.rs`): a pipe's memory is written by its writer's process and by nobody else but the reader's. It is free again when
//! the reader's end is dropped and the writer's process has said `WriterClosed`, which it does when the writer's end is dropped and no put is under
//! way; its way to the memory is one value that is dropped before. What belonged to a process that was lost is never given out again.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use farside_fabric::memory::Registered;
use farside_fabric::{ProcessId, WorkerId};
use farside_sys::racy;

use super::ends::{Bell, Inlet, Outlet, Way};
use super::error::{PipeCause, PipeError, PipeName, Result};
use super::message::{PipeBody, PipeMessage};
use super::protocol::{Flag, Kind, deliver};
use super::shape::{INLINE_BYTES_MAX, PipeShape, Slots};
use crate::error::{self, Error};
use crate::invoke::ring::message::{Piece, SetupMessage};
use crate::memory::MemoryRefusal;
use crate::runtime::process::{Process, lock};
use farside_launch::kill_point::KillPoint;

/// The pipes whose ends are in one process.
#[derive(Debug, Default)]
pub(crate) struct Pipes(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    /// Those that are read here, or will be.
    incoming: HashMap<PipeName, Incoming>,
    /// Memory that nobody reads any more, and a writer may still write.
    leaving: HashMap<(PipeName, u32), Piece>,
    /// Those that are written here.
    outgoing: HashMap<PipeName, Arc<Outlet>>,
    /// What closed writers have offered and nobody has said to have taken.
    lent: HashMap<(PipeName, u32), Vec<Registered>>,
    sessions: u32,
}

#[derive(Debug)]
struct Incoming {
    inlet: Arc<Inlet>,
    writer: Writer,
    /// A worker here has this end.
    is_read: bool,
    /// The next writer of this name, which came before the reader has let go of what the one before has written.
    next: Option<(u32, PipeShape)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    None,
    Open(u32),
    Closed(u32),
    Lost,
}

#[cfg(test)]
impl Pipes {
    /// How many pipes there are that are read here, or will be.
    pub(super) fn incoming(&self) -> usize {
        lock(&self.0).incoming.len()
    }
}

impl Books {
    /// The memory that is there for others alone: of pipes that nobody here reads yet, or any more. What a worker here has opened is its own.
    fn held_for_others(&self) -> u64 {
        let unread = self.incoming.values().filter(|known| !known.is_read).map(|known| known.inlet.piece);
        unread.chain(self.leaving.values().copied()).map(|piece| piece.bytes).sum()
    }
}

// The reader's side.
impl Process {
    fn new_inlet(&self, shape: PipeShape) -> error::Result<Arc<Inlet>> {
        let piece = self.allocate_piece(shape.bytes())?;
        let memory = self.map_piece(piece)?.expect("own memory is mapped");
        let slots = Slots::new(memory, piece.offset as usize, shape).expect("a piece is as long as was asked for");
        Ok(Arc::new(Inlet::new(slots, piece)))
    }

    /// Opens the reader's end.
    pub(super) fn open_inlet(&self, name: PipeName, shape: PipeShape) -> Result<Arc<Inlet>> {
        let refused = |cause| Err(PipeError::Pipe { pipe: name, cause });
        let mut books = lock(&self.pipes().0);
        let books = &mut *books;
        if let Some(known) = books.incoming.get_mut(&name) {
            let there = known.inlet.slots.shape();
            if known.is_read {
                return refused(PipeCause::Taken);
            }
            if there != shape {
                return refused(PipeCause::Mismatch { here: shape, there });
            }
            known.is_read = true;
            return Ok(known.inlet.clone());
        }
        let inlet = self.new_inlet(shape)?;
        let incoming = Incoming { inlet: inlet.clone(), writer: Writer::None, is_read: true, next: None };
        books.incoming.insert(name, incoming);
        Ok(inlet)
    }

    /// The reader's end is dropped, so many messages read.
    ///
    /// # Errors
    /// Why a writer that has not closed could not be told.
    pub(super) fn close_inlet(&self, name: PipeName, taken: u64) -> error::Result<()> {
        let mut books = lock(&self.pipes().0);
        let Some(Incoming { inlet, writer, next, .. }) = books.incoming.remove(&name) else { return Ok(()) };
        // Whose turn it is now is in the books before anybody else looks: it may close at this moment.
        let next = next.map(|(session, shape)| (session, self.make_for_writer(&mut books, name, session, shape)));
        match writer {
            Writer::None | Writer::Closed(_) => self.free_piece(inlet.piece),
            // What a lost process may still be writing is never given out again.
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
            Writer::Lost => self.place_of(name.writer).and_then(|(process, _)| self.lost(process)).map_or(Ok(()), Err),
            Writer::Open(_) => told,
            // It has gone by itself, or never came.
            Writer::Closed(_) | Writer::None => Ok(()),
        }
    }

    /// A writer's process asks for a pipe.
    fn meet_writer(&self, name: PipeName, session: u32, shape: PipeShape) {
        let mut books = lock(&self.pipes().0);
        // A loss is noted before its pipes are dropped from the books: who asks after that would stay there for good.
        if self.place_of(name.writer).is_none_or(|(process, _)| self.lost(process).is_some()) {
            return;
        }
        let answer = self.answer_writer(&mut books, name, session, shape);
        drop(books);
        self.kill_point(KillPoint::PipeMade);
        if let Some(answer) = answer {
            self.tell_writer(name, session, answer);
            self.wake(name.reader);
        }
    }

    /// What to tell the writer, unless it has to wait for the pipe of the same name before.
    fn answer_writer(&self, books: &mut Books, name: PipeName, session: u32, shape: PipeShape) -> Option<PipeBody> {
        let Some(known) = books.incoming.get_mut(&name) else {
            return Some(self.make_for_writer(books, name, session, shape));
        };
        let there = known.inlet.slots.shape();
        if known.writer != Writer::None {
            known.next = Some((session, shape));
            return None;
        }
        if there != shape {
            known.inlet.set_mismatch(shape);
            return Some(PipeBody::Mismatch { shape: there });
        }
        known.inlet.set_session(session);
        known.writer = Writer::Open(session);
        Some(PipeBody::Opened { piece: known.inlet.piece })
    }

    /// Makes a pipe that nobody here reads yet.
    fn make_for_writer(&self, books: &mut Books, name: PipeName, session: u32, shape: PipeShape) -> PipeBody {
        let (held, limit) = (books.held_for_others(), self.settings().remote_memory_limit);
        if held.saturating_add(shape.bytes() as u64) > limit {
            return PipeBody::NoMemory { held, limit };
        }
        let Ok(inlet) = self.new_inlet(shape) else { return PipeBody::NoMemory { held: 0, limit: 0 } };
        inlet.set_session(session);
        let piece = inlet.piece;
        books.incoming.insert(name, Incoming { inlet, writer: Writer::Open(session), is_read: false, next: None });
        PipeBody::Opened { piece }
    }

    /// The pipe that a writer's process means.
    fn inlet_of(&self, name: PipeName, session: u32) -> Option<Arc<Inlet>> {
        let books = lock(&self.pipes().0);
        let known = books.incoming.get(&name)?;
        (known.writer == Writer::Open(session)).then(|| known.inlet.clone())
    }

    /// A message from where this memory is not mapped.
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
            // SAFETY: the lengths were checked above: behind a flag there are `INLINE_BYTES_MAX` bytes. What goes into the data of a slot is longer than
            // those and no longer than the pipe's longest message (`can_have`), so there is such data, and room. `slots` keeps them mapped.
            unsafe { racy::copy_out(inside.as_ptr(), place, inside.len()) };
        });
        self.wake(name.reader);
    }

    fn meet_writers_end(&self, name: PipeName, session: u32, sent: u64) {
        let mut books = lock(&self.pipes().0);
        if let Some(piece) = books.leaving.remove(&(name, session)) {
            self.free_piece(piece);
        } else if let Some(known) = books.incoming.get_mut(&name) {
            match (known.writer, known.next) {
                (Writer::Open(open), _) if open == session => {
                    known.writer = Writer::Closed(session);
                    known.inlet.close(sent);
                }
                // It did not wait for its turn.
                (_, Some((waiting, _))) if waiting == session => known.next = None,
                _ => {}
            }
        }
        drop(books);
        self.wake(name.reader);
    }

    fn tell_writer(&self, name: PipeName, session: u32, body: PipeBody) {
        self.tell(name.writer, PipeMessage { name, session, body });
    }

    /// Tells the writer's process that so many messages were taken.
    pub(super) fn tell_taken(&self, name: PipeName, session: u32, taken: u64) {
        self.tell_writer(name, session, PipeBody::Took { taken });
    }
}

// The writer's side.
impl Process {
    /// Opens the writer's end. Nobody is told yet.
    pub(super) fn open_outlet(&self, name: PipeName, shape: PipeShape) -> Result<Arc<Outlet>> {
        let mut books = lock(&self.pipes().0);
        if books.outgoing.contains_key(&name) {
            return Err(PipeError::Pipe { pipe: name, cause: PipeCause::Taken });
        }
        let session = books.sessions;
        books.sessions = session.wrapping_add(1);
        let outlet = Arc::new(Outlet::new(name, shape, session));
        books.outgoing.insert(name, outlet.clone());
        Ok(outlet)
    }

    /// Asks the reader's process for the pipe.
    pub(super) fn ask_for_pipe(&self, outlet: &Outlet) -> error::Result<()> {
        let asked = self.tell_reader(outlet, PipeBody::Open { shape: outlet.shape });
        self.kill_point(KillPoint::PipeAsked);
        asked
    }

    /// The writer's end is dropped, after so many messages. Nothing but puts that are under way writes into the pipe any more.
    /// `lent` are the buffers that its reader may still read.
    pub(super) fn close_outlet(&self, outlet: &Outlet, was_asked: bool, sent: u64, lent: Vec<Registered>) {
        let mut books = lock(&self.pipes().0);
        books.outgoing.remove(&outlet.name);
        // If the reader has gone in this moment, nobody would ever take them out again.
        let is_read = !outlet.reader_is_closed()
            && self.place_of(outlet.name.reader).is_some_and(|(reader, _)| !self.is_lost(reader));
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
        // A reader that is gone need not know.
        let _ = self.tell_reader(outlet, PipeBody::WriterClosed { sent });
    }

    /// Sends a message about a pipe to its reader's process.
    pub(super) fn tell_reader(&self, outlet: &Outlet, body: PipeBody) -> error::Result<()> {
        let Outlet { name, session, .. } = *outlet;
        self.try_tell(name.reader, PipeMessage { name, session, body })
    }

    /// The reader's process says where the pipe is. What cannot be is not believed.
    fn way_into(&self, from: ProcessId, outlet: &Outlet, piece: Piece) -> Result<Way> {
        let why = "its memory is not where its reader says";
        let corrupt = || PipeError::Pipe { pipe: outlet.name, cause: PipeCause::Corrupt { why } };
        if piece.key.process != from || piece.bytes < outlet.shape.bytes() as u64 {
            return Err(corrupt());
        }
        // Not under a lock, since mapping waits.
        let mapped = self.map_piece(piece)?.zip(Bell::of(self, outlet.name.reader)?);
        let Some((memory, bell)) = mapped else { return Ok(Way::Posted { piece }) };
        let slots = usize::try_from(piece.offset).ok().and_then(|offset| Slots::new(memory, offset, outlet.shape));
        slots.map(|slots| Way::Mapped { slots, bell }).ok_or_else(corrupt)
    }

    fn take_answer_to_writer(&self, from: ProcessId, outlet: &Outlet, body: PipeBody) {
        match body {
            PipeBody::Opened { piece } => match self.way_into(from, outlet, piece) {
                Ok(way) => outlet.set_answer(Ok(way)),
                // It has died since it said so, and its loss ends the wait.
                Err(PipeError::Job(Error::PeerLost { .. } | Error::JobEnded { .. })) => {}
                Err(PipeError::Pipe { cause, .. }) => outlet.set_answer(Err(cause)),
                Err(error) => outlet.set_answer(Err(PipeCause::Unreachable { why: error.to_string() })),
            },
            PipeBody::NoMemory { held: 0, limit: 0 } => {
                outlet.set_answer(Err(PipeCause::Memory(MemoryRefusal::NoMemory)))
            }
            PipeBody::NoMemory { held, limit } => {
                outlet.set_answer(Err(PipeCause::Memory(MemoryRefusal::Limit { held, limit })));
            }
            PipeBody::Mismatch { shape } => {
                outlet.set_answer(Err(PipeCause::Mismatch { here: outlet.shape, there: shape }));
            }
            PipeBody::Took { taken } => _ = outlet.taken.fetch_max(taken, Ordering::Release),
            // Noted before.
            PipeBody::ReaderClosed { .. } => {}
            PipeBody::Open { .. } | PipeBody::Data { .. } | PipeBody::WriterClosed { .. } => {}
        }
        self.wake(outlet.name.writer);
    }
}

// Both.
impl Process {
    /// Does what another process's service thread says about a pipe.
    pub(crate) fn take_pipe_message(&self, from: ProcessId, message: PipeMessage) {
        let PipeMessage { name, session, body } = message;
        let process_of = |worker: WorkerId| self.place_of(worker).map(|(process, _)| process);
        let (writer, reader) = (process_of(name.writer), process_of(name.reader));
        let to_reader = matches!(body, PipeBody::Open { .. } | PipeBody::Data { .. } | PipeBody::WriterClosed { .. });
        let (sender, receiver) = if to_reader { (writer, reader) } else { (reader, writer) };
        // Nobody of this job says such a thing.
        if sender != Some(from) || receiver != Some(self.id()) {
            return;
        }
        match body {
            PipeBody::Open { shape } => self.meet_writer(name, session, shape),
            PipeBody::Data { number, kind, bytes, inside } => {
                let flag = Flag { kind, bytes: bytes as usize };
                self.take_data(name, session, number, flag, &inside);
            }
            PipeBody::WriterClosed { sent } => self.meet_writers_end(name, session, sent),
            body => {
                let mut books = lock(&self.pipes().0);
                let outlet = books.outgoing.get(&name).filter(|outlet| outlet.session == session).cloned();
                let over =
                    if let PipeBody::ReaderClosed { .. } = body { books.lent.remove(&(name, session)) } else { None };
                if let (PipeBody::ReaderClosed { taken }, Some(outlet)) = (&body, &outlet) {
                    // In the books' lock: the writer's end is either there to be told, or has left here what it lent.
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
        // Who is gone by now need not know.
        let _ = self.try_tell(worker, message);
    }

    fn try_tell(&self, worker: WorkerId, message: PipeMessage) -> error::Result<()> {
        self.end_accesses();
        match self.place_of(worker) {
            Some((process, _)) if process == self.id() => self.take_pipe_message(process, message),
            Some((process, _)) => self.send_setup(process, &SetupMessage::Pipe(message))?,
            None => {}
        }
        Ok(())
    }

    /// Has a worker of this process look up.
    pub(super) fn wake(&self, worker: WorkerId) {
        if let Some((process, local)) = self.place_of(worker)
            && process == self.id()
        {
            self.home().doorbell(local).ring_if_asleep();
        }
    }

    /// A process is lost. What it has written can still be read, and its memory is not given out again.
    pub(crate) fn lose_pipes(&self, lost: ProcessId) {
        let is_of = |worker: WorkerId| self.place_of(worker).is_some_and(|(process, _)| process == lost);
        let mut books = lock(&self.pipes().0);
        books.lent.retain(|(name, _), _| !is_of(name.reader));
        // What it may still be writing is never given out again.
        books.leaving.retain(|(name, _), _| !is_of(name.writer));
        for (_, incoming) in books.incoming.iter_mut().filter(|(name, _)| is_of(name.writer)) {
            incoming.next = None;
            if let Writer::Open(_) = incoming.writer {
                incoming.writer = Writer::Lost;
            }
        }
    }
}
