//! The activity of the threads of a process, in words that its other threads read.
//!
//! A worker writes what it waits for when it is about to sleep, or has looked in vain for long. So
//! a short wait, a put and a call write nothing. A reader that wants more *watches* for some time.
//! Workers learn of that when they next look at their notices, and from then on count the time of
//! each wait and call. *Tracing* is the same with events in a [ring](events).
//!
//! Times are ticks of the processor's counter, and become times of the monotonic clock when they
//! are read. A worker never waits for a reader: it tries for locks.

pub(crate) mod events;
pub(crate) mod recorder;
pub(crate) mod told;

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, TryLockError, Weak};
use std::time::Duration;

use farside_fabric::clock::lock;
use farside_fabric::{ProcessId, WorkerId};
use farside_sys::process::{monotonic_time, ticks};

use self::events::Events;
pub use self::events::{Event, EventKind, Taken};
use crate::runtime::deadline::DeadlinePause;
use crate::runtime::home::Shape;
use crate::runtime::process::Process;
use crate::runtime::worker::{Counters, Worker};

/// The number of places that a process distinguishes. Place 0 stands for all others.
pub(crate) const PLACES_MAX: usize = 1024;
/// The number of functions of which the place of a call is kept.
const FUNCTIONS_MAX: usize = 4096;
/// The number of tries to read a wait that does not change meanwhile.
const READS: usize = 16;
/// The longest time of one request to watch or to trace.
const TIME_MAX: Duration = Duration::from_secs(60);
/// The time over which the rate of ticks is measured at least.
const RATE_TIME: Duration = Duration::from_millis(2);

/// Whom a worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// No one in particular, or the library does not know.
    Unknown,
    /// A worker.
    Worker(WorkerId),
    /// Some thread of a process.
    Process(ProcessId),
}

/// Set in the number of a process.
const OF_PROCESS: u32 = 1 << 31;

impl Whom {
    fn number(self) -> u32 {
        match self {
            Self::Unknown => u32::MAX,
            Self::Worker(worker) => worker.number(),
            Self::Process(process) => process.number() | OF_PROCESS,
        }
    }

    fn of_number(number: u32) -> Self {
        match number {
            u32::MAX => Self::Unknown,
            number if number & OF_PROCESS != 0 => Self::Process(ProcessId::new(number & !OF_PROCESS)),
            number => Self::Worker(WorkerId::new(number)),
        }
    }
}

/// A place in the program, and what happens there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The activity of the worker at this place.
    pub doing: &'static str,
    /// The place.
    pub site: &'static Location<'static>,
}

/// A function that is called, as all processes of the same program number it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FunctionId {
    /// The kind of the call and its types.
    pub entry: u16,
    /// The place of the function in the program's text; 0 for a closure.
    pub offset: u32,
}

impl FunctionId {
    /// Bit 63 tells a function from none.
    fn word(self) -> u64 {
        1 << 63 | u64::from(self.entry) << 32 | u64::from(self.offset)
    }

    fn of_word(word: u64) -> Option<Self> {
        (word >> 63 == 1).then_some(Self { entry: (word >> 32) as u16, offset: word as u32 })
    }
}

/// The words of one thread. Only that thread writes them, unless a field says otherwise.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Words {
    /// True if the thread runs a call.
    pub(crate) in_handler: AtomicBool,
    /// Set by readers, cleared by the thread, which then publishes its counters and looks whether
    /// it is watched.
    asked: AtomicBool,
    /// The current wait: [`Whom`] above, the number of the place below; 0 without a wait.
    /// Released after `since` and `base`.
    wait: AtomicU64,
    since: AtomicU64,
    /// The value of `accounted` at the beginning of the wait.
    base: AtomicU64,
    /// The function that runs, as [`FunctionId::word`], and since when. Written while watched.
    call: AtomicU64,
    call_since: AtomicU64,
    /// Since when times are counted; 0 while they are not.
    counted_from: AtomicU64,
    /// The total time of waits and calls.
    accounted: AtomicU64,
    in_calls: AtomicU64,
    /// The total time of waits, by place.
    in_waits: OnceLock<Box<[AtomicU64]>>,
    /// The counters, and when they were published.
    counters: Mutex<Option<(u64, Counters)>>,
    events: OnceLock<Events>,
}

fn add(word: &AtomicU64, more: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

fn pack(whom: Whom, place: u16) -> u64 {
    // Place 0 with no one must differ from no wait.
    u64::from(whom.number()) << 32 | 1 << 16 | u64::from(place)
}

impl Words {
    /// Reads the current wait: whom, place, since, base.
    fn waiting(&self) -> Option<(Whom, u16, u64, u64)> {
        for _ in 0..READS {
            // SYNC: pairs with the release in `Waiting`: the other two words are not older.
            let word = self.wait.load(Ordering::Acquire);
            if word == 0 {
                return None;
            }
            let (since, base) = (self.since.load(Ordering::Acquire), self.base.load(Ordering::Acquire));
            if self.wait.load(Ordering::Relaxed) == word {
                return Some((Whom::of_number((word >> 32) as u32), word as u16, since, base));
            }
        }
        // Its waits are so short that it rather computes.
        None
    }
}

/// The words of all threads of a process, and what they share.
#[derive(Debug)]
pub(crate) struct Activities {
    threads: Box<[Arc<Words>]>,
    places: Mutex<Vec<Place>>,
    /// The place of a call of each function.
    functions: Mutex<BTreeMap<FunctionId, u16>>,
    /// The ends of the times that readers have asked for, in ticks. Written by readers; read by
    /// workers when they are asked.
    watched_until: AtomicU64,
    traced_until: AtomicU64,
    sends_traced_until: AtomicU64,
    /// The number of the current trace.
    session: AtomicU32,
    /// Held by the reader that takes events.
    taking: Mutex<()>,
    /// The counter and the monotonic clock at the same moment.
    anchor: (u64, Duration),
    /// Bytes of this process's memory that other processes use. Written by the room `memory`.
    pub(crate) remote_memory_bytes: AtomicU64,
}

impl Activities {
    pub(crate) fn new(threads: usize) -> Self {
        let library = Place { doing: "at other places", site: Location::caller() };
        Self {
            threads: (0..threads).map(|_| Arc::default()).collect(),
            places: Mutex::new(vec![library]),
            functions: Mutex::default(),
            watched_until: AtomicU64::new(0),
            traced_until: AtomicU64::new(0),
            sends_traced_until: AtomicU64::new(0),
            session: AtomicU32::new(0),
            taking: Mutex::new(()),
            anchor: both_clocks(),
            remote_memory_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn words(&self, local: usize) -> &Arc<Words> {
        &self.threads[local]
    }

    /// Returns the number of a place, unless a reader holds the list.
    fn place(&self, place: Place) -> Option<u16> {
        let mut places = match self.places.try_lock() {
            Ok(places) => places,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if let Some(number) = places.iter().position(|known| *known == place) {
            return Some(number as u16);
        }
        if places.len() == PLACES_MAX {
            return Some(0);
        }
        places.push(place);
        Some((places.len() - 1) as u16)
    }

    /// Notes where a function is called. Returns whether that is settled.
    fn note_function(&self, function: FunctionId, place: u16) -> bool {
        let Ok(mut functions) = self.functions.try_lock() else { return false };
        if functions.len() < FUNCTIONS_MAX {
            functions.entry(function).or_insert(place);
        }
        true
    }

    /// Returns how times are read now.
    fn timing(&self) -> Timing {
        let (mut now, mut time) = both_clocks();
        while time - self.anchor.1 < RATE_TIME {
            std::thread::yield_now();
            (now, time) = both_clocks();
        }
        let per_tick = (time - self.anchor.1).as_nanos() as f64 / now.saturating_sub(self.anchor.0).max(1) as f64;
        Timing { now, time, per_tick }
    }
}

/// Reads the counter and the monotonic clock at the same moment, or nearly if this thread is
/// interrupted all the time.
fn both_clocks() -> (u64, Duration) {
    let read = || {
        let (before, time, after) = (ticks(), monotonic_time(), ticks());
        (after - before, before + (after - before) / 2, time)
    };
    let best = (0..5).map(|_| read()).min_by_key(|(apart, ..)| *apart);
    best.map_or((ticks(), monotonic_time()), |(_, now, time)| (now, time))
}

/// The relation between ticks and the monotonic clock.
#[derive(Clone, Copy, Debug)]
struct Timing {
    now: u64,
    time: Duration,
    per_tick: f64,
}

impl Timing {
    fn length(&self, ticks: u64) -> Duration {
        Duration::from_nanos((ticks as f64 * self.per_tick) as u64)
    }

    /// The time of a moment, which may be a little later than now.
    fn at(&self, ticks: u64) -> Duration {
        match self.now.checked_sub(ticks) {
            Some(ago) => self.time.saturating_sub(self.length(ago)),
            None => self.time + self.length(ticks - self.now),
        }
    }

    fn end(&self, time: Duration) -> u64 {
        self.now + (time.min(TIME_MAX).as_nanos() as f64 / self.per_tick) as u64
    }
}

/// The current wait of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentWait {
    /// The number of the [place](Activity::places).
    pub place: u16,
    /// The process or worker that is waited for.
    pub whom: Whom,
    /// Since when, by the monotonic clock.
    pub since: Duration,
}

/// The call that a worker runs for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentCall {
    /// The function, if it began while the worker was watched.
    pub function: Option<FunctionId>,
    /// Since when, by the monotonic clock, if it began while the worker was watched.
    pub since: Option<Duration>,
}

/// The activity of a worker, or of a thread of a [pool](Worker::pool_of): [`Activity::workers`].
/// With neither a wait nor a call it computes, or has waited for a few microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerActivity {
    /// The worker.
    pub worker: WorkerId,
    /// True if the thread belongs to a pool.
    pub is_of_pool: bool,
    /// The time of this look, by the monotonic clock. Times of one moment differ by some
    /// microseconds between looks.
    pub at: Duration,
    /// The wait. Calls may run in it.
    pub wait: Option<CurrentWait>,
    /// The call.
    pub call: Option<CurrentCall>,
    /// Since when times are counted, by the monotonic clock.
    pub counted_from: Option<Duration>,
    /// The total time of calls run for others, since times were first counted. It has the current
    /// call.
    pub in_calls: Duration,
    /// The total time of waits by place, without calls in them. They have the current wait.
    pub in_waits: Vec<(u16, Duration)>,
    /// The counters, and the time at which the worker published them.
    pub counters: Option<(Duration, Counters)>,
}

/// The activity of the workers of a process, for any of its threads: [`Worker::activity`].
///
/// It does not keep the process alive. When the process has left its job, nothing changes any more.
#[derive(Clone, Debug)]
pub struct Activity {
    activities: Arc<Activities>,
    shape: Shape,
    process_id: ProcessId,
    process: Weak<Process>,
}

impl Activity {
    pub(crate) fn of(process: &Arc<Process>) -> Self {
        let (shape, process_id) = (process.shape(), process.id());
        Self { activities: process.activities.clone(), shape, process_id, process: Arc::downgrade(process) }
    }

    /// Makes the workers count the time of waits and calls from their next look at their notices
    /// on, for this long, 60 s at most. A longer time that was asked for before stays.
    ///
    /// *Cost* for the workers meanwhile: some 50 ns for each wait, and some 20 ns for each call
    /// that they make or run.
    pub fn watch(&self, time: Duration) {
        let until = self.activities.timing().end(time);
        self.activities.watched_until.fetch_max(until, Ordering::Relaxed);
        self.ask();
    }

    /// Makes the workers record [events](Event) from their next look at their notices on, for this
    /// long, 60 s at most. The events of each worker are kept until they are
    /// [taken](Self::take_events), up to 65,536.
    ///
    /// `session` is the number of the trace, which all processes of a trace share. With `sends`,
    /// workers also record the calls that they make, and mark the beginning for their receivers. So
    /// ask all processes for a trace first, and then for `sends`.
    pub fn trace(&self, session: u32, time: Duration, sends: bool) {
        let until = self.activities.timing().end(time);
        self.activities.session.store(session, Ordering::Relaxed);
        self.activities.traced_until.store(until, Ordering::Relaxed);
        self.activities.sends_traced_until.store(if sends { until } else { 0 }, Ordering::Relaxed);
        self.ask();
    }

    /// Returns the number of the trace that goes on, if one does.
    pub fn session(&self) -> Option<u32> {
        let goes_on = ticks() < self.activities.traced_until.load(Ordering::Relaxed);
        goes_on.then(|| self.activities.session.load(Ordering::Relaxed))
    }

    /// Ends a trace. Events that were not taken stay.
    pub fn end_trace(&self) {
        self.activities.traced_until.store(0, Ordering::Relaxed);
        self.activities.sends_traced_until.store(0, Ordering::Relaxed);
        self.ask();
    }

    /// Asks all workers to look whether they are watched, and to publish their counters. They do so
    /// when they next wait or make progress.
    pub fn ask(&self) {
        let Some(process) = self.process.upgrade() else { return };
        for (local, words) in self.activities.threads.iter().enumerate() {
            if !words.asked.swap(true, Ordering::Relaxed) {
                process.mailboxes.call_attention(local);
            }
        }
    }

    /// Returns what the workers of the process, and the threads of its pool, are doing. Their
    /// counters are those of when they were last [asked](Self::ask).
    ///
    /// *Cost*: reads words, and costs the workers nothing.
    pub fn workers(&self) -> Vec<WorkerActivity> {
        let timing = self.activities.timing();
        let threads = self.activities.threads.iter().enumerate();
        threads.map(|(local, words)| self.worker(local, words, timing)).collect()
    }

    fn worker(&self, local: usize, words: &Words, timing: Timing) -> WorkerActivity {
        let now = timing.now;
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let counted_from = Some(load(&words.counted_from)).filter(|from| *from != 0);
        let call = words.in_handler.load(Ordering::Relaxed).then(|| {
            let function = FunctionId::of_word(load(&words.call));
            (function, function.map(|_| load(&words.call_since)))
        });
        let in_call = call.and_then(|(_, since)| since).map_or(0, |since| now.saturating_sub(since));
        let waiting = words.waiting();
        let mut in_waits = Vec::new();
        for (place, total) in words.in_waits.get().into_iter().flatten().enumerate() {
            in_waits.push((place as u16, load(total)));
        }
        if let Some((_, place, since, base)) = waiting {
            let inside = load(&words.accounted).saturating_sub(base) + in_call;
            let own = now.saturating_sub(since).saturating_sub(inside);
            match in_waits.get_mut(usize::from(place)) {
                Some((_, total)) => *total += own,
                None => in_waits.push((place, own)),
            }
        }
        in_waits.retain(|(_, total)| *total > 0);
        let is_of_pool = local >= self.shape.threads as usize;
        let counters = words.counters.try_lock().ok().and_then(|counters| *counters);
        WorkerActivity {
            worker: self.shape.worker_at(self.process_id, local),
            is_of_pool,
            at: timing.time,
            wait: waiting.map(|(whom, place, since, _)| CurrentWait { place, whom, since: timing.at(since) }),
            call: call.map(|(function, since)| CurrentCall { function, since: since.map(|since| timing.at(since)) }),
            counted_from: counted_from.map(|from| timing.at(from)),
            in_calls: timing.length(load(&words.in_calls) + in_call),
            in_waits: in_waits.into_iter().map(|(place, total)| (place, timing.length(total))).collect(),
            counters: counters.map(|(at, counters)| (timing.at(at), counters)),
        }
    }

    /// Returns the places at which workers have waited for long, and all others that were met
    /// while the process was watched. The numbers of places are their indices.
    pub fn places(&self) -> Vec<Place> {
        lock(&self.activities.places).clone()
    }

    /// Returns the functions that workers of this process have called while it was watched, each
    /// with the place of one such call.
    pub fn functions(&self) -> Vec<(FunctionId, u16)> {
        lock(&self.activities.functions).iter().map(|(function, place)| (*function, *place)).collect()
    }

    /// Takes the events of the workers, at most `max` of each, the oldest first.
    pub fn take_events(&self, max: usize) -> Vec<Taken> {
        let _taking = lock(&self.activities.taking);
        let timing = self.activities.timing();
        let of_thread = |(local, words): (usize, &Arc<Words>)| {
            let events = words.events.get()?;
            let worker = self.shape.worker_at(self.process_id, local);
            Some(events.take(worker, max, &timing))
        };
        self.activities.threads.iter().enumerate().filter_map(of_thread).collect()
    }

    /// Keeps the deadlines of the process from passing, as [`Worker::pause_deadlines`] does.
    /// Returns `None` if the process has left its job.
    pub fn pause_deadlines(&self) -> Option<DeadlinePause> {
        Some(self.process.upgrade()?.waits.pauses.begin())
    }
}

impl Worker {
    /// Returns what the workers of this process are doing, for any of its threads to read.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) {
    /// let activity = me.activity();
    /// std::thread::spawn(move || {
    ///     for worker in activity.workers() {
    ///         println!("{}: {:?}", worker.worker, worker.wait);
    ///     }
    /// });
    /// # }
    /// ```
    pub fn activity(&self) -> Activity {
        Activity::of(self.process_handle())
    }
}
