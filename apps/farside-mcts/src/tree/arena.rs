//! The memory of edges: parallel arrays, in which each node has one contiguous block.

use std::ops::Range;

use super::Edge;

/// Number of slots in a group. Scans process whole groups, to use vector instructions.
pub(super) const GROUP: usize = 8;

/// The slots of one node. A node begins with few slots, as most nodes never try all of their moves.
#[derive(Debug)]
pub(super) struct Block {
    first: u32,
    capacity: u32,
}

impl Block {
    pub(super) fn first(&self) -> usize {
        self.first as usize
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Returns the slots of the first `tried` edges, rounded up to whole groups.
    pub(super) fn scanned(&self, tried: u32) -> Range<usize> {
        self.first()..self.first() + (tried as usize).next_multiple_of(GROUP)
    }
}

/// All slots of a tree.
#[derive(Debug)]
pub(super) struct Slots<L> {
    /// Share of points of the side that moves. Minus infinity for proven edges and for the unused
    /// slots of a group.
    pub(super) value: Vec<f32>,
    /// 1 / √visits, including visits in flight. Stored because selection reads it for every edge at
    /// every visit.
    pub(super) rarity: Vec<f32>,
    pub(super) edges: Vec<Edge<L>>,
    /// First slots of free blocks, by the binary logarithm of their capacity.
    free: Vec<Vec<u32>>,
}

impl<L: Copy> Slots<L> {
    const SLOT_BYTES: usize = 2 * size_of::<f32>() + size_of::<Edge<L>>();

    pub(super) fn new() -> Self {
        Self { value: Vec::new(), rarity: Vec::new(), edges: Vec::new(), free: Vec::new() }
    }

    /// Returns the initial capacity of a node with `move_count` moves.
    pub(super) fn first_capacity(move_count: usize) -> usize {
        if move_count > GROUP { 2 * GROUP } else { GROUP }
    }

    /// Returns the number of bytes that a block of this capacity adds.
    pub(super) fn cost(&self, capacity: usize) -> usize {
        match self.free.get(capacity.ilog2() as usize) {
            Some(blocks) if !blocks.is_empty() => 0,
            _ => capacity * Self::SLOT_BYTES,
        }
    }

    /// Returns a block with arbitrary contents, or `None` if the slot numbers are used up.
    pub(super) fn take(&mut self, capacity: usize) -> Option<Block> {
        let outgrown = self.free.get_mut(capacity.ilog2() as usize).and_then(Vec::pop);
        let first = match outgrown {
            Some(first) => first,
            None => {
                let first = u32::try_from(self.edges.len()).ok()?;
                let end = first.checked_add(u32::try_from(capacity).ok()?)? as usize;
                self.value.resize(end, 0.0);
                self.rarity.resize(end, 0.0);
                self.edges.resize(end, Edge::UNTRIED);
                first
            }
        };
        Some(Block { first, capacity: capacity as u32 })
    }

    /// Moves a full block to one of twice its capacity, if that adds at most `bytes_left`.
    pub(super) fn grow(&mut self, old: &Block, bytes_left: usize) -> Option<Block> {
        if self.cost(2 * old.capacity()) > bytes_left {
            return None;
        }
        let new = self.take(2 * old.capacity())?;
        let slots = old.first()..old.first() + old.capacity();
        self.value.copy_within(slots.clone(), new.first());
        self.rarity.copy_within(slots.clone(), new.first());
        self.edges.copy_within(slots, new.first());
        let class = old.capacity().ilog2() as usize;
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        self.free[class].push(old.first);
        Some(new)
    }

    /// Prepares a slot for an edge. The first slot of a group prepares the whole group for scans.
    pub(super) fn open(&mut self, block: &Block, edge: u32) {
        let slot = block.first() + edge as usize;
        if slot.is_multiple_of(GROUP) {
            self.value[slot..slot + GROUP].fill(f32::NEG_INFINITY);
            self.rarity[slot..slot + GROUP].fill(0.0);
        }
        self.value[slot] = 0.0;
        self.edges[slot] = Edge::UNTRIED;
    }

    /// Moves these blocks to the front, in their order, and frees all other blocks.
    pub(super) fn compact(&mut self, mut blocks: Vec<&mut Block>) {
        blocks.sort_unstable_by_key(|block| block.first);
        let mut end = 0;
        for block in blocks {
            let slots = block.first()..block.first() + block.capacity();
            self.value.copy_within(slots.clone(), end);
            self.rarity.copy_within(slots.clone(), end);
            self.edges.copy_within(slots, end);
            block.first = end as u32;
            end += block.capacity();
        }
        self.value.truncate(end);
        self.rarity.truncate(end);
        self.edges.truncate(end);
        self.free.clear();
    }

    pub(super) fn bytes(&self) -> usize {
        self.edges.len() * Self::SLOT_BYTES + self.free.iter().map(|blocks| size_of_val(&**blocks)).sum::<usize>()
    }
}
