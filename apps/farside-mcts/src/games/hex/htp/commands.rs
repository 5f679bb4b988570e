//! The commands, each with the arguments that it takes.

use std::time::Duration;

use super::clocks::formatted;
use super::framing::{Command, quoted};
use super::parameters::{List, Parameters, seconds};
use super::table::{Move, Table, illegal};
use super::{Engine, Next, Outcome, Thinking};
use crate::game::Player;
use crate::games::hex::error::colour;
use crate::games::hex::{Diagram, SIZES};

/// A command: its name, its arguments for an error message, and its function.
struct Entry {
    name: &'static str,
    usage: &'static str,
    run: fn(&mut Engine, &Arguments<'_>, Duration) -> Outcome,
}

/// The arguments of a command, with its entry for an error message about their number.
struct Arguments<'a> {
    given: &'a [String],
    entry: &'static Entry,
}

const fn entry(
    name: &'static str,
    usage: &'static str,
    run: fn(&mut Engine, &Arguments<'_>, Duration) -> Outcome,
) -> Entry {
    Entry { name, usage, run }
}

/// All commands.
///
/// HexGui sends `name`, `version`, `hexgui-analyze_commands`, `boardsize`, `clear_board`, `play`,
/// `undo`, `genmove`, `showboard`, `quit`, `gogui-gfx-analyze`, and what [`ANALYZE_COMMANDS`]
/// lists. The protocol asks for `protocol_version`, `list_commands` and `known_command`. The
/// presence of `gogui-interrupt` tells a front end that the engine understands the comment `#
/// interrupt`.
static COMMANDS: [Entry; 21] = [
    entry("all_legal_moves", "", |engine, given, _| given.exactly().and_then(|[]| engine.all_legal_moves())),
    entry("boardsize", "WIDTH [HEIGHT]", |engine, given, _| engine.boardsize(given)),
    entry("clear_board", "", |engine, given, _| given.exactly().and_then(|[]| engine.clear_board())),
    entry("final_score", "", |engine, given, _| given.exactly().and_then(|[]| engine.final_score())),
    entry("genmove", "COLOR", |engine, given, now| {
        given.exactly().and_then(|[player]| engine.generate(read_colour(player)?, true, now))
    }),
    entry("gogui-gfx-analyze", "COLOR", |engine, given, now| {
        given.exactly().and_then(|[player]| engine.analyze(read_colour(player)?, now))
    }),
    entry("gogui-interrupt", "", |_, given, _| given.exactly().and_then(|[]| answer(""))),
    entry("hexgui-analyze_commands", "", |_, given, _| given.exactly().and_then(|[]| answer(ANALYZE_COMMANDS))),
    entry("known_command", "NAME", |_, given, _| {
        given.exactly().and_then(|[name]| answer(find(name).is_some().to_string()))
    }),
    entry("list_commands", "", |_, given, _| {
        given.exactly().and_then(|[]| answer(COMMANDS.iter().map(|known| known.name).collect::<Vec<_>>().join("\n")))
    }),
    entry("name", "", |_, given, _| given.exactly().and_then(|[]| answer("Farside"))),
    entry("param_farside", "[NAME VALUE]", |engine, given, _| set(&mut engine.parameters, given)),
    entry("param_game", "[NAME VALUE]", |engine, given, _| engine.param_game(given)),
    entry("play", "COLOR MOVE", |engine, given, _| {
        given.exactly().and_then(|[player, text]| engine.play(player, text))
    }),
    entry("protocol_version", "", |_, given, _| given.exactly().and_then(|[]| answer("2"))),
    entry("quit", "", |_, given, _| given.exactly().map(|[]| Next::Quit)),
    entry("reg_genmove", "COLOR", |engine, given, now| {
        given.exactly().and_then(|[player]| engine.generate(read_colour(player)?, false, now))
    }),
    entry("showboard", "", |engine, given, _| given.exactly().and_then(|[]| engine.showboard())),
    entry("time_left", "[COLOR [SECONDS [0]]]", |engine, given, _| engine.time_left(given)),
    entry("undo", "", |engine, given, _| given.exactly().and_then(|[]| engine.undo())),
    entry("version", "", |_, given, _| given.exactly().and_then(|[]| answer(env!("CARGO_PKG_VERSION")))),
];

/// The entries of HexGui's Analyze menu: the kind of the answer, a label, and the command.
///
/// HexGui takes up the answer of a `string`, `plist` or `param`. Of the kind `none` it would ignore
/// the effect of a command on the board, so no such command is listed.
const ANALYZE_COMMANDS: &str = "string/Think About the Position/gogui-gfx-analyze %m
string/Best Move/reg_genmove %m
plist/Legal Moves/all_legal_moves
string/Final Score/final_score
string/Time Left/time_left
param/Game Parameters/param_game
param/Engine Parameters/param_farside";

fn find(name: &str) -> Option<&'static Entry> {
    COMMANDS.iter().find(|known| known.name == name)
}

fn answer(text: impl Into<String>) -> Outcome {
    Ok(Next::Answer(text.into()))
}

impl Arguments<'_> {
    fn exactly<const N: usize>(&self) -> Result<[&str; N], String> {
        let words: Vec<&str> = self.given.iter().map(String::as_str).collect();
        words.try_into().map_err(|_| self.wrong_number())
    }

    fn wrong_number(&self) -> String {
        let Entry { name, usage, .. } = self.entry;
        format!("wrong number of arguments: write {name}{}{usage}", if usage.is_empty() { "" } else { " " })
    }

    fn words(&self) -> Vec<&str> {
        self.given.iter().map(String::as_str).collect()
    }
}

impl Engine {
    /// Carries out the first step of a command.
    pub(super) fn carry_out(&mut self, command: &Command, now: Duration) -> Outcome {
        let entry = find(&command.name).ok_or_else(|| match command.name.as_str() {
            "" => "no command".into(),
            name => format!("unknown command: {}", quoted(name)),
        })?;
        (entry.run)(self, &Arguments { given: &command.arguments, entry }, now)
    }

    fn all_legal_moves(&self) -> Outcome {
        let position = self.table.position();
        if position.winner().is_some() {
            return answer("");
        }
        let mut moves: Vec<_> = position.empty_cells().map(|cell| cell.to_string()).collect();
        if self.game.allow_swap && self.table.to_swap(position.to_move()).is_some() {
            moves.push(self.swap_name().into());
        }
        answer(moves.join(" "))
    }

    fn boardsize(&mut self, given: &Arguments<'_>) -> Outcome {
        let (width, height) = match given.words()[..] {
            [width] => (width, width),
            [width, height] => (width, height),
            _ => return Err(given.wrong_number()),
        };
        let unacceptable = || {
            let (min, max) = (SIZES.start(), SIZES.end());
            let asked = format!("{} x {}", quoted(width), quoted(height));
            format!("unacceptable size: {asked}; use a square board of {min} to {max} cells a side")
        };
        let size = width.parse().ok().filter(|size| Ok(*size) == height.parse::<usize>());
        let size = size.filter(|size| SIZES.contains(size)).ok_or_else(unacceptable)?;
        self.begin(Table::new(size).map_err(|why| why.to_string())?);
        answer("")
    }

    fn clear_board(&mut self) -> Outcome {
        self.begin(Table::new(self.table.position().size()).map_err(|why| why.to_string())?);
        answer("")
    }

    fn final_score(&self) -> Outcome {
        answer(match self.table.winner() {
            Some(Player::First) => "B+",
            Some(Player::Second) => "W+",
            None => "cannot score",
        })
    }

    fn generate(&mut self, player: Player, plays: bool, now: Duration) -> Outcome {
        if self.table.position().winner().is_some() {
            return answer("resign");
        }
        match self.move_at_sight(player) {
            Some(choice) => self.settle(player, plays.then_some(Duration::ZERO), choice).map(Next::Answer),
            None => {
                let order = self.order(player, self.parameters.use_livegfx, now);
                Ok(Next::Search(order, Thinking::Move { player, plays, since: now }))
            }
        }
    }

    fn analyze(&mut self, player: Player, now: Duration) -> Outcome {
        if let Some(winner) = self.table.position().winner() {
            return Err(format!("the game is over: {} has won", colour(winner)));
        }
        Ok(Next::Search(self.order(player, true, now), Thinking::Analysis(player)))
    }

    fn param_game(&mut self, given: &Arguments<'_>) -> Outcome {
        let before = self.game.game_time;
        let is_begun = self.table.has_begun();
        if let ["game_time", _] = given.words()[..]
            && is_begun
        {
            return Err("cannot set game_time: the game has begun; set the clocks with time_left".into());
        }
        let outcome = set(&mut self.game, given);
        if self.game.game_time != before {
            self.reset_clocks();
        }
        outcome
    }

    fn play(&mut self, player: &str, text: &str) -> Outcome {
        let player = read_colour(player)?;
        let done = self.read_move(player, text)?;
        self.table.play(player, text, done)?;
        answer("")
    }

    fn showboard(&self) -> Outcome {
        let position = self.table.position();
        let turn = match position.winner() {
            Some(winner) => format!("{} has won", colour(winner)),
            None => format!("{} to move", colour(position.to_move())),
        };
        answer(format!("\n{}{turn}", Diagram::new(position)))
    }

    fn time_left(&mut self, given: &Arguments<'_>) -> Outcome {
        let of = |player| formatted(self.clocks.left(player));
        match given.words()[..] {
            [] => answer(format!("Black: {}, White: {}", of(Player::First), of(Player::Second))),
            [player] => answer(of(read_colour(player)?)),
            // As in Go, the last number counts the stones to play in this time. 0 means all of
            // them.
            [player, left] | [player, left, "0"] => {
                self.clocks.set(read_colour(player)?, seconds("time_left", left, 0.0)?);
                answer("")
            }
            _ => Err(given.wrong_number()),
        }
    }

    fn undo(&mut self) -> Outcome {
        self.table.undo()?;
        answer("")
    }

    fn read_move(&self, player: Player, text: &str) -> Result<Move, String> {
        let illegal = |why| illegal(player, text, why);
        match Move::read(text, self.game.swap_mode).map_err(illegal)? {
            Move::Swap(_) if !self.game.allow_swap => Err(illegal("swapping is off; send param_game allow_swap 1")),
            done => Ok(done),
        }
    }
}

fn read_colour(text: &str) -> Result<Player, String> {
    match text.to_ascii_lowercase().as_str() {
        "b" | "black" => Ok(Player::First),
        "w" | "white" => Ok(Player::Second),
        _ => Err(format!("invalid color {}: write black or white", quoted(text))),
    }
}

/// Lists all parameters, or sets one.
fn set(parameters: &mut impl Parameters, given: &Arguments<'_>) -> Outcome {
    match given.words()[..] {
        [] => answer(List::of(parameters)),
        [name, value] => parameters.set(name, value).and_then(|()| answer("")),
        _ => Err(given.wrong_number()),
    }
}
