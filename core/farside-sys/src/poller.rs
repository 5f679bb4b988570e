//! Waiting for many descriptors at once, by `epoll`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

/// A set of descriptors, each under a number of its owner's choice.
///
/// A descriptor is reported once for each event: when something arrives, when it becomes writable
/// after it was not, and when its other end closes. Its owner must read until nothing is left
/// before it waits for the next report.
#[derive(Debug)]
pub struct Poller(OwnedFd);

/// The readiness of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The number under which it was added.
    pub number: u64,
    /// True if the other end has closed or failed.
    pub has_ended: bool,
}

impl Poller {
    /// Creates an empty set.
    ///
    /// # Errors
    /// The operating system's error, usually too many open files.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Adds a descriptor. It leaves the set when it is closed, or by [`remove`](Self::remove).
    ///
    /// # Errors
    /// The operating system's error.
    pub fn add(&self, fd: BorrowedFd<'_>, number: u64) -> std::io::Result<()> {
        let events = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.0, fd, EventData::new_u64(number), events)?)
    }

    /// Adds a descriptor that is reported as long as it is readable: a listener, or another set.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn add_readable(&self, fd: BorrowedFd<'_>, number: u64) -> std::io::Result<()> {
        Ok(epoll::add(&self.0, fd, EventData::new_u64(number), EventFlags::IN)?)
    }

    /// Removes a descriptor.
    pub fn remove(&self, fd: BorrowedFd<'_>) {
        // The only failure is that the descriptor is not in the set.
        let _ = epoll::delete(&self.0, fd);
    }

    /// Waits until a descriptor is ready, at most for `time`; without a limit if that is `None`.
    /// Appends what is ready to `found`, up to its spare capacity. A signal ends the wait early.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn wait(&self, found: &mut Vec<Ready>, time: Option<Duration>) -> std::io::Result<()> {
        let time = time.map(|time| {
            let time = time.min(Duration::from_secs(1 << 30));
            Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
        });
        let mut events = Vec::with_capacity(64);
        match epoll::wait(&self.0, spare_capacity(&mut events), time.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        found.extend(events.iter().map(|event| {
            let flags = event.flags;
            let has_ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            Ready { number: event.data.u64(), has_ended }
        }));
        Ok(())
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{MessageSocket, Waker};

    fn look(poller: &Poller) -> Vec<Ready> {
        let mut found = Vec::new();
        poller.wait(&mut found, Some(Duration::ZERO)).unwrap();
        found
    }

    #[test]
    fn each_event_is_reported_once() {
        let poller = Poller::new().unwrap();
        let waker = Waker::new().unwrap();
        poller.add(waker.as_fd(), 7).unwrap();
        look(&poller); // It is writable.
        assert_eq!(look(&poller), []);
        for _ in 0..3 {
            waker.wake();
            assert_eq!(look(&poller), [Ready { number: 7, has_ended: false }]);
            assert_eq!(look(&poller), []);
        }
    }

    #[test]
    fn the_end_of_a_connection_is_reported() {
        let poller = Poller::new().unwrap();
        let (near, far) = MessageSocket::pair().unwrap();
        poller.add(near.as_fd(), 1).unwrap();
        look(&poller);
        drop(far);
        assert_eq!(look(&poller), [Ready { number: 1, has_ended: true }]);
        poller.remove(near.as_fd());
        assert_eq!(look(&poller), []);
    }
}
