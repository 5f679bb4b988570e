//! Where functions that are called on a worker find its part in the search.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use farside::{PerWorker, Wire, Worker};

use super::JobError;
use super::part::Part;
use crate::game::Game;

/// What a worker works on: one search at a time, of any game.
#[derive(Default)]
pub(super) struct Desk {
    /// Counts the searches, so that a late message of the last one is not taken for one of this.
    search: u32,
    /// A [`Seat`] of the game that is searched.
    seat: Option<Box<dyn Any>>,
}

/// Where the workers of a process find what they have in common in a search: what the first of them left there.
#[derive(Default)]
pub(super) struct Shelf {
    /// By the number of the search.
    latest: Mutex<Option<(u32, Arc<dyn Any + Send + Sync>)>>,
}

impl Shelf {
    /// What belongs to this search; made if nobody has yet.
    pub(super) fn of_search<T: Send + Sync + 'static>(&self, search: u32, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let found = latest.as_ref().filter(|(number, _)| *number == search).map(|(_, shared)| Arc::clone(shared));
        if let Some(found) = found.and_then(|shared| shared.downcast().ok()) {
            return found;
        }
        let made = make();
        *latest = Some((search, Arc::clone(&made) as Arc<dyn Any + Send + Sync>));
        made
    }

    /// Keeps nothing of this search or of earlier ones any longer.
    fn clear(&self, search: u32) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.as_ref().is_some_and(|(number, _)| *number <= search) {
            *latest = None;
        }
    }
}

impl Desk {
    /// The number of the search that comes next.
    ///
    /// # Errors
    /// When there is one already.
    pub(super) fn next_search(&self) -> Result<u32, JobError> {
        if self.seat.is_some() { Err(JobError::InUse) } else { Ok(self.search.wrapping_add(1)) }
    }
}

/// A part, and what the search around it has to know.
pub(super) struct Seat<G: Game> {
    pub(super) part: Part<G>,
    pub(super) traffic: Traffic,
    /// Worker 0 has said that nothing is left to do.
    pub(super) is_over: bool,
    /// The expected line of play, once it has come back to worker 0.
    pub(super) line: Option<Vec<G::Move>>,
    /// What went wrong in a function that was called here.
    pub(super) failure: Option<farside::Error>,
}

/// Messages of a search, at one worker. Summed over all workers, as many were sent as were received when none is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
pub(super) struct Traffic {
    pub(super) sent: u64,
    pub(super) received: u64,
}

/// A search, as all workers know it.
#[derive(Clone, Copy, Debug, Wire)]
pub(super) struct Address {
    desk: PerWorker<RefCell<Desk>>,
    search: u32,
}

impl Address {
    /// Begins the next search at this worker's desk, which is free.
    pub(super) fn open<G: Game>(me: &Worker, desk: PerWorker<RefCell<Desk>>, part: Part<G>) -> Self {
        let mut here = desk.here(me).borrow_mut();
        here.search = here.search.wrapping_add(1);
        let traffic = Traffic::default();
        here.seat = Some(Box::new(Seat { part, traffic, is_over: false, line: None, failure: None }));
        Self { desk, search: here.search }
    }

    /// Ends the search here. What still comes for it is ignored.
    pub(super) fn close(self, me: &Worker, shelf: &Shelf) {
        self.desk.here(me).borrow_mut().seat = None;
        shelf.clear(self.search);
    }

    /// Does something at this worker's seat; nothing if the search is over here.
    #[inline]
    pub(super) fn at<G: Game, R>(self, me: &Worker, act: impl FnOnce(&mut Seat<G>) -> R) -> Option<R> {
        let mut desk = self.desk.here(me).borrow_mut();
        if desk.search != self.search {
            return None;
        }
        desk.seat.as_mut()?.downcast_mut().map(act)
    }
}

impl<G: Game> Seat<G> {
    /// Begins a run of so many rollouts.
    pub(super) fn begin(&mut self, rollouts: u64) {
        self.part.begin(rollouts);
        (self.is_over, self.line) = (false, None);
    }

    /// # Errors
    /// What went wrong in functions that were called here, once.
    pub(super) fn check(&mut self, me: &Worker) -> Result<(), JobError> {
        match (self.failure.take(), self.part.mismatch()) {
            (Some(failure), _) => Err(failure.into()),
            (None, Some(what)) => Err(JobError::Mismatch { worker: me.id(), what }),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").finish_non_exhaustive()
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("search", &self.search).field("is_taken", &self.seat.is_some()).finish()
    }
}
