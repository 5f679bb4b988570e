//! Containers that are made and freed again and again.

use std::collections::HashSet;

use farside::{PerWorker, ProcessId, Result, Wire, Worker, WorkerId, simulate, wire};
use farside_containers::map::{HashMap, WireMap};
use farside_containers::queue::{Queue, QueueSet};
use farside_containers::{CountingSet, DistVec, Exchange, Items, Query};

/// Makes a container, uses it and frees it.
type Round = fn(&Worker) -> Result<()>;

const ROUNDS: [(&str, Round); 8] = [
    ("an exchange", |me| {
        let exchange = Exchange::new(me, |_, items: Items<'_, u64>| items.for_each(drop))?;
        exchange.on(me).push(me.neighbor(1), 1)?;
        exchange.free(me)
    }),
    ("a query", |me| {
        let query = Query::new(me, |_, word: u32| word, |_, _, _: u32| ())?;
        query.on(me).ask(me.neighbor(1), 0, 1)?;
        query.free(me)
    }),
    ("a map", |me| {
        let map = HashMap::<u64, u64>::new(me, 10)?;
        map.on(me).insert(u64::from(me.id().number()), 1)?;
        map.free(me)
    }),
    ("a map of strings", |me| {
        let map = WireMap::<String, u64>::new(me)?;
        map.on(me).insert(me.id().to_string(), 1)?;
        map.free(me)
    }),
    ("a queue", |me| {
        let queue = Queue::<u64>::new(me, ProcessId::new(0), 10)?;
        queue.on(me).push(1)?.expect("there is room");
        queue.free(me)
    }),
    ("queues", |me| {
        let set = QueueSet::<u64>::new(me, 10)?;
        set.at(me.process()).on(me).push(1)?.expect("there is room");
        set.free(me)
    }),
    ("a counting set", |me| {
        let words = CountingSet::new(me)?;
        words.insert(me, 1_u32)?;
        words.free(me)
    }),
    ("a vector", |me| {
        let vector = DistVec::<u64>::new(me)?;
        vector.push_to(me, WorkerId::FIRST, 1)?;
        vector.free(me)
    }),
];

/// The bytes that name the slot of a value in its handle. See `slots_come_back_and_names_do_not` of
/// `farside`: a slot has 1024 values.
fn slot(handle: &impl Wire) -> u32 {
    let bytes = wire::encode(handle, Vec::new());
    u32::from_le_bytes(bytes.try_into().expect("a handle of four bytes")) % (1 << 22)
}

/// A container that is freed gives back all slots of its values. If it kept one, it would take that
/// of the probe, and each probe would get another one.
#[test]
fn slots_come_back() {
    simulate(2, 1, 1, |me| {
        for (what, round) in ROUNDS {
            let mut slots = HashSet::new();
            for _ in 0..40 {
                round(me)?;
                let probe = PerWorker::new(me, 0)?;
                slots.insert(slot(&probe));
                probe.free(me)?;
            }
            assert!(slots.len() <= 6, "{what} keeps slots: {} of probes", slots.len());
        }
        me.barrier()
    })
    .unwrap();
}
