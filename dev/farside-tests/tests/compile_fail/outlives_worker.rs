//! A wait needs its worker.

use farside::prelude::*;

fn pending(me: &Worker, to: WorkerId) -> Pending<'static, u64> {
    me.call_return(to, 1_u64, |_, x| x).unwrap()
}

fn synchronizer(me: &Worker) -> Synchronizer<'static> {
    me.synchronizer(1).unwrap()
}

fn aggregator(me: &Worker, to: WorkerId) -> Aggregator<'static> {
    me.aggregate(to)
}

fn notified(me: &Worker, to: WorkerId) {
    let way = {
        let synchronizer = me.synchronizer(1).unwrap();
        me.to(to).notify(&synchronizer, On::Executed)
    };
    let _ = way.call((), |_, ()| ());
}

fn run(body: impl FnOnce(&Worker)) {
    drop(body);
}

fn kept_beyond_the_body() {
    let mut kept = None;
    run(|me| kept = me.call_return(me.id(), 1_u64, |_, x| x).ok());
    drop(kept);
}

fn main() {}
