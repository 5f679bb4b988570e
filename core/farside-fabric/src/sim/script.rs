//! The decisions of a simulation that a test makes instead of the random generator.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ids::ProcessId;

/// Decisions that a test takes from the seed, for a part of a simulation in turns: from
/// [`begin`](Self::begin) to [`end`](Self::end).
///
/// - The process that dies when it has started a number of operations: one-sided operations,
///   messages and attachments. The last one is in transit then.
/// - The order in which one-sided operations take effect and messages arrive. Whenever no thread
///   can run, the next of the *choices* selects one of those in transit. A put or get of more than
///   eight bytes takes effect in two halves, which are chosen one by one. A message overtakes no
///   earlier one of its sender. Other choices decide what of a dying process is lost. When the
///   choices are used up, the oldest comes next, and nothing is lost.
///
/// With the same seed, the same choices lead to the same run. So a test can run all orders, or
/// those that differ little from the order of age, [one after the other](Self::following). The
/// network should add no delays of its own: [`delay_max_ns`](super::SimOptions::delay_max_ns) is 0.
///
/// Accesses of a process to its own memory are no operations of the network: no others come between
/// them, unless the process waits.
#[derive(Debug, Default)]
pub struct SimScript {
    choices: Option<Vec<usize>>,
    death: Option<(ProcessId, u64)>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_active: bool,
    taken: Vec<Choice>,
    /// Number of operations that the dying process has started.
    operations: u64,
    has_killed: bool,
}

/// A choice: the alternative that was taken, and the number of alternatives, at least two.
#[derive(Clone, Copy, Debug)]
struct Choice {
    taken: usize,
    of: usize,
}

impl SimScript {
    /// Makes a script that leaves everything to the seed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides the order of effects and messages by these choices, and then by age.
    #[must_use]
    pub fn order(mut self, choices: Vec<usize>) -> Self {
        self.choices = Some(choices);
        self
    }

    /// Kills a process when it has started this number of operations, at least 1.
    #[must_use]
    pub fn kill(mut self, process: ProcessId, operations: u64) -> Self {
        self.death = Some((process, operations));
        self
    }

    /// From now on the script decides.
    pub fn begin(&self) {
        self.state().is_active = true;
    }

    /// From now on the seed decides again. What was held back happens, in the order of its
    /// age.
    pub fn end(&self) {
        self.state().is_active = false;
    }

    /// Returns the choices so far.
    pub fn taken(&self) -> Vec<usize> {
        self.state().taken.iter().map(|choice| choice.taken).collect()
    }

    /// Returns whether the process was killed.
    pub fn has_killed(&self) -> bool {
        self.state().has_killed
    }

    /// Returns the choices of the next run, in which at most `changes` choices differ from the
    /// order of age: the last choice that can takes its next alternative. From a run without
    /// choices on, this leads once to every run. `None` after the last one.
    pub fn following(&self, changes: usize) -> Option<Vec<usize>> {
        let taken = &self.state().taken;
        let may_change = |place: &usize| {
            let earlier = taken[..*place].iter().filter(|choice| choice.taken > 0).count();
            earlier < changes && taken[*place].taken + 1 < taken[*place].of
        };
        let last = (0..taken.len()).rev().find(may_change)?;
        let mut choices: Vec<usize> = taken[..=last].iter().map(|choice| choice.taken).collect();
        choices[last] += 1;
        Some(choices)
    }

    /// Returns whether effects and messages wait to be chosen.
    pub(super) fn orders(&self) -> bool {
        self.choices.is_some() && self.state().is_active
    }

    /// Takes the next choice.
    pub(super) fn choose(&self, of: usize) -> usize {
        let mut state = self.state();
        if of < 2 {
            return 0;
        }
        let place = state.taken.len();
        let taken = self.choices.as_ref().and_then(|choices| choices.get(place)).copied().unwrap_or(0).min(of - 1);
        state.taken.push(Choice { taken, of });
        taken
    }

    /// Counts an operation that a process has started. Returns whether the process dies now.
    pub(super) fn counts_last(&self, process: ProcessId) -> bool {
        let mut state = self.state();
        let Some((_, last)) = self.death.filter(|(dying, _)| *dying == process && state.is_active) else {
            return false;
        };
        state.operations += 1;
        state.has_killed |= state.operations == last;
        state.operations == last
    }

    /// Returns the process that was killed.
    pub(super) fn killed(&self) -> Option<ProcessId> {
        self.death.map(|(process, _)| process).filter(|_| self.has_killed())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
