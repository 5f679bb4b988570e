//! Pipes between all workers, for [`sweep`](super::sweep).

use farside::prelude::*;
use farside::{Error, GlobalAddress, GlobalPtr, Result};
use farside_kit::pipe::PipeReader;
use farside_kit::prelude::*;
use farside_testbed::limit;

use super::sweep::{VICTIM, is_victim_lost, report_end, report_work};

const PROGRAM: &str = "faults::pipes::program";
const PROCESSES: u32 = 3;
/// Messages through each pipe. Every round opens new pipes.
const MESSAGES: u64 = 40;
const ROUNDS: u32 = 4;

fn message(round: u32, number: u64) -> Vec<u8> {
    let bytes = [0, 8, 56, 57, 3000][number as usize % 5];
    (0..bytes).map(|at| (u64::from(round) + number * 7 + at) as u8).collect()
}

/// Returns whether the result is the loss of process 1.
fn is_loss(result: Result<(), impl Into<Error>>) -> Result<bool> {
    match result.map_err(Into::into) {
        Err(Error::PeerLost { process, .. }) if process.number() == VICTIM => Ok(true),
        other => other.map(|()| false),
    }
}

/// Every worker writes to every other and reads what the others write.
fn round(me: &Worker, round: u32) -> Result<()> {
    let others: Vec<WorkerId> = me.workers().filter(|other| *other != me.id()).collect();
    let pipe = |other: &WorkerId| me.pipe(*other).width(3).message_bytes(3000);
    let mut writers: Vec<_> = others.iter().map(|to| pipe(to).writer().map(Some)).collect::<Result<_, _>>()?;
    let mut readers: Vec<_> = others.iter().map(|from| pipe(from).reader().map(Some)).collect::<Result<_, _>>()?;
    let end = me.now() + limit();
    while writers.iter().any(Option::is_some) || readers.iter().any(Option::is_some) {
        assert!(me.now() < end, "round {round} does not end: {writers:?} {readers:?}");
        for end in &mut writers {
            let Some(writer) = end else { continue };
            let is_over = is_loss(writer.ready().and_then(|room| match room {
                true => writer.try_write(&message(round, writer.written())),
                false => Ok(()),
            }))?;
            if is_over || writer.written() == MESSAGES {
                *end = None;
            }
        }
        for end in &mut readers {
            let Some(reader) = end else { continue };
            if is_loss(take(reader, round))? || reader.read_count() == MESSAGES {
                *end = None;
            }
        }
        me.progress()?;
    }
    Ok(())
}

fn take(reader: &mut PipeReader<'_>, round: u32) -> Result<()> {
    let number = reader.read_count();
    if let Some(got) = reader.try_recv()? {
        assert!(*got == message(round, number), "message {number} of round {round} is torn");
    }
    Ok(())
}

/// Goes on until process 1 is lost, if that is to be, and for some more rounds. The first worker
/// that learns of the loss chooses the last round for all, which are within a round of each other.
fn body(me: &Worker) -> Result<()> {
    let last: GlobalPtr<u64> = GlobalAddress::starter(ProcessId::new(0), 0).cast();
    for number in 1.. {
        round(me, number)?;
        if number == 1 {
            report_work();
        }
        let is_over = number >= ROUNDS && (!is_victim_lost() || !me.lost_processes().is_empty());
        if is_over && last.load(me)? == 0 {
            last.compare_swap(me, 0, u64::from(number + ROUNDS))?;
        }
        if last.load(me)? == u64::from(number) {
            break;
        }
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
