//! Changing a job from outside: parameters, elements, actions, pauses, locks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use farside_inspect::__private::doors::Guest;
use farside_inspect::__private::lock;
use farside_inspect::__private::protocol::{CHANGE_BYTES_MAX, HeldItem, HeldKind, Order, Places, Stayed};
use farside_inspect::__private::spans::runs;
use farside_inspect::{Element, Refused, Role};
use farside_rpc::bulk::Bulk;
use farside_rpc::{CallError, Pending};

use super::area::{Area, At, Piece};
use super::attendance::Attendance;
use super::error::{InspectError, Late};
use super::inspector::{Inspector, failure_of};
use crate::selection::Selection;

/// The pause between two looks whether a program has published its first step.
const FIRST_STEP_NAP: Duration = Duration::from_millis(5);

/// The time, after its deadline, in which a process says which of its workers were late.
const NAMING_TIME: Duration = Duration::from_secs(1);

/// The workers of all processes stay after one step. Dropping it lets them go on.
struct Held {
    guests: Vec<(u32, Guest)>,
    /// The number of the stay in each process.
    numbers: Vec<(u32, u64)>,
    /// The step that all workers have completed. `None` if no worker publishes steps.
    step: Option<u64>,
    _attendance: Arc<Attendance>,
}

impl Drop for Held {
    fn drop(&mut self) {
        for (process, number) in &self.numbers {
            if let Some((_, guest)) = self.guests.iter().find(|(other, _)| other == process) {
                // Without a connection, the stay has ended.
                let _ = guest.door.release(*number);
            }
        }
    }
}

impl Inspector {
    /// Has all workers stay after one step: the first that can be had, or the one after `after`.
    /// `holds` are those that are continued.
    fn stay(
        &self,
        after: Option<u64>,
        stays: &[(u32, u64)],
        is_pause: bool,
        deadline: Instant,
    ) -> Result<Held, InspectError> {
        self.find_doors(deadline)?;
        let guests: Vec<(u32, Guest)> =
            self.guests().iter().map(|(process, guest)| (*process, guest.clone())).collect();
        let attendance = self.attend(&guests)?;
        let mut numbers: BTreeMap<u32, u64> = stays.iter().copied().collect();
        let asked: Vec<_> = guests.iter().map(|(_, guest)| guest.until(deadline).newest()).collect();
        let mut newest = None;
        for ((process, guest), asked) in guests.iter().zip(asked) {
            let step = asked.and_then(Pending::wait).map_err(|error| failure_of(guest, *process, &error))?;
            newest = newest.max(step);
        }
        let (mut lead, mut after) = (1, after);
        while Instant::now() < deadline {
            let step = after.take().unwrap_or_else(|| newest.map_or(0, |newest| newest.saturating_add(lead)));
            match self.attempt_hold(&guests, &mut numbers, (step, is_pause), attendance.number(), deadline)? {
                Ok(step) => {
                    let numbers = guests.iter().map(|(process, _)| (*process, numbers[process])).collect();
                    return Ok(Held { guests, numbers, step, _attendance: attendance });
                }
                Err(passed) => newest = newest.max(Some(passed)),
            }
            lead = (lead * 2).min(1 << 40);
        }
        Err(InspectError::NotHeld { after: self.time(), late: Vec::new() })
    }

    /// Has all workers stay after a step. Returns it, or a step that a worker has passed.
    fn attempt_hold(
        &self,
        guests: &[(u32, Guest)],
        numbers: &mut BTreeMap<u32, u64>,
        (after, is_pause): (u64, bool),
        reader: u64,
        deadline: Instant,
    ) -> Result<Result<Option<u64>, u64>, InspectError> {
        let stay = |(process, guest): &(u32, Guest)| {
            guest.until(deadline).stay(after, numbers.get(process).copied(), is_pause, reader)
        };
        let asked: Vec<_> = guests.iter().map(stay).collect();
        let (mut least, mut most, mut passed) = (None::<u64>, None::<u64>, None);
        let mut expired = Vec::new();
        for ((process, guest), asked) in guests.iter().zip(asked) {
            match asked.and_then(Pending::wait) {
                Ok(Stayed { stay, steps }) => {
                    numbers.insert(*process, stay);
                    if let Some((first, last)) = steps {
                        least = Some(least.map_or(first, |least| least.min(first)));
                        most = most.max(Some(last));
                    }
                }
                Err(CallError::Service(Refused::Passed { step })) => {
                    // This process holds no longer.
                    numbers.remove(process);
                    passed = passed.max(Some(step));
                }
                Err(CallError::Deadline { .. }) => expired.push((*process, guest)),
                Err(error) => return Err(self.failure(*process, guest, error)),
            }
        }
        if !expired.is_empty() {
            return Err(self.not_held(&expired, after, reader));
        }
        let step = passed.max(most);
        Ok(if passed.is_none() && least == most { Ok(step) } else { Err(step.unwrap_or(after)) })
    }

    /// Which workers of these processes did not stay after a step in time.
    fn not_held(&self, processes: &[(u32, &Guest)], after: u64, reader: u64) -> InspectError {
        let until = Instant::now() + NAMING_TIME;
        let asked: Vec<_> = processes.iter().map(|(_, guest)| guest.until(until).awaited(reader)).collect();
        let mut late = Vec::new();
        for ((process, guest), asked) in processes.iter().zip(asked) {
            match asked.and_then(Pending::wait) {
                Ok(awaited) => late.extend(awaited.into_iter().map(|(worker, at)| {
                    let wanted = after.saturating_add(1);
                    Late { worker, process: *process, at: Some(at), wanted }
                })),
                // A process that does not answer has kept the others.
                Err(error) => return failure_of(guest, *process, &error),
            }
        }
        InspectError::NotHeld { after: self.time(), late }
    }

    /// Makes changes at one step of all workers. Returns the last step before them.
    fn change(&self, orders: &[Order], what: impl Fn() -> String) -> Result<Option<u64>, InspectError> {
        let written = |order: &Order| if let Order::Write { bytes, .. } = order { bytes.len() as u64 } else { 0 };
        let bytes = orders.iter().map(written).sum();
        if bytes > CHANGE_BYTES_MAX {
            return Err(InspectError::TooLarge { bytes, max: CHANGE_BYTES_MAX });
        }
        let deadline = Instant::now() + self.time();
        if let Some(paused) = self.paused() {
            match self.change_held(&lock(&paused), orders, &what, deadline) {
                // Another reader has ended the pause.
                Err(InspectError::Refused { refused: Refused::Over, .. }) => self.forget_paused(&paused),
                changed => return changed,
            }
        }
        self.change_held(&self.stay(None, &[], false, deadline)?, orders, what, deadline)
    }

    fn change_held(
        &self,
        held: &Held,
        orders: &[Order],
        what: impl Fn() -> String,
        deadline: Instant,
    ) -> Result<Option<u64>, InspectError> {
        let Held { guests, numbers, step, .. } = held;
        let Some((process, conductor)) = guests.first() else { return Err(InspectError::Nothing { what: what() }) };
        let made = conductor.until(deadline).conduct(numbers.clone(), orders.to_vec());
        let reached = made.and_then(Pending::wait).map_err(|error| self.failure(*process, conductor, error))?;
        if reached == 0 { Err(InspectError::Nothing { what: what() }) } else { Ok(*step) }
    }

    /// Sets a parameter, at all workers that have it and at the same step. Returns the last step
    /// that was published before the change, or `None` if no worker publishes steps.
    ///
    /// All workers stay for a moment: until the slowest has come to the step.
    ///
    /// # Errors
    /// [`InspectError`]: [`Refused::Range`] among others.
    pub fn set(&self, parameter: &str, value: f64) -> Result<Option<u64>, InspectError> {
        let order = Order::Set { name: parameter.into(), value: Some(value) };
        self.change(&[order], || format!("a parameter {parameter:?}"))
    }

    /// Has all workers that have an action run it, at the same step. Returns the last step that was
    /// published before. The action may still run when this returns.
    ///
    /// # Errors
    /// [`InspectError`].
    pub fn act(&self, action: &str) -> Result<Option<u64>, InspectError> {
        self.change(&[Order::Set { name: action.into(), value: None }], || format!("an action {action:?}"))
    }

    /// Asks a probe of one worker, or of all that have it. Returns the workers with their answers.
    ///
    /// # Errors
    /// [`InspectError`]: among others if a worker makes no progress in time.
    pub fn ask(&self, probe: &str, worker: Option<u32>, question: &str) -> Result<Vec<(u32, Vec<u8>)>, InspectError> {
        let deadline = Instant::now() + self.time();
        let info = self.find(probe)?;
        let parts = info.parts.iter().filter(|part| worker.is_none_or(|worker| worker == part.worker));
        let guests = parts.filter_map(|part| Some((part.worker, part.process, self.guest(part.process)?)));
        let asked: Vec<_> = guests
            .map(|(worker, process, guest)| {
                let asked = guest.until(deadline).ask(probe.into(), worker, question.into());
                (worker, process, guest, asked)
            })
            .collect();
        if asked.is_empty() {
            return Err(InspectError::Nothing { what: format!("a probe {probe:?} at the worker") });
        }
        let answer = |(worker, process, guest, asked): (u32, u32, Guest, Result<Pending<_, _>, _>)| {
            let answer = asked.and_then(Pending::wait).map_err(|error| self.failure(process, &guest, error))?;
            Ok((worker, answer))
        };
        asked.into_iter().map(answer).collect()
    }

    /// Has the job pause: all workers stay after one step, and serve each other. `At::Now` and
    /// `At::Next` mean the next step that can be had. While the job is paused, views show the step
    /// by [`At::Now`], and changes by this inspector and its clones are made at once.
    ///
    /// The pause ends when the result is dropped, or when this program ends. Workers that publish
    /// no steps go on meanwhile.
    ///
    /// # Errors
    /// [`InspectError`]: [`Refused::Held`] if the job is paused already;
    /// [`NoSteps`](InspectError::NoSteps) if no worker publishes steps.
    pub fn pause_at(&self, at: At) -> Result<Paused, InspectError> {
        let after = if let At::Step(step) = at { Some(step) } else { None };
        let deadline = Instant::now() + self.time();
        loop {
            let has_views = self.list()?.iter().any(|area| area.role == Role::View);
            if !has_views || Instant::now() >= deadline {
                return Err(InspectError::NoSteps { job: self.job().clone() });
            }
            let held = self.stay(after, &[], true, deadline)?;
            if held.step.is_some() {
                return Ok(Paused::new(self.clone(), held));
            }
            // The program may be about to publish its first step.
            drop(held);
            thread::sleep(FIRST_STEP_NAP);
        }
    }

    /// The stays and locks of readers in the processes of the job.
    fn held(&self, deadline: Instant) -> Result<Vec<(u32, Guest, HeldItem)>, InspectError> {
        self.find_doors(deadline)?;
        let guests = self.guests().clone();
        let mut all = Vec::new();
        for (process, guest) in guests {
            let held = guest.until(deadline).held().and_then(Pending::wait);
            let held = held.map_err(|error| failure_of(&guest, process, &error))?;
            all.extend(held.into_iter().map(|held| (process, guest.clone(), held)));
        }
        Ok(all)
    }

    /// Returns whether the job is paused, by whatever reader, and after which step. There is none
    /// while workers are on their way to it, or if they publish no steps.
    ///
    /// # Errors
    /// [`InspectError`].
    pub fn is_paused(&self) -> Result<Option<Option<u64>>, InspectError> {
        let held = self.held(Instant::now() + self.time())?;
        Ok(held.iter().find(|(_, _, held)| held.kind == HeldKind::Pause).map(|(_, _, held)| held.step))
    }

    /// Returns whether a reader has locked exposed memory.
    ///
    /// # Errors
    /// [`InspectError`].
    pub fn is_locked(&self, name: &str) -> Result<bool, InspectError> {
        let held = self.held(Instant::now() + self.time())?;
        Ok(held.iter().any(|(_, _, held)| is_memory(held, name)))
    }

    /// Ends the pause of the job, whichever reader has made it. Returns whether there was one.
    ///
    /// # Errors
    /// [`InspectError`].
    pub fn resume(&self) -> Result<bool, InspectError> {
        self.end(|held| held.kind == HeldKind::Pause)
    }

    /// Ends the locks of exposed memory, whichever reader has taken them. Returns whether there was
    /// one.
    ///
    /// # Errors
    /// [`InspectError`].
    pub fn unlock(&self, name: &str) -> Result<bool, InspectError> {
        self.end(|held| is_memory(held, name))
    }

    fn end(&self, is_meant: impl Fn(&HeldItem) -> bool) -> Result<bool, InspectError> {
        let held = self.held(Instant::now() + self.time())?;
        let mut any = false;
        for (process, guest, held) in held.iter().filter(|(_, _, held)| is_meant(held)) {
            guest.door.release(held.number).map_err(|error| failure_of(guest, *process, &error))?;
            any = true;
        }
        Ok(any)
    }

    /// Lets a job that is paused, by whatever reader, go on until it has completed the next step.
    /// Returns that; `None` if the job is not paused.
    ///
    /// # Errors
    /// [`InspectError`].
    pub fn step_on(&self) -> Result<Option<u64>, InspectError> {
        let deadline = Instant::now() + self.time();
        let held = self.held(deadline)?;
        let numbers: Vec<(u32, u64)> = held
            .iter()
            .filter(|(_, _, held)| held.kind == HeldKind::Pause)
            .map(|(process, _, held)| (*process, held.number))
            .collect();
        let step = held.iter().filter_map(|(_, _, held)| held.step).max();
        let Some(step) = step.filter(|_| !numbers.is_empty()) else { return Ok(None) };
        let mut moved = self.stay(Some(step.saturating_add(1)), &numbers, true, deadline)?;
        // The pause remains with its reader.
        moved.numbers.retain(|number| !numbers.contains(number));
        Ok(moved.step)
    }

    /// Locks exposed memory, all workers' parts of it: neither the programs nor others change it.
    /// It ends when the result is dropped, and after 10 s in any case. Meanwhile this program
    /// writes it by [`Area::put_locked`]. All reads wait, its own too.
    ///
    /// # Errors
    /// [`InspectError`].
    pub fn lock(&self, name: &str) -> Result<Locked, InspectError> {
        let deadline = Instant::now() + self.time();
        let info = self.find(name)?;
        let guests: Vec<(u32, Guest)> =
            self.guests().iter().map(|(process, guest)| (*process, guest.clone())).collect();
        let attendance = self.attend(&guests)?;
        let reader = attendance.number();
        let mut locked = Locked { guests: Vec::new(), numbers: BTreeMap::new(), _attendance: attendance };
        // One after the other, in the order of the workers, so that two readers cannot wait for
        // each other.
        for part in &info.parts {
            let Some(guest) = self.guest(part.process) else { continue };
            let taken = guest.until(deadline).lock(name.into(), part.worker, reader).and_then(Pending::wait);
            let number = taken.map_err(|error| self.failure(part.process, &guest, error))?;
            locked.numbers.insert(part.worker, number);
            locked.guests.push((guest, number));
        }
        Ok(locked)
    }
}

/// Exposed memory that is locked. Dropping it unlocks the memory.
#[derive(Debug)]
#[must_use = "dropping it unlocks the memory"]
pub struct Locked {
    guests: Vec<(Guest, u64)>,
    /// The lock of each worker.
    numbers: BTreeMap<u32, u64>,
    _attendance: Arc<Attendance>,
}

impl Drop for Locked {
    fn drop(&mut self) {
        for (guest, number) in &self.guests {
            // Without a connection, the lock has ended.
            let _ = guest.door.release(*number);
        }
    }
}

/// A job that is paused. Dropping it lets the job go on.
#[must_use = "dropping it lets the job go on"]
pub struct Paused {
    inspector: Inspector,
    held: Arc<Mutex<Held>>,
}

impl Paused {
    fn new(inspector: Inspector, held: Held) -> Self {
        let held = Arc::new(Mutex::new(held));
        *lock(inspector.paused_stay()) = PausedStay(Some(held.clone()));
        Self { inspector, held }
    }

    /// The step that all workers have completed that publish steps. There is always one.
    #[must_use]
    pub fn step(&self) -> Option<u64> {
        lock(&self.held).step
    }

    /// Lets the job go on until it has completed the next step. Returns that.
    ///
    /// # Errors
    /// [`InspectError`].
    pub fn go_to_next(&self) -> Result<Option<u64>, InspectError> {
        let deadline = Instant::now() + self.inspector.time();
        let mut held = lock(&self.held);
        let next = held.step.map(|step| step.saturating_add(1));
        let moved = self.inspector.stay(next, &held.numbers, true, deadline);
        if let Err(InspectError::Refused { refused: Refused::Over, .. }) = moved {
            self.inspector.forget_paused(&self.held);
        }
        let mut moved = moved?;
        held.step = moved.step;
        // The stay goes on under the same numbers, or under new ones.
        std::mem::swap(&mut held.numbers, &mut moved.numbers);
        moved.numbers.retain(|number| !held.numbers.contains(number));
        Ok(held.step)
    }

    /// Returns whether it is known that another reader has ended the pause.
    pub(crate) fn has_ended(&self) -> bool {
        !lock(self.inspector.paused_stay()).0.as_ref().is_some_and(|held| Arc::ptr_eq(held, &self.held))
    }
}

impl std::fmt::Debug for Paused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Paused").field("step", &self.step()).finish_non_exhaustive()
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.inspector.forget_paused(&self.held);
    }
}

/// The stay of a pause, for changes by the same inspector.
#[derive(Clone, Default)]
pub(super) struct PausedStay(Option<Arc<Mutex<Held>>>);

impl std::fmt::Debug for PausedStay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PausedStay").field(&self.0.is_some()).finish()
    }
}

impl Inspector {
    fn paused(&self) -> Option<Arc<Mutex<Held>>> {
        lock(self.paused_stay()).0.clone()
    }

    /// Says to doors that this program is there, until the result is dropped.
    fn attend(&self, guests: &[(u32, Guest)]) -> Result<Arc<Attendance>, InspectError> {
        let doors: Vec<_> = guests.iter().map(|(_, guest)| guest.door.clone()).collect();
        Attendance::new(doors, self.next_number()).map_err(|error| InspectError::Silent {
            process: guests.first().map_or(0, |(process, _)| *process),
            system_process: 0,
            cause: error.to_string(),
        })
    }

    /// Forgets a pause, unless there is another one by now.
    fn forget_paused(&self, held: &Arc<Mutex<Held>>) {
        lock(self.paused_stay()).0.take_if(|paused| Arc::ptr_eq(paused, held));
    }
}

impl<T> Area<T> {
    /// Writes elements, as bytes in row-major order. Returns the last step that was published
    /// before the change; `None` if no worker publishes steps.
    ///
    /// | the area | when, and how |
    /// |---|---|
    /// | a view | at one step of all workers, all of it |
    /// | memory of one worker | at once, as a whole |
    /// | memory of several workers | at one step of all workers, each part as a whole |
    /// | memory that this program has locked | at once, all of it |
    /// | a parameter | as [`Inspector::set`] |
    ///
    /// # Errors
    /// [`InspectError`]: [`Refused::ReadOnly`] if the program did not declare the area writable.
    pub fn put_raw(&self, selection: &Selection, bytes: &[u8]) -> Result<Option<u64>, InspectError> {
        self.put_locked(selection, bytes, None)
    }

    /// The same, of memory that this program has locked.
    ///
    /// # Errors
    /// [`InspectError`].
    pub fn put_locked(
        &self,
        selection: &Selection,
        bytes: &[u8],
        locked: Option<&Locked>,
    ) -> Result<Option<u64>, InspectError> {
        let deadline = Instant::now() + self.inspector.time();
        let selected = selection.of(&self.info.shape)?;
        let counts: Vec<u64> = selected.spans.iter().map(|span| span.count).collect();
        let element_bytes = self.info.element.bytes();
        let total = counts.iter().try_fold(1_u64, |product, count| product.checked_mul(*count));
        let expected = total.and_then(|total| total.checked_mul(element_bytes as u64)).unwrap_or(u64::MAX);
        if expected != bytes.len() as u64 {
            let name = self.info.name.clone();
            return Err(InspectError::Length { name, given: bytes.len() as u64, expected });
        }
        if let (Role::Parameter { .. }, Ok(value)) = (self.info.role, bytes.try_into()) {
            return self.inspector.set(&self.info.name, f64::from_ne_bytes(value));
        }
        let pieces = self.all_pieces(&selected)?;
        let part = |piece: &Piece| {
            let mut own = Vec::with_capacity(piece.bytes);
            runs(&counts, &piece.block, element_bytes, |offset, length| {
                own.extend_from_slice(&bytes[offset..offset + length]);
            });
            let places = Places { name: self.info.name.clone(), worker: piece.worker, spans: piece.spans.clone() };
            (places, own)
        };
        if self.info.role == Role::View {
            let order = |piece| {
                let (places, bytes) = part(piece);
                Order::Write { places, bytes }
            };
            let orders: Vec<Order> = pieces.iter().map(order).collect();
            return self.inspector.change(&orders, || format!("a view {:?}", self.info.name));
        }
        let put = |piece: &Piece| {
            let (places, own) = part(piece);
            let lock = locked.and_then(|locked| locked.numbers.get(&piece.worker).copied());
            piece.guest.until(deadline).put(places, lock, Bulk::from(own))
        };
        // Each worker's part is written as a whole; all of them at one step if all workers stay.
        let must_hold = pieces.len() > 1 && locked.is_none() && self.inspector.paused().is_none();
        let held = must_hold.then(|| self.inspector.stay(None, &[], false, deadline)).transpose()?;
        let asked: Vec<_> = pieces.iter().map(put).collect();
        let mut newest = None;
        for (piece, asked) in pieces.iter().zip(asked) {
            let step = asked.and_then(Pending::wait).map_err(|error| self.failure(piece, error))?;
            newest = newest.max(step);
        }
        Ok(held.as_ref().and_then(|held| held.step).or(newest))
    }
}

fn is_memory(held: &HeldItem, wanted: &str) -> bool {
    matches!(&held.kind, HeldKind::Memory { name, .. } if name == wanted)
}

impl<T: Element> Area<T> {
    /// Writes elements, in row-major order: see [`put_raw`](Area::put_raw).
    ///
    /// # Errors
    /// [`InspectError`].
    pub fn put(&self, selection: &Selection, values: &[T]) -> Result<Option<u64>, InspectError> {
        self.put_raw(selection, bytemuck::cast_slice(values))
    }
}
