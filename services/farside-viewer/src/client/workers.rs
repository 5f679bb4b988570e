//! [`WorkerState`]: what the workers of a job are doing, and where their time goes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::{Duration, Instant};

use farside_inspect::__private::protocol::{
    Answer, CalledFunction, Counted, Position, Question, WhomNow, WorkerNow, WorkersNow,
};
use farside_rpc::Pending;

use super::error::InspectError;
use super::inspector::Inspector;

/// The time for which one look makes workers count.
const WATCH_MS: u32 = 5_000;
/// Two times of one moment differ by less. They are measured anew for each look.
const SAME_MOMENT: Duration = Duration::from_millis(1);
/// How long two workers must have waited before they count as a cycle.
const CYCLE_AGE: Duration = Duration::from_millis(100);

/// A place in the program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// The activity there, such as `waiting at a barrier`.
    pub doing: String,
    /// The file.
    pub file: String,
    /// The line.
    pub line: u32,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}:{}", self.doing, self.file, self.line)
    }
}

impl From<&Position> for Site {
    fn from(position: &Position) -> Self {
        Self { doing: position.doing.clone(), file: position.file.clone(), line: position.line }
    }
}

/// Whom a worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Awaited {
    /// No one in particular, or it is not known.
    Unknown,
    /// A worker.
    Worker(u32),
    /// Some thread of a process.
    Process(u32),
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Worker(worker) => write!(f, "worker {worker}"),
            Self::Process(process) => write!(f, "process {process}"),
        }
    }
}

impl From<WhomNow> for Awaited {
    fn from(whom: WhomNow) -> Self {
        match whom {
            WhomNow::Unknown => Self::Unknown,
            WhomNow::Worker(worker) => Self::Worker(worker),
            WhomNow::Process(process) => Self::Process(process),
        }
    }
}

/// A wait.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitState {
    /// Where, and what for.
    pub site: Site,
    /// For whom.
    pub whom: Awaited,
    /// Since when, by the monotonic clock of the job's machine.
    pub since: Duration,
}

/// A call that a worker runs for another one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallState {
    /// A place at which the function is called, if one is known: the call began while the worker
    /// was watched, and so did a call of the same function.
    pub site: Option<Site>,
    /// Since when, if that is known.
    pub since: Option<Duration>,
}

/// Counters of a worker since the job began. A worker publishes them when it next waits or makes
/// progress, so they may be old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerCounters {
    /// When the worker published them, by the monotonic clock of the job's machine.
    pub at: Duration,
    /// Calls made.
    pub calls: u64,
    /// Bytes of these calls.
    pub bytes: u64,
    /// The number of times that a call found no room.
    pub stalls: u64,
    /// Calls that were queued before they were sent.
    pub staged: u64,
    /// Calls run for others.
    pub executed: u64,
    /// Calls by name that were refused.
    pub refused: u64,
    /// Its calls that wait for their results.
    pub replies_pending: u64,
    /// Bytes of rings to its process.
    pub ring_bytes: u64,
}

impl WorkerCounters {
    fn of(at: Duration, counted: Counted) -> Self {
        let Counted { calls, bytes, stalls, staged, executed, refused, replies_pending, ring_bytes } = counted;
        Self { at, calls, bytes, stalls, staged, executed, refused, replies_pending, ring_bytes }
    }

    /// The difference to earlier counters, in the time between them. A number that is pending or in
    /// use now stays.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            at: self.at.saturating_sub(before.at),
            calls: self.calls.saturating_sub(before.calls),
            bytes: self.bytes.saturating_sub(before.bytes),
            stalls: self.stalls.saturating_sub(before.stalls),
            staged: self.staged.saturating_sub(before.staged),
            executed: self.executed.saturating_sub(before.executed),
            refused: self.refused.saturating_sub(before.refused),
            ..*self
        }
    }
}

/// The activity of a worker: [`Inspector::workers`]. A worker with neither a wait nor a call
/// computes, or waits since some microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerState {
    /// Its process.
    pub process: u32,
    /// Its number.
    pub worker: u32,
    /// True if it is a thread of a pool.
    pub is_of_pool: bool,
    /// The time of this look, by the monotonic clock of the job's machine.
    pub at: Duration,
    /// The wait.
    pub wait: Option<WaitState>,
    /// The call that it runs, perhaps in its wait.
    pub call: Option<CallState>,
    /// The counters, if it has published them.
    pub counters: Option<WorkerCounters>,
    /// Since when it counts times.
    counted_from: Option<Duration>,
    in_calls: Duration,
    in_waits: BTreeMap<Site, Duration>,
}

/// Where the time of a worker went: [`WorkerState::since`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Shares {
    /// The time between the two looks.
    pub time: Duration,
    /// The program's own time.
    pub program: Duration,
    /// The time of calls run for others.
    pub calls: Duration,
    /// The time of waits without calls in them, the longest first.
    pub waits: Vec<(Site, Duration)>,
}

impl Shares {
    /// The time of all waits.
    #[must_use]
    pub fn all_waits(&self) -> Duration {
        self.waits.iter().map(|(_, time)| *time).sum()
    }
}

impl WorkerState {
    /// Where the time of the worker went since an earlier look. A worker that has not looked at its
    /// notices between the two computed, or stood in the same wait or call.
    ///
    /// Returns `None` if it has begun to count anew between the looks, or they are of different
    /// workers.
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<Shares> {
        let is_same = |now: Duration| before.counted_from.is_none_or(|then| then.abs_diff(now) < SAME_MOMENT);
        let is_anew = before.counted_from.is_some() && !self.counted_from.is_some_and(is_same);
        if is_anew || (before.process, before.worker) != (self.process, self.worker) {
            return None;
        }
        let time = self.at.saturating_sub(before.at);
        // If it began to count between the looks, it did so in a wait or at one of its looks.
        let mut left = time;
        let mut take = |part: Duration| {
            let part = part.min(left);
            left -= part;
            part
        };
        let earlier = |site: &Site| before.in_waits.get(site).copied().unwrap_or_default();
        let mut waits: Vec<_> =
            self.in_waits.iter().map(|(site, total)| (site.clone(), total.saturating_sub(earlier(site)))).collect();
        waits.sort_by_key(|(_, time)| Reverse(*time));
        waits.iter_mut().for_each(|(_, part)| *part = take(*part));
        waits.retain(|(_, part)| !part.is_zero());
        let mut calls = take(self.in_calls.saturating_sub(before.in_calls));
        if let (Some(now), Some(then)) = (&self.call, &before.call)
            && now.since.is_none()
            && then.since.is_none()
        {
            // A call that began before any one looked.
            calls += take(time);
        }
        Some(Shares { time, program: left, calls, waits })
    }
}

/// The workers that wait for each other, in circles: each list is one, and each worker in it waits
/// for the next, the last one for the first. Only waits count in which both looks found the
/// workers, and that are older than 0.1 s.
///
/// A worker that waits still runs calls, so a circle is no proof that the job stands still.
#[must_use]
pub fn cycles(before: &[WorkerState], now: &[WorkerState]) -> Vec<Vec<u32>> {
    let threads = |process: u32| now.iter().filter(move |worker| worker.process == process && !worker.is_of_pool);
    let mut waits_for = BTreeMap::new();
    for worker in now {
        let Some(wait) = &worker.wait else { continue };
        let is_same = |then: &WaitState| {
            (&then.site, then.whom) == (&wait.site, wait.whom) && then.since.abs_diff(wait.since) < SAME_MOMENT
        };
        let stood = |then: &WorkerState| then.worker == worker.worker && then.wait.as_ref().is_some_and(is_same);
        if worker.at.saturating_sub(wait.since) < CYCLE_AGE || !before.iter().any(stood) {
            continue;
        }
        let whom = match wait.whom {
            Awaited::Worker(whom) => Some(whom),
            // It is clear which thread if there is one.
            Awaited::Process(process) if threads(process).count() == 1 => {
                threads(process).next().map(|worker| worker.worker)
            }
            _ => None,
        };
        if let Some(whom) = whom {
            waits_for.insert(worker.worker, whom);
        }
    }
    let mut found = Vec::new();
    let mut seen = BTreeMap::new();
    for (walk, start) in waits_for.keys().copied().enumerate() {
        let mut at = start;
        while let Some(next) = waits_for.get(&at).copied() {
            match seen.insert(at, walk) {
                None => at = next,
                // This walk has come round.
                Some(of) if of == walk => {
                    let mut cycle = vec![at];
                    let mut after = next;
                    while after != at {
                        cycle.push(after);
                        after = waits_for[&after];
                    }
                    found.push(cycle);
                    break;
                }
                Some(_) => break,
            }
        }
    }
    found
}

/// The places where functions are called, as all processes of the job have reported so far.
pub(super) type Called = HashMap<(u16, u32), Site>;

/// Adds the report of a process. The numbers of functions are the same in all processes of one
/// program.
pub(super) fn add_called(called: &mut Called, functions: &[CalledFunction], sites: &[Site]) {
    for CalledFunction { entry, offset, place } in functions {
        if let Some(site) = sites.get(usize::from(*place)) {
            called.entry((*entry, *offset)).or_insert_with(|| site.clone());
        }
    }
}

impl Inspector {
    /// The activity of the workers of the job, by number. For the next 5 s the workers count the
    /// time of waits and calls, so that two looks say where the time between them went.
    ///
    /// A program that shows no area is seen if `farside run` has started it, or if one of its
    /// workers calls [`open_door`](farside_inspect::Expose::open_door).
    ///
    /// *Cost* for the job: some 50 ns for each wait and some 20 ns for each call while workers
    /// count; a worker that sleeps is woken for a moment by each look.
    ///
    /// # Errors
    /// [`InspectError::Silent`] if a process does not answer; [`InspectError::NoJob`] if the job
    /// has ended.
    pub fn workers(&self) -> Result<Vec<WorkerState>, InspectError> {
        let told = self.ask_workers(Question::Watch(WATCH_MS))?;
        let sites: Vec<Vec<Site>> = told.iter().map(|(_, now)| now.places.iter().map(Site::from).collect()).collect();
        let mut called = Called::new();
        for ((_, now), sites) in told.iter().zip(&sites) {
            add_called(&mut called, &now.functions, sites);
        }
        let mut workers = Vec::new();
        for ((process, now), sites) in told.into_iter().zip(&sites) {
            workers.extend(now.workers.into_iter().map(|worker| state(process, worker, sites, &called)));
        }
        workers.sort_by_key(|worker| worker.worker);
        Ok(workers)
    }

    /// Asks all processes at once what their workers are doing.
    pub(super) fn ask_workers(&self, question: Question) -> Result<Vec<(u32, WorkersNow)>, InspectError> {
        let deadline = Instant::now() + self.time();
        let guests = self.all_seen(deadline)?;
        let asked: Vec<_> =
            guests.iter().map(|(process, guest)| (*process, guest, guest.until(deadline).look(question))).collect();
        let mut told = Vec::new();
        for (process, guest, asked) in asked {
            match asked.and_then(Pending::wait) {
                Ok(Answer::Workers(now)) => told.push((process, now)),
                Ok(_) => {}
                Err(error) => match self.failure(process, guest, error) {
                    InspectError::Lost { .. } => {}
                    failure => return Err(failure),
                },
            }
        }
        Ok(told)
    }
}

fn state(process: u32, now: WorkerNow, sites: &[Site], called: &Called) -> WorkerState {
    let unknown = || Site { doing: "waiting".into(), file: "?".into(), line: 0 };
    let site = |place: u16| sites.get(usize::from(place)).cloned().unwrap_or_else(unknown);
    let time = Duration::from_nanos;
    let wait =
        now.wait.map(|(place, whom, since)| WaitState { site: site(place), whom: whom.into(), since: time(since) });
    let call = now.runs_call.then(|| CallState {
        site: now.call.and_then(|(entry, offset, _)| called.get(&(entry, offset)).cloned()),
        since: now.call.map(|(_, _, since)| time(since)),
    });
    let mut in_waits = BTreeMap::new();
    for (place, total) in now.in_waits_ns {
        *in_waits.entry(site(place)).or_default() += time(total);
    }
    WorkerState {
        process,
        worker: now.thread.worker,
        is_of_pool: now.thread.is_of_pool,
        at: time(now.at_ns),
        wait,
        call,
        counters: now.counters.map(|(at, counted)| WorkerCounters::of(time(at), counted)),
        counted_from: now.counted_from_ns.map(time),
        in_calls: time(now.in_calls_ns),
        in_waits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(line: u32) -> Site {
        Site { doing: "waiting".into(), file: "a.rs".into(), line }
    }

    fn waits(worker: u32, whom: Awaited) -> WorkerState {
        let wait = WaitState { site: site(worker), whom, since: Duration::from_secs(1) };
        WorkerState {
            process: worker,
            worker,
            is_of_pool: false,
            at: Duration::from_secs(3),
            wait: Some(wait),
            call: None,
            counters: None,
            counted_from: Some(Duration::ZERO),
            in_calls: Duration::ZERO,
            in_waits: BTreeMap::new(),
        }
    }

    #[test]
    fn circles_of_waits_are_found() {
        use Awaited::{Process, Unknown, Worker};
        let all = |whoms: &[Awaited]| -> Vec<_> {
            whoms.iter().enumerate().map(|(worker, whom)| waits(worker as u32, *whom)).collect()
        };
        let found = |now: &[WorkerState]| cycles(now, now);
        assert_eq!(found(&all(&[Worker(1), Worker(0)])), [[0, 1]]);
        assert_eq!(found(&all(&[Worker(1), Worker(2), Worker(1), Unknown])), [[1, 2]]);
        assert_eq!(found(&all(&[Worker(2), Unknown, Process(0), Worker(4), Worker(3)])), [vec![0, 2], vec![3, 4]]);
        assert_eq!(found(&all(&[Worker(1), Worker(2), Worker(3), Unknown])), Vec::<Vec<u32>>::new());
        assert_eq!(found(&all(&[Worker(7), Worker(1)])), [[1]]);
        // A wait that is young, or another one than before, is none of a circle.
        let now = all(&[Worker(1), Worker(0)]);
        let mut young = now.clone();
        young[0].at = Duration::from_millis(1050);
        assert!(cycles(&young, &young).is_empty());
        let mut other = now.clone();
        other[1].wait.as_mut().unwrap().since += Duration::from_millis(1);
        assert!(cycles(&other, &now).is_empty());
    }

    #[test]
    fn times_between_two_looks_make_up_the_whole() {
        let ms = Duration::from_millis;
        let mut before = waits(0, Awaited::Unknown);
        before.in_waits.insert(site(1), ms(50));
        let mut now = before.clone();
        now.at += ms(100);
        now.in_waits.insert(site(1), ms(70));
        now.in_waits.insert(site(2), ms(30));
        now.in_calls = ms(10);
        let shares = now.since(&before).unwrap();
        assert_eq!((shares.time, shares.program, shares.calls), (ms(100), ms(40), ms(10)));
        assert_eq!(shares.waits, [(site(2), ms(30)), (site(1), ms(20))]);
        // A wait that began before the first look, and was not counted then.
        now.in_waits.insert(site(2), ms(3000));
        let shares = now.since(&before).unwrap();
        assert_eq!((shares.all_waits(), shares.program, shares.calls), (ms(100), ms(0), ms(0)));
        let mut anew = now.clone();
        anew.counted_from = Some(ms(2));
        assert_eq!(anew.since(&before), None);
        // A call that stands.
        let call = CallState { site: None, since: None };
        (before.call, now.call) = (Some(call.clone()), Some(call));
        (before.in_waits, now.in_waits) = Default::default();
        now.in_calls = Duration::ZERO;
        assert_eq!(now.since(&before).unwrap().calls, ms(100));
    }
}
