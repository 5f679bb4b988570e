//! Many readers of a target that writes as fast as it can.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_testbed::{scaled, wait_for};
use farside_viewer::{At, InspectError, Selection};

use crate::network::{Tokens, address_of};
use crate::targets::{COLUMNS, ROWS, Target, pattern};

/// How readers reach the target.
#[derive(Clone, Copy)]
enum Way {
    /// They map its slots.
    Mapped,
    Network,
}

/// Reads frames on several threads at once. Each has one step of both processes.
fn read_cuts(way: Way, threads: u64, frames: u64) {
    let tokens = Tokens::new(&format!("cuts-{threads}"));
    let (mut target, job) = match way {
        Way::Mapped => {
            let (target, job) = Target::inspected("pattern", 2);
            (target, job)
        }
        Way::Network => {
            let mut target = tokens.start("pattern");
            target.inspect(2);
            let job = tokens.connect(&address_of(&target.name), "read").unwrap();
            (target, job)
        }
    };
    let (all, some): (Selection, Selection) = (Selection::all(), "[1:5, ::7]".parse().unwrap());
    let (read, newest) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (job, all, some, read, newest) = (&job, &all, &some, &read, &newest);
            scope.spawn(move || {
                let area = job.open::<u64>("pattern").unwrap();
                let mut steps = BTreeSet::new();
                for number in 0..frames {
                    let at = if (number + thread) % 3 == 0 { At::Now } else { At::Next };
                    let is_whole = number % 2 == 0;
                    let frame = area.get(if is_whole { all } else { some }, at).unwrap();
                    let step = frame.step.unwrap();
                    let (rows, stride) = if is_whole { (0..2 * ROWS, 1) } else { (1..5, 7) };
                    let places = rows.flat_map(|row| (0..COLUMNS).step_by(stride).map(move |column| (row, column)));
                    let expected = places.map(|(row, column)| pattern(step, row as u64, column as u64));
                    assert!(frame.values.into_iter().eq(expected), "step {step} is mixed");
                    steps.insert(step);
                    newest.fetch_max(step, Ordering::Relaxed);
                    read.fetch_add(1, Ordering::Relaxed);
                }
                assert!(steps.len() > 1, "the program goes on");
            });
        }
    });
    assert_eq!(read.into_inner(), threads * frames);
    assert!(target.is_running());
}

#[test]
fn a_frame_has_one_step_of_all_processes() {
    read_cuts(Way::Mapped, 4, scaled(20));
}

#[test]
fn a_frame_over_the_network_has_one_step_of_all_processes() {
    read_cuts(Way::Network, 3, scaled(20));
}

/// These take long: 10,000 frames.
mod deep {
    use super::{Way, read_cuts};

    #[test]
    fn ten_thousand_frames_have_one_step_each() {
        read_cuts(Way::Mapped, 8, 1250);
    }

    #[test]
    fn ten_thousand_frames_over_the_network_have_one_step_each() {
        read_cuts(Way::Network, 5, 2000);
    }
}

/// The readers of a job whose processes are killed learn so, and which it was. A target that
/// hangs would be late, which is another error.
#[test]
fn a_target_that_is_killed_is_an_error() {
    let (target, job) = Target::inspected("pattern", 2);
    let area = job.open::<u64>("pattern").unwrap();
    area.get(&Selection::all(), At::Next).unwrap();
    drop(target);
    // A frame may have been complete.
    let error = wait_for("the end is told", || area.get(&Selection::all(), At::Next).err());
    let is_told = match &error {
        InspectError::Lost { .. } | InspectError::Incomplete { .. } => true,
        InspectError::Refused { .. } => error.to_string().contains("pattern"),
        _ => false,
    };
    assert!(is_told, "{error}");
}
