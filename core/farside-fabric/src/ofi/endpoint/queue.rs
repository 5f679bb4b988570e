//! A queue of an endpoint, as its users hold it.

use std::sync::Arc;

use super::OfiEndpoint;
use crate::ofi::queues::QueueId;
use crate::queue::{Frontier, QueueLimits, Transfer, TransferQueue};
use crate::transport::{Carrier, FabricError};

/// One of the [queues](crate::ofi::queues) of an endpoint.
#[derive(Debug)]
pub(super) struct OfiQueue {
    pub(super) end: Arc<OfiEndpoint>,
    pub(super) id: QueueId,
    pub(super) limits: QueueLimits,
    pub(super) frontier: Arc<Frontier>,
}

impl TransferQueue for OfiQueue {
    fn limits(&self) -> QueueLimits {
        self.limits
    }

    fn frontier(&self) -> &Arc<Frontier> {
        &self.frontier
    }

    fn post(&self, transfer: &Transfer<'_>, signal: Option<u64>) -> Result<(), FabricError> {
        self.end.lock().post_queued(self.id, transfer, signal)
    }

    fn signal(&self, number: u64) -> Result<(), FabricError> {
        self.end.lock().signal_queue(self.id, number)
    }

    fn progress(&self) -> Result<(), FabricError> {
        self.end.progress();
        if self.frontier.has_failed() { self.end.lock().check_queue(self.id) } else { Ok(()) }
    }

    fn quarantined(&self) -> usize {
        self.end.lock().quarantined_in(self.id)
    }
}

impl Drop for OfiQueue {
    fn drop(&mut self) {
        self.end.lock().close_queue(self.id);
    }
}
