//! Finds a worker's part in a search, for functions that other workers call on it.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;

use farside::{PerWorker, Wire, Worker};

use super::JobError;
use super::part::Part;
use crate::game::Game;

/// The current search of a worker, of any game. There is one search at a time.
#[derive(Default)]
pub(super) struct Desk {
    /// Number of searches so far. It tells a late message of an earlier search from one of this
    /// search.
    search: u32,
    /// A [`Seat`] of the game.
    seat: Option<Box<dyn Any>>,
}

impl Desk {
    /// Checks that no search is in progress.
    ///
    /// # Errors
    /// [`JobError::InUse`] otherwise.
    pub(super) fn check_free(&self) -> Result<(), JobError> {
        if self.seat.is_some() { Err(JobError::InUse) } else { Ok(()) }
    }

    /// The seat, if a search is in progress.
    pub(super) fn seat(&mut self) -> Option<&mut dyn Any> {
        self.seat.as_deref_mut()
    }
}

/// A part of a search, with the state of the search around it.
pub(super) struct Seat<G: Game> {
    pub(super) part: Part<G>,
    pub(super) traffic: Traffic,
    /// True if worker 0 has ended the run.
    pub(super) is_over: bool,
    /// The expected line of play, once it has arrived at worker 0.
    pub(super) line: Option<Vec<G::Move>>,
    /// The first error in a function that another worker called here.
    pub(super) failure: Option<farside::Error>,
}

/// Numbers of messages of a search at one worker. Over all workers, both sums are equal if no
/// message is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
pub(super) struct Traffic {
    pub(super) sent: u64,
    pub(super) received: u64,
}

/// The name of a search, valid on all workers.
#[derive(Clone, Copy, Debug, Wire)]
pub(super) struct Address {
    desk: PerWorker<RefCell<Desk>>,
    search: u32,
}

impl Address {
    /// Begins the next search at this worker. Its desk is free.
    pub(super) fn open<G: Game>(me: &Worker, desk: PerWorker<RefCell<Desk>>, part: Part<G>) -> Self {
        let mut here = desk.here(me).borrow_mut();
        here.search = here.search.wrapping_add(1);
        let traffic = Traffic::default();
        here.seat = Some(Box::new(Seat { part, traffic, is_over: false, line: None, failure: None }));
        Self { desk, search: here.search }
    }

    /// Ends the search at this worker. Messages that arrive for it later are ignored.
    pub(super) fn close(self, me: &Worker) {
        self.desk.here(me).borrow_mut().seat = None;
    }

    /// Calls `act` with this worker's seat. Returns `None` if the search is over at this worker.
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
    /// Begins a run with a budget of `rollouts`.
    pub(super) fn begin(&mut self, rollouts: u64) {
        self.part.begin(rollouts);
        (self.is_over, self.line) = (false, None);
    }

    /// Reports errors in functions that other workers called here.
    ///
    /// # Errors
    /// The first of them, once.
    pub(super) fn check(&mut self, me: &Worker) -> Result<(), JobError> {
        match (self.failure.take(), self.part.mismatch()) {
            (Some(failure), _) => Err(failure.into()),
            (None, Some(what)) => Err(JobError::Mismatch { worker: me.id(), what }),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("search", &self.search).field("is_taken", &self.seat.is_some()).finish()
    }
}
