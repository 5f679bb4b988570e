//! Calls of every kind between all workers, for [`sweep`](super::sweep).

use std::cell::RefCell;
use std::collections::HashMap;

use farside::prelude::*;
use farside::{Error, FullCause, Refused, Result, ResultPlace};
use farside_testbed::limit;

use super::sweep::{THREADS, VICTIM, is_victim_lost, report_end};

const PROGRAM: &str = "faults::traffic::program";
const PROCESSES: u32 = 4;
/// Rounds of calls before the survivors look for the loss, and after it.
const ROUNDS_BEFORE: u64 = 8;
const ROUNDS_AFTER: u64 = 4;

/// The number of the last call from each sender, through its ring and through its shared ring.
#[derive(Default)]
struct Log {
    by_ring: HashMap<WorkerId, u64>,
    by_shared_ring: HashMap<WorkerId, u64>,
}

thread_local! {
    /// A worker is a thread. A `PerWorker` would need all processes, one of which dies.
    static LOG: RefCell<Log> = RefCell::default();
}

type Numbered = (WorkerId, u64);

fn arrive(_: &Worker, (from, number): Numbered) {
    LOG.with_borrow_mut(|log| {
        let before = log.by_ring.insert(from, number).unwrap_or(0);
        assert_eq!(number, before + 1, "calls of {from} run in order, each once");
    });
}

fn arrive_with(there: &Worker, call: Numbered, buffer: &[u8]) {
    assert!(buffer.iter().all(|byte| *byte == call.1 as u8));
    arrive(there, call);
}

fn arrive_by_shared_ring(_: &Worker, (from, number): Numbered) {
    LOG.with_borrow_mut(|log| {
        let before = log.by_shared_ring.insert(from, number).unwrap_or(0);
        assert_eq!(number, before + 1, "calls of {from} on its shared ring run in order, each once");
    });
}

/// One worker's calls to the others.
struct Traffic<'w> {
    me: &'w Worker,
    sent_by_ring: u64,
    sent_by_shared_ring: u64,
}

impl Traffic<'_> {
    /// Calls every worker in every way. Process 1 may be lost by then.
    fn round(&mut self) -> Result<()> {
        let before = (self.sent_by_ring, self.sent_by_shared_ring);
        for to in self.me.workers() {
            (self.sent_by_ring, self.sent_by_shared_ring) = before;
            match self.call_in_every_way(to) {
                Err(Error::PeerLost { process, .. })
                    if self.me.process_of(to) == process && process.number() == VICTIM => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn call_in_every_way(&mut self, to: WorkerId) -> Result<()> {
        let me = self.me;
        me.call(to, self.next(), arrive)?;
        let aggregator = me.aggregate(to);
        for _ in 0..5 {
            aggregator.call(self.next(), arrive)?;
        }
        drop(aggregator);
        // More than a ring holds at first, and calls longer than its first chunks.
        for bytes in [500; 40].into_iter().chain([5_000, 70_000]) {
            self.send(to, bytes)?;
        }
        self.sent_by_shared_ring += 1;
        me.to(to).send_based().call((me.id(), self.sent_by_shared_ring), arrive_by_shared_ring)?;
        // Calls with registered memory, and a call to all workers.
        let call = self.next();
        let buffer = me.allocate(3000)?;
        buffer.fill(call.1 as u8);
        me.to(to).call_buffer_get(call, buffer, arrive_with).map_err(|refused| refused.error)?.wait()?;
        let memory = me.allocate_at(me.process(), 64)?;
        let place = ResultPlace::new(me, memory, 0, 64)?;
        let executed = me.synchronizer(1)?;
        me.to(to).notify(&executed, On::Executed).call_into(self.sent_by_ring, |_, number| number * 2, place)?;
        executed.wait()?;
        assert_eq!(place.poll(me)?, Some(self.sent_by_ring * 2));
        me.release(memory)?;
        match me.everyone().call(self.sent_by_ring, |_, number| assert!(number > 0)) {
            // The survivors run it nevertheless.
            Err(Refused { error: Error::PeerLost { process, .. }, .. }) if process.number() == VICTIM => {}
            other => other?,
        }
        let doubled = me.call_return(to, self.sent_by_ring, |_, number| number * 2)?;
        assert_eq!(doubled.wait()?, self.sent_by_ring * 2);
        self.borrow_memory(me.process_of(to))
    }

    fn borrow_memory(&self, of: ProcessId) -> Result<()> {
        let memory = self.me.allocate_at(of, 3000)?;
        memory.put(self.me, 0, &[self.sent_by_ring as u8; 3000])?;
        let mut got = [0; 3000];
        memory.get(self.me, 0, &mut got)?;
        assert_eq!(got, [self.sent_by_ring as u8; 3000]);
        self.me.release(memory)
    }

    fn next(&mut self) -> Numbered {
        self.sent_by_ring += 1;
        (self.me.id(), self.sent_by_ring)
    }

    /// Queues a call if the ring has no room, and waits if the queue has none either.
    fn send(&mut self, to: WorkerId, bytes: usize) -> Result<()> {
        let call = self.next();
        let buffer = vec![call.1 as u8; bytes];
        match self.me.to(to).when_full(WhenFull::Queue).call_buffer(call, &buffer, arrive_with) {
            Err(refused) if matches!(refused.error, Error::Full { cause: FullCause::Queue { .. }, .. }) => {
                Ok(self.me.call_buffer(to, call, &buffer, arrive_with)?)
            }
            other => Ok(other?),
        }
    }

    /// Waits until all calls of the survivors have arrived.
    fn wait_for_all(&self) -> Result<()> {
        let expected = (Some(&self.sent_by_ring), Some(&self.sent_by_shared_ring));
        let survivors = || self.me.workers().filter(|from| self.me.process_of(*from).number() != VICTIM);
        let has_all =
            |log: &Log| survivors().all(|from| (log.by_ring.get(&from), log.by_shared_ring.get(&from)) == expected);
        self.me.wait_while_serving(|| LOG.with_borrow(has_all))
    }
}

fn body(me: &Worker) -> Result<()> {
    let mut traffic = Traffic { me, sent_by_ring: 0, sent_by_shared_ring: 0 };
    for _ in 0..ROUNDS_BEFORE {
        traffic.round()?;
    }
    if me.process().number() == VICTIM {
        return Ok(());
    }
    if is_victim_lost() {
        me.wait_while_serving(|| me.lost_processes() == [ProcessId::new(VICTIM)])?;
    }
    for _ in 0..ROUNDS_AFTER {
        traffic.round()?;
    }
    traffic.wait_for_all()?;
    // The memory that the dead process borrowed has been released.
    me.wait_while_serving(|| me.counters().remote_memory_bytes_here == 0)?;
    report_end(PROGRAM, me);
    Ok(())
}

#[test]
#[ignore = "a program for other tests"]
fn program() {
    let threads = std::env::var(THREADS).map_or(1, |threads| threads.parse().unwrap());
    let job = farside::job().processes(PROCESSES).threads_per_process(threads);
    let job = job.finalize_deadline(limit());
    if let Err(error) = job.run(body) {
        eprintln!("verdict: {error}");
        std::process::exit(1);
    }
}
