//! Memory as it is now: read, written and locked from outside.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use farside_testbed::{scaled, wait_for, wait_until};
use farside_viewer::{At, InspectError, Refused, Role, Selection};

use crate::steering::start_client;
use crate::targets::{BOARD, COLUMNS, FIELD, PIECE, ROWS, Target, breathe, connect, patterns};

#[test]
fn memory_is_read_and_written_whole() {
    let (mut target, job) = Target::inspected("exposed", 2);
    let all = Selection::all();
    let pairs = job.open::<u64>("pairs").unwrap();
    let info = pairs.info();
    assert_eq!((info.role, &info.shape[..], info.units.as_str()), (Role::Memory, &[4, BOARD as u64][..], "1"));
    assert_eq!((&info.origin[..], &info.spacing[..]), (&[1.0, 2.0][..], &[0.5, 0.25][..]));
    assert!(info.is_writable && info.parts.iter().all(|part| part.shape == [2, BOARD as u64]));
    for number in 0..scaled(60) {
        let frame = pairs.get(&all, At::Now).unwrap();
        assert_eq!((frame.step, frame.values.len()), (None, 4 * BOARD));
        for worker in frame.values.chunks(2 * BOARD) {
            assert!(worker.iter().all(|value| *value == worker[0]), "half of a change was read: {worker:?}");
        }
        let corner = pairs.get(&"[::3, ::15]".parse().unwrap(), At::Now).unwrap().values;
        assert!(corner[0] == corner[1] && corner[2] == corner[3]);
        if number.is_multiple_of(4) {
            // The program checks that it was made whole.
            assert_eq!(pairs.put(&all, &[number; 4 * BOARD]).unwrap(), None);
        }
    }
    pairs.put(&all, &[u64::MAX; 4 * BOARD]).unwrap();
    wait_until("the program goes on", || !pairs.get(&all, At::Now).unwrap().values.contains(&u64::MAX));
    let own = job.open::<f64>("own 1").unwrap();
    assert_eq!(own.get(&all, At::Now).unwrap().values, [1.0; 4]);
    let error = own.put(&all, &[0.0; 4]).unwrap_err();
    assert!(matches!(error, InspectError::Refused { refused: Refused::ReadOnly { .. }, .. }), "{error}");
    // Registered vectors lie side by side.
    let columns = job.open::<u32>("columns").unwrap();
    assert_eq!(columns.get(&all, At::Now).unwrap().values, [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]);
    columns.put(&"[1, 2:4]".parse().unwrap(), &[7, 8]).unwrap();
    let frame = columns.get(&"[:, 1:5]".parse().unwrap(), At::Now).unwrap();
    assert_eq!((&frame.shape[..], &frame.values[..]), (&[2, 4][..], &[0, 0, 1, 1, 0, 7, 8, 1][..]));
    assert_eq!(job.open::<u16>("loose").unwrap().get(&all, At::Now).unwrap().values, [0; 6]);
    // Elements that are dealt to the workers in turn come in the order of the array.
    let dealt = job.open::<u32>("dealt").unwrap();
    assert_eq!((&dealt.info().shape[..], &dealt.info().parts[1].origin[..]), (&[2, 2, 4][..], &[0, 1, 0][..]));
    assert!(dealt.get(&all, At::Now).unwrap().values.into_iter().eq(0..16));
    dealt.put(&"[1, 1, :2]".parse().unwrap(), &[70, 71]).unwrap();
    let blocks = job.open::<u32>("blocks").unwrap().get(&"[:, :, 0]".parse().unwrap(), At::Now).unwrap();
    assert_eq!((&blocks.shape[..], &blocks.values[..]), (&[2, 2, 2][..], &[0, 1, 4, 5, 8, 9, 70, 71][..]));
    assert!(target.is_running());
}

#[test]
fn large_memory_is_read_whole_while_the_program_changes_it() {
    let (mut target, job) = Target::inspected("exposed", 2);
    let field = job.open::<u64>("field").unwrap();
    let mut values = vec![0; 2 * FIELD];
    let (wanted, mut changes, mut last) = (scaled(5), 0, 0);
    wait_until("the program goes on", || {
        field.get_into(&Selection::all(), At::Now, &mut values).unwrap();
        for worker in values.chunks(FIELD) {
            assert!(worker.iter().all(|value| *value == worker[0]), "half of a change was read");
        }
        changes += u64::from(values[0] != last);
        last = values[0];
        changes >= wanted
    });
    assert!(target.is_running());
}

#[test]
fn a_lock_keeps_the_program_and_others_out() {
    let (mut target, job) = Target::inspected("exposed", 2);
    let all = Selection::all();
    let pairs = job.open::<u64>("pairs").unwrap();
    let quick = job.deadline(Duration::from_millis(300));
    let of_quick = wait_for("the quick reader finds the memory", || quick.open::<u64>("pairs").ok());
    // A lock ends by itself after 10 s. What was done says something if it was there behind that.
    wait_until("a lock is there while others try", || {
        let locked = job.lock("pairs").unwrap();
        let put = || pairs.put_locked(&all, bytemuck::cast_slice(&[77_u64; 4 * BOARD]), Some(&locked));
        let is_written = put().is_ok();
        let are_out = quick.lock("pairs").is_err() && of_quick.get(&all, At::Now).is_err();
        let was_there = put().is_ok();
        assert!(!was_there || (is_written && are_out));
        was_there
    });
    let goes_on = || {
        let one = pairs.get(&all, At::Now).unwrap().values[0];
        wait_until("the program goes on", || pairs.get(&all, At::Now).unwrap().values[0] != one);
    };
    goes_on();
    wait_until("a lock of another program is there while others try", || {
        let mut client = start_client("client locks", &job);
        let is_out = of_quick.put(&all, &[0; 4 * BOARD]).is_err();
        let was_there = job.is_locked("pairs").unwrap();
        assert!(!was_there || is_out);
        client.kill().unwrap();
        client.wait().unwrap();
        was_there
    });
    goes_on();
    assert!(target.is_running());
}

/// Readers lock the memory in turns, so that there is always one that waits, until the program has
/// waited for them as often as this. Returns its waits, and those of them that several readers
/// passed.
fn lock_in_turns(waits: f64) -> [f64; 2] {
    let (mut target, job) = Target::inspected("contended", 1);
    let (locks, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
    let [waited, passed] = ["waited", "passed"].map(|name| job.open::<f64>(name).unwrap());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let job = connect(&target.name);
                let memory = job.open::<u64>("memory").unwrap();
                while !is_done.load(Ordering::Relaxed) {
                    let locked = job.lock("memory").unwrap();
                    let number = locks.fetch_add(1, Ordering::Relaxed) + 1;
                    // A lock may have ended by itself.
                    let _ = memory.put_locked(&Selection::all(), &number.to_ne_bytes(), Some(&locked));
                    (0..50).for_each(|_| breathe());
                    drop(locked);
                }
            });
        }
        // Readers that failed are done.
        let done = Done(&is_done);
        wait_until("the program waits for readers", || {
            waited.get(&Selection::all(), At::Now).unwrap().values[0] >= waits
        });
        drop(done);
    });
    assert!(target.is_running());
    [waited, passed].map(|area| area.get(&Selection::all(), At::Now).unwrap().values[0])
}

/// Ends readers, also when their test fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn the_program_gets_its_memory_between_readers_that_lock_in_turns() {
    let waits = scaled(4) as f64;
    assert!(lock_in_turns(waits)[0] >= waits);
}

/// These need a machine that is not busy.
mod timing {
    use super::*;

    /// A program that waits for one of the readers is not passed by the others.
    #[test]
    fn readers_that_lock_in_turns_do_not_keep_the_program_waiting() {
        let [waited, passed] = lock_in_turns(40.0);
        // It may be interrupted when it is about to wait, and be passed then.
        assert!(passed <= waited / 2.0, "passed in {passed} of {waited} waits");
    }
}

/// Several workers of a process show its symmetric memory as one part. Views and arrays have a part
/// for each worker.
#[test]
fn several_workers_of_a_process_show_its_memory() {
    let (mut target, job) = Target::inspected("threads", 2);
    let all = Selection::all();
    let piece = job.open::<u64>("piece").unwrap();
    assert_eq!((&piece.info().shape[..], piece.info().parts.len()), (&[4, 6][..], 2));
    let mut last = [0; 2];
    for number in 0..scaled(40) {
        let values = piece.get(&all, At::Now).unwrap().values;
        for (process, last) in last.iter_mut().enumerate() {
            let piece: Vec<u64> = values.chunks(3).skip(process).step_by(2).flatten().copied().collect();
            assert_eq!(piece.len(), PIECE);
            assert!(piece.iter().all(|value| *value == piece[0]), "half of a change was read: {piece:?}");
            assert!(piece[0] >= *last, "no change is lost");
            *last = piece[0];
        }
        if number.is_multiple_of(10) {
            let high = 1_000_000 * (number + 1);
            piece.put(&all, &[high; 2 * PIECE]).unwrap();
            last = [high; 2];
        }
    }
    for name in ["of one", "dropped"] {
        let area = job.open::<u64>(name).unwrap();
        assert_eq!(area.info().parts.len(), 2, "{name}");
        assert_eq!(area.get(&all, At::Now).unwrap().values.len(), 2 * PIECE, "{name}");
    }
    let array = job.open::<u32>("array").unwrap().get(&all, At::Now).unwrap().values;
    assert_eq!(array, [0, 0, 1, 1, 2, 2, 3, 3]);
    let view = job.open::<u64>("pattern").unwrap();
    let expected = |step| patterns(step, 0..4 * ROWS, 0..COLUMNS);
    for _ in 0..scaled(5) {
        let frame = view.get(&all, At::Next).unwrap();
        assert!(frame.values == expected(frame.step.unwrap()));
    }
    // A cut of all four workers.
    let paused = job.pause_at(At::Next).unwrap();
    let step = paused.step().unwrap();
    let frame = view.get(&all, At::Now).unwrap();
    assert_eq!(frame.step, Some(step));
    assert!(frame.values == expected(step));
    assert_eq!(paused.go_to_next().unwrap(), Some(step + 1));
    drop(paused);
    // The workers take turns with readers, too.
    for _ in 0..scaled(5) {
        drop(job.lock("piece").unwrap());
    }
    assert!(target.is_running());
}
