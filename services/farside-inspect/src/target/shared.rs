//! [`Shared`]: what the program and the door share of one view.
//!
//! A reader leaves a *request* for a step. The program looks at one flag when it publishes. If the
//! flag is set and the lock is free, the program copies the step into a slot for the readers that
//! request it. It never waits: not for the lock, and not for a [slot](Slots). A slot that is being
//! read stays as it is, so a reader has one step or none.
//!
//! | the program finds | what happens |
//! |---|---|
//! | no request | nothing: one load |
//! | the lock taken | nothing. A request for this step is refused at the next one, as passed |
//! | all slots being read | the request is refused |
//! | a request for this step | a copy; its reader is woken |

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use farside::Error;
use farside_rpc::bulk::Withdrawal;

use super::slots::{Budget, Slot, Slots};
use super::stays::{Publisher, Stays, Stepping};
use crate::protocol::{Part, Refused, Wish};
use crate::spans::{Span, runs};
use crate::sync::lock;

/// The number of readers that may wait for a step of one view.
const WANTS_MAX: usize = 1024;

/// The state of one view that the program and the door share.
#[derive(Debug)]
pub(super) struct Shared {
    /// The part, as it was opened.
    part: Part,
    /// The step that was published last, plus 1; 0 before the first. Written by the program, read
    /// by the door. It publishes nothing else.
    next: AtomicU64,
    /// True if there is a request. Set by the door, under the lock; cleared by the program, under
    /// the lock; looked at by the program without it.
    is_wanted: AtomicBool,
    copies: Mutex<Copies>,
    /// Changes of elements that the next publication makes.
    edits: Mutex<Vec<Edit>>,
    stays: Arc<Stays>,
}

/// A change of elements of the part.
#[derive(Debug)]
pub(super) struct Edit {
    pub(super) spans: Vec<Span>,
    /// The elements, in row-major order.
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
struct Copies {
    slots: Slots,
    requests: Vec<CopyRequest>,
    last_ticket: u64,
    /// The program has dropped its view.
    is_closed: bool,
}

/// A reader that waits for a step.
#[derive(Debug)]
struct CopyRequest {
    ticket: u64,
    /// The step: the first that has this number or a higher one.
    first: u64,
    /// True if a later one will do, if that one passes without a copy.
    takes_later: bool,
    waker: Waker,
    outcome: Option<Result<Arc<Slot>, Refused>>,
}

impl Shared {
    pub(super) fn new(part: Part, stays: Arc<Stays>, budget: Arc<Budget>) -> Self {
        let (next, is_wanted) = (AtomicU64::new(0), AtomicBool::new(false));
        let copies = Copies { slots: Slots::new(budget), requests: Vec::new(), last_ticket: 0, is_closed: false };
        Self { part, next, is_wanted, copies: Mutex::new(copies), edits: Mutex::default(), stays }
    }

    pub(super) fn name(&self) -> &str {
        &self.part.name
    }

    fn element_bytes(&self) -> usize {
        self.part.element.bytes()
    }

    /// The step that was published last.
    pub(super) fn step(&self) -> Option<u64> {
        self.next.load(Ordering::Relaxed).checked_sub(1)
    }

    fn lock(&self) -> MutexGuard<'_, Copies> {
        lock(&self.copies)
    }

    /// Returns whether a reader requests something: a step, a stay, or a change. A worker looks
    /// before it publishes.
    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Has the worker look at the stay before it publishes.
    pub(super) fn flag(&self) {
        // A store that comes too late is noticed by `Stays::begin`.
        self.is_wanted.store(true, Ordering::SeqCst);
    }

    /// Publishes a step. `next` is the number after the step before it. The step is below
    /// `u64::MAX`.
    #[inline]
    pub(super) fn publish(&self, next: u64, step: u64, bytes: &[u8]) {
        self.next.store(step + 1, Ordering::Relaxed);
        // A request that this look misses is found at the next step, with its step passed.
        if self.is_wanted() {
            self.offer(next, step, bytes);
        }
    }

    /// Does what readers have asked for before a step is published: stays, and runs actions.
    ///
    /// # Errors
    /// The error of a wait that failed, or of an action.
    #[cold]
    pub(super) fn before(&self, publisher: &dyn Publisher, step: u64) -> Result<(), Error> {
        self.stays.before(publisher, step)
    }

    /// Makes the changes that readers have asked for.
    #[cold]
    pub(super) fn take_edits(&self, bytes: &mut [u8]) {
        for Edit { spans, bytes: new } in lock(&self.edits).drain(..) {
            let mut rest = new.as_slice();
            runs(&self.part.shape, &spans, self.element_bytes(), |offset, length| {
                let (run, behind) = rest.split_at(length);
                bytes[offset..offset + length].copy_from_slice(run);
                rest = behind;
            });
        }
    }

    /// The number of bytes of the changes that wait for the next publication.
    pub(super) fn edit_bytes(&self) -> u64 {
        lock(&self.edits).iter().map(|edit| edit.bytes.len() as u64).sum()
    }

    /// Adds a change for the next publication. Its spans are inside the part, and its bytes are as
    /// many as they need.
    pub(super) fn edit(&self, edit: Edit) {
        lock(&self.edits).push(edit);
        self.flag();
    }

    #[cold]
    fn offer(&self, next: u64, step: u64, bytes: &[u8]) {
        let mut copies = match self.copies.try_lock() {
            Ok(copies) => copies,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // A reader is about to leave a request. It hears at the next step that this one has
            // passed. Before a stay there is no next step for it.
            Err(TryLockError::WouldBlock) if self.stays.keeps_copy_of(step) => self.lock(),
            Err(TryLockError::WouldBlock) => return,
        };
        let Copies { slots, requests, .. } = &mut *copies;
        // The last step before a stay is copied, because readers look at it while all stay.
        let mut copied = self.stays.keeps_copy_of(step).then(|| slots.copy(step, bytes, true));
        let mut woken = Vec::new();
        for request in requests.iter_mut().filter(|request| request.outcome.is_none()) {
            request.outcome = match request.first {
                first if first > step => continue,
                first if first < next && !request.takes_later => Some(Err(Refused::Passed { step })),
                _ => Some(copied.get_or_insert_with(|| slots.copy(step, bytes, false)).clone()),
            };
            woken.push(request.waker.clone());
        }
        let is_wanted = requests.iter().any(|request| request.outcome.is_none());
        let has_edits = !lock(&self.edits).is_empty();
        self.is_wanted.store(is_wanted || has_edits, Ordering::SeqCst);
        // A stay that has begun meanwhile has found the flag set, before the store.
        if self.stays.are_flagged() {
            self.flag();
        }
        drop(copies);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Refuses all requests, now and later.
    pub(super) fn close(&self) {
        let mut copies = self.lock();
        copies.is_closed = true;
        copies.slots.clear();
        let mut woken = Vec::new();
        for request in copies.requests.iter_mut().filter(|request| request.outcome.is_none()) {
            request.outcome = Some(Err(self.unknown()));
            woken.push(request.waker.clone());
        }
        drop(copies);
        woken.into_iter().for_each(Waker::wake);
    }

    fn unknown(&self) -> Refused {
        Refused::Unknown { name: self.part.name.clone(), worker: self.part.worker }
    }

    /// Waits for a step.
    pub(super) fn wait(self: Arc<Self>, wish: Wish) -> Waiting {
        Waiting { shared: self, wish, ticket: None }
    }

    /// Returns the answer to a wish, if it can be given at once.
    fn at_once(&self, copies: &Copies, wish: Wish) -> Option<Result<Arc<Slot>, Refused>> {
        if copies.is_closed {
            return Some(Err(self.unknown()));
        }
        let step = self.step()?;
        let copy = copies.slots.find(step).cloned();
        match wish {
            Wish::Newest => copy.map(Ok),
            Wish::Next => None,
            Wish::From(first) if first > step => None,
            Wish::From(first) => Some(copy.filter(|_| first == step).ok_or(Refused::Passed { step })),
        }
    }
}

impl Stepping for Shared {
    fn step(&self) -> Option<u64> {
        Self::step(self)
    }

    fn flag(&self) {
        Self::flag(self);
    }
}

/// Waits for a step of a view. Dropping it takes the request back.
#[derive(Debug)]
pub(super) struct Waiting {
    shared: Arc<Shared>,
    wish: Wish,
    /// The number of the request, once it was left.
    ticket: Option<u64>,
}

impl Future for Waiting {
    type Output = Result<Arc<Slot>, Refused>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = self.shared.clone();
        let mut copies = shared.lock();
        if let Some(ticket) = self.ticket {
            let index = copies
                .requests
                .iter()
                .position(|request| request.ticket == ticket)
                .expect("a request stays until it is taken");
            if copies.requests[index].outcome.is_none() {
                copies.requests[index].waker.clone_from(context.waker());
                return Poll::Pending;
            }
            self.ticket = None;
            return Poll::Ready(copies.requests.swap_remove(index).outcome.expect("the request has an outcome"));
        }
        if copies.requests.len() >= WANTS_MAX {
            return Poll::Ready(Err(Refused::Busy));
        }
        // The flag comes first, so that the program rather finds a request too many.
        shared.is_wanted.store(true, Ordering::Relaxed);
        if let Some(outcome) = shared.at_once(&copies, self.wish) {
            return Poll::Ready(outcome);
        }
        copies.last_ticket += 1;
        let ticket = copies.last_ticket;
        let (first, takes_later) = match self.wish {
            Wish::From(first) => (first, false),
            Wish::Newest | Wish::Next => (shared.step().map_or(0, |step| step + 1), true),
        };
        copies.requests.push(CopyRequest { ticket, first, takes_later, waker: context.waker().clone(), outcome: None });
        self.ticket = Some(ticket);
        let overdue = copies.slots.overdue(Instant::now());
        drop(copies);
        overdue.iter().for_each(Withdrawal::withdraw);
        Poll::Pending
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.shared.lock().requests.retain(|request| request.ticket != ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::ElementType;
    use crate::protocol::Role;
    use crate::spans::Block;

    fn shared() -> Arc<Shared> {
        let [whole, origin, shape] = [vec![1], vec![0], vec![1]];
        let part = Part { element: ElementType::U8, whole, origin, shape, ..Part::new("x", 0, Role::View) };
        Arc::new(Shared::new(part, Arc::default(), Arc::default()))
    }

    fn poll(waiting: &mut Waiting) -> Poll<Result<Arc<Slot>, Refused>> {
        Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// The step of the copy that a request gets.
    fn step_of(polled: Poll<Result<Arc<Slot>, Refused>>) -> Option<Result<u64, Refused>> {
        match polled {
            Poll::Pending => None,
            Poll::Ready(outcome) => Some(outcome.map(|slot| {
                assert_eq!(byte_of(&slot), slot.step as u8, "the bytes are those of the step");
                slot.step
            })),
        }
    }

    fn byte_of(slot: &Arc<Slot>) -> u8 {
        let first = Block { shape: &[1], spans: &[Span { start: 0, step: 1, count: 1 }], element_bytes: 1 };
        slot.show(first).unwrap().pull_all().unwrap()[0]
    }

    fn publish(shared: &Shared, step: u64) {
        shared.publish(step, step, &[step as u8]);
    }

    #[test]
    fn a_request_gets_its_step_or_hears_that_it_has_passed() {
        let shared = shared();
        publish(&shared, 0);
        let (mut one, mut three) = (shared.clone().wait(Wish::From(1)), shared.clone().wait(Wish::From(3)));
        assert_eq!((step_of(poll(&mut one)), step_of(poll(&mut three))), (None, None));
        // The step goes by while the lock is taken.
        let copies = shared.lock();
        publish(&shared, 1);
        drop(copies);
        assert_eq!(step_of(poll(&mut one)), None);
        publish(&shared, 2);
        assert_eq!(step_of(poll(&mut one)), Some(Err(Refused::Passed { step: 2 })));
        assert_eq!(step_of(poll(&mut three)), None);
        publish(&shared, 3);
        assert_eq!(step_of(poll(&mut three)), Some(Ok(3)));
        // A copy serves the readers that request the step at which the program is, and no others.
        assert_eq!(step_of(poll(&mut shared.clone().wait(Wish::From(3)))), Some(Ok(3)));
        publish(&shared, 4);
        assert_eq!(step_of(poll(&mut shared.clone().wait(Wish::From(3)))), Some(Err(Refused::Passed { step: 4 })));
    }

    #[test]
    fn the_newest_or_the_next_step_need_no_number() {
        let shared = shared();
        let (mut newest, mut next) = (shared.clone().wait(Wish::Newest), shared.clone().wait(Wish::Next));
        assert_eq!((step_of(poll(&mut newest)), step_of(poll(&mut next))), (None, None));
        publish(&shared, 0);
        assert_eq!((step_of(poll(&mut newest)), step_of(poll(&mut next))), (Some(Ok(0)), Some(Ok(0))));
        // The newest is there at once while it has a copy. The next is not.
        assert_eq!(step_of(poll(&mut shared.clone().wait(Wish::Newest))), Some(Ok(0)));
        let mut next = shared.clone().wait(Wish::Next);
        assert_eq!(step_of(poll(&mut next)), None);
        // A step goes by without a copy. The one after it will do.
        let copies = shared.lock();
        publish(&shared, 1);
        drop(copies);
        let mut newest = shared.clone().wait(Wish::Newest);
        assert_eq!((step_of(poll(&mut next)), step_of(poll(&mut newest))), (None, None));
        publish(&shared, 2);
        assert_eq!((step_of(poll(&mut next)), step_of(poll(&mut newest))), (Some(Ok(2)), Some(Ok(2))));
    }

    #[test]
    fn a_copy_that_is_read_stays_as_it_is() {
        let shared = shared();
        let mut held = Vec::new();
        for step in 1..=3 {
            let mut waiting = shared.clone().wait(Wish::From(step));
            assert!(poll(&mut waiting).is_pending());
            publish(&shared, step);
            let Poll::Ready(Ok(slot)) = poll(&mut waiting) else { panic!("there is a copy for step {step}") };
            held.push(slot);
        }
        let mut more = shared.clone().wait(Wish::From(4));
        assert!(poll(&mut more).is_pending());
        publish(&shared, 4);
        assert_eq!(step_of(poll(&mut more)), Some(Err(Refused::Busy)));
        assert!(held.iter().map(|slot| slot.step).eq(1..=3));
        held.remove(1);
        let mut more = shared.clone().wait(Wish::From(5));
        assert!(poll(&mut more).is_pending());
        publish(&shared, 5);
        assert_eq!(step_of(poll(&mut more)), Some(Ok(5)));
        assert!(held.iter().map(byte_of).eq([1, 3]));
    }

    #[test]
    fn a_view_that_is_dropped_refuses_all() {
        let shared = shared();
        let (mut waiting, given_up) = (shared.clone().wait(Wish::From(7)), shared.clone().wait(Wish::From(8)));
        assert!(poll(&mut waiting).is_pending());
        drop(given_up);
        shared.close();
        assert!(matches!(step_of(poll(&mut waiting)), Some(Err(Refused::Unknown { .. }))));
        assert!(matches!(step_of(poll(&mut shared.clone().wait(Wish::From(0)))), Some(Err(Refused::Unknown { .. }))));
        assert!(shared.lock().requests.is_empty());
    }
}
