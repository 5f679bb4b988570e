//! Tests: how a receiver treats a ring whose records were overwritten, and frames that exceed their
//! window.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside_fabric::WorkerId;
use farside_fabric::ring::{Corrupt, Header, RingControl};
use farside_fabric::sim::SimOptions;

use super::named::{NAMED, Named};
use super::notify::LatchAddress;
use super::remote::{ByPointer, Call, CallBuffer};
use super::ring::pool::ALIGN_BYTES;
use super::table::Remote;
use crate::error::{CorruptRecord, Error, NameRefusal, Source};
use crate::job::simulate::{share_memory, share_memory_among};
use crate::runtime::worker::Worker;
use crate::{RingOptions, Simulation, WhenFull};

type OneWord = Call<ByPointer, fn(&Worker, u64), u64, ()>;
type Words = Call<ByPointer, fn(&Worker, Vec<u64>), Vec<u64>, ()>;
type Buffer = CallBuffer<ByPointer, fn(&Worker, (), &[u8]), (), (), LatchAddress>;

const ONE_WORD: fn(&Worker, u64) = |_, _| panic!("it runs though the ring is corrupt");
const WORDS: fn(&Worker, Vec<u64>) = |_, _| panic!("it runs though the ring is corrupt");
const BUFFER: fn(&Worker, (), &[u8]) = |_, (), _| panic!("it runs though the ring is corrupt");

/// Returns the header of a call of `T`, as a sender writes it.
fn header<T: Remote>(me: &Worker, function: usize, record_bytes: usize) -> u64 {
    let entry = me.table().entries().number_of::<T>().unwrap();
    Header::new(entry, me.table().offset_of(function).unwrap(), record_bytes).word()
}

/// Has worker 0 write `words` into its ring to worker 1. Checks that worker 1 reports the
/// `expected` error and that all else goes on.
fn is_noticed(words: impl Fn(&Worker) -> Vec<u64> + Sync, expected: impl Fn(CorruptRecord) -> bool + Sync) {
    let receiver = WorkerId::new(1);
    let verdict = share_memory(3, |me| {
        match me.id().number() {
            0 => {
                // The ring is open when its first call has returned.
                assert_eq!(me.call_return(receiver, 1_u8, |_, x| x)?.wait()?, 1);
                me.outbox(receiver).unwrap().write_anything(&words(me));
            }
            1 => {
                match me.wait_while_serving(|| false) {
                    Err(Error::CorruptRing { from: Source::Worker(from), cause }) if from.number() == 0 => {
                        assert!(expected(cause), "{cause}");
                    }
                    other => panic!("not noticed: {other:?}"),
                }
                // Its memory is not counted any more.
                let pool = me.process_handle().calls.rings.lock();
                let control_bytes = size_of::<RingControl>().next_multiple_of(ALIGN_BYTES);
                let counted: usize = pool.rings.values().map(|chunk_bytes| chunk_bytes + control_bytes).sum();
                assert!(!pool.rings.keys().any(|ring| ring.source == 0) && pool.used_bytes() == counted);
                drop(pool);
                // The receiver ignores that ring from now on, so it reports the error once.
                for _ in 0..1000 {
                    me.progress()?;
                }
                assert_eq!(me.call_return(WorkerId::new(0), 2_u8, |_, x| x)?.wait()?, 2);
            }
            _ => assert_eq!(me.call_return(receiver, 3_u8, |_, x| x)?.wait()?, 3),
        }
        Ok(())
    });
    verdict.unwrap();
}

fn is_length(cause: CorruptRecord) -> bool {
    matches!(cause, CorruptRecord::Ring(Corrupt::Length { .. }))
}

fn is_malformed(cause: CorruptRecord) -> bool {
    matches!(cause, CorruptRecord::Malformed { .. })
}

#[test]
fn a_function_that_is_not_listed() {
    let is_entry = |cause| matches!(cause, CorruptRecord::Entry { entry: 0xfffd, .. });
    is_noticed(|_| vec![Header::new(0xfffd, 0, 8).word()], is_entry);
}

#[test]
fn a_named_call_that_is_none() {
    // Too short; of an unknown kind; with a latch of a worker that does not exist, or of another
    // than the sender.
    let records = [
        vec![1],
        vec![1, 2, 3],
        vec![1, 2, 1 | 99 << 32, 7],
        vec![1, 2, 1 | 2 << 32, 7],
        vec![1, 2, 2 | 1 << 32, 0, 7, 0],
    ];
    for payload in records {
        let header = Header::new(NAMED, 0, 8 + payload.len() * 8).word();
        is_noticed(|_| [vec![header], payload.clone()].concat(), is_malformed);
    }
}

/// A like process could call this; a process of another binary cannot mean it.
#[test]
fn a_record_of_another_binary() {
    let receiver = WorkerId::new(1);
    let verdict = share_memory_among(2, &[0], |me| {
        if me.id() != receiver {
            let ran = me.call_named_return(receiver, NOTHING, ())?.wait();
            assert!(matches!(ran, Err(Error::NamedRefused { why: NameRefusal::Unknown, .. })), "{ran:?}");
            me.outbox(receiver).unwrap().write_anything(&[header::<OneWord>(me, ONE_WORD as usize, 16), 7]);
            return Ok(());
        }
        match me.wait_while_serving(|| false) {
            Err(Error::CorruptRing { from: Source::Worker(from), cause: CorruptRecord::Entry { count: 0, .. } }) => {
                assert_eq!(from.number(), 0);
                Ok(())
            }
            other => panic!("not noticed: {other:?}"),
        }
    });
    verdict.unwrap();
}

const NOTHING: Named<()> = Named::new("test/nothing");

#[test]
fn an_offset_where_no_function_begins() {
    let is_nowhere = |cause| matches!(cause, CorruptRecord::NoFunction { .. });
    is_noticed(|me| vec![header::<OneWord>(me, ONE_WORD as usize, 16) + 1, 7], is_nowhere);
    is_noticed(|me| vec![header::<OneWord>(me, ONE_WORD as usize, 16) | 0xffff_ffff, 7], is_nowhere);
}

#[test]
fn a_length_beyond_the_chunk() {
    is_noticed(|me| vec![header::<OneWord>(me, ONE_WORD as usize, 8 * 0xfffe)], is_length);
}

#[test]
fn a_length_of_nothing() {
    is_noticed(|_| vec![0xdead_beef], is_length);
}

#[test]
fn an_impossible_long_length() {
    for length in [0, 8, 17, 4096, 1 << 20, u64::MAX - 7, u64::MAX] {
        is_noticed(|me| vec![header::<OneWord>(me, ONE_WORD as usize, 8 * 0xffff), length], is_length);
    }
}

#[test]
fn a_rotation_into_nothing() {
    let is_rotation = |cause| matches!(cause, CorruptRecord::Ring(Corrupt::Rotation));
    is_noticed(|_| vec![1 << 48 | 0xffff << 32 | 1], is_rotation);
}

#[test]
fn arguments_of_another_size() {
    for words in [1, 3, 100] {
        is_noticed(
            |me| [vec![header::<OneWord>(me, ONE_WORD as usize, 8 * words)], vec![7; words - 1]].concat(),
            is_malformed,
        );
    }
}

#[test]
fn a_vector_that_is_longer_than_its_record() {
    for length in [2, 1 << 61, u64::MAX] {
        is_noticed(|me| vec![header::<Words>(me, WORDS as usize, 24), length, 7], is_malformed);
    }
    // A shorter array: the rest is no padding.
    is_noticed(|me| vec![header::<Words>(me, WORDS as usize, 32), 1, 7, 7], is_malformed);
}

#[test]
fn a_buffer_that_is_longer_than_its_record() {
    for length in [9, 16, 1 << 63, u64::MAX - 7, u64::MAX] {
        is_noticed(|me| vec![header::<Buffer>(me, BUFFER as usize, 24), length, 7], is_malformed);
    }
}

/// Worker 0 makes calls while worker 1 computes. Returns the most bytes of frames that waited for
/// worker 1, and the error that it found afterwards.
fn frames_for_a_busy_worker(ignores_credit: bool, seed: u64) -> (u64, Option<CorruptRecord>) {
    const CALLS: u32 = 2000;
    let (most, error) = (AtomicU64::new(0), Mutex::new(None));
    let simulated = Simulation::new(2, 1, seed).run(|me| {
        me.barrier()?;
        if me.is_first() {
            let to = WorkerId::new(1);
            me.setup(to)?;
            if ignores_credit {
                me.outbox(to).unwrap().ignore_credit();
            }
            for _ in 0..CALLS {
                me.to(to).when_full(WhenFull::Spill).call_buffer((), &[7; 1000], |_, (), _| ())?;
            }
            me.flush();
            return Ok(());
        }
        for _ in 0..CALLS {
            me.charge(Duration::from_micros(10));
            most.fetch_max(me.process_handle().calls.waiting_frames.bytes(), Ordering::Relaxed);
        }
        while me.executed() < CALLS.into() {
            if let Err(Error::CorruptRing { cause, .. }) = me.progress() {
                *error.lock().unwrap() = Some(cause);
                break;
            }
            me.charge(Duration::from_micros(10));
        }
        Ok(())
    });
    assert_eq!(simulated.unwrap().verdict.is_err(), ignores_credit, "the calls that were lost are missed");
    (most.into_inner(), error.into_inner().unwrap())
}

#[test]
fn frames_for_a_worker_that_computes_are_bounded_by_the_window() {
    let window = RingOptions::default().grown_bytes() as u64;
    let frame_bytes = SimOptions::default().message_bytes_max as u64;
    for seed in 0..3 {
        let (most, error) = frames_for_a_busy_worker(false, seed);
        assert!(most > window / 2 && most <= window, "{most} bytes waited");
        assert_eq!(error, None);
        let (most, error) = frames_for_a_busy_worker(true, seed);
        assert!(most > window && most <= window + frame_bytes, "{most} bytes waited");
        assert!(matches!(error, Some(CorruptRecord::Overrun { .. })), "{error:?}");
    }
}
