//! Collectives: operations in which all workers of a job take part, each in the same order.
//!
//! They are made of calls, so they need nothing else from a transport. A worker that waits in one
//! runs calls meanwhile. A barrier is a dissemination barrier: in round `k` every worker notifies
//! the worker `2^k` places after it.

use std::collections::HashMap;

use farside_fabric::WorkerId;

use crate::error::{Error, Result};
use crate::invoke::named::{Named, Names};
use crate::runtime::worker::Worker;
use crate::wire::check::MessageKind;
use crate::wire::{self, Decoder, Schema, Wire, WireError, from_bytes, to_bytes};

/// A worker's state of collectives: what has arrived for those that it is in or has not reached
/// yet.
#[derive(Debug, Default)]
pub(crate) struct Collectives {
    /// The number of barriers that this worker has entered.
    barriers: u64,
    /// The number of announcements of round `k` of a barrier. Each round always has the same
    /// sender, and calls keep their order, so a count is enough.
    arrived: Vec<u64>,
    /// The number of exchanges of values that this worker has begun.
    exchanges: u64,
    /// Values that have arrived, by exchange and sender.
    values: HashMap<(u64, WorkerId), Value>,
    /// The number of those values that came from other binaries.
    foreign_values: usize,
    foreign_bytes: usize,
    /// Whether a value was dropped because too much had arrived. No later collective can complete
    /// then.
    is_overrun: bool,
}

#[derive(Debug)]
struct Value {
    bytes: Vec<u8>,
    /// Whether the value came from another binary.
    is_foreign: bool,
}

/// Bounds on what processes of other binaries may send to a worker for collectives that it has not
/// reached. Processes of the same binary are trusted to take part in the same collectives; those of
/// others are not.
const FOREIGN_VALUES_MAX: usize = 1 << 16;
const FOREIGN_BYTES_MAX: usize = 256 << 20;

impl Collectives {
    fn make_room_for(&mut self, rounds: usize) {
        if self.arrived.len() < rounds {
            self.arrived.resize(rounds, 0);
        }
    }

    /// Keeps a value that another binary sent. Drops it if its exchange is past.
    fn keep_foreign(&mut self, exchange: u64, from: WorkerId, bytes: Vec<u8>) {
        if exchange < self.exchanges {
            return;
        }
        self.take(exchange, from);
        let (count, total) = (self.foreign_values + 1, self.foreign_bytes + bytes.len());
        if count > FOREIGN_VALUES_MAX || total > FOREIGN_BYTES_MAX {
            self.is_overrun = true;
            return;
        }
        (self.foreign_values, self.foreign_bytes) = (count, total);
        self.values.insert((exchange, from), Value { bytes, is_foreign: true });
    }

    fn take(&mut self, exchange: u64, from: WorkerId) -> Option<Vec<u8>> {
        let Value { bytes, is_foreign } = self.values.remove(&(exchange, from))?;
        if is_foreign {
            self.foreign_values -= 1;
            self.foreign_bytes -= bytes.len();
        }
        Some(bytes)
    }
}

impl Worker {
    /// Waits until every worker of the job has called `barrier`. Earlier calls, one-way calls
    /// included, need not have run by then: use a [`Synchronizer`](crate::Synchronizer) for that.
    ///
    /// *Cost*: one call in each of log₂(workers) rounds.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if any process of the job is lost; [`Error::Deadline`];
    /// [`Error::InHandler`].
    pub fn barrier(&self) -> Result<()> {
        self.begin_collective("a barrier")?;
        let count = self.worker_count();
        let rounds = count.next_power_of_two().trailing_zeros();
        let passed = {
            let mut collectives = self.collectives.borrow_mut();
            collectives.barriers += 1;
            collectives.make_room_for(rounds as usize);
            collectives.barriers
        };
        for round in 0..rounds {
            self.tell(self.neighbor(1 << round), ARRIVED, round, announce_arrival)?;
            self.wait_for_all("waiting at a barrier", |worker| {
                (worker.collectives.borrow().arrived[round as usize] >= passed).then_some(())
            })?;
        }
        self.wait_until_sent((0..rounds).map(|round| self.neighbor(1 << round)))
    }

    /// Sends `value` of worker `root` to all workers and returns it. The values of the other
    /// workers are ignored.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let root = WorkerId::new(0);
    /// let seed = me.broadcast(root, (me.id() == root).then_some(42_u64))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// *Cost*: a tree of calls. Each worker receives the value once and passes it on to at most
    /// log₂(workers) others.
    ///
    /// # Errors
    /// Those of [`barrier`](Self::barrier); [`Error::UnknownWorker`] if there is no such root.
    ///
    /// # Panics
    /// If the root has no value.
    pub fn broadcast<T: Wire>(&self, root: WorkerId, value: Option<T>) -> Result<T> {
        self.begin_collective("a broadcast")?;
        let exchange = self.begin_exchange(root)?;
        let bytes = if self.id() == root {
            self.bytes_of(value.expect("the root of a broadcast must pass a value"))?
        } else {
            self.wait_for_value(exchange, self.parent(root))?
        };
        let children = self.children(root);
        for child in &children {
            self.send_value(*child, exchange, bytes.clone())?;
        }
        self.wait_until_sent(children.into_iter())?;
        self.value_of(root, &bytes)
    }

    /// Sends the values of all workers to worker `root`. The root gets them in the order of the
    /// workers, the others get `None`.
    ///
    /// # Errors
    /// Those of [`broadcast`](Self::broadcast).
    pub fn gather<T: Wire>(&self, root: WorkerId, value: T) -> Result<Option<Vec<T>>> {
        self.begin_collective("a gather")?;
        let exchange = self.begin_exchange(root)?;
        if self.id() != root {
            self.send_value(root, exchange, self.bytes_of(value)?)?;
            self.wait_until_sent([root].into_iter())?;
            return Ok(None);
        }
        let mut own = Some(value);
        let mut gathered = Vec::with_capacity(self.worker_count() as usize);
        for from in self.workers() {
            gathered.push(match own.take_if(|_| from == root) {
                Some(own) => own,
                None => {
                    let bytes = self.wait_for_value(exchange, from)?;
                    self.value_of(from, &bytes)?
                }
            });
        }
        Ok(Some(gathered))
    }

    /// Combines the values of all workers, always in the same order, and returns the result on all
    /// workers.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let total = me.all_reduce(me.counters().executed, |a, b| a + b)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// *Cost*: a tree of calls towards the root, and a broadcast.
    ///
    /// # Errors
    /// Those of [`barrier`](Self::barrier).
    pub fn all_reduce<T: Wire>(&self, value: T, mut combine: impl FnMut(T, T) -> T) -> Result<T> {
        self.begin_collective("an all_reduce")?;
        let root = WorkerId::new(0);
        let exchange = self.begin_exchange(root)?;
        let mut combined = value;
        for child in self.children(root) {
            let bytes = self.wait_for_value(exchange, child)?;
            combined = combine(combined, self.value_of(child, &bytes)?);
        }
        if self.id() == root {
            return self.broadcast(root, Some(combined));
        }
        self.send_value(self.parent(root), exchange, self.bytes_of(combined)?)?;
        self.broadcast(root, None)
    }

    fn begin_collective(&self, what: &'static str) -> Result<()> {
        self.not_in_handler(what)?;
        if self.id().number() >= self.worker_count() {
            return Err(self.unknown(self.id()));
        }
        self.flush();
        Ok(())
    }

    fn begin_exchange(&self, root: WorkerId) -> Result<u64> {
        if root.number() >= self.worker_count() {
            return Err(self.unknown(root));
        }
        let mut collectives = self.collectives.borrow_mut();
        collectives.exchanges += 1;
        Ok(collectives.exchanges)
    }

    /// Returns this worker's place in the binomial tree whose root is `root`. The root has place 0.
    fn place_in_tree(&self, root: WorkerId) -> u32 {
        let count = self.worker_count();
        (self.id().number() + count - root.number()) % count
    }

    fn at_place(&self, root: WorkerId, place: u32) -> WorkerId {
        WorkerId::new(((root.number() as u64 + place as u64) % self.worker_count() as u64) as u32)
    }

    /// Returns the parent: the place without its lowest bit. Must not be called on the root.
    fn parent(&self, root: WorkerId) -> WorkerId {
        let place = self.place_in_tree(root);
        self.at_place(root, place & (place - 1))
    }

    /// Returns the children: the place with one bit added below its lowest bit.
    fn children(&self, root: WorkerId) -> Vec<WorkerId> {
        let (place, count) = (self.place_in_tree(root), self.worker_count());
        let bits = if place == 0 { u32::BITS - 1 } else { place.trailing_zeros() };
        let places = (0..bits).map(|bit| place as u64 + (1 << bit)).take_while(|child| *child < count as u64);
        places.map(|child| self.at_place(root, child as u32)).collect()
    }

    fn send_value(&self, to: WorkerId, exchange: u64, bytes: Vec<u8>) -> Result<()> {
        self.tell(to, VALUE, (exchange, self.id(), bytes), keep_value)
    }

    /// Calls a function of this file on another worker; by its name if that worker runs another
    /// binary.
    fn tell<A: Wire>(&self, to: WorkerId, name: Named<A>, arguments: A, function: fn(&Self, A)) -> Result<()> {
        match self.runs_same_binary(to) {
            true => Ok(self.internal(to).call(arguments, function)?),
            false => Ok(self.internal(to).call_named(name, arguments)?),
        }
    }

    /// Encodes a value so that all processes of the job can read it.
    fn bytes_of<T: Wire>(&self, value: T) -> Result<Vec<u8>> {
        if !self.process_handle().is_mixed() {
            return Ok(to_bytes(value));
        }
        let schema = Schema::of::<T>();
        match schema.unportable() {
            None => Ok(wire::encode(&value, wire::encode(&schema.hash(), Vec::new()))),
            Some(type_name) => Err(Error::NotPortable { name: "a collective in a job of several binaries", type_name }),
        }
    }

    fn wait_for_value(&self, exchange: u64, from: WorkerId) -> Result<Vec<u8>> {
        self.wait_for_all("waiting for the value of another worker", |worker| {
            worker.collectives.borrow_mut().take(exchange, from)
        })
    }

    fn value_of<T: Wire>(&self, from: WorkerId, bytes: &[u8]) -> Result<T> {
        let value = if self.process_handle().is_mixed() {
            portable_value_of(self, bytes)
        } else {
            // SAFETY: the same collective wrote the bytes on another worker, with the same type.
            // Both workers run one program, in which all workers take part in the collectives in
            // the same order.
            unsafe { from_bytes(bytes) }
        };
        value.map_err(|cause| Error::Wire { from, cause })
    }

    /// Waits until nothing is staged for these receivers.
    ///
    /// A call stays staged here while its ring is not set up. If this worker then made no progress
    /// after the collective, the receivers would wait in it for as long.
    fn wait_until_sent(&self, receivers: impl Iterator<Item = WorkerId> + Clone) -> Result<()> {
        let waits = |to| self.outbox(to).is_some_and(|outbox| outbox.has_staged());
        self.wait_for_all("waiting for the ring to another worker", |_| (!receivers.clone().any(waits)).then_some(()))
    }

    /// Returns an error if a value was dropped: collectives cannot continue then.
    fn collective_overrun(&self) -> Option<Error> {
        self.collectives.borrow().is_overrun.then(|| Error::CollectiveOverrun {
            worker: self.id(),
            values: FOREIGN_VALUES_MAX,
            bytes: FOREIGN_BYTES_MAX,
        })
    }

    /// Waits for a condition that depends on every worker of the job.
    fn wait_for_all<T>(&self, doing: &'static str, mut look: impl FnMut(&Self) -> Option<T>) -> Result<T> {
        self.wait_until(doing, self.default_deadline(), |worker| match look(worker) {
            Some(found) => Some(Ok(found)),
            None => worker.collective_overrun().or_else(|| worker.any_lost()).map(Err),
        })
    }
}

/// Decodes a value from a process of any binary.
fn portable_value_of<T: Wire>(here: &Worker, bytes: &[u8]) -> Result<T, WireError> {
    let mut input = Decoder::new(bytes).within(here);
    match u64::decode(&mut input) {
        Ok(hash) if hash == Schema::of::<T>().hash() => wire::decode(input, 0),
        _ => Err(WireError::other_type::<T>()),
    }
}

/// Announces round `k` of a barrier.
const ARRIVED: Named<u32> = Named::new("farside/arrived");
/// Carries a value: its exchange, its sender and its bytes.
const VALUE: Named<(u64, WorkerId, Vec<u8>)> = Named::new("farside/value");

/// The arguments of those functions, for tests of their decoders.
pub(crate) fn message_kinds() -> Vec<MessageKind> {
    vec![MessageKind::of::<u32>(), MessageKind::of::<(u64, WorkerId, Vec<u8>)>()]
}

/// Registers the functions that collectives call in processes of other binaries.
pub(crate) fn register(names: &mut Names) {
    names.add(ARRIVED, announce_arrival);
    names.add(VALUE, keep_foreign_value);
}

fn announce_arrival(there: &Worker, round: u32) {
    // Another binary may send any number.
    if round >= u32::BITS {
        return;
    }
    let mut collectives = there.collectives.borrow_mut();
    collectives.make_room_for(round as usize + 1);
    collectives.arrived[round as usize] += 1;
}

fn keep_value(there: &Worker, (exchange, from, bytes): (u64, WorkerId, Vec<u8>)) {
    there.collectives.borrow_mut().values.insert((exchange, from), Value { bytes, is_foreign: false });
}

fn keep_foreign_value(there: &Worker, (exchange, from, bytes): (u64, WorkerId, Vec<u8>)) {
    there.collectives.borrow_mut().keep_foreign(exchange, from, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: WorkerId = WorkerId::new(3);

    #[test]
    fn messages_of_another_binary_are_bounded() {
        let mut collectives = Collectives { exchanges: 5, ..Collectives::default() };
        let half = FOREIGN_BYTES_MAX / 2;
        collectives.keep_foreign(5, FROM, vec![1; half]);
        collectives.keep_foreign(6, FROM, vec![2; half]);
        // A second value of the same exchange and sender replaces the first.
        collectives.keep_foreign(6, FROM, vec![3; half]);
        assert!(!collectives.is_overrun);
        assert_eq!(collectives.take(6, FROM), Some(vec![3; half]));
        assert_eq!((collectives.foreign_values, collectives.foreign_bytes), (1, half));
        collectives.keep_foreign(7, FROM, vec![4; half]);
        assert!(!collectives.is_overrun);
        collectives.keep_foreign(8, FROM, vec![5]);
        assert!(collectives.is_overrun);
        assert_eq!(collectives.take(8, FROM), None);
    }

    #[test]
    fn values_are_counted_and_past_ones_dropped() {
        let mut collectives = Collectives { exchanges: 5, ..Collectives::default() };
        (0..5).for_each(|exchange| collectives.keep_foreign(exchange, FROM, vec![1]));
        assert_eq!((collectives.values.len(), collectives.foreign_values), (0, 0));
        let last = 5 + FOREIGN_VALUES_MAX as u64;
        (5..last).for_each(|exchange| collectives.keep_foreign(exchange, FROM, Vec::new()));
        assert!(!collectives.is_overrun);
        assert_eq!(collectives.take(5, FROM), Some(Vec::new()));
        collectives.keep_foreign(last, FROM, Vec::new());
        assert!(!collectives.is_overrun);
        collectives.keep_foreign(last + 1, FROM, Vec::new());
        assert!(collectives.is_overrun);
    }
}
