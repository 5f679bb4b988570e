//! The phases of queues.

use farside::Result;

use super::ends::Ends;
use super::{Item, Usage};
use crate::phase::{HasPhases, Kind, Local, Phase, Popping, Pops, Pushes, Pushing};
use crate::promise::{Op, Promise};

impl<'w, T: Item> Ends<'w, T> {
    /// Begins a phase in which workers only push. All workers call this.
    ///
    /// # Errors
    /// A process is lost, the job's deadline has passed, or the workers call different collectives
    /// ([`Worker::barrier`](farside::Worker::barrier)).
    pub fn pushing(&self) -> Result<Phase<Self, Pushing>> {
        Phase::begin(self)
    }

    /// Begins a phase in which workers only pop. All workers call this.
    ///
    /// # Errors
    /// A process is lost, the job's deadline has passed, or the workers call different collectives
    /// ([`Worker::barrier`](farside::Worker::barrier)).
    pub fn popping(&self) -> Result<Phase<Self, Popping>> {
        Phase::begin(self)
    }

    /// Begins a phase in which one worker uses the queue, in the process that has it. All workers
    /// call this.
    ///
    /// # Errors
    /// A process is lost, the job's deadline has passed, or the workers call different collectives
    /// ([`Worker::barrier`](farside::Worker::barrier)).
    pub fn local(&self) -> Result<Phase<Self, Local>> {
        Phase::begin(self)
    }
}

impl<T: Item> HasPhases for Ends<'_, T> {
    fn begin_phase(&self, promise: Promise) -> Result<Self> {
        let op = if promise.permits(Op::Push) { Op::Push } else { Op::Pop };
        let usage = Usage::of(promise, op)?;
        self.me.barrier()?;
        self.part.phase.set(usage);
        Ok(Ends { me: self.me, queue: self.queue, part: self.part.clone() })
    }

    fn end_phase(&self, _: Promise) -> Result<()> {
        self.me.barrier()
    }

    fn leave_phase(&self) {
        self.part.phase.set(Usage::All);
    }
}

impl<T: Item, K: Kind> Phase<Ends<'_, T>, K> {
    /// Pushes an item: [`Ends::push_with`].
    ///
    /// # Errors
    /// The errors of [`Ends::push_with`].
    #[inline]
    #[track_caller]
    pub fn push(&self, item: T) -> Result<Result<(), T>>
    where
        K: Pushes,
    {
        self.handle.push_with(K::PROMISE, item)
    }

    /// Pushes items: [`Ends::push_all_with`].
    ///
    /// # Errors
    /// The errors of [`Ends::push_all_with`].
    #[track_caller]
    pub fn push_all(&self, items: &[T]) -> Result<u64>
    where
        K: Pushes,
    {
        self.handle.push_all_with(K::PROMISE, items)
    }

    /// Pops items: [`Ends::pop_many_with`].
    ///
    /// # Errors
    /// The errors of [`Ends::pop_many_with`].
    #[track_caller]
    pub fn pop_many(&self, most: usize) -> Result<Vec<T>>
    where
        K: Pops,
    {
        self.handle.pop_many_with(K::PROMISE, most)
    }

    /// Pops an item: [`Ends::pop_with`].
    ///
    /// # Errors
    /// The errors of [`Ends::pop_with`].
    #[inline]
    #[track_caller]
    pub fn pop(&self) -> Result<Option<T>>
    where
        K: Pops,
    {
        self.handle.pop_with(K::PROMISE)
    }
}
