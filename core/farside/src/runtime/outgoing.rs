//! [`Outgoing`]: messages to peers that the transport has no room for, or that do not listen yet.

mod queues;

use std::sync::atomic::{AtomicBool, Ordering};

use farside_fabric::{FabricError, ProcessId, Transport};

use self::queues::Queues;

/// The types that the queues use. The model check (`tests/models/outgoing.rs`) compiles them with
/// those of the model checker.
mod primitives {
    pub(super) use std::sync::Mutex;
    pub(super) use std::sync::atomic::{AtomicUsize, Ordering};

    pub(super) use farside_fabric::clock::lock;
}

/// The most bytes of messages to one peer that wait here before a thread adds more of an answer.
pub(crate) const UNSENT_BYTES_MAX: usize = 1 << 20;

/// Queues of unsent messages, one for each peer, in order.
///
/// The protocols above bound their length. A ring has one request under way, and a count-down
/// belongs to a call. A thread that answers waits while more than [`UNSENT_BYTES_MAX`] bytes are
/// unsent. Frames of a record stream are never queued here: they wait at their sender until the
/// queue is empty. While one does, no thread adds to an answer.
#[derive(Debug)]
pub(crate) struct Outgoing {
    queues: Queues<Vec<u8>>,
    /// For each peer, whether a thread has waited in vain for the queue to become shorter. Then no
    /// thread waits until it is. It publishes nothing, so all accesses are relaxed.
    stuck: Box<[AtomicBool]>,
}

impl Outgoing {
    pub(crate) fn new(processes: usize) -> Self {
        Self { queues: Queues::new(processes), stuck: (0..processes).map(|_| AtomicBool::new(false)).collect() }
    }

    /// Sends a message, or queues it behind those that wait already.
    ///
    /// # Errors
    /// The transport's error, unless the transport is full or the peer does not listen yet.
    pub(crate) fn send(&self, transport: &dyn Transport, to: ProcessId, message: Vec<u8>) -> Result<(), FabricError> {
        let count = self.queues.receivers();
        if to.index() >= count {
            return Err(FabricError::NoSuchProcess { process: to, count: count as u32 });
        }
        if self.queues.send(to.index(), message, |message| was_sent(transport.send(to, message)))? {
            transport.wake();
        }
        Ok(())
    }

    /// Sends a message of `bytes` bytes that `write` writes, if the transport has room and no
    /// message to this peer waits. Returns whether the message is sent.
    ///
    /// # Errors
    /// The transport's error, unless the transport is full or the peer does not listen yet.
    pub(crate) fn try_send_with(
        &self,
        transport: &dyn Transport,
        to: ProcessId,
        bytes: usize,
        write: &mut dyn FnMut(&mut [u8]),
    ) -> Result<bool, FabricError> {
        if to.index() >= self.queues.receivers() {
            return Ok(false);
        }
        self.queues.try_send(to.index(), || was_sent(transport.send_with(to, bytes, write)))
    }

    /// Sends queued messages until the transport is full. Returns whether any are left. Drops those
    /// for a lost peer, whose loss is reported separately.
    pub(crate) fn flush(&self, transport: &dyn Transport) -> bool {
        self.queues.flush(|to, message| was_sent(transport.send(ProcessId::new(to as u32), message)))
    }

    /// Returns whether an answer to a peer should wait before it adds to the queue.
    pub(crate) fn is_long(&self, to: ProcessId) -> bool {
        let Some(stuck) = self.stuck.get(to.index()) else { return false };
        let is_long =
            self.queues.look(to.index(), |waiting| waiting.bytes() > UNSENT_BYTES_MAX || waiting.is_awaited());
        if !is_long {
            stuck.store(false, Ordering::Relaxed);
        }
        is_long && !stuck.load(Ordering::Relaxed)
    }

    /// Lets answers to a peer no longer wait, until its queue has become shorter.
    pub(crate) fn set_stuck(&self, to: ProcessId) {
        if let Some(stuck) = self.stuck.get(to.index()) {
            stuck.store(true, Ordering::Relaxed);
        }
    }
}

/// Returns whether a message was sent. Otherwise it must be sent later: the transport is full, the
/// peer does not listen yet, or this process has no descriptor for a connection.
fn was_sent(sent: Result<(), FabricError>) -> Result<bool, FabricError> {
    match sent {
        Err(FabricError::QueueFull { .. } | FabricError::NotListening { .. } | FabricError::System { .. }) => Ok(false),
        other => other.map(|()| true),
    }
}

#[cfg(test)]
mod tests {

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
        farside_testbed::wait_until("all messages arrive", || {
            outgoing.flush(&*here);
            here.progress();
            there.progress();
            while let Some(event) = there.receive() {
                let Event::Message { message, .. } = event else { panic!("{event:?}") };
                received.extend(message);
            }
            received.len() >= 3
        });
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
