//! Wakes futures that wait for a pipe: their worker looks at the pipe whenever it makes progress.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::task::Waker;

use farside::Worker;
use farside::kit::{PutOff, WorkerParts as _};

/// The waiting task of one end of a pipe. A newer task replaces it, and dropping the end forgets
/// it.
#[derive(Default)]
pub(super) struct Waiting(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    waiter: Option<Waiter>,
    /// The worker looks at every progress.
    is_watched: bool,
}

struct Waiter {
    waker: Waker,
    is_there: Box<dyn FnMut(&Worker) -> bool>,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Waiting").field(&self.0.borrow().waiter.is_some()).finish()
    }
}

impl Waiting {
    /// Wakes `waker` once `is_there` returns true.
    pub(super) fn wake_when(&mut self, me: &Worker, waker: &Waker, is_there: impl FnMut(&Worker) -> bool + 'static) {
        let mut state = self.0.borrow_mut();
        state.waiter = Some(Waiter { waker: waker.clone(), is_there: Box::new(is_there) });
        if std::mem::replace(&mut state.is_watched, true) {
            return;
        }
        let end = Rc::downgrade(&self.0);
        me.put_off(PutOff::new(move |me| {
            let Some(end) = end.upgrade() else { return true };
            let due = end.borrow_mut().waiter.take_if(|waiter| (waiter.is_there)(me));
            let is_over = end.borrow().waiter.is_none();
            end.borrow_mut().is_watched = !is_over;
            if let Some(due) = due {
                due.waker.wake();
            }
            is_over
        }));
    }

    /// Forgets the waiting task.
    pub(super) fn end(&mut self) {
        self.0.borrow_mut().waiter = None;
    }
}
