//! [`Recorder`]: what a worker writes into its [words](super::Words), and when.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::atomic::Ordering;

use farside_fabric::{ProcessId, WorkerId};
use farside_sys::process::ticks;

use super::events::{Events, Kind, Record, UNPAIRED};
use super::{Activities, FunctionId, PLACES_MAX, Place, Whom, Words, add, pack};
use crate::error::Source;
use crate::invoke::call::WhenFull;
use crate::invoke::pending::debtor;
use crate::invoke::reply_slots::SlotHandle;
use crate::runtime::pool::Role;
use crate::runtime::worker::Worker;

/// Times are counted.
const WATCHED: u8 = 1;
/// Events are recorded.
const TRACED: u8 = 2;
/// Calls that are made, puts and messages are events, too.
const SENDS: u8 = 4;
/// An observer wants to know of accesses. Set for ever.
const OBSERVED: u8 = 8;

/// The number of places that a worker finds without a lock, and of functions.
const KNOWN: usize = 128;

/// The time between two marks for the same receiver: about 0.1 s.
const MARK_TICKS: u64 = 1 << 28;

/// The values that were met, each with its number, at the slots of their hashes.
type Met<T> = Box<[Cell<Option<(T, u16)>>]>;

/// The object of a worker's wait, and its place in the program.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub(crate) doing: &'static str,
    pub(crate) site: &'static Location<'static>,
    pub(crate) whom: Whom,
    /// A call of this worker whose result is awaited.
    result: Option<SlotHandle>,
}

impl Wait {
    /// Returns a wait of the caller.
    #[track_caller]
    #[inline]
    pub fn here(doing: &'static str) -> Self {
        Self::at(doing, Location::caller())
    }

    /// Returns a wait at a place of the program.
    #[inline]
    pub fn at(doing: &'static str, site: &'static Location<'static>) -> Self {
        Self { doing, site, whom: Whom::Unknown, result: None }
    }

    /// Sets who is awaited.
    #[inline]
    pub fn on(self, whom: Whom) -> Self {
        Self { whom, ..self }
    }

    /// The wait is for the one who owes a result, who may change.
    #[inline]
    pub(crate) fn on_debtor(self, result: SlotHandle) -> Self {
        Self { result: Some(result), ..self }
    }
}

/// The numbers of calls to or from one other thread in a trace.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    session: u32,
    last: u32,
    is_paired: bool,
    /// True if the next call is the mark, which has no number.
    is_at_mark: bool,
    /// The time of the last mark, in ticks.
    marked: u64,
}

/// The state of a worker's recording.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// The parts that are recorded; 0 while no one looks.
    mode: Cell<u8>,
    /// The end of the first part of the mode, in ticks.
    until: Cell<u64>,
    session: Cell<u32>,
    /// The total time of waits and calls that were counted.
    accounted: Cell<u64>,
    /// The end of the call that ran before.
    last_end: Cell<u64>,
    /// True if this worker is making a mark.
    marks: Cell<bool>,
    /// Places and functions that were met: their hashes' slots.
    places: Met<Place>,
    functions: Met<FunctionId>,
    sent: RefCell<Vec<Numbers>>,
    ran: RefCell<Vec<Numbers>>,
}

impl Recorder {
    /// Creates the state of a worker whose accesses are observed, or not.
    pub(crate) fn new(is_observed: bool) -> Self {
        Self {
            mode: Cell::new(if is_observed { OBSERVED } else { 0 }),
            until: Cell::new(0),
            session: Cell::new(0),
            accounted: Cell::new(0),
            last_end: Cell::new(0),
            marks: Cell::new(false),
            places: (0..KNOWN).map(|_| Cell::new(None)).collect(),
            functions: (0..KNOWN).map(|_| Cell::new(None)).collect(),
            sent: RefCell::default(),
            ran: RefCell::default(),
        }
    }
}

impl Recorder {
    /// Returns whether anything is recorded.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.mode.get() & !OBSERVED != 0
    }

    /// Returns whether anything is recorded, or an observer wants to know of accesses.
    #[inline(always)]
    pub(crate) fn is_noticing(&self) -> bool {
        self.mode.get() != 0
    }

    fn has(&self, mode: u8) -> bool {
        self.mode.get() & mode != 0
    }

    fn place(&self, activities: &Activities, doing: &'static str, site: &'static Location<'static>) -> u16 {
        let place = Place { doing, site };
        let address = std::ptr::from_ref(site).addr() >> 3 ^ doing.as_ptr().addr() >> 2;
        let known = &self.places[address % KNOWN];
        match known.get() {
            Some((known, number)) if std::ptr::eq(known.site, site) && std::ptr::eq(known.doing, doing) => number,
            _ => {
                let Some(number) = activities.place(place) else { return 0 };
                known.set(Some((place, number)));
                number
            }
        }
    }

    fn note_function(&self, activities: &Activities, function: FunctionId, place: u16) {
        let known = &self.functions[(function.offset as usize >> 4 ^ usize::from(function.entry)) % KNOWN];
        if known.get() != Some((function, place)) && activities.note_function(function, place) {
            known.set(Some((function, place)));
        }
    }

    /// Numbers a call.
    fn next(numbers: &RefCell<Vec<Numbers>>, index: usize, session: u32) -> u32 {
        match numbers.borrow_mut().get_mut(index) {
            Some(numbers) if numbers.session == session && numbers.is_paired => {
                if std::mem::take(&mut numbers.is_at_mark) {
                    return UNPAIRED;
                }
                numbers.last = numbers.last.wrapping_add(1);
                numbers.last
            }
            _ => UNPAIRED,
        }
    }

    fn set(all: &RefCell<Vec<Numbers>>, index: usize, numbers: Numbers) {
        let mut all = all.borrow_mut();
        if all.len() <= index {
            all.resize(index + 1, Numbers::default());
        }
        all[index] = numbers;
    }
}

/// A wait of a worker, until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    worker: &'a Worker,
    wait: Wait,
    /// Since when, in ticks; 0 until it is noted.
    since: u64,
    base: u64,
    place: u16,
    /// The words of the wait around this one.
    outer: [u64; 3],
}

impl<'a> Waiting<'a> {
    #[inline]
    pub(crate) fn begin(worker: &'a Worker, wait: Wait) -> Self {
        let mut waiting = Self { worker, wait, since: 0, base: 0, place: 0, outer: [0; 3] };
        if worker.recorder().is_on() {
            waiting.note_now();
        }
        waiting
    }

    /// Notes the wait, unless it was noted before. Called when the worker is about to sleep, or has
    /// looked in vain for long.
    #[inline]
    pub(crate) fn note(&mut self) {
        if self.since == 0 {
            self.note_now();
        } else if self.wait.result.is_some() {
            // A result may be owed by another one now.
            write(self.worker.words(), pack(self.whom(), self.place), self.since, self.base);
        }
    }

    fn whom(&self) -> Whom {
        match self.wait.result {
            Some(result) => debtor(&self.worker.replies(), result),
            None => self.wait.whom,
        }
    }

    #[cold]
    fn note_now(&mut self) {
        let (recorder, words) = (self.worker.recorder(), self.worker.words());
        self.outer = [&words.wait, &words.since, &words.base].map(|word| word.load(Ordering::Relaxed));
        self.place = recorder.place(&self.worker.process_handle().activities, self.wait.doing, self.wait.site);
        (self.since, self.base) = (ticks().max(1), recorder.accounted.get());
        write(words, pack(self.whom(), self.place), self.since, self.base);
    }

    #[cold]
    fn end(&self) {
        let (recorder, words) = (self.worker.recorder(), self.worker.words());
        let [wait, since, base] = self.outer;
        if recorder.is_on() {
            let now = ticks();
            let inside = recorder.accounted.get() - self.base;
            let own = now.saturating_sub(self.since).saturating_sub(inside);
            if let Some(total) = words.in_waits.get().and_then(|totals| totals.get(usize::from(self.place))) {
                add(total, own);
                recorder.accounted.set(recorder.accounted.get() + own);
                words.accounted.store(recorder.accounted.get(), Ordering::Relaxed);
            }
            if recorder.has(TRACED) {
                // It is not known any more who owed the result.
                let whom = Whom::of_number((words.wait.load(Ordering::Relaxed) >> 32) as u32);
                self.worker.push_event(Kind::Waited, self.since, now, whom.number(), self.place);
            }
            self.worker.record_until(now);
        }
        write(words, wait, since, base);
    }
}

impl Drop for Waiting<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.since != 0 {
            self.end();
        }
    }
}

fn write(words: &Words, wait: u64, since: u64, base: u64) {
    words.since.store(since, Ordering::Relaxed);
    words.base.store(base, Ordering::Relaxed);
    // SYNC: pairs with the acquire in `Words::waiting`.
    words.wait.store(wait, Ordering::Release);
}

/// A collective in which a worker takes part, until it is dropped.
#[derive(Debug)]
pub(crate) struct InCollective<'a> {
    worker: &'a Worker,
    place: Place,
    /// The beginning; 0 if it is not recorded.
    since: u64,
}

impl<'a> InCollective<'a> {
    #[track_caller]
    #[inline]
    pub(crate) fn begin(worker: &'a Worker, name: &'static str) -> Self {
        let since = if worker.recorder().has(TRACED) { ticks() } else { 0 };
        Self { worker, place: Place { doing: name, site: Location::caller() }, since }
    }
}

impl Drop for InCollective<'_> {
    fn drop(&mut self) {
        let recorder = self.worker.recorder();
        if self.since != 0 && recorder.has(TRACED) {
            let place = recorder.place(&self.worker.process_handle().activities, self.place.doing, self.place.site);
            self.worker.push_event(Kind::Collective, self.since, ticks(), Whom::Unknown.number(), place);
        }
    }
}

impl Worker {
    /// Publishes the counters and looks whether this worker is watched, if a reader has asked.
    pub(crate) fn answer_readers(&self) {
        if self.words().asked.load(Ordering::Relaxed) {
            self.words().asked.store(false, Ordering::Relaxed);
            self.look_whether_watched(ticks());
            if let Ok(mut counters) = self.words().counters.try_lock() {
                *counters = Some((ticks(), self.counters()));
            }
        }
    }

    #[cold]
    fn look_whether_watched(&self, now: u64) {
        let (activities, recorder, words) = (&self.process_handle().activities, self.recorder(), self.words());
        let wanted = [
            (&activities.watched_until, WATCHED),
            (&activities.traced_until, TRACED),
            (&activities.sends_traced_until, SENDS),
        ];
        let (mut mode, mut until) = (recorder.mode.get() & OBSERVED, u64::MAX);
        for (end, part) in wanted {
            let end = end.load(Ordering::Relaxed);
            if now < end {
                mode |= part;
                until = until.min(end);
            }
        }
        if mode & WATCHED != 0 && !recorder.has(WATCHED) {
            words.in_waits.get_or_init(|| (0..PLACES_MAX).map(|_| Default::default()).collect());
            recorder.last_end.set(now);
            words.counted_from.store(now, Ordering::Relaxed);
        } else if mode & WATCHED == 0 {
            words.counted_from.store(0, Ordering::Relaxed);
        }
        if mode & TRACED != 0 {
            words.events.get_or_init(Events::new);
            recorder.session.set(activities.session.load(Ordering::Relaxed));
        }
        recorder.mode.set(mode);
        recorder.until.set(until);
        // An observer's accesses find nothing in any case.
        self.address_cache().set_detour(mode & (SENDS | OBSERVED) == SENDS);
    }

    /// Stops to record when the time for that is over.
    #[inline]
    fn record_until(&self, now: u64) {
        if now >= self.recorder().until.get() {
            self.look_whether_watched(now);
        }
    }

    fn push_event(&self, kind: Kind, begin: u64, end: u64, other: u32, place: u16) {
        let function = FunctionId { entry: 0, offset: 0 };
        if let Some(events) = self.words().events.get() {
            events.push(Record { kind, begin, end, other, number: UNPAIRED, place, function });
        }
    }

    /// Notes a call that is about to be made. Called while [`Recorder::is_on`].
    #[cold]
    #[inline(never)]
    pub(crate) fn note_call(
        &self,
        to: WorkerId,
        function: FunctionId,
        is_direct: bool,
        site: &'static Location<'static>,
    ) {
        let (activities, recorder) = (&self.process_handle().activities, self.recorder());
        if recorder.marks.get() {
            return;
        }
        let place = recorder.place(activities, "call", site);
        recorder.note_function(activities, function, place);
        if recorder.has(SENDS)
            && let Some(events) = self.words().events.get()
        {
            let (session, now) = (recorder.session.get(), ticks());
            let is_marked = |numbers: &Numbers| numbers.session == session && now - numbers.marked < MARK_TICKS;
            if is_direct && !recorder.sent.borrow().get(to.index()).is_some_and(is_marked) {
                self.mark(to, session, now);
            }
            let number = if is_direct { Recorder::next(&recorder.sent, to.index(), session) } else { UNPAIRED };
            let other = to.number();
            events.push(Record { kind: Kind::Sent, begin: now, end: now, other, number, place, function });
            self.record_until(now);
        }
    }

    /// Makes an access again that found nothing because this worker's puts are recorded. Returns
    /// `None` if it had another reason: then nothing was done.
    pub(crate) fn past_detour<R>(&self, again: impl FnOnce() -> R) -> Option<R> {
        if !self.address_cache().set_detour(false) {
            return None;
        }
        let made = again();
        self.address_cache().set_detour(self.recorder().has(SENDS));
        Some(made)
    }

    /// Notes a put of this worker. Called while [`Recorder::is_noticing`], and perhaps for a part
    /// of a put that was noted.
    pub(crate) fn note_put(&self, to: ProcessId, bytes: usize, site: &'static Location<'static>) {
        let recorder = self.recorder();
        if recorder.has(SENDS) && self.address_cache().makes_detour() {
            let place = recorder.place(&self.process_handle().activities, "put", site);
            self.push_bytes(Kind::Put, to.number(), bytes, place);
        }
    }

    /// Notes a message of a pipe. Called while [`Recorder::is_noticing`].
    pub(crate) fn note_message(&self, to: WorkerId, bytes: usize) {
        if self.recorder().has(SENDS) {
            self.push_bytes(Kind::Message, to.number(), bytes, 0);
        }
    }

    fn push_bytes(&self, kind: Kind, other: u32, bytes: usize, place: u16) {
        if let Some(events) = self.words().events.get() {
            let now = ticks();
            events.push(Record::of_bytes(kind, now, other, bytes as u64, place));
            self.record_until(now);
        }
    }

    /// Notes that the last call to a worker was refused.
    #[cold]
    pub(crate) fn note_refused(&self, to: WorkerId) {
        let recorder = self.recorder();
        if let Some(numbers) = recorder.sent.borrow_mut().get_mut(to.index())
            && recorder.has(SENDS)
            && !recorder.marks.get()
            && numbers.is_paired
            && let Some(events) = self.words().events.get()
        {
            let (now, number) = (ticks(), numbers.last);
            let function = FunctionId { entry: 0, offset: 0 };
            let other = to.number();
            events.push(Record { kind: Kind::Refused, begin: now, end: now, other, number, place: 0, function });
            numbers.last = numbers.last.saturating_sub(1);
        }
    }

    /// Tells a receiver the number of the last call. The mark is a call and keeps the order of
    /// calls. It comes again from time to time, because a receiver may have been too busy to take
    /// notice of the trace.
    #[cold]
    fn mark(&self, to: WorkerId, session: u32, now: u64) {
        let recorder = self.recorder();
        let before = recorder.sent.borrow().get(to.index()).copied().filter(|numbers| numbers.session == session);
        let last = before.map_or(0, |numbers| numbers.last);
        // A job whose accesses are checked sends further calls ahead.
        let process = self.process_handle();
        let is_alone = |(_, local)| Role::of(local, process.settings()) == Role::Own;
        let can_be_paired = !process.accesses.is_observed()
            && self.runs_same_binary(to)
            && process.job.place_of(to).is_some_and(is_alone);
        recorder.marks.set(true);
        let marked = can_be_paired
            && self.to(to).when_full(WhenFull::Spill).call((self.id().number(), session, last), take_mark).is_ok();
        recorder.marks.set(false);
        let numbers = Numbers { session, last, is_paired: marked, is_at_mark: false, marked: now };
        Recorder::set(&recorder.sent, to.index(), numbers);
    }

    /// Begins a turn of calls. Called while [`Recorder::is_on`].
    pub(crate) fn note_calls_begin(&self) {
        self.recorder().last_end.set(ticks());
    }

    /// Notes a call that is about to run, in a turn that was begun.
    #[inline]
    pub(crate) fn note_running(&self, function: FunctionId) {
        let words = self.words();
        words.call_since.store(self.recorder().last_end.get(), Ordering::Relaxed);
        words.call.store(function.word(), Ordering::Relaxed);
    }

    /// Notes that a call has run.
    #[inline]
    pub(crate) fn note_ran(&self, source: Source, function: FunctionId) {
        let recorder = self.recorder();
        let (begin, now) = (recorder.last_end.get(), ticks());
        recorder.last_end.set(now);
        if recorder.has(TRACED)
            && let Some(events) = self.words().events.get()
        {
            let (other, number) = match source {
                Source::Worker(from) => {
                    (from.number(), Recorder::next(&recorder.ran, from.index(), recorder.session.get()))
                }
                Source::Process(process) => (Whom::Process(process).number(), UNPAIRED),
            };
            events.push(Record { kind: Kind::Ran, begin, end: now, other, number, place: 0, function });
        }
        let words = self.words();
        words.call.store(0, Ordering::Relaxed);
        add(&words.in_calls, now - begin);
        recorder.accounted.set(recorder.accounted.get() + (now - begin));
        words.accounted.store(recorder.accounted.get(), Ordering::Relaxed);
    }

    /// Ends a turn of calls, of which the last one may have panicked.
    pub(crate) fn note_calls_end(&self) {
        self.words().call.store(0, Ordering::Relaxed);
        self.record_until(ticks());
    }
}

/// Takes in the number of a sender's last call.
fn take_mark(there: &Worker, (from, session, last): (u32, u32, u32)) {
    let recorder = there.recorder();
    if from < there.process_handle().shape().callable() {
        // A worker that does not record this turn of calls would not number all of them.
        let is_paired = recorder.has(TRACED) && recorder.session.get() == session;
        let numbers = Numbers { session, last, is_paired, is_at_mark: true, marked: 0 };
        Recorder::set(&recorder.ran, from as usize, numbers);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::Result;

    /// A wait in a wait, with a pause inside. Returns the counted times of both.
    fn nested_waits(pause: impl Fn() + Send + Sync) -> [Duration; 2] {
        let times = std::sync::Mutex::new([Duration::ZERO; 2]);
        let body = |me: &Worker| -> Result<()> {
            let activity = me.activity();
            activity.watch(farside_testbed::limit());
            me.progress()?;
            let doing = || {
                let wait = activity.workers()[0].wait?;
                Some(activity.places()[usize::from(wait.place)].doing)
            };
            let time = Duration::from_secs(1);
            me.wait_until("waiting outside", time, |me| {
                assert_eq!(doing(), Some("waiting outside"));
                let inside = me.wait_until("waiting inside", time, |_| {
                    assert_eq!(doing(), Some("waiting inside"));
                    pause();
                    Some(Ok(()))
                });
                assert_eq!(doing(), Some("waiting outside"));
                Some(inside)
            })?;
            assert_eq!(doing(), None);
            let waits = activity.workers().remove(0).in_waits;
            let of = |doing| {
                let is_it = |(place, _): &&(u16, Duration)| activity.places()[usize::from(*place)].doing == doing;
                waits.iter().find(is_it).map_or(Duration::ZERO, |(_, time)| *time)
            };
            *times.lock().unwrap() = ["waiting outside", "waiting inside"].map(of);
            Ok(())
        };
        crate::simulate(1, 1, 1, body).unwrap();
        times.into_inner().unwrap()
    }

    /// A wait in a wait hides it for a while.
    #[test]
    fn waits_may_be_nested() {
        let [_, inside] = nested_waits(|| ());
        assert!(inside > Duration::ZERO);
    }

    mod timing {
        use super::*;

        /// The time of a wait in a wait is not counted twice.
        #[test]
        fn nested_waits_are_counted_once() {
            let pause = Duration::from_millis(20);
            let [outside, inside] = nested_waits(|| std::thread::sleep(pause));
            assert!(inside > pause - Duration::from_millis(1), "{inside:?}");
            assert!(outside < pause, "{outside:?}");
        }
    }
}
