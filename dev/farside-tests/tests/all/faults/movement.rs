//! Every process copies between all processes, which carry the copies out for each other, for
//! [`sweep`](super::sweep).

use farside::global::GlobalError;

use farside::prelude::*;
use farside::{Error, GlobalAddress, MovementError, Order, Result};
use farside_testbed::limit;

use super::sweep::{VICTIM, is_victim_lost, report_end};

const PROGRAM: &str = "faults::movement::program";
const PROCESSES: u32 = 4;

/// Copies from every process to every process until process 1 is lost, if that is to be, and eight
/// more times.
fn body(me: &Worker) -> Result<()> {
    let own = me.id().number();
    let place = |process: u32, offset: u32| GlobalAddress::starter(ProcessId::new(process), 512 * own + offset);
    let mut after = 0;
    while after < 8 {
        after += u32::from(!is_victim_lost() || !me.lost_processes().is_empty());
        for (from, to) in (0..PROCESSES).flat_map(|from| (0..PROCESSES).map(move |to| (from, to))) {
            let order = if from % 2 == 0 { Order::Continuing } else { Order::All };
            let copied = me.copy(place(to, 256), place(from, 0), 200, order);
            let told = copied.and_then(|_| me.start_put(place(to, 0), &[own as u8; 64], Order::Continuing));
            match told {
                Err(Error::PeerLost { process, .. }) if process.number() == VICTIM => {}
                other => drop(other?),
            }
        }
        loop {
            match me.flush_all() {
                Ok(()) => break,
                Err(error) => match error.room_error() {
                    Some(GlobalError::Movement(MovementError::NotStarted { .. })) => {}
                    Some(GlobalError::Movement(MovementError::Failed { cause, .. })) if matches!(**cause, Error::PeerLost { process, .. } if process.number() == VICTIM) =>
                        {}
                    _ => return Err(error),
                },
            }
        }
        me.progress()?;
    }
    report_end(PROGRAM, me);
    Ok(())
}

#[test]
#[ignore = "a program for other tests"]
fn program() {
    let job = farside::job().processes(PROCESSES).finalize_deadline(limit());
    if let Err(error) = job.run(body) {
        eprintln!("verdict: {error}");
        std::process::exit(1);
    }
}
