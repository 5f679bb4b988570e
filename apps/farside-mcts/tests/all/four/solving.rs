//! Searches that prove wins and draws, in one thread and on a job.

use std::ops::ControlFlow;

use farside::Result;
use farside::prelude::*;
use farside_mcts::games::four::{Column, FourInARow, Position};
use farside_mcts::{Budget, Game, Local, OnJob, Outcome, Params, Placement, Player, Report, Rng, Search};
use farside_testbed::scaled;

use crate::four::oracle::Solver;

#[test]
fn small_boards_are_draws() {
    // Draws, according to Allis (1988) and Tromp.
    let mut solver = Solver::default();
    let boards = [(3, 3), (4, 4), (5, 4)].into_iter();
    for (width, height) in boards.take(1 + scaled(1) as usize) {
        let four = FourInARow::new(width, height).unwrap();
        assert_eq!(solver.outcome(&four, &four.initial()), Outcome::Drawn, "{width} x {height}");
    }
}

/// A position, and the outcome of every move.
type Known = (FourInARow, Position, Vec<(Column, Outcome)>);

/// Returns positions with few enough empty cells for an exhaustive search.
fn late_positions(count: usize) -> Vec<Known> {
    let mut rng = Rng::new(3);
    let mut found = Vec::new();
    let mut solver = Solver::default();
    while found.len() < count {
        let (width, height) = [(4, 4), (5, 4), (4, 5), (6, 4), (5, 5), (7, 6)][rng.below(6) as usize];
        let four = FourInARow::new(width, height).unwrap();
        let mut position = four.initial();
        while four.outcome(&position).is_none() && position.disc_count() as usize + 8 < width * height {
            let mut moves = Vec::new();
            four.moves(&position, &mut moves);
            four.play(&mut position, moves[rng.below(moves.len() as u32) as usize]);
        }
        if four.outcome(&position).is_none() {
            found.push((four, position, solver.outcomes(&four, &position)));
        }
    }
    found
}

fn best(player: Player, outcomes: &[(Column, Outcome)]) -> Outcome {
    let has = |outcome| outcomes.iter().any(|(_, other)| *other == outcome);
    let by_rank = [Outcome::Won(player), Outcome::Drawn];
    by_rank.into_iter().find(|outcome| has(*outcome)).unwrap_or(Outcome::Won(player.opponent()))
}

/// Checks that the report proves the outcome, and nothing false.
fn check(player: Player, report: &Report<Column>, outcomes: &[(Column, Outcome)], position: &Position) {
    assert_eq!(report.solved, Some(best(player, outcomes)), "{position}");
    let real = |column| outcomes.iter().find(|(other, _)| *other == column).map(|(_, outcome)| *outcome);
    assert_eq!(real(report.best.chosen), report.solved, "{position}{}", report.best.chosen);
    for known in report.moves.iter().filter(|known| known.outcome.is_some()) {
        assert_eq!(known.outcome, real(known.chosen), "{position}{}", known.chosen);
    }
}

const PARAMS: Params = Params { exploration: 0.5, simulations: 16, expand_after: 1, memory_bytes: 1 << 28, seed: 1 };

fn until_solved(report: &Report<Column>) -> ControlFlow<()> {
    if report.solved.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

#[test]
fn threats_change_no_outcome() {
    let mut kinds = std::collections::HashMap::new();
    for (four, position, outcomes) in late_positions(scaled(60) as usize) {
        let player = four.to_move(&position);
        *kinds.entry(best(player, &outcomes) == Outcome::Drawn).or_insert(0) += 1;
        for four in [four, four.with_threats()] {
            let mut moves = Vec::new();
            let known = four.study(&position, &mut moves);
            let left: Vec<_> = outcomes.iter().copied().filter(|(column, _)| moves.contains(column)).collect();
            assert_eq!(known.unwrap_or_else(|| best(player, &left)), best(player, &outcomes), "{position}");
            let search = Search::new(four).params(PARAMS).on(Local);
            let report = search.observe(100, until_solved).run(&position, Budget::Rollouts(100_000)).unwrap();
            check(player, &report, &outcomes, &position);
        }
    }
    assert!(kinds.len() == 2 && kinds.values().all(|count| *count > 5), "{kinds:?}");
}

#[farside::test(processes = 2, threads = 1, timeout_s = 600)]
fn two_processes_find_forced_wins_and_hold_forced_draws(me: &Worker) -> Result<()> {
    let job = OnJob::new(me)?;
    for ((four, position, outcomes), number) in late_positions(scaled(30) as usize).into_iter().zip(0_u64..) {
        let placement = if number % 2 == 0 { Placement::Random } else { Placement::Inherit { visits: 100 } };
        let four = if number % 3 == 0 { four } else { four.with_threats() };
        let search = Search::new(four).params(Params { seed: number, ..PARAMS });
        let mut search = search.on(job.placement(placement)).observe(100, until_solved);
        let report = search.run(&position, Budget::Rollouts(200_000))?;
        check(four.to_move(&position), &report, &outcomes, &position);
    }
    Ok(())
}
