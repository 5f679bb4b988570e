//! Searches that lose a process.

use std::path::PathBuf;
use std::process::{abort, exit};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farside::{Error, LaunchError, ProcessEnd};
use farside_mcts::games::hex::{Cell, Hex, Position};
use farside_mcts::{Budget, Game, JobError, OnJob, Outcome, Player, Points, Rng, Search};

/// Number of leaves that a process evaluates before it dies.
static FUSE: AtomicU32 = AtomicU32::new(u32::MAX);

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
            abort();
        }
        self.0.simulate(position, simulations, rng)
    }
}

/// Returns the file by which a worker reports the expected end of its search. The verdict of a job
/// is its first failure, so a worker cannot report anything later through the job.
fn mark(launcher: &str, worker: u32) -> PathBuf {
    std::env::temp_dir().join(format!("farside-mcts-loss-{launcher}-{worker}"))
}

/// Ends a process during a search of a minute. The search of each other process returns the loss.
fn lose(test: &str, processes: u32, victim: u32) {
    let arguments = [test, "--exact", "--nocapture", "--test-threads=1"];
    let job = farside::job().processes(processes).entry(arguments).quiet_stdout().time_limit(Duration::from_secs(120));
    let verdict = job.run(|me| {
        if me.process().number() == victim {
            FUSE.store(500, Ordering::Relaxed);
        }
        let hex = Doomed(Hex::new(6).unwrap());
        let mut search = Search::new(hex).on(OnJob::new(me)?);
        match search.run(&hex.initial(), Budget::Time(Duration::from_secs(60))) {
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
    lose("job::loss::a_lost_process_ends_the_search_of_worker_0", 2, 1);
}

#[test]
fn a_lost_worker_0_ends_the_search_of_the_others() {
    lose("job::loss::a_lost_worker_0_ends_the_search_of_the_others", 3, 0);
}
