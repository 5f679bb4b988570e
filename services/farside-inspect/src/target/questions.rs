//! The functions of a worker that readers have run: its actions, and [`Questions`] to its probes.
//!
//! The functions stay on their worker's thread, so they may capture anything. The door knows only
//! their names. It has an action run where its worker [stays](super::stays), on all workers at the
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

use crate::protocol::{Refused, Role};
use crate::sync::lock;

/// The most probes of a process that may be under way.
const ASKED_MAX: usize = 1024;

/// A function of a worker, from a question to an answer. Both are empty for an action.
type Function = Rc<RefCell<dyn FnMut(&Worker, &str) -> Result<Vec<u8>, Error>>>;

thread_local! {
    /// The functions of the worker of this thread, by name.
    static OWN: RefCell<BTreeMap<String, (Role, Function)>> = const { RefCell::new(BTreeMap::new()) };
}

/// Keeps a function of the worker of this thread, which has none of this name.
pub(super) fn keep(name: &str, role: Role, function: impl FnMut(&Worker, &str) -> Result<Vec<u8>, Error> + 'static) {
    OWN.with_borrow_mut(|own| own.insert(name.to_owned(), (role, Rc::new(RefCell::new(function)))));
}

/// A function of the worker of this thread, if it still has it.
fn find(name: &str, role: Role) -> Option<Function> {
    OWN.with_borrow(|own| own.get(name).filter(|(own, _)| *own == role).map(|(_, function)| function.clone()))
}

/// Ends a function of the worker of this thread.
pub(super) fn end(name: &str) {
    let ended = OWN.with_borrow_mut(|own| own.remove(name));
    // What it has captured may come here again.
    drop(ended);
}

/// Runs an action of this worker, if it still has it.
pub(super) fn act(me: &Worker, name: &str) -> Result<(), Error> {
    let Some(action) = find(name, Role::Action) else { return Ok(()) };
    // An action that publishes might come here again.
    action.try_borrow_mut().map_or(Ok(()), |mut action| action(me, "").map(drop))
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
    let failed = |cause: &str| Err(Refused::Failed { cause: cause.into() });
    let answer = match find(&name, Role::Probe).as_deref().map(RefCell::try_borrow_mut) {
        Some(Ok(mut probe)) => match catch_unwind(AssertUnwindSafe(|| probe(me, &question))) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => failed(&error.to_string()),
            Err(_) => failed("the probe panicked"),
        },
        Some(Err(_)) => failed("the probe is answering already"),
        None => Err(Refused::Unknown { name, worker: me.id().number() }),
    };
    let mut asked = lock(&questions.0);
    if let Some(question) = asked.all.get_mut(&number) {
        question.answer = Some(answer);
        let waker = question.waker.clone();
        drop(asked);
        waker.wake();
    }
}
