//! A closure that is known by its type captures nothing, not even what has no bytes.

use farside::prelude::*;
use farside::remote;

#[derive(Clone, Copy)]
struct Token;

fn captures(me: &Worker, to: WorkerId) {
    let local = 7_u64;
    let token = Token;
    let _ = me.to(to).call_remote(1_u64, remote!(|_, x: u64| x + local));
    let _ = me.to(to).call_return_remote(1_u64, remote!(|_, x: u64| x + local));
    let _ = me.to(to).call_remote((), remote!(|_, _x: ()| drop(token)));
}

fn capturing_parameter<T: Copy + 'static>(me: &Worker, to: WorkerId, token: T) {
    let _ = me.to(to).call_remote((), remote!(|_, _x: ()| drop(token)));
}

/// Only the macro makes such a name.
fn by_hand(me: &Worker, to: WorkerId) {
    let token = Token;
    let _ = me.to(to).call_remote((), farside::RemoteFn::from(move |_: &Worker, ()| drop(token)));
}

fn main() {}
