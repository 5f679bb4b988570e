//! The state that an endpoint's lock guards.

mod farewell;
mod queued;
mod receives;
mod regions;

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;

use farside_sys::shm::SharedMemory;

use self::regions::{Natives, register_shared};
use super::events::{Events, News};
use super::ffi::{CqDataEntry, FiAddr};
use super::flights::Flights;
use super::message::{HEADER_BYTES, Header, Kind};
use super::pool::Pool;
use super::port::{self, Entries, Failure, Piece, Polled, Port, Posted, Rights, random_key};
use super::queues::Queues;
use super::staging::{RECEIVE_SLOTS, SEND_SLOTS, SLOT_BYTES, Staging};
use super::transfer::{Lent, Transfer, TransferId};
use crate::emulated::{Engine, Limits, NativeAccess, Registration as NewRegion};
use crate::ids::ProcessId;
use crate::transport::{Completion, Event, FabricError, Operation, RemoteKey, Unposted};

/// Maximum number of operations in flight per process.
pub(super) const OPERATIONS_MAX: usize = 64;
/// Maximum number of pieces of transfers in flight; others wait.
const PIECES_MAX: usize = 128;
/// Maximum length of a message's payload.
pub(super) const MESSAGE_BYTES_MAX: usize = SLOT_BYTES - HEADER_BYTES;
/// Limits of the engine.
pub(super) const LIMITS: Limits =
    Limits { message_bytes_max: MESSAGE_BYTES_MAX, operations_max: OPERATIONS_MAX, messages_max: SEND_SLOTS };
/// Maximum number of slots for messages to one peer that is being connected or has no room.
const BACKLOG_MAX: usize = 8;
/// Maximum length of a piece of a transfer. (The provider's own limit may be lower.)
const PIECE_BYTES_MAX: usize = 4 << 20;
/// An access of up to this many bytes is never split into pieces.
const WHOLE_BYTES_MAX: usize = 8;

// Error numbers of a completion that report a wrong key or address, and not a lost peer.
const EPERM: i32 = 1;
const EACCES: i32 = 13;
const ENOKEY: i32 = 266;

#[derive(Debug)]
pub(super) struct State {
    // The port comes first: fields are dropped in this order, and what the port uses may go only
    // after it is closed.
    port: Port,
    flights: Flights<Flight>,
    staging: Staging,
    pool: Pool,
    queues: Queues,
    transfers: HashMap<TransferId, Transfer>,
    engine: Engine,
    natives: Natives,

    process: ProcessId,
    token: u64,
    peers: Vec<Peer>,
    next_transfer: TransferId,
    /// Transfers with pieces that wait to be posted.
    unposted: VecDeque<TransferId>,
    /// Slots for received messages that the provider had no room for.
    unposted_slots: Vec<usize>,
    events: Events,
    /// True if a thread sleeps on libfabric's descriptor, or is about to, and has not been woken.
    pub(super) sleeps: bool,
    /// The reason why the endpoint no longer works.
    broken: Option<String>,
}

#[derive(Debug)]
struct Peer {
    address: Option<FiAddr>,
    /// True if a message came from the peer or went to it.
    met: bool,
    /// True if a farewell went to the peer.
    told: bool,
    /// Messages in their slots that wait for room.
    backlog: VecDeque<(usize, usize)>,
    /// Number of messages in flight.
    messages: usize,
}

/// The purpose of an operation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flight {
    /// A slot waits for a message.
    Receive { slot: usize },
    /// A message is sent from a slot.
    Message { to: ProcessId, slot: usize },
    /// A piece of a transfer.
    Piece { of: TransferId },
}

impl State {
    /// Creates the state of an open port. The starter memory is the first `bytes` bytes of
    /// `memory`.
    pub(super) fn new(
        mut port: Port,
        process: ProcessId,
        process_count: u32,
        memory: Arc<SharedMemory>,
        bytes: usize,
    ) -> Result<Self, FabricError> {
        let staging = Staging::new(&mut port)?;
        let (access, registration) = register_shared(&mut port, &memory)?;
        let starter = NewRegion { memory: memory.clone(), bytes, access: Some(access) };
        let engine = Engine::new(process, process_count, starter, LIMITS);
        let peer = |_| Peer { address: None, met: false, told: false, backlog: VecDeque::new(), messages: 0 };
        let mut state = Self {
            port,
            flights: Flights::new(RECEIVE_SLOTS + SEND_SLOTS + PIECES_MAX),
            staging,
            pool: Pool::new(),
            queues: Queues::default(),
            transfers: HashMap::new(),
            engine,
            natives: Natives::default(),
            process,
            token: 0,
            peers: (0..process_count).map(peer).collect(),
            next_transfer: 0,
            unposted: VecDeque::new(),
            unposted_slots: (0..RECEIVE_SLOTS).collect(),
            events: Events::default(),
            sleeps: false,
            broken: None,
        };
        state.note_starter(registration, memory);
        state.post_receives()?;
        Ok(state)
    }

    /// Introduces the peers by their addresses.
    pub(super) fn introduce(&mut self, addresses: &[Vec<u8>], token: u64) -> Result<(), FabricError> {
        for (number, address) in addresses.iter().enumerate().filter(|(number, _)| *number != self.process.index()) {
            self.peers[number].address = Some(self.port.insert(address)?);
        }
        self.token = token;
        Ok(())
    }

    pub(super) fn port(&self) -> &Port {
        &self.port
    }

    // Regions.

    pub(super) fn attach(&mut self, key: RemoteKey) -> Result<Completion, FabricError> {
        self.check()?;
        self.engine.attach(key)
    }

    pub(super) fn is_attached(&self, key: RemoteKey) -> bool {
        self.engine.is_attached(key)
    }

    // Operations.

    pub(super) fn post(&mut self, key: RemoteKey, operation: Operation) -> Result<Completion, Unposted> {
        if let Err(error) = self.check() {
            return Err(operation.refused(error));
        }
        let native = match &operation {
            Operation::Put { data: buffer, .. } | Operation::Get { room: buffer, .. } => {
                self.is_native(key, buffer.len())
            }
            Operation::Atomic32 { .. } | Operation::Atomic64 { .. } => None,
        };
        let Some(access) = native else {
            let posted = self.engine.post(key, operation);
            self.flush_engine();
            return posted;
        };
        let (kind, offset, data) = match operation {
            Operation::Put { offset, data } => (port::Kind::Put, offset, data),
            Operation::Get { offset, room } => (port::Kind::Get, offset, room),
            Operation::Atomic32 { .. } | Operation::Atomic64 { .. } => unreachable!("atomics are not native"),
        };
        if let Err(error) = key.check(offset, data.len()) {
            return Ok(ended(Err(error)));
        }
        if kind == port::Kind::Put && !self.engine.is_writable(key) {
            return Ok(ended(Err(FabricError::ReadOnly { key })));
        }
        // Operations in quarantine do not count any more.
        if self.transfers.values().filter(|transfer| transfer.is_wanted()).count() >= OPERATIONS_MAX {
            let full = FabricError::QueueFull { process: key.process, max: OPERATIONS_MAX };
            return Err(kind.of(offset, data).refused(full));
        }
        self.start(key, access, kind, offset, data)
    }

    /// libfabric's access to a region, if an access of `bytes` bytes should use it.
    fn is_native(&self, key: RemoteKey, bytes: usize) -> Option<NativeAccess> {
        let in_software = self.works_in_software();
        let wanted = key.process != self.process && bytes > if in_software { WHOLE_BYTES_MAX } else { 0 };
        let reachable = wanted && self.engine.check_peer(key.process).is_ok();
        if reachable { self.engine.native(key) } else { None }
    }

    /// Returns whether the provider copies with this machine's processor, and works only while a
    /// thread makes progress. An untested provider counts as one that does: that is right for every
    /// provider, and slower for some.
    pub(super) fn works_in_software(&self) -> bool {
        !self.port.provider().starts_with("verbs")
    }

    fn start(
        &mut self,
        key: RemoteKey,
        access: NativeAccess,
        kind: port::Kind,
        offset: u64,
        mut data: Vec<u8>,
    ) -> Result<Completion, Unposted> {
        let lent = match self.lend(kind, &mut data) {
            Ok(lent) => lent,
            Err(error) => return Err(kind.of(offset, data).refused(error)),
        };
        let completion = Completion::pending();
        let id = self.next_transfer;
        self.next_transfer += 1;
        let transfer = Transfer {
            key,
            access,
            offset,
            kind,
            data,
            lent,
            posted: 0,
            pieces: 0,
            error: None,
            completion: Some(completion.clone()),
        };
        self.transfers.insert(id, transfer);
        self.unposted.push_back(id);
        self.post_pieces();
        Ok(completion)
    }

    /// Provides the memory in which libfabric finds the bytes of a transfer.
    fn lend(&mut self, kind: port::Kind, data: &mut [u8]) -> Result<Lent, FabricError> {
        if !self.port.attributes().registers_local {
            return Ok(Lent::Buffer);
        }
        if let Some(slot) = self.pool.take(&mut self.port, data.len()) {
            if kind == port::Kind::Put {
                let (start, _) = self.pool.slot(slot);
                // SAFETY: the slot was free, and is at least as long as the data for which it was
                // taken.
                unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), start, data.len()) };
            }
            return Ok(Lent::Slot(slot));
        }
        // SAFETY: the buffer stays in the transfer, which outlives its registration: `finish`
        // closes that first, and the port, which is dropped first, closes all that are left.
        let registered = unsafe { self.port.register(data.as_mut_ptr(), data.len(), random_key()?, Rights::Local) };
        Ok(Lent::Registered(registered?))
    }

    /// Number of buffers that were registered separately because the pool had no slot for them.
    pub(super) fn passed_pool(&self) -> u64 {
        self.pool.passed_by()
    }

    /// Posts waiting transfers, as far as there is room. They need not keep their order: a transfer
    /// to a peer that is being connected does not delay others.
    fn post_pieces(&mut self) {
        for _ in 0..self.unposted.len() {
            let Some(id) = self.unposted.pop_front() else { return };
            if self.post_transfer(id) {
                self.finish(id);
            } else {
                self.unposted.push_back(id);
            }
        }
    }

    /// Posts the pieces of a transfer. Returns whether all are posted.
    fn post_transfer(&mut self, id: TransferId) -> bool {
        let attributes = self.port.attributes();
        let Some(transfer) = self.transfers.get_mut(&id) else { return true };
        let Some(peer) = self.peers[transfer.key.process.index()].address else {
            transfer.error = Some(FabricError::Disconnected { process: transfer.key.process });
            return true;
        };
        while transfer.has_more() {
            let left = transfer.data.len() - transfer.posted;
            let bytes = left.min(attributes.bytes_max).min(PIECE_BYTES_MAX);
            let Ok(context) = self.flights.begin(Flight::Piece { of: id }) else { return false };
            let base = if attributes.virtual_addresses { transfer.access.base } else { 0 };
            let (first, registration) = match transfer.lent {
                Lent::Buffer => (transfer.data.as_mut_ptr(), None),
                Lent::Registered(registration) => (transfer.data.as_mut_ptr(), Some(registration)),
                Lent::Slot(slot) => {
                    let (start, registration) = self.pool.slot(slot);
                    (start, Some(registration))
                }
            };
            let piece = Piece {
                kind: transfer.kind,
                peer,
                remote_address: base.wrapping_add(transfer.offset).wrapping_add(transfer.posted as u64),
                remote_key: transfer.access.key,
                bytes,
                registration,
                context,
                is_reported: true,
            };
            let start = first.wrapping_add(transfer.posted);
            // SAFETY: the piece lies in the buffer or the slot, which this process does not touch
            // until its last piece has landed; the context belongs to this flight alone.
            let posted = unsafe { self.port.transfer(&piece, start) };
            match posted {
                Ok(Posted::Yes) => {
                    transfer.pieces += 1;
                    transfer.posted += bytes;
                }
                Ok(Posted::Later) => {
                    self.flights.end(context);
                    return false;
                }
                Err(error) => {
                    self.flights.end(context);
                    transfer.error.get_or_insert(error);
                }
            }
        }
        true
    }

    /// Ends a transfer, if it is over.
    fn finish(&mut self, id: TransferId) {
        if !self.transfers.get(&id).is_some_and(Transfer::is_over) {
            return;
        }
        if let Some(mut transfer) = self.transfers.remove(&id) {
            match transfer.lent {
                Lent::Buffer => {}
                Lent::Registered(registration) => self.port.deregister(registration),
                Lent::Slot(slot) => {
                    if transfer.kind == port::Kind::Get && transfer.error.is_none() {
                        let (start, _) = self.pool.slot(slot);
                        // SAFETY: the get is over, so nothing writes the slot, which is at least as
                        // long as the buffer.
                        unsafe {
                            std::ptr::copy_nonoverlapping(start, transfer.data.as_mut_ptr(), transfer.data.len())
                        };
                    }
                    self.pool.give_back(slot);
                }
            }
            transfer.tell();
        }
    }

    /// Number of buffers that libfabric has not released, although their peers are lost or they
    /// were cancelled.
    pub(super) fn quarantined(&self) -> usize {
        self.transfers.values().filter(|transfer| !transfer.is_wanted()).count() + self.queues.all_quarantined()
    }

    // Messages.

    pub(super) fn send(
        &mut self,
        to: ProcessId,
        bytes: usize,
        write: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), FabricError> {
        self.check()?;
        self.engine.check_peer(to)?;
        if bytes > MESSAGE_BYTES_MAX {
            return Err(FabricError::MessageTooLong { bytes, max: MESSAGE_BYTES_MAX });
        }
        if to == self.process {
            let mut message = vec![0; bytes];
            write(&mut message);
            self.events.push(Event::Message { from: to, message });
            return Ok(());
        }
        let header = Header { token: self.token, from: self.process, kind: Kind::User };
        let peer = &mut self.peers[to.index()];
        let payload = (bytes, write);
        if transmit(&self.port, &mut self.flights, &mut self.staging, peer, to, header, payload)? {
            Ok(())
        } else {
            Err(FabricError::QueueFull { process: to, max: SEND_SLOTS })
        }
    }

    /// Posts receives, sends the engine's packets, and sends messages that had no room, as far as
    /// there is room now.
    fn send_waiting(&mut self) {
        self.offer_slots();
        self.settle_regions();
        if self.staging.has_waiting() {
            let mut out_of_reach = Vec::new();
            for (number, peer) in (0..).map(ProcessId::new).zip(&mut self.peers) {
                if send_backlog(&self.port, &mut self.flights, &mut self.staging, peer, number).is_err() {
                    out_of_reach.push(number);
                }
            }
            out_of_reach.into_iter().for_each(|process| self.lose(process));
        }
        self.flush_engine();
        self.post_pieces();
    }

    fn flush_engine(&mut self) {
        let Self { engine, port, flights, staging, peers, token, process, .. } = self;
        let header = Header { token: *token, from: *process, kind: Kind::Packet };
        engine.flush(|to, packet| {
            let payload: Payload<'_> = (packet.len(), &mut |slot| slot.copy_from_slice(&packet));
            match transmit(port, flights, staging, &mut peers[to.index()], to, header, payload) {
                Ok(true) => Ok(()),
                Ok(false) | Err(_) => Err(packet),
            }
        });
    }

    pub(super) fn next_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    pub(super) fn news(&self) -> &Arc<News> {
        self.events.news()
    }

    // Progress.

    /// Advances everything that can advance. Returns whether anything arrived or ended.
    pub(super) fn progress(&mut self) -> bool {
        if self.broken.is_some() {
            return false;
        }
        let mut any = false;
        let mut entries: Entries = [MaybeUninit::uninit(); 32];
        loop {
            let polled = match self.port.poll(&mut entries) {
                Ok(polled) => polled,
                Err(error) => {
                    self.break_down(&error);
                    return true;
                }
            };
            match polled {
                Polled::Nothing => break,
                Polled::Done(count) => {
                    any = true;
                    for entry in &entries[..count] {
                        // SAFETY: the port has filled in `count` entries.
                        let entry: CqDataEntry = unsafe { entry.assume_init() };
                        self.landed(entry.op_context, entry.len);
                    }
                    if count < entries.len() {
                        // The queue is empty. Another poll would cost a system call, which can wait
                        // for the next call.
                        break;
                    }
                }
                Polled::Failed(failure) => {
                    any = true;
                    self.failed(failure);
                }
            }
        }
        self.send_waiting();
        any
    }

    /// Returns whether something waits for room, which libfabric does not announce.
    pub(super) fn waits_for_room(&self) -> bool {
        !self.unposted.is_empty()
            || !self.unposted_slots.is_empty()
            || self.engine.waiting_for_room().next().is_some()
            || self.staging.has_waiting()
    }

    /// Returns whether messages are waiting or in flight.
    pub(super) fn sends(&self) -> bool {
        self.staging.has_waiting() || self.peers.iter().any(|peer| peer.messages > 0)
    }

    fn landed(&mut self, context: *mut c_void, bytes: usize) {
        match self.flights.end(context) {
            Some(Flight::Receive { slot }) => {
                let message = Header::decode(self.staging.message(slot, bytes));
                let message = message.map(|(header, payload)| (header, payload.to_vec()));
                self.offer(slot);
                if let Some((header, payload)) = message {
                    self.take_message(header, payload);
                }
            }
            Some(Flight::Message { to, slot }) => {
                self.peers[to.index()].messages -= 1;
                self.staging.give_back(slot);
            }
            Some(Flight::Piece { of }) => {
                if let Some(transfer) = self.transfers.get_mut(&of) {
                    transfer.pieces -= 1;
                }
                self.finish(of);
            }
            None => {
                self.queues.landed(&self.port, context);
            }
        }
    }

    fn failed(&mut self, failure: Failure) {
        match self.flights.end(failure.context) {
            // A message that no slot could hold, from a sender that is not a process of this job.
            Some(Flight::Receive { slot }) => self.offer(slot),
            Some(Flight::Message { to, slot }) => {
                self.peers[to.index()].messages -= 1;
                self.staging.give_back(slot);
                self.lose(to);
            }
            Some(Flight::Piece { of }) => {
                let Some(transfer) = self.transfers.get_mut(&of) else { return };
                transfer.pieces -= 1;
                let key = transfer.key;
                let is_refused = matches!(failure.code, EPERM | EACCES | ENOKEY);
                transfer.error.get_or_insert(if is_refused {
                    FabricError::StaleKey { key }
                } else {
                    FabricError::Disconnected { process: key.process }
                });
                self.finish(of);
                if !is_refused {
                    self.lose(key.process);
                }
            }
            None => {
                let is_refused = matches!(failure.code, EPERM | EACCES | ENOKEY);
                if let Some(lost) = self.queues.failed(failure.context, is_refused) {
                    self.lose(lost);
                }
            }
        }
    }

    fn take_message(&mut self, header: Header, payload: Vec<u8>) {
        let from = header.from;
        if header.token != self.token || from == self.process || self.engine.check_peer(from).is_err() {
            return;
        }
        self.peers[from.index()].met = true;
        match header.kind {
            Kind::User => self.events.push(Event::Message { from, message: payload }),
            Kind::Packet => {
                if self.engine.take(from, &payload).is_err() {
                    self.lose(from);
                }
            }
            Kind::Farewell => {
                self.lose(from);
                self.answer_farewell(from);
            }
        }
    }

    // Ends.

    /// Marks a peer as gone for ever.
    pub(super) fn lose(&mut self, process: ProcessId) {
        self.taint_regions_held_by(process);
        if !self.engine.lose(process) {
            return;
        }
        // Memory that the peer may still write was tainted above.
        self.engine.confirm_loss(process);
        let peer = &mut self.peers[process.index()];
        for (slot, _) in peer.backlog.drain(..) {
            self.staging.left();
            self.staging.give_back(slot);
        }
        let with_it = self.transfers.iter_mut().filter(|(_, transfer)| transfer.key.process == process);
        let mut ids = Vec::new();
        for (id, transfer) in with_it {
            if let Some(completion) = transfer.completion.take() {
                completion.end(Err(FabricError::Disconnected { process }));
            }
            ids.push(*id);
        }
        self.queues.lose(process);
        self.unposted.retain(|id| !ids.contains(id));
        ids.into_iter().for_each(|id| self.finish(id));
        // Messages to the peer need not be waited for; their completions tell whether the provider
        // cancels them.
        let to_it: Vec<_> = self
            .flights
            .iter()
            .filter(|(_, flight)| matches!(flight, Flight::Message { to, .. } if *to == process))
            .map(|(context, _)| context)
            .collect();
        for context in to_it {
            // SAFETY: these operations are in flight.
            unsafe { self.port.cancel(context) };
        }
        tracing::debug!(%process, "connection lost");
        self.events.push(Event::Disconnected { process });
    }

    fn check(&self) -> Result<(), FabricError> {
        match &self.broken {
            None => Ok(()),
            Some(why) => Err(FabricError::Provider {
                doing: "an operation on a broken endpoint",
                provider: self.port.provider().to_owned(),
                why: why.clone(),
                code: 0,
            }),
        }
    }

    /// Marks the endpoint as broken: all peers are unreachable.
    fn break_down(&mut self, why: &FabricError) {
        self.broken.get_or_insert_with(|| why.to_string());
        let own = self.process;
        for process in (0..self.peers.len() as u32).map(ProcessId::new).filter(|process| *process != own) {
            self.lose(process);
        }
    }
}

fn ended(result: Result<crate::transport::Outcome, FabricError>) -> Completion {
    let completion = Completion::pending();
    completion.end(result);
    completion
}

/// The payload of a message: its length, and what writes it.
type Payload<'a> = (usize, &'a mut dyn FnMut(&mut [u8]));

/// Sends a message, or queues it behind those that wait. Returns whether there was room for that.
fn transmit(
    port: &Port,
    flights: &mut Flights<Flight>,
    staging: &mut Staging,
    peer: &mut Peer,
    to: ProcessId,
    header: Header,
    (bytes, write): Payload<'_>,
) -> Result<bool, FabricError> {
    if peer.address.is_none() {
        return Err(FabricError::Disconnected { process: to });
    }
    if peer.backlog.len() >= BACKLOG_MAX {
        return Ok(false);
    }
    let Some(slot) = staging.take() else { return Ok(false) };
    let bytes = staging.fill(slot, &header.encode(), bytes, write);
    peer.met = true;
    peer.backlog.push_back((slot, bytes));
    // A failed send is repeated at the next progress; then the peer is given up.
    let _ = send_backlog(port, flights, staging, peer, to);
    Ok(true)
}

/// Sends the messages that wait for a peer, in order, as far as there is room.
///
/// # Errors
/// libfabric's error, if it refuses the next message permanently.
fn send_backlog(
    port: &Port,
    flights: &mut Flights<Flight>,
    staging: &mut Staging,
    peer: &mut Peer,
    to: ProcessId,
) -> Result<(), FabricError> {
    let Some(address) = peer.address else { return Ok(()) };
    while let Some((slot, bytes)) = peer.backlog.front().copied() {
        let Ok(context) = flights.begin(Flight::Message { to, slot }) else { return Ok(()) };
        // SAFETY: the slot is taken and filled, and nothing touches it until this flight has ended;
        // the context belongs to this flight alone.
        let posted = unsafe { port.send(address, staging.address(slot), bytes, staging.registration(), context) };
        match posted {
            Ok(Posted::Yes) => {
                peer.backlog.pop_front();
                staging.left();
                peer.messages += 1;
            }
            Ok(Posted::Later) => {
                flights.end(context);
                return Ok(());
            }
            Err(error) => {
                flights.end(context);
                return Err(error);
            }
        }
    }
    Ok(())
}
