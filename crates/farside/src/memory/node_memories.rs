//! The memory of this process, by NUMA node.

use std::sync::{Arc, Mutex};

use farside_fabric::clock::lock;
use farside_fabric::memory::{Growth, NodeMemory, NodeOptions, NodeReport};
use farside_fabric::{LocalRegion, RemoteKey, Transport};
use farside_sys::shm::PageKind;
use farside_sys::topology::NumaNodeId;

/// The largest superchunk, unless a single allocation is larger. Zeroing it and gathering its pages
/// takes at most a tenth of a second. A service thread that does so answers no request meanwhile.
const SUPERCHUNK_BYTES_MAX: usize = 32 << 20;

/// One allocator for each node that was asked for, and one for memory that may be anywhere.
#[derive(Debug)]
pub(crate) struct NodeMemories {
    transport: Arc<dyn Transport>,
    made: Mutex<Vec<Arc<NodeMemory>>>,
}

impl NodeMemories {
    pub(crate) fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, made: Mutex::default() }
    }

    /// Returns the allocator of a node; `None` is for memory that may be anywhere.
    pub(crate) fn on(&self, node: Option<u32>) -> Arc<NodeMemory> {
        let node = node.map(NumaNodeId);
        let mut made = lock(&self.made);
        if let Some(memory) = made.iter().find(|memory| memory.options().node == node) {
            return memory.clone();
        }
        // One process simulates many. None of them gains from pages of its own, and together they
        // may have more memory than the machine, as long as they use little of it.
        let on_demand = self.transport.clock().is_simulated();
        let pages = if on_demand { PageKind::Base } else { PageKind::Gigantic };
        let options = NodeOptions {
            node,
            pages,
            growth: Growth::Exponential,
            superchunk_bytes_max: SUPERCHUNK_BYTES_MAX,
            on_demand,
            ..NodeOptions::default()
        };
        let memory = Arc::new(NodeMemory::new(self.transport.clone(), options));
        made.push(memory.clone());
        memory
    }

    /// Returns the region of this key, if it belongs to this process's memory.
    pub(crate) fn region(&self, key: RemoteKey) -> Option<LocalRegion> {
        lock(&self.made).iter().find_map(|memory| memory.superchunk(key))
    }

    pub(crate) fn report(&self) -> Vec<NodeReport> {
        lock(&self.made).iter().map(|memory| memory.report()).collect()
    }
}
