//! The Hex Text Protocol, with a clock that stands still unless the test moves it.

mod hexgui;

use std::time::Duration;

use farside_mcts::games::hex::htp::{Action, Engine, Lines, Order};
use farside_mcts::{Budget, Local, Search};
use proptest::prelude::*;
use serde_json::Value;

/// An engine and its driver.
struct Session {
    engine: Engine,
    now: Duration,
    /// Time that a search takes beyond its deadline.
    late: Duration,
    /// Orders of the searches so far.
    positions: Vec<Order>,
    has_quit: bool,
}

/// Number of rollouts that replaces a budget of time.
const ROLLOUTS: u64 = 60;

impl Session {
    fn new() -> Self {
        Self {
            engine: Engine::new(1, 7),
            now: Duration::ZERO,
            late: Duration::ZERO,
            positions: Vec::new(),
            has_quit: false,
        }
    }

    /// Returns a session with a small board and searches without connections.
    fn on(size: usize) -> Self {
        let mut session = Self::new();
        session.good(&format!("boardsize {size}"));
        session.good("param_farside use_connections 0");
        session
    }

    /// Starts a game with these moves, black first.
    #[track_caller]
    fn game(&mut self, moves: &str) {
        self.good("clear_board");
        for (cell, player) in moves.split(' ').zip(["black", "white"].into_iter().cycle()) {
            self.good(&format!("play {player} {cell}"));
        }
    }

    /// Returns everything that the engine writes for a line.
    fn written(&mut self, line: &str) -> String {
        let mut action = self.engine.line(&line.into(), self.now);
        loop {
            action = match action {
                Action::Search(order) => self.search(*order),
                Action::Write(text) => return text,
                Action::Quit(text) => {
                    self.has_quit = true;
                    return text;
                }
                _ => return String::new(),
            };
        }
    }

    fn search(&mut self, order: Order) -> Action {
        let budget = match order.budget {
            Budget::Time(time) => {
                self.now += time;
                Budget::Rollouts(ROLLOUTS)
            }
            rollouts => rollouts,
        };
        self.now += self.late;
        let report = Search::new(order.game).params(order.params).on(Local).run(&order.position, budget).unwrap();
        self.positions.push(order);
        self.engine.found(&report, self.now)
    }

    /// Returns the text of an answer; panics if it is a refusal.
    #[track_caller]
    fn good(&mut self, line: &str) -> String {
        let text = self.written(line);
        text.strip_prefix("= ")
            .and_then(|text| text.strip_suffix("\n\n"))
            .unwrap_or_else(|| panic!("{line}: {text}"))
            .into()
    }

    /// Returns the text of a refusal; panics if the command succeeds.
    #[track_caller]
    fn bad(&mut self, line: &str) -> String {
        let text = self.written(line);
        text.strip_prefix("? ")
            .and_then(|text| text.strip_suffix("\n\n"))
            .unwrap_or_else(|| panic!("{line}: {text}"))
            .into()
    }
}

#[test]
fn an_engine_describes_itself() {
    let mut session = Session::new();
    assert_eq!(session.good("name"), "Farside");
    assert_eq!(session.good("version"), env!("CARGO_PKG_VERSION"));
    assert_eq!(session.good("protocol_version"), "2");
    let commands = session.good("list_commands");
    for command in commands.lines() {
        assert_eq!(session.good(&format!("known_command {command}")), "true");
    }
    assert_eq!(session.good("known_command komi"), "false");
    for line in session.good("hexgui-analyze_commands").lines() {
        let [kind, _, command] = line.split('/').collect::<Vec<_>>()[..] else { panic!("{line}") };
        // HexGui takes up the answers of these, and would ignore what another changes on the board.
        assert!(["string", "plist", "param"].contains(&kind), "{line}");
        assert!(commands.lines().any(|known| Some(known) == command.split(' ').next()), "{line}");
    }
    assert_eq!(session.good("gogui-interrupt"), "");
    assert_eq!(session.written("quit"), "= \n\n");
    assert!(session.has_quit);
}

#[test]
fn every_command_refuses_a_wrong_number_of_arguments() {
    let mut session = Session::on(5);
    for command in session.good("list_commands").lines() {
        let why = session.bad(&format!("{command} a b c d"));
        assert!(why.starts_with("wrong number of arguments: write ") && why.contains(command), "{why}");
    }
}

impl Session {
    #[track_caller]
    fn framed(&mut self, line: &str, frame: &str) {
        assert_eq!(self.written(line), frame);
    }
}

#[test]
fn answers_carry_the_id_of_their_command() {
    let mut session = Session::on(5);
    session.framed("12 name", "=12 Farside\n\n");
    session.framed("0 undo", "?0 cannot undo: no move was played\n\n");
    session.framed("13", "?13 no command\n\n");
    session.framed(" \t14   play  B  A1 # the corner", "=14 \n\n");
    session.framed("# 15 name", "");
    session.framed("", "");
}

#[test]
fn errors_name_their_cause() {
    let mut session = Session::on(5);
    session.good("play b c3");
    for (line, why) in [
        ("conquer", "unknown command: conquer"),
        ("play b", "write play COLOR MOVE"),
        ("play red a1", "invalid color red"),
        ("play w c3", "illegal move: white c3 (occupied)"),
        ("play w f1", "illegal move: white f1 (off the board)"),
        ("play w zz", "illegal move: white zz (not a move"),
        ("play w swap-pieces", "illegal move: white swap-pieces (swapping is off"),
        ("genmove x", "invalid color x"),
        ("boardsize", "write boardsize WIDTH [HEIGHT]"),
        ("boardsize 5 6", "unacceptable size: 5 x 6"),
        ("boardsize 17", "unacceptable size: 17 x 17; use a square board of 2 to 16"),
        ("boardsize 1", "unacceptable size"),
        ("boardsize -3", "unacceptable size"),
        ("param_game komi 7", "unknown parameter komi"),
        ("param_game allow_swap maybe", "invalid value maybe for allow_swap: expected 0 or 1"),
        ("param_game game_time 60", "the game has begun"),
        ("param_farside max_time 0", "invalid value 0 for max_time: expected a number from 0.001"),
        ("param_farside num_threads 9", "cannot be changed"),
        ("time_left g", "invalid color g"),
        ("time_left w -1", "invalid value -1 for time_left: expected a number from 0"),
        ("time_left w 60 5", "write time_left"),
    ] {
        let text = session.bad(line);
        assert!(text.contains(why), "{line}: {text}");
        assert!(session.good("showboard").contains("B"), "{line}: the board has changed");
    }
}

#[test]
fn a_game_is_played_and_undone() {
    let mut session = Session::on(4);
    let empty = session.good("showboard");
    assert!(empty.starts_with("\n  a b c d\n") && empty.ends_with("black to move"), "{empty}");
    assert_eq!(session.good("all_legal_moves").split(' ').count(), 16);
    let mut moves = Vec::new();
    loop {
        let player = if moves.len() % 2 == 0 { "black" } else { "white" };
        session.good("param_farside resign_threshold 0");
        match session.good(&format!("genmove {player}")).as_str() {
            "resign" => break,
            cell => moves.push(cell.to_owned()),
        }
        let left = session.good("all_legal_moves");
        assert!(left.is_empty() || left.split(' ').count() == 16 - moves.len());
    }
    let score = session.good("final_score");
    assert!(score == "B+" || score == "W+", "{score}");
    assert_eq!(session.good("all_legal_moves"), "");
    assert!(session.bad("gogui-gfx-analyze b").contains("the game is over"));
    let board = session.good("showboard");
    assert!(board.ends_with("has won"), "{board}");
    for _ in &moves {
        session.good("undo");
        assert_eq!(session.good("final_score"), "cannot score");
    }
    assert_eq!(session.good("showboard"), empty);
    // The same game, move by move.
    session.game(&moves.join(" "));
    assert_eq!(session.good("showboard"), board);
    session.good("clear_board");
    assert_eq!(session.good("showboard"), empty);
}

#[test]
fn moves_may_come_out_of_turn() {
    let mut session = Session::on(4);
    for line in ["play w a1", "play w a2", "play b pass", "play w resign"] {
        session.good(line);
    }
    let first = session.good("genmove w");
    let second = session.good("genmove w");
    assert!(first != second && first != "resign", "{first} {second}");
    let sides: Vec<_> = session.positions.iter().map(|order| order.position.to_move()).collect();
    assert_eq!(sides, [farside_mcts::Player::Second; 2]);
    // Stones may be added after the end of the game.
    session.game("a1 b1 a2 b2 a3 b3 a4 b4");
    assert_eq!(session.good("final_score"), "B+");
    assert_eq!(session.good("genmove w"), "resign");
    assert_eq!(session.good("reg_genmove b"), "resign");
}

#[test]
fn reg_genmove_does_not_play_its_move() {
    let mut session = Session::on(4);
    let asked = session.good("reg_genmove b");
    assert_eq!(session.good("all_legal_moves").split(' ').count(), 16);
    assert_eq!(session.good("genmove b"), asked);
    assert_eq!(session.good("all_legal_moves").split(' ').count(), 15);
}

#[test]
fn proven_losses_are_resigned_unless_the_threshold_is_zero() {
    for (threshold, resigns) in [("0.02", true), ("0", false)] {
        let mut session = Session::on(4);
        session.good("param_farside use_connections 1");
        session.game("b3 a1 b2");
        session.good("param_farside max_games 3000");
        session.good(&format!("param_farside resign_threshold {threshold}"));
        assert_eq!(session.good("genmove w") == "resign", resigns);
    }
}

#[test]
fn swapping_is_off_by_default() {
    let [reflected, left] = [[("b3", 'W'), ("c2", '.')], [("b3", '.'), ("c2", 'B')]];
    for (mode, name, stones) in
        [("pieces", "swap-pieces", reflected), ("sides", "swap-sides", left), ("twogtp", "swap-pieces", left)]
    {
        let mut session = Session::on(3);
        session.good(&format!("param_game swap_mode {mode}"));
        session.good("play b c2");
        // Black's c2 wins on this board, so white swaps it as soon as the rule is on.
        assert!(!session.good("all_legal_moves").contains("swap"));
        assert!(!session.good("reg_genmove w").contains("swap"));
        session.good("param_game allow_swap 1");
        assert!(session.good("all_legal_moves").ends_with(&format!(" {name}")));
        assert_eq!(session.good("reg_genmove w"), name);
        session.good("param_game on_little_golem 1");
        assert_eq!(session.good("genmove w"), "swap");
        for (cell, stone) in stones {
            let (column, row) = (usize::from(cell.as_bytes()[0] - b'a'), usize::from(cell.as_bytes()[1] - b'0'));
            let board = session.good("showboard");
            let line = board.lines().nth(1 + row).unwrap().trim_start();
            assert_eq!(line.chars().nth(2 + 2 * column), Some(stone), "{mode} {cell}: {board}");
        }
        let turn = session.good("showboard");
        assert!(turn.ends_with(if mode == "pieces" { "black to move" } else { "white to move" }), "{turn}");
        // A swap cannot be repeated, but undone.
        assert!(session.bad("play b swap").contains("first stone"));
        assert!(session.bad("play w swap").contains("first stone"));
        session.good("undo");
        if mode != "pieces" {
            session.good("play b c2");
        }
        assert!(session.good("all_legal_moves").ends_with(" swap"));
        session.game("c2 swap a1");
    }
}

#[test]
fn on_solved_boards_the_winning_stones_are_swapped() {
    let known: Value = serde_json::from_str(include_str!("../../data/hex-positions.json")).unwrap();
    for (size, opening) in known["openings"].as_object().unwrap() {
        let size: usize = size.parse().unwrap();
        let mut session = Session::on(size);
        session.good("param_game allow_swap 1");
        for (marks, row) in opening["rows"].as_array().unwrap().iter().zip(1..) {
            for (mark, column) in marks.as_str().unwrap().chars().zip('a'..) {
                session.good("clear_board");
                session.good(&format!("play b {column}{row}"));
                let answer = session.good("genmove w");
                assert_eq!(answer == "swap-pieces", mark == 'B', "{column}{row} on {size}: {answer} {marks}");
            }
        }
    }
}

#[test]
fn clocks_run_for_moves_that_are_played() {
    let mut session = Session::on(5);
    assert_eq!(session.good("time_left"), "Black: unlimited, White: unlimited");
    session.good("param_game game_time 60");
    assert_eq!(session.good("time_left"), "Black: 01:00, White: 01:00");
    session.late = Duration::from_secs(5);
    session.good("param_farside max_time 5");
    session.good("genmove b");
    assert_eq!(session.good("time_left"), "Black: 00:50, White: 01:00");
    session.good("reg_genmove w");
    session.written("gogui-gfx-analyze w");
    assert_eq!(session.good("time_left w"), "01:00");
    session.good("time_left white 7.5 0");
    assert_eq!(session.good("time_left white"), "00:07");
    session.good("clear_board");
    assert_eq!(session.good("time_left"), "Black: 01:00, White: 01:00");
    session.good("param_game game_time 0");
    assert_eq!(session.good("time_left"), "Black: unlimited, White: unlimited");
}

#[test]
fn a_whole_game_is_played_in_time() {
    // At most 13 moves of each player, and each takes a quarter of a second more than its share.
    let mut session = Session::on(5);
    session.good("param_game game_time 8");
    session.good("param_farside resign_threshold 0");
    session.late = Duration::from_millis(250);
    let mut taken = [Duration::ZERO; 2];
    for number in 0.. {
        let begin = session.now;
        if session.good(["genmove b", "genmove w"][number % 2]) == "resign" {
            break;
        }
        taken[number % 2] += session.now - begin;
    }
    assert!(taken.iter().all(|taken| *taken <= Duration::from_secs(8)), "{taken:?}");
    // Most of the time is used.
    assert!(taken.iter().all(|taken| *taken >= Duration::from_secs(3)), "{taken:?}");
}

#[test]
fn searches_are_as_the_parameters_say() {
    let mut session = Session::on(4);
    for line in ["max_games 33", "seed 5", "exploration 0.25", "expand_after 3", "simulations 2", "max_memory 2000000"]
    {
        session.good(&format!("param_farside {line}"));
    }
    session.good("reg_genmove b");
    session.good("param_farside max_games 4294967295");
    session.good("param_farside max_time 2.5");
    session.good("param_farside use_connections 1");
    session.good("reg_genmove b");
    let [first, second] = &session.positions[..] else { panic!("two searches") };
    let params = first.params;
    assert_eq!((params.seed, params.exploration, params.expand_after, params.simulations), (5, 0.25, 3, 2));
    assert_eq!((params.memory_bytes, first.budget), (2_000_000, Budget::Rollouts(33)));
    assert_eq!(second.budget, Budget::Time(Duration::from_millis(2500)));
    assert_ne!(first.game, second.game);
}

#[test]
fn a_search_is_shown_before_its_answer() {
    let mut session = Session::on(4);
    assert!(session.written("reg_genmove b").starts_with("= "));
    session.good("param_farside use_livegfx 1");
    for line in ["5 reg_genmove b", "5 gogui-gfx-analyze b"] {
        let text = session.written(line);
        let [block, answer] = text.split("\n\n").take(2).collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert!(block.starts_with("gogui-gfx:\nuct\nVAR B ") && answer.starts_with("=5 "), "{text}");
    }
    session.good("param_farside use_livegfx 0");
    let text = session.written("gogui-gfx-analyze w");
    assert!(text.starts_with("gogui-gfx:\nuct\n") && text.contains("in 60 rollouts\n\n"), "{text}");
}

/// Words that commands accept, so that random commands get past the check of their name.
const WORDS: &[&str] = &[
    "b",
    "w",
    "a1",
    "b2",
    "c3",
    "A2",
    "z9",
    "swap-pieces",
    "resign",
    "pass",
    "2",
    "3",
    "0",
    "1",
    "-1",
    "1e9",
    "allow_swap",
    "game_time",
    "swap_mode",
    "pieces",
    "sides",
    "use_livegfx",
    "max_memory",
    "resign_threshold",
    "max_time",
    "#",
    "\t",
    "nan",
    "12",
];

fn any_line() -> impl Strategy<Value = Vec<u8>> {
    let commands = Session::new().good("list_commands");
    let commands: Vec<String> = commands.lines().map(str::to_owned).filter(|name| name != "quit").collect();
    let words = prop::collection::vec(prop::sample::select(WORDS), 0..4);
    let spoken = (any::<Option<u8>>(), prop::sample::select(commands), words);
    let spoken = spoken.prop_map(|(id, command, words)| {
        let id = id.map(|id| format!("{id} ")).unwrap_or_default();
        format!("{id}{command} {}", words.join(" ")).into_bytes()
    });
    let noise = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![9 => spoken, 1 => noise]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Every command in any bytes gets exactly one answer, and the engine continues.
    #[test]
    fn any_bytes_are_answered(lines in prop::collection::vec(any_line(), 0..30)) {
        let mut session = Session::on(3);
        session.good("param_farside max_games 10");
        let mut reader = Lines::default();
        reader.push(&lines.join(&b'\n'));
        let mut read = Vec::new();
        while let Some(line) = reader.pop() {
            read.push(line);
        }
        read.extend(reader.finish());
        for line in read {
            let text = session.written(&line.text);
            let words = line.text.split('#').next().unwrap();
            if words.trim().is_empty() {
                prop_assert_eq!(text, "");
                continue;
            }
            let blocks: Vec<&str> = text.strip_suffix("\n\n").unwrap().split("\n\n").collect();
            let (answer, shown) = blocks.split_last().unwrap();
            prop_assert!(shown.iter().all(|block| block.starts_with("gogui-gfx:\n")), "{:?}: {}", line, text);
            let sign = answer.trim_start_matches(['=', '?']);
            prop_assert!(sign.len() + 1 == answer.len(), "{:?}: {}", line, text);
            let id: String = sign.chars().take_while(char::is_ascii_digit).collect();
            prop_assert!(sign[id.len()..].starts_with(' '), "{:?}: {}", line, text);
            if !id.is_empty() {
                prop_assert_eq!(id.parse::<u32>().ok(), words.split_whitespace().next().unwrap().parse().ok());
            }
            prop_assert!(!session.has_quit);
        }
        prop_assert_eq!(session.good("name"), "Farside");
    }
}
