//! Tests of the rules.

use std::collections::HashSet;

use farside_mcts::games::four::{Column, FourError, FourInARow, Position};
use farside_mcts::{Game, Outcome, Player, Rng};
use proptest::prelude::*;

use crate::four::oracle::Cells;

fn moves(four: &FourInARow, position: &Position) -> Vec<Column> {
    let mut moves = Vec::new();
    four.moves(position, &mut moves);
    moves
}

/// Plays a random game to its end, on both boards.
fn play_along(width: usize, height: usize, rng: &mut Rng) -> Outcome {
    let four = FourInARow::new(width, height).unwrap();
    let (mut position, mut cells) = (four.initial(), Cells::new(width, height));
    loop {
        assert_eq!(position.to_string(), cells.show());
        assert_eq!(four.outcome(&position), cells.outcome(), "{position}");
        assert_eq!(four.to_move(&position), cells.to_move());
        if let Some(outcome) = cells.outcome() {
            return outcome;
        }
        let open = moves(&four, &position);
        assert_eq!(open.iter().map(|column| column.index()).collect::<Vec<_>>(), cells.open());
        let chosen = open[rng.below(open.len() as u32) as usize];
        four.play(&mut position, chosen);
        cells.drop_disc(chosen.index());
    }
}

#[test]
fn games_match_play_cell_by_cell() {
    let mut ends = HashSet::new();
    let mut rng = Rng::new(1);
    for (width, height) in [(7, 6), (1, 1), (1, 63), (32, 1), (2, 31), (21, 2), (4, 4), (4, 5), (5, 4), (9, 6), (8, 7)]
    {
        for _ in 0..40 {
            ends.insert(play_along(width, height, &mut rng));
        }
    }
    assert_eq!(ends.len(), 3, "{ends:?}");
}

#[test]
fn positions_are_as_many_as_published() {
    // Sequence A212693 of the OEIS: the number of positions of the usual board after each number of
    // moves.
    let four = FourInARow::new(7, 6).unwrap();
    let mut positions = HashSet::from([four.initial()]);
    let counts = [1, 7, 49, 238, 1120, 4263, 16_422, 54_859, 184_275].into_iter();
    for count in counts.take(7 + farside_testbed::scaled(1) as usize) {
        assert_eq!(positions.len(), count);
        let going_on = positions.iter().filter(|position| four.outcome(position).is_none());
        let after = |position: &Position| {
            let position = *position;
            moves(&four, &position).into_iter().map(move |column| {
                let mut after = position;
                four.play(&mut after, column);
                after
            })
        };
        positions = going_on.flat_map(after).collect();
    }
}

#[test]
fn games_are_as_many_as_can_be_counted_by_hand() {
    // Seven moves overfill a column only if all are in the same one. So 7 games are impossible.
    fn games(four: &FourInARow, position: &Position, left: u32) -> u64 {
        if left == 0 {
            return 1;
        }
        if four.outcome(position).is_some() {
            return 0;
        }
        let after = |column| {
            let mut after = *position;
            four.play(&mut after, column);
            games(four, &after, left - 1)
        };
        moves(four, position).into_iter().map(after).sum()
    }
    let four = FourInARow::new(7, 6).unwrap();
    assert_eq!(
        (0..=7).map(|left| games(&four, &four.initial(), left)).collect::<Vec<_>>(),
        [1, 7, 49, 343, 2401, 16_807, 117_649, 823_536]
    );
}

#[test]
fn moves_are_read_and_refused() {
    let four = FourInARow::new(4, 2).unwrap();
    assert_eq!(four.after(" A b\tc ").unwrap().disc_count(), 3);
    let column = moves(&four, &four.initial())[0];
    assert_eq!(four.after("a a a"), Err(FourError::Full { number: 3, column }));
    assert_eq!(
        four.after("a a b b c c d a"),
        Err(FourError::GameOver { number: 8, outcome: Outcome::Won(Player::First) })
    );
    for text in ["e", "1", "ab", "ä", "@", "-"] {
        let error = four.after(&format!("a {text}")).unwrap_err().to_string();
        assert!(error.contains("move 2") && error.contains("from a to d"), "{error}");
    }
    for (width, height) in [(0, 6), (7, 0), (8, 8), (64, 1), (usize::MAX, usize::MAX), (1, 64)] {
        assert_eq!(FourInARow::new(width, height), Err(FourError::Board { width, height }));
    }
}

proptest! {
    #[test]
    fn any_game_goes_as_it_does_cell_by_cell(width in 1..=9_usize, height in 1..=6_usize, seed: u64) {
        play_along(width, height, &mut Rng::new(seed));
    }

    #[test]
    fn any_text_is_a_game_or_refused(text in any::<String>(), moves in "[a-h ]{0,60}") {
        let four = FourInARow::new(7, 6).unwrap();
        let _ = four.after(&text);
        if let Ok(position) = four.after(&moves) {
            prop_assert_eq!(position.disc_count() as usize, moves.split_whitespace().count());
        }
    }
}
