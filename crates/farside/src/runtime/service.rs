//! The service thread: one in every process, blocked when there is nothing to do.
//!
//! It does the work that must not depend on the attention of a worker. It makes rings, hands out
//! memory, learns of losses, and carries what cannot be stored into a peer's memory. It runs no
//! user code and never waits for a peer. Nothing that it does can fail this process: what lacks
//! memory or descriptors is refused, and what leads to a lost peer is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farside_fabric::Event;

use crate::runtime::process::{Loss, Process, lock};
use crate::runtime::room;
use farside_launch::control::{ToCoordinator, ToProcess};
use farside_launch::kill_point::KillPoint;

/// The time until a full transport is tried again. The transport does not say when it has room.
const RESEND_AFTER: Duration = Duration::from_millis(1);

/// Runs until `stop` is set and the transport is woken.
pub(crate) fn serve(process: &Arc<Process>, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        let taking_in = lock(&process.taking_in);
        process.transport().progress();
        while let Some(message) = process.control().receive() {
            take_order(process, message);
        }
        take_events(process);
        let serve_at = process.serve_waiting();
        let rooms_at = process.rooms().serve(process, false).again;
        drop(taking_in);
        let backlog_at = process.send_backlog();
        let resend_at = process.flush_outgoing().then(|| process.clock().now() + RESEND_AFTER);
        let suspects_at = process.give_up_suspects();
        let next = [serve_at, rooms_at, backlog_at, resend_at, suspects_at].into_iter().flatten().min();
        let control = process.control().fd();
        process.transport().wait(control.as_slice(), next);
    }
}

/// Does the service thread's work for the transport, unless another thread is doing it. Returns
/// whether anything arrived. A waiting worker calls this because it then finds what it waits for
/// sooner than if it were woken.
pub(crate) fn poll(process: &Arc<Process>) -> bool {
    let Ok(_taking_in) = process.taking_in.try_lock() else { return false };
    process.transport().progress();
    let any = take_events(process);
    let moved = process.rooms().serve(process, false).moved;
    process.flush_outgoing();
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
                if process.is_given_up(from) {
                    continue;
                }
                match message.split_first() {
                    Some((tag, _)) if tag & room::TAG_BIT != 0 => process.rooms().take(process, from, &message),
                    _ => process.take_call_message(from, message),
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
fn take_order(process: &Process, order: ToProcess) {
    match order {
        // These come before the start, which `run` awaits.
        ToProcess::Start { .. } | ToProcess::Exchange | ToProcess::Peers { .. } | ToProcess::Builds { .. } => {}
        ToProcess::Ended { why } => {
            tracing::debug!(?why, "order: the job has ended");
            process.end(why);
        }
        ToProcess::Lost { process: lost, root, why } => {
            tracing::debug!(process = lost.number(), root = root.number(), why, "order: a process is lost");
            process.lose(lost, Loss { root, why });
        }
        ToProcess::Confirm { round } => {
            tracing::debug!(round, "order: report the counts");
            process.begin_round(round);
        }
        ToProcess::Probe => process.control().send(ToCoordinator::Alive),
        ToProcess::Finish => {
            tracing::debug!("order: return");
            process.kill_point(KillPoint::Finished);
            process.finish();
        }
    }
}
