//! The checker of accesses: finds two workers at the same bytes with nothing that orders them, buffers that are used while an
//! operation has them, and memory that is used after its release. See `docs/checking-accesses.md`.
//!
//! # How it works
//!
//! Every thread has an *epoch*, a number that it counts up before it tells anybody anything ([`Process::end_accesses`]): before a call is
//! made, an answer given, a count made, a word changed atomically. The owner of memory keeps a *shadow* of it: who accessed which bytes in
//! which epoch, and where in the program. An access is *open* as long as its thread is in that epoch: nobody can know of it yet,
//! so nobody's access can come after it.
//!
//! Before an access its worker asks the owner, which either writes the access down or names an earlier one that it conflicts with. Then the
//! worker asks the process of that one whether it is still open. If it is, the two are not ordered, and
//! the access is refused. If not, the owner is told so and asked again. So to end a thread's accesses costs an addition and no message, which is why it can be
//! done anywhere, also where nothing may wait; and a report is never wrong: what orders two accesses begins with the first one's thread
//! counting up, and was not begun.
//!
//! An operation that goes on beside its worker keeps what it uses *in use* until it is over, for its own worker, too: a buffer that is lent to a
//! call ([`InUse`]), and what a started operation reaches ([`Hold`]). When others may know before its worker that it is over (who has read the
//! buffer; who sees what was ordered after it), or when it was not made, its accesses end with it. Otherwise they
//! are those of the epoch in which it completed.
//!
//! Memory that is released is [written down](Life::Released), too, by its owner as it takes the memory back. That conflicts with everything, and ends when the
//! memory is given out again.
//!
//! **Cost when it is off**: an `Option` that is `None`, looked at where a call is answered and on slow ways. Accesses and calls pay nothing: in a
//! checked job a worker's [`Space`](super::Space) remembers no address and an outbox never has the ring, so that both always take their slow ways, where
//! the checker is.

mod ask;
mod epochs;
mod in_use;
mod message;
mod report;
mod shadow;

use std::sync::Arc;
use std::sync::Mutex;

use farside_fabric::RemoteKey;
use farside_fabric::clock::lock;

use self::ask::Desk;
pub(crate) use self::ask::Touch;
pub(crate) use self::epochs::Seated;
use self::epochs::{Epochs, Life};
pub(crate) use self::in_use::{Hold, InUse, Part};
pub(crate) use self::message::CheckMessage;
#[cfg(test)]
pub(crate) use self::message::tests::record as any_record;
pub use self::report::{Access, AccessConflict, AccessKind, Site};
pub(crate) use self::shadow::Record;
use self::shadow::Shadow;
use crate::Worker;
use crate::memory::RemoteMemory;
use crate::runtime::process::Process;

/// What a process has for it, in a job that is checked.
#[derive(Debug)]
pub(crate) struct Checks {
    epochs: Arc<Epochs>,
    /// Of this process's memory.
    shadow: Mutex<Shadow>,
    /// By thread: what it has asked, and the answer.
    desks: Box<[Desk]>,
}

/// What the checker has seen of one process's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessChecks {
    /// Accesses that were written down.
    pub accesses: u64,
    /// Those that it remembers now.
    pub remembered: u64,
    /// Those that it had to forget because there were too many.
    pub forgotten: u64,
}

/// A piece of a region of some process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl Span {
    pub(crate) fn in_region(key: RemoteKey, offset: u64, bytes: usize) -> Self {
        Self { slot: key.slot, generation: key.generation, offset, bytes: bytes as u64 }
    }

    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

impl Checks {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            epochs: Arc::new(Epochs::new(threads)),
            shadow: Mutex::default(),
            desks: (0..threads).map(|_| Desk::default()).collect(),
        }
    }

    /// Has this thread count as one of the process's while the value is there.
    pub(crate) fn seat(&self, local: usize) -> Seated {
        Epochs::seat(&self.epochs, local)
    }

    /// These bytes are given out anew: what was done with them before is not theirs.
    pub(crate) fn renew(&self, key: RemoteKey, offset: u64, bytes: u64) {
        let span = Span { slot: key.slot, generation: key.generation, offset, bytes };
        lock(&self.shadow).renew(span);
    }

    /// Memory is released by somebody.
    pub(crate) fn release(&self, memory: &RemoteMemory, by: Record) {
        let span = Span::in_region(memory.key, memory.offset, memory.bytes() as usize);
        if span.bytes > 0 {
            lock(&self.shadow).release(Record { span, kind: AccessKind::Release, life: Life::Released, ..by });
        }
    }

    /// A process is gone: nobody will ever learn what its threads did last.
    pub(crate) fn lose(&self, is_lost: impl Fn(u32) -> bool) {
        lock(&self.shadow).lose(is_lost);
    }
}

impl Process {
    /// What this thread accessed so far comes before whatever it is about to publish. To be called before anything from which
    /// another can learn that it is so far. A thread that is no worker may have been told by any of this process's.
    #[inline]
    pub(crate) fn end_accesses(&self) {
        if let Some(checks) = self.checks() {
            Epochs::end(&checks.epochs);
        }
    }
}

/// As [`Process::end_accesses`], where the process is not known: for what threads of one process hand to each other.
#[inline]
pub(crate) fn end_accesses_here() {
    Epochs::end_here();
}

impl Worker {
    /// Tells the [checker](crate::Job::check_accesses) that what this worker has accessed comes before what others do from now on. Calls, answers, atomic
    /// changes, collectives and whatever is made of them say so themselves; this is for what Farside does not see: a mutex, a channel or an
    /// atomic variable between threads of a process, a file or a socket. To be called before the mutex is unlocked or the message sent.
    ///
    /// *Cost*: none, unless accesses are checked.
    #[inline]
    pub fn end_accesses(&self) {
        self.process_handle().end_accesses();
    }

    /// What the checker has seen of this process's memory; `None` unless accesses are [checked](crate::Job::check_accesses).
    pub fn access_checks(&self) -> Option<AccessChecks> {
        self.process_handle().checks().map(|checks| lock(&checks.shadow).counters())
    }
}
