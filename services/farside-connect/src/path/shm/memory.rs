//! The memory that the two ends of a connection share.
//!
//! ```text
//! 0        doorbell of the client, doorbell of the server     128 B each
//! 256      control block of the ring to the server, to the client
//! 512      marks of the client, of the server                 MARKS words each
//! 8192     chunks of the ring to the server, of the ring to the client
//! ```
//!
//! Both ends write it, so nothing in it is believed: doorbells and marks are numbers of which any
//! is possible, and the ring checks each record.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use farside_fabric::bell::Doorbell;
use farside_fabric::ring::{MappedChunk, MappedControl, Receiver, RingControl, Sender};
use farside_sys::racy;
use farside_sys::shm::{Mapping, SharedMemory, ShmError};

use crate::frame::{BODY_BYTES_MAX, HEAD_BYTES};

/// The number of marks of each side.
pub(super) const MARKS: usize = 256;
const CONTROL_AT: usize = 256;
const MARKS_AT: usize = 512;
const CHUNKS_AT: usize = 8192;
const CHUNKS: usize = 2;
/// Room for the longest frame, and for several small ones.
const CHUNK_BYTES: usize = 132 * 1024;
/// The size of the whole.
pub(super) const BYTES: usize = CHUNKS_AT + 2 * CHUNKS * CHUNK_BYTES;

const _: () = {
    assert!(BYTES.is_multiple_of(4096));
    assert!(2 * size_of::<Doorbell>() <= CONTROL_AT);
    assert!(CONTROL_AT + 2 * size_of::<RingControl>() <= MARKS_AT);
    assert!(MARKS_AT + 2 * MARKS * 8 <= CHUNKS_AT);
    assert!(farside_fabric::ring::record_bytes(HEAD_BYTES + BODY_BYTES_MAX) + 16 <= CHUNK_BYTES);
};

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Client = 0,
    Server = 1,
}

impl End {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

pub(super) type RingSender = Sender<MappedChunk, MappedControl>;
pub(super) type RingReceiver = Receiver<MappedChunk, MappedControl>;

/// The memory, as one end sees it.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    memory: Arc<SharedMemory>,
    end: End,
}

impl Shared {
    /// Creates the memory, for the client.
    pub(super) fn create() -> Result<Self, ShmError> {
        Ok(Self { memory: Arc::new(SharedMemory::create("farside-rpc", BYTES)?), end: End::Client })
    }

    /// Maps what a client created, for the server.
    pub(super) fn map(fd: std::os::fd::OwnedFd) -> Result<Self, ShmError> {
        let memory = Mapping::of_stranger(fd)?.into_memory().filter(|memory| memory.bytes() == BYTES);
        let wrong = ShmError::NotAsAnnounced { why: "it is not the memory of two rings" };
        Ok(Self { memory: Arc::new(memory.ok_or(wrong)?), end: End::Server })
    }

    pub(super) fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.memory.fd()
    }

    /// Closes the descriptor, as both ends map the memory.
    pub(super) fn close_fd(&mut self) {
        if let Some(memory) = Arc::get_mut(&mut self.memory) {
            memory.close_fd();
        }
    }

    pub(super) fn end(&self) -> End {
        self.end
    }

    /// The doorbell of one end.
    pub(super) fn doorbell(&self, of: End) -> &Doorbell {
        let place = self.memory.base().as_ptr().wrapping_add(of as usize * size_of::<Doorbell>());
        // SAFETY: the doorbells are the first 256 bytes of the mapping, which both constructors
        // made `BYTES` long and which starts on a page. A doorbell consists of atomics, for which
        // any bytes are valid and another process's writes are no race. The reference lives no
        // longer than `self`, which keeps the mapping.
        unsafe { &*place.cast_const().cast() }
    }

    /// A mark of one end. `None` if it has no such mark.
    pub(super) fn mark(&self, of: End, mark: usize) -> Option<&AtomicU64> {
        let at = MARKS_AT + (of as usize * MARKS + mark) * 8;
        // SAFETY: `mark` is below `MARKS`, so the word lies below `CHUNKS_AT`, inside the mapping
        // of `BYTES` bytes, on a multiple of 8. The reference lives no longer than `self`, which
        // keeps the mapping.
        (mark < MARKS).then(|| unsafe { racy::atomic_u64(self.memory.base().as_ptr().wrapping_add(at)) })
    }

    /// The ring in which this end sends.
    pub(super) fn sender(&self) -> RingSender {
        let (control, chunks) = self.ring_to(self.end.other());
        Sender::new(control, chunks)
    }

    /// The ring from which this end receives.
    pub(super) fn receiver(&self) -> RingReceiver {
        let (control, chunks) = self.ring_to(self.end);
        Receiver::new(control, chunks)
    }

    fn ring_to(&self, end: End) -> (MappedControl, Vec<MappedChunk>) {
        // The server's ring comes first.
        let ring = end.other() as usize;
        let control = MappedControl::new(self.memory.clone(), CONTROL_AT + ring * size_of::<RingControl>());
        let chunk = |index| {
            let at = CHUNKS_AT + (ring * CHUNKS + index) * CHUNK_BYTES;
            MappedChunk::new(self.memory.clone(), at, CHUNK_BYTES).expect("the layout fits into the memory")
        };
        (control.expect("the layout fits into the memory"), (0..CHUNKS).map(chunk).collect())
    }
}
