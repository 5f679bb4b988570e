//! Messages that stay in the writer's memory until the reader fetches them: `rread` of the rpipe
//! slides.

use std::future::poll_fn;

use farside::kit::{Extent, WorkerParts as _};
use farside::memory::MemoryRefusal;
use farside::wire::{self, Decoder};
use farside::{Error, Refused, Worker};
use farside_fabric::memory::Registered;
use farside_fabric::{ProcessId, RemoteRegion};
use farside_sys::racy;

use super::error::{PipeCause, PipeError, PipeName, Result};
use super::protocol::{FLAG_BYTES_MAX, Flag, Kind};
use super::shape::{INLINE_BYTES_MAX, Slots};
use super::writer::{PipeWriter, flag_of};

/// The length of an offer behind its flag: an encoded [`Extent`].
const PLACE_BYTES: usize = 40;

const _: () = assert!(PLACE_BYTES <= INLINE_BYTES_MAX);

/// An offered buffer.
#[derive(Debug)]
pub(super) struct Offer {
    /// The number of messages taken at which the buffer is the writer's again.
    needs_taken: u64,
    buffer: Registered,
}

impl PipeWriter<'_> {
    /// Offers a buffer to the reader, which fetches it from the writer's memory. Waits for room if
    /// necessary, for at most the job's deadline. The buffer may be longer than the pipe's
    /// messages.
    ///
    /// *Completion*: the buffer is in use until the reader has fetched it and released the message;
    /// then [`take_back`](Self::take_back) returns it. If this end is dropped before, the buffer
    /// lives until the reader drops its own end.
    ///
    /// *Cost*: a flag, as for a short message; the writer moves nothing else. Where the buffer is
    /// mapped, the reader copies it once, straight to where it [wants](super::PipeReader::read) it;
    /// elsewhere it gets it in a round trip. A buffer of up to [`INLINE_BYTES_MAX`] bytes is copied
    /// behind its flag, and can be taken back at once.
    ///
    /// # Errors
    /// With the buffer: [`PipeError::Pipe`] with `Closed` if the reader has closed, `Undelivered`
    /// if a message did not reach it, or `Mismatch`, `Memory` or `Corrupt`; [`Error::TooLarge`]
    /// from 1 GiB on; [`Error::PeerLost`] if the reader is lost; [`Error::Deadline`] if there is no
    /// room in time; [`Error::InHandler`] if a handler would have to wait.
    #[expect(clippy::result_large_err, reason = "a refusal gives the buffer back, and is not what is quick")]
    pub fn offer(&mut self, buffer: Registered) -> Result<(), Refused<Registered, PipeError>> {
        match self.wait_ready(self.default_time()) {
            Ok(()) => self.try_offer(buffer),
            Err(error) => Err(Refused { error, arguments: buffer }),
        }
    }

    /// Like [`offer`](Self::offer), to be awaited. A future dropped before its end has offered
    /// nothing, and drops the buffer.
    ///
    /// # Errors
    /// With the buffer: [`PipeError::Pipe`] with `Closed` if the reader has closed, `Undelivered`
    /// if a message did not reach it, or `Mismatch`, `Memory` or `Corrupt`; [`Error::TooLarge`]
    /// from 1 GiB on; [`Error::PeerLost`] if the reader is lost.
    pub async fn offer_async(&mut self, buffer: Registered) -> Result<(), Refused<Registered, PipeError>> {
        match poll_fn(|context| self.poll_ready(context)).await {
            Ok(()) => self.try_offer(buffer),
            Err(error) => Err(Refused { error, arguments: buffer }),
        }
    }

    /// Like [`offer`](Self::offer), but does not wait.
    ///
    /// # Errors
    /// With the buffer: [`PipeError::Pipe`] with `Full` if there is no room, also while the pipe is
    /// not connected: the first use starts connecting. [`PipeError::Pipe`] with `Closed` if the
    /// reader has closed, `Undelivered` if a message did not reach it, or `Mismatch`, `Memory` or
    /// `Corrupt`; [`Error::TooLarge`] from 1 GiB on; [`Error::PeerLost`] if the reader is lost.
    #[expect(clippy::result_large_err, reason = "a refusal gives the buffer back, and is not what is quick")]
    pub fn try_offer(&mut self, buffer: Registered) -> Result<(), Refused<Registered, PipeError>> {
        match self.send_offer(&buffer) {
            Ok(needs_taken) => {
                self.offers.push_back(Offer { needs_taken, buffer });
                Ok(())
            }
            Err(error) => Err(Refused { error, arguments: buffer }),
        }
    }

    /// Sends an offer, and returns the number of messages taken at which the buffer is the writer's
    /// again.
    fn send_offer(&mut self, buffer: &Registered) -> Result<u64> {
        let bytes = buffer.bytes();
        if bytes > FLAG_BYTES_MAX {
            return Err(Error::TooLarge {
                what: "an offer to a pipe",
                bytes,
                max: FLAG_BYTES_MAX,
                remedy: "offer several smaller buffers",
            }
            .into());
        }
        self.check_ready()?;
        let mut inside = [0; INLINE_BYTES_MAX];
        if bytes <= INLINE_BYTES_MAX.min(self.shape().message_bytes) {
            buffer.read_at(0, &mut inside[..bytes])?;
            self.send_inline(flag_of(bytes), &inside[..bytes])?;
            return Ok(0);
        }
        let place = Extent { key: buffer.key(), offset: buffer.offset(), bytes: bytes as u64 };
        self.send_inline(Flag { kind: Kind::Offered, bytes }, &wire::encode(&place, Vec::new()))?;
        Ok(self.written())
    }

    /// Returns the oldest offered buffer, if the reader is done with it. Does not wait.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Corrupt`.
    pub fn try_take_back(&mut self) -> Result<Option<Registered>> {
        let Some(needs_taken) = self.offers.front().map(|offer| offer.needs_taken) else { return Ok(None) };
        // If the reader is gone, all buffers are the writer's.
        let is_back = self.is_read_no_more() || self.taken()? >= needs_taken;
        Ok(if is_back { self.offers.pop_front().map(|offer| offer.buffer) } else { None })
    }

    /// Returns the oldest offered buffer once the reader is done with it. Waits for at most the
    /// job's deadline. Returns `None` if all were taken back.
    ///
    /// # Errors
    /// [`Error::Deadline`]; [`Error::InHandler`]; [`PipeError::Pipe`] with `Corrupt`.
    pub fn take_back(&mut self) -> Result<Option<Registered>> {
        if self.offers.is_empty() {
            return Ok(None);
        }
        let time = self.default_time();
        self.wait_until("waiting for a reader to fetch what was offered", time, Self::try_take_back).map(Some)
    }

    /// Returns the buffers that the reader may still read.
    pub(super) fn keep_offers(&mut self) -> Vec<Registered> {
        while let Ok(Some(_)) = self.try_take_back() {}
        self.offers.drain(..).map(|offer| offer.buffer).collect()
    }
}

/// The place of an offered message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(Extent);

impl Place {
    /// Reads an offer behind the flag of a slot that belongs to the reader. Returns `None` unless
    /// it names `bytes` bytes of the writer's process that a program may name.
    pub(super) fn read(slots: &Slots, slot: usize, writer: ProcessId, bytes: usize) -> Option<Self> {
        let mut behind = [0; PLACE_BYTES];
        // SAFETY: there are `INLINE_BYTES_MAX` bytes behind a flag, no fewer than `PLACE_BYTES`,
        // and `slots` keeps them mapped.
        unsafe { racy::copy_in(slots.inline(slot), behind.as_mut_ptr(), PLACE_BYTES) };
        let piece: Extent = wire::decode(Decoder::new(&behind), 0).ok()?;
        let is_possible = piece.key.process == writer && !piece.key.is_internal() && piece.bytes == bytes as u64;
        is_possible.then_some(Self(piece))
    }
}

/// The attached memory of an offered message, which is known to hold all of it.
pub(super) struct Source {
    region: RemoteRegion,
    offset: u64,
}

impl Source {
    /// Attaches the memory of an offer. If this process has not used that memory before, this waits
    /// for the writer's service thread, even in handlers. Returns `None` if the message does not
    /// lie inside its region.
    ///
    /// # Errors
    /// [`Error::PeerLost`], and errors of the transport: only the owner knows the size of its
    /// regions.
    pub(super) fn attach(me: &Worker, Place(piece): Place) -> farside::Result<Option<Self>> {
        let region = piece.region(me.process_handle())?;
        let is_inside = usize::try_from(piece.bytes).is_ok_and(|bytes| region.key().check(piece.offset, bytes).is_ok());
        Ok(is_inside.then_some(Self { region, offset: piece.offset }))
    }

    /// Reads the beginning of the message. Where its memory is not mapped, this waits for a round
    /// trip, even in handlers.
    pub(super) fn read(&self, me: &Worker, data: &mut [u8]) -> farside::Result<()> {
        let deadline = me.now() + me.default_deadline();
        self.region.get(self.offset, data, deadline).map_err(|error| me.process_handle().explain(error))
    }
}

/// A buffer for fetched messages. It grows only for messages that exist, and shrinks again.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    bytes: Vec<u8>,
    /// The number of times that the reader has waited since the last fetch.
    waits_since: u32,
}

impl Fetched {
    /// A buffer of up to this size is always kept.
    const KEPT_BYTES: usize = 1 << 20;
    /// A larger buffer is dropped after this many waits for messages of which none was offered.
    const WAITS_MAX: u32 = 16;

    /// Fetches a message of `bytes` bytes.
    ///
    /// # Errors
    /// [`PipeError::Pipe`] with `Memory` if this process cannot allocate the buffer;
    /// [`Error::PeerLost`] if the writer is lost; [`Error::Fabric`] with `Deadline` if its process
    /// does not answer in time, or with the failure of the transport.
    pub(super) fn fetch(&mut self, me: &Worker, pipe: PipeName, source: &Source, bytes: usize) -> Result<()> {
        self.waits_since = 0;
        self.bytes.clear();
        if self.bytes.capacity() > Self::KEPT_BYTES && bytes < self.bytes.capacity() / 4 {
            self.bytes = Vec::new();
        }
        let cause = PipeCause::Memory(MemoryRefusal::NoMemory);
        self.bytes.try_reserve_exact(bytes).map_err(|_| PipeError::Pipe { pipe, cause })?;
        self.bytes.resize(bytes, 0);
        Ok(source.read(me, &mut self.bytes)?)
    }

    /// Notes that the reader waits for a message of any kind.
    pub(super) fn note_wait(&mut self) {
        self.waits_since = self.waits_since.saturating_add(1);
        if self.waits_since > Self::WAITS_MAX && self.bytes.capacity() > Self::KEPT_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// Returns the last fetched message.
    #[inline]
    pub(super) fn message(&self) -> &[u8] {
        &self.bytes
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}
