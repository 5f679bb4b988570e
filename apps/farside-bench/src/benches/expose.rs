//! The cost of showing data to programs outside of the job, and of reading it from there (OpAS).
//!
//! - `expose`: exposing memory and ending that. `lock`: locking it and unlocking.
//! - `publish/idle`: a step that no reader asks for. `publish/watched`: steps of 8 MiB while a
//!   reader takes one after the other.
//! - `get`, `put`: another process reads or writes exposed memory through the door.
//! - `get/16MiB/tcp`: the same through its door on the network.
//! - `view-get`: it reads a view of a paused program, whose step is in memory that it maps.
//! - `view`: a program that computes and publishes 1024 x 1024 numbers a step, with viewers that
//!   read 60 steps a second. It is compared with the same copies by hand: the program copies its
//!   numbers 60 times a second into shared memory, and each viewer copies them from there.
//! - `trace`: calls that no reader records, and calls that one does.

mod network;
mod trace;

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farside::{MakeArrays, RegisterMemory, Worker, WorkerId, bytemuck};
use farside_fabric::RemoteRegion;
use farside_inspect::{Expose, ExposeError, JobId, PublishError};
use farside_rpc::{Client, Credentials, Handling, Never, Server, Service};
use farside_viewer::{At, Inspector, Selection};

use super::size_name;
use crate::kit::*;

pub(crate) const ABOUT: &str = "showing data to programs outside of the job, and reading it from there (OpAS)";

/// The microseconds that OpAS published, for as many processes: exposing, and locking.
const PUBLISHED_US: [(u32, f64, f64); 3] = [(1, 75.0, 60.0), (2, 80.0, 76.0), (4, 127.0, 148.0)];
const SIZES: [usize; 5] = [8, 4 << 10, 64 << 10, 1 << 20, 16 << 20];
const VIEWERS: [usize; 4] = [0, 1, 8, 32];
/// The sides of the array of `view`.
const SIDE: usize = 1024;
/// The time after which viewers have noticed that they should look, or rest.
const SETTLES: Duration = Duration::from_millis(100);
const FRAME: Duration = Duration::from_nanos(1_000_000_000 / 60);

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (processes, expose_us, lock_us) in PUBLISHED_US {
        cases.push(Case::job(format!("expose/{processes}p"), processes, move |me, options| {
            expose(me, options, expose_us)
        }));
        cases.push(Case::job(format!("lock/{processes}p"), processes, move |me, options| lock(me, options, lock_us)));
    }
    cases.push(Case::job("publish/idle", 1, publish_idle));
    cases.push(Case::job("publish/watched", 2, publish_watched));
    for bytes in SIZES {
        for (name, what) in [("get", Access::Get), ("put", Access::Put), ("view-get", Access::ViewGet)] {
            let name = format!("{name}/{}", size_name(bytes));
            cases.push(Case::job(name, 2, move |me, options| transfer(me, options, bytes, what)));
        }
    }
    for viewers in VIEWERS {
        let name = format!("view/{viewers}-at-60Hz");
        cases.push(Case::job(name, 2, move |me, options| view(me, options, viewers)));
    }
    cases.extend(network::cases());
    cases.extend(trace::cases());
    cases
}

impl From<ExposeError> for BenchError {
    fn from(error: ExposeError) -> Self {
        farside::Error::from(error).into()
    }
}

impl From<PublishError> for BenchError {
    fn from(error: PublishError) -> Self {
        farside::Error::from(error).into()
    }
}

/// Measures an operation of worker 0 while the others wait, compared with the published time.
fn against_published(
    me: &Worker,
    options: Options,
    (operations, published_us): (u64, f64),
    mut operation: impl FnMut() -> Result<(), BenchError>,
) -> Measured {
    on_first(me, || {
        let count = options.operations_or(operations);
        let taken = cold(options, |_| Ok([time_latency(count, &mut operation)?.median_ns]))?;
        let ns = taken.rows([column("ns", "ns", 0)]).swap_remove(0);
        let published = ns.published("opas-published", published_us * 1000.0, 3);
        Ok(vec![ns, published])
    })
}

fn expose(me: &Worker, options: Options, published_us: f64) -> Measured {
    let array = me.global_array::<f64>(1 << 16)?;
    // The door is open.
    let first = me.expose("first", &array)?;
    let metrics = against_published(me, options, (2000, published_us), || Ok(me.expose("array", &array).map(drop)?))?;
    drop(first);
    array.free(me)?;
    Ok(metrics)
}

fn lock(me: &Worker, options: Options, published_us: f64) -> Measured {
    let array = me.global_array::<f64>(1 << 16)?;
    let shown = me.expose("array", &array)?;
    let metrics = against_published(me, options, (1_000_000, published_us), || Ok(shown.lock().map(drop)?))?;
    drop(shown);
    array.free(me)?;
    Ok(metrics)
}

fn publish_idle(me: &Worker, options: Options) -> Measured {
    let view = me.view::<f64>("view").shape([1024]).open()?;
    let (mut step, values) = (0, vec![1.0; 1024]);
    let taken = cold(options, |_| {
        let once = || {
            step += 1;
            view.publish(black_box(step), black_box(&values))
        };
        Ok([time_latency(options.operations_or(4_000_000), once)?.median_ns])
    })?;
    Ok(taken.rows([column("ns", "ns", 0)]))
}

/// Publishes 8 MiB a step, of which the other process reads as many as it can.
fn publish_watched(me: &Worker, options: Options) -> Measured {
    let done = me.symmetric::<u64>(1)?;
    let mut values = vec![0.0; SIDE * SIDE];
    me.barrier()?;
    if !me.is_first() {
        let job = until_there(inspector)?;
        let area = wait_for(&job, "view")?;
        while done.here().get(0) == 0 {
            area.get(&Selection::all(), At::Next).map_err(failed)?;
        }
        me.barrier()?;
        return Ok(Vec::new());
    }
    let view = me.view::<f64>("view").shape([SIDE, SIDE]).open()?;
    let (mut step, mut copy) = (0_u64, values.clone());
    let warm_until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < warm_until {
        step += 1;
        view.publish(step, &values)?;
        me.progress()?;
    }
    let taken = cold(options, |_| {
        // Steps in pauses, as those of a program that computes: only then are many of them read.
        let (mut spent, mut count) = (Duration::ZERO, 0_u32);
        let until = Instant::now() + Duration::from_millis(500);
        while Instant::now() < until {
            step += 1;
            values[0] = step as f64;
            let started = Instant::now();
            view.publish(step, black_box(&values))?;
            spent += started.elapsed();
            count += 1;
            thread::sleep(Duration::from_millis(1));
            me.progress()?;
        }
        let started = Instant::now();
        for _ in 0..20 {
            copy.copy_from_slice(black_box(&values));
            black_box(&mut copy);
        }
        let copy_ns = started.elapsed().as_nanos() as f64 / 20.0;
        Ok([spent.as_nanos() as f64 / f64::from(count), copy_ns])
    })?;
    done.at(me.process_of(me.neighbor(1)))?.put(me, 0, &[1])?;
    // The reader may wait for one more step.
    let until = Instant::now() + Duration::from_millis(100);
    while Instant::now() < until {
        step += 1;
        view.publish(step, &values)?;
        me.progress()?;
    }
    me.barrier()?;
    Ok(taken.rows([column("ns", "ns", 0).against("memcpy of the step", 1)]))
}

fn inspector() -> Result<Inspector, BenchError> {
    let job = Inspector::connect(&JobId::own().to_string()).map_err(failed)?;
    Ok(job.deadline(Duration::from_secs(20)))
}

/// Opens an area as soon as it is there.
fn wait_for(job: &Inspector, name: &str) -> Result<farside_viewer::Area<f64>, BenchError> {
    until_there(|| job.open::<f64>(name).map_err(failed))
}

/// Looks until something is there.
fn until_there<T>(look: impl Fn() -> Result<T, BenchError>) -> Result<T, BenchError> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match look() {
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(5)),
            found => return found,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Access {
    Get,
    Put,
    ViewGet,
}

/// Reads or writes memory that worker 1 exposes, or a view of it. Worker 1 waits, and its door's
/// threads work.
fn transfer(me: &Worker, options: Options, bytes: usize, what: Access) -> Measured {
    let memory = me.register(vec![1.0_f64; bytes / 8])?;
    let owner = WorkerId::new(1);
    let is_view = what == Access::ViewGet;
    let expose = || me.expose("memory", &memory).map(|shown| shown.writable());
    let shown = (me.id() == owner && !is_view).then(expose).transpose()?;
    let done = me.symmetric::<u64>(1)?;
    // A call of the same path that does nothing.
    let address = format!("shm:bench-expose-{}", std::process::id());
    let null = Service::new("bench").procedure("null", Handling::Pooled, |_, number: u64| Ok::<_, Never>(number));
    let server = Server::builder().listen(&address).map_err(failed)?.provider(0, null).pool(2).start();
    let server = server.map_err(failed)?;
    let address: String = me.broadcast(owner, (me.id() == owner).then(|| address.clone()))?;
    // Keeps the door of this process from being missing.
    let own = me.gauge(&format!("worker {}", me.id().number()))?;
    if me.id() == owner && is_view {
        let view = me.view::<f64>("memory").shape([bytes / 8]).open()?;
        let values = vec![1.0; bytes / 8];
        let mut step = 0;
        while done.here().get(0) == 0 {
            view.publish(step, &values)?;
            step += 1;
            me.progress()?;
            thread::sleep(Duration::from_millis(1));
        }
    }
    let measure = || {
        let job = inspector()?;
        let area = wait_for(&job, "memory")?;
        // The step at which the program stays is read again and again.
        let paused = is_view.then(|| job.pause_at(At::Next)).transpose().map_err(failed)?;
        let client = Client::connect(&address, Credentials::own_user()).map_err(failed)?;
        let null = client.procedure::<u64, u64, Never>("bench", 0, "null");
        let (all, mut values) = (Selection::all(), vec![2.0; bytes / 8]);
        let mut copy = values.clone();
        let count = options.operations_or(if bytes < 1 << 20 { 4000 } else { 40 });
        // The first run warms up.
        let taken = warmed(options, |_| {
            let mut values = values.clone();
            let once = || {
                if what == Access::Put {
                    area.put(&all, &values).map(drop)
                } else {
                    area.get_into(&all, At::Now, black_box(&mut values)).map(drop)
                }
            };
            let time = time_latency(count, once).map_err(failed)?.median_ns;
            let limit = time_latency(count, || null.call(&7).map(drop)).map_err(failed)?.median_ns;
            let started = Instant::now();
            for _ in 0..count {
                copy.copy_from_slice(black_box(&values));
                black_box(&mut copy);
            }
            let copy_ns = started.elapsed().as_nanos() as f64 / count as f64;
            let [rate, copy_rate] = [time, copy_ns].map(|ns| bytes as f64 / ns * 1e9);
            Ok([rate, copy_rate, time, limit])
        })?;
        values[0] = copy[0];
        drop(paused);
        done.at(me.process_of(owner))?.put(me, 0, &[1])?;
        Ok::<_, BenchError>(taken.rows([
            column("bytes_per_s", "B/s", 0).against("memcpy", 1),
            column("ns", "ns", 2).against("a call that does nothing", 3),
        ]))
    };
    let metrics = if me.is_first() { measure()? } else { Vec::new() };
    me.barrier()?;
    drop((shown, own, server));
    Ok(metrics)
}

/// One step of a computation on the array.
fn compute(values: &mut [f64], next: &mut [f64]) {
    for row in 1..SIDE - 1 {
        for column in 1..SIDE - 1 {
            let at = row * SIDE + column;
            next[at] = ((values[at - SIDE] + values[at + SIDE]) + (values[at - 1] + values[at + 1])) * 0.25;
        }
    }
    values.copy_from_slice(next);
}

/// The states that worker 0 sets for the viewers.
const LOOK: u64 = 1;
const COPY: u64 = 2;
const REST: u64 = 3;
const END: u64 = 4;

/// Worker 0 computes and publishes; threads of the other process look at it. The limits are the
/// same without viewers, and with copies by hand, in turns.
fn view(me: &Worker, options: Options, viewers: usize) -> Measured {
    let states = me.symmetric::<u64>(1)?;
    let shared = Shared::new(me, SIDE * SIDE * 8)?;
    let viewer = me.neighbor(1);
    if !me.is_first() {
        let (memory, state) = (shared.bytes(), AtomicU64::new(REST));
        let job = until_there(inspector)?;
        let looked = thread::scope(|scope| {
            let threads: Vec<_> = (0..viewers).map(|_| scope.spawn(|| look(&job, memory, &state))).collect();
            let watched = loop {
                let now = states.here().get(0);
                state.store(now, Ordering::Relaxed);
                if now == END {
                    break Ok(());
                }
                if let Err(error) = me.progress() {
                    break Err(error);
                }
                thread::sleep(Duration::from_millis(2));
            };
            state.store(END, Ordering::Relaxed);
            threads.into_iter().try_for_each(|thread| thread.join().expect("a viewer does not panic"))?;
            Ok::<_, BenchError>(watched?)
        });
        me.barrier()?;
        return looked.map(|()| Vec::new());
    }
    let shown = me.view::<f64>("plate").shape([SIDE, SIDE]).open()?;
    let set = |state: u64| states.at(me.process_of(viewer))?.put(me, 0, &[state]);
    let (mut values, mut next) = (vec![0.0; SIDE * SIDE], vec![0.0; SIDE * SIDE]);
    values[..SIDE].fill(255.0);
    let mut step = 0_u64;
    let turn = Duration::from_millis(if options.runs() > 3 { 1000 } else { 500 });
    let mut steps_for = |state: u64, time: Duration| {
        let (started, mut steps) = (Instant::now(), 0_u32);
        let mut due = started;
        while started.elapsed() < time {
            compute(&mut values, &mut next);
            step += 1;
            shown.publish(step, &values)?;
            if state == COPY && viewers > 0 && Instant::now() >= due {
                // The deadline matters only for memory that is not mapped.
                let copied = shared.bytes().put(0, bytemuck::cast_slice(&values), due);
                copied.map_err(farside::Error::from)?;
                due += FRAME;
            }
            me.progress()?;
            steps += 1;
        }
        Ok::<_, BenchError>(started.elapsed().as_nanos() as f64 / f64::from(steps))
    };
    let taken = cold(options, |_| {
        let mut in_state = |state| {
            set(state)?;
            steps_for(state, SETTLES)?;
            steps_for(state, turn)
        };
        Ok([in_state(LOOK)?, in_state(COPY)?, in_state(REST)?])
    })?;
    set(END)?;
    steps_for(END, 2 * SETTLES)?;
    me.barrier()?;
    let step = column("step_ns", "ns", 0).against("without viewers", 2);
    let against_copies = column("against_copies_ns", "ns", 0).against("the same copies by hand", 1);
    Ok(taken.rows([Some(step), (viewers > 0).then_some(against_copies)].into_iter().flatten()))
}

/// Reads 60 steps a second, or copies as much by hand, while `state` says so.
fn look(job: &Inspector, memory: &RemoteRegion, state: &AtomicU64) -> Result<(), BenchError> {
    let area = wait_for(job, "plate")?;
    let mut copy = vec![0_u8; SIDE * SIDE * 8];
    let mut due = Instant::now();
    loop {
        match state.load(Ordering::Relaxed) {
            LOOK => drop(black_box(area.get(&Selection::all(), At::Now).map_err(failed)?)),
            COPY => memory.get(0, black_box(&mut copy), due).map_err(farside::Error::from)?,
            END => break,
            _ => {}
        }
        due = (due + FRAME).max(Instant::now());
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(())
}
