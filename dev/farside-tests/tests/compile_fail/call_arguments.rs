//! Arguments and results that are addresses of this process.

use std::rc::Rc;

use farside::prelude::*;

fn arguments(me: &Worker, to: WorkerId) {
    let local = 7_u64;
    let _ = me.call(to, &local, |_, x| *x + 1);
    let _ = me.call(to, "static", |_, text: &'static str| text.len());
    let _ = me.call(to, &raw const local, |_, _| ());
    let _ = me.call(to, Rc::new(local), |_, _| ());
    let _ = me.call(to, (1_u8, vec![Rc::new(local)]), |_, _| ());
    let _ = me.call_buffer(to, &local, b"bytes", |_, _, _| ());
}

fn results(me: &Worker, to: WorkerId) {
    let _ = me.call_return(to, (), |_, ()| "static");
    let _ = me.call_return(to, (), |_, ()| Rc::new(7_u64));
    let _ = me.call_with_reply(to, (), |_, (), _reply: Reply<Box<dyn Fn()>>| ());
}

fn main() {}
