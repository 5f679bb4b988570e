//! Other users of the machine, who see the names of a job's sockets and connect: they are refused,
//! and cost the job nothing.

use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use farside::Result;
use farside::prelude::*;
use farside_sys::net::{Interest, MessageSocket, is_end, wait_ready};
use farside_sys::process::set_thread_user;
use farside_testbed::{Holdings, deadline, limit, wait_for, wait_until};

use crate::support::{has_note, only, socket_name, take_notes, within_time, write_note, write_note_of};

const VISITED: &str = "strangers::visited_program";
const PROCESSES: u32 = 2;
/// The author of the note that ends the job.
const TESTER: u32 = PROCESSES;
/// A user who is no one on this machine.
const OTHER_USER: u32 = 65_534;
/// Connections that are made before anything is counted, and between the two counts.
const TRIES_BEFORE: usize = 200;
const TRIES: usize = 8_000;
/// Every hundredth connection stays open at the stranger's end.
const KEPT_OPEN: usize = 100;
/// Growth of a process's memory that has other causes: 16 bytes for each try.
const GROWTH_BYTES_MAX: u64 = 16 * TRIES as u64;

/// Tells its process and where it listens, and makes calls until the tester has seen enough.
fn visited(me: &Worker) -> Result<()> {
    let name = socket_name().expect("it listens");
    write_note(VISITED, me.id().number(), &format!("{} {name}", std::process::id()));
    let end = me.now() + limit();
    while !me.all_reduce(has_note(VISITED, TESTER), |a, b| a || b)? {
        assert!(me.now() < end, "the tester does not end the job");
        assert_eq!(me.call_return(me.neighbor(1), 20_u64, |_, x| x + 1)?.wait()?, 21);
    }
    Ok(())
}

#[test]
#[ignore = "a program for the test below"]
fn visited_program() {
    if let Err(error) = farside::job().processes(PROCESSES).time_limit(limit()).run(visited) {
        eprintln!("verdict: {error}");
        std::process::exit(1);
    }
}

/// Connects to a process. Returns the connection when the process has ended it.
fn try_in_vain(name: &str, number: usize) -> MessageSocket {
    let connect = || match MessageSocket::connect(&name.as_bytes()[1..]) {
        Ok(socket) => Some(socket),
        // The process has not accepted the last ones.
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    };
    let socket = wait_for("the process accepts connections", connect);
    if number.is_multiple_of(2) {
        // The process may have ended the connection already.
        let _ = socket.send(&[0x5a; 64], None);
    }
    let interest = Interest { fd: socket.as_fd(), writable: false };
    assert!(wait_ready(&[interest], Some(deadline())).unwrap()[0], "the process does not end the connection");
    match socket.receive(&mut [0; 1024]) {
        Ok(None) => {}
        Err(error) if is_end(&error) => {}
        other => panic!("the process answers: {other:?}"),
    }
    socket
}

/// Connects to each process, often, as another user. Returns the connections that stay open at the
/// stranger's end.
fn visit(names: &[String], tries: usize) -> Vec<MessageSocket> {
    let visit = || {
        // The identity of this thread alone.
        set_thread_user(OTHER_USER).unwrap();
        let mut open = Vec::new();
        for number in 0..tries {
            for name in names {
                let socket = try_in_vain(name, number);
                if number.is_multiple_of(KEPT_OPEN) {
                    open.push(socket);
                }
            }
        }
        open
    };
    std::thread::scope(|scope| scope.spawn(visit).join().unwrap())
}

/// Returns the process and the name of each socket when all are known.
fn take_names(launcher: u32) -> Vec<(String, String)> {
    let mut notes = vec![None; PROCESSES as usize];
    wait_until("all processes listen", || {
        for (all, new) in notes.iter_mut().zip(take_notes(launcher, VISITED, PROCESSES)) {
            *all = all.take().or(new);
        }
        !notes.contains(&None)
    });
    notes.iter().flatten().map(|note| note.split_once(' ').map(|(a, b)| (a.into(), b.into())).unwrap()).collect()
}

#[test]
fn other_users_are_refused_and_cost_nothing() {
    if !farside_testbed::is_privileged() {
        eprintln!("left out: other_users_are_refused_and_cost_nothing: it needs the right to become another user");
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(only(VISITED)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let launcher = command.spawn().unwrap();
    let pid = launcher.id();
    let (counts, output) = within_time(|| {
        let (processes, names): (Vec<_>, Vec<_>) = take_names(pid).into_iter().unzip();
        let count = || -> Vec<_> { processes.iter().map(|process| Holdings::of(process)).collect() };
        let mut open = visit(&names, TRIES_BEFORE);
        let before = count();
        open.extend(visit(&names, TRIES));
        let after = count();
        write_note_of(pid, VISITED, TESTER, "enough");
        let output = launcher.wait_with_output().unwrap();
        drop(open);
        (before.into_iter().zip(after).collect::<Vec<_>>(), output)
    });
    take_notes(pid, VISITED, TESTER + 1);
    assert!(output.status.success(), "the job says:\n{}", String::from_utf8_lossy(&output.stderr));
    for (before, after) in counts {
        let (descriptors, threads) = (before.descriptors, before.threads);
        assert_eq!((after.descriptors, after.threads), (descriptors, threads), "{before:?} {after:?}");
        assert!(after.memory_bytes <= before.memory_bytes + GROWTH_BYTES_MAX, "{before:?} {after:?}");
    }
}
