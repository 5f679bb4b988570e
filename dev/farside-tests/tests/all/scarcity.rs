//! Jobs of which a process runs out of memory or descriptors. What asks for them is refused, and
//! everything else goes on. So it does when strangers take what they can get.

use std::cell::Cell;
use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use farside::memory::{MemoryError, MemoryRefusal};
use farside::prelude::*;
use farside::{Error, FabricError, FullCause, GlobalAddress, GlobalPtr, Result, SimOptions, Simulation};
use farside_kit::prelude::*;

use farside_sys::net::MessageSocket;
use farside_sys::shm::ShmError;
use farside_testbed::{depth, limit, wait_until};

use crate::support::{has_note, meet, only, room, socket_name, take_notes, within_time, write_note, write_note_of};

type Sum = PerWorker<Cell<u64>>;

fn add(there: &Worker, (sum, x): (Sum, u64)) {
    sum.here(there).set(sum.here(there).get() + x);
}

/// Takes a refusal of memory, which the program may have expected. Every other error is a failure.
fn unless_refused<T>(result: Result<T, impl Into<Error>>) -> Result<Option<T>> {
    match result.map_err(Into::into) {
        Err(Error::Fabric(FabricError::Memory(_)) | Error::Room(_)) => Ok(None),
        other => other.map(Some),
    }
}

fn call_in_every_way(me: &Worker, sum: Sum) -> Result<()> {
    for to in me.workers() {
        for _ in 0..40 {
            me.call(to, (sum, 1), add)?;
            me.aggregate(to).call((sum, 1), add)?;
            me.to(to).send_based().call((sum, 1), add)?;
        }
        me.call_buffer(to, sum, &[1; 5000], |there, sum, bytes| add(there, (sum, bytes.len() as u64)))?;
        assert_eq!(me.call_return(to, 20_u64, |_, x| x + 1)?.wait()?, 21);
        assert_eq!(me.call_return(to, 5_u8, |_, x| [x; 2000])?.wait()?, [5; 2000]);
    }
    me.everyone().call(sum, |there, sum| add(there, (sum, 1))).map_err(|refused| refused.error)
}

/// Everything for which memory is registered.
fn use_memory(me: &Worker) -> Result<()> {
    let (next, before) = (me.neighbor(1), me.neighbor(me.worker_count() - 1));
    if let Some(memory) = unless_refused(me.allocate_at(me.process_of(next), 3000))? {
        memory.put(me, 0, &[7; 3000])?;
        me.release(memory)?;
    }
    if let Some(buffer) = unless_refused(me.allocate(3000))? {
        let sent = me.to(next).call_buffer_get((), buffer, |_, (), bytes| assert_eq!(bytes.len(), 3000));
        sent.map_err(|refused| refused.error)?.wait()?;
    }
    let pipe = |peer| me.pipe(peer).width(2).message_bytes(1000);
    let reader = unless_refused(pipe(before).reader())?;
    if let Some(mut writer) = unless_refused(pipe(next).writer())? {
        unless_refused(writer.write(&[7; 800]))?;
    }
    if let Some(mut reader) = reader {
        // The writer may have been refused.
        match reader.recv_for(Duration::from_secs(1)).map(|got| got.to_vec()).map_err(Error::from) {
            Ok(got) => assert_eq!(got, [7; 800]),
            Err(Error::Deadline { .. }) => {}
            Err(error) => _ = unless_refused(Err::<(), _>(error))?,
        }
    }
    let everywhere = unless_refused(me.symmetric::<u64>(10))?.is_some();
    assert_eq!(me.all_reduce(u64::from(everywhere), |a, b| a + b)? % u64::from(me.worker_count()), 0);
    unless_refused(me.register(vec![7_u64; 100]))?;
    Ok(())
}

fn everything(me: &Worker) -> Result<()> {
    let sum: Sum = PerWorker::new(me, Cell::new(0))?;
    me.barrier()?;
    for round in 1..=2 {
        call_in_every_way(me, sum)?;
        let all = round * (u64::from(me.worker_count()) * (3 * 40 + 5000) + u64::from(me.worker_count()));
        me.wait_while_serving(|| sum.here(me).get() == all)?;
        use_memory(me)?;
        me.barrier()?;
    }
    Ok(())
}

/// Lets the n-th registration of memory fail, and all from the n-th on: for every tenth n in the
/// fast tier, for each in the deep one.
#[test]
fn no_failing_registration_ends_a_job() {
    const MANY: u64 = 10_000;
    let step = (10.0 / depth()).ceil() as usize;
    for first in (0..MANY).step_by(step) {
        for end in [first + 1, u64::MAX] {
            let options = SimOptions { failing_registrations: (first, end), ..SimOptions::default() };
            let simulated = Simulation::new(3, 1, first).options(options).run(everything).unwrap();
            if let Err(error) = simulated.verdict {
                panic!("registrations {first}..{end} fail: {error}");
            }
            if simulated.trace.registrations <= first {
                assert!(first > 6, "memory is registered");
                return;
            }
        }
    }
    panic!("more than {MANY} registrations");
}

/// Takes all descriptors that this process may still open.
fn take_all_descriptors() -> Vec<File> {
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
        assert!(taken.len() < 1000, "the limit is low");
    }
    taken
}

/// Calls in all sizes, first into a ring that is not there yet.
fn call_and_be_answered(me: &Worker, to: u32) -> Result<()> {
    let to = WorkerId::new(to);
    for number in 0..200_u64 {
        me.call_buffer(to, number, &[7; 400], |_, _, bytes| assert_eq!(bytes.len(), 400))?;
        me.aggregate(to).call(number, |_, _| ())?;
    }
    assert_eq!(me.call_return(to, 20_u64, |_, x| x + 1)?.wait()?, 21);
    assert_eq!(me.call_return(to, (), |_, ()| [7_u8; 2000])?.wait()?, [7; 2000]);
    Ok(())
}

/// Sends a buffer for which the ring must grow until that is refused for lack of memory or
/// descriptors. Returns the text of the error.
fn refused_growth(me: &Worker, to: WorkerId, buffer: &[u8]) -> Result<String> {
    let end = me.now() + limit();
    loop {
        let sent = me.to(to).when_full(WhenFull::Fail).call_buffer((), buffer, |_, (), _| panic!("it is refused"));
        match sent.expect_err("the ring cannot grow").error {
            error @ Error::Full { cause: FullCause::RingMemory, .. } => return Ok(error.to_string()),
            Error::Full { .. } => assert!(me.now() < end, "the growth is not refused"),
            error => return Err(error),
        }
        me.progress()?;
    }
}

fn without_descriptors(me: &Worker) -> Result<()> {
    let own = me.id().number();
    // All connect to each other, and no ring is open yet.
    for other in (0..3).map(ProcessId::new) {
        let word: GlobalPtr<u64> = GlobalAddress::starter(other, 1024).cast();
        word.load(me)?;
    }
    meet(me, 1, 3)?;

    // The receiver has no descriptor for a ring.
    let taken = if own == 1 { take_all_descriptors() } else { Vec::new() };
    meet(me, 2, 3)?;
    if own != 1 {
        for _ in 0..3 {
            call_and_be_answered(me, 1)?;
            assert_eq!(me.counters_to(WorkerId::new(1)).rings, 0);
            me.shutdown(WorkerId::new(1))?;
        }
    }
    meet(me, 3, 3)?;
    drop(taken);

    // The sender has no descriptor for the receiver's memory.
    let taken = if own == 0 { take_all_descriptors() } else { Vec::new() };
    meet(me, 4, 3)?;
    if own == 0 {
        call_and_be_answered(me, 2)?;
        assert_eq!(me.counters_to(WorkerId::new(2)).rings, 0);
    }
    meet(me, 5, 3)?;
    drop(taken);

    // The receiver has no descriptor for a larger ring.
    let (large, to) = (vec![7_u8; 300_000], WorkerId::new(2));
    let is_large = |_: &Worker, (), bytes: &[u8]| assert_eq!(bytes.len(), 300_000);
    if own == 1 {
        me.setup(to)?;
        assert_eq!(me.counters_to(to).rings, 1);
    }
    meet(me, 6, 3)?;
    let taken = if own == 2 { take_all_descriptors() } else { Vec::new() };
    meet(me, 7, 3)?;
    if own == 1 {
        let refused = refused_growth(me, to, &large)?;
        assert!(refused.contains("ulimit -n"), "{refused}");
        call_and_be_answered(me, 2)?;
    }
    meet(me, 8, 3)?;
    drop(taken);
    if own == 1 {
        me.call_buffer(to, (), &large, is_large)?;
        call_and_be_answered(me, 2)?;
        assert_eq!(me.counters_to(to).rings, 1);
    }
    meet(me, 9, 3)?;

    // The sender has no descriptor for a larger ring. Its calls leave the ring, in their order.
    let taken = if own == 1 { take_all_descriptors() } else { Vec::new() };
    if own == 1 {
        let larger = vec![7_u8; 3_000_000];
        for _ in 0..3 {
            me.call_buffer(to, (), &larger, |_, (), bytes| assert_eq!(bytes.len(), 3_000_000))?;
            call_and_be_answered(me, 2)?;
        }
    }
    meet(me, 10, 3)?;
    drop(taken);
    meet(me, 11, 3)
}

fn run(processes: u32, body: fn(&Worker) -> Result<()>) {
    let job = farside::job().processes(processes).time_limit(limit());
    if let Err(error) = job.run(body) {
        eprintln!("verdict: {error}");
        std::process::exit(1);
    }
}

/// A program of this file, with 64 descriptors for each process.
fn with_few_descriptors(program: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64 && exec \"$@\"", "sh"]).arg(std::env::current_exe().unwrap());
    command.args(only(program)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

#[test]
#[ignore = "a program for the test below"]
fn program() {
    run(3, without_descriptors);
}

#[test]
fn calls_go_on_without_descriptors() {
    let output = within_time(|| with_few_descriptors("scarcity::program").output().unwrap());
    assert!(output.status.success(), "the job says:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Limits a resource of this process (an option of `prlimit`). Dropping the value lifts the limit.
struct Limited(&'static str);

impl Limited {
    fn new(resource: &'static str, bytes: u64) -> Self {
        Self::set(resource, &bytes.to_string());
        Self(resource)
    }

    fn set(resource: &str, value: &str) {
        let arguments = [format!("--pid={}", std::process::id()), format!("--{resource}={value}:")];
        assert!(Command::new("prlimit").args(arguments).status().unwrap().success());
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        Self::set(self.0, "unlimited");
    }
}

/// The addresses that this process has mapped.
fn mapped_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().next().unwrap().parse::<u64>().unwrap() * farside_sys::shm::page_bytes() as u64
}

/// Process 2 can have no more shared memory, and then process 1 can map no more of it.
fn without_memory(me: &Worker) -> Result<()> {
    let (own, to) = (me.id().number(), WorkerId::new(2));
    let owner = me.process_of(to);
    let larger = vec![7_u8; 3_000_000];
    for other in (0..3).map(ProcessId::new) {
        let word: GlobalPtr<u64> = GlobalAddress::starter(other, 1024).cast();
        word.load(me)?;
    }
    if own == 1 {
        me.setup(to)?;
        // From now on vectors of this size come from addresses that the process has.
        drop(vec![7_u8; 4 * larger.len()]);
    }
    meet(me, 1, 3)?;

    let limited = (own == 2).then(|| Limited::new("fsize", 4096));
    meet(me, 2, 3)?;
    if own == 1 {
        let refused = refused_growth(me, to, &larger)?;
        assert!(refused.contains("-f"), "{refused}");
        let refused = me.allocate_at(owner, 40 << 20);
        let why = room(&refused);
        assert!(matches!(why, Some(MemoryError::Refused { why: MemoryRefusal::NoMemory, .. })), "{refused:?}");
    }
    if own == 2 {
        let refused = me.allocate(40 << 20).map(drop).unwrap_err();
        assert!(matches!(refused, Error::Fabric(FabricError::Memory(ShmError::FileLimit { .. }))), "{refused}");
        assert!(refused.to_string().contains("ulimit -f"), "{refused}");
    }
    (0..3).try_for_each(|other| call_and_be_answered(me, other))?;
    meet(me, 3, 3)?;
    drop(limited);
    meet(me, 4, 3)?;
    let memory = me.allocate_at(owner, 40 << 20)?;
    if own == 0 {
        // The ring of another sender can grow again.
        me.call_buffer(to, (), &larger, |_, (), bytes| assert_eq!(bytes.len(), 3_000_000))?;
        call_and_be_answered(me, 2)?;
        assert_eq!(me.counters_to(to).rings, 1);
    }
    meet(me, 5, 3)?;

    // Less than the larger ring, which begins at a multiple of 2 MiB.
    let limited = (own == 1).then(|| Limited::new("as", mapped_bytes() + (4 << 20)));
    if own == 1 {
        let refused = memory.put(me, 0, &[7; 8]).unwrap_err();
        assert!(matches!(refused, Error::Fabric(FabricError::Memory(ShmError::NoSpace { .. }))), "{refused}");
        assert!(refused.to_string().contains("ulimit -v"), "{refused}");
        for _ in 0..3 {
            me.call_buffer(to, (), &larger, |_, (), bytes| assert_eq!(bytes.len(), 3_000_000))?;
            call_and_be_answered(me, 2)?;
        }
    }
    meet(me, 6, 3)?;
    drop(limited);
    memory.put(me, 0, &[7; 8])?;
    me.release(memory)?;
    meet(me, 7, 3)
}

const WITHOUT_MEMORY: &str = "scarcity::without_memory_program";

#[test]
#[ignore = "a program for the test below"]
fn without_memory_program() {
    run(3, without_memory);
}

#[test]
fn calls_go_on_without_memory() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(only(WITHOUT_MEMORY)).stdin(Stdio::null()).stdout(Stdio::null());
    let output = within_time(|| command.output().unwrap());
    assert!(output.status.success(), "the job says:\n{}", String::from_utf8_lossy(&output.stderr));
}

const GREETED: &str = "scarcity::greeted_program";

/// Process 0 has a descriptor for the connection of a peer, and none for the peer's memory.
fn greeted(me: &Worker) -> Result<()> {
    let end = me.now() + limit();
    if me.id().number() == 0 {
        let mut taken = take_all_descriptors();
        taken.pop();
        write_note(GREETED, 0, "short of descriptors");
        while !has_note(GREETED, 1) {
            assert!(me.now() < end, "no peer calls");
            me.progress()?;
        }
        drop(taken);
        // The memory is asked for once more.
        call_and_be_answered(me, 1)?;
        assert_eq!(me.counters_to(WorkerId::new(1)).rings, 1);
    } else {
        while !has_note(GREETED, 0) {
            assert!(me.now() < end, "process 0 does not begin");
            me.progress()?;
        }
        call_and_be_answered(me, 0)?;
        write_note(GREETED, 1, "answered");
    }
    me.barrier()
}

#[test]
#[ignore = "a program for the test below"]
fn greeted_program() {
    run(2, greeted);
}

#[test]
fn a_greeting_without_a_descriptor_is_no_death() {
    let launcher = with_few_descriptors(GREETED).spawn().unwrap();
    let pid = launcher.id();
    let output = within_time(|| launcher.wait_with_output().unwrap());
    take_notes(pid, GREETED, 2);
    assert!(output.status.success(), "the job says:\n{}", String::from_utf8_lossy(&output.stderr));
}

const BESIEGED: &str = "scarcity::besieged_program";

/// Tells where this process listens, and waits until strangers are connected. Then it meets the
/// other processes for the first time.
fn besieged(me: &Worker) -> Result<()> {
    write_note(BESIEGED, me.id().number(), &socket_name().expect("it listens"));
    wait_until("strangers come", || me.progress().is_err() || has_note(BESIEGED, 3));
    (0..3).try_for_each(|to| call_and_be_answered(me, to))?;
    me.barrier()
}

#[test]
#[ignore = "a program for the test below"]
fn besieged_program() {
    run(3, besieged);
}

/// More strangers connect to each process than it has descriptors, and say nothing.
#[test]
fn strangers_do_not_keep_processes_apart() {
    let launcher = with_few_descriptors(BESIEGED).spawn().unwrap();
    let pid = launcher.id();
    let output = within_time(|| {
        let mut names = vec![None; 3];
        wait_until("all processes listen", || {
            for (all, new) in names.iter_mut().zip(take_notes(pid, BESIEGED, 3)) {
                *all = all.take().or(new);
            }
            names.iter().all(Option::is_some)
        });
        let connect = |name: String| (0..100).map(move |_| MessageSocket::connect(&name.as_bytes()[1..]).unwrap());
        let strangers: Vec<MessageSocket> = names.into_iter().flatten().flat_map(connect).collect();
        write_note_of(pid, BESIEGED, 3, "they are there");
        let output = launcher.wait_with_output().unwrap();
        drop(strangers);
        output
    });
    take_notes(pid, BESIEGED, 4);
    assert!(output.status.success(), "the job says:\n{}", String::from_utf8_lossy(&output.stderr));
}

const CROWDED: &str = "scarcity::crowded_program";

#[test]
#[ignore = "a program for the test below"]
fn crowded_program() {
    let verdict = farside::job().processes(1).threads_per_process(64).time_limit(limit()).run(|_| Ok(()));
    eprintln!("verdict: {verdict:?}");
}

/// The process has address space for some of its threads.
#[test]
fn a_thread_that_cannot_be_started_ends_the_job() {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 4000000 && exec \"$@\"", "sh"]).arg(std::env::current_exe().unwrap());
    command.args(only(CROWDED)).env("RUST_MIN_STACK", (256 << 20).to_string());
    let output = within_time(|| command.stdin(Stdio::null()).stdout(Stdio::null()).output().unwrap());
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("starting a worker thread"), "the job says:\n{printed}");
}
