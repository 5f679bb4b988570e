//! The backlog: ways whose staged calls the service thread sends when their worker is busy.
//!
//! A worker that stages calls adds their way to this list and goes on. It sends them itself when it
//! makes progress, usually before the service thread looks. If it computes instead, the service
//! thread sends them when there is room. The service thread looks soon at first, and then at longer
//! intervals: credit is a store into memory, which wakes no thread that blocks on sockets.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::invoke::outbox::{FlushCause, SharedWay, Way};
use crate::runtime::process::{Process, lock};

/// The delay of the first look at staged calls, and the longest delay. Each look that moves nothing
/// doubles the delay.
const LOOK_AFTER: Duration = Duration::from_micros(200);
const LOOK_AFTER_MAX: Duration = Duration::from_millis(2);

/// The state of a path in the service thread's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// The way is not in the list.
    No,
    /// Due when the held records are due, which may be much later.
    Later,
    Soon,
}

/// The ways on which records wait.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    ways: Vec<SharedWay>,
    next_look: Option<Instant>,
    /// The delay after the last look, as a power of two.
    patience: u32,
}

impl Backlog {
    /// Has the service thread send the records staged on a way if this thread does not: soon, or
    /// when they are `due`.
    pub(crate) fn look_after(&self, process: &Process, shared: &SharedWay, way: &mut Way, due: Option<Instant>) {
        if !way.needs_help() || (way.listed == Listed::Soon && due.is_none()) {
            return;
        }
        let listed = if due.is_some() { Listed::Later } else { Listed::Soon };
        let due = due.unwrap_or_else(|| process.clock().now() + LOOK_AFTER);
        let mut state = lock(&self.state);
        if std::mem::replace(&mut way.listed, listed) == Listed::No {
            state.ways.push(shared.clone());
        }
        if state.next_look.is_none_or(|look| due < look) {
            state.next_look = Some(due);
            drop(state);
            process.transport().wake();
        }
    }

    /// Sends what is due. Returns when to look again. Called by the service thread.
    pub(crate) fn send(&self, process: &Process) -> Option<Instant> {
        let mut state = lock(&self.state);
        let look = state.next_look?;
        let now = process.clock().now();
        if now < look {
            return Some(look);
        }
        state.next_look = None;
        let ways = std::mem::take(&mut state.ways);
        let patience = state.patience;
        drop(state);

        let interval = (LOOK_AFTER * (1 << patience)).min(LOOK_AFTER_MAX);
        let mut kept = Vec::new();
        let mut next: Option<Instant> = None;
        let mut moved = false;
        for shared in ways {
            let mut way = shared.lock();
            if way.held_until().is_some_and(|due| due <= now) {
                way.release(FlushCause::Age);
            }
            // An error is ignored here: the caller that waits for the records gets it.
            moved |= way.send_for_worker(process).unwrap_or(false);
            let held = way.held_until();
            way.listed = match held {
                _ if !way.needs_help() => Listed::No,
                Some(_) => Listed::Later,
                None => Listed::Soon,
            };
            if way.listed != Listed::No {
                let due = held.unwrap_or(now + interval);
                next = Some(next.map_or(due, |next| next.min(due)));
                drop(way);
                kept.push(shared);
            }
        }

        let mut state = lock(&self.state);
        state.ways.append(&mut kept);
        state.patience = if moved { 0 } else { (patience + 1).min(LOOK_AFTER_MAX.as_micros().ilog2()) };
        state.next_look = [state.next_look, next].into_iter().flatten().min();
        if state.next_look.is_none() {
            state.patience = 0;
        }
        state.next_look
    }
}
