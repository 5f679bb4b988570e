//! [`Trace`]: what the workers of a job did for some time.

mod chrome;
mod clock;
mod summary;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use farside_inspect::__private::doors::Guest;
use farside_inspect::__private::protocol::{Answer, EventNow, EventWhat, EventsNow, Question};
use farside_inspect::Refused;
use farside_rpc::{CallError, Pending};
use farside_sys::process::monotonic_time;

use self::clock::Clock;
pub use self::summary::{CallSite, MessageSum, PutSite, WaitSite};
use super::error::InspectError;
use super::inspector::{Inspector, failure_of};
use super::workers::{Awaited, Called, Site, add_called};

/// The time for which one request makes workers record. It is renewed while the trace goes on, and
/// ends the recording of a client that was killed.
const LEASE_MS: u32 = 3_000;
const RENEW_AFTER: Duration = Duration::from_secs(1);
/// The pause between two takes. Within it a worker may record 65,536 events.
const PAUSE: Duration = Duration::from_millis(10);
/// How long workers may take to see that they are traced. One that computes for longer begins to
/// number the calls that it runs 0.1 s after it has seen it.
const READY: Duration = Duration::from_millis(20);
/// The most events that a trace has.
const EVENTS_MAX: usize = 4_000_000;

/// The events of the workers of a job for some time: [`Inspector::trace`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Trace {
    /// The workers that recorded anything, by number.
    pub workers: Vec<WorkerTrace>,
    /// When it began, by the monotonic clock of this machine.
    pub begin: Duration,
    /// When it ended, by the same clock.
    pub end: Duration,
}

/// The events of a worker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerTrace {
    /// Its process.
    pub process: u32,
    /// Its number.
    pub worker: u32,
    /// The events, in the order in which they ended.
    pub events: Vec<TraceEvent>,
    /// The number of events that were lost, because they came faster than they could be read.
    pub lost: u64,
}

/// An event.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TraceEvent {
    /// When it began, by the monotonic clock of this machine. The clocks of the job's machines are
    /// compared with it, each by the fastest of some questions; half of the time of that question
    /// is the most by which this may be wrong.
    pub at: Duration,
    /// How long it took.
    pub time: Duration,
    /// The kind of the event.
    pub what: Occurrence,
}

/// The kind of the event.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Occurrence {
    /// The worker made a call.
    Sent {
        /// The receiver.
        to: u32,
        /// Where.
        site: Site,
        /// The number of the call among those to the receiver, if it can be paired.
        number: Option<u32>,
    },
    /// The worker ran a call.
    Ran {
        /// The sender.
        from: Awaited,
        /// A place at which the function is called, if one is known.
        site: Option<Site>,
        /// The number of the call among those of the sender, if it can be paired.
        number: Option<u32>,
    },
    /// The worker waited.
    Waited {
        /// Where.
        site: Site,
        /// For whom.
        whom: Awaited,
    },
    /// The worker took part in a collective.
    Collective {
        /// Where.
        site: Site,
    },
    /// The worker wrote memory, or began to.
    Put {
        /// The process of the memory.
        to: u32,
        /// The number of bytes.
        bytes: u64,
        /// Where.
        site: Site,
    },
    /// The worker wrote a message into a pipe.
    Message {
        /// The reader.
        to: u32,
        /// The number of bytes.
        bytes: u64,
    },
}

/// The events of a worker, before names are known.
#[derive(Debug, Default)]
struct Raw {
    events: Vec<EventNow>,
    lost: u64,
    /// The value of the worker's count of lost events at the beginning.
    lost_before: Option<u64>,
    /// The number of events that exceeded what a trace may have.
    unkept: u64,
}

/// A trace that goes on, until it is dropped.
struct Recording<'a> {
    inspector: &'a Inspector,
    session: u32,
    guests: BTreeMap<u32, Guest>,
    found: BTreeMap<(u32, u32), Raw>,
    event_count: usize,
}

impl Recording<'_> {
    /// Begins the trace in all processes, or goes on with it.
    fn renew(&mut self, sends: bool) -> Result<(), InspectError> {
        self.ask(Question::Trace { session: self.session, time_ms: LEASE_MS, sends }).map(drop)
    }

    fn take(&mut self) -> Result<usize, InspectError> {
        let mut count = 0;
        for (process, answer) in self.ask(Question::Events { session: self.session, max: u32::MAX })? {
            let Answer::Events(told) = answer else { continue };
            for EventsNow { worker, events, lost } in told {
                count += events.len();
                let raw = self.found.entry((process, worker)).or_default();
                raw.lost_before.get_or_insert(lost);
                raw.lost = lost;
                let room = EVENTS_MAX.saturating_sub(self.event_count);
                raw.unkept += events.len().saturating_sub(room) as u64;
                self.event_count += events.len().min(room);
                raw.events.extend(events.into_iter().take(room));
            }
        }
        Ok(count)
    }

    /// Asks all processes at once. One that is gone is left out from then on.
    fn ask(&mut self, question: Question) -> Result<Vec<(u32, Answer)>, InspectError> {
        let deadline = Instant::now() + self.inspector.time();
        let guests = self.guests.clone();
        let asked: Vec<_> =
            guests.iter().map(|(process, guest)| (*process, guest, guest.until(deadline).look(question))).collect();
        let mut told = Vec::new();
        for (process, guest, asked) in asked {
            match asked.and_then(Pending::wait) {
                Ok(answer) => told.push((process, answer)),
                // By the launcher's word, it has ended or has no workers yet.
                Err(CallError::Service(Refused::NoJob)) => drop(self.guests.remove(&process)),
                Err(CallError::Service(Refused::Traced)) => return Err(InspectError::Traced { process }),
                Err(error) => match failure_of(guest, process, &error) {
                    InspectError::Lost { .. } => drop(self.guests.remove(&process)),
                    failure => return Err(failure),
                },
            }
        }
        Ok(told)
    }

    fn end(&mut self) {
        // What cannot be ended ends by itself.
        let _ = self.ask(Question::Trace { session: self.session, time_ms: 0, sends: false });
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl Inspector {
    /// Records for some time what the workers of the job do: calls that they make and run, puts,
    /// messages of pipes, waits and collectives. One client at a time can trace a process.
    ///
    /// Gets are not events. A call can be paired with its run unless it goes to a pool, through a
    /// shared ring or to another program.
    ///
    /// *Cost* for the job meanwhile: some 30 ns for each event, and 2 MiB for each worker, which
    /// stay allocated. Memory here: 4 million events at most; further ones are counted as lost.
    ///
    /// # Errors
    /// [`InspectError::Traced`]; those of [`workers`](Self::workers).
    pub fn trace(&self, time: Duration) -> Result<Trace, InspectError> {
        let guests = self.all_seen(Instant::now() + self.time())?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let session = (now.subsec_nanos() ^ std::process::id().rotate_left(16)) | 1;
        let mut recording = Recording { inspector: self, session, guests, found: BTreeMap::new(), event_count: 0 };
        // First all get ready to number the calls that they run; then calls are numbered.
        recording.renew(false)?;
        let clocks = self.clocks(&recording.guests)?;
        thread::sleep(READY);
        recording.take()?;
        recording.renew(true)?;
        let (begin, begun) = (monotonic_time(), Instant::now());
        let mut renewed = begun;
        while begun.elapsed() < time {
            thread::sleep(PAUSE.min(time.saturating_sub(begun.elapsed())));
            if renewed.elapsed() > RENEW_AFTER {
                recording.renew(true)?;
                renewed = Instant::now();
            }
            recording.take()?;
        }
        let end = monotonic_time();
        recording.end();
        // Each answer has a part of what is left.
        while recording.take()? > 0 {}
        let found = std::mem::take(&mut recording.found);
        drop(recording);
        self.named(found, &clocks, begin, end)
    }

    /// Puts the names of places and functions into what was recorded.
    fn named(
        &self,
        found: BTreeMap<(u32, u32), Raw>,
        clocks: &BTreeMap<u32, Clock>,
        begin: Duration,
        end: Duration,
    ) -> Result<Trace, InspectError> {
        let told = self.ask_workers(Question::Workers)?;
        let (mut called, mut sites) = (Called::new(), BTreeMap::new());
        for (process, now) in &told {
            let of_process: Vec<Site> = now.places.iter().map(Site::from).collect();
            add_called(&mut called, &now.functions, &of_process);
            sites.insert(*process, of_process);
        }
        let none = Vec::new();
        let workers = found.into_iter().map(|((process, worker), raw)| {
            let sites = sites.get(&process).unwrap_or(&none);
            let lost = raw.lost.saturating_sub(raw.lost_before.unwrap_or(0)) + raw.unkept;
            let clock = clocks.get(&process).copied().unwrap_or_default();
            let events = within(raw.named(sites, &called), clock, begin, end);
            WorkerTrace { process, worker, events, lost }
        });
        Ok(Trace { workers: workers.collect(), begin, end })
    }
}

/// The events of a process that were not over before the trace and began before its end, in the
/// time of this machine.
fn within(events: Vec<TraceEvent>, clock: Clock, begin: Duration, end: Duration) -> Vec<TraceEvent> {
    let here = events.into_iter().map(|event| TraceEvent { at: clock.here(event.at), ..event });
    here.filter(|event| event.at + event.time >= begin && event.at <= end).collect()
}

impl Raw {
    fn named(self, sites: &[Site], called: &Called) -> Vec<TraceEvent> {
        let unknown = || Site { doing: "at an unknown place".into(), file: "?".into(), line: 0 };
        let site = |place: u16| sites.get(usize::from(place)).cloned().unwrap_or_else(unknown);
        let paired = |number: u32| Some(number).filter(|number| *number != 0);
        let mut events: Vec<TraceEvent> = Vec::with_capacity(self.events.len());
        for EventNow { at_ns, time_ns, what } in self.events {
            let what = match what {
                EventWhat::Sent { to, place, number, .. } => {
                    Occurrence::Sent { to, site: site(place), number: paired(number) }
                }
                EventWhat::Ran { from, entry, offset, number } => {
                    let site = called.get(&(entry, offset)).cloned();
                    Occurrence::Ran { from: from.into(), site, number: paired(number) }
                }
                EventWhat::Waited { place, whom } => Occurrence::Waited { site: site(place), whom: whom.into() },
                EventWhat::Collective { place } => Occurrence::Collective { site: site(place) },
                EventWhat::Put { to, bytes, place } => Occurrence::Put { to, bytes, site: site(place) },
                EventWhat::Message { to, bytes } => Occurrence::Message { to, bytes },
                // The call was not made. Calls of its handlers cannot come between.
                EventWhat::Refused { to: refused, number: of } => {
                    let is_it = |event: &TraceEvent| matches!(event.what, Occurrence::Sent { to, number, .. } if to == refused && number == paired(of));
                    if let Some(index) = events.iter().rposition(is_it) {
                        events.remove(index);
                    }
                    continue;
                }
            };
            events.push(TraceEvent { at: Duration::from_nanos(at_ns), time: Duration::from_nanos(time_ns), what });
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::summary::tests::site;
    use super::*;

    /// The same moments, as processes see them whose clocks differ, come together again.
    #[test]
    fn events_of_other_clocks_are_those_of_this_one() {
        let (begin, end) = (Duration::from_secs(50), Duration::from_secs(60));
        let moments = [48, 49, 50, 55, 60, 61].map(Duration::from_secs);
        for ahead in [0, 3_000_000_000, -40_000_000_000] {
            let at = |moment: Duration| Duration::from_nanos((moment.as_nanos() as i64 + ahead) as u64);
            let event = |moment: &Duration| {
                let what = Occurrence::Collective { site: site("barrier", 3) };
                TraceEvent { at: at(*moment), time: Duration::from_secs(1), what }
            };
            let clock = Clock::of([(begin, at(begin), begin)]);
            let kept = within(moments.iter().map(event).collect(), clock, begin, end);
            let kept: Vec<u64> = kept.iter().map(|event| event.at.as_secs()).collect();
            assert_eq!(kept, [49, 50, 55, 60], "the other clock is {ahead} ns ahead");
        }
    }
}
