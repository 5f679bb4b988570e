//! Searches that lose a process.

use std::path::PathBuf;
use std::process::{Command, exit};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farside::{Error, LaunchError, ProcessEnd, ProcessId, Simulation};
use farside_mcts::games::hex::{Cell, Hex, Position};
use farside_mcts::{Budget, Costs, Game, JobError, OnJob, Outcome, Player, Points, Rng, Search};
use farside_testbed::{limit, scaled};

/// More rollouts than any search here makes.
const MANY: u64 = 1 << 31;

/// Number of leaves that a process evaluates before it dies.
static FUSE: AtomicU32 = AtomicU32::new(u32::MAX);

/// Ends this process at once. Libraries under libfabric catch the signal of an abort.
fn die() -> ! {
    let killed = Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
    unreachable!("a killed process has ended: {killed:?}")
}

/// Hex that ends the process after a number of evaluations.
#[derive(Clone, Copy)]
struct Doomed(Hex);

impl Game for Doomed {
    type State = Position;
    type Move = Cell;

    fn initial(&self) -> Position {
        self.0.initial()
    }
    fn to_move(&self, position: &Position) -> Player {
        position.to_move()
    }
    fn moves(&self, position: &Position, moves: &mut Vec<Cell>) {
        self.0.moves(position, moves);
    }
    fn play(&self, position: &mut Position, cell: Cell) {
        position.play(cell);
    }
    fn outcome(&self, position: &Position) -> Option<Outcome> {
        self.0.outcome(position)
    }
    fn simulate(&self, position: &Position, simulations: u32, rng: &mut Rng) -> Points {
        if FUSE.fetch_sub(1, Ordering::Relaxed) == 1 {
            die();
        }
        self.0.simulate(position, simulations, rng)
    }
}

/// Returns the file by which a worker reports the expected end of its search. The verdict of a job
/// is its first failure, so a worker cannot report anything later through the job.
fn mark(launcher: &str, worker: u32) -> PathBuf {
    std::env::temp_dir().join(format!("farside-mcts-loss-{launcher}-{worker}"))
}

/// Ends a process during a search that would take longer than the test may. The search of each
/// other process returns the loss.
fn lose(test: &str, fabric: &str, processes: u32, victim: u32) {
    let arguments = [test, "--exact", "--nocapture", "--test-threads=1"];
    let job = farside::job().processes(processes).entry(arguments).quiet_stdout().time_limit(2 * limit());
    let job = job.force_fabric(fabric.parse().unwrap());
    let verdict = job.run(|me| {
        if me.process().number() == victim {
            FUSE.store(500, Ordering::Relaxed);
        }
        let hex = Doomed(Hex::new(6).unwrap());
        let mut search = Search::new(hex).on(OnJob::new(me)?);
        match search.run(&hex.initial(), Budget::Time(limit())) {
            Err(JobError::Job(Error::PeerLost { process, .. })) if process.number() == victim => {
                let launcher = std::env::var("FARSIDE_LAUNCHER").unwrap();
                std::fs::write(mark(&launcher, me.id().number()), "").unwrap();
                Ok(())
            }
            other => panic!("the loss went unnoticed: {other:?}"),
        }
    });
    if std::env::var_os("FARSIDE_LAUNCHER").is_some() {
        exit(verdict.is_err().into());
    }
    match verdict {
        Err(Error::Launch(LaunchError::ProcessFailed { process, how: ProcessEnd::Killed(_) })) => {
            assert_eq!(process.number(), victim)
        }
        other => panic!("{other:?}"),
    }
    let launcher = std::process::id().to_string();
    for worker in (0..processes).filter(|worker| *worker != victim) {
        std::fs::remove_file(mark(&launcher, worker)).expect("the worker noticed the loss");
    }
}

#[test]
fn a_lost_process_ends_the_search_of_worker_0() {
    lose("job::loss::a_lost_process_ends_the_search_of_worker_0", "shm", 2, 1);
}

#[test]
fn a_lost_worker_0_ends_the_search_of_the_others() {
    lose("job::loss::a_lost_worker_0_ends_the_search_of_the_others", "shm", 3, 0);
}

#[test]
fn a_lost_process_ends_a_search_over_libfabric() {
    if !farside_testbed::is_left_out("fabric") {
        lose("job::loss::a_lost_process_ends_a_search_over_libfabric", "ofi:tcp", 3, 1);
    }
}

#[test]
fn a_lost_worker_0_ends_a_search_over_libfabric() {
    if !farside_testbed::is_left_out("fabric") {
        lose("job::loss::a_lost_worker_0_ends_a_search_over_libfabric", "ofi:tcp", 3, 0);
    }
}

/// A process dies at many moments of a search, in virtual time.
#[test]
fn a_loss_at_any_moment_ends_a_simulated_search() {
    let costs = Costs { step: Duration::from_micros(1), evaluation: Duration::from_micros(20) };
    // Between two moments, the number of seeds times.
    let between_ns = 7_400_000 / scaled(20);
    for seed in 0..scaled(20) {
        let victim = ProcessId::new((seed % 3) as u32);
        let survivors = AtomicU32::new(0);
        let simulation = Simulation::new(3, 1, seed).kill(victim, Duration::from_nanos(5_000_000 + between_ns * seed));
        let simulated = simulation.run(|me| {
            let hex = Hex::new(5).unwrap();
            let search = Search::new(hex).on(OnJob::new(me)?.costs(costs)).run(&hex.initial(), Budget::Rollouts(MANY));
            match search {
                Err(JobError::Job(Error::PeerLost { process, .. })) if process == victim => {
                    survivors.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                }
                other => panic!("seed {seed}: the loss went unnoticed: {other:?}"),
            }
        });
        let simulated = simulated.unwrap();
        assert!(
            matches!(simulated.verdict, Err(Error::Launch(LaunchError::ProcessFailed { process, .. })) if process == victim),
            "seed {seed}: {:?}",
            simulated.verdict
        );
        assert_eq!(survivors.load(Ordering::Relaxed), 2, "seed {seed}");
    }
}
