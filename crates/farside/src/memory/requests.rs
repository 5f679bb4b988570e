//! What workers of this process have asked others' service threads for, and what came back.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{MemoryRefusal, RemoteMemory};

/// What an owner said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Allocated(RemoteMemory),
    Released,
    Refused(MemoryRefusal),
}

/// Requests under way, by their numbers, and their answers.
#[derive(Debug)]
pub(crate) struct Requests<A = Answer> {
    next: u32,
    waiting: HashMap<u32, Waiting<A>>,
}

#[derive(Debug)]
struct Waiting<A> {
    /// The thread that waits.
    local: usize,
    answer: Option<A>,
}

impl<A> Default for Requests<A> {
    fn default() -> Self {
        Self { next: 0, waiting: HashMap::new() }
    }
}

impl<A> Requests<A> {
    /// A new request of a thread of this process.
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

    /// Notes an answer. The thread that waits for it, or `None` when nobody does any more.
    pub(crate) fn answer(&mut self, request: u32, answer: A) -> Option<usize> {
        let waiting = self.waiting.get_mut(&request).filter(|waiting| waiting.answer.is_none())?;
        waiting.answer = Some(answer);
        Some(waiting.local)
    }

    /// Takes the answer, if it is there.
    pub(crate) fn take(&mut self, request: u32) -> Option<A> {
        let answer = self.waiting.get_mut(&request)?.answer.take()?;
        self.waiting.remove(&request);
        Some(answer)
    }

    /// Nobody waits any more. An answer that came in the last moment is handed over.
    pub(crate) fn give_up(&mut self, request: u32) -> Option<A> {
        self.waiting.remove(&request)?.answer
    }
}
