//! The summary of a trace by place in the program.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::{Occurrence, Trace};
use crate::client::workers::{Awaited, Site};

/// The calls that were made at one place: [`Trace::calls`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallSite {
    /// The place. `None` for calls whose place is not known.
    pub site: Option<Site>,
    /// The number of calls made.
    pub sent: u64,
    /// The number of calls run.
    pub ran: u64,
    /// The time that they took.
    pub time: Duration,
    /// The mean time from a call to its run, of calls that were paired.
    pub delay: Option<Duration>,
}

/// The waits at one place: [`Trace::waits`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitSite {
    /// The place.
    pub site: Site,
    /// The number of waits.
    pub count: u64,
    /// The time that they took, with calls that ran in them.
    pub time: Duration,
    /// The longest one.
    pub longest: Duration,
    /// For whom, and for how long in all, the longest first.
    pub whom: Vec<(Awaited, Duration)>,
}

/// The puts at one place: [`Trace::puts`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PutSite {
    /// The place.
    pub site: Site,
    /// The number of puts.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The messages of pipes from one worker to another: [`Trace::messages`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageSum {
    /// The writer.
    pub from: u32,
    /// The reader.
    pub to: u32,
    /// The number of messages.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The sums of the calls of one place.
#[derive(Debug, Default)]
struct Sums {
    sent: u64,
    ran: u64,
    time: Duration,
    paired: u32,
    delay: Duration,
}

/// The call behind a run: when it was made, and where.
pub(super) type Origins<'a> = HashMap<(u32, u32, u32), (Duration, &'a Site)>;

impl Trace {
    /// The calls, by sender, receiver and number.
    pub(super) fn origins(&self) -> Origins<'_> {
        let mut origins = Origins::new();
        for of in &self.workers {
            for event in &of.events {
                if let Occurrence::Sent { to, site, number: Some(number) } = &event.what {
                    origins.insert((of.worker, *to, *number), (event.at, site));
                }
            }
        }
        origins
    }

    /// The calls by the place where they were made, those that took longest first.
    #[must_use]
    pub fn calls(&self) -> Vec<CallSite> {
        let origins = self.origins();
        let mut sums: BTreeMap<Option<&Site>, Sums> = BTreeMap::new();
        for of in &self.workers {
            for event in &of.events {
                match &event.what {
                    Occurrence::Sent { site, .. } => sums.entry(Some(site)).or_default().sent += 1,
                    Occurrence::Ran { from, site, number } => {
                        let origin = match (from, number) {
                            (Awaited::Worker(from), Some(number)) => origins.get(&(*from, of.worker, *number)),
                            _ => None,
                        };
                        let sum = sums.entry(origin.map(|(_, site)| *site).or(site.as_ref())).or_default();
                        sum.ran += 1;
                        sum.time += event.time;
                        if let Some((at, _)) = origin {
                            sum.paired += 1;
                            sum.delay += event.at.saturating_sub(*at);
                        }
                    }
                    _ => {}
                }
            }
        }
        let site = |(site, sum): (Option<&Site>, Sums)| {
            let Sums { sent, ran, time, paired, delay } = sum;
            CallSite { site: site.cloned(), sent, ran, time, delay: (paired > 0).then(|| delay / paired) }
        };
        let mut sites: Vec<_> = sums.into_iter().map(site).collect();
        sites.sort_by_key(|site: &CallSite| Reverse((site.time, site.sent)));
        sites
    }

    /// The puts by place, those of the most bytes first.
    #[must_use]
    pub fn puts(&self) -> Vec<PutSite> {
        let mut sums: BTreeMap<&Site, (u64, u64)> = BTreeMap::new();
        for event in self.workers.iter().flat_map(|of| &of.events) {
            if let Occurrence::Put { site, bytes: of_one, .. } = &event.what {
                let (count, bytes) = sums.entry(site).or_default();
                (*count, *bytes) = (*count + 1, *bytes + of_one);
            }
        }
        let site = |(site, (count, bytes)): (&Site, _)| PutSite { site: site.clone(), count, bytes };
        let mut sites: Vec<PutSite> = sums.into_iter().map(site).collect();
        sites.sort_by_key(|site| Reverse(site.bytes));
        sites
    }

    /// The messages of pipes by writer and reader, those of the most bytes first.
    #[must_use]
    pub fn messages(&self) -> Vec<MessageSum> {
        let mut sums: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
        for of in &self.workers {
            for event in &of.events {
                if let Occurrence::Message { to, bytes: of_one } = event.what {
                    let (count, bytes) = sums.entry((of.worker, to)).or_default();
                    (*count, *bytes) = (*count + 1, *bytes + of_one);
                }
            }
        }
        let sum = |((from, to), (count, bytes))| MessageSum { from, to, count, bytes };
        let mut sums: Vec<MessageSum> = sums.into_iter().map(sum).collect();
        sums.sort_by_key(|sum| Reverse(sum.bytes));
        sums
    }

    /// The waits by place, those that took longest first.
    #[must_use]
    pub fn waits(&self) -> Vec<WaitSite> {
        let mut sites: BTreeMap<&Site, (WaitSite, HashMap<Awaited, Duration>)> = BTreeMap::new();
        for event in self.workers.iter().flat_map(|of| &of.events) {
            let Occurrence::Waited { site, whom } = &event.what else { continue };
            let (sum, of) = sites.entry(site).or_insert_with(|| {
                let (time, longest) = Default::default();
                (WaitSite { site: site.clone(), count: 0, time, longest, whom: Vec::new() }, HashMap::new())
            });
            sum.count += 1;
            sum.time += event.time;
            sum.longest = sum.longest.max(event.time);
            *of.entry(*whom).or_default() += event.time;
        }
        let mut sites: Vec<_> = sites
            .into_values()
            .map(|(mut site, whom)| {
                site.whom = whom.into_iter().collect();
                site.whom.sort_by_key(|(_, time)| Reverse(*time));
                site
            })
            .collect();
        sites.sort_by_key(|site: &WaitSite| Reverse(site.time));
        sites
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{TraceEvent, WorkerTrace};
    use super::*;

    pub(in super::super) fn site(doing: &str, line: u32) -> Site {
        Site { doing: doing.into(), file: "a \"b\".rs".into(), line }
    }

    /// Worker 0 makes two calls at worker 1, which runs them 4 µs later for 10 µs each. It also
    /// puts twice, and sends a message.
    pub(in super::super) fn small() -> Trace {
        let us = Duration::from_micros;
        let begin = Duration::from_secs(5);
        let event = |at: u64, time: u64, what| TraceEvent { at: begin + us(at), time: us(time), what };
        let sent = |number| Occurrence::Sent { to: 1, site: site("call", 7), number: Some(number) };
        let ran = |number| Occurrence::Ran { from: Awaited::Worker(0), site: None, number };
        let waited = Occurrence::Waited { site: site("waiting", 9), whom: Awaited::Worker(1) };
        let put = |bytes| event(28, 0, Occurrence::Put { to: 1, bytes, site: site("put", 5) });
        let message = event(29, 0, Occurrence::Message { to: 1, bytes: 9 });
        let of_0 = vec![event(0, 0, sent(1)), event(20, 0, sent(2)), put(8), put(800), message, event(30, 12, waited)];
        let barrier = Occurrence::Collective { site: site("barrier", 3) };
        let of_1 = vec![
            event(4, 10, ran(Some(1))),
            event(24, 10, ran(Some(2))),
            event(40, 5, ran(None)),
            event(50, 1, barrier),
        ];
        let worker = |worker, events| WorkerTrace { process: worker, worker, events, lost: 3 };
        Trace { workers: vec![worker(0, of_0), worker(1, of_1)], begin, end: begin + us(100) }
    }

    #[test]
    fn a_trace_is_summed_up_by_place() {
        let us = Duration::from_micros;
        let calls = small().calls();
        let expected = CallSite { site: Some(site("call", 7)), sent: 2, ran: 2, time: us(20), delay: Some(us(4)) };
        assert_eq!(calls, [expected, CallSite { site: None, sent: 0, ran: 1, time: us(5), delay: None }]);
        let waits = small().waits();
        let whom = vec![(Awaited::Worker(1), us(12))];
        assert_eq!(small().puts(), [PutSite { site: site("put", 5), count: 2, bytes: 808 }]);
        assert_eq!(small().messages(), [MessageSum { from: 0, to: 1, count: 1, bytes: 9 }]);
        assert_eq!(waits, [WaitSite { site: site("waiting", 9), count: 1, time: us(12), longest: us(12), whom }]);
    }
}
