//! Opens the best queue of a transport.

use std::any::Any;
use std::sync::Arc;

use farside_fabric::ofi::OfiEndpoint;
use farside_fabric::queue::{QueueLimits, QueueOptions, TransferQueue};
use farside_fabric::route::Routes;
use farside_fabric::sim::SimEndpoint;
use farside_fabric::{Completion, FabricError, Operation, ProcessId, RemoteKey, Transport, Unposted};

use crate::posted::{PostedQueue, Poster};

/// Opens a queue to a peer: libfabric's own, the simulator's brittle one, or one made of posted
/// operations.
///
/// # Errors
/// [`FabricError::NoSuchProcess`], [`FabricError::Disconnected`].
pub fn open_queue(
    transport: &Arc<dyn Transport>,
    peer: ProcessId,
    options: QueueOptions,
) -> Result<Box<dyn TransferQueue>, FabricError> {
    let any: &dyn Any = &**transport;
    let ofi =
        any.downcast_ref::<OfiEndpoint>().or(any.downcast_ref::<Routes>().and_then(|routes| routes.over_ofi(peer)));
    if let Some(ofi) = ofi
        && let Some(own) = ofi.open_queue(peer, options)?
    {
        return Ok(own);
    }
    if let Some(sim) = any.downcast_ref::<SimEndpoint>() {
        let limits = QueueLimits::of_depth(options.depth.min(sim.queue_depth()), usize::MAX);
        let poster = Box::new(Simulated(transport.clone()));
        return Ok(Box::new(PostedQueue::brittle(poster, peer, limits)));
    }
    Ok(Box::new(PostedQueue::new(Box::new(transport.clone()), peer, options)))
}

/// Posts the operations of a queue on a simulated endpoint, where the queue's limits replace those
/// of other operations.
#[derive(Debug)]
struct Simulated(Arc<dyn Transport>);

impl Poster for Simulated {
    fn post(&self, key: RemoteKey, operation: Operation) -> Result<Completion, Unposted> {
        let any: &dyn Any = &*self.0;
        let end = any.downcast_ref::<SimEndpoint>().expect("only a simulated endpoint is wrapped");
        Ok(end.post_queued(key, operation))
    }

    fn progress(&self) {
        self.0.progress();
    }
}
