//! Calls of mixed modes keep their order, and none is lost, under caps so small that every mode is
//! refused sometimes.

use std::time::Duration;

use farside::prelude::*;
use farside::{Error, Refused, Result, RingOptions};
use farside_testbed::scaled;

use crate::support::{is_launched, verdict};
use crate::ways::{arrive, arrive_with, new_last};

const CALLS: u64 = 3000;

/// A pseudorandom sequence that is the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Makes one call in one of the modes. Makes a refused call again, waiting for room.
fn call(me: &Worker, dice: &mut Dice, to: WorkerId, call: crate::ways::Numbered) -> Result<()> {
    let outcome = match dice.below(10) {
        0 => me.call(to, call, arrive),
        1 => me.to(to).when_full(WhenFull::Fail).call(call, arrive),
        2 => me.to(to).when_full(WhenFull::Queue).call(call, arrive),
        3 => me.aggregate(to).batch_bytes(1 + dice.below(300) as usize).call(call, arrive),
        4 => {
            // This batch outlives its aggregator.
            let aggregator = me.aggregate(to);
            let outcome = aggregator.call(call, arrive);
            std::mem::forget(aggregator);
            outcome
        }
        5 => me.aggregate(to).overflow(dice.below(3000) as usize).call(call, arrive),
        6 => {
            let aggregator = me.aggregate(to).batch_bytes(500).flush_within(Duration::from_micros(dice.below(2000)));
            let outcome = aggregator.call(call, arrive);
            std::mem::forget(aggregator);
            outcome
        }
        7 => me.to(to).when_full(WhenFull::Fail).call_buffer(
            call,
            &vec![call.2 as u8; dice.below(700) as usize],
            arrive_with,
        ),
        8 => {
            me.aggregate(to).overflow(2000).call_buffer(call, &vec![call.2 as u8; dice.below(90) as usize], arrive_with)
        }
        _ => me.call_return(to, call, arrive).map(drop),
    };
    match outcome {
        Err(Refused { error: Error::Full { .. }, arguments }) => {
            assert_eq!((arguments.1, arguments.2), (call.1, call.2));
            Ok(me.call(to, call, arrive)?)
        }
        other => Ok(other?),
    }
}

fn everything_mixed(me: &Worker, seed: u64, calls: u64) -> Result<()> {
    let last = new_last(me)?;
    let mut dice = Dice(seed * 1000 + u64::from(me.id().number()));
    me.barrier()?;
    let mut numbers = vec![0; me.worker_count() as usize];
    for _ in 0..calls * u64::from(me.worker_count()) {
        let to = WorkerId::new(dice.below(me.worker_count().into()) as u32);
        numbers[to.index()] += 1;
        call(me, &mut dice, to, (last, me.id(), numbers[to.index()]))?;
        match dice.below(400) {
            0 => me.shutdown(to)?,
            1 => me.setup(to)?,
            2 => me.flush(),
            3..10 => drop(me.progress()?),
            10..13 => me.charge(Duration::from_micros(dice.below(300))),
            _ => {}
        }
    }
    // The expected number travels in the same order as the calls.
    for to in me.workers() {
        me.call(to, (last, me.id(), numbers[to.index()]), |there, (last, from, number)| {
            assert_eq!(last.here(there).borrow()[from.index()], number, "nothing is lost");
            last.here(there).borrow_mut()[from.index()] = u64::MAX;
        })?;
    }
    me.wait_while_serving(|| last.here(me).borrow().iter().all(|last| *last == u64::MAX))?;
    me.barrier()
}

#[test]
fn over_shared_memory() {
    let ring = RingOptions { chunk_bytes: 256, chunk_bytes_max: 512, ..RingOptions::default() };
    for seed in 0..scaled(1) {
        let job = farside::job().processes(3).ring(ring).ring_cap_bytes(32 << 10).queue_cap_bytes(1 << 10);
        verdict("ways::interleavings::over_shared_memory", job, |me| everything_mixed(me, seed, CALLS)).unwrap();
    }
}

#[test]
fn over_libfabric() {
    farside_testbed::needs!("fabric");
    let job = farside::job().processes(2).ring_cap_bytes(4 << 10).queue_cap_bytes(1 << 10);
    let job = job.force_fabric("ofi:tcp".parse().unwrap());
    verdict("ways::interleavings::over_libfabric", job, |me| everything_mixed(me, 1, CALLS)).unwrap();
}

#[test]
fn over_the_simulated_network() {
    assert!(!is_launched());
    for seed in 0..scaled(6) {
        let simulated = farside::Simulation::new(3, 1, seed).run(|me| everything_mixed(me, seed, 150)).unwrap();
        simulated.verdict.unwrap();
    }
}
