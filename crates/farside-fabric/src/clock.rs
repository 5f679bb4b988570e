//! What time it is for a process, and how its threads wait.
//!
//! Outside of a simulation these are the system's clock and the system's ways to sleep. In a
//! [simulation in turns](crate::sim::SimFabric::in_turns) there is a virtual clock, exactly one of the simulated threads runs
//! at a time, and whoever waits hands the turn on. A thread takes part through a [`Seat`].

use std::cell::RefCell;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Names a thread that takes turns in a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeatNumber(pub(crate) usize);

/// A simulation in turns, as one process or an observer sees it. [`sim`](crate::sim) implements it.
pub(crate) trait Turns: fmt::Debug + Send + Sync {
    /// Identifies the simulation: equal for two views of the same one.
    fn simulation(&self) -> usize;

    /// Whether the simulation is over, so that no thread gets another turn.
    fn is_over(&self) -> bool;

    /// Returns the time at the calling thread.
    fn now(&self) -> Instant;

    /// Returns how long a computation takes here that takes `time` in a process of normal speed.
    fn slowed(&self, time: Duration) -> Duration;

    /// Adds a seat for a thread that is about to start.
    fn new_seat(&self) -> SeatNumber;

    /// Waits for the first turn of a seat.
    fn await_first(&self, seat: SeatNumber);

    /// Gives a seat up: its thread has done its work.
    fn leave(&self, seat: SeatNumber);

    /// Sleeps until the thread of `other` has done its work.
    fn await_end(&self, seat: SeatNumber, other: SeatNumber);

    /// Sleeps for `time`, or if `or_news` until something happens at the process's end of the network.
    fn sleep(&self, seat: SeatNumber, time: Duration, or_news: bool);

    /// Sleeps while `word` holds `seen`, for `timeout` at most.
    fn sleep_on(&self, seat: SeatNumber, word: &AtomicU32, seen: u32, timeout: Duration);
}

/// A clock, and the ways to wait that belong to it.
///
/// ```
/// use std::time::Duration;
///
/// use farside_fabric::clock::Clock;
///
/// let clock = Clock::real();
/// let before = clock.now();
/// clock.nap(Duration::from_millis(1));
/// assert!(clock.now() > before);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Clock {
    simulated: Option<Arc<dyn Turns>>,
}

impl Clock {
    /// The system's.
    pub fn real() -> Self {
        Self::default()
    }

    pub(crate) fn simulated(turns: impl Turns + 'static) -> Self {
        Self { simulated: Some(Arc::new(turns)) }
    }

    /// Whether time is virtual, and threads take turns.
    #[inline]
    pub fn is_simulated(&self) -> bool {
        self.simulated.is_some()
    }

    /// Whether the simulation is over, so that a thread which is unwound now waits for nothing any more.
    pub fn is_over(&self) -> bool {
        self.simulated.as_ref().is_some_and(|turns| turns.is_over())
    }

    /// What time it is.
    #[inline]
    pub fn now(&self) -> Instant {
        match &self.simulated {
            None => Instant::now(),
            Some(turn) => turn.now(),
        }
    }

    /// Sleeps while `word` holds `seen`, until somebody [wakes](Self::wake) it or `timeout` has passed. May return early.
    ///
    /// In a simulation the word is looked at whenever another thread of the same process has had its turn, so only those may
    /// change it.
    pub fn sleep(&self, word: &AtomicU32, seen: u32, timeout: Duration) {
        match self.seated() {
            None => farside_sys::futex::wait(word, seen, timeout),
            Some((turn, seat)) => {
                turn.sleep_on(seat, word, seen, timeout);
                leave_if_over(&**turn);
            }
        }
    }

    /// Wakes those who [sleep](Self::sleep) on a word that was changed.
    pub fn wake(&self, word: &AtomicU32) {
        if !self.is_simulated() {
            farside_sys::futex::wake(word);
        }
    }

    /// Sleeps for a while.
    pub fn nap(&self, time: Duration) {
        match self.seated() {
            None => thread::sleep(time),
            Some((turn, seat)) => {
                turn.sleep(seat, time, false);
                leave_if_over(&**turn);
            }
        }
    }

    /// Sleeps for a while; in a simulation only until something has happened at this process's end of the network.
    pub fn nap_until_news(&self, time: Duration) {
        match self.seated() {
            None => thread::sleep(time),
            Some((turn, seat)) => {
                turn.sleep(seat, time, true);
                leave_if_over(&**turn);
            }
        }
    }

    /// After a look that found nothing: in a simulation it costs a little time, and others have their turns. Outside of one
    /// this does nothing.
    pub fn pause(&self) {
        if let Some((turn, seat)) = self.seated() {
            turn.sleep(seat, LOOK, false);
            leave_if_over(&**turn);
        }
    }

    /// This thread computes for so long, in a simulation; in one of a slow process it takes longer. Outside of one this does
    /// nothing.
    pub fn charge(&self, time: Duration) {
        if let Some((turn, seat)) = self.seated() {
            turn.sleep(seat, turn.slowed(time), false);
            leave_if_over(&**turn);
        }
    }

    /// A place for a thread that is about to be started. Outside of a simulation it means nothing.
    pub fn seat(&self) -> Seat {
        Seat(self.simulated.as_ref().map(|turn| (turn.clone(), turn.new_seat())))
    }

    /// The seat of this thread in the simulation of this clock. A thread without one does not take turns.
    fn seated(&self) -> Option<(&Arc<dyn Turns>, SeatNumber)> {
        let turn = self.simulated.as_ref()?;
        seat_here(&**turn).map(|seat| (turn, seat))
    }
}

/// What a fruitless look costs in a simulation.
const LOOK: Duration = Duration::from_nanos(100);

thread_local! {
    /// The simulation that this thread takes part in, and its seat.
    static HERE: RefCell<Option<(Arc<dyn Turns>, SeatNumber)>> = const { RefCell::new(None) };
}

/// This thread's seat in a simulation.
pub(crate) fn seat_here(turns: &dyn Turns) -> Option<SeatNumber> {
    let is_same = |other: &Arc<dyn Turns>| other.simulation() == turns.simulation();
    HERE.with_borrow(|here| here.as_ref().filter(|(other, _)| is_same(other)).map(|(_, seat)| *seat))
}

/// A thread's place among those that take turns.
#[derive(Debug)]
#[must_use = "a seat that nobody takes is given up"]
pub struct Seat(Option<(Arc<dyn Turns>, SeatNumber)>);

impl Seat {
    /// What to wait for before the thread is joined.
    pub fn end(&self) -> SeatEnd {
        SeatEnd(self.0.clone())
    }

    /// Does the thread's work, from its first turn on. Afterwards the seat is free, however the work ends.
    pub fn take<R>(self, work: impl FnOnce() -> R) -> R {
        let Some((turn, seat)) = &self.0 else { return work() };
        let outer = HERE.replace(Some((turn.clone(), *seat)));
        let _restore = Restore(outer);
        turn.await_first(*seat);
        leave_if_over(&**turn);
        let result = work();
        drop(self);
        result
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some((turn, seat)) = self.0.take() {
            turn.leave(seat);
        }
    }
}

/// Gives a thread back the seat that it had before.
struct Restore(Option<(Arc<dyn Turns>, SeatNumber)>);

impl Drop for Restore {
    fn drop(&mut self) {
        HERE.set(self.0.take());
    }
}

/// The end of a thread's seat.
#[derive(Clone, Debug)]
pub struct SeatEnd(Option<(Arc<dyn Turns>, SeatNumber)>);

impl SeatEnd {
    /// Waits until the thread has done its work, so that joining it keeps no turn from anybody. Outside of a simulation this
    /// returns at once.
    pub fn wait(&self) {
        if let Some((turn, other)) = &self.0
            && let Some(seat) = seat_here(&**turn)
        {
            turn.await_end(seat, *other);
        }
    }
}

/// What unwinds a thread whose process was killed in the simulation, when the simulation is over.
#[derive(Debug)]
pub(crate) struct Frozen;

/// Unwinds a thread whose turn will never come, so that its starter need not wait forever.
fn leave_if_over(turns: &dyn Turns) {
    // A thread that unwinds is let through: in its drops no wait has any time left.
    if turns.is_over() && !thread::panicking() {
        resume_unwind(Box::new(Frozen));
    }
}

/// Locks what no panic can leave half changed.
///
/// A thread of a simulation that holds the lock may have handed its turn on; so there others must not block in the system, and
/// do it in turns.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if pause_in_turns() => {}
            Err(TryLockError::WouldBlock) => return mutex.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// Lets others have their turns, if this thread takes turns with any in a simulation. Says whether it does: otherwise it may block.
#[cold]
pub fn pause_in_turns() -> bool {
    let here = HERE.with_borrow(Clone::clone);
    let Some((turn, seat)) = here.filter(|(turn, _)| !turn.is_over()) else { return false };
    turn.sleep(seat, LOOK, false);
    true
}
