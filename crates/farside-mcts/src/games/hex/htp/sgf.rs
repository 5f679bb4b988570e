//! Games that were written down: what of the Smart Game Format is needed for Hex.
//!
//! Read is the main line of the first game: everything up to the first closing parenthesis.

use super::framing::quoted;
use super::table::{Move, SwapMode, Table};
use crate::game::Player;
use crate::games::hex::{Cell, Position};

/// The game number of Hex.
const HEX: &str = "11";

/// A property: a name and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Property {
    name: String,
    values: Vec<String>,
}

/// Puts the game on a table, up to so many moves. Stones that are set up later than in the first node are played, too, but
/// not counted.
///
/// # Errors
/// What is wrong with it.
pub(super) fn load(text: &str, moves_max: usize, swap: SwapMode) -> Result<Table, String> {
    let nodes = main_line(text)?;
    let (root, rest) = nodes.split_first().ok_or("it has no game")?;
    let mut table = Table::set_up(set_up(root)?);
    let mut moves = 0;
    for node in std::iter::once(&moves_of(root)).chain(&rest.iter().map(|node| all_of(node)).collect::<Vec<_>>()) {
        for (player, value, is_move) in node {
            if *is_move && moves == moves_max {
                return Ok(table);
            }
            moves += usize::from(*is_move);
            let illegal = |why| super::table::illegal(*player, value, why);
            let done = if value.is_empty() { Move::Pass } else { Move::read(value, swap).map_err(illegal)? };
            table.play(*player, value, done)?;
        }
    }
    Ok(table)
}

/// Stones that are set and moves that are played, in order.
type Stones<'a> = Vec<(Player, &'a str, bool)>;

fn moves_of(node: &[Property]) -> Stones<'_> {
    all_of(node).into_iter().filter(|(_, _, is_move)| *is_move).collect()
}

fn all_of(node: &[Property]) -> Stones<'_> {
    let player = |name: &str| if name.ends_with('B') { Player::First } else { Player::Second };
    let mut stones = Vec::new();
    for Property { name, values } in node {
        let is_move = matches!(name.as_str(), "B" | "W");
        if is_move || matches!(name.as_str(), "AB" | "AW") {
            stones.extend(values.iter().map(|value| (player(name), value.trim(), is_move)));
        }
    }
    stones
}

/// The position that the first node sets up.
fn set_up(root: &[Property]) -> Result<Position, String> {
    let value = |wanted: &str| {
        let property = root.iter().find(|property| property.name == wanted)?;
        property.values.first().map(|value| value.trim())
    };
    if let Some(game) = value("GM").filter(|game| *game != HEX) {
        return Err(format!("it is no game of Hex: GM is {}, not {HEX}", quoted(game)));
    }
    let size = value("SZ").ok_or("it does not say the size of the board, as in SZ[11]")?;
    let size = size.parse().map_err(|_| format!("the size {} is no number", quoted(size)))?;
    let cells = |wanted: &str| -> Result<Vec<Cell>, String> {
        let values = root.iter().filter(|property| property.name == wanted).flat_map(|property| &property.values);
        values.map(|value| value.trim().parse().map_err(|why| format!("{}: {why}", quoted(value)))).collect()
    };
    let (black, white) = (cells("AB")?, cells("AW")?);
    let to_move = match value("PL").map(str::to_ascii_lowercase).as_deref() {
        None if white.len() < black.len() => Player::Second,
        Some("w" | "white") => Player::Second,
        None | Some(_) => Player::First,
    };
    Position::from_stones(size, &black, &white, to_move).map_err(|why| why.to_string())
}

fn main_line(text: &str) -> Result<Vec<Vec<Property>>, String> {
    let mut chars = text.chars().peekable();
    let mut nodes: Vec<Vec<Property>> = Vec::new();
    // What stands before the first parenthesis is no part of the game.
    chars.by_ref().find(|c| *c == '(').ok_or("it has no game: there is no opening parenthesis")?;
    let mut name = String::new();
    while let Some(c) = chars.next() {
        match c {
            ')' => return Ok(nodes),
            ';' => nodes.push(Vec::new()),
            '[' => {
                let value = value(&mut chars).ok_or("it ends in a value: a closing bracket is missing")?;
                let node = nodes.last_mut().ok_or("a value stands before the first node")?;
                match node.last_mut().filter(|_| name.is_empty()) {
                    Some(property) => property.values.push(value),
                    None if name.is_empty() => return Err("a value has no name".into()),
                    None => node.push(Property { name: std::mem::take(&mut name), values: vec![value] }),
                }
            }
            // Old files have names such as `Black`, of which only the capitals count.
            c if c.is_ascii_uppercase() => name.push(c),
            '(' => name.clear(),
            c if c.is_whitespace() || c.is_ascii_lowercase() => {}
            c => return Err(format!("{c:?} is no part of a game")),
        }
    }
    Err("it ends too early: a closing parenthesis is missing".into())
}

/// The rest of a value, up to the bracket that is not escaped.
fn value(chars: &mut impl Iterator<Item = char>) -> Option<String> {
    let mut value = String::new();
    loop {
        match chars.next()? {
            ']' => return Some(value),
            '\\' => value.push(chars.next()?),
            c => value.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stones(text: &str, moves_max: usize) -> Result<(String, Player), String> {
        let table = load(text, moves_max, SwapMode::Pieces)?;
        let position = table.position();
        let all = (0..position.size()).flat_map(|row| (0..position.size()).map(move |column| (column, row)));
        let shown = all.filter_map(|(column, row)| {
            let cell = Cell::new(column, row)?;
            position.stone(cell).map(|player| format!("{}{cell}", if player == Player::First { "B" } else { "W" }))
        });
        Ok((shown.collect::<Vec<_>>().join(" "), position.to_move()))
    }

    const GAME: &str = "a comment (;FF[4]GM[11]SZ[5]\nPB[me \\] you];B[a1];W[ b2 ]C[why?];B[c3](;W[d4])(;W[e5];B[a2]))";

    #[test]
    fn the_main_line_is_played() {
        assert_eq!(stones(GAME, 99), Ok(("Ba1 Wb2 Bc3 Wd4".into(), Player::First)));
        assert_eq!(stones(GAME, 2), Ok(("Ba1 Wb2".into(), Player::First)));
        assert_eq!(stones(GAME, 0), Ok((String::new(), Player::First)));
    }

    #[test]
    fn stones_are_set_up() {
        assert_eq!(stones("(;SZ[3]AB[a1][b1]AW[c3])", 0), Ok(("Ba1 Bb1 Wc3".into(), Player::Second)));
        assert_eq!(
            stones("(;SZ[3]PL[W]AB[a1]AW[c3]W[c1];AB[a2];B[a3])", 1),
            Ok(("Ba1 Wc1 Ba2 Wc3".into(), Player::Second))
        );
    }

    #[test]
    fn special_moves_are_understood() {
        assert_eq!(stones("(;SZ[3];B[c1];W[swap-pieces];B[b2];W[resign])", 9), Ok(("Bb2 Wa3".into(), Player::Second)));
        assert_eq!(stones("(;SZ[3];B[];W[b2])", 9), Ok(("Wb2".into(), Player::First)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, why) in [
            ("", "no opening parenthesis"),
            ("()", "no game"),
            ("(;GM[1]SZ[5])", "GM is 1"),
            ("(;GM[11])", "SZ[11]"),
            ("(;SZ[nine])", "nine"),
            ("(;SZ[99])", "99"),
            ("(;SZ[3];B[d1])", "black d1 (off the board)"),
            ("(;SZ[3];B[a1];W[a1])", "white a1 (occupied)"),
            ("(;SZ[3]AB[a1][a1])", "occupied"),
            ("(;SZ[3]AB[a1:b2])", "a1:b2"),
            ("(;SZ[3];B[a1", "closing bracket"),
            ("(;SZ[3];B[a1\\]", "closing bracket"),
            ("(;SZ[3];B[a1]", "closing parenthesis"),
            ("(SZ[3])", "before the first node"),
            ("(;[3])", "no name"),
            ("(;SZ[3]!)", "'!'"),
        ] {
            let error = stones(text, 99).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_loaded_or_refused(text in "[(;)\\[\\]A-CSWZGM1-5a-c \\\\]{0,80}", any in any::<String>()) {
            for text in [text.clone(), any, format!("(;SZ[3]{text})")] {
                let _ = load(&text, 99, SwapMode::Sides);
            }
        }

        /// A game that is written down is the game that is read.
        #[test]
        fn games_are_read_back(cells in prop::collection::vec((0..5_usize, 0..5_usize), 0..25)) {
            let mut table = Table::new(5).unwrap();
            let mut text = String::from("(;GM[11]SZ[5]");
            for (column, row) in cells {
                let cell = Cell::new(column, row).unwrap();
                let player = table.position().to_move();
                if table.play(player, "", Move::Stone(cell)).is_ok() {
                    text += &format!(";{}[{cell}]", if player == Player::First { "B" } else { "W" });
                }
            }
            let read = load(&(text + ")"), usize::MAX, SwapMode::Pieces).unwrap();
            prop_assert_eq!(read.position(), table.position());
        }
    }
}
