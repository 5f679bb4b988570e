//! The main loop of a worker.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use farside::Worker;

use super::desk::{Address, Seat};
use super::finish::{FIRST, find_line, part_report, tell_end};
use super::part::{Part, Root};
use super::{JobError, OnJob};
use crate::game::Game;
use crate::search::{Budget, Report, Search};

/// Number of steps between two polls for messages.
///
/// More steps share the cost of a poll and of cache lines that the sender writes. Fewer steps let
/// samples return sooner.
const STEPS_PER_TURN: usize = 8;
/// Number of turns between two checks for lost processes.
const TURNS_PER_CENSUS: u64 = 64;
/// Maximum wait for a message. A worker may be idle for any time, so only a message or a lost
/// process ends its wait.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(u32::MAX as u64);

/// The result of a turn.
enum Turn {
    Worked(Duration),
    /// There was nothing to do yet.
    Idle,
    /// The run is over.
    Over,
}

impl<G: Game + Clone> Search<G, OnJob<'_>> {
    /// Takes part in the search until all rollouts are complete.
    pub(super) fn serve(&mut self, address: Address, budget: Budget, start: Instant) -> Result<(), JobError> {
        let me = self.place.me;
        let mut clock = Clock { budget, start, shown: 0 };
        for turn in 1.. {
            self.keep_time(address, &mut clock);
            if let Some(exploration) = self.tuner.as_mut().map(|tuner| tuner()) {
                at(me, address, |seat: &mut Seat<G>| seat.part.set_exploration(exploration));
            }
            match at(me, address, |seat: &mut Seat<G>| take_turn(seat, me, address)) {
                Turn::Over => break,
                Turn::Worked(work) => {
                    me.charge(work);
                    me.flush();
                    me.progress()?;
                }
                // This also publishes batches.
                Turn::Idle => me.wait_together(WAIT_MAX, || at(me, address, has_news::<G>))?,
            }
            if turn % TURNS_PER_CENSUS == 0 && !me.lost_processes().is_empty() {
                me.wait_together(Duration::ZERO, || false)?;
            }
            at(me, address, |seat: &mut Seat<G>| seat.check(me))?;
        }
        if me.id() == FIRST {
            tell_end::<G>(me, address)?;
            find_line::<G>(me, address)?;
        }
        Ok(())
    }

    /// Stops the search when its budget is spent or the observer asks for it.
    ///
    /// Calls the observer while no seat is borrowed, so that it may use the worker.
    fn keep_time(&mut self, address: Address, clock: &mut Clock) {
        let me = self.place.me;
        let every = self.observer.as_ref().map(|observer| observer.every);
        let Some((is_spent, interim)) = at(me, address, |seat: &mut Seat<G>| clock.look(&seat.part, every, me.now()))
        else {
            return;
        };
        let is_stopped = match (&mut self.observer, interim) {
            (Some(observer), Some(report)) => (observer.show)(&report) == ControlFlow::Break(()),
            _ => false,
        };
        if is_spent || is_stopped {
            at(me, address, |seat: &mut Seat<G>| seat.part.root_mut().map(Root::stop));
        }
    }
}

/// Calls `act` with the seat of a search that is not over at this worker.
pub(super) fn at<G: Game, R>(me: &Worker, address: Address, act: impl FnOnce(&mut Seat<G>) -> R) -> R {
    address.at(me, act).expect("the seat is taken until the search returns")
}

fn take_turn<G: Game>(seat: &mut Seat<G>, me: &Worker, address: Address) -> Turn {
    let before = seat.part.counters();
    let steps = seat.act(me, address, |part, mail| (0..STEPS_PER_TURN).take_while(|_| part.work(mail)).count());
    if steps > 0 {
        Turn::Worked(seat.part.cost_since(before))
    } else if is_over(seat) {
        Turn::Over
    } else {
        Turn::Idle
    }
}

fn has_news<G: Game>(seat: &mut Seat<G>) -> bool {
    seat.part.has_work() || is_over(seat) || seat.failure.is_some() || seat.part.mismatch().is_some()
}

fn is_over<G: Game>(seat: &Seat<G>) -> bool {
    seat.part.root().map_or(seat.is_over, Root::is_complete)
}

/// The time limit of a run, and the schedule of interim reports.
struct Clock {
    budget: Budget,
    start: Instant,
    /// Number of complete rollouts at the last interim report.
    shown: u64,
}

impl Clock {
    /// At worker 0: returns whether the time is up, and an interim report if one is due.
    fn look<G: Game>(
        &mut self,
        part: &Part<G>,
        every: Option<u64>,
        now: Instant,
    ) -> Option<(bool, Option<Report<G::Move>>)> {
        let root = part.root()?;
        let is_spent = match self.budget {
            Budget::Rollouts(_) => false,
            // A report needs at least one rollout.
            Budget::Time(limit) => root.completed > 0 && now - self.start >= limit,
        };
        let is_due = every.is_some_and(|every| root.completed - self.shown >= every);
        if is_due {
            self.shown = root.completed;
        }
        Some((is_spent, is_due.then(|| part_report(part, now - self.start)).flatten()))
    }
}
