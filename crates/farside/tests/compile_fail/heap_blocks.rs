//! A block is in one pair of hands, and does not outlive its heap.

use farside::heap::{Block, HeapOptions, RemoteHeap};
use farside::prelude::*;

fn used_after_it_was_handed_over(mut block: Block<'_>) {
    let _ = block.hand_over();
    let _ = block.put();
}

fn in_two_hands(block: &Block<'_>) -> (Block<'static>, Block<'static>) {
    (block.clone(), block.clone())
}

fn beyond_the_heap(me: &Worker) {
    let heap = RemoteHeap::open(me, me.id(), HeapOptions::new(100)).unwrap();
    let block = heap.alloc(10).unwrap();
    heap.close().unwrap();
    drop(block);
}

fn main() {}
