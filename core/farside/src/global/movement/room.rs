//! The operations of a process: those that its workers have started, and those that it executes. It
//! does what [`orders`](super::orders) and [`table`](super::table) allow.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::{Duration, Instant};

use farside_fabric::ProcessId;
use farside_fabric::transport::Operation;

use super::error::Failure;
use super::flow::{Flow, Room, Step};
use super::message::{About, Command, MoveMessage, WordChange};
use super::orders::{Orders, Start, What};
use super::table::{COMMANDS_MAX, Origin, Table, Taken};
use super::work::{MoveValue, Spot, Work};
use crate::global::room::{GlobalMessage, GlobalRoom};
use crate::memory::Extent;
use crate::memory::address::GlobalAddress;
use crate::runtime::observer::OpenOperation;
use crate::runtime::process::{Process, lock};
use crate::runtime::room::Served;
use farside_launch::kill_point::KillPoint;

/// The time after which operations at the transport are looked at again without a wake-up.
const LOOK_AFTER: Duration = Duration::from_millis(1);
/// The most rounds over all operations in one turn.
const ROUNDS_MAX: u32 = 4;

/// The operations of a process.
#[derive(Debug)]
pub(crate) struct Movement {
    inner: Mutex<Inner>,
    /// The number of open operations of each thread. Written under the lock, and read by the
    /// thread, which needs no lock if there are none.
    open: Box<[AtomicU32]>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) threads: Box<[Thread]>,
    table: Table<Flow>,
    /// True if the last turn ended because enough was copied under the lock, and not because
    /// nothing was left to do.
    is_cut_short: bool,
}

/// The operations of one thread.
#[derive(Debug, Default)]
pub(super) struct Thread {
    pub(super) orders: Orders<Work>,
    /// Notes on each open operation.
    pub(super) notes: HashMap<u64, Note>,
    /// Futures that wait for an operation.
    pub(super) wakers: Vec<Waker>,
    /// True if an operation has ended and the thread was not notified.
    has_news: bool,
}

/// The destination of the result of an operation.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) target: GlobalAddress,
    pub(super) source: GlobalAddress,
    pub(super) brings: Option<Parcel>,
    /// The place in this process's memory for the earlier value of a word, and the size of the
    /// word.
    pub(super) store_at: Option<(Spot, usize)>,
    /// The access that the observer keeps open until the operation is over.
    pub(super) hold: Option<OpenOperation>,
}

/// The result of an operation, once it has ended.
pub(super) type Parcel = Arc<Mutex<Option<MoveValue>>>;

impl Movement {
    pub(crate) fn new(own: ProcessId, threads: usize) -> Self {
        let threads_of = (0..threads).map(|_| Thread::default()).collect();
        let inner = Inner { threads: threads_of, table: Table::new(own, COMMANDS_MAX), is_cut_short: false };
        Self { inner: Mutex::new(inner), open: (0..threads).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Returns the number of open operations of a thread.
    #[inline]
    pub(super) fn open(&self, local: usize) -> u32 {
        // SYNC: acquire, for the release in `note_counts`: a thread that finds that an operation is
        // over sees its effects.
        self.open[local].load(Ordering::Acquire)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    pub(super) fn note_counts(&self, inner: &Inner) {
        for (open, thread) in self.open.iter().zip(&inner.threads) {
            // SYNC: release, for the acquire in `open`.
            open.store(thread.orders.open_count() as u32, Ordering::Release);
        }
    }

    /// Continues operations, as far as that is possible without waiting.
    pub(in super::super) fn advance(&self, process: &Arc<Process>) -> Served {
        if !process.rooms.is_busy::<GlobalRoom>() {
            return Served::NOTHING;
        }
        let mut inner = self.lock();
        let mut moved = false;
        let now = process.clock().now();
        let mut room = Room::new(inner.table.begun().map(|(_, flow)| flow.piece_count()).sum());
        for _ in 0..ROUNDS_MAX {
            let moves = inner.advance(process, now, &mut room);
            moved |= moves;
            if !moves {
                break;
            }
        }
        inner.is_cut_short = room.is_used_up();
        let is_busy = moved || inner.may_go_on();
        process.rooms.set_busy::<GlobalRoom>(is_busy);
        let again = if is_busy { inner.next_look(process.clock().now()) } else { None };
        self.tell(process, inner);
        Served { moved, again }
    }

    /// Called after a change that may let operations continue.
    pub(super) fn stir(&self, process: &Process) {
        if !process.rooms.set_busy::<GlobalRoom>(true) {
            // The thread that begins an operation may not make progress.
            process.request_look();
        }
    }

    /// Tells threads that operations of theirs have ended.
    fn tell(&self, process: &Process, mut inner: MutexGuard<'_, Inner>) {
        self.note_counts(&inner);
        let mut wakers = Vec::new();
        let mut locals = Vec::new();
        for (local, thread) in inner.threads.iter_mut().enumerate() {
            if std::mem::take(&mut thread.has_news) {
                locals.push(local);
                wakers.append(&mut thread.wakers);
            }
        }
        drop(inner);
        locals.into_iter().for_each(|local| process.mailboxes.call_attention(local));
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Executes a request of another process, or notes its answer.
    pub(in super::super) fn take(&self, process: &Arc<Process>, from: ProcessId, message: MoveMessage) {
        let mut inner = self.lock();
        let MoveMessage { local, number, what } = message;
        let own = (local as usize) < inner.threads.len();
        match what {
            About::Command { epoch, after, command } => {
                if !command.is_valid() {
                    return;
                }
                let origin = Origin { process: from, local, number };
                inner.take_command(process, origin, epoch, after, command);
            }
            About::Heard => inner.table.forget_failed(Origin { process: from, local, number }),
            About::Ended { previous } if own => {
                let thread = &mut inner.threads[local as usize];
                if thread.orders.is_sent_to(number, from) {
                    thread.end(process, number, MoveValue::Previous(previous));
                }
            }
            About::Failed { why } if own => {
                let thread = &mut inner.threads[local as usize];
                if thread.orders.is_sent_to(number, from) {
                    thread.fail(process, number, why);
                }
                send(process, from, local, number, About::Heard);
            }
            About::Refused { epoch } if own => {
                let thread = &mut inner.threads[local as usize];
                let failed = thread.orders.refuse(from, number, epoch, process.clock().now());
                thread.note_failed(process, &failed);
            }
            // No such thread exists here.
            About::Ended { .. } | About::Failed { .. } | About::Refused { .. } => {}
        }
        self.tell(process, inner);
        self.stir(process);
    }

    /// Fails the operations that a lost process was asked for, and drops those that it has asked
    /// for.
    pub(in super::super) fn lose(&self, process: &Process, lost: ProcessId) {
        let mut inner = self.lock();
        inner.table.lose(lost);
        for thread in &mut inner.threads {
            for number in thread.orders.asked_of(lost) {
                thread.fail(process, number, Failure::Lost { process: lost });
            }
        }
        self.tell(process, inner);
        self.stir(process);
    }
}

fn send(process: &Process, to: ProcessId, local: u32, number: u64, what: About) {
    // A process that is lost by now needs no answer.
    let _ = process.send::<GlobalRoom>(to, &GlobalMessage::Move(MoveMessage { local, number, what }));
}

impl Inner {
    /// Looks at all operations once.
    fn advance(&mut self, process: &Arc<Process>, now: Instant, room: &mut Room) -> bool {
        let mut moved = self.give_up_refused(process, now);
        for local in 0..self.threads.len() {
            while let Some(start) = self.threads[local].orders.next_start(now) {
                self.start(process, local as u32, start);
                moved = true;
            }
        }
        let hopeless = self.table.begin_held().into_iter();
        let mut ends: Vec<_> = hopeless.map(|(origin, number)| (origin, Err(Failure::Earlier { number }))).collect();
        room.share_among(self.table.begun().count());
        for (origin, flow) in self.table.begun() {
            match flow.advance(process, now, room) {
                Step::Stuck => {}
                Step::Moved => moved = true,
                Step::Ended(result) => ends.push((origin, result)),
            }
        }
        moved |= !ends.is_empty();
        ends.into_iter().for_each(|(origin, result)| self.end(process, origin, result));
        moved
    }

    fn give_up_refused(&mut self, process: &Process, now: Instant) -> bool {
        let Some(before) = now.checked_sub(process.settings().deadline) else { return false };
        let mut any = false;
        for thread in &mut self.threads {
            for (number, by) in thread.orders.refused_since(before) {
                thread.fail(process, number, Failure::Full { process: by });
                any = true;
            }
        }
        any
    }

    fn start(&mut self, process: &Arc<Process>, local: u32, start: Start<Work>) {
        let Start { number, what } = start;
        match what {
            What::Here(work) => {
                let origin = Origin { process: process.id(), local, number };
                self.table.begin_own(origin, Flow::new(work));
            }
            What::Send { to, epoch, after, work } => {
                let Some(command) = Command::of(work) else {
                    let what = "only what fits into a command is sent".to_owned();
                    return self.threads[local as usize].fail(process, number, Failure::Other { what });
                };
                // When this one has taken effect there, other processes may know that those are
                // over, while this process may not.
                after.iter().for_each(|earlier| self.threads[local as usize].end_hold(process, *earlier));
                let what = About::Command { epoch, after, command };
                // A message to a lost process may be accepted and dropped. If the loss is noted
                // after this look, `Movement::lose` finds the operation sent.
                let sent = match process.losses.lost(to) {
                    Some(lost) => Err(lost),
                    None => {
                        let message = GlobalMessage::Move(MoveMessage { local, number, what });
                        process.send::<GlobalRoom>(to, &message)
                    }
                };
                process.kill_point(KillPoint::MoveAsked);
                if let Err(error) = sent {
                    let failure = Failure::of_error(&error, true);
                    self.threads[local as usize].fail(process, number, failure);
                }
            }
        }
    }

    fn take_command(&mut self, process: &Process, origin: Origin, epoch: u64, after: Vec<u64>, command: Command) {
        let work = command.into_work();
        let checked = work.check_for_others(process);
        match self.table.take_in(origin, epoch, after, Flow::new(work)) {
            Taken::In => match checked {
                Ok(()) => process.kill_point(KillPoint::MoveTaken),
                Err(failure) => self.end(process, origin, Err(failure)),
            },
            Taken::Refused => send(process, origin.process, origin.local, origin.number, About::Refused { epoch }),
            Taken::Dropped => {}
        }
    }

    /// Ends an operation that was executed here.
    fn end(&mut self, process: &Process, origin: Origin, result: Result<MoveValue, Failure>) {
        self.table.end(origin, result.as_ref().err());
        let Origin { process: from, local, number } = origin;
        if from != process.id() {
            process.kill_point(KillPoint::MoveDone);
            let what = match result {
                Ok(MoveValue::Previous(previous)) => About::Ended { previous },
                Ok(MoveValue::Nothing | MoveValue::Buffer(_)) => About::Ended { previous: 0 },
                Err(why) => About::Failed { why },
            };
            return send(process, from, local, number, what);
        }
        let thread = &mut self.threads[local as usize];
        match result {
            Ok(brought) => thread.end(process, number, brought),
            Err(why) => thread.fail(process, number, why),
        }
    }

    /// Returns when the operations are to be looked at again.
    fn next_look(&self, now: Instant) -> Option<Instant> {
        let after = if self.is_cut_short { Duration::ZERO } else { LOOK_AFTER };
        let look = self.table.is_busy().then(|| now + after);
        self.threads.iter().filter_map(|thread| thread.orders.next_try()).chain(look).min()
    }

    fn may_go_on(&self) -> bool {
        self.table.is_busy() || self.threads.iter().any(|thread| thread.orders.next_try().is_some())
    }
}

impl Thread {
    /// Notes that an operation has ended well.
    fn end(&mut self, process: &Process, number: u64, brought: MoveValue) {
        let is_held = self.notes.get(&number).is_some_and(|note| note.hold.is_some());
        let is_followed = is_held && self.orders.is_followed(number);
        if !self.orders.end(number) {
            return;
        }
        self.has_news = true;
        let Some(note) = self.notes.remove(&number) else { return };
        if let (Some((spot, bytes)), MoveValue::Previous(previous)) = (&note.store_at, &brought) {
            spot.store_word(process, *previous, *bytes);
        }
        match note.hold {
            // A process that sees what comes after it knows that it is over, even if its worker
            // has not reported it.
            Some(hold) if is_followed => hold.end(process),
            Some(hold) => hold.complete(process),
            None => {}
        }
        if let Some(parcel) = note.brings {
            *lock(&parcel) = Some(brought);
        }
    }

    /// Notes that an operation has failed, and with it those that are ordered after it.
    fn fail(&mut self, process: &Process, number: u64, failure: Failure) {
        let failed = self.orders.fail(number, failure);
        self.note_failed(process, &failed);
    }

    fn note_failed(&mut self, process: &Process, failed: &[u64]) {
        self.has_news |= !failed.is_empty();
        failed.iter().for_each(|number| self.end_hold(process, *number));
    }

    /// Has the observer of accesses forget the accesses of an operation.
    pub(super) fn end_hold(&mut self, process: &Process, number: u64) {
        if process.accesses.is_observed()
            && let Some(hold) = self.notes.get_mut(&number).and_then(|note| note.hold.take())
        {
            hold.end(process);
        }
    }

    /// Returns the observer's numbers of the operations that come before one that is ordered after
    /// these.
    pub(super) fn held_before(&self, after: Vec<u64>) -> Vec<u64> {
        let holds =
            self.orders.all_before(after).into_iter().filter_map(|number| self.notes.get(&number)?.hold.as_ref());
        holds.map(|hold| hold.operation).collect()
    }
}

impl Command {
    /// Returns `None` for work that only its own process can do.
    fn of(work: Work) -> Option<Self> {
        let extent = |spot: &Spot, bytes: u64| Extent { key: spot.key, offset: spot.offset, bytes };
        Some(match work {
            Work::Copy { target, source, bytes } => {
                Self::Copy { target: extent(&target, bytes), source: extent(&source, bytes) }
            }
            Work::Put { target, data } => Self::Put { target: extent(&target, data.len() as u64), data },
            Work::Change { target, change } => {
                let (bytes, change) = match change {
                    Operation::Atomic64 { change, .. } => (8, WordChange::Word64(change)),
                    Operation::Atomic32 { change, .. } => (4, WordChange::Word32(change)),
                    Operation::Put { .. } | Operation::Get { .. } => return None,
                };
                Self::Change { target: extent(&target, bytes), change }
            }
            Work::Get { .. } | Work::PutSignal { .. } => return None,
        })
    }

    fn into_work(self) -> Work {
        let spot = |memory: Extent| Spot::named(memory.key, memory.offset);
        match self {
            Self::Copy { target, source } => {
                Work::Copy { target: spot(target), source: spot(source), bytes: target.bytes }
            }
            Self::Put { target, data } => Work::Put { target: spot(target), data },
            Self::Change { target, change } => {
                let offset = target.offset;
                let change = match change {
                    WordChange::Word64(change) => Operation::Atomic64 { offset, change },
                    WordChange::Word32(change) => Operation::Atomic32 { offset, change },
                };
                Work::Change { target: spot(target), change }
            }
        }
    }
}
