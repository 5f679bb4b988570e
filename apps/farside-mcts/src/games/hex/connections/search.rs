//! The search for connections.

use std::mem;

use super::Prospect;
use super::board::{Board, Point};
use super::carrier::Carrier;
use crate::games::hex::cell_set::CellSet;

/// Maximum number of full connections for two ends.
const FULLS_MAX: usize = 4;
/// Maximum number of semi connections for two ends.
const SEMIS_MAX: usize = 8;
/// Maximum number of semi connections that the or-rule combines.
const CHOICES_MAX: u32 = 4;
/// Maximum number of pairs of full connections that the and-rule tries. Few positions on 6 × 6 take
/// 10,000.
const TRIES_MAX: usize = 20_000;

/// The goal of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// A semi connection from edge to edge.
    Semi,
    /// A full connection from edge to edge.
    Full,
}

/// The connections found on a board so far.
///
/// A full connection is *found*, waits, and is *settled* once the and-rule has combined it with all
/// settled ones. Those with the smallest carriers come first: they often form or supersede larger
/// ones.
pub(super) struct Search<'a, const W: usize> {
    board: &'a Board,
    /// Number of the record of each two points, from 1; 0 for none.
    records: Vec<u32>,
    known: Vec<Known<W>>,
    /// Full connections that wait, by the size of their carriers.
    waiting: Vec<Vec<Full<W>>>,
    /// Lower bound for the size of the carriers that wait.
    smallest: usize,
    /// Settled full connections of each point, with their other ends.
    settled: Vec<Vec<(Point, Carrier<W>)>>,
    tries: usize,
    /// Intersection of all semi connections from edge to edge; empty if there is a full one.
    common: Option<Carrier<W>>,
}

/// Minimal carriers of connections between two points: none contains another, and no semi
/// connection contains a full one.
struct Known<const W: usize> {
    fulls: Vec<Carrier<W>>,
    semis: Vec<Carrier<W>>,
}

#[derive(Clone, Copy)]
struct Full<const W: usize> {
    ends: [Point; 2],
    carrier: Carrier<W>,
}

impl<'a, const W: usize> Search<'a, W> {
    pub(super) fn new(board: &'a Board) -> Self {
        let count = board.point_count;
        Self {
            board,
            records: vec![0; count * count],
            known: Vec::new(),
            waiting: vec![Vec::new(); board.cells.len() + 1],
            smallest: 0,
            settled: vec![Vec::new(); count],
            tries: 0,
            common: None,
        }
    }

    /// Searches until the goal or the limit is reached, or nothing is left to combine.
    pub(super) fn run(mut self, until: Until) -> Prospect {
        for &(one, other) in &self.board.adjacent {
            self.add_full([one, other], Carrier::EMPTY);
        }
        while let Some(full) = self.next_waiting() {
            self.settle(full);
            let enough = self.common.is_some_and(|common| until == Until::Semi || common.is_empty());
            if enough || self.tries >= TRIES_MAX {
                break;
            }
        }
        match self.common {
            None => Prospect::Open,
            Some(common) if common.is_empty() => Prospect::Won,
            Some(common) => {
                let mut cells = CellSet::EMPTY;
                let points = self.board.cells.iter().zip(0..).filter(|&(_, point)| common.contains(point));
                points.for_each(|(&cell, _)| cells.insert(cell));
                Prospect::Threat(cells)
            }
        }
    }

    /// Removes and returns a smallest connection that waits and was not superseded.
    fn next_waiting(&mut self) -> Option<Full<W>> {
        while self.smallest < self.waiting.len() {
            match self.waiting[self.smallest].pop() {
                None => self.smallest += 1,
                Some(full) if self.known(full.ends).fulls.contains(&full.carrier) => return Some(full),
                Some(_) => {}
            }
        }
        None
    }

    /// Applies the and-rule to a full connection and all settled ones.
    fn settle(&mut self, Full { ends: [one, other], carrier }: Full<W>) {
        for (end, middle) in [(one, other), (other, one)] {
            if self.board.edges().contains(&middle) {
                continue;
            }
            let settled = mem::take(&mut self.settled[usize::from(middle)]);
            self.tries += settled.len();
            for &(far_end, far_carrier) in &settled {
                let is_apart = far_end != end && !carrier.contains(far_end) && !far_carrier.contains(end);
                if is_apart && carrier.is_disjoint(far_carrier) {
                    self.join([end, far_end], middle, carrier.or(far_carrier));
                }
            }
            self.settled[usize::from(middle)] = settled;
        }
        self.settled[usize::from(one)].push((other, carrier));
        self.settled[usize::from(other)].push((one, carrier));
    }

    fn join(&mut self, ends: [Point; 2], middle: Point, carrier: Carrier<W>) {
        if usize::from(middle) < self.board.cells.len() {
            self.add_semi(ends, carrier.with(middle));
        } else {
            self.add_full(ends, carrier);
        }
    }

    fn add_semi(&mut self, ends: [Point; 2], carrier: Carrier<W>) {
        if self.joins_edges(ends) {
            // The or-rule needs no record here, since the intersection includes all semi
            // connections.
            self.common = Some(self.common.map_or(carrier, |common| common.and(carrier)));
            return;
        }
        let known = self.known(ends);
        if known.fulls.iter().chain(&known.semis).any(|smaller| smaller.is_subset(carrier)) {
            return;
        }
        known.semis.retain(|larger| !carrier.is_subset(*larger));
        if known.semis.len() == SEMIS_MAX {
            return;
        }
        let mut found = Vec::new();
        choose(&known.semis, carrier, carrier, CHOICES_MAX - 1, &mut found);
        known.semis.push(carrier);
        for full in found {
            self.add_full(ends, full);
        }
    }

    fn add_full(&mut self, ends: [Point; 2], carrier: Carrier<W>) {
        if self.joins_edges(ends) {
            self.common = Some(Carrier::EMPTY);
            return;
        }
        let known = self.known(ends);
        if known.fulls.iter().any(|smaller| smaller.is_subset(carrier)) {
            return;
        }
        known.fulls.retain(|larger| !carrier.is_subset(*larger));
        if known.fulls.len() == FULLS_MAX {
            return;
        }
        known.fulls.push(carrier);
        known.semis.retain(|larger| !carrier.is_subset(*larger));
        self.waiting[carrier.len()].push(Full { ends, carrier });
        self.smallest = self.smallest.min(carrier.len());
    }

    fn joins_edges(&self, [one, other]: [Point; 2]) -> bool {
        let edges = self.board.edges();
        edges.contains(&one) && edges.contains(&other)
    }

    /// Returns the record of two points.
    fn known(&mut self, [one, other]: [Point; 2]) -> &mut Known<W> {
        let number =
            &mut self.records[usize::from(one.min(other)) * self.board.point_count + usize::from(one.max(other))];
        if *number == 0 {
            self.known.push(Known { fulls: Vec::new(), semis: Vec::new() });
            *number = self.known.len() as u32;
        }
        &mut self.known[*number as usize - 1]
    }
}

/// Applies the or-rule: adds to `found` the unions of `all` with up to `most` semi connections
/// whose intersection with `common` is empty. Each of them must make the intersection smaller.
fn choose<const W: usize>(
    semis: &[Carrier<W>],
    common: Carrier<W>,
    all: Carrier<W>,
    most: u32,
    found: &mut Vec<Carrier<W>>,
) {
    for (index, &semi) in semis.iter().enumerate() {
        let less = common.and(semi);
        if less.is_empty() {
            found.push(all.or(semi));
        } else if less != common && most > 1 {
            choose(&semis[index + 1..], less, all.or(semi), most - 1, found);
        }
    }
}
