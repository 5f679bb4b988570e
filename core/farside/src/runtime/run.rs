//! One process of a job, from its greeting to its end: the start, its threads, and their outcomes.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use farside_fabric::clock::Clock;
use farside_fabric::ofi::OfiEndpoint;
use farside_fabric::route::FabricChoice;
use farside_fabric::{ProcessId, Transport};
use farside_launch::LaunchError;
use farside_sys::net::{Interest, wait_ready};
use farside_sys::topology::{self, Topology};

use crate::error::{Error, Result};
use crate::invoke::inbox::panic_message;
use crate::invoke::named::Names;
use crate::invoke::table::FunctionTable;
use crate::runtime::home::Shape;
use crate::runtime::process::{JobFacts, Loss, Process};
use crate::runtime::room::RoomEntry;
use crate::runtime::route::{StartOrders, open_fabric, open_route};
use crate::runtime::service::serve;
use crate::runtime::worker::Worker;
use farside_launch::control::{Control, Greeting, JobShape, ToCoordinator, ToProcess};
use farside_launch::host::host_id;
use farside_launch::kill_point::KillPoint;
use farside_launch::member::{Member, TransportChoice};
use farside_launch::settings::{Settings, opening_time, own_environment};

/// The sleep between two checks for the start, for a transport without descriptors.
const START_NAP: Duration = Duration::from_micros(10);
/// The time that a process waits for the start beyond the coordinator's own deadline. The
/// coordinator knows which process is missing, so its report should come first.
const START_MARGIN: Duration = Duration::from_secs(2);

/// The work of each worker. It is an object because all programs share the code that runs it.
pub(crate) type Body<'a> = dyn Fn(&Worker) -> Result<()> + Send + Sync + 'a;

/// Runs `body` on each worker of this process, and returns when the whole job has ended.
///
/// # Errors
/// The first error of a worker, or the reason why the job did not start or was ended.
///
/// # Panics
/// If a worker panicked, after the other processes were notified.
pub(crate) fn run_process(member: Member, names: Names, rooms: &[RoomEntry], body: &Body<'_>) -> Result<()> {
    let control = member.control.clone();
    let outcomes = start(member, names, rooms).and_then(|process| run_started(&process, body));
    if let Err(error) = &outcomes {
        control.send(ToCoordinator::failed_with(error, error.lost_process()));
    }
    control.leave();
    let mut first_error = Ok(());
    for outcome in outcomes? {
        match outcome {
            Ok(result) => first_error = first_error.and(result),
            Err(panic) => resume_unwind(panic),
        }
    }
    first_error
}

type Outcome = thread::Result<Result<()>>;

/// Runs the service thread and all other threads of the process to their ends.
fn run_started(process: &Arc<Process>, body: &Body<'_>) -> Result<Vec<Outcome>> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let seat = process.clock().seat();
        let end = seat.end();
        let service = thread::Builder::new().name("farside service".to_owned());
        let service = service.spawn_scoped(scope, || seat.take(|| serve(process, &stop)));
        let service = service.map_err(|cause| Error::System { doing: "starting the service thread", cause })?;
        let outcomes = run_threads(scope, process, body);
        stop.store(true, Ordering::Release);
        process.transport().wake();
        end.wait();
        if let Err(panic) = service.join() {
            resume_unwind(panic);
        }
        process.rooms.stop(process);
        outcomes
    })
}

/// Runs all callable threads of the process to their ends.
fn run_threads<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    process: &'scope Arc<Process>,
    body: &'scope Body<'scope>,
) -> Result<Vec<Outcome>> {
    let shape = process.shape();
    let places = places(process)?;
    let spawn = |local: usize| {
        let name = format!("farside {}", shape.worker_at(process.id(), local));
        let place = places.get(local).cloned().flatten();
        let seat = process.clock().seat();
        let end = seat.end();
        let started = thread::Builder::new().name(name).spawn_scoped(scope, move || {
            let bound = place.map_or(Ok(()), |cpus| topology::bind_current_thread(&cpus));
            let bound =
                bound.map_err(|cause| Error::System { doing: "binding a worker", cause: std::io::Error::other(cause) });
            seat.take(|| run_thread(process, local, bound, body))
        });
        let started = started.map_err(|cause| {
            let error = Error::System { doing: "starting a worker thread", cause };
            // At once, because the other threads wait for this one until the job ends.
            fail(process, error.to_string(), None);
            error
        });
        (started, end)
    };
    let threads: Vec<_> = (0..shape.callable_per_process() as usize).map(spawn).collect();
    let mut outcomes = Vec::new();
    for (started, end) in threads {
        end.wait();
        outcomes.push(match started {
            Ok(thread) => thread.join(),
            Err(error) => Ok(Err(error)),
        });
    }
    Ok(outcomes)
}

/// Runs one worker thread, or one callable thread without a body. `bound` is the outcome of binding
/// it to its CPUs.
fn run_thread(process: &Arc<Process>, local: usize, bound: Result<()>, body: &Body<'_>) -> Result<()> {
    let worker = Worker::new(process.clone(), local);
    let _seated = process.accesses.seat(local);
    let is_worker = local < process.shape().threads as usize;
    let run = || {
        bound?;
        if is_worker {
            body(&worker)?;
        }
        worker.drain()
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            let error = process.with_its_root(error, Duration::MAX);
            fail(process, format!("{}: {error}", worker.id()), error.lost_process());
            Err(error)
        }
        Err(panic) => {
            fail(process, format!("{} panicked: {}", worker.id(), panic_message(&*panic)), None);
            resume_unwind(panic)
        }
    }
}

/// Tells the coordinator that this process has failed, and ends the job for its other workers.
fn fail(process: &Process, message: String, because_of: Option<ProcessId>) {
    process.orders.control.send(ToCoordinator::Failed { message: message.clone(), because_of });
    process.end(farside_launch::control::Ending::Other(message));
}

fn places(process: &Process) -> Result<Vec<Option<topology::CpuSet>>> {
    let settings = process.settings();
    if settings.bind == topology::Bind::None {
        return Ok(Vec::new());
    }
    let topology = Topology::of_this_machine().map_err(unreadable)?;
    // Workers are placed among the processes of their machine.
    let here = process.job.machine_of(process.id());
    let together = (0..settings.processes).map(ProcessId::new).filter(|other| process.job.machine_of(*other) == here);
    let count = together.clone().count();
    let index = together.take_while(|other| *other != process.id()).count();
    Ok(topology::place(settings.bind, index, count, settings.threads as usize, &topology))
}

fn unreadable(cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::System { doing: "reading this machine's topology", cause: std::io::Error::other(cause) }
}

/// Greets the coordinator, waits for the start and opens the transport.
fn start(member: Member, names: Names, rooms: &[RoomEntry]) -> Result<Arc<Process>> {
    let Member { process, settings, control, transport, kill_plan, build } = member;
    let table = FunctionTable::of_this_program()?;
    control.send(ToCoordinator::Hello(greeting(process, &table, build, &settings, &transport)?));
    if let Some(plan) = &kill_plan {
        plan.pass(KillPoint::GreetingSent);
    }
    let clock = match &transport {
        TransportChoice::Ready(transport) => transport.clock(),
        TransportChoice::ByRoute => Clock::real(),
    };
    let (orders, fabric) = wait_for_start(process, &*control, &clock, &settings)?;
    let transport: Arc<dyn Transport> = match transport {
        TransportChoice::Ready(transport) => transport,
        TransportChoice::ByRoute => open_route(process, &settings, &orders, fabric)?,
    };
    let cpus = topology::current_affinity().map_err(unreadable)?.len();
    let (alike, machines, job_id) = (orders.alike(process), orders.machines(), orders.job_id);
    let shape = settings.shape();
    let job = JobFacts { id: process, shape, settings, alike, machines, job_id, kill_plan };
    let process = Process::new(job, table, names, transport, control, cpus, rooms);
    process.kill_point(KillPoint::EndpointOpened);
    Ok(process)
}

fn greeting(
    process: ProcessId,
    table: &FunctionTable,
    build: u64,
    settings: &Settings,
    transport: &TransportChoice,
) -> Result<Greeting> {
    let (fingerprint, table_hash) = table.identity();
    let table_hash = table_hash ^ build;
    let Shape { processes, threads, without_body } = settings.shape();
    let (host, fabric) = match transport {
        TransportChoice::ByRoute => (host_id(process, processes, &own_environment)?, settings.fabric.clone()),
        // A transport that exists already needs no route.
        TransportChoice::Ready(_) => ([0; 16], FabricChoice::default()),
    };
    Ok(Greeting { fingerprint, table_hash, host, shape: JobShape { processes, threads, without_body }, fabric })
}

fn inconsistent_facts() -> Error {
    Error::JobEnded {
        why: "the coordinator sent inconsistent facts about the processes: build all of them from one version".into(),
    }
}

/// Waits for the start. Opens the fabric meanwhile if the processes are on several machines.
fn wait_for_start(
    process: ProcessId,
    control: &dyn Control,
    clock: &Clock,
    settings: &Settings,
) -> Result<(StartOrders, Option<Arc<OfiEndpoint>>)> {
    let time = settings.deadline.saturating_add(START_MARGIN);
    let mut deadline = clock.now() + time;
    let (mut peers, mut builds) = (Vec::new(), Vec::new());
    let mut fabric = None;
    loop {
        match control.receive() {
            Some(ToProcess::Start { job_id, secret }) => {
                if !builds.is_empty() && builds.len() != settings.processes as usize {
                    return Err(inconsistent_facts());
                }
                return Ok((StartOrders { job_id, secret, peers, builds }, fabric));
            }
            Some(ToProcess::Exchange) => {
                let endpoint = open_fabric(process, settings, &own_environment)?;
                control.send(ToCoordinator::Card { bytes: endpoint.card().to_vec() });
                fabric = Some(endpoint);
                // In a large job, other processes may take longer to open theirs.
                deadline = clock.now() + time.saturating_add(opening_time(settings.processes));
            }
            Some(ToProcess::Peers { first, cards }) => {
                if first as usize != peers.len() || peers.len() + cards.len() > settings.processes as usize {
                    return Err(inconsistent_facts());
                }
                peers.extend_from_slice(&cards);
            }
            Some(ToProcess::Builds { first, builds: more }) => {
                if first as usize != builds.len() || builds.len() + more.len() > settings.processes as usize {
                    return Err(inconsistent_facts());
                }
                builds.extend(more);
            }
            Some(ToProcess::Ended { why }) => return Err(LaunchError::from(why).into()),
            Some(ToProcess::Lost { process, root, why }) => return Err(Loss { root, why }.into_error(process)),
            Some(ToProcess::Confirm { .. } | ToProcess::Finish | ToProcess::Probe | ToProcess::Ask { .. }) => {}
            None if clock.now() >= deadline => {
                return Err(Error::deadline("waiting for the other processes to start", time));
            }
            None => match control.fd() {
                Some(fd) => {
                    let waited = wait_ready(&[Interest { fd, writable: false }], Some(deadline));
                    waited.map_err(|cause| Error::System { doing: "waiting for the start of the job", cause })?;
                }
                None => clock.sleep_for(START_NAP),
            },
        }
    }
}
