//! Looks into searches, and their exploration.

use std::collections::{HashMap, HashSet};

use farside::prelude::*;
use farside::{Result, simulate};
use farside_mcts::games::hex::{Cell, Hex};
use farside_mcts::{Budget, Game, OnJob, Params, Placement, Search, Window};

/// A branch as it travels: its name, that of its parent, its move, its visits and its owner.
type Report = (String, String, Cell, u32, u32);

fn look(me: &Worker) -> Result<()> {
    let hex = Hex::new(5).unwrap();
    let job = OnJob::new(me)?.placement(Placement::Random);
    let window = job.window();
    assert!(window.branches::<Hex>(me, 10).is_empty(), "no search runs");
    let params = Params { simulations: 2, expand_after: 2, ..Params::default() };
    let mut session = Search::new(hex).params(params).on(job).session(&hex.initial())?;
    let report = session.run(Budget::Rollouts(3000))?;
    let own = window.branches::<Hex>(me, usize::MAX);
    assert!(own.is_sorted_by_key(|branch| std::cmp::Reverse(branch.visits)));
    for count in [0, 1, 7, 40] {
        let visits = |branches: &[farside_mcts::Branch<Cell>]| branches.iter().map(|branch| branch.visits).collect();
        let few: Vec<u32> = visits(&window.branches::<Hex>(me, count));
        let most: Vec<u32> = visits(&own[..count.min(own.len())]);
        assert_eq!(few, most, "the branches with the most visits");
    }
    let told: Vec<Report> = own
        .into_iter()
        .map(|branch| (branch.id, branch.parent, branch.chosen, branch.visits, branch.owner.number()))
        .collect();
    // All workers' branches are one tree: each has its own name, and a parent that is known.
    let all: Vec<Report> = me.all_reduce(told, |mut all, more| {
        all.extend(more);
        all
    })?;
    let names: HashSet<&str> = all.iter().map(|(id, ..)| id.as_str()).collect();
    assert_eq!(names.len(), all.len());
    assert!(all.iter().all(|(_, parent, ..)| parent == Window::ROOT || names.contains(parent.as_str())));
    let root: HashMap<Cell, u32> =
        all.iter().filter(|(_, parent, ..)| parent == Window::ROOT).map(|told| (told.2, told.3)).collect();
    let known: HashMap<Cell, u32> = report.moves.iter().map(|known| (known.chosen, known.visits)).collect();
    assert_eq!(root, known);
    let owners: HashSet<u32> = all.iter().map(|told| told.4).collect();
    assert_eq!(owners.len(), me.worker_count() as usize, "all workers own nodes");
    Ok(())
}

#[farside::test(processes = 2, threads = 1)]
fn two_processes_look(me: &Worker) -> Result<()> {
    look(me)
}

#[test]
fn processes_without_shared_memory_look() {
    simulate(3, 1, 7, look).unwrap();
}

/// With much exploration, the visits are spread; with none, they are not.
#[farside::test(processes = 1, threads = 1)]
fn exploration_changes_while_a_search_runs(me: &Worker) -> Result<()> {
    let hex = Hex::new(5).unwrap();
    let most = |exploration: f32| {
        let params = Params { simulations: 2, ..Params::default() };
        let mut search = Search::new(hex).params(params).on(OnJob::new(me)?).tune(move || exploration);
        let report = search.run(&hex.initial(), Budget::Rollouts(2000)).unwrap();
        Ok::<u32, farside::Error>(report.moves[0].visits)
    };
    let (none, much, wrong) = (most(0.0)?, most(100.0)?, most(f32::NAN)?);
    assert!(none > 4 * much, "{none} and {much}");
    assert!(wrong > much, "what is no number changes nothing");
    Ok(())
}
