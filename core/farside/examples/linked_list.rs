//! A linked list through the memories of all processes. It has no owner and no lock, and inserting
//! needs no help from another process.
//!
//! ```console
//! cargo run -p farside --example linked_list
//! ```
//!
//! Each process keeps its nodes in a vector of its own. The vector is registered, so every node has
//! a global address. A node holds the address of the next one, in whichever process that lies. The
//! address of the first node is in a word of process 0's starter memory, whose address all
//! processes know. An insert at the head replaces the old first address in that word by the new
//! one. It does so with a compare and swap, and retries if that fails.

use farside::bytemuck::{Pod, Zeroable};
use farside::prelude::*;
use farside::{GlobalAddress, GlobalPtr, field};

const NODES: u64 = 500;
const TOGETHER: usize = 10;

#[derive(Clone, Copy, Pod, Zeroable)]
#[bytemuck(crate = "farside::bytemuck")]
#[repr(C)]
struct Node {
    next: GlobalPtr<Node>,
    value: u64,
}

/// A list, identified by the word that holds the address of its first node.
#[derive(Clone, Copy)]
struct List {
    head: GlobalPtr<u64>,
}

impl List {
    fn first(self, me: &Worker) -> farside::Result<GlobalPtr<Node>> {
        Ok(GlobalAddress::from_bits(self.head.load(me)?).cast())
    }

    /// Inserts a node at the head, and returns the number of failed attempts.
    fn push(self, me: &Worker, node: GlobalPtr<Node>) -> farside::Result<u64> {
        let mut first = self.first(me)?;
        let mut attempts = 0;
        loop {
            // No other process can reach the node before the head leads to it.
            field!(node, Node, next)?.put(me, first)?;
            let (old, new) = (first.address().to_bits(), node.address().to_bits());
            match self.head.compare_swap(me, old, new)? {
                found if found == old => return Ok(attempts),
                found => first = GlobalAddress::from_bits(found).cast(),
            }
            attempts += 1;
        }
    }

    /// Visits all nodes of the list.
    fn for_each(
        self,
        me: &Worker,
        mut visit: impl FnMut(GlobalPtr<Node>, Node) -> farside::Result<()>,
    ) -> farside::Result<()> {
        let mut at = self.first(me)?;
        while !at.is_null() {
            let node = at.get(me)?;
            visit(at, node)?;
            at = node.next;
        }
        Ok(())
    }
}

fn main() -> farside::Result<()> {
    farside::job().processes(4).run(|me: &Worker| {
        let list = List { head: GlobalAddress::starter(ProcessId::new(0), 0).cast() };
        let own = u64::from(me.id().number());
        let values = own * NODES..(own + 1) * NODES;
        let nodes = me.register(values.map(|value| Node { next: GlobalPtr::NULL, value }).collect())?;

        let mut attempts = 0;
        for index in 0..nodes.slice().len() {
            if index % TOGETHER == 0 {
                // Makes all workers insert at the same time, also if they share a CPU.
                me.barrier()?;
            }
            attempts += list.push(me, nodes.slice().at(index)?)?;
        }
        let attempts = me.all_reduce(attempts, |a, b| a + b)?;

        // All workers read the same list.
        let (mut count, mut sum, mut borders, mut last) = (0_u64, 0, 0_u64, None);
        list.for_each(me, |at, node| {
            borders += u64::from(last.replace(at.process()).is_some_and(|last| last != at.process()));
            (count, sum) = (count + 1, sum + node.value);
            Ok(())
        })?;
        let agreed = me.all_reduce((count, sum, true), |a, b| (a.0, a.1, a.2 && b.2 && (a.0, a.1) == (b.0, b.1)))?;
        if own == 0 {
            println!("{count} nodes, whose values add up to {sum}; all agree: {}", agreed.2);
            println!(
                "{borders} of them lie in another process than the one before; {attempts} inserts had to try again"
            );
        }

        // After the barrier, no worker reads the list any more.
        me.barrier()?;
        nodes.deregister(me)?;
        Ok(())
    })
}
