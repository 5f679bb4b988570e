//! Three or four ranks on two hosts send each other large buffers all the time. One or two are
//! killed or cut off meanwhile. The other two learn of it and go on calling each other.
//!
//! The hosts are network namespaces with a cable between them. Three ranks use libfabric only. Of
//! four ranks, those of one host share memory. Calls between hosts travel in messages that
//! libfabric copies, so it keeps no buffer of a caller. `farside-fabric` tests buffers that it may
//! keep (`ofi_between_hosts`).

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::process::Command;

use farside::prelude::*;
use farside::{Error, Result};
use farside_testbed::netns::Side::{A, B};
use farside_testbed::netns::{Pair, Rendezvous, Side};
use farside_testbed::{Echo, Running, deadline, is_left_out, wait_until};

use crate::faults::sweep::{VICTIM_IS_LOST, report_work};
use crate::support::only;

const PROGRAM: &str = "survivors::program";
/// The processes from this number on are killed or cut off.
const VICTIMS: u32 = 2;
const BUFFER_BYTES: usize = 1 << 20;
/// The variable that has the victims kill themselves, for launchers that hide the processes.
const FALLS: &str = "FARSIDE_TEST_FALLS";

/// The number of buffers that came from each worker, and the final number once that worker has
/// announced it.
type Tally = PerWorker<RefCell<[(u64, Option<u64>); 4]>>;

/// Counts a buffer, which must be whole and the next in order.
fn take(there: &Worker, (tally, from, number): (Tally, WorkerId, u64), buffer: &[u8]) {
    assert!(buffer.len() == BUFFER_BYTES && buffer.iter().all(|byte| *byte == number as u8));
    let (count, _) = &mut tally.here(there).borrow_mut()[from.index()];
    *count += 1;
    assert_eq!(*count, number);
}

#[farside::test(processes = 3, threads = 1)]
#[ignore = "a program for the other tests"]
fn program(me: &Worker) -> Result<()> {
    let tally: Tally = PerWorker::new(me, RefCell::default())?;
    let send = |to: WorkerId, number: u64| {
        me.call_buffer(to, (tally, me.id(), number), &vec![number as u8; BUFFER_BYTES], take)
            .map_err(|refused| refused.error)
    };
    let others: Vec<_> = me.workers().filter(|worker| *worker != me.id()).collect();
    let mut number = 0;
    let victims: Vec<_> = (VICTIMS..me.process_count()).map(ProcessId::new).collect();
    let mut told = BTreeSet::new();
    while told.len() < victims.len() {
        number += 1;
        for to in &others {
            match send(*to, number) {
                Err(Error::PeerLost { process, .. }) if victims.contains(&me.process_of(*to)) => {
                    assert_eq!(process, me.process_of(*to));
                    told.insert(process);
                }
                sent => sent?,
            }
        }
        if number == 3 {
            report_work();
            if std::env::var_os(FALLS).is_some() && me.process().number() >= VICTIMS {
                Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status().expect("kill runs");
            }
        }
    }
    assert_eq!(me.lost_processes(), victims);

    let other = WorkerId::new(1 - me.id().number());
    for round in 1..=20_u64 {
        assert_eq!(me.call_return(other, round, |_, round| round + 1)?.wait()?, round + 1);
        send(other, number + round)?;
    }
    me.call(other, (tally, me.id(), number + 20), |there, (tally, from, all)| {
        tally.here(there).borrow_mut()[from.index()].1 = Some(all);
    })?;
    me.wait_while_serving(|| {
        let (count, all) = tally.here(me).borrow()[other.index()];
        all == Some(count)
    })?;
    for victim in victims {
        let refused = send(WorkerId::new(victim.number()), 1);
        assert!(matches!(refused, Err(Error::PeerLost { process, .. }) if process == victim), "{refused:?}");
    }
    eprintln!("well");
    Ok(())
}

/// Runs a program as ranks on these sides and calls `accident` when all are at work. Returns the
/// exit codes and output of the ranks.
pub(crate) fn run(
    program: &str,
    fabric: &str,
    sides: &[Side],
    accident: impl FnOnce(&Pair, &mut [Running]),
) -> Vec<(Option<i32>, String)> {
    let pair = Pair::new().unwrap_or_else(|failure| panic!("{failure}"));
    let rendezvous = Rendezvous { world_size: sides.len() as u32, master: sides[0], port: 7077, secret: "swordfish" };
    let start = |(rank, side): (u32, &Side)| {
        let mut command = pair.command(*side, std::env::current_exe().expect("a test binary is a file"));
        command.args(only(program)).env(VICTIM_IS_LOST, "");
        rendezvous.tell(command.env("FARSIDE_FABRIC", fabric), rank);
        Running::start(&format!("rank {rank}"), &mut command, Echo::Quiet).unwrap_or_else(|failure| panic!("{failure}"))
    };
    let mut ranks: Vec<_> = (0..).zip(sides).map(start).collect();
    for rank in &mut ranks {
        wait_until("a rank is at work", || {
            let is_at_work = rank.printed().contains("at work");
            assert!(is_at_work || rank.status().is_none(), "{}", rank.failure("it does not begin"));
            is_at_work
        });
    }
    let deadline = deadline();
    accident(&pair, &mut ranks);
    let end = |rank: &mut Running| {
        let status = rank.wait(deadline).unwrap_or_else(|failure| panic!("{failure}"));
        (status.code(), rank.printed())
    };
    let reports = ranks.iter_mut().map(end).collect();
    assert_eq!(pair.processes(), [0; 0], "processes are left: {reports:?}");
    reports
}

/// Checks that the survivors have completed their work. Process 0, which runs the job, then reports
/// the loss.
fn assert_survived(reports: &[(Option<i32>, String)]) {
    assert!(reports[..2].iter().all(|(_, text)| text.contains("well")), "{reports:#?}");
    let is_named = |rank: usize| reports[0].1.contains(&format!("process {rank} failed"));
    assert!(reports[0].0 != Some(0) && (2..reports.len()).any(is_named), "{reports:#?}");
    assert_eq!(reports[1].0, Some(0), "{reports:#?}");
}

pub(crate) fn is_possible() -> bool {
    !is_left_out("netns") && !is_left_out("fabric")
}

mod deep {
    use super::*;

    #[test]
    fn the_others_continue_after_a_rank_is_killed_in_a_transfer() {
        if is_possible() {
            // The survivors are on different hosts.
            for (fabric, sides) in [("ofi:tcp", &[A, B, A][..]), ("auto", &[A, B, A, B])] {
                let reports = run(PROGRAM, fabric, sides, |_, ranks| ranks[2..].iter_mut().for_each(Running::kill));
                assert_survived(&reports);
            }
        }
    }

    #[test]
    fn the_others_continue_after_a_rank_is_cut_off_in_a_transfer() {
        if is_possible() {
            for (fabric, sides) in [("ofi:tcp", &[A, A, B][..]), ("auto", &[A, A, B, B])] {
                let reports = run(PROGRAM, fabric, sides, |pair, _| pair.cut().unwrap());
                assert_survived(&reports);
                for (code, text) in &reports[2..] {
                    assert!(code.is_some_and(|code| code != 0) && text.contains("process 0"), "{reports:#?}");
                }
            }
        }
    }
}
