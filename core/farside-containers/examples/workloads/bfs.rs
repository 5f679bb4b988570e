//! Breadth-first search by the rules of Graph500: a Kronecker graph with labels permuted, whose
//! searches begin at different random vertices with neighbors. Each search makes the tree of
//! parents, and every tree passes the five checks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farside::Distribution;
use farside::global::GlobalArray;
use farside::prelude::*;
use farside_containers::{Exchange, Items};

use super::common::{Clock, Random, Shuffle, owned, place};
use super::matrix::{GlobalRows, Rows, distribute};

/// The parent of a vertex that no search has reached.
const NONE: u32 = u32::MAX;

/// The edges of a graph with this number of vertices, a power of two, and of edges for each vertex.
#[derive(Clone, Copy)]
struct Graph {
    seed: u32,
    vertices: u32,
    edges_per_vertex: u32,
}

impl Graph {
    fn new(me: &Worker, seed: u32, [vertices, edges_per_vertex]: [u32; 2]) -> Self {
        Self { seed, vertices: 1 << (vertices * me.worker_count()).ilog2(), edges_per_vertex }
    }

    fn edges(self) -> u32 {
        self.vertices * self.edges_per_vertex
    }

    /// An edge. Its ends are in the four quarters of the matrix with the official probabilities,
    /// and so on within the quarter.
    fn edge(self, number: u32) -> (u32, u32) {
        let (mut random, mut ends) = (Random::new(self.seed, number), (0, 0));
        for _ in 0..self.vertices.ilog2() {
            let quarter = match random.unit() {
                x if x <= 0.57 => (0, 0),
                x if x <= 0.76 => (0, 1),
                x if x <= 0.95 => (1, 0),
                _ => (1, 1),
            };
            ends = (2 * ends.0 + quarter.0, 2 * ends.1 + quarter.1);
        }
        let label = Shuffle::new(self.vertices, self.seed);
        (label.at(ends.0), label.at(ends.1))
    }

    /// Returns the vertices at which this number of searches begin: in random order, those that
    /// have another vertex as a neighbor. If there are fewer, they come again. `has_neighbor`
    /// answers for the vertices of this worker, by their places. Collective.
    fn keys(self, me: &Worker, searches: u32, has_neighbor: impl Fn(u32) -> bool) -> farside::Result<Vec<u32>> {
        let order = Shuffle::new(self.vertices, !self.seed);
        let (mut keys, mut next) = (Vec::new(), 0);
        while keys.len() < searches as usize {
            assert!(next < self.vertices || !keys.is_empty(), "no vertex has a neighbor");
            let key = order.at(next % self.vertices);
            next += 1;
            let (owner, at) = place(me, key);
            if me.all_reduce(owner == me.id() && has_neighbor(at), |a, b| a || b)? {
                keys.push(key);
            }
        }
        Ok(keys)
    }
}

/// All edges, and the search as one thread does it.
struct Alone {
    edges: Vec<(u32, u32)>,
    neighbors: Rows,
}

impl Alone {
    fn new(graph: Graph) -> Self {
        let edges: Vec<_> = (0..graph.edges()).map(|number| graph.edge(number)).collect();
        let both: Vec<_> = edges.iter().flat_map(|(from, to)| [(*from, *to), (*to, *from)]).collect();
        Self { edges, neighbors: Rows::new(graph.vertices as usize, &both) }
    }

    /// Returns the parents in a search from `key`.
    fn search(&self, key: u32) -> Vec<u32> {
        let mut parents = vec![NONE; self.neighbors.len()];
        parents[key as usize] = key;
        let (mut level, mut next) = (vec![key], Vec::new());
        while !level.is_empty() {
            for vertex in level.drain(..) {
                for neighbor in self.neighbors.row(vertex) {
                    let parent = &mut parents[*neighbor as usize];
                    if *parent == NONE {
                        *parent = vertex;
                        next.push(*neighbor);
                    }
                }
            }
            std::mem::swap(&mut level, &mut next);
        }
        parents
    }

    /// Makes the five checks of a result.
    fn check(&self, key: u32, parents: &[u32]) {
        assert_eq!(parents[key as usize], key, "the key is its own parent");
        // 1: the parents form a tree, in which every way ends at the key. 2: its edges join levels
        // that differ by one, since a level is counted from that of the parent.
        let mut levels = vec![NONE; parents.len()];
        levels[key as usize] = 0;
        let mut way = Vec::new();
        for mut vertex in (0..parents.len() as u32).filter(|vertex| parents[*vertex as usize] != NONE) {
            while levels[vertex as usize] == NONE {
                way.push(vertex);
                assert!(way.len() < parents.len(), "the parents form a cycle");
                vertex = parents[vertex as usize];
                assert_ne!(vertex, NONE, "a parent was reached");
            }
            for (above, vertex) in (levels[vertex as usize]..).zip(way.drain(..).rev()) {
                levels[vertex as usize] = above + 1;
            }
        }
        // 3 and 4: an edge joins levels that differ by at most one, or vertices that were not
        // reached. So the tree has all vertices of its component. 5: edges of the tree are edges.
        let mut is_edge = vec![false; parents.len()];
        is_edge[key as usize] = true;
        for (from, to) in &self.edges {
            let (above, below) = (levels[*from as usize], levels[*to as usize]);
            assert_eq!(above == NONE, below == NONE, "the tree leaves out a neighbor");
            assert!(above.abs_diff(below) <= 1, "an edge skips a level");
            is_edge[*to as usize] |= parents[*to as usize] == *from;
            is_edge[*from as usize] |= parents[*from as usize] == *to;
        }
        assert!(
            parents.iter().zip(is_edge).all(|(parent, is_edge)| *parent == NONE || is_edge),
            "an edge was invented"
        );
    }
}

/// Times searches from these keys. `search` returns how many edges this worker has searched. Checks
/// the parents that it leaves in `parents`, which go round robin.
fn time(
    me: &Worker,
    graph: Graph,
    keys: &[u32],
    parents: &GlobalArray<u32>,
    clock: &Clock<'_>,
    search: impl Fn(u32) -> farside::Result<u64>,
) -> farside::Result<()> {
    let alone = me.is_first().then(|| Alone::new(graph));
    let check = |round: u32| {
        me.barrier()?;
        if let Some(alone) = &alone {
            let key = keys[round as usize];
            let found: Vec<u32> =
                (0..alone.neighbors.len()).map(|vertex| parents.get(me, vertex)).collect::<Result<_, _>>()?;
            alone.check(key, &found);
            alone.check(key, &clock.alone(|| alone.search(key)));
        }
        Ok(())
    };
    clock.time(me, |round| search(keys[round as usize]), check)
}

/// Returns the edges of the vertices of this worker that a search has reached. Each vertex has this
/// number of rows of neighbors, and each edge two ends. The rules count them.
fn edges_of(reached: impl Iterator<Item = usize>, neighbors: &Rows, rows_of_vertex: usize) -> u64 {
    let rows = reached.flat_map(|vertex| vertex * rows_of_vertex..(vertex + 1) * rows_of_vertex);
    rows.map(|row| neighbors.row(row as u32).len() as u64).sum::<u64>() / 2
}

/// One word at a time: a worker claims vertices, and searches on from those that it was first to
/// claim.
pub(crate) fn agp(me: &Worker, numbers: [u32; 2], clock: &Clock<'_>) -> farside::Result<()> {
    let graph = Graph::new(me, clock.settings.seed, numbers);
    let own_edges = owned(me, graph.edges()).map(|number| graph.edge(number));
    let rows = distribute(me, graph.vertices, own_edges.flat_map(|(from, to)| [(from, to), (to, from)]))?;
    let neighbors = GlobalRows::new(me, &rows)?;
    let own = |at: u32| at * me.worker_count() + me.id().number();
    let keys = graph.keys(me, clock.rounds(), |at| rows.row(at).iter().any(|other| *other != own(at)))?;
    let parents = me.global_array_as::<u32>(graph.vertices as usize, Distribution::CYCLIC)?;
    let search = |key: u32| {
        parents.local(me).fill(NONE);
        me.barrier()?;
        let mut now = Vec::new();
        if place(me, key).0 == me.id() {
            parents.put(me, key as usize, key)?;
            now.push(key);
        }
        while me.all_reduce(now.len(), |a, b| a + b)? > 0 {
            let mut next = Vec::new();
            for vertex in now {
                for other in neighbors.row(me, vertex)? {
                    let other = other?;
                    let parent = parents.at(other as usize)?;
                    if parent.load(me)? == NONE && parent.compare_swap(me, NONE, vertex)? == NONE {
                        next.push(other);
                    }
                }
            }
            now = next;
        }
        let reached = parents.local(me).iter().enumerate().filter(|(_, parent)| *parent != NONE);
        Ok(edges_of(reached.map(|(vertex, _)| vertex), &rows, 1))
    };
    time(me, graph, &keys, &parents, clock, search)?;
    neighbors.free(me)?;
    parents.free(me)
}

/// Tells the neighbors of each level that they are the next one. A worker tells the owner of a
/// vertex once.
pub(crate) fn exchange(me: &Worker, numbers: [u32; 2], clock: &Clock<'_>) -> farside::Result<()> {
    let graph = Graph::new(me, clock.settings.seed, numbers);
    let (own_count, workers) = (owned(me, graph.vertices).len(), me.worker_count());
    let neighbors = neighbors(me, graph)?;
    let has_neighbor = |at: u32| {
        let is_other = |owner, other| (owner, other) != (me.id().number(), at);
        (0..workers).any(|owner| neighbors.row(at * workers + owner).iter().any(|other| is_other(owner, *other)))
    };
    let keys = graph.keys(me, clock.rounds(), has_neighbor)?;
    let parents: Rc<Vec<Cell<u32>>> = Rc::new((0..own_count).map(|_| Cell::new(NONE)).collect());
    let level = Rc::new(RefCell::new(Vec::new()));
    let (all, next) = (parents.clone(), level.clone());
    let reach = |parents: &[Cell<u32>], vertex: u32, parent: u32, next: &mut Vec<u32>| {
        let of_vertex = &parents[vertex as usize];
        if of_vertex.get() == NONE {
            of_vertex.set(parent);
            next.push(vertex);
        }
    };
    let all_parents = me.global_array_as::<u32>(graph.vertices as usize, Distribution::CYCLIC)?;
    let reaching = clock.exchange(me, move |_, reached: Items<'_, (u32, u32)>| {
        let mut next = next.borrow_mut();
        reached.for_each(|(vertex, parent)| reach(&all, vertex, parent, &mut next));
    })?;

    // A bit for each vertex of another worker, which may have one more than this one.
    let words_of_part = (own_count + 1).div_ceil(64);
    let told = RefCell::new(vec![vec![0_u64; words_of_part]; workers as usize]);
    let search = |key: u32| {
        parents.iter().for_each(|parent| parent.set(NONE));
        let mut was_told = told.borrow_mut();
        was_told.iter_mut().for_each(|words| words.fill(0));
        me.barrier()?;
        let (owner, vertex) = place(me, key);
        let mut now = Vec::new();
        if owner == me.id() {
            reach(&parents, vertex, key, &mut now);
        }
        while me.all_reduce(now.len(), |a, b| a + b)? > 0 {
            let tell = || {
                let sender = reaching.on(me);
                for vertex in &now {
                    let parent = vertex * workers + me.id().number();
                    for (owner, was_told) in (0..).map(WorkerId::new).zip(was_told.iter_mut()) {
                        let others = neighbors.row(vertex * workers + owner.number());
                        if owner == me.id() {
                            let (own, mut next) = (&parents[..], level.borrow_mut());
                            others.iter().for_each(|other| reach(own, *other, parent, &mut next));
                            continue;
                        }
                        let was_told = &mut was_told[..];
                        for other in others {
                            let (word, bit) = (&mut was_told[*other as usize / 64], 1 << (other % 64));
                            if *word & bit == 0 {
                                *word |= bit;
                                sender.push(owner, (*other, parent))?;
                            }
                        }
                    }
                }
                Ok(())
            };
            now = me.superstep(tell, || level.take())?;
        }
        // For the check.
        all_parents.local(me).write(0, &Vec::from_iter(parents.iter().map(Cell::get)));
        let reached = (0..own_count).filter(|vertex| parents[*vertex].get() != NONE);
        Ok(edges_of(reached, &neighbors, workers as usize))
    };
    time(me, graph, &keys, &all_parents, clock, search)?;
    all_parents.free(me)
}

/// Returns the neighbors of this worker's vertices: a row for each vertex and owner of neighbors.
fn neighbors(me: &Worker, graph: Graph) -> farside::Result<Rows> {
    let pairs = Rc::new(RefCell::new(Vec::new()));
    let arrived = pairs.clone();
    let exchange = Exchange::new(me, move |me, ends: Items<'_, (u32, u32)>| {
        arrived.borrow_mut().extend(ends.map(|(vertex, other)| {
            let (owner, other) = place(me, other);
            (vertex * me.worker_count() + owner.number(), other)
        }));
    })?;
    let sender = exchange.on(me);
    for number in owned(me, graph.edges()) {
        let (from, to) = graph.edge(number);
        for (vertex, other) in [(from, to), (to, from)] {
            let (owner, vertex) = place(me, vertex);
            sender.push(owner, (vertex, other))?;
        }
    }
    me.quiesce()?;
    let rows = owned(me, graph.vertices).len() * me.worker_count() as usize;
    Ok(Rows::new(rows, &pairs.take()))
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn each_check_finds_a_wrong_tree() {
        // A way from 0 to 4 with a branch to 5, and another component.
        let edges = vec![(0, 1), (1, 2), (2, 3), (3, 4), (1, 5), (6, 7)];
        let both: Vec<_> = edges.iter().flat_map(|(from, to)| [(*from, *to), (*to, *from)]).collect();
        let alone = Alone { edges, neighbors: Rows::new(8, &both) };
        let right = alone.search(0);
        assert_eq!(right, [0, 0, 1, 2, 3, 1, NONE, NONE]);
        alone.check(0, &right);
        let wrong: [(&[(usize, u32)], &str); 7] = [
            (&[(0, 1)], "own parent"),
            (&[(2, 3), (3, 2)], "cycle"),
            (&[(1, NONE)], "parent was reached"),
            (&[(4, NONE)], "leaves out a neighbor"),
            (&[(6, 0), (7, 6)], "invented"),
            (&[(5, 4)], "skips a level"),
            (&[(5, 0)], "invented"),
        ];
        for (changes, why) in wrong {
            let mut parents = right.clone();
            changes.iter().for_each(|(vertex, parent)| parents[*vertex] = *parent);
            let panic = catch_unwind(AssertUnwindSafe(|| alone.check(0, &parents))).unwrap_err();
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap();
            assert!(text.contains(why), "{changes:?}: {text}");
        }
    }
}
