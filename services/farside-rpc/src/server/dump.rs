//! [`Dump`]: what is under way in a server, and [`Unfinished`]: what was at its end.

use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use farside_connect::link::Link;
use farside_connect::lock;
use farside_wire::Wire;

use super::session::{Session, Underway};
use crate::call::Call;

/// The right that the token of a client must have to see a [`Dump`].
pub const DUMP_RIGHT: &str = "farside.dump";
/// The most connections, and the most calls, that a dump lists.
const LISTED_MAX: usize = 1000;
/// The most calls that an error prints.
const PRINTED_MAX: usize = 8;

/// The calls and connections of a server, as `dump` reports them.
///
/// Calls whose handlers run [inline](crate::Handling::Inline) are never in it: the thread that runs
/// them also makes the dump.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct Dump {
    /// The oldest connections, at most 1,000.
    pub connections: Vec<ConnectionDump>,
    /// Number of connections that are not listed.
    pub more_connections: u64,
    /// The calls that arrived first, at most 1,000.
    pub calls: Vec<CallDump>,
    /// Number of calls that are not listed.
    pub more_calls: u64,
}

/// A connection of a server.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct ConnectionDump {
    /// Its number. Later connections have larger ones.
    pub number: u64,
    /// Who is at the other end.
    pub peer: String,
    /// The carrier: `shm`, `tcp`, or `tcp+rdma` with RDMA for bulk data. `ended` if only calls
    /// of it are left.
    pub path: String,
    /// How long it has existed.
    pub age: Duration,
    /// Number of calls that were accepted and not answered.
    pub calls: u64,
    /// Number of results that the client has not fetched, and of transfers.
    pub exposed: u64,
    /// Number of bytes of arguments and results that the server
    /// [holds](crate::server::Builder::max_connection_bytes).
    pub held_bytes: u64,
    /// Number of bytes that wait until the client reads.
    pub backlog_bytes: u64,
    /// Number of bytes that the server has read and written by RDMA.
    pub rdma_bytes: u64,
}

/// A call that was accepted and not answered.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct CallDump {
    /// The number of its connection.
    pub connection: u64,
    /// Who called.
    pub peer: String,
    /// `service/provider/procedure`.
    pub procedure: String,
    /// How long it waited for a thread or its long arguments, or has waited so far.
    pub queued: Duration,
    /// How long its handler has run. `None` if it has not begun.
    pub running: Option<Duration>,
    /// The time until its deadline.
    pub time_left: Duration,
    /// True if its caller gave it up.
    pub is_cancelled: bool,
}

impl CallDump {
    /// The time since it arrived.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.queued + self.running.unwrap_or_default()
    }
}

/// The calls that were still under way when a server had to end.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use farside_rpc::Server;
///
/// let server = Server::builder().listen(format!("shm:end-{}", std::process::id()))?.start()?;
/// if let Err(unfinished) = server.shutdown(Instant::now() + Duration::from_secs(5)) {
///     for call in &unfinished.calls {
///         eprintln!("{} of {} was cut off after {:?}", call.procedure, call.peer, call.age());
///     }
/// }
/// # Ok::<(), farside_rpc::server::StartError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The calls that arrived first, at most 1,000.
    pub calls: Vec<CallDump>,
    /// Number of calls that are not listed.
    pub more_calls: u64,
}

impl Unfinished {
    /// Checks the calls that a dump lists.
    pub(super) fn check(Dump { calls, more_calls, .. }: Dump) -> Result<(), Self> {
        if calls.is_empty() { Ok(()) } else { Err(Self { calls, more_calls }) }
    }

    /// Number of calls.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.calls.len() as u64 + self.more_calls
    }
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, printed) = (self.count(), self.calls.len().min(PRINTED_MAX));
        let calls = if count == 1 { "call" } else { "calls" };
        write!(f, "{count} {calls} had not ended when the server did: ")?;
        for (index, call) in self.calls[..printed].iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let state = if call.running.is_some() { "running" } else { "queued" };
            write!(f, "{comma}{} of {} ({state}, {:.1?} old)", call.procedure, call.peer, call.age())?;
        }
        if count > printed as u64 {
            write!(f, " and {} more", count - printed as u64)?;
        }
        f.write_str("; give the server more time to drain, or have the handlers ask Call::is_cancelled")
    }
}

impl std::error::Error for Unfinished {}

/// The token of a client lacks a right.
#[derive(Clone, Debug, PartialEq, Eq, Wire, thiserror::Error)]
#[wire(crate = "farside_wire")]
#[error("this client lacks the right {right:?}: name it in Tokens::with, or come as the server's user without a token")]
pub struct NoRight {
    /// The right.
    pub right: String,
}

/// The connections of a server. The loop adds them. A [`Session`] removes itself when it is
/// dropped.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<BTreeMap<u64, Known>>);

#[derive(Clone, Debug)]
struct Known {
    session: Weak<Session>,
    link: Weak<Link>,
    since: Instant,
}

impl Connections {
    pub(super) fn add(&self, session: &Arc<Session>, link: &Arc<Link>) {
        let known = Known { session: Arc::downgrade(session), link: Arc::downgrade(link), since: Instant::now() };
        lock(&self.0).insert(session.number, known);
    }

    pub(super) fn remove(&self, number: u64) {
        lock(&self.0).remove(&number);
    }

    /// The calls that are under way, for the caller of `call`.
    pub(super) fn dump_for(&self, call: &Call, name_of: impl Fn(u32) -> String) -> Result<Dump, NoRight> {
        match call.peer().has_right(DUMP_RIGHT) {
            true => Ok(self.dump(name_of)),
            false => Err(NoRight { right: DUMP_RIGHT.into() }),
        }
    }

    /// The calls and connections. `name_of` names procedures by number.
    pub(super) fn dump(&self, name_of: impl Fn(u32) -> String) -> Dump {
        // A session that is dropped below removes itself, so the lock is not held.
        let all = lock(&self.0).clone();
        let now = Instant::now();
        let (mut connections, mut more_connections, mut calls_count) = (Vec::new(), 0, 0);
        let mut oldest: BinaryHeap<(Instant, u64, Underway)> = BinaryHeap::new();
        let mut peers = HashMap::new();
        for (number, Known { session, link, since }) in all {
            let Some(session) = session.upgrade() else { continue };
            peers.insert(number, session.peer.to_string());
            let mut calls = 0;
            session.each_underway(|call| {
                calls += 1;
                oldest.push((call.arrived, number, call));
                if oldest.len() > LISTED_MAX {
                    oldest.pop();
                }
            });
            calls_count += calls;
            if connections.len() == LISTED_MAX {
                more_connections += 1;
                continue;
            }
            let link = link.upgrade().filter(|link| link.end().is_none());
            connections.push(ConnectionDump {
                number,
                peer: peers[&number].clone(),
                path: link.as_ref().map_or("ended", |link| link.path().name()).into(),
                age: now.saturating_duration_since(since),
                calls,
                exposed: link.as_ref().map_or(0, |link| link.exposed_count() as u64),
                held_bytes: session.holdings.connection.bytes(),
                backlog_bytes: link.as_ref().map_or(0, |link| link.path().backlog_bytes() as u64),
                rdma_bytes: link.as_ref().and_then(|link| Some(link.path().rdma()?.moved_bytes())).unwrap_or(0),
            });
        }
        let calls = oldest.into_sorted_vec().into_iter().map(|(arrived, connection, call)| CallDump {
            connection,
            peer: peers[&connection].clone(),
            procedure: name_of(call.procedure),
            queued: call.started.unwrap_or(now).saturating_duration_since(arrived),
            running: call.started.map(|started| now.saturating_duration_since(started)),
            time_left: call.deadline.saturating_duration_since(now),
            is_cancelled: call.is_cancelled,
        });
        let calls: Vec<_> = calls.collect();
        let more_calls = calls_count - calls.len() as u64;
        Dump { connections, more_connections, calls, more_calls }
    }
}

#[cfg(test)]
mod tests {
    use farside_testbed::wait_until;

    use super::*;
    use crate::testing::connect;
    use crate::{Credentials, Server};

    #[test]
    fn connections_that_ended_are_forgotten() {
        let name = format!("shm:forgotten-{}", std::process::id());
        let server = Server::builder().listen(&name).unwrap().start().unwrap();
        let known = || lock(&server.shared.registry.connections.0).len();
        for _ in 0..10 {
            let client = connect(&name, Credentials::own_user());
            assert_eq!(client.ping(1), Ok(1));
            assert!(known() > 0);
        }
        wait_until("no connection is known", || known() == 0);
    }
}
