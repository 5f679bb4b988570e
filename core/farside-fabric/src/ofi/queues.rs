//! The queues of an endpoint: puts and gets, most of which report no completion of their own.
//!
//! libfabric guarantees no order of completions over `rxm`. A queue therefore learns of completions
//! in one of two ways ([`Open::rides`]):
//!
//! - Some providers keep puts in order at their target, also with respect to gets
//!   ([`Attributes::ordered_bytes_max`]). There a put without a signal requests no completion, and
//!   its target sends no acknowledgement. It *rides* on the next operation that requests one: that
//!   operation ends when the target has executed it, and with it everything before.
//! - Otherwise, and for all gets, whose bytes may arrive out of order, each operation requests a
//!   completion. The [`Ledger`] withholds a signal until all operations before it are over.
//!
//! A failure is reported for riding operations, too, as long as they have not left. It ends the
//! queue. For those that have left, `rxm` reports nothing: it tries to connect again, and posts
//! nothing meanwhile. So a peer that is killed may have to be [forgotten] before its queues fail.
//!
//! [forgotten]: crate::transport::Transport::forget
//!
//! [`Attributes::ordered_bytes_max`]: super::port::Attributes::ordered_bytes_max

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

use farside_sys::shm::SharedMemory;

use super::ffi::FiAddr;
use super::flights::Contexts;
use super::port::{Kind, Piece, Port, Posted, Registration};
use crate::emulated::NativeAccess;
use crate::ids::ProcessId;
use crate::queue::{Frontier, Ledger, QueueLimits, Refusal, Transfer, TransferKind};
use crate::transport::{FabricError, RemoteKey};

/// Names a queue of an endpoint.
pub(super) type QueueId = u64;

/// The open queues, and closed ones with operations in flight.
#[derive(Debug, Default)]
pub(super) struct Queues {
    queues: BTreeMap<QueueId, Open>,
    next: QueueId,
    /// The queues by the address of their first context.
    by_contexts: BTreeMap<usize, QueueId>,
}

#[derive(Debug)]
struct Open {
    peer: ProcessId,
    limits: QueueLimits,
    /// True if puts without a signal ride, that is, request no completion.
    rides: bool,
    ledger: Ledger<UnderWay>,
    /// One context for each place in the ledger, used cyclically.
    contexts: Contexts,
    frontier: Arc<Frontier>,
    end: Option<End>,
    is_closing: bool,
    /// True if a signal of the endpoint itself is in flight, behind all operations that ride to a
    /// withdrawn region.
    is_hurried: bool,
    /// The peer's address for the last signal of a closing queue, if there was no room for it.
    owed: Option<FiAddr>,
    /// The region of the last operation, because the next operation is usually on the same one.
    last_access: Option<(RemoteKey, Reached)>,
    /// The place for a signal that moves no data.
    last_rider: Option<Place>,
}

/// Kept unchanged while an operation is in flight.
#[derive(Debug)]
struct UnderWay {
    memory: Option<Arc<SharedMemory>>,
    key: Option<RemoteKey>,
}

/// The access to a peer's region.
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

/// The reason why a queue has failed.
#[derive(Clone, Copy, Debug)]
enum End {
    Disconnected,
    Stale(RemoteKey),
}

/// An operation to post, with what the endpoint knows of it.
#[derive(Debug)]
pub(super) struct Order<'o> {
    pub(super) transfer: &'o Transfer<'o>,
    pub(super) signal: Option<u64>,
    pub(super) address: FiAddr,
    /// The registration of the local memory, where the provider requires one.
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

    /// Closes a queue that has no user any more. It is removed when nothing is in flight.
    pub(super) fn close(&mut self, port: &Port, id: QueueId, address: Option<FiAddr>) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.is_closing = true;
        if let Some(address) = address {
            queue.signal_last(port, address);
        }
        self.remove_if_done(id);
    }

    /// Number of queues.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.queues.len()
    }

    /// Number of operations of a queue that are not over.
    #[cfg(test)]
    pub(super) fn under_way(&self, id: QueueId) -> usize {
        self.queues[&id].ledger.under_way()
    }

    /// The peer of a queue.
    pub(super) fn peer(&self, id: QueueId) -> Option<ProcessId> {
        self.queues.get(&id).map(|queue| queue.peer)
    }

    /// Posts an operation. `access` looks up the access to a region.
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

    /// Posts a signal that moves no data.
    pub(super) fn signal(&mut self, port: &Port, id: QueueId, address: FiAddr, number: u64) -> Result<(), FabricError> {
        let queue = self.queues.get_mut(&id).expect("a queue is closed by its last user");
        queue.admit(true)?;
        queue.signal(port, address, number)
    }

    /// Fails if a queue has failed.
    ///
    /// # Errors
    /// The reason for the failure.
    pub(super) fn check(&self, id: QueueId) -> Result<(), FabricError> {
        self.queues.get(&id).map_or(Ok(()), Open::check)
    }

    /// Number of operations of a failed queue that are still in flight.
    pub(super) fn quarantined(&self, id: QueueId) -> usize {
        let failed = self.queues.get(&id).filter(|queue| queue.end.is_some());
        failed.map_or(0, |queue| queue.ledger.under_way())
    }

    /// Number of operations of all failed queues that are still in flight.
    pub(super) fn all_quarantined(&self) -> usize {
        self.queues.keys().map(|id| self.quarantined(*id)).sum()
    }

    /// Records that an operation has ended. Returns whether there was one with this context.
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

    /// Records that an operation has failed. Returns the peer, if it is lost with the operation.
    pub(super) fn failed(&mut self, context: *mut c_void, is_refused: bool) -> Option<ProcessId> {
        let (id, index) = self.find(context)?;
        let queue = self.queues.get_mut(&id).expect("it was just found");
        let key = queue.ledger.get(index).and_then(|under_way| under_way.key);
        let end = key.filter(|_| is_refused).map_or(End::Disconnected, End::Stale);
        queue.fail(end);
        queue.note_released(index);
        let peer = queue.peer;
        self.remove_if_done(id);
        matches!(end, End::Disconnected).then_some(peer)
    }

    /// Forgets a withdrawn region: nothing more is posted to it.
    pub(super) fn forget_access(&mut self, key: RemoteKey) {
        for queue in self.queues.values_mut() {
            queue.last_access.take_if(|(known, _)| *known == key);
        }
    }

    /// Returns whether an operation to a peer's region is in flight.
    pub(super) fn reaches(&self, key: RemoteKey) -> bool {
        self.queues.values().any(|queue| queue.reaches(key))
    }

    /// Returns whether an operation from or to this memory of this process is in flight.
    pub(super) fn uses(&self, memory: &Arc<SharedMemory>) -> bool {
        self.queues.values().any(|queue| queue.uses(memory))
    }

    /// Makes the operations that ride to a region complete soon, even if their poster posts nothing
    /// more.
    pub(super) fn hurry_to(&mut self, port: &Port, key: RemoteKey, address: impl Fn(ProcessId) -> Option<FiAddr>) {
        self.hurry(port, address, |queue| queue.reaches(key));
    }

    /// Makes the operations that ride from this memory of this process complete soon.
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
            // One signal is enough; one for which there is no room is tried again.
            if queue.ledger.has_riders() && !queue.is_hurried && queue.ledger.admit(true).is_ok() {
                queue.is_hurried = queue.signal(port, address, 0).is_ok();
            }
        }
    }

    /// Fails the queues to a peer that is gone.
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
        // SAFETY: the span lies in registered memory, which `UnderWay` keeps mapped until the
        // operation is over. Other code may write registered memory meanwhile, and does so only by
        // racy copies. The context belongs to this operation alone: the ledger has a place for it,
        // and no operation in flight has the same place.
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
                // SAFETY: no byte is accessed. The context belongs to this operation alone, as in
                // `post`; the registration is that of an operation in flight.
                let posted = unsafe { port.transfer(&piece, start) }?;
                if matches!(posted, Posted::Later) {
                    return Err(self.full());
                }
                self.ledger.push(Some(number), false, under_way);
            }
            // Every operation in flight requests its own completion.
            None => {
                let index = self.ledger.push(Some(number), false, under_way);
                self.landed(index);
            }
        }
        Ok(())
    }

    /// Signals the operations that have no later operation to ride on. In a full queue a signalled
    /// one is in flight; when it is over there is room. If the provider has no room, they stay
    /// until the end.
    fn signal_last(&mut self, port: &Port, address: FiAddr) {
        let signalled = self.admit(true).and_then(|()| self.signal(port, address, u64::MAX - 1));
        self.owed = signalled.is_err().then_some(address);
    }

    /// Builds the operation for the next place of the ledger. The caller has checked that there is
    /// one.
    fn piece(&self, kind: Kind, place: Place, bytes: usize, peer: FiAddr, is_reported: bool) -> Piece {
        Piece {
            kind,
            peer,
            remote_address: place.remote_address,
            remote_key: place.remote_key,
            bytes,
            registration: place.registration,
            context: self.contexts.context((self.ledger.next() % self.limits.depth as u64) as usize),
            is_reported,
        }
    }

    /// Records that an operation with a completion is over, and thus the riding ones before it.
    fn landed(&mut self, index: u64) {
        self.is_hurried = false;
        if self.end.is_some() {
            // The riding operations before it are over, too, successful or not.
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

    /// Records that the provider has released an operation of a failed queue.
    fn note_released(&mut self, index: u64) {
        self.ledger.end(index);
        self.release_if_done();
    }

    fn release_if_done(&mut self) {
        if self.ledger.under_way() == 0 {
            self.frontier.release();
        }
    }
}
