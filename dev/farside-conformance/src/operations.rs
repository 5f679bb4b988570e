//! Puts and gets: the bytes that they move, when these are visible, and which accesses are refused.

use std::collections::VecDeque;

use super::Fabric;
use super::harness::{Process, Service, Trial, assert_same, expect, pattern};
use farside_fabric::ids::ProcessId;
use farside_fabric::region::RemoteRegion;
use farside_fabric::transport::{AtomicChange, Completion, FabricError, NeedsTarget, Operation, Outcome};

const OWNER: ProcessId = ProcessId::new(1);

/// Returns small sizes, and those around the powers of two up to 1 MiB.
fn sizes() -> Vec<usize> {
    let around = (3..=20).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1]);
    [0, 1, 2, 3, 4, 5].into_iter().chain(around).collect()
}

/// Puts and gets of all sizes at odd offsets move the right bytes and touch nothing else.
pub fn puts_and_gets_of_every_size(fabric: &dyn Fabric) {
    const BYTES: usize = (1 << 20) + 4096;
    Trial::new("puts_and_gets_of_every_size", 2).starter_bytes(BYTES).run(fabric, |process| {
        if process.id() != OWNER {
            let region = process.attach_starter(OWNER);
            let mut model = vec![0; BYTES];
            for (round, bytes) in sizes().into_iter().enumerate() {
                let offset = 1 + round * 31 % 2001;
                let data = pattern(round as u64, bytes);
                process.put(&region, offset as u64, &data);
                model[offset..offset + bytes].copy_from_slice(&data);
                assert_same(&process.get(&region, offset as u64, bytes), &data, "a get of what was put");
                let (from, to) = (offset - 1, (offset + bytes + 9).min(BYTES));
                assert_same(&process.get(&region, from as u64, to - from), &model[from..to], "a put's neighbourhood");
            }
            assert_same(&process.get(&region, 0, BYTES), &model, "the whole region");
            process.put(&region, 0, &pattern(99, BYTES));
        }
        process.meet();
        if process.id() == OWNER {
            let found = process.get(&process.end().starter().as_remote(), 0, BYTES);
            assert_same(&found, &pattern(99, BYTES), "the owner's view");
        }
    });
}

/// An access outside the region, or a misaligned atomic, is a typed error and changes nothing.
pub fn accesses_outside_a_region_are_errors(fabric: &dyn Fabric) {
    Trial::new("accesses_outside_a_region_are_errors", 2).starter_bytes(1001).run(fabric, |process| {
        if process.id() != OWNER {
            let region = process.attach_starter(OWNER);
            let change = AtomicChange::Add(1);
            for (offset, bytes) in [(1000, 2), (1001, 1), (0, 1002), (1002, 0), (u64::MAX, 1), (u64::MAX - 7, 16)] {
                refuses(process, &region, Operation::Put { offset, data: vec![1; bytes] }, is_out_of_range);
                refuses(process, &region, Operation::get(offset, bytes), is_out_of_range);
                let mut data = vec![1; bytes];
                let put = region.put(offset, &data, process.deadline());
                let get = region.get(offset, &mut data, process.deadline());
                assert!([put, get].iter().all(|result| result.as_ref().is_err_and(is_out_of_range)));
            }
            for offset in [1000, 1008, u64::MAX - 7] {
                refuses(process, &region, Operation::Atomic64 { offset, change }, is_out_of_range);
            }
            refuses(
                process,
                &region,
                Operation::Atomic32 { offset: 1000, change: AtomicChange::Add(1) },
                is_out_of_range,
            );
            for offset in [1, 4, 9, 500] {
                refuses(process, &region, Operation::Atomic64 { offset, change }, is_misaligned);
                assert!(region.atomic64(offset, change, process.deadline()).is_err_and(|error| is_misaligned(&error)));
            }
            for offset in [1, 2, 7, 998] {
                let change = AtomicChange::Add(1);
                refuses(process, &region, Operation::Atomic32 { offset, change }, |error| {
                    is_misaligned(error) || is_out_of_range(error)
                });
            }
            assert_same(&process.get(&region, 0, 1001), &[0; 1001], "a region after refusals");
            process.put(&region, 1001, &[]);
            process.put(&region, 1000, &[7]);
            assert_eq!(process.get(&region, 1000, 1), [7], "the last byte");
        }
    });
}

fn is_out_of_range(error: &FabricError) -> bool {
    matches!(error, FabricError::OutOfRange { .. })
}

fn is_misaligned(error: &FabricError) -> bool {
    matches!(error, FabricError::Misaligned { .. })
}

/// Posts an operation that must fail. The error may come at once or with the completion.
#[track_caller]
fn refuses(process: &Process, region: &RemoteRegion, operation: Operation, expected: impl Fn(&FabricError) -> bool) {
    let posted = process.end().post(region.key(), operation.clone()).map_err(FabricError::from);
    let ended = posted.and_then(|completion| completion.wait(process.end(), OWNER, process.deadline()));
    assert!(ended.as_ref().is_err_and(expected), "{operation:?} ended with {ended:?}");
}

/// A posted put returns its buffer, a get returns the bytes, and an atomic the previous value of
/// the word.
pub fn outcomes_return_buffers_and_values(fabric: &dyn Fabric) {
    // More than one transfer can carry.
    const LARGE: usize = (5 << 20) + 3;
    Trial::new("outcomes_return_buffers_and_values", 2).starter_bytes(3 + LARGE).run(fabric, |process| {
        if process.id() != OWNER {
            let key = process.attach_starter(OWNER).key();
            let run = |operation| process.finish(process.post(key, &operation), OWNER);
            let put_and_get = |bytes| {
                let data = pattern(bytes as u64, bytes);
                let put = run(Operation::Put { offset: 3, data: data.clone() });
                assert!(put == Outcome::Put(data.clone()), "a put of {bytes} bytes gives back others");
                assert!(run(Operation::get(3, bytes)) == Outcome::Got(data), "a get of {bytes} bytes");
            };
            [0, 1, 8, 9, 1000].into_iter().for_each(put_and_get);
            let swap = |value| Operation::Atomic64 { offset: 2048, change: AtomicChange::Swap(value) };
            assert_eq!(run(swap(u64::MAX)), Outcome::Previous(0));
            assert_eq!(run(swap(1)), Outcome::Previous(u64::MAX));
            let swap = |value| Operation::Atomic32 { offset: 3000, change: AtomicChange::Swap(value) };
            assert_eq!(run(swap(u32::MAX)), Outcome::Previous(0));
            assert_eq!(run(swap(1)), Outcome::Previous(u64::from(u32::MAX)));
            put_and_get(LARGE);
        }
    });
}

/// Two puts posted before either completes both take effect. Of two puts to the same word, one
/// stays.
pub fn pipelined_puts_both_arrive(fabric: &dyn Fabric) {
    const ROUNDS: u64 = 100;
    Trial::new("pipelined_puts_both_arrive", 3).starter_bytes(4096).run(fabric, |process| {
        let region = process.attach_starter(OWNER);
        if process.number() == 0 {
            for round in 0..ROUNDS {
                let put = |offset, data| process.post(region.key(), &Operation::Put { offset, data });
                let word = |value: u64| value.to_le_bytes().to_vec();
                let puts = [
                    put(1, pattern(round, 300)),
                    put(301, pattern(round + ROUNDS, 200)),
                    put(1024, word(2 * round + 1)),
                    put(1024, word(2 * round + 2)),
                ];
                // Finished from the last to the first, because the order of waiting must not
                // matter.
                for put in puts.into_iter().rev() {
                    process.finish(put, OWNER);
                }
                process.send(ProcessId::new(2), &[]);
                process.expect_message(ProcessId::new(2), &[]);
            }
        } else if process.number() == 2 {
            for round in 0..ROUNDS {
                process.expect_message(ProcessId::new(0), &[]);
                assert_same(&process.get(&region, 1, 300), &pattern(round, 300), "the first put");
                assert_same(&process.get(&region, 301, 200), &pattern(round + ROUNDS, 200), "the second put");
                let word = process.atomic64(&region, 1024, AtomicChange::Load);
                let wanted = 2 * round + 1..=2 * round + 2;
                assert!(wanted.contains(&word), "a word put twice holds {word}, which is neither of {wanted:?}");
                process.send(ProcessId::new(0), &[]);
            }
        }
    });
}

/// With more operations than the queue takes, a full queue returns some of them. All that it took
/// take effect.
pub fn a_full_queue_of_operations_loses_nothing(fabric: &dyn Fabric) {
    const COUNT: usize = 2000;
    const BYTES: usize = 24;
    Trial::new("a_full_queue_of_operations_loses_nothing", 2).starter_bytes(COUNT * BYTES).run(fabric, |process| {
        if process.id() != OWNER {
            let key = process.attach_starter(OWNER).key();
            let mut under_way: VecDeque<(usize, Completion)> = VecDeque::new();
            let finish_oldest = |under_way: &mut VecDeque<(usize, Completion)>| {
                let (index, completion) = under_way.pop_front().expect("a full queue holds something");
                assert_eq!(process.finish(completion, OWNER), Outcome::Put(pattern(index as u64, BYTES)));
            };
            for index in 0..COUNT {
                let mut put = Operation::Put { offset: (index * BYTES) as u64, data: pattern(index as u64, BYTES) };
                loop {
                    match process.end().post(key, put) {
                        Ok(posted) => break under_way.push_back((index, posted)),
                        Err(unposted) => put = expect(unposted.for_lack_of_room(), "posting"),
                    }
                    finish_oldest(&mut under_way);
                }
            }
            while !under_way.is_empty() {
                finish_oldest(&mut under_way);
            }
        }
        process.meet();
        if process.id() == OWNER {
            let found = process.get(&process.end().starter().as_remote(), 0, COUNT * BYTES);
            let wanted: Vec<u8> = (0..COUNT).flat_map(|index| pattern(index as u64, BYTES)).collect();
            assert_same(&found, &wanted, "what a full queue wrote");
        }
    });
}

/// Sizes for the checks of visibility: lengths that may be torn, and lengths that are torn in
/// practice.
const VISIBLE_SIZES: [usize; 6] = [8, 9, 64, 1000, 4096, 65_537];

/// Once puts have completed, the receiver of a later message finds the bytes. The owner finds them
/// by its own loads, others by gets.
pub fn a_put_is_visible_after_a_message(fabric: &dyn Fabric) {
    const ROUNDS: u64 = 100;
    const PUTS: u64 = 4;
    Trial::new("a_put_is_visible_after_a_message", 3).starter_bytes(PUTS as usize * (1 << 17)).run(fabric, |process| {
        let writer = ProcessId::new(0);
        let region = process.attach_starter(OWNER);
        for round in 0..ROUNDS {
            let wanted =
                |put: u64| pattern(round * PUTS + put, VISIBLE_SIZES[(round + put) as usize % VISIBLE_SIZES.len()]);
            let place = |put: u64| (put << 17) + round % 13;
            let reader = ProcessId::new(1 + (round % 2) as u32);
            if process.id() == writer {
                let post = |put| process.post(region.key(), &Operation::Put { offset: place(put), data: wanted(put) });
                let puts: Vec<Completion> = (0..PUTS).map(post).collect();
                puts.iter().for_each(|put| process.await_end(put));
                process.send(reader, &round.to_le_bytes());
                process.expect_message(reader, b"seen");
            } else if process.id() == reader {
                process.expect_message(writer, &round.to_le_bytes());
                let view = if reader == OWNER { process.end().starter().as_remote() } else { region.clone() };
                for put in 0..PUTS {
                    let found = process.get(&view, place(put), wanted(put).len());
                    assert_same(&found, &wanted(put), "a put before a message");
                }
                process.send(writer, b"seen");
            }
        }
    });
}

/// Once a put has completed, a process that finds a later flag by an atomic finds the bytes.
pub fn a_put_is_visible_after_a_flag(fabric: &dyn Fabric) {
    const ROUNDS: u64 = 100;
    const FLAG: u64 = 0;
    const SEEN: u64 = 8;
    Trial::new("a_put_is_visible_after_a_flag", 3).starter_bytes(1 << 17).run(fabric, |process| {
        let remote = process.attach_starter(OWNER);
        let view = if process.id() == OWNER { process.end().starter().as_remote() } else { remote.clone() };
        for round in 1..=ROUNDS {
            let wanted = pattern(round, VISIBLE_SIZES[round as usize % VISIBLE_SIZES.len()]);
            let offset = 16 + round % 13;
            let poll = |what, at, wanted: u64| {
                process.until(what, || (process.atomic64(&view, at, AtomicChange::Load) == wanted).then_some(()));
            };
            if process.number() == 0 {
                let put = process.post(remote.key(), &Operation::Put { offset, data: wanted.clone() });
                process.await_end(&put);
                let raise = Operation::Atomic64 { offset: FLAG, change: AtomicChange::Swap(round) };
                let raised = process.post(remote.key(), &raise);
                poll("the readers", SEEN, 2 * round);
                assert_eq!(process.finish(put, OWNER), Outcome::Put(wanted));
                assert_eq!(process.finish(raised, OWNER), Outcome::Previous(round - 1));
            } else {
                poll("the flag", FLAG, round);
                assert_same(&process.get(&view, offset, wanted.len()), &wanted, "a put before a flag");
                process.atomic64(&view, SEEN, AtomicChange::Add(1));
            }
        }
    });
}

/// A put of one aligned word is seen whole or not at all, even before it completes.
pub fn a_word_is_never_torn(fabric: &dyn Fabric) {
    const ROUNDS: u8 = 200;
    Trial::new("a_word_is_never_torn", 3).run(fabric, |process| {
        let region = process.attach_starter(OWNER);
        let is_whole = |bytes: [u8; 8]| bytes.iter().all(|byte| *byte == bytes[0]);
        process.meet();
        if process.number() == 0 {
            for round in 1..=ROUNDS {
                process.put(&region, 8, &[round; 8]);
            }
        } else {
            let own = process.end().starter().as_remote();
            let view = if process.id() == OWNER { &own } else { &region };
            process.until("the last put", || {
                let loaded = process.atomic64(view, 8, AtomicChange::Load).to_le_bytes();
                let mut got = [0; 8];
                got.copy_from_slice(&process.get(view, 8, 8));
                assert!(is_whole(loaded) && is_whole(got), "a torn word: {loaded:?}, {got:?}");
                (loaded[0] == ROUNDS).then_some(())
            });
        }
    });
}

/// All one-sided operations work while the target's own thread does nothing, because its service
/// thread suffices.
pub fn targets_without_progress_are_served(fabric: &dyn Fabric) {
    Trial::new("targets_without_progress_are_served", 3).starter_bytes(1 << 16).run(fabric, |process| {
        if process.number() == 0 {
            for peer in process.others() {
                let region = process.attach_starter(peer);
                put_and_get(process, &region);
                change_words(process, &region);
            }
        }
        process.meet_inattentively();
    });
}

/// Operations on an attached region complete while only the caller makes progress. Excepted are
/// those for which the transport declares that it needs the target's progress.
pub fn progress_of_the_caller_suffices(fabric: &dyn Fabric) {
    let trial = Trial::new("progress_of_the_caller_suffices", 3).starter_bytes(1 << 16);
    trial.service(Service::Nobody).run(fabric, |process| {
        let regions: Vec<RemoteRegion> = if process.number() == 0 {
            process.others().map(|peer| process.attach_starter(peer)).collect()
        } else {
            Vec::new()
        };
        process.meet();
        let needs = process.end().capabilities().needs_target_progress;
        if needs != NeedsTarget::Everything {
            regions.iter().for_each(|region| put_and_get(process, region));
        }
        if needs == NeedsTarget::Nothing {
            regions.iter().for_each(|region| change_words(process, region));
        }
        process.meet_inattentively();
    });
}

fn put_and_get(process: &Process, region: &RemoteRegion) {
    for round in 0..20 {
        let data = pattern(round, 1 << (round % 15));
        process.put(region, 16, &data);
        assert_same(&process.get(region, 16, data.len()), &data, "an inattentive process's memory");
    }
}

fn change_words(process: &Process, region: &RemoteRegion) {
    for round in 0..20 {
        assert_eq!(process.atomic64(region, 0, AtomicChange::Add(1)), round);
        assert_eq!(process.atomic32(region, 8, AtomicChange::Swap(round as u32 + 1)), round as u32);
    }
}
