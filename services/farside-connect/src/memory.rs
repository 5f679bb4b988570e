//! [`Memory`]: memory that peers on the same machine map, and others access by RDMA.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use farside_sys::shm::{Mapping, MemoryPreference, PageKind};

pub use farside_sys::shm::ShmError;

use crate::allocated::Allocated;
use crate::area::Area;
use crate::remote::Remote;

/// Memory for bulk data that is allocated by Farside.
///
/// On one machine, a peer maps it when a call first passes it on. Then the peer copies bytes
/// without a system call, whether they lie in one segment or in a million. Between machines it may
/// be read and written by [`Rdma`](crate::Rdma). Over other paths it is memory like any other.
///
/// ```
/// # extern crate farside_connect as farside_rpc;
/// use farside_rpc::bulk::Memory;
///
/// let memory = Memory::new(1 << 20)?;
/// memory.write(100, b"some bytes")?;
/// let all = memory.to_read(0..1 << 20)?; // pass this to a call
/// assert_eq!(all.bytes(), 1 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// *Access.* A peer may write the memory while this program reads it. So both copy: there is no
/// slice of it. While a call is under way, its handler may access the whole memory, not only the
/// parts that were passed. A handler whose call was cancelled may write until it notices. Bytes
/// that both sides write at the same time are a mixture of both.
///
/// *Lifetime.* A clone is another handle of the same memory. It is free when all handles and all
/// calls that use it have ended. Peers learn of that, and unmap it.
///
/// *Cost.* Creating it takes about 0.3 ms a MiB, for its pages are reserved at once. To pass it on
/// for the first time takes each side some system calls and 10 to 50 µs. A connection keeps at most
/// 64 such memories mapped; the peer copies others by system calls.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Allocated>);

/// Why memory was not accessed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The range is not inside the memory.
    #[error("the range {start}..{end} is not inside the memory of {memory_bytes} bytes")]
    OutOfRange {
        /// The first byte.
        start: usize,
        /// The byte behind the last.
        end: usize,
        /// The size of the memory.
        memory_bytes: usize,
    },
    /// The memory belongs to the process of which this one is a forked child.
    #[error("the memory belongs to the process that allocated it, which has forked this one; allocate it here")]
    Forked,
    /// The parts have more bytes together than an address space.
    #[error("the parts have more bytes together than an address space; pass fewer")]
    TooLarge,
}

/// Memory of a peer on the same machine, as this process maps it. See
/// [`Bulk::mapped`](crate::bulk::Bulk::mapped).
///
/// It holds the memory as the [`Bulk`](crate::bulk::Bulk) does. The peer may write the memory at
/// any time, so what is read may be a mixture of old and new bytes: the two sides need a protocol
/// of their own, such as counters before and behind the data.
///
/// The descriptor is that of the memory's file, which is the whole [`Memory`] of the peer. While
/// this value lives, another process of the user may open `/proc/PID/fd/N` and map the file, from
/// the [offset](Self::offset) on.
#[derive(Clone, Debug)]
pub struct Mapped {
    memory: Arc<Allocated>,
    offset: usize,
    bytes: usize,
    /// Keeps the memory at the peer alive.
    _remote: Arc<Remote>,
}

impl Mapped {
    /// Maps memory that is one segment.
    pub(crate) fn of(remote: &Arc<Remote>) -> Option<Self> {
        let (memory, offset, bytes) = (remote.mapping()?, remote.offset()?, usize::try_from(remote.bytes()).ok()?);
        // No correct peer describes other memory than it shares.
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= memory.bytes);
        is_inside.then(|| Self { memory, offset, bytes, _remote: remote.clone() })
    }

    /// The size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where the memory begins in its file.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Copies the bytes from `offset` on into `into`. Unlike
    /// [`Bulk::pull`](crate::bulk::Bulk::pull), it does not look whether the peer still holds the
    /// memory ready: after the peer's end, the bytes are those that it left.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`].
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) -> Result<(), MemoryError> {
        let end = offset.saturating_add(into.len());
        let wrong = MemoryError::OutOfRange { start: offset, end, memory_bytes: self.bytes };
        if end > self.bytes {
            return Err(wrong);
        }
        check_origin(&self.memory)?;
        self.memory.mapping.read(self.offset + offset, into).map_err(|_| wrong)
    }
}

impl AsFd for Mapped {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.mapping.fd()
    }
}

impl Memory {
    /// Allocates memory that is all zeroes. Peers may write it if a call lets them.
    ///
    /// # Errors
    /// [`ShmError`]: among others if `bytes` is 0, or the machine has too little free memory.
    pub fn new(bytes: usize) -> Result<Self, ShmError> {
        Self::allocate(bytes, false)
    }

    /// Allocates memory that peers map only for reading. The system keeps them from writing it.
    ///
    /// # Errors
    /// [`ShmError`] if the system gives no memory.
    pub fn new_read_only(bytes: usize) -> Result<Self, ShmError> {
        Self::allocate(bytes, true)
    }

    fn allocate(bytes: usize, is_ours_to_write: bool) -> Result<Self, ShmError> {
        let preference = MemoryPreference { pages: PageKind::Transparent, is_ours_to_write, ..Default::default() };
        let mapping = Mapping::create("farside-bulk", bytes, preference)?;
        Ok(Self(Arc::new(Allocated::new(mapping, bytes, !is_ours_to_write))))
    }

    /// The size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Copies the bytes from `offset` on into `into`.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`].
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), MemoryError> {
        self.check(offset, into.len())?;
        check_origin(&self.0)?;
        self.0.mapping.read(offset, into).map_err(|_| self.out_of_range(offset, into.len()))
    }

    /// Overwrites the bytes from `offset` on.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`].
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), MemoryError> {
        self.check(offset, from.len())?;
        check_origin(&self.0)?;
        self.0.mapping.write(offset, from).map_err(|_| self.out_of_range(offset, from.len()))
    }

    fn check(&self, offset: usize, bytes: usize) -> Result<(), MemoryError> {
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= self.0.bytes);
        if is_inside { Ok(()) } else { Err(self.out_of_range(offset, bytes)) }
    }

    fn out_of_range(&self, start: usize, bytes: usize) -> MemoryError {
        MemoryError::OutOfRange { start, end: start.saturating_add(bytes), memory_bytes: self.0.bytes }
    }

    /// Makes an area of parts of the memory.
    pub fn area(&self, parts: impl IntoIterator<Item = Range<usize>>, may_write: bool) -> Result<Area, MemoryError> {
        let (mut segments, mut sum) = (Vec::new(), 0_usize);
        for Range { start, end } in parts {
            let bytes = end.checked_sub(start).filter(|bytes| self.check(start, *bytes).is_ok());
            let bytes = bytes.ok_or(MemoryError::OutOfRange { start, end, memory_bytes: self.0.bytes })?;
            sum = sum.checked_add(bytes).filter(|sum| isize::try_from(*sum).is_ok()).ok_or(MemoryError::TooLarge)?;
            segments.push((start, bytes));
        }
        Ok(Area::mapped(self.0.clone(), &segments, may_write))
    }
}

fn check_origin(memory: &Allocated) -> Result<(), MemoryError> {
    if memory.mapping.is_here() { Ok(()) } else { Err(MemoryError::Forked) }
}
