//! Signals in memory that is not mapped here. The owner's service thread gives them, so that it can
//! wake workers that wait for them.

use farside_fabric::transport::AtomicChange;
use farside_fabric::{FabricError, ProcessId, RemoteRegion};

use super::super::movement::Failure;
use super::super::space::own_range;
use super::Signal;
use super::message::{Refusal, Refused, SignalMessage};
use crate::error::Result;
use crate::global::room::{GlobalMessage, GlobalRoom};
use crate::global::{AddressFault, GlobalPtr};
use crate::invoke::message::CallMessage;
use crate::memory::address::GlobalAddress;
use crate::memory::requests::Requests;
use crate::runtime::observer::{AccessKind, Touch};
use crate::runtime::process::Process;
use crate::runtime::worker::Worker;

/// The signal requests under way. The answer is the reason for a refusal, if there is one.
pub(crate) type SignalRequests = Requests<Option<Refused>>;

/// The most bytes of data that travel with a signal, if messages can be that long. Longer data is
/// put, if it can be put, since messages would copy it. Up to this size the copies take less time
/// than the round trip of a put.
const DATA_ALONG_MAX: usize = 12 << 10;

impl Worker {
    /// Writes bytes and gives a signal, if one of the two places is not mapped here or not known.
    #[cold]
    #[track_caller]
    pub(super) fn put_signal_slowly(
        &self,
        address: GlobalAddress,
        data: &[u8],
        place: GlobalAddress,
        what: Signal,
    ) -> Result<()> {
        if let Some(given) = self.past_detour(|| self.put_signal(address, data, GlobalPtr::new(place), what)) {
            self.note_put_at(place, data.len() + 8, Touch::here(AccessKind::AtomicChange));
            return given;
        }
        let process = self.process_handle();
        self.check_address(place, 8)?;
        let is_direct = self.is_mapped(place)?;
        let owner = place.process().ok_or_else(|| place.refused(AddressFault::Null))?;
        if !data.is_empty() {
            self.check_address(address, data.len())?;
        }
        if is_direct {
            let word = Touch::here(AccessKind::AtomicChange);
            self.put_bytes(address, data)?;
            let change = what.change();
            self.on_region(place, 8, Some(word), |region, offset, now| region.atomic64(offset, change, now))?;
            ring_watchers_of(process, owner);
            return Ok(());
        }
        let data = self.data_along(address, data, place)?;
        self.raise_there(owner, |request| SignalMessage::Raise { request, signal: place, what, to: address, data })
            .map(drop)
    }

    /// Replaces a word after writing bytes, of which one is not mapped here.
    #[cold]
    #[track_caller]
    pub(super) fn put_compare_swap_slowly(
        &self,
        to: GlobalAddress,
        data: &[u8],
        word: GlobalAddress,
        (expected, new): (u64, u64),
    ) -> Result<u64> {
        self.check_address(word, 8)?;
        let is_direct = self.is_mapped(word)?;
        let owner = word.process().ok_or_else(|| word.refused(AddressFault::Null))?;
        if !data.is_empty() {
            self.check_address(to, data.len())?;
        }
        if is_direct {
            self.put_bytes(to, data)?;
            let (touch, change) = (Touch::here(AccessKind::AtomicChange), AtomicChange::CompareSwap { expected, new });
            let found =
                self.on_region(word, 8, Some(touch), |region, offset, now| region.atomic64(offset, change, now))?;
            ring_watchers_of(self.process_handle(), owner);
            return Ok(found);
        }
        let data = self.data_along(to, data, word)?;
        let ask = |request| SignalMessage::Replace { request, word, expected, new, to, data };
        Ok(self.raise_there(owner, ask)?.unwrap_or(expected))
    }

    /// Returns the data that travels with a signal. Other data is written before. Notes the access
    /// to the word.
    #[track_caller]
    fn data_along(&self, address: GlobalAddress, data: &[u8], place: GlobalAddress) -> Result<Vec<u8>> {
        let data = match goes_along(self.process_handle(), address, data.len(), place) {
            true => {
                self.touch(address, data.len(), Touch::here(AccessKind::Write))?;
                data.to_vec()
            }
            false => {
                self.put_bytes(address, data)?;
                Vec::new()
            }
        };
        // Only now, since the data is written before the signal.
        self.touch(place, 8, Touch::here(AccessKind::AtomicChange))?;
        Ok(data)
    }

    /// Asks the owner for the signal, and waits for the answer. Returns what a word holds that was
    /// to be replaced and holds another value than expected.
    fn raise_there(&self, owner: ProcessId, ask: impl FnOnce(u32) -> SignalMessage) -> Result<Option<u64>> {
        let doing = "giving a signal";
        self.not_in_handler(doing)?;
        let process = self.process_handle();
        let request = GlobalRoom::of(process).signals().begin(self.thread_index());
        let asked = process.send::<GlobalRoom>(owner, &GlobalMessage::Signal(ask(request)));
        let answer = asked.and_then(|()| {
            self.wait_until(doing, self.default_deadline(), |worker| {
                if let Some(answer) = GlobalRoom::of(worker.process_handle()).signals().take(request) {
                    return Some(Ok(answer));
                }
                worker.process_handle().losses.lost(owner).map(Err)
            })
        });
        // Without an answer, the owner may or may not have given the signal.
        GlobalRoom::of(process).signals().give_up(request);
        let Some(Refused { address, why }) = answer? else { return Ok(None) };
        Err(address.refused(match why {
            Refusal::Stale => {
                self.forget_segment(address.segment());
                AddressFault::Stale
            }
            Refusal::ReadOnly => AddressFault::ReadOnly,
            Refusal::Misaligned => AddressFault::Misaligned { align: 8 },
            Refusal::Replaced { found } => return Ok(Some(found)),
        }))
    }
}

/// Returns whether data travels with a signal that its owner must give.
fn goes_along(process: &Process, address: GlobalAddress, bytes: usize, signal: GlobalAddress) -> bool {
    let room = process.transport().capabilities().message_bytes_max.saturating_sub(CallMessage::OVERHEAD_BYTES);
    address.process() == signal.process() && bytes <= DATA_ALONG_MAX.min(room)
}

/// A signal that follows data in the same operation. No worker waits for its answer.
#[derive(Clone, Debug)]
pub(in super::super) struct RemoteSignal {
    place: GlobalAddress,
    what: Signal,
    /// The place of the data.
    to: GlobalAddress,
    takes_data: bool,
    /// The thread that started the operation.
    local: usize,
}

impl RemoteSignal {
    /// Makes the signal for `bytes` bytes of data. If `is_at_hand`, this process gives it without
    /// asking another.
    pub(in super::super) fn new(
        me: &Worker,
        (place, what): (GlobalAddress, Signal),
        is_at_hand: bool,
        (to, bytes): (GlobalAddress, usize),
    ) -> Self {
        let takes_data = !is_at_hand && goes_along(me.process_handle(), to, bytes, place);
        Self { place, what, to, takes_data, local: me.thread_index() }
    }

    /// Returns whether the data travels with the signal. Otherwise the data must be written before
    /// the signal is given.
    pub(in super::super) fn takes_data(&self) -> bool {
        self.takes_data
    }

    /// Gives the signal in memory that is at hand.
    pub(in super::super) fn give(
        &self,
        process: &Process,
        region: &RemoteRegion,
        offset: u64,
    ) -> Result<(), FabricError> {
        region.atomic64(offset, self.what.change(), process.clock().now())?;
        ring_watchers_of(process, region.key().process);
        Ok(())
    }

    /// Asks the owner for the signal. Returns the number of the request.
    pub(in super::super) fn ask(&self, process: &Process, data: &[u8]) -> Result<u32> {
        let owner = self.place.process().ok_or_else(|| self.place.refused(AddressFault::Null))?;
        let request = GlobalRoom::of(process).signals().begin(self.local);
        let data = if self.takes_data { data.to_vec() } else { Vec::new() };
        let raise = SignalMessage::Raise { request, signal: self.place, what: self.what, to: self.to, data };
        let asked = process.send::<GlobalRoom>(owner, &GlobalMessage::Signal(raise));
        if asked.is_err() {
            GlobalRoom::of(process).signals().give_up(request);
        }
        asked.map(|()| request)
    }

    /// Takes the owner's answer, if it has arrived.
    pub(in super::super) fn answer(&self, process: &Process, request: u32) -> Option<Result<(), Failure>> {
        let refused = GlobalRoom::of(process).signals().take(request)?;
        Some(refused.map_or(Ok(()), |Refused { address, why }| {
            let is_target = address != self.place;
            Err(match why {
                Refusal::Stale => Failure::Stale { is_target },
                Refusal::ReadOnly => Failure::ReadOnly { is_target },
                Refusal::Misaligned => Failure::Misaligned { is_target, align: 8 },
                // No signal expects a value.
                Refusal::Replaced { found } => Failure::Other { what: format!("a signal was refused for {found}") },
            })
        }))
    }
}

/// Gives a signal for another process, or notes an owner's answer.
pub(crate) fn take_signal_message(process: &Process, from: ProcessId, message: SignalMessage) {
    match message {
        SignalMessage::Raise { request, signal, what, to, data } => {
            answer_raise(process, from, request, raise_here(process, signal, what.change(), to, &data));
        }
        SignalMessage::Replace { request, word, expected, new, to, data } => {
            let change = AtomicChange::CompareSwap { expected, new };
            answer_raise(process, from, request, raise_here(process, word, change, to, &data));
        }
        SignalMessage::Raised { request, refused } => {
            let waiting = GlobalRoom::of(process).signals().answer(request, refused);
            if let Some(local) = waiting {
                process.mailboxes.call_attention(local);
            }
        }
    }
}

fn answer_raise(process: &Process, to: ProcessId, request: u32, raised: Result<(), Refused>) {
    let answer = SignalMessage::Raised { request, refused: raised.err() };
    // A process that is lost by now needs no answer.
    let _ = process.send::<GlobalRoom>(to, &GlobalMessage::Signal(answer));
}

/// Wakes the watchers of an owner's memory, after this process has changed a word there with a
/// read-modify-write. If any memory of a process is mapped here, so is its starter memory.
fn ring_watchers_of(process: &Process, owner: ProcessId) {
    if let Some(home) = process.links.home_of(owner)
        && home.watchers().are_there_after_change()
    {
        home.ring_all_after_fence();
    }
}

/// Writes data and gives a signal, both in this process's memory.
///
/// # Errors
/// The fault of one of the addresses. The process that asks has checked both, so their memory
/// existed a moment ago. Also another value than expected, if the change expects one.
fn raise_here(
    process: &Process,
    signal: GlobalAddress,
    change: AtomicChange<u64>,
    to: GlobalAddress,
    data: &[u8],
) -> Result<(), Refused> {
    let now = process.clock().now();
    let region_of = |address, bytes| own_range(process, address, bytes).ok_or(Refused { address, why: Refusal::Stale });
    let (region, offset) = region_of(signal, 8)?;
    let make = |change| region.atomic64(offset, change, now).map_err(|error| Refused::because(signal, &error));
    let expected = match change {
        AtomicChange::CompareSwap { expected, .. } => Some(expected),
        _ => None,
    };
    let is_as_expected = |found| match expected {
        Some(expected) if found != expected => Err(Refused { address: signal, why: Refusal::Replaced { found } }),
        _ => Ok(()),
    };
    if !data.is_empty() {
        if expected.is_some() {
            is_as_expected(make(AtomicChange::Load)?)?;
        }
        let (region, offset) = region_of(to, data.len())?;
        region.put(offset, data, now).map_err(|error| Refused::because(to, &error))?;
    }
    is_as_expected(make(change)?)?;
    ring_watchers_of(process, process.id());
    Ok(())
}

impl Refused {
    fn because(address: GlobalAddress, error: &FabricError) -> Self {
        let why = match error {
            FabricError::ReadOnly { .. } => Refusal::ReadOnly,
            FabricError::Misaligned { .. } => Refusal::Misaligned,
            _ => Refusal::Stale,
        };
        Self { address, why }
    }
}
