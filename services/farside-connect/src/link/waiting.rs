//! How threads wait for something that a frame brings.
//!
//! On a client, the first thread that waits *drives* the link: it receives the frames for all
//! threads. The others sleep until their own answer has come or that thread has stopped. Then one
//! of them drives. So a single caller receives its answer without a switch between threads. On a
//! server, and on a client on tokio, a loop drives.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use farside_sys::net::{Interest, wait_ready};

use super::Link;
use crate::path::LinkEnd;
use crate::patience::{self, Patience, WaitEnd};

thread_local! {
    /// True if this thread never drives a link of a server in turns. The server's turns drive it.
    static LEAVES_TURNS_TO_DRIVE: Cell<bool> = const { Cell::new(false) };
}

/// Makes this thread leave it to a server's turns to receive for it.
pub(crate) fn leave_turns_to_drive() {
    LEAVES_TURNS_TO_DRIVE.set(true);
}

/// The time between two looks at a link for which nothing else receives.
const LOOK_ELSEWHERE: Duration = Duration::from_millis(1);
/// The number of looks between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 64;

impl Link {
    /// Waits until `look` returns something.
    ///
    /// # Errors
    /// [`WaitEnd`].
    pub fn wait<T>(self: &Arc<Self>, patience: &Patience, mut look: impl FnMut() -> Option<T>) -> Result<T, WaitEnd> {
        if self.is_forked() {
            return Err(WaitEnd::Link(LinkEnd::Forked));
        }
        let mut entered = None;
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            if let Some(end) = self.end() {
                return look().ok_or_else(|| WaitEnd::Link(end.clone()));
            }
            if let (Some(cancelled), None) = (&patience.cancelled, &entered) {
                entered = Some(cancelled.enter(self.clone()));
            }
            if patience.is_cancelled() {
                return Err(WaitEnd::Cancelled);
            }
            let drive = if self.may_drive() { self.try_drive() } else { None };
            if let Some(mut scratch) = drive {
                let found = self.drive(patience, &mut scratch, &mut look);
                drop(scratch);
                self.wake_waiting();
                if let Some(found) = found {
                    return Ok(found);
                }
            } else if let Some(found) = self.wait_for_driver(patience, &mut look) {
                return Ok(found);
            }
            if Instant::now() >= patience.deadline && self.end().is_none() {
                return look().ok_or(WaitEnd::Deadline);
            }
        }
    }

    /// Waits as [`wait`](Self::wait) does, and now and then has another link receive.
    pub fn wait_and_receive<T>(
        self: &Arc<Self>,
        patience: &Patience,
        receive_elsewhere: impl Fn(),
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitEnd> {
        loop {
            let deadline = patience.deadline.min(Instant::now() + LOOK_ELSEWHERE);
            let short = Patience { deadline, cancelled: patience.cancelled.clone() };
            match self.wait(&short, &mut look) {
                Err(WaitEnd::Deadline) if deadline < patience.deadline => receive_elsewhere(),
                waited => return waited,
            }
        }
    }

    fn may_drive(&self) -> bool {
        let is_elsewhere = self.limits.has_loop || self.limits.serves && LEAVES_TURNS_TO_DRIVE.get();
        !is_elsewhere && self.path.may_receive()
    }

    /// Returns whether this thread is in a handler of a server in turns, and so must receive by
    /// itself what it waits for.
    pub(crate) fn is_driven_here(&self) -> bool {
        self.limits.serves && !self.limits.has_loop && patience::is_handling()
    }

    /// Receives until `look` returns something, the deadline passes, or the link ends.
    fn drive<T>(
        self: &Arc<Self>,
        patience: &Patience,
        scratch: &mut Vec<u8>,
        look: &mut impl FnMut() -> Option<T>,
    ) -> Option<T> {
        self.receiving.count();
        let mut looks: u32 = 0;
        let mut idle_since = None;
        loop {
            let count = self.step(scratch).ok()?;
            looks = looks.wrapping_add(1);
            let is_quick = count == 0 && !self.limits.spin.is_zero() && !looks.is_multiple_of(LOOKS_PER_CLOCK);
            // Little but frames brings what the thread waits for.
            if !is_quick && let Some(found) = look() {
                return Some(found);
            }
            if count > 0 {
                idle_since = None;
                // The frames were for other threads.
                self.wake_waiting();
            }
            std::hint::spin_loop();
            if is_quick {
                continue;
            }
            if count > 0 && !looks.is_multiple_of(LOOKS_PER_CLOCK) {
                continue;
            }
            let now = Instant::now();
            if now >= patience.deadline || patience.is_cancelled() {
                return None;
            }
            if count == 0 && now - *idle_since.get_or_insert(now) >= self.limits.spin {
                self.sleep(patience.deadline);
                idle_since = None;
            }
        }
    }

    /// Returns how often a thread has begun to drive.
    pub fn driven(&self) -> u64 {
        self.receiving.begun()
    }

    /// Takes the right to drive, unless another thread has it.
    pub fn try_drive(&self) -> Option<MutexGuard<'_, Vec<u8>>> {
        self.receiving.try_take()
    }

    /// Receives what has arrived, for the loop of a client. Returns the number of frames.
    ///
    /// # Errors
    /// [`LinkEnd`] once the link has ended.
    #[cfg(feature = "tokio")]
    pub fn receive(self: &Arc<Self>) -> Result<usize, LinkEnd> {
        let received = self.step(&mut self.receiving.take());
        if received != Ok(0) {
            self.wake_waiting();
        }
        received
    }

    /// Receives what has arrived, unless another thread receives. Returns whether the link goes on.
    pub fn look(self: &Arc<Self>) -> bool {
        if !self.is_forked()
            && let Some(mut scratch) = self.try_drive()
        {
            self.path.look();
            // A failure is noted in the link.
            let _ = self.step(&mut scratch);
            drop(scratch);
            self.wake_waiting();
        }
        self.end().is_none()
    }

    /// Sleeps until something may have arrived.
    pub(crate) fn sleep(&self, deadline: Instant) {
        if !self.path.pass_time() && self.path.prepare_sleep() {
            let (socket, waker) = self.path.descriptors();
            let socket = Interest { fd: socket, writable: waker.is_none() && self.path.backlog_bytes() > 0 };
            let waker = waker.map(|fd| Interest { fd, writable: false });
            let poke = self.receiving.poke.as_ref();
            let poke = poke.map(|poke| Interest { fd: poke.as_fd(), writable: false });
            let interests: Vec<_> = [socket].into_iter().chain(waker).chain(poke).collect();
            // A failure ends the sleep early, and the caller looks again.
            let ready = wait_ready(&interests, Some(deadline)).unwrap_or_default();
            self.path.end_sleep();
            if ready.first() == Some(&true) {
                self.path.look();
            }
            if ready.last() == Some(&true)
                && let Some(poke) = &self.receiving.poke
            {
                poke.reset();
            }
        }
    }

    /// Sleeps until `look` returns something or no thread drives the link.
    fn wait_for_driver<T>(&self, patience: &Patience, look: &mut impl FnMut() -> Option<T>) -> Option<T> {
        self.receiving.wait(|| {
            let found = look();
            let may_drive = self.may_drive() && self.try_drive().is_some();
            let sleeps = found.is_none() && !may_drive && self.end().is_none() && !patience.is_cancelled();
            let left = patience.deadline.saturating_duration_since(Instant::now());
            // Cancelling wakes the threads that wait, too.
            (found, sleeps.then(|| left.min(Duration::from_secs(1 << 30))))
        })
    }

    /// Wakes the waiting threads, so that they look at their flags.
    pub fn wake_waiting(&self) {
        self.receiving.wake_others();
    }

    /// Wakes the thread that drives, so that it looks whether it can send, and at its flags.
    pub fn wake_driver(&self) {
        if let Some(poke) = &self.receiving.poke {
            poke.wake();
        }
    }
}
