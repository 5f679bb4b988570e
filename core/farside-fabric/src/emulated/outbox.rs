//! The packets to send.

use std::collections::{BTreeMap, HashSet, VecDeque};

use crate::ids::ProcessId;

/// The class of a packet, for which its room is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Request,
    Answer,
    Message,
    /// The withdrawal of a region.
    Revoke,
    /// The release of a region.
    Release,
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// The queues of peers for which packets wait.
    queues: BTreeMap<ProcessId, Queue>,
    lost: HashSet<ProcessId>,
}

#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<(Class, Vec<u8>)>,
    /// Number of packets of each class.
    counts: [usize; 5],
}

impl Outbox {
    pub(super) fn push(&mut self, to: ProcessId, class: Class, packet: Vec<u8>) {
        let queue = self.queues.entry(to).or_default();
        queue.counts[class as usize] += 1;
        queue.packets.push_back((class, packet));
    }

    pub(super) fn count(&self, to: ProcessId, class: Class) -> usize {
        self.queues.get(&to).map_or(0, |queue| queue.counts[class as usize])
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = ProcessId> {
        self.queues.keys().copied()
    }

    pub(super) fn flush(&mut self, mut send: impl FnMut(ProcessId, Vec<u8>) -> Result<(), Vec<u8>>) {
        self.queues.retain(|to, queue| {
            while let Some((class, packet)) = queue.packets.pop_front() {
                if let Err(refused) = send(*to, packet) {
                    queue.packets.push_front((class, refused));
                    return true;
                }
                queue.counts[class as usize] -= 1;
            }
            false
        });
    }

    pub(super) fn lose(&mut self, peer: ProcessId) {
        self.queues.remove(&peer);
        self.lost.insert(peer);
    }

    pub(super) fn is_lost(&self, peer: ProcessId) -> bool {
        self.lost.contains(&peer)
    }
}
