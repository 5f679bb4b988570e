//! The service thread: one in every process, blocked when there is nothing to do.
//!
//! It does the work that must not depend on the attention of a worker. It makes rings, hands out
//! memory, learns of losses, and carries what cannot be stored into a peer's memory. It runs no
//! user code and never waits for a peer. Nothing that it does can fail this process: what lacks
//! memory or descriptors is refused, and what leads to a lost peer is dropped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_fabric::Event;

use crate::runtime::activity::Activity;
use crate::runtime::process::{Loss, Process, lock};
use crate::runtime::room;
use crate::wire;
use farside_launch::control::{ToCoordinator, ToProcess};
use farside_launch::kill_point::KillPoint;

/// The time until a full transport is tried again. The transport does not say when it has room.
const RESEND_AFTER: Duration = Duration::from_millis(1);

/// The time between two looks while the service thread looks regularly.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The number of looks in a row without new work after which they end.
const IDLE_LOOKS_MAX: u32 = 16;

/// Decides whether new work wakes the service thread.
///
/// Work that a worker begins is mostly done by that worker, when it waits for it. To wake another
/// thread for each piece of work would cost more than the work, and take a CPU from the worker. So
/// only the first piece wakes the thread. The thread then looks regularly, until
/// [`IDLE_LOOKS_MAX`] looks in a row have found no new work.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Locked by the thread that takes in the transport's events, so that they stay in order.
    taking_in: Mutex<()>,
    looks: Mutex<Looks>,
}

#[derive(Debug)]
struct Looks {
    /// True if work came after the last look.
    has_work: bool,
    /// The number of looks in a row that found no new work.
    idle: u32,
}

impl Watch {
    pub(crate) fn new() -> Self {
        let looks = Looks { has_work: false, idle: IDLE_LOOKS_MAX };
        Self { taking_in: Mutex::new(()), looks: Mutex::new(looks) }
    }

    /// Notes new work. Returns whether the service thread must be woken for it.
    fn note_work(&self) -> bool {
        let mut looks = lock(&self.looks);
        looks.has_work = true;
        looks.idle == IDLE_LOOKS_MAX
    }

    /// Called by the service thread before it waits. Returns the time after which it must look
    /// again, if it looks regularly.
    fn look(&self) -> Option<Duration> {
        let mut looks = lock(&self.looks);
        let had_work = std::mem::take(&mut looks.has_work);
        looks.idle = if had_work { 0 } else { IDLE_LOOKS_MAX.min(looks.idle + 1) };
        (looks.idle < IDLE_LOOKS_MAX).then_some(LOOK_EVERY)
    }
}

impl Process {
    /// Has the service thread look at work that a room has begun: at once, or within a millisecond
    /// if there was such work shortly before.
    pub(crate) fn request_look(&self) {
        if self.watch.note_work() {
            self.transport().wake();
        }
    }
}

/// Runs until `stop` is set and the transport is woken.
pub(crate) fn serve(process: &Arc<Process>, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        let taking_in = lock(&process.watch.taking_in);
        process.transport().progress();
        while let Some(message) = process.orders.control.receive() {
            take_order(process, message);
        }
        take_events(process);
        let serve_at = process.calls.rings.serve_waiting(process);
        let rooms_at = process.rooms.serve(process, false).again;
        drop(taking_in);
        let backlog_at = process.calls.backlog.send(process);
        let resend_at = process.links.flush_outgoing().then(|| process.clock().now() + RESEND_AFTER);
        let suspects_at = process.give_up_suspects();
        let look_at = process.watch.look().map(|after| process.clock().now() + after);
        let next = [serve_at, rooms_at, backlog_at, resend_at, suspects_at, look_at].into_iter().flatten().min();
        let control = process.orders.control.fd();
        process.transport().wait(control.as_slice(), next);
    }
}

/// Does the service thread's work for the transport, unless another thread is doing it. Returns
/// whether anything arrived. A waiting worker calls this because it then finds what it waits for
/// sooner than if it were woken.
pub(crate) fn poll(process: &Arc<Process>) -> bool {
    let Ok(_taking_in) = process.watch.taking_in.try_lock() else { return false };
    process.transport().progress();
    let any = take_events(process);
    let moved = process.rooms.serve(process, false).moved;
    process.links.flush_outgoing();
    any | moved
}

/// Takes in the transport's events. Returns whether there were any.
fn take_events(process: &Arc<Process>) -> bool {
    let mut any = false;
    while let Some(event) = process.transport().receive() {
        any = true;
        match event {
            Event::Message { from, message } => {
                // Dropped: malformed messages and forbidden requests, whose sender is not of this
                // job, and messages from a process that was given up.
                if process.losses.is_given_up(from) {
                    continue;
                }
                match message.split_first() {
                    Some((tag, _)) if tag & room::TAG_BIT != 0 => process.rooms.take(process, from, &message),
                    _ => process.calls.take(process, from, message),
                }
            }
            Event::Disconnected { process: peer } => {
                tracing::debug!(process = peer.number(), "loss: the connection with a process ended");
                process.suspect(peer);
            }
        }
    }
    any
}

/// Carries out an order of the coordinator.
fn take_order(process: &Arc<Process>, order: ToProcess) {
    match order {
        // These come before the start, which `run` awaits.
        ToProcess::Start { .. } | ToProcess::Exchange | ToProcess::Peers { .. } | ToProcess::Builds { .. } => {}
        ToProcess::Ended { why } => {
            tracing::debug!(?why, "order: the job has ended");
            process.end(why);
        }
        ToProcess::Lost { process: lost, root, why } => {
            tracing::debug!(process = lost.number(), root = root.number(), why, "order: a process is lost");
            process.losses.confirm(lost);
            process.lose(lost, Loss { root, why });
            // This process may have given up the other one before, so that `lose` wakes no worker
            // that waits for the confirmation.
            process.mailboxes.call_attention_of_all();
        }
        ToProcess::Confirm { round } => {
            tracing::debug!(round, "order: report the counts");
            process.begin_round(round);
        }
        ToProcess::Probe => process.orders.control.send(ToCoordinator::Alive),
        ToProcess::Ask { number, question } => {
            // A question of another version has an empty answer.
            let question = wire::decode(wire::Decoder::new(&question), 0);
            let answer = question.map(|question| wire::encode(&Activity::of(process).answer(question), Vec::new()));
            for message in ToCoordinator::told(number, &answer.unwrap_or_default()) {
                process.orders.control.send(message);
            }
        }
        ToProcess::Finish => {
            tracing::debug!("order: return");
            process.kill_point(KillPoint::Finished);
            process.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_work_after_a_pause_wakes_the_thread() {
        let watch = Watch::new();
        assert_eq!(watch.look(), None);
        assert!(watch.note_work());
        for _ in 0..5 {
            assert_eq!(watch.look(), Some(LOOK_EVERY));
            assert!(!watch.note_work());
        }
        for _ in 0..IDLE_LOOKS_MAX {
            assert_eq!(watch.look(), Some(LOOK_EVERY));
        }
        assert_eq!(watch.look(), None);
        assert!(watch.note_work());
        // Work that came after the last look is looked at, although the thread was not woken yet.
        assert_eq!(watch.look(), Some(LOOK_EVERY));
    }
}
