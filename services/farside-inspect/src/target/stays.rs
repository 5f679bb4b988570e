//! [`Stays`]: how readers have all workers stay at one step, and change things there.
//!
//! A *stay* names a step. Each worker of the process stays when it has completed that step, or the
//! first one after it, and is about to publish the next. It serves others meanwhile, and goes on
//! when the stay has ended or names a later step. When all workers stay, they have completed the
//! same step, and none is in the middle of one. Meanwhile readers make [orders](Order): they set
//! parameters, write views, and run actions. So each change takes effect at the same step
//! everywhere.
//!
//! | state of a worker | what the next publication does |
//! |---|---|
//! | no stay, or a stay at a later step | publishes |
//! | a stay at a step that it has completed | stays |
//! | the stay has ended | runs actions that were ordered, then publishes |
//!
//! The views of a worker are flagged while there is a stay. A worker that publishes at the moment
//! when the flag is set may not see it yet, and passes. The door looks at the steps a moment later,
//! and tells the reader, which names a later step.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use farside::{Caller, DeadlinePause, Error, WorkerId};

use super::lease::{Lease, ReaderId};
use crate::protocol::{HeldItem, HeldKind, Refused, Stayed};
use crate::sync::lock;

/// The time in which a store of a worker reaches the door's thread.
const STORE_TIME: Duration = Duration::from_micros(20);

/// The longest sleep of a program without a job that stays: its lease may end silently.
const CHANGES_WITHIN: Duration = Duration::from_millis(100);

/// The number of actions that may wait until a worker goes on.
const ACTIONS_MAX: usize = 64;

/// The stay of a process, and its workers.
#[derive(Debug, Default)]
pub(super) struct Stays {
    state: Mutex<State>,
    /// Wakes programs without a job that stay.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stay: Option<Stay>,
    /// The reader that asked for a stay which ended before all workers stayed, and those that did
    /// not.
    missed: Option<(ReaderId, Vec<(u32, u64)>)>,
    workers: BTreeMap<u32, Steps>,
    /// Wakes workers that stay.
    caller: Option<Caller>,
}

#[derive(Debug)]
struct Stay {
    lease: Lease,
    /// The reader that has asked for it, or for its continuation, last.
    asker: ReaderId,
    /// Workers stay after the first step from this one on.
    after: u64,
    is_pause: bool,
    /// Readers that wait until all workers stay.
    wakers: Vec<Waker>,
    /// Workers that wait for those that stay do so for longer than their deadline.
    _deadlines: Option<DeadlinePause>,
}

/// A view, as a stay sees it.
pub(super) trait Stepping: fmt::Debug + Send + Sync {
    /// The step that was published last.
    fn step(&self) -> Option<u64>;
    /// Has the worker look at the stay before it publishes.
    fn flag(&self);
}

/// A worker that publishes steps, or a program without a job.
pub(super) trait Publisher {
    /// Its number.
    fn number(&self) -> u32;
    /// Serves others, if there are any, until `condition` holds. `wait` waits for a change of it.
    fn wait_while(&self, condition: &dyn Fn() -> bool, wait: &dyn Fn()) -> Result<(), Error>;
    /// Runs an action, if it has that.
    fn act(&self, action: &str) -> Result<(), Error>;
}

/// The state of a worker that publishes steps.
#[derive(Debug, Default)]
struct Steps {
    views: Vec<Arc<dyn Stepping>>,
    /// The step that the worker has completed, while it stays.
    stays_after: Option<u64>,
    /// The actions that it runs when it goes on.
    actions: Vec<String>,
}

impl Steps {
    /// The step that was published last.
    fn newest(&self) -> Option<u64> {
        self.views.iter().filter_map(|view| view.step()).max()
    }
}

impl State {
    /// The stay, unless it is over.
    fn stay(&mut self) -> Option<&mut Stay> {
        self.stay.as_mut().filter(|stay| !stay.lease.is_over())
    }

    /// Returns whether a worker stays instead of publishing a step: it has completed one from the
    /// stay's on, and is not in the middle of this one.
    fn keeps(&mut self, worker: u32, step: u64) -> bool {
        let newest = self.workers.get(&worker).and_then(Steps::newest);
        self.stay().is_some_and(|stay| newest.is_some_and(|newest| newest >= stay.after && newest < step))
    }

    fn flag(&self) {
        self.workers.values().flat_map(|steps| &steps.views).for_each(|view| view.flag());
    }

    /// The workers that stay.
    fn staying(&self) -> Vec<u32> {
        let staying = self.workers.iter().filter(|(_, steps)| steps.stays_after.is_some());
        staying.map(|(worker, _)| *worker).collect()
    }

    /// The workers that publish steps and do not stay yet, with their newest steps.
    fn awaited(&self) -> Vec<(u32, u64)> {
        let after = self.stay.as_ref().map_or(0, |stay| stay.after);
        let is_awaited = |steps: &Steps| steps.stays_after.is_none_or(|step| step < after);
        let awaited = self.workers.iter().filter(|(_, steps)| is_awaited(steps));
        awaited.filter_map(|(worker, steps)| Some((*worker, steps.newest()?))).collect()
    }

    /// The lowest and the highest step at which workers stay, once all do that publish steps.
    fn stayed(&self) -> Option<Option<(u64, u64)>> {
        let after = self.stay.as_ref().map_or(0, |stay| stay.after);
        let stepping = self.workers.values().filter(|steps| steps.newest().is_some());
        // A worker that stays after an earlier step is about to go on.
        let steps: Option<Vec<u64>> = stepping.map(|steps| steps.stays_after.filter(|step| *step >= after)).collect();
        let steps = steps?;
        Some(steps.iter().min().copied().zip(steps.iter().max().copied()))
    }
}

impl Stays {
    pub(super) fn set_caller(&self, caller: Caller) {
        lock(&self.state).caller = Some(caller);
    }

    pub(super) fn add_view(&self, worker: u32, view: Arc<dyn Stepping>) {
        let mut state = lock(&self.state);
        state.workers.entry(worker).or_default().views.push(view.clone());
        if state.stay().is_some() {
            view.flag();
        }
    }

    pub(super) fn remove_view(&self, worker: u32, view: &Arc<dyn Stepping>) {
        let mut state = lock(&self.state);
        if let Some(steps) = state.workers.get_mut(&worker) {
            steps.views.retain(|other| !std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(view)));
        }
        // A worker without views is waited for no more.
        let wakers = state.stay.as_mut().map(|stay| std::mem::take(&mut stay.wakers));
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Returns whether views look at the stay at each step.
    pub(super) fn are_flagged(&self) -> bool {
        let mut state = lock(&self.state);
        state.stay().is_some() || state.workers.values().any(|steps| !steps.actions.is_empty())
    }

    /// Returns whether a step is the last before a stay, of which readers want a copy.
    pub(super) fn keeps_copy_of(&self, step: u64) -> bool {
        lock(&self.state).stay().is_some_and(|stay| step >= stay.after)
    }

    /// The step that was published last by any worker.
    pub(super) fn newest(&self) -> Option<u64> {
        lock(&self.state).workers.values().filter_map(Steps::newest).max()
    }

    /// The step that a worker has published last.
    pub(super) fn newest_of(&self, worker: u32) -> Option<u64> {
        lock(&self.state).workers.get(&worker).and_then(Steps::newest)
    }

    /// Has the worker stay if there is a stay, and runs the actions that were ordered. Called by a
    /// worker that is about to publish a step.
    ///
    /// # Errors
    /// The error of a wait that failed, or of an action.
    pub(super) fn before(&self, publisher: &dyn Publisher, step: u64) -> Result<(), Error> {
        let number = publisher.number();
        let mut state = lock(&self.state);
        if state.keeps(number, step) {
            let steps = state.workers.entry(number).or_default();
            steps.stays_after = Some(steps.newest().unwrap_or(0));
            let wakers = state.stay.as_mut().map(|stay| std::mem::take(&mut stay.wakers));
            drop(state);
            wakers.into_iter().flatten().for_each(Waker::wake);
            let stayed = publisher.wait_while(&|| !lock(&self.state).keeps(number, step), &|| self.wait_for_change());
            state = lock(&self.state);
            state.workers.entry(number).or_default().stays_after = None;
            stayed?;
        }
        let actions = state.workers.get_mut(&number).map(|steps| std::mem::take(&mut steps.actions));
        drop(state);
        actions.into_iter().flatten().try_for_each(|action| publisher.act(&action))
    }

    /// Wakes the workers that stay, for another look at the stay.
    fn wake(&self, state: MutexGuard<'_, State>) {
        let (caller, staying) = (state.caller.clone(), state.staying());
        // A call may wait for room, which the workers make. They look at the state meanwhile.
        drop(state);
        self.changed.notify_all();
        for (caller, worker) in caller.iter().flat_map(|caller| staying.iter().map(move |worker| (caller, worker))) {
            // An error is the end of the job, and then the worker does not stay.
            let _ = caller.call(WorkerId::new(*worker), (), |_, ()| ());
        }
    }

    /// Waits until the stay has changed, or for a moment.
    fn wait_for_change(&self) {
        let state = lock(&self.state);
        drop(self.changed.wait_timeout(state, CHANGES_WITHIN));
    }

    /// Has the workers stay after the first step from `after` on. `hold` is the number of a stay to
    /// continue; `new` is the lease of a new one.
    pub(super) fn begin(
        self: &Arc<Self>,
        after: u64,
        stay: Option<u64>,
        is_pause: bool,
        new: Lease,
    ) -> Result<Staying, Refused> {
        let mut state = lock(&self.state);
        let (asker, is_new) = (new.reader(), stay.is_none());
        let number = match (state.stay(), stay) {
            (Some(held), Some(number)) if held.lease.number() == number => {
                (held.after, held.asker) = (after, asker);
                number
            }
            (_, Some(_)) => return Err(Refused::Over),
            (Some(_), None) => return Err(Refused::Held { what: "the job".into() }),
            (None, None) => {
                let number = new.number();
                let deadlines = state.caller.as_ref().map(Caller::pause_deadlines);
                state.stay =
                    Some(Stay { lease: new, asker, after, is_pause, wakers: Vec::new(), _deadlines: deadlines });
                number
            }
        };
        let mut staying = Staying { stays: self.clone(), number, ends_stay: is_new };
        state.flag();
        self.wake(state);
        std::thread::sleep(STORE_TIME);
        // Of a step that was published before the flags were set, there may be no copy.
        match self.newest() {
            Some(step) if step > after || (is_new && step == after) => {
                staying.ends_stay = true;
                Err(Refused::Passed { step })
            }
            _ => Ok(staying),
        }
    }

    /// The stay, if there is one.
    pub(super) fn held(&self) -> Option<HeldItem> {
        let mut state = lock(&self.state);
        let stay = state.stay()?;
        let (number, kind) = (stay.lease.number(), if stay.is_pause { HeldKind::Pause } else { HeldKind::Change });
        let step = state.stayed().flatten().map(|(_, step)| step);
        Some(HeldItem { number, kind, step })
    }

    /// The workers for which a reader waits, or did until the stay that it asked for ended.
    pub(super) fn awaited(&self, reader: ReaderId) -> Vec<(u32, u64)> {
        let mut state = lock(&self.state);
        match (state.stay().map(|stay| stay.asker), &state.missed) {
            (Some(asker), _) if asker == reader => state.awaited(),
            (_, Some((holder, missed))) if *holder == reader => missed.clone(),
            _ => Vec::new(),
        }
    }

    /// Ends the stay of a number, for which not all workers stay.
    fn give_up(&self, number: u64) {
        let mut state = lock(&self.state);
        if let Some(stay) = state.stay.as_ref().filter(|stay| stay.lease.number() == number) {
            state.missed = Some((stay.asker, state.awaited()));
        }
        drop(state);
        self.release_if(|lease| lease.number() == number);
    }

    /// Ends a stay whose lease fits.
    pub(super) fn release_if(&self, fits: impl FnOnce(&Lease) -> bool) {
        let mut state = lock(&self.state);
        if let Some(stay) = state.stay.take_if(|stay| fits(&stay.lease)) {
            self.wake(state);
            stay.wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Returns whether the workers stay for the stay of this number.
    pub(super) fn check(&self, number: u64) -> Result<(), Refused> {
        let mut state = lock(&self.state);
        let is_held = state.stay().is_some_and(|stay| stay.lease.number() == number);
        if is_held && state.stayed().is_some() { Ok(()) } else { Err(Refused::Over) }
    }

    /// Returns whether as many actions as are allowed wait until a worker goes on.
    pub(super) fn has_many_actions(&self, worker: u32) -> bool {
        lock(&self.state).workers.get(&worker).is_some_and(|steps| steps.actions.len() >= ACTIONS_MAX)
    }

    /// Orders an action of a worker that stays. Returns whether there is one; otherwise the worker
    /// publishes no steps.
    pub(super) fn order_action(&self, worker: u32, action: &str) -> bool {
        let mut state = lock(&self.state);
        let steps = state.workers.get_mut(&worker).filter(|steps| steps.stays_after.is_some());
        steps.map(|steps| steps.actions.push(action.into())).is_some()
    }

    pub(super) fn caller(&self) -> Option<Caller> {
        lock(&self.state).caller.clone()
    }
}

/// Waits until the workers stay. Dropping it earlier ends the stay, unless a reader
/// continued it: then workers that are late stay when they come to the step.
#[derive(Debug)]
pub(super) struct Staying {
    stays: Arc<Stays>,
    number: u64,
    ends_stay: bool,
}

impl Future for Staying {
    type Output = Result<Stayed, Refused>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let stays = self.stays.clone();
        let mut state = lock(&stays.state);
        let Some(stay) = state.stay.as_mut().filter(|stay| stay.lease.number() == self.number) else {
            return Poll::Ready(Err(Refused::Over));
        };
        stay.wakers.retain(|waker| !waker.will_wake(context.waker()));
        stay.wakers.push(context.waker().clone());
        let after = stay.after;
        if let Some(steps) = state.stayed() {
            self.ends_stay = false;
            return Poll::Ready(Ok(Stayed { stay: self.number, steps }));
        }
        // A worker that has missed the flag is further than one that stays.
        let stays = state.workers.values().filter_map(|steps| steps.stays_after).min();
        let newest = state.workers.values().filter_map(Steps::newest).max();
        match newest {
            Some(step) if stays.is_some_and(|stays| stays >= after && stays < step) => {
                self.ends_stay = true;
                Poll::Ready(Err(Refused::Passed { step }))
            }
            _ => Poll::Pending,
        }
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        if self.ends_stay {
            self.stays.give_up(self.number);
        }
    }
}
