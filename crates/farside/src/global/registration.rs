//! Ordinary memory under global addresses: heap, stack and mappings, registered at any time.
//!
//! | memory | registered by | others | back by |
//! |---|---|---|---|
//! | a vector | [`Worker::register`] | read and write | [`Segment::deregister`] |
//! | the same | [`Worker::register_read_only`] | read | [`ReadOnlySegment::deregister`] |
//! | a slice, also on the stack | [`Worker::lend`] | read and write | the end of the closure |
//! | the same | [`Worker::lend_read_only`] | read | the end of the closure |
//! | anything | [`Worker::register_raw`] | as is said | [`RawSegment::deregister`] |
//!
//! Registering is a matter of this process alone. What is taken back has an address no more: it is
//! [stale](super::AddressFault::Stale) for all, and the memory is its owner's again when everybody who used it has let go, or is lost.

mod own;

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;
use farside_fabric::UserMemory;
use farside_fabric::region::Held;

pub(crate) use self::own::OwnSegments;
use self::own::Registration;
use super::objects::RacySlice;
use super::slice::GlobalSlice;
use crate::error::{Error, Result};
use crate::memory::address::GlobalAddress;
use crate::runtime::worker::Worker;
use farside_launch::settings::FOREVER;

impl Worker {
    /// Gives a vector's memory a global address, for others to read and write. It stays where it is, and comes back by
    /// [`deregister`](Segment::deregister).
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let segment = me.register(vec![0.0_f64; 1000])?;
    /// // Everybody writes into worker 0's; worker 0 itself reads by `local`.
    /// let first = me.broadcast(WorkerId::new(0), Some(segment.slice().start()))?;
    /// first.add(me.id().index())?.put(me, 0.5)?;
    /// me.barrier()?;
    /// assert!(me.id().number() > 0 || segment.local().get(0) == 0.5);
    /// let values = segment.deregister(me)?;
    /// # let _ = values;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Memory that was registered so is *private*: nobody can map it. Processes of the same machine reach it by system calls (which need
    /// no waiting, so that functions which were called may put and get there), where the system allows that; otherwise, and for atomic changes, the
    /// owner's service thread does what is asked. Over a network puts and gets of more than a word are libfabric's own, of memory that is
    /// [lent](Self::lend) its owner's. For memory that others use a lot there is [`allocate`](Self::allocate). A put of any length may be seen in pieces.
    ///
    /// *Cost*: some microseconds, and no message. A process has 1023 regions with addresses, those that memory of all kinds lies in; a slot's addresses are told from those of its last
    /// fifteen uses, and slots are used in turn.
    ///
    /// ACP's `acp_register_memory`.
    ///
    /// # Errors
    /// [`Error::NoAddress`] when the process has too many regions, or the memory more than 4 GiB, which is what an address reaches: register more than
    /// that in parts of at most 4 GiB each. [`Error::Fabric`] for a vector without bytes, and when libfabric registers no more. Nothing stays
    /// registered then.
    pub fn register<T: Pod + Send>(&self, values: Vec<T>) -> Result<Segment<T>> {
        Ok(Segment(Owned::new(self, values, true)?))
    }

    /// The same for others to read only. The values stay readable here, as a slice.
    ///
    /// # Errors
    /// Those of [`register`](Self::register).
    pub fn register_read_only<T: Pod + Send>(&self, values: Vec<T>) -> Result<ReadOnlySegment<T>> {
        Ok(ReadOnlySegment(Owned::new(self, values, false)?))
    }

    /// Gives memory that is borrowed (a slice of the heap, the stack, anywhere) a global address, for others to read and write as long as `body` runs.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let mut answers = [0_u64; 100];
    /// me.lend(&mut answers, |answers| {
    ///     let first = me.broadcast(WorkerId::new(0), Some(answers.slice().start()))?;
    ///     first.add(me.id().index())?.put(me, 42)?;
    ///     me.barrier()
    /// })??;
    /// assert!(me.id().number() > 0 || answers[0] == 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// When `body` has returned (or panics), the address is taken back, and this waits until everybody who used it has let go or is
    /// lost. That takes a message to each and back, which their service threads see to. It has no deadline: the memory cannot be the caller's again before.
    /// A process that is stopped (by a signal, or a debugger) holds it up until it goes on, is killed, or the job ends: what it has begun takes effect when it goes on.
    /// Where that must not be, [`register`](Self::register) a vector, which can be had back [within a time](Segment::deregister_within) or later.
    ///
    /// # Errors
    /// Those of [`register`](Self::register), before `body` runs (a longer slice is [split](slice::split_at_mut), and one part lent in the body of the other); [`Error::InHandler`].
    pub fn lend<T: Pod, R>(&self, values: &mut [T], body: impl FnOnce(&LentSegment<'_, T>) -> R) -> Result<R> {
        self.not_in_handler("lending memory")?;
        let (base, length) = (NonNull::from(&mut *values).cast::<T>(), values.len());
        // SAFETY: the slice is borrowed for longer than this function runs, and used by nobody else; the drop of `Loan` waits until it is over.
        let memory = unsafe { UserMemory::borrowed(base.cast(), length * size_of::<T>()) };
        let loan = Loan(Registration::new(self.process_handle(), Arc::new(memory))?);
        // SAFETY: the slice is there, and aligned, and accessed by racy copies only until this returns.
        let local = unsafe { RacySlice::new(base.as_ptr(), length) };
        Ok(body(&LentSegment { slice: loan.0.address().cast().slice(length), local }))
    }

    /// The same for others to read only: what they get is the address.
    ///
    /// # Errors
    /// Those of [`lend`](Self::lend).
    pub fn lend_read_only<T: Pod, R>(&self, values: &[T], body: impl FnOnce(GlobalSlice<T>) -> R) -> Result<R> {
        self.not_in_handler("lending memory")?;
        let (base, bytes) = (NonNull::from(values).cast(), size_of_val(values));
        // SAFETY: the slice is borrowed for longer than this function runs, so that nobody writes it, and it is registered to be read only;
        // the drop of `Loan` waits until that is over.
        let memory = unsafe { UserMemory::borrowed_read_only(base, bytes) };
        let loan = Loan(Registration::new(self.process_handle(), Arc::new(memory))?);
        Ok(body(loan.0.address().cast().slice(values.len())))
    }

    /// Gives any memory of this process a global address.
    ///
    /// # Errors
    /// Those of [`register`](Self::register).
    ///
    /// # Safety
    /// From now on until [`deregister`](RawSegment::deregister) has returned `Ok`, the bytes are mapped, may be read (and written, by [`Rights::Write`]), and the
    /// program accesses them by racy copies and atomics only, as through [`RacySlice`] or a global address: no reference to them is used. With
    /// [`Rights::Read`] shared references do no harm while nobody writes.
    pub unsafe fn register_raw(&self, base: NonNull<u8>, bytes: usize, rights: Rights) -> Result<RawSegment> {
        let memory = match rights {
            // SAFETY: the caller's promises are those that are asked for.
            Rights::Write => unsafe { UserMemory::borrowed(base, bytes) },
            // SAFETY: as above.
            Rights::Read => unsafe { UserMemory::borrowed_read_only(base, bytes) },
        };
        Ok(RawSegment { registration: Registration::new(self.process_handle(), Arc::new(memory))?, bytes })
    }
}

/// What others may do to registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rights {
    /// Read it.
    Read,
    /// Read and write it.
    Write,
}

/// A vector that others may read and write: [`Worker::register`].
///
/// When it is dropped, its address is taken back, and its memory goes when everybody has let go of it.
pub struct Segment<T: Pod + Send>(Owned<T>);

impl<T: Pod + Send> Segment<T> {
    /// Where the values lie, for anybody.
    pub fn slice(&self) -> GlobalSlice<T> {
        self.0.slice()
    }

    /// The values, for this process.
    pub fn local(&self) -> RacySlice<'_, T> {
        self.0.local()
    }

    /// Takes the address back and returns the vector, when everybody who used it has let go or is lost. Over libfabric it is a copy if somebody is
    /// lost who may still write there; the memory itself stays in quarantine then.
    ///
    /// *Cost*: a message to each of them and back, which their service threads see to.
    ///
    /// # Errors
    /// [`Error::Deadline`] when somebody does not let go in time, [`Error::InHandler`]: the address is taken back, and the memory goes when they have.
    /// Who wants it back all the same calls [`deregister_within`](Self::deregister_within).
    pub fn deregister(self, me: &Worker) -> Result<Vec<T>> {
        Ok(self.deregister_within(me, me.default_deadline())?)
    }

    /// The same for at most so long. When somebody does not let go in that time (it may be stopped, or very busy), the segment comes back, to be
    /// tried again, now or later. Its address is taken back at the first try, and its values stay readable [here](Self::local).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let mut segment = me.register(vec![0_u64; 1000])?;
    /// let values = loop {
    ///     match segment.deregister_within(me, Duration::from_millis(100)) {
    ///         Ok(values) => break values,
    ///         Err(held) => segment = held.segment,
    ///     }
    ///     // Somebody has not let go. There may be other things to do meanwhile.
    ///     me.progress()?;
    /// };
    /// # let _ = values;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Deadline`], [`Error::InHandler`], with the segment.
    pub fn deregister_within(self, me: &Worker, time: Duration) -> Result<Vec<T>, StillHeld<Self>> {
        self.0.deregister(me, time).map_err(|held| StillHeld { error: held.error, segment: Self(held.segment) })
    }
}

/// A vector that others may read: [`Worker::register_read_only`]. Here it is the slice that it is.
///
/// When it is dropped, its address is taken back, and its memory goes when everybody has let go of it.
pub struct ReadOnlySegment<T: Pod + Send>(Owned<T>);

impl<T: Pod + Send> ReadOnlySegment<T> {
    /// Where the values lie, for anybody.
    pub fn slice(&self) -> GlobalSlice<T> {
        self.0.slice()
    }

    /// Takes the address back and returns the vector, when everybody who used it has let go or is lost.
    ///
    /// # Errors
    /// Those of [`Segment::deregister`].
    pub fn deregister(self, me: &Worker) -> Result<Vec<T>> {
        Ok(self.deregister_within(me, me.default_deadline())?)
    }

    /// The same for at most so long: [`Segment::deregister_within`].
    ///
    /// # Errors
    /// Those that are named there.
    pub fn deregister_within(self, me: &Worker, time: Duration) -> Result<Vec<T>, StillHeld<Self>> {
        self.0.deregister(me, time).map_err(|held| StillHeld { error: held.error, segment: Self(held.segment) })
    }
}

impl<T: Pod + Send> Deref for ReadOnlySegment<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the vector's values are there as long as this is kept, and nobody writes them: others may only read, and so may we.
        unsafe { std::slice::from_raw_parts(self.0.base(), self.0.length) }
    }
}

/// Memory that is lent: [`Worker::lend`].
pub struct LentSegment<'a, T> {
    slice: GlobalSlice<T>,
    local: RacySlice<'a, T>,
}

impl<'a, T: Pod> LentSegment<'a, T> {
    /// Where the values lie, for anybody.
    pub fn slice(&self) -> GlobalSlice<T> {
        self.slice
    }

    /// The values, for this process.
    pub fn local(&self) -> RacySlice<'a, T> {
        self.local
    }
}

/// Memory whose address is taken back and that somebody has not let go of in time: [`Segment::deregister_within`].
///
/// Converts into [`Error`] with `?`, and then the memory goes when they have.
#[derive(Debug)]
pub struct StillHeld<S> {
    /// Why it is not back.
    pub error: Error,
    /// The memory, to be tried again.
    pub segment: S,
}

impl<S> From<StillHeld<S>> for Error {
    fn from(held: StillHeld<S>) -> Self {
        held.error
    }
}

impl<S> fmt::Display for StillHeld<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<S: fmt::Debug> std::error::Error for StillHeld<S> {}

/// Memory of any kind under a global address: [`Worker::register_raw`].
///
/// When it is dropped, its address is taken back, and nothing tells when others have let go of it.
pub struct RawSegment {
    registration: Registration,
    bytes: usize,
}

impl RawSegment {
    /// Where it begins, for anybody.
    pub fn address(&self) -> GlobalAddress {
        self.registration.address()
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the address back, and waits until everybody who used it has let go or is lost. May be called again after an error.
    ///
    /// # Errors
    /// [`Error::Deadline`] when somebody does not let go in time; [`Error::InHandler`].
    pub fn deregister(&mut self, me: &Worker) -> Result<()> {
        self.deregister_within(me, me.default_deadline())
    }

    /// The same for at most so long.
    ///
    /// # Errors
    /// Those of [`deregister`](Self::deregister).
    pub fn deregister_within(&mut self, me: &Worker, time: Duration) -> Result<()> {
        take_back(&mut self.registration, me, time)
    }
}

impl Drop for RawSegment {
    fn drop(&mut self) {
        self.registration.withdraw();
    }
}

/// A vector, given away, and its registration.
struct Owned<T: Pod + Send> {
    memory: Arc<UserMemory>,
    length: usize,
    /// Boxed, since all of this travels in an error, too.
    registration: Box<Registration>,
    of: PhantomData<T>,
}

impl<T: Pod + Send> Owned<T> {
    fn new(me: &Worker, values: Vec<T>, is_writable: bool) -> Result<Self> {
        let held = Held::new(values);
        let (base, length) = (held.base().cast(), held.len());
        // SAFETY: the vector is taken apart, and there until it is put together again or dropped. Meanwhile it is looked at by racy copies only,
        // or, where others may only read, as a slice.
        let memory = unsafe { UserMemory::owned_by(Box::new(held), base, length * size_of::<T>()) };
        let memory = Arc::new(if is_writable { memory } else { memory.read_only() });
        let registration = Box::new(Registration::new(me.process_handle(), memory.clone())?);
        Ok(Self { memory, length, registration, of: PhantomData })
    }

    fn base(&self) -> *mut T {
        self.memory.base().cast().as_ptr()
    }

    fn slice(&self) -> GlobalSlice<T> {
        self.registration.address().cast().slice(self.length)
    }

    fn local(&self) -> RacySlice<'_, T> {
        // SAFETY: the vector is there, aligned, as long as this is kept, and nobody else has it as a vector.
        unsafe { RacySlice::new(self.base(), self.length) }
    }

    fn deregister(mut self, me: &Worker, time: Duration) -> Result<Vec<T>, StillHeld<Self>> {
        if let Err(error) = take_back(&mut self.registration, me, time) {
            return Err(StillHeld { error, segment: self });
        }
        Ok(match self.memory.take_holder().and_then(|holder| holder.downcast::<Held<T>>().ok()) {
            // SAFETY: the registration is over, and any bytes are values.
            Some(held) => unsafe { held.into_vec() },
            // In quarantine, since somebody is lost who may still write there: what comes now is not in the values.
            None => self.local().to_vec(),
        })
    }
}

impl<T: Pod + Send> Drop for Owned<T> {
    fn drop(&mut self) {
        self.registration.leave(self.memory.clone());
    }
}

/// Withdraws a registration, and waits until it is over.
fn take_back(registration: &mut Registration, me: &Worker, after: Duration) -> Result<()> {
    registration.withdraw();
    me.not_in_handler("taking registered memory back")?;
    registration.withdraw().watch(&**me.process_handle().transport(), me.now() + after.min(FOREVER));
    match registration.is_over() {
        true => Ok(()),
        false => Err(Error::Deadline { doing: "waiting for others to let go of registered memory", after }),
    }
}

/// Memory that is not its owner's again before its registration is over.
struct Loan(Registration);

impl Drop for Loan {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<T: Pod + Send> fmt::Debug for Segment<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.slice().fmt(f)
    }
}

impl<T: Pod + Send> fmt::Debug for ReadOnlySegment<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.slice().fmt(f)
    }
}

impl<T> fmt::Debug for LentSegment<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.slice.fmt(f)
    }
}

impl fmt::Debug for RawSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {}", self.bytes, self.address())
    }
}
