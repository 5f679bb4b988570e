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
    /// Starts a put of the bytes of a buffer, followed by a signal that they are there, as
    /// [`put_signal`](Self::put_signal); but does not wait for either. The buffer is handed over
    /// and returned. A worker that finds the signal in its word sees the bytes.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # use farside::{GlobalAddress, GlobalPtr, Order, Signal};
    /// # fn example(
    /// #     me: &Worker,
    /// #     there: GlobalAddress,
    /// #     flag: GlobalPtr<u64>,
    /// #     mut row: Vec<u8>,
    /// # ) -> farside::Result<()> {
    /// for step in 1..=10 {
    ///     let sent = me.start_put_signal(there, row, flag, Signal::Set(step), Order::None);
    ///     let sent = sent.map_err(|refused| refused.error)?;
    ///     // Compute meanwhile.
    ///     row = sent.take(me)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It is one operation: an operation that is ordered after it begins when the signal was given,
    /// and a fence for the process of the data or of the signal applies to all of it.
    ///
    /// *Completion*: when it has ended, data and signal are visible to all.
    ///
    /// *Cost*: that of [`put_signal`](Self::put_signal) if everything is mapped here and nothing is
    /// to be waited for. Otherwise data for the process of the signal travels in one message with
    /// it, up to the same size. More data is put as by [`start_put_owned`](Self::start_put_owned),
    /// and the signal is requested when that has ended. This process's service thread does so while
    /// the worker computes.
    ///
    /// # Errors
    /// Those of [`copy`](Self::copy) and [`put_signal`](Self::put_signal), with the buffer. Nothing
    /// was started then. If it fails later, the signal was not given, unless the answer was lost
    /// with the process or did not arrive in time.
    #[track_caller]
    pub fn start_put_signal(
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
