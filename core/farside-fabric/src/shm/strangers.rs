//! Connections whose other side has not identified itself yet: accepted, limited and forgotten.
//!
//! Every user of the machine can find the names of the sockets and connect. A connection of another
//! user is closed at once. Those of this user get some time to identify themselves, and there are
//! few of them at a time; the others wait in the listener.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use farside_sys::net::MessageSocket;
use farside_sys::process::user_id;

use super::link::{Link, LinkState};
use super::{ShmEndpoint, State};

/// Number of strangers that are let in, besides one for each process of the job.
pub(super) const BESIDE_PEERS: usize = 16;
/// Time in which a stranger must identify itself. A peer does so as soon as it is connected.
const PATIENCE: Duration = Duration::from_secs(5);
/// That time while others wait to be let in, and there is no room or no descriptor for them.
const PATIENCE_WHEN_FULL: Duration = Duration::from_millis(500);
/// Time for which nothing is accepted after the system had no descriptor or memory for it.
const PAUSE: Duration = Duration::from_millis(50);
/// Number of connections that are accepted before existing ones get their turn.
const ACCEPTS_AT_A_TIME: usize = 64;

impl State {
    fn strangers(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(|link| link.state() == LinkState::Unknown)
    }
}

impl ShmEndpoint {
    fn is_full(&self, state: &State) -> bool {
        state.strangers().count() >= self.config.process_count as usize + BESIDE_PEERS
    }

    fn patience(&self, state: &State) -> Duration {
        if self.is_full(state) || state.deaf_until.is_some() { PATIENCE_WHEN_FULL } else { PATIENCE }
    }

    /// Accepts connections. Returns whether there were any.
    pub(super) fn accept_strangers(&self, state: &mut State) -> bool {
        let mut any = false;
        if state.deaf_until.is_some_and(|until| Instant::now() < until) {
            return any;
        }
        state.deaf_until = None;
        for _ in 0..ACCEPTS_AT_A_TIME {
            if self.is_full(state) {
                break;
            }
            match self.listener.accept() {
                Ok(socket) => {
                    any = true;
                    if is_of_this_user(&socket) {
                        state.next_link += 1;
                        state.links.push(Link::new(state.next_link, socket, LinkState::Unknown));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                // The connections wait in the listener, which stays readable: a thread that watched
                // it would spin.
                Err(error) => {
                    tracing::debug!(%error, "no connection is accepted for a while");
                    state.deaf_until = Some(Instant::now() + PAUSE);
                    break;
                }
            }
        }
        any
    }

    /// Forgets strangers whose time is up. Called after what they had sent was read, so that none
    /// pays for the time in which this process did not read.
    pub(super) fn forget_strangers(&self, state: &mut State) {
        if state.strangers().next().is_some() {
            let (now, patience) = (Instant::now(), self.patience(state));
            state.links.retain(|link| link.state() != LinkState::Unknown || now < link.since() + patience);
        }
    }

    /// The listener, unless nothing would be accepted now, and the time at which to look after
    /// strangers again in any case.
    pub(super) fn listening(&self, state: &State) -> (Option<BorrowedFd<'_>>, Option<Instant>) {
        let oldest = state.strangers().map(Link::since).min().map(|since| since + self.patience(state));
        let listens = !self.is_full(state) && state.deaf_until.is_none();
        (listens.then(|| self.listener.as_fd()), [oldest, state.deaf_until].into_iter().flatten().min())
    }
}

fn is_of_this_user(socket: &MessageSocket) -> bool {
    socket.peer().is_ok_and(|peer| peer.uid == user_id())
}
