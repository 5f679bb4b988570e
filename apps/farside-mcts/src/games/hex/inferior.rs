//! Inferior cells: cells that no longer matter, and moves that the search can skip.
//!
//! A cell is **dead** if no completion of the board depends on it. That holds if its neighbours, in
//! every completion, form at most one run of each colour around it: a stone there joins nothing
//! that is not joined without it. A player **captures** two adjacent cells if its stone on either
//! kills the other: wherever the opponent intrudes, the reply leaves a dead stone. The winner stays
//! the same if captured cells get their owner's stones, and dead cells any stones (van Rijswijck,
//! *Set colouring games*, 2006).
//!
//! The search can skip two kinds of moves:
//!
//! - a **vulnerable** move, which a reply would kill. The reply would then be a free stone of the
//!   opponent. So if the vulnerable move wins, the mover wins even against that free stone, by
//!   another move. If that move is vulnerable too, the argument repeats with one more free stone.
//!   It ends at a move that is not vulnerable, since the number of cells is finite.
//! - a **dominated** move, which another move would kill or capture: the other move gains both
//!   cells.

use super::flood::MAX_SIZE;
use super::{Cell, Position};
use crate::game::Player;

/// The content of a cell.
type Colour = u16;

const EMPTY: Colour = 0;

const fn colour(player: Player) -> Colour {
    player as Colour + 1
}

/// The colours of the six neighbours of a cell in turning order, as a number of base 3.
type Ring = u16;

/// The value of each digit.
const UNIT: [Ring; 6] = [1, 3, 9, 27, 81, 243];

/// For each ring, whether the cell inside it is dead.
static DEAD: [bool; 729] = {
    let mut dead = [false; 729];
    let mut ring = 0;
    while ring < dead.len() {
        dead[ring] = is_dead(ring as Ring);
        ring += 1;
    }
    dead
};

const fn digit(ring: Ring, turn: usize) -> Colour {
    ring / UNIT[turn % 6] % 3
}

const fn is_dead(ring: Ring) -> bool {
    let mut turn = 0;
    let mut changes = 0;
    while turn < 6 {
        if digit(ring, turn) == EMPTY {
            return is_dead(ring + UNIT[turn]) && is_dead(ring + 2 * UNIT[turn]);
        }
        changes += (digit(ring, turn) != digit(ring, turn + 1)) as u32;
        turn += 1;
    }
    changes <= 2
}

/// Returns the position with stones on all cells found dead or captured. Both have the same winner.
pub(super) fn filled(position: &Position) -> Position {
    let mut grid = Grid::new(position);
    let mut filled = *position;
    let empty = position.empty_cells().map(place_of).collect();
    for place in grid.fill(empty, &[Player::First, Player::Second]) {
        let is_black = grid.colours[place] == colour(Player::First);
        filled.add_stone(cell_at(place), if is_black { Player::First } else { Player::Second });
    }
    filled
}

/// Returns the empty cells without inferior moves. If any move wins, so does one of these.
pub(super) fn worthwhile_moves(position: &Position) -> Vec<Cell> {
    let mover = position.to_move();
    let mut grid = Grid::new(position);
    let mut places: Vec<usize> = position.empty_cells().map(place_of).collect();
    places.retain(|&place| !grid.is_vulnerable(place, mover));
    let mut next = 0;
    while let Some(&place) = places.get(next) {
        let dominated = grid.gained_by(place, mover);
        places.retain(|other| !dominated.contains(other));
        // Some of the removed moves may have come before it.
        next = places.iter().position(|&other| other == place).expect("no move dominates itself") + 1;
    }
    places.into_iter().map(cell_at).collect()
}

/// A board with a margin that has the colours of its edges.
struct Grid {
    size: usize,
    colours: [Colour; WIDTH * WIDTH],
}

const WIDTH: usize = MAX_SIZE + 2;

/// Offsets from a place to its neighbours, in turning order.
const AROUND: [isize; 6] = [1, WIDTH as isize, WIDTH as isize - 1, -1, -(WIDTH as isize), 1 - WIDTH as isize];

fn place_of(cell: Cell) -> usize {
    (cell.row() + 1) * WIDTH + cell.column() + 1
}

fn cell_at(place: usize) -> Cell {
    Cell::new(place % WIDTH - 1, place / WIDTH - 1).expect("the margin has no empty places")
}

impl Grid {
    fn new(position: &Position) -> Self {
        let size = position.size();
        let mut grid = Self { size, colours: [EMPTY; WIDTH * WIDTH] };
        for along in 0..size + 2 {
            for side in [0, size + 1] {
                grid.colours[along * WIDTH + side] = colour(Player::Second);
                // The corners become black. Their colour does not matter: each touches one cell,
                // which touches both edges.
                grid.colours[side * WIDTH + along] = colour(Player::First);
            }
        }
        for player in [Player::First, Player::Second] {
            for stone in position.stones_of(player).iter() {
                grid.colours[place_of(stone)] = colour(player);
            }
        }
        grid
    }

    /// Returns the places that a stone on an empty place would kill or capture.
    fn gained_by(&mut self, place: usize, player: Player) -> Vec<usize> {
        self.colours[place] = colour(player);
        let gained = self.fill(self.neighbours(place).collect(), &[player]);
        for &place in gained.iter().chain([&place]) {
            self.colours[place] = EMPTY;
        }
        gained
    }

    /// Fills the dead and captured places among `suspects`, and those that become so. Returns the
    /// filled places.
    fn fill(&mut self, mut suspects: Vec<usize>, captors: &[Player]) -> Vec<usize> {
        let mut filled = Vec::new();
        while let Some(place) = suspects.pop() {
            if self.colours[place] != EMPTY {
                continue;
            }
            let first = filled.len();
            if DEAD[self.ring(place) as usize] {
                self.colours[place] = colour(captors[0]);
                filled.push(place);
            } else if let Some((other, captor)) = self.captured_with(place, captors) {
                self.colours[place] = colour(captor);
                self.colours[other] = colour(captor);
                filled.extend([place, other]);
            }
            for &place in &filled[first..] {
                suspects.extend(self.neighbours(place));
            }
        }
        filled
    }

    /// Returns a neighbour that is captured together with an empty place, and the captor.
    fn captured_with(&self, place: usize, captors: &[Player]) -> Option<(usize, Player)> {
        let ring = self.ring(place);
        (0..6).filter(|&turn| digit(ring, turn) == EMPTY).find_map(|turn| {
            let other = place.wrapping_add_signed(AROUND[turn]);
            let other_ring = self.ring(other);
            let kills_both = |captor: &&Player| {
                DEAD[usize::from(ring + colour(**captor) * UNIT[turn])]
                    && DEAD[usize::from(other_ring + colour(**captor) * UNIT[(turn + 3) % 6])]
            };
            captors.iter().find(kills_both).map(|&captor| (other, captor))
        })
    }

    /// Returns whether one reply would kill a stone of `mover` on this empty place.
    fn is_vulnerable(&self, place: usize, mover: Player) -> bool {
        let ring = self.ring(place);
        let reply = colour(mover.opponent());
        (0..6).any(|turn| digit(ring, turn) == EMPTY && DEAD[usize::from(ring + reply * UNIT[turn])])
    }

    fn ring(&self, place: usize) -> Ring {
        (0..6).map(|turn| self.colours[place.wrapping_add_signed(AROUND[turn])] * UNIT[turn]).sum()
    }

    /// Returns the neighbours that are on the board.
    fn neighbours(&self, place: usize) -> impl Iterator<Item = usize> + use<> {
        let on_board = 1..=self.size;
        let around = AROUND.into_iter().map(move |offset| place.wrapping_add_signed(offset));
        around.filter(move |place| on_board.contains(&(place / WIDTH)) && on_board.contains(&(place % WIDTH)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::games::hex::brute_force::{BruteForce, boards_of_a_kind, undecided_boards};

    #[test]
    fn a_stone_near_the_edge_fills_cells() {
        let stones_of = |position: &Position, player| position.stones_of(player).iter().map(|cell| cell.to_string());
        // Black's bridge to its edge is captured, and cuts off the acute corner. White's stone
        // gains nothing.
        let position = Position::from_moves(5, "c2 c4").unwrap();
        let filled = filled(&position);
        assert_eq!(stones_of(&filled, Player::First).collect::<Vec<_>>(), ["a1", "b1", "c1", "d1", "a2", "b2", "c2"]);
        assert_eq!(stones_of(&filled, Player::Second).collect::<Vec<_>>(), ["c4"]);
        // On an empty board no cell is filled, but moves next to the acute corner are inferior.
        let empty = Position::new(5).unwrap();
        assert_eq!(super::filled(&empty), empty);
        let moves = worthwhile_moves(&empty);
        assert!(moves.iter().all(|cell| !["a1", "b1", "a2", "e5"].contains(&cell.to_string().as_str())), "{moves:?}");
    }

    #[test]
    fn filling_and_pruning_change_no_winner() {
        let [mut fills, mut prunes, mut wins] = [0; 3];
        for mut position in undecided_boards(2) {
            let mut brute_force = BruteForce::default();
            for _ in 0..2 {
                position.pass();
                let winner = brute_force.winner(&position);
                let filled = filled(&position);
                fills += usize::from(filled != position);
                assert_eq!(brute_force.winner(&filled), winner, "{position:?} {filled:?}");

                let moves = worthwhile_moves(&position);
                prunes += usize::from(moves.len() < position.empty_cells().count());
                if winner == position.to_move() {
                    wins += 1;
                    assert!(moves.iter().any(|&cell| brute_force.wins_by(&position, cell)), "{position:?} {moves:?}");
                }
            }
        }
        assert!([fills, prunes, wins].iter().all(|found| *found > boards_of_a_kind()), "{fills} {prunes} {wins}");
    }
}
