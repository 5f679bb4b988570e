//! A search on a job that keeps its tree from move to move.

use std::fmt;
use std::time::Duration;

use super::desk::{Address, Seat};
use super::finish::{self, FIRST};
use super::part::{Uprooted, Whereabouts};
use super::serve::at;
use super::settle::settle;
use super::{JobError, OnJob};
use crate::game::Game;
use crate::search::{Budget, Report, Search, after};

/// A search on a job that keeps its tree between runs, and follows the game as moves are played.
///
/// [`Session`](crate::Session) is the same in one thread. All workers of the job have a session,
/// and call its methods in the same order as other collectives.
pub struct JobSession<'w, G: Game + Clone> {
    search: Search<G, OnJob<'w>>,
    address: Address,
    state: G::State,
    /// Number of visits of the root.
    visits: u64,
}

impl<'w, G: Game + Clone> Search<G, OnJob<'w>> {
    /// Begins a search that keeps its tree, together with all workers of the job.
    ///
    /// # Errors
    /// [`JobError::Search`] if the game is over or a parameter is invalid. [`JobError::InUse`] if
    /// another session uses the same [`OnJob`].
    pub fn session(self, state: &G::State) -> Result<JobSession<'w, G>, JobError> {
        let address = self.open(state)?;
        Ok(JobSession { search: self, address, state: state.clone(), visits: 0 })
    }
}

impl<G: Game + Clone> JobSession<'_, G> {
    /// Continues the search in its tree. The moves of the report count the visits of all runs; its
    /// other figures are those of this run.
    ///
    /// # Errors
    /// As for [`Search::run`]. After any error but [`JobError::Search`], drop the session.
    pub fn run(&mut self, budget: Budget) -> Result<Report<G::Move>, JobError> {
        let report = self.search.search(self.address, self.visits, budget)?;
        self.visits = report.kept + report.rollouts;
        Ok(report)
    }

    /// Plays a move. The next run searches the position after it.
    ///
    /// Keeps the part of the tree below the move, and frees the rest. A legal move that was not
    /// searched leaves an empty tree. Less is kept if worker 0 has no memory for the new root's
    /// moves, or the root's old owner has none for their entries.
    ///
    /// *Cost*: every worker walks through its part of the tree once and moves the nodes that it
    /// keeps. There is a message for each kept edge between two workers, and some collectives.
    ///
    /// # Errors
    /// [`JobError::Search`] with [`IllegalMove`](crate::SearchError::IllegalMove),
    /// [`GameOver`](crate::SearchError::GameOver) or [`NoMoves`](crate::SearchError::NoMoves) if
    /// the position after the move cannot be searched; the session is unchanged. Others as for
    /// [`run`](Self::run).
    pub fn advance(&mut self, chosen: G::Move) -> Result<(), JobError> {
        let (me, address) = (self.search.place.me, self.address);
        let (state, moves) = after(&self.search.game, &self.state, chosen)?;
        at(me, address, |seat: &mut Seat<G>| seat.part.check_room(&moves))?;
        // Messages of idle workers may still be under way.
        settle::<G>(me, address)?;
        let uprooted = self.uproot(chosen)?;
        at(me, address, |seat: &mut Seat<G>| seat.part.begin_keeping());
        me.barrier()?;
        at(me, address, |seat: &mut Seat<G>| {
            seat.act(me, address, |part, mail| part.keep_below(chosen, uprooted.as_ref(), mail));
        });
        settle::<G>(me, address)?;
        let visits = at(me, address, |seat: &mut Seat<G>| {
            seat.part.end_keeping((&state, &moves), uprooted);
            seat.part.root_visits()
        });
        self.visits = me.broadcast(FIRST, (me.id() == FIRST).then_some(visits))?;
        self.state = state;
        Ok(())
    }

    /// Sends the node of a move from its owner to worker 0, if another worker owns it.
    fn uproot(&self, chosen: G::Move) -> Result<Option<Uprooted<G::Move>>, JobError> {
        let (me, address) = (self.search.place.me, self.address);
        let whereabouts = at(me, address, |seat: &mut Seat<G>| seat.part.whereabouts(chosen));
        let Whereabouts::There(owner, entry) = me.broadcast(FIRST, whereabouts)? else { return Ok(None) };
        let uprooted = at(me, address, |seat: &mut Seat<G>| {
            if me.id() != owner {
                return Ok(None);
            }
            let uprooted = seat.part.uproot(entry);
            uprooted.map(Some).ok_or(JobError::Mismatch { worker: owner, what: "a node" })
        })?;
        Ok(Some(me.broadcast(owner, uprooted)?))
    }

    /// Returns a report of the kept tree without a run, or `None` if the tree is empty. A
    /// collective.
    ///
    /// # Errors
    /// As for [`run`](Self::run), except [`JobError::Search`].
    pub fn report(&mut self) -> Result<Option<Report<G::Move>>, JobError> {
        let me = self.search.place.me;
        at(me, self.address, |seat: &mut Seat<G>| seat.begin(0));
        me.barrier()?;
        let sent_before = me.counters().sent;
        if me.id() == FIRST {
            finish::find_line::<G>(me, self.address)?;
        }
        finish::report::<G>(me, self.address, &sent_before, Duration::ZERO)
    }

    /// Returns the position of the next run.
    #[must_use]
    pub fn state(&self) -> &G::State {
        &self.state
    }

    /// Returns the game.
    #[must_use]
    pub fn game(&self) -> &G {
        &self.search.game
    }
}

impl<G: Game + Clone> Drop for JobSession<'_, G> {
    fn drop(&mut self) {
        self.address.close(self.search.place.me);
    }
}

impl<G: Game + Clone + fmt::Debug> fmt::Debug for JobSession<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobSession").field("search", &self.search).field("visits", &self.visits).finish_non_exhaustive()
    }
}
