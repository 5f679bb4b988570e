//! Pipes of which one end is killed.

use std::process::{Command, Stdio};
use std::time::Duration;

use farside::pipe::PipeReader;
use farside::prelude::*;
use farside::{Error, Result};

use crate::support::{only, take_notes, within_time, write_note};

const PROGRAM: &str = "faults::pipes::program";
const PROCESSES: u32 = 3;
const DOOMED: u32 = 1;
const DEADLINE: Duration = Duration::from_secs(30);
/// Messages through each pipe. Every round opens new pipes.
const MESSAGES: u64 = 40;
const ROUNDS: u32 = 4;

fn message(round: u32, number: u64) -> Vec<u8> {
    let bytes = [0, 8, 56, 57, 3000][number as usize % 5];
    (0..bytes).map(|at| (u64::from(round) + number * 7 + at) as u8).collect()
}

/// Returns whether the result is the loss of the doomed process.
fn is_loss(result: Result<(), impl Into<Error>>) -> Result<bool> {
    match result.map_err(Into::into) {
        Err(Error::PeerLost { process, .. }) if process.number() == DOOMED => Ok(true),
        other => other.map(|()| false),
    }
}

/// Every worker writes to every other and reads what the others write.
fn round(me: &Worker, round: u32) -> Result<()> {
    let others: Vec<WorkerId> = me.workers().filter(|other| *other != me.id()).collect();
    let pipe = |other: &WorkerId| me.pipe(*other).width(3).message_bytes(3000);
    let mut writers: Vec<_> = others.iter().map(|to| pipe(to).writer().map(Some)).collect::<Result<_, _>>()?;
    let mut readers: Vec<_> = others.iter().map(|from| pipe(from).reader().map(Some)).collect::<Result<_, _>>()?;
    let end = me.now() + DEADLINE;
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

fn body(me: &Worker) -> Result<()> {
    for number in 0..ROUNDS {
        round(me, number)?;
    }
    if me.process().number() == DOOMED {
        return Ok(());
    }
    me.wait_while_serving(|| me.lost_processes() == [ProcessId::new(DOOMED)])?;
    for number in ROUNDS..2 * ROUNDS {
        round(me, number)?;
    }
    write_note(PROGRAM, me.id().number(), "well");
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

/// Kills process 1 when it reaches a point for the `nth` time. The others must succeed.
fn kill_at(point: &str, nth: u32) {
    let at = format!("{DOOMED}:{point}:{nth}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(only(PROGRAM)).env("FARSIDE_KILL", &at);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let launcher = command.spawn().unwrap();
    let pid = launcher.id();
    let output = within_time(|| launcher.wait_with_output().unwrap());
    let printed = String::from_utf8_lossy(&output.stderr);
    let well = || Some("well".to_owned());
    let notes = take_notes(pid, PROGRAM, PROCESSES);
    assert_eq!(notes, [well(), None, well()], "killed at {at}, and the job says:\n{printed}");
    assert!(printed.contains("was killed by signal 9"), "killed at {at}, and the job says:\n{printed}");
}

#[test]
fn one_end_is_killed_while_the_two_meet() {
    for nth in [1, 2, 4] {
        kill_at("pipe-asked", nth);
        kill_at("pipe-made", nth);
    }
    for nth in [1, 3, 6] {
        kill_at("pipe-left", nth);
    }
}

#[test]
#[cfg(debug_assertions)]
fn one_end_is_killed_between_a_message_and_its_flag() {
    for nth in [1, 5, 100] {
        kill_at("pipe-filled", nth);
        kill_at("pipe-read", nth);
    }
}
