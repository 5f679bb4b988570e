//! Ordinary memory under global addresses: heap, stack and mappings, registered at any time.
//!
//! | memory | registered by | others | back by |
//! |---|---|---|---|
//! | a vector | [`Worker::register`](crate::RegisterMemory::register) | read and write | [`Segment::deregister`] |
//! | the same | [`Worker::register_read_only`](crate::RegisterMemory::register_read_only) | read | [`ReadOnlySegment::deregister`] |
//! | a slice, also on the stack | [`Worker::lend`](crate::RegisterMemory::lend) | read and write | the end of the closure |
//! | the same | [`Worker::lend_read_only`](crate::RegisterMemory::lend_read_only) | read | the end of the closure |
//! | anything | [`Worker::register_raw`] | as is said | [`RawSegment::deregister`] |
//!
//! Registering involves this process alone. When memory is taken back, its address is
//! [stale](super::AddressFault::Stale) for all workers. The memory belongs to its owner again when
//! every process that used it has released it or is lost.

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
use super::local_bytes::{Handles, LocalBytes};
use super::objects::RacySlice;
use super::slice::GlobalSlice;
use crate::error::{Error, Result};
use crate::memory::address::GlobalAddress;
use crate::runtime::observer::Watched;
use crate::runtime::worker::Worker;

impl Worker {
    pub(crate) fn register<T: Pod + Send>(&self, values: Vec<T>) -> Result<Segment<T>> {
        Ok(Segment(Owned::new(self, values, true)?))
    }

    pub(crate) fn register_read_only<T: Pod + Send>(&self, values: Vec<T>) -> Result<ReadOnlySegment<T>> {
        Ok(ReadOnlySegment(Owned::new(self, values, false)?))
    }

    pub(crate) fn lend<T: Pod, R>(&self, values: &mut [T], body: impl FnOnce(&LentSegment<'_, T>) -> R) -> Result<R> {
        self.not_in_handler("lending memory")?;
        let (base, length) = (NonNull::from(&mut *values).cast::<T>(), values.len());
        // SAFETY: the slice is borrowed for longer than this function runs, and no other code uses
        // it meanwhile; dropping the `Loan` waits until the registration is over.
        let memory = unsafe { UserMemory::borrowed(base.cast(), length * size_of::<T>()) };
        let loan = Loan(Registration::new(self.process_handle(), Arc::new(memory))?);
        // SAFETY: the slice exists, is aligned, and is accessed only by racy copies until this
        // function returns.
        let local = unsafe { RacySlice::new(base.as_ptr(), length, loan.0.watched()) };
        Ok(body(&LentSegment { slice: loan.0.address().cast().slice(length), local }))
    }

    pub(crate) fn lend_read_only<T: Pod, R>(&self, values: &[T], body: impl FnOnce(GlobalSlice<T>) -> R) -> Result<R> {
        self.not_in_handler("lending memory")?;
        let (base, bytes) = (NonNull::from(values).cast(), size_of_val(values));
        // SAFETY: the slice is borrowed for longer than this function runs, so no code of this
        // process writes it, and it is registered as read-only; dropping the `Loan` waits until
        // that is over.
        let memory = unsafe { UserMemory::borrowed_read_only(base, bytes) };
        let loan = Loan(Registration::new(self.process_handle(), Arc::new(memory))?);
        Ok(body(loan.0.address().cast().slice(values.len())))
    }

    /// Gives any memory of this process a global address.
    ///
    /// # Errors
    /// [`MemoryError::NoAddress`](crate::memory::MemoryError::NoAddress) if the process has too
    /// many regions; [`Error::Fabric`] if the memory has no bytes, or libfabric registers no more.
    /// Nothing stays registered then.
    ///
    /// # Safety
    /// From now on until [`deregister`](RawSegment::deregister) has returned `Ok`, the bytes are
    /// mapped and may be read (and written, with [`Rights::Write`]). The program accesses them only
    /// by racy copies and atomics, as through [`RacySlice`] or a global address, and uses no
    /// reference to them. With [`Rights::Read`], shared references are allowed while no code writes
    /// the bytes.
    pub unsafe fn register_raw(&self, base: NonNull<u8>, bytes: usize, rights: Rights) -> Result<RawSegment> {
        let memory = match rights {
            // SAFETY: the caller makes the promises that are required here.
            Rights::Write => unsafe { UserMemory::borrowed(base, bytes) },
            // SAFETY: the caller makes the promises that are required here.
            Rights::Read => unsafe { UserMemory::borrowed_read_only(base, bytes) },
        };
        Ok(RawSegment { registration: Registration::new(self.process_handle(), Arc::new(memory))?, bytes })
    }
}

/// The rights of other workers to registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rights {
    /// Other workers may read the memory.
    Read,
    /// Other workers may read and write the memory.
    Write,
}

/// A vector that other workers may read and write:
/// [`Worker::register`](crate::RegisterMemory::register).
///
/// Dropping it takes the address back; the memory is freed when all processes have released it.
pub struct Segment<T: Pod + Send>(Owned<T>);

impl<T: Pod + Send> Segment<T> {
    /// Returns the global slice of the values, for any worker.
    pub fn slice(&self) -> GlobalSlice<T> {
        self.0.slice()
    }

    /// Returns the values, for this process.
    pub fn local(&self) -> RacySlice<'_, T> {
        self.0.local(self.0.registration.watched())
    }

    /// Returns the values as bytes, for all threads of this process.
    pub fn local_bytes(&self) -> LocalBytes {
        let (base, bytes) = (self.0.base().cast(), (self.0.length * size_of::<T>()) as u64);
        // SAFETY: the memory of the vector exists while `memory` is kept, and no code has it as a
        // vector before `deregister`, which takes the handles back first.
        unsafe { self.0.handles.add(base, bytes, self.0.memory.clone()) }
    }

    /// Takes the address back, and returns the vector when every process that used it has released
    /// it or is lost. Over libfabric, the result is a copy if a lost process may still write to the
    /// memory, which then stays in quarantine.
    ///
    /// *Cost*: a message to each of these processes and back, which their service threads handle.
    ///
    /// # Errors
    /// [`Error::Deadline`] if a process does not release the memory in time; [`Error::InHandler`].
    /// The address is taken back, and the memory is freed when all have released it. To keep the
    /// memory, call [`deregister_within`](Self::deregister_within) instead.
    pub fn deregister(self, me: &Worker) -> Result<Vec<T>> {
        Ok(self.deregister_within(me, me.default_deadline())?)
    }

    /// Like [`deregister`](Self::deregister), for at most `time`. If a process does not release the
    /// memory in that time (it may be stopped, or very busy), the error has the segment, to be
    /// tried again. Its address is taken back at the first try, and its values stay readable
    /// [here](Self::local).
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
    ///     // A process has not released it yet. Do something else meanwhile.
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

/// A vector that other workers may read:
/// [`Worker::register_read_only`](crate::RegisterMemory::register_read_only). In this process it is
/// a slice.
///
/// Dropping it takes the address back; the memory is freed when all processes have released it.
pub struct ReadOnlySegment<T: Pod + Send>(Owned<T>);

impl<T: Pod + Send> ReadOnlySegment<T> {
    /// Returns the global slice of the values, for any worker.
    pub fn slice(&self) -> GlobalSlice<T> {
        self.0.slice()
    }

    /// Takes the address back, and returns the vector when every process that used it has released
    /// it or is lost.
    ///
    /// # Errors
    /// [`Error::Deadline`] if a process does not release the memory in time; [`Error::InHandler`]
    /// in a handler. The address is taken back, and the memory is freed when all have released it.
    pub fn deregister(self, me: &Worker) -> Result<Vec<T>> {
        Ok(self.deregister_within(me, me.default_deadline())?)
    }

    /// Like [`deregister`](Self::deregister), for at most `time`: see
    /// [`Segment::deregister_within`].
    ///
    /// # Errors
    /// With the segment: [`Error::Deadline`] if a process does not release the memory in time;
    /// [`Error::InHandler`] in a handler.
    pub fn deregister_within(self, me: &Worker, time: Duration) -> Result<Vec<T>, StillHeld<Self>> {
        self.0.deregister(me, time).map_err(|held| StillHeld { error: held.error, segment: Self(held.segment) })
    }
}

impl<T: Pod + Send> Deref for ReadOnlySegment<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the vector's values exist as long as `self`, and no code writes them: other
        // processes may only read, and so may this one.
        unsafe { std::slice::from_raw_parts(self.0.base(), self.0.length) }
    }
}

/// Memory that is lent: [`Worker::lend`](crate::RegisterMemory::lend).
pub struct LentSegment<'a, T> {
    slice: GlobalSlice<T>,
    local: RacySlice<'a, T>,
}

impl<'a, T: Pod> LentSegment<'a, T> {
    /// Returns the global slice of the values, for any worker.
    pub fn slice(&self) -> GlobalSlice<T> {
        self.slice
    }

    /// Returns the values, for this process.
    pub fn local(&self) -> RacySlice<'a, T> {
        self.local
    }
}

/// Memory whose address was taken back, and that a process has not released in time:
/// [`Segment::deregister_within`].
///
/// Converts into [`Error`] with `?`; the memory is then freed when all processes have released it.
#[derive(Debug)]
pub struct StillHeld<S> {
    /// The reason.
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
/// Dropping it takes the address back. The program does not learn then when other processes have
/// released the memory.
pub struct RawSegment {
    registration: Registration,
    bytes: usize,
}

impl RawSegment {
    /// Returns the address of its first byte, for any worker.
    pub fn address(&self) -> GlobalAddress {
        self.registration.address()
    }

    /// Returns its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the address back, and waits until every process that used it has released it or is
    /// lost. May be called again after an error.
    ///
    /// # Errors
    /// [`Error::Deadline`] if a process does not release the memory in time; [`Error::InHandler`].
    pub fn deregister(&mut self, me: &Worker) -> Result<()> {
        self.deregister_within(me, me.default_deadline())
    }

    /// Like [`deregister`](Self::deregister), for at most `time`.
    ///
    /// # Errors
    /// [`Error::Deadline`] if a process does not release the memory in time; [`Error::InHandler`]
    /// in a handler.
    pub fn deregister_within(&mut self, me: &Worker, time: Duration) -> Result<()> {
        take_back(&mut self.registration, me, time)
    }
}

impl Drop for RawSegment {
    fn drop(&mut self) {
        self.registration.withdraw();
    }
}

/// A vector that was handed over, and its registration.
struct Owned<T: Pod + Send> {
    memory: Arc<UserMemory>,
    length: usize,
    /// Boxed, since this struct is also part of an error.
    registration: Box<Registration>,
    /// The handles that other threads have.
    handles: Box<Handles>,
    of: PhantomData<T>,
}

impl<T: Pod + Send> Owned<T> {
    fn new(me: &Worker, values: Vec<T>, is_writable: bool) -> Result<Self> {
        let held = Held::new(values);
        let (base, length) = (held.base().cast(), held.len());
        // SAFETY: the vector is taken apart, and its memory exists until the vector is put together
        // again or dropped. Meanwhile it is accessed only by racy copies or, where others may only
        // read, as a slice.
        let memory = unsafe { UserMemory::owned_by(Box::new(held), base, length * size_of::<T>()) };
        let memory = Arc::new(if is_writable { memory } else { memory.read_only() });
        let registration = Box::new(Registration::new(me.process_handle(), memory.clone())?);
        Ok(Self { memory, length, registration, handles: Box::default(), of: PhantomData })
    }

    fn base(&self) -> *mut T {
        self.memory.base().cast().as_ptr()
    }

    fn slice(&self) -> GlobalSlice<T> {
        self.registration.address().cast().slice(self.length)
    }

    fn local<'a>(&'a self, watched: Option<&'a Watched>) -> RacySlice<'a, T> {
        // SAFETY: the memory of the vector exists and is aligned as long as `self`, and no other
        // code has it as a vector.
        unsafe { RacySlice::new(self.base(), self.length, watched) }
    }

    fn deregister(mut self, me: &Worker, time: Duration) -> Result<Vec<T>, StillHeld<Self>> {
        if let Err(error) = take_back(&mut self.registration, me, time) {
            return Err(StillHeld { error, segment: self });
        }
        self.handles.take_back();
        Ok(match self.memory.take_holder().and_then(|holder| holder.downcast::<Held<T>>().ok()) {
            // SAFETY: the registration is over, and any bytes are values of the type.
            Some(held) => unsafe { held.into_vec() },
            // In quarantine, since a lost process may still write there: what arrives from now on
            // is not in the values.
            None => self.local(None).to_vec(),
        })
    }
}

impl<T: Pod + Send> Drop for Owned<T> {
    fn drop(&mut self) {
        self.handles.take_back();
        self.registration.leave(self.memory.clone());
    }
}

/// Withdraws a registration, and waits until it is over.
fn take_back(registration: &mut Registration, me: &Worker, after: Duration) -> Result<()> {
    registration.withdraw();
    me.not_in_handler("taking registered memory back")?;
    let mut deadline = me.deadline_after(after);
    loop {
        let until = deadline.at(me.now(), me.process_handle());
        registration.withdraw().watch(&**me.process_handle().transport(), until);
        if registration.is_over() {
            return Ok(());
        }
        if deadline.has_passed(me) {
            return Err(Error::deadline("waiting for others to let go of registered memory", after));
        }
    }
}

/// Memory that does not belong to its owner again before its registration is over.
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
