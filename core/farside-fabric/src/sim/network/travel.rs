//! Transit of parcels, and the passing of time.

use std::ops::Range;
use std::thread::{self, ThreadId};

use super::Network;
use crate::ids::ProcessId;
use crate::sim::parcel::{Due, Parcel, Request, Transfer, TransferId};
use crate::sim::process::Process;
use crate::sim::turns::Turns;
use crate::transport::{Completion, Event, FabricError, Outcome, RemoteKey};

/// Number of calls of `progress` by one process after which idle processes that could act count as
/// inattentive. This many calls take longer than a thread takes to wake up.
const POLLS_ALONE_MAX: u32 = 200;

/// Least number of words from which those that are free again are removed.
const WORDS_MAX: usize = 4096;

/// Counts consecutive calls of `progress` by one process, without a wait or another process's call
/// in between.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Polls {
    process: Option<ProcessId>,
    count: u32,
    /// The first thread that made progress for any process.
    thread: Option<ThreadId>,
    /// True if another thread has made progress since.
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
    /// Lets a nanosecond pass, and what is due happen. If the process is the only active one, and
    /// only calls this function, time advances to the next event that concerns it.
    ///
    /// Where threads take turns, time passes when they sleep.
    pub(in crate::sim) fn progress(&mut self, process: ProcessId) {
        if self.turns.is_none() {
            self.deliver_until(self.now_ns + 1);
            self.polls.count_one(process);
            if self.is_alone(process) {
                while self.process(process).arrived.is_empty() && self.process(process).under_way > 0 {
                    self.deliver_next();
                }
            }
        }
        while let Some(parcel) = self.process(process).arrived.pop_front() {
            self.accept(parcel);
        }
        self.process(process).regions.settle();
    }

    /// Lets time pass up to this moment, and what is due by then happen.
    pub(in crate::sim) fn deliver_until(&mut self, at_ns: u64) {
        while self.next_due().is_some_and(|due| due <= at_ns) {
            self.deliver_next();
        }
        self.now_ns = self.now_ns.max(at_ns);
    }

    /// The time of the next event.
    pub(in crate::sim) fn next_due(&self) -> Option<u64> {
        self.under_way.first_key_value().map(|(due, _)| due.at_ns)
    }

    /// Wakes the threads that sleep for a process.
    pub(in crate::sim) fn stir(&mut self, process: ProcessId) {
        self.process(process).sleepers.notify();
        if let Some(turns) = &mut self.turns {
            turns.stir(process);
        }
    }

    /// Notes that a process is in `wait`, and thus leaves time to others.
    pub(in crate::sim) fn note_wait(&mut self, process: ProcessId) {
        if self.polls.process == Some(process) {
            self.polls.count = 0;
        }
    }

    /// Returns whether letting time pass slowly would be useless, because no other process would
    /// act meanwhile.
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

/// Transit.
impl Network {
    pub(super) fn launch(&mut self, from: ProcessId, key: RemoteKey, request: Request, completion: Completion) {
        if let (Request::Put { data, .. }, true) = (&request, self.options.ends_puts_early) {
            completion.end(Ok(Outcome::Put(data.clone())));
        }
        self.sequence += 1;
        let transfer = self.sequence;
        let pieces = match self.is_ordered() {
            true => request.halves(),
            false => request.pieces(&mut self.random),
        };
        let arrives_ns = self.arrival(from, key.process, request.bytes_there_and_back().0);
        let state =
            Transfer { from, key, completion: Some(completion), pieces_left: pieces.len(), request, error: None };
        self.transfers.insert(transfer, state);
        for piece in pieces {
            self.dispatch(arrives_ns, Parcel::Effect { transfer, from, target: key.process, piece });
        }
    }

    /// The arrival time of `bytes` bytes that a process's port sends now, or as soon as it is free.
    fn arrival(&mut self, from: ProcessId, to: ProcessId, bytes: usize) -> u64 {
        let model = self.options.between(from, to);
        let ahead_ns = self.turns.as_ref().map_or(0, Turns::ahead_ns);
        let is_near = self.options.share_memory(from, to);
        let port = &mut self.ports[from.index()][usize::from(is_near)];
        let departs_ns = (self.now_ns + ahead_ns).max(*port);
        *port = departs_ns.saturating_add(model.port_ns(bytes));
        departs_ns.saturating_add(model.wire_ns(bytes)).saturating_add(model.latency_ns)
    }

    /// The due time, including the delay that the seed adds.
    fn draw_due(&mut self, arrives_ns: u64) -> Due {
        self.sequence += 1;
        let max = self.options.delay_max_ns;
        let (delay, tie) = if max == 0 {
            (0, 0)
        } else {
            // Every order of magnitude is equally likely.
            let scale = self.random.up_to(u64::from(u64::BITS - max.leading_zeros() - 1));
            (self.random.up_to(max >> scale), self.random.next())
        };
        Due { at_ns: arrives_ns.saturating_add(delay), tie, sequence: self.sequence }
    }

    fn dispatch(&mut self, arrives_ns: u64, parcel: Parcel) {
        if matches!(parcel, Parcel::Effect { .. }) && self.is_ordered() {
            self.held.push(parcel);
            return;
        }
        let due = self.draw_due(arrives_ns);
        self.insert(due, parcel);
    }

    /// Returns whether the script decides the order of effects and messages.
    pub(super) fn is_ordered(&self) -> bool {
        self.script.as_ref().is_some_and(|script| script.orders())
    }

    /// Lets the script choose the next effect or message, which is due at once. Returns whether
    /// there is one.
    pub(in crate::sim) fn release_one(&mut self) -> bool {
        if self.held.is_empty() {
            return false;
        }
        // No message overtakes an earlier one.
        let is_first = |place: &usize| {
            let direction = self.held[*place].direction();
            direction.is_none() || self.held[..*place].iter().all(|earlier| earlier.direction() != direction)
        };
        let places: Vec<usize> = (0..self.held.len()).filter(is_first).collect();
        let choice = self.script.as_ref().filter(|script| script.orders()).map(|script| script.choose(places.len()));
        let parcel = self.held.remove(places[choice.unwrap_or(0)]);
        self.sequence += 1;
        self.insert(Due { at_ns: self.now_ns, tie: 0, sequence: self.sequence }, parcel);
        true
    }

    /// Sends a parcel of `bytes` bytes that must not overtake earlier ones sent by this function.
    pub(super) fn dispatch_in_order(&mut self, from: ProcessId, to: ProcessId, bytes: usize, parcel: Parcel) {
        if self.is_ordered() {
            self.held.push(parcel);
            return;
        }
        let arrives_ns = self.arrival(from, to, bytes);
        let mut due = self.draw_due(arrives_ns);
        self.directions.entry((from, to)).or_default().line_up(&mut due);
        self.insert(due, parcel);
    }

    fn insert(&mut self, due: Due, parcel: Parcel) {
        for process in self.concerned(&parcel).into_iter().flatten() {
            let process = self.process(process);
            process.under_way += 1;
            // Where threads take turns, only an arrival is an event.
            process.sleepers.notify();
        }
        self.under_way.insert(due, parcel);
    }

    /// The processes that can move the parcel on, and must not sleep while it is in transit.
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

    /// Lets the next event happen, if there is one.
    fn deliver_next(&mut self) {
        let Some((&due, _)) = self.under_way.first_key_value() else { return };
        let Some(parcel) = self.take_out(due) else { return };
        self.now_ns = self.now_ns.max(due.at_ns);
        let words = parcel.words();
        self.trace.note_delivery(&[self.now_ns, words[0], words[1], words[2], words[3]]);
        let attentive = self.process(parcel.destination()).alive
            && (self.options.needs_target_progress || !matches!(parcel, Parcel::Effect { .. }));
        if attentive {
            let process = parcel.destination();
            self.process(process).arrived.push_back(parcel);
            self.stir(process);
        } else {
            self.accept(parcel);
        }
    }

    /// Applies the effect of a parcel.
    pub(super) fn accept(&mut self, parcel: Parcel) {
        match parcel {
            Parcel::Effect { transfer, piece, .. } => self.take_effect(transfer, piece),
            Parcel::Reply { transfer, .. } => self.end_transfer(transfer),
            Parcel::Message { from, to, message } => {
                let process = self.process(to);
                if process.alive && process.check_peer(from).is_ok() {
                    process.inbox.push_back(Event::Message { from, message });
                    self.stir(to);
                } else {
                    self.clear_one(from, to);
                }
            }
            Parcel::Revoke { key, to } => {
                let process = self.process(to);
                process.attached.remove(&key);
                process.closing.push(key);
                // This message may have overtaken the reply to a process that is attaching the
                // region.
                let attaches = |transfer: &&mut Transfer| {
                    transfer.from == to && transfer.key == key && matches!(transfer.request, Request::Attach)
                };
                if let Some(transfer) = self.transfers.values_mut().find(attaches) {
                    transfer.error.get_or_insert(FabricError::StaleKey { key });
                }
                self.release_revoked(to);
            }
            Parcel::Released { key, by } => {
                let owner = self.process(key.process);
                owner.regions.released(by, key.into());
                self.stir(key.process);
            }
            Parcel::Disconnected { with, to } => {
                if self.process(to).alive {
                    self.process(to).lose_peer(with);
                    self.stir(to);
                }
            }
        }
    }

    fn take_effect(&mut self, id: TransferId, piece: Range<usize>) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        let target = transfer.key.process;
        let process = &mut self.processes[target.index()];
        if process.alive {
            transfer.take_effect(piece, &mut process.regions);
        } else {
            transfer.error.get_or_insert(FabricError::Disconnected { process: target });
        }
        transfer.pieces_left -= 1;
        if transfer.pieces_left == 0 {
            let to = transfer.from;
            let (_, bytes) = transfer.request.bytes_there_and_back();
            let held_ns = self.time_at_target(id);
            let arrives_ns = self.arrival(target, to, bytes).saturating_add(held_ns);
            self.dispatch(arrives_ns, Parcel::Reply { transfer: id, to });
        }
    }

    /// The time that a target takes for a transfer that has reached it now: its turn on a word that
    /// others change, and what the operation takes.
    ///
    /// The effect is visible from the arrival on, in the order of the turns. Only the initiator
    /// learns of it later.
    fn time_at_target(&mut self, id: TransferId) -> u64 {
        let Some(transfer) = self.transfers.get(&id) else { return 0 };
        let model = self.options.between(transfer.from, transfer.key.process);
        let own_ns = model.target_ns(&transfer.request);
        let Some(offset) = transfer.request.word().filter(|_| model.word_ns > 0) else { return own_ns };
        if self.words.len() >= self.words_max.max(WORDS_MAX) {
            self.words.retain(|_, free_ns| *free_ns > self.now_ns);
            self.words_max = 2 * self.words.len();
        }
        let free_ns = self.words.entry((transfer.key, offset)).or_default();
        let turn_ns = self.now_ns.max(*free_ns);
        *free_ns = turn_ns.saturating_add(model.word_ns);
        (turn_ns - self.now_ns).saturating_add(own_ns)
    }

    fn end_transfer(&mut self, id: TransferId) {
        let Some(mut transfer) = self.transfers.remove(&id) else { return };
        self.release_revoked(transfer.from);
        let Some(completion) = transfer.completion.take() else { return };
        let process = self.process(transfer.from);
        match &transfer.request {
            Request::Attach if transfer.error.is_none() => {
                process.attached.insert(transfer.key);
            }
            Request::Attach => {}
            _ => process.operations -= 1,
        }
        let error = transfer.error.take();
        completion.end(error.map_or_else(|| Ok(transfer.request.into_outcome()), Err));
        self.stir(transfer.from);
    }

    /// Reports that a process has released the withdrawn regions to which it has nothing in
    /// transit.
    pub(super) fn release_revoked(&mut self, process: ProcessId) {
        if self.process(process).closing.is_empty() {
            return;
        }
        let closing = std::mem::take(&mut self.process(process).closing);
        let (busy, idle): (Vec<RemoteKey>, Vec<RemoteKey>) = closing
            .into_iter()
            .partition(|key| self.transfers.values().any(|transfer| transfer.from == process && transfer.key == *key));
        self.process(process).closing = busy;
        for key in idle {
            self.dispatch_in_order(process, key.process, 0, Parcel::Released { key, by: process });
        }
    }

    /// Removes a message between these two from the count: it was received, or lost with one of
    /// them.
    pub(super) fn clear_one(&mut self, from: ProcessId, to: ProcessId) {
        self.directions.entry((from, to)).or_default().waiting -= 1;
        let sender = self.process(from);
        if std::mem::take(&mut sender.awaits_room) {
            sender.has_room = true;
            self.stir(from);
        }
    }
}
