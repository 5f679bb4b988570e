//! A process is killed at each numbered point of the protocol. The others go on.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::process::{Command, Stdio};
use std::time::Duration;

use farside::prelude::*;
use farside::{Error, FullCause, Refused, Result, ResultPlace};

use crate::support::{only, take_notes, within_time, write_note};

const PROGRAM: &str = "faults::kill_points::program";
const PROCESSES: u32 = 4;
pub(crate) const DOOMED: u32 = 1;
/// The variable with the number of workers of each process.
const THREADS: &str = "KILL_POINT_THREADS";
/// The longest wait of a process for another.
const DEADLINE: Duration = Duration::from_secs(30);
/// Rounds of calls before the survivors look for the loss, and after it.
const ROUNDS_BEFORE: u64 = 8;
const ROUNDS_AFTER: u64 = 4;

/// The number of the last call from each sender, by ring and by lane.
#[derive(Default)]
struct Log {
    by_ring: HashMap<WorkerId, u64>,
    by_lane: HashMap<WorkerId, u64>,
}

thread_local! {
    /// A worker is a thread. A `PerWorker` would need all processes, one of which dies.
    static LOG: RefCell<Log> = RefCell::default();
}

type Numbered = (WorkerId, u64);

fn arrive(_: &Worker, (from, number): Numbered) {
    LOG.with_borrow_mut(|log| {
        let before = log.by_ring.insert(from, number).unwrap_or(0);
        assert_eq!(number, before + 1, "calls of {from} run in order, each once");
    });
}

fn arrive_with(there: &Worker, call: Numbered, buffer: &[u8]) {
    assert!(buffer.iter().all(|byte| *byte == call.1 as u8));
    arrive(there, call);
}

fn arrive_by_lane(_: &Worker, (from, number): Numbered) {
    LOG.with_borrow_mut(|log| {
        let before = log.by_lane.insert(from, number).unwrap_or(0);
        assert_eq!(number, before + 1, "calls of {from} on its lane run in order, each once");
    });
}

/// One worker's calls to the others.
struct Traffic<'w> {
    me: &'w Worker,
    sent_by_ring: u64,
    sent_by_lane: u64,
}

impl Traffic<'_> {
    /// Calls every worker in every way. The doomed process may be lost by then.
    fn round(&mut self) -> Result<()> {
        let before = (self.sent_by_ring, self.sent_by_lane);
        for to in self.me.workers() {
            (self.sent_by_ring, self.sent_by_lane) = before;
            match self.call_in_every_way(to) {
                Err(Error::PeerLost { process, .. })
                    if self.me.process_of(to) == process && process.number() == DOOMED => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn call_in_every_way(&mut self, to: WorkerId) -> Result<()> {
        let me = self.me;
        me.call(to, self.next(), arrive)?;
        let aggregator = me.aggregate(to);
        for _ in 0..5 {
            aggregator.call(self.next(), arrive)?;
        }
        drop(aggregator);
        // More than a ring holds at first, and calls longer than its first chunks.
        for bytes in [500; 40].into_iter().chain([5_000, 70_000]) {
            self.send(to, bytes)?;
        }
        self.sent_by_lane += 1;
        me.to(to).send_based().call((me.id(), self.sent_by_lane), arrive_by_lane)?;
        // Calls with registered memory, and a call to all workers.
        let call = self.next();
        let buffer = me.allocate(3000)?;
        buffer.fill(call.1 as u8);
        me.to(to).call_buffer_get(call, buffer, arrive_with).map_err(|refused| refused.error)?.wait()?;
        let memory = me.allocate_at(me.process(), 64)?;
        let place = ResultPlace::new(me, memory, 0, 64)?;
        let executed = me.synchronizer(1)?;
        me.to(to).notify(&executed, On::Executed).call_into(self.sent_by_ring, |_, number| number * 2, place)?;
        executed.wait()?;
        assert_eq!(place.poll(me)?, Some(self.sent_by_ring * 2));
        me.release(memory)?;
        match me.everyone().call(self.sent_by_ring, |_, number| assert!(number > 0)) {
            // The survivors run it nevertheless.
            Err(Refused { error: Error::PeerLost { process, .. }, .. }) if process.number() == DOOMED => {}
            other => other?,
        }
        let doubled = me.call_return(to, self.sent_by_ring, |_, number| number * 2)?;
        assert_eq!(doubled.wait()?, self.sent_by_ring * 2);
        self.borrow_memory(me.process_of(to))
    }

    fn borrow_memory(&self, of: ProcessId) -> Result<()> {
        let memory = self.me.allocate_at(of, 3000)?;
        memory.put(self.me, 0, &[self.sent_by_ring as u8; 3000])?;
        let mut got = [0; 3000];
        memory.get(self.me, 0, &mut got)?;
        assert_eq!(got, [self.sent_by_ring as u8; 3000]);
        self.me.release(memory)
    }

    fn next(&mut self) -> Numbered {
        self.sent_by_ring += 1;
        (self.me.id(), self.sent_by_ring)
    }

    /// Queues a call if the ring has no room, and waits if the queue has none either.
    fn send(&mut self, to: WorkerId, bytes: usize) -> Result<()> {
        let call = self.next();
        let buffer = vec![call.1 as u8; bytes];
        match self.me.to(to).when_full(WhenFull::Queue).call_buffer(call, &buffer, arrive_with) {
            Err(refused) if matches!(refused.error, Error::Full { cause: FullCause::Queue { .. }, .. }) => {
                Ok(self.me.call_buffer(to, call, &buffer, arrive_with)?)
            }
            other => Ok(other?),
        }
    }

    /// Waits until all calls of the survivors have arrived.
    fn wait_for_all(&self) -> Result<()> {
        let expected = (Some(&self.sent_by_ring), Some(&self.sent_by_lane));
        let survivors = || self.me.workers().filter(|from| self.me.process_of(*from).number() != DOOMED);
        let has_all = |log: &Log| survivors().all(|from| (log.by_ring.get(&from), log.by_lane.get(&from)) == expected);
        self.me.wait_while_serving(|| LOG.with_borrow(has_all))
    }
}

fn body(me: &Worker) -> Result<()> {
    let mut traffic = Traffic { me, sent_by_ring: 0, sent_by_lane: 0 };
    for _ in 0..ROUNDS_BEFORE {
        traffic.round()?;
    }
    if me.process().number() == DOOMED {
        return Ok(());
    }
    let dies_at_the_very_end = std::env::var("FARSIDE_KILL").is_ok_and(|kill| kill.contains(":finished"));
    if !dies_at_the_very_end {
        me.wait_while_serving(|| me.lost_processes() == [ProcessId::new(DOOMED)])?;
    }
    for _ in 0..ROUNDS_AFTER {
        traffic.round()?;
    }
    traffic.wait_for_all()?;
    // The memory that the dead process borrowed has been released.
    me.wait_while_serving(|| me.counters().remote_memory_bytes_here == 0)?;
    write_note(PROGRAM, me.id().number(), &socket_name_of_job());
    Ok(())
}

#[test]
#[ignore = "a program for the tests below"]
fn program() {
    let threads = std::env::var(THREADS).map_or(1, |threads| threads.parse().unwrap());
    let job = farside::job().processes(PROCESSES).threads_per_process(threads);
    let job = job.deadline(DEADLINE).finalize_deadline(DEADLINE);
    if let Err(error) = job.run(body) {
        eprintln!("verdict: {error}");
        std::process::exit(1);
    }
}

/// Returns the name of this process's socket without its last part, which begins with the process's
/// number.
pub(crate) fn socket_name_of_job() -> String {
    socket_name().rsplit_once('/').expect("its last part is of the process").0.to_owned()
}

/// Returns the name of this process's socket, with the mark of a name that is no path.
pub(crate) fn socket_name() -> String {
    let links =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let own: HashSet<String> = links.map(|link| link.to_string_lossy().into_owned()).collect();
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let mut named = sockets.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(6);
        let (inode, name) = (fields.next()?, fields.next()?);
        (own.contains(&format!("socket:[{inode}]")) && name.starts_with("@farside/")).then_some(name)
    });
    named.next().expect("this process listens under a name").to_owned()
}

/// Returns the processes of this launcher's jobs that still run.
pub(crate) fn processes_of(launcher: u32) -> Vec<u32> {
    let variable = format!("FARSIDE_LAUNCHER={launcher}").into_bytes();
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let launched = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == variable)
    };
    pids.filter(launched).collect()
}

pub(crate) fn nothing_is_left(launcher: u32, socket_name: Option<&str>) {
    assert_eq!(processes_of(launcher), [0; 0], "processes outlive their job");
    let files = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name());
    let files: Vec<_> = files.filter(|name| name.to_string_lossy().contains("farside")).collect();
    assert!(files.is_empty(), "{files:?} are left");
    if let Some(name) = socket_name {
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
        assert!(!sockets.contains(&format!("{name}/")), "sockets are left of {name}:\n{sockets}");
    }
}

fn kill_at(point: &str, nth: u32, threads: u32, may_end_the_job: bool) {
    kill_program(PROGRAM, point, nth, threads, may_end_the_job);
}

/// Kills process 1 of a program when it reaches a point for the `nth` time. The program is a test
/// with four processes. The others must succeed. If the loss may end the job, they may also end in
/// an orderly way.
pub(crate) fn kill_program(program: &str, point: &str, nth: u32, threads: u32, may_end_the_job: bool) {
    let at = format!("{DOOMED}:{point}:{nth}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(only(program)).env("FARSIDE_KILL", &at).env(THREADS, threads.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let launcher = command.spawn().unwrap();
    let pid = launcher.id();
    let output = within_time(|| launcher.wait_with_output().unwrap());
    let printed = String::from_utf8_lossy(&output.stderr);
    let workers = PROCESSES * threads;
    let notes = take_notes(pid, program, workers);
    let verdict = format!("verdict: process {DOOMED} was killed by signal 9");
    let verdicts: Vec<&str> = printed.lines().filter(|line| line.starts_with("verdict")).collect();
    assert!(verdicts.contains(&&*verdict), "killed at {at}, and the job says:\n{printed}");
    // Only failed jobs print a verdict.
    let survivors: Vec<u32> = (0..).zip(&notes).filter_map(|(worker, note)| note.as_ref().map(|_| worker)).collect();
    let expected: Vec<u32> = (0..workers).filter(|worker| worker / threads != DOOMED).collect();
    let all_survive = survivors == expected && verdicts.len() == 1;
    let all_end = may_end_the_job && survivors.is_empty();
    assert!(all_survive || all_end, "killed at {at}, and all is well with {survivors:?}; the job says:\n{printed}");
    nothing_is_left(pid, notes[0].as_deref());
}

#[test]
fn in_set_up() {
    kill_at("greeting-sent", 1, 1, true);
    kill_at("endpoint-opened", 1, 1, false);
    for point in ["ring-asking", "ring-asked", "ring-made", "ring-answered", "sender-opened"] {
        // Rings to other workers, and to lanes.
        for nth in [1, 2, 5] {
            kill_at(point, nth, 1, false);
        }
        kill_at(point, 4, 2, false);
    }
}

#[test]
fn in_growth() {
    for point in ["growth-asked", "growth-made", "sender-grown"] {
        for nth in [1, 3] {
            kill_at(point, nth, 1, false);
        }
        kill_at(point, 2, 2, false);
    }
}

#[test]
fn in_asking_for_memory() {
    for point in ["memory-asked", "memory-granted", "memory-released"] {
        for nth in [1, 2, 9] {
            kill_at(point, nth, 1, false);
        }
        kill_at(point, 4, 2, false);
    }
}

#[test]
fn in_a_call() {
    for point in ["record-reserved", "staged-published"] {
        for nth in [1, 4] {
            kill_at(point, nth, 1, false);
        }
        kill_at(point, 10, 2, false);
    }
}

#[test]
fn with_registered_memory_and_on_everyone() {
    for point in ["buffer-found", "buffer-read", "result-put", "sent-on"] {
        for nth in [1, 10] {
            kill_at(point, nth, 1, false);
        }
        kill_at(point, 5, 2, false);
    }
}

#[test]
#[cfg(debug_assertions)]
fn on_the_way_of_every_call() {
    for point in ["batch-begun", "reply-claimed"] {
        for nth in [1, 10] {
            kill_at(point, nth, 1, false);
        }
        kill_at(point, 20, 2, false);
    }
}

#[test]
fn at_the_end() {
    for threads in [1, 2] {
        kill_at("round-reported", 1, threads, false);
        kill_at("finished", 1, threads, false);
    }
}
