//! Searches of positions with known winning moves, by several processes.

use std::ops::ControlFlow;

use farside::Result;
use farside::prelude::*;
use farside_mcts::games::hex::{Cell, Hex, Position};
use farside_mcts::{Budget, OnJob, Outcome, Params, Placement, Player, Report, Search};
use farside_testbed::scaled;
use serde_json::Value;

/// A position, and all its winning moves.
struct Known {
    id: String,
    size: usize,
    position: Position,
    winning: Vec<Cell>,
}

impl Known {
    fn all() -> Vec<Self> {
        let data: Value = serde_json::from_str(include_str!("../../data/hex-positions.json")).unwrap();
        data["positions"].as_array().unwrap().iter().map(Self::read).collect()
    }

    fn read(known: &Value) -> Self {
        let cells = |names: &Value| -> Vec<Cell> {
            names.as_array().unwrap().iter().map(|name| name.as_str().unwrap().parse().unwrap()).collect()
        };
        let size = known["n"].as_u64().unwrap() as usize;
        let to_move = if known["to_move"] == "black" { Player::First } else { Player::Second };
        let position = Position::from_stones(size, &cells(&known["black"]), &cells(&known["white"]), to_move).unwrap();
        Self { id: known["id"].to_string(), size, position, winning: cells(&known["winning_moves"]) }
    }

    fn empty_cells(&self) -> usize {
        self.position.empty_cells().count()
    }

    /// Searches until the position is solved.
    fn search(&self, hex: Hex, job: OnJob<'_>, seed: u64, rollouts: u64) -> Result<Report<Cell>> {
        let params = Params { exploration: 0.3, expand_after: 1, seed, ..Params::default() };
        let stop_when_solved = |report: &Report<Cell>| match report.solved {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        };
        let mut search = Search::new(hex).params(params).on(job).observe(500, stop_when_solved);
        Ok(search.run(&self.position, Budget::Rollouts(rollouts))?)
    }

    /// Checks that the report names a winning move, and that its proofs are right.
    fn check(&self, report: &Report<Cell>) {
        let to_move = self.position.to_move();
        assert!(self.winning.contains(&report.best.chosen), "{}: {}", self.id, report.best.chosen);
        assert!(report.solved.is_none_or(|outcome| outcome == Outcome::Won(to_move)), "{}", self.id);
        for known in report.moves.iter().filter(|known| known.outcome.is_some()) {
            let won = known.outcome == Some(Outcome::Won(to_move));
            assert_eq!(won, self.winning.contains(&known.chosen), "{}: {} is proven wrongly", self.id, known.chosen);
        }
    }
}

fn solve_all(me: &Worker) -> Result<()> {
    let job = OnJob::new(me)?;
    for (known, number) in Known::all().into_iter().zip(0..) {
        let hex = Hex::new(known.size).unwrap().with_connections();
        for seed in 0..scaled(1) {
            let placement =
                if (number + seed) % 2 == 0 { Placement::Inherit { visits: 200 } } else { Placement::Random };
            let report = known.search(hex, job.placement(placement), seed, 50_000)?;
            known.check(&report);
            assert!(report.solved.is_some(), "{}, seed {seed}", known.id);
        }
    }
    Ok(())
}

#[farside::test(processes = 2, threads = 1, timeout_s = 600)]
fn two_processes_solve_every_position(me: &Worker) -> Result<()> {
    solve_all(me)
}

#[farside::test(processes = 4, threads = 1, timeout_s = 600)]
fn four_processes_solve_every_position(me: &Worker) -> Result<()> {
    solve_all(me)
}

#[farside::test(processes = 2, threads = 2, timeout_s = 600)]
fn nodes_at_random_places_solve_small_puzzles_by_the_rules_alone(me: &Worker) -> Result<()> {
    let job = OnJob::new(me)?.placement(Placement::Random);
    for known in Known::all().into_iter().filter(|known| known.empty_cells() <= 14) {
        let report = known.search(Hex::new(known.size).unwrap(), job, 1, 200_000)?;
        known.check(&report);
        assert!(report.solved.is_some(), "{}", known.id);
    }
    Ok(())
}
