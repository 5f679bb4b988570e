//! Connections that hold whoever moves: a small part of Anshelevich's H-search.
//!
//! Two stones that share two empty neighbours form a *bridge*: if the opponent takes one of the two cells, the other
//! joins the stones. Whole chains from edge to edge are made of such links, so a game is often decided long before it
//! is over, and before that there are few moves that put it off. This module finds out, from a player's stones:
//!
//! - a **full** connection holds although the opponent moves next. The cells that it needs are its *carrier*;
//! - a **semi** connection holds if its owner moves next. An opponent who is to move must play inside its carrier, and
//!   if there are several, inside all of them. Semis between the same ends with no cell in common make a full one.
//!
//! Full connections are grown from each edge, over bridges, and over semis that have no cell in common, to chains of
//! stones and to empty cells (as if a stone lay there). Semis from edge to edge are sought where both growths meet in an
//! empty cell. Of several carriers of a connection only the first found is kept. So what is found holds, but not
//! everything is found.

use std::ops::Range;

use super::cell_set::CellSet;
use super::flood::transposed;
use super::{Cell, Position};
use crate::game::Player;

/// How close a player is to joining his edges, when the opponent is to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prospect {
    /// Nothing is certain.
    Open,
    /// He wins unless the opponent plays on one of these cells now.
    Threat(CellSet),
    /// He wins whatever the opponent does.
    Won,
}

/// What `player`, who has not yet won, can count on.
pub(super) fn prospect(position: &Position, player: Player) -> Prospect {
    let size = position.size();
    // Each stone, and each move, bridges two rows; the edges one each.
    let rows_bridged = 2 * (position.stones_of(player).len() as usize + 1) + 1;
    if rows_bridged < size {
        return Prospect::Open;
    }
    match player {
        Player::First => Board::new(size, position.stones_of(player), position.empty_set()).prospect(),
        Player::Second => {
            let turned = |set: CellSet| {
                let columns = transposed(set.rows());
                CellSet::from_rows(|row| columns[row])
            };
            let (stones, empty) = (turned(position.stones_of(player)), turned(position.empty_set()));
            match Board::new(size, stones, empty).prospect() {
                Prospect::Threat(carrier) => Prospect::Threat(turned(carrier)),
                certain => certain,
            }
        }
    }
}

/// The board from the point of view of a player who joins the first row with the last.
struct Board {
    size: usize,
    empty: CellSet,
    /// The chain of each stone.
    chains: [Option<Chain>; 256],
    chain_count: usize,
    /// Links from chain to chain.
    links: Vec<(Chain, Link)>,
    joints: Vec<Joint>,
    /// The links of all joints.
    touches: Vec<Link>,
    hops: Vec<Hop>,
}

/// An empty cell, with the links that a stone there would have to chains and to stones on other empty cells.
struct Joint {
    cell: Cell,
    touches: Range<usize>,
    hops: Range<usize>,
}

/// Stones that hang together by adjacency, or an edge with all stones that touch it.
type Chain = u8;

const FIRST_EDGE: Chain = 0;
const LAST_EDGE: Chain = 1;

/// To a chain: over the two cells of a bridge, or over none if adjacent.
#[derive(Clone, Copy)]
struct Link {
    chain: Chain,
    over: CellSet,
}

/// To an empty cell, in the same way.
#[derive(Clone, Copy)]
struct Hop {
    to: Cell,
    over: CellSet,
}

/// The carriers of full connections with an edge, where there are any.
struct Reach {
    chains: Vec<Option<CellSet>>,
    /// For each empty cell, of a stone that would lie there.
    cells: [Option<CellSet>; 256],
}

/// By how many columns and rows one cell lies from another.
type Offset = (isize, isize);

/// The offsets of the six neighbours, in turning order: one and the next are adjacent, and their sum is the far end of
/// the bridge over both.
const AROUND: [Offset; 6] = [(1, 0), (0, 1), (-1, 1), (-1, 0), (0, -1), (1, -1)];

fn step(from: Cell, (columns, rows): Offset, size: usize) -> Option<Cell> {
    let column = from.column().checked_add_signed(columns)?;
    let row = from.row().checked_add_signed(rows)?;
    if column < size && row < size { Cell::new(column, row) } else { None }
}

fn neighbours(cell: Cell, size: usize) -> impl Iterator<Item = Cell> {
    AROUND.into_iter().filter_map(move |offset| step(cell, offset, size))
}

impl Board {
    fn new(size: usize, stones: CellSet, empty: CellSet) -> Self {
        let mut board = Self {
            size,
            empty,
            chains: [None; 256],
            chain_count: 2,
            links: Vec::new(),
            joints: Vec::new(),
            touches: Vec::new(),
            hops: Vec::new(),
        };
        for stone in stones.iter() {
            if board.chains[stone.index()].is_none() {
                board.label_chain(stone, stones);
            }
        }
        for cell in empty.iter() {
            let (first, first_hop) = (board.touches.len(), board.hops.len());
            board.add_adjacent(cell, first);
            board.add_bridges(cell, first);
            board.joints.push(Joint { cell, touches: first..board.touches.len(), hops: first_hop..board.hops.len() });
        }
        for stone in stones.iter() {
            let (first, first_hop) = (board.touches.len(), board.hops.len());
            board.add_bridges(stone, first);
            board.hops.truncate(first_hop);
            let chain = board.chains[stone.index()].expect("a stone is in a chain");
            for link in board.touches.drain(first..).filter(|link| link.chain != chain) {
                board.links.push((chain, link));
                board.links.push((link.chain, Link { chain, ..link }));
            }
        }
        board
    }

    fn label_chain(&mut self, stone: Cell, stones: CellSet) {
        let mut chain = self.chain_count as Chain;
        let mut members = vec![stone];
        self.chains[stone.index()] = Some(chain);
        let mut next = 0;
        while next < members.len() {
            let member = members[next];
            next += 1;
            if member.row() == 0 {
                chain = FIRST_EDGE;
            } else if member.row() == self.size - 1 {
                chain = LAST_EDGE;
            }
            for neighbour in neighbours(member, self.size) {
                if stones.contains(neighbour) && self.chains[neighbour.index()].is_none() {
                    self.chains[neighbour.index()] = Some(chain);
                    members.push(neighbour);
                }
            }
        }
        for member in members {
            self.chains[member.index()] = Some(chain);
        }
        if chain > LAST_EDGE {
            self.chain_count += 1;
        }
    }

    /// Adds the chains that are adjacent to a cell to the touches from `first` on.
    fn add_adjacent(&mut self, cell: Cell, first: usize) {
        let over = CellSet::EMPTY;
        if cell.row() == 0 {
            self.touches.push(Link { chain: FIRST_EDGE, over });
        }
        if cell.row() == self.size - 1 {
            self.touches.push(Link { chain: LAST_EDGE, over });
        }
        for neighbour in neighbours(cell, self.size) {
            if self.empty.contains(neighbour) {
                self.hops.push(Hop { to: neighbour, over });
            } else if let Some(chain) = self.chains[neighbour.index()]
                && self.touches[first..].iter().all(|known| known.chain != chain)
            {
                self.touches.push(Link { chain, over });
            }
        }
    }

    /// Adds the bridges from a cell to chains that are not adjacent.
    fn add_bridges(&mut self, cell: Cell, first: usize) {
        let adjacent = self.touches.len();
        for turn in 0..6 {
            let (one, other) = (AROUND[turn], AROUND[(turn + 1) % 6]);
            let (Some(a), Some(b)) = (step(cell, one, self.size), step(cell, other, self.size)) else {
                continue;
            };
            if !(self.empty.contains(a) && self.empty.contains(b)) {
                continue;
            }
            let over = CellSet::EMPTY.with(a).with(b);
            let far_end = step(cell, (one.0 + other.0, one.1 + other.1), self.size);
            let chain = match far_end {
                Some(end) => self.chains[end.index()],
                // Off the board beyond the first or last row lies the edge, which is as good as a stone.
                None if a.row() == 0 && b.row() == 0 => Some(FIRST_EDGE),
                None if a.row() == self.size - 1 && b.row() == self.size - 1 => Some(LAST_EDGE),
                None => None,
            };
            if let Some(chain) = chain
                && self.touches[first..adjacent].iter().all(|known| known.chain != chain)
            {
                self.touches.push(Link { chain, over });
            } else if let Some(to) = far_end.filter(|&end| self.empty.contains(end)) {
                self.hops.push(Hop { to, over });
            }
        }
    }

    fn prospect(&self) -> Prospect {
        let from_first = self.reach(FIRST_EDGE);
        if from_first.chains[LAST_EDGE as usize].is_some() {
            return Prospect::Won;
        }
        let from_last = self.reach(LAST_EDGE);
        let mut semi = Semi::none(self.empty);
        for joint in &self.joints {
            for one in self.ways(joint, &from_first) {
                for other in self.ways(joint, &from_last).filter(|other| one.is_disjoint(*other)) {
                    semi.add(one.or(other).with(joint.cell));
                }
            }
        }
        match semi {
            Semi { common, .. } if common.is_empty() => Prospect::Won,
            Semi { all, .. } if all.is_empty() => Prospect::Open,
            Semi { common, .. } => Prospect::Threat(common),
        }
    }

    /// The carriers by which a stone on an empty cell would hang on to the edge.
    fn ways(&self, joint: &Joint, reach: &Reach) -> impl Iterator<Item = CellSet> {
        let direct = self.touches[joint.touches.clone()].iter().filter_map(|link| link.extend(reach, joint.cell));
        direct.chain(reach.cells[joint.cell.index()])
    }

    /// Grows full connections from an edge until no more are found.
    fn reach(&self, edge: Chain) -> Reach {
        let mut reach = Reach { chains: vec![None; self.chain_count], cells: [None; 256] };
        reach.chains[edge as usize] = Some(CellSet::EMPTY);
        loop {
            while self.extend_by_bridge(&mut reach) {}
            self.extend_to_cells(&mut reach);
            if !self.extend_by_choice(&mut reach) {
                return reach;
            }
        }
    }

    /// Reaches one more chain over a bridge.
    fn extend_by_bridge(&self, reach: &mut Reach) -> bool {
        for (chain, link) in &self.links {
            if let (Some(carrier), None) = (reach.chains[*chain as usize], reach.chains[link.chain as usize])
                && carrier.is_disjoint(link.over)
            {
                reach.chains[link.chain as usize] = Some(carrier.or(link.over));
                return true;
            }
        }
        false
    }

    /// Reaches empty cells: those next to what is reached, then those that have semis over others.
    fn extend_to_cells(&self, reach: &mut Reach) {
        for joint in &self.joints {
            let shortest = self.ways(joint, reach).min_by_key(|carrier| carrier.len());
            reach.cells[joint.cell.index()] = shortest;
        }
        let mut grows = true;
        while std::mem::take(&mut grows) {
            for joint in self.joints.iter().filter(|joint| joint.hops.len() > 1) {
                if reach.cells[joint.cell.index()].is_some() {
                    continue;
                }
                let mut semi = Semi::none(self.empty);
                for hop in &self.hops[joint.hops.clone()] {
                    if let Some(carrier) = reach.cells[hop.to.index()]
                        && carrier.is_disjoint(hop.over)
                        && !carrier.contains(joint.cell)
                    {
                        semi.add(carrier.or(hop.over).with(hop.to));
                    }
                }
                if semi.common.is_empty() {
                    reach.cells[joint.cell.index()] = Some(semi.all);
                    grows = true;
                }
            }
        }
    }

    /// Reaches one more chain that has semis over different empty cells, no cell common to all.
    fn extend_by_choice(&self, reach: &mut Reach) -> bool {
        if reach.chains.iter().all(Option::is_some) {
            return false;
        }
        let mut semis = vec![Semi::none(self.empty); self.chain_count];
        for joint in &self.joints {
            let touches = &self.touches[joint.touches.clone()];
            for link in touches.iter().filter(|link| reach.chains[link.chain as usize].is_none()) {
                for carrier in self.ways(joint, reach).filter(|carrier| carrier.is_disjoint(link.over)) {
                    semis[link.chain as usize].add(carrier.or(link.over).with(joint.cell));
                }
            }
        }
        let full = semis.iter().position(|semi| semi.common.is_empty());
        if let Some(chain) = full {
            reach.chains[chain] = Some(semis[chain].all);
        }
        full.is_some()
    }
}

impl Link {
    /// The carrier by which a stone on `cell` would hang on to the edge over this link.
    fn extend(&self, reach: &Reach, cell: Cell) -> Option<CellSet> {
        let carrier = reach.chains[self.chain as usize]?;
        (carrier.is_disjoint(self.over) && !carrier.contains(cell)).then(|| carrier.or(self.over))
    }
}

/// Semi connections between the same two ends.
#[derive(Clone, Copy)]
struct Semi {
    /// The cells that are in every carrier.
    common: CellSet,
    /// Those of the carriers that made `common` smaller.
    all: CellSet,
}

impl Semi {
    fn none(empty: CellSet) -> Self {
        Self { common: empty, all: CellSet::EMPTY }
    }

    fn add(&mut self, carrier: CellSet) {
        let common = self.common.and(carrier);
        if common != self.common {
            self.common = common;
            self.all = self.all.or(carrier);
        }
    }
}
