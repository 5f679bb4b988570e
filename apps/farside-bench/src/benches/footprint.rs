//! Memory of a process by the size of its job. The stages are: the job has begun; each process has
//! written into memory of each; each has called each once, and often; the rings are released.
//!
//! Case `16/shm` is a job of 16. Metrics: `start_bytes`, `put_bytes`, `called_bytes`,
//! `talked_bytes` and `returned_bytes`, the physical memory at each stage, the mean over all
//! processes, without the program and its libraries; and `reported_bytes`, the memory that Farside
//! reports after the calls as reserved for a process, touched or not.
//!
//! In `16/registered/shm`, `16/pipe/shm` and `16/heap/shm` each process uses one facility with each
//! other, and nothing else: it reads 4 KiB that the other has registered; a pipe of the usual shape
//! in both directions; a heap of 64 KiB there. The metrics are `registered_bytes`, `pipe_bytes` and
//! `heap_bytes`.
//!
//! `per-peer/shm` is what each further process adds, by least squares over all sizes measured.
//! `estimate/1M/shm` continues the same line to a million processes. **It is computed and not
//! measured**, far from any measured size, and no job of Farside can be so large. The figures that
//! the authors of ACP published are estimates, too.

mod fit;
mod simulated;
mod uses;

use farside::job::footprint;
use farside::{Ways, Worker, WorkerId};

use self::fit::{estimate, per_peer};
use self::uses::Use;
use super::multi_job::repeat;
use crate::kit::*;
use crate::limits::libfabric::exchange;
use crate::peers;
use crate::resident::Resident;

pub(crate) const ABOUT: &str =
    "memory of a process, by the size of its job and by what it has done; computed for a million processes (ACP)";

const SIZES: [u32; 5] = [2, 4, 8, 16, 32];
/// Few sizes: a process takes much memory for libfabric, and many processes take long to start.
const SIZES_OVER_OFI: [u32; 3] = [2, 4, 8];
/// Sizes of jobs with one use, which lie on a line.
const SIZES_OF_USES: [u32; 3] = [4, 16, 32];
const SIZES_OF_USES_OVER_OFI: [u32; 2] = [4, 8];
/// The metrics of the stages, and the memory that Farside reports.
const METRICS: [&str; 6] =
    ["start_bytes", "put_bytes", "called_bytes", "talked_bytes", "returned_bytes", "reported_bytes"];
const STAGES: usize = 5;
/// The stage after which Farside is asked, and the index of that metric.
const TALKED: usize = 3;
const REPORTED: usize = 5;
/// The limit of the later stages.
const BEFORE: &str = "before the first call";
/// Calls to each process after the first one: libraries use more memory for frequent peers.
const TALK: u32 = 64;
/// Bytes that each process offers the others to write into.
const PUT_BYTES: u64 = 64;
/// The most other processes that a process calls and writes to.
const PEERS_MAX: u32 = 31;

pub(crate) fn cases(on: &Fabric) -> Vec<Case> {
    let mut cases: Vec<Case> = match on {
        Fabric::Shm => {
            let of_size = |processes: u32| {
                let around = move |options, run_once: RunOnce<'_>| against_mpi(processes, options, run_once);
                Case::around_job(processes.to_string(), processes, |me, _| measure(me), around)
            };
            SIZES.into_iter().map(of_size).chain(uses(&SIZES_OF_USES)).collect()
        }
        Fabric::Ofi(_) => {
            let of_size =
                |processes: u32| Case::around_job(processes.to_string(), processes, |me, _| measure(me), repeat);
            SIZES_OVER_OFI.into_iter().map(of_size).chain(uses(&SIZES_OF_USES_OVER_OFI)).collect()
        }
        Fabric::Simulated(network) => simulated::cases(*network),
    };
    // These are computed from all sizes.
    cases.push(Case::from_rows("per-peer", per_peer));
    cases.push(Case::from_rows("estimate/1M", estimate));
    if *on == Fabric::Shm {
        // On other fabrics the name ends with the fabric anyway.
        cases.iter_mut().for_each(|case| case.name += "/shm");
    }
    cases
}

/// Returns a job for each use, of each of these sizes.
fn uses(sizes: &[u32]) -> impl Iterator<Item = Case> {
    let of_size = |processes: u32| {
        Use::ALL.map(|what| {
            Case::around_job(format!("{processes}/{}", what.name), processes, move |me, _| what.measure(me), repeat)
        })
    };
    sizes.iter().copied().flat_map(of_size)
}

/// Runs several jobs of Farside, and as many of Open MPI.
fn against_mpi(processes: u32, options: Options, run_once: RunOnce<'_>) -> Measured {
    let mut metrics = repeat(options, run_once)?;
    let mut run_peer = |options| peers::measure(peers::FOOTPRINT, processes, &[], options);
    metrics.extend(repeat(options, &mut run_peer)?);
    Ok(metrics)
}

/// Measures one job. Worker 0 returns the metrics.
fn measure(me: &Worker) -> Measured {
    let mut own = [0; METRICS.len()];
    walk(me, TALK, |stage| {
        own[stage] = Resident::of_this_process()?.data_bytes;
        if stage == TALKED {
            own[REPORTED] = reported_bytes(me);
        }
        Ok(())
    })?;
    let all = me.gather(WorkerId::new(0), own)?.unwrap_or_default();
    let mean = |at: usize| vec![all.iter().map(|own| own[at] as f64).sum::<f64>() / all.len() as f64];
    let metric = |(at, name)| {
        let metric = Metric::new(name, "B", mean(at));
        let is_later = (1..STAGES).contains(&at);
        if is_later { metric.against(BEFORE, mean(0)) } else { metric }
    };
    Ok(METRICS.into_iter().enumerate().map(metric).collect())
}

/// Goes through the stages, with `talk` calls to each process in one of them. Calls `look` when
/// every process has reached a stage.
fn walk(me: &Worker, talk: u32, mut look: impl FnMut(usize) -> Result<(), BenchError>) -> Result<(), BenchError> {
    look(0)?;
    let own = me.allocate_at(me.id(), PUT_BYTES)?;
    let all = exchange(me, own)?;
    for peer in each_peer(me) {
        all[peer.index()].put(me, 0, &[1; PUT_BYTES as usize])?;
    }
    me.barrier()?;
    look(1)?;
    me.barrier()?;
    me.release(own)?;
    for (stage, calls) in [(2, 1), (TALKED, talk)] {
        for peer in each_peer(me) {
            for _ in 0..calls {
                me.call_return(peer, (), |_, ()| ()).map_err(farside::Error::from)?.wait()?;
            }
        }
        me.barrier()?;
        look(stage)?;
        me.barrier()?;
    }
    me.shutdown_all()?;
    // The barrier sets up a few of the rings again.
    me.barrier()?;
    look(4)?;
    me.barrier()?;
    Ok(())
}

/// Returns the other processes that a process reaches, from the next one on.
fn each_peer(me: &Worker) -> impl Iterator<Item = WorkerId> {
    (1..me.process_count().min(PEERS_MAX + 1)).map(|distance| me.neighbor(distance))
}

/// Returns the mean of a value of each process, at worker 0. Collective.
fn mean(me: &Worker, own: u64) -> Result<f64, BenchError> {
    let all = me.gather(WorkerId::new(0), own)?.unwrap_or_default();
    Ok(all.iter().map(|own| *own as f64).sum::<f64>() / all.len().max(1) as f64)
}

/// Returns the memory that Farside reports as reserved for this process.
fn reported_bytes(me: &Worker) -> u64 {
    footprint(me.process_count(), me.threads_per_process()).starter_bytes + me.counters().ring_bytes_here
}
