//! `farside hex --inspect`: shows the search to programs outside of the job while it runs.

use std::time::Instant;

use farside::Worker;
use farside_inspect::{Expose, ExposeError, Gauge, Kind, Parameter, Shown};
use farside_mcts::games::hex::{Cell, Hex, Position};
use farside_mcts::{Player, Report, Window};
use serde_json::{Value, json};

use super::Task;

/// The most exploration that the slider has.
const EXPLORATION_MAX: f64 = 2.0;
/// The number of nodes of the tree that are shown unless the question says otherwise, and at most.
const NODES: usize = 500;
const NODES_MAX: usize = 100_000;

/// What a worker shows of the search.
#[derive(Debug)]
pub(super) struct Looks {
    _shown: Vec<Shown>,
}

/// Shows the board, the tree, the rate and the exploration. All workers call it.
pub(super) fn show(me: &Worker, window: Window, task: &Task) -> Result<(Looks, Parameter), ExposeError> {
    let default = f64::from(task.params.exploration);
    let exploration = me.parameter("exploration", default, 0.0..=EXPLORATION_MAX.max(default))?;
    let mut shown = Vec::new();
    if me.is_first() {
        let position = task.position;
        shown.push(me.probe("board", Kind::HexBoard, move |me, _| {
            board(&position, &window, me).to_string().into_bytes()
        })?);
        shown.push(me.probe("tree", Kind::Tree, move |me, question| {
            tree(&window, me, question).to_string().into_bytes()
        })?);
    }
    Ok((Looks { _shown: shown }, exploration))
}

/// The number of rollouts a second.
#[derive(Debug)]
pub(super) struct Rate {
    gauge: Gauge,
    win_rate: Gauge,
    last: (Instant, u64),
}

impl Rate {
    pub(super) fn new(me: &Worker) -> Result<Self, ExposeError> {
        let (gauge, win_rate) = (me.gauge("rollouts per second")?, me.gauge("win rate")?);
        Ok(Self { gauge, win_rate, last: (Instant::now(), 0) })
    }

    pub(super) fn note(&mut self, report: &Report<Cell>) {
        let (now, (then, before)) = (Instant::now(), self.last);
        let seconds = (now - then).as_secs_f64();
        if seconds > 0.2 {
            self.gauge.set(report.rollouts.saturating_sub(before) as f64 / seconds);
            self.last = (now, report.rollouts);
        }
        self.win_rate.set(report.best.win_rate);
    }
}

/// The position, with the win rate and the visits of each move.
fn board(position: &Position, window: &Window, me: &Worker) -> Value {
    let size = position.size();
    let cells = (0..size).flat_map(|row| (0..size).filter_map(move |column| Cell::new(column, row)));
    let sign = |player| if player == Player::First { 'x' } else { 'o' };
    let stones: String = cells.map(|cell| position.stone(cell).map_or('.', sign)).collect();
    let (mut rates, mut visits) = (vec![Value::Null; size * size], vec![0_u32; size * size]);
    // The moves of the root come first: the root has no more of them than the board has cells.
    for node in window.nodes::<Hex>(me, 1 + size * size).iter().filter(|node| node.parent == Some(0)) {
        if let Some(cell) = node.chosen {
            let at = cell.row() * size + cell.column();
            (rates[at], visits[at]) = (node.win_rate.into(), node.visits);
        }
    }
    let line: Vec<String> = window.line::<Hex>(me).iter().map(Cell::to_string).collect();
    json!({
        "size": size, "stones": stones, "to_move": sign(position.to_move()).to_string(), "rates": rates,
        "visits": visits, "line": line, "rollouts": window.rollouts::<Hex>(me),
    })
}

/// The nodes with the most visits.
fn tree(window: &Window, me: &Worker, question: &str) -> Value {
    let question: Value = serde_json::from_str(question).unwrap_or_default();
    let limit = question["limit"].as_u64().and_then(|limit| usize::try_from(limit).ok()).unwrap_or(NODES);
    let nodes = window.nodes::<Hex>(me, limit.min(NODES_MAX));
    let nodes: Vec<Value> = nodes
        .iter()
        .enumerate()
        .map(|(id, node)| {
            let label = node.chosen.map_or("root".into(), |cell| cell.to_string());
            json!({
                "id": id, "parent": node.parent, "label": label, "visits": node.visits, "value": node.win_rate,
                "owner": node.owner.number(),
            })
        })
        .collect();
    json!({ "nodes": nodes })
}
