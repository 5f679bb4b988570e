//! Live display of a search, and the decision to end it.

use std::fmt::Write;
use std::iter;
use std::time::Duration;

use super::framing::gfx;
use crate::game::{Outcome, Player};
use crate::games::hex::Cell;
use crate::search::Report;

/// Observer of a search: decides when to show it and when to end it.
///
/// It reads no clock and writes nothing: its caller passes in times and writes the texts.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Time at which the search is to end.
    pub(super) deadline: Duration,
    pub(super) to_move: Player,
    pub(super) live: Option<Live>,
}

/// Schedule of the live display.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    interval: Duration,
    /// Time of the next block.
    due: Duration,
}

/// Result of [`Watch::look`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Look {
    /// Text for the standard output, to be written at once.
    pub text: Option<String>,
    /// True if the search is to end.
    pub stop: bool,
}

impl Live {
    pub(super) fn new(interval: Duration, now: Duration) -> Self {
        Self { interval, due: now + interval }
    }
}

impl Watch {
    /// Looks at an interim report.
    pub fn look(&mut self, report: &Report<Cell>, now: Duration) -> Look {
        let stop = report.solved.is_some() || now >= self.deadline;
        let mut text = None;
        if let Some(live) = &mut self.live
            && now >= live.due
        {
            live.due = now + live.interval;
            text = Some(show(report, self.to_move));
        }
        Look { text, stop }
    }
}

/// Returns a block that shows the state of a search, in the format that MoHex sends to HexGui: a
/// variation, a value and a count for each cell, and a text.
pub(super) fn show(report: &Report<Cell>, to_move: Player) -> String {
    let mut text = String::from("VAR");
    let mut player = to_move;
    for cell in &report.line {
        let _ = write!(text, " {} {cell}", if player == Player::First { 'B' } else { 'W' });
        player = player.opponent();
    }
    // The best move leads. A move that is proven lost may have more visits.
    let others = report.moves.iter().filter(|known| known.chosen != report.best.chosen);
    let moves: Vec<_> = iter::once(&report.best).chain(others).collect();
    text.push_str("\nINFLUENCE");
    for known in &moves {
        let _ = match known.outcome {
            Some(outcome) => write!(text, " {} {}", known.chosen, if is_win(outcome, to_move) { 'W' } else { 'L' }),
            None => write!(text, " {} {:.2}", known.chosen, known.win_rate),
        };
    }
    text.push_str("\nLABEL");
    for known in &moves {
        let _ = write!(text, " {} {}", known.chosen, known.visits);
    }
    let _ = write!(text, "\nTEXT {}", summary(report, to_move));
    gfx("uct", &text)
}

/// Returns the state of a search in one line.
pub(super) fn summary(report: &Report<Cell>, to_move: Player) -> String {
    let best = report.best.chosen;
    let rollouts = rollouts_in(report);
    match report.solved {
        Some(outcome) if is_win(outcome, to_move) => format!("{best} wins, proven in {rollouts} rollouts"),
        Some(_) => format!("{best} loses, proven in {rollouts} rollouts"),
        None => format!("{best} wins {:.1} % in {rollouts} rollouts", report.best.win_rate * 100.0),
    }
}

/// Returns the number of rollouts in the tree, including those of earlier searches.
pub(super) fn rollouts_in(report: &Report<Cell>) -> u64 {
    report.kept + report.rollouts
}

fn is_win(outcome: Outcome, player: Player) -> bool {
    outcome == Outcome::Won(player)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::games::hex::{Hex, Position};
    use crate::search::{Budget, Search};

    const STEP: Duration = Duration::from_millis(100);

    fn report(moves: &str, rollouts: u64) -> (Report<Cell>, Player) {
        let position = Position::from_moves(3, moves).unwrap();
        let report = Search::new(Hex::new(3).unwrap()).run(&position, Budget::Rollouts(rollouts)).unwrap();
        (report, position.to_move())
    }

    #[test]
    fn a_block_has_four_lines() {
        let (report, to_move) = report("a1", 40);
        let text = show(&report, to_move);
        let lines: Vec<&str> = text.split('\n').collect();
        assert_eq!((lines[0], lines[1]), ("gogui-gfx:", "uct"), "{text}");
        assert!(lines[2].starts_with("VAR W "), "{text}");
        assert_eq!(lines[3].split(' ').count(), 1 + 2 * report.moves.len(), "{text}");
        let visits: u64 = lines[4].split(' ').skip(2).step_by(2).map(|count| count.parse::<u64>().unwrap()).sum();
        assert_eq!((visits, lines[3].split(' ').next()), (40, Some("INFLUENCE")), "{text}");
        assert!(lines[5].starts_with("TEXT ") && lines[6..] == ["", ""], "{text}");
    }

    #[test]
    fn proven_moves_are_marked() {
        // Black wins at once by b1 or c1. After any other move white cuts both.
        let (report, to_move) = report("b2 a1 b3 a2", 400);
        assert_eq!(report.solved, Some(Outcome::Won(Player::First)));
        let text = show(&report, to_move);
        assert!(text.contains(" b1 W") || text.contains(" c1 W"), "{text}");
        assert!(text.contains(&format!("wins, proven in {} rollouts", report.rollouts)), "{text}");
    }

    #[test]
    fn the_best_move_leads_although_a_lost_one_has_more_visits() {
        let (mut report, to_move) = report("a1", 40);
        report.moves[0].outcome = Some(Outcome::Won(to_move.opponent()));
        let [lost, best] = [0, 3].map(|index| report.moves[index].chosen);
        (report.best, report.line) = (report.moves[3], vec![best]);
        let text = show(&report, to_move);
        for begin in ["VAR W", "INFLUENCE", "LABEL"] {
            assert!(text.contains(&format!("\n{begin} {best}")), "{text}");
        }
        assert!(text.contains(&format!(" {lost} L")), "{text}");
        assert_eq!(text.matches(&format!(" {best} ")).count(), 3, "{text}");
    }

    #[test]
    fn a_watch_shows_and_ends_by_the_time_that_is_passed_in() {
        let (report, to_move) = report("", 40);
        assert_eq!(report.solved, None);
        let live = Live { interval: 3 * STEP, due: Duration::ZERO };
        let mut watch = Watch { deadline: 9 * STEP, to_move, live: Some(live) };
        let mut look = |steps| {
            let look = watch.look(&report, steps * STEP);
            (look.text.is_some(), look.stop)
        };
        assert_eq!(
            [0, 1, 2, 4, 5, 7, 8].map(&mut look).map(|(shown, _)| shown),
            [true, false, false, true, false, true, false]
        );
        assert_eq!([look(8), look(9)], [(false, false), (false, true)]);
    }

    #[test]
    fn a_watch_ends_a_solved_search() {
        let (report, to_move) = report("b2 a1 b3 a2", 400);
        let mut watch = Watch { deadline: STEP, to_move, live: None };
        assert_eq!(watch.look(&report, Duration::ZERO), Look { text: None, stop: true });
    }
}
