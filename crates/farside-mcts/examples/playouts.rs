use farside_mcts::{Rng, games::hex::*};
use std::time::Instant;
fn run(n: usize, stones: usize) {
    let mut rng = Rng::new(1);
    let mut p = Position::new(n).unwrap();
    for _ in 0..stones {
        let c: Vec<_> = p.empty_cells().collect();
        p.play(c[rng.below(c.len() as u32) as usize]);
    }
    let t = Instant::now();
    let mut w = 0;
    for _ in 0..50_000 {
        w += black_wins(&p, 16, &mut rng);
    }
    let s = t.elapsed().as_secs_f64() / 0.8e6 * 1e9;
    println!("{n} {stones}: playout {s:.1} ns ({:.2} M/s), black {:.4}", 1e3 / s, w as f64 / 0.8e6);
}
fn main() {
    for _ in 0..2 {
        run(11, 0);
        run(11, 60);
        run(11, 100);
        run(13, 0);
        run(6, 0);
        run(16, 0);
    }
}
