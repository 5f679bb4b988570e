//! The control link of a process that another launcher started: a stream to process 0.

use std::io::ErrorKind;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farside_sys::net::{Interest, wait_ready};

use super::frames::{FrameReader, FrameWriter};
use super::{Control, Ending, ToCoordinator, ToProcess};

/// The time for which process 0 may leave messages unread before the link counts as dead.
const UNREAD_MAX: Duration = Duration::from_secs(30);

/// The pad that conceals the job's secret on one stream. Both ends compute it.
pub(crate) type Pad = [u8; 16];

/// Encodes a message, with the job's secret concealed if it holds that.
pub(crate) fn encode_concealed(message: &ToProcess, pad: &Pad) -> Vec<u8> {
    match message {
        ToProcess::Start { job_id, secret } => ToProcess::Start { job_id: *job_id, secret: xor(*secret, pad) }.encode(),
        other => other.encode(),
    }
}

/// Reveals the job's secret in a message that [`encode_concealed`] made.
fn revealed(message: ToProcess, pad: &Pad) -> ToProcess {
    match message {
        ToProcess::Start { job_id, secret } => ToProcess::Start { job_id, secret: xor(secret, pad) },
        other => other,
    }
}

fn xor(secret: [u8; 16], pad: &Pad) -> [u8; 16] {
    std::array::from_fn(|index| secret[index] ^ pad[index])
}

/// The process's end of the stream.
#[derive(Debug)]
pub(crate) struct TcpControl {
    stream: TcpStream,
    reader: Mutex<FrameReader>,
    writer: Mutex<FrameWriter>,
    pad: Pad,
    /// True if sending a message failed. Set by any sending thread, read by the receiving thread.
    /// It orders nothing else.
    unsendable: AtomicBool,
    /// True if there is nothing more to receive. Set by the receiving thread.
    ended: AtomicBool,
    /// True if the link broke before the job was over, so that process 0 may lack messages of this
    /// process. Set by the receiving thread.
    broken: AtomicBool,
}

impl TcpControl {
    /// Makes a link over a non-blocking stream, of which `reader` may already hold some bytes.
    pub(crate) fn new(stream: TcpStream, reader: FrameReader, pad: Pad) -> Self {
        Self {
            stream,
            reader: Mutex::new(reader),
            writer: Mutex::default(),
            pad,
            unsendable: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        }
    }

    /// Ends the link for this reason.
    fn break_off(&self, why: String) -> Option<ToProcess> {
        self.broken.store(true, Ordering::Relaxed);
        let ended_before = self.ended.swap(true, Ordering::Relaxed);
        (!ended_before).then_some(ToProcess::Ended { why: Ending::Other(why) })
    }

    fn writer(&self) -> MutexGuard<'_, FrameWriter> {
        // A panic leaves at worst unsent bytes, which are valid.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the unsent bytes. Returns `false` if that is impossible.
    fn flush(&self) -> bool {
        let deadline = Instant::now() + UNREAD_MAX;
        loop {
            let mut writer = self.writer();
            if writer.flush(&self.stream).is_err() {
                return false;
            }
            if writer.is_empty() {
                return true;
            }
            drop(writer);
            let writable = Interest { fd: self.stream.as_fd(), writable: true };
            if Instant::now() >= deadline || wait_ready(&[writable], Some(deadline)).is_err() {
                return false;
            }
        }
    }
}

impl Control for TcpControl {
    /// Waits only if process 0 has left a great many messages unread.
    fn send(&self, message: ToCoordinator) {
        self.writer().push(&message.encode());
        if !self.flush() {
            self.unsendable.store(true, Ordering::Relaxed);
        }
    }

    fn receive(&self) -> Option<ToProcess> {
        if self.ended.load(Ordering::Relaxed) {
            return None;
        }
        let received = self.reader.lock().unwrap_or_else(PoisonError::into_inner).receive(&self.stream);
        match received {
            Ok(Some(bytes)) => {
                let Some(message) = ToProcess::decode(&bytes) else {
                    return self.break_off("process 0 sent an unknown message: build both from one version".into());
                };
                // These two are the last messages; process 0 may exit after them.
                let is_last = matches!(message, ToProcess::Finish | ToProcess::Ended { .. });
                self.ended.fetch_or(is_last, Ordering::Relaxed);
                Some(revealed(message, &self.pad))
            }
            Ok(None) => self.break_off("process 0, which coordinates it, is gone".into()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let unsendable = self.unsendable.load(Ordering::Relaxed);
                unsendable
                    .then(|| self.break_off("process 0, which coordinates it, no longer reads messages".into()))?
            }
            Err(error) => {
                self.break_off(format!("the connection with process 0, which coordinates it, broke: {error}"))
            }
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        // A stream stays readable after its end.
        (!self.ended.load(Ordering::Relaxed)).then(|| self.stream.as_fd())
    }

    fn is_heard(&self) -> bool {
        !self.broken.load(Ordering::Relaxed) && !self.unsendable.load(Ordering::Relaxed)
    }

    fn leads_to_a_process(&self) -> bool {
        true
    }

    fn leave(&self) {
        // It fails if either end is gone, and then no process waits for it.
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use farside_sys::net::{MESSAGE_BYTES_MAX, tcp};

    use super::super::link::{Link, LinkState};
    use super::*;

    const PAD: Pad = [0x5a; 16];

    fn link() -> (Link, TcpControl) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        [&near, &far].into_iter().for_each(|stream| tcp::configure(stream, farside_testbed::limit()).unwrap());
        let reader = || FrameReader::new(MESSAGE_BYTES_MAX);
        (Link::over_stream(near, reader(), PAD), TcpControl::new(far, reader(), PAD))
    }

    fn await_readable(fd: BorrowedFd<'_>) {
        assert!(wait_ready(&[Interest { fd, writable: false }], Some(farside_testbed::deadline())).unwrap()[0]);
    }

    fn next(control: &TcpControl) -> ToProcess {
        loop {
            if let Some(message) = control.receive() {
                return message;
            }
            await_readable(control.fd().expect("the link is open"));
        }
    }

    fn ending(control: &TcpControl) -> String {
        match next(control) {
            ToProcess::Ended { why: Ending::Other(why) } => why,
            other => panic!("no end, but {other:?}"),
        }
    }

    #[test]
    fn messages_go_both_ways_in_order_and_the_secret_conceals_itself() {
        let (mut link, control) = link();
        let idle = |round| ToCoordinator::Idle { round, sent: 1, executed: 2 };
        (0..3).for_each(|round| control.send(idle(round)));
        let mut heard = Vec::new();
        while heard.len() < 3 {
            await_readable(link.fd());
            assert_eq!(link.receive(&mut heard), LinkState::Open);
        }
        assert_eq!(heard, [0, 1, 2].map(idle));

        let start = ToProcess::Start { job_id: 3, secret: [9; 16] };
        assert_ne!(encode_concealed(&start, &PAD), start.encode());
        assert_eq!(control.receive(), None);
        link.tell(&start);
        link.tell(&ToProcess::Finish);
        assert_eq!(next(&control), start);
        assert_eq!(next(&control), ToProcess::Finish);
        assert!(control.fd().is_none(), "nothing comes after the finish");
        drop(link);
        assert_eq!(control.receive(), None);
        assert!(control.is_heard());
    }

    #[test]
    fn a_link_that_breaks_ends_once() {
        let (link, control) = link();
        drop(link);
        assert!(ending(&control).contains("process 0, which coordinates it, is gone"));
        assert_eq!(control.receive(), None);
        assert!(control.fd().is_none() && !control.is_heard());
    }

    #[test]
    fn a_malformed_message_ends_the_link() {
        let (mut link, control) = link();
        let Link::Stream { writer, .. } = &mut link else { unreachable!() };
        writer.push(b"hello?");
        link.flush();
        assert!(ending(&control).contains("unknown message"));
        assert!(!control.is_heard());
    }

    #[test]
    fn a_leaver_is_reported_and_then_silent() {
        let (mut link, control) = link();
        control.leave();
        await_readable(link.fd());
        assert_eq!(link.receive(&mut Vec::new()), LinkState::Closed);
        assert!(control.is_heard());
        control.send(ToCoordinator::Idle { round: 0, sent: 0, executed: 0 });
        assert!(!control.is_heard());
    }

    #[test]
    fn a_sender_waits_for_a_slow_reader() {
        let (mut link, control) = link();
        let message = ToCoordinator::Failed { message: "x".repeat(4000), because_of: None };
        let count = 2000;
        std::thread::scope(|scope| {
            scope.spawn(|| (0..count).for_each(|_| control.send(message.clone())));
            let mut heard = Vec::new();
            while heard.len() < count {
                await_readable(link.fd());
                assert_eq!(link.receive(&mut heard), LinkState::Open);
            }
            assert!(heard.iter().all(|heard| *heard == message));
        });
        assert!(control.is_heard());
    }
}
