//! A function that is called elsewhere captures nothing: it would be left behind.

use farside::prelude::*;

/// Has no bytes, and all the same says something by being there.
struct Token;

fn captures(me: &Worker, to: WorkerId) {
    let local = 7_u64;
    let token = Token;
    let _ = me.call(to, (), |_, ()| local + 1);
    let _ = me.call(to, (), move |_, ()| drop(token));
    let _ = me.call_return(to, 1_u64, |_, x| x + local);
    let _ = me.call_buffer(to, (), b"bytes", |_, (), buffer| buffer.len() as u64 == local);
    let _ = me.call_with_reply(to, (), |_, (), reply: Reply<u64>| reply.send(local));
    let _ = me.aggregate(to).call((), |_, ()| local);
    let _ = me.to(to).send_based().call((), |_, ()| me.id().number());
}

fn main() {}
