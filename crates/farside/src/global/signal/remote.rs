//! Signals in memory that is not mapped: the owner's service thread gives them, so that it can wake who waits.

use farside_fabric::ProcessId;
use farside_sys::racy;

use super::super::address::{AddressFault, GlobalAddress};
use super::super::check::{AccessKind, Touch};
use super::super::space::own_range;
use super::{Signal, SignalMessage};
use crate::error::Result;
use crate::job::process::Process;
use crate::job::setup::SetupMessage;
use crate::job::worker::Worker;
use crate::memory::requests::Requests;

/// Signals under way. The answer is the address that led nowhere, or null.
pub(crate) type SignalRequests = Requests<GlobalAddress>;

/// As much data goes along with a signal. More would be copied through messages where it can be put.
const DATA_ALONG_MAX: usize = 4096;

impl Worker {
    /// Writes bytes and signals, when one of the two is not mapped here, or not known.
    #[cold]
    #[track_caller]
    pub(super) fn put_signal_slowly(
        &self,
        address: GlobalAddress,
        data: &[u8],
        place: GlobalAddress,
        what: Signal,
    ) -> Result<()> {
        let is_mapped = self.on_region(place, 8, None, |region, _, _| Ok(region.mapped().is_some()))?;
        if !data.is_empty() {
            self.check_address(address, data.len())?;
        }
        let word = Touch::here(AccessKind::AtomicChange);
        let process = self.process_handle();
        let owner = place.process().ok_or_else(|| place.refused(AddressFault::Null))?;
        if is_mapped {
            self.put_bytes(address, data)?;
            self.touch(place, 8, word)?;
            return self.on_mapped_signal(place, what, owner);
        }
        let room = process.transport().capabilities().message_bytes_max.saturating_sub(SetupMessage::OVERHEAD_BYTES);
        let data = match address.process() == Some(owner) && data.len() <= DATA_ALONG_MAX.min(room) {
            true => {
                self.touch(address, data.len(), Touch::here(AccessKind::Write))?;
                data.to_vec()
            }
            false => {
                self.put_bytes(address, data)?;
                Vec::new()
            }
        };
        // Only now: what was written before comes before the signal.
        self.touch(place, 8, word)?;
        self.raise_there(owner, |request| SignalMessage::Raise { request, signal: place, what, to: address, data })
    }

    /// The signal alone, in memory that is mapped.
    fn on_mapped_signal(&self, place: GlobalAddress, what: Signal, owner: ProcessId) -> Result<()> {
        let process = self.process_handle();
        self.on_region(place, 8, None, |region, offset, _| {
            let (Some(memory), Some(home)) = (region.mapped(), process.home_of(owner)) else {
                unreachable!(
                    "it was mapped a moment ago, and its owner's starter memory is before anything else of it"
                );
            };
            let word = memory.base().as_ptr().wrapping_add(offset as usize);
            // SAFETY: `on_region` has found the word inside of the region, which the mapping covers and the closure's borrow keeps; the
            // callers have looked at its alignment.
            what.raise(process, home, unsafe { racy::atomic_u64(word) });
            Ok(())
        })
    }

    /// Asks the owner, and waits for what it says.
    fn raise_there(&self, owner: ProcessId, ask: impl FnOnce(u32) -> SignalMessage) -> Result<()> {
        let doing = "giving a signal";
        self.not_in_handler(doing)?;
        let process = self.process_handle();
        let request = process.signals().begin(self.thread_index());
        let asked = process.send_setup(owner, &SetupMessage::Signal(ask(request)));
        let answer = asked.and_then(|()| {
            self.wait_until(doing, self.default_deadline(), |worker| {
                if let Some(answer) = worker.process_handle().signals().take(request) {
                    return Some(Ok(answer));
                }
                worker.process_handle().lost(owner).map(Err)
            })
        });
        // Without an answer it may have been given or not.
        process.signals().give_up(request);
        match answer? {
            GlobalAddress::NULL => Ok(()),
            stale => {
                self.space().forget(stale.segment());
                Err(stale.refused(AddressFault::Stale))
            }
        }
    }
}

impl Process {
    /// Gives a signal that another process asks for, or notes what an owner has answered.
    pub(crate) fn take_signal_message(&self, from: ProcessId, message: SignalMessage) {
        match message {
            SignalMessage::Raise { request, signal, what, to, data } => {
                let stale = self.raise_here(signal, what, to, &data).err().unwrap_or_default();
                // Who is gone by now needs no answer.
                let _ = self.send_setup(from, &SetupMessage::Signal(SignalMessage::Raised { request, stale }));
            }
            SignalMessage::Raised { request, stale } => {
                let waiting = self.signals().answer(request, stale);
                if let Some(local) = waiting {
                    self.call_attention(local);
                }
            }
        }
    }

    /// Writes data and gives a signal, both in this process's memory.
    ///
    /// # Errors
    /// The address that leads nowhere. Who asks has looked at both, so what it names was there a moment ago.
    fn raise_here(
        &self,
        signal: GlobalAddress,
        what: Signal,
        to: GlobalAddress,
        data: &[u8],
    ) -> Result<(), GlobalAddress> {
        let (region, offset) =
            own_range(self, signal, 8).filter(|(_, offset)| offset.is_multiple_of(8)).ok_or(signal)?;
        let memory = region.mapped().ok_or(signal)?;
        if !data.is_empty() {
            let (region, offset) = own_range(self, to, data.len()).ok_or(to)?;
            region.put(offset, data, self.clock().now()).map_err(|_| to)?;
        }
        let word = memory.base().as_ptr().wrapping_add(offset as usize);
        // SAFETY: at a multiple of 8 in a mapping that begins on a page, as was looked at above, inside of the region and so of the mapping, which
        // `region` keeps.
        what.raise(self, self.home(), unsafe { racy::atomic_u64(word) });
        Ok(())
    }
}
