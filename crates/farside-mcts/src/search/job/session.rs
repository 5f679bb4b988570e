//! A search on a job that goes on from move to move.

use std::fmt;
use std::time::Duration;

use super::desk::{Address, Seat};
use super::finish::{self, FIRST};
use super::message::NodeCopy;
use super::part::Whereabouts;
use super::serve::at;
use super::settle::settle;
use super::{JobError, OnJob};
use crate::game::Game;
use crate::search::{Budget, Report, Search, after};

/// A search on a job that keeps its tree: it can be continued, and follow the game as moves are played.
///
/// What [`Session`](crate::Session) is in one thread. All workers of the job have one, and do the same with it in the same order
/// as other collectives.
pub struct JobSession<'w, G: Game + Clone> {
    search: Search<G, OnJob<'w>>,
    address: Address,
    state: G::State,
    /// Visits of the root.
    visits: u64,
}

impl<'w, G: Game + Clone> Search<G, OnJob<'w>> {
    /// Begins a search that can be continued, together with all workers of the job.
    ///
    /// # Errors
    /// [`JobError::Search`] if the game is over, or a parameter makes no sense; [`JobError::InUse`] if another session uses
    /// the same [`OnJob`].
    pub fn session(self, state: &G::State) -> Result<JobSession<'w, G>, JobError> {
        let address = self.open(state)?;
        Ok(JobSession { search: self, address, state: state.clone(), visits: 0 })
    }
}

impl<G: Game + Clone> JobSession<'_, G> {
    /// Searches on, in the tree that there is. The report's moves count the visits of all runs, its other figures are of
    /// this one.
    ///
    /// # Errors
    /// As for [`Search::run`]. After any other than [`JobError::Search`] the session is of no more use.
    pub fn run(&mut self, budget: Budget) -> Result<Report<G::Move>, JobError> {
        let report = self.search.search(self.address, self.visits, budget)?;
        self.visits = report.kept + report.rollouts;
        Ok(report)
    }

    /// Plays a move: the position after it is searched from now on. What is known of it is kept, the rest of the tree is
    /// dropped, and its memory used again.
    ///
    /// Any legal move will do, also one that was not searched; the tree then begins anew. Only where memory is so short that
    /// worker 0 has no room for the new root's moves, or its owner none to tell others of them, less is kept.
    ///
    /// *Cost*: every worker walks through its part of the tree once and moves what is kept; a message for each edge that is
    /// kept and leads from one worker to another, and some collectives.
    ///
    /// # Errors
    /// [`JobError::Search`] with [`IllegalMove`](crate::SearchError::IllegalMove), or [`GameOver`](crate::SearchError::GameOver) or
    /// [`NoMoves`](crate::SearchError::NoMoves) if there
    /// is nothing to search after this move; the session is as it was. Others as for [`run`](Self::run).
    pub fn advance(&mut self, chosen: G::Move) -> Result<(), JobError> {
        let (me, address) = (self.search.place.me, self.address);
        let (state, moves) = after(&self.search.game, &self.state, chosen)?;
        at(me, address, |seat: &mut Seat<G>| seat.part.check_room(&moves))?;
        // A worker may still be telling another that it has nothing to do.
        settle::<G>(me, address)?;
        at(me, address, |seat: &mut Seat<G>| seat.part.drop_copies());
        let uprooted = self.uproot(chosen)?;
        at(me, address, |seat: &mut Seat<G>| seat.part.begin_keeping());
        me.barrier()?;
        at(me, address, |seat: &mut Seat<G>| {
            seat.act(me, address, |part, mail| part.keep_below(chosen, uprooted.as_ref(), mail));
        });
        settle::<G>(me, address)?;
        at(me, address, |seat: &mut Seat<G>| seat.part.compact());
        me.barrier()?;
        let visits = at(me, address, |seat: &mut Seat<G>| {
            seat.part.end_keeping((&state, &moves), uprooted);
            seat.part.root_visits()
        });
        self.visits = me.broadcast(FIRST, (me.id() == FIRST).then_some(visits))?;
        at(me, address, |seat: &mut Seat<G>| seat.part.adopt_root(&state));
        self.state = state;
        Ok(())
    }

    /// Has the node of a move brought to where the root is, if it is elsewhere.
    fn uproot(&self, chosen: G::Move) -> Result<Option<NodeCopy<G::Move>>, JobError> {
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

    /// What is known without searching on. `None` if nothing is. A collective, as everything else.
    ///
    /// # Errors
    /// As for [`run`](Self::run), but for [`JobError::Search`].
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

    /// The position that is searched.
    #[must_use]
    pub fn state(&self) -> &G::State {
        &self.state
    }

    /// The game.
    #[must_use]
    pub fn game(&self) -> &G {
        &self.search.game
    }
}

impl<G: Game + Clone> Drop for JobSession<'_, G> {
    fn drop(&mut self) {
        let place = &self.search.place;
        self.address.close(place.me, place.commons.here(place.me));
    }
}

impl<G: Game + Clone + fmt::Debug> fmt::Debug for JobSession<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobSession").field("search", &self.search).field("visits", &self.visits).finish_non_exhaustive()
    }
}
