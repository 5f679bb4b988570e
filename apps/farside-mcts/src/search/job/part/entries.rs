//! The nodes that other workers know.

use crate::search::job::message::EntryId;
use crate::tree::NodeId;

/// A node that rollouts from other workers reach. Its state is stored here, so messages carry none.
#[derive(Debug)]
pub(super) struct Entry<S> {
    pub(super) node: NodeId,
    pub(super) state: S,
}

/// Entries by number. Numbers are reused once no other worker knows them.
#[derive(Debug)]
pub(super) struct Entries<S> {
    slots: Vec<Option<Entry<S>>>,
    free: Vec<u32>,
    count_max: usize,
}

impl<S> Entries<S> {
    /// Returns an empty table that holds at most as many entries as fit into `bytes`.
    pub(super) fn new(bytes: usize) -> Self {
        // A number has 32 bits.
        let count_max = (bytes / size_of::<Option<Entry<S>>>()).min(u32::MAX as usize);
        Self { slots: Vec::new(), free: Vec::new(), count_max }
    }

    pub(super) fn get(&self, id: EntryId) -> Option<&Entry<S>> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (EntryId, NodeId)> {
        self.slots.iter().zip(0..).filter_map(|(slot, id)| Some((EntryId(id), slot.as_ref()?.node)))
    }

    /// Returns the number of entries that can be added.
    pub(super) fn room(&self) -> usize {
        self.count_max - self.slots.len() + self.free.len()
    }

    /// Adds an entry. The caller has checked that there is [room](Self::room).
    pub(super) fn add(&mut self, node: NodeId, state: S) -> EntryId {
        let entry = Some(Entry { node, state });
        match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = entry;
                EntryId(id)
            }
            None => {
                self.slots.push(entry);
                EntryId(self.slots.len() as u32 - 1)
            }
        }
    }

    /// Renumbers the nodes of all entries, and removes the entries for which `new_node` returns
    /// `None`.
    pub(super) fn renumber(&mut self, new_node: impl Fn(EntryId, NodeId) -> Option<NodeId>) {
        for (slot, id) in self.slots.iter_mut().zip(0..) {
            let Some(entry) = slot else { continue };
            match new_node(EntryId(id), entry.node) {
                Some(node) => entry.node = node,
                None => {
                    *slot = None;
                    self.free.push(id);
                }
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Rules, Tree};

    #[test]
    fn numbers_are_reused_and_the_limit_holds() {
        let mut tree = Tree::<u8>::new(Rules { exploration: 0.5, simulations: 1, memory_bytes: 1 << 20 });
        let nodes = [0, 1].map(|_| tree.add(crate::Player::First, &[1]).unwrap());
        let mut entries = Entries::new(2 * size_of::<Option<Entry<u64>>>());
        assert_eq!((entries.add(nodes[0], 7_u64), entries.add(nodes[1], 8)), (EntryId(0), EntryId(1)));
        assert_eq!(entries.room(), 0);
        entries.renumber(|id, _| (id == EntryId(1)).then_some(nodes[0]));
        assert!(entries.get(EntryId(0)).is_none() && entries.get(EntryId(2)).is_none());
        assert_eq!(entries.get(EntryId(1)).map(|entry| (entry.node, entry.state)), Some((nodes[0], 8)));
        assert_eq!((entries.room(), entries.add(nodes[1], 9)), (1, EntryId(0)));
    }
}
