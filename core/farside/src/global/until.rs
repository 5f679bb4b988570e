//! Waiting until words have a value.
//!
//! Each look at a word that is not mapped waits for an answer of its owner's service thread. No
//! call runs during that wait.

use std::time::Duration;

use farside_fabric::ProcessId;

use super::atomics::Word;
use super::pointer::GlobalPtr;
use crate::error::Result;
use crate::runtime::worker::Worker;

/// The comparison of a word with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
}

impl Comparison {
    /// Returns whether `found` compares to `value` in this way.
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

/// A condition on a word, to be [waited for](Self::wait) alone or [together with
/// others](crate::AwaitSignals::wait_any).
///
/// ```no_run
/// # use farside::prelude::*;
/// # use farside::{Comparison, GlobalAddress, GlobalPtr, Until};
/// # fn example(me: &Worker) -> farside::Result<()> {
/// // A flag for each process, in this one's starter memory.
/// let flag = |of: u32| -> GlobalPtr<u64> { GlobalAddress::starter(me.process(), 8 * of).cast() };
/// let mut open: Vec<Until<u64>> =
///     (0..me.process_count())
///         .map(|of| flag(of).until(Comparison::Ne, 0).signalled_by(ProcessId::new(of)))
///         .collect();
/// while let Some((index, value)) = me.wait_any(&open)? {
///     println!("process {} says {value}", open.remove(index).signaller().unwrap());
/// }
/// # Ok(())
/// # }
/// ```
///
/// When it holds, everything is visible that the worker that made it hold had
/// [put](crate::AwaitSignals::put_signal) before.
///
/// *Cost*: for words in memory of this process, loads; a [signal](super::Signal) wakes a sleeping
/// worker, and any other change is noticed within 100 µs. Mapped words of another process are
/// loaded, too, but nothing wakes the sleeping worker. Where a word is not mapped, each look is a
/// round trip: wait at the word's owner instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until<W> {
    word: GlobalPtr<W>,
    comparison: Comparison,
    value: W,
    signaller: Option<ProcessId>,
}

impl<W: Word> Until<W> {
    /// Says that only this process will make it hold. If that process is lost before, waiting is an
    /// error at once.
    pub fn signalled_by(self, process: ProcessId) -> Self {
        Self { signaller: Some(process), ..self }
    }

    /// Returns the process that alone makes it hold, if one was named.
    pub fn signaller(&self) -> Option<ProcessId> {
        self.signaller
    }

    /// Returns the word.
    pub fn word(&self) -> GlobalPtr<W> {
        self.word
    }

    /// Returns the value of the word, if the condition holds.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, or one out of range; [`Error::PeerLost`](crate::Error::PeerLost) if
    /// the owner is lost; [`Error::Fabric`](crate::Error::Fabric) if it does not answer in time, or
    /// the transport fails; [`Error::InHandler`](crate::Error::InHandler) if a handler would have
    /// to wait for it.
    #[inline]
    #[track_caller]
    pub fn test(&self, me: &Worker) -> Result<Option<W>> {
        let found = self.word.load(me)?;
        Ok(self.comparison.holds(found, self.value).then_some(found))
    }

    /// Waits until it holds, and returns the value of the word. Runs calls of other workers
    /// meanwhile. Waits at most for the job's deadline.
    ///
    /// # Errors
    /// [`Error::Deadline`](crate::Error::Deadline) if the condition does not hold in time;
    /// [`Error::PeerLost`](crate::Error::PeerLost) if the word's owner or the
    /// [signalling process](Self::signalled_by) is lost;
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, or one out of range; [`Error::Fabric`](crate::Error::Fabric) if the
    /// owner does not answer, or the transport fails; [`Error::InHandler`](crate::Error::InHandler)
    /// in a handler.
    #[track_caller]
    pub fn wait(&self, me: &Worker) -> Result<W> {
        self.wait_for(me, me.default_deadline())
    }

    /// Like [`wait`](Self::wait), for at most `time`.
    ///
    /// # Errors
    /// [`Error::Deadline`](crate::Error::Deadline) if the condition does not hold in time;
    /// [`Error::PeerLost`](crate::Error::PeerLost) if the word's owner or the
    /// [signalling process](Self::signalled_by) is lost;
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, or one out of range; [`Error::Fabric`](crate::Error::Fabric) if the
    /// owner does not answer, or the transport fails; [`Error::InHandler`](crate::Error::InHandler)
    /// in a handler.
    #[track_caller]
    pub fn wait_for(&self, me: &Worker, time: Duration) -> Result<W> {
        me.watch_until("waiting for a signal", time, |me| self.look(me).transpose())
    }

    /// Like [`test`](Self::test), with an error if it can never hold.
    #[inline]
    fn look(&self, me: &Worker) -> Result<Option<W>> {
        // Looked at before the word, so that a signal given before the loss counts.
        let lost = self.signaller.and_then(|process| me.lost(process));
        match (self.test(me)?, lost) {
            (None, Some(lost)) => Err(lost),
            (found, _) => Ok(found),
        }
    }
}

impl<W: Word> GlobalPtr<W> {
    /// Returns a condition on this word, to be waited for.
    pub fn until(self, comparison: Comparison, value: W) -> Until<W> {
        Until { word: self, comparison, value, signaller: None }
    }

    /// Waits until the word compares in this way, and returns its value: [`Until::wait`].
    ///
    /// # Errors
    /// [`Error::Deadline`](crate::Error::Deadline) if the condition does not hold in time;
    /// [`Error::PeerLost`](crate::Error::PeerLost) if the word's owner or the signalling process is
    /// lost; [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale,
    /// misaligned or read-only address, or one out of range;
    /// [`Error::Fabric`](crate::Error::Fabric) if the owner does not answer, or the transport
    /// fails; [`Error::InHandler`](crate::Error::InHandler) in a handler.
    #[track_caller]
    pub fn wait_until(self, me: &Worker, comparison: Comparison, value: W) -> Result<W> {
        self.until(comparison, value).wait(me)
    }
}

/// Waiting for several words. Each has its own comparison and [signalling
/// process](Until::signalled_by). A condition that holds is reported before an error of another
/// one.
impl Worker {
    #[track_caller]
    pub(crate) fn wait_any<W: Word>(&self, conditions: &[Until<W>]) -> Result<Option<(usize, W)>> {
        self.wait_any_for(conditions, self.default_deadline())
    }

    #[track_caller]
    pub(crate) fn wait_any_for<W: Word>(&self, conditions: &[Until<W>], time: Duration) -> Result<Option<(usize, W)>> {
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

    #[track_caller]
    pub(crate) fn wait_some<W: Word>(&self, conditions: &[Until<W>]) -> Result<Vec<(usize, W)>> {
        self.wait_some_for(conditions, self.default_deadline())
    }

    #[track_caller]
    pub(crate) fn wait_some_for<W: Word>(&self, conditions: &[Until<W>], time: Duration) -> Result<Vec<(usize, W)>> {
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

    #[track_caller]
    pub(crate) fn wait_all<W: Word>(&self, conditions: &[Until<W>]) -> Result<Vec<W>> {
        self.wait_all_for(conditions, self.default_deadline())
    }

    #[track_caller]
    pub(crate) fn wait_all_for<W: Word>(&self, conditions: &[Until<W>], time: Duration) -> Result<Vec<W>> {
        let mut values: Vec<Option<W>> = vec![None; conditions.len()];
        if conditions.is_empty() {
            return Ok(Vec::new());
        }
        self.watch_until("waiting for all of several signals", time, |me| {
            // Each of them in each round, since one may hold only for a while.
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
