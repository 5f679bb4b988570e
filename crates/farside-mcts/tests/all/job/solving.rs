//! What a search on a job proves is true, however its tree lies.

use farside::Result;
use farside::prelude::*;
use farside_mcts::games::hex::{Hex, Position};
use farside_mcts::{
    Budget, OnJob, Outcome, Pace, Params, Placement, Player, Replicas, Report, Rng, Search, Sharing, games::hex::Cell,
};

use crate::hex::oracle::{Minimax, after, random_stones};

/// Every way in which nodes can lie.
fn ways(job: OnJob<'_>) -> [OnJob<'_>; 5] {
    let few = Replicas { visits: 40, flush_every: 4 };
    [
        job.placement(Placement::Random),
        job.placement(Placement::Random).replicas(few),
        job.placement(Placement::Inherit { visits: 20 }).replicas(few).pace(Pace::Phases { rollouts: 50 }),
        job.placement(Placement::Random).sharing(Sharing::Process),
        job.placement(Placement::Random).sharing(Sharing::Process).force_remote(true),
    ]
}

/// Checks all that is said to be certain, and that the position was solved.
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

/// Positions of boards up to 4 × 4, the game not over.
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
    for (way, job) in ways(job).into_iter().enumerate() {
        for (number, position) in positions().iter().enumerate() {
            let params =
                Params { expand_after: 1, simulations: 4, seed: (way * 100 + number) as u64, ..Params::default() };
            let hex = Hex::new(position.size()).unwrap();
            let report = Search::new(hex).params(params).on(job).run(position, Budget::Rollouts(200_000))?;
            assert!(report.rollouts < 200_000, "a proof ends the search: {position:?}");
            check(&report, position, &mut minimax);
        }
    }
    Ok(())
}

#[farside::test(processes = 2, threads = 2, timeout_s = 120)]
fn two_processes_of_two_threads_prove_what_is_so(me: &Worker) -> Result<()> {
    solve_all(me)
}

#[farside::test(processes = 3, threads = 1, timeout_s = 120)]
fn three_processes_prove_what_is_so(me: &Worker) -> Result<()> {
    solve_all(me)
}

/// All openings of 4 × 4.
#[farside::test(processes = 2, threads = 1, timeout_s = 120)]
fn openings_are_proven_right(me: &Worker) -> Result<()> {
    let job = OnJob::new(me)?;
    let mut minimax = Minimax::default();
    let empty = Position::new(4).unwrap();
    let hex = Hex::new(4).unwrap().with_connections();
    for (number, cell) in empty.empty_cells().enumerate() {
        let position = after(&empty, cell);
        let params = Params { expand_after: 1, seed: number as u64, ..Params::default() };
        let job = ways(job)[number % 5];
        let report = Search::new(hex).params(params).on(job).run(&position, Budget::Rollouts(50_000))?;
        check(&report, &position, &mut minimax);
    }
    Ok(())
}
