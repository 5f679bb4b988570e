//! The commands of HexGui and `twogtp`, and the answers of the engine.

use farside_mcts::Rng;
use farside_mcts::games::hex::Cell;

use super::Session;

/// Sends the lines of a transcript that begin with `>`, and compares the answers with the lines
/// below them. `CELL` stands for any cell.
#[track_caller]
fn replay(session: &mut Session, transcript: &str) {
    for exchange in transcript.split("> ").skip(1) {
        let (command, expected) = exchange.split_once('\n').expect("an answer follows");
        let answer = session.written(command);
        let lines = |text: &str| text.trim().lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
        if expected.trim() == "= CELL" {
            let cell = answer.trim().trim_start_matches("= ");
            assert!(cell.parse::<Cell>().is_ok(), "{command}: {answer}");
        } else {
            assert_eq!(lines(&answer), lines(expected), "{command}");
        }
    }
}

#[test]
fn a_stone_that_hexgui_has_swapped_is_not_swapped_back() {
    let mut session = Session::on(5);
    // A person swaps black's c2.
    replay(
        &mut session,
        "> param_game allow_swap 1
         =
         > play black c2
         =
         > showboard
         =
         a b c d e
         1 . . . . . 1
         2 . . B . . 2
         3 . . . . . 3
         4 . . . . . 4
         5 . . . . . 5
         a b c d e
         white to move
         > clear_board
         =
         > play white b3
         =
         > showboard
         =
         a b c d e
         1 . . . . . 1
         2 . . . . . 2
         3 . W . . . 3
         4 . . . . . 4
         5 . . . . . 5
         a b c d e
         black to move
         > genmove black
         = CELL
         > undo
         =
         > genmove black
         = CELL",
    );
    // The engine swaps. A person steps back and forward, and plays on.
    replay(
        &mut session,
        "> clear_board
         =
         > play black c2
         =
         > genmove white
         = swap-pieces
         > clear_board
         =
         > play black c2
         =
         > clear_board
         =
         > play white b3
         =
         > genmove black
         = CELL",
    );
}

#[test]
fn a_swap_of_sides_is_named_so_and_not_undone() {
    // After `swap-sides` HexGui lets white move again. Stepping back, it sends nothing for the
    // swap.
    replay(
        &mut Session::on(5),
        "> param_game allow_swap 1
         =
         > param_game swap_mode sides
         =
         > play black c2
         =
         > genmove white
         = swap-sides
         > play white d4
         =
         > genmove black
         = CELL
         > undo
         =
         > undo
         =
         > undo
         =
         > showboard
         =
         a b c d e
         1 . . . . . 1
         2 . . . . . 2
         3 . . . . . 3
         4 . . . . . 4
         5 . . . . . 5
         a b c d e
         black to move",
    );
}

#[test]
fn the_move_that_is_played_leads_the_display() {
    let mut session = Session::new();
    replay(&mut session, "> boardsize 11 11\n=\n> clear_board\n=\n> param_farside max_games 6000\n=");
    session.game("g7 g6 h6 h5 i5 i4 j4 j3 f7 f6 e7 e6");
    let text = session.written("gogui-gfx-analyze black");
    let (shown, answer) = text.split_once("\n\n").expect("a display and an answer");
    let best = answer.trim_start_matches("= ").split(' ').next().unwrap();
    let words = |name| shown.lines().find_map(|line| line.strip_prefix(name)).unwrap().split(' ').collect::<Vec<_>>();
    let influence = words("INFLUENCE ");
    assert_eq!([words("VAR B ")[0], influence[0], words("LABEL ")[0]], [best; 3], "{text}");
    // A move that is proven lost leads only if all are.
    assert!(influence[1] != "L" || influence.iter().skip(1).step_by(2).all(|mark| *mark == "L"), "{text}");
}

#[test]
fn hexgui_loads_a_game_by_its_moves() {
    let mut session = Session::on(3);
    let listed = session.good("hexgui-analyze_commands") + &session.good("list_commands");
    assert!(!listed.contains("loadsgf"), "HexGui would not take up the game that such a command loads");
    replay(
        &mut session,
        "> boardsize 3 3
         =
         > clear_board
         =
         > play black b2
         =
         > play white a1
         =
         > showboard
         =
         a b c
         1 W . . 1
         2 . B . 2
         3 . . . 3
         a b c
         black to move",
    );
}

#[test]
fn a_game_that_is_resigned_has_a_score() {
    replay(
        &mut Session::on(4),
        "> play black b3
         =
         > final_score
         = cannot score
         > play white resign
         =
         > final_score
         = B+
         > undo
         =
         > final_score
         = cannot score
         > play black resign
         =
         > final_score
         = W+
         > play black b3
         =
         > final_score
         = cannot score",
    );
    let mut session = Session::on(4);
    session.good("param_farside use_connections 1");
    session.good("param_farside max_games 3000");
    session.game("b3 a1 b2");
    replay(
        &mut session,
        "> genmove white\n= resign\n> final_score\n= B+\n> clear_board\n=\n> final_score\n= cannot score",
    );
}

/// Plays a game between two engines as `twogtp` does, until one resigns. Returns the moves after
/// the opening, and the score.
fn two_engines_play(size: usize, opening: &str) -> (Vec<String>, String) {
    let mut programs = [Session::on(size), Session::on(size)];
    for program in &mut programs {
        for line in
            ["game allow_swap 1", "game swap_mode twogtp", "farside use_connections 1", "farside max_games 2000"]
        {
            program.good(&format!("param_{line}"));
        }
        program.good(&format!("play b {opening}"));
    }
    // The programs that play black and white, and the color to move.
    let (mut players, mut color) = ([0, 1], 1);
    let mut moves = Vec::new();
    while moves.last().is_none_or(|last| last != "resign") {
        let name = ["b", "w"][color];
        let chosen = programs[players[color]].good(&format!("genmove {name}"));
        programs[players[1 - color]].good(&format!("play {name} {chosen}"));
        let boards = programs.each_mut().map(|program| program.good("showboard"));
        assert_eq!(boards[0], boards[1], "after {moves:?} and {chosen}");
        match chosen.as_str() {
            "swap-pieces" => players.swap(0, 1),
            _ => color = 1 - color,
        }
        moves.push(chosen);
    }
    let [score, other] = programs.each_mut().map(|program| program.good("final_score"));
    assert_eq!(score, other, "{moves:?}");
    (moves, score)
}

#[test]
fn two_engines_swap_sides_and_agree_on_the_score() {
    // Black wins by c3 and by c4, and loses by a1.
    for (size, opening, winner) in [(5, "c3", "B+"), (6, "c4", "B+"), (5, "a1", "W+")] {
        let (moves, score) = two_engines_play(size, opening);
        assert_eq!((moves[0] == "swap-pieces", score.as_str()), (winner == "B+", winner), "{opening}: {moves:?}");
    }
}

/// HexGui's board and game, and how it keeps an engine's board like its own.
struct HexGui {
    engine: Session,
    /// Rows of `.`, `B` and `W`.
    board: Vec<Vec<char>>,
    /// Colors and moves, also those that a person has stepped back over.
    game: Vec<(char, String)>,
    /// Number of moves on the board.
    played: usize,
    swaps: u32,
}

impl HexGui {
    fn new(size: usize, swap_mode: &str) -> Self {
        let mut engine = Session::on(size);
        for line in ["game allow_swap 1", &format!("game swap_mode {swap_mode}"), "farside max_games 20"] {
            engine.good(&format!("param_{line}"));
        }
        Self { engine, board: vec![vec!['.'; size]; size], game: Vec::new(), played: 0, swaps: 0 }
    }

    fn to_move(&self) -> char {
        match self.game[..self.played].last() {
            Some((color, name)) if name == "swap-sides" => *color,
            Some(('B', _)) => 'W',
            _ => 'B',
        }
    }

    fn may_swap(&self) -> bool {
        let stones = self.board.iter().flatten().filter(|stone| **stone != '.').count();
        stones == 1 && !self.game[..self.played].last().is_some_and(|(_, name)| name.starts_with("swap"))
    }

    fn show(&mut self, color: char, name: &str) {
        if let Ok(cell) = name.parse::<Cell>() {
            self.board[cell.row()][cell.column()] = color;
        } else if name == "swap-pieces" {
            let other = |stone| match stone {
                'B' => 'W',
                'W' => 'B',
                empty => empty,
            };
            let size = self.board.len();
            let reflected = |row: usize| (0..size).map(move |column| (column, row));
            self.board = (0..size).map(|row| reflected(row).map(|(r, c)| other(self.board[r][c])).collect()).collect();
        }
    }

    fn tell(&mut self, color: char, name: &str) {
        if name == "swap-pieces" {
            self.engine.good("clear_board");
            for (stones, row) in self.board.clone().iter().zip(1..) {
                for (stone, column) in stones.iter().zip('a'..).filter(|(stone, _)| **stone != '.') {
                    self.engine.good(&format!("play {stone} {column}{row}"));
                }
            }
        } else if name != "swap-sides" {
            self.engine.good(&format!("play {color} {name}"));
        }
    }

    fn append(&mut self, name: &str) -> char {
        let color = self.to_move();
        self.swaps += u32::from(name.starts_with("swap"));
        self.game.truncate(self.played);
        self.game.push((color, name.into()));
        self.played += 1;
        self.show(color, name);
        color
    }

    fn move_of_person(&mut self, name: &str) {
        let color = self.append(name);
        self.tell(color, name);
    }

    fn move_of_engine(&mut self) {
        let answer = self.engine.good(&format!("genmove {}", self.to_move()));
        assert!(!answer.starts_with("swap") || self.may_swap(), "swap move not allowed: {:?}", self.game);
        if answer != "resign" {
            self.append(&answer);
        }
    }

    fn step_back(&mut self) {
        let Some(before) = self.played.checked_sub(1) else { return };
        self.played = before;
        match self.game[before].1.as_str() {
            "swap-sides" => {}
            "swap-pieces" => {
                self.engine.good("clear_board");
                self.board.iter_mut().flatten().for_each(|stone| *stone = '.');
                for at in 0..before {
                    let (color, name) = self.game[at].clone();
                    self.show(color, &name);
                    self.tell(color, &name);
                }
            }
            cell => {
                let cell = cell.to_owned();
                self.show('.', &cell);
                self.engine.good("undo");
            }
        }
    }

    fn step_forward(&mut self) {
        // HexGui would not tell the engine of a swap of sides.
        if let Some((color, name)) = self.game.get(self.played).cloned().filter(|(_, name)| name != "swap-sides") {
            self.played += 1;
            self.show(color, &name);
            self.tell(color, &name);
        }
    }

    fn assert_same_board(&mut self) {
        let text = self.engine.good("showboard");
        let stones = |line: &str| line.chars().filter(|c| ".BW".contains(*c)).collect::<Vec<_>>();
        let rows: Vec<_> = text.lines().skip(2).take(self.board.len()).map(stones).collect();
        assert_eq!(rows, self.board, "after {} of {:?}", self.played, self.game);
    }
}

#[test]
fn the_boards_of_hexgui_and_the_engine_stay_the_same() {
    let mut rng = Rng::new(3);
    for swap_mode in ["pieces", "sides"] {
        let mut swaps = 0;
        for _ in 0..150 {
            let mut gui = HexGui::new(3, swap_mode);
            for _ in 0..30 {
                match rng.below(8) {
                    0..3 => gui.move_of_engine(),
                    3 | 4 => gui.step_back(),
                    5 => gui.step_forward(),
                    6 if swap_mode == "pieces" && gui.may_swap() => gui.move_of_person("swap-pieces"),
                    _ => {
                        let (row, column) = (rng.below(3) as usize, rng.below(3) as usize);
                        if gui.board[row][column] == '.' {
                            gui.move_of_person(&Cell::new(column, row).unwrap().to_string());
                        }
                    }
                }
                gui.assert_same_board();
            }
            swaps += gui.swaps;
        }
        assert!(swaps > 10, "only {swaps} swaps of {swap_mode} were put to the test");
    }
}
