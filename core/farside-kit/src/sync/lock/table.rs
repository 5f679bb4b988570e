//! The locks of one home: their holders and waiters. No I/O, and no clock but the `now` that is
//! passed in.
//!
//! A lock is in the table while it is held. A request that cannot be granted is queued, and granted
//! in the order of the queue. A request to share a lock also waits behind an earlier request to
//! have it alone, so that the latter's turn comes.
//!
//! Every grant has a number, which grows with each grant of any lock here. Holders that share a
//! lock at the same time have the same number, since none comes after another.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use farside_fabric::WorkerId;

/// The largest number of held locks at one home. A lock counts once for each holder.
pub(crate) const LOCKS_MAX: usize = 1 << 16;
/// The largest number of waiters at one home.
pub(crate) const WAITERS_MAX: usize = 1 << 16;

/// The mode of a lock: for one holder alone, or shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Alone,
    Shared,
}

/// A request for a lock, identified uniquely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LockRequest {
    pub(crate) worker: WorkerId,
    pub(crate) number: u64,
}

/// The immediate outcome of a request. `R` is the reply to it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked<R> {
    Granted(R, u64),
    Queued,
    Full(R),
}

/// Replies to send, each with the number of its grant.
pub(crate) type Grants<R> = Vec<(R, u64)>;

#[derive(Debug)]
pub(crate) struct Table<R> {
    locks: HashMap<String, Lock<R>>,
    /// The number of the last grant.
    granted: u64,
    /// The number of holders of all locks.
    held: usize,
    waiting: usize,
}

#[derive(Debug)]
struct Lock<R> {
    mode: Mode,
    /// Never empty.
    holders: Vec<Holder>,
    /// The number of the holders' grant.
    number: u64,
    queue: VecDeque<Waiter<R>>,
}

#[derive(Debug)]
struct Holder {
    request: LockRequest,
    since: Instant,
}

#[derive(Debug)]
struct Waiter<R> {
    request: LockRequest,
    mode: Mode,
    reply: R,
}

impl<R> Default for Table<R> {
    fn default() -> Self {
        Self { locks: HashMap::new(), granted: 0, held: 0, waiting: 0 }
    }
}

impl<R> Table<R> {
    /// Asks for a lock.
    pub(crate) fn ask(&mut self, name: String, request: LockRequest, mode: Mode, reply: R, now: Instant) -> Asked<R> {
        if let Some(number) = self.try_grant(&name, request, mode, now) {
            return Asked::Granted(reply, number);
        }
        match self.locks.get_mut(&name) {
            // A request that only the limit of held locks keeps from sharing must not wait: none of
            // those locks may ever be released.
            Some(lock) if self.waiting < WAITERS_MAX && !lock.lets_in(mode) => {
                lock.queue.push_back(Waiter { request, mode, reply });
                self.waiting += 1;
                Asked::Queued
            }
            _ => Asked::Full(reply),
        }
    }

    /// Grants a lock if it is available at once. Returns the number of the grant.
    pub(crate) fn try_grant(&mut self, name: &str, request: LockRequest, mode: Mode, now: Instant) -> Option<u64> {
        let holder = Holder { request, since: now };
        if self.held >= LOCKS_MAX {
            return None;
        }
        if let Some(lock) = self.locks.get_mut(name) {
            return lock.lets_in(mode).then(|| {
                lock.holders.push(holder);
                self.held += 1;
                lock.number
            });
        }
        self.granted += 1;
        self.held += 1;
        let lock = Lock { mode, holders: vec![holder], number: self.granted, queue: VecDeque::new() };
        self.locks.insert(name.to_owned(), lock);
        Some(self.granted)
    }

    /// Returns the holder of a lock, or one of those that share it.
    pub(crate) fn owner(&self, name: &str) -> Option<WorkerId> {
        self.locks.get(name).map(|lock| lock.holders[0].request.worker)
    }

    /// Ends a request, granted or not. Returns whether it was granted, and the next grants.
    pub(crate) fn leave(&mut self, name: &str, request: LockRequest, now: Instant) -> (bool, Grants<R>) {
        let Some(lock) = self.locks.get_mut(name) else { return (false, Vec::new()) };
        let held = lock.holders.len();
        lock.holders.retain(|holder| holder.request != request);
        let was_held = lock.holders.len() < held;
        self.held -= held - lock.holders.len();
        if !was_held {
            self.waiting -= lock.forget(|waiter| waiter == request);
        }
        (was_held, self.advance(name, now))
    }

    /// Renews the lease of a holder. Returns whether it still holds the lock.
    pub(crate) fn renew(&mut self, name: &str, request: LockRequest, now: Instant) -> bool {
        let holder =
            self.locks.get_mut(name).and_then(|lock| lock.holders.iter_mut().find(|holder| holder.request == request));
        holder.map(|holder| holder.since = now).is_some()
    }

    /// Revokes a lock from holders whose lease is over, if others wait for it.
    pub(crate) fn revoke(&mut self, name: &str, lease: Duration, now: Instant) -> Grants<R> {
        let Some(lock) = self.locks.get_mut(name) else { return Vec::new() };
        if !lock.queue.is_empty() {
            let held = lock.holders.len();
            lock.holders.retain(|holder| now.saturating_duration_since(holder.since) < lease);
            self.held -= held - lock.holders.len();
        }
        self.advance(name, now)
    }

    /// Ends the requests of lost workers.
    pub(crate) fn lose(&mut self, is_lost: impl Fn(WorkerId) -> bool, now: Instant) -> Grants<R> {
        let mut names = Vec::new();
        for (name, lock) in &mut self.locks {
            let held = lock.holders.len();
            lock.holders.retain(|holder| !is_lost(holder.request.worker));
            let forgotten = lock.forget(|waiter| is_lost(waiter.worker));
            self.waiting -= forgotten;
            self.held -= held - lock.holders.len();
            if lock.holders.len() < held || forgotten > 0 {
                names.push(name.clone());
            }
        }
        names.into_iter().flat_map(|name| self.advance(&name, now)).collect()
    }

    /// Grants a lock to the waiters whose turn it is.
    fn advance(&mut self, name: &str, now: Instant) -> Grants<R> {
        let mut grants = Vec::new();
        let Some(lock) = self.locks.get_mut(name) else { return grants };
        while let Some(Waiter { mode, .. }) = lock.queue.front() {
            let mode = *mode;
            let is_free = lock.holders.is_empty();
            if !is_free && (lock.mode, mode) != (Mode::Shared, Mode::Shared) {
                break;
            }
            if is_free {
                self.granted += 1;
                (lock.mode, lock.number) = (mode, self.granted);
            }
            let Some(Waiter { request, reply, .. }) = lock.queue.pop_front() else { break };
            self.waiting -= 1;
            self.held += 1;
            lock.holders.push(Holder { request, since: now });
            grants.push((reply, lock.number));
        }
        if lock.holders.is_empty()
            && let Entry::Occupied(entry) = self.locks.entry(name.to_owned())
        {
            entry.remove();
        }
        grants
    }
}

impl<R> Lock<R> {
    /// Returns whether a request of this mode can share the lock at once.
    fn lets_in(&self, mode: Mode) -> bool {
        (self.mode, mode) == (Mode::Shared, Mode::Shared) && self.queue.is_empty()
    }

    /// Removes waiters from the queue. Returns their number.
    fn forget(&mut self, which: impl Fn(LockRequest) -> bool) -> usize {
        let before = self.queue.len();
        self.queue.retain(|waiter| !which(waiter.request));
        before - self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// An event at a table.
    #[derive(Clone, Debug)]
    enum Event {
        Ask {
            name: usize,
            worker: u32,
            shared: bool,
        },
        Try {
            name: usize,
            worker: u32,
            shared: bool,
        },
        /// The request made `back` events ago, if it still exists.
        Leave {
            back: usize,
        },
        Lose {
            worker: u32,
        },
        Revoke {
            name: usize,
            after_ms: u64,
        },
        Renew {
            back: usize,
        },
    }

    const NAMES: [&str; 3] = ["a", "b", ""];
    const LEASE: Duration = Duration::from_millis(10);

    fn event() -> impl Strategy<Value = Event> {
        let (name, worker) = (0..NAMES.len(), 0..6_u32);
        prop_oneof![
            6 => (name.clone(), worker.clone(), any::<bool>())
                .prop_map(|(name, worker, shared)| Event::Ask { name, worker, shared }),
            2 => (name.clone(), worker.clone(), any::<bool>())
                .prop_map(|(name, worker, shared)| Event::Try { name, worker, shared }),
            6 => (0..12_usize).prop_map(|back| Event::Leave { back }),
            1 => worker.prop_map(|worker| Event::Lose { worker }),
            1 => (name, 0..30_u64).prop_map(|(name, after_ms)| Event::Revoke { name, after_ms }),
            1 => (0..12_usize).prop_map(|back| Event::Renew { back }),
        ]
    }

    /// All requests that are not over, in the order in which they were made: a second specification
    /// of a lock.
    #[derive(Debug, Default)]
    struct Oracle {
        requests: Vec<Known>,
        last_number: u64,
    }

    #[derive(Clone, Copy, Debug)]
    struct Known {
        name: usize,
        request: LockRequest,
        mode: Mode,
        /// The number of its grant, and the time when it was made or renewed.
        granted: Option<(u64, Instant)>,
    }

    impl Oracle {
        fn of(&self, name: usize) -> impl Iterator<Item = &Known> {
            self.requests.iter().filter(move |known| known.name == name)
        }

        /// Grants every request that can be granted, in order, and returns those grants.
        fn settle(&mut self, name: usize, now: Instant) -> Vec<(LockRequest, u64)> {
            let mut grants = Vec::new();
            let mut holders: Vec<_> = self.of(name).filter(|known| known.granted.is_some()).copied().collect();
            for known in self.requests.iter_mut().filter(|known| known.name == name && known.granted.is_none()) {
                let number = match holders.first() {
                    None => {
                        self.last_number += 1;
                        self.last_number
                    }
                    Some(holder) if (holder.mode, known.mode) == (Mode::Shared, Mode::Shared) => {
                        holder.granted.unwrap().0
                    }
                    Some(_) => break,
                };
                known.granted = Some((number, now));
                holders.push(*known);
                grants.push((known.request, number));
            }
            grants
        }
    }

    fn sorted(mut grants: Vec<(LockRequest, u64)>) -> Vec<(LockRequest, u64)> {
        grants.sort_by_key(|(request, _)| request.number);
        grants
    }

    proptest! {
        #[test]
        fn a_table_does_what_the_queue_of_all_wishes_says(events in prop::collection::vec(event(), 1..120)) {
            let mut table = Table::<LockRequest>::default();
            let mut oracle = Oracle::default();
            let mut now = farside_testbed::deadline();
            let mut made: Vec<Known> = Vec::new();
            for (number, event) in (0..).zip(events) {
                now += Duration::from_millis(1);
                let pick = |back: usize| made.iter().rev().nth(back).copied();
                match event {
                    Event::Ask { name, worker, shared } => {
                        let mode = if shared { Mode::Shared } else { Mode::Alone };
                        let request = LockRequest { worker: WorkerId::new(worker), number };
                        let known = Known { name, request, mode, granted: None };
                        made.push(known);
                        oracle.requests.push(known);
                        let expected = match oracle.settle(name, now)[..] {
                            [] => Asked::Queued,
                            [(request, number)] => Asked::Granted(request, number),
                            _ => unreachable!("one request more is one grant at most"),
                        };
                        prop_assert_eq!(table.ask(NAMES[name].into(), request, mode, request, now), expected);
                    }
                    Event::Try { name, worker, shared } => {
                        let mode = if shared { Mode::Shared } else { Mode::Alone };
                        let request = LockRequest { worker: WorkerId::new(worker), number };
                        let known = Known { name, request, mode, granted: None };
                        oracle.requests.push(known);
                        let granted = oracle.settle(name, now).pop().map(|(_, number)| number);
                        if granted.is_none() {
                            oracle.requests.pop();
                        } else {
                            made.push(known);
                        }
                        prop_assert_eq!(table.try_grant(NAMES[name], request, mode, now), granted);
                    }
                    Event::Leave { back } => {
                        let Some(known) = pick(back) else { continue };
                        let held = oracle.requests.iter().find(|other| other.request == known.request);
                        let was_held = held.is_some_and(|known| known.granted.is_some());
                        oracle.requests.retain(|other| other.request != known.request);
                        let expected = (was_held, oracle.settle(known.name, now));
                        prop_assert_eq!(table.leave(NAMES[known.name], known.request, now), expected);
                    }
                    Event::Lose { worker } => {
                        let worker = WorkerId::new(worker);
                        // Each affected lock grants by itself; their order is not specified.
                        let concerned: HashSet<_> =
                            oracle.requests.iter().filter(|known| known.request.worker == worker).map(|known| known.name).collect();
                        oracle.requests.retain(|known| known.request.worker != worker);
                        let grants = table.lose(|other| other == worker, now);
                        let mut order: Vec<usize> = concerned.into_iter().collect();
                        order.sort_by_key(|name| {
                            grants.iter().position(|(request, _)| oracle.of(*name).any(|known| known.request == *request))
                        });
                        let expected = order.into_iter().flat_map(|name| oracle.settle(name, now)).collect();
                        prop_assert_eq!(sorted(grants), sorted(expected));
                    }
                    Event::Revoke { name, after_ms } => {
                        now += Duration::from_millis(after_ms);
                        if oracle.of(name).any(|known| known.granted.is_none()) {
                            oracle.requests.retain(|known| {
                                known.name != name || known.granted.is_none_or(|(_, since)| now - since < LEASE)
                            });
                        }
                        prop_assert_eq!(table.revoke(NAMES[name], LEASE, now), oracle.settle(name, now));
                    }
                    Event::Renew { back } => {
                        let Some(known) = pick(back) else { continue };
                        let own = oracle.requests.iter_mut().find(|other| other.request == known.request);
                        let granted = own.and_then(|known| known.granted.as_mut());
                        let expected = granted.map(|(_, since)| *since = now).is_some();
                        prop_assert_eq!(table.renew(NAMES[known.name], known.request, now), expected);
                    }
                }
                for (name, text) in NAMES.iter().enumerate() {
                    let holders: Vec<_> = oracle.of(name).filter(|known| known.granted.is_some()).collect();
                    let owner = table.owner(text);
                    prop_assert_eq!(owner.is_some(), !holders.is_empty());
                    prop_assert!(owner.is_none_or(|owner| holders.iter().any(|known| known.request.worker == owner)));
                    prop_assert!(holders.len() <= 1 || holders.iter().all(|known| known.mode == Mode::Shared));
                }
                let waiting = oracle.requests.iter().filter(|known| known.granted.is_none()).count();
                prop_assert_eq!((table.waiting, table.held), (waiting, oracle.requests.len() - waiting));
            }
        }
    }

    #[test]
    fn the_sharers_of_a_lock_are_limited() {
        let mut table = Table::default();
        let now = farside_testbed::deadline();
        let request = |number| LockRequest { worker: WorkerId::new(0), number };
        for number in 0..LOCKS_MAX as u64 {
            assert_eq!(table.try_grant("book", request(number), Mode::Shared, now), Some(1));
        }
        let more = request(LOCKS_MAX as u64);
        assert_eq!(table.try_grant("book", more, Mode::Shared, now), None);
        assert_eq!(table.ask("book".to_owned(), more, Mode::Shared, 'r', now), Asked::Full('r'));
        assert_eq!(table.leave("book", request(7), now), (true, Vec::new()));
        assert_eq!(table.ask("book".to_owned(), more, Mode::Shared, 'r', now), Asked::Granted('r', 1));
    }

    #[test]
    fn a_full_table_refuses_and_gives_the_reply_back() {
        let mut table = Table::default();
        let now = farside_testbed::deadline();
        let request = |number| LockRequest { worker: WorkerId::new(0), number };
        for number in 0..LOCKS_MAX as u64 {
            assert!(table.try_grant(&number.to_string(), request(number), Mode::Alone, now).is_some());
        }
        assert_eq!(table.ask("one more".to_owned(), request(1), Mode::Alone, 'r', now), Asked::Full('r'));
        for number in 0..WAITERS_MAX as u64 {
            assert_eq!(table.ask("0".to_owned(), request(number + 1), Mode::Shared, 'r', now), Asked::Queued);
        }
        assert_eq!(table.ask("0".to_owned(), request(1), Mode::Alone, 'r', now), Asked::Full('r'));
    }
}
