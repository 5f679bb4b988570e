//! Results that are stored in registered memory.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use farside_fabric::ProcessId;
use farside_fabric::transport::{AtomicChange, Operation};

use crate::Wire;
use crate::error::{Error, Result};
use crate::invoke::notify::Counted;
use crate::invoke::reply::Status;
use crate::memory::RemoteMemory;
use crate::runtime::process::Process;
use crate::runtime::worker::Worker;
use crate::wire::{self, Decoder, Encoder, Reader, Schema, WireError};
use farside_launch::kill_point::KillPoint;

/// The size of the head before the result: size and status in one word.
const HEAD_BYTES: u64 = 8;
/// The number of bits of the head that hold the status.
const STATUS_BITS: u32 = 8;

/// A place in registered memory of any process for the result of a call
/// ([`To::call_into`](crate::To::call_into)).
///
/// It is a plain value. Any worker that has it can direct results there and can look for them, one
/// after the other. The result is encoded so that the reader checks every part of it, because any
/// process may write to the memory.
///
/// ```no_run
/// # use farside::prelude::*;
/// # use farside::ResultPlace;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let memory = me.allocate_at(me.process(), 64)?;
/// let place = ResultPlace::<u64>::new(me, memory, 0, 64)?;
/// me.to(me.neighbor(1)).call_into((20_u64, 22_u64), |_, (a, b)| a + b, place)?;
/// assert_eq!(place.wait(me)?, 42);
/// me.release(memory)
/// # }
/// ```
pub struct ResultPlace<R> {
    place: Span,
    result: PhantomData<fn() -> R>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
struct Span {
    memory: RemoteMemory,
    offset: u64,
    bytes: u64,
}

/// A result, or the reason why there is none.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) status: Status,
    pub(crate) bytes: Vec<u8>,
}

impl<R: Wire> ResultPlace<R> {
    /// Creates an empty place of `bytes` bytes from `offset` on, which is a multiple of 8. The
    /// first eight bytes hold its state.
    ///
    /// *Cost*: that of an atomic change of a word.
    ///
    /// # Errors
    /// [`Error::NotPortable`] for a type that cannot be checked; [`Error::Fabric`] with
    /// `OutOfRange` if the memory is shorter, `Misaligned`, if the owner does not answer in time,
    /// or if the transport fails; [`Error::PeerLost`] if the owner is lost;
    /// [`MemoryError::Released`](crate::memory::MemoryError::Released) if the release is detected;
    /// [`Error::InHandler`] in a handler, if the memory is not mapped.
    #[track_caller]
    pub fn new(me: &Worker, memory: RemoteMemory, offset: u64, bytes: u64) -> Result<Self> {
        if let Some(type_name) = Schema::of::<R>().unportable() {
            return Err(Error::NotPortable { name: "a result in registered memory", type_name });
        }
        memory.check_inside(offset, usize::try_from(bytes.max(HEAD_BYTES)).unwrap_or(usize::MAX))?;
        let place = Self { place: Span { memory, offset, bytes }, result: PhantomData };
        place.clear(me)?;
        Ok(place)
    }

    /// Empties the place for another result.
    ///
    /// # Errors
    /// [`Error::Fabric`] with `OutOfRange` or `Misaligned`, if the owner does not answer in time,
    /// or if the transport fails; [`Error::PeerLost`] if the owner is lost;
    /// [`MemoryError::Released`](crate::memory::MemoryError::Released) if the release is detected;
    /// [`Error::InHandler`] in a handler, if the memory is not mapped.
    #[track_caller]
    pub fn clear(&self, me: &Worker) -> Result<()> {
        self.place.memory.atomic64(me, self.place.offset, AtomicChange::Swap(0)).map(drop)
    }
}

impl<R: Wire + Clone> ResultPlace<R> {
    /// Returns the result, if it is there. The result stays in place, so each look at it makes a
    /// copy.
    ///
    /// # Errors
    /// [`Error::RemotePanic`] if the function panicked; the error names the first worker of the
    /// memory's process. [`Error::TooLarge`] if the result had no room; [`Error::Wire`] if the
    /// bytes are no such result. [`Error::Fabric`] with `OutOfRange` or `Misaligned`, if the owner
    /// does not answer in time, or if the transport fails; [`Error::PeerLost`] if the owner is
    /// lost; [`MemoryError::Released`](crate::memory::MemoryError::Released) if the release is
    /// detected; [`Error::InHandler`] in a handler, if the memory is not mapped.
    #[track_caller]
    pub fn poll(&self, me: &Worker) -> Result<Option<R>> {
        self.poll_from(me, Location::caller())
    }

    fn poll_from(&self, me: &Worker, site: &'static Location<'static>) -> Result<Option<R>> {
        let Span { memory, offset, bytes: room } = self.place;
        let room = room.saturating_sub(HEAD_BYTES);
        let head = memory.atomic64_from(me, offset, AtomicChange::Load, site)?;
        if head == 0 {
            return Ok(None);
        }
        let on = me.first_worker_of(memory.process());
        let bytes = head >> STATUS_BITS;
        match Status::of_answer(head as u8) {
            Some(Status::TooLarge) => {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                Err(Error::TooLarge {
                    what: "a result",
                    bytes,
                    max: room as usize,
                    remedy: "give the `ResultPlace` more bytes",
                })
            }
            Some(status @ (Status::Done | Status::Panicked)) if bytes <= room => {
                // Checked before the allocation, because a place that was decoded may name any
                // room.
                memory.check_inside(offset + HEAD_BYTES, bytes as usize)?;
                let mut content = vec![0; bytes as usize];
                memory.get_from(me, offset + HEAD_BYTES, &mut content, site)?;
                if status == Status::Panicked {
                    return Err(Error::RemotePanic { on, message: String::from_utf8_lossy(&content).into_owned() });
                }
                let result = wire::decode(Decoder::new(&content).within(me), 0);
                result.map(Some).map_err(|cause| Error::Wire { from: on, cause })
            }
            _ => Err(Error::Wire { from: on, cause: WireError::invalid::<R>(head) }),
        }
    }

    /// Waits for the result, and meanwhile runs calls that arrive here. Waits for the job's
    /// deadline at most.
    ///
    /// *Cost*: a sleeping worker is not woken; it looks every 100 µs. Use a
    /// [`Synchronizer`](crate::Synchronizer) to be woken.
    ///
    /// # Errors
    /// [`Error::RemotePanic`] if the function panicked; the error names the first worker of the
    /// memory's process. [`Error::TooLarge`] if the result had no room; [`Error::Wire`] if the
    /// bytes are no such result. [`Error::Deadline`] if no result arrives in time, also after the
    /// loss of the called process. [`Error::InHandler`] in a handler. [`Error::Fabric`] with
    /// `OutOfRange` or `Misaligned`, if the owner does not answer in time, or if the transport
    /// fails; [`Error::PeerLost`] if the owner is lost;
    /// [`MemoryError::Released`](crate::memory::MemoryError::Released) if the release is detected.
    #[track_caller]
    pub fn wait(&self, me: &Worker) -> Result<R> {
        self.wait_for(me, me.default_deadline())
    }

    /// Waits for at most this long.
    ///
    /// # Errors
    /// [`Error::RemotePanic`] if the function panicked; the error names the first worker of the
    /// memory's process. [`Error::TooLarge`] if the result had no room; [`Error::Wire`] if the
    /// bytes are no such result. [`Error::Deadline`] if no result arrives in time, also after the
    /// loss of the called process. [`Error::InHandler`] in a handler. [`Error::Fabric`] with
    /// `OutOfRange` or `Misaligned`, if the owner does not answer in time, or if the transport
    /// fails; [`Error::PeerLost`] if the owner is lost;
    /// [`MemoryError::Released`](crate::memory::MemoryError::Released) if the release is detected.
    #[track_caller]
    pub fn wait_for(&self, me: &Worker, time: Duration) -> Result<R> {
        let site = Location::caller();
        me.watch_until("watching for a result", time, |me| self.poll_from(me, site).transpose())
    }
}

impl<R> ResultPlace<R> {
    /// The process that owns the memory.
    pub fn process(&self) -> ProcessId {
        self.place.memory.process()
    }
}

/// Stores a result in its place, and then counts. An error is ignored if the memory is gone: there
/// is no caller to tell.
pub(crate) fn store<R, N: Counted>(process: &Arc<Process>, place: &ResultPlace<R>, content: Content, counted: N) {
    process.accesses.end();
    let Span { memory, offset, bytes: room } = place.place;
    let room = room.saturating_sub(HEAD_BYTES) as usize;
    let Content { status, mut bytes } = content;
    let (status, size) = match status {
        Status::Done if bytes.len() > room => (Status::TooLarge, bytes.len()),
        _ => (status, bytes.len().min(room)),
    };
    bytes.truncate(if status == Status::TooLarge { 0 } else { room });
    let head = (size as u64) << STATUS_BITS | u64::from(status as u8);
    // The head is written after the bytes that it describes.
    let put = Operation::Put { offset: offset.saturating_add(HEAD_BYTES), data: bytes };
    memory.change_soon(process, put, move |process| {
        process.kill_point(KillPoint::ResultPut);
        let tell = Operation::Atomic64 { offset, change: AtomicChange::Swap(head) };
        memory.change_soon(process, tell, move |process| counted.count(process));
    });
}

impl<R> Clone for ResultPlace<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for ResultPlace<R> {}

impl<R> fmt::Debug for ResultPlace<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ResultPlace").field(&self.place).finish()
    }
}

// SAFETY: a `ResultPlace` consists of numbers that mean the same in every process of the job. All
// of them are in the span, whose own `Wire` keeps the contract.
unsafe impl<R: 'static> Wire for ResultPlace<R> {
    const PLAIN: bool = Span::PLAIN;

    #[inline]
    fn wire_bytes(&self) -> usize {
        self.place.wire_bytes()
    }

    #[inline]
    unsafe fn write(self, out: *mut u8) {
        // SAFETY: by the contract `out` has room for `wire_bytes` bytes, those of the span.
        unsafe { self.place.write(out) };
    }

    #[inline]
    unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        // SAFETY: by the contract a `ResultPlace` was written here, whose bytes are those of its
        // span.
        let place = unsafe { Span::read(input) }?;
        Ok(Self { place, result: PhantomData })
    }

    fn describe(schema: &mut Schema) {
        schema.word("farside::ResultPlace");
        Span::describe(schema);
    }

    fn encode(&self, out: &mut Encoder) {
        self.place.encode(out);
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(Self { place: Span::decode(input)?, result: PhantomData })
    }
}
