//! Queues of messages that wait for room, one for each receiver.
//!
//! Any thread adds messages and sends waiting ones. The service thread may sleep without a timer if
//! none waits. The thread that adds the first one wakes it.

use std::collections::VecDeque;

use super::primitives::{AtomicUsize, Mutex, Ordering, lock};

#[derive(Debug)]
pub(super) struct Queues<M> {
    by_receiver: Box<[Mutex<Queue<M>>]>,
    /// The number of messages in all queues. Changed with the lock of the queue that changes. It
    /// publishes nothing, so all accesses are relaxed.
    waiting: AtomicUsize,
}

/// The messages that wait for one receiver.
#[derive(Debug)]
pub(super) struct Queue<M> {
    messages: VecDeque<M>,
    /// The bytes of all messages.
    bytes: usize,
    /// True if a message that is never queued found others before it. Reset when none waits.
    is_awaited: bool,
}

impl<M> Queue<M> {
    /// The bytes of all messages.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether messages wait, and another that is never queued behind them.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited
    }
}

impl<M: AsRef<[u8]>> Queues<M> {
    pub(super) fn new(receivers: usize) -> Self {
        let queue = || Mutex::new(Queue { messages: VecDeque::new(), bytes: 0, is_awaited: false });
        let by_receiver = (0..receivers).map(|_| queue()).collect();
        Self { by_receiver, waiting: AtomicUsize::new(0) }
    }

    /// Returns the number of receivers.
    pub(super) fn receivers(&self) -> usize {
        self.by_receiver.len()
    }

    /// Sends a message with `attempt`, which returns whether there was room, or queues it behind
    /// those that wait already. Returns whether the service thread must be woken.
    ///
    /// # Errors
    /// The error of `attempt`.
    pub(super) fn send<E>(
        &self,
        receiver: usize,
        message: M,
        attempt: impl FnOnce(&M) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let mut queue = lock(&self.by_receiver[receiver]);
        if queue.messages.is_empty() && attempt(&message)? {
            return Ok(false);
        }
        queue.bytes += message.as_ref().len();
        queue.messages.push_back(message);
        Ok(self.waiting.fetch_add(1, Ordering::Relaxed) == 0)
    }

    /// Sends a message with `attempt`, if none waits for this receiver. Returns whether it was
    /// sent.
    ///
    /// # Errors
    /// The error of `attempt`.
    pub(super) fn try_send<E>(&self, receiver: usize, attempt: impl FnOnce() -> Result<bool, E>) -> Result<bool, E> {
        let mut queue = lock(&self.by_receiver[receiver]);
        if queue.messages.is_empty() {
            return attempt();
        }
        queue.is_awaited = true;
        Ok(false)
    }

    /// Looks at the queue of a receiver.
    pub(super) fn look<R>(&self, receiver: usize, look: impl FnOnce(&Queue<M>) -> R) -> R {
        look(&lock(&self.by_receiver[receiver]))
    }

    /// Sends waiting messages until there is no room. An error drops those for its receiver.
    /// Returns whether any wait, also if another thread is sending them.
    pub(super) fn flush<E>(&self, mut attempt: impl FnMut(usize, &M) -> Result<bool, E>) -> bool {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return false;
        }
        for (receiver, queue) in self.by_receiver.iter().enumerate() {
            let mut queue = lock(queue);
            while let Some(message) = queue.messages.front() {
                let done = match attempt(receiver, message) {
                    Ok(true) => 1,
                    Ok(false) => break,
                    Err(_) => queue.messages.len(),
                };
                let bytes: usize = queue.messages.drain(..done).map(|message| message.as_ref().len()).sum();
                queue.bytes -= bytes;
                queue.is_awaited &= !queue.messages.is_empty();
                self.waiting.fetch_sub(done, Ordering::Relaxed);
            }
        }
        self.waiting.load(Ordering::Relaxed) > 0
    }
}
