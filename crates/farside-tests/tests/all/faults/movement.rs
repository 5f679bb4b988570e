//! A process dies while it carries out operations of others, or others carry out its own. The
//! others go on.

use farside::global::GlobalError;
use std::process::{Command, Stdio};
use std::time::Duration;

use farside::prelude::*;
use farside::{Error, GlobalAddress, MovementError, Order, Result};

use crate::support::{only, take_notes, within_time, write_note};

const PROGRAM: &str = "faults::movement::program";
const PROCESSES: u32 = 4;
const DOOMED: u32 = 1;
const DEADLINE: Duration = Duration::from_secs(30);

/// Copies from every process to every process until process 1 is lost, and three more times.
fn body(me: &Worker) -> Result<()> {
    let own = me.id().number();
    let place = |process: u32, offset: u32| GlobalAddress::starter(ProcessId::new(process), 512 * own + offset);
    let mut after = 0;
    while after < 3 {
        after += u32::from(!me.lost_processes().is_empty());
        for (from, to) in (0..PROCESSES).flat_map(|from| (0..PROCESSES).map(move |to| (from, to))) {
            let order = if from % 2 == 0 { Order::Continuing } else { Order::All };
            let copied = me.copy(place(to, 256), place(from, 0), 200, order);
            let told = copied.and_then(|_| me.start_put(place(to, 0), &[own as u8; 64], Order::Continuing));
            match told {
                Err(Error::PeerLost { process, .. }) if process.number() == DOOMED => {}
                other => drop(other?),
            }
        }
        loop {
            match me.flush_all() {
                Ok(()) => break,
                Err(error) => match error.room_error() {
                    Some(GlobalError::Movement(MovementError::NotStarted { .. })) => {}
                    Some(GlobalError::Movement(MovementError::Failed { cause, .. })) if matches!(**cause, Error::PeerLost { process, .. } if process.number() == DOOMED) =>
                        {}
                    _ => return Err(error),
                },
            }
        }
        me.progress()?;
    }
    write_note(PROGRAM, own, "well");
    Ok(())
}

#[test]
#[ignore = "a program for the test below"]
fn program() {
    let job = farside::job().processes(PROCESSES).deadline(DEADLINE).finalize_deadline(DEADLINE);
    if let Err(error) = job.run(body) {
        eprintln!("verdict: {error}");
        std::process::exit(1);
    }
}

#[test]
fn at_each_step_of_a_command() {
    if farside_testbed::is_left_out("fabric") {
        return;
    }
    for (point, nth) in ["move-asked", "move-taken", "move-done"].into_iter().flat_map(|point| [(point, 1), (point, 9)])
    {
        let at = format!("{DOOMED}:{point}:{nth}");
        let mut command = Command::new(std::env::current_exe().unwrap());
        // Mapped memory is accessed directly, without its owner.
        command.args(only(PROGRAM)).env("FARSIDE_KILL", &at).env("FARSIDE_FABRIC", "ofi:tcp");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let launcher = command.spawn().unwrap();
        let pid = launcher.id();
        let output = within_time(|| launcher.wait_with_output().unwrap());
        let printed = String::from_utf8_lossy(&output.stderr);
        let notes = take_notes(pid, PROGRAM, PROCESSES);
        let survivors = notes.iter().flatten().count();
        let verdict = format!("verdict: process {DOOMED} was killed by signal 9");
        assert!(survivors == 3 && printed.contains(&verdict), "killed at {at}, {notes:?}; the job says:\n{printed}");
    }
}
