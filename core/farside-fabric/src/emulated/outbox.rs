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
    /// The lanes of peers for which packets wait.
    lanes: BTreeMap<ProcessId, Lane>,
    lost: HashSet<ProcessId>,
}

#[derive(Debug, Default)]
struct Lane {
    packets: VecDeque<(Class, Vec<u8>)>,
    /// Number of packets of each class.
    counts: [usize; 5],
}

impl Outbox {
    pub(super) fn push(&mut self, to: ProcessId, class: Class, packet: Vec<u8>) {
        let lane = self.lanes.entry(to).or_default();
        lane.counts[class as usize] += 1;
        lane.packets.push_back((class, packet));
    }

    pub(super) fn count(&self, to: ProcessId, class: Class) -> usize {
        self.lanes.get(&to).map_or(0, |lane| lane.counts[class as usize])
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = ProcessId> {
        self.lanes.keys().copied()
    }

    pub(super) fn flush(&mut self, mut send: impl FnMut(ProcessId, Vec<u8>) -> Result<(), Vec<u8>>) {
        self.lanes.retain(|to, lane| {
            while let Some((class, packet)) = lane.packets.pop_front() {
                if let Err(refused) = send(*to, packet) {
                    lane.packets.push_front((class, refused));
                    return true;
                }
                lane.counts[class as usize] -= 1;
            }
            false
        });
    }

    pub(super) fn lose(&mut self, peer: ProcessId) {
        self.lanes.remove(&peer);
        self.lost.insert(peer);
    }

    pub(super) fn is_lost(&self, peer: ProcessId) -> bool {
        self.lost.contains(&peer)
    }
}
