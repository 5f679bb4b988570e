//! [`Turns`]: the loop of a server, one turn at a time, and [`Monitor`], which looks at it.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farside_connect::door::{Door, Greeted, Guest, OUTSIDERS_MAX, Policy, Progress};
use farside_connect::link::Link;
use farside_connect::{Address, LinkEnd, Path, Peer, Refusal, lock};
use farside_sys::poller::{Poller, Ready};
use farside_sys::process::Origin;

use super::Shared;
use super::dump::{Dump, Unfinished};
use super::registry::ProcedureStats;
use super::session::{Handle, Session};

/// The number under which the poller knows the waker.
const WAKER: u64 = u64::MAX;
/// The first number of a connection. Smaller numbers are those of doors.
const FIRST_CONNECTION: u64 = 1 << 16;
/// The number of connections that may be in their greeting at once.
const GUESTS_MAX: usize = 256;
/// The number of frames of one connection after which others have their turn.
const FRAMES_PER_TURN: usize = 256;
/// For how long a door is closed that could not accept a connection.
const PAUSE: Duration = Duration::from_millis(100);
/// The number of turns between two looks at the poller, while connections are busy.
const TURNS_PER_POLL: u32 = 512;
/// How long a server that drains waits for something to happen.
pub(super) const DRAIN_STEP: Duration = Duration::from_millis(10);
/// After handlers have taken this long, the next turn looks at the poller.
const POLL_AFTER: Duration = Duration::from_micros(100);
/// The number of looks at an idle connection between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 64;

/// A server that does its work when the program calls [`turn`](Self::turn).
///
/// Its descriptor ([`AsFd`]) is readable when there is something to do, so it fits into any event
/// loop. Some things are to be done at a time, which [`due`](Self::due) tells. Handlers run inside
/// `turn`. With the feature `tokio`, `run` is such a loop as a task.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use farside_rpc::Server;
///
/// let name = format!("shm:turned-{}", std::process::id());
/// let mut turns = Server::builder().listen(name)?.turns()?;
/// for _ in 0..10 {
///     // Other work of the program.
///     turns.turn(Duration::from_millis(1));
/// }
/// assert!(turns.monitor().dump().calls.is_empty());
/// turns.shutdown(Instant::now() + Duration::from_secs(5))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Turns {
    shared: Arc<Shared>,
    doors: Vec<Door>,
    /// A forked child shares the poller.
    origin: Origin,
    poller: Poller,
    guests: HashMap<u64, Guest>,
    links: HashMap<u64, Connected>,
    /// The connections that may have something, in no order.
    active: Vec<Active>,
    next_number: u64,
    /// When doors that could not accept a connection open again.
    opens_at: Option<Instant>,
    turns_since_poll: u32,
    polled_at: Instant,
    /// True if this has woken its own waker, so that the descriptor is readable.
    is_woken: bool,
    scratch: Vec<u8>,
    found: Vec<Ready>,
}

#[derive(Debug)]
struct Connected {
    link: Arc<Link>,
    is_active: bool,
}

/// A connection that may have something.
#[derive(Debug)]
struct Active {
    number: u64,
    link: Arc<Link>,
    /// The number of looks in a row that found nothing, and when the first was.
    looks: u32,
    idle_since: Option<Instant>,
}

/// Looks at a server that works in [turns](Turns): [`Turns::monitor`]. It keeps the server from
/// nothing.
#[derive(Clone, Debug)]
pub struct Monitor(Arc<Shared>);

impl Monitor {
    /// The statistics of each procedure.
    #[must_use]
    pub fn stats(&self) -> Vec<ProcedureStats> {
        self.0.registry.stats()
    }

    /// The connections, and the calls that were accepted and not answered.
    #[must_use]
    pub fn dump(&self) -> Dump {
        self.0.registry.dump()
    }

    /// The number of connections.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.0.connection_count.load(Ordering::Relaxed)
    }
}

/// Returns whether something is to be sent, or a result to be taken.
fn is_pending(link: &Link) -> bool {
    link.path().backlog_bytes() > 0 || link.exposed_count() > 0
}

/// The next step of a connection that was looked at.
enum Next {
    Look,
    /// The poller reports it when there is something.
    Sleep,
    Remove,
}

impl Turns {
    pub(super) fn new(shared: Arc<Shared>, doors: Vec<Door>) -> io::Result<Self> {
        let poller = Poller::new()?;
        for (number, door) in (0..).zip(&doors) {
            poller.add_readable(door.as_fd(), number)?;
        }
        poller.add_readable(shared.waker.as_fd(), WAKER)?;
        Ok(Self {
            shared,
            doors,
            origin: Origin::here(),
            poller,
            guests: HashMap::new(),
            links: HashMap::new(),
            active: Vec::new(),
            next_number: FIRST_CONNECTION,
            opens_at: None,
            turns_since_poll: 0,
            polled_at: Instant::now(),
            is_woken: false,
            scratch: Vec::new(),
            found: Vec::with_capacity(64),
        })
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Where the server listens, with the real ports.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        self.doors.iter().map(|door| door.address().clone()).collect()
    }

    /// The number of connections.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.links.len()
    }

    /// Looks at this server, here or elsewhere, also while it runs as a task.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor(self.shared.clone())
    }

    /// Accepts no more connections and calls. Turns go on with what was accepted before.
    pub fn stop(&mut self) {
        self.shared.is_closing.store(true, Ordering::Relaxed);
    }

    /// Returns whether all calls that were accepted have ended, and their answers were taken. A
    /// server that has [stopped](Self::stop) may be dropped then.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let is_pending = |connected: &Connected| is_pending(&connected.link);
        !self.origin.is_here() || self.shared.queue.unfinished() == 0 && !self.links.values().any(is_pending)
    }

    /// [Stops](Self::stop), and turns until the server is [drained](Self::is_drained), at most
    /// until `by`. Handlers run in turns, so one that takes long delays the end.
    ///
    /// # Errors
    /// [`Unfinished`] lists the calls that were still under way then. Their callers get an error.
    pub fn shutdown(mut self, by: Instant) -> Result<(), Unfinished> {
        self.drain(by);
        self.unfinished()
    }

    fn drain(&mut self, by: Instant) {
        self.stop();
        while !self.is_drained() && Instant::now() < by {
            self.turn(by.saturating_duration_since(Instant::now()).min(DRAIN_STEP));
        }
    }

    /// The calls that are under way, as an error.
    pub(super) fn unfinished(&self) -> Result<(), Unfinished> {
        let is_done = !self.origin.is_here() || self.shared.queue.unfinished() == 0;
        if is_done { Ok(()) } else { Unfinished::check(self.shared.registry.dump()) }
    }

    /// When the next turn is due, also if nothing arrives until then.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let guests = self.guests.values().map(Guest::until).min();
        guests.into_iter().chain(self.opens_at).chain(self.shared.deadlines.first()).min()
    }

    /// Returns whether the next turn may find something of which the descriptor does not tell anew:
    /// a connection may have it, or the last turn took only a part of what was there.
    pub(crate) fn may_have_more(&self) -> bool {
        !self.active.is_empty() || !self.found.is_empty()
    }

    /// Handles what has arrived, and waits for it at most for `wait`. Returns the number of frames
    /// and calls that were handled.
    pub fn turn(&mut self, wait: Duration) -> usize {
        if !self.origin.is_here() {
            std::thread::sleep(wait);
            return 0;
        }
        self.poll(wait);
        if self.shared.unsent.is_over() {
            self.end_slow();
        }
        let mut handled = 0;
        let mut index = 0;
        // A single connection reads the clock less often than it is looked at.
        let now = (self.active.len() > 1).then(Instant::now);
        while index < self.active.len() {
            let (count, next) = self.active[index].serve(&mut self.scratch, self.shared.options.spin, now);
            handled += count;
            if matches!(next, Next::Look) {
                index += 1;
                continue;
            }
            let number = self.active.swap_remove(index).number;
            self.stop_looking(number, matches!(next, Next::Remove));
        }
        if self.shared.options.pool == 0 {
            // A handler that is woken again at once has its next turn later.
            for _ in 0..self.shared.queue.waiting() {
                let Some(number) = self.shared.queue.run_one() else { break };
                handled += 1;
                if self.polled_at.elapsed() > POLL_AFTER {
                    self.turns_since_poll = TURNS_PER_POLL;
                }
                // The handler may have received for itself, and have ended the prepared sleep.
                self.connection_is_ready(number, false);
            }
            // An event loop waits for the descriptor, which knows nothing of busy connections.
            if !self.active.is_empty() && !self.is_woken {
                self.is_woken = true;
                self.shared.waker.wake();
            }
        }
        handled
    }

    /// Ends the connections for which the most waits to be sent.
    fn end_slow(&mut self) {
        let is_to_end = |connected: &Connected| self.shared.unsent.is_to_end(connected.link.unsent_bytes());
        let slow: Vec<_> = self.links.iter().filter(|(_, connected)| is_to_end(connected)).collect();
        let slow: Vec<_> = slow.into_iter().map(|(number, connected)| (*number, connected.link.clone())).collect();
        for (number, link) in slow {
            let max = self.shared.unsent.max();
            link.close(LinkEnd::protocol(format_args!(
                "it reads too slowly: more than {max} bytes wait to be sent to clients, and the most to it; \
                 allow more by Builder::max_unsent_bytes"
            )));
            // The next look at it removes it.
            self.connection_is_ready(number, false);
        }
    }

    /// Runs turns until the server ends.
    pub(super) fn serve(&mut self) {
        while !self.shared.is_ended.load(Ordering::Relaxed) {
            self.turn(Duration::from_secs(3600));
        }
        let drains_until = lock(&self.shared.drains_until).take();
        drains_until.into_iter().for_each(|by| self.drain(by));
        self.close();
    }

    fn close(&mut self) {
        self.doors.clear();
        self.guests.clear();
        self.active.clear();
        for (_, connected) in self.links.drain() {
            connected.link.close(LinkEnd::Here);
        }
        self.count_connections();
        if self.shared.options.pool == 0 {
            // The calls are cancelled now: their handlers do not run any more.
            self.shared.queue.close();
            while self.shared.queue.run_one().is_some() {}
        }
        for (path, address) in &self.shared.announced {
            // Another server may have written its address there meanwhile.
            if Address::File(path.clone()).follow().is_ok_and(|found| found == *address) {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Finds out which connections may have something.
    fn poll(&mut self, wait: Duration) {
        let is_busy = !self.active.is_empty();
        if is_busy {
            self.turns_since_poll += 1;
            if self.turns_since_poll < TURNS_PER_POLL && !self.shared.options.spin.is_zero() {
                return;
            }
        }
        self.turns_since_poll = 0;
        let now = Instant::now();
        self.polled_at = now;
        let wait = if is_busy {
            Duration::ZERO
        } else {
            self.due().map_or(wait, |due| wait.min(due.saturating_duration_since(now)))
        };
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        // A failure of the system shows in the next turn again; the wait bounds how often.
        if self.poller.wait(&mut found, Some(wait)).is_err() {
            std::thread::sleep(wait.min(Duration::from_millis(10)));
        }
        for ready in &found {
            match ready.number {
                WAKER => {
                    self.is_woken = false;
                    self.shared.waker.reset();
                }
                number if number < FIRST_CONNECTION => self.accept(number as usize),
                number => self.connection_is_ready(number, ready.has_ended),
            }
        }
        self.found = found;
        if self.opens_at.is_some_and(|at| at <= now) {
            self.opens_at = None;
            for (number, door) in (0..).zip(&self.doors) {
                // A door that was not closed is in the set already.
                let _ = self.poller.add_readable(door.as_fd(), number);
            }
        }
        self.guests.extract_if(|_, guest| guest.until() <= now).for_each(|(_, guest)| guest.expire());
        self.shared.deadlines.expire();
    }

    fn accept(&mut self, door: usize) {
        // A few at a time: connections that exist have their turn, too.
        for _ in 0..16 {
            let Some(door) = self.doors.get(door) else { return };
            let outsiders = self.guests.values().filter(|guest| guest.is_outsider()).count();
            let has_room_for_outsiders = outsiders < OUTSIDERS_MAX as usize;
            let has_room = self.guests.len() < GUESTS_MAX && (has_room_for_outsiders || !door.is_network());
            // Further guests wait outside, where the system keeps them.
            let accepted = if has_room { door.accept() } else { Err(ErrorKind::Other.into()) };
            let guest = match accepted {
                Ok(guest) => guest,
                Err(error) => {
                    // A connection that cannot be accepted now would be reported for ever.
                    if error.kind() != ErrorKind::WouldBlock {
                        self.poller.remove(door.as_fd());
                        self.opens_at = Some(Instant::now() + PAUSE);
                    }
                    return;
                }
            };
            let Some(guest) = guest.judge(&self.shared.policy, has_room_for_outsiders) else { continue };
            let max = self.shared.options.max_connections;
            let guest = match () {
                () if self.shared.is_closing.load(Ordering::Relaxed) => guest.refuse_later(Refusal::ShuttingDown),
                () if self.links.len() >= max as usize => guest.refuse_later(Refusal::Full { max }),
                () => guest,
            };
            let number = self.next_number;
            self.next_number += 1;
            if self.poller.add(guest.as_fd(), number).is_ok() {
                self.advance(number, guest.with_number(number));
            }
        }
    }

    fn connection_is_ready(&mut self, number: u64, has_ended: bool) {
        if let Some(guest) = self.guests.remove(&number) {
            self.advance(number, guest);
            return;
        }
        let Some(connected) = self.links.get_mut(&number) else { return };
        if has_ended {
            connected.link.path().note_end();
        }
        if !connected.is_active {
            connected.is_active = true;
            connected.link.path().end_sleep();
            self.active.push(Active::new(number, connected.link.clone()));
        }
    }

    fn advance(&mut self, number: u64, guest: Guest) {
        match guest.advance(&self.shared.policy) {
            Progress::Waiting(guest) => drop(self.guests.insert(number, guest)),
            Progress::Gone => {}
            Progress::Greeted(greeted) => self.begin(number, greeted),
        }
    }

    fn begin(&mut self, number: u64, Greeted { path, peer }: Greeted) {
        let session = Arc::new(Session::new(self.shared.clone(), number, peer));
        let link = Link::new(path, Box::new(Handle(session.clone())), self.shared.limits());
        self.shared.registry.connections.add(&session, &link);
        // The socket has been in the set since the greeting.
        if let (_, Some(waker)) = link.path().descriptors()
            && self.poller.add(waker, number).is_err()
        {
            link.close(LinkEnd::Here);
            return;
        }
        self.active.push(Active::new(number, link.clone()));
        self.links.insert(number, Connected { link, is_active: true });
        self.count_connections();
    }

    /// Takes over a connection that needs no greeting. Returns its number.
    pub(crate) fn adopt(&mut self, path: Box<dyn Path>, peer: Peer) -> io::Result<u64> {
        let number = self.next_number;
        self.poller.add(path.descriptors().0, number)?;
        self.next_number += 1;
        self.begin(number, Greeted { path, peer });
        Ok(number)
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.shared.policy
    }

    fn count_connections(&self) {
        self.shared.connection_count.store(self.links.len(), Ordering::Relaxed);
    }

    /// Leaves a connection to the poller, or removes it.
    fn stop_looking(&mut self, number: u64, has_ended: bool) {
        let Some(connected) = self.links.get_mut(&number) else { return };
        connected.is_active = false;
        if has_ended {
            // A client that keeps its end open must not be reported any more.
            let (socket, waker) = connected.link.path().descriptors();
            self.poller.remove(socket);
            waker.into_iter().for_each(|waker| self.poller.remove(waker));
            self.links.remove(&number);
            self.count_connections();
        }
    }
}

impl Active {
    fn new(number: u64, link: Arc<Link>) -> Self {
        Self { number, link, looks: 0, idle_since: None }
    }

    /// Receives from the connection. Returns the number of frames. Looks for `spin` before it
    /// sleeps.
    fn serve(&mut self, scratch: &mut Vec<u8>, spin: Duration, now: Option<Instant>) -> (usize, Next) {
        let mut handled = 0;
        loop {
            match self.link.step(scratch) {
                Ok(0) => break,
                Ok(count) => handled += count,
                Err(_) => return (handled, Next::Remove),
            }
            if handled >= FRAMES_PER_TURN {
                return (handled, Next::Look);
            }
        }
        if !spin.is_zero() && handled > 0 {
            (self.looks, self.idle_since) = (0, None);
            return (handled, Next::Look);
        }
        if !spin.is_zero() {
            self.looks += 1;
            if now.is_none() && !self.looks.is_multiple_of(LOOKS_PER_CLOCK) {
                return (handled, Next::Look);
            }
            let now = now.unwrap_or_else(Instant::now);
            if now - *self.idle_since.get_or_insert(now) < spin {
                return (handled, Next::Look);
            }
        }
        (handled, if self.link.path().prepare_sleep() { Next::Sleep } else { Next::Look })
    }
}

impl AsFd for Turns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        if self.origin.is_here() {
            self.close();
        }
    }
}
