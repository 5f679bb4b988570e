//! The time of a process, and the ways in which its threads wait.
//!
//! Outside a simulation these are the system's clock and the system's ways to sleep. In a
//! [simulation in turns](crate::sim::SimFabric::in_turns) there is a virtual clock. Exactly one of
//! the simulated threads runs at a time, and a waiting thread passes its turn on. A thread takes
//! part through a [`Seat`].

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

    /// Returns whether the simulation is over, so that no thread gets another turn.
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

    /// Sleeps for `time`, or if `or_news` until something happens at the process's end of the
    /// network.
    fn sleep(&self, seat: SeatNumber, time: Duration, or_news: bool);

    /// Sleeps while `word` holds `seen`, for `timeout` at most.
    fn sleep_on(&self, seat: SeatNumber, word: &AtomicU32, seen: u32, timeout: Duration);
}

/// A clock, and its ways to wait.
///
/// ```
/// use std::time::Duration;
///
/// use farside_fabric::clock::Clock;
///
/// let clock = Clock::real();
/// let before = clock.now();
/// clock.sleep_for(Duration::from_millis(1));
/// assert!(clock.now() > before);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Clock {
    simulated: Option<Arc<dyn Turns>>,
}

impl Clock {
    /// The system's clock.
    pub fn real() -> Self {
        Self::default()
    }

    pub(crate) fn simulated(turns: impl Turns + 'static) -> Self {
        Self { simulated: Some(Arc::new(turns)) }
    }

    /// Returns whether time is virtual, and threads take turns.
    #[inline]
    pub fn is_simulated(&self) -> bool {
        self.simulated.is_some()
    }

    /// Returns whether the simulation is over, so that a thread which is unwound now does not wait
    /// any more.
    pub fn is_over(&self) -> bool {
        self.simulated.as_ref().is_some_and(|turns| turns.is_over())
    }

    /// The current time.
    #[inline]
    pub fn now(&self) -> Instant {
        match &self.simulated {
            None => Instant::now(),
            Some(turn) => turn.now(),
        }
    }

    /// Sleeps while `word` holds `seen`, until another thread [wakes](Self::wake) this one or
    /// `timeout` has passed. May return early.
    ///
    /// In a simulation the word is checked whenever another thread of the same process has had its
    /// turn, so only those may change it.
    pub fn sleep(&self, word: &AtomicU32, seen: u32, timeout: Duration) {
        match self.seated() {
            None => farside_sys::futex::wait(word, seen, timeout),
            Some((turn, seat)) => {
                turn.sleep_on(seat, word, seen, timeout);
                leave_if_over(&**turn);
            }
        }
    }

    /// Wakes the threads that [sleep](Self::sleep) on a word that was changed.
    pub fn wake(&self, word: &AtomicU32) {
        if !self.is_simulated() {
            farside_sys::futex::wake(word);
        }
    }

    /// Sleeps for `time`.
    pub fn sleep_for(&self, time: Duration) {
        match self.seated() {
            None => thread::sleep(time),
            Some((turn, seat)) => {
                turn.sleep(seat, time, false);
                leave_if_over(&**turn);
            }
        }
    }

    /// Sleeps for `time`. In a simulation the sleep also ends when something happens at this
    /// process's endpoint of the network.
    pub fn sleep_until_event(&self, time: Duration) {
        match self.seated() {
            None => thread::sleep(time),
            Some((turn, seat)) => {
                turn.sleep(seat, time, true);
                leave_if_over(&**turn);
            }
        }
    }

    /// Pauses after a look that found nothing. In a simulation this costs a little time, and other
    /// threads get their turns. Outside a simulation it does nothing.
    pub fn pause(&self) {
        if let Some((turn, seat)) = self.seated() {
            turn.sleep(seat, LOOK, false);
            leave_if_over(&**turn);
        }
    }

    /// Charges this thread for computing for `time`, in a simulation; in a slow process it takes
    /// longer. Outside a simulation this does nothing.
    pub fn charge(&self, time: Duration) {
        if let Some((turn, seat)) = self.seated() {
            turn.sleep(seat, turn.slowed(time), false);
            leave_if_over(&**turn);
        }
    }

    /// Creates a seat for a thread that is about to be started. Outside a simulation it has no
    /// effect.
    pub fn seat(&self) -> Seat {
        Seat(self.simulated.as_ref().map(|turn| (turn.clone(), turn.new_seat())))
    }

    /// The seat of this thread in the simulation of this clock. A thread without one does not take
    /// turns.
    fn seated(&self) -> Option<(&Arc<dyn Turns>, SeatNumber)> {
        let turn = self.simulated.as_ref()?;
        seat_here(&**turn).map(|seat| (turn, seat))
    }
}

/// The cost of a look in vain, in a simulation.
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
#[must_use = "a seat that is not taken is given up"]
pub struct Seat(Option<(Arc<dyn Turns>, SeatNumber)>);

impl Seat {
    /// The end to wait for before the thread is joined.
    pub fn end(&self) -> SeatEnd {
        SeatEnd(self.0.clone())
    }

    /// Runs the thread's work, from its first turn on. Afterwards the seat is free, however the
    /// work ends.
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

/// Restores the seat that a thread had before.
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
    /// Waits until the thread has done its work, so that joining it does not hold the turn. Outside
    /// a simulation this returns at once.
    pub fn wait(&self) {
        if let Some((turn, other)) = &self.0
            && let Some(seat) = seat_here(&**turn)
        {
            turn.await_end(seat, *other);
        }
    }
}

/// The payload that unwinds a thread of a killed process when the simulation is over.
#[derive(Debug)]
pub(crate) struct Frozen;

/// Unwinds a thread whose turn will never come, so that its starter need not wait forever.
fn leave_if_over(turns: &dyn Turns) {
    // A thread that already unwinds continues: in its drops, every wait ends at once.
    if turns.is_over() && !thread::panicking() {
        resume_unwind(Box::new(Frozen));
    }
}

/// Locks a mutex whose data no panic can leave inconsistent.
///
/// In a simulation, a thread that holds the lock may have passed its turn on. Other threads
/// therefore must not block in the system, and wait in turns instead.
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

/// Lets other threads have their turns, if this thread takes turns in a simulation. Returns whether
/// it does; otherwise it may block.
#[cold]
pub fn pause_in_turns() -> bool {
    let here = HERE.with_borrow(Clone::clone);
    let Some((turn, seat)) = here.filter(|(turn, _)| !turn.is_over()) else { return false };
    turn.sleep(seat, LOOK, false);
    true
}
