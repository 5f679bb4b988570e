//! A work-stealing queue: every worker has a deque of work, and a worker without work steals half
//! of another's.
//!
//! ```console
//! cargo run --release -p farside --example work_stealing
//! farside run -n 2 -t 2 target/release/examples/work_stealing
//! ```
//!
//! The work is to count the nodes of an unbalanced tree (the UTS benchmark: Olivier et al., LCPC
//! 2006, its binomial trees). A node's number determines how many children it has: mostly none,
//! sometimes eight. So a subtree may end at once or be half of the tree, which cannot be known
//! beforehand. Any fixed division of the work is therefore a bad one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use farside::prelude::*;

/// The number of children of the root, and of the other nodes that have any.
const ROOT_CHILDREN: u64 = 40_000;
const CHILDREN: u64 = 8;
/// The fraction of nodes that have children. On average a node has 8 / 8.08 children.
const PARENTS: f64 = 1.0 / 8.08;
/// The number of nodes that a worker counts between two turns of serving thieves.
const NODES_PER_TURN: usize = 256;
/// The largest number of nodes stolen at once. They fit into a reply.
const STOLEN_MAX: usize = 500;

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

fn grow(node: Node, mut add: impl FnMut(Node)) {
    if (mix(node) as f64) < PARENTS * u64::MAX as f64 {
        children(node, CHILDREN).for_each(&mut add);
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

/// A worker's state, which other workers change through calls.
#[derive(Default)]
struct Part {
    work: RefCell<VecDeque<Node>>,
    /// Whether a thief took work from here since the token last left. A worker that had no work and
    /// passed the token on may then have some now.
    gave: Cell<bool>,
    /// The token, while it is here, and whether any worker on its way gave work away.
    token: Cell<Option<bool>>,
    is_over: Cell<bool>,
}

type Parts = PerWorker<Part>;

/// Gives away the older half of the work: those subtrees are the largest.
fn give(there: &Worker, parts: Parts) -> Vec<Node> {
    let part = parts.here(there);
    let mut work = part.work.borrow_mut();
    let stolen = work.len().div_ceil(2).min(STOLEN_MAX);
    part.gave.set(part.gave.get() || stolen > 0);
    work.drain(..stolen).collect()
}

fn main() -> farside::Result<()> {
    farside::job().processes(2).threads_per_process(2).run(|me: &Worker| {
        let parts = Parts::new(me, Part::default())?;
        let part = parts.here(me);
        let is_first = me.id().number() == 0;
        if is_first {
            // All the work starts at the first worker.
            part.work.borrow_mut().extend(roots());
            part.token.set(Some(true));
        }
        me.barrier()?;

        let others = u64::from(me.worker_count() - 1).max(1);
        let (mut counted, mut stolen, mut tries) = (0_u64, 0_u64, u64::from(me.id().number()));
        while !part.is_over.get() {
            for _ in 0..NODES_PER_TURN {
                // Takes the newest node: its subtree is the smallest, so the deque stays short.
                let Some(node) = part.work.borrow_mut().pop_back() else { break };
                counted += 1;
                grow(node, |child| part.work.borrow_mut().push_back(child));
            }
            // Thieves are served here.
            me.progress()?;
            if !part.work.borrow().is_empty() {
                continue;
            }
            pass_token(me, parts)?;
            tries = mix(tries);
            let victim = me.neighbor(1 + (tries % others) as u32);
            let loot = me.call_return(victim, parts, give)?.wait()?;
            stolen += u64::from(!loot.is_empty());
            part.work.borrow_mut().extend(loot);
        }

        let shares = me.gather(WorkerId::new(0), (counted, stolen))?;
        if let Some(shares) = shares {
            let nodes: u64 = shares.iter().map(|(counted, _)| counted).sum();
            println!("{nodes} nodes by {} workers, {} by one alone", shares.len(), count_alone());
            for (worker, (counted, stolen)) in me.workers().zip(shares) {
                println!("{worker} counted {counted}, and stole {stolen} times");
            }
        }
        me.barrier()
    })
}

/// Detects the end of all work (Dijkstra, Feijen and van Gasteren, 1983).
///
/// A token goes round. A worker without work passes it on, with a note if it gave work away since
/// the token last left. If the token comes back without a note, no worker has any work, and all is
/// over. (A thief has no work while it waits for its loot. But it keeps the token during that time,
/// and its victim will add the note.)
fn pass_token(me: &Worker, parts: Parts) -> farside::Result<()> {
    let part = parts.here(me);
    let Some(noted) = part.token.take() else { return Ok(()) };
    let gave = part.gave.replace(false);
    let is_first = me.id().number() == 0;
    if is_first && !noted && !gave {
        for worker in me.workers() {
            me.call(worker, parts, |there, parts| parts.here(there).is_over.set(true))?;
        }
        return Ok(());
    }
    // The first worker starts each round without a note.
    let note = !is_first && (noted || gave);
    me.call(me.neighbor(1), (parts, note), |there, (parts, note)| parts.here(there).token.set(Some(note)))?;
    Ok(())
}
