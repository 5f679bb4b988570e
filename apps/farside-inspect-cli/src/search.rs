//! The areas that a search shows: the board, the tree, its rate, and the
//! exploration constant, which they may change.

use std::sync::{Arc, Mutex, PoisonError};

use farside::Worker;
use farside_cli::ShownSearch;
use farside_inspect::{Expose, Kind};
use farside_mcts::games::hex::{Cell, Hex, Position};
use farside_mcts::{JobError, OnJob, Player, Report, Search, Window};
use serde_json::{Value, json};

/// The most branches of the tree that a worker describes, and the number without a question for it.
const BRANCHES_MAX: u64 = 5000;
const BRANCHES: u64 = 500;
/// The greatest exploration constant that can be chosen.
const EXPLORATION_MAX: f64 = 2.0;

/// The last report of the search, at worker 0.
type Latest = Arc<Mutex<Option<Report<Cell>>>>;

/// Shows a search that is about to begin. It asks for the exploration constant that readers have
/// chosen.
pub(crate) fn show<'w>(
    me: &'w Worker,
    position: &Position,
    exploration: f32,
    search: Search<Hex, OnJob<'w>>,
    window: Window,
) -> Result<ShownSearch<'w>, JobError> {
    let failed = |error: farside_inspect::ExposeError| JobError::Job(error.into());
    // The number as people write it, without the digits of a wider type.
    let exploration = exploration.to_string().parse().unwrap_or_default();
    let exploration = me.parameter("exploration", exploration, 0.0..=EXPLORATION_MAX).map_err(failed)?;
    let search = search.tune(move || exploration.get() as f32);
    let describe = move |me: &Worker, question: &str| tree(me, window, question).to_string().into_bytes();
    let mut functions = vec![me.probe("tree", Kind::Tree, describe).map_err(failed)?];
    let (latest, mut rate) = (Latest::default(), None);
    if me.is_first() {
        let (known, position) = (latest.clone(), *position);
        let describe = move |_: &Worker, _: &str| {
            let latest = known.lock().unwrap_or_else(PoisonError::into_inner);
            board(&position, latest.as_ref()).to_string().into_bytes()
        };
        functions.push(me.probe("board", Kind::HexBoard, describe).map_err(failed)?);
        rate = Some(me.gauge("rollouts a second").map_err(failed)?);
    }
    let report = move |report: &Report<Cell>| {
        if let Some(rate) = &rate {
            rate.set(report.rollouts_per_s());
        }
        *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(report.clone());
    };
    Ok(ShownSearch { search, report: Box::new(report), guard: Box::new(functions) })
}

/// The nodes of this worker. The question is an object, whose `limit` is their number at most.
fn tree(me: &Worker, window: Window, question: &str) -> Value {
    let question: Value = serde_json::from_str(question).unwrap_or_default();
    let limit = question["limit"].as_u64().unwrap_or(BRANCHES).min(BRANCHES_MAX);
    let branches = window.branches::<Hex>(me, limit as usize);
    let root = branches.iter().filter(|branch| branch.parent == Window::ROOT);
    let visits: u64 = root.map(|branch| u64::from(branch.visits)).sum();
    let root = json!({
        "id": Window::ROOT, "parent": null, "label": "", "visits": visits, "value": 0.5, "owner": 0,
    });
    let nodes = branches.iter().map(|branch| {
        json!({
            "id": branch.id, "parent": branch.parent, "label": branch.chosen.to_string(), "visits": branch.visits,
            "value": branch.win_rate, "owner": branch.owner.number(),
        })
    });
    let root = (me.id().number() == 0).then_some(root);
    json!({ "nodes": root.into_iter().chain(nodes).collect::<Vec<_>>() })
}

/// The board, with what the search has found so far.
fn board(position: &Position, report: Option<&Report<Cell>>) -> Value {
    let size = position.size();
    let cells: Vec<Cell> =
        (0..size).flat_map(|row| (0..size).filter_map(move |column| Cell::new(column, row))).collect();
    let letter = |player: Player| match player {
        Player::First => 'x',
        Player::Second => 'o',
    };
    let stones: String = cells.iter().map(|cell| position.stone(*cell).map_or('.', letter)).collect();
    let found = |cell: &Cell| report.and_then(|report| report.moves.iter().find(|known| known.chosen == *cell));
    let rates: Vec<Option<f64>> = cells.iter().map(|cell| found(cell).map(|known| known.win_rate)).collect();
    let visits: Vec<u32> = cells.iter().map(|cell| found(cell).map_or(0, |known| known.visits)).collect();
    let line: Vec<String> = report.iter().flat_map(|report| &report.line).map(Cell::to_string).collect();
    json!({
        "size": size, "stones": stones, "to_move": letter(position.to_move()).to_string(), "rates": rates,
        "visits": visits, "line": line,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_has_its_stones_row_by_row() {
        let position = Position::from_moves(3, "a1 c2").unwrap();
        let found = board(&position, None);
        assert_eq!((&found["stones"], &found["to_move"]), (&json!("x....o..."), &json!("x")));
        assert_eq!((&found["rates"][0], &found["visits"][8], &found["line"]), (&json!(null), &json!(0), &json!([])));
        let search = Search::new(Hex::new(3).unwrap());
        let report = search.on(farside_mcts::Local).run(&position, farside_mcts::Budget::Rollouts(50)).unwrap();
        let found = board(&position, Some(&report));
        let best = report.best.chosen;
        assert_eq!(found["visits"][3 * best.row() + best.column()], json!(report.best.visits));
        assert_eq!(found["line"][0], json!(best.to_string()));
    }
}
