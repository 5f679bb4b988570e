//! Bytes in slices of several processes, read and written like a file.

use std::ops::Range;

use farside_fabric::ProcessId;

use super::array::Divisor;
use super::object_error::ObjectError;
use super::spread::{BYTES_MAX, ObjectKind, ObjectRequest, Parts, Spread};
use crate::error::Result;
use crate::memory::GlobalAddress;
use crate::runtime::worker::Worker;

/// Bytes that lie in slices, one in each of some processes. Any worker reads and writes them like a
/// file, with `read_at` and `write_at`. An access may begin at any offset and touch any number of
/// slices. The bytes are zero at first.
///
/// ```no_run
/// # use farside::prelude::*;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// // A megabyte in every process.
/// let space = me.byte_space(ProcessId::new(0), me.process_count(), 1 << 20)?;
/// let record = u64::from(me.id().number()) * 24;
/// space.write_all_at(me, record, b"across slices")?;
/// let mut back = [0; 13];
/// space.read_exact_at(me, record, &mut back)?;
/// assert_eq!(&back, b"across slices");
/// space.free(me)
/// # }
/// ```
///
/// If it is dropped without [`free`](Self::free), or freed after a process was lost, its memory is
/// kept until the job ends.
///
/// ACP's workspaces.
#[derive(Debug)]
pub struct ByteSpace {
    spread: Spread,
    first: u32,
    slices: u32,
    slice_bytes: Divisor,
    bytes: u64,
}

impl Worker {
    pub(crate) fn byte_space(&self, first: ProcessId, slices: u32, slice_bytes: u64) -> Result<ByteSpace> {
        let first = first.number();
        let processes = self.process_count();
        let parts = match first.checked_add(slices).filter(|end| *end <= processes) {
            None => Err(ObjectError::TooManySlices { first, slices, processes }),
            Some(_) if slice_bytes > BYTES_MAX => Err(ObjectError::TooLong { length: slice_bytes, value_bytes: 1 }),
            Some(end) => Ok(Parts { processes: first..end, bytes: slice_bytes }),
        };
        let shape = [first.into(), slices.into(), slice_bytes];
        let spread = Spread::new(self, ObjectRequest { kind: ObjectKind::Bytes, value_bytes: 1, shape }, parts)?;
        let bytes = u64::from(slices) * slice_bytes;
        Ok(ByteSpace { spread, first, slices, slice_bytes: Divisor::new(slice_bytes.max(1)), bytes })
    }
}

impl ByteSpace {
    /// Returns its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the processes that have slices.
    pub fn processes(&self) -> impl ExactSizeIterator<Item = ProcessId> + use<> {
        (self.first..self.first + self.slices).map(ProcessId::new)
    }

    /// Returns the address of a byte.
    ///
    /// # Errors
    /// [`ObjectError::OutsideSpace`].
    pub fn address(&self, offset: u64) -> Result<GlobalAddress> {
        self.check(offset, 1)?;
        Ok(self.place(offset).0)
    }

    /// Reads from an offset on, until `data` is full or the space ends. Returns the number of bytes
    /// read. It is less than the length of `data` only at the end of the space.
    ///
    /// *Cost*: one get from each slice that the range touches.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null or stale address,
    /// or one out of range; [`Error::PeerLost`](crate::Error::PeerLost) if the owner is lost;
    /// [`Error::Fabric`](crate::Error::Fabric) if it does not answer in time, or the transport
    /// fails; [`Error::InHandler`](crate::Error::InHandler) if a handler would have to wait for it.
    /// The contents of `data` are unspecified then.
    #[track_caller]
    pub fn read_at(&self, me: &Worker, offset: u64, data: &mut [u8]) -> Result<usize> {
        let length = self.length_inside(offset, data.len());
        for (source, piece) in self.pieces(offset, length) {
            me.get_bytes(source, &mut data[piece])?;
        }
        Ok(length)
    }

    /// Writes from an offset on, until all data is written or the space ends. Returns the number of
    /// bytes written.
    ///
    /// *Completion*: as for [`GlobalPtr::put`](crate::GlobalPtr::put). *Cost*: one put to each
    /// slice that the range touches.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale or read-only
    /// address, or one out of range; [`Error::PeerLost`](crate::Error::PeerLost) if the owner is
    /// lost; [`Error::Fabric`](crate::Error::Fabric) if it does not answer in time, or the
    /// transport fails; [`Error::InHandler`](crate::Error::InHandler) if a handler would have to
    /// wait for it. Some slices may have been written then.
    #[track_caller]
    pub fn write_at(&self, me: &Worker, offset: u64, data: &[u8]) -> Result<usize> {
        let length = self.length_inside(offset, data.len());
        for (target, piece) in self.pieces(offset, length) {
            me.put_bytes(target, &data[piece])?;
        }
        Ok(length)
    }

    /// Reads from an offset on, until `data` is full.
    ///
    /// # Errors
    /// [`ObjectError::OutsideSpace`] if the space ends before `data` is full.
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null or stale address,
    /// or one out of range; [`Error::PeerLost`](crate::Error::PeerLost) if the owner is lost;
    /// [`Error::Fabric`](crate::Error::Fabric) if it does not answer in time, or the transport
    /// fails; [`Error::InHandler`](crate::Error::InHandler) if a handler would have to wait for it.
    #[track_caller]
    pub fn read_exact_at(&self, me: &Worker, offset: u64, data: &mut [u8]) -> Result<()> {
        self.check(offset, data.len())?;
        self.read_at(me, offset, data).map(drop)
    }

    /// Writes all of the data from an offset on.
    ///
    /// # Errors
    /// [`ObjectError::OutsideSpace`] if the data does not fit; nothing was written then.
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale or read-only
    /// address, or one out of range; [`Error::PeerLost`](crate::Error::PeerLost) if the owner is
    /// lost; [`Error::Fabric`](crate::Error::Fabric) if it does not answer in time, or the
    /// transport fails; [`Error::InHandler`](crate::Error::InHandler) if a handler would have to
    /// wait for it. Some slices may have been written then.
    #[track_caller]
    pub fn write_all_at(&self, me: &Worker, offset: u64, data: &[u8]) -> Result<()> {
        self.check(offset, data.len())?;
        self.write_at(me, offset, data).map(drop)
    }

    /// Releases the memory. All workers call this, and it is released once all have called.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost) if a process of the job is lost;
    /// [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch) if another worker calls
    /// another collective; [`Error::Deadline`](crate::Error::Deadline) if one does not come in
    /// time; [`Error::InHandler`](crate::Error::InHandler) in a handler. In a job of several
    /// binaries also [`Error::CollectiveOverrun`](crate::Error::CollectiveOverrun). The memory is
    /// then kept until the job ends.
    #[track_caller]
    pub fn free(self, me: &Worker) -> Result<()> {
        self.spread.free(me)
    }

    /// Returns the address of a byte, and the number of bytes from it to the end of its slice.
    fn place(&self, offset: u64) -> (GlobalAddress, u64) {
        let (slice, within) = self.slice_bytes.divide(offset);
        let base = self.spread.base(ProcessId::new(self.first + slice as u32));
        let address = base.checked_add(within).expect("a slice is at most as long as an address can name");
        (address, self.slice_bytes.value() - within)
    }

    /// Returns the pieces of a range inside the space, one for each slice: its address, and its
    /// bytes as a part of the range.
    fn pieces(&self, offset: u64, length: usize) -> impl Iterator<Item = (GlobalAddress, Range<usize>)> {
        let mut begin = 0;
        std::iter::from_fn(move || {
            let left = length - begin;
            (left > 0).then(|| {
                let (address, room) = self.place(offset + begin as u64);
                let end = begin + room.min(left as u64) as usize;
                (address, std::mem::replace(&mut begin, end)..end)
            })
        })
    }

    fn length_inside(&self, offset: u64, length: usize) -> usize {
        (length as u64).min(self.bytes.saturating_sub(offset)) as usize
    }

    fn check(&self, offset: u64, bytes: usize) -> Result<(), ObjectError> {
        match offset.checked_add(bytes as u64) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(ObjectError::OutsideSpace { offset, bytes, space_bytes: self.bytes }),
        }
    }
}
