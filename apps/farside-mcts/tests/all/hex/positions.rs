//! Positions with known winning moves.

use std::ops::ControlFlow;

use farside_mcts::games::hex::{Cell, Hex, Position};
use farside_mcts::{Budget, Game, Outcome, Params, Player, Report, Search};
use farside_testbed::scaled;
use serde_json::Value;

fn data() -> Value {
    serde_json::from_str(include_str!("../../data/hex-positions.json")).unwrap()
}

fn cells(names: &Value) -> Vec<Cell> {
    names.as_array().unwrap().iter().map(|name| name.as_str().unwrap().parse().unwrap()).collect()
}

fn player(name: &Value) -> Player {
    match name.as_str().unwrap() {
        "black" => Player::First,
        "white" => Player::Second,
        other => panic!("{other} is no player"),
    }
}

/// Searches until the position is solved.
fn solve(hex: Hex, position: &Position, seed: u64, rollouts: u64) -> Report<Cell> {
    let params = Params { exploration: 0.3, expand_after: 1, seed, ..Params::default() };
    let stop_when_solved = |report: &Report<Cell>| match report.solved {
        Some(_) => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    };
    let mut search = Search::new(hex).params(params).observe(1000, stop_when_solved);
    search.run(position, Budget::Rollouts(rollouts)).unwrap()
}

#[test]
fn winning_moves_are_found() {
    let data = data();
    for known in data["positions"].as_array().unwrap() {
        let id = known["id"].as_str().unwrap();
        let size = known["n"].as_u64().unwrap() as usize;
        let to_move = player(&known["to_move"]);
        let position = Position::from_stones(size, &cells(&known["black"]), &cells(&known["white"]), to_move).unwrap();
        let winning = cells(&known["winning_moves"]);
        let hex = Hex::new(size).unwrap().with_connections();
        for seed in 0..scaled(1) {
            let report = solve(hex, &position, seed, 50_000);
            assert_eq!(report.solved, Some(Outcome::Won(to_move)), "{id}, seed {seed}");
            assert!(winning.contains(&report.best.chosen), "{id}, seed {seed}: {}", report.best.chosen);
            for known in report.moves.iter().filter(|known| known.outcome.is_some()) {
                let won = known.outcome == Some(Outcome::Won(to_move));
                assert_eq!(won, winning.contains(&known.chosen), "{id}: {} is proven wrongly", known.chosen);
            }
        }
    }
}

#[test]
fn openings_are_solved() {
    let data = data();
    for (size, map) in data["openings"].as_object().unwrap() {
        let size: usize = size.parse().unwrap();
        let hex = Hex::new(size).unwrap().with_connections();
        for (row, marks) in map["rows"].as_array().unwrap().iter().enumerate() {
            for (column, mark) in marks.as_str().unwrap().chars().enumerate() {
                if row * size + column > size * size / 2 {
                    // A rotation by 180 degrees maps the board to itself.
                    continue;
                }
                let opening = Cell::new(column, row).unwrap();
                let mut position = hex.initial();
                position.play(opening);
                let report = solve(hex, &position, 1, 50_000);
                let winner = if mark == 'B' { Player::First } else { Player::Second };
                assert_eq!(report.solved, Some(Outcome::Won(winner)), "{opening} on {size}");
            }
        }
    }
}

#[test]
fn small_puzzles_need_nothing_but_the_rules() {
    let data = data();
    for known in data["positions"].as_array().unwrap() {
        let size = known["n"].as_u64().unwrap() as usize;
        let (black, white) = (cells(&known["black"]), cells(&known["white"]));
        if size * size - black.len() - white.len() > 14 {
            continue;
        }
        let to_move = player(&known["to_move"]);
        let position = Position::from_stones(size, &black, &white, to_move).unwrap();
        let report = solve(Hex::new(size).unwrap(), &position, 1, 200_000);
        assert_eq!(report.solved, Some(Outcome::Won(to_move)), "{}", known["id"]);
        assert!(cells(&known["winning_moves"]).contains(&report.best.chosen), "{}", known["id"]);
    }
}
