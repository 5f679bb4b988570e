//! Starting a put of data that a signal follows.

use super::handle::Order;
use super::incoming::Incoming;
use super::issue::Draft;
use super::orders::Place;
use super::work::{MoveValue, Spot, Work};
#[cfg(doc)]
use crate::error::Error;
use crate::error::{Refused, Result};
use crate::global::pointer::GlobalPtr;
use crate::global::signal::{RemoteSignal, Signal, check_places};
use crate::memory::address::GlobalAddress;
use crate::runtime::observer::{AccessKind, Part, Touch};
use crate::runtime::worker::Worker;

impl Worker {
    #[track_caller]
    pub(crate) fn start_put_signal(
        &self,
        address: GlobalAddress,
        buffer: Vec<u8>,
        signal: GlobalPtr<u64>,
        what: Signal,
        order: Order,
    ) -> Result<Incoming<Vec<u8>>, Refused<Vec<u8>>> {
        let place = signal.address();
        if let Err(error) = check_places(address, buffer.len(), place) {
            return Err(Refused { error, arguments: buffer });
        }
        if self.may_start_at_once(order) && self.put_signal_mapped(address, &buffer, place, what) {
            return Ok(Incoming::over(self.next_handle(), MoveValue::Buffer(buffer)));
        }
        let spots = self.admit(order).and_then(|()| self.spots_of_signal(address, buffer.len(), place));
        let (target, word) = match spots {
            Ok(spots) => spots,
            Err(error) => return Err(Refused { error, arguments: buffer }),
        };
        let bytes = buffer.len() as u64;
        let signal_part = word.part(8, Touch::here(AccessKind::AtomicChange));
        let data_part = (bytes > 0).then(|| target.part(bytes, Touch::here(AccessKind::Write)));
        let parts: Vec<Part> = data_part.into_iter().chain([signal_part]).collect();
        let signal = RemoteSignal::new(self, (place, what), word.is_at_hand(), (address, buffer.len()));
        let work = Work::PutSignal { target, data: buffer, word, signal };
        let mut draft = Draft::new(work, Place::Here, address, place);
        match self.note(&mut draft, order, &parts) {
            Ok(()) => Ok(self.start_bringing(draft, order)),
            Err(error) => Err(Refused { error, arguments: draft.into_buffer() }),
        }
    }

    /// Returns where data and signal go.
    fn spots_of_signal(&self, address: GlobalAddress, bytes: usize, place: GlobalAddress) -> Result<(Spot, Spot)> {
        let word = self.spot(place, 8)?;
        // An empty put may go anywhere.
        let target = if bytes == 0 { word.clone() } else { self.spot(address, bytes as u64)? };
        Ok((target, word))
    }
}
