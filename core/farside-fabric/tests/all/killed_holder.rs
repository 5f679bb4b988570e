//! Holders that are killed or stopped while they write into the user memory of another process by
//! system calls.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use farside_fabric::shm::{ShmConfig, ShmEndpoint};
use farside_fabric::{Carrier, Event, FabricError, ProcessId, RemoteKey, Transport, UserMemory, UserRegion};
use farside_testbed::{deadline, is_past, scaled, soon, wait_until};

const BYTES: usize = 4 << 20;
const OWNER: ProcessId = ProcessId::new(0);
const HOLDER: ProcessId = ProcessId::new(1);
/// The environment variable with the holder's orders: the job's id, the region's slot and
/// generation, and 1 if the holder is to fork a child that keeps its sockets open.
const TOLD: &str = "FARSIDE_TEST_HOLDER";

fn open(process: ProcessId, job_id: u64) -> Arc<ShmEndpoint> {
    let (secret, starter_bytes) = ([5; 16], 4096);
    let config = ShmConfig { process, process_count: 2, job_id, secret, starter_bytes, user_by_system_call: true };
    ShmEndpoint::open(config).expect("an endpoint can be opened")
}

/// The program of the processes that the tests below start, and no test by itself. It writes until
/// a put is refused or the process is killed.
#[test]
fn holder() {
    let Ok(told) = std::env::var(TOLD) else { return };
    let told: Vec<u64> = told.split(' ').map(|word| word.parse().expect("a number")).collect();
    let [job_id, slot, generation, forks] = told[..] else { panic!("not the orders of a holder: {told:?}") };
    let end = open(HOLDER, job_id);
    let (slot, generation) = (slot as u32, generation as u32);
    let key = RemoteKey { process: OWNER, slot, generation, reserved: 0, bytes: BYTES as u64 };
    let region = end.attach(key, deadline()).expect("the owner lets it attach");
    let service = end.clone();
    thread::spawn(move || {
        loop {
            service.wait(&[], None);
            service.progress();
        }
    });
    if forks == 1 {
        fork();
    }
    let data = vec![0xff; BYTES];
    let give_up = deadline();
    let refused = loop {
        if let Err(error) = region.put(0, &data, give_up) {
            break error;
        }
        assert!(!is_past(give_up), "no put is refused");
    };
    assert!(matches!(refused, FabricError::StaleKey { .. } | FabricError::Disconnected { .. }), "{refused}");
}

/// Forks a child that never reaches `exec`, so that it keeps all descriptors of this process open.
fn fork() {
    let (mut read, write) = pipe().expect("there is a pipe");
    // The child has both ends of this pipe, which therefore stays empty and open.
    let (silent, _open) = pipe().expect("there is a pipe");
    thread::spawn(move || {
        let say_and_stay = move |mut write: &PipeWriter, mut silent: &PipeReader| {
            write.write_all(b"x")?;
            silent.read_exact(&mut [0])
        };
        let mut command = Command::new("true");
        // SAFETY: the closure, which runs between fork and exec, makes two system calls, allocates
        // nothing and takes no lock.
        unsafe { command.pre_exec(move || say_and_stay(&write, &silent)) };
        // The child is killed before this returns.
        let _ = command.status();
    });
    read.read_exact(&mut [0]).expect("the child has begun");
}

/// A holder's process. It and its child are killed when this is dropped.
struct Holder(Child);

impl Holder {
    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.0.id().to_string()]).status();
        assert!(sent.expect("kill can be started").success());
    }

    /// Returns whether the process has ended and waits to be reaped.
    fn has_ended(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("it is not reaped");
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
    }

    /// Returns whether all threads have stopped. A stop signal is taken by one thread, which stops
    /// the others once it runs.
    fn has_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).expect("the holder lives");
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
        })
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // The group has the number of the holder. An error means that its processes have ended.
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.0.wait();
    }
}

/// An owner with a service thread, and a holder that writes.
struct Scene {
    end: Arc<ShmEndpoint>,
    region: UserRegion,
    holder: Holder,
    stop: Arc<AtomicBool>,
}

impl Scene {
    fn new() -> Self {
        Self::with_holder(false)
    }

    fn with_holder(forks: bool) -> Self {
        static SCENES: AtomicU32 = AtomicU32::new(0);
        let scene = SCENES.fetch_add(1, Ordering::Relaxed);
        let job_id = u64::from(std::process::id()) << 32 | 1 << 30 | u64::from(scene);
        let end = open(OWNER, job_id);
        let region = end.register_user(Arc::new(UserMemory::owned(vec![0; BYTES]))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (service, is_over) = (end.clone(), stop.clone());
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                service.wait(&[], Some(soon()));
                service.progress();
            }
        });
        let key = region.key();
        let program = std::env::current_exe().expect("a test knows its own program");
        let mut command = Command::new(program);
        command
            .args(["--exact", "killed_holder::holder"])
            .env(TOLD, format!("{job_id} {} {} {}", key.slot, key.generation, u8::from(forks)));
        command.process_group(0);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let scene = Self { end, region, holder: Holder(child.expect("a holder can be started")), stop };
        wait_until("the holder writes", || scene.last_byte() == 0xff);
        scene
    }

    fn last_byte(&self) -> u8 {
        let mut found = [0];
        self.region.as_remote().get(BYTES as u64 - 1, &mut found, deadline()).unwrap();
        found[0]
    }

    /// Takes the memory back and asserts that no process writes to it any more: neither at once,
    /// nor until the holder has ended. Returns how that ended.
    fn take_back(&mut self) -> ExitStatus {
        let mut bytes = self.region.memory().take_back().expect("it is ours again");
        bytes.fill(3);
        let status = self.holder.0.wait().expect("the holder is our child");
        // The compiler must not know what it has just filled in.
        let bytes = std::hint::black_box(bytes);
        assert!(bytes.iter().all(|byte| *byte == 3), "a process writes to memory after its deregistration");
        status
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.end.wake();
    }
}

#[test]
fn a_killed_holder_is_waited_for_until_it_has_ended() {
    for round in 0..scaled(3) {
        let mut scene = Scene::new();
        // At different moments of a put.
        for _ in 0..100 * round {
            scene.last_byte();
        }
        scene.holder.0.kill().unwrap();
        let over = scene.end.deregister(scene.region.key()).unwrap();
        over.wait(&*scene.end, OWNER, deadline()).expect("a dead holder holds nothing up");
        scene.take_back();
        let is_told = || scene.end.receive() == Some(Event::Disconnected { process: HOLDER });
        wait_until("the death is told", is_told);
    }
}

/// The child has the holder's sockets, so that they do not close.
#[test]
fn a_killed_holder_with_a_living_child_delays_nothing() {
    for is_reaped in [true, false] {
        let mut scene = Scene::with_holder(true);
        scene.holder.0.kill().unwrap();
        if is_reaped {
            scene.holder.0.wait().unwrap();
        } else {
            wait_until("the holder has ended", || scene.holder.has_ended());
        }
        (0..100).for_each(|_| scene.end.progress());
        assert_eq!(scene.end.receive(), None, "the connection does not say that it is dead");
        scene.end.forget(HOLDER);
        let over = scene.end.deregister(scene.region.key()).unwrap();
        over.wait(&*scene.end, OWNER, deadline()).expect("a dead holder holds nothing up");
        scene.take_back();
    }
}

/// The owner gives up a holder that has only stopped. The holder goes on when it can.
#[test]
fn a_stopped_holder_is_waited_for_after_it_was_forgotten() {
    let mut scene = Scene::new();
    scene.holder.signal("-STOP");
    wait_until("the holder stands still", || scene.holder.has_stopped());
    scene.end.forget(HOLDER);
    let over = scene.end.deregister(scene.region.key()).unwrap();
    (0..1000).for_each(|_| scene.end.progress());
    assert!(!over.has_ended(), "it may write when it goes on");
    scene.holder.signal("-CONT");
    over.wait(&*scene.end, OWNER, deadline()).expect("it closes its connection");
    let status = scene.take_back();
    assert!(status.success(), "it is told with a typed error: {status}");
}

#[test]
fn a_living_holder_releases_the_region() {
    let mut scene = Scene::new();
    let over = scene.end.deregister(scene.region.key()).unwrap();
    over.wait(&*scene.end, OWNER, deadline()).expect("it lets go");
    let status = scene.take_back();
    assert!(status.success(), "it is told with a typed error: {status}");
}
