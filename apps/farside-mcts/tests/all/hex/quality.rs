//! How well the search plays with its default parameters, and the table of `docs/hex-engine.md`.

use farside_mcts::games::hex::{Cell, Hex, Position};
use farside_mcts::{Budget, Game, Outcome, Params, Player, Report, Rng, Search};
use farside_testbed::{depth, scaled};

use crate::hex::oracle::{Minimax, Solver, after, random_stones};

/// A position that the player to move wins by few of its moves.
struct Puzzle {
    position: Position,
    winning: Vec<Cell>,
}

impl Puzzle {
    /// Returns the position as a puzzle if one to three of its moves win, of five times as many.
    fn new(position: Position, winning: Vec<Cell>) -> Option<Self> {
        let few = (1..=3).contains(&winning.len()) && position.empty_cells().count() > 5 * winning.len();
        few.then_some(Self { position, winning })
    }

    fn is_solved_by(&self, hex: fn(usize) -> Hex, params: Params, rollouts: u64) -> bool {
        self.winning.contains(&searched(hex(self.position.size()), &self.position, params, rollouts).best.chosen)
    }
}

fn searched(hex: Hex, position: &Position, params: Params, rollouts: u64) -> Report<Cell> {
    Search::new(hex).params(params).run(position, Budget::Rollouts(rollouts)).unwrap()
}

fn plain(size: usize) -> Hex {
    Hex::new(size).unwrap()
}

fn connected(size: usize) -> Hex {
    plain(size).with_connections()
}

/// Returns a random position after this number of moves.
fn opened(size: usize, moves: usize, rng: &mut Rng) -> Position {
    let mut position = Position::new(size).unwrap();
    for _ in 0..moves {
        let cells: Vec<_> = position.empty_cells().collect();
        position.play(cells[rng.below(cells.len() as u32) as usize]);
    }
    position
}

/// Returns 11 × 11 cells that are full of random stones, except for two rows or columns at an edge.
/// There ladders and templates decide.
fn edge(rng: &mut Rng) -> Position {
    let (is_row, is_last) = (rng.below(2) == 0, rng.below(2) == 0);
    let is_filled = |cell: &Cell| {
        let along = if is_row { cell.row() } else { cell.column() };
        if is_last { along < 9 } else { along >= 2 }
    };
    let [inner, few] = [97, 15].map(|percent| random_stones(11, percent, rng));
    let stones = |player: usize| -> Vec<Cell> {
        let inner = inner[player].iter().filter(|cell| is_filled(cell));
        inner.chain(few[player].iter().filter(|cell| !is_filled(cell))).copied().collect()
    };
    let to_move = [Player::First, Player::Second][rng.below(2) as usize];
    Position::from_stones(11, &stones(0), &stones(1), to_move).unwrap()
}

/// Returns puzzles of each kind: boards of 5, 6 and 7 cells a side, and edges of 11 × 11 cells.
fn puzzles(of_each: usize, seed: u64) -> Vec<Puzzle> {
    let mut rng = Rng::new(seed);
    let mut found = Vec::new();
    for (size, moves) in [(5, 8), (6, 19), (7, 30), (11, 0)] {
        let wanted = found.len() + of_each;
        while found.len() < wanted {
            let position = if size == 11 { edge(&mut rng) } else { opened(size, moves, &mut rng) };
            if position.winner().is_none() {
                found.extend(Puzzle::new(position, Solver::default().winning_moves(&position)));
            }
        }
    }
    found
}

/// Returns puzzles with more empty cells than the oracle can search. The search itself has proven
/// the outcome of each move; other tests compare its proofs with the oracle.
fn open_puzzles(of_each: usize, seed: u64) -> Vec<Puzzle> {
    let mut rng = Rng::new(seed);
    let mut found = Vec::new();
    for (size, moves) in [(6, 9), (7, 18)] {
        let wanted = found.len() + of_each;
        while found.len() < wanted {
            let position = opened(size, moves, &mut rng);
            if position.winner().is_some() {
                continue;
            }
            let is_win = |cell: Cell| {
                let next = after(&position, cell);
                let params = Params { exploration: 0.3, expand_after: 1, ..Params::default() };
                let solved = || searched(connected(size), &next, params, 5000).solved;
                Some(next.winner().map(Outcome::Won).or_else(solved)? == Outcome::Won(position.to_move()))
            };
            let wins: Option<Vec<_>> = position.empty_cells().map(|cell| Some((cell, is_win(cell)?))).collect();
            let winning = wins.map(|wins| wins.into_iter().filter(|(_, wins)| *wins).map(|(cell, _)| cell).collect());
            found.extend(winning.and_then(|winning| Puzzle::new(position, winning)));
        }
    }
    found
}

#[test]
fn both_oracles_agree() {
    let mut rng = Rng::new(4);
    for _ in 0..scaled(40) {
        let position = opened(4, 4 + rng.below(6) as usize, &mut rng);
        assert_eq!(Solver::default().winning_moves(&position), Minimax::default().winning_moves(&position));
    }
}

#[test]
fn default_play_finds_known_wins() {
    let puzzles = puzzles(6, 1);
    for (hex, rollouts, wanted) in [(connected as fn(usize) -> Hex, 200, 24), (plain, 4000, 23)] {
        let solved = puzzles.iter().filter(|puzzle| puzzle.is_solved_by(hex, Params::default(), rollouts)).count();
        assert!(solved >= wanted, "{solved} of {} with {rollouts} rollouts", puzzles.len());
    }
}

/// Plays games on 11 × 11 cells, each opening once with either color. Returns the number that the
/// first player of the two wins.
fn games_won(hex: Hex, players: [Params; 2], rollouts: u64, openings: u64) -> usize {
    let won_by_first = |seed: u64, is_black: bool| {
        let mut position = opened(11, 2, &mut Rng::new(seed));
        for ply in 0.. {
            if let Some(winner) = position.winner() {
                return (winner == Player::First) == is_black;
            }
            let params = players[usize::from((position.to_move() == Player::First) != is_black)];
            let report = searched(hex, &position, Params { seed: 1000 * seed + ply, ..params }, rollouts);
            position = after(&position, report.best.chosen);
        }
        unreachable!("a full board has a winner")
    };
    (0..openings).flat_map(|seed| [true, false].map(|is_black| won_by_first(seed, is_black))).filter(|won| *won).count()
}

mod deep {
    use super::*;

    #[test]
    fn an_empty_board_is_searched_in_depth() {
        for (hex, rollouts, plies) in [(plain(11), 400_000, 4), (connected(11), 20_000, 3)] {
            let report = searched(hex, &hex.initial(), Params::default(), rollouts);
            assert!(report.line.len() >= plies, "{:?} of {} plies", report.line, report.max_depth);
        }
    }

    /// Prints the first table of `docs/hex-engine.md`, and checks that it speaks for the default.
    #[test]
    fn no_other_exploration_finds_far_more_wins() {
        let puzzles: Vec<_> = puzzles(15, 2).into_iter().chain(open_puzzles(20, 2)).collect();
        let default = Params::default().exploration;
        let found = [default, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5].map(|exploration| {
            let params = Params { exploration, ..Params::default() };
            let found = [(plain as fn(usize) -> Hex, 4000), (plain, 40_000), (connected, 100), (connected, 300)].map(
                |(hex, rollouts)| puzzles.iter().filter(|puzzle| puzzle.is_solved_by(hex, params, rollouts)).count(),
            );
            let plies = [(plain(11), 400_000), (connected(11), 20_000)]
                .map(|(hex, rollouts)| searched(hex, &hex.initial(), params, rollouts).line.len());
            println!("{exploration}: {found:?} of {} wins; {plies:?} plies", puzzles.len());
            found.iter().sum::<usize>()
        });
        assert!(found.iter().all(|other| *other <= found[0] + 12), "{found:?}");
    }

    /// Prints the second table of `docs/hex-engine.md` at a depth of 50, which takes an hour. At
    /// lower depths, the default alone plays, and fewer games.
    #[test]
    fn the_default_wins_against_more_exploration() {
        let wide = Params { exploration: 0.5, ..Params::default() };
        let is_whole = depth() >= 50.0;
        let (few, many) = (scaled(1).div_ceil(10), 5);
        for (name, hex, rollouts, size) in [("plain", plain(11), 5000, 3), ("connections", connected(11), 1000, 2)] {
            let openings = size * if is_whole { many } else { few.min(many) };
            let others: &[f32] = if is_whole { &[0.05, 0.2] } else { &[] };
            for exploration in std::iter::once(Params::default().exploration).chain(others.iter().copied()) {
                let won = games_won(hex, [Params { exploration, ..wide }, wide], rollouts, openings);
                println!("{name}, {exploration} against 0.5: {won} of {}", 2 * openings);
                assert!(exploration != Params::default().exploration || won as u64 > openings);
            }
        }
    }
}
