//! Counting the triangles of a graph (bale's *triangles*). Row *i* of the matrix L has the
//! neighbors of vertex *i* with smaller numbers. The count is the sum of the entries of L & L·L.

use std::cell::Cell;
use std::rc::Rc;

use farside::prelude::*;
use farside_containers::Items;

use super::common::{Clock, owned, place};
use super::matrix::{GlobalRows, Rows, random_row};

/// A random graph, and next to it a graph whose triangles are known: the Kronecker product of
/// stars, each with a loop at its center, without the loop of the product.
struct Graph {
    seed: u32,
    random: u32,
    neighbors: u32,
}

/// The leaves of each star.
const STARS: [u32; 3] = [3, 4, 5];

impl Graph {
    fn vertices(&self) -> u32 {
        self.random + STARS.iter().map(|leaves| leaves + 1).product::<u32>()
    }

    /// The neighbors of a vertex with smaller numbers, in order.
    fn row(&self, vertex: u32) -> impl Iterator<Item = u32> {
        let random = random_row(self.seed, vertex.min(self.random), self.random, self.neighbors);
        let is_random = vertex < self.random;
        let others = (self.random..vertex).filter(move |other| are_joined(vertex - self.random, other - self.random));
        random.filter(move |_| is_random).chain(others)
    }

    /// Counts the triangles as one thread does it.
    fn count_alone(rows: &Rows) -> u64 {
        let (mut seen_by, mut count) = (vec![u32::MAX; rows.len()], 0);
        for (vertex, row) in (0..).zip(rows.iter()) {
            row.iter().for_each(|other| seen_by[*other as usize] = vertex);
            let corners = row.iter().flat_map(|other| rows.row(*other));
            count += corners.filter(|corner| seen_by[**corner as usize] == vertex).count() as u64;
        }
        count
    }
}

/// Returns whether two vertices of the product are neighbors: in each star both are the center, or
/// one is.
fn are_joined(mut a: u32, mut b: u32) -> bool {
    STARS.iter().all(|leaves| {
        let ends = (a % (leaves + 1), b % (leaves + 1));
        (a, b) = (a / (leaves + 1), b / (leaves + 1));
        ends.0 == 0 || ends.1 == 0
    })
}

/// The triangles of the product: a sixth of its closed walks of three steps that avoid the loop. A
/// star has one such walk that stays at the center, and three for each leaf. The walks that use
/// the loop of the product do so once, to and from one of the other neighbors, or three times.
fn triangles_of_product() -> u64 {
    let walks: u32 = STARS.iter().map(|leaves| 3 * leaves + 1).product();
    let neighbors = STARS.iter().map(|leaves| leaves + 1).product::<u32>() - 1;
    u64::from((walks - 3 * neighbors - 1) / 6)
}

/// Times the rounds of `count`, which counts the triangles that this worker finds. Checks the sum.
fn time(
    me: &Worker,
    graph: &Graph,
    clock: &Clock<'_>,
    count: impl Fn() -> farside::Result<u64>,
) -> farside::Result<()> {
    let all = (me.id() == WorkerId::new(0)).then(|| Rows::from_rows((0..graph.random).map(|vertex| graph.row(vertex))));
    let found = Cell::new(0);
    let work = |_| {
        found.set(me.all_reduce(count()?, |a, b| a + b)?);
        Ok(u64::from(graph.random / me.worker_count()))
    };
    let check = |_| {
        if let Some(rows) = &all {
            assert_eq!(found.get(), clock.alone(|| Graph::count_alone(rows)) + triangles_of_product());
        }
        Ok(())
    };
    clock.time(me, work, check)
}

fn graph(me: &Worker, seed: u32, [vertices, neighbors]: [u32; 2]) -> (Graph, Rows) {
    let graph = Graph { seed, random: vertices * me.worker_count(), neighbors };
    let rows = Rows::from_rows(owned(me, graph.vertices()).map(|vertex| graph.row(vertex)));
    (graph, rows)
}

/// One word at a time: a worker reads the rows of the neighbors of its vertices.
pub(crate) fn agp(me: &Worker, numbers: [u32; 2], clock: &Clock<'_>) -> farside::Result<()> {
    let (graph, rows) = graph(me, clock.settings.seed, numbers);
    let all_rows = GlobalRows::new(me, &rows)?;
    let count = || {
        let mut found = 0;
        for row in rows.iter() {
            for other in row {
                for corner in all_rows.row(me, *other)? {
                    found += u64::from(row.contains(&corner?));
                }
            }
        }
        Ok(found)
    };
    time(me, &graph, clock, count)?;
    all_rows.free(me)
}

/// With an exchange: for each two neighbors of a vertex, the owner of the larger one looks whether
/// they are neighbors.
pub(crate) fn exchange(me: &Worker, numbers: [u32; 2], clock: &Clock<'_>) -> farside::Result<()> {
    let (graph, rows) = graph(me, clock.settings.seed, numbers);
    let (rows, found) = (Rc::new(rows), Rc::new(Cell::new(0)));
    let (own, sum) = (rows.clone(), found.clone());
    let looking = clock.exchange(me, move |_, pairs: Items<'_, (u32, u32)>| {
        let closed = pairs.filter(|(place, smaller)| own.row(*place).contains(smaller));
        sum.set(sum.get() + closed.count() as u64);
    })?;
    let count = || {
        let sender = looking.on(me);
        for row in rows.iter() {
            for (at, larger) in row.iter().enumerate() {
                let (owner, place) = place(me, *larger);
                if owner == me.id() {
                    let of_larger = rows.row(place);
                    let closed = row[..at].iter().filter(|smaller| of_larger.contains(smaller));
                    found.set(found.get() + closed.count() as u64);
                    continue;
                }
                for smaller in &row[..at] {
                    sender.push(owner, (place, *smaller))?;
                }
            }
        }
        me.quiesce()?;
        Ok(found.take())
    };
    time(me, &graph, clock, count)
}
