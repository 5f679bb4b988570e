//! Searches of games other than Hex, and the guarantees of every search.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside_mcts::games::hex::Hex;
use farside_mcts::{
    Budget, Game, Local, MAX_ROLLOUTS, Outcome, Params, Player, Points, Report, Rng, Search, SearchError,
};

/// Take one to three matches; the player that takes the last one wins.
struct Nim;

impl Game for Nim {
    type State = (u32, Player);
    type Move = u32;

    fn initial(&self) -> Self::State {
        (21, Player::First)
    }
    fn to_move(&self, &(_, player): &Self::State) -> Player {
        player
    }
    fn moves(&self, &(left, _): &Self::State, moves: &mut Vec<u32>) {
        moves.extend(1..=left.min(3));
    }
    fn play(&self, state: &mut Self::State, taken: u32) {
        *state = (state.0 - taken, state.1.opponent());
    }
    fn outcome(&self, &(left, player): &Self::State) -> Option<Outcome> {
        (left == 0).then(|| Outcome::Won(player.opponent()))
    }
}

/// Three in a row, with draws. Bits 0 to 8 are the first player's, 9 to 17 the second's.
struct TicTacToe;

const LINES: [u32; 8] = [0o7, 0o70, 0o700, 0o111, 0o222, 0o444, 0o421, 0o124];

impl Game for TicTacToe {
    type State = u32;
    type Move = u8;

    fn initial(&self) -> u32 {
        0
    }
    fn to_move(&self, state: &u32) -> Player {
        if state.count_ones().is_multiple_of(2) { Player::First } else { Player::Second }
    }
    fn moves(&self, state: &u32, moves: &mut Vec<u8>) {
        moves.extend((0..9).filter(|cell| (state | state >> 9) >> cell & 1 == 0));
    }
    fn play(&self, state: &mut u32, cell: u8) {
        *state |= 1 << (cell + if self.to_move(state) == Player::First { 0 } else { 9 });
    }
    fn outcome(&self, state: &u32) -> Option<Outcome> {
        let has_line = |shift: u32| LINES.iter().any(|line| state >> shift & line == *line);
        if has_line(0) {
            Some(Outcome::Won(Player::First))
        } else if has_line(9) {
            Some(Outcome::Won(Player::Second))
        } else {
            (state.count_ones() == 9).then_some(Outcome::Drawn)
        }
    }
}

/// A game that is not over, but has no moves.
struct Stuck;

impl Game for Stuck {
    type State = u8;
    type Move = u8;

    fn initial(&self) -> u8 {
        0
    }
    fn to_move(&self, _: &u8) -> Player {
        Player::First
    }
    fn moves(&self, _: &u8, _: &mut Vec<u8>) {}
    fn play(&self, _: &mut u8, _: u8) {}
    fn outcome(&self, _: &u8) -> Option<Outcome> {
        None
    }
}

fn search<G: Game>(game: G, state: &G::State, rollouts: u64) -> Report<G::Move> {
    Search::new(game).run(state, Budget::Rollouts(rollouts)).unwrap()
}

#[test]
fn nim_is_solved_from_every_heap() {
    for left in 1..=17 {
        for player in [Player::First, Player::Second] {
            let report = search(Nim, &(left, player), 50_000);
            let loser = if left % 4 == 0 { player } else { player.opponent() };
            assert_eq!(report.solved, Some(Outcome::Won(loser.opponent())), "{left} left");
            if left % 4 != 0 {
                assert_eq!(report.best.chosen, left % 4);
                assert_eq!(report.best.win_rate, 1.0);
            }
        }
    }
}

#[test]
fn tic_tac_toe_is_a_draw() {
    let params = Params { expand_after: 1, ..Params::default() };
    // A corner and the centre, then best play, then a mistake.
    let mut state = 1 << 0 | 1 << (9 + 4);
    for (cell, outcome) in [(8, Outcome::Drawn), (1, Outcome::Drawn), (2, Outcome::Won(Player::Second))] {
        TicTacToe.play(&mut state, cell);
        let report = Search::new(TicTacToe).params(params).run(&state, Budget::Rollouts(200_000)).unwrap();
        assert_eq!((report.solved, report.best.outcome), (Some(outcome), Some(outcome)));
        assert_eq!(report.best.win_rate, if outcome == Outcome::Drawn { 0.5 } else { 1.0 });
    }
}

#[test]
fn random_games_score_wins_and_draws() {
    // Random tic-tac-toe: the first player wins 0.5849 and draws 0.1270 of all games, exactly.
    let points = TicTacToe.simulate(&0, 40_000, &mut Rng::new(1));
    let expected = 2 * 23_394 + 5_079;
    let [low, high] = [expected - 1200, expected + 1200].map(Points::draws);
    assert!(low < points && points < high, "{points:?}");
    assert_eq!(TicTacToe.simulate(&0o7, 5, &mut Rng::new(1)), Points::wins(5));
}

#[test]
fn rollouts_are_exact_and_add_up() {
    for rollouts in [1, 2, 15, 16, 17, 1000] {
        let hex = Hex::new(4).unwrap();
        let report = search(hex, &hex.initial(), rollouts);
        assert_eq!(report.rollouts, rollouts);
        assert_eq!(report.simulations, 16 * rollouts, "nothing is certain so early");
        assert_eq!(report.moves.iter().map(|known| u64::from(known.visits)).sum::<u64>(), rollouts);
        assert!(report.moves.is_sorted_by(|a, b| a.visits >= b.visits));
        assert_eq!(report.line[0], report.best.chosen);
        assert!(report.mean_depth >= 1.0 && report.mean_depth <= f64::from(report.max_depth));
    }
}

#[test]
fn a_solved_position_ends_the_search() {
    let report = search(Nim, &(3, Player::First), 5000);
    assert_eq!(report.solved, Some(Outcome::Won(Player::First)));
    assert!(report.rollouts < 100, "{}", report.rollouts);
    assert_eq!(report.moves.iter().map(|known| u64::from(known.visits)).sum::<u64>(), report.rollouts);
}

#[test]
fn the_same_seed_gives_the_same_search() {
    let hex = Hex::new(7).unwrap().with_connections();
    let run = |seed| {
        let params = Params { seed, ..Params::default() };
        let mut report = Search::new(hex).params(params).on(Local).run(&hex.initial(), Budget::Rollouts(2000)).unwrap();
        report.elapsed = Duration::ZERO;
        report
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_search_is_the_same_on_every_machine() {
    // Pinned: the generator, the playouts and the arithmetic of selection must not change.
    let hex = Hex::new(11).unwrap();
    let report = search(hex, &hex.initial(), 50_000);
    let top: Vec<_> = report.moves.iter().take(3).map(|known| (known.chosen.to_string(), known.visits)).collect();
    assert_eq!(top, [("g4".into(), 3806), ("e7".into(), 3400), ("f6".into(), 2903)]);
}

#[test]
fn time_budgets_end() {
    let hex = Hex::new(11).unwrap();
    let budget = Duration::from_millis(20);
    let report = Search::new(hex).run(&hex.initial(), Budget::Time(budget)).unwrap();
    assert!(report.rollouts > 0 && report.elapsed >= budget);
    // The search solves the position at once, so this returns although the budget is a day.
    let report = Search::new(Nim).run(&(1, Player::First), Budget::Time(Duration::from_secs(86_400))).unwrap();
    assert_eq!(report.solved, Some(Outcome::Won(Player::First)));
}

#[test]
fn an_observer_sees_interim_reports_and_may_stop() {
    let shown = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&shown);
    let hex = Hex::new(5).unwrap();
    let mut search = Search::new(hex).observe(100, move |report| {
        let times = counter.fetch_add(1, Ordering::Relaxed) + 1;
        assert_eq!(report.rollouts, 100 * times);
        if times == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let report = search.run(&hex.initial(), Budget::Rollouts(100_000)).unwrap();
    assert_eq!(report.rollouts, 300);
    assert_eq!(shown.load(Ordering::Relaxed), 3);
}

#[test]
fn memory_is_bounded() {
    let hex = Hex::new(11).unwrap();
    let memory_bytes = 200_000;
    let params = Params { memory_bytes, expand_after: 1, ..Params::default() };
    let report = Search::new(hex).params(params).run(&hex.initial(), Budget::Rollouts(30_000)).unwrap();
    assert_eq!(report.rollouts, 30_000);
    assert!(report.tree_bytes <= memory_bytes && report.tree_bytes > memory_bytes / 2);
}

#[test]
fn invalid_searches_are_refused() {
    let refusal = |params: Params, budget| {
        let hex = Hex::new(3).unwrap();
        Search::new(hex).params(params).run(&hex.initial(), budget).unwrap_err()
    };
    let fine = Params::default();
    let some = Budget::Rollouts(1);
    assert_eq!(refusal(fine, Budget::Rollouts(0)), SearchError::ZeroBudget);
    assert_eq!(refusal(fine, Budget::Time(Duration::ZERO)), SearchError::ZeroBudget);
    let rollouts = MAX_ROLLOUTS + 1;
    assert_eq!(refusal(fine, Budget::Rollouts(rollouts)), SearchError::BudgetTooLarge { rollouts, left: MAX_ROLLOUTS });
    for simulations in [0, Params::MAX_SIMULATIONS + 1] {
        assert_eq!(refusal(Params { simulations, ..fine }, some), SearchError::Simulations { simulations });
    }
    for exploration in [-0.1, f32::INFINITY] {
        assert_eq!(refusal(Params { exploration, ..fine }, some), SearchError::Exploration { exploration });
    }
    assert!(matches!(refusal(Params { exploration: f32::NAN, ..fine }, some), SearchError::Exploration { .. }));
    let bytes = 100;
    assert_eq!(refusal(Params { memory_bytes: bytes, ..fine }, some), SearchError::Memory { bytes });
    let over = Search::new(Nim).run(&(0, Player::First), some).unwrap_err();
    assert_eq!(over, SearchError::GameOver(Outcome::Won(Player::Second)));
    assert_eq!(Search::new(Stuck).run(&0, some).unwrap_err(), SearchError::NoMoves);
}
