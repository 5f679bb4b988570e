//! Sends messages to other workers by calls.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use farside::{Aggregation, WhenFull, Worker, WorkerId};

use super::desk::{Address, Seat};
use super::message::{Message, Post};
use super::part::Part;
use crate::game::Game;

/// Sends through the rings of a worker. A full ring queues the message, so a part in use never
/// blocks.
pub(super) struct Mail<'w, G> {
    me: &'w Worker,
    address: Address,
    aggregation: Aggregation,
    sent: u64,
    failure: Option<farside::Error>,
    game: PhantomData<fn() -> G>,
}

impl<G: Game> Seat<G> {
    /// Calls `act` with the part and the means to send.
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

impl<G: Game> Post<G> for Mail<'_, G> {
    #[inline]
    fn send<T: Message<G>>(&mut self, to: WorkerId, message: T) {
        let receive = farside::remote!(|there, (address, message): (Address, T)| {
            // Does nothing if the search is over at the receiver.
            address.at::<G, _>(there, |seat| {
                seat.traffic.received += 1;
                seat.act(there, address, |part, mail| message.receive(part, mail));
            });
        });
        let batch = self.me.aggregate(to).mode(self.aggregation).when_full(WhenFull::Queue);
        // Dropping the batch would publish it, but more messages will follow.
        let sent = ManuallyDrop::new(batch).call_remote((self.address, message), receive);
        self.sent += 1;
        if let Err(refused) = sent {
            self.failure.get_or_insert(refused.error);
        }
    }
}

impl<G> fmt::Debug for Mail<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mail").field("from", &self.me.id()).field("address", &self.address).finish_non_exhaustive()
    }
}
