//! A progress bar on the terminal.

use std::io::IsTerminal;
use std::ops::ControlFlow;

use farside_mcts::games::hex::Cell;
use farside_mcts::{Budget, Report};
use indicatif::{ProgressBar, ProgressStyle};

/// Number of rollouts between two steps of the bar: some ten a second with connections, and more
/// than the bar draws without.
pub(super) const INTERVAL_ROLLOUTS: u64 = 1024;

/// The progress bar; empty if the standard error is not a terminal.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    budget: Budget,
}

impl Progress {
    pub(super) fn new(budget: Budget) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let length = match budget {
                Budget::Rollouts(rollouts) => rollouts,
                Budget::Time(time) => u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            };
            let style = ProgressStyle::with_template("{bar:40} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(length).with_style(style)
        });
        Self { bar, budget }
    }

    /// Shows the progress of the search. Never ends it.
    pub(super) fn show(&self, report: &Report<Cell>) -> ControlFlow<()> {
        if let Some(bar) = &self.bar {
            bar.set_position(match self.budget {
                Budget::Rollouts(_) => report.rollouts,
                Budget::Time(_) => u64::try_from(report.elapsed.as_millis()).unwrap_or(u64::MAX),
            });
            let best = &report.best;
            bar.set_message(format!("{} {:.1} %  {} rollouts", best.chosen, best.win_rate * 100.0, report.rollouts));
        }
        ControlFlow::Continue(())
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
