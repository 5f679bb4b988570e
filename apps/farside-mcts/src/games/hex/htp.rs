//! The Hex Text Protocol.
//!
//! Graphical front ends such as HexGui speak it with an engine, and so do programs that let engines
//! play each other.
//!
//! A command is a line. Its answer begins with `=`, or with `?` if the engine refuses the command,
//! and ends with an empty line. Blocks that begin with `gogui-gfx:` may precede the answer: they
//! show a person how the search proceeds.
//!
//! [`Engine`] is the protocol alone. It does no input or output, reads no clock and searches
//! nothing: its driver passes in lines and times, and carries out each [`Action`] that it returns.
//! So a test can play a whole game against a clock that stands still.
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
//! let action = engine.line(&"12 genmove black".into(), now);
//! let Action::Search(order) = action else { panic!("no search") };
//! let report = Search::new(order.game).params(order.params).run(&order.position, order.budget)?;
//! let Action::Write(text) = engine.found(&report, now) else { panic!("no answer") };
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
mod table;

use std::time::Duration;

use crate::game::Player;
use crate::games::hex::{Cell, Hex, Position};
use crate::search::{Budget, MAX_ROLLOUTS, Params, Report};
use clocks::Clocks;
use framing::{Command, framed};
use live::Live;
use parameters::{EngineParameters, GameParameters};
use table::{Move, SwapMode, Table};

pub use lines::{Line, Lines};
pub use live::{Look, Watch};

/// Default side of the board.
const SIZE: usize = 11;

/// The engine's side of the protocol.
#[derive(Debug)]
pub struct Engine {
    table: Table,
    clocks: Clocks,
    game: GameParameters,
    parameters: EngineParameters,
    /// Id of the command in progress.
    id: Option<u32>,
    /// Purpose of the search in progress.
    thinking: Option<Thinking>,
}

/// The next action of the driver of an [`Engine`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Pass in the next line: this one was empty or a comment.
    Ignore,
    /// Write this to the standard output at once, then pass in the next line.
    Write(String),
    /// Search, then call [`Engine::found`] or [`Engine::failed`].
    Search(Box<Order>),
    /// Write this to the standard output, then exit.
    Quit(String),
}

/// A search that the engine asks for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Order {
    /// The game.
    pub game: Hex,
    /// The position.
    pub position: Position,
    /// The parameters of the search.
    pub params: Params,
    /// The budget after which the search ends by itself.
    pub budget: Budget,
    /// True if the search may reuse the tree of the last one. It can if this position follows from
    /// that one ([`Position::moves_to`]).
    pub reuses: bool,
    /// Observer of interim reports, to be called some hundred times a second. It can end the
    /// search.
    pub watch: Watch,
}

/// The result of a command's first step.
#[derive(Debug)]
enum Next {
    Answer(String),
    Search(Box<Order>, Thinking),
    Quit,
}

/// The next step of a command, or the reason for its refusal.
type Outcome = Result<Next, String>;

/// The purpose of a search.
#[derive(Clone, Copy, Debug)]
enum Thinking {
    /// A move for `player`.
    Move {
        player: Player,
        /// True if the move is played and its time is charged to the clock.
        plays: bool,
        since: Duration,
    },
    /// An analysis with `player` to move.
    Analysis(Player),
}

impl Engine {
    /// Returns an engine with an empty board of 11 × 11 cells.
    ///
    /// `workers` is the number of workers that search; the engine only reports it. `seed` is the
    /// initial value of the parameter `seed`.
    #[must_use]
    pub fn new(workers: u32, seed: u64) -> Self {
        Self {
            table: Table::new(SIZE).expect("there are boards of this size"),
            clocks: Clocks::default(),
            game: GameParameters::default(),
            parameters: EngineParameters::new(workers, seed),
            id: None,
            thinking: None,
        }
    }

    /// Takes the next line. The driver has carried out the action for the line before.
    ///
    /// `now` is the time since any fixed moment, the same one for all calls.
    pub fn line(&mut self, line: &Line, now: Duration) -> Action {
        let Some(command) = Command::read(&line.text) else { return Action::Ignore };
        self.id = command.id;
        let outcome = match line.is_cut {
            true => Err(format!("the line is longer than {} bytes", lines::LINE_BYTES_MAX)),
            false => self.carry_out(&command, now),
        };
        match outcome {
            Ok(Next::Search(order, thinking)) => {
                self.thinking = Some(thinking);
                Action::Search(order)
            }
            Ok(Next::Answer(text)) => Action::Write(framed(self.id, &Ok(text))),
            Ok(Next::Quit) => Action::Quit(framed(self.id, &Ok(String::new()))),
            Err(why) => Action::Write(framed(self.id, &Err(why))),
        }
    }

    /// Takes the result of the search that [`Action::Search`] asked for.
    pub fn found(&mut self, report: &Report<Cell>, now: Duration) -> Action {
        let (shown, result) = match self.thinking.take() {
            Some(Thinking::Move { player, plays, since }) => {
                let shown = self.parameters.use_livegfx.then(|| live::show(report, player));
                let Self { table, game, parameters, .. } = self;
                let choice = choice::after_search(table, game, parameters, player, report);
                let taken = now.saturating_sub(since);
                (shown, self.settle(player, plays.then_some(taken), choice))
            }
            Some(Thinking::Analysis(player)) => (Some(live::show(report, player)), Ok(live::summary(report, player))),
            None => return Action::Ignore,
        };
        Action::Write(shown.unwrap_or_default() + &framed(self.id, &result))
    }

    /// Takes the reason why the search that [`Action::Search`] asked for was not possible.
    pub fn failed(&mut self, why: &str) -> Action {
        match self.thinking.take() {
            Some(_) => Action::Write(framed(self.id, &Err(why.into()))),
            None => Action::Ignore,
        }
    }

    /// Begins a game.
    fn begin(&mut self, table: Table) {
        self.table = table;
        self.reset_clocks();
    }

    fn reset_clocks(&mut self) {
        self.clocks = Clocks::both(self.game.game_time);
    }

    fn order(&self, player: Player, shows: bool, now: Duration) -> Box<Order> {
        let EngineParameters { max_time, max_games, search, use_connections, reuse_subtree, .. } = self.parameters;
        let position = self.table.position_for(player);
        let hex = Hex::new(position.size()).expect("there are positions of this size");
        let time = self.clocks.share(player, position.empty_cells().count(), max_time);
        let live = shows.then(|| Live::new(self.parameters.livegfx_interval, now));
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

    /// Returns the name of a chosen move. If the move took time to `play`, plays it and charges
    /// the player's clock.
    fn settle(&mut self, player: Player, play: Option<Duration>, choice: Move) -> Result<String, String> {
        let name = match choice {
            Move::Stone(cell) => cell.to_string(),
            Move::Pass => "pass".into(),
            Move::Swap(_) => self.swap_name().into(),
            Move::GiveUp => "resign".into(),
        };
        if let Some(taken) = play {
            self.clocks.charge(player, taken);
            self.table.play(player, &name, choice)?;
        }
        Ok(name)
    }

    fn swap_name(&self) -> &'static str {
        match self.game.swap_mode {
            _ if self.game.on_little_golem => "swap",
            SwapMode::Sides => "swap-sides",
            SwapMode::Pieces | SwapMode::Twogtp => "swap-pieces",
        }
    }
}
