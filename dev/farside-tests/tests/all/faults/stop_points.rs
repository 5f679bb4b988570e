//! A process is stopped at points of the protocols, and answers nothing from then on. The others
//! open rings and pipes between them, use each other's memory, and hear of the death of a third
//! process.

use std::cell::Cell;
use std::process::{Command, Stdio};
use std::time::Duration;

use farside::prelude::*;
use farside::{Error, GlobalAddress, GlobalPtr, ProcessEnd, Result, ResultPlace};
use farside_kit::prelude::*;
use farside_testbed::{limit, wait_until};

use super::sweep::{is_stopped, nothing_is_left, processes_of, signal};
use crate::support::{
    call_for_attention, failure, meet, only, pay_no_attention, spread, take_notes, verdict, within_time, write_note,
};

const PROGRAM: &str = "faults::stop_points::program";
const PROCESSES: u32 = 4;
const STOPPED: u32 = 1;
const DYING: u32 = 3;
/// Where the dying process dies: when it asks for memory after it has borrowed memory of both
/// survivors and returned it.
const DEATH: &str = "3:memory-asked:5";

/// Has everything opened between this worker and another that can be opened without waiting.
fn approach(me: &Worker, other: WorkerId) -> Result<()> {
    for number in 0..200_u64 {
        // More than a ring holds at first.
        let called = me.to(other).when_full(WhenFull::Queue).call_buffer(number, &[7; 400], |_, _, _| ());
        match called.map_err(|refused| refused.error) {
            Err(Error::Full { .. }) => break,
            called => called?,
        }
    }
    let pipe = || me.pipe(other).width(2).message_bytes(100);
    // The ends stay open, and nothing is written.
    let (mut writer, reader) = (pipe().writer()?, pipe().reader()?);
    writer.ready()?;
    std::mem::forget((writer, reader));
    Ok(())
}

/// Waits until process 1 is stopped.
fn see_it_stop(me: &Worker) -> Result<()> {
    let (pid, end) = (stopped_pid(me)?, me.now() + limit());
    while !is_stopped(pid) {
        assert!(me.now() < end, "process {STOPPED} does not stop");
        me.progress()?;
    }
    Ok(())
}

/// The system's number of process 1, which wrote it into its own starter memory.
fn stopped_pid(me: &Worker) -> Result<u32> {
    let pid: GlobalPtr<u64> = GlobalAddress::starter(ProcessId::new(STOPPED), 0).cast();
    Ok(pid.load(me)? as u32)
}

/// Calls, writes to and borrows memory of a worker, for the first time in `round` 0.
fn work_with(me: &Worker, other: WorkerId, round: u64) -> Result<()> {
    for number in 0..60_u64 {
        me.call_buffer(other, number, &[7; 400], |_, _, _| ())?;
    }
    assert_eq!(me.call_return(other, round, |_, round| round + 1)?.wait()?, round + 1);
    let pipe = || me.pipe(other).number(round as u32).width(2).message_bytes(100);
    let (mut writer, mut reader) = (pipe().writer()?, pipe().reader()?);
    writer.write(&[round as u8; 80])?;
    assert_eq!(*reader.recv()?, [round as u8; 80]);
    if me.process().number() < me.process_of(other).number() {
        return Ok(());
    }
    let memory = me.allocate_at(me.process_of(other), 3000)?;
    memory.put(me, 0, &[round as u8; 3000])?;
    me.release(memory)
}

fn body(me: &Worker) -> Result<()> {
    let own = me.process().number();
    let others: Vec<WorkerId> = me.workers().filter(|other| *other != me.id()).collect();
    if own == STOPPED {
        let pid: GlobalPtr<u64> = GlobalAddress::starter(me.process(), 0).cast();
        pid.store(me, u64::from(std::process::id()))?;
    }
    // All processes connect to each other, and none has reached a point yet.
    for other in &others {
        let word: GlobalPtr<u64> = GlobalAddress::starter(me.process_of(*other), 1024).cast();
        word.load(me)?;
    }
    meet(me, 1, PROCESSES.into())?;
    if own == STOPPED {
        others.iter().try_for_each(|other| approach(me, *other))?;
        return me.wait_while_serving(|| false);
    }
    approach(me, WorkerId::new(STOPPED))?;
    see_it_stop(me)?;
    let others: Vec<WorkerId> = others.into_iter().filter(|other| me.process_of(*other).number() != STOPPED).collect();
    for other in &others {
        work_with(me, *other, 0)?;
    }
    meet(me, 2, PROCESSES as u64 - 1)?;
    if own == DYING {
        me.allocate_at(ProcessId::new(0), 3000)?;
        unreachable!("it was killed");
    }
    me.wait_while_serving(|| me.lost_processes() == [ProcessId::new(DYING)])?;
    let survivor = others.into_iter().find(|other| me.process_of(*other).number() != DYING).unwrap();
    work_with(me, survivor, 1)?;
    meet(me, 3, PROCESSES as u64 - 2)?;
    write_note(PROGRAM, own, &stopped_pid(me)?.to_string());
    Ok(())
}

#[test]
#[ignore = "a program for the tests below"]
fn program() {
    let job = farside::job().processes(PROCESSES).finalize_deadline(limit());
    if let Err(error) = job.time_limit(limit()).run(body) {
        eprintln!("verdict: {error}");
        std::process::exit(1);
    }
}

/// Stops process 1 when it passes a point for the `nth` time. The survivors must succeed.
fn stop_at(point: &str, nth: u32) {
    let at = format!("{STOPPED}:{point}:{nth}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(only(PROGRAM)).env("FARSIDE_STOP", &at).env("FARSIDE_KILL", DEATH);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut launcher = command.spawn().unwrap();
    let pid = launcher.id();
    let survivors = [0, 2];
    let notes = within_time(|| {
        let mut notes = vec![None; PROCESSES as usize];
        wait_until("the survivors come to their ends, or the job ends", || {
            let is_over = launcher.try_wait().unwrap().is_some();
            for (all, new) in notes.iter_mut().zip(take_notes(pid, PROGRAM, PROCESSES)) {
                *all = all.take().or(new);
            }
            is_over || survivors.iter().all(|survivor: &usize| notes[*survivor].is_some())
        });
        notes
    });
    // Also those of a job that has failed, so that nothing stopped is left.
    for stopped in processes_of(pid).into_iter().filter(|process| is_stopped(*process)) {
        signal(stopped, "KILL");
    }
    let output = within_time(|| launcher.wait_with_output().unwrap());
    let printed = String::from_utf8_lossy(&output.stderr);
    let is_well = |note: &Option<String>| note.is_some();
    assert_eq!(
        notes.iter().map(is_well).collect::<Vec<_>>(),
        [true, false, true, false],
        "process {STOPPED} stops at {at}, and the job says:\n{printed}"
    );
    let verdict = format!("process {DYING} was killed by signal 9");
    assert!(printed.contains(&verdict), "process {STOPPED} stops at {at}, and the job says:\n{printed}");
    nothing_is_left(pid, None);
}

/// Stops process 1 at some of the points, or at all of them in the deep tier.
fn stop_at_some(points: &[(&str, u32)]) {
    for index in spread(points.len() as u64) {
        let (point, nth) = points[index as usize];
        stop_at(point, nth);
    }
}

#[test]
fn while_rings_are_opened() {
    let points = ["ring-asking", "ring-asked", "ring-made", "ring-answered", "sender-opened"];
    stop_at_some(&[1, 2].map(|nth| points.map(|point| (point, nth))).concat());
}

#[test]
fn while_rings_grow() {
    // All three rings are open when the last of these is passed.
    stop_at_some(&[("growth-made", 1), ("growth-asked", 1), ("sender-grown", 1), ("ring-answered", 4)]);
}

#[test]
fn while_pipes_are_opened() {
    stop_at_some(&[("pipe-made", 1), ("pipe-asked", 1), ("pipe-answered", 1)]);
}

/// Process 1 has asked worker 0 for a long result and lent it a buffer when it is stopped. Then
/// worker 2 calls worker 0, and names memory of process 1 for the results.
fn bystanders(me: &Worker, test: &str, deadline: Duration) -> Result<()> {
    let ran = PerWorker::new(me, Cell::new(0_u64))?;
    let [receiver, stopped, caller] = [0, 1, 2].map(WorkerId::new);
    let count = |there: &Worker, ran: PerWorker<Cell<u64>>, bytes: &[u8]| {
        ran.here(there).set(ran.here(there).get() + bytes.len() as u64);
    };
    let lend = |bytes| me.to(receiver).call_buffer_get(ran, me.allocate(bytes)?, count).map_err(Error::from);
    for other in me.workers().filter(|other| *other != me.id()) {
        me.call_return(other, (), |_, ()| ())?.wait()?;
        let word: GlobalPtr<u64> = GlobalAddress::starter(me.process_of(other), 1024).cast();
        word.load(me)?;
    }
    if me.id() == stopped {
        let pid: GlobalPtr<u64> = GlobalAddress::starter(me.process(), 0).cast();
        pid.store(me, u64::from(std::process::id()))?;
    }
    meet(me, 1, 3)?;
    if me.id() == stopped {
        let long = me.call_return(receiver, 16_usize << 20, |_, bytes| vec![1_u8; bytes])?;
        let lent = lend(500)?;
        meet(me, 2, 2)?;
        let served = me.wait_while_serving(|| false);
        drop((long, lent));
        return served;
    }
    if me.id() == receiver {
        // It takes the calls of process 1 only when that is stopped.
        pay_no_attention(test);
        return me.wait_while_serving(|| me.lost_processes() == [ProcessId::new(STOPPED)]);
    }
    assert_eq!(me.id(), caller);
    // Of different regions, which worker 0 has not used.
    let place = |bytes| ResultPlace::<u64>::new(me, me.allocate_at(ProcessId::new(STOPPED), bytes)?, 0, 64);
    let places = [place(1 << 20)?, place(5 << 20)?];
    meet(me, 2, 2)?;
    let pid = stopped_pid(me)?;
    signal(pid, "STOP");
    see_it_stop(me)?;
    call_for_attention(test);
    for place in places {
        me.to(receiver).call_into(7_u64, |_, x| x, place)?;
    }
    // Worker 0 gives process 1 up in less than this time.
    me.call_return(receiver, (), |_, ()| ())?.wait_for(deadline / 2)?;
    lend(1000)?.wait()?;
    me.to(receiver).call_buffer_get_unordered(ran, me.allocate(6 << 20)?, count)?.wait()?;
    while me.call_return(receiver, ran, |there, ran| ran.here(there).get())?.wait()? < 1500 + (6 << 20) {
        me.progress()?;
    }
    signal(pid, "KILL");
    me.wait_while_serving(|| me.lost_processes() == [ProcessId::new(STOPPED)])
}

mod timing {
    use super::*;

    const WATCHED: &str = "faults::stop_points::timing::a_stopped_process_does_not_keep_a_failed_job";

    /// Process 1 is stopped, and its peer fails because of that.
    #[test]
    fn a_stopped_process_does_not_keep_a_failed_job() {
        let second = Duration::from_secs(1);
        let job = farside::job().processes(2).deadline(5 * second).finalize_deadline(second);
        let verdict = verdict(WATCHED, job, |me| {
            if me.process().number() == STOPPED {
                signal(std::process::id(), "STOP");
                // Another thread may be the one that is to take the signal, and take it later.
                farside_testbed::hold_still();
            }
            me.barrier()
        });
        let (process, how) = failure(verdict);
        assert!(process == 0 && matches!(how, ProcessEnd::Reported(_)), "process {process} {how}");
    }

    const BYSTANDERS: &str = "faults::stop_points::timing::bystanders_do_not_wait_for_a_stopped_process";

    /// Worker 0 gives the stopped process up after a tenth of the deadline, and answers others in
    /// half of it.
    #[test]
    fn bystanders_do_not_wait_for_a_stopped_process() {
        let deadline = Duration::from_secs(20);
        let job = farside::job().processes(3).deadline(deadline);
        let verdict = verdict(BYSTANDERS, job, |me| bystanders(me, BYSTANDERS, deadline));
        take_notes(std::process::id(), BYSTANDERS, 1);
        assert_eq!(failure(verdict), (STOPPED, ProcessEnd::Killed(9)));
    }
}
