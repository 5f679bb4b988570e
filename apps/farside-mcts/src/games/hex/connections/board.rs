//! A board as points, and their adjacency.

use super::super::Cell;
use super::super::cell_set::CellSet;

/// An end of a connection. The numbers are those of the empty cells, in order, then both edges,
/// then chains of adjacent stones. A chain that touches an edge is part of it.
pub(super) type Point = u16;

/// The board for a player that joins the first row with the last.
pub(super) struct Board {
    /// The empty cells, by their points.
    pub(super) cells: Vec<Cell>,
    pub(super) point_count: usize,
    /// Pairs of adjacent points; some occur more than once.
    pub(super) adjacent: Vec<(Point, Point)>,
}

/// The distance of two cells in columns and rows.
type Offset = (isize, isize);

/// The offsets of three neighbours; those of the other three are opposite.
const FORWARD: [Offset; 3] = [(1, 0), (0, 1), (-1, 1)];
const BACKWARD: [Offset; 3] = [(-1, 0), (0, -1), (1, -1)];

fn step(from: Cell, (columns, rows): Offset, size: usize) -> Option<Cell> {
    let column = from.column().checked_add_signed(columns)?;
    let row = from.row().checked_add_signed(rows)?;
    if column < size && row < size { Cell::new(column, row) } else { None }
}

impl Board {
    pub(super) fn new(size: usize, stones: CellSet, empty: CellSet) -> Self {
        let cells: Vec<Cell> = empty.iter().collect();
        let mut board = Self { point_count: cells.len() + 2, cells, adjacent: Vec::new() };
        let mut points = [None; 256];
        for (cell, point) in board.cells.iter().zip(0..) {
            points[cell.index()] = Some(point);
        }
        for stone in stones.iter() {
            if points[stone.index()].is_none() {
                board.add_chain(stone, size, stones, &mut points);
            }
        }
        let point_of = |cell: Cell| points[cell.index()];
        for cell in empty.or(stones).iter() {
            let this = point_of(cell).expect("stones and empty cells have points");
            let edges = board.edges();
            let first = (cell.row() == 0).then_some(edges[0]);
            let last = (cell.row() == size - 1).then_some(edges[1]);
            let others = FORWARD.into_iter().filter_map(|offset| step(cell, offset, size)).filter_map(point_of);
            board.adjacent.extend(first.into_iter().chain(last).chain(others).map(|other| (this, other)));
        }
        board.adjacent.retain(|(one, other)| one != other);
        board
    }

    /// Returns the first and the last edge.
    pub(super) fn edges(&self) -> [Point; 2] {
        let first = self.cells.len() as Point;
        [first, first + 1]
    }

    /// Makes one point of a stone and all stones connected to it.
    fn add_chain(&mut self, stone: Cell, size: usize, stones: CellSet, points: &mut [Option<Point>; 256]) {
        let [first_edge, last_edge] = self.edges();
        let mut chain = self.point_count as Point;
        let mut members = vec![stone];
        points[stone.index()] = Some(chain);
        let mut next = 0;
        while let Some(&member) = members.get(next) {
            next += 1;
            if member.row() == 0 {
                chain = first_edge;
            } else if member.row() == size - 1 {
                chain = last_edge;
            }
            for neighbour in FORWARD.into_iter().chain(BACKWARD).filter_map(|offset| step(member, offset, size)) {
                if stones.contains(neighbour) && points[neighbour.index()].is_none() {
                    points[neighbour.index()] = Some(chain);
                    members.push(neighbour);
                }
            }
        }
        for member in members {
            points[member.index()] = Some(chain);
        }
        self.point_count += usize::from(chain > last_edge);
    }
}
