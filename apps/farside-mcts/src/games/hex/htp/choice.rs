//! Chooses the move to play from the report of a search.

use super::live::rollouts_in;
use super::openings::wins_by;
use super::parameters::{EngineParameters, GameParameters};
use super::table::{Move, Table};
use crate::game::{Outcome, Player};
use crate::games::hex::Cell;
use crate::search::Report;

/// Divisor of the average visit count. An opening with fewer visits than the quotient is ignored,
/// as its win rate says little.
const OPENING_VISITS_SHARE: u64 = 4;

/// Returns the move that needs no search: on solved boards, swapping a stone that is known to win.
pub(super) fn at_sight(table: &Table, game: &GameParameters, player: Player) -> Option<Move> {
    let stone = swappable(table, game, player)?;
    wins_by(table.position().size(), stone)?.then_some(Move::Swap(game.swap_mode))
}

/// Returns the move to play after a search with `player` to move.
pub(super) fn after_search(
    table: &Table,
    game: &GameParameters,
    parameters: &EngineParameters,
    player: Player,
    report: &Report<Cell>,
) -> Move {
    let is_lost = report.solved == Some(Outcome::Won(player.opponent()));
    if let Some(stone) = swappable(table, game, player) {
        // A swap gives `player` the opponent's stone. On solved boards the table knows whether that
        // stone wins: `at_sight` swaps it if so, and here it is known to lose.
        let is_better = is_lost || report.solved.is_none() && report.best.win_rate < 0.5;
        if is_better && wins_by(table.position().size(), stone).is_none() {
            return Move::Swap(game.swap_mode);
        }
    } else if game.allow_swap && table.position().is_empty() && !table.has_begun() {
        return Move::Stone(fairest(report));
    }
    let plays_to_the_end = parameters.resign_threshold == 0.0;
    let is_hopeless =
        rollouts_in(report) >= parameters.resign_games && report.best.win_rate < parameters.resign_threshold;
    if !plays_to_the_end && (is_lost || is_hopeless) { Move::GiveUp } else { Move::Stone(report.best.chosen) }
}

fn swappable(table: &Table, game: &GameParameters, player: Player) -> Option<Cell> {
    table.to_swap(player).filter(|_| game.allow_swap)
}

/// Returns the opening whose win rate is closest to one half, so that swapping it gains least.
fn fairest(report: &Report<Cell>) -> Cell {
    let average = rollouts_in(report) / report.moves.len().max(1) as u64;
    let known = report.moves.iter().filter(|known| u64::from(known.visits) * OPENING_VISITS_SHARE >= average);
    let unfairness = |rate: f64| (rate - 0.5).abs();
    known
        .min_by(|a, b| unfairness(a.win_rate).total_cmp(&unfairness(b.win_rate)))
        .map_or(report.best.chosen, |known| known.chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::games::hex::htp::table::SwapMode;
    use crate::games::hex::{Hex, Position};
    use crate::search::{Budget, Search};

    fn search(position: &Position, rollouts: u64) -> Report<Cell> {
        Search::new(Hex::new(position.size()).unwrap()).run(position, Budget::Rollouts(rollouts)).unwrap()
    }

    fn after(size: usize, stones: &[&str]) -> Table {
        let mut table = Table::new(size).unwrap();
        for stone in stones {
            let player = table.position().to_move();
            table.play(player, stone, Move::Stone(stone.parse().unwrap())).unwrap();
        }
        table
    }

    const BLACK: Player = Player::First;
    const WHITE: Player = Player::Second;

    fn swapping() -> GameParameters {
        GameParameters { allow_swap: true, ..GameParameters::default() }
    }

    fn choose(table: &Table, game: &GameParameters, report: &Report<Cell>) -> Move {
        after_search(table, game, &EngineParameters::new(1, 0), table.position().to_move(), report)
    }

    #[test]
    fn on_solved_boards_exactly_the_winning_stones_are_swapped() {
        for (stone, wins) in [("c3", true), ("a1", false), ("b2", true), ("e5", false)] {
            let table = after(5, &[stone]);
            let at_sight = at_sight(&table, &swapping(), WHITE);
            assert_eq!(at_sight, wins.then_some(Move::Swap(SwapMode::Pieces)), "{stone}");
            assert_eq!(super::at_sight(&table, &GameParameters::default(), WHITE), None);
            if !wins {
                // A bad result of a short search does not change this.
                let mut report = search(table.position(), 10);
                report.best.win_rate = 0.1;
                assert!(matches!(choose(&table, &swapping(), &report), Move::Stone(_)));
            }
        }
    }

    #[test]
    fn on_other_boards_the_search_decides() {
        let table = after(7, &["d4"]);
        assert_eq!(at_sight(&table, &swapping(), WHITE), None);
        let mut report = search(table.position(), 100);
        for (rate, solved, swaps) in [
            (0.49, None, true),
            (0.51, None, false),
            (0.0, Some(Outcome::Won(BLACK)), true),
            (1.0, Some(Outcome::Won(WHITE)), false),
        ] {
            (report.best.win_rate, report.solved) = (rate, solved);
            assert_eq!(
                choose(&table, &swapping(), &report) == Move::Swap(SwapMode::Pieces),
                swaps,
                "{rate} {solved:?}"
            );
            assert_ne!(choose(&table, &GameParameters::default(), &report), Move::Swap(SwapMode::Pieces));
        }
    }

    #[test]
    fn with_the_swap_rule_the_first_stone_is_a_fair_one() {
        let table = after(7, &[]);
        let mut report = search(table.position(), 2000);
        let fair = report.moves[20].chosen;
        report.moves.iter_mut().for_each(|known| known.win_rate = 0.6);
        report.moves[20].win_rate = 0.45;
        // This one is closest to one half, but has too few visits.
        let last = report.moves.last_mut().unwrap();
        (last.win_rate, last.visits) = (0.5, 1);
        assert_eq!(choose(&table, &swapping(), &report), Move::Stone(fair));
        assert_eq!(choose(&table, &GameParameters::default(), &report), Move::Stone(report.best.chosen));
    }

    #[test]
    fn a_lost_game_is_resigned() {
        let table = after(3, &["a1", "b2"]);
        let mut report = search(table.position(), 2000);
        let best = Move::Stone(report.best.chosen);
        let mut parameters = EngineParameters::new(1, 0);
        let choose = |report: &Report<Cell>, parameters: &EngineParameters| {
            after_search(&table, &GameParameters::default(), parameters, BLACK, report)
        };
        for (rate, rollouts, solved, resigns) in [
            (0.01, 2000, None, true),
            (0.03, 2000, None, false),
            (0.01, 999, None, false),
            (0.0, 1, Some(Outcome::Won(WHITE)), true),
            (1.0, 1, Some(Outcome::Won(BLACK)), false),
        ] {
            (report.best.win_rate, report.rollouts, report.solved) = (rate, rollouts, solved);
            parameters.resign_threshold = 0.02;
            assert_eq!(choose(&report, &parameters), if resigns { Move::GiveUp } else { best }, "{rate} {solved:?}");
            parameters.resign_threshold = 0.0;
            assert_eq!(choose(&report, &parameters), best);
        }
    }
}
