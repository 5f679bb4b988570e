//! [`Query`]: many small questions to many owners.

use std::fmt;

use farside::{Result, Wire, Worker, WorkerId};

use crate::exchange::{Exchange, Sender};

/// Asks many small questions of many owners, and takes the answers, both in batches.
///
/// Each question has a tag, which comes back with its answer. Questions and answers travel in two
/// [`Exchange`]s, so all that is said there holds here.
///
/// ```
/// use std::cell::Cell;
/// use std::rc::Rc;
/// use farside::WorkerId;
/// use farside_containers::Query;
///
/// # farside::simulate(3, 1, 1, |me| {
/// let sum = Rc::new(Cell::new(0));
/// let taken = sum.clone();
/// // Each worker squares numbers for all workers.
/// let squares = Query::new(
///     me,
///     |_, x: u64| x * x,
///     move |_, tag, square: u64| taken.set(taken.get() + u64::from(tag) * square),
/// )?;
/// let asker = squares.on(me);
/// for tag in 0..3 {
///     asker.ask(WorkerId::new(tag % me.worker_count()), tag, 10)?;
/// }
/// me.quiesce()?;
/// assert_eq!(sum.get(), 300);
/// # Ok(())
/// # }).unwrap();
/// ```
///
/// *Order*: none. *Cost*: that of two items, with at least 8 and 4 bytes more than the question and
/// the answer.
#[derive(Wire)]
pub struct Query<Q: 'static, R: 'static> {
    asked: Exchange<(u32, u32, Q)>,
    answered: Exchange<(u32, R)>,
}

impl<Q: Wire + 'static, R: Wire + 'static> Query<Q, R> {
    /// Makes a query. `answer` runs at the worker that is asked, and `take` at the one that asks,
    /// with the tag of the question. All workers call this, in the same order as other collectives.
    ///
    /// Both are called as handlers: they must not wait.
    ///
    /// # Errors
    /// Those of [`Exchange::new`].
    pub fn new(
        me: &Worker,
        answer: impl Fn(&Worker, Q) -> R + 'static,
        take: impl Fn(&Worker, u32, R) + 'static,
    ) -> Result<Self> {
        let answered = Exchange::new(me, move |me, answers| {
            answers.for_each(|(tag, answer)| take(me, tag, answer));
        })?;
        let asked = Exchange::new(me, move |me, questions| {
            let answers: Sender<'_, (u32, R)> = answered.on(me);
            for (asker, tag, question) in questions {
                // In a handler a push does not wait. It drops answers for a lost process, and
                // answers that no record can hold.
                let _ = answers.push(WorkerId::new(asker), (tag, answer(me, question)));
            }
        })?;
        Ok(Self { asked, answered })
    }

    /// Returns what this worker asks questions with.
    ///
    /// # Panics
    /// Those of [`Exchange::on`].
    #[track_caller]
    pub fn on(self, me: &Worker) -> Asker<'_, Q> {
        Asker { own: me.id().number(), questions: self.asked.on(me) }
    }

    /// Waits until every question has been answered, and frees the memory of the query. All workers
    /// call this, in the same order as other collectives.
    ///
    /// # Errors
    /// Those of [`Exchange::free`].
    ///
    /// # Panics
    /// Those of [`Exchange::free`].
    #[track_caller]
    pub fn free(self, me: &Worker) -> Result<()> {
        self.asked.free(me).and(self.answered.free(me))
    }
}

/// Asks the questions of a [`Query`] on one worker.
pub struct Asker<'w, Q: 'static> {
    own: u32,
    questions: Sender<'w, (u32, u32, Q)>,
}

impl<Q: Wire + 'static> Asker<'_, Q> {
    /// Asks the worker `of`. The answer arrives here with this tag, while this worker waits or
    /// makes progress. All answers have arrived when [`Worker::quiesce`] returns.
    ///
    /// # Errors
    /// Those of [`Sender::push`], such as [`ContainerError::Gone`](crate::ContainerError::Gone).
    #[inline]
    pub fn ask(&self, of: WorkerId, tag: u32, question: Q) -> Result<()> {
        self.questions.push(of, (self.own, tag, question))
    }

    /// Sends all questions, in batches that are full or not.
    ///
    /// # Errors
    /// Those of [`Sender::push`].
    pub fn flush(&self) -> Result<()> {
        self.questions.flush()
    }
}

impl<Q: 'static, R: 'static> Clone for Query<Q, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q: 'static, R: 'static> Copy for Query<Q, R> {}

impl<Q: 'static, R: 'static> fmt::Debug for Query<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query").field("answered", &self.answered).finish_non_exhaustive()
    }
}

impl<Q: 'static> fmt::Debug for Asker<'_, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").field("questions", &self.questions).finish_non_exhaustive()
    }
}
