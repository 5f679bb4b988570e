//! Tests [`Orders`] and [`Table`] against the rules, over channels that only keep order. Commands
//! are refused, operations fail, and answers are late. No operation may begin before those that it
//! is ordered after have ended well.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use farside_fabric::ProcessId;
use proptest::prelude::*;

use super::error::Failure;
use super::orders::{Condition, OPEN_MAX, Orders, Place, What};
use super::table::{Origin, Table, Taken};

const OWN: ProcessId = ProcessId::new(0);
const OTHERS: [ProcessId; 2] = [ProcessId::new(1), ProcessId::new(2)];

#[derive(Clone, Debug)]
enum Step {
    Start {
        condition: u8,
        after: u16,
        place: u8,
        touches: u8,
        fails: bool,
    },
    Fence {
        peer: u8,
    },
    /// The next command or answer of a channel arrives.
    Deliver {
        process: u8,
        to_executor: bool,
    },
    /// An operation under way ends.
    End {
        process: u8,
        which: u16,
    },
    Pass,
    Tell,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..5_u8, any::<u16>(), 0..4_u8, 0..3_u8, prop::bool::weighted(0.1))
            .prop_map(|(condition, after, place, touches, fails)| Step::Start { condition, after, place, touches, fails }),
        1 => (0..4_u8).prop_map(|peer| Step::Fence { peer }),
        8 => (0..2_u8, any::<bool>()).prop_map(|(process, to_executor)| Step::Deliver { process, to_executor }),
        6 => (0..3_u8, any::<u16>()).prop_map(|(process, which)| Step::End { process, which }),
        2 => Just(Step::Pass),
        1 => Just(Step::Tell),
    ]
}

enum ToExecutor {
    Command { number: u64, epoch: u64, after: Vec<u64> },
    Heard(u64),
}

enum ToOwner {
    Ended(u64),
    Failed(u64, Failure),
    Refused(u64, u64),
}

/// A process that executes commands, and the channels to and from it.
struct Executor {
    table: Table<u64>,
    there: VecDeque<ToExecutor>,
    back: VecDeque<ToOwner>,
}

/// The state of all processes, and the history that the rules are checked against.
struct World {
    orders: Orders<u64>,
    executors: Vec<Executor>,
    /// The operations that this process executes.
    here: Vec<u64>,
    now: Instant,
    last: u64,
    fails: BTreeSet<u64>,
    /// The operations that each was ordered after, of those that were open when it started.
    after: HashMap<u64, Vec<u64>>,
    begun: BTreeSet<u64>,
    failed: BTreeSet<u64>,
    /// The number of commands that arrived with operations to wait for.
    held_there: usize,
    refusals: usize,
}

impl World {
    fn new(commands_max: usize) -> Self {
        let executor =
            |own| Executor { table: Table::new(own, commands_max), there: VecDeque::new(), back: VecDeque::new() };
        Self {
            orders: Orders::default(),
            executors: OTHERS.map(executor).into(),
            here: Vec::new(),
            now: farside_testbed::deadline(),
            last: 0,
            fails: BTreeSet::new(),
            after: HashMap::new(),
            begun: BTreeSet::new(),
            failed: BTreeSet::new(),
            held_there: 0,
            refusals: 0,
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Start { condition, after, place, touches, fails } => {
                if !self.orders.has_room() {
                    return;
                }
                let condition = match condition {
                    0 => Condition::None,
                    1 | 2 if self.last > 0 => Condition::After(u64::from(after) % self.last + 1),
                    3 => Condition::All,
                    _ => Condition::Continuing(self.last),
                };
                let place = match place {
                    0 => Place::Here,
                    1 => Place::Anywhere,
                    number => Place::At(OTHERS[number as usize - 2]),
                };
                let touched = [Some(ProcessId::new(touches.into())), None];
                let after = self.orders.before(condition, place, touched);
                self.last += 1;
                if fails {
                    self.fails.insert(self.last);
                }
                self.after.insert(self.last, after.clone());
                self.orders.push(self.last, touched, place, after, self.last);
            }
            Step::Fence { peer } => {
                self.orders.fence((peer < 3).then(|| ProcessId::new(peer.into())), self.last);
                self.orders.is_fenced();
            }
            Step::Deliver { process, to_executor: true } => self.reach_executor(process as usize),
            Step::Deliver { process, to_executor: false } => self.reach_owner(process as usize),
            Step::End { process: 2, which } => {
                if !self.here.is_empty() {
                    let number = self.here.swap_remove(usize::from(which) % self.here.len());
                    match self.fails.contains(&number) {
                        true => self.fail(number, Failure::Deadline),
                        false => self.end(number),
                    }
                }
            }
            Step::End { process, which } => {
                let executor = &mut self.executors[process as usize];
                let under_way: Vec<_> = executor.table.begun().map(|(origin, _)| origin).collect();
                if !under_way.is_empty() {
                    let origin = under_way[usize::from(which) % under_way.len()];
                    let failure = self.fails.contains(&origin.number).then_some(Failure::Deadline);
                    executor.table.end(origin, failure.as_ref());
                    executor.back.push_back(match failure {
                        Some(failure) => ToOwner::Failed(origin.number, failure),
                        None => ToOwner::Ended(origin.number),
                    });
                }
            }
            Step::Pass => self.now += Duration::from_millis(1),
            Step::Tell => drop(self.orders.take_failure(|_| true)),
        }
        self.go_on();
    }

    fn reach_executor(&mut self, process: usize) {
        let executor = &mut self.executors[process];
        match executor.there.pop_front() {
            Some(ToExecutor::Command { number, epoch, after }) => {
                self.held_there += usize::from(!after.is_empty());
                let origin = Origin { process: OWN, local: 0, number };
                if executor.table.take_in(origin, epoch, after, number) == Taken::Refused {
                    self.refusals += 1;
                    executor.back.push_back(ToOwner::Refused(number, epoch));
                }
            }
            Some(ToExecutor::Heard(number)) => {
                executor.table.forget_failed(Origin { process: OWN, local: 0, number });
            }
            None => {}
        }
    }

    fn reach_owner(&mut self, process: usize) {
        match self.executors[process].back.pop_front() {
            Some(ToOwner::Ended(number)) => {
                assert!(self.orders.is_sent_to(number, OTHERS[process]));
                self.end(number);
            }
            Some(ToOwner::Failed(number, failure)) => {
                assert!(self.orders.is_sent_to(number, OTHERS[process]));
                self.fail(number, failure);
                self.executors[process].there.push_back(ToExecutor::Heard(number));
            }
            Some(ToOwner::Refused(number, epoch)) => {
                self.failed.extend(self.orders.refuse(OTHERS[process], number, epoch, self.now));
            }
            None => {}
        }
    }

    fn end(&mut self, number: u64) {
        assert!(self.orders.end(number) && self.begun.contains(&number));
    }

    fn fail(&mut self, number: u64, failure: Failure) {
        for number in self.orders.fail(number, failure) {
            self.failed.insert(number);
        }
    }

    /// Starts all operations that may start.
    fn go_on(&mut self) {
        while let Some(start) = self.orders.next_start(self.now) {
            match start.what {
                What::Here(number) => {
                    self.note_begun(number);
                    self.here.push(number);
                }
                What::Send { to, epoch, after, work } => {
                    let command = ToExecutor::Command { number: work, epoch, after };
                    self.executors[to.index() - 1].there.push_back(command);
                }
            }
        }
        for process in 0..self.executors.len() {
            for (origin, number) in self.executors[process].table.begin_held() {
                let failed = ToOwner::Failed(origin.number, Failure::Earlier { number });
                self.executors[process].back.push_back(failed);
            }
            assert_eq!(self.executors[process].table.begin_held(), [], "one look begins or fails all that can");
            let begun: Vec<u64> = self.executors[process].table.begun().map(|(_, number)| *number).collect();
            for number in begun {
                if !self.begun.contains(&number) {
                    self.note_begun(number);
                }
            }
        }
    }

    /// Checks the rule: an operation begins once, after those that it is ordered after have ended
    /// well.
    fn note_begun(&mut self, number: u64) {
        assert!(self.begun.insert(number), "{number} began twice");
        for earlier in &self.after[&number] {
            let is_over = self.has_ended_well(*earlier);
            assert!(is_over, "{number} began before {earlier} had ended well");
        }
    }

    /// Returns whether an operation was executed, whether or not its worker knows.
    fn has_ended_well(&self, number: u64) -> bool {
        let is_under_way = self.here.contains(&number)
            || self.executors.iter().any(|executor| executor.table.is_here(Origin { process: OWN, local: 0, number }));
        self.begun.contains(&number) && !is_under_way && !self.fails.contains(&number)
    }

    /// Delivers all messages and ends all operations.
    fn run_out(&mut self) {
        for _ in 0..20 * OPEN_MAX {
            if !self.orders.are_under_way(u64::MAX) {
                break;
            }
            for process in 0..2 {
                for to_executor in [true, false] {
                    self.take(Step::Deliver { process, to_executor });
                }
            }
            (0..3).for_each(|process| self.take(Step::End { process, which: 0 }));
            self.take(Step::Pass);
        }
    }
}

fn check(commands_max: usize, steps: Vec<Step>) -> World {
    let mut world = World::new(commands_max);
    steps.into_iter().for_each(|step| world.take(step));
    world.run_out();
    let mut bad = BTreeSet::new();
    for number in 1..=world.last {
        let must_begin = !world.after[&number].iter().any(|earlier| bad.contains(earlier));
        if !must_begin || world.fails.contains(&number) {
            bad.insert(number);
        }
        assert_eq!(world.begun.contains(&number), must_begin, "{number} after {:?}", world.after[&number]);
    }
    assert!(!world.orders.are_under_way(u64::MAX), "some never ended");
    assert!(world.failed.is_subset(&bad));
    while world.orders.take_failure(|_| true).is_some() {}
    assert_eq!(world.orders.open_count(), 0);
    for executor in &mut world.executors {
        assert!(!executor.table.is_busy());
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn operations_begin_after_their_predecessors_succeed(commands_max in 1..6_usize, steps in prop::collection::vec(step(), 0..150)) {
        check(commands_max, steps);
    }
}

/// The random runs do hold and refuse commands.
#[test]
fn commands_are_held_and_refused() {
    let at = |condition| Step::Start { condition, after: 0, place: 2, touches: 1, fails: false };
    let deliver = Step::Deliver { process: 0, to_executor: true };
    let steps = [at(0), at(4), at(4), at(0), deliver.clone(), deliver.clone(), deliver.clone(), deliver];
    let world = check(2, steps.into());
    assert!((2..=6).contains(&world.held_there), "{}", world.held_there);
    assert!(world.refusals >= 1);
}

/// The operations that a lost process was asked for fail, and so do those that wait for them.
#[test]
fn requests_to_lost_processes_fail() {
    let mut orders: Orders<u64> = Orders::default();
    let now = farside_testbed::deadline();
    let touched = [Some(OTHERS[0]), None];
    for number in 1..=3 {
        let place = if number == 3 { Place::Here } else { Place::At(OTHERS[0]) };
        let after = orders.before(Condition::Continuing(number - 1), place, touched);
        orders.push(number, touched, place, after, number);
    }
    while orders.next_start(now).is_some() {}
    assert_eq!(orders.asked_of(OTHERS[1]), Vec::<u64>::new());
    let asked = orders.asked_of(OTHERS[0]);
    assert_eq!(asked, [1, 2]);
    for number in asked {
        orders.fail(number, Failure::Lost { process: OTHERS[0] });
    }
    let told: Vec<_> = std::iter::from_fn(|| orders.take_failure(|_| true)).collect();
    let lost = Failure::Lost { process: OTHERS[0] };
    assert_eq!(told, [(1, lost.clone()), (2, lost), (3, Failure::Earlier { number: 1 })]);

    let mut table: Table<u64> = Table::new(OWN, 1);
    let origin = |number| Origin { process: OTHERS[0], local: 0, number };
    assert_eq!(table.take_in(origin(1), 0, Vec::new(), 1), Taken::In);
    assert_eq!(table.take_in(origin(2), 0, Vec::new(), 2), Taken::Refused);
    assert_eq!(table.take_in(origin(3), 0, Vec::new(), 3), Taken::Dropped);
    table.lose(OTHERS[0]);
    assert!(!table.is_busy());
    assert_eq!(table.take_in(origin(4), 0, Vec::new(), 4), Taken::In);
}

/// Operations that follow a failure in a chain fail with it, in one look. An operation of another
/// worker with the same number begins.
#[test]
fn a_whole_chain_fails_in_one_look() {
    let mut table: Table<u64> = Table::new(OWN, 200);
    let origin = |local, number| Origin { process: OTHERS[0], local, number };
    assert_eq!(table.take_in(origin(0, 1), 0, Vec::new(), 1), Taken::In);
    for number in 2..=100 {
        assert_eq!(table.take_in(origin(0, number), 0, vec![number / 2, number - 1], number), Taken::In);
    }
    // An operation of another worker, which has none before it.
    assert_eq!(table.take_in(origin(1, 2), 0, vec![1], 2), Taken::In);
    assert_eq!(table.begin_held(), []);
    let begun = |table: &mut Table<u64>| table.begun().map(|(origin, _)| origin).collect::<Vec<_>>();
    assert_eq!(begun(&mut table), [origin(0, 1), origin(1, 2)]);
    table.end(origin(0, 1), Some(&Failure::Deadline));
    let expected: Vec<_> = (2..=100).map(|number| (origin(0, number), number / 2)).collect();
    assert_eq!(table.begin_held(), expected);
    assert_eq!(table.begin_held(), []);
    assert_eq!(begun(&mut table), [origin(1, 2)]);
}
