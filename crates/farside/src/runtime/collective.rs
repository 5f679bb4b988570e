//! Collectives: operations in which all workers of a job take part, each in the same order.
//!
//! They are made of calls, so they need nothing else from a transport. A worker that waits in one
//! runs calls meanwhile. A barrier is a dissemination barrier: in round `k` every worker notifies
//! the worker `2^k` places after it.
//!
//! A program may break the order: one worker is at a barrier where another one broadcasts. So each
//! message names its collective by number, kind and type. A worker that receives something else
//! than it takes part in returns [`Error::CollectiveMismatch`], and never takes a value of one type
//! for one of another.

mod messages;
mod quiescence;
mod state;
mod waiting;

use std::any::type_name;

use farside_fabric::WorkerId;

use self::messages::{ARRIVED, MISMATCH, VALUE, announce_arrival, keep_mismatch, keep_value};
pub(crate) use self::messages::{message_kinds, register};
pub(crate) use self::state::Collectives;
use self::state::{Content, FOREIGN_BYTES_MAX, FOREIGN_VALUES_MAX, Kind, Mismatch, Parcel};
use crate::error::{Error, Result};
use crate::invoke::call::WhenFull;
use crate::runtime::worker::Worker;
use crate::wire::{self, Decoder, Schema, Wire, WireError, from_bytes_in, to_bytes, type_hash};

impl Worker {
    /// Waits until every worker of the job has called `barrier`. Earlier calls need not have run by
    /// then; [`quiesce`](Self::quiesce) waits for those. A worker that has left the barrier may
    /// call one that has not.
    ///
    /// ```no_run
    /// # use std::cell::Cell;
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let greeted = PerWorker::new(me, Cell::new(false))?;
    /// me.call(me.neighbor(1), greeted, |there, greeted| greeted.here(there).set(true))?;
    /// me.barrier()?;
    /// // All workers have made their calls. That to this worker may still be on its way.
    /// me.quiesce()?;
    /// assert!(greeted.here(me).get());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// *Cost*: one call in each of log₂(workers) rounds.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if any process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker takes part in another collective; [`Error::Deadline`]; [`Error::InHandler`].
    /// In a job of several binaries also [`Error::CollectiveOverrun`].
    pub fn barrier(&self) -> Result<()> {
        self.may_begin("a barrier")?;
        let epoch = self.access_epoch();
        let number = self.collectives.borrow_mut().begin(Content::default());
        let rounds = self.worker_count().next_power_of_two().trailing_zeros();
        for round in 0..rounds {
            self.tell(self.neighbor(1 << round), ARRIVED, (number, round), announce_arrival)?;
            self.wait_for_all("waiting at a barrier", self.announcer(round), |worker| {
                worker.collectives.borrow_mut().is_announced(round as usize).then_some(())
            })?;
        }
        self.all_know_accesses(epoch);
        self.wait_until_sent((0..rounds).map(|round| self.neighbor(1 << round)))
    }

    /// Sends `value` of worker `root` to all workers and returns it. The values of the other
    /// workers are ignored.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let root = WorkerId::FIRST;
    /// let seed = me.broadcast(root, (me.id() == root).then_some(42_u64))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// *Cost*: a tree of calls. Each worker receives the value once and passes it on to at most
    /// log₂(workers) others.
    ///
    /// # Errors
    /// Those of [`barrier`](Self::barrier); [`Error::UnknownWorker`] if there is no such root. In a
    /// job of several binaries also [`Error::NotPortable`] and [`Error::Wire`].
    ///
    /// # Panics
    /// If the root has no value.
    pub fn broadcast<T: Wire + Clone>(&self, root: WorkerId, value: Option<T>) -> Result<T> {
        let parts = self.begin::<T>(Kind::Broadcast, root)?;
        let value = if self.id() == root {
            value.expect("the root of a broadcast must pass a value")
        } else {
            self.receive(&parts, self.parent(root))?
        };
        self.pass_on(&parts, root, &value)?;
        Ok(value)
    }

    /// Sends the values of all workers to worker `root`. The root gets them in the order of the
    /// workers, the others get `None`.
    ///
    /// # Errors
    /// Those of [`broadcast`](Self::broadcast).
    pub fn gather<T: Wire>(&self, root: WorkerId, value: T) -> Result<Option<Vec<T>>> {
        let parts = self.begin::<T>(Kind::Gather, root)?;
        if self.id() != root {
            self.send_value(&parts, root, value)?;
            self.wait_until_sent([root].into_iter())?;
            return Ok(None);
        }
        let mut own = Some(value);
        let mut gathered = Vec::with_capacity(self.worker_count() as usize);
        for from in self.workers() {
            gathered.push(match own.take_if(|_| from == root) {
                Some(own) => own,
                None => self.receive(&parts, from)?,
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
    /// Those of [`broadcast`](Self::broadcast).
    pub fn all_reduce<T: Wire + Clone>(&self, value: T, mut combine: impl FnMut(T, T) -> T) -> Result<T> {
        let root = WorkerId::FIRST;
        let up = self.begin::<T>(Kind::AllReduce, root)?;
        let mut combined = value;
        for child in self.children(root) {
            combined = combine(combined, self.receive(&up, child)?);
        }
        // The result comes down as a second collective: a value is identified only by the number of
        // its collective and its sender.
        let combined = if self.id() == root {
            Some(combined)
        } else {
            self.send_value(&up, self.parent(root), combined)?;
            None
        };
        let down = self.begin::<T>(Kind::AllReduce, root)?;
        let result = match combined {
            Some(result) => result,
            None => self.receive(&down, self.parent(root))?,
        };
        self.pass_on(&down, root, &result)?;
        Ok(result)
    }

    /// Refuses a collective where none can be waited for.
    fn may_begin(&self, what: &'static str) -> Result<()> {
        self.not_in_handler(what)?;
        if self.id().number() >= self.worker_count() {
            return Err(self.unknown(self.id()));
        }
        self.flush();
        self.collective_failure().map_or(Ok(()), Err)
    }

    /// Begins a collective in which values of type `T` travel.
    fn begin<T: Wire>(&self, kind: Kind, root: WorkerId) -> Result<Parts> {
        self.may_begin(match kind {
            Kind::Barrier => "a barrier",
            Kind::Broadcast => "a broadcast",
            Kind::Gather => "a gather",
            Kind::AllReduce => "an all_reduce",
        })?;
        if root.number() >= self.worker_count() {
            return Err(self.unknown(root));
        }
        let type_hash = match self.process_handle().is_mixed() {
            false => type_hash::<T>(),
            true => {
                let schema = Schema::of::<T>();
                if let Some(type_name) = schema.unportable() {
                    let name = "a collective in a job of several binaries";
                    return Err(Error::NotPortable { name, type_name });
                }
                schema.hash()
            }
        };
        let content = Content { kind, root: root.number(), type_hash, type_name: type_name::<T>().to_owned() };
        let number = self.collectives.borrow_mut().begin(content.clone());
        self.collective_failure().map_or(Ok(Parts { number, content }), Err)
    }

    /// Returns the worker that announces round `round` of a barrier to this one.
    fn announcer(&self, round: u32) -> WorkerId {
        let count = u64::from(self.worker_count());
        let back = (1_u64 << round) % count;
        WorkerId::new(((u64::from(self.id().number()) + count - back) % count) as u32)
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

    fn send_value<T: Wire>(&self, parts: &Parts, to: WorkerId, value: T) -> Result<()> {
        let bytes = match self.process_handle().is_mixed() {
            false => to_bytes(value),
            true => wire::encode(&value, Vec::new()),
        };
        let Parts { number, content } = parts.clone();
        self.tell(to, VALUE, Parcel { number, from: self.id(), content, bytes }, keep_value)
    }

    /// Sends a value to the children of this worker in the tree of `root`, and waits until it is
    /// sent.
    fn pass_on<T: Wire + Clone>(&self, parts: &Parts, root: WorkerId, value: &T) -> Result<()> {
        let children = self.children(root);
        for child in &children {
            self.send_value(parts, *child, value.clone())?;
        }
        self.wait_until_sent(children.into_iter())
    }

    /// Waits for the value of another worker.
    fn receive<T: Wire>(&self, parts: &Parts, from: WorkerId) -> Result<T> {
        let value = self.wait_for_all("waiting for the value of another worker", from, |worker| {
            worker.collectives.borrow_mut().take(from)
        })?;
        debug_assert!(value.content.is_like(&parts.content));
        let read = match self.process_handle().is_mixed() {
            // The shapes are the same, as `take` has compared them.
            true => wire::decode(Decoder::new(&value.bytes).within(self), 0),
            // SAFETY: this job is of one binary, and `keep_value` alone lets values in. `take`
            // hands out only values whose type hash is that of `T`, which `begin` put into the
            // current content, and `send_value` wrote the bytes as a value of the type that the
            // hash names. They are read once, because `take` removed them.
            false => unsafe { from_bytes_in(&value.bytes, self.process_handle()) },
        };
        read.map_err(|cause: WireError| Error::Wire { from, cause })
    }

    /// Waits until nothing is staged for these receivers.
    ///
    /// A call stays staged here while its ring is not set up. If this worker then made no progress
    /// after the collective, the receivers would wait in it for as long.
    fn wait_until_sent(&self, receivers: impl Iterator<Item = WorkerId> + Clone) -> Result<()> {
        let waits = |to| self.outbox(to).is_some_and(|outbox| outbox.has_staged());
        let Some(whom) = receivers.clone().find(|to| waits(*to)) else { return Ok(()) };
        let doing = "waiting for the ring to another worker";
        self.wait_for_all(doing, whom, |_| (!receivers.clone().any(waits)).then_some(()))
    }

    /// Returns the reason for which collectives cannot continue, if there is one.
    fn collective_failure(&self) -> Option<Error> {
        let (mismatch, is_told) = {
            let mut collectives = self.collectives.borrow_mut();
            let mismatch = collectives.mismatch.clone().filter(|mismatch| mismatch.number <= collectives.begun);
            let is_told = collectives.is_told;
            collectives.is_told |= mismatch.is_some();
            (mismatch, is_told)
        };
        if let Some(mismatch) = mismatch {
            // The others may wait for workers that have noticed it.
            for other in self.workers().filter(|other| !is_told && *other != self.id()) {
                // A worker that cannot be told is lost, or learns of this one's end.
                let to = self.internal(other).when_full(WhenFull::Queue);
                let _ = match self.runs_same_binary(other) {
                    true => to.call(mismatch.clone(), keep_mismatch).map_err(Error::from),
                    false => to.call_named(MISMATCH, mismatch.clone()).map_err(Error::from),
                };
            }
            let Mismatch { here, ours, there, theirs, .. } = mismatch;
            let (ours, theirs) = (ours.into(), theirs.into());
            return Some(Error::CollectiveMismatch { here, ours, there, theirs });
        }
        self.collectives.borrow().is_overrun.then(|| Error::CollectiveOverrun {
            worker: self.id(),
            values: FOREIGN_VALUES_MAX,
            bytes: FOREIGN_BYTES_MAX,
        })
    }
}

/// A collective that this worker takes part in.
#[derive(Clone, Debug)]
struct Parts {
    number: u64,
    content: Content,
}
