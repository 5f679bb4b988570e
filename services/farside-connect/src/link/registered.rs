//! Reading and writing memory that the peer has registered for RDMA.
//!
//! All bytes go through slots of this side, in batches. A few batches are under way at once. There
//! are no marks in memory as on one machine. When all is done, the owner is asked whether the
//! memory was exposed until then.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use farside_fabric::ofi::connected::{
    Connection, Kept, PIECES_MAX, Piece, SLOT_BYTES, SLOTS, Slot, TransferEnd, Wait, Waiter,
};

use super::Link;
use super::transfer::{How, Operation, TransferError};
use crate::frame::{AFTER_READS, Head, Kind};
use crate::path::LinkEnd;
use crate::path::rdma::PeerMemory;
use crate::segments::Segment;

/// The bytes of a transfer, on this side.
pub(crate) enum Local<'a> {
    Into(&'a mut [u8]),
    From(&'a [u8]),
}

/// A batch that is under way: its slot, and its place in the transfer.
type Batch<'a> = (Slot<'a>, usize, usize);

/// How a step of RDMA is waited for.
#[derive(Clone, Copy)]
struct Steps<'a> {
    link: &'a Link,
    how: How<'a>,
}

impl Steps<'_> {
    /// Polls once for a thread, and repeatedly for a task.
    async fn wait<T>(self, mut poll: impl FnMut(Waiter<'_>) -> Poll<Result<T, TransferEnd>>) -> Result<T, TransferEnd> {
        let How::Thread(patience) = self.how else {
            return poll_fn(|context| poll(Waiter::Task(context.waker()))).await;
        };
        let is_wanted = || !patience.is_cancelled() && self.link.end().is_none();
        let wait = Wait { deadline: patience.deadline, is_wanted: &is_wanted };
        poll_fn(|_| poll(Waiter::Thread(wait))).await
    }
}

impl Link {
    /// Reads or writes the parts of registered memory that make up a range of the exposed memory
    /// `number`.
    pub(crate) async fn transfer_registered(
        self: &Arc<Self>,
        number: u64,
        memory: &Arc<PeerMemory>,
        parts: impl Iterator<Item = Segment>,
        mut local: Local<'_>,
        how: How<'_>,
    ) -> Result<(), TransferError> {
        let steps = Steps { link: self, how };
        let connection = self.path.rdma().and_then(|rdma| rdma.connection()).ok_or(TransferError::Gone)?;
        let failed = |end| self.transfer_failed(end);
        let is_write = matches!(local, Local::From(_));
        let kept: Kept = memory.clone();
        let (mut started, mut at) = (VecDeque::<Batch<'_>>::new(), 0);
        let mut batches = Batches { parts, rest: None };
        while let Some(pieces) = batches.next(memory.bytes)? {
            let bytes = pieces.iter().map(|(_, bytes)| bytes).sum();
            // What has slots waits for its own transfers alone, so no two wait for each other.
            let mut slot = loop {
                if let Some(slot) = next_slot(connection, started.len(), steps).await.map_err(failed)? {
                    break slot;
                }
                let first = started.pop_front().expect("another transfer has all slots otherwise");
                finish(first, &mut local, steps).await.map_err(failed)?;
            };
            if let Local::From(from) = &local {
                slot.write(0, &from[at..at + bytes]);
            }
            let begun = steps.wait(|waiter| slot.begin(is_write, memory.remote, &pieces, &kept, waiter));
            begun.await.map_err(failed)?;
            crate::kills::point();
            started.push_back((slot, at, bytes));
            at += bytes;
        }
        for batch in started {
            finish(batch, &mut local, steps).await.map_err(failed)?;
        }
        crate::kills::point();
        let operation = Operation::begin(self, None, 0);
        let after = if is_write { 0 } else { AFTER_READS };
        self.send(Head::new(Kind::Settle, operation.number).with_value(number).with_status(after), &[])?;
        operation.wait(how).await
    }

    /// Returns the error for the end of a transfer. If RDMA has failed, the connection has.
    fn transfer_failed(&self, end: TransferEnd) -> TransferError {
        match (end, self.end()) {
            (TransferEnd::Deadline, _) => TransferError::Deadline,
            (TransferEnd::Unwanted, None) => TransferError::Cancelled,
            (_, Some(end)) => end.clone().into(),
            (TransferEnd::Failed(why), None) => {
                self.close(LinkEnd::Failed(format!("RDMA failed: {why}")));
                self.end().cloned().unwrap_or(LinkEnd::ByPeer).into()
            }
        }
    }
}

/// Takes a slot. With others under way it does not wait.
async fn next_slot<'a>(
    connection: &'a Connection,
    started: usize,
    steps: Steps<'_>,
) -> Result<Option<Slot<'a>>, TransferEnd> {
    match started {
        0 => steps.wait(|waiter| connection.slot(waiter)).await.map(Some),
        SLOTS.. => Ok(None),
        _ => {
            let now = Waiter::Thread(Wait { deadline: Instant::now(), is_wanted: &|| true });
            match connection.slot(now) {
                Poll::Ready(Ok(slot)) => Ok(Some(slot)),
                Poll::Ready(Err(TransferEnd::Deadline)) | Poll::Pending => Ok(None),
                Poll::Ready(Err(end)) => Err(end),
            }
        }
    }
}

async fn finish((slot, at, bytes): Batch<'_>, local: &mut Local<'_>, steps: Steps<'_>) -> Result<(), TransferEnd> {
    steps.wait(|waiter| slot.wait(waiter)).await?;
    if let Local::Into(into) = local {
        slot.read(0, &mut into[at..at + bytes]);
    }
    Ok(())
}

/// Cuts parts of memory into batches that fit into a slot.
struct Batches<I> {
    parts: I,
    /// The rest of a part.
    rest: Option<Segment>,
}

impl<I: Iterator<Item = Segment>> Batches<I> {
    /// The pieces of the next batch, all inside memory of `memory_bytes` bytes.
    fn next(&mut self, memory_bytes: u64) -> Result<Option<Vec<Piece>>, TransferError> {
        let (mut pieces, mut room) = (Vec::new(), SLOT_BYTES);
        while room > 0 && pieces.len() < PIECES_MAX {
            let Some((offset, bytes)) = self.rest.take().or_else(|| self.parts.next()) else { break };
            let is_inside = offset.checked_add(bytes).is_some_and(|end| end as u64 <= memory_bytes);
            if !is_inside {
                // No correct peer describes other memory than it shares.
                return Err(TransferError::Gone);
            }
            let taken = bytes.min(room);
            pieces.push((offset as u64, taken));
            room -= taken;
            self.rest = Some((offset + taken, bytes - taken)).filter(|(_, left)| *left > 0);
        }
        Ok(Some(pieces).filter(|pieces| !pieces.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(parts: &[Segment], memory_bytes: u64) -> Result<Vec<Vec<Piece>>, TransferError> {
        let mut batches = Batches { parts: parts.iter().copied(), rest: None };
        std::iter::from_fn(|| batches.next(memory_bytes).transpose()).collect()
    }

    #[test]
    fn parts_are_cut_into_batches() {
        let slot = SLOT_BYTES;
        let found = batches(&[(10, slot - 1), (5, 3), (0, 2 * slot)], 1 << 40).unwrap();
        let expected = [
            vec![(10, slot - 1), (5, 1)],
            vec![(6, 2), (0, slot - 2)],
            vec![(slot as u64 - 2, slot)],
            vec![(2 * slot as u64 - 2, 2)],
        ];
        assert_eq!(found, expected);
        let many = vec![(0, 1); 2 * PIECES_MAX + 1];
        assert_eq!(batches(&many, 1).unwrap().iter().map(Vec::len).collect::<Vec<_>>(), [PIECES_MAX, PIECES_MAX, 1]);
        assert_eq!(batches(&[], 1), Ok(vec![]));
    }

    #[test]
    fn parts_outside_are_refused() {
        for part in [(0, 101), (100, 1), (usize::MAX, 2), (1, usize::MAX)] {
            assert_eq!(batches(&[(0, 1), part], 100), Err(TransferError::Gone), "{part:?}");
        }
        assert_eq!(batches(&[(99, 1)], 100), Ok(vec![vec![(99, 1)]]));
    }
}
