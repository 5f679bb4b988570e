//! Tests of boards, moves and winners.

use farside_mcts::games::hex::{Cell, Hex, HexError, Position, SIZES, black_wins};
use farside_mcts::{Game, Player, Points, Rng};
use farside_testbed::scaled;

use crate::hex::oracle::{joins, random_stones};

#[test]
fn winners_agree_with_a_walk_on_random_boards() {
    let mut rng = Rng::new(1);
    let mut won = [0, 0];
    for size in SIZES {
        for round in 0..600 {
            let [black, white] = random_stones(size, 40 + round / 10, &mut rng);
            let position = Position::from_stones(size, &black, &white, Player::First).unwrap();
            let expected = [Player::First, Player::Second].into_iter().find(|&player| joins(&position, player));
            assert_eq!(position.winner(), expected, "{black:?} {white:?}");
            if let Some(winner) = expected {
                won[winner as usize] += 1;
            }
        }
    }
    assert!(won.iter().all(|&games| games > 500), "both sides won often: {won:?}");
}

#[test]
fn a_full_board_has_exactly_one_winner() {
    let mut rng = Rng::new(2);
    for size in SIZES {
        for _ in 0..300 {
            let [black, white] = random_stones(size, 100, &mut rng);
            let position = Position::from_stones(size, &black, &white, Player::First).unwrap();
            assert_ne!(joins(&position, Player::First), joins(&position, Player::Second));
            assert!(position.winner().is_some());
            assert_eq!(position.empty_cells().count(), 0);
            let black_won = position.winner() == Some(Player::First);
            assert_eq!(black_wins(&position, 17, &mut rng), if black_won { 17 } else { 0 });
        }
    }
}

#[test]
fn winding_chains_are_followed_to_their_end() {
    // On every size a snake that crosses every row from side to side.
    for size in SIZES {
        let mut snake = Vec::new();
        for row in 0..size {
            let columns = 0..size;
            match row % 4 {
                0 | 2 => snake.extend(columns.map(|column| Cell::new(column, row).unwrap())),
                1 => snake.push(Cell::new(size - 1, row).unwrap()),
                _ => snake.push(Cell::new(0, row).unwrap()),
            }
        }
        let position = Position::from_stones(size, &snake, &[], Player::First).unwrap();
        assert_eq!(position.winner(), Some(Player::First));
        let cut: Vec<Cell> = snake.iter().copied().filter(|cell| cell.row() != size / 2).collect();
        let position = Position::from_stones(size, &cut, &[], Player::First).unwrap();
        assert_eq!(position.winner(), None);
        let turned: Vec<Cell> = snake.iter().map(|cell| Cell::new(cell.row(), cell.column()).unwrap()).collect();
        let position = Position::from_stones(size, &[], &turned, Player::First).unwrap();
        assert_eq!(position.winner(), Some(Player::Second));
    }
}

#[test]
fn legal_moves_are_the_cells_without_a_stone() {
    let mut rng = Rng::new(3);
    for size in SIZES {
        let [black, white] = random_stones(size, 50, &mut rng);
        let position = Position::from_stones(size, &black, &white, Player::Second).unwrap();
        let mut moves = Vec::new();
        Hex::new(size).unwrap().moves(&position, &mut moves);
        let all = (0..size * size).map(|k| Cell::new(k % size, k / size).unwrap());
        let expected: Vec<Cell> = all.filter(|cell| !black.contains(cell) && !white.contains(cell)).collect();
        assert_eq!(moves, expected);
        assert!(black.iter().all(|&cell| position.stone(cell) == Some(Player::First)));
        assert!(white.iter().all(|&cell| position.stone(cell) == Some(Player::Second)));
    }
}

#[test]
fn playouts_agree_with_random_games_move_by_move() {
    let mut rng = Rng::new(4);
    for (size, moves) in [(2, ""), (3, "b2"), (5, "c3 pass a1 b2"), (9, "e5 e4 d4"), (16, "")] {
        let position = Position::from_moves(size, moves).unwrap();
        let games = scaled(2000) as u32;
        let by_filling = f64::from(black_wins(&position, games, &mut rng));
        let by_playing = MoveByMove(Hex::new(size).unwrap()).simulate(&position, games, &mut rng);
        // Six standard deviations of the difference.
        let off = 6.0 * (f64::from(games) / 2.0).sqrt();
        let [low, high] = [by_filling - off, by_filling + off].map(|wins| Points::wins(wins.max(0.0) as u32));
        assert!(low <= by_playing && by_playing <= high, "{by_filling} {by_playing:?} on {size}: {moves}");
    }
}

/// Hex with the default playouts of `Game`.
struct MoveByMove(Hex);

impl Game for MoveByMove {
    type State = Position;
    type Move = Cell;

    fn initial(&self) -> Position {
        self.0.initial()
    }
    fn to_move(&self, position: &Position) -> Player {
        self.0.to_move(position)
    }
    fn moves(&self, position: &Position, moves: &mut Vec<Cell>) {
        self.0.moves(position, moves);
    }
    fn play(&self, position: &mut Position, cell: Cell) {
        self.0.play(position, cell);
    }
    fn outcome(&self, position: &Position) -> Option<farside_mcts::Outcome> {
        self.0.outcome(position)
    }
}

#[test]
fn moves_are_read_in_turn() {
    let position = Position::from_moves(5, " c3  A1\tPass e5\nb2 ").unwrap();
    let cell = |name: &str| name.parse::<Cell>().unwrap();
    assert_eq!(position.stone(cell("c3")), Some(Player::First));
    assert_eq!(position.stone(cell("a1")), Some(Player::Second));
    assert_eq!(position.stone(cell("e5")), Some(Player::Second));
    assert_eq!(position.stone(cell("b2")), Some(Player::First));
    assert_eq!(position.to_move(), Player::Second);
    assert_eq!(Position::from_moves(5, ""), Position::new(5));
}

#[test]
fn bad_games_are_refused_by_number_and_name() {
    let refusal = |size, moves| Position::from_moves(size, moves).unwrap_err();
    assert_eq!(refusal(1, ""), HexError::Size { size: 1 });
    assert_eq!(refusal(17, ""), HexError::Size { size: 17 });
    let text = |text: &str| text.to_string();
    let unreadable = HexError::Unreadable { number: 2, text: text("x") };
    assert_eq!(refusal(5, "a1 x b1"), unreadable);
    let off_board = |number, name| HexError::OffBoard { number, text: text(name), size: 5 };
    assert_eq!(refusal(5, "f1"), off_board(1, "f1"));
    assert_eq!(refusal(5, "a1 a6"), off_board(2, "a6"));
    assert_eq!(refusal(5, "a1 z99"), off_board(2, "z99"));
    let a1 = "a1".parse().unwrap();
    assert_eq!(refusal(5, "a1 pass A1"), HexError::Occupied { number: 3, cell: a1 });
    let over = |name| HexError::GameOver { number: 5, text: text(name), winner: Player::First };
    assert_eq!(
        refusal(2, "a1 pass a2 pass b1"),
        HexError::GameOver { number: 4, text: text("pass"), winner: Player::First }
    );
    assert_eq!(refusal(3, "a1 b1 a2 b2 a3 c1").to_string(), "illegal move 6, c1: black has won; leave out this move");
    assert_eq!(
        refusal(2, "pass a1 pass b1 a2"),
        HexError::GameOver { number: 5, text: text("a2"), winner: Player::Second }
    );
    assert_ne!(refusal(2, "pass a1 pass b1 a2"), over("a2"));
    let twice = Position::from_stones(3, &[a1], &[a1], Player::First).unwrap_err();
    assert_eq!(twice, HexError::Occupied { number: 2, cell: a1 });
    let outside = Position::from_stones(3, &["d1".parse().unwrap()], &[], Player::First).unwrap_err();
    assert_eq!(outside, HexError::OffBoard { number: 1, text: text("d1"), size: 3 });
}

#[test]
fn moves_lead_from_one_position_to_a_later_one() {
    let after = |moves| Position::from_moves(4, moves).unwrap();
    let names = |from, to| {
        let moves = after(from).moves_to(&after(to))?;
        Some(moves.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    };
    for (from, to, moves) in [
        ("", "", Some("")),
        ("a1", "a1 b2", Some("b2")),
        ("a1", "a1 d4 b2 c3 a3", Some("c3 b2 d4 a3")),
        ("a1 b2", "a1", None),
        ("a1", "b2 a1", None),
        ("a1", "b1", None),
        ("a1", "a1 pass", None),
        ("", "a1 pass b1", None),
        ("pass", "pass a1", Some("a1")),
    ] {
        assert_eq!(names(from, to).as_deref(), moves, "from {from:?} to {to:?}");
    }
    assert_eq!(Position::new(4).unwrap().moves_to(&Position::new(5).unwrap()), None);
}
