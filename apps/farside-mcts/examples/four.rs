//! Two processes play a game of four in a row against themselves, and print it.
//!
//! ```sh
//! cargo run --release -p farside-mcts --example four -- 7 6 "d d"
//! ```
//!
//! The optional arguments are the width and height of the board, and the moves so far.

use std::time::Duration;

use farside::prelude::*;
use farside_mcts::games::four::FourInARow;
use farside_mcts::{Budget, Game, OnJob, Outcome, Search};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let four = FourInARow::new(number(0, 7)?, number(1, 6)?)?.with_threats();
    let begin = four.after(arguments.get(2).map_or("", String::as_str))?;

    farside::job().processes(2).run(|me: &Worker| {
        let mut search = Search::new(four).on(OnJob::new(me)?);
        let mut position = begin;
        // All workers get the same reports, so they reach the same positions.
        while four.outcome(&position).is_none() {
            let report = search.run(&position, Budget::Time(Duration::from_millis(500)))?;
            four.play(&mut position, report.best.chosen);
            if me.id().number() == 0 {
                let known = match report.solved {
                    Some(Outcome::Drawn) => "a draw, proven".into(),
                    Some(outcome) => format!("proven: {outcome}"),
                    None => format!("{:.0} %", 100.0 * report.best.win_rate),
                };
                println!("{position}{} ({known}, {} rollouts)\n", report.best.chosen, report.rollouts);
            }
        }
        if me.id().number() == 0
            && let Some(outcome) = four.outcome(&position)
        {
            println!("{outcome}");
        }
        Ok(())
    })?;
    Ok(())
}
