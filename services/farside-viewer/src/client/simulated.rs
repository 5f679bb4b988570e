//! Cuts over a simulated network, on which messages to different processes overtake each other, and
//! processes die. A seed repeats what happened.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use farside_inspect::__private::SimulatedWorker;
use farside_inspect::__private::protocol::{DoorClient, Part, Wanted, Wish};
use farside_inspect::__private::spans::Span;
use farside_rpc::sim::{Profile, Simulation};
use farside_rpc::{Handling, Never, Pending, Procedure, Server, Service};
use farside_testbed::{limit, scaled};

use super::{At, Inspector};
use crate::{About, Element, ElementType, JobId, Role, Selection};

const PROCESSES: u32 = 4;
/// The elements of a worker's row. They are enough to be mapped by readers on the same machine.
const COLUMNS: u64 = 600;
/// The provider of the service by which the workers go on.
const PROGRAM: u16 = 100;

/// The element of a worker at a step.
fn pattern(step: u64, worker: u32, column: u64) -> u64 {
    step << 32 | u64::from(worker) << 16 | column
}

/// A worker that publishes a step whenever a message reaches it.
struct Worker {
    shown: SimulatedWorker,
    next: AtomicU64,
}

impl Worker {
    fn publish(&self, worker: u32) {
        let step = self.next.fetch_add(1, Ordering::Relaxed);
        let row: Vec<u64> = (0..COLUMNS).map(|column| pattern(step, worker, column)).collect();
        self.shown.publish(step, bytemuck::cast_slice(&row));
    }
}

/// A job of several processes with a view, and a reader of it.
struct Job {
    simulation: Simulation,
    inspector: Inspector,
    doors: Vec<DoorClient>,
    has_ended: Arc<AtomicBool>,
}

/// Has a worker publish one step after the other, each after a time by chance.
fn go_on(publish: Procedure<u32, (), Never>, worker: u32, has_ended: Arc<AtomicBool>) {
    let asked = publish.start(&worker).unwrap();
    asked.then(move |_| {
        if !has_ended.load(Ordering::Relaxed) {
            go_on(publish, worker, has_ended);
        }
    });
}

impl Job {
    fn simulate(seed: u64) -> Self {
        let job = JobId { name: "simulated".into(), id: 1 };
        let about = |process| About {
            process,
            process_count: PROCESSES,
            system_process: process,
            job: job.clone(),
            network: None,
            awaits_network: false,
            key: 0,
        };
        let mut server = Server::builder().max_time(Duration::from_secs(600));
        let mut workers = Vec::new();
        for process in 0..PROCESSES {
            let part = Part {
                element: <u64 as Element>::TYPE,
                whole: vec![PROCESSES.into(), COLUMNS],
                origin: vec![process.into(), 0],
                shape: vec![1, COLUMNS],
                ..Part::new("pattern", process, Role::View)
            };
            assert_eq!(part.element, ElementType::U64);
            let (shown, service) = SimulatedWorker::new(about(process), part);
            server = server.provider(process as u16, service);
            workers.push(Worker { shown, next: AtomicU64::new(0) });
        }
        let publish = move |_: &_, worker: u32| {
            workers[worker as usize].publish(worker);
            Ok::<_, Never>(())
        };
        server = server.provider(PROGRAM, Service::new("program").procedure("publish", Handling::Inline, publish));
        // The connection of each process, by its number; behind these, those of the program.
        let mut profile = Profile::default();
        profile.jitter = Duration::from_micros(200);
        let simulation = Simulation::new(server, profile, seed).unwrap();
        let connect = || simulation.connect().unwrap().deadline(limit());
        let doors: Vec<_> = (0..PROCESSES).map(|process| DoorClient::at(connect(), process as u16)).collect();
        let inspector = Inspector::of_doors((0..PROCESSES).map(about).zip(doors.iter().cloned()).collect());
        let has_ended = Arc::new(AtomicBool::new(false));
        for worker in 0..PROCESSES {
            go_on(connect().procedure("program", PROGRAM, "publish"), worker, has_ended.clone());
        }
        Self { simulation, inspector: inspector.deadline(limit()), doors, has_ended }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        while self.simulation.step() {}
    }
}

/// Reads frames, each of which has one step of all processes that are there.
fn read_cuts(seed: u64, frames: u64) {
    let job = Job::simulate(seed);
    let area = job.inspector.open::<u64>("pattern").unwrap();
    let (all, some): (Selection, Selection) = (Selection::all(), "[1:, ::7]".parse().unwrap());
    let (mut gone, mut steps) = (BTreeSet::new(), BTreeSet::new());
    for number in 0..frames {
        // In the last third, one process dies after the other, also in the middle of a frame.
        if number * 3 > frames * 2 && number % (frames / 12 + 1) == 0 && gone.len() < 2 {
            let process = 1 + gone.len() as u32;
            job.simulation.cut(process.into());
            gone.insert(process);
        }
        let at = if number % 3 == 0 { At::Now } else { At::Next };
        let is_all = number % 2 == 0;
        let frame = area.get(if is_all { &all } else { &some }, at).unwrap();
        let missing: BTreeSet<u32> = frame.missing.iter().map(|missing| missing.worker.unwrap().0).collect();
        assert_eq!(missing, gone, "seed {seed}");
        let step = frame.step.unwrap();
        let (first, stride) = if is_all { (0, 1) } else { (1, 7) };
        let elements = (first..PROCESSES).flat_map(|worker| (0..COLUMNS).step_by(stride).map(move |at| (worker, at)));
        for ((worker, column), value) in elements.zip(frame.values) {
            let expected = if gone.contains(&worker) { 0 } else { pattern(step, worker, column) };
            assert_eq!(value, expected, "seed {seed}: step {step} is mixed");
        }
        steps.insert(step);
    }
    assert!(steps.len() as u64 > frames / 4, "the program goes on: {steps:?}");
    assert_eq!(gone.len(), 2);
}

#[test]
fn a_frame_has_one_step_whatever_overtakes_what() {
    (1..=scaled(5)).for_each(|seed| read_cuts(seed, 60));
}

/// It takes long: 10,000 frames.
mod deep {
    use super::read_cuts;

    #[test]
    fn ten_thousand_simulated_frames_have_one_step_each() {
        (1..=50).for_each(|seed| read_cuts(seed, 200));
    }
}

/// Without a step that is named ahead, the same reader gets different steps.
#[test]
fn without_a_named_step_frames_are_mixed() {
    let job = Job::simulate(1);
    let mixed = (0..20).filter(|_| {
        let wanted = |worker| Wanted {
            name: "pattern".into(),
            worker,
            wish: Wish::Next,
            spans: vec![Span { start: 0, step: 1, count: 1 }, Span { start: 0, step: 1, count: COLUMNS }],
            is_direct: true,
        };
        let asked: Vec<_> = (0..).zip(&job.doors).map(|(worker, door)| door.get(wanted(worker))).collect();
        let got = asked.into_iter().map(|asked| asked.and_then(Pending::wait).unwrap());
        got.map(|got| got.step).collect::<BTreeSet<_>>().len() > 1
    });
    assert!(mixed.count() > 5);
}
