//! The operations that data structures on remote memory consist of (Brock et al., Figure 3 and
//! Table I).
//!
//! Each process performs one operation at a time on a random word of a random other process, and
//! all processes do so at once. `fetch-add-single` has one word in each process. `cas-persistent`
//! repeats a compare-and-swap until it succeeds, and at first expects what is not there.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use farside::{GlobalPtr, MakeArrays, SimOptions, Simulation, Worker, WorkerId};

use crate::kit::*;

pub(crate) const ABOUT: &str =
    "puts, gets, atomics and calls to random places of other processes (Brock et al., Figure 3)";

/// Words of each process, as published; fewer in simulations, where they only take memory.
const WORDS: usize = 100_000;
const WORDS_SIMULATED: usize = 1000;
/// Operations of a run by default: on mapped memory, over a network, and of each simulated process.
const MAPPED: u64 = 1_000_000;
const REMOTE: u64 = 20_000;
const SIMULATED: u64 = 200;

/// The shapes of simulated jobs: machines and processes of each. The last one takes a quarter of a
/// minute and 2.4 GB for each component, so `--quick` leaves it out. The published one of 128
/// machines with 32 processes each would take 16 times that memory.
const SHAPES: [(u32, u32); 6] = [(2, 1), (16, 1), (64, 1), (8, 8), (128, 1), (128, 8)];
/// The most processes of a job with `--quick`.
const QUICK_PROCESSES: u32 = 128;
/// The network of the published figures.
const PUBLISHED_ON: &str = "aries";
const TABLE_1: &str = "Brock et al., Table I";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Component {
    Put,
    Get,
    Cas,
    CasPersistent,
    FetchAdd,
    FetchAddSingle,
    Call,
}

/// The components with their names, and their published latencies on 64 nodes.
const ALL: [(Component, &str, Option<f64>); 7] = [
    (Component::Put, "put", Some(3000.0)),
    (Component::Get, "get", Some(3700.0)),
    (Component::Cas, "cas", Some(3800.0)),
    (Component::CasPersistent, "cas-persistent", None),
    (Component::FetchAdd, "fetch-add", Some(3900.0)),
    (Component::FetchAddSingle, "fetch-add-single", None),
    (Component::Call, "call-round-trip", None),
];

pub(crate) fn cases(on: &Fabric) -> Vec<Case> {
    let mut cases = Vec::new();
    for (component, name, published) in ALL {
        match on {
            Fabric::Shm | Fabric::Ofi(_) => {
                let is_mapped = *on == Fabric::Shm;
                for processes in [2, 4] {
                    cases.push(Case::job(format!("{name}/{processes}p"), processes, move |me, options| {
                        measure(me, options, component, is_mapped)
                    }));
                }
            }
            Fabric::Simulated(network) => {
                let (network, published) = (*network, published.filter(|_| network.preset() == PUBLISHED_ON));
                for (machines, each) in SHAPES {
                    let simulate = move |options| simulate(component, network, (machines, each), published, options);
                    cases.push(Case::here(format!("{name}/{machines}x{each}x1"), simulate));
                }
            }
        }
    }
    cases
}

/// Random numbers of one worker, the same every time.
fn random_of(me: &Worker) -> Xorshift {
    Xorshift(0x9e37_79b9_7f4a_7c15 ^ (u64::from(me.id().number()) << 32))
}

/// Returns the number of another process than `own`.
fn other(random: &mut Xorshift, own: usize, processes: usize) -> usize {
    (own + 1 + random.below(processes - 1)) % processes
}

impl Component {
    /// The number of words from which one is chosen in each process.
    fn reach(self, words: usize) -> usize {
        if self == Self::FetchAddSingle { 1 } else { words }
    }

    fn perform(self, me: &Worker, word: GlobalPtr<u64>) -> farside::Result<()> {
        match self {
            Self::Put => word.put(me, 1),
            Self::Get => word.get(me).map(|value| {
                black_box(value);
            }),
            Self::Cas => word.compare_swap(me, 0, 1).map(drop),
            Self::CasPersistent => {
                let mut expected = u64::MAX;
                loop {
                    let found = word.compare_swap(me, expected, expected.wrapping_add(1))?;
                    if found == expected {
                        return Ok(());
                    }
                    expected = found;
                }
            }
            Self::FetchAdd | Self::FetchAddSingle => word.fetch_add(me, 1).map(drop),
            Self::Call => {
                let of = WorkerId::new(word.process().map_or(0, |process| process.number()));
                me.call_return(of, 1_u64, |_, x| x)?.wait().map(drop)
            }
        }
    }

    /// Performs the bare instruction; a call has none.
    fn instruct(self, word: &AtomicU64) {
        match self {
            Self::Put => word.store(1, Ordering::Relaxed),
            Self::Get => drop(black_box(word.load(Ordering::Relaxed))),
            Self::Cas => drop(black_box(word.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst))),
            Self::CasPersistent => {
                let mut expected = u64::MAX;
                while let Err(found) =
                    word.compare_exchange(expected, expected.wrapping_add(1), Ordering::SeqCst, Ordering::SeqCst)
                {
                    expected = found;
                }
            }
            Self::FetchAdd | Self::FetchAddSingle => drop(black_box(word.fetch_add(1, Ordering::SeqCst))),
            Self::Call => {}
        }
    }
}

/// Memory of each process, and the way to its words.
struct Targets {
    component: Component,
    bases: Vec<GlobalPtr<u64>>,
    words: usize,
    own: usize,
    random: Xorshift,
}

impl Targets {
    /// Collective.
    fn new(me: &Worker, component: Component, words: usize) -> farside::Result<Self> {
        let processes = me.process_count() as usize;
        let array = me.global_array::<u64>(words * processes)?;
        let bases = (0..processes).map(|process| array.at(process * words)).collect::<farside::Result<_>>()?;
        Ok(Self { component, bases, words, own: me.process().index(), random: random_of(me) })
    }

    /// Performs the operation on another process, or on this one.
    fn perform(&mut self, me: &Worker, on_own: bool) -> farside::Result<()> {
        let process = if on_own { self.own } else { other(&mut self.random, self.own, self.bases.len()) };
        let word = self.random.below(self.component.reach(self.words));
        self.component.perform(me, self.bases[process].add(word)?)
    }
}

/// Measures on real processes, compared with the bare instruction where memory is mapped.
fn measure(me: &Worker, options: Options, component: Component, is_mapped: bool) -> Measured {
    let processes = me.process_count() as usize;
    let mut targets = Targets::new(me, component, WORDS)?;
    let is_call = component == Component::Call;
    let count = options.operations_or(if is_mapped && !is_call { MAPPED } else { REMOTE });
    let memory = Shared::table(me, processes * WORDS * 8)?;
    let mut random = random_of(me);
    let ping_pong = PingPong::new(&memory, 0, Patience::new(2));
    let mut trips = TwoLines { ping_pong, trips: count };
    let has_limit = is_mapped && (!is_call || processes == 2);
    // The first turn touches the memory and makes the connections.
    let taken = in_turns(me, options, |_| {
        let limit_ns = match (has_limit, is_call) {
            (false, _) => 0.0,
            (true, true) => once(me, &mut trips)?,
            (true, false) => of_all(me, || {
                time_batches(count, TOGETHER, || {
                    let process = other(&mut random, targets.own, processes);
                    let word = process * WORDS + random.below(component.reach(WORDS));
                    component.instruct(memory.word(word * 8));
                    Ok(())
                })
            })?,
        };
        let other_ns = of_all(me, || Ok(time_batches(count, TOGETHER, || targets.perform(me, false))?))?;
        let own_ns = of_all(me, || {
            let own = if is_call { 0 } else { count };
            Ok(time_batches(own, TOGETHER, || targets.perform(me, true))?)
        })?;
        Ok([other_ns, own_ns, limit_ns])
    })?;
    let limit_name = if is_call { TWO_LINES } else { "bare instruction" };
    let ns = column("ns", "ns", 0).against(limit_name, 2).if_measured(has_limit);
    Ok(taken.rows([Some(ns), (!is_call).then(|| column("own_ns", "ns", 1))].into_iter().flatten()))
}

/// Measures on all workers at once, and returns on worker 0 the median of their medians.
fn of_all(me: &Worker, work: impl FnOnce() -> Result<Vec<f64>, BenchError>) -> Result<f64, BenchError> {
    me.barrier()?;
    let own = median(&work()?);
    me.barrier()?;
    Ok(me.gather(WorkerId::FIRST, own)?.map_or(0.0, |all| median(&all)))
}

/// Measures in virtual time, compared with the published latency. Memory of a process itself takes
/// none.
fn simulate(
    component: Component,
    network: SimNetwork,
    (machines, each): (u32, u32),
    published: Option<f64>,
    options: Options,
) -> Measured {
    if options.quick && machines * each > QUICK_PROCESSES {
        return Ok(Vec::new());
    }
    let count = options.operations_or(SIMULATED);
    let sim = SimOptions { processes_per_machine: each, ..network.settings() };
    let ns = on_simulation(Simulation::new(machines * each, 1, options.seed).options(sim), |me| {
        let mut targets = Targets::new(me, component, WORDS_SIMULATED)?;
        // The first contact with a process is not measured, so all operations are made twice.
        let random = targets.random.clone();
        (0..count).try_for_each(|_| targets.perform(me, false))?;
        targets.random = random;
        me.barrier()?;
        let start = me.now();
        (0..count).try_for_each(|_| targets.perform(me, false))?;
        let own_ns = (me.now() - start).as_nanos() as f64 / count as f64;
        me.barrier()?;
        let all = me.gather(WorkerId::FIRST, own_ns)?.unwrap_or_default();
        Ok(all.iter().sum::<f64>() / all.len() as f64)
    })?;
    let metric = Metric::new("ns", "ns", vec![ns]);
    Ok(vec![match published {
        Some(latency_ns) => metric.against(TABLE_1, vec![latency_ns]),
        None => metric,
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulated(component: Component, shape: (u32, u32)) -> f64 {
        let network = SimNetwork::of_preset(PUBLISHED_ON).unwrap();
        let metrics = simulate(component, network, shape, None, Options::new().operations(Some(50))).unwrap();
        metrics[0].samples[0]
    }

    /// Replies share the port of their process with its own operations, for at most the gap.
    #[test]
    fn simulated_components_take_what_was_published() {
        for (component, name, published) in ALL {
            let Some(published) = published else { continue };
            let found = simulated(component, (2, 1));
            assert!((published..published + 100.0).contains(&found), "{name}: {found}");
        }
    }

    #[test]
    fn what_was_not_printed_is_dearer() {
        let [fetch_add, single, cas, persistent] =
            [Component::FetchAdd, Component::FetchAddSingle, Component::Cas, Component::CasPersistent]
                .map(|component| simulated(component, (16, 1)));
        assert!(single > 1.5 * fetch_add, "{single} and {fetch_add}");
        assert!(persistent > 1.2 * cas, "{persistent} and {cas}");
    }

    #[test]
    fn a_machine_is_cheaper_than_the_network() {
        let [apart, together] = [(4, 1), (1, 4)].map(|shape| simulated(Component::Put, shape));
        assert!(apart > 10.0 * together, "{apart} and {together}");
    }
}
