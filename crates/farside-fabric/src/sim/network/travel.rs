//! How things travel, and how time passes.

use std::ops::Range;
use std::thread::{self, ThreadId};

use super::Network;
use crate::ids::ProcessId;
use crate::sim::parcel::{Due, Parcel, Request, Transfer, TransferId};
use crate::sim::process::Process;
use crate::transport::{Completion, Event, FabricError, RemoteKey};

/// How often a process calls `progress` before others that have something to do, and do not, count as inattentive. So many
/// calls take longer than it takes a thread to wake up.
const POLLS_ALONE_MAX: u32 = 200;

/// How often the last process that called `progress` has done so, with no wait and nobody else between.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Polls {
    process: Option<ProcessId>,
    count: u32,
    /// The first thread that made progress for any process.
    thread: Option<ThreadId>,
    /// There was another.
    threads_are_many: bool,
}

impl Polls {
    fn count_one(&mut self, process: ProcessId) {
        let thread = thread::current().id();
        self.threads_are_many |= *self.thread.get_or_insert(thread) != thread;
        if self.process.replace(process) != Some(process) {
            self.count = 0;
        }
        self.count += 1;
    }
}

/// Time.
impl Network {
    /// A step passes, and what is due happens. For a process that is alone in doing something, and does nothing but
    /// call this, time runs on to the next thing that concerns it.
    pub(in crate::sim) fn progress(&mut self, process: ProcessId) {
        self.step += 1;
        while self.under_way.first_key_value().is_some_and(|(due, _)| due.step <= self.step) {
            self.deliver_next();
        }
        self.polls.count_one(process);
        if self.is_alone(process) {
            while self.process(process).arrived.is_empty() && self.process(process).under_way > 0 {
                self.deliver_next();
            }
        }
        while let Some(parcel) = self.process(process).arrived.pop_front() {
            self.accept(parcel);
        }
    }

    /// A process is in `wait`: it leaves time to others.
    pub(in crate::sim) fn note_wait(&mut self, process: ProcessId) {
        if self.polls.process == Some(process) {
            self.polls.count = 0;
        }
    }

    /// Would it be in vain to let time pass slowly, so that others can do something meanwhile?
    fn is_alone(&self, process: ProcessId) -> bool {
        let is_idle = |other: &Process| !other.alive || !other.can_move();
        let mut others = self.processes.iter().enumerate().filter(|(index, _)| *index != process.index());
        match self.polls.count {
            _ if !self.polls.threads_are_many => true,
            POLLS_ALONE_MAX.. => true,
            2.. => others.all(|(_, other)| is_idle(other)),
            _ => false,
        }
    }
}

/// Ways.
impl Network {
    pub(super) fn launch(&mut self, from: ProcessId, key: RemoteKey, request: Request, completion: Completion) {
        self.sequence += 1;
        let transfer = self.sequence;
        let pieces = request.pieces(&mut self.random);
        let state =
            Transfer { from, key, completion: Some(completion), pieces_left: pieces.len(), request, error: None };
        self.transfers.insert(transfer, state);
        for piece in pieces {
            self.dispatch(Parcel::Effect { transfer, from, target: key.process, piece });
        }
    }

    fn draw_due(&mut self) -> Due {
        self.sequence += 1;
        let max = self.options.delay_max_steps;
        let (delay, tie) = if max == 0 {
            (0, 0)
        } else {
            // Every order of magnitude is as likely as every other.
            let scale = self.random.up_to(u64::from(u64::BITS - max.leading_zeros() - 1));
            (self.random.up_to(max >> scale), self.random.next())
        };
        Due { step: self.step.saturating_add(delay), tie, sequence: self.sequence }
    }

    fn dispatch(&mut self, parcel: Parcel) {
        let due = self.draw_due();
        self.insert(due, parcel);
    }

    /// Sends a parcel that must not overtake the ones sent so before.
    pub(super) fn dispatch_in_order(&mut self, from: ProcessId, to: ProcessId, parcel: Parcel) {
        let mut due = self.draw_due();
        let lane = self.lanes.entry((from, to)).or_default();
        (due.step, due.tie) = lane.last.max((due.step, due.tie));
        lane.last = (due.step, due.tie);
        self.insert(due, parcel);
    }

    fn insert(&mut self, due: Due, parcel: Parcel) {
        for process in self.concerned(&parcel).into_iter().flatten() {
            let process = self.process(process);
            process.under_way += 1;
            process.sleepers.notify();
        }
        self.under_way.insert(due, parcel);
    }

    /// Those who can move the parcel on, and must not sleep while it is under way.
    fn concerned(&self, parcel: &Parcel) -> [Option<ProcessId>; 2] {
        match parcel {
            Parcel::Effect { from, target, .. } => {
                let helper = self.options.needs_target_progress && from != target;
                [Some(*from), helper.then_some(*target)]
            }
            other => [Some(other.destination()), None],
        }
    }

    pub(super) fn take_out(&mut self, due: Due) -> Option<Parcel> {
        let parcel = self.under_way.remove(&due)?;
        for process in self.concerned(&parcel).into_iter().flatten() {
            self.process(process).under_way -= 1;
        }
        Some(parcel)
    }

    /// Lets the next thing happen, if there is one.
    fn deliver_next(&mut self) {
        let Some((&due, _)) = self.under_way.first_key_value() else { return };
        let Some(parcel) = self.take_out(due) else { return };
        self.step = self.step.max(due.step);
        let attentive = self.process(parcel.destination()).alive
            && (self.options.needs_target_progress || !matches!(parcel, Parcel::Effect { .. }));
        if attentive {
            let process = self.process(parcel.destination());
            process.arrived.push_back(parcel);
            process.sleepers.notify();
        } else {
            self.accept(parcel);
        }
    }

    /// A parcel does what it was sent for.
    pub(super) fn accept(&mut self, parcel: Parcel) {
        match parcel {
            Parcel::Effect { transfer, piece, .. } => self.take_effect(transfer, piece),
            Parcel::Reply { transfer, .. } => self.end_transfer(transfer),
            Parcel::Message { from, to, message } => {
                let process = self.process(to);
                if process.alive && process.check_peer(from).is_ok() {
                    process.inbox.push_back(Event::Message { from, message });
                    process.sleepers.notify();
                } else {
                    self.clear_one(from, to);
                }
            }
            Parcel::Disconnected { with, to } => {
                if self.process(to).alive {
                    self.process(to).lose_peer(with);
                }
            }
        }
    }

    fn take_effect(&mut self, id: TransferId, piece: Range<usize>) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        let target = transfer.key.process;
        let process = &self.processes[target.index()];
        if process.alive {
            transfer.take_effect(piece, &process.regions);
        } else {
            transfer.error.get_or_insert(FabricError::Disconnected { process: target });
        }
        transfer.pieces_left -= 1;
        if transfer.pieces_left == 0 {
            let to = transfer.from;
            self.dispatch(Parcel::Reply { transfer: id, to });
        }
    }

    fn end_transfer(&mut self, id: TransferId) {
        let Some(mut transfer) = self.transfers.remove(&id) else { return };
        let Some(completion) = transfer.completion.take() else { return };
        let process = self.process(transfer.from);
        match &transfer.request {
            Request::Attach(Some(memory)) => {
                process.attached.insert(transfer.key, memory.clone());
            }
            Request::Attach(None) => {}
            _ => process.operations -= 1,
        }
        let error = transfer.error.take();
        completion.end(error.map_or_else(|| Ok(transfer.request.into_outcome()), Err));
    }

    /// A message between these two is received, or lost with one of them.
    pub(super) fn clear_one(&mut self, from: ProcessId, to: ProcessId) {
        self.lanes.entry((from, to)).or_default().waiting -= 1;
    }
}
