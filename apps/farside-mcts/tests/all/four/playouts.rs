//! Tests of random games.

use farside_mcts::games::four::{FourInARow, Position};
use farside_mcts::{Game, Outcome, Player, Points, Rng};

/// Four in a row with the default methods of `Game`.
struct Plain(FourInARow);

impl Game for Plain {
    type State = Position;
    type Move = <FourInARow as Game>::Move;

    fn initial(&self) -> Position {
        self.0.initial()
    }
    fn to_move(&self, position: &Position) -> Player {
        self.0.to_move(position)
    }
    fn moves(&self, position: &Position, moves: &mut Vec<Self::Move>) {
        self.0.moves(position, moves);
    }
    fn play(&self, position: &mut Position, column: Self::Move) {
        self.0.play(position, column);
    }
    fn outcome(&self, position: &Position) -> Option<Outcome> {
        self.0.outcome(position)
    }
}

#[test]
fn random_games_follow_the_rules() {
    // The same random numbers give the same columns, so both play the same games.
    let four = FourInARow::new(7, 6).unwrap();
    for (moves, seed) in [("", 1), ("d d d", 2), ("a b a b a", 3), ("d c d c e e c", 4)] {
        let position = four.after(moves).unwrap();
        let (mut quick, mut plain) = (Rng::new(seed), Rng::new(seed));
        for _ in 0..20 {
            let points = four.simulate(&position, 16, &mut quick);
            assert_eq!(points, Plain(four).simulate(&position, 16, &mut plain), "{moves}");
            assert_eq!(quick, plain);
        }
    }
}

#[test]
fn points_are_what_chance_gives() {
    // With one column the game is always drawn. With two columns of four rows the first player can
    // finish a line.
    let four = FourInARow::new(1, 5).unwrap();
    assert_eq!(four.simulate(&four.initial(), 10, &mut Rng::new(1)), Points::draws(10));
    let four = FourInARow::new(2, 4).unwrap();
    let position = four.after("a b a b a b").unwrap();
    // Either the first player finishes its line, or both players stop each other's line.
    let wins = (0..1000).filter(|seed| four.simulate(&position, 1, &mut Rng::new(*seed)) == Points::wins(1)).count();
    assert!(wins.abs_diff(500) < 80, "{wins}");
}
