//! Turns: exactly one simulated thread runs at a time, and the seed selects the next one.
//!
//! A simulated thread is a thread of the system that is parked until it has the turn. It passes the
//! turn on when it sleeps and, at random by the seed, at a call of the transport. Time passes when
//! all threads sleep: it advances to the next moment at which one of them wakes up or a parcel
//! arrives.
//!
//! A thread does not sleep at once for the cost of a call, which follows from the network's model.
//! It runs *ahead* of the clock, and what it sends leaves at its own time. It pays the debt before
//! it sleeps for anything else. A thread therefore need not switch for each message. And at a
//! switch it holds only locks that it would hold at a call of the transport.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::Random;
use super::model::nanoseconds;
use super::network::{Network, SharedNetwork};
use super::trace::Trace;
use crate::clock::{self, SeatNumber};
use crate::ids::ProcessId;

/// A thread passes its turn on at one of this many calls of the transport, on average.
const CALLS_PER_SWITCH: u64 = 8;
/// The lead over the clock from which a thread passes its turn on at the next call.
const AHEAD_MAX_NS: u64 = 100_000;
/// The time after the end of a simulation, when every deadline has passed.
const END_OF_TIME: Duration = Duration::from_secs(1 << 32);
/// The time that passes then with each look at the clock.
const LATE_LOOK: Duration = Duration::from_secs(60);

/// The threads, and the one that has the turn.
#[derive(Debug)]
pub(super) struct Turns {
    random: Random,
    seats: Vec<Seat>,
    /// The threads of each process, and last those of no process.
    groups: Vec<Vec<SeatNumber>>,
    /// The factor by which each process's computing is slowed down.
    slowness: Vec<u32>,
    /// Threads that can run, in no particular order: the seed selects.
    ready: Vec<SeatNumber>,
    timers: BTreeSet<(u64, SeatNumber)>,
    running: Option<SeatNumber>,
    is_over: bool,
    /// Number of looks at the clock since the simulation was over.
    late_looks: u32,
    /// The instant at which the clock began.
    epoch: Instant,
}

#[derive(Debug)]
struct Seat {
    group: usize,
    state: State,
    /// The thread's lead over the clock.
    ahead_ns: u64,
    /// Set when the thread gets its turn, or when the simulation is over; cleared when it passes
    /// the turn on. The thread is parked while it is not set.
    may_run: Arc<AtomicBool>,
    /// Set when the thread first waits for a turn.
    thread: Option<Thread>,
}

#[derive(Debug)]
enum State {
    Ready,
    Running,
    Asleep(Asleep),
    /// Its process was killed.
    Frozen,
    Gone,
}

/// The conditions that end a sleep; the first one counts.
#[derive(Debug, Default)]
pub(super) struct Asleep {
    until_ns: Option<u64>,
    time: Option<Duration>,
    word: Option<Watched>,
    /// True if an event at the process's endpoint ends the sleep.
    news: bool,
    end_of: Option<SeatNumber>,
}

/// A word that a sleeping thread lends to the simulation.
#[derive(Debug)]
struct Watched {
    word: *const AtomicU32,
    seen: u32,
}

// SAFETY: the pointer is only read, as an atomic, while the thread that lent the word sleeps (see
// `Turn::sleep_on`).
unsafe impl Send for Watched {}

impl Watched {
    fn has_changed(&self) -> bool {
        // SAFETY: `sleep_on` borrows the word until `sleep` returns, and by then no `Watched` of it
        // exists. Either it never became the state of the seat, or that state was changed under the
        // network's lock, when the seat was made ready or frozen or the simulation ended; only then
        // does `await_turn` return.
        let word = unsafe { &*self.word };
        word.load(Ordering::Acquire) != self.seen
    }
}

impl Asleep {
    /// A sleep of this duration.
    pub(super) fn for_time(time: Duration) -> Self {
        Self { time: Some(time), ..Self::default() }
    }

    /// A sleep until the deadline, if there is one, or until an event at the endpoint.
    pub(super) fn until(deadline_ns: Option<u64>) -> Self {
        Self { until_ns: deadline_ns, news: true, ..Self::default() }
    }
}

impl Turns {
    pub(super) fn new(processes: u32, seed: u64) -> Self {
        Self {
            // Differs from the network's own sequence.
            random: Random::new(!seed),
            seats: Vec::new(),
            groups: vec![Vec::new(); processes as usize + 1],
            slowness: vec![1; processes as usize],
            ready: Vec::new(),
            timers: BTreeSet::new(),
            running: None,
            is_over: false,
            late_looks: 0,
            epoch: Instant::now(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The running thread's lead over the clock.
    pub(super) fn ahead_ns(&self) -> u64 {
        self.running.map_or(0, |seat| self.seats[seat.0].ahead_ns)
    }

    pub(super) fn slow_down(&mut self, process: ProcessId, times: u32) {
        self.slowness[process.index()] = times;
    }

    /// Wakes the threads that wait for an event at a process's endpoint.
    pub(super) fn stir(&mut self, process: ProcessId) {
        self.rouse(process.index(), |asleep| asleep.news);
    }

    /// Wakes the threads of no process.
    pub(super) fn stir_others(&mut self) {
        self.rouse(self.groups.len() - 1, |_| true);
    }

    /// Stops the threads of a process for ever.
    pub(super) fn freeze(&mut self, process: ProcessId) {
        for seat in self.groups[process.index()].clone() {
            match self.seats[seat.0].state {
                State::Gone => continue,
                State::Asleep(_) => self.wake_up(seat),
                State::Ready | State::Running | State::Frozen => {}
            }
            self.seats[seat.0].state = State::Frozen;
        }
        self.ready.retain(|seat| !matches!(self.seats[seat.0].state, State::Frozen));
    }

    /// Makes those threads of a group ready whose sleep has ended.
    fn rouse(&mut self, group: usize, is_awake: impl Fn(&Asleep) -> bool) {
        for place in 0..self.groups[group].len() {
            let seat = self.groups[group][place];
            if let State::Asleep(asleep) = &self.seats[seat.0].state
                && is_awake(asleep)
            {
                self.wake_up(seat);
            }
        }
    }

    fn wake_up(&mut self, seat: SeatNumber) {
        let state = &mut self.seats[seat.0].state;
        if let State::Asleep(asleep) = std::mem::replace(state, State::Ready) {
            if let Some(until) = asleep.until_ns {
                self.timers.remove(&(until, seat));
            }
            self.ready.push(seat);
        }
    }

    /// Stops the running thread.
    fn stop(&mut self, seat: SeatNumber, state: State) {
        // A thread that was frozen meanwhile stays frozen.
        if matches!(self.seats[seat.0].state, State::Running) {
            match &state {
                State::Ready => self.ready.push(seat),
                State::Asleep(Asleep { until_ns: Some(until), .. }) => drop(self.timers.insert((*until, seat))),
                _ => {}
            }
            self.seats[seat.0].state = state;
        }
        self.running = None;
        self.seats[seat.0].may_run.store(false, Ordering::Relaxed);
        let group = self.seats[seat.0].group;
        let others = self.groups.len() - 1;
        for group in [group, others] {
            self.rouse(group, |asleep| asleep.word.as_ref().is_some_and(Watched::has_changed));
        }
    }
}

/// Time and turns.
impl Network {
    /// Gives the turn to the next thread that can run, and lets time pass if there is none now.
    /// Returns that thread if the caller must unpark it, which is better done without the lock that
    /// the thread needs first.
    #[must_use]
    fn pass_turn(&mut self) -> Option<Thread> {
        if self.turns().is_over {
            return None;
        }
        let next = loop {
            let due = self.next_due();
            let now_ns = self.now_ns();
            let turns = self.turns();
            if !turns.ready.is_empty() {
                let place = turns.random.index(turns.ready.len());
                break turns.ready.swap_remove(place);
            }
            if due.is_none_or(|due| due > now_ns) && self.release_one() {
                continue;
            }
            let turns = self.turns();
            let timer = turns.timers.first().map(|(at, _)| *at);
            let Some(at) = timer.into_iter().chain(due).min() else {
                // No thread will ever run again: end the simulation, so that all of them find out.
                turns.end();
                return None;
            };
            self.pass_time(at);
        };
        self.trace.note_switch(self.now_ns(), next.0);
        let turns = self.turns();
        turns.running = Some(next);
        turns.seats[next.0].state = State::Running;
        turns.seats[next.0].let_run()
    }

    fn pass_time(&mut self, at: u64) {
        self.deliver_until(at);
        let now = self.now_ns();
        let turns = self.turns();
        while let Some((until, seat)) = turns.timers.first().copied()
            && until <= now
        {
            turns.wake_up(seat);
        }
    }
}

impl Seat {
    fn let_run(&self) -> Option<Thread> {
        // SYNC: pairs with the acquire load in `await_turn`.
        self.may_run.store(true, Ordering::Release);
        self.thread.clone()
    }
}

impl Turns {
    fn end(&mut self) {
        self.is_over = true;
        self.ready.clear();
        self.timers.clear();
        for seat in &mut self.seats {
            // Sleepers return from now on, and then the words that they lent are no longer
            // borrowed.
            if !matches!(seat.state, State::Gone) {
                seat.state = State::Frozen;
            }
            seat.let_run().inspect(Thread::unpark);
        }
    }
}

/// A simulation in turns, from the view of a process or of an observer.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    network: Arc<SharedNetwork>,
    process: Option<ProcessId>,
}

impl Turn {
    /// `None` if threads on this network do not take turns.
    pub(super) fn new(network: &Arc<SharedNetwork>, process: Option<ProcessId>) -> Option<Self> {
        network.takes_turns.then(|| Self { network: network.clone(), process })
    }

    /// Ends the simulation: a thread that waits for a turn gets none any more.
    pub(super) fn end(&self) {
        self.network.lock().turns().end();
    }

    /// Converts a deadline to the network's clock.
    pub(super) fn nanoseconds_of(&self, deadline: Instant) -> u64 {
        nanoseconds(deadline.saturating_duration_since(self.network.lock().turns().epoch))
    }

    fn sleep_till(&self, seat: SeatNumber, asleep: Asleep) {
        drop(sleep(&self.network, self.network.lock(), seat, asleep));
    }
}

impl clock::Turns for Turn {
    fn simulation(&self) -> usize {
        Arc::as_ptr(&self.network).addr()
    }

    fn is_over(&self) -> bool {
        self.network.lock().turns().is_over
    }

    fn now(&self) -> Instant {
        let mut network = self.network.lock();
        let now_ns = network.now_ns();
        let turns = network.turns();
        if turns.is_over {
            // A deadline that a destructor sets now must pass, too.
            turns.late_looks = turns.late_looks.saturating_add(1);
            return turns.epoch + END_OF_TIME + turns.late_looks * LATE_LOOK;
        }
        let ahead = clock::seat_here(self).map_or(0, |seat| turns.seats[seat.0].ahead_ns);
        turns.epoch + Duration::from_nanos(now_ns + ahead)
    }

    fn slowed(&self, time: Duration) -> Duration {
        let Some(process) = self.process else { return time };
        let times = self.network.lock().turns().slowness[process.index()];
        time.saturating_mul(times)
    }

    fn new_seat(&self) -> SeatNumber {
        let mut network = self.network.lock();
        let turns = network.turns();
        let seat = SeatNumber(turns.seats.len());
        let group = self.process.map_or(turns.groups.len() - 1, ProcessId::index);
        turns.seats.push(Seat { group, state: State::Ready, ahead_ns: 0, may_run: Arc::default(), thread: None });
        turns.groups[group].push(seat);
        turns.ready.push(seat);
        seat
    }

    fn await_first(&self, seat: SeatNumber) {
        let mut network = self.network.lock();
        network.turns().seats[seat.0].thread = Some(thread::current());
        let next = if network.turns().running.is_none() { network.pass_turn() } else { None };
        drop(await_turn(&self.network, network, seat, next));
    }

    fn leave(&self, seat: SeatNumber) {
        let mut network = self.network.lock();
        let turns = network.turns();
        if turns.is_over {
            turns.seats[seat.0].state = State::Gone;
            return;
        }
        let was_running = turns.running == Some(seat);
        turns.ready.retain(|ready| *ready != seat);
        let group = turns.seats[seat.0].group;
        if was_running {
            turns.stop(seat, State::Gone);
        } else {
            turns.seats[seat.0].state = State::Gone;
        }
        turns.rouse(group, |asleep| asleep.end_of == Some(seat));
        let next = if was_running { network.pass_turn() } else { None };
        drop(network);
        next.inspect(Thread::unpark);
    }

    fn await_end(&self, seat: SeatNumber, other: SeatNumber) {
        let mut network = self.network.lock();
        while !network.turns().is_over && !matches!(network.turns().seats[other.0].state, State::Gone) {
            network = sleep(&self.network, network, seat, Asleep { end_of: Some(other), ..Asleep::default() });
        }
    }

    fn sleep(&self, seat: SeatNumber, time: Duration, or_news: bool) {
        self.sleep_till(seat, Asleep { news: or_news, ..Asleep::for_time(time) });
    }

    fn sleep_on(&self, seat: SeatNumber, word: &AtomicU32, seen: u32, timeout: Duration) {
        // The word stays borrowed until `sleep` has returned, and by then the seat is not asleep.
        let watched = Watched { word, seen };
        self.sleep_till(seat, Asleep { word: Some(watched), ..Asleep::for_time(timeout) });
    }
}

/// Pays the thread's debt of time, and then sleeps. Returns at once if the simulation is over.
pub(super) fn sleep<'n>(
    shared: &'n SharedNetwork,
    network: MutexGuard<'n, Network>,
    seat: SeatNumber,
    mut asleep: Asleep,
) -> MutexGuard<'n, Network> {
    let network = pay(shared, network, seat);
    let now = network.now_ns();
    if let Some(time) = asleep.time {
        asleep.until_ns = Some(now.saturating_add(nanoseconds(time)));
    }
    if asleep.word.as_ref().is_some_and(Watched::has_changed) || asleep.until_ns.is_some_and(|until| until <= now) {
        return network;
    }
    hand_on(shared, network, seat, State::Asleep(asleep))
}

/// Lets time pass until the thread is no longer ahead of the clock.
pub(super) fn pay<'n>(
    shared: &'n SharedNetwork,
    mut network: MutexGuard<'n, Network>,
    seat: SeatNumber,
) -> MutexGuard<'n, Network> {
    let ahead = std::mem::take(&mut network.turns().seats[seat.0].ahead_ns);
    if ahead == 0 {
        return network;
    }
    let until_ns = Some(network.now_ns() + ahead);
    hand_on(shared, network, seat, State::Asleep(Asleep { until_ns, ..Asleep::default() }))
}

/// Charges the thread `cost_ns` for a call of the transport. Passes its turn on if the seed decides
/// so.
pub(super) fn spend(shared: &SharedNetwork, seat: SeatNumber, cost_ns: u64) {
    let mut network = shared.lock();
    let turns = network.turns();
    let ahead = &mut turns.seats[seat.0].ahead_ns;
    *ahead += cost_ns;
    let ahead = *ahead;
    if turns.is_over || (ahead < AHEAD_MAX_NS && turns.random.up_to(CALLS_PER_SWITCH - 1) > 0) {
        return;
    }
    if ahead == 0 {
        drop(hand_on(shared, network, seat, State::Ready));
    } else {
        drop(pay(shared, network, seat));
    }
}

/// Passes on the turn of a thread whose process was killed.
pub(super) fn stay_frozen(shared: &SharedNetwork, seat: SeatNumber) {
    drop(hand_on(shared, shared.lock(), seat, State::Frozen));
}

fn hand_on<'n>(
    shared: &'n SharedNetwork,
    mut network: MutexGuard<'n, Network>,
    seat: SeatNumber,
    state: State,
) -> MutexGuard<'n, Network> {
    let turns = network.turns();
    if turns.is_over {
        return network;
    }
    turns.stop(seat, state);
    let next = network.pass_turn();
    await_turn(shared, network, seat, next)
}

/// Unparks the next thread, and waits for the turn.
fn await_turn<'n>(
    shared: &'n SharedNetwork,
    mut network: MutexGuard<'n, Network>,
    seat: SeatNumber,
    next: Option<Thread>,
) -> MutexGuard<'n, Network> {
    let turns = network.turns();
    if turns.is_over || turns.running == Some(seat) {
        return network;
    }
    let may_run = turns.seats[seat.0].may_run.clone();
    drop(network);
    next.inspect(Thread::unpark);
    // SYNC: pairs with the release store in `let_run`.
    while !may_run.load(Ordering::Acquire) {
        thread::park();
    }
    shared.lock()
}

impl Network {
    /// # Panics
    /// If threads on this network do not take turns.
    pub(super) fn turns(&mut self) -> &mut Turns {
        self.turns.as_mut().expect("only threads that take turns call this")
    }
}

impl Trace {
    fn note_switch(&mut self, now_ns: u64, seat: usize) {
        self.switches += 1;
        self.note(&[1, now_ns, seat as u64]);
    }
}
