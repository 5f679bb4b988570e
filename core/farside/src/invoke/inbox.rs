//! The receiving side: the rings that lead to one worker, and running their records.
//!
//! A ring is *watched* from the moment at which its arrival bit was seen until it has been empty
//! for a while. Its bit stays set for as long, so its sender need not touch the bit for every
//! record. The receiver looks at the next headers of the watched rings, which are in its cache.
//! Before it sleeps it stops watching all rings; `farside_fabric::bell` explains why it misses
//! nothing.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use farside_fabric::ProcessId;
use farside_fabric::bell::{Fencing, clear_bits, leave};
use farside_fabric::ring::{Corrupt, Header, MappedChunk, MappedControl, Receiver, RunEnd};
use farside_sys::prefetch::prefetch;

use crate::error::{CorruptRecord, Error, Result, Source};
use crate::invoke::frames::InFrames;
use crate::invoke::message::{Frame, FramePlace, RingName};
use crate::invoke::named::{self, NAMED};
use crate::invoke::outcome::Failure;
use crate::invoke::table::Callable;
use crate::runtime::activity::FunctionId;
use crate::runtime::extent::Extent;
use crate::runtime::home::Home;
use crate::runtime::pool::{HandedOver, Pool};
use crate::runtime::process::Process;
use crate::runtime::worker::Worker;

/// The number of records run from one ring before the others get their turn.
const RECORDS_PER_TURN: usize = 4096;
/// The prefetch distance while records are run. Prefetching starts once `RECORDS_BEFORE_PREFETCH`
/// records were found in one turn, because the sender is then well ahead. A sender just ahead would
/// lose the very line that it is about to write.
const PREFETCH_BYTES: usize = 512;
const RECORDS_BEFORE_PREFETCH: u64 = 64;
/// The number of fruitless looks after which a ring is no longer watched, if others are.
const LOOKS_MAX: u32 = 256;
/// The number of rings that are watched however quiet they are.
const WATCHED_ALWAYS: usize = 4;

/// All rings and frame streams that lead to one worker.
#[derive(Debug)]
pub(crate) struct Inbox {
    home: Home,
    local: usize,
    /// By source.
    rings: Vec<Option<Box<InRing>>>,
    frames: Vec<Option<InFrames>>,
    /// The number of calls executed that quiescence counts, by source.
    counted_calls: Vec<u64>,
    /// The sources whose frames have arrived.
    streams: Vec<u32>,
    watched: Vec<u32>,
    /// The rings that were watched until just now, and that were not looked at again yet.
    left: Vec<u32>,
    /// The arrival bits of the watched rings.
    watched_bits: Vec<u64>,
}

#[derive(Debug)]
struct InRing {
    source: Source,
    /// True if the source runs this binary.
    is_alike: bool,
    receiver: Receiver<MappedChunk, MappedControl>,
    /// The memory of the ring, to be given back in the end.
    pieces: Vec<Extent>,
    looks: u32,
}

/// The reason why a turn at a ring ended.
#[derive(Debug)]
enum Stop {
    Empty,
    Budget,
    Corrupt(CorruptRecord),
}

impl Inbox {
    pub(crate) fn new(home: Home, local: usize, sources: usize) -> Self {
        Self {
            watched_bits: vec![0; home.layout().arrival_words()],
            home,
            local,
            rings: (0..sources).map(|_| None).collect(),
            frames: (0..sources).map(|_| None).collect(),
            counted_calls: vec![0; sources],
            streams: Vec::new(),
            watched: Vec::new(),
            left: Vec::new(),
        }
    }

    /// Returns the number of calls from some processes that quiescence counts.
    pub(crate) fn counted_calls(&self, process: &Process, is_counted: impl Fn(ProcessId) -> bool) -> u64 {
        let of = |index: usize| process.job.owner_of(index as u32);
        let counted = self
            .counted_calls
            .iter()
            .enumerate()
            .filter(|(index, calls)| **calls > 0 && of(*index).is_some_and(&is_counted));
        counted.map(|(_, calls)| calls).sum()
    }

    /// Adds a ring that was made.
    pub(crate) fn open(
        &mut self,
        index: usize,
        source: Source,
        is_alike: bool,
        receiver: Receiver<MappedChunk, MappedControl>,
        pieces: Vec<Extent>,
    ) {
        self.rings[index] = Some(Box::new(InRing { source, is_alike, receiver, pieces, looks: 0 }));
    }

    /// Adds a granted chunk to a ring. Returns whether there is such a ring.
    pub(crate) fn grow(&mut self, index: usize, chunk: MappedChunk, piece: Extent) -> bool {
        let Some(ring) = &mut self.rings[index] else { return false };
        ring.receiver.grant(chunk);
        ring.pieces.push(piece);
        true
    }

    /// Returns whether the next record of a stream waits for a buffer.
    pub(crate) fn is_held(&self, index: usize) -> bool {
        self.frames[index].as_ref().is_some_and(|frames| frames.held().is_some())
    }

    /// Removes the ring and the frames of a lost source, after their last turn. Returns the ring's
    /// memory.
    pub(crate) fn close(&mut self, index: usize) -> Vec<Extent> {
        self.stop_watching(index, clear_bits);
        self.frames[index] = None;
        self.streams.retain(|stream| *stream as usize != index);
        self.rings[index].take().map_or(Vec::new(), |ring| ring.pieces)
    }

    fn bit(index: usize) -> (usize, u64) {
        (index / 64, 1 << (index % 64))
    }

    /// Stops watching a ring, and clears its bit with `clear`.
    fn stop_watching(&mut self, index: usize, clear: fn(&AtomicU64, u64)) {
        let (word, mask) = Self::bit(index);
        if self.watched_bits[word] & mask != 0 {
            self.watched_bits[word] &= !mask;
            self.watched.retain(|watched| *watched as usize != index);
            clear(self.home.arrival_word(self.local, word), mask);
        }
    }

    /// Stops watching all rings, before the worker sleeps.
    pub(crate) fn leave_all(&mut self) {
        debug_assert!(self.left.is_empty());
        std::mem::swap(&mut self.watched, &mut self.left);
        for (word, watched) in self.watched_bits.iter_mut().enumerate() {
            if *watched != 0 {
                clear_bits(self.home.arrival_word(self.local, word), std::mem::take(watched));
            }
        }
    }

    /// Looks once more at the rings that are no longer watched, and sets the bits of those that are
    /// not empty.
    pub(crate) fn look_back(&mut self) {
        while let Some(index) = self.left.pop() {
            self.announce_leftovers(index as usize);
        }
    }

    /// Sets the bit of a ring that is neither watched nor empty, as its sender would.
    fn announce_leftovers(&self, index: usize) {
        let (word, mask) = Self::bit(index);
        let left = self.rings[index].as_ref().is_some_and(|ring| !ring.receiver.is_empty());
        if left && self.watched_bits[word] & mask == 0 {
            self.home.arrival_word(self.local, word).fetch_or(mask, Ordering::Relaxed);
        }
    }

    /// Starts watching the rings whose bits were set since the last look.
    #[inline]
    fn notice_arrivals(&mut self, worker: &Worker) {
        for word in 0..self.watched_bits.len() {
            // SYNC: acquire, pairs with the fence in `bell::announce` before the sender sets its
            // bit. A ring is made known here before its sender learns of it, so its notice is
            // visible after the bit.
            let bits = self.home.arrival_word(self.local, word).load(Ordering::Acquire);
            let mut new = bits & !self.watched_bits[word];
            while new != 0 {
                let index = word * 64 + new.trailing_zeros() as usize;
                let mask = new & new.wrapping_neg();
                new &= new - 1;
                if self.rings.get(index).is_some_and(Option::is_some) {
                    self.watched_bits[word] |= mask;
                    self.watched.push(index as u32);
                } else if !worker.has_notices() {
                    // There is no such ring and no unread notice of one: the bit was set by
                    // mistake.
                    clear_bits(self.home.arrival_word(self.local, word), mask);
                }
            }
        }
    }

    /// Returns whether an arrival bit is set whose ring is not watched.
    pub(crate) fn has_arrivals(&self) -> bool {
        let words = 0..self.watched_bits.len();
        words.into_iter().any(|word| {
            let bits = self.home.arrival_word(self.local, word).load(Ordering::Relaxed);
            bits & !self.watched_bits[word] != 0
        })
    }

    /// Takes in a frame: a piece of a stream of records.
    pub(crate) fn take_frame(&mut self, frame: &Frame) {
        let FramePlace { ring, position, window } = frame.place;
        let index = ring.source as usize;
        if self.frames[index].is_none() {
            self.streams.push(ring.source);
        }
        let stream = self.frames[index].get_or_insert_default();
        stream.set_window(window);
        stream.take(position, frame.bytes());
    }
}

/// Runs what has arrived. Returns the number of records.
///
/// # Errors
/// [`Error::CorruptRing`], after which the ring is ignored; [`Error::HandlerPanicked`];
/// [`Error::HandlerFailed`].
#[inline]
pub(crate) fn run_arrivals(worker: &Worker) -> Result<usize> {
    let mut inbox = worker.inbox();
    let fencing = worker.process_handle().waits.fencing();
    inbox.notice_arrivals(worker);
    let mut ran = 0;
    let mut turn = 0;
    while turn < inbox.watched.len() {
        let index = inbox.watched[turn] as usize;
        let before = worker.executed();
        let outcome = take_turn(worker, &mut inbox, index);
        let records = (worker.executed() - before) as usize;
        ran += records;
        outcome?;
        let watched = inbox.watched.len();
        if let Some(ring) = &mut inbox.rings[index] {
            ring.looks = if records > 0 { 0 } else { ring.looks + 1 };
            if ring.looks > LOOKS_MAX && watched > WATCHED_ALWAYS && fencing == Fencing::Mutual {
                inbox.stop_watching(index, leave);
                ran += last_look(worker, &mut inbox, index)?;
                continue;
            }
        }
        turn += 1;
    }
    ran += run_frames(worker, &mut inbox)?;
    Ok(ran)
}

/// Runs what is left of a source that sends no more. Runs everything if the source is `lost`,
/// otherwise only what is not [held](Inbox::is_held).
///
/// # Errors
/// [`Error::CorruptRing`], after which the ring is ignored; [`Error::HandlerPanicked`];
/// [`Error::HandlerFailed`]; [`Error::NamedCallRefused`].
pub(crate) fn run_last(worker: &Worker, index: usize, lost: bool) -> Result<()> {
    let mut inbox = worker.inbox();
    let mut outcome = Ok(());
    loop {
        if let Some(frames) = inbox.frames[index].as_mut().filter(|_| lost) {
            // A buffer that was not read yet is lost with its owner; the calls behind it run.
            frames.hold(None);
        }
        // The stream may hold more records behind one that panics.
        if let Err(error) = run_stream(worker, &mut inbox, index) {
            outcome = outcome.and(Err(error));
            continue;
        }
        match last_look(worker, &mut inbox, index) {
            Ok(0) if !lost || !inbox.is_held(index) => return outcome,
            Ok(_) => {}
            // The calls behind one that panics run all the same. A corrupt ring is closed, and so
            // empty.
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
}

fn last_look(worker: &Worker, inbox: &mut Inbox, index: usize) -> Result<usize> {
    let before = worker.executed();
    let outcome = take_turn(worker, inbox, index);
    inbox.announce_leftovers(index);
    outcome?;
    Ok((worker.executed() - before) as usize)
}

/// Takes one turn at one ring.
#[inline]
fn take_turn(worker: &Worker, inbox: &mut Inbox, index: usize) -> Result<()> {
    let Some(ring) = &mut inbox.rings[index] else { return Ok(()) };
    // Most looks find nothing, so this returns before it sets up for a panic.
    if ring.receiver.is_empty() {
        return Ok(());
    }
    run_ring(worker, inbox, index)
}

#[inline(never)]
fn run_ring(worker: &Worker, inbox: &mut Inbox, index: usize) -> Result<()> {
    let Some(ring) = &mut inbox.rings[index] else { return Ok(()) };
    let InRing { source, is_alike, receiver, .. } = &mut **ring;
    let (source, is_alike) = (*source, *is_alike);
    let handling = Handling::begin(worker.in_handler_flag());
    let is_watched = worker.recorder().is_on();
    if is_watched {
        worker.note_calls_begin();
    }
    let before = worker.executed_counted();
    let ended = catch_unwind(AssertUnwindSafe(|| match worker.hands_over_to() {
        None if is_watched => run_records::<true>(worker, source, is_alike, receiver),
        None => run_records::<false>(worker, source, is_alike, receiver),
        Some(pool) => hand_records_over(worker, pool, source, receiver),
    }));
    drop(handling);
    inbox.counted_calls[index] += worker.executed_counted() - before;
    if is_watched {
        worker.note_calls_end();
    }
    if receiver.credited_sender_waits() {
        worker.process_handle().ring_source(source);
    }
    match ended {
        Ok(Stop::Empty | Stop::Budget) => worker.refused(),
        Ok(Stop::Corrupt(CorruptRecord::Ring(Corrupt::Rotation))) if worker.has_notices() => {
            // The chunk was granted here before its sender learned of it; the next turn finds it.
            Ok(())
        }
        Ok(Stop::Corrupt(cause)) => Err(close_corrupt(worker, inbox, index, source, cause)),
        Err(panic) => Err(handler_error(source, &*panic)),
    }
}

/// Closes a corrupt ring. Its sender is alive and may still write there.
#[cold]
fn close_corrupt(worker: &Worker, inbox: &mut Inbox, index: usize, source: Source, cause: CorruptRecord) -> Error {
    let pieces = inbox.close(index);
    let (process, ring) = (worker.process_handle(), RingName { source: index as u32, to: worker.id().number() });
    process.calls.rings.retire(process, ring, worker.thread_index(), &pieces);
    Error::CorruptRing { from: source, cause }
}

/// Runs records until there are no more, or the turn is over. Records each while the worker is
/// watched.
#[inline(never)]
fn run_records<const WATCHED: bool>(
    worker: &Worker,
    source: Source,
    is_alike: bool,
    receiver: &mut Receiver<MappedChunk, MappedControl>,
) -> Stop {
    let table = worker.table().callable_by(is_alike);
    let mut counted = Counted { worker, records: 0 };
    let mut run = |header: Header, payload: *const u8, end: *const u8| {
        counted.records += 1;
        let Some(trampoline) = table.trampoline(header.entry()) else {
            // SAFETY: the receiver found the record complete and inside its chunk.
            return unsafe { run_unlisted(worker, source, header, payload, end) };
        };
        if counted.records > RECORDS_BEFORE_PREFETCH {
            prefetch(payload.wrapping_add(PREFETCH_BYTES));
        }
        // SAFETY: the receiver found the record complete and inside its chunk. No sender writes
        // there until the record is credited, which happens after this. The record comes from a
        // sender of this binary, or there would be no trampoline. Its header names an entry of this
        // binary's table. So the sender made the record for that trampoline, which checks the size
        // of the arguments itself.
        unsafe { trampoline(worker, payload, end, header.operand()) }
    };
    let run = |header: Header, payload: *const u8, end: *const u8| {
        if !WATCHED {
            return run(header, payload, end);
        }
        let function = function_of(header);
        worker.note_running(function);
        let after = run(header, payload, end);
        worker.note_ran(source, function);
        after
    };
    // SAFETY: a trampoline returns the record's end, or null, and so does `run_unlisted`.
    match unsafe { receiver.run(RECORDS_PER_TURN, run) } {
        Ok(RunEnd::Empty) => Stop::Empty,
        Ok(RunEnd::Enough) => Stop::Budget,
        Ok(RunEnd::Refused { header }) => {
            // The record was counted, but not run.
            counted.records -= 1;
            Stop::Corrupt(refusal(worker, table, header))
        }
        Err(cause) => Stop::Corrupt(cause.into()),
    }
}

/// Hands records over to the pool until there are no more, or the turn is over.
fn hand_records_over(
    worker: &Worker,
    pool: &Pool,
    source: Source,
    receiver: &mut Receiver<MappedChunk, MappedControl>,
) -> Stop {
    let mut counted = Counted { worker, records: 0 };
    let hand_over = |header: Header, payload: *const u8, end: *const u8| {
        counted.records += 1;
        // SAFETY: the receiver found the record complete and inside its chunk, where no sender
        // writes until it is credited.
        pool.hand_over(worker, unsafe { HandedOver::copy(source, header, payload, end) });
        end
    };
    // SAFETY: the closure returns the record's end.
    match unsafe { receiver.run(RECORDS_PER_TURN, hand_over) } {
        Ok(RunEnd::Empty) => Stop::Empty,
        Ok(RunEnd::Enough | RunEnd::Refused { .. }) => Stop::Budget,
        Err(cause) => Stop::Corrupt(cause.into()),
    }
}

/// Runs a record whose entry is in no table: one that names its function. Returns its end, or null
/// when it is no such record.
///
/// # Safety
/// The bytes from `payload` to `end` are readable.
#[inline(never)]
unsafe fn run_unlisted(
    worker: &Worker,
    source: Source,
    header: Header,
    payload: *const u8,
    end: *const u8,
) -> *const u8 {
    match header.entry() {
        // SAFETY: this function has the same contract as `named::run`: the bytes from `payload` to
        // `end` are readable.
        NAMED => unsafe { named::run(worker, source, payload, end) },
        _ => std::ptr::null(),
    }
}

fn function_of(header: Header) -> FunctionId {
    FunctionId { entry: header.entry(), offset: header.operand() }
}

/// Returns the reason why a record was not run.
#[cold]
fn refusal(worker: &Worker, table: Callable<'_>, header: Header) -> CorruptRecord {
    match table.trampoline(header.entry()) {
        None if header.entry() == NAMED => CorruptRecord::Malformed { entry: NAMED },
        None => CorruptRecord::Entry { entry: header.entry(), count: table.len() },
        // A closure that is known by its type alone has no offset.
        Some(_) if header.operand() != 0 && worker.table().function_at(header.operand()).is_none() => {
            CorruptRecord::NoFunction { offset: header.operand() }
        }
        Some(_) => CorruptRecord::Malformed { entry: header.entry() },
    }
}

/// Counts the records run, even if one of them panics.
struct Counted<'a> {
    worker: &'a Worker,
    records: u64,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.worker.count_executed(self.records);
    }
}

fn run_frames(worker: &Worker, inbox: &mut Inbox) -> Result<usize> {
    if !worker.process_handle().links.has_unmapped_peers() {
        return Ok(0);
    }
    let before = worker.executed();
    for turn in 0..inbox.streams.len() {
        run_stream(worker, inbox, inbox.streams[turn] as usize)?;
    }
    Ok((worker.executed() - before) as usize)
}

/// Tells the senders of frames how much was run, because this worker goes to sleep.
pub(crate) fn tell_credit(worker: &Worker) {
    if !worker.process_handle().links.has_unmapped_peers() {
        return;
    }
    let mut inbox = worker.inbox();
    let Inbox { frames, streams, .. } = &mut *inbox;
    for stream in streams {
        if let Some(consumed) = frames[*stream as usize].as_mut().and_then(InFrames::credit_now) {
            let source = worker.process_handle().job.source(*stream as usize);
            worker.process_handle().credit_frames(source, worker, consumed);
        }
    }
}

/// Runs the records of one stream of frames that have arrived completely.
fn run_stream(worker: &Worker, inbox: &mut Inbox, index: usize) -> Result<()> {
    let Some(frames) = &mut inbox.frames[index] else { return Ok(()) };
    if let Some(fetch) = frames.held() {
        if worker.fetches().is_under_way(fetch) {
            return Ok(());
        }
        frames.hold(None);
    }
    let source = worker.process_handle().job.source(index);
    let handling = Handling::begin(worker.in_handler_flag());
    worker.fetches().set_in_stream(true);
    let before = worker.executed_counted();
    let ended = catch_unwind(AssertUnwindSafe(|| run_framed(worker, source, frames)));
    worker.fetches().set_in_stream(false);
    drop(handling);
    inbox.counted_calls[index] += worker.executed_counted() - before;
    if let Some(consumed) = frames.credit() {
        worker.process_handle().credit_frames(source, worker, consumed);
    }
    match ended {
        Ok(Ok(())) => worker.refused(),
        Ok(Err(cause)) => {
            // As with a corrupt ring, the error is reported once, and later frames are ignored.
            frames.close();
            Err(Error::CorruptRing { from: source, cause })
        }
        Err(panic) => Err(handler_error(source, &*panic)),
    }
}

fn run_framed(worker: &Worker, source: Source, frames: &mut InFrames) -> Result<(), CorruptRecord> {
    let table = worker.table().callable_by(worker.process_handle().job.is_alike_source(source));
    while let Some(record) = frames.next_record()? {
        let header = Header::from_word(record[0]);
        let first = if header.short_bytes().is_some() { 1 } else { 2 };
        let payload = record[first..].as_ptr_range();
        let (start, end) = (payload.start.cast(), payload.end.cast());
        worker.count_executed(1);
        if let Some(pool) = worker.hands_over_to() {
            // SAFETY: the record is complete by its header.
            pool.hand_over(worker, unsafe { HandedOver::copy(source, header, start, end) });
            continue;
        }
        // SAFETY: the record is a copy in this process's memory, complete by its header.
        unsafe { run_copy(worker, table, source, header, start, end) }?;
        let held = worker.fetches().take_hold();
        if held.is_some() {
            frames.hold(held);
            break;
        }
    }
    Ok(())
}

/// Runs a record that lies in memory of this process.
///
/// # Errors
/// The reason why the record cannot be run.
///
/// # Safety
/// The bytes from `start` to `end` are the payload of a whole record from `source`, and no thread
/// writes them.
unsafe fn run_copy(
    worker: &Worker,
    table: Callable<'_>,
    source: Source,
    header: Header,
    start: *const u8,
    end: *const u8,
) -> Result<(), CorruptRecord> {
    let is_watched = worker.recorder().is_on();
    if is_watched {
        worker.note_calls_begin();
        worker.note_running(function_of(header));
    }
    let after = match table.trampoline(header.entry()) {
        // SAFETY: the sender is of this binary, or there would be no trampoline. It made the record
        // for the trampoline that the header names, which checks the size of the arguments itself.
        Some(trampoline) => unsafe { trampoline(worker, start, end, header.operand()) },
        // SAFETY: by the contract the record is complete, so its payload is readable.
        None => unsafe { run_unlisted(worker, source, header, start, end) },
    };
    if is_watched {
        worker.note_ran(source, function_of(header));
        worker.note_calls_end();
    }
    if after.is_null() { Err(refusal(worker, table, header)) } else { Ok(()) }
}

/// Runs a record that the receiver has handed over to a pool. The function is no handler: it may
/// wait, as the body of a worker does.
///
/// # Errors
/// [`Error::CorruptRing`] if the record cannot be run; [`Error::HandlerPanicked`];
/// [`Error::HandlerFailed`]; [`Error::NamedCallRefused`].
pub(crate) fn run_handed_over(worker: &Worker, record: &HandedOver) -> Result<()> {
    let source = record.source;
    let table = worker.table().callable_by(worker.process_handle().job.is_alike_source(source));
    let payload = record.payload();
    // SAFETY: the payload is a copy of a whole record's, and the record is taken from its queue
    // once.
    let run = || unsafe { run_copy(worker, table, source, record.header, payload.start, payload.end) };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => worker.refused(),
        Ok(Err(cause)) => Err(Error::CorruptRing { from: source, cause }),
        Err(panic) => Err(handler_error(source, &*panic)),
    }
}

thread_local! {
    /// True if this thread is in a handler, for code that knows no worker.
    static HANDLES: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread is in a handler of any worker.
pub fn this_thread_handles() -> bool {
    HANDLES.get()
}

/// Marks the worker as being in a handler, until it is dropped.
pub(crate) struct Handling<'a> {
    /// Written by this thread; read by those that look into the process.
    flag: &'a AtomicBool,
    /// The thread's state before: one program's thread may run handlers of two workers.
    outer: bool,
}

impl<'a> Handling<'a> {
    pub(crate) fn begin(flag: &'a AtomicBool) -> Self {
        debug_assert!(!flag.load(Ordering::Relaxed), "handlers are not nested");
        flag.store(true, Ordering::Relaxed);
        Self { flag, outer: HANDLES.replace(true) }
    }
}

impl Drop for Handling<'_> {
    fn drop(&mut self) {
        self.flag.store(false, Ordering::Relaxed);
        HANDLES.set(self.outer);
    }
}

/// Returns the error for a function that unwound: it failed or panicked.
pub(crate) fn handler_error(from: Source, panic: &(dyn Any + Send)) -> Error {
    match panic.downcast_ref::<Failure>() {
        Some(Failure(message)) => Error::HandlerFailed { from, message: message.clone() },
        None => Error::HandlerPanicked { from, message: panic_message(panic) },
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "(no message)".to_owned())
}
