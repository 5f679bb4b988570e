//! The result of a search, as text and as JSON.

use std::fmt;

use farside_mcts::games::hex::{Cell, Diagram};
use farside_mcts::{Outcome, Params, Report};

use super::{Task, colour};
use crate::json::object;

/// A report with its task and its cost.
#[derive(Debug)]
pub(super) struct Findings<'a> {
    pub(super) task: &'a Task,
    pub(super) report: &'a Report<Cell>,
    pub(super) cost: Cost,
}

/// The workers of a search, and the messages between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) processes: u32,
    pub(super) threads: u32,
    /// Number of calls between workers.
    pub(super) messages: u64,
    /// Bytes of these calls.
    pub(super) bytes: u64,
}

impl Cost {
    /// The cost of a search in one thread.
    pub(super) const LOCAL: Self = Self { processes: 1, threads: 1, messages: 0, bytes: 0 };
}

impl Findings<'_> {
    /// Returns one JSON object on one line.
    pub(super) fn to_json(&self) -> String {
        let Self { task, report, cost } = self;
        let object = object! {
            "size": task.position.size(),
            "to_move": colour(task.position.to_move()),
            "moves": task.moves.as_str(),
            "move": report.best.chosen.to_string(),
            "win_rate": report.best.win_rate,
            "rollouts": report.rollouts,
            "simulations": report.simulations,
            "seconds": report.elapsed.as_secs_f64(),
            "rollouts_per_s": report.rollouts_per_s(),
            "processes": cost.processes,
            "threads": cost.threads,
            "messages_per_rollout": self.per_rollout(cost.messages),
            "bytes_per_rollout": self.per_rollout(cost.bytes),
        };
        object.to_string()
    }

    /// Returns the board with each cell's share of the rollouts, if that rounds to 1 % or more.
    fn diagram(&self) -> Diagram {
        let moves = &self.report.moves;
        let all = moves.iter().map(|known| f64::from(known.visits)).sum::<f64>().max(1.0);
        let shares = moves.iter().map(|known| (known.chosen, f64::from(known.visits) / all));
        let shown = shares.filter(|(_, share)| *share >= 0.005);
        shown.fold(Diagram::new(&self.task.position), |diagram, (cell, share)| diagram.share(cell, share))
    }

    fn per_rollout(&self, count: u64) -> f64 {
        count as f64 / self.report.rollouts.max(1) as f64
    }
}

impl fmt::Display for Findings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, report, cost } = self;
        writeln!(f, "Shares of the rollouts, in %:\n{}", self.diagram())?;
        let mover = task.position.to_move();
        write!(f, "{} plays {}", colour(mover), report.best.chosen)?;
        match report.solved {
            Some(Outcome::Won(winner)) => writeln!(f, ": {} wins, proven", colour(winner))?,
            Some(Outcome::Drawn) | None => writeln!(f, ": wins {:.1} % of its games", report.best.win_rate * 100.0)?,
        }
        let line: Vec<_> = report.line.iter().take(8).map(Cell::to_string).collect();
        writeln!(f, "expected: {}", line.join(" "))?;
        writeln!(
            f,
            "{} rollouts in {:.2} s, {:.0} a second, on {} x {}",
            report.rollouts,
            report.elapsed.as_secs_f64(),
            report.rollouts_per_s(),
            cost.processes,
            cost.threads
        )?;
        let (messages, bytes) = (self.per_rollout(cost.messages), self.per_rollout(cost.bytes));
        writeln!(f, "{messages:.2} messages and {bytes:.0} bytes a rollout")?;
        let knowledge = if task.is_plain { "by the rules alone" } else { "with connections" };
        let Params { exploration, simulations, expand_after, seed, .. } = task.params;
        writeln!(
            f,
            "searched {knowledge}: {simulations} simulations a leaf, a node after {expand_after} visits, \
             exploration {exploration}, seed {seed}"
        )
    }
}
