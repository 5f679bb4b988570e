//! [`Driver`]: receives for calls that no thread waits for.
//!
//! The driver's thread starts when the first task waits for an answer, when a one-way call needs
//! this side after it was sent, when the frame that ends something could not be sent at once, or
//! with the first call that is not waited for at once. Every second it serves such calls, unless
//! another thread receives. It waits on the [`Link`] like other threads, and receives if no other
//! thread does. When it was not needed for a while, it stops, so that threads which wait for their
//! own answers receive for themselves.
//!
//! A client [on tokio](crate::Connect::on_tokio) has a task in place of the thread. The task
//! receives all the time.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::{Calls, Connection};
use farside_connect::link::Link;
use farside_connect::lock;
use farside_connect::patience::{Patience, WaitEnd};

/// For how long the thread receives after the last task has its answer.
const LINGER: Duration = Duration::from_millis(100);
/// After this time, the thread looks whether tasks still wait, or calls are left to themselves.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Wakes the tasks that wait for answers of a connection.
#[derive(Debug, Default)]
pub(super) struct Driver {
    state: Mutex<State>,
    /// The thread must look at the state.
    has_news: AtomicBool,
    /// The thread looks every second whether calls are left for which nothing waits.
    watches: AtomicBool,
    /// A task waits, or the connection has ended.
    is_wanted: Condvar,
    /// The task that receives in place of the thread, while it sleeps.
    receiver: Mutex<Option<Waker>>,
}

#[derive(Debug, Default)]
struct State {
    is_running: bool,
    has_ended: bool,
    /// A one-way call needs the thread.
    is_needed: bool,
    /// When the thread looks by itself. `None` while it does not receive.
    looks_at: Option<Instant>,
    /// The tasks whose answers are there.
    answered: Vec<Waker>,
    /// The calls for which tasks wait, by deadline and number.
    calls: BTreeSet<(Instant, u64)>,
}

impl Driver {
    /// A driver without a thread: another part of the library does its work.
    pub(super) fn of_others() -> Self {
        let state = State { is_running: true, ..State::default() };
        Self { state: Mutex::new(state), ..Self::default() }
    }

    /// Wakes a task on the driver's thread: the receiving thread must not run the program's code.
    pub(super) fn wake_later(&self, link: &Link, task: Waker) {
        lock(&self.state).answered.push(task);
        self.tell(link);
    }

    fn tell(&self, link: &Link) {
        self.has_news.store(true, Ordering::Release);
        link.wake_waiting();
        self.wake_receiver();
    }

    /// Wakes the driver's thread, or the task in its place, because it must receive.
    fn ask_for_driver(&self) {
        self.has_news.store(true, Ordering::Release);
        self.is_wanted.notify_all();
        self.wake_receiver();
    }

    fn wake_receiver(&self) {
        let receiver = lock(&self.receiver).take();
        receiver.into_iter().for_each(Waker::wake);
    }

    /// The connection has ended.
    pub(super) fn end(&self) {
        lock(&self.state).has_ended = true;
        self.ask_for_driver();
    }

    /// The task of a call no longer waits.
    pub(super) fn forget(&self, deadline: Instant, number: u64) {
        lock(&self.state).calls.remove(&(deadline, number));
    }

    /// Does the work of the driver's thread, until the connection ends.
    fn drive(&self, link: &Arc<Link>, calls: &Calls) {
        loop {
            let state = lock(&self.state);
            let mut state = self.wait_until_wanted(state, link, calls);
            let first = state.calls.first().map(|(deadline, _)| *deadline);
            let now = Instant::now();
            let deadline = first.map_or(now + LINGER, |first| first.min(now + LOOK_AGAIN));
            state.looks_at = Some(deadline);
            drop(state);
            let patience = Patience::until(deadline);
            let waited = link.wait(&patience, || self.has_news.swap(false, Ordering::Acquire).then_some(()));
            let has_ended = matches!(waited, Err(WaitEnd::Link(_)));
            if has_ended {
                // Another thread may be about to say that an answer is there.
                link.wait_for_step();
            }
            let was_idle = first.is_none() && waited.is_err();
            let is_needed = was_idle && (link.path().backlog_bytes() > 0 || calls.has_one_way());
            wake(calls.due(was_idle && !is_needed, has_ended));
            if has_ended {
                return;
            }
        }
    }

    /// Waits until the thread is to receive.
    fn wait_until_wanted<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        link: &Link,
        calls: &Calls,
    ) -> MutexGuard<'a, State> {
        let is_idle = |state: &mut State| state.looks_at.is_none() && !state.has_ended;
        let mut driven = link.driven();
        while self.watches.load(Ordering::Relaxed) && is_idle(&mut state) {
            let waited = self.is_wanted.wait_timeout(state, LOOK_AGAIN).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if waited.1.timed_out() && is_idle(&mut state) {
                // A call that is made after the look at all calls finds that nothing watches.
                self.watches.store(false, Ordering::Relaxed);
                if calls.is_empty() {
                    break;
                }
                self.watches.store(true, Ordering::Relaxed);
                let driven_before = std::mem::replace(&mut driven, link.driven());
                if driven == driven_before && link.try_drive().is_some() {
                    // No thread has received. This one does so at once, and then tells the others.
                    state.looks_at = Some(Instant::now());
                }
            }
        }
        self.is_wanted.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(tasks: Vec<Waker>) {
    for task in tasks {
        // A panic is the task's, and is printed. Other tasks are not to suffer.
        let _ = catch_unwind(AssertUnwindSafe(|| task.wake()));
    }
}

/// For a task that receives in place of the thread.
#[cfg(feature = "tokio")]
impl Driver {
    /// Notes the task that receives, which is about to sleep. It must then
    /// [look for news](Self::take_news).
    pub(super) fn sleeps(&self, task: &Waker) {
        *lock(&self.receiver) = Some(task.clone());
    }

    /// Returns whether the task that receives has news.
    pub(super) fn take_news(&self) -> bool {
        self.has_news.swap(false, Ordering::AcqRel)
    }

    /// When the task that receives looks next, if nothing wakes it: no later than the first call
    /// for which a task waits is late.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let mut state = lock(&self.state);
        let first = state.calls.first().map(|(deadline, _)| *deadline);
        let planned = state.looks_at.filter(|at| *at > Instant::now());
        state.looks_at = planned.into_iter().chain(first).min();
        state.looks_at
    }
}

impl Calls {
    /// Does the driver's work: wakes the tasks whose answers are there, that are late, or all.
    pub(super) fn wake_all(&self, has_ended: bool) {
        wake(self.due(false, has_ended));
    }

    /// Takes the tasks that are to be woken.
    fn due(&self, was_idle: bool, has_ended: bool) -> Vec<Waker> {
        let mut state = lock(&self.driver.state);
        let now = Instant::now();
        let mut due = std::mem::take(&mut state.answered);
        let mut late = Vec::new();
        while let Some((deadline, number)) = state.calls.first().copied()
            && (has_ended || deadline <= now)
        {
            state.calls.pop_first();
            late.push(number);
        }
        if was_idle && state.calls.is_empty() && !std::mem::take(&mut state.is_needed) {
            state.looks_at = None;
        }
        if has_ended {
            (state.is_running, state.has_ended) = (false, true);
        }
        drop(state);
        due.extend(late.into_iter().filter_map(|number| self.take_task(number)));
        due
    }
}

impl Calls {
    /// Has the driver receive on the calls' `link` until no one-way call is left and all is sent.
    /// Without a thread, the next call does so.
    pub(super) fn keep_going(self: &Arc<Self>, link: &Arc<Link>) {
        let mut state = lock(&self.driver.state);
        if self.start_driver(link, &mut state).is_ok() {
            state.is_needed = true;
            state.looks_at.get_or_insert_with(Instant::now);
            drop(state);
            self.driver.ask_for_driver();
        }
    }

    fn start_driver(self: &Arc<Self>, link: &Arc<Link>, state: &mut State) -> Result<(), std::io::Error> {
        if !state.is_running && !state.has_ended {
            let (link, calls) = (link.clone(), self.clone());
            let thread = std::thread::Builder::new().name("farside rpc client".into());
            thread.spawn(move || calls.driver.drive(&link, &calls))?;
            state.is_running = true;
        }
        Ok(())
    }
}

impl Connection {
    /// Has the driver wake the task of a call when the call is answered, its deadline has passed,
    /// or the connection has ended.
    ///
    /// # Errors
    /// The system's error if there is no thread.
    pub(super) fn watch(self: &Arc<Self>, deadline: Instant, number: u64) -> Result<(), std::io::Error> {
        let Calls { driver, .. } = &*self.calls;
        let mut state = lock(&driver.state);
        self.calls.start_driver(&self.link, &mut state)?;
        state.calls.insert((deadline, number));
        match state.looks_at {
            None => {
                state.looks_at = Some(deadline);
                drop(state);
                driver.ask_for_driver();
            }
            Some(at) if deadline < at => {
                drop(state);
                driver.tell(&self.link);
                self.link.wake_driver();
            }
            Some(_) => {}
        }
        Ok(())
    }
    /// Has the driver look now and then whether calls are left for which nothing waits. Without a
    /// thread, they make progress when something is waited for.
    #[inline]
    pub(super) fn watch_over_calls(self: &Arc<Self>) {
        if !self.calls.driver.watches.load(Ordering::Relaxed) {
            self.begin_watching();
        }
    }

    #[cold]
    fn begin_watching(&self) {
        let Calls { driver, .. } = &*self.calls;
        let mut state = lock(&driver.state);
        if self.calls.start_driver(&self.link, &mut state).is_ok() {
            driver.watches.store(true, Ordering::Relaxed);
            drop(state);
            driver.ask_for_driver();
        }
    }
}
