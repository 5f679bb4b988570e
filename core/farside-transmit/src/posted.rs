//! A queue for transports without queues. Each operation is posted separately, with a buffer and a
//! completion. A signal is withheld until all operations before it are over.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use farside_sys::racy;

use farside_fabric::clock;
use farside_fabric::ids::ProcessId;
use farside_fabric::queue::{
    Frontier, Ledger, QueueLimits, QueueOptions, Refusal, Transfer, TransferKind, TransferQueue,
};
use farside_fabric::region::LocalRegion;
use farside_fabric::transport::{Completion, FabricError, Operation, Outcome, RemoteKey, Transport, Unposted};

/// Longer buffers are not kept, because there may be as many as the queue is deep.
const SPARE_BYTES_MAX: usize = 16 << 10;

/// The target of posted operations.
pub trait Poster: Send + Sync + fmt::Debug {
    /// Posts an operation, as [`Carrier::post`](farside_fabric::Carrier::post) does.
    ///
    /// # Errors
    /// [`FabricError::QueueFull`] if too many operations are in flight; other errors come here or
    /// with the completion. An error here returns the operation with its buffer.
    fn post(&self, key: RemoteKey, operation: Operation) -> Result<Completion, Unposted>;

    /// Makes progress, as [`Carrier::progress`](farside_fabric::Carrier::progress) does.
    fn progress(&self);
}

impl Poster for Arc<dyn Transport> {
    fn post(&self, key: RemoteKey, operation: Operation) -> Result<Completion, Unposted> {
        (**self).post(key, operation)
    }

    fn progress(&self) {
        (**self).progress();
    }
}

/// A queue that is made of operations posted one by one.
#[derive(Debug)]
pub struct PostedQueue {
    poster: Box<dyn Poster>,
    peer: ProcessId,
    limits: QueueLimits,
    /// True if an overrun ends the queue, as it does in hardware.
    is_brittle: bool,
    frontier: Arc<Frontier>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ledger: Ledger<Pending>,
    /// Returned buffers, for reuse.
    spare: Vec<Vec<u8>>,
    end: Option<End>,
}

impl State {
    /// Returns a buffer of `bytes` bytes.
    fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(bytes, 0);
        buffer
    }
}

#[derive(Debug)]
enum Pending {
    Put(Completion),
    Get {
        completion: Completion,
        into: LocalRegion,
        offset: u64,
    },
    /// A signal that moves no data.
    Nothing,
}

/// The reason why a queue has failed.
#[derive(Debug)]
enum End {
    Disconnected(ProcessId),
    Stale(RemoteKey),
    /// Too many operations without a signal.
    Unsignalled,
    /// Too many completions.
    Completions,
    Other(String),
}

impl PostedQueue {
    /// Creates a queue to a peer.
    pub fn new(poster: Box<dyn Poster>, peer: ProcessId, options: QueueOptions) -> Self {
        Self::with(poster, peer, QueueLimits::of_depth(options.depth, usize::MAX), false)
    }

    /// Creates a queue that an overrun breaks: by too many operations in a row without a signal, or
    /// by too many completed signals without a call of [`progress`](TransferQueue::progress).
    pub(crate) fn brittle(poster: Box<dyn Poster>, peer: ProcessId, limits: QueueLimits) -> Self {
        Self::with(poster, peer, limits, true)
    }

    fn with(poster: Box<dyn Poster>, peer: ProcessId, limits: QueueLimits, is_brittle: bool) -> Self {
        // A brittle queue with too many completions is overrun, not full.
        let completions_max = if is_brittle { limits.depth } else { limits.completions_max };
        let ledger = Ledger::new(QueueLimits { completions_max, ..limits });
        let state = Mutex::new(State { ledger, spare: Vec::new(), end: None });
        Self { poster, peer, limits, is_brittle, frontier: Arc::default(), state }
    }

    /// Locks the state, if the queue has not failed.
    fn working(&self) -> Result<MutexGuard<'_, State>, FabricError> {
        let mut state = clock::lock(&self.state);
        if self.is_brittle && state.end.is_none() && ended_signals(&state.ledger) > self.limits.completions_max {
            self.fail(&mut state, End::Completions);
        }
        match &state.end {
            None => Ok(state),
            Some(end) => Err(self.error(end)),
        }
    }

    fn error(&self, end: &End) -> FabricError {
        match end {
            End::Disconnected(process) => FabricError::Disconnected { process: *process },
            End::Stale(key) => FabricError::StaleKey { key: *key },
            End::Unsignalled => self.limits.overrun(self.peer),
            End::Completions => {
                let (what, max) = ("completions that have not been polled for", self.limits.completions_max);
                FabricError::QueueOverrun { process: self.peer, what, max }
            }
            End::Other(why) => FabricError::Provider {
                doing: "an operation of a queue",
                provider: "(its own)".to_owned(),
                why: why.clone(),
                code: 0,
            },
        }
    }

    /// Fails the queue. No operation in flight touches local memory: puts have their own copies,
    /// and gets are copied here or not at all.
    fn fail(&self, state: &mut State, end: End) {
        state.end.get_or_insert(end);
        self.frontier.fail();
        self.frontier.release();
    }

    fn admit(&self, state: &mut State, signalled: bool) -> Result<(), FabricError> {
        match state.ledger.admit(signalled) {
            Ok(()) => Ok(()),
            Err(Refusal::Full) => Err(FabricError::QueueFull { process: self.peer, max: self.limits.depth }),
            Err(Refusal::Overrun) => {
                if self.is_brittle {
                    self.fail(state, End::Unsignalled);
                }
                Err(self.limits.overrun(self.peer))
            }
        }
    }

    /// Processes operations that are over, in order.
    fn settle(&self, state: &mut State) -> Result<(), FabricError> {
        while let Some((index, pending)) = state.ledger.oldest() {
            let ended = match pending {
                Pending::Nothing => None,
                Pending::Put(completion) | Pending::Get { completion, .. } => match completion.try_take() {
                    Some(ended) => Some(ended),
                    None => break,
                },
            };
            match (ended, pending) {
                (None, _) => {}
                (Some(Ok(Outcome::Put(buffer))), _) => keep(&mut state.spare, buffer),
                (Some(Ok(Outcome::Got(buffer))), Pending::Get { into, offset, .. }) => {
                    write(into, *offset, &buffer);
                    keep(&mut state.spare, buffer);
                }
                (Some(Ok(_)), _) => unreachable!("an operation ends with the outcome of its kind"),
                (Some(Err(error)), _) => {
                    let end = match &error {
                        FabricError::Disconnected { process } => End::Disconnected(*process),
                        FabricError::StaleKey { key } => End::Stale(*key),
                        other => End::Other(other.to_string()),
                    };
                    self.fail(state, end);
                    return Err(error);
                }
            }
            if let Some(number) = state.ledger.end(index) {
                self.frontier.raise(number);
            }
        }
        Ok(())
    }
}

fn keep(spare: &mut Vec<Vec<u8>>, buffer: Vec<u8>) {
    if buffer.capacity() <= SPARE_BYTES_MAX {
        spare.push(buffer);
    }
}

/// Writes the data of a get. The range was checked at the posting.
fn write(into: &LocalRegion, offset: u64, data: &[u8]) {
    let to = into.memory().base().as_ptr().wrapping_add(offset as usize);
    // SAFETY: the get requested as many bytes as its span has, which lies inside the region; `into`
    // keeps the mapping.
    unsafe { racy::copy_out(data.as_ptr(), to, data.len()) };
}

impl TransferQueue for PostedQueue {
    fn limits(&self) -> QueueLimits {
        self.limits
    }

    fn frontier(&self) -> &Arc<Frontier> {
        &self.frontier
    }

    fn post(&self, transfer: &Transfer<'_>, signal: Option<u64>) -> Result<(), FabricError> {
        let mut state = self.working()?;
        let state = &mut *state;
        self.admit(state, signal.is_some())?;
        let (local, offset) = (transfer.local, transfer.remote_offset);
        let pending = match transfer.kind {
            TransferKind::Put => {
                let mut data = state.buffer(local.bytes());
                // SAFETY: the span lies inside its region; the vector has the same length, and
                // belongs to this function.
                unsafe { racy::copy_in(local.start(), data.as_mut_ptr(), data.len()) };
                Pending::Put(self.poster.post(transfer.remote, Operation::Put { offset, data })?)
            }
            TransferKind::Get => {
                let room = state.buffer(local.bytes());
                let completion = self.poster.post(transfer.remote, Operation::Get { offset, room })?;
                Pending::Get { completion, into: local.region().clone(), offset: local.offset() }
            }
        };
        state.ledger.push(signal, false, pending);
        Ok(())
    }

    fn signal(&self, number: u64) -> Result<(), FabricError> {
        let mut state = self.working()?;
        self.admit(&mut state, true)?;
        state.ledger.push(Some(number), false, Pending::Nothing);
        Ok(())
    }

    fn progress(&self) -> Result<(), FabricError> {
        self.poster.progress();
        let mut state = self.working()?;
        self.settle(&mut state)
    }

    fn quarantined(&self) -> usize {
        0
    }
}

/// Counts the signalled operations that have completed and that no call to progress has taken in.
fn ended_signals(ledger: &Ledger<Pending>) -> usize {
    let has_ended = |pending: &Pending| match pending {
        Pending::Put(completion) | Pending::Get { completion, .. } => completion.has_ended(),
        Pending::Nothing => true,
    };
    ledger.iter().filter(|(signalled, pending)| *signalled && has_ended(pending)).count()
}
