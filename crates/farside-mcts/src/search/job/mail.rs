//! The way to other workers, by calls.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use farside::{Aggregation, WhenFull, Worker, WorkerId};

use super::desk::{Address, Seat};
use super::message::{
    BackUp, Descend, Done, Evaluate, Expand, Expanded, Flush, Grant, Keep, Post, Refresh, Replicate, Spare,
};
use super::part::Part;
use crate::game::Game;

/// Sends through a worker's rings. What finds no room is queued, so that nothing waits while a part is in use.
pub(super) struct Mail<'w, G> {
    me: &'w Worker,
    address: Address,
    aggregation: Aggregation,
    sent: u64,
    failure: Option<farside::Error>,
    game: PhantomData<fn() -> G>,
}

impl<G: Game> Seat<G> {
    /// Has the part do something that may send.
    #[inline]
    pub(super) fn act<R>(
        &mut self,
        me: &Worker,
        address: Address,
        act: impl FnOnce(&mut Part<G>, &mut Mail<'_, G>) -> R,
    ) -> R {
        let aggregation = self.part.aggregation();
        let mut mail = Mail { me, address, aggregation, sent: 0, failure: None, game: PhantomData };
        let result = act(&mut self.part, &mut mail);
        self.traffic.sent += mail.sent;
        if let Some(failure) = mail.failure {
            self.failure.get_or_insert(failure);
        }
        result
    }
}

/// Has the part of worker `there` act, in a function that was called. Nothing happens when its search is over.
#[inline]
fn receive<G: Game>(there: &Worker, address: Address, act: impl FnOnce(&mut Part<G>, &mut Mail<'_, G>)) {
    address.at::<G, _>(there, |seat| {
        seat.traffic.received += 1;
        seat.act(there, address, act);
    });
}

/// Sends `$message`, to have `$receive` done with it there.
macro_rules! send {
    ($mail:ident, $to:ident, $message:ident: $type:ty, $receive:expr) => {{
        let function = farside::remote!(|there, (address, message): (Address, $type)| {
            receive::<G>(there, address, |part, mail| $receive(part, message, mail));
        });
        let arguments = ($mail.address, $message);
        let batch = $mail.me.aggregate($to).mode($mail.aggregation).when_full(WhenFull::Queue);
        // Dropping it would publish the batch, to which more is to come.
        let sent = ManuallyDrop::new(batch).call_remote(arguments, function);
        $mail.sent += 1;
        if let Err(refused) = sent {
            $mail.failure.get_or_insert(refused.error);
        }
    }};
}

impl<G: Game> Post<G> for Mail<'_, G> {
    #[inline]
    fn descend(&mut self, to: WorkerId, message: Descend) {
        send!(self, to, message: Descend, |part: &mut Part<G>, message, _| part.receive_descend(message));
    }

    fn expand(&mut self, to: WorkerId, message: Expand<G::State>) {
        send!(self, to, message: Expand<G::State>, Part::receive_expand);
    }

    fn expanded(&mut self, to: WorkerId, message: Expanded) {
        send!(self, to, message: Expanded, Part::receive_expanded);
    }

    #[inline]
    fn evaluate(&mut self, to: WorkerId, message: Evaluate<G::State>) {
        send!(self, to, message: Evaluate<G::State>, |part: &mut Part<G>, message, _| part.receive_evaluate(message));
    }

    #[inline]
    fn back_up(&mut self, to: WorkerId, message: BackUp) {
        send!(self, to, message: BackUp, Part::receive_back_up);
    }

    fn spare(&mut self, to: WorkerId, message: Spare) {
        send!(self, to, message: Spare, Part::receive_spare);
    }

    fn replicate(&mut self, to: WorkerId, message: Replicate<G::State, G::Move>) {
        send!(self, to, message: Replicate<G::State, G::Move>, Part::receive_replicate);
    }

    fn flush(&mut self, to: WorkerId, message: Flush) {
        send!(self, to, message: Flush, Part::receive_flush);
    }

    fn refresh(&mut self, to: WorkerId, message: Refresh) {
        send!(self, to, message: Refresh, Part::receive_refresh);
    }

    fn grant(&mut self, to: WorkerId, message: Grant) {
        send!(self, to, message: Grant, |part: &mut Part<G>, message, _| part.receive_grant(message));
    }

    fn done(&mut self, to: WorkerId, message: Done) {
        send!(self, to, message: Done, Part::receive_done);
    }

    fn keep(&mut self, to: WorkerId, message: Keep) {
        send!(self, to, message: Keep, Part::receive_keep);
    }
}

impl<G> fmt::Debug for Mail<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mail").field("from", &self.me.id()).field("address", &self.address).finish_non_exhaustive()
    }
}
