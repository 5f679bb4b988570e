//! [`Allocated`]: memory that this library has allocated, so that peers may map it.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use farside_sys::shm::Mapping;

use crate::lock::lock;
use crate::segments::Segment;

/// Memory that may be mapped by several processes: this one's, or what a peer has shared.
#[derive(Debug)]
pub struct Allocated {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) bytes: usize,
    /// True if peers may write it if a call lets them.
    pub(crate) peers_may_write: bool,
    /// The connections whose peers have it, and its number there.
    shares: Mutex<Vec<(Weak<dyn Sharer>, u64)>>,
}

/// A connection that shares memory with its peer.
pub(crate) trait Sharer: Send + Sync + fmt::Debug {
    /// Tells the peer that the memory with this number is gone.
    fn forget(self: Arc<Self>, number: u64);
}

impl Allocated {
    pub(crate) fn new(mapping: Mapping, bytes: usize, peers_may_write: bool) -> Self {
        Self { mapping: Arc::new(mapping), bytes, peers_may_write, shares: Mutex::default() }
    }

    /// The offsets of segments of the memory that are given by their addresses.
    pub(crate) fn offsets(&self, mut segments: Vec<Segment>) -> Vec<Segment> {
        let base = self.mapping.base().as_ptr().addr();
        segments.iter_mut().for_each(|(address, _)| *address -= base);
        segments
    }

    /// Notes that the peer of a connection has the memory. It hears of it when the memory is
    /// dropped.
    pub(crate) fn is_shared(&self, sharer: Weak<dyn Sharer>, number: u64) {
        let mut shares = lock(&self.shares);
        shares.retain(|(sharer, _)| sharer.strong_count() > 0);
        shares.push((sharer, number));
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        if !self.mapping.is_here() {
            return;
        }
        for (sharer, number) in lock(&self.shares).drain(..) {
            if let Some(sharer) = sharer.upgrade() {
                sharer.forget(number);
            }
        }
    }
}
