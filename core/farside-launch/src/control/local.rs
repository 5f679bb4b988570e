//! The control link of a simulated process: two queues in one program.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};

use super::{Control, ToCoordinator, ToProcess};

/// The process's end of the link. It never closes, because the coordinator outlives the processes.
pub struct LocalControl {
    received: Mutex<VecDeque<ToProcess>>,
    say: Box<dyn Fn(ToCoordinator) + Send + Sync>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl LocalControl {
    /// Makes a link. `say` receives the process's messages, and `wake` wakes the process when a
    /// message arrives for it.
    pub fn new(say: impl Fn(ToCoordinator) + Send + Sync + 'static, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { received: Mutex::default(), say: Box::new(say), wake: Box::new(wake) }
    }

    /// Delivers a message from the coordinator to the process.
    pub fn deliver(&self, message: ToProcess) {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).push_back(message);
        (self.wake)();
    }
}

impl Control for LocalControl {
    fn send(&self, message: ToCoordinator) {
        (self.say)(message);
    }

    fn receive(&self) -> Option<ToProcess> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl fmt::Debug for LocalControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalControl").field("received", &self.received).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn messages_go_both_ways_and_wake() {
        let (said, hear) = mpsc::channel();
        let wakes = Arc::new(AtomicU32::new(0));
        let counted = wakes.clone();
        let control = LocalControl::new(
            move |message| said.send(message).unwrap(),
            move || {
                counted.fetch_add(1, Ordering::Relaxed);
            },
        );
        let idle = ToCoordinator::Idle { round: 0, sent: 0, executed: 0 };
        control.send(idle.clone());
        assert_eq!(hear.try_recv(), Ok(idle));
        assert_eq!(control.receive(), None);
        control.deliver(ToProcess::Confirm { round: 1 });
        control.deliver(ToProcess::Finish);
        assert_eq!(wakes.load(Ordering::Relaxed), 2);
        assert_eq!(control.receive(), Some(ToProcess::Confirm { round: 1 }));
        assert_eq!(control.receive(), Some(ToProcess::Finish));
        assert_eq!(control.receive(), None);
    }
}
