//! Jacobi's iteration on a square field of numbers, whose rows are divided among processes: the
//! time of a step, and the share of the exchange of rows that computation hides.
//!
//! `no-overlap`: a step sends the rows at its edges, waits for those of its neighbors, and
//! computes. `overlap`: while the rows travel, a step computes the inside, which needs none of
//! them. Neither has a barrier; a neighbor may be a step ahead.
//!
//! Rows are put into the memory of the neighbors, where a flag says which are ready. With `/pipes`
//! they go through pipes. With `/elsewhere` the computation takes time but no processor, as on an
//! accelerator, and no field is compared. Without spare processors, an exchange needs the
//! processors that compute, so computation there cannot hide it.
//!
//! Metrics: `step_ns`, compared with the same field swept by one thread, divided by the number of
//! processes; `compute_ns`, a step without any exchange, by all processes at once; `exchange_ns`,
//! the time that a step spends sending and waiting, compared with a copy of the rows by `memcpy`;
//! `wait_ns`, the part of it spent waiting. With overlap there are also `wait_hidden`, the share of
//! that waiting that overlap removes; `plain_ns`, a step without overlap; and `hidden`, the share
//! of the cost of the exchange that overlap removes. `hidden` is computed from medians, and is
//! missing if some plain step is as fast as one that only computes.
//!
//! Every field is compared bit by bit with that of the sequential program, also the fields of the
//! peers. These are programs for Open MPI: messages (`isend`), and one-sided operations with fences
//! (`active-fence`), with post-start-complete-wait (`active-pscw`) and with polled flags
//! (`passive`).

mod grid;
mod halo;
pub(super) mod simulated;

use std::hint::black_box;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use farside::{Worker, WorkerId};

use self::grid::{Grid, Side, checksum, rows_of};
use self::halo::{ExchangeKind, Halo, neighbors};
use crate::kit::*;
use crate::peers;
use crate::stats::Summary;

pub(crate) const ABOUT: &str =
    "Jacobi's iteration on a field whose rows processes share, with and without overlap (ACP)";

/// The names of the first shape's cases have no suffix.
const SHAPES: [Shape; 4] = [
    Shape { size: 1024, processes: 2 },
    Shape { size: 256, processes: 2 },
    Shape { size: 4096, processes: 2 },
    Shape { size: 1024, processes: 4 },
];
/// Cells that a run computes in all by default.
const CELLS: u64 = 1 << 30;
const STEPS_MIN: u64 = 8;
const SEQUENTIAL: &str = "one thread / processes";
const COPIES: &str = "memcpy";
const STEP: &str = "step_ns";
const COMPUTE: &str = "compute_ns";
/// The metric of a step without overlap, in cases with overlap.
const PLAIN: &str = "plain_ns";
const CHECKSUM: &str = "checksum";

/// A case: what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    shape: Shape,
    overlap: bool,
    way: ExchangeKind,
    computing: Computing,
}

/// The place of the computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Computing {
    Here,
    /// An accelerator that takes as long.
    Elsewhere,
}

/// The size of a field, and the number of its parts.
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
    cases_of(&SHAPES, true)
}

pub(crate) fn over_ofi() -> Vec<Case> {
    cases_of(&SHAPES[..3], false)
}

fn cases_of(shapes: &[Shape], has_peers: bool) -> Vec<Case> {
    let case = |(name, plan): (String, Plan)| {
        let around = move |options, run_once: RunOnce<'_>| match has_peers && plan.is_plain() {
            true => against_mpi(plan, options, run_once),
            false => Ok(with_hidden(without_checksum(run_once(options)?).0)),
        };
        Case::around_job(name, plan.shape.processes, move |me, options| measure(me, plan, options), around)
    };
    each_plan(shapes).map(case).collect()
}

impl Plan {
    /// Returns whether the case is none of the variants that have a suffix.
    fn is_plain(self) -> bool {
        self.way == ExchangeKind::Signals && self.computing == Computing::Here
    }

    fn name(self) -> String {
        let overlap = if self.overlap { "overlap" } else { "no-overlap" };
        let way = if self.way == ExchangeKind::Pipes { "/pipes" } else { "" };
        let computing = if self.computing == Computing::Elsewhere { "/elsewhere" } else { "" };
        format!("{overlap}{}{way}{computing}", self.shape.suffix())
    }
}

/// Returns all cases with their names: each shape with overlap and without, and the first two
/// shapes also in the other variants.
fn each_plan(shapes: &[Shape]) -> impl Iterator<Item = (String, Plan)> {
    let plain = shapes.iter().flat_map(|shape| {
        let plan = |overlap| Plan { shape: *shape, overlap, way: ExchangeKind::Signals, computing: Computing::Here };
        [true, false].map(plan)
    });
    let others = shapes[..2].iter().flat_map(|shape| {
        let plan = |way, computing| Plan { shape: *shape, overlap: true, way, computing };
        [
            plan(ExchangeKind::Pipes, Computing::Here),
            plan(ExchangeKind::Signals, Computing::Elsewhere),
            plan(ExchangeKind::Pipes, Computing::Elsewhere),
        ]
    });
    plain.chain(others).map(|plan| (plan.name(), plan)).collect::<Vec<_>>().into_iter()
}

/// Measures jobs of Farside and Open MPI's four ways in turns.
fn against_mpi(plan: Plan, options: Options, run_once: RunOnce<'_>) -> Measured {
    let shape = plan.shape;
    let (own, of_peers) = peers::in_turns(options, run_once, |options| {
        let arguments = [shape.size as u64, shape.steps(options), options.runs() as u64, u64::from(plan.overlap)];
        peers::measure(peers::STENCIL, shape.processes, &arguments.map(|number| number.to_string()), options)
    })?;
    let (mut metrics, expected) = without_checksum(own);
    for metric in of_peers {
        match metric.name.as_str() {
            CHECKSUM => metric.samples.iter().try_for_each(|found| compare(expected, *found as u64))?,
            _ => metrics.push(metric),
        }
    }
    Ok(with_hidden(metrics))
}

/// Adds the share of the exchange that is hidden, for everything measured with overlap whose
/// exchange exceeds the variation of computing.
fn with_hidden(mut metrics: Vec<Metric>) -> Vec<Metric> {
    let mut found = Vec::new();
    for plain in metrics.iter().filter(|metric| metric.name == PLAIN) {
        let of_same = |name: &str| {
            let same = metrics.iter().find(|metric| metric.name == name && metric.peer == plain.peer);
            same.map_or(f64::NAN, |metric| median(&metric.samples))
        };
        let (alone, plain_ns) = (of_same(COMPUTE), median(&plain.samples));
        if Summary::of(&plain.samples).is_some_and(|plain| plain.min > alone) {
            let hidden = 1.0 - (of_same(STEP) - alone) / (plain_ns - alone);
            found.push(Metric { peer: plain.peer.clone(), ..Metric::new("hidden", "1", vec![hidden]) });
        }
    }
    metrics.extend(found);
    metrics
}

/// Separates the checksum, which is compared and not reported.
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

/// Time of a step in the slowest process.
#[derive(Clone, Copy, Debug)]
struct Taken {
    step_ns: f64,
    exchange_ns: f64,
    /// The part of the exchange spent waiting.
    wait_ns: f64,
}

/// Measures one job. Worker 0 returns the metrics.
fn measure(me: &Worker, plan: Plan, options: Options) -> Measured {
    let Plan { shape, overlap, way, computing } = plan;
    let steps = shape.steps(options);
    let mut grid = Grid::new(shape.size, rows_of(shape.size, me.id().index(), me.worker_count() as usize));
    let mut halo = Halo::new(me, way, shape.size)?;
    let is_alone = me.id() == WorkerId::new(0) && computing == Computing::Here;
    let mut alone = if is_alone { Some(Grid::new(shape.size, 0..shape.size)) } else { None };
    let mut sum_of_field = 0;
    let step = |grid: &mut Grid, halo: Option<&mut Halo<'_>>, overlap| {
        step(me, grid, halo, overlap, steps, if computing == Computing::Here { sweep } else { sweep_elsewhere })
    };
    // The first run makes the connections and touches the memory.
    let taken = warmed(options, |_| {
        me.barrier()?;
        let sequential = alone.as_mut().map(|grid| sweep_alone(grid, steps));
        me.barrier()?;
        let alone_ns = step(&mut grid, None, false)?.step_ns;
        let plain = step(&mut grid, Some(&mut halo), false)?;
        let taken = if overlap { step(&mut grid, Some(&mut halo), true)? } else { plain };
        let copies_ns = copies_ns(&mut grid, neighbors(me).iter().flatten().count());
        let sum = me.all_reduce(grid.sum(), u64::wrapping_add)?;
        if let Some(grid) = &alone {
            sum_of_field = checksum(grid.sum());
            compare(sum_of_field, checksum(sum))?;
        }
        let sequential_ns = sequential.map_or(0.0, |ns| ns / f64::from(shape.processes));
        let wait_hidden = 1.0 - taken.wait_ns / plain.wait_ns;
        let Taken { step_ns, exchange_ns, wait_ns } = taken;
        Ok([step_ns, sequential_ns, alone_ns, exchange_ns, copies_ns, wait_ns, plain.step_ns, wait_hidden])
    })?;
    halo.free()?;
    let mut metrics = taken.rows([
        column(STEP, "ns", 0).against(SEQUENTIAL, 1).if_measured(is_alone),
        column(COMPUTE, "ns", 2),
        column("exchange_ns", "ns", 3).against(COPIES, 4),
        column("wait_ns", "ns", 5),
    ]);
    metrics.push(Metric::new(CHECKSUM, "1", vec![sum_of_field as f64]));
    if overlap {
        metrics.extend(taken.rows([column(PLAIN, "ns", 6), column("wait_hidden", "1", 7)]));
    }
    Ok(metrics)
}

/// Runs the sequential program and returns the nanoseconds of a step.
fn sweep_alone(grid: &mut Grid, steps: u64) -> f64 {
    grid.reset();
    let start = Instant::now();
    for _ in 0..steps {
        grid.sweep(grid.all());
        grid.advance();
    }
    start.elapsed().as_nanos() as f64 / steps as f64
}

/// Makes `steps` steps from the beginning. Without an exchange the resulting field is wrong.
fn step(
    me: &Worker,
    grid: &mut Grid,
    mut halo: Option<&mut Halo<'_>>,
    overlap: bool,
    steps: u64,
    sweep: fn(&Worker, &mut Grid, Range<usize>),
) -> Result<Taken, BenchError> {
    grid.reset();
    me.barrier()?;
    let start = me.now();
    let (mut sending, mut waiting) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..steps {
        if let Some(halo) = halo.as_deref_mut() {
            let begun = me.now();
            halo.begin(grid)?;
            sending += me.now() - begun;
        }
        if overlap {
            // The rows travel during this computation.
            me.hand_over();
            sweep(me, grid, grid.inside());
        }
        if let Some(halo) = halo.as_deref_mut() {
            let begun = me.now();
            halo.end(grid)?;
            waiting += me.now() - begun;
        }
        if overlap {
            grid.edges().for_each(|rows| sweep(me, grid, rows));
        } else {
            sweep(me, grid, grid.all());
        }
        grid.advance();
    }
    let own = [me.now() - start, sending + waiting, waiting].map(|time| time.as_nanos() as f64 / steps as f64);
    let most = |a: [f64; 3], b: [f64; 3]| [0, 1, 2].map(|at: usize| a[at].max(b[at]));
    let [step_ns, exchange_ns, wait_ns] = me.all_reduce(own, most)?;
    Ok(Taken { step_ns, exchange_ns, wait_ns })
}

/// Time of a cell in a simulation, and elsewhere.
const CELL_PS: u64 = 500;

fn sweep(me: &Worker, grid: &mut Grid, rows: Range<usize>) {
    let cells = grid.cells(&rows);
    grid.sweep(rows);
    me.charge(Duration::from_nanos(cells as u64 * CELL_PS / 1000));
}

/// Takes the time of these rows, and yields the processor.
fn sweep_elsewhere(me: &Worker, grid: &mut Grid, rows: Range<usize>) {
    let time = Duration::from_nanos(grid.cells(&rows) as u64 * CELL_PS / 1000);
    let begun = me.now();
    me.charge(time);
    while me.now() - begun < time {
        thread::yield_now();
    }
}

/// Measures a copy of the rows that a process sends, once to each neighbor.
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
    fn hidden_shares_compare_rows_of_one_program() {
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
            own(COMPUTE, 10.0).of_peer("uneven"),
            Metric::new(PLAIN, "ns", vec![9.5, 10.5, 11.0]).of_peer("uneven"),
            own(STEP, 12.0).of_peer("uneven"),
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
            for (overlap, way) in [
                (false, ExchangeKind::Signals),
                (true, ExchangeKind::Signals),
                (false, ExchangeKind::Pipes),
                (true, ExchangeKind::Pipes),
            ] {
                let options = Options::new().quick(true).operations(Some(20));
                let plan = Plan { shape: Shape { size, processes }, overlap, way, computing: Computing::Here };
                // `measure` fails on any difference.
                let result = farside::simulate(processes, 1, 1, |me| Ok(measure(me, plan, options).map(drop)?));
                result.unwrap_or_else(|error| panic!("{plan:?}: {error}"));
            }
        }
    }

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let names: Vec<_> = each_plan(&SHAPES).map(|(name, _)| name).collect();
        assert!(
            ["overlap", "no-overlap", "overlap/256/2p/pipes"].iter().all(|name| names.iter().any(|has| has == name))
        );
        let different: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
    }

    mod deep {
        use super::*;

        #[test]
        fn open_mpi_comes_to_the_same_field() {
            farside_testbed::needs!("peers");
            let (size, steps) = (33, 20);
            let mut grid = Grid::new(size, 0..size);
            sweep_alone(&mut grid, steps);
            let expected = checksum(grid.sum()) as f64;
            for (processes, overlap) in [(2, 0), (3, 1)] {
                let arguments = [size as u64, steps, 1, overlap].map(|number| number.to_string());
                let metrics = peers::measure(peers::STENCIL, processes, &arguments, Options::new()).unwrap();
                let found = |name: &str| {
                    let of_peers = metrics.iter().filter(|metric| metric.name == name);
                    of_peers.map(|metric| (metric.peer.clone().unwrap(), metric.samples.clone())).collect::<Vec<_>>()
                };
                let ways = ["isend", "active-fence", "active-pscw", "passive"].map(|way| format!("openmpi-{way}"));
                assert_eq!(found(CHECKSUM), ways.clone().map(|way| (way, vec![expected])));
                let peers_with_plain = if overlap == 1 { &ways[..] } else { &[] };
                assert!(found(PLAIN).iter().map(|(peer, _)| peer).eq(peers_with_plain));
                assert!(found(STEP).iter().map(|(peer, _)| peer).eq(&ways));
            }
        }
    }
}
