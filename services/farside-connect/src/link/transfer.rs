//! Reading and writing memory that the peer has exposed.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{ErrorKind, IoSliceMut};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::exposed::Entry;
use super::{CROWDED, FETCH_BYTES_MAX, GONE, Link, OFFER_BYTES, OUT_OF_RANGE, READ_ONLY, UNREADABLE};
use farside_sys::shm::Inaccessible;

use crate::area::Area;
use crate::frame::{Fetch, Head, Kind, PIECE_BYTES, Take};
use crate::path::LinkEnd;
use crate::patience::{Patience, WaitEnd};
use crate::segments::{self, Segment, Segments};
use crate::table::index;

/// The number of `Fetch`es, or of settled pieces, that are under way at once.
const WINDOW: usize = 4;

/// From this size on, a copy keeps other threads from the CPU for a while.
const LONG_COPY_BYTES: u64 = 256 << 10;

/// Gives the CPU to other threads after a long copy: one of them may have a short call to answer,
/// and would otherwise wait until the scheduler takes the CPU from this thread.
pub(super) fn let_others_run(copied: u64) {
    if copied >= LONG_COPY_BYTES {
        std::thread::yield_now();
    }
}

/// Why a transfer failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The memory was taken back: the call has ended at its caller.
    #[error("the memory is gone: the call has ended at its caller; transfer before the answer, and release it after")]
    Gone,
    /// The range is not inside the memory.
    #[error("the range {offset}..{} is not inside the memory of {memory_bytes} bytes; ask for its size first", offset.saturating_add(*bytes))]
    OutOfRange {
        /// The start of the range.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// The size of the memory.
        memory_bytes: u64,
    },
    /// The peer does not allow writing.
    #[error("the memory may only be read; have the caller lend it for writing, as Bulk<Write>")]
    ReadOnly,
    /// The peer has too much to send already.
    #[error("the peer has too many transfers under way; run fewer at once")]
    Crowded,
    /// The peer could not read this side's memory.
    #[error("the peer could not read this side's memory directly; use bulk::Memory, which both sides map")]
    Unreadable,
    /// There is no memory for what was to be pulled.
    #[error("no memory for {bytes} bytes; pull pieces")]
    NoMemory {
        /// The number of bytes.
        bytes: u64,
    },
    /// The deadline of the call passed.
    #[error("the deadline passed during a transfer; allow the call more time with Client::deadline")]
    Deadline,
    /// The call was cancelled.
    #[error("the call was cancelled during a transfer, by its caller or because the server ended")]
    Cancelled,
    /// The connection has ended.
    #[error("{0}")]
    Link(#[from] LinkEnd),
}

/// For handlers that pass bytes on to files.
impl From<TransferError> for std::io::Error {
    fn from(error: TransferError) -> Self {
        let kind = match error {
            TransferError::Deadline => std::io::ErrorKind::TimedOut,
            _ => std::io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

impl From<WaitEnd> for TransferError {
    fn from(end: WaitEnd) -> Self {
        match end {
            WaitEnd::Deadline => Self::Deadline,
            WaitEnd::Cancelled => Self::Cancelled,
            WaitEnd::Link(end) => Self::Link(end),
        }
    }
}

fn failed(status: u8) -> TransferError {
    match status {
        // This side has compared the range with the peer's description.
        OUT_OF_RANGE => LinkEnd::protocol("it refuses a part of the memory that it described").into(),
        READ_ONLY => TransferError::ReadOnly,
        CROWDED => TransferError::Crowded,
        UNREADABLE => TransferError::Unreadable,
        GONE.. | 0 => TransferError::Gone,
    }
}

/// The waiter of a transfer. So threads and tasks share the steps of transfers.
#[derive(Clone, Copy)]
pub(crate) enum How<'a> {
    /// This thread. It waits inside of [`in_thread`].
    Thread(&'a Patience),
    /// The task of a call, which ends it in time. It is woken by what arrives.
    Task,
}

/// Runs a transfer for which this thread waits.
pub(crate) fn in_thread<T>(transfer: impl Future<Output = T>) -> T {
    match pin!(transfer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("a thread waits until it is done"),
    }
}

/// Takes lent memory back when it is dropped.
struct Lent(Arc<Area>);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.revoke();
    }
}

/// An operation of this side, which ends when this is dropped.
pub(super) struct Operation<'a> {
    link: &'a Arc<Link>,
    pub(super) number: u64,
    area: Option<Arc<Area>>,
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.link.withdraw(self.number);
        if let Some(area) = &self.area {
            area.revoke();
        }
    }
}

impl<'a> Operation<'a> {
    /// Begins an operation for which `missing_bytes` bytes are to arrive in `area`.
    pub(super) fn begin(link: &'a Arc<Link>, area: Option<Arc<Area>>, missing_bytes: u64) -> Self {
        let number = link.exposed.begin(Entry { area: area.clone(), missing_bytes, ..Entry::default() });
        Self { link, number, area }
    }

    pub(super) async fn wait(&self, how: How<'_>) -> Result<(), TransferError> {
        let status = self.news(how, |exposed| exposed.ended).await?;
        if status == 0 { Ok(()) } else { Err(failed(status)) }
    }

    /// Waits until `look` finds something.
    async fn news<T>(&self, how: How<'_>, mut look: impl FnMut(&mut Entry) -> Option<T>) -> Result<T, TransferError> {
        if let How::Thread(patience) = how {
            return Ok(self.link.wait(patience, || self.link.exposed.with(self.number, &mut look))?);
        }
        poll_fn(|context| {
            let mut table = self.link.exposed.table();
            let Some(exposed) = table.get(self.number) else { return Poll::Ready(Err(TransferError::Gone)) };
            if let Some(found) = look(exposed) {
                return Poll::Ready(Ok(found));
            }
            let known = exposed.task.replace(context.waker().clone());
            drop(table);
            // To drop a task runs code of the program.
            drop(known);
            // A link that ends later wakes the task.
            self.link.end().map_or(Poll::Pending, |end| Poll::Ready(Err(end.clone().into())))
        })
        .await
    }
}

/// A read of exposed memory of the peer by messages, on its way.
pub(crate) struct Fetching<'a> {
    operation: Operation<'a>,
    number: u64,
    offset: u64,
    bytes: u64,
    asked_bytes: u64,
    is_over: bool,
}

impl<'a> Fetching<'a> {
    /// Asks for the first bytes of a read that fills `area`.
    pub(crate) fn begin(link: &'a Arc<Link>, number: u64, offset: u64, area: Arc<Area>) -> Result<Self, TransferError> {
        let bytes = area.bytes();
        let operation = Operation::begin(link, Some(area), bytes);
        let mut fetching = Self { operation, number, offset, bytes, asked_bytes: 0, is_over: false };
        fetching.ask(bytes)?;
        Ok(fetching)
    }

    /// Asks for more while `missing_bytes` bytes of the whole are missing.
    fn ask(&mut self, missing_bytes: u64) -> Result<(), LinkEnd> {
        let arrived = self.bytes - missing_bytes;
        while self.asked_bytes < self.bytes
            && self.asked_bytes.saturating_sub(arrived) < WINDOW as u64 * FETCH_BYTES_MAX
        {
            let bytes = FETCH_BYTES_MAX.min(self.bytes - self.asked_bytes);
            let (offset, into) = (self.offset + self.asked_bytes, self.operation.number);
            let fetch = Fetch { offset, bytes, into, into_offset: self.asked_bytes };
            self.operation
                .link
                .send(Head::new(Kind::Fetch, self.number), &[&farside_wire::encode(&fetch, Vec::new())])?;
            self.asked_bytes += bytes;
        }
        Ok(())
    }

    /// Waits until all bytes are there.
    pub(crate) async fn wait(mut self, how: How<'_>) -> Result<(), TransferError> {
        while !self.is_complete() {
            let news = self.operation.news(how, |exposed| self.look(exposed)).await?;
            self.go_on(news)?;
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.bytes == 0 || self.is_over
    }

    /// The bytes that are missing and the end of the read, if it goes on or is over.
    fn look(&self, exposed: &mut Entry) -> Option<(u64, Option<u8>)> {
        // More is asked for when a whole piece has arrived.
        let enough = self.bytes - self.asked_bytes + (WINDOW as u64 - 1) * FETCH_BYTES_MAX;
        exposed.wake_bytes = if self.asked_bytes < self.bytes { enough } else { 0 };
        let is_news = exposed.ended.is_some() || exposed.missing_bytes <= exposed.wake_bytes;
        is_news.then_some((exposed.missing_bytes, exposed.ended))
    }

    fn go_on(&mut self, (missing_bytes, ended): (u64, Option<u8>)) -> Result<(), TransferError> {
        match ended {
            Some(0) => self.is_over = true,
            Some(status) => return Err(failed(status)),
            None => self.ask(missing_bytes)?,
        }
        Ok(())
    }
}

impl Link {
    /// Reads from exposed memory of the peer by messages.
    ///
    /// # Errors
    /// [`TransferError`].
    pub(crate) fn fetch(
        self: &Arc<Self>,
        number: u64,
        offset: u64,
        into: &mut [u8],
        patience: &Patience,
    ) -> Result<(), TransferError> {
        // SAFETY: `into` is borrowed until this function returns. The area is revoked before: the
        // operation does so when it is dropped, in every case.
        let area = unsafe { Area::lent_mut(&mut [into]) };
        in_thread(Fetching::begin(self, number, offset, Arc::new(area))?.wait(How::Thread(patience)))
    }

    /// Reads the peer's memory directly.
    pub(crate) fn read_directly(
        &self,
        number: u64,
        segments: &Segments,
        offset: u64,
        into: &mut [u8],
        patience: &Patience,
    ) -> Result<(), TransferError> {
        let direct = self.path.direct().ok_or(TransferError::Unreadable)?;
        let mut skip = offset as usize;
        for piece in into.chunks_mut(FETCH_BYTES_MAX as usize) {
            if Instant::now() >= patience.deadline {
                return Err(TransferError::Deadline);
            }
            let part: Vec<_> = segments.range(skip, piece.len()).collect();
            direct.read(index(number), number, &part, &mut [IoSliceMut::new(piece)]).map_err(|error| {
                match self.end() {
                    Some(end) => TransferError::Link(end.clone()),
                    None if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) => {
                        TransferError::Unreadable
                    }
                    None => TransferError::Gone,
                }
            })?;
            skip += piece.len();
            let_others_run(piece.len() as u64);
        }
        Ok(())
    }

    /// Passes the parts of shared memory that make up a range to `copy`: the place of each in the
    /// range, its offset in the memory, and its length. The parts are those of the exposed memory
    /// `number`, which is gone if it is no longer exposed afterwards.
    pub(crate) fn copy_mapped(
        &self,
        number: u64,
        parts: impl Iterator<Item = Segment>,
        patience: &Patience,
        mut copy: impl FnMut(usize, usize, usize) -> Result<(), Inaccessible>,
    ) -> Result<(), TransferError> {
        let direct = self.path.direct().ok_or(TransferError::Gone)?;
        let (mut done, mut unchecked) = (0, 0);
        for (offset, bytes) in parts {
            let mut at = 0;
            while at < bytes {
                if unchecked >= FETCH_BYTES_MAX as usize {
                    let_others_run(unchecked as u64);
                    unchecked = 0;
                    if Instant::now() >= patience.deadline {
                        return Err(TransferError::Deadline);
                    }
                    if !direct.is_marked(index(number), number) {
                        return Err(TransferError::Gone);
                    }
                }
                let piece = (bytes - at).min(FETCH_BYTES_MAX as usize - unchecked);
                // No correct peer describes other memory than it shares.
                copy(done, offset.wrapping_add(at), piece).map_err(|_| TransferError::Gone)?;
                crate::kills::point();
                (at, done, unchecked) = (at + piece, done + piece, unchecked + piece);
            }
        }
        let_others_run(unchecked as u64);
        if direct.is_marked(index(number), number) { Ok(()) } else { Err(TransferError::Gone) }
    }

    /// Writes to exposed memory of the peer.
    ///
    /// # Errors
    /// [`TransferError`].
    pub(crate) fn push(
        self: &Arc<Self>,
        number: u64,
        offset: u64,
        from: &[u8],
        patience: &Patience,
    ) -> Result<(), TransferError> {
        let how = How::Thread(patience);
        if self.may_offer() {
            // SAFETY: `from` is borrowed until this function returns. The area is revoked before
            // that: `Lent` does so when it is dropped, in every case.
            let lent = Lent(Arc::new(unsafe { Area::lent(&[from]) }));
            if in_thread(self.offer(number, offset, &lent.0, how))? {
                return Ok(());
            }
        }
        in_thread(self.send_blocks(number, offset, from, how))
    }

    /// As [`push`](Self::push), in a task.
    pub(crate) async fn push_awaited(
        self: &Arc<Self>,
        number: u64,
        offset: u64,
        mut from: Vec<u8>,
    ) -> Result<(), TransferError> {
        if self.may_offer() {
            let area = Arc::new(Area::owned(from, false));
            if self.offer(number, offset, &area, How::Task).await? {
                return Ok(());
            }
            from = area.take();
        }
        self.send_blocks(number, offset, &from, How::Task).await
    }

    /// Returns whether the peer may be able to read this side's memory directly.
    fn may_offer(&self) -> bool {
        self.path.direct().is_some() && !self.peer_cannot_read.load(Ordering::Relaxed)
    }

    /// Lets the peer read `area` directly into its own memory. Returns false if that cannot be now.
    /// Afterwards the peer reads it no longer: it finds no mark.
    async fn offer(
        self: &Arc<Self>,
        number: u64,
        offset: u64,
        area: &Arc<Area>,
        how: How<'_>,
    ) -> Result<bool, TransferError> {
        let segments = Segments::of(area.segments());
        for at in (0..segments.bytes()).step_by(OFFER_BYTES) {
            let (operation, is_marked) = self.expose(area.clone());
            let source = Operation { link: self, number: operation, area: None };
            if !is_marked {
                return Ok(false);
            }
            let piece = segments::pack(segments.range(at, OFFER_BYTES), PIECE_BYTES).expect("it takes few bytes");
            self.send_take(number, offset + at as u64, operation, piece)?;
            match source.wait(how).await {
                Err(TransferError::Unreadable) => {
                    self.peer_cannot_read.store(true, Ordering::Relaxed);
                    return Ok(false);
                }
                done => done?,
            }
        }
        Ok(true)
    }

    /// Writes by messages, in blocks, of which a few are under way at once.
    async fn send_blocks(
        self: &Arc<Self>,
        number: u64,
        offset: u64,
        from: &[u8],
        how: How<'_>,
    ) -> Result<(), TransferError> {
        let mut started = VecDeque::new();
        for (block_index, block) in (0..).zip(from.chunks(FETCH_BYTES_MAX as usize)) {
            if started.len() == WINDOW {
                let operation: Operation<'_> = started.pop_front().expect("the window is not empty");
                operation.wait(how).await?;
            }
            // A peer that takes nothing holds up its own transfers, and fills no memory.
            while self.is_full() {
                match how {
                    How::Thread(patience) => self.wait(patience, || self.may_go_on().then_some(()))?,
                    How::Task => self.room().await?,
                }
            }
            started.push_back(self.send_block(number, offset + block_index * FETCH_BYTES_MAX, block)?);
        }
        for operation in &started {
            operation.wait(how).await?;
        }
        Ok(())
    }

    fn send_take(&self, number: u64, offset: u64, operation: u64, segments: Vec<u8>) -> Result<(), LinkEnd> {
        let take = Take { operation, segments };
        let head = Head::new(Kind::Take, number).with_value(offset);
        self.send(head, &[&farside_wire::encode(&take, Vec::new())])
    }

    /// Sends a block of a push by messages. The operation ends when it is in place.
    fn send_block(self: &Arc<Self>, number: u64, offset: u64, block: &[u8]) -> Result<Operation<'_>, LinkEnd> {
        for (piece_index, piece) in (0..).zip(block.chunks(PIECE_BYTES)) {
            let at = offset + piece_index * PIECE_BYTES as u64;
            self.send(Head::new(Kind::Data, number).with_value(at), &[piece])?;
        }
        let operation = Operation::begin(self, None, 0);
        self.send(Head::new(Kind::Settle, operation.number).with_value(number), &[])?;
        Ok(operation)
    }
}
