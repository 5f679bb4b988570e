//! The attentiveness of a worker to the calls that have arrived for it, as others can see it.
//!
//! Each worker counts its looks in a word of its process's home. It reads no clock for that. A
//! reader reads the word twice and divides the time between by the looks.

use std::sync::atomic::Ordering;
use std::time::Duration;

use farside_fabric::WorkerId;

use super::Worker;
use crate::error::Result;

/// Set in the word while the worker sleeps until a call arrives.
const ASLEEP: u64 = 1 << 63;
/// The first time between two reads of the word, which doubles until there are enough looks.
const WINDOW_MIN: Duration = Duration::from_micros(500);
const WINDOW_MAX: Duration = Duration::from_millis(16);
/// The number of looks that are enough: one more or less then changes the result by 3 %.
const LOOKS_ENOUGH: u64 = 32;

impl Worker {
    /// Returns the mean time between two looks of a worker at its calls. A call to a worker that
    /// computes between its looks waits for half of that on average.
    ///
    /// The result is the mean over the last 0.5 to 16 ms, within one look of what happened then. A
    /// worker that mostly waits and sometimes computes for long has a short mean. The result is
    /// zero for a worker that sleeps, because a call wakes it. Without any look it is the time that
    /// was spent on watching, so the true interval is longer.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use farside::{Simulation, WorkerId};
    ///
    /// let simulation = Simulation::new(2, 1, 7).run(|me| {
    ///     if me.is_first() {
    ///         let interval = me.progress_interval(WorkerId::new(1))?;
    ///         assert!((80..130).contains(&interval.as_micros()), "{interval:?}");
    ///     } else {
    ///         for _ in 0..100 {
    ///             me.charge(Duration::from_micros(100));
    ///             me.progress()?;
    ///         }
    ///     }
    ///     me.barrier()
    /// })?;
    /// simulation.verdict?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    ///
    /// *Cost*: 0.5 to 16 ms, in which this worker serves others; 2 to 7 reads of a word. The worker
    /// `of` takes no part, and its looks cost less than a nanosecond more for it.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost); [`Error::InHandler`](crate::Error::InHandler)
    /// in a handler; [`Error::Fabric`](crate::Error::Fabric) if the other process cannot be
    /// reached.
    ///
    /// # Panics
    /// If there is no such worker.
    #[track_caller]
    pub fn progress_interval(&self, of: WorkerId) -> Result<Duration> {
        self.not_in_handler("watching a worker's progress")?;
        let place = self.process.job.place_of(of).expect("the worker belongs to this job");
        // The first read may have to connect, so the time begins after it.
        let first = self.looks_of(place)?;
        let begun = self.now();
        let mut window = WINDOW_MIN;
        loop {
            let is_over = |me: &Self| (me.now() - begun >= window).then_some(Ok(()));
            self.watch_until("watching a worker's progress", self.default_deadline(), is_over)?;
            let last = self.looks_of(place)?;
            let looks = (last & !ASLEEP).saturating_sub(first & !ASLEEP);
            if last & ASLEEP != 0 {
                return Ok(Duration::ZERO);
            }
            if looks >= LOOKS_ENOUGH || window >= WINDOW_MAX {
                return Ok((self.now() - begun) / looks.clamp(1, u64::from(u32::MAX)) as u32);
            }
            window *= 2;
        }
    }

    /// Reads the word of a thread.
    fn looks_of(&self, (process, local): (farside_fabric::ProcessId, usize)) -> Result<u64> {
        if let Some(lost) = self.process.losses.lost(process) {
            return Err(lost);
        }
        if let Some(home) = self.process.links.home_of(process) {
            return Ok(home.looks(local).load(Ordering::Relaxed));
        }
        let deadline = self.now() + self.default_deadline();
        let region = self.process.starter_region(process, deadline)?;
        if let Some(home) = self.process.links.home_of(process) {
            return Ok(home.looks(local).load(Ordering::Relaxed));
        }
        let mut word = 0_u64;
        let offset = self.home.layout().looks(local) as u64;
        let read = region.get(offset, bytemuck::bytes_of_mut(&mut word), deadline);
        read.map_err(|error| self.process.explain(error))?;
        Ok(word)
    }

    /// Counts a look. Only this thread writes the word, so that no read-modify-write is needed.
    #[inline]
    pub(super) fn count_look(&self) {
        let looks = self.home.looks(self.local);
        looks.store(looks.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Notes in the word that this worker sleeps, or no longer does.
    pub(super) fn note_sleep(&self, asleep: bool) {
        let looks = self.home.looks(self.local);
        let count = looks.load(Ordering::Relaxed) & !ASLEEP;
        looks.store(if asleep { count | ASLEEP } else { count }, Ordering::Relaxed);
    }
}
