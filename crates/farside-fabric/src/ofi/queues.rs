//! The queues of an endpoint: puts and gets of which most are not told when they are over.
//!
//! libfabric promises no order of completions over `rxm`. So what is told is found out in one of two ways ([`Open::rides`]):
//!
//! - Where the provider keeps puts in order at their target, also with gets ([`Attributes::ordered_bytes_max`]), a put without a signal
//!   asks for no completion, and its target sends no acknowledgement. It *rides* on the next operation that asks for one: that ends when
//!   it has been carried out there, and so was everything before.
//! - Otherwise, and for all gets, whose bytes may come in another order than they were asked for, a completion is asked for each,
//!   and the [`Ledger`] holds what is told back until all before it are over.
//!
//! A failure is reported for those that ride, too. It ends the queue.
//!
//! [`Attributes::ordered_bytes_max`]: super::port::Attributes::ordered_bytes_max

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

use farside_sys::shm::SharedMemory;

use super::ffi::FiAddr;
use super::flights::Contexts;
use super::port::{Piece, Port, Posted, Registration};
use super::transfer::Kind;
use crate::by_message::NativeAccess;
use crate::ids::ProcessId;
use crate::queue::{Frontier, Ledger, QueueLimits, Refusal, Transfer, TransferKind};
use crate::transport::{FabricError, RemoteKey};

/// Names a queue of an endpoint.
pub(super) type QueueId = u64;

/// Those that are open, and those that were closed with something under way.
#[derive(Debug, Default)]
pub(super) struct Queues {
    queues: BTreeMap<QueueId, Open>,
    next: QueueId,
    /// By where their contexts begin.
    by_contexts: BTreeMap<usize, QueueId>,
}

#[derive(Debug)]
struct Open {
    peer: ProcessId,
    limits: QueueLimits,
    /// Puts without a signal are not told.
    rides: bool,
    ledger: Ledger<UnderWay>,
    /// One for each place in the ledger, in turns.
    contexts: Contexts,
    frontier: Arc<Frontier>,
    end: Option<End>,
    is_closing: bool,
    /// A signal of our own is under way, behind all that rides to a region which was taken back.
    is_hurried: bool,
    /// Where the last signal of one that is closing goes, if there was no room for it.
    owed: Option<FiAddr>,
    /// The region of the last operation, since the next one is mostly for the same.
    last_access: Option<(RemoteKey, Reached)>,
    /// Where a signal that moves nothing can go.
    last_rider: Option<Place>,
}

/// What stays as it is while an operation is under way.
#[derive(Debug)]
struct UnderWay {
    memory: Option<Arc<SharedMemory>>,
    key: Option<RemoteKey>,
}

/// How a peer's region is reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    pub(super) access: NativeAccess,
    pub(super) is_writable: bool,
}

/// Both sides of an operation.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: usize,
    registration: Option<Registration>,
    remote_address: u64,
    remote_key: u64,
}

/// Why a queue has failed.
#[derive(Clone, Copy, Debug)]
enum End {
    Disconnected,
    Stale(RemoteKey),
}

/// An operation to be posted, with what the endpoint knows of it.
#[derive(Debug)]
pub(super) struct Order<'o> {
    pub(super) transfer: &'o Transfer<'o>,
    pub(super) signal: Option<u64>,
    pub(super) address: FiAddr,
    /// Of the local memory, where the provider asks for that.
    pub(super) registration: Option<Registration>,
}

impl Queues {
    /// Opens a queue to a peer.
    pub(super) fn open(&mut self, port: &Port, peer: ProcessId, depth: usize) -> (QueueId, QueueLimits, Arc<Frontier>) {
        let attributes = port.attributes();
        let bytes_max = attributes.bytes_max.min(attributes.ordered_bytes_max.unwrap_or(usize::MAX));
        let limits = QueueLimits::of_depth(depth, bytes_max);
        let open = Open {
            peer,
            limits,
            rides: attributes.ordered_bytes_max.is_some(),
            ledger: Ledger::new(limits),
            contexts: Contexts::new(limits.depth),
            frontier: Arc::default(),
            end: None,
            is_closing: false,
            is_hurried: false,
            owed: None,
            last_access: None,
            last_rider: None,
        };
        let (id, frontier) = (self.next, open.frontier.clone());
        self.next += 1;
        self.by_contexts.insert(open.contexts.start(), id);
        self.queues.insert(id, open);
        (id, limits, frontier)
    }

    /// Nobody uses the queue any more. It goes when nothing is under way.
    pub(super) fn close(&mut self, port: &Port, id: QueueId, address: Option<FiAddr>) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.is_closing = true;
        if let Some(address) = address {
            queue.signal_last(port, address);
        }
        self.remove_if_done(id);
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.queues.len()
    }

    /// How many operations of a queue are not over.
    #[cfg(test)]
    pub(super) fn under_way(&self, id: QueueId) -> usize {
        self.queues[&id].ledger.under_way()
    }

    /// To whom it goes.
    pub(super) fn peer(&self, id: QueueId) -> Option<ProcessId> {
        self.queues.get(&id).map(|queue| queue.peer)
    }

    /// Posts an operation. `access` looks up how a region is reached.
    pub(super) fn post(
        &mut self,
        port: &Port,
        id: QueueId,
        order: &Order<'_>,
        access: impl FnOnce(RemoteKey) -> Result<Reached, FabricError>,
    ) -> Result<(), FabricError> {
        let queue = self.queues.get_mut(&id).expect("a queue is closed by its last user");
        queue.admit(order.signal.is_some())?;
        let key = order.transfer.remote;
        let reached = queue.access(key, access)?;
        if order.transfer.kind == TransferKind::Put && !reached.is_writable {
            return Err(FabricError::ReadOnly { key });
        }
        queue.post(port, order, reached.access)
    }

    /// Posts a signal that moves nothing.
    pub(super) fn signal(&mut self, port: &Port, id: QueueId, address: FiAddr, number: u64) -> Result<(), FabricError> {
        let queue = self.queues.get_mut(&id).expect("a queue is closed by its last user");
        queue.admit(true)?;
        queue.signal(port, address, number)
    }

    /// Why a queue has failed, if it has.
    ///
    /// # Errors
    /// The reason.
    pub(super) fn check(&self, id: QueueId) -> Result<(), FabricError> {
        self.queues.get(&id).map_or(Ok(()), Open::check)
    }

    /// How many operations of a queue are under way though it has failed.
    pub(super) fn quarantined(&self, id: QueueId) -> usize {
        let failed = self.queues.get(&id).filter(|queue| queue.end.is_some());
        failed.map_or(0, |queue| queue.ledger.under_way())
    }

    /// The same of all queues.
    pub(super) fn all_quarantined(&self) -> usize {
        self.queues.keys().map(|id| self.quarantined(*id)).sum()
    }

    /// An operation has ended. Says whether there was one with this context.
    pub(super) fn landed(&mut self, port: &Port, context: *mut c_void) -> bool {
        let Some((id, index)) = self.find(context) else { return false };
        let queue = self.queues.get_mut(&id).expect("it was just found");
        queue.landed(index);
        if let Some(address) = queue.owed {
            queue.signal_last(port, address);
        }
        self.remove_if_done(id);
        true
    }

    /// An operation has failed. Returns the peer that is lost with it, if it is.
    pub(super) fn failed(&mut self, context: *mut c_void, is_refused: bool) -> Option<ProcessId> {
        let (id, index) = self.find(context)?;
        let queue = self.queues.get_mut(&id).expect("it was just found");
        let key = queue.ledger.get(index).and_then(|under_way| under_way.key);
        let end = key.filter(|_| is_refused).map_or(End::Disconnected, End::Stale);
        queue.fail(end);
        queue.let_go(index);
        let peer = queue.peer;
        self.remove_if_done(id);
        matches!(end, End::Disconnected).then_some(peer)
    }

    /// A region was taken back: nothing more is posted to it.
    pub(super) fn forget_access(&mut self, key: RemoteKey) {
        for queue in self.queues.values_mut() {
            queue.last_access.take_if(|(known, _)| *known == key);
        }
    }

    /// Whether something is under way to a peer's region.
    pub(super) fn reaches(&self, key: RemoteKey) -> bool {
        self.queues.values().any(|queue| queue.reaches(key))
    }

    /// Whether something is under way from or to this memory of this process.
    pub(super) fn uses(&self, memory: &Arc<SharedMemory>) -> bool {
        self.queues.values().any(|queue| queue.uses(memory))
    }

    /// Sees to it that what rides to a region is told of soon, whatever its poster does.
    pub(super) fn hurry_to(&mut self, port: &Port, key: RemoteKey, address: impl Fn(ProcessId) -> Option<FiAddr>) {
        self.hurry(port, address, |queue| queue.reaches(key));
    }

    /// The same for what rides from this memory of this process.
    pub(super) fn hurry_from(
        &mut self,
        port: &Port,
        memory: &Arc<SharedMemory>,
        address: impl Fn(ProcessId) -> Option<FiAddr>,
    ) {
        self.hurry(port, address, |queue| queue.uses(memory));
    }

    fn hurry(&mut self, port: &Port, address: impl Fn(ProcessId) -> Option<FiAddr>, is_meant: impl Fn(&Open) -> bool) {
        for queue in self.queues.values_mut().filter(|queue| is_meant(queue)) {
            let Some(address) = address(queue.peer) else { continue };
            // One signal is enough, and one that has no place is tried again.
            if queue.ledger.has_riders() && !queue.is_hurried && queue.ledger.admit(true).is_ok() {
                queue.is_hurried = queue.signal(port, address, 0).is_ok();
            }
        }
    }

    /// A peer is gone.
    pub(super) fn lose(&mut self, peer: ProcessId) {
        self.queues.values_mut().filter(|queue| queue.peer == peer).for_each(|queue| queue.fail(End::Disconnected));
    }

    fn find(&self, context: *mut c_void) -> Option<(QueueId, u64)> {
        let (_, id) = self.by_contexts.range(..=context.addr()).next_back()?;
        let queue = self.queues.get(id)?;
        let index = queue.ledger.index_at(queue.contexts.index(context)?)?;
        Some((*id, index))
    }

    fn remove_if_done(&mut self, id: QueueId) {
        let is_done = |queue: &Open| queue.is_closing && queue.ledger.under_way() == 0;
        if self.queues.get(&id).is_some_and(is_done)
            && let Some(queue) = self.queues.remove(&id)
        {
            self.by_contexts.remove(&queue.contexts.start());
        }
    }
}

impl Open {
    fn uses(&self, memory: &Arc<SharedMemory>) -> bool {
        let is_used = |operation: &UnderWay| operation.memory.as_ref().is_some_and(|used| Arc::ptr_eq(used, memory));
        self.ledger.open().any(is_used)
    }

    fn reaches(&self, key: RemoteKey) -> bool {
        self.ledger.open().any(|operation| operation.key == Some(key))
    }

    fn check(&self) -> Result<(), FabricError> {
        match self.end {
            None => Ok(()),
            Some(End::Disconnected) => Err(FabricError::Disconnected { process: self.peer }),
            Some(End::Stale(key)) => Err(FabricError::StaleKey { key }),
        }
    }

    fn admit(&self, signalled: bool) -> Result<(), FabricError> {
        self.check()?;
        self.ledger.admit(signalled).map_err(|refusal| match refusal {
            Refusal::Full => self.full(),
            Refusal::Overrun => self.limits.overrun(self.peer),
        })
    }

    fn full(&self) -> FabricError {
        FabricError::QueueFull { process: self.peer, max: self.limits.depth }
    }

    fn access(
        &mut self,
        key: RemoteKey,
        look_up: impl FnOnce(RemoteKey) -> Result<Reached, FabricError>,
    ) -> Result<Reached, FabricError> {
        if let Some((known, reached)) = self.last_access
            && known == key
        {
            return Ok(reached);
        }
        let reached = look_up(key)?;
        self.last_access = Some((key, reached));
        Ok(reached)
    }

    fn post(&mut self, port: &Port, order: &Order<'_>, access: NativeAccess) -> Result<(), FabricError> {
        let Transfer { kind, local, remote, remote_offset } = *order.transfer;
        let base = if port.attributes().virtual_addresses { access.base } else { 0 };
        let place = Place {
            start: local.start().addr(),
            registration: order.registration,
            remote_address: base.wrapping_add(remote_offset),
            remote_key: access.key,
        };
        let kind = match kind {
            TransferKind::Put => Kind::Put,
            TransferKind::Get => Kind::Get,
        };
        let rides = self.rides && kind == Kind::Put && order.signal.is_none();
        let piece = self.piece(kind, place, local.bytes(), order.address, !rides);
        // SAFETY: the span lies in registered memory, which `UnderWay` keeps mapped until the operation is over; to write there
        // meanwhile is what registered memory is for, and whoever does so accesses it by racy copies. The context is the operation's
        // own: the ledger has a place for it, and none under way has the same.
        let posted = unsafe { port.transfer(&piece, local.start()) }?;
        if matches!(posted, Posted::Later) {
            return Err(self.full());
        }
        if rides {
            self.last_rider = Some(place);
        }
        let under_way = UnderWay { memory: Some(local.region().memory().clone()), key: Some(remote) };
        self.ledger.push(order.signal, rides, under_way);
        Ok(())
    }

    fn signal(&mut self, port: &Port, address: FiAddr, number: u64) -> Result<(), FabricError> {
        let under_way = UnderWay { memory: None, key: None };
        match self.last_rider.filter(|_| self.ledger.has_riders()) {
            Some(place) => {
                let piece = self.piece(Kind::Put, place, 0, address, true);
                let start = std::ptr::without_provenance_mut(place.start);
                // SAFETY: no byte is accessed. The context is the operation's own, as in `post`; the registration is that of an
                // operation under way.
                let posted = unsafe { port.transfer(&piece, start) }?;
                if matches!(posted, Posted::Later) {
                    return Err(self.full());
                }
                self.ledger.push(Some(number), false, under_way);
            }
            // All that is under way is told by itself.
            None => {
                let index = self.ledger.push(Some(number), false, under_way);
                self.landed(index);
            }
        }
        Ok(())
    }

    /// Signals those that ride on nothing, since nobody will. In a full queue a signalled one is under way, after which there is room. If the
    /// provider has none, they stay until the end.
    fn signal_last(&mut self, port: &Port, address: FiAddr) {
        let signalled = self.admit(true).and_then(|()| self.signal(port, address, u64::MAX - 1));
        self.owed = signalled.is_err().then_some(address);
    }

    /// An operation in the next place of the ledger. The caller has seen that there is one.
    fn piece(&self, kind: Kind, place: Place, bytes: usize, peer: FiAddr, is_told: bool) -> Piece {
        Piece {
            kind,
            peer,
            remote_address: place.remote_address,
            remote_key: place.remote_key,
            bytes,
            registration: place.registration,
            context: self.contexts.context((self.ledger.next() % self.limits.depth as u64) as usize),
            is_told,
        }
    }

    /// An operation that is told is over, and so are those before it that ride.
    fn landed(&mut self, index: u64) {
        self.is_hurried = false;
        if self.end.is_some() {
            // Those before it that ride are over, too, well or not.
            self.ledger.end_with_all_before(index);
            return self.release_if_done();
        }
        if let Some(number) = self.ledger.end_with_all_before(index) {
            self.frontier.raise(number);
        }
    }

    fn fail(&mut self, end: End) {
        self.end.get_or_insert(end);
        self.frontier.fail();
        self.release_if_done();
    }

    /// The provider has let go of an operation of a queue that has failed.
    fn let_go(&mut self, index: u64) {
        self.ledger.end(index);
        self.release_if_done();
    }

    fn release_if_done(&mut self) {
        if self.ledger.under_way() == 0 {
            self.frontier.release();
        }
    }
}
