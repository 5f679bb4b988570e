//! Jacobi's iteration on a square field of numbers, whose rows are shared out among processes: how long a step takes, and how much of the
//! exchange of rows is hidden behind computing.
//!
//! `no-overlap`: a step sends the rows at its edges, waits for those of its neighbors, and computes. `overlap`: while the rows travel the
//! inside is computed, which needs none of them. There is no barrier in either; a neighbor may be a step ahead.
//!
//! Metrics: `step_ns`, beside the same field swept by one thread alone, divided by the number of processes; `compute_ns`, a step without any
//! exchange, by all processes at once; `exchange_ns`, what a step spends with sending and waiting, beside a copy of the rows by
//! `memcpy`; and with overlap `plain_ns`, a step without it, and `hidden`, the share of what exchanging adds to computing that is gone then
//! (of the medians; none where it adds nothing). Every field is compared bit by
//! bit with the sequential program's, also those of Open MPI's programs, which stand beside: messages (`isend`), and one-sided with
//! post-start-complete-wait (`active`) and with flags that are looked at (`passive`).

mod grid;
mod halo;
mod simulated;

use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

use farside::{Worker, WorkerId};

use self::grid::{Grid, Side, checksum, rows_of};
use self::halo::Halo;
pub(crate) use self::simulated::run as run_simulated;
use crate::case::{Case, RunOnce};
use crate::metric::Metric;
use crate::over_ofi::OfiFabric;
use crate::stats::median;
use crate::{BenchError, Options, peers};

pub(crate) const NAME: &str = "stencil";
pub(crate) const ABOUT: &str =
    "Jacobi's iteration on a field whose rows processes share, with and without overlap (ACP)";

/// The first shape's cases have no suffix.
const SHAPES: [Shape; 4] = [
    Shape { size: 1024, processes: 2 },
    Shape { size: 256, processes: 2 },
    Shape { size: 4096, processes: 2 },
    Shape { size: 1024, processes: 4 },
];
/// Cells that a run computes in all, when nothing else is asked for.
const CELLS: u64 = 1 << 30;
const STEPS_MIN: u64 = 20;
const SEQUENTIAL: &str = "one thread / processes";
const COPIES: &str = "memcpy";
const STEP: &str = "step_ns";
const COMPUTE: &str = "compute_ns";
/// A step without overlap, in cases with it.
const PLAIN: &str = "plain_ns";
const CHECKSUM: &str = "checksum";

/// A field and its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    size: usize,
    processes: u32,
}

impl Shape {
    fn suffix(self) -> String {
        if self == SHAPES[0] { String::new() } else { format!("/{}/{}p", self.size, self.processes) }
    }

    fn steps(self, options: Options) -> u64 {
        options.operations_or((CELLS / (self.size * self.size) as u64).max(10 * STEPS_MIN)).max(1)
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let case = |(name, shape, overlap): (String, Shape, bool)| {
        let around = move |options, run_once: RunOnce<'_>| beside_mpi(shape, overlap, options, run_once);
        Case::around_job(name, shape.processes, move |me, options| measure(me, shape, overlap, options), around)
    };
    each_name(&SHAPES).map(case).collect()
}

pub(crate) fn cases_over_ofi(fabric: &OfiFabric) -> Vec<Case> {
    let case = |(name, shape, overlap): (String, Shape, bool)| {
        let around = |_, run_once: RunOnce<'_>| Ok(with_hidden(without_checksum(run_once()?).0));
        let body = move |me: &Worker, options: Options| measure(me, shape, overlap, options);
        Case::around_job(name, shape.processes, body, around).over(fabric)
    };
    each_name(&SHAPES[..3]).map(case).collect()
}

/// All cases: their names, and whether they overlap.
fn each_name(shapes: &[Shape]) -> impl Iterator<Item = (String, Shape, bool)> {
    let of_shape = |shape: &Shape| {
        [("overlap", true), ("no-overlap", false)]
            .map(|(name, overlap)| (name.to_owned() + &shape.suffix(), *shape, overlap))
    };
    shapes.iter().flat_map(of_shape)
}

/// A job of ours, and Open MPI's three ways.
fn beside_mpi(shape: Shape, overlap: bool, options: Options, run_once: RunOnce<'_>) -> Result<Vec<Metric>, BenchError> {
    let (mut metrics, expected) = without_checksum(run_once()?);
    let arguments = [shape.size as u64, shape.steps(options), options.runs() as u64, u64::from(overlap)];
    let of_peers =
        peers::measure(peers::STENCIL, shape.processes, &arguments.map(|number| number.to_string()), options)?;
    for metric in of_peers {
        match metric.name.as_str() {
            CHECKSUM => metric.samples.iter().try_for_each(|found| compare(expected, *found as u64))?,
            _ => metrics.push(metric),
        }
    }
    Ok(with_hidden(metrics))
}

/// Adds what share of the exchange is hidden, for everybody who has tried.
fn with_hidden(mut metrics: Vec<Metric>) -> Vec<Metric> {
    let mut found = Vec::new();
    for plain in metrics.iter().filter(|metric| metric.name == PLAIN) {
        let of_same = |name: &str| {
            let same = metrics.iter().find(|metric| metric.name == name && metric.peer == plain.peer);
            same.map_or(f64::NAN, |metric| median(&metric.samples))
        };
        let (alone, plain_ns) = (of_same(COMPUTE), median(&plain.samples));
        if plain_ns > alone {
            let hidden = 1.0 - (of_same(STEP) - alone) / (plain_ns - alone);
            found.push(Metric { peer: plain.peer.clone(), ..Metric::new("hidden", "1", vec![hidden]) });
        }
    }
    metrics.extend(found);
    metrics
}

/// The checksum is for comparing, not for rows.
fn without_checksum(metrics: Vec<Metric>) -> (Vec<Metric>, u64) {
    let (checksums, metrics): (Vec<_>, Vec<_>) = metrics.into_iter().partition(|metric| metric.name == CHECKSUM);
    let found = checksums.iter().flat_map(|metric| &metric.samples).next();
    (metrics, found.copied().unwrap_or_default() as u64)
}

fn compare(expected: u64, found: u64) -> Result<(), BenchError> {
    if expected == found {
        Ok(())
    } else {
        Err(BenchError::WrongSum { what: "the field of a stencil", expected, found })
    }
}

/// What a step takes, in the worst process.
#[derive(Clone, Copy, Debug)]
struct Taken {
    step_ns: f64,
    exchange_ns: f64,
}

/// One job, as its worker 0 sees it in the end.
fn measure(me: &Worker, shape: Shape, overlap: bool, options: Options) -> Result<Vec<Metric>, BenchError> {
    let steps = shape.steps(options);
    let mut grid = Grid::new(shape.size, rows_of(shape.size, me.id().index(), me.worker_count() as usize));
    let mut halo = Halo::new(me, shape.size)?;
    let mut alone = if me.id() == WorkerId::new(0) { Some(Grid::new(shape.size, 0..shape.size)) } else { None };
    let mut samples = Samples::default();
    // The first run is for pipes to be made and memory to be touched.
    for run in 0..=options.runs() {
        me.barrier()?;
        let sequential = alone.as_mut().map(|grid| sweep_alone(grid, steps));
        me.barrier()?;
        let computing = step(me, &mut grid, None, false, steps)?;
        let plain = step(me, &mut grid, Some(&mut halo), false, steps)?;
        let taken = if overlap { step(me, &mut grid, Some(&mut halo), true, steps)? } else { plain };
        let copies_ns = copies_ns(&mut grid, halo.neighbors());
        let sum = me.all_reduce(grid.sum(), u64::wrapping_add)?;
        let Some(grid) = alone.as_ref() else { continue };
        samples.checksum = checksum(grid.sum());
        compare(samples.checksum, checksum(sum))?;
        if run > 0 {
            samples.step.push(taken.step_ns);
            samples.sequential.push(sequential.unwrap_or_default() / f64::from(shape.processes));
            samples.compute.push(computing.step_ns);
            samples.exchange.push(taken.exchange_ns);
            samples.copies.push(copies_ns);
            samples.plain.extend(overlap.then_some(plain.step_ns));
        }
    }
    me.barrier()?;
    Ok(samples.into_metrics())
}

#[derive(Debug, Default)]
struct Samples {
    step: Vec<f64>,
    sequential: Vec<f64>,
    compute: Vec<f64>,
    exchange: Vec<f64>,
    copies: Vec<f64>,
    plain: Vec<f64>,
    checksum: u64,
}

impl Samples {
    fn into_metrics(self) -> Vec<Metric> {
        let mut metrics = vec![
            Metric::new(STEP, "ns", self.step).against(SEQUENTIAL, self.sequential),
            Metric::new(COMPUTE, "ns", self.compute),
            Metric::new("exchange_ns", "ns", self.exchange).against(COPIES, self.copies),
            Metric::new(CHECKSUM, "1", vec![self.checksum as f64]),
        ];
        if !self.plain.is_empty() {
            metrics.push(Metric::new(PLAIN, "ns", self.plain));
        }
        metrics
    }
}

/// The sequential program: nanoseconds for a step.
fn sweep_alone(grid: &mut Grid, steps: u64) -> f64 {
    grid.reset();
    let start = Instant::now();
    for _ in 0..steps {
        grid.sweep(grid.all());
        grid.advance();
    }
    start.elapsed().as_nanos() as f64 / steps as f64
}

/// So many steps from the beginning, with an exchange or without, whose field is then wrong.
fn step(
    me: &Worker,
    grid: &mut Grid,
    mut halo: Option<&mut Halo<'_>>,
    overlap: bool,
    steps: u64,
) -> Result<Taken, BenchError> {
    grid.reset();
    me.barrier()?;
    let start = me.now();
    let mut exchange = Duration::ZERO;
    for _ in 0..steps {
        if let Some(halo) = halo.as_deref_mut() {
            let begun = me.now();
            halo.begin(grid)?;
            exchange += me.now() - begun;
        }
        if overlap {
            sweep(me, grid, grid.inside());
        }
        if let Some(halo) = halo.as_deref_mut() {
            let begun = me.now();
            halo.end(grid)?;
            exchange += me.now() - begun;
        }
        if overlap {
            grid.edges().for_each(|rows| sweep(me, grid, rows));
        } else {
            sweep(me, grid, grid.all());
        }
        grid.advance();
    }
    let own = [me.now() - start, exchange].map(|time| time.as_nanos() as f64 / steps as f64);
    let [step_ns, exchange_ns] = me.all_reduce(own, |a, b| [a[0].max(b[0]), a[1].max(b[1])])?;
    Ok(Taken { step_ns, exchange_ns })
}

/// What a cell takes in a simulation.
const CELL_PS: u64 = 500;

fn sweep(me: &Worker, grid: &mut Grid, rows: Range<usize>) {
    let cells = grid.cells(&rows);
    grid.sweep(rows);
    me.charge(Duration::from_nanos(cells as u64 * CELL_PS / 1000));
}

/// What copying the rows takes that a process sends, once to each neighbor.
fn copies_ns(grid: &mut Grid, neighbors: usize) -> f64 {
    const TIMES: usize = 1000;
    let row = grid.edge(Side::Above).to_vec();
    let start = Instant::now();
    for _ in 0..TIMES {
        black_box(grid.ghost(Side::Above)).copy_from_slice(black_box(&row));
    }
    start.elapsed().as_nanos() as f64 / TIMES as f64 * neighbors as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_of_the_same_program() {
        let own = |name: &str, ns: f64| Metric::new(name, "ns", vec![ns]);
        let metrics = vec![
            own(STEP, 12.0),
            own(COMPUTE, 10.0),
            own(PLAIN, 20.0),
            own(COMPUTE, 10.0).of_peer("slow"),
            own(PLAIN, 20.0).of_peer("slow"),
            own(STEP, 20.0).of_peer("slow"),
            own(COMPUTE, 10.0).of_peer("free"),
            own(PLAIN, 9.0).of_peer("free"),
            own(STEP, 9.0).of_peer("free"),
        ];
        let hidden: Vec<_> = with_hidden(metrics).into_iter().filter(|metric| metric.name == "hidden").collect();
        assert_eq!(
            hidden,
            [Metric::new("hidden", "1", vec![0.8]), Metric::new("hidden", "1", vec![0.0]).of_peer("slow")]
        );
    }

    #[test]
    fn parts_on_a_job_come_to_what_one_thread_does() {
        for (size, processes) in [(5, 3), (16, 2), (64, 4)] {
            for overlap in [false, true] {
                let options = Options::new().quick(true).operations(Some(20));
                let shape = Shape { size, processes };
                // Any difference is an error of `measure`.
                let result =
                    farside::simulate(processes, 1, 1, |me| Ok(measure(me, shape, overlap, options).map(drop)?));
                result.unwrap_or_else(|error| panic!("{shape:?} {overlap}: {error}"));
            }
        }
    }
}
