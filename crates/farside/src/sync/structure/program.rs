//! Short programs of reads, writes and atomic steps that run at the owner of their words, in one go.

use crate::Wire;
use crate::sync::error::SyncError;

/// Words that programs can work on. Implement it for a structure to have programs run on it.
pub trait Words {
    /// A word, if there is such.
    fn word(&self, at: u64) -> Option<u64>;

    /// Writes a word. Called only where [`word`](Self::word) has found one.
    fn set_word(&mut self, at: u64, value: u64);
}

impl Words for Vec<u64> {
    fn word(&self, at: u64) -> Option<u64> {
        self.get(usize::try_from(at).ok()?).copied()
    }

    fn set_word(&mut self, at: u64, value: u64) {
        self[at as usize] = value;
    }
}

impl<const N: usize> Words for [u64; N] {
    fn word(&self, at: u64) -> Option<u64> {
        self.get(usize::try_from(at).ok()?).copied()
    }

    fn set_word(&mut self, at: u64, value: u64) {
        self[at as usize] = value;
    }
}

/// A number in a program: given, or found out by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub enum Operand {
    /// This number.
    Is(u64),
    /// The result of an earlier step, counted from 0.
    Of(u32),
}

impl From<u64> for Operand {
    fn from(value: u64) -> Self {
        Self::Is(value)
    }
}

/// How two numbers compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub enum Compare {
    /// The first is the second.
    Equal,
    /// It is not.
    NotEqual,
    /// The first is less than the second.
    Less,
    /// The first is not greater.
    LessOrEqual,
}

/// One step of a program. Its result can be used by later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub enum Step {
    /// Reads a word. Result: the word.
    Read {
        /// Which.
        at: Operand,
    },
    /// Writes a word. Result: what it was.
    Write {
        /// Which.
        at: Operand,
        /// What it is to be.
        value: Operand,
    },
    /// Adds to a word, wrapping. Result: what it was.
    Add {
        /// Which.
        at: Operand,
        /// How much.
        by: Operand,
    },
    /// Writes a word if it is what is expected. Result: what it was.
    CompareSwap {
        /// Which.
        at: Operand,
        /// What it ought to be.
        expected: Operand,
        /// What it is to be then.
        new: Operand,
    },
    /// Stops the program unless the comparison holds; then nothing of it has happened. Result: 1.
    Require {
        /// One number.
        first: Operand,
        /// How it is to compare.
        is: Compare,
        /// The other.
        second: Operand,
    },
}

/// A short program on the words of a structure, run by its owner as one atomic step: all of it takes effect or nothing.
///
/// ```
/// use farside::sync::{Compare, Operand, Program, Step};
///
/// // Moves 30 from word 0 to word 1, if there is so much.
/// let transfer = Program::new([
///     Step::Read { at: 0.into() },
///     Step::Require { first: 30.into(), is: Compare::LessOrEqual, second: Operand::Of(0) },
///     Step::Add { at: 0.into(), by: 30_u64.wrapping_neg().into() },
///     Step::Add { at: 1.into(), by: 30.into() },
/// ]);
/// let mut accounts = vec![100, 0];
/// assert_eq!(transfer.run(&mut accounts)?, [100, 1, 100, 0]);
/// accounts[0] = 10;
/// assert!(transfer.run(&mut accounts).is_err());
/// assert_eq!(accounts, [10, 30]);
/// # Ok::<(), farside::sync::SyncError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub struct Program {
    steps: Vec<Step>,
}

/// Why a program stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire, thiserror::Error)]
#[non_exhaustive]
pub enum StopCause {
    /// There is no such word.
    #[error("there is no word {at}")]
    NoWord {
        /// Which was named.
        at: u64,
    },
    /// An operand names a step that has no result yet.
    #[error("step {step} has no result yet")]
    NoResult {
        /// Which was named.
        step: u32,
    },
    /// What it required does not hold.
    #[error("{first} and {second} do not compare as it requires")]
    Required {
        /// One number.
        first: u64,
        /// The other.
        second: u64,
    },
    /// It is too long.
    #[error("it has {steps} steps, and may have {} at most", Program::STEPS_MAX)]
    TooLong {
        /// How long.
        steps: u32,
    },
}

impl Program {
    /// The longest program.
    pub const STEPS_MAX: usize = 64;

    /// A program of these steps.
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: steps.into_iter().collect() }
    }

    /// Runs the program on words that are here. Returns the results of its steps.
    ///
    /// # Errors
    /// [`SyncError::ProgramStopped`]; then nothing was changed.
    pub fn run(&self, words: &mut impl Words) -> Result<Vec<u64>, SyncError> {
        self.try_run(words).map_err(|(step, why)| SyncError::ProgramStopped { step, why })
    }

    pub(crate) fn try_run(&self, words: &mut impl Words) -> Result<Vec<u64>, (u32, StopCause)> {
        if self.steps.len() > Self::STEPS_MAX {
            return Err((0, StopCause::TooLong { steps: u32::try_from(self.steps.len()).unwrap_or(u32::MAX) }));
        }
        let mut run = Run { words, results: Vec::with_capacity(self.steps.len()), changed: Vec::new() };
        for (index, step) in (0..).zip(&self.steps) {
            match run.step(step) {
                Ok(result) => run.results.push(result),
                Err(why) => {
                    run.undo();
                    return Err((index, why));
                }
            }
        }
        Ok(run.results)
    }
}

/// A program that runs.
struct Run<'a, W> {
    words: &'a mut W,
    results: Vec<u64>,
    /// What was written over, in order.
    changed: Vec<(u64, u64)>,
}

impl<W: Words> Run<'_, W> {
    fn step(&mut self, step: &Step) -> Result<u64, StopCause> {
        match *step {
            Step::Read { at } => Ok(self.word(at)?.1),
            Step::Write { at, value } => {
                let value = self.value(value)?;
                self.change(at, |_| value)
            }
            Step::Add { at, by } => {
                let by = self.value(by)?;
                self.change(at, |word| word.wrapping_add(by))
            }
            Step::CompareSwap { at, expected, new } => {
                let (expected, new) = (self.value(expected)?, self.value(new)?);
                self.change(at, |word| if word == expected { new } else { word })
            }
            Step::Require { first, is, second } => {
                let (first, second) = (self.value(first)?, self.value(second)?);
                let holds = match is {
                    Compare::Equal => first == second,
                    Compare::NotEqual => first != second,
                    Compare::Less => first < second,
                    Compare::LessOrEqual => first <= second,
                };
                if holds { Ok(1) } else { Err(StopCause::Required { first, second }) }
            }
        }
    }

    fn value(&self, operand: Operand) -> Result<u64, StopCause> {
        match operand {
            Operand::Is(value) => Ok(value),
            Operand::Of(step) => self.results.get(step as usize).copied().ok_or(StopCause::NoResult { step }),
        }
    }

    fn word(&self, at: Operand) -> Result<(u64, u64), StopCause> {
        let at = self.value(at)?;
        Ok((at, self.words.word(at).ok_or(StopCause::NoWord { at })?))
    }

    fn change(&mut self, at: Operand, new: impl FnOnce(u64) -> u64) -> Result<u64, StopCause> {
        let (at, old) = self.word(at)?;
        self.changed.push((at, old));
        self.words.set_word(at, new(old));
        Ok(old)
    }

    fn undo(&mut self) {
        for (at, old) in self.changed.drain(..).rev() {
            self.words.set_word(at, old);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn operand() -> impl Strategy<Value = Operand> {
        prop_oneof![
            (0..6_u64).prop_map(Operand::Is),
            (0..6_u32).prop_map(Operand::Of),
            any::<u64>().prop_map(Operand::Is)
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        let compare =
            prop_oneof![Just(Compare::Equal), Just(Compare::NotEqual), Just(Compare::Less), Just(Compare::LessOrEqual)];
        prop_oneof![
            operand().prop_map(|at| Step::Read { at }),
            (operand(), operand()).prop_map(|(at, value)| Step::Write { at, value }),
            (operand(), operand()).prop_map(|(at, by)| Step::Add { at, by }),
            (operand(), operand(), operand()).prop_map(|(at, expected, new)| Step::CompareSwap { at, expected, new }),
            (operand(), compare, operand()).prop_map(|(first, is, second)| Step::Require { first, is, second }),
        ]
    }

    /// The same on a copy, which is thrown away when a step fails.
    fn on_a_copy(steps: &[Step], words: &[u64]) -> Option<(Vec<u64>, Vec<u64>)> {
        let (mut words, mut results) = (words.to_vec(), Vec::<u64>::new());
        for step in steps {
            let value = |operand| match operand {
                Operand::Is(value) => Some(value),
                Operand::Of(step) => results.get(step as usize).copied(),
            };
            let at = match step {
                Step::Read { at } | Step::Write { at, .. } | Step::Add { at, .. } | Step::CompareSwap { at, .. } => {
                    usize::try_from(value(*at)?).ok().filter(|at| *at < words.len())?
                }
                Step::Require { .. } => 0,
            };
            let old = words[at];
            match *step {
                Step::Read { .. } => {}
                Step::Write { value: new, .. } => words[at] = value(new)?,
                Step::Add { by, .. } => words[at] = old.wrapping_add(value(by)?),
                Step::CompareSwap { expected, new, .. } => {
                    let (expected, new) = (value(expected)?, value(new)?);
                    words[at] = if old == expected { new } else { old };
                }
                Step::Require { first, is, second } => {
                    let order = value(first)?.cmp(&value(second)?);
                    let holds = match is {
                        Compare::Equal => order.is_eq(),
                        Compare::NotEqual => order.is_ne(),
                        Compare::Less => order.is_lt(),
                        Compare::LessOrEqual => order.is_le(),
                    };
                    holds.then_some(())?;
                }
            }
            results.push(if matches!(step, Step::Require { .. }) { 1 } else { old });
        }
        Some((words, results))
    }

    proptest! {
        #[test]
        fn a_program_runs_as_a_whole_or_not_at_all(
            steps in prop::collection::vec(step(), 0..12),
            words in prop::collection::vec(0..4_u64, 1..6),
        ) {
            let mut changed = words.clone();
            let ran = Program::new(steps.clone()).try_run(&mut changed);
            match on_a_copy(&steps, &words) {
                Some((expected, results)) => {
                    prop_assert_eq!(ran, Ok(results));
                    prop_assert_eq!(changed, expected);
                }
                None => {
                    prop_assert!(ran.is_err());
                    prop_assert_eq!(changed, words);
                }
            }
        }
    }

    #[test]
    fn a_program_that_is_too_long_is_refused() {
        let step = Step::Add { at: 0.into(), by: 1.into() };
        let mut words = vec![0];
        assert_eq!(Program::new([step; Program::STEPS_MAX]).run(&mut words).unwrap().len(), Program::STEPS_MAX);
        let why = StopCause::TooLong { steps: 65 };
        assert_eq!(
            Program::new([step; Program::STEPS_MAX + 1]).run(&mut words),
            Err(SyncError::ProgramStopped { step: 0, why })
        );
        assert_eq!(words, [64]);
    }
}
