#[path = "../../farside-bench/src/sequential.rs"]
mod sequential;
use farside_mcts::{games::hex::*, *};
fn main() {
    let a: Vec<usize> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let hex = Hex::new(a[0]).unwrap();
    let p = hex.initial();
    if a[3] == 0 {
        println!("{:?}", sequential::run(&p, a[1] as u64, a[2] as u32, 1).best);
        return;
    }
    let l = Search::new(hex)
        .params(Params { simulations: a[2] as u32, memory_bytes: 8 << 30, ..Params::default() })
        .run(&p, Budget::Rollouts(a[1] as u64))
        .unwrap();
    println!("{:?}", l.best);
}
