//! The functions of a worker that readers have run: its actions, and [`Questions`] to its probes.
//!
//! The functions stay on their worker's thread, so they may capture anything. The door knows only
//! their names. It has an action run where its worker [stays](super::holds), on all workers at the
//! same step, so that it may wait and use collectives. It has a probe run by a call to its worker,
//! when that next makes progress.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Mutex;
use std::task::{Poll, Waker};

use farside::{Caller, Error, Worker, WorkerId};

use crate::protocol::Refused;
use crate::sync::lock;

/// The most probes of a process that may be under way.
const ASKED_MAX: usize = 1024;

type Act = Rc<RefCell<dyn FnMut(&Worker) -> Result<(), Error>>>;
type Answer = Rc<RefCell<dyn FnMut(&Worker, &str) -> Vec<u8>>>;

/// A function of a worker.
#[derive(Clone)]
pub(super) enum Function {
    Action(Act),
    Probe(Answer),
}

thread_local! {
    /// The functions of the worker of this thread, by name.
    static OWN: RefCell<BTreeMap<String, Function>> = const { RefCell::new(BTreeMap::new()) };
}

/// Keeps a function of the worker of this thread, which has none of this name.
pub(super) fn keep(name: &str, function: Function) {
    OWN.with_borrow_mut(|own| own.insert(name.to_owned(), function));
}

/// Ends a function of the worker of this thread.
pub(super) fn end(name: &str) {
    let ended = OWN.with_borrow_mut(|own| own.remove(name));
    // What it has captured may come here again.
    drop(ended);
}

impl Function {
    pub(super) fn action(action: impl FnMut(&Worker) -> Result<(), Error> + 'static) -> Self {
        Self::Action(Rc::new(RefCell::new(action)))
    }

    pub(super) fn probe(probe: impl FnMut(&Worker, &str) -> Vec<u8> + 'static) -> Self {
        Self::Probe(Rc::new(RefCell::new(probe)))
    }
}

/// Runs an action of this worker, if it still has it.
pub(super) fn act(me: &Worker, name: &str) -> Result<(), Error> {
    let found = OWN.with_borrow(|own| own.get(name).cloned());
    match found {
        // An action that publishes might come here again.
        Some(Function::Action(action)) => action.try_borrow_mut().map_or(Ok(()), |mut action| action(me)),
        _ => Ok(()),
    }
}

/// The questions to probes of a process that are under way, by number. They are a state of the
/// process, in which its workers find them.
#[derive(Debug, Default)]
pub(super) struct Questions(Mutex<Asked>);

#[derive(Debug, Default)]
struct Asked {
    last: u64,
    all: BTreeMap<u64, Question>,
}

#[derive(Debug)]
struct Question {
    waker: Waker,
    answer: Option<Result<Vec<u8>, Refused>>,
}

/// Takes a question back when it is dropped.
struct Open<'a> {
    questions: &'a Questions,
    number: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        lock(&self.questions.0).all.remove(&self.number);
    }
}

impl Questions {
    /// Makes place for a question. Returns `None` if too many are under way.
    fn open(&self) -> Option<Open<'_>> {
        let mut asked = lock(&self.0);
        if asked.all.len() >= ASKED_MAX {
            return None;
        }
        asked.last += 1;
        let number = asked.last;
        asked.all.insert(number, Question { waker: Waker::noop().clone(), answer: None });
        Some(Open { questions: self, number })
    }

    /// Asks a probe, and waits for the answer.
    pub(super) async fn ask(
        &self,
        caller: Caller,
        worker: u32,
        name: String,
        question: String,
    ) -> Result<Vec<u8>, Refused> {
        let open = self.open().ok_or(Refused::Busy)?;
        let number = open.number;
        let sent = caller.call(WorkerId::new(worker), (number, name, question), answer);
        sent.map_err(|refused| Refused::Failed { cause: refused.to_string() })?;
        poll_fn(|context| {
            let mut asked = lock(&open.questions.0);
            let question = asked.all.get_mut(&number).expect("a question stays until it is taken back");
            question.waker.clone_from(context.waker());
            question.answer.take().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Has a probe of this worker answer.
fn answer(me: &Worker, (number, name, question): (u64, String, String)) {
    let questions = me.process_state::<Questions>();
    if !lock(&questions.0).all.contains_key(&number) {
        // Its reader is gone.
        return;
    }
    let found = OWN.with_borrow(|own| own.get(&name).cloned());
    let failed = |cause: &str| Err(Refused::Failed { cause: cause.into() });
    let answer = match found {
        Some(Function::Probe(probe)) => match probe.try_borrow_mut() {
            Ok(mut probe) => {
                let run = catch_unwind(AssertUnwindSafe(|| probe(me, &question)));
                run.map_or_else(|_| failed("the probe panicked"), Ok)
            }
            Err(_) => failed("the probe is answering already"),
        },
        _ => Err(Refused::Unknown { name, worker: me.id().number() }),
    };
    let mut asked = lock(&questions.0);
    if let Some(question) = asked.all.get_mut(&number) {
        question.answer = Some(answer);
        let waker = question.waker.clone();
        drop(asked);
        waker.wake();
    }
}
