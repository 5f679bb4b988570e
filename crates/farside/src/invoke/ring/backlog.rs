//! What the service thread sends for workers that are at something else.
//!
//! A worker that stages calls lists their way here and goes on. It sends them itself when it makes progress, and mostly has done so before
//! the service thread looks. If it computes instead, the service thread sends them when there is room: it looks again and again, at first
//! soon and then at longer intervals, since credit is a store into memory and wakes nobody who blocks on sockets.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::invoke::outbox::{FlushCause, SharedWay, Way};
use crate::runtime::process::{Process, lock};

/// The first look at what was staged comes so much later, and the next at once or twice as much later each time nothing moved.
const LOOK_AFTER: Duration = Duration::from_micros(200);
const LOOK_AFTER_MAX: Duration = Duration::from_millis(2);

/// The ways on which something waits.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    ways: Vec<SharedWay>,
    next_look: Option<Instant>,
    /// How long after the last look, as a power of two.
    patience: u32,
}

impl Process {
    /// Has the service thread send what is staged on a way, should this thread not: soon, or when it is `due`.
    pub(crate) fn look_after(&self, shared: &SharedWay, way: &mut Way, due: Option<Instant>) {
        if !way.needs_help() || (way.is_listed && due.is_none()) {
            return;
        }
        let due = due.unwrap_or_else(|| self.clock().now() + LOOK_AFTER);
        let mut state = lock(&self.calls().backlog.state);
        if !std::mem::replace(&mut way.is_listed, true) {
            state.ways.push(shared.clone());
        }
        if state.next_look.is_none_or(|look| due < look) {
            state.next_look = Some(due);
            drop(state);
            self.transport().wake();
        }
    }

    /// Sends what is due. Returns when to look again. Called by the service thread.
    pub(crate) fn send_backlog(&self) -> Option<Instant> {
        let mut state = lock(&self.calls().backlog.state);
        let look = state.next_look?;
        let now = self.clock().now();
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
            // What keeps it from being sent is told by what waits for it.
            moved |= way.send_for_worker(self).unwrap_or(false);
            way.is_listed = way.needs_help();
            if way.is_listed {
                let due = way.held_until().unwrap_or(now + interval);
                next = Some(next.map_or(due, |next| next.min(due)));
                drop(way);
                kept.push(shared);
            }
        }

        let mut state = lock(&self.calls().backlog.state);
        state.ways.append(&mut kept);
        state.patience = if moved { 0 } else { (patience + 1).min(LOOK_AFTER_MAX.as_micros().ilog2()) };
        state.next_look = [state.next_look, next].into_iter().flatten().min();
        if state.next_look.is_none() {
            state.patience = 0;
        }
        state.next_look
    }
}
