//! Queues of transfers with and without signals, used directly and through a transmitter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::Fabric;
use super::harness::{Process, Trial, assert_same, expect, pattern};
use farside_fabric::ids::ProcessId;
use farside_fabric::memory::Growth;
use farside_fabric::region::{LocalRegion, RemoteRegion};
use farside_fabric::transport::FabricError;
use farside_transmit::{Circular, CircularOptions, LinearCircular, Queue, Span, Transmitter};

const OWNER: ProcessId = ProcessId::new(1);

fn open(process: &Process, depth: usize) -> Queue {
    process.open_queue(OWNER, depth)
}

fn span(region: &LocalRegion, offset: usize, bytes: usize) -> Span<'_> {
    expect(Span::new(region, offset as u64, bytes), "a part of memory")
}

fn write(region: &LocalRegion, offset: usize, data: &[u8], process: &Process) {
    process.put(&region.as_remote(), offset as u64, data);
}

fn read(region: &LocalRegion, offset: usize, bytes: usize, process: &Process) -> Vec<u8> {
    process.get(&region.as_remote(), offset as u64, bytes)
}

/// Calls a function of a queue, and makes progress while the queue is full.
#[track_caller]
fn post(process: &Process, queue: &Queue, what: impl Fn() -> Result<(), FabricError>) {
    process.until("room in a queue", || match what() {
        Err(FabricError::QueueFull { .. }) => {
            expect(queue.poll(), "polling");
            None
        }
        posted => {
            expect(posted, "posting to a queue");
            Some(())
        }
    });
}

/// Puts and gets between registered memories move the right bytes and touch nothing else.
pub fn transfers_of_every_size(fabric: &dyn Fabric) {
    const BYTES: usize = (1 << 20) + 4096;
    Trial::new("transfers_of_every_size", 2).starter_bytes(BYTES).run(fabric, |process| {
        if process.id() != OWNER {
            let region = process.attach_starter(OWNER);
            let memory = expect(process.end().register(BYTES), "registering");
            let queue = open(process, 64);
            let mut number = 0;
            for power in (0..=20).step_by(4) {
                for bytes in [(1 << power) - 1, 1 << power, (1 << power) + 1] {
                    let offset = 1 + bytes % 1999;
                    let data = pattern(bytes as u64, bytes);
                    write(&memory, 8, &data, process);
                    post(process, &queue, || queue.put(span(&memory, 8, bytes), &region, offset as u64, None));
                    number += 1;
                    let beside = Some(number);
                    post(process, &queue, || queue.get(span(&memory, 0, 8), &region, 0, beside));
                    expect(queue.wait(number, process.deadline()), "waiting for a signal");
                    assert_same(&process.get(&region, offset as u64, bytes), &data, "what a queue put");
                    assert_eq!(process.get(&region, (offset + bytes) as u64, 1), [0], "the byte behind it");
                    write(&memory, 0, &vec![0xAA; bytes + 16], process);
                    number += 1;
                    let signal = Some(number);
                    post(process, &queue, || queue.get(span(&memory, 8, bytes), &region, offset as u64, signal));
                    expect(queue.wait(number, process.deadline()), "waiting for a signal");
                    assert_same(&read(&memory, 8, bytes, process), &data, "what a queue got");
                    assert_eq!(read(&memory, 8 + bytes, 1, process), [0xAA], "the byte behind it");
                    process.put(&region, offset as u64, &vec![0; bytes]);
                }
            }
        }
    });
}

/// Once a signalled operation is over, all before it are over: their bytes are there, and their
/// local memory is free.
pub fn a_signal_follows_all_transfers_before_it(fabric: &dyn Fabric) {
    const ROUNDS: u64 = 30;
    const BYTES: usize = 512;
    const SOURCE: usize = 32 << 10;
    Trial::new("a_signal_follows_all_transfers_before_it", 2).starter_bytes(2 * SOURCE).run(fabric, |process| {
        let region = process.attach_starter(OWNER);
        if process.id() == OWNER {
            write(&process.end().starter(), SOURCE, &pattern(77, SOURCE), process);
        }
        process.meet();
        if process.id() != OWNER {
            let memory = expect(process.end().register(2 * SOURCE), "registering");
            let queue = open(process, 32);
            let count = queue.limits().unsignalled_max.min(SOURCE / BYTES - 1);
            for round in 1..=ROUNDS {
                let bytes = |number: usize| pattern(round * 1000 + number as u64, BYTES);
                for number in 0..count {
                    let at = number * BYTES;
                    if number % 3 == 2 {
                        let (into, from) = (span(&memory, SOURCE + at, BYTES), (SOURCE + at) as u64);
                        post(process, &queue, || queue.get(into, &region, from, None));
                    } else {
                        write(&memory, at, &bytes(number), process);
                        post(process, &queue, || queue.put(span(&memory, at, BYTES), &region, at as u64, None));
                    }
                }
                let last = count * BYTES;
                let signal = Some(round);
                match round % 3 {
                    0 => post(process, &queue, || queue.signal(round)),
                    1 => post(process, &queue, || queue.get(span(&memory, last, 8), &region, 0, signal)),
                    _ => post(process, &queue, || queue.put(span(&memory, last, 8), &region, last as u64, signal)),
                }
                process.until("a signal", || {
                    expect(queue.poll(), "polling");
                    (queue.completed() >= round).then_some(())
                });
                // The memory is free: bytes written from now on must not arrive.
                write(&memory, 0, &vec![0xEE; last], process);
                for number in 0..count {
                    let at = number * BYTES;
                    if number % 3 == 2 {
                        let wanted = &pattern(77, SOURCE)[at..at + BYTES];
                        assert_same(&read(&memory, SOURCE + at, BYTES, process), wanted, "a get before a signal");
                        write(&memory, SOURCE + at, &[0; BYTES], process);
                    } else {
                        let found = process.get(&region, at as u64, BYTES);
                        assert_same(&found, &bytes(number), "a put before a signal");
                    }
                }
            }
        }
    });
}

/// One operation too many without a signal is refused as such. (On mapped memory no operation is
/// ever in flight.)
pub fn an_overrun_is_an_error(fabric: &dyn Fabric) {
    Trial::new("an_overrun_is_an_error", 2).run(fabric, |process| {
        if process.id() != OWNER {
            let region = process.attach_starter(OWNER);
            let memory = expect(process.end().register(4096), "registering");
            let queue = open(process, 16);
            let limits = queue.limits();
            assert!(limits.unsignalled_max < limits.depth, "{limits:?}");
            for _ in 0..limits.unsignalled_max {
                post(process, &queue, || queue.put(span(&memory, 0, 16), &region, 16, None));
            }
            if region.mapped().is_none() {
                let one_more = queue.put(span(&memory, 0, 16), &region, 16, None);
                assert!(
                    matches!(one_more, Err(FabricError::QueueOverrun { process: OWNER, max, .. }) if max == limits.unsignalled_max),
                    "an overrun: {one_more:?}"
                );
            }
        }
    });
}

/// A queue that stays full moves everything, and its numbers come in order.
pub fn a_full_queue_of_transfers_loses_nothing(fabric: &dyn Fabric) {
    const COUNT: usize = 300;
    Trial::new("a_full_queue_of_transfers_loses_nothing", 2).starter_bytes(8 * COUNT).run(fabric, |process| {
        if process.id() != OWNER {
            let region = process.attach_starter(OWNER);
            let memory = expect(process.end().register(8 * COUNT), "registering");
            let data = pattern(5, 8 * COUNT);
            write(&memory, 0, &data, process);
            let queue = open(process, 16);
            let mut before = 0;
            for number in 0..COUNT {
                // Few enough signals for the completions of the queue.
                let signal = (number % 4 == 3).then_some(number as u64);
                let from = span(&memory, 8 * number, 8);
                post(process, &queue, || queue.put(from, &region, 8 * number as u64, signal));
                let completed = queue.completed();
                assert!(completed >= before && completed <= number as u64, "{completed} after {before}");
                before = completed;
            }
            expect(queue.wait(COUNT as u64 - 1, process.deadline()), "waiting for a signal");
            assert_same(&process.get(&region, 0, 8 * COUNT), &data, "what a full queue put");
        }
    });
}

/// Several threads put through one transmitter from few units. Each unit is sent with the bytes
/// that it had when it was posted.
pub fn threads_share_a_transmitter(fabric: &dyn Fabric) {
    const THREADS: usize = 4;
    const PUTS: usize = 200;
    const BYTES: usize = 64;
    const AREA: usize = PUTS * BYTES;
    Trial::new("threads_share_a_transmitter", 2).starter_bytes(THREADS * AREA).run(fabric, |process| {
        let bytes = |thread: usize, number: usize| pattern((thread * PUTS + number) as u64, 1 + number % BYTES);
        if process.id() != OWNER {
            let region = process.attach_starter(OWNER);
            let end = process.shared_end();
            let transmitter = Transmitter::over(open(process, 32));
            let deadline = process.deadline();
            let done = AtomicU64::new(0);
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (transmitter, region, done, bytes) = (&transmitter, &region, &done, &bytes);
                    scope.spawn(move || {
                        let options =
                            CircularOptions { unit_bytes: 2 * BYTES, units: 2, growth: Growth::Linear, units_max: 6 };
                        let units = Circular::new(Box::new(end.clone()), options);
                        let mut pieces = LinearCircular::new(units);
                        for number in 0..PUTS {
                            let data = bytes(thread, number);
                            let piece = expect(pieces.take_by(data.len(), deadline), "taking a piece");
                            piece.write(0, &data);
                            let to = (thread * AREA + number * BYTES) as u64;
                            let posted = transmitter.put_unit(&piece, 0..data.len(), region, to, deadline);
                            expect(posted, "a put of a transmitter");
                        }
                        assert!(pieces.units().unit_count() <= 6, "a circle keeps to its limit");
                        done.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
            assert_eq!(done.into_inner(), THREADS as u64);
            expect(transmitter.flush(deadline), "flushing");
        }
        process.meet();
        if process.id() == OWNER {
            let starter = process.end().starter();
            for thread in 0..THREADS {
                for number in 0..PUTS {
                    let data = bytes(thread, number);
                    let found = read(&starter, thread * AREA + number * BYTES, data.len(), process);
                    assert_same(&found, &data, "what a transmitter put");
                }
            }
        }
    });
}

/// Operations on a process that leaves end with its loss. Every unit comes back or is counted.
pub fn a_queue_to_a_process_that_leaves_fails(fabric: &dyn Fabric) {
    Trial::new("a_queue_to_a_process_that_leaves_fails", 2).starter_bytes(1 << 20).run_with_leavers(
        fabric,
        |process| {
            if process.id() == OWNER {
                process.meet();
                process.leave();
                return;
            }
            let region = process.attach_starter(OWNER);
            if region.mapped().is_some() {
                process.meet();
                return;
            }
            let end = process.shared_end();
            let transmitter = Transmitter::over(open(&process, 16));
            let options = CircularOptions { unit_bytes: 4096, units: 4, growth: Growth::Linear, units_max: 64 };
            let mut units = Circular::new(Box::new(end.clone()), options);
            process.meet();
            let lost =
                process.until("the loss of a peer", || put_until_lost(&process, &transmitter, &mut units, &region));
            assert!(matches!(lost, FabricError::Disconnected { process: OWNER }), "a put to one that left: {lost}");
            assert!(transmitter.has_failed());
            let again = transmitter.flush(process.deadline());
            assert!(matches!(again, Err(FabricError::Disconnected { .. })), "a flush to one that left: {again:?}");
            // The units that the transport still holds are set aside, and the others are reused.
            for _ in 0..3 * options.units {
                expect(units.take_by(process.deadline()), "a unit after the loss");
            }
            assert!(
                transmitter.quarantined() > 0 || units.quarantined() == 0,
                "units are set aside for what is under way"
            );
        },
    );
}

fn put_until_lost(
    process: &Process,
    transmitter: &Transmitter,
    units: &mut Circular,
    region: &RemoteRegion,
) -> Option<FabricError> {
    let deadline = process.deadline();
    let unit = match units.take_by(deadline) {
        Ok(unit) => unit,
        Err(error) => return Some(error),
    };
    let posted = transmitter.put_unit(&unit, 0..4096, region, 0, deadline);
    posted.and_then(|()| transmitter.progress()).err()
}
