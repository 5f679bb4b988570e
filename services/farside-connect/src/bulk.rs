//! [`Bulk`]: memory of a caller that a handler reads or writes piece by piece (Mercury III-D).
//!
//! A caller passes memory as an argument; only its description travels. The handler decides what
//! moves, and when: it *pulls* from memory that it may read, and *pushes* to memory that it may
//! write, by logical offset, whatever segments the memory consists of.
//!
//! A handler may also return memory of the server in its result. Then its caller pulls.

use std::any::Any;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use farside_wire::{Attachment, Decoder, Encoder, Schema, Wire, WireError, travels_attached};

use crate::area::Area;
use crate::link::{Fetching, How, Link, TransferError, in_thread};
use crate::lock::lock;
use crate::path::LinkEnd;
use crate::relay::Relay;
use crate::remote::{Description, Holder, Remote, room_for};
use crate::segments::Segments;

/// The handler may pull from the memory.
#[derive(Clone, Copy, Debug)]
pub enum Read {}
/// The handler may push to the memory.
#[derive(Clone, Copy, Debug)]
pub enum Write {}

pub use crate::area::{Source, Withdrawal};
pub use crate::lent::{Scope, scope};
pub use crate::memory::{Mapped, Memory, MemoryError, ShmError};

/// Memory of a caller, or of a server that returns it. `A` is [`Read`] or [`Write`]: what the other
/// side may do.
///
/// | at the caller | |
/// |---|---|
/// | `Bulk::from(vec)` | memory that the call owns until its answer |
/// | [`Scope::lend`], [`Scope::lend_mut`] | memory that is lent within a scope |
/// | [`Memory::to_read`], [`Memory::to_write`] | parts of memory that peers on the same machine map |
///
/// The server's memory in a result is a `Bulk<Read>` that owns its bytes or is a part of a
/// [`Memory`]. The server holds it ready until the client drops it or the connection ends; see
/// [`keeping`](Self::keeping). It counts for the connection like a call: with too much of it, calls
/// are refused as `CallError::Busy`. A client [pulls](Self::pull) from it, for as
/// long each time as the call had, and sees what the memory holds then. It keeps the connection
/// open. On one machine, [`mapped`](Bulk::mapped) reads without a look at the server.
///
/// *Completion.* The handler's pulls and pushes end when they return. The caller may reuse lent
/// memory when the call has ended, and in any case when the scope has ended. What a handler pushed
/// is there when its answer is.
///
/// *Cost.* Up to 4 KiB to read travel with the call. On one machine the pulling or receiving side
/// reads the other's memory by one system call for each MiB, and no byte is copied twice. What a
/// [`Memory`] holds is copied without a system call. Where the system forbids such reads, over TCP,
/// and from segments of less than 1 KiB on the average, bytes travel as messages of 64 KiB.
/// [`Rdma`](crate::Rdma) moves long transfers of a [`Memory`] between machines.
#[derive(Debug)]
pub struct Bulk<A> {
    side: Side,
    access: PhantomData<fn() -> A>,
}

#[derive(Debug)]
enum Side {
    /// Memory of this side.
    Here(Arc<Area>),
    /// Memory of the peer.
    There(Arc<Remote>),
}

/// The memory that was attached while arguments were encoded.
pub fn attached(things: Vec<Box<dyn Any + Send>>) -> Vec<Arc<Area>> {
    things.into_iter().filter_map(|thing| thing.downcast::<Arc<Area>>().ok()).map(|area| *area).collect()
}

/// The first word of schemas of memory.
pub const WORD: &str = "Bulk<";

/// When so much of a pipeline is on its way by messages, more makes it no faster.
const UNDER_WAY_BYTES_MAX: u64 = 4 << 20;

/// The context in which arguments and results are decoded: what came with the bytes.
#[derive(Debug)]
pub struct Received {
    /// The holder of the memory.
    pub holder: Holder,
    /// The connection.
    pub link: Arc<Link>,
    /// The memory that was described, until it is decoded.
    pub memory: Mutex<Vec<Option<Description>>>,
    /// The finding of the layer above: the stream of a result.
    pub stream: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Drop for Received {
    fn drop(&mut self) {
        if matches!(self.holder, Holder::Caller { .. }) {
            // What was not decoded is not used.
            lock(&self.memory).iter().flatten().for_each(|memory| memory.release(&self.link));
        }
    }
}

/// The access of a handler to memory. Implemented by [`Read`] and [`Write`] alone.
pub trait Access: Send + 'static + sealed::Sealed {
    #[doc(hidden)]
    const WORD: &'static str;
    #[doc(hidden)]
    const MAY_WRITE: bool;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Read {}
    impl Sealed for super::Write {}
}

impl Access for Read {
    const WORD: &'static str = "Bulk<Read>";
    const MAY_WRITE: bool = false;
}

impl Access for Write {
    const WORD: &'static str = "Bulk<Write>";
    const MAY_WRITE: bool = true;
}

impl From<Vec<u8>> for Bulk<Read> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::here(Arc::new(Area::owned(bytes, false)))
    }
}

impl From<&[u8]> for Bulk<Read> {
    fn from(bytes: &[u8]) -> Self {
        bytes.to_vec().into()
    }
}

impl<A> Bulk<A> {
    fn here(area: Arc<Area>) -> Self {
        Self { side: Side::Here(area), access: PhantomData }
    }

    /// The size of the memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.side {
            Side::Here(area) => area.bytes(),
            Side::There(remote) => remote.memory.bytes,
        }
    }

    /// Tells the peer that the memory is no longer needed.
    ///
    /// That of an argument comes back before the answer then. When the caller next receives, what
    /// it gave away is free, and what it [keeps](Self::keeping) with the memory is dropped. Lent
    /// memory stays borrowed until its scope ends. The call is not made again on another
    /// connection.
    ///
    /// Memory of a result is released also when this is dropped.
    pub fn release(self) {
        if let Side::There(remote) = &self.side
            && matches!(remote.holder, Holder::Handler(_))
        {
            remote.memory.release(&remote.link);
        }
    }

    /// Returns whether the peer still holds the memory ready: its call has not ended, or its
    /// connection if it came in a result. Memory of this side is ready.
    ///
    /// *Cost.* For memory of a result up to one system call, and what has arrived is received.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        match &self.side {
            Side::Here(_) => true,
            Side::There(remote) => remote.is_valid(),
        }
    }

    /// Keeps a value until the memory is no longer used: until its call has ended, or its handler
    /// has [released](Self::release) it. If the memory is returned in a result, until the client
    /// has dropped it or its connection has ended. So the value's destructor tells when that is so.
    /// It runs on a thread of the library and must not wait.
    #[must_use]
    pub fn keeping(self, value: impl Send + 'static) -> Self {
        if let Side::Here(area) = &self.side {
            area.keep(Box::new(value));
        }
        self
    }

    fn check(&self, offset: u64, bytes: usize) -> Result<(), TransferError> {
        let (memory_bytes, bytes) = (self.bytes(), bytes as u64);
        if let Side::There(remote) = &self.side
            && remote.link.is_forked()
        {
            return Err(LinkEnd::Forked.into());
        }
        match offset.checked_add(bytes) {
            Some(end) if end <= memory_bytes => Ok(()),
            _ => Err(TransferError::OutOfRange { offset, bytes, memory_bytes }),
        }
    }
}

impl Bulk<Read> {
    /// Memory that the program keeps in a way of its own. Peers on the same machine read it by
    /// system calls if it says its address.
    #[must_use]
    pub fn of_source(source: Arc<dyn Source>) -> Self {
        Self::here(Arc::new(Area::of_source(source)))
    }

    /// A handle that takes memory of this side back after it was returned in a result. Memory of
    /// the peer cannot be taken back.
    #[must_use]
    pub fn withdrawal(&self) -> Option<Withdrawal> {
        match &self.side {
            Side::Here(area) => Some(Withdrawal::of(area)),
            Side::There(_) => None,
        }
    }

    /// Copies the bytes from `offset` on into `into`.
    ///
    /// # Errors
    /// [`TransferError`]: among others, if the range is not inside the memory, the deadline of the
    /// call passes, or the caller cancels it. What `into` holds then is not specified.
    pub fn pull(&self, offset: u64, into: &mut [u8]) -> Result<(), TransferError> {
        self.check(offset, into.len())?;
        match &self.side {
            Side::Here(area) => area.copy_out(offset, into).map_err(|_| TransferError::Gone),
            Side::There(remote) => remote.pull(offset, into),
        }
    }

    /// The memory as this process maps it, if the peer has allocated it as one part of a [`Memory`]
    /// and is on the same machine.
    #[must_use]
    pub fn mapped(&self) -> Option<Mapped> {
        match &self.side {
            Side::Here(_) => None,
            Side::There(remote) if remote.link.is_forked() => None,
            Side::There(remote) => Mapped::of(remote),
        }
    }

    /// Copies `bytes` bytes from `offset` on, in a task. While messages are on their way, an
    /// `async` handler occupies no thread. Memory that needs no messages is copied at once. A
    /// caller that pulls from memory of a result does so on its thread.
    ///
    /// # Errors
    /// [`TransferError`], as for [`pull`](Self::pull).
    ///
    /// # Examples
    /// ```
    /// # extern crate farside_connect as farside_rpc;
    /// use farside_rpc::TransferError;
    /// use farside_rpc::bulk::{Bulk, Read};
    ///
    /// async fn sum(memory: Bulk<Read>) -> Result<u64, TransferError> {
    ///     let mut sum = 0;
    ///     for offset in (0..memory.bytes()).step_by(1 << 20) {
    ///         let bytes = (memory.bytes() - offset).min(1 << 20);
    ///         let piece = memory.pull_async(offset, bytes as usize).await?;
    ///         sum += piece.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    ///     }
    ///     Ok(sum)
    /// }
    /// ```
    pub async fn pull_async(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, TransferError> {
        self.check(offset, bytes)?;
        let mut piece = room_for(bytes as u64)?;
        let Side::There(remote) = &self.side else { return self.pull(offset, &mut piece).map(|()| piece) };
        remote.pull_async(offset, piece).await
    }

    /// Copies the whole memory.
    ///
    /// # Errors
    /// [`TransferError`], as for [`pull`](Self::pull). A caller may claim any size: check
    /// [`bytes`](Self::bytes) first.
    pub fn pull_all(&self) -> Result<Vec<u8>, TransferError> {
        let mut bytes = room_for(self.bytes())?;
        self.pull(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Passes the whole memory to `work` in pieces of `piece_bytes` bytes, in order, while up to
    /// `depth` later pieces are on their way (Mercury IV-A). Over TCP without RDMA, these are 4 MiB
    /// at most.
    ///
    /// ```
    /// # extern crate farside_connect as farside_rpc;
    /// use std::fs::File;
    /// use std::io;
    /// use std::os::unix::fs::FileExt;
    ///
    /// use farside_rpc::bulk::{Bulk, Read};
    ///
    /// /// Stores what a caller has: one piece while others are on their way.
    /// fn store(value: &Bulk<Read>, file: &File) -> io::Result<()> {
    ///     value.pipeline(1 << 20, 4, |offset, piece| file.write_all_at(piece, offset))
    /// }
    /// ```
    ///
    /// # Errors
    /// The first error of a transfer or of `work`.
    ///
    /// # Panics
    /// If `piece_bytes` or `depth` is 0.
    pub fn pipeline<E: From<TransferError>>(
        &self,
        piece_bytes: usize,
        depth: usize,
        mut work: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        assert!(piece_bytes > 0 && depth > 0, "a pipeline has pieces and a depth");
        self.check(0, 0)?;
        let total = self.bytes();
        let piece_of = |offset: u64| (piece_bytes as u64).min(total - offset) as usize;
        let Some(remote) = self.remote_by_messages() else {
            // By RDMA, all pieces that may be under way are read at once.
            let by_rdma = matches!(&self.side, Side::There(remote) if remote.is_registered(piece_bytes));
            let at_once = if by_rdma { piece_bytes.saturating_mul(depth + 1) } else { piece_bytes };
            let mut buffer = vec![0; at_once.min(total as usize)];
            let mut offset = 0;
            while offset < total {
                let pulled = at_once.min((total - offset) as usize);
                self.pull(offset, &mut buffer[..pulled])?;
                for piece in buffer[..pulled].chunks(piece_bytes) {
                    work(offset, piece)?;
                    offset += piece.len() as u64;
                }
            }
            return Ok(());
        };
        let (mut started, mut asked, mut offset) = (VecDeque::new(), 0, 0);
        while offset < total {
            while asked < total
                && (started.is_empty() || started.len() <= depth && asked - offset < UNDER_WAY_BYTES_MAX)
            {
                let area = Arc::new(Area::owned(vec![0; piece_of(asked)], true));
                let fetching = Fetching::begin(&remote.link, remote.memory.number, asked, area.clone())?;
                asked += area.bytes();
                started.push_back((fetching, area));
            }
            let (fetching, area) = started.pop_front().expect("a piece is under way");
            in_thread(fetching.wait(How::Thread(&remote.patience())))?;
            let piece = area.take();
            work(offset, &piece)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// The memory, if its bytes travel as messages.
    fn remote_by_messages(&self) -> Option<&Remote> {
        let Side::There(remote) = &self.side else { return None };
        let can_read = remote.memory.shared.is_some() || !remote.link.cannot_read_peer.load(Ordering::Relaxed);
        let is_direct = can_read && !remote.segments.is_empty();
        (remote.memory.inline.is_none() && !is_direct).then_some(remote)
    }
}

impl Bulk<Write> {
    /// Copies `from` into the memory, from `offset` on. It is there when this returns.
    ///
    /// # Errors
    /// [`TransferError`], as for [`pull`](Bulk::pull).
    pub fn push(&self, offset: u64, from: &[u8]) -> Result<(), TransferError> {
        self.check(offset, from.len())?;
        match &self.side {
            Side::Here(area) => area.copy_in(offset, from).map_err(|_| TransferError::Gone),
            Side::There(_) if from.is_empty() => Ok(()),
            Side::There(remote) => remote.push(offset, from),
        }
    }

    /// Copies `from` into the memory, from `offset` on, in a task: while messages are on their way,
    /// an `async` handler occupies no thread.
    ///
    /// # Errors
    /// [`TransferError`], as for [`pull`](Bulk::pull).
    pub async fn push_async(&self, offset: u64, from: Vec<u8>) -> Result<(), TransferError> {
        self.check(offset, from.len())?;
        match &self.side {
            Side::There(remote) if !from.is_empty() => remote.push_async(offset, from).await,
            _ => self.push(offset, &from),
        }
    }
}

impl<A: Access> Attachment for Bulk<A> {
    fn describe(schema: &mut Schema) {
        schema.word(A::WORD);
        schema.bytes(size_of::<u32>());
    }

    fn encode(&self, out: &mut Encoder) {
        let index = match &self.side {
            Side::Here(area) => out.attach(Box::new(area.clone())),
            Side::There(remote) => out.attach(Box::new(Arc::new(Relay::area(remote.clone())))),
        };
        index.encode(out);
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
        let index = u32::decode(input)?;
        let received: &Received = input.context().ok_or_else(WireError::other_type::<Self>)?;
        let memory = lock(&received.memory).get_mut(index as usize).and_then(Option::take);
        let mut memory = memory.ok_or_else(|| WireError::invalid::<Self>(index))?;
        let segments = Segments::unpack(&memory.segments);
        let is_whole = |sum: u64| memory.segments.is_empty() || sum == memory.bytes;
        let is_right = memory.may_write == A::MAY_WRITE
            && usize::try_from(memory.bytes).is_ok_and(|bytes| isize::try_from(bytes).is_ok())
            && memory.inline.as_ref().is_none_or(|inline| inline.len() as u64 == memory.bytes)
            && segments.as_ref().is_some_and(|parts| is_whole(parts.bytes() as u64));
        let Some(segments) = segments.filter(|_| is_right) else { return Err(WireError::invalid::<Self>(index)) };
        memory.segments = Vec::new();
        let remote = Remote { holder: received.holder.clone(), link: received.link.clone(), memory, segments };
        Ok(Self { side: Side::There(Arc::new(remote)), access: PhantomData })
    }
}

travels_attached!([A: Access] Bulk<A>);

impl Memory {
    /// A part of the memory that a handler may pull from.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`].
    pub fn to_read(&self, part: Range<usize>) -> Result<Bulk<Read>, MemoryError> {
        self.to_read_all([part])
    }

    /// Several parts of the memory, which the handler sees as one. They may overlap.
    ///
    /// # Errors
    /// [`MemoryError`] if a part is not inside the memory.
    pub fn to_read_all(&self, parts: impl IntoIterator<Item = Range<usize>>) -> Result<Bulk<Read>, MemoryError> {
        self.area(parts, false).map(|area| Bulk::here(Arc::new(area)))
    }

    /// A part of the memory that a handler may push to.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`].
    pub fn to_write(&self, part: Range<usize>) -> Result<Bulk<Write>, MemoryError> {
        self.to_write_all([part])
    }

    /// Several parts of the memory, which the handler sees as one.
    ///
    /// # Errors
    /// [`MemoryError`] if a part is not inside the memory.
    pub fn to_write_all(&self, parts: impl IntoIterator<Item = Range<usize>>) -> Result<Bulk<Write>, MemoryError> {
        self.area(parts, true).map(|area| Bulk::here(Arc::new(area)))
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Lends memory that a handler may pull from.
    pub fn lend(&'scope self, bytes: &'scope [u8]) -> Bulk<Read> {
        self.lend_all([bytes])
    }

    /// Lends several pieces of memory, which the handler sees as one.
    ///
    /// # Panics
    /// If they overlap, and have more bytes than an address space together.
    pub fn lend_all(&'scope self, slices: impl IntoIterator<Item = &'scope [u8]>) -> Bulk<Read> {
        Bulk::here(self.area(&slices.into_iter().collect::<Vec<_>>()))
    }

    /// Lends memory that a handler may push to.
    pub fn lend_mut(&'scope self, bytes: &'scope mut [u8]) -> Bulk<Write> {
        self.lend_all_mut([bytes])
    }

    /// Lends several pieces of memory, which the handler sees as one.
    pub fn lend_all_mut(&'scope self, slices: impl IntoIterator<Item = &'scope mut [u8]>) -> Bulk<Write> {
        Bulk::here(self.area_mut(&mut slices.into_iter().collect::<Vec<_>>()))
    }
}
