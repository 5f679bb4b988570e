//! [`Area`]: reading what all workers show under one name.

use std::cmp::Reverse;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytemuck::{Pod, Zeroable};
use farside_inspect::__private::doors::Guest;
use farside_inspect::__private::protocol::{Got, Wanted, Wish};
use farside_inspect::__private::spans::{Span, elements, runs};
use farside_inspect::{Element, ElementType, Field, Refused, Role};
use farside_rpc::{CallError, Pending, Ran, Stage, TransferError};

use super::error::{InspectError, Late};
use super::info::{AreaInfo, PartInfo};
use super::inspector::Inspector;
use super::missing::{Missing, uncovered};
use crate::selection::{Selected, Selection};

/// The largest distance of a step that is named to the one at which the program is.
const LEAD_MAX: u64 = 1 << 40;

/// The time in which a worker says at which step it is, for the error of a reader that waited in
/// vain.
const LATE_TIME: Duration = Duration::from_millis(100);

/// The pause before a worker is asked again whose copies were all in use.
const BUSY_NAP: Duration = Duration::from_millis(1);

/// Which step of an area is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The step at which the program is, if copies of it are there because a reader has asked for
    /// it; otherwise the next that can be had.
    Now,
    /// The next step that can be had.
    Next,
    /// This step. The program must not have passed it.
    Step(u64),
}

/// An area of a job. A [`get`](Self::get) has elements of one and the same step of all workers.
///
/// No worker waits for that, and none for another. The reader asks the workers for their steps and
/// names one a little ahead. Each worker copies its part when it comes there. If a worker has
/// passed the step already, the reader names one that is further ahead. What one worker has alone
/// is read without that, with one call.
#[derive(Debug)]
pub struct Area<T> {
    pub(super) inspector: Inspector,
    pub(super) info: AreaInfo,
    /// How far ahead the last step was named that could be had.
    lead: AtomicU64,
    element: PhantomData<fn() -> T>,
}

/// Elements of one step.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Frame<T> {
    /// The step. `None` if the area has none, and is read as it is now.
    pub step: Option<u64>,
    /// The shape of what was selected.
    pub shape: Vec<u64>,
    /// The elements, in row-major order.
    pub values: Vec<T>,
    /// Those of them that are missing, because their process is gone. Mostly there are none.
    pub missing: Vec<Missing>,
}

/// Elements of one step, whatever their type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawFrame {
    /// The name of the area.
    pub name: String,
    /// The step. `None` if the area has none, and is read as it is now.
    pub step: Option<u64>,
    /// The type of the elements.
    pub element: ElementType,
    /// Its fields, if it is a struct.
    pub fields: Vec<Field>,
    /// The shape of what was selected.
    pub shape: Vec<u64>,
    /// The elements, in row-major order and in this machine's order of bytes.
    pub bytes: Vec<u8>,
    /// Those of them that are missing, because their process is gone. Mostly there are none.
    pub missing: Vec<Missing>,
}

/// The places that are meant of one worker's part.
pub(super) struct Piece {
    pub(super) guest: Guest,
    pub(super) process: u32,
    pub(super) worker: u32,
    /// The places in the part.
    pub(super) spans: Vec<Span>,
    /// The places in what is selected.
    pub(super) block: Vec<Span>,
    pub(super) bytes: usize,
    /// The step that was published last.
    step: Option<u64>,
}

/// How an attempt to read one step ended, if not with an error.
pub(super) enum Attempt {
    Step(u64),
    /// A worker has passed the step, and is at this one.
    Passed(u64),
}

/// The elements that the workers gave.
pub(super) enum Gathered {
    /// Elements of this step, by piece.
    Step(u64, Vec<Got>),
    /// A worker has passed the step, and is at this one.
    Passed(u64),
}

impl<T> Area<T> {
    pub(super) fn new(inspector: Inspector, info: AreaInfo) -> Self {
        Self { inspector, info, lead: AtomicU64::new(1), element: PhantomData }
    }

    /// The description of the area. Its steps are those of the time when it was opened.
    #[must_use]
    pub fn info(&self) -> &AreaInfo {
        &self.info
    }

    /// Checks the shape of the area.
    ///
    /// ```no_run
    /// # use farside_viewer::Inspector;
    /// let heat = Inspector::connect("heat")?.open::<f64>("temperature")?;
    /// let heat = heat.expect_shape([128, 128])?;
    /// # Ok::<(), farside_viewer::InspectError>(())
    /// ```
    ///
    /// # Errors
    /// [`InspectError::Shape`] if it has another one.
    pub fn expect_shape(self, shape: impl AsRef<[u64]>) -> Result<Self, InspectError> {
        let (is, wanted) = (&self.info.shape, shape.as_ref());
        if is == wanted {
            return Ok(self);
        }
        Err(InspectError::Shape { name: self.info.name, is: self.info.shape, wanted: wanted.to_vec() })
    }

    /// Reads elements of one step, as bytes.
    ///
    /// # Errors
    /// [`InspectError`], as for [`get`](Area::get).
    pub fn get_raw(&self, selection: &Selection, at: At) -> Result<RawFrame, InspectError> {
        let selected = selection.of(&self.info.shape)?;
        let (counts, total) = self.count(&selected)?;
        let mut bytes: Vec<u8> = zeroes(total * self.info.element.bytes())?;
        let (step, missing) = self.fill_bytes(&selected, &counts, &mut bytes, at)?;
        let (name, element) = (self.info.name.clone(), self.info.element);
        let fields = self.info.fields.clone();
        Ok(RawFrame { name, step, element, fields, shape: selected.shape(), bytes, missing })
    }

    /// The number of elements that are selected, by dimension and in all.
    fn count(&self, selected: &Selected) -> Result<(Vec<u64>, usize), InspectError> {
        let counts: Vec<u64> = selected.spans.iter().map(|span| span.count).collect();
        let total = elements(&counts, self.info.element.bytes());
        Ok((counts, total.ok_or(InspectError::NoMemory { bytes: u64::MAX })?))
    }

    /// Reads what is selected into memory of its size. Returns the step, and what is missing.
    fn fill_bytes(
        &self,
        selected: &Selected,
        counts: &[u64],
        bytes: &mut [u8],
        at: At,
    ) -> Result<(Option<u64>, Vec<Missing>), InspectError> {
        let deadline = Instant::now() + self.inspector.time();
        let mut lost = None;
        loop {
            let (mut pieces, missing) = self.pieces(selected)?;
            if pieces.is_empty() {
                return Err(lost.unwrap_or_else(|| self.incomplete(selected.count(), selected.count())));
            }
            let step = match self.fill_pieces(&mut pieces, counts, bytes, at, deadline) {
                // The others go on. That process is known to be gone now.
                Err(error @ InspectError::Lost { .. }) if Instant::now() < deadline => {
                    lost = Some(error);
                    continue;
                }
                filled => filled?,
            };
            missing.iter().for_each(|missing| missing.mark(counts, self.info.element, bytes));
            let of_frame = |Missing { worker, origin, shape }| Missing {
                worker,
                origin: selected.kept(&origin),
                shape: selected.kept(&shape),
            };
            return Ok((step, missing.into_iter().map(of_frame).collect()));
        }
    }

    fn fill_pieces(
        &self,
        pieces: &mut [Piece],
        counts: &[u64],
        bytes: &mut [u8],
        at: At,
        deadline: Instant,
    ) -> Result<Option<u64>, InspectError> {
        if self.info.role == Role::View {
            let fill = |pieces: &[Piece], wish| self.attempt(pieces, counts, bytes, wish, deadline);
            return self.read(pieces, at, deadline, fill).map(Some);
        }
        while Instant::now() < deadline {
            if let Attempt::Step(_) = self.attempt(pieces, counts, bytes, Wish::Newest, deadline)? {
                return Ok(None);
            }
        }
        let process = pieces.first().map_or(0, |piece| piece.process);
        Err(InspectError::Refused { process, refused: Refused::Busy })
    }

    /// Finds out which places of each worker are meant, and which belong to processes that are
    /// gone.
    fn pieces(&self, selected: &Selected) -> Result<(Vec<Piece>, Vec<Missing>), InspectError> {
        let (mut pieces, mut missing) = (Vec::new(), Vec::new());
        let total = selected.count();
        let mut found = 0;
        // Of what is the same everywhere, the first one's is shown.
        let is_there = |part: &&PartInfo| self.inspector.guest(part.process).is_some();
        let parts = self.info.parts.iter();
        let parts: Vec<_> =
            if self.info.is_shared() { parts.filter(is_there).take(1).collect() } else { parts.collect() };
        for part in parts {
            let dimensions = selected.spans.iter().zip(&part.origin).zip(&part.shape);
            let within: Option<Vec<_>> =
                dimensions.map(|((span, origin), length)| span.within(*origin, *length)).collect();
            let Some(within) = within else { continue };
            let count: u64 = within.iter().map(|(span, _)| span.count).product();
            found += count;
            let block: Vec<Span> =
                within.iter().map(|(span, first)| Span { start: *first, step: 1, count: span.count }).collect();
            let Some(guest) = self.inspector.guest(part.process) else {
                missing.push(Missing::of_block(Some((part.worker, part.process)), &block));
                continue;
            };
            pieces.push(Piece {
                guest,
                process: part.process,
                worker: part.worker,
                block,
                // A worker's own number has no dimensions.
                spans: within.into_iter().filter(|_| self.info.role != Role::Gauge).map(|(span, _)| span).collect(),
                bytes: count as usize * self.info.element.bytes(),
                step: None,
            });
        }
        if found < total {
            let counts: Vec<u64> = selected.spans.iter().map(|span| span.count).collect();
            let known = missing.iter().map(Missing::block).chain(pieces.iter().map(|piece| piece.block.clone()));
            // Processes that have ended may have shown the rest before the area was opened.
            let may_be_gone = !self.inspector.without_door().is_empty() && !self.info.is_shared();
            let rest = Some(known.collect::<Vec<_>>()).filter(|_| may_be_gone);
            let rest = rest.and_then(|known| uncovered(&counts, known.iter().map(Vec::as_slice)));
            let rest = rest.ok_or_else(|| self.incomplete(total - found, total))?;
            missing.extend(rest.iter().map(|block| Missing::of_block(None, block)));
        }
        Ok((pieces, missing))
    }

    /// The places of each worker that are meant, of which none may be missing.
    pub(super) fn all_pieces(&self, selected: &Selected) -> Result<Vec<Piece>, InspectError> {
        let (pieces, missing) = self.pieces(selected)?;
        if missing.is_empty() { Ok(pieces) } else { Err(self.incomplete_of(&missing, selected.count())) }
    }

    fn incomplete(&self, missing: u64, selected: u64) -> InspectError {
        let (name, lost) = (self.info.name.clone(), self.inspector.without_door());
        InspectError::Incomplete { name, missing, selected, lost }
    }

    fn incomplete_of(&self, missing: &[Missing], selected: u64) -> InspectError {
        let count = |missing: &Missing| missing.shape.iter().product::<u64>();
        self.incomplete(missing.iter().map(count).sum(), selected)
    }

    /// Finds a step that can be had, by attempts to get one.
    pub(super) fn read(
        &self,
        pieces: &mut [Piece],
        at: At,
        deadline: Instant,
        mut attempt: impl FnMut(&[Piece], Wish) -> Result<Attempt, InspectError>,
    ) -> Result<u64, InspectError> {
        let name = || self.info.name.clone();
        if let At::Step(step) = at {
            return match attempt(pieces, Wish::From(step))? {
                Attempt::Step(next) if next == step => Ok(step),
                Attempt::Step(next) => Err(InspectError::NoStep { name: name(), step, next }),
                Attempt::Passed(now) => Err(InspectError::Passed { name: name(), step, now }),
            };
        }
        if pieces.len() == 1 {
            return self.read_one(pieces, if at == At::Now { Wish::Newest } else { Wish::Next }, deadline, attempt);
        }
        let mut now = self.ask_steps(pieces, deadline)?;
        if let (At::Now, Some(step)) = (at, now) {
            match attempt(pieces, Wish::From(step))? {
                Attempt::Step(step) => return Ok(step),
                Attempt::Passed(step) => now = Some(step),
            }
        }
        let mut lead = self.lead.load(Ordering::Relaxed);
        while Instant::now() < deadline {
            let first = now.map_or(0, |now| now.saturating_add(lead));
            match attempt(pieces, Wish::From(first))? {
                Attempt::Step(step) => {
                    // The next reader tries to name a nearer one.
                    self.lead.store(lead - lead / 4, Ordering::Relaxed);
                    return Ok(step);
                }
                Attempt::Passed(step) => now = now.max(Some(step)),
            }
            lead = (lead * 2).min(LEAD_MAX);
        }
        Err(InspectError::TooFast { name: name(), now: now.unwrap_or(0), after: self.inspector.time() })
    }

    /// Reads a step of one worker, which agrees with no other.
    fn read_one(
        &self,
        pieces: &mut [Piece],
        wish: Wish,
        deadline: Instant,
        mut attempt: impl FnMut(&[Piece], Wish) -> Result<Attempt, InspectError>,
    ) -> Result<u64, InspectError> {
        loop {
            match attempt(pieces, wish) {
                Ok(Attempt::Step(step)) => return Ok(step),
                // All copies are being read.
                Ok(Attempt::Passed(_)) if Instant::now() < deadline => {}
                Ok(Attempt::Passed(_)) => {
                    return Err(InspectError::Refused { process: pieces[0].process, refused: Refused::Busy });
                }
                Err(InspectError::NotThere { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        self.ask_steps(pieces, Instant::now() + LATE_TIME)?;
        let (name, after, late) = (self.info.name.clone(), self.inspector.time(), vec![pieces[0].late(wish)]);
        Err(InspectError::NotThere { name, after, late })
    }

    /// Asks all workers for their steps. Returns the highest.
    fn ask_steps(&self, pieces: &mut [Piece], deadline: Instant) -> Result<Option<u64>, InspectError> {
        let ask = |piece: &Piece| piece.guest.until(deadline).step(self.info.name.clone(), piece.worker);
        let asked: Vec<_> = pieces.iter().map(ask).collect();
        for (piece, asked) in pieces.iter_mut().zip(asked) {
            piece.step = asked.and_then(Pending::wait).map_err(|error| self.failure(piece, error))?;
        }
        // The worker that is furthest is the first to say that a step has passed.
        pieces.sort_by_key(|piece| Reverse(piece.step));
        Ok(pieces.first().and_then(|piece| piece.step))
    }

    pub(super) fn failure(&self, piece: &Piece, error: CallError<Refused>) -> InspectError {
        self.inspector.failure(piece.process, &piece.guest, error)
    }

    /// Reads a step of all workers.
    fn attempt(
        &self,
        pieces: &[Piece],
        counts: &[u64],
        bytes: &mut [u8],
        wish: Wish,
        deadline: Instant,
    ) -> Result<Attempt, InspectError> {
        let element_bytes = self.info.element.bytes();
        let mut places = Vec::new();
        for (index, piece) in pieces.iter().enumerate() {
            runs(counts, &piece.block, element_bytes, |offset, length| {
                if length == piece.bytes {
                    places.push((offset, index));
                }
            });
        }
        if places.len() == pieces.len() {
            // Each worker's elements follow each other in what is selected.
            places.sort_unstable();
            let mut rooms: Vec<Option<&mut [u8]>> = pieces.iter().map(|_| None).collect();
            let (mut rest, mut at) = (bytes, 0);
            for (offset, index) in places {
                // Before it may be elements of a process that is gone.
                let (_, behind) = std::mem::take(&mut rest).split_at_mut(offset - at);
                let (room, behind) = behind.split_at_mut(pieces[index].bytes);
                (rooms[index], rest, at) = (Some(room), behind, offset + pieces[index].bytes);
            }
            return self.fill(pieces, rooms.into_iter().flatten().collect(), wish, deadline);
        }
        let mut rooms = pieces.iter().map(|piece| zeroes(piece.bytes)).collect::<Result<Vec<_>, _>>()?;
        let attempt = self.fill(pieces, rooms.iter_mut().map(Vec::as_mut_slice).collect(), wish, deadline)?;
        for (piece, room) in pieces.iter().zip(rooms) {
            let mut rest = room.as_slice();
            runs(counts, &piece.block, element_bytes, |offset, length| {
                let (run, behind) = rest.split_at(length);
                bytes[offset..offset + length].copy_from_slice(run);
                rest = behind;
            });
        }
        Ok(attempt)
    }

    /// Fills the room of each worker's elements.
    fn fill(
        &self,
        pieces: &[Piece],
        rooms: Vec<&mut [u8]>,
        wish: Wish,
        deadline: Instant,
    ) -> Result<Attempt, InspectError> {
        let (step, found) = match self.gather(pieces, wish, deadline)? {
            Gathered::Step(step, found) => (step, found),
            Gathered::Passed(step) => return Ok(Attempt::Passed(step)),
        };
        for ((piece, got), room) in pieces.iter().zip(found).zip(rooms) {
            match self.take(piece, got, room, deadline) {
                Ok(()) => {}
                // It took so long that others have the memory now.
                Err(CallError::Service(Refused::Busy)) => return Ok(Attempt::Passed(step)),
                Err(CallError::Deadline { .. }) => {
                    let (name, after) = (self.info.name.clone(), self.inspector.time());
                    return Err(InspectError::NotThere { name, after, late: vec![piece.late(wish)] });
                }
                Err(error) => return Err(self.failure(piece, error)),
            }
        }
        Ok(Attempt::Step(step))
    }

    /// Asks each worker for its elements of a step.
    pub(super) fn gather(&self, pieces: &[Piece], wish: Wish, deadline: Instant) -> Result<Gathered, InspectError> {
        let asked: Vec<_> = pieces.iter().map(|piece| self.ask(piece, wish, true, deadline)).collect();
        let (mut steps, mut late, mut found) = (None, Vec::new(), Vec::new());
        for (piece, asked) in pieces.iter().zip(asked) {
            match asked.and_then(Pending::wait) {
                Ok(got) => {
                    let step = got.step.unwrap_or(0);
                    let one = *steps.get_or_insert(step);
                    if one != step {
                        return Err(InspectError::Mixed { name: self.info.name.clone(), one, other: step });
                    }
                    found.push(got);
                }
                // The other calls are cancelled when this returns.
                Err(CallError::Service(Refused::Busy)) => {
                    std::thread::sleep(BUSY_NAP);
                    return Ok(Gathered::Passed(piece.wanted(wish)));
                }
                Err(CallError::Service(Refused::Passed { step })) => return Ok(Gathered::Passed(step)),
                Err(CallError::Deadline { .. }) => late.push(piece.late(wish)),
                Err(error) => return Err(self.failure(piece, error)),
            }
        }
        match steps {
            Some(step) if late.is_empty() => Ok(Gathered::Step(step, found)),
            _ => {
                let (name, after) = (self.info.name.clone(), self.inspector.time());
                Err(InspectError::NotThere { name, after, late })
            }
        }
    }

    fn ask(
        &self,
        piece: &Piece,
        wish: Wish,
        is_direct: bool,
        deadline: Instant,
    ) -> Result<Pending<Got, Refused>, CallError<Refused>> {
        let (name, spans) = (self.info.name.clone(), piece.spans.clone());
        piece.guest.until(deadline).get(Wanted { name, worker: piece.worker, wish, spans, is_direct })
    }

    /// Copies the elements that a worker shows.
    fn take(&self, piece: &Piece, got: Got, room: &mut [u8], deadline: Instant) -> Result<(), CallError<Refused>> {
        pull(&got, room)?;
        let Some(version) = got.version else { return Ok(()) };
        let door = piece.guest.until(deadline);
        if door.is_unchanged(self.info.name.clone(), piece.worker, version)?.wait()? {
            return Ok(());
        }
        // The program changes it often. The door copies it between two changes.
        let copied = self.ask(piece, Wish::Newest, false, deadline)?.wait()?;
        pull(&copied, room)
    }
}

/// Copies elements. An error of [`Refused::Busy`] says that the reader has lost them.
fn pull(got: &Got, room: &mut [u8]) -> Result<(), CallError<Refused>> {
    let (given, expected) = (got.elements.bytes(), room.len() as u64);
    if given != expected {
        let cause = format!("{given} bytes were given and {expected} are selected");
        return Err(CallError::Service(Refused::Transfer { cause }));
    }
    got.elements.pull(0, room).map_err(|error| match error {
        TransferError::Gone => CallError::Service(Refused::Busy),
        TransferError::Deadline => CallError::Deadline { stage: Stage::Waiting },
        TransferError::Link(cause) => CallError::Lost { ran: Ran::Maybe, cause },
        error => CallError::Service(Refused::Transfer { cause: error.to_string() }),
    })
}

impl<T: Element> Area<T> {
    /// Reads elements of one step: those of all workers, put together.
    ///
    /// *Cost.* Each worker copies its part of a view once, and the reader copies from there what is
    /// selected. The program does not wait for that. Exposed memory is copied once, by the reader
    /// itself if the selected elements follow each other and are many.
    ///
    /// # Errors
    /// [`InspectError`]: among others [`NotThere`](InspectError::NotThere), which names the workers
    /// that did not come to the step in time; [`Silent`](InspectError::Silent), which names a
    /// process that is stopped; [`Lost`](InspectError::Lost) if all processes have ended that show
    /// what is selected. If others still show some of it, the frame has the rest as
    /// [`missing`](Frame::missing).
    pub fn get(&self, selection: &Selection, at: At) -> Result<Frame<T>, InspectError> {
        let selected = selection.of(&self.info.shape)?;
        let (counts, total) = self.count(&selected)?;
        let mut values: Vec<T> = zeroes(total)?;
        let (step, missing) = match T::bytes_mut(&mut values) {
            Some(bytes) => self.fill_bytes(&selected, &counts, bytes, at)?,
            None => {
                let mut bytes = zeroes(total * size_of::<T>())?;
                let filled = self.fill_bytes(&selected, &counts, &mut bytes, at)?;
                for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(size_of::<T>())) {
                    let (name, element) = (self.info.name.clone(), self.info.element);
                    let read = bytemuck::checked::try_pod_read_unaligned(bytes);
                    *value = read.map_err(|_| InspectError::Value { name, element })?;
                }
                filled
            }
        };
        Ok(Frame { step, shape: selected.shape(), values, missing })
    }

    /// Reads elements of one step into memory of the caller, and returns the step; `None` if the
    /// area has no steps. After an error, the memory may have elements of several steps.
    ///
    /// *Cost*: that of [`get`](Self::get), without new memory each time. For readers that read
    /// again and again.
    ///
    /// ```no_run
    /// # use farside_viewer::{At, Inspector, Selection};
    /// let heat = Inspector::connect("heat")?.open::<f64>("temperature")?;
    /// let mut values = vec![0.0; 128 * 128];
    /// for _ in 0..100 {
    ///     heat.get_into(&Selection::all(), At::Next, &mut values)?;
    /// }
    /// # Ok::<(), farside_viewer::InspectError>(())
    /// ```
    ///
    /// # Errors
    /// [`InspectError`], as for [`get`](Self::get); `Length` if another number of elements is
    /// selected; [`InspectError::Incomplete`] if some are missing. The others were read then.
    pub fn get_into(&self, selection: &Selection, at: At, values: &mut [T]) -> Result<Option<u64>, InspectError>
    where
        T: Pod,
    {
        let selected = selection.of(&self.info.shape)?;
        let (counts, total) = self.count(&selected)?;
        if total != values.len() {
            let expected = (total * size_of::<T>()) as u64;
            let (name, given) = (self.info.name.clone(), size_of_val(values) as u64);
            return Err(InspectError::Length { name, given, expected });
        }
        let (step, missing) = self.fill_bytes(&selected, &counts, bytemuck::cast_slice_mut(values), at)?;
        if missing.is_empty() { Ok(step) } else { Err(self.incomplete_of(&missing, total as u64)) }
    }
}

impl Piece {
    /// The lowest number that fulfils a wish.
    fn wanted(&self, wish: Wish) -> u64 {
        match wish {
            Wish::From(first) => first,
            Wish::Newest | Wish::Next => self.step.map_or(0, |step| step + 1),
        }
    }

    fn late(&self, wish: Wish) -> Late {
        Late { worker: self.worker, process: self.process, at: self.step, wanted: self.wanted(wish) }
    }
}

/// Memory for elements, all bytes 0.
fn zeroes<T: Zeroable>(count: usize) -> Result<Vec<T>, InspectError> {
    let bytes = (count as u64).saturating_mul(size_of::<T>() as u64);
    bytemuck::allocation::try_zeroed_vec(count).map_err(|()| InspectError::NoMemory { bytes })
}
