//! The requests of this process's workers to service threads of other processes, and the answers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{MemoryRefusal, RemoteMemory};

/// The answer of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Allocated(RemoteMemory),
    Released,
    Refused(MemoryRefusal),
}

/// Requests under way, by their numbers, with their answers.
#[derive(Debug)]
pub(crate) struct Requests<A = Answer> {
    next: u32,
    waiting: HashMap<u32, Waiting<A>>,
}

#[derive(Debug)]
struct Waiting<A> {
    /// The thread that waits for the answer.
    local: usize,
    answer: Option<A>,
}

impl<A> Default for Requests<A> {
    fn default() -> Self {
        Self { next: 0, waiting: HashMap::new() }
    }
}

impl<A> Requests<A> {
    /// Begins a request of a thread of this process. Returns its number.
    pub(crate) fn begin(&mut self, local: usize) -> u32 {
        loop {
            let request = self.next;
            self.next = self.next.wrapping_add(1);
            if let Entry::Vacant(free) = self.waiting.entry(request) {
                free.insert(Waiting { local, answer: None });
                return request;
            }
        }
    }

    /// Notes an answer. Returns the thread that waits for it, or `None` if none does any more.
    pub(crate) fn answer(&mut self, request: u32, answer: A) -> Option<usize> {
        let waiting = self.waiting.get_mut(&request).filter(|waiting| waiting.answer.is_none())?;
        waiting.answer = Some(answer);
        Some(waiting.local)
    }

    /// Takes the answer, if it has arrived.
    pub(crate) fn take(&mut self, request: u32) -> Option<A> {
        let answer = self.waiting.get_mut(&request)?.answer.take()?;
        self.waiting.remove(&request);
        Some(answer)
    }

    /// Ends a request that no thread waits for any more. Returns an answer that arrived just
    /// before.
    pub(crate) fn give_up(&mut self, request: u32) -> Option<A> {
        self.waiting.remove(&request)?.answer
    }
}
