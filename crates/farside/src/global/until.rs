//! Waiting until words become what one waits for.

use std::time::Duration;

use farside_fabric::ProcessId;

use super::atomics::Word;
use super::pointer::GlobalPtr;
use crate::error::Result;
use crate::runtime::worker::Worker;

/// How a word is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// It is equal.
    Eq,
    /// It is not equal.
    Ne,
    /// It is greater.
    Gt,
    /// It is greater or equal.
    Ge,
    /// It is less.
    Lt,
    /// It is less or equal.
    Le,
}

impl Comparison {
    /// Whether what was found compares so to `value`.
    #[inline]
    pub fn holds<W: PartialOrd>(self, found: W, value: W) -> bool {
        match self {
            Self::Eq => found == value,
            Self::Ne => found != value,
            Self::Gt => found > value,
            Self::Ge => found >= value,
            Self::Lt => found < value,
            Self::Le => found <= value,
        }
    }
}

/// What a word is to become: [waited for](Self::wait) alone or [together with others](Worker::wait_any).
///
/// ```no_run
/// # use farside::prelude::*;
/// # use farside::{Comparison, GlobalAddress, GlobalPtr, Until};
/// # fn example(me: &Worker) -> farside::Result<()> {
/// // A flag for each process, in this one's starter memory.
/// let flag = |of: u32| -> GlobalPtr<u64> { GlobalAddress::starter(me.process(), 8 * of).cast() };
/// let mut open: Vec<Until<u64>> =
///     (0..me.process_count()).map(|of| flag(of).until(Comparison::Ne, 0).signalled_by(ProcessId::new(of))).collect();
/// while let Some((index, value)) = me.wait_any(&open)? {
///     println!("process {} says {value}", open.remove(index).signaller().unwrap());
/// }
/// # Ok(())
/// # }
/// ```
///
/// What is visible once it holds: all that whoever made it so had [put](Worker::put_signal) before.
///
/// *Cost*: words in memory of the own process are looked at, and who sleeps is woken by [signals](super::Signal); changes by anything else are noticed
/// within 100 µs. Words of another process that are mapped are looked at so, too, but nobody wakes who sleeps. Where
/// they are not mapped each look is a round trip: wait at the word's owner instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until<W> {
    word: GlobalPtr<W>,
    comparison: Comparison,
    value: W,
    signaller: Option<ProcessId>,
}

impl<W: Word> Until<W> {
    /// Only this process will make it so: when it is lost and it has not, waiting is an error at once.
    pub fn signalled_by(self, process: ProcessId) -> Self {
        Self { signaller: Some(process), ..self }
    }

    /// Who alone will make it so, if that was said.
    pub fn signaller(&self) -> Option<ProcessId> {
        self.signaller
    }

    /// The word.
    pub fn word(&self) -> GlobalPtr<W> {
        self.word
    }

    /// What the word holds, if it is what is waited for.
    ///
    /// # Errors
    /// Those of [`GlobalPtr::load`].
    #[inline]
    #[track_caller]
    pub fn test(&self, me: &Worker) -> Result<Option<W>> {
        let found = self.word.load(me)?;
        Ok(self.comparison.holds(found, self.value).then_some(found))
    }

    /// Waits until it is so, running what others call here meanwhile, and returns what the word held. At most for the job's deadline.
    ///
    /// # Errors
    /// [`Error::Deadline`](crate::Error::Deadline); [`Error::PeerLost`](crate::Error::PeerLost) when the word's owner or the
    /// [one who signals](Self::signalled_by) is lost; those of [`GlobalPtr::load`]; [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait(&self, me: &Worker) -> Result<W> {
        self.wait_for(me, me.default_deadline())
    }

    /// Waits for at most this long.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    pub fn wait_for(&self, me: &Worker, time: Duration) -> Result<W> {
        me.watch_until("waiting for a signal", time, |me| self.look(me).transpose())
    }

    /// As [`test`](Self::test); an error when it will never be so.
    #[inline]
    fn look(&self, me: &Worker) -> Result<Option<W>> {
        // Before the word, so that what was signalled before the end counts.
        let lost = self.signaller.and_then(|process| me.lost(process));
        match (self.test(me)?, lost) {
            (None, Some(lost)) => Err(lost),
            (found, _) => Ok(found),
        }
    }
}

impl<W: Word> GlobalPtr<W> {
    /// What the word is to become, to be waited for.
    pub fn until(self, comparison: Comparison, value: W) -> Until<W> {
        Until { word: self, comparison, value, signaller: None }
    }

    /// Waits until the word compares so, and returns what it held: [`Until::wait`].
    ///
    /// # Errors
    /// See there.
    pub fn wait_until(self, me: &Worker, comparison: Comparison, value: W) -> Result<W> {
        self.until(comparison, value).wait(me)
    }
}

/// Waiting for several words. Each has its own comparison, and who [signals](Until::signalled_by) it. What has come is told before an error
/// of another.
///
/// # Errors
/// For all: those of [`Until::wait`], of any of them that is looked at.
impl Worker {
    /// Waits until one of them is so: which (the first in the list, when there are several), and what its word held. `None` when there is
    /// none to wait for. At most for the job's deadline.
    ///
    /// # Errors
    /// Those of [`Until::wait`].
    pub fn wait_any<W: Word>(&self, conditions: &[Until<W>]) -> Result<Option<(usize, W)>> {
        self.wait_any_for(conditions, self.default_deadline())
    }

    /// As [`wait_any`](Self::wait_any), for at most this long.
    ///
    /// # Errors
    /// Those of [`Until::wait`].
    pub fn wait_any_for<W: Word>(&self, conditions: &[Until<W>], time: Duration) -> Result<Option<(usize, W)>> {
        if conditions.is_empty() {
            return Ok(None);
        }
        self.watch_until("waiting for any of several signals", time, |me| {
            let mut failed = None;
            for (index, condition) in conditions.iter().enumerate() {
                match condition.look(me) {
                    Ok(Some(value)) => return Some(Ok(Some((index, value)))),
                    Ok(None) => {}
                    Err(error) => failed = failed.or(Some(Err(error))),
                }
            }
            failed
        })
    }

    /// Waits until at least one of them is so, and tells all that are: which, and what their words held. At most for the job's deadline.
    ///
    /// # Errors
    /// Those of [`Until::wait`].
    pub fn wait_some<W: Word>(&self, conditions: &[Until<W>]) -> Result<Vec<(usize, W)>> {
        self.wait_some_for(conditions, self.default_deadline())
    }

    /// As [`wait_some`](Self::wait_some), for at most this long.
    ///
    /// # Errors
    /// Those of [`Until::wait`].
    pub fn wait_some_for<W: Word>(&self, conditions: &[Until<W>], time: Duration) -> Result<Vec<(usize, W)>> {
        if conditions.is_empty() {
            return Ok(Vec::new());
        }
        self.watch_until("waiting for some of several signals", time, |me| {
            let (mut some, mut failed) = (Vec::new(), None);
            for (index, condition) in conditions.iter().enumerate() {
                match condition.look(me) {
                    Ok(found) => some.extend(found.map(|value| (index, value))),
                    Err(error) => failed = failed.or(Some(Err(error))),
                }
            }
            if some.is_empty() { failed } else { Some(Ok(some)) }
        })
    }

    /// Waits until each of them was so once, and returns what the words held then. At most for the job's deadline.
    ///
    /// # Errors
    /// Those of [`Until::wait`].
    pub fn wait_all<W: Word>(&self, conditions: &[Until<W>]) -> Result<Vec<W>> {
        self.wait_all_for(conditions, self.default_deadline())
    }

    /// As [`wait_all`](Self::wait_all), for at most this long.
    ///
    /// # Errors
    /// Those of [`Until::wait`].
    pub fn wait_all_for<W: Word>(&self, conditions: &[Until<W>], time: Duration) -> Result<Vec<W>> {
        let mut values: Vec<Option<W>> = vec![None; conditions.len()];
        if conditions.is_empty() {
            return Ok(Vec::new());
        }
        self.watch_until("waiting for all of several signals", time, |me| {
            // Each of them every time, since one may be so for a while only, or never any more.
            for (condition, value) in conditions.iter().zip(&mut values).filter(|(_, value)| value.is_none()) {
                match condition.look(me) {
                    Ok(found) => *value = found,
                    Err(error) => return Some(Err(error)),
                }
            }
            values.iter().copied().collect::<Option<Vec<W>>>().map(Ok)
        })
    }
}
