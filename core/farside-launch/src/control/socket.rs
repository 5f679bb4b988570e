//! The control link of a child of the launcher: a message socket that the child inherits.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farside_sys::net::{Interest, MESSAGE_BYTES_MAX, MessageSocket, wait_ready};

use super::{Control, Ending, ToCoordinator, ToProcess};

/// The longest time for which the launcher may leave messages unread before the link counts as
/// dead. The launcher has no other work, so only a stopped launcher takes this long.
const UNREAD_MAX: Duration = Duration::from_secs(30);

/// The process's end of a socket.
#[derive(Debug)]
pub struct SocketControl {
    socket: MessageSocket,
    /// True if sending a message failed. Set by any sending thread, read by the receiving thread.
    /// It orders nothing else.
    unsendable: AtomicBool,
    /// True if the end was received. Set and read by the receiving thread.
    ended: AtomicBool,
}

impl SocketControl {
    /// Makes the process's end of the link from its socket.
    pub fn new(socket: MessageSocket) -> Self {
        Self { socket, unsendable: AtomicBool::new(false), ended: AtomicBool::new(false) }
    }

    fn end(&self, why: String) -> Option<ToProcess> {
        let ended_before = self.ended.swap(true, Ordering::Relaxed);
        (!ended_before).then_some(ToProcess::Ended { why: Ending::Other(why) })
    }
}

impl Control for SocketControl {
    /// Waits only if the launcher has left dozens of messages unread.
    fn send(&self, message: ToCoordinator) {
        let bytes = message.encode();
        let deadline = Instant::now() + UNREAD_MAX;
        loop {
            match self.socket.send(&bytes, None) {
                Ok(()) => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < deadline => {
                    let writable = Interest { fd: self.socket.as_fd(), writable: true };
                    if wait_ready(&[writable], Some(deadline)).is_err() {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        self.unsendable.store(true, Ordering::Relaxed);
    }

    fn receive(&self) -> Option<ToProcess> {
        if self.ended.load(Ordering::Relaxed) {
            return None;
        }
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        loop {
            return match self.socket.receive(&mut buffer) {
                Ok(Some(received)) => ToProcess::decode(&buffer[..received.bytes])
                    .or_else(|| self.end("the launcher sent an unknown message: build both from one version".into())),
                Ok(None) => self.end("the launcher is gone".into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let unsendable = self.unsendable.load(Ordering::Relaxed);
                    unsendable.then(|| self.end("the launcher no longer reads messages".into())).flatten()
                }
                Err(error) => self.end(format!("the link with the launcher failed: {error}")),
            };
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        // A socket stays readable after its end.
        (!self.ended.load(Ordering::Relaxed)).then(|| self.socket.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use farside_fabric::ProcessId;

    use super::*;

    fn link() -> (MessageSocket, SocketControl) {
        let (near, far) = MessageSocket::pair().unwrap();
        (near, SocketControl::new(far))
    }

    fn ending(control: &SocketControl) -> String {
        match control.receive() {
            Some(ToProcess::Ended { why: Ending::Other(why) }) => why,
            other => panic!("no end, but {other:?}"),
        }
    }

    #[test]
    fn messages_go_both_ways_in_order() {
        let (launcher, control) = link();
        let idle = |round| ToCoordinator::Idle { round, sent: 1, executed: 2 };
        control.send(idle(0));
        control.send(idle(1));
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        for round in 0..2 {
            let received = launcher.receive(&mut buffer).unwrap().unwrap();
            assert_eq!(ToCoordinator::decode(&buffer[..received.bytes]), Some(idle(round)));
        }
        assert_eq!(control.receive(), None);
        let lost = ToProcess::Lost {
            process: ProcessId::new(3),
            root: ProcessId::new(2),
            why: "was killed by signal 9".into(),
        };
        launcher.send(&lost.encode(), None).unwrap();
        launcher.send(&ToProcess::Finish.encode(), None).unwrap();
        assert_eq!(control.receive(), Some(lost));
        assert_eq!(control.receive(), Some(ToProcess::Finish));
        assert_eq!(control.receive(), None);
    }

    #[test]
    fn a_closed_link_ends_once() {
        let (launcher, control) = link();
        launcher.send(&ToProcess::Finish.encode(), None).unwrap();
        drop(launcher);
        control.send(ToCoordinator::Idle { round: 0, sent: 0, executed: 0 });
        assert_eq!(control.receive(), Some(ToProcess::Finish));
        assert!(control.fd().is_some());
        assert!(ending(&control).contains("gone"));
        assert_eq!(control.receive(), None);
        assert!(control.fd().is_none());
    }

    #[test]
    fn a_malformed_message_ends_the_link() {
        let (launcher, control) = link();
        launcher.send(b"hello?", None).unwrap();
        assert!(ending(&control).contains("unknown message"));
        assert_eq!(control.receive(), None);
    }

    #[test]
    fn a_sender_waits_for_a_slow_reader() {
        let (launcher, control) = link();
        let message = ToCoordinator::Failed { message: "x".repeat(4000), because_of: None };
        let count = 1000;
        std::thread::scope(|scope| {
            scope.spawn(|| (0..count).for_each(|_| control.send(message.clone())));
            let mut buffer = [0; MESSAGE_BYTES_MAX];
            for _ in 0..count {
                let readable = Interest { fd: launcher.as_fd(), writable: false };
                wait_ready(&[readable], Some(farside_testbed::deadline())).unwrap();
                let received = launcher.receive(&mut buffer).unwrap().unwrap();
                assert_eq!(ToCoordinator::decode(&buffer[..received.bytes]).as_ref(), Some(&message));
            }
        });
        assert_eq!(control.receive(), None);
    }
}
