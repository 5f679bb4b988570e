//! [`Query`]: many small questions to many owners.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use farside::{Error, PerWorker, ProcessId, Result, Wire, Worker, WorkerId};

use crate::agreement::{ContainerError, held};
use crate::exchange::{Exchange, Sender};

/// The bytes of answers that owners may keep for one worker.
const UNANSWERED_BYTES: usize = 4 << 20;
/// The number of answers that they may keep, if answers vary in size.
const UNANSWERED_VARYING: u32 = 4096;
/// The least number of them.
const UNANSWERED_MIN: u32 = 64;

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
///
/// *Memory*: a worker has as many unanswered questions as have 4 MiB of plain answers, or 4096 if
/// answers vary in size. Before it asks another one, it waits for answers. So owners keep no more
/// for it. A question in a handler cannot wait, and is asked at once. After a loss, a query among
/// more than 64 workers that was made before does not wait, either.
#[derive(Wire)]
pub struct Query<Q: 'static, R: 'static> {
    asked: Exchange<(u32, u32, Q)>,
    answered: Exchange<(u32, R)>,
    unanswered: PerWorker<Unanswered>,
}

/// The questions of a worker whose answers have not come.
#[derive(Debug, Default)]
struct Unanswered {
    count: Cell<u32>,
    /// The number of lost processes that the count knows of. Their answers do not come.
    losses: Cell<usize>,
}

impl<Q: Wire + 'static, R: Wire + 'static> Query<Q, R> {
    /// Makes a query. `answer` runs at the worker that is asked, and `take` at the one that asks,
    /// with the tag of the question. All workers call this, in the same order as other collectives.
    ///
    /// Both are called as handlers: they must not wait. An answer that is too large for a call ends
    /// the job, as any function that fails does.
    ///
    /// # Errors
    /// A process is lost, the job's deadline has passed, or the workers call different collectives
    /// ([`Exchange::new`]).
    pub fn new(
        me: &Worker,
        answer: impl Fn(&Worker, Q) -> R + 'static,
        take: impl Fn(&Worker, u32, R) + 'static,
    ) -> Result<Self> {
        let unanswered = PerWorker::new(me, Unanswered::default())?;
        let answered = Exchange::new(me, move |me, answers| {
            if let Some(unanswered) = unanswered.hold(me) {
                // After a loss the count begins again, and answers to earlier questions still come.
                unanswered.count.set(unanswered.count.get().saturating_sub(answers.len() as u32));
            }
            answers.for_each(|(tag, answer)| take(me, tag, answer));
        })?;
        let asked = Exchange::new(me, move |me, questions| {
            let answers: Sender<'_, (u32, R)> = answered.on(me);
            for (asker, tag, question) in questions {
                // In a handler a push does not wait. It drops answers for a lost process.
                let sent = answers.push(WorkerId::new(asker), (tag, answer(me, question)));
                if let Err(error @ Error::TooLarge { .. }) = sent {
                    panic!("the answer to a question of worker {asker} cannot be sent: {error}");
                }
            }
        })?;
        Ok(Self { asked, answered, unanswered })
    }

    /// Returns what this worker asks questions with.
    pub fn on(self, me: &Worker) -> Asker<'_, Q> {
        let answer_bytes =
            if R::PLAIN { size_of::<(u32, R)>() } else { UNANSWERED_BYTES / UNANSWERED_VARYING as usize };
        let most = UNANSWERED_MIN.max((UNANSWERED_BYTES / answer_bytes) as u32);
        let unanswered = held(self.unanswered, me, Unanswered::default);
        Asker { me, questions: self.asked.on(me), unanswered, most }
    }

    /// Waits until every question has been answered, and frees the memory of the query. All workers
    /// call this, in the same order as other collectives.
    ///
    /// # Errors
    /// The query was freed before, a process is lost, or the job's deadline has passed
    /// ([`Exchange::free`]).
    ///
    /// # Panics
    /// If this worker still has an [`Asker`] of the query.
    #[track_caller]
    pub fn free(self, me: &Worker) -> Result<()> {
        if !self.unanswered.is_here(me) {
            return Err(ContainerError::Gone.into());
        }
        // All, so that no worker leaves the others waiting.
        self.asked.free(me).and(self.answered.free(me)).and(self.unanswered.free(me))
    }
}

/// Asks the questions of a [`Query`] on one worker.
pub struct Asker<'w, Q: 'static> {
    me: &'w Worker,
    questions: Sender<'w, (u32, u32, Q)>,
    unanswered: Rc<Unanswered>,
    /// The number of questions that may be unanswered.
    most: u32,
}

impl<Q: Wire + 'static> Asker<'_, Q> {
    /// Asks the worker `of`. The answer arrives here with this tag, while this worker waits or
    /// makes progress. All answers have arrived when [`Worker::quiesce`] returns.
    ///
    /// # Errors
    /// The query was freed ([`ContainerError::Gone`](crate::ContainerError::Gone)), or a batch of
    /// questions cannot be sent ([`Sender::push`]).
    /// [`Worker::wait_while_serving`] has failed because too many questions are unanswered; this
    /// one was not asked then.
    #[inline]
    pub fn ask(&self, of: WorkerId, tag: u32, question: Q) -> Result<()> {
        let count = &self.unanswered.count;
        if count.get() >= self.most {
            self.wait_for_answers()?;
        }
        self.questions.push(of, (self.me.id().number(), tag, question))?;
        // In a grid, the question or its answer may pass a lost process.
        let may_be_answered = || self.questions.is_direct() && !self.me.is_lost(self.me.process_of(of));
        if self.unanswered.losses.get() == 0 || may_be_answered() {
            count.set(count.get() + 1);
        }
        Ok(())
    }

    #[cold]
    fn wait_for_answers(&self) -> Result<()> {
        let Unanswered { count, losses } = &*self.unanswered;
        let lost = || (0..self.me.process_count()).filter(|process| self.me.is_lost(ProcessId::new(*process))).count();
        let waited = self.me.wait_while_serving(|| count.get() <= self.most / 2 || lost() > losses.get());
        let lost = lost();
        if lost > losses.replace(lost) {
            count.set(0);
        }
        match waited {
            Ok(()) | Err(Error::InHandler { .. } | Error::Borrowed { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends all questions, in batches that are full or not.
    ///
    /// # Errors
    /// A batch of questions cannot be sent: [`Sender::push`] lists the reasons.
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
