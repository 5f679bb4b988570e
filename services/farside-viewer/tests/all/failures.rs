//! Processes that are stopped or killed, other users, and bytes that mean nothing.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use farside_rpc::{Client, Credentials, Encoded};
use farside_sys::net::{Interest, Listener, MessageSocket, wait_ready};
use farside_sys::process::set_thread_user;
use farside_testbed::{deadline, ended_with_us, limit, scaled, wait_for, wait_until};
use farside_viewer::{At, InspectError, Inspector, Refused, Selection};

use crate::network::{Tokens, address_of};
use crate::standalone;
use crate::steering::{JOB, start_client};
use crate::targets::{BOARD, PART, Target, WIDE, connect};

/// Sends a signal to a process.
fn signal(process: u32, name: &str) {
    let status = std::process::Command::new("sh").args(["-c", &format!("kill -{name} {process}")]).status();
    assert!(status.is_ok_and(|status| status.success()), "there is a shell");
}

/// Stops a process, and waits until none of its threads runs any more.
pub(crate) fn stop(process: u32) {
    signal(process, "STOP");
    let is_stopped = |thread: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('T'))
    };
    wait_until("a process is stopped", || std::fs::read_dir(format!("/proc/{process}/task")).unwrap().all(is_stopped));
}

/// A process that is stopped is named to its readers, and to those that come meanwhile if some do.
/// When it goes on, so do they.
fn stop_a_process(comes_others: bool) {
    let (mut target, job) = Target::inspected("steered", 2);
    let all = Selection::all();
    let seen = job.open::<f64>("seen").unwrap();
    seen.get(&all, At::Next).unwrap();
    let stopped = job.found().unwrap().processes.iter().find(|about| about.process == 1).unwrap().system_process;
    stop(stopped);
    let impatient = job.deadline(Duration::from_secs(1));
    // On a busy machine, process 0 may answer too late, too.
    let is_named = |error| matches!(error, InspectError::Silent { process: 1, .. });
    wait_until("process 1 is named to who opens", || is_named(impatient.open::<f64>("seen").unwrap_err()));
    let error = impatient.set("dt", 1.0).unwrap_err();
    assert!(matches!(error, InspectError::Silent { .. } | InspectError::NotHeld { .. }), "{error}");
    if comes_others {
        wait_until("process 1 is named to who comes", || is_named(Inspector::connect(&target.name).unwrap_err()));
        wait_until("process 1 is named to who looks for jobs", || {
            let jobs = farside_viewer::jobs().unwrap();
            jobs.into_iter().any(|job| job.id.name == target.name && job.silent == [1])
        });
    }
    signal(stopped, "CONT");
    assert_eq!(seen.get(&all, At::Next).unwrap().values.len(), 2);
    job.set("dt", 2.0).unwrap();
    assert!(target.is_running());
}

#[test]
fn a_process_that_is_stopped_is_named() {
    stop_a_process(false);
}

/// A job ends, whoever is attached: a reader that waits for a step that never comes, one that
/// watches, and one that has pinned all copies and is stopped. Those that can hear of it do.
#[test]
fn a_job_does_not_wait_for_its_readers_at_its_end() {
    let (mut target, job) = Target::inspected("ending", 2);
    let all = Selection::all();
    // No reader ends by its own deadline before the test does.
    let area = job.deadline(4 * limit()).open::<u64>("pattern").unwrap();
    let mut pinning = start_client("client pins", &job);
    stop(pinning.id());
    let watched = AtomicUsize::new(0);
    thread::scope(|scope| {
        let waits = scope.spawn(|| area.get(&all, At::Step(u64::MAX / 2)));
        let watches = scope.spawn(|| {
            let first: Selection = "[0, 0]".parse().unwrap();
            let frames = area.watch(&first, Duration::from_millis(2));
            let mut frames: Vec<_> = frames.inspect(|_| _ = watched.fetch_add(1, Ordering::SeqCst)).collect();
            (frames.pop(), frames)
        });
        wait_until("frames are watched", || watched.load(Ordering::SeqCst) > 2);
        job.set("end", 1.0).unwrap();
        assert!(target.wait(), "the job has failed");
        let error = waits.join().unwrap().unwrap_err();
        assert!(error.is_gone(), "{error}");
        // The one that watches has all frames until then, in order, and the end as the last item.
        let (last, frames) = watches.join().unwrap();
        let is_end = last.as_ref().is_some_and(|last| last.as_ref().is_err_and(InspectError::is_gone));
        assert!(is_end && frames.len() > 2, "{last:?} after {} frames", frames.len());
        let steps: Vec<u64> = frames.into_iter().map(|frame| frame.unwrap().step.unwrap()).collect();
        assert!(steps.is_sorted_by(|one, next| one < next), "{steps:?}");
    });
    signal(pinning.id(), "KILL");
    pinning.wait().unwrap();
}

/// Another user of the machine sees no job, is turned away at its doors, and takes no place there.
/// Nor can it pass for a job of this user.
#[test]
fn another_user_is_turned_away() {
    if !farside_testbed::is_privileged() {
        eprintln!("left out: another_user_is_turned_away: it needs the right to become another user");
        return;
    }
    let tokens = Tokens::new("stranger");
    let mut target = tokens.start("steered");
    let job = target.inspect(2);
    let (name, address, file) = (target.name.clone(), address_of(&target.name), tokens.path("write"));
    let door = format!("farside-rpc/inspect/0/{}/0", job.job());
    let fake = format!("farside-rpc/inspect/0/{}/1/0", target.name);
    let stranger = thread::spawn(move || {
        // The identity of this thread alone.
        set_thread_user(65_534).unwrap();
        assert!(matches!(Inspector::connect(&name), Err(InspectError::NoJob { .. })));
        for _ in 0..600 {
            let socket = MessageSocket::connect(door.as_bytes()).unwrap();
            let receive = || {
                let come = [Interest { fd: socket.as_fd(), writable: false }];
                assert!(wait_ready(&come, Some(deadline())).unwrap()[0]);
                socket.receive(&mut [0; 1024]).unwrap()
            };
            assert!(receive().is_some(), "the door says why");
            assert!(receive().is_none(), "it has ended the connection");
        }
        // It cannot read the tokens.
        let wanted = farside_viewer::Target::new(&*address).token_file(Some(file));
        assert!(matches!(Inspector::connect(wanted), Err(InspectError::Token(_))));
        Listener::bind(fake.as_bytes()).unwrap()
    });
    let fake = stranger.join().unwrap();
    job.set("dt", 3.0).unwrap();
    // What the stranger pretends to be is no job.
    let jobs = farside_viewer::jobs().unwrap();
    assert_eq!(jobs.iter().filter(|job| job.id.name == target.name).count(), 1);
    connect(&target.name).set("dt", 4.0).unwrap();
    drop(fake);
    assert!(target.is_running());
}

/// A change of a view has a limit, as have the changes that wait while a job is paused.
#[test]
fn large_changes_are_refused_whole() {
    let (mut target, job) = Target::inspected("wide", 2);
    let wide = job.open::<f64>("wide").unwrap();
    let rows = |from: usize, to: usize| format!("[{from}:{to}]").parse::<Selection>().unwrap();
    // A row has 8 KiB, so 1024 rows are as much as is allowed.
    let error = wide.put(&rows(0, 1025), &vec![1.0; 1025 * WIDE]).unwrap_err();
    assert!(matches!(error, InspectError::TooLarge { bytes: 8_396_800, max: 8_388_608 }), "{error}");
    wide.put(&rows(500, 1524), &vec![2.0; 1024 * WIDE]).unwrap();
    let column = |at| wide.get(&"[:, 7]".parse().unwrap(), at).unwrap().values;
    let expected = |value: f64, more: f64| -> Vec<f64> {
        (0..2 * WIDE)
            .map(|row| {
                if row < 500 {
                    more
                } else if row < 1524 {
                    value
                } else {
                    0.0
                }
            })
            .collect()
    };
    assert_eq!(column(At::Next), expected(2.0, 0.0));
    let paused = job.pause_at(At::Next).unwrap();
    wide.put(&rows(0, 500), &vec![3.0; 500 * WIDE]).unwrap();
    wide.put(&rows(0, 500), &vec![4.0; 500 * WIDE]).unwrap();
    // The first worker has no room for a third such change, so that none is made at the other one.
    let error = wide.put(&rows(500, 1500), &vec![5.0; 1000 * WIDE]).unwrap_err();
    assert!(matches!(error, InspectError::Refused { refused: Refused::Busy, .. }), "{error}");
    drop(paused);
    assert_eq!(column(At::Next), expected(2.0, 4.0));
    assert!(target.is_running());
}

/// A program that does everything once that a client can do. It is killed at a numbered point.
pub(crate) fn play_everything() -> farside::Result<()> {
    let [steered, exposed, wide] =
        std::env::var(JOB).unwrap().split(' ').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap();
    let all = Selection::all();
    // A step that is mapped is kept meanwhile, and read in between.
    let job = connect(&wide);
    let area = job.open::<f64>("wide").unwrap();
    let _pinned = area.pin_all(&all, At::Next).unwrap();
    area.get(&"[7:9]".parse().unwrap(), At::Next).unwrap();
    let job = connect(&steered);
    job.open::<f64>("seen").unwrap().get(&all, At::Next).unwrap();
    job.open::<u32>("board").unwrap().put(&all, &[9; 2 * BOARD]).unwrap();
    job.act("count").unwrap();
    let paused = job.pause_at(At::Next).unwrap();
    job.set("dt", 5.0).unwrap();
    paused.go_to_next().unwrap();
    drop(paused);
    let job = connect(&exposed);
    let locked = job.lock("pairs").unwrap();
    job.open::<u64>("pairs")
        .unwrap()
        .put_locked(&all, bytemuck::cast_slice(&[6_u64; 4 * BOARD]), Some(&locked))
        .unwrap();
    Ok(())
}

/// Ends a child that a failed test leaves.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait(child: &mut Kept) -> ExitStatus {
    wait_for("the child ends", || child.0.try_wait().unwrap())
}

/// A client that is killed, wherever it is, holds nothing and leaves no half of a change. Returns
/// the last point, at which the client has ended by itself if there are enough of them.
#[cfg(debug_assertions)]
fn kill_clients(killed_at: impl IntoIterator<Item = u32>) -> u32 {
    let [mut steered, mut exposed, mut wide] = ["steered", "exposed", "wide"].map(|part| Target::start(part, &[]));
    let [job, memory, mapped] = [&mut steered, &mut exposed, &mut wide].map(|target| target.inspect(2));
    let all = Selection::all();
    let (board, pairs) = (job.open::<u32>("board").unwrap(), memory.open::<u64>("pairs").unwrap());
    let mut points = 0;
    for point in killed_at {
        board.put(&all, &[0; 2 * BOARD]).unwrap();
        let mut command = ended_with_us(std::env::current_exe().unwrap());
        command.args(["--exact", "targets::target", "--nocapture", "--quiet"]).stdout(Stdio::null());
        command.env(PART, "everything").env(JOB, format!("{} {} {}", job.job(), memory.job(), mapped.job()));
        let mut client = Kept(command.env("FARSIDE_INSPECT_KILL", format!("client:{point}")).spawn().unwrap());
        let is_well = wait(&mut client).success();
        wait_until("what the client held has ended", || match job.set("dt", 1.0) {
            Err(InspectError::Refused { refused: Refused::Held { .. }, .. }) => false,
            changed => changed.map(|_| true).unwrap_or_else(|error| panic!("killed at point {point}: {error}")),
        });
        let values = board.get(&all, At::Next).unwrap().values;
        assert!(values == [0; 2 * BOARD] || values == [9; 2 * BOARD], "killed at point {point}: {values:?}");
        pairs.put(&all, &[7; 4 * BOARD]).unwrap();
        assert_eq!(job.is_paused().unwrap(), None, "killed at point {point}");
        assert!(!memory.is_locked("pairs").unwrap(), "killed at point {point}");
        // The program has memory for further steps.
        mapped.open::<f64>("wide").unwrap().get(&all, At::Next).unwrap();
        points = point;
        if is_well {
            break;
        }
    }
    assert!(steered.is_running() && exposed.is_running() && wide.is_running());
    points
}

#[cfg(debug_assertions)]
#[test]
fn a_client_that_is_killed_leaves_nothing() {
    kill_clients([3, 9, 15, 21, 24]);
}

/// A process is killed in the middle of what a client asks of it. The client gets an error that
/// names it, and the other process goes on. Returns the last point, at which the process was not
/// killed if there are enough of them.
#[cfg(debug_assertions)]
fn kill_processes(killed_at: impl IntoIterator<Item = u32>) -> u32 {
    let all = Selection::all();
    let mut points = 0;
    for point in killed_at {
        let name = format!("killed-{}-{point}", std::process::id());
        let (_ranks, job) = standalone::start_with(&name, |rank| (rank == 1).then(|| format!("target:{point}")));
        let everything = || {
            let field = job.open::<f64>("field")?;
            field.get(&all, At::Next)?;
            field.put(&all, &[1.0; 8])?;
            let paused = job.pause_at(At::Next)?;
            job.set("dt", 2.0)?;
            paused.go_to_next()?;
            drop(paused);
            let locked = job.lock("memory 1")?;
            let memory = job.open::<u64>("memory 1")?;
            memory.put_locked(&all, bytemuck::cast_slice(&[1_u64; 64]), Some(&locked))?;
            drop(locked);
            memory.get(&all, At::Now).map(drop)
        };
        let ended: Result<(), InspectError> = everything();
        points = point;
        let Err(error) = ended else { break };
        let words = ["process 1", "of the 8 elements", "no area", "the call was lost"];
        assert!(words.iter().any(|word| error.to_string().contains(word)), "killed at point {point}: {error}");
        // The other goes on: it is read, changed, and not paused.
        let half: Selection = "[0]".parse().unwrap();
        let is_well = || -> Result<bool, InspectError> {
            job.set("dt", 3.0)?;
            let field = job.open::<f64>("field")?;
            let seen = job.open::<f64>("seen")?.get(&half, At::Next)?;
            Ok(field.get(&half, At::Next)?.values.len() == 4 && seen.values == [3.0] && job.is_paused()?.is_none())
        };
        wait_until(&format!("the other process goes on without that killed at point {point}"), || {
            is_well().is_ok_and(|is_well| is_well)
        });
    }
    points
}

#[cfg(debug_assertions)]
#[test]
fn a_process_that_is_killed_is_named() {
    assert_eq!(kill_processes([2, 5, 8]), 8);
}

/// These take long.
mod deep {
    use super::*;

    #[cfg(debug_assertions)]
    #[test]
    fn a_client_that_is_killed_anywhere_leaves_nothing() {
        let points = kill_clients(1..);
        assert!(points > 25, "{points} points");
    }

    #[cfg(debug_assertions)]
    #[test]
    fn a_process_that_is_killed_anywhere_is_named() {
        let points = kill_processes(1..);
        assert!(points > 10, "{points} points");
    }

    /// Also in the greeting, which has two messages of some hundred bytes, and which a reader
    /// awaits for five seconds.
    #[test]
    fn spoiled_greetings_harm_their_connection_alone() {
        spoil_connections(100, 50);
    }

    /// Those that come have five seconds to be answered.
    #[test]
    fn a_process_that_is_stopped_is_named_to_those_that_come() {
        stop_a_process(true);
    }
}

/// A client that takes a pause is killed at once. The job goes on at once, too.
#[test]
fn clients_that_come_and_are_killed_leave_no_pause() {
    let (mut target, job) = Target::inspected("steered", 2);
    for _ in 0..scaled(2) {
        let mut client = Kept(start_client("client pauses", &job));
        client.0.kill().unwrap();
        client.0.wait().unwrap();
        wait_until("the job goes on", || job.set("dt", 1.0).is_ok());
    }
    assert!(target.is_running());
}

/// Numbers of a seed.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

/// Every call of a door with arguments that are none: the door refuses them, and serves others.
#[test]
fn arguments_that_are_none_are_refused() {
    let (mut target, job) = Target::inspected("steered", 2);
    let address = format!("shm:inspect/{}/{}/0", farside_sys::process::user_id(), job.job());
    let client = Client::connect(&address, Credentials::own_user()).unwrap();
    let described = client.deadline(limit()).describe().unwrap();
    // A call that is understood may wait for something that never happens.
    let client = client.deadline(Duration::from_millis(100));
    let door = described.iter().find(|found| found.service == "farside.inspect").unwrap();
    let mut random = Random(7);
    let mut refused = 0;
    let rounds = scaled(20) as usize;
    for round in 0..rounds {
        for (procedure, types) in &door.procedures {
            let length = if round % 10 == 9 { random.next(100_000) } else { random.next(80) };
            let bytes = (0..length).map(|_| if random.next(3) == 0 { 0 } else { random.next(256) as u8 }).collect();
            let call = client.encoded_procedure(&door.service, 0, procedure, types);
            refused += usize::from(call.call(&Encoded::new(bytes)).is_err());
        }
    }
    assert!(refused > 5 * rounds, "{refused}");
    job.set("dt", 8.0).unwrap();
    assert_eq!(job.open::<f64>("seen").unwrap().get(&Selection::all(), At::Next).unwrap().values, [8.0; 2]);
    assert!(target.is_running());
}

/// Passes the bytes of clients on to a door, and spoils them from some place on.
fn spoil(door: &str, seed: u64, first: usize, spoiled: &Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let (door, spoiled) = (door.trim_start_matches("tcp://").to_owned(), spoiled.clone());
    thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(&door)) else { return };
            let mut random = Random(seed + number as u64);
            let spoiled = spoiled.clone();
            let (from_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || pass(from_server, to_client, |_| Some(Vec::new())));
            let mut begins_after = first + random.next(600);
            thread::spawn(move || {
                pass(client, server, move |bytes| {
                    if bytes.len() <= begins_after {
                        begins_after -= bytes.len();
                        return Some(Vec::new());
                    }
                    spoiled.fetch_add(1, Ordering::Relaxed);
                    let at = begins_after;
                    begins_after = random.next(2000);
                    match random.next(5) {
                        0 => bytes[at] ^= 1 << random.next(8),
                        1 => bytes[at..].iter_mut().for_each(|byte| *byte = random.next(256) as u8),
                        2 => bytes[at..].fill(255),
                        3 => return Some((0..random.next(70_000)).map(|_| random.next(256) as u8).collect()),
                        _ => return None,
                    }
                    Some(Vec::new())
                });
            });
        }
    });
    address
}

/// Passes bytes on until either end closes, or `change` says so. It returns bytes to send behind.
fn pass(mut from: TcpStream, mut to: TcpStream, mut change: impl FnMut(&mut [u8]) -> Option<Vec<u8>>) {
    let mut buffer = vec![0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let more = change(&mut buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() || more.is_none_or(|more| to.write_all(&more).is_err()) {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// Connections whose bytes are spoiled end with an error or go on. No other connection notices, and
/// none of them holds anything afterwards. The first bytes of each that are passed on well are as
/// many as `first`, and some more.
fn spoil_connections(first: usize, wanted: u64) {
    let tokens = Tokens::new("spoiled");
    let mut target = tokens.start("steered");
    let job = target.inspect(2);
    let spoiled = Arc::new(AtomicUsize::new(0));
    let proxy = spoil(&address_of(&target.name), 1, first, &spoiled);
    let all = Selection::all();
    let mut round = 0;
    wait_until("enough connections are spoiled", || {
        round += 1;
        // The second process is not reached through the proxy.
        let Ok(guest) = tokens.connect(&proxy, "write") else { return false };
        let guest = guest.deadline(Duration::from_millis(300));
        let _ = guest.set("dt", 1.0);
        let _ = guest.open::<u32>("board").and_then(|board| board.put(&all, &[round; 2 * BOARD]));
        let _ = guest.open::<f64>("seen").and_then(|seen| seen.get(&all, At::Next));
        let _ = guest.pause_at(At::Next);
        spoiled.load(Ordering::Relaxed) as u64 > wanted
    });
    wait_until("the job goes on", || job.set("dt", 9.0).is_ok());
    assert_eq!(job.open::<f64>("seen").unwrap().get(&all, At::Next).unwrap().values, [9.0; 2]);
    assert!(target.is_running());
}

#[test]
fn spoiled_frames_harm_their_connection_alone() {
    spoil_connections(1500, scaled(15));
}
