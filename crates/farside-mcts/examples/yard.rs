#[path = "../../farside-bench/src/sequential.rs"]
mod sequential;
use farside_mcts::{games::hex::*, *};
fn main() {
    let a: Vec<usize> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let (n, k, sims, reps) = (a[0], a[1] as u64, a[2] as u32, a[3]);
    let hex = Hex::new(n).unwrap();
    let p = hex.initial();
    let mut r = vec![];
    let (mut ty, mut tl) = (vec![], vec![]);
    let (mut by, mut bl) = (0.0f64, 0.0f64);
    let mut last = None;
    for i in 0..reps as u64 {
        let y = sequential::run(&p, k, sims, i);
        let l = Search::new(hex)
            .params(Params { seed: i, simulations: sims, memory_bytes: 8 << 30, ..Params::default() })
            .run(&p, Budget::Rollouts(k))
            .unwrap();
        let (a, b) = (k as f64 / y.seconds, l.rollouts_per_s());
        r.push(b / a);
        ty.push(1.0 / a);
        tl.push(1.0 / b);
        by = by.max(a);
        bl = bl.max(b);
        last = Some((y, l));
    }
    let (y, l) = last.unwrap();
    println!(
        "yard {:.3} M/s ({} nodes, {} {:.4})  local {:.3} M/s ({} nodes, {:.1} B/rollout, depth {:.2}/{}, {} {:.4} {})",
        by / 1e6,
        y.nodes,
        y.best,
        y.win_rate,
        bl / 1e6,
        l.nodes,
        l.tree_bytes as f64 / k as f64,
        l.mean_depth,
        l.max_depth,
        l.best.chosen,
        l.best.win_rate,
        l.best.visits
    );
    r.sort_by(f64::total_cmp);
    ty.sort_by(f64::total_cmp);
    tl.sort_by(f64::total_cmp);
    for q in [0, 10, 25, 50] {
        print!("p{q} {:.3}  ", ty[ty.len() * q / 100] / tl[tl.len() * q / 100]);
    }
    println!("ratio of best {:.3}, median ratio {:.3}", bl / by, r[r.len() / 2]);
}
