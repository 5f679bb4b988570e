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

mod quiescence;
mod waiting;

use std::any::type_name;
use std::collections::{HashMap, VecDeque};

use farside_fabric::WorkerId;

use crate::error::{Error, Result};
use crate::invoke::call::WhenFull;
use crate::invoke::named::{Named, Names};
use crate::runtime::worker::Worker;
use crate::wire::check::MessageKind;
use crate::wire::{self, Decoder, Schema, Wire, WireError, from_bytes_in, to_bytes, type_hash};

/// A worker's state of collectives: what has arrived for those that it is in or has not reached
/// yet.
#[derive(Debug)]
pub(crate) struct Collectives {
    /// The worker that this is the state of.
    of: WorkerId,
    /// The number of collectives that this worker has begun, which is the number of the last one.
    begun: u64,
    /// What the last one is.
    current: Content,
    /// What was announced in round `k` of barriers. Each round always has the same sender.
    arrived: Vec<Announced>,
    /// Values that have arrived, by collective and sender.
    values: HashMap<(u64, WorkerId), Value>,
    /// The number of those values that came from other binaries.
    foreign_values: usize,
    foreign_bytes: usize,
    /// Whether a value was dropped because too much had arrived. No later collective can complete
    /// then.
    is_overrun: bool,
    /// Set when two workers take part in different collectives. No later collective can complete
    /// then.
    mismatch: Option<Mismatch>,
    /// Whether all workers were told of it.
    is_told: bool,
    /// Whether a collective of this worker has ended in an error, so that its values may arrive
    /// late.
    has_failed: bool,
    /// The numbers of calls of collectives that this worker has sent and executed.
    sent: u64,
    executed: u64,
    /// The worker for which this one waits in the current collective.
    awaited: Option<WorkerId>,
    /// Whether this worker's body has returned, so that it begins no further collective.
    has_returned: bool,
}

/// The announcements of one round of barriers that this worker has not passed yet.
#[derive(Clone, Debug)]
struct Announced {
    from: WorkerId,
    /// The numbers of the barriers, which increase. A sender is at most one barrier ahead, unless
    /// it has given up waiting at earlier ones.
    numbers: VecDeque<u64>,
}

/// The largest number of announcements that are kept for a round.
const ANNOUNCED_MAX: usize = 64;

/// Two workers take part in different collectives.
#[derive(Clone, Debug, Wire)]
struct Mismatch {
    /// The number of the collective. A worker may still complete those before it.
    number: u64,
    /// The worker that noticed it.
    here: WorkerId,
    ours: String,
    there: WorkerId,
    theirs: String,
}

/// The kind of a collective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
enum Kind {
    #[default]
    Barrier,
    Broadcast,
    Gather,
    AllReduce,
}

/// What a collective is. All workers that take part in it agree on that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Wire)]
struct Content {
    kind: Kind,
    /// The number of the root.
    root: u32,
    /// Identifies the type of the values: among processes of one binary, or by its shape in a job
    /// of several binaries.
    type_hash: u64,
    /// The name of the type, for errors. Two binaries may print it differently.
    type_name: String,
}

impl Content {
    fn is_like(&self, other: &Self) -> bool {
        (self.kind, self.root, self.type_hash) == (other.kind, other.root, other.type_hash)
    }

    fn describe(&self) -> String {
        match self.kind {
            Kind::Barrier => "a barrier".to_owned(),
            Kind::Broadcast => format!("a broadcast of `{}` from worker {}", self.type_name, self.root),
            Kind::Gather => format!("a gather of `{}` at worker {}", self.type_name, self.root),
            Kind::AllReduce => format!("an all_reduce of `{}`", self.type_name),
        }
    }
}

/// A value on its way.
#[derive(Debug, Wire)]
struct Parcel {
    /// The number of the collective.
    number: u64,
    from: WorkerId,
    content: Content,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Value {
    content: Content,
    bytes: Vec<u8>,
    /// Whether the value came from another binary.
    is_foreign: bool,
}

/// Bounds on what processes of other binaries may send to a worker for collectives that it has not
/// reached. Processes of the same binary are trusted not to flood it.
const FOREIGN_VALUES_MAX: usize = 1 << 16;
const FOREIGN_BYTES_MAX: usize = 256 << 20;

/// What a value of another binary counts against the bound.
fn kept_bytes(content: &Content, bytes: &[u8]) -> usize {
    content.type_name.len() + bytes.len()
}

impl Collectives {
    pub(crate) fn new(of: WorkerId) -> Self {
        Self {
            of,
            begun: 0,
            current: Content::default(),
            arrived: Vec::new(),
            values: HashMap::new(),
            foreign_values: 0,
            foreign_bytes: 0,
            is_overrun: false,
            mismatch: None,
            is_told: false,
            has_failed: false,
            sent: 0,
            executed: 0,
            awaited: None,
            has_returned: false,
        }
    }

    /// Notes that this worker's body has returned.
    pub(crate) fn end(&mut self) {
        self.has_returned = true;
    }

    /// The calls sent that quiescence does not count.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Excludes one sent call from the count of quiescence.
    pub(crate) fn leave_out_sent(&mut self) {
        self.sent += 1;
    }

    /// Excludes one executed call from the count of quiescence.
    pub(crate) fn leave_out_executed(&mut self) {
        self.executed += 1;
    }

    /// Begins the next collective and returns its number.
    fn begin(&mut self, content: Content) -> u64 {
        self.begun += 1;
        self.current = content;
        let early = self
            .values
            .iter()
            .filter(|((number, _), value)| *number == self.begun && !value.content.is_like(&self.current));
        // The first by number, so that a simulation repeats itself.
        if let Some(((_, from), value)) = early.min_by_key(|((_, from), _)| *from) {
            self.note(self.differs(*from, &value.content));
        }
        let number = self.begun;
        self.arrived.iter_mut().for_each(|announced| announced.numbers.retain(|announced| *announced >= number));
        let early = self.arrived.iter().find(|announced| announced.numbers.front() == Some(&number));
        if self.current.kind != Kind::Barrier
            && let Some(announced) = early
        {
            self.note(self.differs(announced.from, &Content::default()));
        }
        self.begun
    }

    /// Notes that `from` has announced round `round` of barrier `number`.
    fn announce(&mut self, number: u64, round: usize, from: WorkerId) {
        if number < self.begun {
            return;
        }
        if self.arrived.len() <= round {
            self.arrived.resize(round + 1, Announced { from, numbers: VecDeque::new() });
        }
        let announced = &mut self.arrived[round];
        announced.from = from;
        if announced.numbers.len() < ANNOUNCED_MAX {
            announced.numbers.push_back(number);
        }
        if number == self.begun && self.current.kind != Kind::Barrier {
            self.note(self.differs(from, &Content::default()));
        }
    }

    /// Returns whether round `round` of the current barrier was announced.
    fn is_announced(&mut self, round: usize) -> bool {
        let Some(Announced { from, numbers }) = self.arrived.get(round) else { return false };
        let (from, first) = (*from, numbers.front().copied());
        if first.is_some_and(|first| first > self.begun) {
            // It waits at a later barrier, and has not been at this one.
            self.note(self.differs(from, &Content::default()));
        }
        first == Some(self.begun)
    }

    /// Notes a mismatch. The first one stays.
    fn note(&mut self, mismatch: Mismatch) {
        self.mismatch.get_or_insert(mismatch);
    }

    fn differs(&self, there: WorkerId, theirs: &Content) -> Mismatch {
        Mismatch { number: self.begun, here: self.of, ours: self.current.describe(), there, theirs: theirs.describe() }
    }

    /// Keeps a value. Drops it if its collective is past.
    fn keep(&mut self, parcel: Parcel, is_foreign: bool) {
        let Parcel { number, from, content, bytes } = parcel;
        if number < self.begun {
            if !is_foreign && !self.has_failed {
                // This worker waited for all values of the collectives that it has left.
                let ours = "another one, which it has left".into();
                self.note(Mismatch { ours, ..self.differs(from, &content) });
            }
            return;
        }
        if number == self.begun && !content.is_like(&self.current) {
            self.note(self.differs(from, &content));
            return;
        }
        self.remove(number, from);
        if is_foreign {
            let (count, total) = (self.foreign_values + 1, self.foreign_bytes + kept_bytes(&content, &bytes));
            if count > FOREIGN_VALUES_MAX || total > FOREIGN_BYTES_MAX {
                self.is_overrun = true;
                return;
            }
            (self.foreign_values, self.foreign_bytes) = (count, total);
        }
        self.values.insert((number, from), Value { content, bytes, is_foreign });
    }

    /// Takes a value of the current collective.
    fn take(&mut self, from: WorkerId) -> Option<Value> {
        // `begin` and `keep` look at the content of what they let in. What does not match the
        // current collective is never handed out.
        self.remove(self.begun, from).filter(|value| value.content.is_like(&self.current))
    }

    fn remove(&mut self, number: u64, from: WorkerId) -> Option<Value> {
        let value = self.values.remove(&(number, from))?;
        if value.is_foreign {
            self.foreign_values -= 1;
            self.foreign_bytes -= kept_bytes(&value.content, &value.bytes);
        }
        Some(value)
    }
}

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

    /// Calls a function of this file on another worker; by its name if that worker runs another
    /// binary.
    fn tell<A: Wire>(&self, to: WorkerId, name: Named<A>, arguments: A, function: fn(&Self, A)) -> Result<()> {
        let told = match self.runs_same_binary(to) {
            true => self.internal(to).call(arguments, function),
            false => self.internal(to).call_named(name, arguments),
        };
        told.map_err(|refused| match refused.error {
            Error::TooLarge { bytes, max, remedy, .. } => {
                Error::TooLarge { what: "a value of a collective", bytes, max, remedy }
            }
            other => other,
        })?;
        self.collectives.borrow_mut().sent += 1;
        Ok(())
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

/// Announces a round of a barrier: the number of the barrier, and the round.
const ARRIVED: Named<(u64, u32)> = Named::of_the_library("farside/arrived");
/// Carries a value.
const VALUE: Named<Parcel> = Named::of_the_library("farside/value");

/// The arguments of those functions, for tests of their decoders.
pub(crate) fn message_kinds() -> Vec<MessageKind> {
    vec![MessageKind::of::<(u64, u32)>(), MessageKind::of::<Parcel>(), MessageKind::of::<Mismatch>()]
}

/// Tells of a mismatch.
const MISMATCH: Named<Mismatch> = Named::of_the_library("farside/mismatch");

/// Registers the functions that collectives call in processes of other binaries.
pub(crate) fn register(names: &mut Names) {
    names.add(ARRIVED, announce_foreign_arrival);
    names.add(VALUE, keep_foreign_value);
    names.add(MISMATCH, keep_foreign_mismatch);
}

fn announce_arrival(there: &Worker, (number, round): (u64, u32)) {
    there.collectives.borrow_mut().executed += 1;
    // Another binary may send any number.
    if round < u32::BITS {
        let from = there.announcer(round);
        there.collectives.borrow_mut().announce(number, round as usize, from);
    }
}

fn keep_value(there: &Worker, parcel: Parcel) {
    let mut collectives = there.collectives.borrow_mut();
    collectives.executed += 1;
    collectives.keep(parcel, false);
}

fn keep_mismatch(there: &Worker, mismatch: Mismatch) {
    let mut collectives = there.collectives.borrow_mut();
    collectives.is_told = true;
    collectives.mismatch.get_or_insert(mismatch);
}

// In a job of one binary, nothing is called by these names.

fn announce_foreign_arrival(there: &Worker, arrival: (u64, u32)) {
    if there.process_handle().is_mixed() {
        announce_arrival(there, arrival);
    }
}

fn keep_foreign_mismatch(there: &Worker, mismatch: Mismatch) {
    if there.process_handle().is_mixed() {
        keep_mismatch(there, mismatch);
    }
}

fn keep_foreign_value(there: &Worker, parcel: Parcel) {
    if there.process_handle().is_mixed() {
        let mut collectives = there.collectives.borrow_mut();
        collectives.executed += 1;
        collectives.keep(parcel, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: WorkerId = WorkerId::new(3);

    fn parcel(number: u64, from: WorkerId, bytes: Vec<u8>) -> Parcel {
        Parcel { number, from, content: Content::default(), bytes }
    }

    fn keep_foreign(collectives: &mut Collectives, number: u64, bytes: Vec<u8>) {
        collectives.keep(parcel(number, FROM, bytes), true);
    }

    #[test]
    fn messages_of_another_binary_are_bounded() {
        let mut collectives = Collectives { begun: 5, ..Collectives::new(FROM) };
        let half = FOREIGN_BYTES_MAX / 2;
        keep_foreign(&mut collectives, 5, vec![1; half]);
        keep_foreign(&mut collectives, 6, vec![2; half]);
        // A second value of the same collective and sender replaces the first.
        keep_foreign(&mut collectives, 6, vec![3; half]);
        assert!(!collectives.is_overrun);
        assert_eq!(collectives.remove(6, FROM).map(|value| value.bytes), Some(vec![3; half]));
        assert_eq!((collectives.foreign_values, collectives.foreign_bytes), (1, half));
        keep_foreign(&mut collectives, 7, vec![4; half]);
        assert!(!collectives.is_overrun);
        keep_foreign(&mut collectives, 8, vec![5]);
        assert!(collectives.is_overrun);
        assert!(collectives.remove(8, FROM).is_none());
    }

    #[test]
    fn values_are_counted_and_past_ones_dropped() {
        let mut collectives = Collectives { begun: 5, ..Collectives::new(FROM) };
        (0..5).for_each(|number| keep_foreign(&mut collectives, number, vec![1]));
        assert_eq!((collectives.values.len(), collectives.foreign_values), (0, 0));
        let last = 5 + FOREIGN_VALUES_MAX as u64;
        (5..last).for_each(|number| keep_foreign(&mut collectives, number, Vec::new()));
        assert!(!collectives.is_overrun);
        assert!(collectives.take(FROM).is_some());
        keep_foreign(&mut collectives, last, Vec::new());
        assert!(!collectives.is_overrun);
        keep_foreign(&mut collectives, last + 1, Vec::new());
        assert!(collectives.is_overrun);
    }

    /// Whatever comes first, the value or the collective, a value of another kind or type is
    /// noticed and not handed out.
    #[test]
    fn a_value_of_another_collective_is_a_mismatch() {
        let kinds = [Kind::Barrier, Kind::Broadcast, Kind::Gather, Kind::AllReduce];
        let all = kinds
            .into_iter()
            .flat_map(|kind| [1, 2].map(|type_hash| Content { kind, type_hash, ..Content::default() }));
        for ours in all.clone() {
            for theirs in all.clone() {
                let parcel = || Parcel { number: 1, from: FROM, content: theirs.clone(), bytes: vec![7] };
                let mut early = Collectives::new(FROM);
                early.keep(parcel(), false);
                early.begin(ours.clone());
                let mut late = Collectives::new(FROM);
                late.begin(ours.clone());
                late.keep(parcel(), false);
                for collectives in [&mut early, &mut late] {
                    assert_eq!(collectives.take(FROM).is_some(), ours == theirs, "{ours:?} {theirs:?}");
                    assert_eq!(collectives.mismatch.is_some(), ours != theirs, "{ours:?} {theirs:?}");
                }
            }
        }
    }

    /// After an error, values of the collective that failed may still arrive.
    #[test]
    fn a_late_value_is_a_mismatch_unless_the_collective_failed() {
        let broadcast = || Content { kind: Kind::Broadcast, ..Content::default() };
        let late = || Parcel { number: 1, from: FROM, content: broadcast(), bytes: vec![7] };
        for has_failed in [false, true] {
            let mut collectives = Collectives { has_failed, ..Collectives::new(FROM) };
            collectives.begin(broadcast());
            collectives.begin(Content::default());
            collectives.keep(late(), false);
            assert_eq!(collectives.mismatch.is_some(), !has_failed);
            assert!(collectives.values.is_empty());
        }
    }

    #[test]
    fn an_arrival_at_a_barrier_elsewhere_is_a_mismatch() {
        let broadcast = || Content { kind: Kind::Broadcast, ..Content::default() };
        let mut collectives = Collectives::new(FROM);
        collectives.begin(broadcast());
        // It has passed a broadcast as its root, or left a gather.
        collectives.announce(2, 0, FROM);
        assert!(collectives.mismatch.is_none());
        collectives.begin(Content::default());
        assert!(collectives.is_announced(0) && collectives.mismatch.is_none());
        collectives.begin(broadcast());
        collectives.announce(3, 0, FROM);
        assert!(collectives.mismatch.is_some());

        // One that was at this barrier and has gone on to the next one.
        let mut ahead = Collectives::new(FROM);
        ahead.begin(Content::default());
        ahead.announce(1, 0, FROM);
        ahead.announce(2, 0, FROM);
        assert!(ahead.is_announced(0) && ahead.mismatch.is_none());

        // One that has given up waiting at this barrier, and at the next one.
        ahead.announce(3, 0, FROM);
        assert!(ahead.is_announced(0) && ahead.mismatch.is_none());

        let mut skipped = Collectives::new(FROM);
        skipped.begin(Content::default());
        skipped.announce(2, 0, FROM);
        assert!(!skipped.is_announced(0) && skipped.mismatch.is_some());

        let mut early = Collectives::new(FROM);
        early.announce(1, 0, FROM);
        early.begin(broadcast());
        assert!(early.mismatch.is_some());
    }
}
