//! The loop of a worker, from the first rollout to the last.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use farside::Worker;

use super::desk::{Address, Seat};
use super::finish::{FIRST, find_line, part_report, tell_end};
use super::part::{Part, Root};
use super::settle::settle;
use super::{JobError, OnJob, Pace};
use crate::game::Game;
use crate::search::{Budget, Report, Search};

/// Things done before a look at what came. More of them share the cost of that look, and of the sender's touching the
/// same lines; fewer let a sample find its way back sooner.
const STEPS_PER_TURN: usize = 8;
/// Turns between looks at whether a process is gone, while there is enough to do.
const TURNS_PER_CENSUS: u64 = 64;
/// A worker has nothing to do for as long as the others need none of its nodes. What ends that is their word, or the loss
/// of one of them.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(u32::MAX as u64);

/// What a turn found.
enum Turn {
    Worked(Duration),
    /// There was nothing to do.
    Idle,
    /// And there never will be.
    Over,
}

impl<G: Game + Clone> Search<G, OnJob<'_>> {
    /// Takes part in the search until all rollouts are complete, in one phase or several.
    pub(super) fn serve_phases(&mut self, address: Address, budget: Budget, start: Instant) -> Result<(), JobError> {
        let (me, settings) = (self.place.me, self.place.settings);
        let mut clock = Clock { budget, start, shown: 0 };
        match settings.pace {
            Pace::Continuous => self.serve(address, &mut clock)?,
            Pace::Phases { rollouts } => loop {
                let rollouts = u64::from(rollouts.max(1)) * u64::from(me.worker_count());
                let left = at(me, address, |seat: &mut Seat<G>| {
                    seat.is_over = false;
                    seat.part.root_mut().map(|root| {
                        root.begin_phase(rollouts);
                        root.left()
                    })
                });
                if me.broadcast(FIRST, left)? == 0 {
                    break;
                }
                me.barrier()?;
                self.serve(address, &mut clock)?;
            },
        }
        if settings.replicas.is_some() {
            at(me, address, |seat: &mut Seat<G>| seat.act(me, address, |part, mail| part.flush_all(mail)));
            settle::<G>(me, address)?;
        }
        if me.id() == FIRST { find_line::<G>(me, address) } else { Ok(()) }
    }

    /// Takes part until all rollouts of a phase are complete.
    fn serve(&mut self, address: Address, clock: &mut Clock) -> Result<(), JobError> {
        let me = self.place.me;
        for turn in 1.. {
            self.keep_time(address, clock);
            match at(me, address, |seat: &mut Seat<G>| take_turn(seat, me, address)) {
                Turn::Over => break,
                Turn::Worked(work) => {
                    me.charge(work);
                    me.flush();
                    me.progress()?;
                }
                // Publishes what is batched, too.
                Turn::Idle => me.wait_together(WAIT_MAX, || at(me, address, has_news::<G>))?,
            }
            if turn % TURNS_PER_CENSUS == 0 && !me.lost_processes().is_empty() {
                me.wait_together(Duration::ZERO, || false)?;
            }
            at(me, address, |seat: &mut Seat<G>| seat.check(me))?;
        }
        if me.id().number() == 0 {
            tell_end::<G>(me, address)?;
        }
        Ok(())
    }

    /// Stops the search when it is time to. The observer is shown a report while nothing here is in use, so that it may do
    /// with the worker what it likes.
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

/// What happens at the seat of a search that is not over here.
pub(super) fn at<G: Game, R>(me: &Worker, address: Address, act: impl FnOnce(&mut Seat<G>) -> R) -> R {
    address.at(me, act).expect("the seat is taken until the search returns")
}

fn take_turn<G: Game>(seat: &mut Seat<G>, me: &Worker, address: Address) -> Turn {
    let before = seat.part.deeds();
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

/// When worker 0 stops, and shows how far it is.
struct Clock {
    budget: Budget,
    start: Instant,
    /// Rollouts that were complete when the observer was shown a report.
    shown: u64,
}

impl Clock {
    /// On worker 0: whether the budget is spent, and a report if it is due.
    fn look<G: Game>(
        &mut self,
        part: &Part<G>,
        every: Option<u64>,
        now: Instant,
    ) -> Option<(bool, Option<Report<G::Move>>)> {
        let root = part.root()?;
        let is_spent = match self.budget {
            Budget::Rollouts(_) => false,
            // There is to be something to report.
            Budget::Time(limit) => root.completed > 0 && now - self.start >= limit,
        };
        let is_due = every.is_some_and(|every| root.completed - self.shown >= every);
        if is_due {
            self.shown = root.completed;
        }
        Some((is_spent, is_due.then(|| part_report(part, now - self.start)).flatten()))
    }
}
