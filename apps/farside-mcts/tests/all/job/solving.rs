//! The proofs of a search on a job are right, however its nodes are placed.

use farside::Result;
use farside::prelude::*;
use farside_mcts::games::hex::{Hex, Position};
use farside_mcts::{Budget, OnJob, Outcome, Params, Placement, Player, Report, Rng, Search, games::hex::Cell};

use crate::hex::oracle::{Minimax, after, random_stones};

/// Returns the job with different placements of nodes.
fn placements(job: OnJob<'_>) -> [OnJob<'_>; 2] {
    [job.placement(Placement::Random), job.placement(Placement::Inherit { visits: 20 })]
}

/// Checks all proven outcomes, and that the position is solved.
fn check(report: &Report<Cell>, position: &Position, minimax: &mut Minimax) {
    let winner = minimax.winner(position);
    assert_eq!(report.solved, Some(Outcome::Won(winner)), "{position:?}");
    assert!(winner != position.to_move() || report.best.outcome == Some(Outcome::Won(winner)), "{position:?}");
    for known in &report.moves {
        let Some(outcome) = known.outcome else { continue };
        let after = after(position, known.chosen);
        let winner = after.winner().unwrap_or_else(|| minimax.winner(&after));
        assert_eq!(outcome, Outcome::Won(winner), "{position:?}, {}", known.chosen);
    }
}

/// Returns positions on boards up to 4 × 4 in which the game is not over.
fn positions() -> Vec<Position> {
    let mut rng = Rng::new(5);
    let mut found = vec![Position::new(2).unwrap(), Position::new(3).unwrap()];
    for (size, percent_full, count) in [(2, 25, 6), (3, 30, 14), (4, 50, 12)] {
        let wanted = found.len() + count;
        while found.len() < wanted {
            let [black, white] = random_stones(size, percent_full, &mut rng);
            let to_move = [Player::First, Player::Second][rng.below(2) as usize];
            let position = Position::from_stones(size, &black, &white, to_move).unwrap();
            if position.winner().is_none() {
                found.push(position);
            }
        }
    }
    found
}

fn solve_all(me: &Worker) -> Result<()> {
    let job = OnJob::new(me)?;
    let mut minimax = Minimax::default();
    for (number_of_job, job) in placements(job).into_iter().enumerate() {
        for (number, position) in positions().iter().enumerate() {
            let params = Params {
                expand_after: 1,
                simulations: 4,
                seed: (number_of_job * 100 + number) as u64,
                ..Params::default()
            };
            let hex = Hex::new(position.size()).unwrap();
            let report = Search::new(hex).params(params).on(job).run(position, Budget::Rollouts(200_000))?;
            assert!(report.rollouts < 200_000, "a proof ends the search: {position:?}");
            check(&report, position, &mut minimax);
        }
    }
    Ok(())
}

#[farside::test(processes = 2, threads = 2, timeout_s = 600)]
fn two_processes_of_two_threads_prove_outcomes(me: &Worker) -> Result<()> {
    solve_all(me)
}

mod deep {
    use super::*;

    /// Solves all openings of 4 × 4.
    #[farside::test(processes = 2, threads = 1, timeout_s = 600)]
    fn openings_are_solved(me: &Worker) -> Result<()> {
        let job = OnJob::new(me)?;
        let mut minimax = Minimax::default();
        let empty = Position::new(4).unwrap();
        let hex = Hex::new(4).unwrap().with_connections();
        for (number, cell) in empty.empty_cells().enumerate() {
            let position = after(&empty, cell);
            let params = Params { expand_after: 1, seed: number as u64, ..Params::default() };
            let job = placements(job)[number % 2];
            let report = Search::new(hex).params(params).on(job).run(&position, Budget::Rollouts(50_000))?;
            check(&report, &position, &mut minimax);
        }
        Ok(())
    }

    #[farside::test(processes = 3, threads = 1, timeout_s = 600)]
    fn three_processes_prove_outcomes(me: &Worker) -> Result<()> {
        solve_all(me)
    }
}
