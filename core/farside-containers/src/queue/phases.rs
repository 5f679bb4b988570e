//! Phases: promises that the compiler checks.

use std::fmt;
use std::marker::PhantomData;

use farside::Result;

use super::ends::Ends;
use super::{Item, Usage};
use crate::promise::Promise;

/// The time between two barriers, in which workers only push, only pop, or one worker uses the
/// queue alone. A phase has only the methods that its promise allows.
///
/// The methods of [`Ends`] work as in the phase, too, until its [end](Self::end). What the promise
/// forbids is [`NotPermitted`](super::QueueError::NotPermitted) there.
///
/// ```
/// use farside::ProcessId;
/// use farside_containers::queue::Queue;
///
/// # farside::simulate(2, 1, 1, |me| {
/// let queue = Queue::<u32>::new(me, ProcessId::new(0), 10)?;
/// let ends = queue.on(me);
/// let pushing = ends.pushing()?;
/// pushing.push(me.id().number())?.expect("there is room");
/// pushing.end()?;
/// let popping = ends.popping()?;
/// assert!(popping.pop()?.is_some());
/// popping.end()?;
/// queue.free(me)
/// # }).unwrap();
/// ```
///
/// What the promise forbids does not compile:
///
/// ```compile_fail,E0277
/// # use farside_containers::queue::Queue;
/// # fn example(queue: Queue<u32>, me: &farside::Worker) -> farside::Result<()> {
/// let pushing = queue.on(me).pushing()?;
/// pushing.pop()?;
/// # Ok(())
/// # }
/// ```
///
/// *Cost*: a barrier at the begin and at the [end](Self::end).
#[must_use = "all workers end a phase together"]
pub struct Phase<'w, T: 'static, K> {
    ends: Ends<'w, T>,
    kind: PhantomData<K>,
}

/// A phase in which workers only push.
#[derive(Clone, Copy, Debug)]
pub enum Pushing {}

/// A phase in which workers only pop.
#[derive(Clone, Copy, Debug)]
pub enum Popping {}

/// A phase in which one worker uses the queue, in the process that has it.
#[derive(Clone, Copy, Debug)]
pub enum Local {}

/// Kinds of phases in which workers push.
pub trait Pushes {
    /// What is promised.
    const PROMISE: Promise;
}

/// Kinds of phases in which workers pop.
pub trait Pops {
    /// What is promised.
    const PROMISE: Promise;
}

impl Pushes for Pushing {
    const PROMISE: Promise = Promise::PUSH_ONLY;
}

impl Pops for Popping {
    const PROMISE: Promise = Promise::POP_ONLY;
}

impl Pushes for Local {
    const PROMISE: Promise = Promise::LOCAL;
}

impl Pops for Local {
    const PROMISE: Promise = Promise::LOCAL;
}

impl<'w, T: Item> Ends<'w, T> {
    /// Begins a phase in which workers only push. All workers call this.
    ///
    /// # Errors
    /// Those of [`Worker::barrier`](farside::Worker::barrier).
    pub fn pushing(&self) -> Result<Phase<'w, T, Pushing>> {
        self.phase(Usage::PushOnly)
    }

    /// Begins a phase in which workers only pop. All workers call this.
    ///
    /// # Errors
    /// Those of [`Worker::barrier`](farside::Worker::barrier).
    pub fn popping(&self) -> Result<Phase<'w, T, Popping>> {
        self.phase(Usage::PopOnly)
    }

    /// Begins a phase in which one worker uses the queue, in the process that has it. All workers
    /// call this.
    ///
    /// # Errors
    /// Those of [`Worker::barrier`](farside::Worker::barrier).
    pub fn local(&self) -> Result<Phase<'w, T, Local>> {
        self.phase(Usage::Local)
    }

    fn phase<K>(&self, usage: Usage) -> Result<Phase<'w, T, K>> {
        self.me.barrier()?;
        self.part.phase.set(usage);
        let ends = Ends { me: self.me, queue: self.queue, part: self.part.clone() };
        Ok(Phase { ends, kind: PhantomData })
    }
}

impl<T: Item, K> Phase<'_, T, K> {
    /// Pushes an item: [`Ends::push_with`].
    ///
    /// # Errors
    /// Those of [`Ends::push_with`].
    #[inline]
    #[track_caller]
    pub fn push(&self, item: T) -> Result<Result<(), T>>
    where
        K: Pushes,
    {
        self.ends.push_with(K::PROMISE, item)
    }

    /// Pushes items: [`Ends::push_all_with`].
    ///
    /// # Errors
    /// Those of [`Ends::push_all_with`].
    #[track_caller]
    pub fn push_all(&self, items: &[T]) -> Result<u64>
    where
        K: Pushes,
    {
        self.ends.push_all_with(K::PROMISE, items)
    }

    /// Pops items: [`Ends::pop_many_with`].
    ///
    /// # Errors
    /// Those of [`Ends::pop_many_with`].
    #[track_caller]
    pub fn pop_many(&self, most: usize) -> Result<Vec<T>>
    where
        K: Pops,
    {
        self.ends.pop_many_with(K::PROMISE, most)
    }

    /// Pops an item: [`Ends::pop_with`].
    ///
    /// # Errors
    /// Those of [`Ends::pop_with`].
    #[inline]
    #[track_caller]
    pub fn pop(&self) -> Result<Option<T>>
    where
        K: Pops,
    {
        self.ends.pop_with(K::PROMISE)
    }

    /// Ends the phase. All workers call this.
    ///
    /// # Errors
    /// Those of [`Worker::barrier`](farside::Worker::barrier).
    pub fn end(self) -> Result<()> {
        self.ends.me.barrier()
    }
}

impl<T: 'static, K> Drop for Phase<'_, T, K> {
    fn drop(&mut self) {
        self.ends.part.phase.set(Usage::All);
    }
}

impl<T: 'static, K> fmt::Debug for Phase<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Phase").field("ends", &self.ends).finish_non_exhaustive()
    }
}
