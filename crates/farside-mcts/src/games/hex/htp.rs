//! The Hex Text Protocol, by which graphical front ends such as HexGui, and programs that have engines play each other,
//! talk to an engine.
//!
//! A command is a line; its answer begins with `=`, or with `?` if it cannot be carried out, and ends with an empty line.
//! Blocks that begin with `gogui-gfx:` may stand before an answer, for the person who watches.
//!
//! [`Engine`] is the protocol alone. It does no input or output, reads no clock and searches nothing: it is given lines
//! and times, and answers with an [`Action`] for whoever drives it. So a test can play a whole game against a clock that
//! never ticks.
//!
//! ```
//! use std::time::Duration;
//!
//! use farside_mcts::Search;
//! use farside_mcts::games::hex::htp::{Action, Engine};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut engine = Engine::new(1, 7);
//! let now = Duration::ZERO;
//! engine.line(&"boardsize 3".into(), now);
//! engine.line(&"param_farside max_games 500".into(), now);
//! let Action::Search(order) = engine.line(&"12 genmove black".into(), now) else { panic!("it was to think") };
//! let report = Search::new(order.game).params(order.params).run(&order.position, order.budget)?;
//! let Action::Write(text) = engine.found(&report, now) else { panic!("it was to answer") };
//! assert_eq!(text, "=12 b2\n\n");
//! # Ok(())
//! # }
//! ```

mod choice;
mod clocks;
mod commands;
mod framing;
mod lines;
mod live;
mod openings;
mod parameters;
mod sgf;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use crate::game::Player;
use crate::games::hex::{Cell, Hex, Position};
use crate::search::{Budget, MAX_ROLLOUTS, Params, Report};
use clocks::Clocks;
use framing::{Command, framed};
use live::Live;
use parameters::{EngineParameters, GameParameters};
use table::{Move, Table};

pub use lines::{Line, Lines};
pub use live::{Look, Watch};

/// The board's side when nothing is said.
const SIZE: usize = 11;
/// Files that are being carried out, one from within another, at most.
const SCRIPTS_MAX: usize = 8;
/// Commands that one `exec` carries out, at most.
const SCRIPTED_COMMANDS_MAX: u32 = 10_000;

/// An engine's side of the protocol.
#[derive(Debug)]
pub struct Engine {
    table: Table,
    clocks: Clocks,
    game: GameParameters,
    parameters: EngineParameters,
    /// Of the command that is being carried out.
    id: Option<u32>,
    waiting: Option<Waiting>,
    /// Files that are being carried out; the last was begun by the one before.
    scripts: Vec<Script>,
    scripted_commands: u32,
    /// What the commands of these files have answered.
    answers: Vec<String>,
    /// To be shown before the answer.
    aside: String,
}

/// What is to be done next by whoever drives an [`Engine`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Go on with the next line: this was a comment, or empty.
    Ignore,
    /// Write this to the standard output at once, and go on with the next line.
    Write(String),
    /// Search, and tell [`Engine::found`] or [`Engine::failed`].
    Search(Box<Order>),
    /// Read a file, and tell [`Engine::read`] or [`Engine::failed`].
    Read(PathBuf),
    /// Write this to the standard output, and end.
    Quit(String),
}

/// What is to be searched.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Order {
    /// The game.
    pub game: Hex,
    /// The position.
    pub position: Position,
    /// The parameters.
    pub params: Params,
    /// When the search ends by itself.
    pub budget: Budget,
    /// Go on with what is known from the last search, if this position can have come of that one
    /// ([`Position::moves_to`]).
    pub reuses: bool,
    /// Is to look at interim reports, some hundred times a second. It ends the search, too.
    pub watch: Watch,
}

/// What a command has come to.
#[derive(Debug)]
enum Next {
    Answer(String),
    Search(Box<Order>, Waiting),
    Read(PathBuf, Waiting),
    Quit,
}

/// What becomes of a command, or what is wrong with it.
type Outcome = Result<Next, String>;

/// What a search or a file is for.
#[derive(Debug)]
enum Waiting {
    Move(Thinking),
    Analysis(Player),
    Record { moves_max: usize },
    Script { name: String },
}

/// A move that is being thought about.
#[derive(Clone, Copy, Debug)]
struct Thinking {
    player: Player,
    /// The move will be played, and its time counts.
    plays: bool,
    since: Duration,
}

/// A file of commands.
#[derive(Debug)]
struct Script {
    name: String,
    lines: std::vec::IntoIter<String>,
    /// Lines taken so far.
    line_number: usize,
}

impl Engine {
    /// An engine with an empty board of 11 × 11 cells, that searches with so many workers and, unless it is told another, this
    /// seed.
    #[must_use]
    pub fn new(workers: u32, seed: u64) -> Self {
        Self {
            table: Table::new(SIZE).expect("there are boards of this size"),
            clocks: Clocks::default(),
            game: GameParameters::default(),
            parameters: EngineParameters::new(workers, seed),
            id: None,
            waiting: None,
            scripts: Vec::new(),
            scripted_commands: 0,
            answers: Vec::new(),
            aside: String::new(),
        }
    }

    /// Takes the next line. The action for the line before must have been carried out.
    ///
    /// Times are counted from any moment, the same one for all calls.
    pub fn line(&mut self, line: &Line, now: Duration) -> Action {
        let Some(command) = Command::read(&line.text) else { return Action::Ignore };
        self.id = command.id;
        self.scripted_commands = 0;
        let outcome = match line.is_cut {
            true => Err(format!("the line is longer than {} bytes", lines::LINE_BYTES_MAX)),
            false => self.carry_out(&command, now),
        };
        self.go_on(outcome, now)
    }

    /// Takes what a search has found that was ordered by [`Action::Search`].
    pub fn found(&mut self, report: &Report<Cell>, now: Duration) -> Action {
        let outcome = match self.waiting.take() {
            Some(Waiting::Move(thinking)) => {
                if self.parameters.use_livegfx {
                    self.aside += &self.parameters.livegfx_format.show(report, thinking.player);
                }
                let Self { table, game, parameters, .. } = self;
                let choice = choice::after_search(table, game, parameters, thinking.player, report);
                self.settle(thinking, choice, now).map(Next::Answer)
            }
            Some(Waiting::Analysis(player)) => {
                self.aside += &self.parameters.livegfx_format.show(report, player);
                Ok(Next::Answer(live::summary(report, player)))
            }
            Some(Waiting::Record { .. } | Waiting::Script { .. }) | None => return Action::Ignore,
        };
        self.go_on(outcome, now)
    }

    /// Takes the text of a file that was asked for by [`Action::Read`].
    pub fn read(&mut self, text: &str, now: Duration) -> Action {
        let outcome = match self.waiting.take() {
            Some(Waiting::Record { moves_max }) => self.load(text, moves_max),
            Some(Waiting::Script { name }) => return self.go_on_with_script(name, text, now),
            Some(Waiting::Move(_) | Waiting::Analysis(_)) | None => return Action::Ignore,
        };
        self.go_on(outcome, now)
    }

    /// What was asked for last cannot be done.
    pub fn failed(&mut self, why: &str, now: Duration) -> Action {
        match self.waiting.take() {
            Some(_) => self.go_on(Err(why.into()), now),
            None => Action::Ignore,
        }
    }

    fn go_on(&mut self, mut outcome: Outcome, now: Duration) -> Action {
        loop {
            match outcome {
                Ok(Next::Search(order, waiting)) => {
                    self.waiting = Some(waiting);
                    return Action::Search(order);
                }
                Ok(Next::Read(path, waiting)) => {
                    self.waiting = Some(waiting);
                    return Action::Read(path);
                }
                Ok(Next::Quit) => {
                    let answer = self.answer(Ok(String::new()));
                    return Action::Quit(answer);
                }
                Ok(Next::Answer(text)) if self.scripts.is_empty() => return Action::Write(self.answer(Ok(text))),
                Ok(Next::Answer(text)) => self.answers.extend((!text.is_empty()).then_some(text)),
                Err(why) => return Action::Write(self.answer(Err(why))),
            }
            match self.next_scripted() {
                Some(command) => outcome = self.count_scripted().and_then(|()| self.carry_out(&command, now)),
                None => return Action::Write(self.answer(Ok(String::new()))),
            }
        }
    }

    /// The answer to the command that was sent, which may have been to carry out a file.
    fn answer(&mut self, result: Result<String, String>) -> String {
        let mut text = std::mem::take(&mut self.aside);
        let mut answers = std::mem::take(&mut self.answers);
        let result = match (result, self.scripts.last()) {
            (Ok(answer), _) => {
                answers.push(answer);
                Ok(answers.join("\n"))
            }
            (Err(why), Some(Script { name, line_number, .. })) => {
                Err(format!("{} line {line_number}: {why}", framing::quoted(name)))
            }
            (Err(why), None) => Err(why),
        };
        self.scripts.clear();
        text += &framed(self.id, &result);
        text
    }
}

/// Files of commands.
impl Engine {
    fn may_nest(&self) -> Result<(), String> {
        match self.scripts.len() < SCRIPTS_MAX {
            true => Ok(()),
            false => Err(format!("more than {SCRIPTS_MAX} files carry out each other: does one carry out itself?")),
        }
    }

    fn go_on_with_script(&mut self, name: String, text: &str, now: Duration) -> Action {
        let lines: Vec<String> = text.split('\n').map(|line| Line::from(line).text).collect();
        self.scripts.push(Script { name, lines: lines.into_iter(), line_number: 0 });
        self.go_on(Ok(Next::Answer(String::new())), now)
    }

    /// The next command of the files that are being carried out; `None` when all of them are at their end.
    fn next_scripted(&mut self) -> Option<Command> {
        loop {
            let script = self.scripts.last_mut()?;
            match script.lines.next() {
                Some(line) => {
                    script.line_number += 1;
                    if let Some(command) = Command::read(&line) {
                        return Some(command);
                    }
                }
                None => drop(self.scripts.pop()),
            }
        }
    }

    fn count_scripted(&mut self) -> Result<(), String> {
        self.scripted_commands += 1;
        match self.scripted_commands <= SCRIPTED_COMMANDS_MAX {
            true => Ok(()),
            false => Err(format!("more than {SCRIPTED_COMMANDS_MAX} commands in files")),
        }
    }
}

/// The game.
impl Engine {
    fn begin(&mut self, table: Table) {
        self.table = table;
        self.reset_clocks();
    }

    fn reset_clocks(&mut self) {
        self.clocks = Clocks::both(self.game.game_time);
    }

    fn load(&mut self, text: &str, moves_max: usize) -> Outcome {
        let table =
            sgf::load(text, moves_max, self.game.swap_mode).map_err(|why| format!("cannot load the game: {why}"))?;
        self.begin(table);
        Ok(Next::Answer(String::new()))
    }

    fn order(&self, player: Player, shows: bool, now: Duration) -> Box<Order> {
        let EngineParameters { max_time, max_games, search, use_connections, reuse_subtree, .. } = self.parameters;
        let position = self.table.position_for(player);
        let hex = Hex::new(position.size()).expect("there are positions of this size");
        let time = self.clocks.share(player, position.empty_cells().count(), max_time);
        let live = shows.then(|| Live::new(&self.parameters, now));
        Box::new(Order {
            game: if use_connections { hex.with_connections() } else { hex },
            position,
            params: search,
            budget: if max_games < MAX_ROLLOUTS { Budget::Rollouts(max_games) } else { Budget::Time(time) },
            reuses: reuse_subtree,
            watch: Watch { deadline: now + time, to_move: player, live },
        })
    }

    fn move_at_sight(&self, player: Player) -> Option<Move> {
        choice::at_sight(&self.table, &self.game, player)
    }

    /// Plays what was chosen, if it is to be played, and says what it is.
    fn settle(&mut self, thinking: Thinking, choice: Move, now: Duration) -> Result<String, String> {
        let Thinking { player, plays, since } = thinking;
        let name = match choice {
            Move::Stone(cell) => cell.to_string(),
            Move::Pass => "pass".into(),
            Move::Swap(_) => self.swap_name().into(),
            Move::GiveUp => "resign".into(),
        };
        if plays {
            self.clocks.charge(player, now.saturating_sub(since));
            self.table.play(player, &name, choice)?;
        }
        Ok(name)
    }

    fn swap_name(&self) -> &'static str {
        if self.game.on_little_golem { "swap" } else { "swap-pieces" }
    }
}
