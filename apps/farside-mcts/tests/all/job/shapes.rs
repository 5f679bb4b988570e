//! The guarantees of a search, on jobs of several shapes.

use std::ops::ControlFlow;
use std::time::Duration;

use farside::prelude::*;
use farside::{Aggregation, Result, simulate};
use farside_mcts::games::hex::Hex;
use farside_mcts::{
    Budget, Costs, Game, JobError, JobReport, OnJob, Outcome, Params, Placement, Player, Report, Search, SearchError,
};

/// Take one to three matches; the player that takes the last one wins.
#[derive(Clone, Copy)]
struct Nim;

impl Game for Nim {
    type State = (u32, Player);
    type Move = u32;

    fn initial(&self) -> Self::State {
        (21, Player::First)
    }
    fn to_move(&self, &(_, player): &Self::State) -> Player {
        player
    }
    fn moves(&self, &(left, _): &Self::State, moves: &mut Vec<u32>) {
        moves.extend(1..=left.min(3));
    }
    fn play(&self, state: &mut Self::State, taken: u32) {
        *state = (state.0 - taken, state.1.opponent());
    }
    fn outcome(&self, &(left, player): &Self::State) -> Option<Outcome> {
        (left == 0).then(|| Outcome::Won(player.opponent()))
    }
}

/// Small parameters, so that nodes are spread early.
fn small() -> Params {
    Params { simulations: 2, expand_after: 2, ..Params::default() }
}

/// Checks that all workers have the same report.
fn assert_shared<M: Wire + Copy + PartialEq + std::fmt::Debug>(me: &Worker, report: &Report<M>) -> Result<()> {
    let all = me.gather(WorkerId::new(0), report.clone())?;
    assert!(all.is_none_or(|all| all.iter().all(|other| other == report)));
    Ok(())
}

fn assert_adds_up<M: Copy + PartialEq + std::fmt::Debug>(me: &Worker, report: &Report<M>) {
    let job = report.job.as_ref().unwrap();
    assert_eq!(job.started, report.rollouts);
    assert_eq!(report.moves.iter().map(|known| u64::from(known.visits)).sum::<u64>(), report.rollouts);
    assert!(report.moves.is_sorted_by(|a, b| a.visits >= b.visits));
    assert_eq!(report.line[0], report.best.chosen);
    assert!(report.mean_depth >= 1.0 && report.mean_depth <= f64::from(report.max_depth));
    assert_eq!(job.workers.len(), me.worker_count() as usize);
    assert_eq!(job.workers.iter().map(|worker| worker.simulations).sum::<u64>(), report.simulations);
    assert_eq!(job.workers.iter().map(|worker| worker.nodes).sum::<usize>(), report.nodes);
    assert_eq!(job.messages() > 0, job.bytes() > 0);
}

fn search_several_times(me: &Worker) -> Result<()> {
    // The scheduler decides whether a worker gets any work.
    search_and_check(me, Costs::default(), |_| ())
}

/// Searches with several budgets, and has `check_shares` look at each report.
fn search_and_check(me: &Worker, costs: Costs, check_shares: impl Fn(&JobReport)) -> Result<()> {
    let hex = Hex::new(5).unwrap();
    let job = OnJob::new(me)?.costs(costs);
    for placement in [Placement::Inherit { visits: 50 }, Placement::Random] {
        let job = job.placement(placement);
        for (seed, rollouts) in [1, 2, 15, 16, 17, 1000, 3000].into_iter().enumerate() {
            let overflow = Aggregation::Overflow { limit_bytes: 1 << 20 };
            let batched = Aggregation::Traditional { bytes: 1024 };
            let job = job.aggregation(if seed.is_multiple_of(2) { overflow } else { batched });
            let params = Params { seed: seed as u64, ..small() };
            let report = Search::new(hex).params(params).on(job).run(&hex.initial(), Budget::Rollouts(rollouts))?;
            assert_eq!(report.rollouts, rollouts);
            assert_adds_up(me, &report);
            assert_shared(me, &report)?;
            let told = report.job.unwrap();
            assert!(told.in_flight_max <= 32 * me.worker_count());
            check_shares(&told);
        }
    }
    Ok(())
}

/// Every worker takes part in a search of more than a few rollouts. Virtual time shows this, since
/// no worker is left without a processor.
#[test]
fn every_worker_takes_part() {
    let costs = Costs { step: Duration::from_micros(1), evaluation: Duration::from_micros(20) };
    for (processes, threads) in [(4, 1), (2, 2)] {
        let searched = simulate(processes, threads, 12, |me| {
            search_and_check(me, costs, |report| {
                let (rollouts, workers) = (report.started, &report.workers);
                assert!(rollouts < 1000 || workers.iter().all(|worker| worker.simulations > 0), "{workers:?}");
                assert!(rollouts < 3000 || workers.iter().all(|worker| worker.nodes > 0), "{workers:?}");
            })
        });
        searched.unwrap();
    }
}

#[farside::test(processes = 1, threads = 1, timeout_s = 120)]
fn one_worker(me: &Worker) -> Result<()> {
    search_several_times(me)
}

#[farside::test(processes = 2, threads = 1, timeout_s = 120)]
fn two_processes(me: &Worker) -> Result<()> {
    search_several_times(me)
}

#[farside::test(processes = 1, threads = 2, timeout_s = 120)]
fn two_threads(me: &Worker) -> Result<()> {
    search_several_times(me)
}

#[farside::test(processes = 2, threads = 2, timeout_s = 120)]
fn two_processes_of_two_threads(me: &Worker) -> Result<()> {
    search_several_times(me)
}

#[farside::test(processes = 4, threads = 1, timeout_s = 120)]
fn four_processes(me: &Worker) -> Result<()> {
    search_several_times(me)
}

#[test]
fn processes_over_libfabric() {
    farside_testbed::needs!("fabric");
    let arguments = ["job::shapes::processes_over_libfabric", "--exact", "--nocapture", "--test-threads=1"];
    let job = farside::job().processes(2).threads_per_process(2).force_fabric("ofi:tcp".parse().unwrap());
    let verdict = job.entry(arguments).quiet_stdout().time_limit(farside_testbed::limit()).run(|me| {
        search_several_times(me)?;
        super::sessions::play(me)
    });
    if std::env::var_os("FARSIDE_LAUNCHER").is_some() {
        std::process::exit(verdict.is_err().into());
    }
    verdict.unwrap();
}

#[test]
fn processes_without_shared_memory() {
    simulate(5, 1, 11, |me| {
        let hex = Hex::new(5).unwrap();
        let job = OnJob::new(me)?.placement(Placement::Random).in_flight(4);
        let report = Search::new(hex).params(small()).on(job).run(&hex.initial(), Budget::Rollouts(1000))?;
        assert_adds_up(me, &report);
        assert_shared(me, &report)
    })
    .unwrap();
}

#[farside::test(processes = 2, threads = 1)]
fn searches_of_different_games_follow_one_another(me: &Worker) -> Result<()> {
    let hex = Hex::new(4).unwrap();
    let [first, second] = [OnJob::new(me)?, OnJob::new(me)?];
    for left in 9_u32..=12 {
        let job = if left.is_multiple_of(2) { first } else { second };
        let mut search = Search::new(Nim).params(small()).on(job.placement(Placement::Random));
        let report = search.run(&(left, Player::Second), Budget::Rollouts(20_000))?;
        let winner = if left % 4 == 0 { Player::First } else { Player::Second };
        assert_eq!(report.solved, Some(Outcome::Won(winner)), "{left} left");
        assert!(left % 4 == 0 || report.best.chosen == left % 4);
        assert_shared(me, &report)?;
        let report = Search::new(hex).params(small()).on(job).run(&hex.initial(), Budget::Rollouts(300))?;
        assert_adds_up(me, &report);
    }
    Ok(())
}

#[farside::test(processes = 2, threads = 2)]
fn the_memory_limit_holds(me: &Worker) -> Result<()> {
    let hex = Hex::new(7).unwrap();
    for placement in [Placement::Random, Placement::Inherit { visits: 100 }] {
        let memory_bytes = 200_000;
        let params = Params { memory_bytes, ..small() };
        let job = OnJob::new(me)?.placement(placement);
        let mut search = Search::new(hex).params(params).on(job);
        let report = search.run(&hex.initial(), Budget::Rollouts(10_000))?;
        assert_adds_up(me, &report);
        assert!(report.tree_bytes <= memory_bytes && report.tree_bytes > memory_bytes / 3, "{}", report.tree_bytes);
    }
    Ok(())
}

#[farside::test(processes = 2, threads = 1)]
fn time_budgets_and_observers_end_a_search(me: &Worker) -> Result<()> {
    let hex = Hex::new(9).unwrap();
    let job = OnJob::new(me)?;
    let budget = Duration::from_millis(20);
    let report = Search::new(hex).on(job).run(&hex.initial(), Budget::Time(budget))?;
    assert!(report.rollouts > 0 && report.elapsed >= budget);
    assert_adds_up(me, &report);

    // The search solves the position at once, so this returns although the budget is a day.
    let report = Search::new(Nim).on(job).run(&(1, Player::First), Budget::Time(Duration::from_secs(86_400)))?;
    assert_eq!(report.solved, Some(Outcome::Won(Player::First)));

    let is_first = me.id().number() == 0;
    let mut shown = 0;
    let mut search = Search::new(hex).on(job).observe(100, move |report| {
        assert!(is_first, "only worker 0 is shown reports");
        shown += 1;
        assert!(report.rollouts >= 100 * shown);
        if shown == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let report = search.run(&hex.initial(), Budget::Rollouts(1_000_000))?;
    // Rollouts in flight when the observer stopped the search count too.
    assert!((300..2000).contains(&report.rollouts), "{}", report.rollouts);
    assert_adds_up(me, &report);
    Ok(())
}

#[farside::test(processes = 2, threads = 1)]
fn invalid_searches_are_refused_on_all_workers(me: &Worker) -> Result<()> {
    let hex = Hex::new(3).unwrap();
    let job = OnJob::new(me)?;
    let refusal = |params: Params, budget| match Search::new(hex).params(params).on(job).run(&hex.initial(), budget) {
        Err(JobError::Search(error)) => error,
        other => panic!("{other:?}"),
    };
    let fine = Params::default();
    assert_eq!(refusal(fine, Budget::Rollouts(0)), SearchError::ZeroBudget);
    assert_eq!(
        refusal(Params { simulations: 0, ..fine }, Budget::Rollouts(1)),
        SearchError::Simulations { simulations: 0 }
    );
    assert_eq!(refusal(Params { memory_bytes: 900, ..fine }, Budget::Rollouts(1)), SearchError::Memory { bytes: 900 });
    let over = Search::new(Nim).on(job).run(&(0, Player::First), Budget::Rollouts(1)).unwrap_err();
    assert!(matches!(over, JobError::Search(SearchError::GameOver(Outcome::Won(Player::Second)))));
    // The refusals leave no trace.
    let report = Search::new(hex).on(job).run(&hex.initial(), Budget::Rollouts(1000))?;
    assert_adds_up(me, &report);
    Ok(())
}
