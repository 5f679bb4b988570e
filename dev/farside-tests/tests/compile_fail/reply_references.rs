//! The duty to answer is handed on whole, or kept.

use std::cell::RefCell;

use farside::prelude::*;

thread_local! {
    static KEPT: RefCell<Option<&'static Reply<u64>>> = const { RefCell::new(None) };
}

fn by_reference(me: &Worker, to: WorkerId) {
    let _ = me.call_with_reply(to, (), |there, (), reply: Reply<u64>| {
        let _ = there.call(there.id(), &reply, |_, _| ());
    });
}

fn kept(me: &Worker, to: WorkerId) {
    let _ = me.call_with_reply(to, (), |_, (), reply: Reply<u64>| {
        KEPT.set(Some(&reply));
    });
}

fn twice(me: &Worker, to: WorkerId) {
    let _ = me.call_with_reply(to, (), |_, (), reply: Reply<u64>| {
        reply.send(1);
        reply.send(2);
    });
}

fn main() {}
