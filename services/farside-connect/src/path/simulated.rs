//! The path over a simulated network: frames that wait for their time on a clock of their own.
//!
//! A frame occupies the line of its sender, travels for the latency, and occupies the line of its
//! receiver. All connections of a server share the server's line. Frames of one direction of a
//! connection stay in order. What one thread does with a network depends on its seed alone.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::ThreadId;
use std::time::Duration;

use farside_sys::net::Waker;

use super::{LinkEnd, Path};
use crate::frame::{HEAD_BYTES, Head};
use crate::lock::lock;

/// The bytes of one direction of a connection that are under way, or were not received.
const WINDOW_BYTES: usize = 256 * 1024;
const NS_PER_S: u128 = 1_000_000_000;

/// How fast a simulated network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// The time from the end of a line to the other.
    pub latency: Duration,
    /// The most time by which a frame takes longer, at random.
    pub jitter: Duration,
    /// The bytes a second of a client's line, in each direction.
    pub client_bytes_per_s: u64,
    /// The bytes a second of the server's line, in each direction.
    pub server_bytes_per_s: u64,
}

impl Default for Profile {
    /// A network of 10 GbE, and a server with 100 GbE.
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(5),
            jitter: Duration::from_micros(1),
            client_bytes_per_s: 1_250_000_000,
            server_bytes_per_s: 12_500_000_000,
        }
    }
}

/// Works on what has arrived.
pub trait Run: Send + Sync {
    /// Something has arrived at this end.
    fn run(&self, end: u64);
}

/// A simulated network.
pub struct Network {
    state: Mutex<State>,
    /// The thread that lets time pass.
    thread: ThreadId,
    runner: OnceLock<Weak<dyn Run>>,
    /// The waker of all clients' ends, which do not sleep while anything is under way.
    waker: Arc<Waker>,
}

#[derive(Debug)]
struct State {
    profile: Profile,
    now_ns: u64,
    random: u64,
    events: BinaryHeap<Reverse<Event>>,
    event_count: u64,
    ends: HashMap<u64, EndState>,
    next_end: u64,
    server_line: Line,
}

/// When something arrives where. Of several at one time, the first that was sent is the first.
type Event = (u64, u64, u64);

/// When the directions of a line are free.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    out_ns: u64,
    in_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum Side {
    Client = 0,
    Server = 1,
}

/// One end of a connection.
#[derive(Debug)]
struct EndState {
    side: Side,
    line: Line,
    /// The frames that are under way to this end, in order.
    under_way: VecDeque<Message>,
    arrived: VecDeque<(Head, Vec<u8>)>,
    /// The bytes of both.
    bytes: usize,
    /// When the last message to this end arrives.
    last_ns: u64,
    /// The frames that this end has yet to send.
    backlog: VecDeque<(Head, Vec<u8>)>,
    backlog_bytes: usize,
    has_ended: bool,
    is_closed_here: bool,
    is_asleep: bool,
    waker: Arc<Waker>,
}

#[derive(Debug)]
enum Message {
    Frame(Head, Vec<u8>),
    End,
    /// There is room for the backlog.
    Room,
}

impl Network {
    /// A network in which the calling thread lets time pass.
    pub fn new(profile: Profile, seed: u64) -> std::io::Result<Arc<Self>> {
        let state = State {
            profile,
            now_ns: 0,
            // The generator has no other fixed point than 0.
            random: seed ^ 0x9e37_79b9_7f4a_7c15 | 1 << 63,
            events: BinaryHeap::new(),
            event_count: 0,
            ends: HashMap::new(),
            next_end: 0,
            server_line: Line::default(),
        };
        let (thread, runner) = (std::thread::current().id(), OnceLock::new());
        Ok(Arc::new(Self { state: Mutex::new(state), thread, runner, waker: Arc::new(Waker::new()?) }))
    }

    /// Sets what works on arrivals.
    pub fn set_runner(&self, runner: Weak<dyn Run>) {
        // There is one simulation for each network.
        let _ = self.runner.set(runner);
    }

    /// Connects. Returns the client's end and the server's.
    pub fn connect(self: &Arc<Self>) -> std::io::Result<[SimulatedPath; 2]> {
        let wakers = [self.waker.clone(), Arc::new(Waker::new()?)];
        let mut state = lock(&self.state);
        let first = state.next_end;
        state.next_end += 2;
        Ok([Side::Client, Side::Server].map(|side| {
            let (end, waker) = (first + side as u64, wakers[side as usize].clone());
            state.ends.insert(end, EndState::new(side, waker.clone()));
            SimulatedPath { network: self.clone(), end, waker }
        }))
    }

    /// Ends a connection, of which a number of an end is given. Both ends hear of it at once.
    pub fn cut(&self, end: u64) {
        let mut state = lock(&self.state);
        for number in [end, peer_of(end)] {
            let now_ns = state.now_ns;
            let Some(end) = state.ends.get_mut(&number) else { continue };
            end.under_way.clear();
            end.arrived.clear();
            end.backlog.clear();
            (end.bytes, end.backlog_bytes) = (0, 0);
            end.has_ended = true;
            state.schedule(now_ns, number);
        }
    }

    /// The time since the network's beginning.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(lock(&self.state).now_ns)
    }

    /// Returns whether the calling thread lets time pass.
    fn is_driven_here(&self) -> bool {
        std::thread::current().id() == self.thread
    }

    /// Lets time pass until something arrives, and has it worked on. Returns false if nothing is
    /// under way, or if the calling thread is not the one of the simulation.
    pub fn pass_time(&self) -> bool {
        if !self.is_driven_here() {
            return false;
        }
        let arrived = lock(&self.state).arrive();
        let Some(end) = arrived else { return false };
        if let Some(runner) = self.runner.get().and_then(Weak::upgrade) {
            runner.run(end);
        }
        true
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("now", &self.now()).finish_non_exhaustive()
    }
}

impl EndState {
    fn new(side: Side, waker: Arc<Waker>) -> Self {
        Self {
            side,
            line: Line::default(),
            under_way: VecDeque::new(),
            arrived: VecDeque::new(),
            bytes: 0,
            last_ns: 0,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            has_ended: false,
            is_closed_here: false,
            is_asleep: false,
            waker,
        }
    }

    fn end(&self) -> Option<LinkEnd> {
        match () {
            () if self.is_closed_here => Some(LinkEnd::Here),
            () if self.has_ended => Some(LinkEnd::ByPeer),
            () => None,
        }
    }

    fn wake(&mut self) {
        if std::mem::take(&mut self.is_asleep) {
            self.waker.wake();
        }
    }
}

/// The other end of a connection.
fn peer_of(end: u64) -> u64 {
    end ^ 1
}

impl State {
    /// A number below `bound`, which is not 0 (xorshift).
    fn random_below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    /// Puts a message on its way from an end to its peer.
    fn send(&mut self, from: u64, message: Message, bytes: usize) {
        let jitter_ns = u64::try_from(self.profile.jitter.as_nanos()).unwrap_or(u64::MAX).max(1);
        let travel_ns = self.profile.latency.as_nanos() as u64 + self.random_below(jitter_ns);
        let Profile { client_bytes_per_s, server_bytes_per_s, .. } = self.profile;
        let takes_ns = |per_s: u64| (bytes as u128 * NS_PER_S / u128::from(per_s.max(1))) as u64;
        let Some(EndState { side, line, .. }) = self.ends.get_mut(&from) else { return };
        let (side, client_ns, server_ns) = (*side, takes_ns(client_bytes_per_s), takes_ns(server_bytes_per_s));
        let sent_ns = match side {
            Side::Client => occupy(&mut line.out_ns, self.now_ns, client_ns),
            Side::Server => occupy(&mut self.server_line.out_ns, self.now_ns, server_ns),
        };
        let Some(peer) = self.ends.get_mut(&peer_of(from)) else { return };
        let received_ns = match side {
            Side::Client => occupy(&mut self.server_line.in_ns, sent_ns + travel_ns, server_ns),
            Side::Server => occupy(&mut peer.line.in_ns, sent_ns + travel_ns, client_ns),
        };
        peer.last_ns = peer.last_ns.max(received_ns);
        peer.bytes += bytes;
        peer.under_way.push_back(message);
        let at_ns = peer.last_ns;
        self.schedule(at_ns, peer_of(from));
    }

    fn schedule(&mut self, at_ns: u64, end: u64) {
        self.event_count += 1;
        self.events.push(Reverse((at_ns, self.event_count, end)));
    }

    /// Sends from the backlog of an end as much as fits.
    fn flush(&mut self, from: u64) -> bool {
        let mut has_sent = false;
        loop {
            let window = self.ends.get(&peer_of(from)).map_or(0, |peer| WINDOW_BYTES.saturating_sub(peer.bytes));
            let Some(end) = self.ends.get_mut(&from) else { return has_sent };
            if end.backlog.front().is_none_or(|(_, body)| HEAD_BYTES + body.len() > window) {
                return has_sent;
            }
            let Some((head, body)) = end.backlog.pop_front() else { return has_sent };
            let bytes = HEAD_BYTES + body.len();
            end.backlog_bytes -= bytes;
            self.send(from, Message::Frame(head, body), bytes);
            has_sent = true;
        }
    }

    /// Lets the next message arrive. Returns where.
    fn arrive(&mut self) -> Option<u64> {
        loop {
            let Reverse((at_ns, _, number)) = self.events.pop()?;
            self.now_ns = self.now_ns.max(at_ns);
            // Ends that are gone receive nothing.
            let Some(end) = self.ends.get_mut(&number) else { continue };
            match end.under_way.pop_front() {
                Some(Message::Frame(head, body)) => end.arrived.push_back((head, body)),
                Some(Message::End) => end.has_ended = true,
                Some(Message::Room) | None => {}
            }
            end.wake();
            return Some(number);
        }
    }
}

/// Occupies a direction of a line from a time on. Returns when it is free again.
fn occupy(free_ns: &mut u64, from_ns: u64, for_ns: u64) -> u64 {
    *free_ns = (*free_ns).max(from_ns) + for_ns;
    *free_ns
}

/// One end of the path.
#[derive(Debug)]
pub struct SimulatedPath {
    network: Arc<Network>,
    end: u64,
    waker: Arc<Waker>,
}

impl SimulatedPath {
    /// The number of this end in its network.
    pub fn number(&self) -> u64 {
        self.end
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut EndState) -> T) -> T {
        use_it(lock(&self.network.state).ends.get_mut(&self.end).expect("an end exists as long as its path"))
    }
}

impl Path for SimulatedPath {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn send(&self, head: Head, body: &[&[u8]]) -> Result<(), LinkEnd> {
        let mut state = lock(&self.network.state);
        let end = state.ends.get_mut(&self.end).expect("an end exists as long as its path");
        if let Some(end) = end.end() {
            return Err(end);
        }
        let body = body.concat();
        end.backlog_bytes += HEAD_BYTES + body.len();
        end.backlog.push_back((head, body));
        state.flush(self.end);
        Ok(())
    }

    fn receive(&self, _: &mut Vec<u8>, max: usize, take: &mut dyn FnMut(Head, &[u8])) -> Result<usize, LinkEnd> {
        let mut count = 0;
        while count < max {
            let mut state = lock(&self.network.state);
            let end = state.ends.get_mut(&self.end).expect("an end exists as long as its path");
            let Some((head, body)) = end.arrived.pop_front() else {
                if count > 0 {
                    break;
                }
                return end.end().map_or(Ok(0), Err);
            };
            end.bytes -= HEAD_BYTES + body.len();
            // The peer may go on. It hears of that at once.
            if state.flush(peer_of(self.end)) {
                let now_ns = state.now_ns;
                if let Some(peer) = state.ends.get_mut(&peer_of(self.end)) {
                    peer.under_way.push_back(Message::Room);
                    let at_ns = peer.last_ns.max(now_ns);
                    state.schedule(at_ns, peer_of(self.end));
                }
            }
            drop(state);
            take(head, &body);
            count += 1;
        }
        Ok(count)
    }

    fn prepare_sleep(&self) -> bool {
        self.with(|end| {
            end.is_asleep = end.arrived.is_empty() && end.end().is_none();
            end.is_asleep
        })
    }

    fn end_sleep(&self) {
        self.with(|end| end.is_asleep = false);
        self.waker.reset();
    }

    fn pass_time(&self) -> bool {
        self.network.pass_time()
    }

    fn may_receive(&self) -> bool {
        self.network.is_driven_here()
    }

    fn descriptors(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        (self.waker.as_fd(), None)
    }

    fn backlog_bytes(&self) -> usize {
        self.with(|end| end.backlog_bytes)
    }

    fn note_end(&self) {}

    fn close(&self) {
        let mut state = lock(&self.network.state);
        let Some(end) = state.ends.get_mut(&self.end) else { return };
        if !std::mem::replace(&mut end.is_closed_here, true) {
            // What waits in the backlog is lost, as in a connection that is cut off.
            end.backlog.clear();
            end.backlog_bytes = 0;
            state.send(self.end, Message::End, 0);
        }
    }
}

impl Drop for SimulatedPath {
    fn drop(&mut self) {
        self.close();
        lock(&self.network.state).ends.remove(&self.end);
    }
}
