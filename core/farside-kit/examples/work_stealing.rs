//! Work stealing: a worker without work gets half of another's.
//!
//! ```console
//! cargo run --release -p farside-kit --example work_stealing
//! farside run -n 2 -t 2 target/release/examples/work_stealing
//! ```
//!
//! The work is to count the nodes of an unbalanced tree (the UTS benchmark: Olivier et al., LCPC
//! 2006, its binomial trees). A node's number determines how many children it has: mostly none,
//! sometimes eight. So a subtree may end at once or be half of the tree, which cannot be known
//! beforehand. Any fixed division of the work is therefore a bad one.

use farside::prelude::*;
use farside_kit::tasks::TaskPool;

/// The number of children of the root, and of the other nodes that have any.
const ROOT_CHILDREN: u64 = 40_000;
const CHILDREN: u64 = 8;
/// The fraction of nodes that have children. On average a node has 8 / 8.08 children.
const PARENTS: f64 = 1.0 / 8.08;

/// A node is a number, from which the numbers of its children follow.
type Node = u64;

/// SplitMix64: a hash that makes a sequence of numbers look random.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn children(of: Node, count: u64) -> impl Iterator<Item = Node> {
    (1..=count).map(move |child| mix(of ^ mix(child)))
}

fn grow(node: Node, add: impl FnMut(Node)) {
    if (mix(node) as f64) < PARENTS * u64::MAX as f64 {
        children(node, CHILDREN).for_each(add);
    }
}

fn roots() -> impl Iterator<Item = Node> {
    children(19, ROOT_CHILDREN)
}

/// Counts the tree's nodes, without its root, with one worker alone.
fn count_alone() -> u64 {
    let mut nodes: Vec<Node> = roots().collect();
    let mut count = 0;
    while let Some(node) = nodes.pop() {
        count += 1;
        grow(node, |child| nodes.push(child));
    }
    count
}

fn main() -> farside::Result<()> {
    farside::job().processes(2).threads_per_process(2).run(|me: &Worker| {
        // All the work starts at the first worker.
        let seeds = me.is_first().then(roots).into_iter().flatten();
        let counted = TaskPool::run(me, seeds, |_, node, pool| {
            grow(node, |child| pool.push(child));
            Ok(())
        })?;
        if let Some(shares) = me.gather(WorkerId::FIRST, counted)? {
            let nodes: u64 = shares.iter().sum();
            println!("{nodes} nodes by {} workers, {} by one alone", shares.len(), count_alone());
            for (worker, counted) in me.workers().zip(shares) {
                println!("{worker} counted {counted}");
            }
        }
        me.barrier()
    })
}
