//! The end of an endpoint: it notifies its peers, and waits until they know.
//!
//! A provider that fails to write to a connection may drop what has arrived on it. If an endpoint
//! closed as soon as it had notified its peers, a peer that puts could lose the message in this
//! way. Over `rxm` its puts would then never end (see [`queues`](crate::ofi::queues)).

use super::{Header, Kind, Payload, State, transmit};
use crate::ids::ProcessId;

impl State {
    /// Tells all peers that this endpoint has met that it closes. Returns whether all that live
    /// have answered, and nothing is left to send. Otherwise the caller makes progress and tries
    /// again.
    pub(in crate::ofi) fn say_farewell(&mut self) -> bool {
        let mut all = true;
        for process in (0..self.peers.len() as u32).map(ProcessId::new) {
            let peer = &self.peers[process.index()];
            if peer.met && self.engine.check_peer(process).is_ok() {
                all = false;
                if !peer.told {
                    self.tell_farewell(process);
                }
            }
        }
        all && !self.sends()
    }

    /// Tells a peer that has closed its endpoint, or is about to, that this process knows.
    pub(super) fn answer_farewell(&mut self, to: ProcessId) {
        if !self.peers[to.index()].told {
            self.tell_farewell(to);
        }
        // The peer may be gone already. So only what leaves at once is sent.
        for (slot, _) in self.peers[to.index()].backlog.drain(..) {
            self.staging.left();
            self.staging.give_back(slot);
        }
    }

    fn tell_farewell(&mut self, to: ProcessId) {
        let header = Header { token: self.token, from: self.process, kind: Kind::Farewell };
        let peer = &mut self.peers[to.index()];
        let nothing: Payload<'_> = (0, &mut |_| {});
        // A peer that cannot be notified finds out itself, or the launcher notifies it.
        let told = transmit(&self.port, &mut self.flights, &mut self.staging, peer, to, header, nothing);
        peer.told = !matches!(told, Ok(false));
    }
}

#[cfg(test)]
mod tests {
    use crate::ids::ProcessId;
    use crate::ofi::pool::tests::{BYTES, finish, pair};
    use crate::ofi::state::State;
    use crate::transport::RemoteKey;

    fn progress_until(state: &mut State, mut is_so: impl FnMut(&mut State) -> bool) {
        let deadline = farside_testbed::deadline();
        while !is_so(state) {
            assert!(!farside_testbed::is_past(deadline), "it is not so by the deadline");
            state.progress();
        }
    }

    #[test]
    fn a_farewell_is_over_when_the_peer_has_answered() {
        farside_testbed::needs!("fabric");
        let mut ends = pair();
        let attached = ends[0].attach(RemoteKey::starter(ProcessId::new(1), BYTES as u64)).unwrap();
        finish(&mut ends, &attached);
        let [stays, leaves] = &mut ends;
        // The message leaves, and the peer does not look.
        assert!(!leaves.say_farewell());
        progress_until(leaves, |leaves| !leaves.sends());
        assert!(!leaves.say_farewell(), "no peer has answered");
        progress_until(stays, |stays| stays.engine.check_peer(ProcessId::new(1)).is_err());
        progress_until(leaves, State::say_farewell);
        assert!(!stays.staging.has_waiting());
        // An end whose peers are all gone waits for nothing.
        progress_until(stays, State::say_farewell);
    }

    #[test]
    fn an_endpoint_that_met_no_peer_just_closes() {
        farside_testbed::needs!("fabric");
        let mut ends = pair();
        assert!(ends[0].say_farewell());
    }
}
