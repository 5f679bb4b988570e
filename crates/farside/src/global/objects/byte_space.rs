//! Bytes in slices of several processes, read and written as a file.

use std::ops::Range;

use farside_fabric::ProcessId;

use super::array::Divisor;
use super::object_error::ObjectError;
use super::spread::{BYTES_MAX, ObjectKind, Parts, Spread, Wish};
use crate::error::Result;
use crate::memory::GlobalAddress;
use crate::runtime::worker::Worker;

/// Bytes that lie in slices, one in each of some processes, and are read and written as those of a file: `read_at` and `write_at` from any worker, at
/// any offset, over as many slices as it takes. They are zero at first.
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
/// Dropped without [`free`](Self::free), or after a process was lost, it is kept until the job ends.
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
    /// A byte space with slices of so many bytes in so many processes, from `first` on. All workers call this, in the same order as other collectives and with the
    /// same arguments.
    ///
    /// *Cost*: that of [`symmetric`](Self::symmetric).
    ///
    /// ACP's `acp_create_ws` and `acp_setparams_ws`.
    ///
    /// # Errors
    /// [`ObjectError::TooManySlices`] when there are not so many processes from the first on, where ACP ends the program; [`ObjectError::TooLong`] when a
    /// slice is longer than 4 GiB; and those of [`symmetric`](Self::symmetric).
    pub fn byte_space(&self, first: ProcessId, slices: u32, slice_bytes: u64) -> Result<ByteSpace> {
        let first = first.number();
        let processes = self.process_count();
        let parts = match first.checked_add(slices).filter(|end| *end <= processes) {
            None => Err(ObjectError::TooManySlices { first, slices, processes }),
            Some(_) if slice_bytes > BYTES_MAX => Err(ObjectError::TooLong { length: slice_bytes, value_bytes: 1 }),
            Some(end) => Ok(Parts { processes: first..end, bytes: slice_bytes }),
        };
        let shape = [first.into(), slices.into(), slice_bytes];
        let spread = Spread::new(self, Wish { kind: ObjectKind::Bytes, value_bytes: 1, shape }, parts)?;
        let bytes = u64::from(slices) * slice_bytes;
        Ok(ByteSpace { spread, first, slices, slice_bytes: Divisor::new(slice_bytes.max(1)), bytes })
    }
}

impl ByteSpace {
    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The processes that have slices.
    pub fn processes(&self) -> impl ExactSizeIterator<Item = ProcessId> + use<> {
        (self.first..self.first + self.slices).map(ProcessId::new)
    }

    /// The address of a byte.
    ///
    /// # Errors
    /// [`ObjectError::OutsideSpace`].
    pub fn address(&self, offset: u64) -> Result<GlobalAddress> {
        self.check(offset, 1)?;
        Ok(self.place(offset).0)
    }

    /// Reads from an offset on, as much as there is room for and the space has: says how much. It is less than `data` has room for only at the end of the
    /// space.
    ///
    /// *Cost*: a get from each slice that the range touches.
    ///
    /// # Errors
    /// Those of [`GlobalPtr::put`](crate::GlobalPtr::put). What is in `data` then is unspecified.
    #[track_caller]
    pub fn read_at(&self, me: &Worker, offset: u64, data: &mut [u8]) -> Result<usize> {
        let length = self.length_inside(offset, data.len());
        for (source, piece) in self.pieces(offset, length) {
            me.get_bytes(source, &mut data[piece])?;
        }
        Ok(length)
    }

    /// Writes from an offset on, as much as the space has room for: says how much.
    ///
    /// *Completion*: as [`GlobalPtr::put`](crate::GlobalPtr::put). *Cost*: a put to each slice that the range touches.
    ///
    /// # Errors
    /// Those of [`GlobalPtr::put`](crate::GlobalPtr::put). Some slices may have been written then.
    #[track_caller]
    pub fn write_at(&self, me: &Worker, offset: u64, data: &[u8]) -> Result<usize> {
        let length = self.length_inside(offset, data.len());
        for (target, piece) in self.pieces(offset, length) {
            me.put_bytes(target, &data[piece])?;
        }
        Ok(length)
    }

    /// Reads from an offset on, as much as there is room for.
    ///
    /// # Errors
    /// [`ObjectError::OutsideSpace`] when the space has not so much, and those of [`read_at`](Self::read_at).
    #[track_caller]
    pub fn read_exact_at(&self, me: &Worker, offset: u64, data: &mut [u8]) -> Result<()> {
        self.check(offset, data.len())?;
        self.read_at(me, offset, data).map(drop)
    }

    /// Writes all of the data, from an offset on.
    ///
    /// # Errors
    /// [`ObjectError::OutsideSpace`] when there is no room for all: nothing was written. And those of [`write_at`](Self::write_at).
    #[track_caller]
    pub fn write_all_at(&self, me: &Worker, offset: u64, data: &[u8]) -> Result<()> {
        self.check(offset, data.len())?;
        self.write_at(me, offset, data).map(drop)
    }

    /// Gives the memory back. All workers call this, and it goes when all have come.
    ///
    /// # Errors
    /// Those of [`Worker::barrier`]; the memory is kept until the job ends then.
    #[track_caller]
    pub fn free(self, me: &Worker) -> Result<()> {
        self.spread.free(me)
    }

    /// Where a byte lies, and how many there are from it to the end of its slice.
    fn place(&self, offset: u64) -> (GlobalAddress, u64) {
        let (slice, within) = self.slice_bytes.divide(offset);
        let base = self.spread.base(ProcessId::new(self.first + slice as u32));
        let address = base.checked_add(within).expect("a slice is no longer than what addresses reach");
        (address, self.slice_bytes.value() - within)
    }

    /// What each slice has of a range that lies inside: from where on, and which of the range's bytes.
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
