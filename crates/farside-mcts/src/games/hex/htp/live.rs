//! What a search shows while it thinks, and when it stops.

use std::fmt::Write;
use std::time::Duration;

use super::framing::gfx;
use super::parameters::EngineParameters;
use crate::game::{Outcome, Player};
use crate::games::hex::Cell;
use crate::search::{MoveReport, Report};

/// How a graphical front end likes to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LiveFormat {
    /// As MoHex tells HexGui: a variation, a value and a count for each cell, and a text.
    Uct,
    /// As KataHex does: for each move what an analysis says.
    Kata,
}

/// Looks at a search from time to time.
///
/// It reads no clock and writes nothing: times come in, and texts go out.
#[derive(Clone, Debug)]
pub struct Watch {
    /// When the search is to end.
    pub(super) deadline: Duration,
    pub(super) to_move: Player,
    pub(super) live: Option<Live>,
}

/// What is shown, and when next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    pub(super) format: LiveFormat,
    pub(super) interval: Duration,
    pub(super) due: Duration,
}

/// What a look at a search led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Look {
    /// To be written to the standard output at once.
    pub text: Option<String>,
    /// The search has gone on for long enough.
    pub stop: bool,
}

impl Live {
    pub(super) fn new(parameters: &EngineParameters, now: Duration) -> Self {
        let EngineParameters { livegfx_format: format, livegfx_interval: interval, .. } = *parameters;
        Self { format, interval, due: now + interval }
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
            text = Some(live.format.show(report, self.to_move));
        }
        Look { text, stop }
    }
}

impl LiveFormat {
    /// A block that shows how far a search is.
    pub(super) fn show(self, report: &Report<Cell>, to_move: Player) -> String {
        match self {
            Self::Uct => gfx("uct", &uct(report, to_move)),
            Self::Kata => gfx("kata", &kata(report)),
        }
    }
}

fn uct(report: &Report<Cell>, to_move: Player) -> String {
    let mut text = String::from("VAR");
    let mut player = to_move;
    for cell in &report.line {
        let _ = write!(text, " {} {cell}", if player == Player::First { 'B' } else { 'W' });
        player = player.opponent();
    }
    text.push_str("\nINFLUENCE");
    for known in &report.moves {
        let _ = match known.outcome {
            Some(outcome) => write!(text, " {} {}", known.chosen, if is_win(outcome, to_move) { 'W' } else { 'L' }),
            None => write!(text, " {} {:.2}", known.chosen, known.win_rate),
        };
    }
    text.push_str("\nLABEL");
    for known in &report.moves {
        let _ = write!(text, " {} {}", known.chosen, known.visits);
    }
    let _ = write!(text, "\nTEXT {}", summary(report, to_move));
    text
}

fn kata(report: &Report<Cell>) -> String {
    let info = |(known, order): (&MoveReport<Cell>, usize)| {
        let MoveReport { chosen, visits, win_rate, .. } = known;
        format!("info move {chosen} visits {visits} winrate {win_rate:.4} scoreLead 0 order {order}")
    };
    report.moves.iter().zip(0..).map(info).collect::<Vec<_>>().join(" ")
}

/// What a search thinks, in a line.
pub(super) fn summary(report: &Report<Cell>, to_move: Player) -> String {
    let best = report.best.chosen;
    let rollouts = rollouts_in(report);
    match report.solved {
        Some(outcome) if is_win(outcome, to_move) => format!("{best} wins, proven in {rollouts} rollouts"),
        Some(_) => format!("{best} loses, proven in {rollouts} rollouts"),
        None => format!("{best} wins {:.1} % in {rollouts} rollouts", report.best.win_rate * 100.0),
    }
}

/// Rollouts that a report rests on, with those of earlier searches.
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
    fn the_classical_format_has_four_lines() {
        let (report, to_move) = report("a1", 40);
        let text = LiveFormat::Uct.show(&report, to_move);
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
        // Black wins by b1 or c1, at once; elsewhere white cuts both.
        let (report, to_move) = report("b2 a1 b3 a2", 400);
        assert_eq!(report.solved, Some(Outcome::Won(Player::First)));
        let text = LiveFormat::Uct.show(&report, to_move);
        assert!(text.contains(" b1 W") || text.contains(" c1 W"), "{text}");
        assert!(text.contains(&format!("wins, proven in {} rollouts", report.rollouts)), "{text}");
    }

    #[test]
    fn the_other_format_has_five_keys_for_each_move() {
        let (report, to_move) = report("", 40);
        let text = LiveFormat::Kata.show(&report, to_move);
        let words: Vec<&str> = text.split_whitespace().skip(2).collect();
        assert!(text.starts_with("gogui-gfx:\nkata\ninfo move ") && text.ends_with("\n\n"), "{text}");
        for (info, order) in words.chunks(11).zip(0..) {
            let [i, m, _, v, _, w, rate, s, "0", o, number] = info[..] else { panic!("{info:?}") };
            assert_eq!([i, m, v, w, s, o], ["info", "move", "visits", "winrate", "scoreLead", "order"]);
            assert_eq!(number, order.to_string());
            assert!((0.0..=1.0).contains(&rate.parse::<f64>().unwrap()), "{text}");
        }
    }

    #[test]
    fn a_watch_shows_and_stops_by_the_time_it_is_told() {
        let (report, to_move) = report("", 40);
        assert_eq!(report.solved, None);
        let live = Live { format: LiveFormat::Uct, interval: 3 * STEP, due: Duration::ZERO };
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
    fn a_watch_stops_when_nothing_is_left_to_find() {
        let (report, to_move) = report("b2 a1 b3 a2", 400);
        let mut watch = Watch { deadline: STEP, to_move, live: None };
        assert_eq!(watch.look(&report, Duration::ZERO), Look { text: None, stop: true });
    }
}
