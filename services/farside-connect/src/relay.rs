//! [`Relay`]: memory of one peer that this process passes on to another.
//!
//! The third party asks this process as if the memory were its own. What needs no word of the owner
//! is copied at once: memory that this process maps or reads directly. All else is asked of the
//! owner piece by piece, by a thread that lives while there is something to do. The thread that
//! receives for the third party must not wait for the owner, because it serves other calls, too.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use farside_fabric::clock::Clock;
use farside_fabric::threads::{PoolOptions, ThreadPool};

use crate::allocated::Allocated;
use crate::area::{Area, Asker, PassedOn, Request};
use crate::frame::{Fetch, Head, Kind, PIECE_BYTES, Take};
use crate::link::{CROWDED, FETCH_BYTES_MAX, GONE, OUT_OF_RANGE, READ_ONLY, TransferError, leave_turns_to_drive};
use crate::lock::lock;
use crate::path::LinkEnd;
use crate::remote::Remote;
use crate::segments::Segments;

/// The most requests that wait for the owner, including the one that is carried out.
const UNFINISHED_MAX: usize = 4096;
/// The most bytes that wait to be written there. A push has at most 4 MiB under way.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Memory of a peer that is passed on.
#[derive(Debug)]
pub(crate) struct Relay {
    remote: Arc<Remote>,
    state: Mutex<State>,
    /// Carries out the waiting requests, one at a time.
    threads: ThreadPool,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Job>,
    waiting_bytes: usize,
    /// Why bytes were not written. All later operations end with it: they wait for earlier writes.
    failure: Option<u8>,
}

/// A request of the third party, its connection, and the number of the memory there.
#[derive(Debug)]
struct Job {
    asker: Arc<dyn Asker>,
    number: u64,
    request: Request,
}

impl Relay {
    /// Passes memory on, as an area.
    pub(crate) fn area(remote: Arc<Remote>) -> Area {
        let (bytes, may_write) = (remote.memory.bytes, remote.memory.may_write);
        let options = PoolOptions { unfinished_max: UNFINISHED_MAX, ..PoolOptions::new("farside rpc relay", 1) };
        let threads = ThreadPool::new(Clock::real(), options);
        Area::passing_on(bytes, may_write, Arc::new(Self { remote, state: Mutex::default(), threads }))
    }

    /// Carries out the first request that waits.
    fn do_first(&self) {
        leave_turns_to_drive();
        let mut state = lock(&self.state);
        let Some(mut job) = state.waiting.pop_front() else { return };
        state.waiting_bytes -= job.bytes();
        let mut failure = state.failure;
        drop(state);
        let run = || match job.asker.is_exposed(job.number) {
            true => drop(job.run(self, true, &mut failure)),
            // The call to the third party is over. The memory may be passed on once more.
            false => job.refuse(GONE, &mut None),
        };
        // A panic may have come before bytes were written.
        let ran = catch_unwind(AssertUnwindSafe(run)).map_err(|_| GONE);
        let mut state = lock(&self.state);
        state.failure = state.failure.or(failure).or(ran.err());
    }

    fn check(&self, offset: u64, bytes: u64) -> Result<(), u8> {
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= self.remote.memory.bytes);
        if is_inside { Ok(()) } else { Err(OUT_OF_RANGE) }
    }

    /// Reads bytes. `None` if the owner must be asked, and this may not wait.
    fn read(&self, offset: u64, bytes: u64, may_wait: bool) -> Option<Result<Vec<u8>, u8>> {
        if self.remote.memory.may_write {
            return Some(Err(READ_ONLY));
        }
        if bytes > FETCH_BYTES_MAX || self.check(offset, bytes).is_err() {
            return Some(Err(OUT_OF_RANGE));
        }
        let mut found = vec![0; bytes as usize];
        let done = match may_wait {
            true => self.remote.pull(offset, &mut found),
            false => self.remote.pull_alone(offset, &mut found)?,
        };
        Some(done.map(|()| found).map_err(|error| status_of(&error)))
    }

    /// Writes bytes, as [`read`](Self::read) reads them.
    fn write(&self, offset: u64, bytes: &[u8], may_wait: bool) -> Option<Result<(), u8>> {
        if !self.remote.memory.may_write {
            return Some(Err(READ_ONLY));
        }
        if self.check(offset, bytes.len() as u64).is_err() {
            return Some(Err(OUT_OF_RANGE));
        }
        let done = match may_wait {
            true => self.remote.push(offset, bytes),
            false => self.remote.write_mapped(offset, bytes)?,
        };
        Some(done.map_err(|error| status_of(&error)))
    }
}

impl PassedOn for Relay {
    fn mapping(&self) -> Option<Arc<Allocated>> {
        self.remote.mapping()
    }

    fn segments(&self) -> &Segments {
        &self.remote.segments
    }

    fn copy_out(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        self.check(offset, into.len() as u64).ok()?;
        self.remote.pull_alone(offset, into)?.ok()
    }

    fn is_driven_here(&self) -> bool {
        self.remote.link.is_driven_here()
    }

    fn look(&self) {
        self.remote.link.look();
    }

    fn accept(self: Arc<Self>, asker: Arc<dyn Asker>, number: u64, request: Request) {
        let mut state = lock(&self.state);
        let mut job = Job { asker, number, request };
        // In a server in turns, this thread alone receives for the owner while it is in a handler.
        let may_wait = self.is_driven_here();
        // Requests are carried out in order. While this has the lock, none begins to wait.
        if self.threads.unfinished() == 0 && job.run(&self, may_wait, &mut state.failure) {
            return;
        }
        let bytes = job.bytes();
        if state.waiting_bytes + bytes > WAITING_BYTES_MAX {
            return job.refuse(CROWDED, &mut state.failure);
        }
        if let (
            Some(Job { request: Request::Write { offset, bytes: block }, number: last, .. }),
            Request::Write { offset: next, bytes: more },
        ) = (state.waiting.back_mut(), &mut job.request)
            && *last == number
            && block.len() + more.len() <= FETCH_BYTES_MAX as usize
            && offset.checked_add(block.len() as u64) == Some(*next)
        {
            // A block of a push arrives in pieces. It goes on as one.
            block.append(more);
            state.waiting_bytes += bytes;
            return;
        }
        let relay = self.clone();
        if !matches!(self.threads.add(0, Box::new(move || relay.do_first())), Ok(true)) {
            return job.refuse(CROWDED, &mut state.failure);
        }
        state.waiting_bytes += bytes;
        state.waiting.push_back(job);
    }
}

impl Job {
    /// The bytes that it holds.
    fn bytes(&self) -> usize {
        if let Request::Write { bytes, .. } = &self.request { bytes.len() } else { 0 }
    }

    /// Does what is asked for. Returns false if the owner must be asked, and this may not wait.
    fn run(&mut self, relay: &Relay, may_wait: bool, failure: &mut Option<u8>) -> bool {
        let Self { asker, request, .. } = self;
        let refused = failure.map_or(Ok(()), Err);
        // A connection that has ended needs no answer.
        let _ = match request {
            Request::Fetch(fetch) => match relay.read(fetch.offset, fetch.bytes, may_wait) {
                Some(Ok(found)) => send(asker, relay, fetch, &found, may_wait),
                Some(Err(status)) => asker.acknowledge(fetch.into, Err(status)),
                None => return false,
            },
            Request::Write { .. } if refused.is_err() => Ok(()),
            Request::Write { offset, bytes } => match relay.write(*offset, bytes, may_wait) {
                Some(done) => {
                    *failure = done.err();
                    Ok(())
                }
                None => return false,
            },
            Request::Settle { operation } => asker.acknowledge(*operation, refused),
            // The bytes are written without a word of the owner, or by a thread that may wait.
            Request::Take { .. } if !may_wait && !relay.mapping().is_some_and(|memory| memory.mapping.may_write()) => {
                return false;
            }
            Request::Take { offset, take } => {
                let taken = refused.and_then(|()| asker.take(take));
                let write = |found: Vec<u8>| relay.write(*offset, &found, may_wait).unwrap_or(Err(GONE));
                asker.acknowledge(take.operation, taken.and_then(write))
            }
        };
        true
    }

    /// Ends it without doing it.
    fn refuse(self, status: u8, failure: &mut Option<u8>) {
        // A connection that has ended needs no answer.
        let _ = match self.request {
            Request::Write { .. } => {
                failure.get_or_insert(status);
                Ok(())
            }
            Request::Fetch(Fetch { into: operation, .. })
            | Request::Settle { operation }
            | Request::Take { take: Take { operation, .. }, .. } => self.asker.acknowledge(operation, Err(status)),
        };
    }
}

/// Sends bytes that were asked for.
fn send(asker: &Arc<dyn Asker>, relay: &Relay, fetch: &Fetch, found: &[u8], may_wait: bool) -> Result<(), LinkEnd> {
    // A thread that receives for the third party must not wait for room.
    if may_wait && !relay.remote.link.is_driven_here() {
        // A third party that takes nothing holds up its own transfers, and fills no memory.
        let room = asker.clone().wait_for_room(&relay.remote.patience());
        if room.is_err() {
            return asker.acknowledge(fetch.into, Err(GONE));
        }
    }
    let pieces = found.chunks(PIECE_BYTES).zip((0..).step_by(PIECE_BYTES));
    pieces.into_iter().try_for_each(|(piece, at)| {
        let head = Head::new(Kind::Data, fetch.into).with_value(fetch.into_offset.wrapping_add(at));
        asker.send_frame(head, &[piece])
    })
}

/// How the third party learns of a failure at the owner.
fn status_of(error: &TransferError) -> u8 {
    match error {
        TransferError::OutOfRange { .. } => OUT_OF_RANGE,
        TransferError::ReadOnly => READ_ONLY,
        TransferError::Crowded => CROWDED,
        // The call of the owner is over, or its connection.
        _ => GONE,
    }
}
