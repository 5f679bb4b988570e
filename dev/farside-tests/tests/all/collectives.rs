//! Collectives on all workers and on teams, against results computed directly; teams after a loss.

use std::cell::{Cell, RefCell};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside::prelude::*;
use farside::{Error, Finish, LaunchError, ProcessEnd, Result, Simulation, Team, simulate};
use farside_kit::tasks::TaskPool;
use farside_testbed::limit;

use crate::support::{failure, spread, take_notes, verdict, within_time, write_note};

/// The contribution of a member: texts, whose concatenation is associative and not commutative.
fn text(worker: WorkerId) -> String {
    format!("{} ", worker.number())
}

fn texts(worker: WorkerId, length: usize) -> Vec<String> {
    (0..length).map(|index| format!("{}.{index} ", worker.number())).collect()
}

fn join(one: String, other: String) -> String {
    one + &other
}

/// Joins the texts of these members at each index.
fn joined(members: &[WorkerId], length: usize) -> Vec<String> {
    (0..length).map(|index| members.iter().map(|member| texts(*member, length)[index].clone()).collect()).collect()
}

macro_rules! oracle {
    ($name:ident, $me:ident, $on:ty, ($($argument:tt)*)) => {
        /// Calls every collective and compares the results. `shift` selects the root.
        fn $name(on: &$on, $me: &Worker, members: &[WorkerId], shift: usize) -> Result<()> {
            let (own, count) = ($me.id(), members.len());
            let place = members.iter().position(|member| *member == own).unwrap();
            let root = members[shift % count];
            let at_root = |value: String| (own == root).then_some(value);
            let all: Vec<String> = members.iter().map(|member| text(*member)).collect();
            let (before, up_to) = (members[..place].to_vec(), members[..=place].to_vec());

            on.barrier($($argument)*)?;
            assert_eq!(on.broadcast($($argument)* root, at_root(text(root)))?, text(root));
            assert_eq!(on.gather($($argument)* root, text(own))?, (own == root).then(|| all.clone()));
            assert_eq!(on.all_gather($($argument)* text(own))?, all);
            assert_eq!(on.all_reduce($($argument)* text(own), join)?, all.concat());
            assert_eq!(on.reduce($($argument)* root, text(own), join)?, at_root(all.concat()));
            assert_eq!(on.scan($($argument)* text(own), join)?, all[..=place].concat());
            let earlier = (place > 0).then(|| all[..place].concat());
            assert_eq!(on.exclusive_scan($($argument)* text(own), join)?, earlier);
            let handed_out = (own == root).then(|| all.clone());
            assert_eq!(on.scatter($($argument)* root, handed_out)?, text(own));
            // Vectors whose lengths depend on both ends.
            let length = |from: usize, to: usize| (3 * from + to) % 5;
            let sent = (0..count).map(|to| texts(own, length(place, to))).collect();
            let received: Vec<_> = (0..count).map(|from| texts(members[from], length(from, place))).collect();
            assert_eq!(on.all_to_all($($argument)* sent)?, received);

            for length in [0, 1, 5] {
                let all: Vec<String> = members.iter().flat_map(|member| texts(*member, length)).collect();
                let mut values = texts(own, length);
                on.broadcast_slice($($argument)* root, &mut values)?;
                assert_eq!(values, texts(root, length));
                let own_texts = texts(own, length);
                let gathered = on.gather_slice($($argument)* root, &own_texts)?;
                assert_eq!(gathered, (own == root).then(|| all.clone()));
                assert_eq!(on.all_gather_slice($($argument)* &own_texts)?, all);
                let mut values = texts(own, length);
                on.all_reduce_slice($($argument)* &mut values, join)?;
                assert_eq!(values, joined(members, length));
                let mut values = texts(own, length);
                on.reduce_slice($($argument)* root, &mut values, join)?;
                assert_eq!(values, if own == root { joined(members, length) } else { texts(own, length) });
                let mut values = texts(own, length);
                on.scan_slice($($argument)* &mut values, join)?;
                assert_eq!(values, joined(&up_to, length));
                let mut values = texts(own, length);
                on.exclusive_scan_slice($($argument)* &mut values, join)?;
                assert_eq!(values, if place > 0 { joined(&before, length) } else { texts(own, length) });
                let mut values = vec![String::new(); length];
                let from = if own == root { &all[..] } else { &[] };
                on.scatter_slice($($argument)* root, from, &mut values)?;
                assert_eq!(values, texts(own, length));
                let block = |from: WorkerId, to: WorkerId| texts(from, length).into_iter().map(move |x| x + &text(to));
                let mut values: Vec<_> = members.iter().flat_map(|to| block(own, *to)).collect();
                on.all_to_all_slice($($argument)* &mut values)?;
                assert_eq!(values, members.iter().flat_map(|from| block(*from, own)).collect::<Vec<_>>());
            }
            Ok(())
        }
    };
}

oracle!(check_all, me, Worker, ());
oracle!(check_team, me, Team, (me,));

everywhere! {
    as_processes(processes = 3, threads = 2),
    simulated(processes = 5, threads = 1, seeds = 3);
    results_are_those_of_direct_computation
    teams_work_at_the_same_time
    a_scope_waits_for_its_calls
}

fn results_are_those_of_direct_computation(me: &Worker) -> Result<()> {
    let all: Vec<_> = me.workers().collect();
    (0..all.len()).try_for_each(|shift| check_all(me, me, &all, shift))?;
    let reversed: Vec<_> = all.into_iter().rev().collect();
    check_team(&me.team(reversed.clone())?, me, &reversed, 1)
}

#[test]
fn results_are_right_with_any_number_of_workers() {
    for count in (1..=9).chain([15, 16, 17]) {
        for (processes, threads) in [(count, 1), (1, count)] {
            simulate(processes, threads, u64::from(count), |me| {
                let all: Vec<_> = me.workers().collect();
                check_all(me, me, &all, 2)?;
                // The same workers as a team, whose order begins in the middle.
                let mut turned = all.clone();
                turned.rotate_left(all.len() / 2);
                check_team(&me.team(turned.clone())?, me, &turned, 3)
            })
            .unwrap_or_else(|error| panic!("{processes} processes of {threads}: {error}"));
        }
    }
}

/// Each worker is in two teams, a row and a column, and uses them and the whole in turn. Rows make
/// different numbers of rounds, so that workers are at different places in the program.
fn teams_work_at_the_same_time(me: &Worker) -> Result<()> {
    let own = me.id().number();
    let row = me.split(u64::from(own / 2), u64::from(own))?;
    let column = me.split(u64::from(own % 2), u64::from(u32::MAX - own))?;
    let all: Vec<_> = me.workers().collect();
    let rows: Vec<_> = all.iter().copied().filter(|other| other.number() / 2 == own / 2).collect();
    let mut columns: Vec<_> = all.iter().copied().filter(|other| other.number() % 2 == own % 2).collect();
    columns.reverse();
    assert_eq!((row.members(), column.members()), (&rows[..], &columns[..]));
    for round in 0..3 {
        for _ in 0..=(own / 2 + round) % 3 {
            check_team(&row, me, &rows, round as usize)?;
        }
        check_team(&column, me, &columns, round as usize)?;
        check_all(me, me, &all, round as usize)?;
    }
    // A team of a team, and a team that is made again after it was dropped.
    for _ in 0..3 {
        let inner = column.split(me, 7, u64::from(own))?;
        columns.sort();
        check_team(&inner, me, &columns, 0)?;
        check_team(&me.team(rows.iter().copied())?, me, &rows, 0)?;
    }
    Ok(())
}

#[test]
fn a_team_must_be_a_list_of_workers_with_this_one() {
    simulate(3, 1, 1, |me| {
        let [zero, one, two] = [0, 1, 2].map(WorkerId::new);
        let is_refused = |made: Result<()>| matches!(made, Err(Error::NotInTeam { .. }));
        let other = me.neighbor(1);
        assert!(is_refused(me.team([other]).map(drop)) && is_refused(me.team([]).map(drop)));
        assert!(is_refused(me.team([zero, one, two, one]).map(drop)));
        assert!(matches!(me.team([me.id(), WorkerId::new(3)]), Err(Error::UnknownWorker { .. })));
        let alone = me.team([me.id()])?;
        check_team(&alone, me, &[me.id()], 0)?;
        assert!(is_refused(alone.broadcast(me, other, Some(1)).map(drop)));
        me.barrier()
    })
    .unwrap();
}

type OnSlice = fn(&Team, &Worker, &mut [u32]) -> Result<()>;

const ON_SLICES: [OnSlice; 9] = [
    |team, me, values| team.broadcast_slice(me, WorkerId::FIRST, values),
    |team, me, values| team.gather_slice(me, WorkerId::FIRST, values).map(drop),
    |team, me, values| team.all_gather_slice(me, values).map(drop),
    |team, me, values| team.scatter_slice(me, WorkerId::FIRST, &[0; 20][..5 * values.len()], values),
    |team, me, values| team.all_to_all_slice(me, values),
    |team, me, values| team.all_reduce_slice(me, values, |a, b| a + b),
    |team, me, values| team.reduce_slice(me, WorkerId::FIRST, values, |a, b| a + b),
    |team, me, values| team.scan_slice(me, values, |a, b| a + b),
    |team, me, values| team.exclusive_scan_slice(me, values, |a, b| a + b),
];

/// One worker passes a longer slice, or calls another collective. All members get the
/// error, and other teams are not disturbed.
#[test]
fn unequal_arguments_are_an_error_on_all_members() {
    for odd in [0, 1, 4] {
        for (index, collective) in ON_SLICES.iter().enumerate() {
            simulate(6, 1, index as u64, |me| {
                let is_member = me.id().number() < 5;
                let team = me.split(u64::from(is_member), 0)?;
                if is_member {
                    let unit = if index == 4 { 5 } else { 1 };
                    let length = if me.id().number() == odd { 4 } else { 3 };
                    let made = collective(&team, me, &mut vec![1; unit * length]).and_then(|()| team.barrier(me));
                    let Err(Error::CollectiveMismatch { here, ours, there, theirs }) = made else {
                        panic!("{index}, {odd}: {made:?}")
                    };
                    assert!(here != there && (here.number() == odd || there.number() == odd), "{here} {there}");
                    assert_ne!(ours, theirs);
                    assert!(team.barrier(me).is_err(), "it cannot go on");
                }
                check_all(me, me, &me.workers().collect::<Vec<_>>(), 0)?;
                let again = me.split(u64::from(is_member), 0)?;
                check_team(&again, me, again.members(), 0)
            })
            .unwrap_or_else(|error| panic!("{index}, {odd}: {error}"));
        }
    }
}

/// A function that combines values begins another collective, in which the others take part.
#[test]
fn a_collective_inside_another_one_is_an_error_on_all_workers() {
    simulate(3, 1, 1, |me| {
        let is_mismatch = |made: &Result<()>| matches!(made, Err(Error::CollectiveMismatch { .. }));
        let root = WorkerId::FIRST;
        let reduced = me.reduce(root, text(me.id()), |one, other| {
            me.barrier().unwrap();
            join(one, other)
        });
        if me.id() == root {
            let reduced = reduced.map(drop);
            assert!(is_mismatch(&reduced), "{reduced:?}");
            assert!(reduced.unwrap_err().to_string().contains("a barrier, which it began inside the first one"));
        } else {
            assert_eq!(reduced?, None);
            me.barrier()?;
        }
        let barrier = me.barrier();
        assert!(is_mismatch(&barrier), "{barrier:?}");
        Ok(())
    })
    .unwrap();
}

/// One of several workers begins another collective inside a reduction, and the others wait for it.
/// All members get the error, and none waits until its deadline: whatever some of them have begun
/// meanwhile, also if it is the same collective as the inner one.
#[test]
fn a_collective_inside_another_one_does_not_keep_others_waiting() {
    for case in 0..3 {
        simulate(8, 1, 1, |me| {
            // In the last case, the values of all others have arrived before.
            let left = Cell::<i32>::new(if case == 2 { 2 } else { 1 });
            let combine = |one, other| {
                left.set(left.get() - 1);
                if me.id().number() == 4 && left.get() == 0 {
                    let inner = me.barrier();
                    assert!(matches!(inner, Err(Error::CollectiveMismatch { .. })), "{inner:?}");
                }
                join(one, other)
            };
            let outer = match case {
                0 => me.all_reduce(text(me.id()), combine).map(drop),
                _ => me.reduce(WorkerId::FIRST, text(me.id()), combine).map(drop),
            };
            let outcome = outer.and_then(|()| match case {
                2 => me.barrier(),
                _ => me.broadcast(WorkerId::FIRST, Some(1)).map(drop),
            });
            assert!(matches!(outcome, Err(Error::CollectiveMismatch { .. })), "{case}, {}: {outcome:?}", me.id());
            Ok(())
        })
        .unwrap();
    }
}

/// A worker that runs slow functions may answer twice before it looks for what it waits for. It
/// still comes to the next collective.
#[test]
fn a_busy_worker_is_not_taken_for_one_that_never_comes() {
    fn compute(there: &Worker, millis: u64) {
        there.charge(Duration::from_millis(millis));
    }
    simulate(1, 3, 1, |me| {
        let [asker, busy, third] = [0, 1, 2].map(WorkerId::new);
        let team = me.split(u64::from(me.id() == third), 0)?;
        if me.id() == third {
            // While the first question waits, a function on the asker sends another one behind it.
            me.charge(Duration::from_millis(1500));
            return Ok(me.call(asker, busy, |asker, busy| asker.call(busy, 1200, compute))?);
        }
        if me.id() == asker {
            me.charge(Duration::from_millis(10));
            me.call(busy, 3000, compute)?;
        }
        team.barrier(me)?;
        team.barrier(me)
    })
    .unwrap();
}

/// Each worker waits for a value of the next one, so that none comes. They ask each other.
#[test]
fn workers_that_wait_for_each_other_notice_it() {
    for workers in [2, 3, 5] {
        simulate(workers, 1, 1, |me| {
            let begin = me.now();
            let outcome = match me.is_first() {
                true => me.gather(me.id(), 1).map(drop),
                false => me.broadcast(WorkerId::FIRST, None::<u32>).map(drop),
            };
            let Err(error @ Error::CollectiveMismatch { .. }) = outcome else { panic!("{outcome:?}") };
            let text = error.to_string();
            assert!(text.contains("a gather of") && text.contains("a broadcast of"), "{text}");
            assert!(me.now() - begin < Duration::from_secs(5), "simulated time, far below the deadline");
            Ok(())
        })
        .unwrap();
    }
}

/// Collectives that carry no values of the program are distinguished, too: by their kind, and by
/// the type that they make something of.
#[test]
fn collectives_without_values_are_told_apart() {
    type Act = fn(&Worker) -> Result<()>;
    let acts: [(&str, Act); 9] = [
        ("barrier", |me| me.barrier()),
        ("quiesce", |me| me.quiesce()),
        ("finish", |me| me.finish(|_| Ok(()))),
        ("Dist of u64", |me| Dist::new(me, || 0_u64).map(drop)),
        ("Dist of u32", |me| Dist::new(me, || 0_u32).map(drop)),
        ("PerWorker of u64", |me| PerWorker::new(me, 0_u64).map(drop)),
        ("PerWorker of u32", |me| PerWorker::new(me, 0_u32).map(drop)),
        ("tasks of u64", |me| TaskPool::run(me, [1_u64], |_, _, _| Ok(())).map(drop)),
        ("tasks of u32", |me| TaskPool::run(me, [1_u32], |_, _, _| Ok(())).map(drop)),
    ];
    for (name, first) in acts {
        for (other, second) in acts {
            let outcome = simulate(3, 1, 1, |me| if me.is_first() { first(me) } else { second(me) });
            match name == other {
                true => outcome.unwrap(),
                false => {
                    let text = outcome.expect_err(&format!("{name}, {other}")).to_string();
                    assert!(text.contains("takes part in"), "{name}, {other}: {text}");
                }
            }
        }
    }
}

/// The members stop at different collectives, and go on to call others.
#[test]
fn after_a_loss_every_collective_of_a_team_returns_it() {
    const COLLECTIVES: [fn(&Team, &Worker) -> Result<()>; 4] = [
        |team, me| team.barrier(me),
        |team, me| team.all_reduce(me, 1, |a, b| a + b).map(drop),
        |team, me| team.broadcast(me, WorkerId::FIRST, Some(2)).map(drop),
        |team, me| team.scan(me, 3_u8, |a, _| a).map(drop),
    ];
    let victim = ProcessId::new(2);
    for seed in spread(12) {
        let after = Duration::from_nanos(300_000 + 5777 * seed);
        let simulated = Simulation::new(5, 1, seed).kill(victim, after).run(|me| {
            let team = me.split(0, 0)?;
            // After the loss, each member calls them in another order.
            let (own, mut failed) = (me.id().index(), 0);
            let mut failures = (0..100_000_usize).filter_map(|step| {
                let failure = COLLECTIVES[(step + failed * own) % 4](&team, me).err();
                failed += usize::from(failure.is_some());
                failure
            });
            for failure in failures.by_ref().take(8) {
                assert!(matches!(failure, Error::PeerLost { process, .. } if process == victim), "{seed}: {failure}");
                // Messages of members that have stopped elsewhere arrive here.
                me.charge(Duration::from_micros(20));
                let _ = me.progress();
            }
            assert!(failures.next().is_some());
            Ok(())
        });
        assert_eq!(failure(simulated.unwrap().verdict), (2, ProcessEnd::Killed(9)), "seed {seed}");
    }
}

/// The teams with which workers have completed a step, in order, and the last result.
type Report = (WorkerId, Vec<Vec<WorkerId>>, u64);

/// Makes steps with the team of the survivors, until all have made 10.
fn go_on(me: &Worker) -> Result<Report> {
    let (mut team, mut steps, mut teams) = (me.survivors()?, 0_u64, Vec::new());
    while steps < 10 {
        let step = |team: &Team| -> Result<u64> {
            me.charge(Duration::from_micros(100));
            assert_eq!(team.all_reduce(me, 1, |a, b| a + b)?, team.members().len());
            let earliest = team.all_gather(me, steps)?.into_iter().min().unwrap();
            assert_eq!(team.scan(me, 1, |a, b| a + b)?, team.place() + 1);
            team.barrier(me)?;
            Ok(earliest + 1)
        };
        match step(&team) {
            Ok(made) => {
                steps = made;
                if teams.last().is_none_or(|last: &Vec<_>| *last != team.members()) {
                    teams.push(team.members().to_vec());
                }
            }
            Err(Error::PeerLost { .. }) => team = me.survivors()?,
            Err(other) => return Err(other),
        }
    }
    check_team(&team, me, team.members(), 1)?;
    let sum = team.all_reduce(me, u64::from(me.id().number()), |a, b| a + b)?;
    Ok((me.id(), teams, sum))
}

/// Processes die at many moments, also while the others agree. The survivors end with one team. A
/// worker may have made no step with an earlier team, but no two have made steps with teams that do
/// not follow each other.
#[test]
fn survivors_agree_and_go_on_whenever_processes_die() {
    let mut shrunk = 0;
    for seed in 0..28_u64 {
        let (processes, threads) = [(4, 1), (5, 1), (3, 2), (8, 1)][seed as usize % 4];
        let first = Duration::from_nanos(250_000 + seed * seed * 300);
        let mut simulation = Simulation::new(processes, threads, seed).kill(ProcessId::new(1), first);
        if processes > 3 {
            let later = first + Duration::from_nanos(seed % 7 * 4000);
            // The second victim is the first member half of the time.
            simulation = simulation.kill(ProcessId::new(seed as u32 % 2 * 3), later);
        }
        let reports = Mutex::new(Vec::new());
        let simulated = simulation.run(|me| {
            let report = go_on(me)?;
            reports.lock().unwrap().push(report);
            Ok(())
        });
        let reports = reports.into_inner().unwrap();
        shrunk += u32::from(reports.iter().any(|(_, teams, _)| teams.len() > 1));
        match simulated.unwrap().verdict {
            Ok(()) | Err(Error::Launch(LaunchError::ProcessFailed { how: ProcessEnd::Killed(_), .. })) => {}
            other => panic!("seed {seed}: {other:?}"),
        }
        let (_, longest, sum) = reports.iter().max_by_key(|(_, teams, _)| teams.len()).expect("some survive");
        let last = longest.last().unwrap();
        assert!(longest.windows(2).all(|pair| pair[1].iter().all(|member| pair[0].contains(member))), "{longest:?}");
        for (worker, teams, own_sum) in &reports {
            // A process may die after its worker has reported, and so may one after the last step.
            assert_eq!((teams.last(), own_sum), (Some(last), sum), "seed {seed}: {worker}");
            let mut all = longest.iter();
            assert!(teams.iter().all(|team| all.any(|other| other == team)), "seed {seed}: {teams:?} {longest:?}");
        }
        assert!(last.iter().all(|member| reports.iter().any(|(worker, ..)| worker == member)), "seed {seed}: {last:?}");
    }
    assert!(shrunk > 10, "in {shrunk} runs only, a process died while steps were made");
}

/// A worker that never comes is an error, and not awaited for ever.
#[test]
fn survivors_do_not_wait_for_a_worker_that_has_returned() {
    within_time(|| {
        simulate(3, 1, 5, |me| {
            if me.id().number() == 1 {
                return Ok(());
            }
            let survivors = me.survivors();
            assert!(matches!(survivors, Err(Error::CollectiveMismatch { .. })), "{survivors:?}");
            Ok(())
        })
        .unwrap();
    });
}

#[test]
fn a_loss_elsewhere_does_not_end_a_team() {
    for seed in spread(10) {
        let simulation = Simulation::new(4, 1, seed).kill(ProcessId::new(3), Duration::from_millis(1));
        let simulated = simulation.run(|me| {
            let team = me.split(u64::from(me.id().number() < 2), 0)?;
            let lost = me.wait_together(Duration::from_secs(5), || false);
            assert!(matches!(lost, Err(Error::PeerLost { .. })), "{lost:?}");
            let barrier = team.barrier(me);
            if me.id().number() < 2 {
                barrier?;
                check_team(&team, me, &[0, 1].map(WorkerId::new), 1)?;
            } else {
                assert!(matches!(barrier, Err(Error::PeerLost { .. })), "{barrier:?}");
            }
            assert!(matches!(me.barrier(), Err(Error::PeerLost { .. })));
            Ok(())
        });
        assert_eq!(failure(simulated.unwrap().verdict), (3, ProcessEnd::Killed(9)));
    }
}

/// Calls other workers, which do so again. A call to a lost process is dropped.
fn wander(there: &Worker, (count, seed, depth): (PerWorker<Cell<u64>>, u32, u32)) {
    count.here(there).set(count.here(there).get() + 1);
    for way in 0..depth.min(2) {
        let next = seed.wrapping_mul(747_796_405).wrapping_add(way * 289 + 12345);
        let to = there.neighbor(next >> 16);
        if let Err(refused) = there.call(to, (count, next, depth - 1), wander) {
            assert!(matches!(refused.error, Error::PeerLost { .. }), "{}", refused.error);
        }
    }
}

/// All collectives of a worker go on among the survivors, also quiescence with calls to and from
/// the lost process under way, and values are made and freed.
#[test]
fn quiescence_goes_on_among_survivors() {
    let mut were_calling = 0;
    for seed in spread(40) {
        let (processes, threads) = [(3, 1), (4, 1), (3, 2)][seed as usize % 3];
        let (victim, after) = (ProcessId::new(seed as u32 % 2), Duration::from_nanos(300_000 + seed * seed * 900));
        let reports = Mutex::new(Vec::new());
        let simulated = Simulation::new(processes, threads, seed).kill(victim, after).run(|me| {
            let count = PerWorker::new(me, Cell::new(0))?;
            let mut rounds = 0;
            let lost = loop {
                let refused = me.call(me.neighbor(rounds), (count, rounds + seed as u32, 6), wander).err();
                me.charge(Duration::from_micros(3));
                let outcome = refused.map_or(Ok(()), |refused| Err(refused.error));
                let outcome =
                    outcome.and(me.progress().map(drop)).and(if rounds % 8 == 7 { me.quiesce() } else { Ok(()) });
                match outcome {
                    Ok(()) => rounds += 1,
                    Err(error) => break error,
                }
            };
            assert!(matches!(lost, Error::PeerLost { .. }), "{lost}");
            me.go_on()?;
            assert_eq!(me.remaining_workers().len() as u32, (processes - 1) * threads);

            me.quiesce()?;
            let all = me.all_reduce(count.here(me).get(), |a, b| a + b)?;
            me.charge(Duration::from_millis(2));
            me.barrier()?;
            me.quiesce()?;
            assert_eq!(me.all_reduce(count.here(me).get(), |a, b| a + b)?, all, "seed {seed}");
            // Values have one name everywhere, although workers may have begun to make others.
            for round in 1..4 {
                let fresh = PerWorker::new(me, Cell::new(0))?;
                let all = me.remaining_workers();
                for to in &all {
                    me.call(*to, (fresh, round), |there, (fresh, by)| {
                        fresh.hold(there).unwrap().set(fresh.hold(there).unwrap().get() + by);
                    })?;
                }
                me.quiesce()?;
                assert_eq!(fresh.hold(me).unwrap().get(), round * all.len() as u64);
                fresh.free(me)?;
            }
            reports.lock().unwrap().push(rounds);
            Ok(())
        });
        assert_eq!(failure(simulated.unwrap().verdict), (victim.number(), ProcessEnd::Killed(9)), "seed {seed}");
        let reports = reports.into_inner().unwrap();
        assert_eq!(reports.len() as u32, (processes - 1) * threads, "seed {seed}");
        were_calling += u32::from(reports.iter().any(|rounds| rounds % 8 != 7));
    }
    assert!(were_calling > 0, "no process died while calls were under way");
}

#[test]
fn processes_go_on_after_others_were_killed() {
    let test = "collectives::processes_go_on_after_others_were_killed";
    let job = farside::job().processes(5);
    let verdict = verdict(test, job, |me| {
        let ready = PerWorker::new(me, Cell::new(0))?;
        let mut team = me.survivors()?;
        assert_eq!(team.members().len(), 5);
        me.call(WorkerId::new(1), ready, |there, ready| ready.here(there).set(ready.here(there).get() + 1))?;
        match me.id().number() {
            // It dies when all have the team.
            1 => {
                me.wait_while_serving(|| ready.here(me).get() == 5)?;
                farside_sys::process::kill_self();
            }
            // It dies when it knows of the first death, while the others try to agree.
            2 => {
                let lost = me.wait_together(limit(), || false);
                assert!(matches!(lost, Err(Error::PeerLost { .. })), "{lost:?}");
                farside_sys::process::kill_self();
            }
            _ => {}
        }
        while team.members().len() > 3 {
            match team.barrier(me) {
                Err(Error::PeerLost { .. }) => team = me.survivors()?,
                other => return other.and(Err(Error::program("two workers made no barrier"))),
            }
        }
        let left = [0, 3, 4].map(WorkerId::new);
        assert_eq!(team.members(), left);
        check_team(&team, me, &left, 1)?;
        write_note(test, me.process().number(), "went on");
        Ok(())
    });
    assert!(matches!(failure(verdict), (1 | 2, ProcessEnd::Killed(9))));
    let went_on = || Some("went on".to_owned());
    assert_eq!(take_notes(std::process::id(), test, 5), [went_on(), None, None, went_on(), went_on()]);
}

/// The number of calls that ran, by the number of members of their scope.
type Count = PerWorker<[Cell<u64>; 8]>;

fn grow(scope: &Finish<'_>, (count, team, depth): (Count, Vec<WorkerId>, u32)) {
    let count_here = &count.here(scope)[team.len()];
    count_here.set(count_here.get() + 1);
    if depth > 0 {
        let place = team.iter().position(|member| *member == scope.id()).unwrap();
        for distance in [1, 2] {
            let to = team[(place + distance) % team.len()];
            if let Err(refused) = scope.call(to, (count, team.clone(), depth - 1), grow) {
                assert!(matches!(refused.error, Error::PeerLost { .. }), "{}", refused.error);
            }
        }
    }
}

fn a_scope_waits_for_its_calls(me: &Worker) -> Result<()> {
    let count = Count::new(me, Default::default())?;
    let team = me.split(u64::from(me.id().number() % 2), 0)?;
    let (all, members) = (me.workers().collect::<Vec<_>>(), team.members().to_vec());
    for _ in 0..3 {
        let made = me.finish(|scope| {
            scope.call(me.neighbor(1), (count, all.clone(), 4), grow)?;
            Ok(7)
        })?;
        assert_eq!(made, 7);
        assert_eq!(me.all_reduce(count.here(me)[all.len()].take(), |a, b| a + b)?, all.len() as u64 * 31);
        team.finish(me, |scope| Ok(scope.call(me.id(), (count, members.clone(), 4), grow)?))?;
        assert_eq!(team.all_reduce(me, count.here(me)[members.len()].take(), |a, b| a + b)?, members.len() as u64 * 31);
    }
    let outside = team.finish(me, |scope| {
        let other = all.iter().find(|worker| !members.contains(worker)).unwrap();
        Ok(scope.call(*other, (count, Vec::new(), 0), grow)?)
    });
    assert!(matches!(outside, Err(Error::NotInTeam { .. })), "{outside:?}");
    me.barrier()
}

/// A call that is not made through the scope, and that is answered after it.
#[test]
fn a_scope_does_not_wait_for_other_calls() {
    type Kept = PerWorker<RefCell<Vec<Reply<u32>>>>;
    simulate(2, 1, 3, |me| {
        let (count, kept) = (Count::new(me, Default::default())?, Kept::new(me, RefCell::default())?);
        let keep = |there: &Worker, kept: Kept, reply| kept.here(there).borrow_mut().push(reply);
        me.call_with_reply(me.neighbor(1), kept, keep)?.then(|_, answer| assert_eq!(answer.unwrap(), 5));
        me.finish(|scope| Ok(scope.call(me.neighbor(1), (count, me.workers().collect(), 2), grow)?))?;
        kept.here(me).take().into_iter().for_each(|reply| reply.send(5));
        me.quiesce()
    })
    .unwrap();
}

#[test]
fn a_scope_does_not_begin_in_a_handler() {
    simulate(2, 1, 1, |me| {
        let begin = |there: &Worker, ()| {
            let begun = there.finish(|_| -> Result<()> { panic!("it has begun") });
            matches!(begun, Err(Error::InHandler { .. }))
        };
        assert!(me.call_return(me.neighbor(1), (), begin)?.wait()?);
        me.barrier()
    })
    .unwrap();
}

/// The panic ends a wait of the called worker, which then goes on.
#[test]
fn a_call_that_panics_has_run() {
    within_time(|| {
        simulate(2, 1, 1, |me| {
            me.finish(|scope| {
                if me.is_first() {
                    scope.call(me.neighbor(1), (), |_, ()| panic!("as planned"))?;
                } else {
                    let panicked = me.wait_while_serving(|| false).unwrap_err();
                    assert!(panicked.to_string().contains("as planned"), "{panicked}");
                }
                Ok(())
            })
        })
        .unwrap();
    });
}

#[test]
fn a_scope_of_survivors_waits_after_a_loss() {
    for seed in spread(6) {
        let victim = ProcessId::new(2);
        let simulation = Simulation::new(4, 1, seed).kill(victim, Duration::from_micros(500 + 20 * seed));
        let survivors = AtomicU64::new(0);
        let simulated = simulation.run(|me| {
            let count = Count::new(me, Default::default())?;
            let mut team = me.survivors()?;
            let mut made = 0;
            while made < 3 {
                let members = team.members().to_vec();
                let (size, whole) = (members.len(), members.len() as u64 * 31);
                let call = |scope: &Finish<'_>| Ok(scope.call(me.id(), (count, members.clone(), 4), grow)?);
                let done = team.finish(me, call).and_then(|()| {
                    let sum = team.all_reduce(me, count.here(me)[size].take(), |a, b| a + b);
                    team.barrier(me)?;
                    sum
                });
                match done {
                    Ok(sum) => {
                        assert_eq!(sum, whole);
                        made += u32::from(size == 3);
                    }
                    Err(Error::PeerLost { .. }) => team = me.survivors()?,
                    Err(other) => return Err(other),
                }
            }
            survivors.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert_eq!(failure(simulated.unwrap().verdict).0, victim.number(), "seed {seed}");
        assert_eq!(survivors.into_inner(), 3, "seed {seed}");
    }
}
