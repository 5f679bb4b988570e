//! The workloads among the examples of `farside-containers`: their own code, timed here.
//!
//! Two processes run a form of a workload in rounds from barrier to barrier, as bale does: `agp` is
//! one word at a time (atomics, gets and puts), `exchange` batches. The time of a round is the mean
//! over the processes. Each workload checks its result after each round. `/large` has a table of
//! 4 Mi words a process instead of bale's 10,000.
//!
//! Metrics: `seconds` of a round, and `items_per_s`, the operations of one process. The limit of
//! histo and ig is measured before each round: the instructions of the processor on a table in
//! shared memory (`agp`), and buffers in shared memory that both processes exchange in step
//! (`exchange`). That of triangles, bfs and kmers is the same work by one thread, which checks the
//! result; below 1, its ratio of seconds says that two processes are faster. The rounds of bfs are
//! searches from different vertices, 64 as in Graph500, or 16 with `--quick`. Its metric
//! `teps_harmonic_mean` counts the edges of all processes. The peers are programs for Open MPI and
//! for its OpenSHMEM: one-sided operations, and buffers exchanged in step. They take turns with
//! ours, but for bfs and kmers, whose graphs and reads take longer to make than a round.

use std::cell::RefCell;
use std::time::Instant;

use farside::Worker;

use self::workloads::common::{Clock, Form, Round};
use self::workloads::{bfs, gups, histo, ig, kmers, randperm, toposort, triangles};
use crate::case::{Case, RunOnce};
use crate::fabric::Fabric;
use crate::limits::exstack::Exstack;
use crate::metric::Metric;
use crate::{BenchError, Options, peers};

pub(crate) const ABOUT: &str = "irregular programs, one word at a time and with exchanges (bale, HPCC, Graph500)";

/// The workloads of the examples.
#[path = "../../../../core/farside-containers/examples/workloads"]
mod workloads {
    pub(super) mod bfs;
    pub(super) mod common;
    pub(super) mod gups;
    pub(super) mod histo;
    pub(super) mod ig;
    pub(super) mod kmers;
    mod matrix;
    pub(super) mod randperm;
    pub(super) mod toposort;
    pub(super) mod triangles;
}

/// A workload in one form.
#[derive(Clone)]
struct Plan {
    name: String,
    form: Form,
    /// The two numbers of the workload. The option for the number of operations changes the first.
    numbers: [u32; 2],
    limit: Option<(&'static str, Limit)>,
}

impl Plan {
    /// Returns whether it takes longer to make the data than to work on them.
    fn is_long(&self) -> bool {
        self.is_search() || self.name.starts_with("kmers/")
    }

    fn is_search(&self) -> bool {
        self.name.starts_with("bfs/")
    }

    fn numbers(&self, options: Options) -> [u32; 2] {
        let [operations, second] = self.numbers;
        [options.operations.map_or(operations, |count| count.min(u32::MAX.into()) as u32), second]
    }
}

/// A loop over random words of a table, without Farside.
type Limit = fn(&mut Exstack) -> Result<(), BenchError>;

const BY_WORD: &str = "instructions on shared memory";
const IN_STEP: &str = "buffers exchanged in step";

const UPDATES: u32 = 5_000_000;
/// The searches of Graph500.
const SEARCHES: u32 = 64;
/// bale's table, and one that no cache holds.
const TABLES: [(&str, u32); 2] = [("", 10_000), ("/large", 4 << 20)];

/// Returns all cases.
fn plans() -> Vec<Plan> {
    let words: [(&str, Form, &str, Limit); 4] = [
        ("histo/agp", histo::agp, BY_WORD, Exstack::add_by_word),
        ("histo/exchange", histo::exchange, IN_STEP, Exstack::add),
        ("ig/agp", ig::agp, BY_WORD, Exstack::read_by_word),
        ("ig/exchange", ig::exchange, IN_STEP, Exstack::read),
    ];
    let of_table = |(suffix, words_of_table): (&str, u32)| {
        words.map(|(name, form, limit_name, limit)| Plan {
            name: format!("{name}{suffix}"),
            form,
            numbers: [UPDATES, words_of_table],
            limit: Some((limit_name, limit)),
        })
    };
    let others: [(&str, Form, [u32; 2]); 12] = [
        ("randperm/agp", randperm::agp, [1_000_000, 2]),
        ("randperm/exchange", randperm::exchange, [1_000_000, 2]),
        ("toposort/agp", toposort::agp, [500_000, 10]),
        ("toposort/exchange", toposort::exchange, [500_000, 10]),
        ("triangles/agp", triangles::agp, [50_000, 10]),
        ("triangles/exchange", triangles::exchange, [50_000, 10]),
        ("gups/agp", gups::agp, [4 << 20, 4]),
        ("gups/exchange", gups::exchange, [4 << 20, 4]),
        // Scale 18 with two processes.
        ("bfs/agp", bfs::agp, [1 << 17, 16]),
        ("bfs/exchange", bfs::exchange, [1 << 17, 16]),
        ("kmers/agp", kmers::agp, [100_000, 31]),
        ("kmers/exchange", kmers::exchange, [100_000, 31]),
    ];
    let others = others.map(|(name, form, numbers)| Plan { name: name.into(), form, numbers, limit: None });
    TABLES.into_iter().flat_map(of_table).chain(others).collect()
}

pub(crate) fn cases(on: &Fabric) -> Vec<Case> {
    let plans = if *on == Fabric::Shm { plans() } else { Vec::new() };
    let case = |plan: Plan| {
        let of_peers = plan.clone();
        let around = move |options, run_once: RunOnce<'_>| {
            let measure_peers = |options| measure_peers(&of_peers, options);
            let (mut metrics, of_peers) = match of_peers.is_long() {
                false => peers::in_turns(options, run_once, measure_peers)?,
                true => (run_once(options)?, measure_peers(options)?),
            };
            metrics.extend(of_peers);
            Ok(metrics)
        };
        Case::around_job(plan.name.clone(), 2, move |me, options| measure(me, &plan, options), around)
    };
    plans.into_iter().map(case).collect()
}

/// Measures the programs for Open MPI and OpenSHMEM.
fn measure_peers(plan: &Plan, options: Options) -> Result<Vec<Metric>, BenchError> {
    let &[workload, form, ..] = &plan.name.split('/').collect::<Vec<_>>()[..] else { return Ok(Vec::new()) };
    let [mut first, mut second] = plan.numbers(options);
    // One word takes them several times as long. The number of words in a table stays.
    match (form, workload) {
        ("agp", "histo" | "ig") => first = first.div_ceil(10),
        ("agp", "gups") => second = 1,
        _ => {}
    }
    if matches!(workload, "gups" | "bfs") {
        // The table of the example has a power of two words, too, and its graph as many vertices.
        first = 1 << first.max(1).ilog2();
    }
    let numbers = [first, second, runs(options)].map(|number| number.to_string());
    let arguments = [&[workload, form].map(str::to_owned)[..], &numbers].concat();
    let mut metrics = peers::measure(peers::IRREGULAR, 2, &arguments, options)?;
    metrics.extend(peers::measure(peers::IRREGULAR_SHMEM, 2, &arguments, options)?);
    Ok(metrics)
}

/// Some workloads take seconds.
fn runs(options: Options) -> u32 {
    let runs = options.runs() as u32;
    if options.quick { runs.div_ceil(2) } else { runs }
}

/// Returns how many rounds a workload is timed: each search of a graph is one.
fn rounds(plan: &Plan, options: Options) -> u32 {
    if plan.is_search() { if options.quick { SEARCHES / 4 } else { SEARCHES } } else { runs(options) }
}

/// Measures a case. Worker 0 returns the metrics.
fn measure(me: &Worker, plan: &Plan, options: Options) -> Result<Vec<Metric>, BenchError> {
    let numbers = plan.numbers(options);
    let limit = match plan.limit {
        Some((name, run)) => Some((name, run, RefCell::new(Exstack::new(me, numbers[0], numbers[1])?))),
        None => None,
    };
    let limit_seconds = RefCell::new(Vec::new());
    let before = || {
        if let Some((_, run, stack)) = &limit {
            me.barrier()?;
            let begun = Instant::now();
            run(&mut stack.borrow_mut())?;
            let sum = me.all_reduce(begun.elapsed().as_secs_f64(), |a, b| a + b)?;
            limit_seconds.borrow_mut().push(sum / f64::from(me.worker_count()));
        }
        Ok(())
    };
    let clock = Clock::new(1 + rounds(plan, options), &before);
    (plan.form)(me, numbers, &clock)?;
    let (rounds, alone) = clock.into_taken();
    let (name, seconds) = match &limit {
        Some((name, ..)) => (*name, limit_seconds.take()),
        None => ("one thread", alone),
    };
    // The first round touches the memory.
    let rounds = &rounds[1..];
    let seconds = seconds.get(1..).unwrap_or_default();
    let mut rate =
        Metric::new("items_per_s", "1/s", rounds.iter().map(|round| round.operations / round.seconds).collect());
    let mut time = Metric::new("seconds", "s", rounds.iter().map(|round| round.seconds).collect());
    // One thread does the operations of all processes, so its rate is no limit for that of one.
    if limit.is_some() {
        let rates = rounds.iter().zip(seconds).map(|(round, seconds)| round.operations / seconds);
        rate = rate.against(name, rates.collect());
    }
    if !seconds.is_empty() {
        time = time.against(name, seconds.to_vec());
    }
    let mut metrics = vec![rate, time];
    if plan.is_search() {
        // As Graph500 has it: edges of all processes, and the harmonic mean of the searches.
        let edges = |round: &Round| round.operations * f64::from(me.worker_count());
        let inverse = rounds.iter().map(|round| round.seconds / edges(round)).sum::<f64>() / rounds.len() as f64;
        metrics.push(Metric::new("teps_harmonic_mean", "1/s", vec![1.0 / inverse]));
    }
    Ok(metrics)
}
