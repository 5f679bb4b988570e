//! A value that is not `Clone` exists once: collectives that give it to several workers refuse it.

use farside::prelude::*;
use farside::ResultPlace;

#[derive(Wire)]
struct Token(u64);

fn several_workers_would_hold_it(me: &Worker, place: ResultPlace<Token>) -> farside::Result<()> {
    let root = WorkerId::new(0);
    me.broadcast(root, Some(Token(1)))?;
    me.all_reduce(Token(1), |one, _| one)?;
    place.poll(me)?;
    Ok(())
}

fn main() {}
