//! Handles of another job.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use farside::{Dist, PerWorker, ProcessId, Result, Worker, simulate};
use farside_containers::map::{HashMap, WireMap};
use farside_containers::queue::Queue;
use farside_containers::{CountingSet, DistVec, Exchange, Items};

/// A handle of each kind.
#[derive(Clone, Copy)]
struct Handles {
    map: HashMap<u64, u64>,
    wire_map: WireMap<u64, u64>,
    queue: Queue<u64>,
    exchange: Exchange<u64>,
    words: CountingSet<u64>,
    vector: DistVec<u64>,
    local: PerWorker<RefCell<u64>>,
    shared: Dist<u64>,
}

fn make(me: &Worker) -> Result<Handles> {
    Ok(Handles {
        map: HashMap::new(me, 10)?,
        wire_map: WireMap::new(me)?,
        queue: Queue::new(me, ProcessId::new(0), 10)?,
        exchange: Exchange::new(me, |_, items: Items<'_, u64>| items.for_each(drop))?,
        words: CountingSet::new(me)?,
        vector: DistVec::new(me)?,
        local: PerWorker::new(me, RefCell::new(7))?,
        shared: Dist::new(me, || 7)?,
    })
}

/// Two jobs make the same containers in the same order. A handle of one names nothing in the other:
/// operations return an error, and what returns no result panics.
#[test]
fn a_handle_of_another_job_is_refused() {
    let kept = Mutex::new(None);
    let keep = |me: &Worker| {
        let handles = make(me)?;
        *kept.lock().unwrap() = Some(handles);
        me.barrier()
    };
    simulate(2, 1, 1, keep).unwrap();
    let kept = kept.into_inner().unwrap().expect("the handles");
    simulate(2, 1, 2, |me| {
        let own = make(me)?;
        let is_refused = |using: &dyn Fn(Handles) -> Result<()>| {
            using(own).unwrap();
            let refused = using(kept).unwrap_err().to_string();
            assert!(refused.contains("the handle is of another job"), "{refused}");
        };
        is_refused(&|handles| handles.map.on(me).insert(1, 1).map(drop));
        is_refused(&|handles| handles.map.on(me).get_many(&[1]).map(drop));
        is_refused(&|handles| handles.wire_map.on(me).get(&1).map(drop));
        is_refused(&|handles| handles.wire_map.on(me).batch()?.finish());
        is_refused(&|handles| handles.queue.on(me).push(1).map(drop));
        is_refused(&|handles| handles.queue.on(me).pop_many(2).map(drop));
        is_refused(&|handles| handles.exchange.on(me).push(me.id(), 1));
        is_refused(&|handles| handles.words.insert(me, 1));
        is_refused(&|handles| handles.words.settle(me));
        is_refused(&|handles| handles.vector.push_to(me, me.id(), 1));
        is_refused(&|handles| handles.vector.sort(me));
        let panics = |using: &dyn Fn(Handles)| {
            using(own);
            let panic = catch_unwind(AssertUnwindSafe(|| using(kept))).unwrap_err();
            let why = panic.downcast_ref::<String>();
            assert!(
                why.is_some_and(|why| why.contains("another job") || why.contains("the job it was made")),
                "{why:?}"
            );
        };
        panics(&|handles| drop(handles.words.iter(me)));
        panics(&|handles| handles.vector.with(me, |_| ()));
        panics(&|handles| handles.local.with(me, |_| ()));
        panics(&|handles| assert_eq!(*handles.shared.here(me), 7));
        me.barrier()
    })
    .unwrap();
}
