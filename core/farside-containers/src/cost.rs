//! Predicts what operations of containers cost, from what their components cost.
//!
//! An operation is a sum of components: puts, gets, atomics, calls (Brock et al., Tables I to III).
//! To the published best cases, this model adds the probes of a filled table, words that several
//! workers change at once, lines that no cache has, and owners that compute between their looks.

mod choice;
mod measure;

use std::fmt;
use std::time::Duration;

pub(crate) use self::choice::{Planner, interval_of_neighbor};
use crate::promise::{Implementation, Op, Promise};

/// The cost of each component, in nanoseconds. Plain data: measure it, take a preset, or invent a
/// machine.
///
/// ```
/// use farside_containers::{CostModel, Implementation, Load, Op, Promise};
///
/// let plan = CostModel::CORI.plan(Op::Push, Promise::ALL, Load::default());
/// assert_eq!(plan.choice, Implementation::Call);
/// println!("{plan}");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// A put of a few words.
    pub put: f64,
    /// A get of a few words.
    pub get: f64,
    /// One compare-and-swap.
    pub cas: f64,
    /// One compare-and-swap on a word that all workers change, such as a counter.
    pub cas_single: f64,
    /// A compare-and-swap that is repeated until it succeeds.
    pub cas_persistent: f64,
    /// A fetch-and-op on one of many words.
    pub fetch_add: f64,
    /// A fetch-and-op on the one word of its kind in a process.
    pub fetch_add_single: f64,
    /// A call and its answer, with an owner that waits for calls.
    pub call: f64,
    /// The computation of an operation itself: in the called function, or at the caller if it is
    /// one-sided. A checksum costs as much once more.
    pub handler: f64,
    /// The first access to a line that the caches of a processor core do not hold, while it goes on
    /// with other operations. Memory beyond all caches costs more.
    pub line_cold: f64,
    /// One more worker that changes the same word at the same time.
    pub line_contended: f64,
    /// Any of these on the own process, except lines.
    pub own: f64,
}

/// One component of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// [`CostModel::put`].
    Put,
    /// [`CostModel::get`].
    Get,
    /// [`CostModel::cas`].
    Cas,
    /// [`CostModel::cas_single`].
    CasSingle,
    /// [`CostModel::fetch_add`].
    FetchAdd,
    /// [`CostModel::fetch_add_single`].
    FetchAddSingle,
    /// [`CostModel::call`].
    Call,
    /// [`CostModel::handler`].
    Handler,
    /// [`CostModel::line_cold`].
    LineCold,
    /// [`CostModel::line_contended`].
    LineContended,
    /// The mean time until the owner looks: half of [`Load::interval`].
    Wait,
    /// [`CostModel::own`]: what a called function does at a slot of its process.
    Own,
}

/// How a table looks for a free place after a collision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Probing {
    /// In the slots that follow.
    #[default]
    Linear,
    /// In slots at growing distances, such as 1, 3, 6 and so on.
    Quadratic,
    /// In slots without any order, such as those of a second hash.
    Random,
}

/// The circumstances of an operation. The default is the best case.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// The filled part of the table, from 0 to less than 1.
    pub fill: f64,
    /// The probing of the table.
    pub probing: Probing,
    /// Number of other workers that change the same word at the same time.
    pub contenders: f64,
    /// The time between two looks of the owner at its calls, as
    /// [`Worker::progress_interval`](farside::Worker::progress_interval) returns it. Zero if the
    /// owner waits.
    pub interval: Duration,
    /// The part of the operations that go to the own process, from 0 to 1.
    pub own_share: f64,
}

impl Load {
    /// Returns the mean number of slots that an operation looks at (Knuth, volume 3, section 6.4).
    /// An insertion of a new key looks at as many as a search for a key that is not there.
    ///
    /// ```
    /// use farside_containers::{Load, Op};
    ///
    /// let half = Load { fill: 0.5, ..Load::default() };
    /// assert_eq!((half.probes(Op::Find), half.probes(Op::FindMiss)), (1.5, 2.5));
    /// ```
    pub fn probes(&self, op: Op) -> f64 {
        let fill = self.fill.clamp(0.0, 0.999);
        let free = 1.0 - fill;
        match (op, self.probing) {
            (Op::Push | Op::Pop, _) => 1.0,
            _ if fill == 0.0 => 1.0,
            (Op::Insert | Op::FindMiss, Probing::Linear) => f64::midpoint(1.0, free.powi(-2)),
            (Op::Insert | Op::FindMiss, Probing::Quadratic) => 1.0 / free - fill - free.ln(),
            (Op::Insert | Op::FindMiss, Probing::Random) => 1.0 / free,
            (Op::Find, Probing::Linear) => f64::midpoint(1.0, 1.0 / free),
            (Op::Find, Probing::Quadratic) => 1.0 - free.ln() - fill / 2.0,
            (Op::Find, Probing::Random) => -free.ln() / fill,
        }
    }
}

/// The predicted cost of one implementation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Prediction {
    /// The implementation.
    pub implementation: Implementation,
    /// Nanoseconds.
    pub ns: f64,
    /// The components of an operation on another process that cost something, and how often each
    /// occurs.
    pub parts: Vec<(Part, f64)>,
}

/// A choice, the predictions that it follows from, and the reason. Displays all of them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// The cheapest implementation.
    pub choice: Implementation,
    /// The predictions for all implementations, the cheapest first.
    pub predictions: Vec<Prediction>,
    /// The reason: how much cheaper it is than the next.
    pub why: String,
}

impl CostModel {
    /// The figures of Brock et al. for Cori Phase I (Cray Aries, 64 nodes of 32 processes), as a
    /// best case: Table I, and no more for words that many processes change. Calls as in
    /// [`CORI`](Self::CORI).
    pub const CORI_BEST: Self = Self {
        put: 3000.0,
        get: 3700.0,
        cas: 3800.0,
        cas_single: 3800.0,
        cas_persistent: 3800.0,
        fetch_add: 3900.0,
        fetch_add_single: 3900.0,
        call: 10_500.0,
        handler: 0.0,
        line_cold: 0.0,
        line_contended: 0.0,
        own: 0.0,
    };

    /// The same machine with words that many processes change. These costs are drawn in Figure 3
    /// and not printed. Here they follow from the text. A call costs a little less than the atomic
    /// find, 11.5 µs (Figure 5), so 10.5 µs. A push of a fetch-add and a put costs as much as a
    /// call to an owner that looks every 2 µs (Figure 6), so the fetch-add takes 8.5 µs. A
    /// compare-and-swap of such a word differs from that as it does elsewhere: 8.4 µs. A
    /// persistent compare-and-swap that first expects the wrong value takes two, of which the
    /// second waits for the word: 9.4 µs with [`LogGp::ARIES`](farside::LogGp::ARIES).
    pub const CORI: Self =
        Self { fetch_add_single: 8500.0, cas_single: 8400.0, cas_persistent: 9400.0, ..Self::CORI_BEST };

    /// The same machine with a network card that compares some bits of a word and swaps others. A
    /// compare-and-swap then does not fail for bits that it does not care for, and need not be
    /// repeated. The published queues do that: `farside bench queue` predicts their costs.
    #[must_use]
    pub fn with_masked_cas(self) -> Self {
        Self { cas_persistent: self.cas, ..self }
    }

    /// The costs in nanoseconds of one operation on another process.
    fn of_part(&self, part: Part, load: &Load) -> f64 {
        match part {
            Part::Put => self.put,
            Part::Get => self.get,
            Part::Cas => self.cas,
            Part::CasSingle => self.cas_single,
            Part::FetchAdd => self.fetch_add,
            Part::FetchAddSingle => self.fetch_add_single,
            Part::Call => self.call,
            Part::Handler => self.handler,
            Part::LineCold => self.line_cold,
            Part::LineContended => self.line_contended,
            Part::Wait => load.interval.as_nanos() as f64 / 2.0,
            Part::Own => self.own,
        }
    }

    /// The model of operations on the own process.
    fn of_own(&self) -> Self {
        let own = self.own;
        Self {
            put: own,
            get: own,
            cas: own,
            cas_single: own,
            cas_persistent: own,
            fetch_add: own,
            fetch_add_single: own,
            call: own,
            ..*self
        }
    }

    /// Predicts an operation by one implementation. Returns `None` if the implementation does not
    /// have the operation, or the promise does not permit it.
    pub fn predict(&self, by: Implementation, op: Op, promise: Promise, load: Load) -> Option<Prediction> {
        let mut parts = parts(by, op, promise, &load)?;
        let sum = |model: &Self, load: &Load| -> f64 {
            parts.iter().map(|(part, count)| count * model.of_part(*part, load)).sum()
        };
        // A process does not wait for its own look.
        let own = sum(&self.of_own(), &Load { interval: Duration::ZERO, ..load });
        let own_share = if promise.is_local() { 1.0 } else { load.own_share.clamp(0.0, 1.0) };
        let ns = (1.0 - own_share) * sum(self, &load) + own_share * own;
        parts.retain(|(part, count)| count * self.of_part(*part, &load) > 0.0);
        Some(Prediction { implementation: by, ns, parts })
    }

    /// Predicts an operation by all implementations that have it, and chooses the cheapest.
    ///
    /// # Panics
    /// If the promise does not permit the operation.
    #[track_caller]
    pub fn plan(&self, op: Op, promise: Promise, load: Load) -> Plan {
        assert!(promise.permits(op), "the promise {promise} does not permit {op:?}: plan with a promise that does");
        use Implementation::{Call, Checksum, OneSided};
        let all = [OneSided, Checksum, Call];
        let mut predictions: Vec<_> = all.into_iter().filter_map(|by| self.predict(by, op, promise, load)).collect();
        predictions.sort_by(|one, other| one.ns.total_cmp(&other.ns));
        let why = match &predictions[..] {
            [best, next, ..] => {
                format!("{:.3} µs less than {}", (next.ns - best.ns) / 1000.0, next.implementation)
            }
            _ => String::from("there is no other"),
        };
        Plan { choice: predictions[0].implementation, predictions, why }
    }
}

/// The cost of an access to a further slot, as a part of that of a first one. A processor looks at
/// several slots at once.
const FURTHER_LINE: f64 = 0.25;

/// The part of the contenders of which each makes a compare-and-swap fail once.
const SPOILERS: f64 = 0.4;

/// The components of an operation, as the implementations perform it. A push or pop that is
/// promised to be the only kind costs as much as in a phase.
fn parts(by: Implementation, op: Op, promise: Promise, load: &Load) -> Option<Vec<(Part, f64)>> {
    use Implementation::{Call, Checksum, OneSided};
    let probes = load.probes(op);
    let collisions = probes - 1.0;
    let is_alone = [Promise::INSERT_ONLY, Promise::FIND_ONLY, Promise::PUSH_ONLY, Promise::POP_ONLY, Promise::LOCAL]
        .contains(&promise);
    let (is_queue, is_local) = (matches!(op, Op::Push | Op::Pop), promise.is_local());
    // What an owner does at further slots: the same as a worker that works on them itself.
    let at_slots = if op == Op::Insert { 2.0 * collisions } else { collisions };
    // A pop repeats its compare-and-swap if another worker has popped the item.
    let tries = if is_local { 1.0 } else { 1.0 + SPOILERS * load.contenders };
    let mut parts = match (by, op) {
        _ if !promise.permits(op) => return None,
        (Checksum, _) if !is_queue => return None,
        // The owner itself works on what it has, without a call.
        (Call, _) if is_local => vec![(Part::Own, at_slots)],
        (Call, _) => vec![(Part::Call, 1.0), (Part::Wait, 1.0), (Part::Own, at_slots)],
        // Looks at a slot that it cannot claim.
        (_, Op::Insert) => vec![(Part::Cas, probes), (Part::Get, collisions), (Part::Put, 1.0)],
        (_, Op::Find | Op::FindMiss) => vec![(Part::Get, probes)],
        (_, Op::Push) => vec![(Part::FetchAddSingle, 1.0), (Part::Put, 1.0)],
        // The stamp, and then the item.
        (OneSided, Op::Pop) if !is_alone => vec![(Part::CasSingle, tries), (Part::Get, 1.0 + tries)],
        (_, Op::Pop) => vec![(Part::CasSingle, tries), (Part::Get, 1.0)],
    };
    parts.push((Part::Handler, if by == Checksum { 2.0 } else { 1.0 }));
    if !is_queue {
        parts.push((Part::LineCold, 1.0 + FURTHER_LINE * collisions));
    } else if by != Call && !is_local {
        let tries = if op == Op::Pop { tries } else { 1.0 };
        parts.push((Part::LineContended, tries * load.contenders));
    }
    Some(parts)
}

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:.3} µs (", self.implementation, self.ns / 1000.0)?;
        for (index, (part, count)) in self.parts.iter().enumerate() {
            let separator = if index == 0 { "" } else { " + " };
            let times = if *count == 1.0 { String::new() } else { format!("{count:.2} ") };
            write!(f, "{separator}{times}{part:?}")?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}: ", self.choice, self.why)?;
        self.predictions
            .iter()
            .enumerate()
            .try_for_each(|(index, prediction)| write!(f, "{}{prediction}", if index == 0 { "" } else { ", " }))
    }
}

#[cfg(test)]
mod tests;
