//! libfabric alone: the time that it takes itself for messages and puts, as a reference for the
//! transport over it.
//!
//! A [`RawEnd`] is one of two endpoints. It copies, queues and looks up nothing: the caller decides
//! when to poll, and polls as long as it waits for something. The contents of the bytes do not
//! matter.
//!
//! ```no_run
//! use farside_fabric::ofi::raw::RawEnd;
//!
//! # fn swap(card: Vec<u8>) -> Vec<u8> { card }
//! let mut end = RawEnd::open(Some("tcp"), None, 1 << 20)?;
//! // Exchanged by other means, such as a pipe.
//! let card_of_the_other = swap(end.card()?);
//! end.introduce(&card_of_the_other)?;
//! while !end.try_put(0, 4096)? {
//!     end.poll()?;
//! }
//! while end.puts_under_way() > 0 {
//!     end.poll()?;
//! }
//! # Ok::<(), farside_fabric::FabricError>(())
//! ```

use std::ffi::c_void;
use std::mem::MaybeUninit;

use farside_sys::process::random_bytes;
use farside_sys::shm::SharedMemory;
use farside_wire::check::MessageKind;
use farside_wire::{Decoder, Wire};

use super::ffi::{CqDataEntry, FiAddr};
use super::flights::Flights;
use super::library::Api;
use super::message::Card;
use super::port::{Entries, Kind, Piece, Polled, Port, Posted, Registration, Rights};
use super::provider;
use crate::ids::ProcessId;
use crate::transport::FabricError;

/// Maximum length of a message.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Maximum number of messages that may arrive before they are polled for.
const RECEIVES: usize = 64;
/// Maximum number of messages and puts in flight.
const POSTS_MAX: usize = 128;

// The layout of the memory: received messages, the message to send, and the memory of puts.
const SENT: usize = RECEIVES * MESSAGE_BYTES_MAX;
const PUT: usize = SENT + MESSAGE_BYTES_MAX;

/// One of two endpoints that are connected by libfabric alone, without Farside's protocols.
#[derive(Debug)]
pub struct RawEnd {
    // The port comes first: fields are dropped in this order, and what the port uses may go only
    // after it is closed.
    port: Port,
    flights: Flights<Flight>,
    memory: SharedMemory,
    registration: Registration,
    put_bytes: usize,
    peer: Option<Peer>,
    /// Slots for messages that must be offered again.
    taken: Vec<usize>,
    received: u64,
    sends: usize,
    puts: usize,
    gets: usize,
}

/// The purpose of an operation in flight.
#[derive(Clone, Copy, Debug)]
enum Flight {
    Receive { place: usize },
    Send,
    Put,
    Get,
}

/// The other endpoint.
#[derive(Clone, Copy, Debug)]
struct Peer {
    address: FiAddr,
    memory: Target,
}

/// The memory that an endpoint lets the other write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
struct Target {
    key: u64,
    /// Its start, as libfabric addresses it.
    base: u64,
    bytes: u64,
}

impl RawEnd {
    /// Opens an endpoint on a provider, or on the best available one, at an address of this
    /// machine, or at one that other machines reach; see [`OfiConfig`](super::OfiConfig). The other
    /// endpoint may put into `put_bytes` bytes of its memory, and get from them.
    ///
    /// # Errors
    /// [`FabricError::Unavailable`] if libfabric or the provider is missing;
    /// [`FabricError::Memory`]; [`FabricError::Provider`].
    pub fn open(provider: Option<&str>, address: Option<&str>, put_bytes: usize) -> Result<Self, FabricError> {
        let api = Api::open()?;
        let (info, provider) = provider::choose(api, provider, address, None)?;
        let memory = SharedMemory::create("farside-raw", PUT + put_bytes)?;
        let mut port = Port::open(api, info, provider, 2)?;
        let key = random_bytes().map_err(|cause| FabricError::System { doing: "getting random bytes", cause })?;
        // SAFETY: the port is dropped before the memory, here as the later of two locals, and below
        // as the first field.
        let registration =
            unsafe { port.register(memory.base().as_ptr(), PUT + put_bytes, u64::from_le_bytes(key), Rights::All) }?;
        let mut end = Self {
            port,
            flights: Flights::new(RECEIVES + POSTS_MAX),
            memory,
            registration,
            put_bytes,
            peer: None,
            taken: (0..RECEIVES).collect(),
            received: 0,
            sends: 0,
            puts: 0,
            gets: 0,
        };
        end.offer_places()?;
        Ok(end)
    }

    /// The provider, as libfabric spells it.
    pub fn provider(&self) -> &str {
        self.port.provider()
    }

    /// The data by which the other endpoint reaches this one.
    ///
    /// # Errors
    /// [`FabricError::Provider`].
    pub fn card(&self) -> Result<Vec<u8>, FabricError> {
        let is_virtual = self.port.attributes().virtual_addresses;
        let base = if is_virtual { self.memory.base().as_ptr() as u64 } else { 0 };
        let memory = Target { key: self.registration.key, base, bytes: self.put_bytes as u64 };
        let card = self.own_card()?;
        Ok(encode(&memory, &card))
    }

    fn own_card(&self) -> Result<Card, FabricError> {
        Ok(Card::new(self.provider(), self.port.address()?))
    }

    /// Introduces the other endpoint, by its [card](Self::card).
    ///
    /// # Errors
    /// [`FabricError::Refused`] if the card is malformed, or of another provider;
    /// [`FabricError::Provider`].
    pub fn introduce(&mut self, card: &[u8]) -> Result<(), FabricError> {
        // Endpoints have no numbers; this one counts as 0.
        let refused = |why| FabricError::Refused { process: ProcessId::new(1), why };
        let (memory, card) = decode(card).ok_or(refused("it has no address on this fabric"))?;
        if let Some(why) = self.own_card()?.refusal(&card) {
            return Err(refused(why));
        }
        self.peer = Some(Peer { address: self.port.insert(&card.address)?, memory });
        Ok(())
    }

    /// Sends a message of `bytes` arbitrary bytes. Returns whether there was room; if not, polling
    /// makes room.
    ///
    /// # Errors
    /// [`FabricError::Provider`].
    ///
    /// # Panics
    /// If the message is longer than [`MESSAGE_BYTES_MAX`], or the other endpoint has not been
    /// introduced.
    pub fn try_send(&mut self, bytes: usize) -> Result<bool, FabricError> {
        assert!(bytes <= MESSAGE_BYTES_MAX, "a message has at most {MESSAGE_BYTES_MAX} bytes");
        let peer = self.peer();
        let Some(context) = self.begin(Flight::Send) else { return Ok(false) };
        let start = self.memory.base().as_ptr().wrapping_add(SENT);
        // SAFETY: the message lies in memory that outlives the port and that nothing writes; the
        // context belongs to this flight alone.
        let posted = unsafe { self.port.send(peer.address, start, bytes, Some(self.registration), context) };
        let is_posted = self.posted(posted, context)?;
        self.sends += usize::from(is_posted);
        Ok(is_posted)
    }

    /// Puts `bytes` bytes into the other endpoint's memory, from the same offset of this one's.
    /// Returns whether there was room; if not, polling makes room. The put ends when the bytes have
    /// arrived.
    ///
    /// # Errors
    /// [`FabricError::Provider`].
    ///
    /// # Panics
    /// If the range exceeds either memory, or the other endpoint has not been introduced.
    pub fn try_put(&mut self, offset: usize, bytes: usize) -> Result<bool, FabricError> {
        let is_posted = self.try_transfer(Kind::Put, Flight::Put, offset, bytes)?;
        self.puts += usize::from(is_posted);
        Ok(is_posted)
    }

    /// Gets `bytes` bytes of the other endpoint's memory, into the same offset of this one's.
    /// Returns whether there was room, as [`try_put`](Self::try_put) does.
    ///
    /// # Errors
    /// [`FabricError::Provider`].
    ///
    /// # Panics
    /// If the range exceeds either memory, or the other endpoint has not been introduced.
    pub fn try_get(&mut self, offset: usize, bytes: usize) -> Result<bool, FabricError> {
        let is_posted = self.try_transfer(Kind::Get, Flight::Get, offset, bytes)?;
        self.gets += usize::from(is_posted);
        Ok(is_posted)
    }

    fn try_transfer(&mut self, kind: Kind, flight: Flight, offset: usize, bytes: usize) -> Result<bool, FabricError> {
        let peer = self.peer();
        let end = offset.checked_add(bytes).expect("the end does not overflow");
        assert!(end <= self.put_bytes && end as u64 <= peer.memory.bytes, "puts and gets lie inside the memory");
        let Some(context) = self.begin(flight) else { return Ok(false) };
        let piece = Piece {
            kind,
            peer: peer.address,
            remote_address: peer.memory.base.wrapping_add((PUT + offset) as u64),
            remote_key: peer.memory.key,
            bytes,
            registration: Some(self.registration),
            context,
            is_reported: true,
        };
        let start = self.memory.base().as_ptr().wrapping_add(PUT + offset);
        // SAFETY: the bytes lie in memory that outlives the port; only the two endpoints may write
        // them meanwhile, through the provider. The context belongs to this flight alone.
        let posted = unsafe { self.port.transfer(&piece, start) };
        self.posted(posted, context)
    }

    /// Makes progress, and records messages that have arrived and operations that have ended.
    ///
    /// # Errors
    /// [`FabricError::Provider`], also for an operation that has failed.
    pub fn poll(&mut self) -> Result<(), FabricError> {
        let mut entries: Entries = [MaybeUninit::uninit(); 32];
        match self.port.poll(&mut entries)? {
            // A caller that waits for a message gets it before its slot is offered again.
            Polled::Nothing => self.offer_places(),
            Polled::Done(count) => {
                for entry in &entries[..count] {
                    // SAFETY: the port has filled in `count` entries.
                    let entry: CqDataEntry = unsafe { entry.assume_init() };
                    match self.flights.end(entry.op_context) {
                        Some(Flight::Receive { place }) => {
                            self.received += 1;
                            self.taken.push(place);
                        }
                        Some(Flight::Send) => self.sends -= 1,
                        Some(Flight::Put) => self.puts -= 1,
                        Some(Flight::Get) => self.gets -= 1,
                        None => {}
                    }
                }
                Ok(())
            }
            Polled::Failed(failure) => {
                let why = Api::open()?.explain(failure.code);
                let provider = self.provider().to_owned();
                Err(FabricError::Provider {
                    doing: "an operation of a raw endpoint",
                    provider,
                    why,
                    code: failure.code,
                })
            }
        }
    }

    /// Number of messages received so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Number of messages in flight from this endpoint.
    pub fn sends_under_way(&self) -> usize {
        self.sends
    }

    /// Number of puts in flight from this endpoint.
    pub fn puts_under_way(&self) -> usize {
        self.puts
    }

    /// Number of gets in flight from this endpoint.
    pub fn gets_under_way(&self) -> usize {
        self.gets
    }

    fn peer(&self) -> Peer {
        self.peer.expect("the other endpoint is introduced first")
    }

    /// The context of a message, put or get, if it may be posted. Receives have flights of their
    /// own.
    fn begin(&mut self, flight: Flight) -> Option<*mut c_void> {
        if self.sends + self.puts + self.gets < POSTS_MAX { self.flights.begin(flight).ok() } else { None }
    }

    fn posted(&mut self, posted: Result<Posted, FabricError>, context: *mut c_void) -> Result<bool, FabricError> {
        if !matches!(posted, Ok(Posted::Yes)) {
            self.flights.end(context);
        }
        posted.map(|posted| matches!(posted, Posted::Yes))
    }

    /// Offers the slots of received messages again.
    fn offer_places(&mut self) -> Result<(), FabricError> {
        while let Some(place) = self.taken.pop() {
            let Ok(context) = self.flights.begin(Flight::Receive { place }) else {
                unreachable!("posts leave a flight for each slot");
            };
            let start = self.memory.base().as_ptr().wrapping_add(place * MESSAGE_BYTES_MAX);
            // SAFETY: the slot belongs to the provider until this flight has ended, and is
            // `MESSAGE_BYTES_MAX` long; the context belongs to this flight alone.
            let posted = unsafe { self.port.receive(start, MESSAGE_BYTES_MAX, Some(self.registration), context) };
            if !self.posted(posted, context)? {
                self.taken.push(place);
                return Ok(());
            }
        }
        Ok(())
    }
}

fn encode(memory: &Target, card: &Card) -> Vec<u8> {
    [farside_wire::encode(memory, Vec::new()), card.encode()].concat()
}

/// Decodes the memory and the address of an endpoint; `None` if the bytes are not a card.
fn decode(card: &[u8]) -> Option<(Target, Card)> {
    let mut input = Decoder::new(card);
    let memory = Target::decode(&mut input).ok()?;
    Some((memory, Card::decode(input.rest())?))
}

/// The message of this module, for tests of its decoder.
pub(super) fn message_kind() -> MessageKind {
    MessageKind::of::<(Target, Card)>().through(&[], |bytes| decode(bytes).map(|(memory, card)| encode(&memory, &card)))
}

#[cfg(test)]
mod tests {
    use farside_sys::racy;

    use super::*;

    const BYTES: usize = 1 << 20;

    fn pair() -> [RawEnd; 2] {
        let mut ends = [0, 1].map(|_| RawEnd::open(Some("tcp"), Some("127.0.0.1"), BYTES).unwrap());
        let cards = [0, 1].map(|index: usize| ends[index].card().unwrap());
        ends[0].introduce(&cards[1]).unwrap();
        ends[1].introduce(&cards[0]).unwrap();
        ends
    }

    /// Polls both until the condition holds.
    fn poll_until(ends: &mut [RawEnd; 2], mut condition: impl FnMut(&mut [RawEnd; 2]) -> bool) {
        let deadline = farside_testbed::deadline();
        while !condition(ends) {
            assert!(!farside_testbed::is_past(deadline), "the other endpoint has not answered by the deadline");
            ends.iter_mut().for_each(|end| end.poll().unwrap());
        }
    }

    #[test]
    fn every_message_is_counted_once() {
        farside_testbed::needs!("fabric");
        let mut ends = pair();
        let messages = 3 * RECEIVES as u64;
        for number in 1..=messages {
            for (from, to) in [(0, 1), (1, 0)] {
                poll_until(&mut ends, |ends| ends[from].try_send(number as usize % (MESSAGE_BYTES_MAX + 1)).unwrap());
                poll_until(&mut ends, |ends| ends[to].received() == number);
            }
        }
        poll_until(&mut ends, |ends| ends.iter().all(|end| end.sends_under_way() == 0));
        assert_eq!([ends[0].received(), ends[1].received()], [messages; 2]);
    }

    #[test]
    fn puts_have_ended_when_the_bytes_are_there() {
        farside_testbed::needs!("fabric");
        let mut ends = pair();
        let bytes = 4096;
        let pattern: Vec<u8> = (0..BYTES).map(|index| (index / 8) as u8).collect();
        let at = |end: &RawEnd| end.memory.base().as_ptr().wrapping_add(PUT);
        // SAFETY: the memory has `BYTES` bytes from there on.
        unsafe { racy::copy_out(pattern.as_ptr(), at(&ends[0]), BYTES) };
        for offset in (0..BYTES / 2).step_by(bytes) {
            poll_until(&mut ends, |ends| ends[0].try_put(offset, bytes).unwrap());
        }
        poll_until(&mut ends, |ends| ends[0].puts_under_way() == 0);
        let mut found = vec![0; BYTES];
        // SAFETY: the memory has `BYTES` bytes from there on.
        unsafe { racy::copy_in(at(&ends[1]), found.as_mut_ptr(), BYTES) };
        assert!(found[..BYTES / 2] == pattern[..BYTES / 2], "all bytes have arrived");
        assert!(found[BYTES / 2..].iter().all(|byte| *byte == 0), "nothing else was written");
    }

    #[test]
    fn gets_have_ended_when_the_bytes_are_here() {
        farside_testbed::needs!("fabric");
        let mut ends = pair();
        let at = |end: &RawEnd| end.memory.base().as_ptr().wrapping_add(PUT);
        // SAFETY: the memory has more than 164 bytes from there on.
        unsafe { racy::copy_out([7; 100].as_ptr(), at(&ends[1]).wrapping_add(64), 100) };
        poll_until(&mut ends, |ends| ends[0].try_get(64, 99).unwrap());
        poll_until(&mut ends, |ends| ends[0].gets_under_way() == 0);
        let mut found = [0; 100];
        // SAFETY: the memory has more than 164 bytes from there on.
        unsafe { racy::copy_in(at(&ends[0]).wrapping_add(64), found.as_mut_ptr(), 100) };
        assert_eq!((found[..99].iter().all(|byte| *byte == 7), found[99]), (true, 0));
    }

    #[test]
    fn no_more_is_under_way_than_there_is_room_for() {
        farside_testbed::needs!("fabric");
        let mut ends = pair();
        poll_until(&mut ends, |ends| ends[0].try_put(0, 8).unwrap());
        let deadline = farside_testbed::deadline();
        while ends[0].try_put(0, BYTES).unwrap() {
            assert!(ends[0].puts_under_way() <= POSTS_MAX && !farside_testbed::is_past(deadline));
        }
        poll_until(&mut ends, |ends| ends[0].puts_under_way() == 0);
    }

    /// Queues rely on this order, so that puts without a signal need no answer.
    #[test]
    fn tcp_keeps_puts_in_order() {
        farside_testbed::needs!("fabric");
        let [end, _] = pair();
        assert!(end.port.attributes().ordered_bytes_max.is_some_and(|bytes| bytes >= 1 << 30));
    }

    #[test]
    fn strangers_are_refused() {
        farside_testbed::needs!("fabric");
        let [mut end, other] = pair();
        let mut card = other.card().unwrap();
        card.truncate(card.len() - 1);
        assert!(matches!(end.introduce(&card), Err(FabricError::Refused { .. })));
        assert!(matches!(end.introduce(&[]), Err(FabricError::Refused { .. })));
        let refused = RawEnd::open(Some("no_such_provider"), None, BYTES).unwrap_err();
        assert!(matches!(refused, FabricError::Unavailable { .. }), "{refused}");
    }
}
