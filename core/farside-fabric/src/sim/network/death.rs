//! The death of processes, and its effect on others.

use std::collections::BTreeMap;

use super::Network;
use crate::ids::ProcessId;
use crate::sim::parcel::{Due, Parcel, Request, TransferId};
use crate::sim::process::Peer;
use crate::transport::{Event, FabricError};

impl Network {
    /// Kills a process, unless it is dead already.
    pub(in crate::sim) fn kill(&mut self, dead: ProcessId) {
        if !std::mem::replace(&mut self.process(dead).alive, false) {
            return;
        }
        self.end_transfers(dead, None, dead);
        self.lose_effects_of(dead);
        self.lose_messages_of(dead);
        // A dead process accepts the parcels that had arrived: peers whose operations are among
        // them learn of the death.
        while let Some(parcel) = self.process(dead).arrived.pop_front() {
            self.accept(parcel);
        }
        while self.receive(dead).is_some() {}
        self.process(dead).inbox.push_back(Event::Disconnected { process: dead });
        self.stir(dead);
        let peers: Vec<ProcessId> = self.process(dead).peers.keys().copied().filter(|peer| *peer != dead).collect();
        for peer in peers {
            if self.process(peer).peers.get(&dead) == Some(&Peer::Connected) {
                self.dispatch_in_order(dead, peer, 0, Parcel::Disconnected { with: dead, to: peer });
            }
        }
    }

    /// Makes `by` give up `lost`. Operations of `by` in transit to `lost` may still take effect,
    /// but their results are lost.
    pub(in crate::sim) fn forget(&mut self, by: ProcessId, lost: ProcessId) {
        if by == lost || lost.index() >= self.processes.len() || !self.process(by).alive {
            return;
        }
        self.end_transfers(by, Some(lost), lost);
        let was_connected = self.process(by).peers.get(&lost) == Some(&Peer::Connected);
        self.process(by).lose_peer(lost);
        self.stir(by);
        if was_connected {
            // The peer may be alive. It must learn that its messages no longer arrive.
            self.dispatch_in_order(by, lost, 0, Parcel::Disconnected { with: by, to: lost });
        }
    }

    /// Decides by the seed, or by the script, for each piece of the dead process's operations,
    /// whether it takes effect.
    fn lose_effects_of(&mut self, dead: ProcessId) {
        let effects: Vec<Due> = self.find(|parcel| matches!(parcel, Parcel::Effect { from, .. } if *from == dead));
        for due in effects {
            if self.random.coin()
                && let Some(Parcel::Effect { transfer, .. }) = self.take_out(due)
            {
                self.drop_piece(transfer);
            }
        }
        let is_lost = |parcel: &mut Parcel| {
            let is_own = matches!(parcel, Parcel::Effect { from, .. } if *from == dead);
            is_own && self.script.as_ref().is_some_and(|script| script.choose(2) == 1)
        };
        for parcel in self.held.extract_if(.., is_lost).collect::<Vec<_>>() {
            if let Parcel::Effect { transfer, .. } = parcel {
                self.drop_piece(transfer);
            }
        }
    }

    fn drop_piece(&mut self, id: TransferId) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        transfer.pieces_left -= 1;
        if transfer.pieces_left == 0
            && let Some(transfer) = self.transfers.remove(&id)
        {
            self.release_revoked(transfer.from);
        }
    }

    /// Delivers only the first few of the dead process's messages to each peer.
    fn lose_messages_of(&mut self, dead: ProcessId) {
        let mut cut_links = BTreeMap::new();
        let is_message = |parcel: &Parcel| matches!(parcel, Parcel::Message { from, .. } if *from == dead);
        let messages: Vec<Due> = self.find(is_message);
        for due in messages {
            let to = self.under_way[&due].destination();
            let is_cut = cut_links.entry(to).or_insert(false);
            *is_cut |= self.random.coin();
            if *is_cut {
                self.take_out(due);
                self.clear_one(dead, to);
            }
        }
        let is_lost = |parcel: &mut Parcel| match parcel {
            Parcel::Message { from, to, .. } if *from == dead => {
                let is_cut = cut_links.entry(*to).or_insert(false);
                *is_cut |= self.script.as_ref().is_some_and(|script| script.choose(2) == 1);
                *is_cut
            }
            _ => false,
        };
        for parcel in self.held.extract_if(.., is_lost).collect::<Vec<_>>() {
            self.clear_one(dead, parcel.destination());
        }
    }

    fn find(&self, wanted: impl Fn(&Parcel) -> bool) -> Vec<Due> {
        self.under_way.iter().filter(|(_, parcel)| wanted(parcel)).map(|(due, _)| *due).collect()
    }

    /// Ends the transfers of `from`, to one peer or to all, because `gone` is gone.
    fn end_transfers(&mut self, from: ProcessId, peer: Option<ProcessId>, gone: ProcessId) {
        for transfer in self.transfers.values_mut() {
            if transfer.from != from || peer.is_some_and(|peer| peer != transfer.key.process) {
                continue;
            }
            let Some(completion) = transfer.completion.take() else { continue };
            if !matches!(transfer.request, Request::Attach) {
                self.processes[from.index()].operations -= 1;
            }
            completion.end(Err(FabricError::Disconnected { process: gone }));
        }
        self.stir(from);
    }
}
