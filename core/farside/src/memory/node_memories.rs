//! The memory of this process, by NUMA node.

use std::sync::{Arc, Mutex};

use farside_fabric::clock::lock;
use farside_fabric::memory::{Growth, NodeMemory, NodeOptions, NodeReport};
use farside_fabric::{LocalRegion, RemoteKey, Transport};
use farside_sys::shm::PageKind;
use farside_sys::topology::NumaNodeId;

/// The largest superchunk, unless a single allocation is larger or the program chose the pages.
/// Zeroing it and gathering its pages takes at most a tenth of a second. A service thread that does
/// so answers no request meanwhile.
const SUPERCHUNK_BYTES_MAX: usize = 32 << 20;

/// A node, and the pages that the program chose.
type Request = (Option<NumaNodeId>, Option<PageKind>);

/// One allocator for each node and kind of pages that was asked for, and one for memory that may be
/// anywhere.
#[derive(Debug)]
pub(crate) struct NodeMemories {
    transport: Arc<dyn Transport>,
    made: Mutex<Vec<(Request, Arc<NodeMemory>)>>,
}

impl NodeMemories {
    pub(crate) fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, made: Mutex::default() }
    }

    /// Returns the allocator of a node; `None` is for memory that may be anywhere. If the program
    /// chose the pages, its superchunks may have 1 GiB, and no other pages than reserved ones
    /// that it chose.
    pub(crate) fn on(&self, node: Option<u32>, chosen: Option<PageKind>) -> Arc<NodeMemory> {
        let node = node.map(NumaNodeId);
        let mut made = lock(&self.made);
        if let Some((_, memory)) = made.iter().find(|(of, _)| *of == (node, chosen)) {
            return memory.clone();
        }
        // One process simulates many. None of them gains from pages of its own, and together they
        // may have more memory than the machine, as long as they use little of it.
        let on_demand = self.transport.clock().is_simulated();
        let pages = if on_demand { PageKind::Base } else { chosen.unwrap_or(PageKind::Gigantic) };
        let mut options = NodeOptions { node, pages, growth: Growth::Exponential, on_demand, ..NodeOptions::default() };
        match chosen {
            None => options.superchunk_bytes_max = SUPERCHUNK_BYTES_MAX,
            Some(_) => options.requires_pages = pages >= PageKind::Huge,
        }
        if options.requires_pages && pages == PageKind::Gigantic {
            (options.chunk_bytes, options.superchunk_bytes) = (1 << 30, 1 << 30);
        }
        let memory = Arc::new(NodeMemory::new(self.transport.clone(), options));
        made.push(((node, chosen), memory.clone()));
        memory
    }

    /// Returns the region of this key, if it belongs to this process's memory.
    pub(crate) fn region(&self, key: RemoteKey) -> Option<LocalRegion> {
        lock(&self.made).iter().find_map(|(_, memory)| memory.superchunk(key))
    }

    pub(crate) fn report(&self) -> Vec<NodeReport> {
        lock(&self.made).iter().map(|(_, memory)| memory.report()).collect()
    }
}
