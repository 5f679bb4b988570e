//! Many processes on few cores send in all ways at once. No call is lost, doubled or overtaken.

use std::cell::RefCell;

use farside::prelude::*;
use farside::{Error, FullCause, Result};
use farside_testbed::{limit, scaled};

/// The calls that have arrived at a worker, by sender.
#[derive(Debug, Default)]
struct Arrived {
    /// The numbers of the last calls through the ring and through the shared ring.
    last: Vec<[u64; 2]>,
    /// The sum of all values and buffers.
    sum: Vec<u64>,
}

/// A call's place in the order of its ring or its shared ring.
#[derive(Clone, Copy, Wire)]
struct Numbered {
    from: WorkerId,
    shared: bool,
    number: u64,
}

type Log = PerWorker<RefCell<Arrived>>;

fn arrive(there: &Worker, log: Log, call: Numbered, sum: u64) {
    let mut arrived = log.here(there).borrow_mut();
    let last = &mut arrived.last[call.from.index()][usize::from(call.shared)];
    assert_eq!(*last + 1, call.number, "calls from {} run in order, each once", call.from);
    *last = call.number;
    arrived.sum[call.from.index()] += sum;
}

fn arrive_short(there: &Worker, (log, call, value): (Log, Numbered, u64)) {
    arrive(there, log, call, value);
}

fn arrive_long(there: &Worker, (log, call): (Log, Numbered), buffer: &[u8]) {
    arrive(there, log, call, sum_of(buffer));
}

fn sum_of(buffer: &[u8]) -> u64 {
    buffer.iter().enumerate().map(|(place, byte)| (place as u64 + 1) * u64::from(*byte)).sum()
}

/// A xorshift generator, which suffices to mix sizes and ways.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// Returns a size: mostly short, sometimes longer than any first chunk of a ring.
    fn size(&mut self) -> usize {
        let limit = [16, 200, 3000, 5000, 20_000, 100_000][(self.below(64) as f64).sqrt() as usize * 6 / 8];
        self.below(limit) as usize
    }
}

/// A way to one receiver, and the calls sent on it.
struct Sender<'w> {
    me: &'w Worker,
    log: Log,
    to: WorkerId,
    sent: [u64; 2],
    sum: u64,
}

impl Sender<'_> {
    fn next(&mut self, shared: bool) -> Numbered {
        let number = &mut self.sent[usize::from(shared)];
        *number += 1;
        Numbered { from: self.me.id(), shared, number: *number }
    }

    /// Sends a random call in a random way.
    fn send(&mut self, random: &mut Random, pattern: &[u8]) -> Result<()> {
        let (me, log, to) = (self.me, self.log, self.to);
        let value = random.below(1 << 32);
        let buffer = &pattern[..random.size()];
        let way = random.below(8);
        let call = self.next(way >= 6);
        let short = (log, call, value);
        self.sum += if way.is_multiple_of(2) { value } else { sum_of(buffer) };
        match way {
            0 => me.call(to, short, arrive_short)?,
            1 => me.call_buffer(to, (log, call), buffer, arrive_long)?,
            2 => me.aggregate(to).batch_bytes(1 << random.below(14)).call(short, arrive_short)?,
            3 => me.aggregate(to).call_buffer((log, call), buffer, arrive_long)?,
            4 => match me.to(to).when_full(WhenFull::Queue).call(short, arrive_short) {
                Err(refused) if is_queue_full(&refused.error) => me.call(to, short, arrive_short)?,
                other => other?,
            },
            5 => match me.to(to).when_full(WhenFull::Queue).call_buffer((log, call), buffer, arrive_long) {
                Err(refused) if is_queue_full(&refused.error) => {
                    me.call_buffer(to, (log, call), buffer, arrive_long)?
                }
                other => other?,
            },
            6 => me.to(to).send_based().call(short, arrive_short)?,
            _ => me.to(to).send_based().call_buffer((log, call), buffer, arrive_long)?,
        }
        if random.below(50) == 0 {
            assert_eq!(me.call_return(to, value, |_, value| !value)?.wait()?, !value);
        }
        Ok(())
    }
}

fn is_queue_full(error: &Error) -> bool {
    matches!(error, Error::Full { cause: FullCause::Queue { .. }, .. })
}

#[farside::test(processes = 8, threads = 1)]
fn nothing_is_lost_doubled_or_overtaken(me: &Worker) -> Result<()> {
    let count = me.worker_count() as usize;
    let empty = Arrived { last: vec![[0; 2]; count], sum: vec![0; count] };
    let log = PerWorker::new(me, RefCell::new(empty))?;
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ u64::from(me.id().number() + 1));
    let pattern: Vec<u8> = (0..100_000).map(|_| random.below(256) as u8).collect();
    let mut senders: Vec<_> = me.workers().map(|to| Sender { me, log, to, sent: [0; 2], sum: 0 }).collect();
    let end = me.now() + limit();
    let has_done_all = |senders: &[Sender<'_>]| {
        let sent = me.counters().sent;
        let to_all = senders.iter().all(|sender| sender.sent.iter().sum::<u64>() > 10);
        to_all && sent.chunks_grown > 0 && sent.staged > 0 && sent.stalls > 0
    };
    let mut bursts = 0;
    while bursts < scaled(60) || !has_done_all(&senders) {
        assert!(me.now() < end, "no ring grows, or none is full: {:?}", me.counters().sent);
        bursts += 1;
        let to = random.below(count as u64) as usize;
        // Bursts to one receiver, since alternation would never fill a ring.
        for _ in 0..random.below(40) {
            senders[to].send(&mut random, &pattern)?;
        }
    }
    // Every worker tells the others which calls must have arrived.
    for sender in &senders {
        let expected = me.gather(sender.to, (sender.sent, sender.sum))?;
        let Some(expected) = expected else { continue };
        let has_arrived = |from: usize| {
            let arrived = log.here(me).borrow();
            (arrived.last[from], arrived.sum[from]) == expected[from]
        };
        me.wait_while_serving(|| (0..count).all(has_arrived))?;
        assert!(expected.iter().all(|(sent, _)| sent.iter().sum::<u64>() > 10), "{expected:?}");
    }
    let sent = me.counters().sent;
    assert!(sent.chunks_grown > 0 && sent.staged > 0 && sent.stalls > 0, "{sent:?}");
    me.barrier()
}
