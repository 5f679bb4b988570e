//! [`Outgoing`]: messages to peers that the transport has no room for, or that do not listen yet.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use farside_fabric::{FabricError, ProcessId, Transport};

use crate::runtime::process::lock;

/// The most bytes of messages to one peer that wait here before a thread adds more of an answer.
pub(crate) const UNSENT_BYTES_MAX: usize = 1 << 20;

/// Queues of unsent messages, one for each peer, in order.
///
/// The protocols above bound their length. A ring has one request under way, and a record stream
/// its window of frames. A count-down belongs to a call of such a window. A thread that answers
/// waits while more than [`UNSENT_BYTES_MAX`] bytes are unsent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    by_peer: Box<[Mutex<Queue>]>,
    /// Whether some message waits. Set by the thread that queues one, and cleared by the thread
    /// that sends the queues, before it looks into them.
    waits: AtomicBool,
}

/// The unsent messages to one peer.
#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Whether a thread has waited in vain for the queue to become shorter. Then no thread waits
    /// until it is.
    is_stuck: bool,
}

impl Queue {
    /// Sends what the transport has room for. Returns whether all is sent.
    fn flush(&mut self, transport: &dyn Transport, peer: ProcessId) -> bool {
        while let Some(message) = self.messages.front() {
            match transport.send(peer, message) {
                Ok(()) => {
                    self.bytes -= message.len();
                    self.messages.pop_front();
                }
                Err(FabricError::QueueFull { .. } | FabricError::NotListening { .. }) => return false,
                // The peer is lost; its loss is reported separately.
                Err(_) => *self = Self::default(),
            }
            self.is_stuck &= self.bytes > UNSENT_BYTES_MAX;
        }
        true
    }
}

impl Outgoing {
    pub(crate) fn new(processes: usize) -> Self {
        Self { by_peer: (0..processes).map(|_| Mutex::default()).collect(), waits: AtomicBool::new(false) }
    }

    /// Sends a message, or queues it behind those that wait already.
    ///
    /// # Errors
    /// The transport's error, unless the transport is full or the peer does not listen yet.
    pub(crate) fn send(&self, transport: &dyn Transport, to: ProcessId, message: Vec<u8>) -> Result<(), FabricError> {
        let Some(queue) = self.by_peer.get(to.index()) else {
            return Err(FabricError::NoSuchProcess { process: to, count: self.by_peer.len() as u32 });
        };
        let mut queue = lock(queue);
        if queue.messages.is_empty() {
            match transport.send(to, &message) {
                Err(FabricError::QueueFull { .. } | FabricError::NotListening { .. }) => {}
                other => return other,
            }
        }
        queue.bytes += message.len();
        queue.messages.push_back(message);
        // The service thread sends the message later, and may be asleep.
        if !self.waits.swap(true, Ordering::Relaxed) {
            transport.wake();
        }
        Ok(())
    }

    /// Sends a message of `bytes` bytes that `write` writes, if the transport has room and no
    /// message to this peer waits. Returns whether the message is sent.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub(crate) fn try_send_with(
        &self,
        transport: &dyn Transport,
        to: ProcessId,
        bytes: usize,
        write: &mut dyn FnMut(&mut [u8]),
    ) -> Result<bool, FabricError> {
        let queue = self.by_peer.get(to.index()).map(lock);
        if !queue.is_some_and(|queue| queue.messages.is_empty()) {
            return Ok(false);
        }
        match transport.send_with(to, bytes, write) {
            Ok(()) => Ok(true),
            Err(FabricError::QueueFull { .. } | FabricError::NotListening { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends queued messages until the transport is full. Returns whether any are left.
    pub(crate) fn flush(&self, transport: &dyn Transport) -> bool {
        if !self.waits.swap(false, Ordering::Relaxed) {
            return false;
        }
        let peers = (0..).map(ProcessId::new).zip(&self.by_peer);
        let left = peers.fold(false, |left, (peer, queue)| left | !lock(queue).flush(transport, peer));
        if left {
            self.waits.store(true, Ordering::Relaxed);
        }
        left
    }

    /// Returns whether an answer to a peer should wait before it adds to the queue.
    pub(crate) fn is_long(&self, to: ProcessId) -> bool {
        self.by_peer.get(to.index()).is_some_and(|queue| {
            let queue = lock(queue);
            queue.bytes > UNSENT_BYTES_MAX && !queue.is_stuck
        })
    }

    /// Lets answers to a peer no longer wait, until its queue has become shorter.
    pub(crate) fn set_stuck(&self, to: ProcessId) {
        if let Some(queue) = self.by_peer.get(to.index()) {
            lock(queue).is_stuck = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use farside_fabric::Event;
    use farside_fabric::shm::{ShmConfig, ShmEndpoint};
    use farside_fabric::sim::{SimFabric, SimOptions};

    use farside_fabric::Carrier;

    use super::*;

    #[test]
    fn messages_without_room_are_sent_later_in_order() {
        let options = SimOptions { messages_max: 2, ..SimOptions::default() };
        let fabric = SimFabric::new(2, 4096, 1, options).unwrap();
        let [here, there] = [0, 1].map(|process| fabric.endpoint(ProcessId::new(process)));
        let outgoing = Outgoing::new(2);
        assert!(!outgoing.flush(&*here));
        let mut received = Vec::new();
        for number in 0..20 {
            outgoing.send(&*here, there.process(), vec![number]).unwrap();
        }
        while received.len() < 20 {
            outgoing.flush(&*here);
            there.progress();
            while let Some(event) = there.receive() {
                let Event::Message { message, .. } = event else { panic!("{event:?}") };
                received.extend(message);
            }
        }
        assert_eq!(received, (0..20).collect::<Vec<_>>());
        assert!(!outgoing.flush(&*here));
    }

    #[test]
    fn late_processes_are_notified_later() {
        let open = |process| {
            let (process, job_id) = (ProcessId::new(process), u64::from(std::process::id()) << 32 | 0x0075_6067);
            let (process_count, secret, starter_bytes, user_by_system_call) = (2, [7; 16], 4096, true);
            let config = ShmConfig { process, process_count, job_id, secret, starter_bytes, user_by_system_call };
            ShmEndpoint::open(config).unwrap()
        };
        let here = open(0);
        let outgoing = Outgoing::new(2);
        for number in 0..3 {
            outgoing.send(&*here, ProcessId::new(1), vec![number]).unwrap();
        }
        assert!(outgoing.flush(&*here));
        let there = open(1);
        let mut received = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(10);
        while received.len() < 3 && Instant::now() < deadline {
            outgoing.flush(&*here);
            here.progress();
            there.progress();
            while let Some(event) = there.receive() {
                let Event::Message { message, .. } = event else { panic!("{event:?}") };
                received.extend(message);
            }
        }
        assert_eq!(received, [0, 1, 2]);
    }

    #[test]
    fn messages_kept_for_a_lost_peer_are_dropped() {
        let options = SimOptions { messages_max: 1, ..SimOptions::default() };
        let fabric = SimFabric::new(2, 4096, 1, options).unwrap();
        let [here, there] = [0, 1].map(|process| fabric.endpoint(ProcessId::new(process)));
        let outgoing = Outgoing::new(2);
        for number in 0..3 {
            outgoing.send(&*here, there.process(), vec![number]).unwrap();
        }
        assert!(outgoing.flush(&*here));
        here.forget(there.process());
        assert!(!outgoing.flush(&*here));
        let refused = outgoing.send(&*here, there.process(), vec![3]);
        assert!(matches!(refused, Err(FabricError::Disconnected { .. })));
        let unknown = outgoing.send(&*here, ProcessId::new(2), vec![4]);
        assert!(matches!(unknown, Err(FabricError::NoSuchProcess { count: 2, .. })));
    }
}
