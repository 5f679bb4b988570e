//! Memory as it is now: read, written and locked from outside.

use std::time::{Duration, Instant};

use farside_inspect::{At, InspectError, Refused, Role, Selection};

use crate::steering::start_client;
use crate::targets::{BOARD, FIELD, Target};

#[test]
fn memory_is_read_and_written_whole() {
    let mut target = Target::start("exposed", &[]);
    let job = target.inspect(2);
    let all = Selection::all();
    let pairs = loop {
        match job.open::<u64>("pairs") {
            Ok(area) if area.info().parts.len() == 2 => break area,
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let info = pairs.info();
    assert_eq!((info.role, &info.shape[..], info.units.as_str()), (Role::Memory, &[4, BOARD as u64][..], "1"));
    assert_eq!((&info.origin[..], &info.spacing[..]), (&[1.0, 2.0][..], &[0.5, 0.25][..]));
    assert!(info.is_writable && info.parts.iter().all(|part| part.shape == [2, BOARD as u64]));
    let mut rounds = 0;
    for number in 0..400_u64 {
        let frame = pairs.get(&all, At::Now).unwrap();
        assert_eq!((frame.step, frame.values.len()), (None, 4 * BOARD));
        for worker in frame.values.chunks(2 * BOARD) {
            assert!(worker.iter().all(|value| *value == worker[0]), "half of a change was read: {worker:?}");
        }
        rounds = rounds.max(frame.values[0]);
        let corner = pairs.get(&"[::3, ::15]".parse().unwrap(), At::Now).unwrap().values;
        assert!(corner[0] == corner[1] && corner[2] == corner[3]);
        if number.is_multiple_of(4) {
            // The program checks that it was made whole.
            assert_eq!(pairs.put(&all, &[number; 4 * BOARD]).unwrap(), None);
        }
    }
    assert!(rounds > 0, "the program goes on");
    let own = job.open::<f64>("own 1").unwrap();
    assert_eq!(own.get(&all, At::Now).unwrap().values, [1.0; 4]);
    let error = own.put(&all, &[0.0; 4]).unwrap_err();
    assert!(matches!(error, InspectError::Refused { refused: Refused::ReadOnly { .. }, .. }), "{error}");
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
    let mut target = Target::start("exposed", &[]);
    let job = target.inspect(2);
    while !job.open::<u64>("field").is_ok_and(|area| area.info().parts.len() == 2) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let field = job.open::<u64>("field").unwrap();
    let mut values = vec![0; 2 * FIELD];
    let (mut changes, mut last) = (0, 0);
    let until = Instant::now() + Duration::from_secs(60);
    while changes < 30 {
        field.get_into(&Selection::all(), At::Now, &mut values).unwrap();
        for worker in values.chunks(FIELD) {
            assert!(worker.iter().all(|value| *value == worker[0]), "half of a change was read");
        }
        changes += u32::from(values[0] != last);
        last = values[0];
        assert!(Instant::now() < until, "the program goes on");
    }
    assert!(target.is_running());
}

#[test]
fn a_lock_keeps_the_program_and_others_out() {
    let mut target = Target::start("exposed", &[]);
    let job = target.inspect(2);
    let all = Selection::all();
    while !job.open::<u64>("pairs").is_ok_and(|area| area.info().parts.len() == 2) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pairs = job.open::<u64>("pairs").unwrap();
    let locked = job.lock("pairs").unwrap();
    pairs.put_locked(&all, bytemuck::cast_slice(&[77_u64; 4 * BOARD]), Some(&locked)).unwrap();
    let quick = job.deadline(Duration::from_millis(300));
    assert!(quick.lock("pairs").is_err() && quick.open::<u64>("pairs").unwrap().get(&all, At::Now).is_err());
    drop(locked);
    // The program goes on.
    let until = Instant::now() + Duration::from_secs(60);
    while pairs.get(&all, At::Now).unwrap().values.contains(&77) {
        assert!(Instant::now() < until);
    }
    let mut client = start_client("client locks", &job);
    assert!(quick.open::<u64>("pairs").unwrap().put(&all, &[0; 4 * BOARD]).is_err());
    client.kill().unwrap();
    client.wait().unwrap();
    let one = pairs.get(&all, At::Now).unwrap().values[0];
    while pairs.get(&all, At::Now).unwrap().values[0] == one {
        assert!(Instant::now() < until);
    }
    assert!(target.is_running());
}
