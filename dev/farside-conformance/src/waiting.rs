//! Sleeping in `wait`, and all events that must end it.
//!
//! A wait that never ends shows as a check that does not end in time. A wait may end early: the
//! caller looks for an event, and waits again. No check counts how often that happens.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use farside_testbed::{is_past, now, soon};

use super::Fabric;
use super::harness::{Observed, Process, Service, Trial};
use farside_fabric::ids::ProcessId;
use farside_fabric::transport::{AtomicChange, Event, Operation, Outcome, Transport};

const PEER: ProcessId = ProcessId::new(1);

/// The deadline ends a wait without events. So does a deadline that has already passed.
pub fn a_wait_ends_at_its_deadline(fabric: &dyn Fabric) {
    let trial = Trial::new("a_wait_ends_at_its_deadline", 2);
    trial.service(Service::Nobody).run(fabric, |process| {
        let past = now();
        process.end().wait(&[], Some(past));
        process.end().wait(&[], Some(past));
        wait_until(process.end(), soon());
        greet_all(process);
        wait_until(process.end(), soon());
    });
}

/// An idle process sleeps in its wait, and does not return from it again and again: another thread
/// sees it asleep many times, in one and the same wait.
pub fn an_idle_wait_sleeps(fabric: &dyn Fabric) {
    const LOOKS: u32 = 20;
    Trial::new("an_idle_wait_sleeps", 2).service(Service::Nobody).run(fabric, |process| {
        greet_all(process);
        let (end, waits, is_over) = (process.end(), AtomicU64::new(0), AtomicBool::new(false));
        let idle = OnceLock::new();
        thread::scope(|scope| {
            let _ending = Ending { is_over: &is_over, end };
            scope.spawn(|| {
                idle.get_or_init(Observed::current);
                while !is_over.load(Ordering::SeqCst) {
                    end.progress();
                    assert_eq!(end.receive(), None, "no process sends anything");
                    waits.fetch_add(1, Ordering::SeqCst);
                    end.wait(&[], None);
                }
            });
            let (mut looks, mut seen) = (0, 0);
            process.until_inattentively("an idle process to stay asleep", || {
                let before = seen;
                seen = waits.load(Ordering::SeqCst);
                let sleeps_on = seen == before && idle.get().is_some_and(Observed::sleeps);
                looks = if sleeps_on { looks + 1 } else { 0 };
                (looks == LOOKS).then_some(())
            });
        });
        process.meet();
    });
}

/// Tells a thread that waits to end, also if a check fails.
struct Ending<'c> {
    is_over: &'c AtomicBool,
    end: &'c dyn Transport,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.end.wake();
    }
}

/// Waits and makes progress until the deadline has passed.
fn wait_until(end: &dyn Transport, deadline: Instant) {
    while !is_past(deadline) {
        end.progress();
        assert_eq!(end.receive(), None, "no process sends anything");
        end.wait(&[], Some(deadline));
    }
}

/// Connects all processes, and leaves nothing in flight.
fn greet_all(process: &Process) {
    process.meet();
    process.others().for_each(|peer| process.send(peer, b"hello"));
    process.others().for_each(|_| assert_eq!(process.next_message().1, b"hello"));
    process.meet();
}

/// A wake ends the wait that is under way, or the next one if it comes too early.
pub fn a_wake_ends_a_wait(fabric: &dyn Fabric) {
    const ROUNDS: u64 = 200;
    Trial::new("a_wake_ends_a_wait", 1).service(Service::Nobody).run(fabric, |process| {
        let end = process.end();
        let (rung, heard) = (AtomicU64::new(0), AtomicU64::new(0));
        let sleeper = OnceLock::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                sleeper.get_or_init(Observed::current);
                for round in 1..=ROUNDS {
                    while rung.load(Ordering::SeqCst) < round {
                        end.wait(&[], None);
                    }
                    heard.store(round, Ordering::SeqCst);
                }
            });
            for round in 1..=ROUNDS {
                // Sometimes at once, sometimes when the other thread has certainly fallen asleep.
                if round % 16 == 0 {
                    let sleeps = || sleeper.get().is_some_and(Observed::sleeps).then_some(());
                    process.until_inattentively("the sleeper to fall asleep", sleeps);
                }
                rung.store(round, Ordering::SeqCst);
                end.wake();
                process.until("the sleeper", || (heard.load(Ordering::SeqCst) == round).then_some(()));
            }
        });
    });
}

/// A wake without a wait is kept for the next wait.
pub fn a_wake_ends_the_next_wait(fabric: &dyn Fabric) {
    Trial::new("a_wake_ends_the_next_wait", 1).service(Service::Nobody).run(fabric, |process| {
        for _ in 0..20 {
            process.end().wake();
            process.end().wait(&[], None);
            // Two wakes before a wait count as one, and still end it.
            process.end().wake();
            process.end().wake();
            process.end().wait(&[], None);
        }
    });
}

/// Two processes wait only for each other's messages, without a service thread, and never oversleep
/// one.
pub fn a_message_ends_a_wait(fabric: &dyn Fabric) {
    const ROUNDS: u32 = 200;
    Trial::new("a_message_ends_a_wait", 2).service(Service::Nobody).run(fabric, |process| {
        let peer = ProcessId::new(1 - process.number());
        for round in 0..ROUNDS {
            if process.id() == PEER {
                assert_eq!(sleep_for_message(process.end()), round.to_le_bytes());
                process.send(peer, &round.to_le_bytes());
            } else {
                process.send(peer, &round.to_le_bytes());
                assert_eq!(sleep_for_message(process.end()), round.to_le_bytes());
            }
        }
    });
}

fn sleep_for_message(end: &dyn Transport) -> Vec<u8> {
    loop {
        end.progress();
        match end.receive() {
            Some(Event::Message { message, .. }) => return message,
            Some(gone @ Event::Disconnected { .. }) => panic!("no process has left, but this arrived: {gone:?}"),
            None => end.wait(&[], None),
        }
    }
}

/// A message ends the wait of a thread that sleeps for messages, even if another thread, which
/// waits for something else, took it in. This holds even if the cause of the wake is gone when the
/// sleeping thread looks.
pub fn a_message_that_another_thread_receives_ends_a_wait(fabric: &dyn Fabric) {
    const ROUNDS: u64 = 500;
    Trial::new("a_message_that_another_thread_receives_ends_a_wait", 2).service(Service::Nobody).run(
        fabric,
        |process| {
            let peer = ProcessId::new(1 - process.number());
            let end = process.end();
            greet_all(process);
            if process.id() != PEER {
                for round in 0..ROUNDS {
                    process.send(peer, &round.to_le_bytes());
                    assert_eq!(process.next_message().1, round.to_le_bytes());
                }
            } else {
                let heard = AtomicU64::new(0);
                thread::scope(|scope| {
                    scope.spawn(|| {
                        while heard.load(Ordering::SeqCst) < ROUNDS {
                            end.progress();
                            match end.receive() {
                                Some(Event::Message { from, message }) => {
                                    end.send(from, &message).expect("one message finds room");
                                    heard.fetch_add(1, Ordering::SeqCst);
                                }
                                Some(gone @ Event::Disconnected { .. }) => {
                                    panic!("no process has left, but this arrived: {gone:?}")
                                }
                                None => end.wait(&[], None),
                            }
                        }
                    });
                    let mut looks = 0_u32;
                    process.until("the sleeper", || {
                        // This thread makes progress almost without a pause.
                        looks += 1;
                        while !looks.is_multiple_of(1000) && heard.load(Ordering::SeqCst) < ROUNDS {
                            end.progress();
                            looks += 1;
                        }
                        (heard.load(Ordering::SeqCst) == ROUNDS).then_some(())
                    });
                });
            }
            process.meet();
        },
    );
}

/// The end of an operation ends the wait of the process that posted it.
pub fn a_completion_ends_a_wait(fabric: &dyn Fabric) {
    const ROUNDS: u64 = 100;
    Trial::new("a_completion_ends_a_wait", 2).service(Service::TargetsOnly).run(fabric, |process| {
        if process.id() != PEER {
            let key = process.attach_starter(PEER).key();
            for round in 0..ROUNDS {
                let add = Operation::Atomic64 { offset: 0, change: AtomicChange::Add(1) };
                let completion = process.post(key, &add);
                while !completion.has_ended() {
                    process.end().progress();
                    if !completion.has_ended() {
                        process.end().wait(&[], None);
                    }
                }
                let outcome = process.finish(completion, PEER);
                assert_eq!(outcome, Outcome::Previous(round));
            }
        }
        process.meet_inattentively();
    });
}

/// A descriptor that becomes readable ends a wait to which it was passed.
pub fn a_readable_descriptor_ends_a_wait(fabric: &dyn Fabric) {
    const ROUNDS: u8 = 50;
    Trial::new("a_readable_descriptor_ends_a_wait", 1).service(Service::Nobody).run(fabric, |process| {
        let end = process.end();
        let (mut near, mut far) = UnixStream::pair().expect("a pair of sockets");
        let (_silent, other) = UnixStream::pair().expect("a pair of sockets");
        let (written, read) = (AtomicU64::new(0), AtomicU64::new(0));
        let sleeper = OnceLock::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                sleeper.get_or_init(Observed::current);
                for round in 1..=ROUNDS {
                    while written.load(Ordering::SeqCst) < round.into() {
                        end.wait(&[other.as_fd(), near.as_fd()], None);
                    }
                    let mut byte = [0];
                    near.read_exact(&mut byte).expect("what was written can be read");
                    assert_eq!(byte, [round]);
                    read.store(round.into(), Ordering::SeqCst);
                }
            });
            for round in 1..=ROUNDS {
                if round % 8 == 0 {
                    let sleeps = || sleeper.get().is_some_and(Observed::sleeps).then_some(());
                    process.until_inattentively("the reader to fall asleep", sleeps);
                }
                far.write_all(&[round]).expect("a byte fits");
                written.store(round.into(), Ordering::SeqCst);
                process.until("the reader", || (read.load(Ordering::SeqCst) == u64::from(round)).then_some(()));
            }
        });
    });
}
