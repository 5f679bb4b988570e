//! Sessions, which keep their tree while a game is played.

use farside::prelude::*;
use farside::{Result, simulate};
use farside_mcts::games::hex::Hex;
use farside_mcts::{Budget, Game, JobError, OnJob, Params, Placement, Search, SearchError};

const SOME: Budget = Budget::Rollouts(1500);

/// Small parameters, so that nodes are spread early.
fn small(seed: u64) -> Params {
    Params { simulations: 2, expand_after: 2, seed, ..Params::default() }
}

/// Plays games by the best and by other moves, and checks what the tree keeps.
pub(super) fn play(me: &Worker) -> Result<()> {
    let hex = Hex::new(5).unwrap();
    let job = OnJob::new(me)?;
    let placements = [Placement::Random, Placement::Inherit { visits: 50 }];
    for (seed, placement) in placements.into_iter().cycle().take(4).enumerate() {
        let job = job.placement(placement);
        let search = Search::new(hex).params(small(seed as u64)).on(job);
        let mut session = search.session(&hex.initial())?;
        assert!(session.report()?.is_none());
        for ply in 0..6 {
            let report = session.run(SOME)?;
            assert_eq!(
                report.moves.iter().map(|known| u64::from(known.visits)).sum::<u64>(),
                report.kept + report.rollouts
            );
            assert!(report.rollouts == 1500 || report.solved.is_some());
            let known = session.report()?.unwrap();
            assert_eq!((&known.moves, &known.line, known.nodes), (&report.moves, &report.line, report.nodes));
            // A move that was tried.
            let tried = &report.moves[ply % 3];
            if report.solved.is_some() && ply > 3 {
                break;
            }
            session.advance(tried.chosen)?;
            if let Some(now) = session.report()? {
                assert!(now.kept > 0 && now.kept <= u64::from(tried.visits) && now.rollouts == 0);
                assert!(now.nodes < report.nodes);
                assert!(tried.chosen != report.line[0] || now.line[..] == report.line[1..]);
            }
        }
    }
    Ok(())
}

#[farside::test(processes = 1, threads = 1)]
fn one_worker_plays(me: &Worker) -> Result<()> {
    play(me)
}

#[farside::test(processes = 2, threads = 1)]
fn two_processes_play(me: &Worker) -> Result<()> {
    play(me)
}

#[farside::test(processes = 2, threads = 2)]
fn two_processes_of_two_threads_play(me: &Worker) -> Result<()> {
    play(me)
}

#[test]
fn processes_without_shared_memory_play() {
    simulate(4, 1, 5, play).unwrap();
}

#[farside::test(processes = 2, threads = 1)]
fn one_session_at_a_time(me: &Worker) -> Result<()> {
    let hex = Hex::new(4).unwrap();
    let job = OnJob::new(me)?;
    let search = || Search::new(hex).params(small(1)).on(job);
    let mut session = search().session(&hex.initial())?;
    assert!(matches!(search().session(&hex.initial()), Err(JobError::InUse)));
    assert!(matches!(search().run(&hex.initial(), SOME), Err(JobError::InUse)));
    // All workers refuse these, and nothing changes.
    let refused = session.run(Budget::Rollouts(0));
    assert!(matches!(refused, Err(JobError::Search(SearchError::ZeroBudget))));
    let refused = session.advance("e5".parse().unwrap());
    assert!(matches!(refused, Err(JobError::Search(SearchError::IllegalMove))));
    let report = session.run(Budget::Rollouts(300))?;
    assert_eq!(report.kept, 0);
    drop(session);
    assert_eq!(search().run(&hex.initial(), Budget::Rollouts(300))?.rollouts, 300);
    Ok(())
}
