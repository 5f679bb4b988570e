//! Cells that no longer matter, and moves that need not be searched.
//!
//! A cell is **dead** if no completion of the board depends on it. It is when its neighbours, however they get filled,
//! fall into at most one run of each colour around it: what a stone there would join hangs together without it. Two
//! adjacent cells are **captured** by a player if his stone on either kills the other: wherever the opponent intrudes,
//! the reply leaves a dead stone. Who wins does not change if captured cells get their owner's stones, and dead ones
//! anybody's (van Rijswijck, *Set colouring games*, 2006).
//!
//! Of the moves left, two kinds are no better than others:
//!
//! - a **vulnerable** one, which a reply would kill: the opponent would have gained the reply for nothing. So who wins
//!   by it, wins even against that gain, by another move. Following that up, the opponent's gains add up until the other
//!   move is not vulnerable, for there are only so many cells to gain;
//! - a **dominated** one, which another move would kill or capture: the other move gains both cells.

use super::flood::MAX_SIZE;
use super::{Cell, Position};
use crate::game::Player;

/// What lies on a cell.
type Colour = u16;

const EMPTY: Colour = 0;

const fn colour(player: Player) -> Colour {
    player as Colour + 1
}

/// The colours of the six neighbours of a cell in turning order, as a number of base 3.
type Ring = u16;

/// The value of each digit.
const UNIT: [Ring; 6] = [1, 3, 9, 27, 81, 243];

/// For each ring whether the cell inside is dead.
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

/// The position with stones on all cells found dead or captured. Whoever wins the one wins the other.
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

/// The empty cells without some that are no better moves than others: if any wins, then one that is left does.
pub(super) fn worthwhile_moves(position: &Position) -> Vec<Cell> {
    let mover = position.to_move();
    let mut grid = Grid::new(position);
    let mut places: Vec<usize> = position.empty_cells().map(place_of).collect();
    places.retain(|&place| !grid.is_vulnerable(place, mover));
    let mut next = 0;
    while let Some(&place) = places.get(next) {
        let dominated = grid.gained_by(place, mover);
        places.retain(|other| !dominated.contains(other));
        // Some of those gone may have come before it.
        next = places.iter().position(|&other| other == place).expect("no move dominates itself") + 1;
    }
    places.into_iter().map(cell_at).collect()
}

/// A board with a margin in the colours of its edges.
struct Grid {
    size: usize,
    colours: [Colour; WIDTH * WIDTH],
}

const WIDTH: usize = MAX_SIZE + 2;

/// From a place to its neighbours, in turning order.
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
                // Corners end up black. They might as well be white: they touch one cell, and there both edges.
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

    /// What a stone on an empty place would kill, or capture for its owner.
    fn gained_by(&mut self, place: usize, player: Player) -> Vec<usize> {
        self.colours[place] = colour(player);
        let gained = self.fill(self.neighbours(place).collect(), &[player]);
        for &place in gained.iter().chain([&place]) {
            self.colours[place] = EMPTY;
        }
        gained
    }

    /// Fills those of the suspects that are dead or captured, and what else then is. Returns what was filled.
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

    /// A neighbour that is captured together with an empty place, and by whom.
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

    /// Whether one reply would kill a stone of `mover` on this empty place.
    fn is_vulnerable(&self, place: usize, mover: Player) -> bool {
        let ring = self.ring(place);
        let reply = colour(mover.opponent());
        (0..6).any(|turn| digit(ring, turn) == EMPTY && DEAD[usize::from(ring + reply * UNIT[turn])])
    }

    fn ring(&self, place: usize) -> Ring {
        (0..6).map(|turn| self.colours[place.wrapping_add_signed(AROUND[turn])] * UNIT[turn]).sum()
    }

    /// The neighbours that are on the board.
    fn neighbours(&self, place: usize) -> impl Iterator<Item = usize> + use<> {
        let on_board = 1..=self.size;
        let around = AROUND.into_iter().map(move |offset| place.wrapping_add_signed(offset));
        around.filter(move |place| on_board.contains(&(place / WIDTH)) && on_board.contains(&(place % WIDTH)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::games::hex::brute_force::{BruteForce, undecided_boards};

    #[test]
    fn what_a_stone_near_the_edge_makes_certain() {
        let stones_of = |position: &Position, player| position.stones_of(player).iter().map(|cell| cell.to_string());
        // Black's bridge to his edge is as good as played, and cuts off the acute corner. White's stone gains nothing.
        let position = Position::from_moves(5, "c2 c4").unwrap();
        let filled = filled(&position);
        assert_eq!(stones_of(&filled, Player::First).collect::<Vec<_>>(), ["a1", "b1", "c1", "d1", "a2", "b2", "c2"]);
        assert_eq!(stones_of(&filled, Player::Second).collect::<Vec<_>>(), ["c4"]);
        // On an empty board nothing is certain, but a move next to the acute corner is no good.
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
        assert!(fills > 100 && prunes > 100 && wins > 100, "{fills} {prunes} {wins}");
    }
}
