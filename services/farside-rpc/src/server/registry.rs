//! The procedures of a server, by number and by name.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside_wire::{Schema, Wire};

use super::StartError;
use super::dump::{Connections, Dump};
use super::times::{Summary, Times};
use crate::answer::{Bind, Bound};
use crate::call::Call;
use crate::error::Never;
use crate::service::{Handling, Procedure, Service};

/// The name of the service that every server has.
pub(crate) const BUILT_IN: &str = "farside";

/// The number of its procedures.
const BUILT_IN_COUNT: u32 = 5;
/// The most procedures that a client may ask for at once.
const PROCEDURES_MAX: usize = 1024;

/// A procedure of a server.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) procedure: Procedure,
    /// Service, provider and procedure.
    pub(super) name: String,
    pub(super) counters: Arc<Counters>,
}

/// The counters of a procedure.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) done: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) times: Times,
}

/// A service of a server, as `describe` reports it.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct Description {
    /// Its name.
    pub service: String,
    /// The provider under which it was added.
    pub provider: u16,
    /// The names and types of its procedures.
    pub procedures: Vec<(String, String)>,
}

/// The statistics of a procedure since the server started, as `stats` reports them.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct ProcedureStats {
    /// `service/provider/procedure`.
    pub name: String,
    /// Number of calls that returned a result.
    pub done: u64,
    /// Number of calls that returned the service's error.
    pub failed: u64,
    /// Number of calls without either: refused, undecodable, cancelled or panicked.
    pub refused: u64,
    /// Number of calls whose times are known: all whose handlers were to run, whatever became of
    /// them. Of [inline](Handling::Inline) calls, the first 1,000 and then one of eight: reading
    /// the clock takes a tenth as long as such a call.
    pub timed: u64,
    /// The time from arrival to answer that half of the timed calls did not exceed. This and `p99`
    /// are rounded up by at most a quarter.
    pub p50: Duration,
    /// The same for 99 of 100 calls.
    pub p99: Duration,
    /// The longest time from arrival to answer.
    pub max: Duration,
    /// The time that all timed calls together waited for a thread, or for their long arguments.
    pub queued: Duration,
    /// The time that all timed calls together ran.
    pub running: Duration,
    /// How many of the timed calls took how long from arrival to answer: for each bucket that is
    /// not empty, its largest time and the number of calls. There are four buckets for each power
    /// of two of nanoseconds. Differences between two looks tell of the time between them.
    pub buckets: Vec<(Duration, u64)>,
}

/// All procedures of a server.
#[derive(Debug, Default)]
pub(super) struct Registry {
    entries: Vec<Entry>,
    names: Arc<Names>,
    pub(super) connections: Arc<Connections>,
}

/// A procedure: its name, its types, and its number.
type Named = (String, String, u32);

#[derive(Debug, Default)]
struct Names {
    /// The procedures of each service at a provider.
    services: HashMap<(String, u16), Vec<Named>>,
    counters: Vec<(String, Arc<Counters>)>,
}

impl Registry {
    /// Numbers the procedures of all services. Those of the built-in service come first.
    pub(super) fn new(services: Vec<(u16, Service)>) -> Result<Self, StartError> {
        let connections = Arc::<Connections>::default();
        let mut names = Names::default();
        let mut procedures = Vec::new();
        let described = built_in(&Arc::default(), &connections);
        for (provider, service) in std::iter::once((0, described)).chain(services) {
            let key = (service.name().to_owned(), provider);
            let number = |index: usize| u32::try_from(procedures.len() + index).expect("memory holds fewer procedures");
            let known = (0..).zip(service.procedures());
            let known = known.map(|(index, known)| (known.name.clone(), known.shape.clone(), number(index))).collect();
            if names.services.insert(key, known).is_some() {
                return Err(StartError::Twice { service: service.name().to_owned(), provider });
            }
            for procedure in service.procedures() {
                let name = format!("{}/{provider}/{}", service.name(), procedure.name);
                names.counters.push((name, Arc::default()));
                procedures.push(procedure.clone());
            }
        }
        let names = Arc::new(names);
        for (own, real) in procedures.iter_mut().zip(built_in(&names, &connections).procedures()) {
            own.run = real.run.clone();
        }
        let entries = procedures.into_iter().zip(names.counters.iter().cloned());
        let entries = entries.map(|(procedure, (name, counters))| Entry { procedure, name, counters }).collect();
        Ok(Self { entries, names, connections })
    }

    #[inline]
    pub(super) fn entry(&self, number: u32) -> Option<&Entry> {
        self.entries.get(number as usize)
    }

    /// Returns whether every server has the procedure.
    pub(super) fn is_built_in(&self, number: u32) -> bool {
        number < BUILT_IN_COUNT
    }

    pub(super) fn stats(&self) -> Vec<ProcedureStats> {
        self.names.stats()
    }

    pub(super) fn dump(&self) -> Dump {
        self.connections.dump(|number| self.names.name_of(number))
    }
}

/// The service that every server has. `bind` is procedure 0 of every server.
fn built_in(names: &Arc<Names>, connections: &Arc<Connections>) -> Service {
    let (bind, describe, stats, named) = (names.clone(), names.clone(), names.clone(), names.clone());
    let connections = connections.clone();
    let dump = move |call: &Call, ()| connections.dump_for(call, |number| named.name_of(number));
    Service::new(BUILT_IN)
        .procedure("bind", Handling::Inline, move |_, wanted: Bind| Ok::<_, Never>(bind.bind(&wanted)))
        .procedure("ping", Handling::Inline, |_, number: u64| Ok::<_, Never>(number))
        .procedure("describe", Handling::Inline, move |_, ()| Ok::<_, Never>(describe.describe()))
        .procedure("stats", Handling::Inline, move |_, ()| Ok::<_, Never>(stats.stats()))
        .procedure("dump", Handling::Inline, dump)
}

impl Names {
    fn bind(&self, wanted: &Bind) -> Vec<Bound> {
        let Bind { service, provider, procedures } = wanted;
        if procedures.len() > PROCEDURES_MAX {
            return Vec::new();
        }
        let Some(known) = self.services.get(&(service.clone(), *provider)) else {
            // The list is said once.
            let mut served = Some(self.served());
            return procedures.iter().map(|_| Bound::Unknown { served: served.take().unwrap_or_default() }).collect();
        };
        let find = |(name, shape): &(String, String)| match known.iter().find(|(known, ..)| known == name) {
            Some((_, own, number)) if Schema::agree(own, shape) => Bound::Procedure { number: *number },
            Some((_, own, _)) => Bound::Shape { theirs: own.clone() },
            None => {
                let names = known.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>();
                Bound::Unknown { served: names.join(", ") }
            }
        };
        procedures.iter().map(find).collect()
    }

    /// The services, in words.
    fn served(&self) -> String {
        let mut served = String::new();
        for Description { service, provider, .. } in self.describe() {
            let comma = if served.is_empty() { "" } else { ", " };
            // Writing to a string does not fail.
            let _ = write!(served, "{comma}{service} (provider {provider})");
        }
        served
    }

    fn describe(&self) -> Vec<Description> {
        let mut all: Vec<_> = self
            .services
            .iter()
            .map(|((service, provider), known)| Description {
                service: service.clone(),
                provider: *provider,
                procedures: known.iter().map(|(name, shape, _)| (name.clone(), shape.clone())).collect(),
            })
            .collect();
        all.sort_by(|a, b| (&a.service, a.provider).cmp(&(&b.service, b.provider)));
        all
    }

    fn stats(&self) -> Vec<ProcedureStats> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let stats = self.counters.iter().map(|(name, counters)| {
            let Summary { count, p50, p99, max, queued, running, buckets } = counters.times.summary();
            ProcedureStats {
                name: name.clone(),
                done: read(&counters.done),
                failed: read(&counters.failed),
                refused: read(&counters.refused),
                timed: count,
                p50,
                p99,
                max,
                queued,
                running,
                buckets,
            }
        });
        stats.collect()
    }

    fn name_of(&self, number: u32) -> String {
        self.counters.get(number as usize).map_or_else(String::new, |(name, _)| name.clone())
    }
}
