//! What queues ask of an endpoint.

use std::sync::Arc;

use super::State;
use crate::ids::ProcessId;
use crate::ofi::ffi::FiAddr;
use crate::ofi::queues::{Order, QueueId};
use crate::transmit::{Frontier, QueueLimits, Transfer};
use crate::transport::FabricError;

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

    /// Posts an operation of a queue. No more progress is made: whoever waits for it makes some.
    pub(in crate::ofi) fn post_queued(
        &mut self,
        id: QueueId,
        transfer: &Transfer<'_>,
        signal: Option<u64>,
    ) -> Result<(), FabricError> {
        let address = self.queue_address(id)?;
        let registration = if self.port.attributes().registers_local {
            let key = transfer.local.region().key();
            let found = self.registrations.get(key.slot as usize).copied().flatten();
            let (_, registration) =
                found.filter(|(generation, _)| *generation == key.generation).ok_or(FabricError::StaleKey { key })?;
            Some(registration)
        } else {
            None
        };
        let order = Order { transfer, signal, address, registration };
        let Self { queues, port, engine, .. } = self;
        queues.post(port, id, &order, |key| engine.attached(key))
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
