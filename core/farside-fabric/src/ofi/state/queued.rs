//! The requests of queues to an endpoint.

use std::sync::Arc;

use super::State;
use crate::emulated::Engine;
use crate::ids::ProcessId;
use crate::ofi::ffi::FiAddr;
use crate::ofi::queues::{Order, QueueId, Reached};
use crate::queue::{Frontier, QueueLimits, Transfer};
use crate::transport::{FabricError, RemoteKey};

impl State {
    pub(in crate::ofi) fn open_queue(
        &mut self,
        peer: ProcessId,
        depth: usize,
    ) -> Result<(QueueId, QueueLimits, Arc<Frontier>), FabricError> {
        self.check()?;
        self.engine.check_peer(peer)?;
        Ok(self.queues.open(&self.port, peer, depth))
    }

    pub(in crate::ofi) fn close_queue(&mut self, id: QueueId) {
        let address = self.queue_address(id).ok();
        self.queues.close(&self.port, id, address);
    }

    /// Posts an operation of a queue. This makes no progress: the thread that waits for the
    /// operation does.
    pub(in crate::ofi) fn post_queued(
        &mut self,
        id: QueueId,
        transfer: &Transfer<'_>,
        signal: Option<u64>,
    ) -> Result<(), FabricError> {
        let address = self.queue_address(id)?;
        let registration = if self.port.attributes().registers_local {
            let key = transfer.local.region().key();
            Some(self.natives.registration(key.into()).ok_or(FabricError::StaleKey { key })?)
        } else {
            None
        };
        let order = Order { transfer, signal, address, registration };
        let Self { queues, port, engine, .. } = self;
        queues.post(port, id, &order, |key| look_up(engine, key))
    }

    pub(in crate::ofi) fn signal_queue(&mut self, id: QueueId, number: u64) -> Result<(), FabricError> {
        let address = self.queue_address(id)?;
        self.queues.signal(&self.port, id, address, number)
    }

    pub(in crate::ofi) fn check_queue(&self, id: QueueId) -> Result<(), FabricError> {
        self.queues.check(id)
    }

    pub(in crate::ofi) fn quarantined_in(&self, id: QueueId) -> usize {
        self.queues.quarantined(id)
    }

    fn queue_address(&self, id: QueueId) -> Result<FiAddr, FabricError> {
        self.check()?;
        self.queues.check(id)?;
        let peer = self.queues.peer(id).expect("a queue is closed by its last user");
        self.peers[peer.index()].address.ok_or(FabricError::Disconnected { process: peer })
    }
}

/// Looks up libfabric's access to a region.
fn look_up(engine: &Engine, key: RemoteKey) -> Result<Reached, FabricError> {
    if !engine.is_attached(key) {
        return Err(FabricError::StaleKey { key });
    }
    let why = "only its owner executes accesses to this memory: post them, because queues cannot reach it";
    let access = engine.native(key).ok_or(FabricError::Refused { process: key.process, why })?;
    Ok(Reached { access, is_writable: engine.is_writable(key) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ofi::pool::tests::{BYTES, finish, pair};
    use crate::queue::{Span, TransferKind};
    use crate::region::{Lease, Naming, UserMemory};
    use crate::transport::RegionKind;

    /// Only a later operation reports a riding one, and the poster need not be there to post it.
    #[test]
    fn unsignalled_puts_do_not_delay_deregistration() {
        farside_testbed::needs!("fabric");
        let mut ends = pair();
        let region = ends[1]
            .register_user(Naming::Here(RegionKind::Shared), Lease::new(Arc::new(UserMemory::owned(vec![0; 64]))))
            .unwrap();
        let attached = ends[0].attach(region.key()).unwrap();
        finish(&mut ends, &attached);
        let memory = ends[0].starter();
        memory.as_remote().put(0, &[7; 8], farside_testbed::now()).unwrap();
        let (id, _, frontier) = ends[0].open_queue(ProcessId::new(1), 16).unwrap();
        for number in 0..3 {
            let local = Span::new(&memory, 0, 8).unwrap();
            let remote = region.key();
            let transfer = Transfer { kind: TransferKind::Put, local, remote, remote_offset: 8 * number };
            ends[0].post_queued(id, &transfer, None).unwrap();
        }
        let over = ends[1].deregister(region.key()).unwrap();
        finish(&mut ends, &over);
        assert_eq!(region.memory().take_back().unwrap()[..24], [7; 24]);
        assert_eq!(frontier.completed(), 0, "the poster sees no signal that it has not numbered");
        let local = Span::new(&memory, 0, 8).unwrap();
        let late = Transfer { kind: TransferKind::Put, local, remote: region.key(), remote_offset: 0 };
        let refused = ends[0].post_queued(id, &late, None);
        assert!(matches!(refused, Err(FabricError::StaleKey { .. })), "{refused:?}");
        ends[0].check_queue(id).unwrap();
    }

    /// The last signal, which reports the riding operations, has a place only when others are over.
    #[test]
    fn a_full_queue_that_is_closed_goes() {
        farside_testbed::needs!("fabric");
        let mut ends = pair();
        let key = RemoteKey::starter(ProcessId::new(1), BYTES as u64);
        let attached = ends[0].attach(key).unwrap();
        finish(&mut ends, &attached);
        let memory = ends[0].starter();
        let (id, limits, frontier) = ends[0].open_queue(ProcessId::new(1), 16).unwrap();
        let signals = limits.depth - limits.unsignalled_max;
        for number in 0..limits.depth {
            let local = Span::new(&memory, 0, 8).unwrap();
            let transfer = Transfer { kind: TransferKind::Put, local, remote: key, remote_offset: 8 * number as u64 };
            ends[0].post_queued(id, &transfer, (number < signals).then_some(number as u64 + 1)).unwrap();
        }
        let refused = ends[0].signal_queue(id, 99);
        assert!(matches!(refused, Err(FabricError::QueueFull { .. })), "{refused:?}");
        ends[0].close_queue(id);
        assert_eq!((ends[0].queues.count(), ends[0].queues.under_way(id)), (1, limits.depth));
        let deadline = farside_testbed::deadline();
        while ends[0].queues.count() > 0 {
            assert!(!farside_testbed::is_past(deadline), "the queue has not ended by the deadline");
            ends.iter_mut().for_each(|end| {
                end.progress();
            });
        }
        assert_eq!(frontier.completed(), u64::MAX - 1, "the riding operations are over");
    }
}
