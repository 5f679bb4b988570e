//! [`Handlers`]: what the door does for its clients.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use farside::{Caller, WorkerId};
use farside_rpc::bulk::{Bulk, Read};
use farside_rpc::{Call, Never};
use farside_sys::process::monotonic_time;

use super::activity::Lookout;
use super::areas::{Area, Areas, Source};
use super::conductor::Conductor;
use super::error::ExposeError;
use super::lease::{Lease, ReaderId, Readers};
use super::locked::{LEASE_MAX, LockedMemory};
use super::questions::{self, Questions};
use super::shared::Edit;
use super::stays::Stays;
use crate::network::WRITE;
use crate::points::Points;
use crate::protocol::{
    About, Answer, CHANGE_BYTES_MAX, Door, Got, HeldItem, HeldKind, Listen, Neighbors, NetworkDoor, Order, Part,
    Places, Question, Refused, Role, Stayed, Wanted,
};
use crate::spans::{Block, Span, elements};

/// The size from which a reader copies memory itself. The answer to its question whether the memory
/// was unchanged takes as long as a copy of these bytes.
const DIRECT_MIN: usize = 128 << 10;
/// The time that one process has for its part of a change.
const CHANGE_TIME: Duration = Duration::from_secs(5);

/// The door of a process on the network, and what it knows of those of others.
pub(super) trait Neighborhood: fmt::Debug + Send + Sync {
    /// Where the door listens, if it is open.
    fn address(&self) -> Option<String>;
    /// Opens the door, unless it is open.
    fn open(&self, listen: Listen) -> Result<NetworkDoor, ExposeError>;
    /// Has all other processes open their doors on their machines that have not answered yet.
    /// Returns those whose answers may still come.
    fn open_others(&self, caller: Option<&Caller>) -> Vec<u32>;
    /// The doors of all processes, as far as they are known. `None` if this one has none.
    fn neighbors(&self) -> Option<Neighbors>;
    /// Asks the processes for their doors that have not answered yet, and returns what is known.
    fn ask_neighbors(&self, conductor: &Conductor, caller: Option<&Caller>) -> Option<Neighbors>;
}

/// The handlers of the calls of a process's doors. Clones share everything.
#[derive(Clone, Debug)]
pub(super) struct Handlers {
    about: About,
    areas: Arc<Areas>,
    stays: Arc<Stays>,
    questions: Arc<Questions>,
    lookout: Lookout,
    /// The number of the last stay or lock.
    last: Arc<AtomicU64>,
    /// The doors of all processes, for changes that this one conducts.
    conductor: Arc<Conductor>,
    readers: Arc<Readers>,
    /// `None` where there is no door on the network.
    network: Option<Weak<dyn Neighborhood>>,
    /// True if these are behind the door on the network. Each door numbers its own connections.
    is_network: bool,
    points: Points,
}

impl Handlers {
    pub(super) fn new(
        about: About,
        areas: Arc<Areas>,
        stays: Arc<Stays>,
        questions: Arc<Questions>,
        lookout: Lookout,
        network: Option<Weak<dyn Neighborhood>>,
    ) -> Self {
        let conductor = Arc::new(Conductor::new(about.job.clone()));
        let (last, readers) = Default::default();
        let points = Points::of("target");
        Self { about, areas, stays, questions, lookout, last, conductor, readers, network, is_network: false, points }
    }

    /// The same, behind the door on the network.
    pub(super) fn on_network(&self) -> Self {
        Self { is_network: true, ..self.clone() }
    }

    fn network(&self) -> Option<Arc<dyn Neighborhood>> {
        self.network.as_ref()?.upgrade()
    }

    /// The reader that a call belongs to.
    fn reader(&self, cx: &Call, number: u64) -> ReaderId {
        (cx.connection() | if self.is_network { 1 << 63 } else { 0 }, number)
    }

    fn next_number(&self) -> u64 {
        // Relaxed: the number publishes nothing.
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn memory(&self, name: &str, worker: u32) -> Result<(Arc<Area>, Arc<LockedMemory>), Refused> {
        let area = self.areas.find(name, worker)?;
        match &area.source {
            Source::Memory(memory) => Ok((area.clone(), memory.clone())),
            _ => Err(Refused::Role { name: name.into(), wanted: "exposed memory".into() }),
        }
    }

    /// Ends the stays and locks whose leases fit.
    fn release_if(&self, fits: impl Fn(&Lease) -> bool) {
        self.stays.release_if(&fits);
        for area in self.areas.all() {
            if let Source::Memory(memory) = &area.source {
                memory.release_if(&fits);
            }
        }
    }

    /// Checks an order, or makes its change. Returns how many places it reaches here.
    fn order(&self, order: &Order, only_check: bool) -> Result<u64, Refused> {
        match order {
            Order::Set { name, value } => self
                .areas
                .named(name)
                .iter()
                .try_fold(0, |reached, area| self.set(area, *value, only_check).map(|()| reached + 1)),
            Order::Write { places, bytes } => {
                let Places { name, worker, spans } = places;
                // The view belongs to another process.
                let Ok(area) = self.areas.find(name, *worker) else { return Ok(0) };
                let part = area.part();
                let Source::View(view) = &area.source else {
                    return Err(Refused::Role { name: name.clone(), wanted: "a view".into() });
                };
                writable(&part)?;
                check_filled(&part, spans, bytes.len() as u64)?;
                valid(&part, bytes)?;
                if bytes.len() as u64 > CHANGE_BYTES_MAX {
                    return Err(Refused::TooLarge { bytes: bytes.len() as u64, max: CHANGE_BYTES_MAX });
                }
                // Changes wait while workers stay, and for ever in a view without `publish_mut`.
                if view.edit_bytes() + bytes.len() as u64 > CHANGE_BYTES_MAX {
                    return Err(Refused::Busy);
                }
                if !only_check {
                    view.edit(Edit { spans: spans.clone(), bytes: bytes.clone() });
                }
                Ok(1)
            }
        }
    }

    /// Sets a parameter or orders an action of a worker, or checks that it can be.
    fn set(&self, area: &Area, value: Option<f64>, only_check: bool) -> Result<(), Refused> {
        let Part { name, worker, role, .. } = area.part();
        match (role, &area.source, value) {
            // Also false for NaN.
            (Role::Parameter { least, most }, _, Some(value)) if !(least..=most).contains(&value) => {
                Err(Refused::Range { name, value, least, most })
            }
            (Role::Parameter { .. }, Source::Named(Some(bits)), Some(value)) => {
                if !only_check {
                    // Relaxed: the number publishes nothing else. The worker stays, and goes on
                    // behind a lock.
                    bits.store(value.to_bits(), Ordering::Relaxed);
                }
                Ok(())
            }
            (Role::Action, _, None) => {
                if self.stays.has_many_actions(worker) {
                    return Err(Refused::Busy);
                }
                let is_done = only_check || self.stays.order_action(worker, &name);
                if is_done { Ok(()) } else { self.act_now(worker, name) }
            }
            _ => Err(Refused::Role { name, wanted: value.map_or("an action", |_| "a parameter").into() }),
        }
    }

    /// Has a worker run an action that publishes no steps.
    fn act_now(&self, worker: u32, action: String) -> Result<(), Refused> {
        let caller = self.stays.caller().ok_or(Refused::Over)?;
        let sent = caller.call(WorkerId::new(worker), action, |me, action: String| questions::act(me, &action));
        sent.map_err(|refused| Refused::Failed { cause: refused.to_string() })
    }
}

impl Door for Handlers {
    fn about(&self, _: &Call) -> Result<About, Never> {
        let network = self.network().and_then(|network| network.address());
        let system_process = self.lookout.launched().unwrap_or(self.about.system_process);
        Ok(About { network, system_process, ..self.about.clone() })
    }

    fn open_others(&self, _: &Call) -> Result<Vec<u32>, Never> {
        let network = self.network();
        Ok(network.map_or_else(Vec::new, |network| network.open_others(self.stays.caller().as_ref())))
    }

    fn neighbors(&self, cx: &Call) -> Result<Neighbors, Refused> {
        let network = self.network().ok_or(Refused::NoNetwork)?;
        let all = network.ask_neighbors(&self.conductor, self.stays.caller().as_ref()).ok_or(Refused::NoNetwork)?;
        // A client on the network has a token already.
        Ok(Neighbors { token: all.token.filter(|_| !self.is_network && cx.peer().has_right(WRITE)), ..all })
    }

    fn open_on_network(&self, cx: &Call, listen: Listen) -> Result<NetworkDoor, Refused> {
        if self.is_network {
            return Err(Refused::NoRight);
        }
        may_write(cx)?;
        let network = self.network().ok_or(Refused::Over)?;
        network.open(listen).map_err(|error| Refused::Failed { cause: error.to_string() })
    }

    fn parts(&self, _: &Call) -> Result<Vec<Part>, Never> {
        Ok(self.areas.all().iter().map(|area| area.part()).collect())
    }

    fn step(&self, _: &Call, name: String, worker: u32) -> Result<Option<u64>, Refused> {
        Ok(self.areas.find(&name, worker)?.step())
    }

    fn newest(&self, _: &Call) -> Result<Option<u64>, Never> {
        Ok(self.stays.newest())
    }

    fn look(&self, cx: &Call, question: Question) -> Result<Answer, Refused> {
        self.lookout.look(cx, question)
    }

    fn clock(&self, _: &Call) -> Result<u64, Never> {
        Ok(monotonic_time().as_nanos() as u64)
    }

    async fn get(&self, _: &Call, wanted: Wanted) -> Result<Got, Refused> {
        let Wanted { name, worker, wish, spans, is_direct } = wanted;
        let area = self.areas.find(&name, worker)?;
        let part = area.part();
        check(&part, &spans)?;
        self.points.pass();
        let block = block(&part, &spans);
        let now = |elements| Got { step: None, version: None, elements };
        let got = match &area.source {
            Source::View(shared) => {
                let slot = shared.clone().wait(wish).await?;
                self.points.pass();
                Got { step: Some(slot.step), version: None, elements: slot.show(block)? }
            }
            Source::Memory(memory) => match block.few_runs(1).as_deref() {
                Some(&[(offset, bytes)]) if is_direct && bytes >= DIRECT_MIN => {
                    let (version, elements) = memory.show(offset, bytes).await?;
                    Got { step: None, version: Some(version), elements }
                }
                _ => now(memory.read(block).await?.into()),
            },
            Source::Named(Some(bits)) => now(bits.load(Ordering::Relaxed).to_ne_bytes()[..].into()),
            Source::Named(None) => return Err(Refused::Role { name, wanted: "something with elements".into() }),
        };
        self.points.pass();
        Ok(got)
    }

    fn is_unchanged(&self, _: &Call, name: String, worker: u32, version: u64) -> Result<bool, Refused> {
        Ok(self.memory(&name, worker)?.1.is_unchanged(version))
    }

    async fn put(&self, cx: &Call, at: Places, lock: Option<u64>, from: Bulk<Read>) -> Result<Option<u64>, Refused> {
        may_write(cx)?;
        let Places { name, worker, spans } = at;
        let (area, memory) = self.memory(&name, worker)?;
        let part = area.part();
        writable(&part)?;
        check_filled(&part, &spans, from.bytes())?;
        // A reader that stops meanwhile occupies no thread.
        let pulled = from.pull_async(0, from.bytes() as usize).await;
        let bytes = pulled.map_err(|error| Refused::Transfer { cause: error.to_string() })?;
        valid(&part, &bytes)?;
        self.points.pass();
        let step = memory.write(lock, block(&part, &spans), &bytes, || self.stays.newest_of(worker)).await?;
        self.points.pass();
        Ok(step)
    }

    async fn lock(&self, cx: &Call, name: String, worker: u32, reader: u64) -> Result<u64, Refused> {
        may_write(cx)?;
        let (area, memory) = self.memory(&name, worker)?;
        writable(&area.part())?;
        let (number, reader) = (self.next_number(), self.reader(cx, reader));
        self.readers.arrival(reader).await;
        self.points.pass();
        memory.lock_outside(|| self.readers.lease(number, reader, Some(LEASE_MAX))).await?;
        self.points.pass();
        Ok(number)
    }

    async fn stay(
        &self,
        cx: &Call,
        after: u64,
        stay: Option<u64>,
        is_pause: bool,
        reader: u64,
    ) -> Result<Stayed, Refused> {
        may_write(cx)?;
        let reader = self.reader(cx, reader);
        self.readers.arrival(reader).await;
        let lease = self.readers.lease(self.next_number(), reader, None);
        self.points.pass();
        let staying = self.stays.begin(after, stay, is_pause, lease)?;
        self.points.pass();
        let stayed = staying.await;
        self.points.pass();
        stayed
    }

    fn awaited(&self, cx: &Call, reader: u64) -> Result<Vec<(u32, u64)>, Never> {
        Ok(self.stays.awaited(self.reader(cx, reader)))
    }

    async fn attend(&self, cx: &Call, reader: u64) -> Result<(), Never> {
        let id = self.reader(cx, reader);
        self.points.pass();
        match self.readers.attend(id, || self.release_if(|lease| lease.reader() == id)).await {}
    }

    fn held(&self, _: &Call) -> Result<Vec<HeldItem>, Never> {
        let mut all: Vec<HeldItem> = self.stays.held().into_iter().collect();
        for area in self.areas.all() {
            let Source::Memory(memory) = &area.source else { continue };
            let Part { name, worker, .. } = area.part();
            let held = |number| HeldItem { number, kind: HeldKind::Memory { name, worker }, step: None };
            all.extend(memory.held().map(held));
        }
        Ok(all)
    }

    fn release(&self, cx: &Call, number: u64) {
        // A one-way call has no answer.
        if may_write(cx).is_err() {
            return;
        }
        self.points.pass();
        self.release_if(|lease| lease.number() == number);
        self.points.pass();
    }

    fn apply(&self, cx: &Call, stay: u64, orders: Vec<Order>, only_check: bool) -> Result<u64, Refused> {
        may_write(cx)?;
        self.stays.check(stay)?;
        self.points.pass();
        orders.iter().try_fold(0, |reached, order| Ok(reached + self.order(order, only_check)?))
    }

    fn conduct(&self, cx: &Call, stays: Vec<(u32, u64)>, orders: Vec<Order>) -> Result<u64, Refused> {
        may_write(cx)?;
        let neighbors = self.network().and_then(|network| network.neighbors());
        // All processes check before the first one changes anything.
        let mut reached = 0;
        for only_check in [true, false] {
            self.points.pass();
            reached = self.conductor.apply_all(&stays, &orders, only_check, CHANGE_TIME, neighbors.as_ref())?;
        }
        Ok(reached)
    }

    async fn ask(&self, _: &Call, name: String, worker: u32, question: String) -> Result<Vec<u8>, Refused> {
        if self.areas.find(&name, worker)?.part().role != Role::Probe {
            return Err(Refused::Role { name, wanted: "a probe".into() });
        }
        let caller = self.stays.caller().ok_or(Refused::Over)?;
        self.questions.ask(caller, worker, name, question).await
    }
}

/// Returns whether the client may change something.
fn may_write(cx: &Call) -> Result<(), Refused> {
    if cx.peer().has_right(WRITE) { Ok(()) } else { Err(Refused::NoRight) }
}

fn writable(part: &Part) -> Result<(), Refused> {
    if part.is_writable { Ok(()) } else { Err(Refused::ReadOnly { name: part.name.clone() }) }
}

fn valid(part: &Part, bytes: &[u8]) -> Result<(), Refused> {
    let are_values = part.element.are_values(bytes);
    if are_values { Ok(()) } else { Err(Refused::Value { name: part.name.clone(), element: part.element }) }
}

/// Checks that the places are inside the part.
fn check(part: &Part, spans: &[Span]) -> Result<(), Refused> {
    let Part { shape, .. } = part;
    let is_inside = spans.len() == shape.len() && spans.iter().zip(shape).all(|(span, length)| span.is_inside(*length));
    if is_inside { Ok(()) } else { Err(Refused::Places { shape: shape.clone() }) }
}

/// The same, and that elements for them have this size.
fn check_filled(part: &Part, spans: &[Span], bytes: u64) -> Result<(), Refused> {
    check(part, spans)?;
    let counts: Vec<u64> = spans.iter().map(|span| span.count).collect();
    let filled = elements(&counts, part.element.bytes()).map(|count| (count * part.element.bytes()) as u64);
    if filled == Some(bytes) { Ok(()) } else { Err(Refused::Places { shape: part.shape.clone() }) }
}

/// The elements at places that were [checked](check).
fn block<'a>(part: &'a Part, spans: &'a [Span]) -> Block<'a> {
    Block { shape: &part.shape, spans, element_bytes: part.element.bytes() }
}
