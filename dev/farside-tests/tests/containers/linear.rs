//! Linearizability: operations that overlap in time behave as if each happened in one step, between
//! its call and its return (Herlihy and Wing). This is the checker, with models of a map and of a
//! queue. The histories that it checks are those of `histories`.

mod deaths;
mod histories;
mod schedules;

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

use farside::Wire;

/// The end of a call that did not return. It may have had its effect, may have it later, or never.
const OPEN: u64 = u64::MAX;

/// The effect of a step, as its caller knows it.
trait Step {
    type State: Clone + Eq + Hash;

    /// Returns the states that may follow if the step happens now: none if it cannot happen in this
    /// state with the result that it had, several if its caller got no answer.
    fn after(&self, state: &Self::State) -> Vec<Self::State>;
}

/// A step that happened between two times.
#[derive(Clone, Debug)]
struct Timed<S> {
    begin: u64,
    end: u64,
    step: S,
}

/// Returns whether the steps can be put in a line: each between its begin and its end, and each
/// possible in the state that those before it leave. Steps that are open may be left out.
///
/// The search is that of Wing and Gong. It remembers what it has seen: the steps that have
/// happened, and the state that they led to.
fn is_linearizable<S: Step>(start: S::State, mut steps: Vec<Timed<S>>) -> bool {
    steps.sort_by_key(|step| step.begin);
    // All steps before a place have happened, and some behind it.
    let mut open = vec![(0, Vec::new(), start)];
    let mut seen = HashSet::new();
    while let Some((place, ahead, state)) = open.pop() {
        let (mut first_end, mut next) = (OPEN, Vec::new());
        for index in (place..steps.len()).filter(|index| !ahead.contains(index)) {
            if steps[index].begin >= first_end {
                break;
            }
            first_end = first_end.min(steps[index].end);
            next.push(index);
        }
        if first_end == OPEN {
            return true;
        }
        // No step begins after the end of one that has not happened. The search goes on with the
        // last one that it finds: that with the earliest end.
        next.retain(|index| steps[*index].begin < first_end);
        next.sort_by_key(|index| std::cmp::Reverse(steps[*index].end));
        for index in next {
            for state in steps[index].step.after(&state) {
                let (mut place, mut ahead) = (place, ahead.clone());
                ahead.insert(ahead.partition_point(|other| *other < index), index);
                while ahead.first() == Some(&place) {
                    ahead.remove(0);
                    place += 1;
                }
                let found = (place, ahead, state);
                if !seen.contains(&found) {
                    seen.insert(found.clone());
                    open.push(found);
                }
            }
        }
    }
    false
}

/// An operation on one key. Those on different keys are independent, so each key has a history of
/// its own.
#[derive(Clone, Debug, Wire)]
struct MapStep {
    change: Change,
    new: u64,
    /// The result, if it returned.
    answer: Option<Option<u64>>,
    /// True if it may have removed the key if it did not return: by a slot that was left half
    /// changed.
    may_remove: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
enum Change {
    /// Returns 0 if the key was there.
    Insert,
    TryInsert,
    Get,
    Remove,
    Modify,
    Upsert,
}

/// The value that `Modify` and `Upsert` make of one that is there: each order has another result.
fn mix(there: u64, by: u64) -> u64 {
    there.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(by)
}

impl Step for MapStep {
    type State = Option<u64>;

    fn after(&self, there: &Option<u64>) -> Vec<Option<u64>> {
        let (there, new) = (*there, Some(self.new));
        let mixed = there.map(|there| mix(there, self.new));
        let (answer, next) = match self.change {
            Change::Insert => (there.map(|_| 0), new),
            Change::TryInsert => (there, there.or(new)),
            Change::Get => (there, there),
            Change::Remove => (there, None),
            Change::Modify => (there, mixed),
            Change::Upsert => (None, mixed.or(new)),
        };
        match self.answer {
            Some(told) if told == answer => vec![next],
            Some(_) => Vec::new(),
            None if self.may_remove => vec![next, None],
            None => vec![next],
        }
    }
}

/// A part of an operation on a queue. A push takes a place, then fills it. A pop takes an item,
/// then frees its place.
#[derive(Clone, Debug, Wire)]
enum QueueStep {
    Place(u64),
    Fill(u64),
    /// The place of a push that did not return is passed over.
    Skip(u64),
    /// A push was refused.
    Full,
    /// The item, unless the pop did not return.
    Take(Option<u64>),
    Free,
    /// A pop found nothing.
    Nothing,
}

/// The places of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Line {
    /// The items, and whether each is there.
    items: VecDeque<(u64, bool)>,
    /// The number of places that pops have not freed yet.
    leaving: usize,
    /// A push finds room below the first, and is never refused. From the second on it always is.
    room: (usize, usize),
    /// True if a pop finds nothing while the push of the first item has not ended.
    waits_for_first: bool,
}

impl Line {
    fn new(room: (usize, usize), waits_for_first: bool) -> Self {
        Self { items: VecDeque::new(), leaving: 0, room, waits_for_first }
    }
}

impl Step for QueueStep {
    type State = Line;

    fn after(&self, line: &Line) -> Vec<Line> {
        let mut next = line.clone();
        let (first, used) = (line.items.front(), line.items.len() + line.leaving);
        let is_possible = match *self {
            Self::Place(item) => {
                next.items.push_back((item, false));
                used < line.room.1
            }
            Self::Fill(item) => {
                let place = next.items.iter_mut().find(|place| **place == (item, false));
                place.map(|place| place.1 = true).is_some()
            }
            Self::Skip(item) => next.items.pop_front() == Some((item, false)),
            Self::Full => used >= line.room.0,
            Self::Take(item) => {
                next.items.pop_front();
                next.leaving += 1;
                first.is_some_and(|first| first.1 && item.is_none_or(|item| item == first.0))
            }
            Self::Free => {
                next.leaving = line.leaving.saturating_sub(1);
                line.leaving > 0
            }
            Self::Nothing => first.is_none_or(|first| !first.1 && line.waits_for_first),
        };
        if is_possible { vec![next] } else { Vec::new() }
    }
}

/// The begin, end, operation, value and answer of a call.
type MapCall = (u64, u64, Change, u64, Option<Option<u64>>);

fn map(calls: &[MapCall]) -> bool {
    let step = |&(begin, end, change, new, answer): &MapCall| {
        let may_remove = change == Change::Insert;
        Timed { begin, end, step: MapStep { change, new, answer, may_remove } }
    };
    is_linearizable(None, calls.iter().map(step).collect())
}

#[test]
fn maps_are_told_from_others() {
    use Change::{Get, Insert, Modify, Remove, TryInsert, Upsert};
    const NONE: Option<Option<u64>> = Some(None);
    let some = |value| Some(Some(value));
    assert!(map(&[(0, 1, Insert, 5, NONE), (2, 3, Get, 0, some(5)), (4, 5, Remove, 0, some(5))]));
    // A search that ends before the insertion begins, or begins after its end.
    assert!(map(&[(0, 1, Get, 0, NONE), (2, 3, Insert, 5, NONE)]));
    assert!(!map(&[(0, 1, Get, 0, some(5)), (2, 3, Insert, 5, NONE)]));
    assert!(!map(&[(2, 3, Get, 0, NONE), (0, 1, Insert, 5, NONE)]));
    // One that overlaps with it, and a second one.
    assert!(map(&[(0, 9, Insert, 5, NONE), (1, 2, Get, 0, NONE), (3, 4, Get, 0, some(5))]));
    assert!(!map(&[(0, 9, Insert, 5, NONE), (1, 2, Get, 0, some(5)), (3, 4, Get, 0, NONE)]));
    // Two workers find the key new, and both get that answer, or each finds the other's.
    assert!(!map(&[(0, 2, Insert, 5, NONE), (1, 3, TryInsert, 6, NONE)]));
    assert!(!map(&[(0, 2, TryInsert, 5, some(6)), (1, 3, TryInsert, 6, some(5))]));
    assert!(map(&[(0, 2, Insert, 5, some(0)), (1, 3, TryInsert, 6, NONE)]));
    // An update is lost.
    let read = |value| (8, 9, Get, 0, some(value));
    let changes = [(0, 1, Insert, 5, NONE), (2, 5, Upsert, 1, NONE), (3, 4, Modify, 2, some(5))];
    assert!(map(&[&changes[..], &[read(mix(mix(5, 2), 1))]].concat()));
    assert!(!map(&[&changes[..], &[read(mix(mix(5, 1), 2))]].concat()));
    assert!(!map(&[&changes[..], &[read(mix(5, 2))]].concat()));
    // A value that no operation has stored.
    assert!(!map(&[(0, 5, Insert, 5, NONE), (1, 5, Insert, 6, some(0)), (2, 3, Get, 0, some(7))]));
}

#[test]
fn a_call_without_an_end_happens_late_or_never() {
    use Change::{Get, Insert, Upsert};
    for change in [Insert, Upsert] {
        let open = (0, OPEN, change, 5, None);
        assert!(map(&[open]));
        assert!(map(&[open, (1, 2, Get, 0, Some(None)), (3, 4, Get, 0, Some(Some(5)))]));
        assert!(!map(&[open, (1, 2, Get, 0, Some(Some(5))), (3, 4, Get, 0, Some(None))]));
        // Not before it began.
        assert!(!map(&[(1, OPEN, change, 5, None), (0, 1, Get, 0, Some(Some(5)))]));
        // It removes what was there, if that may be, but not twice.
        let before = (0, 1, Insert, 4, Some(None));
        let open = (2, OPEN, change, 5, None);
        let gone = (3, 4, Get, 0, Some(None));
        assert_eq!(map(&[before, open, gone]), change == Insert);
        assert!(!map(&[before, open, gone, (5, 6, Insert, 7, Some(None)), (7, 8, Get, 0, Some(None))]));
    }
}

fn queue(line: Line, calls: &[(u64, u64, &[QueueStep])]) -> bool {
    let timed = |(begin, end, steps): &(u64, u64, &[QueueStep])| {
        let (begin, end) = (*begin, *end);
        steps.iter().map(move |step| Timed { begin, end, step: step.clone() }).collect::<Vec<_>>()
    };
    is_linearizable(line, calls.iter().flat_map(timed).collect())
}

#[test]
fn queues_are_told_from_others() {
    use QueueStep::{Fill, Free, Full, Nothing, Place, Skip, Take};
    let strict = || Line::new((2, 2), false);
    let loose = || Line::new((2, 2), true);
    let (one, two): (&[_], &[_]) = (&[Place(1), Fill(1)], &[Place(2), Fill(2)]);
    let (first, second): (&[_], &[_]) = (&[Take(Some(1)), Free], &[Take(Some(2)), Free]);
    assert!(queue(strict(), &[(0, 1, one), (2, 3, two), (4, 5, first), (6, 7, second), (8, 9, &[Nothing])]));
    // The wrong order, one item twice, one that is left out, and one that no worker pushed.
    assert!(!queue(strict(), &[(0, 1, one), (2, 3, two), (4, 5, second), (6, 7, first)]));
    assert!(queue(strict(), &[(0, 2, one), (1, 3, two), (4, 5, second), (6, 7, first)]));
    assert!(!queue(strict(), &[(0, 1, one), (2, 3, first), (4, 5, first)]));
    assert!(!queue(strict(), &[(0, 1, one), (2, 3, two), (4, 5, second)]));
    assert!(!queue(strict(), &[(0, 1, first)]));
    assert!(!queue(loose(), &[(0, 1, one), (2, 3, &[Nothing])]));
    // The second item is there and the first is not.
    let late = [(0, 9, one), (1, 2, two), (3, 4, &[Nothing]), (5, 9, first)];
    assert!(queue(loose(), &late) && !queue(strict(), &late));
    assert!(!queue(loose(), &[(0, 1, one), (2, 9, two), (3, 4, &[Nothing])]));
    // Room.
    assert!(queue(strict(), &[(0, 1, one), (2, 3, two), (4, 5, &[Full])]));
    assert!(!queue(strict(), &[(0, 1, one), (4, 5, &[Full])]));
    assert!(!queue(strict(), &[(0, 1, one), (2, 3, two), (4, 5, &[Place(3), Fill(3)])]));
    // A pop that has not ended still has its place.
    assert!(queue(strict(), &[(0, 1, one), (2, 3, two), (4, 9, first), (5, 6, &[Full]), (6, 7, &[Full])]));
    assert!(!queue(strict(), &[(0, 1, one), (2, 3, two), (4, 5, first), (6, 7, &[Full])]));
    // A push without an end: its item comes, or its place is passed over, and not both.
    let open: (_, _, &[_]) = (0, OPEN, &[Place(1), Fill(1), Skip(1)]);
    assert!(queue(loose(), &[open, (1, 2, two), (3, 4, second)]));
    assert!(queue(loose(), &[open, (1, 2, two), (3, 4, first), (5, 6, second)]));
    assert!(!queue(loose(), &[open, (1, 2, two), (3, 4, second), (5, 6, first), (7, 8, first)]));
    // A pop without an end takes any item, and one only.
    let open: (_, _, &[_]) = (0, OPEN, &[Take(None), Free]);
    assert!(queue(strict(), &[open, (1, 2, one), (3, 4, two), (5, 6, second), (7, 8, &[Nothing])]));
    assert!(!queue(strict(), &[open, (1, 2, one), (3, 4, two), (5, 6, &[Nothing])]));
}
