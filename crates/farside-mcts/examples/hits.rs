use farside_mcts::{games::hex::*, *};
fn main() {
    let a: Vec<f64> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let (k, sims, exp, c, seeds) = (a[0] as u64, a[1] as u32, a[2] as u32, a[3] as f32, a[4] as u64);
    let d: serde_json::Value = serde_json::from_str(include_str!("../tests/data/hex-positions.json")).unwrap();
    let t = std::time::Instant::now();
    let (mut hit, mut tot, mut solved) = (0, 0, 0);
    let only = std::env::var("ONLY").unwrap_or_default();
    for p in d["positions"].as_array().unwrap() {
        if !only.is_empty() && !only.split(",").any(|x| p["id"].as_str().unwrap().contains(x)) {
            continue;
        }
        let n = p["n"].as_u64().unwrap() as usize;
        let cells = |k: &str| -> Vec<Cell> {
            p[k].as_array().unwrap().iter().map(|x| x.as_str().unwrap().parse().unwrap()).collect()
        };
        let pos = Position::from_stones(
            n,
            &cells("black"),
            &cells("white"),
            if p["to_move"] == "black" { Player::First } else { Player::Second },
        )
        .unwrap();
        let win = cells("winning_moves");
        let mut h = 0;
        let mut sv = 0;
        let mut rates = vec![];
        for seed in 0..seeds {
            let r = Search::new(if std::env::var_os("PLAIN").is_some() {
                Hex::new(n).unwrap()
            } else {
                Hex::new(n).unwrap().with_connections()
            })
            .params(Params { seed, simulations: sims, expand_after: exp, exploration: c, ..Params::default() })
            .run(&pos, Budget::Rollouts(k))
            .unwrap();
            if win.contains(&r.best.chosen) {
                h += 1
            }
            if r.solved.is_some() {
                sv += 1;
                assert_eq!(r.solved, Some(Outcome::Won(pos.to_move())), "{p}");
            }
            rates.push((
                r.best.chosen.to_string(),
                r.nodes,
                r.max_depth,
                r.tree_bytes >> 20,
                r.best.win_rate,
                r.rollouts,
                r.elapsed.as_secs_f32(),
            ));
        }
        hit += h;
        tot += seeds;
        solved += sv;
        if h < seeds {
            println!(
                "{} {n} {h}/{seeds} solved {sv} {:?} win {:?}",
                p["id"],
                rates,
                win.iter().map(|c| c.to_string()).collect::<Vec<_>>()
            );
        }
    }
    println!("HIT {hit}/{tot} solved {solved} in {:.1} s", t.elapsed().as_secs_f64());
}
