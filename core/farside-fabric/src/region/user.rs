//! User memory: the ordinary memory of a process (heap, stack, any mapping), registered for its
//! peers.
//!
//! No peer can map it. Peers access it by a system call or on request by its owner, depending on
//! the transport ([`UserReach`](crate::transport::UserReach)).
//! [`Transport::register_user`](crate::Transport::register_user) gives it a key like any other
//! memory. [`Transport::deregister`](crate::Transport::deregister) reports when only its owner can
//! access it again.

mod held;

use std::any::Any;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use farside_sys::racy;
use farside_sys::shm::{SharedMemory, ShmError};

pub use self::held::Held;
use super::gate::Gate;
use super::{RemoteRegion, execute};
use crate::clock::lock;
use crate::operation::{FabricError, Operation, Outcome, RemoteKey};

/// Ordinary memory of this process that peers may access.
///
/// It may be registered any number of times, each time under a separate key.
///
/// ```
/// # use std::time::{Duration, Instant};
/// # use farside_fabric::sim::{SimFabric, SimOptions};
/// # use farside_fabric::{ProcessId, Transport};
/// use std::sync::Arc;
///
/// use farside_fabric::region::UserMemory;
///
/// # let fabric = SimFabric::new(2, 4096, 7, SimOptions::default())?;
/// # let [here, there] = [0, 1].map(|number| fabric.endpoint(ProcessId::new(number)));
/// # let deadline = Instant::now() + Duration::from_secs(10);
/// let region = there.register_user(Arc::new(UserMemory::owned(vec![0; 100])))?;
///
/// let remote = here.attach(region.key(), deadline)?;
/// remote.put(10, b"hello", deadline)?;
///
/// let own = there.process();
/// # std::thread::scope(|scope| {
/// # let helped = scope.spawn(|| {
/// there.deregister(region.key())?.wait(&*there, own, deadline)?;
/// # Ok::<(), farside_fabric::FabricError>(()) });
/// # while !helped.is_finished() { here.progress(); std::thread::yield_now(); }
/// # helped.join().unwrap() })?;
/// let bytes = region.memory().take_back().expect("it is ours again");
/// assert_eq!(&bytes[10..15], b"hello");
/// # Ok::<(), farside_fabric::FabricError>(())
/// ```
#[derive(Debug)]
pub struct UserMemory {
    base: NonNull<u8>,
    bytes: usize,
    is_writable: bool,
    is_owned: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Keeps the memory alive. `None` after the memory was taken back, and always for borrowed
    /// memory.
    holder: Option<Box<dyn Any + Send>>,
    /// Number of transports that may access it. Raised before a key is given out. Lowered when its
    /// deregistration has ended, and never while a peer may still access the memory.
    registrations: usize,
}

// SAFETY: the bytes belong to no thread. Owned bytes belong to this value alone; for borrowed ones
// the caller of `borrowed` has promised that any thread may access them. Only racy copies and
// atomics access them.
unsafe impl Send for UserMemory {}
// SAFETY: the bytes belong to no thread, as above for `Send`; a shared `UserMemory` accesses them
// only by racy copies and atomics.
unsafe impl Sync for UserMemory {}

impl UserMemory {
    /// Gives a vector to the fabric; it [can be taken back](Self::take_back).
    pub fn owned(bytes: Vec<u8>) -> Self {
        let held = Held::new(bytes);
        let (base, bytes) = (held.base(), held.len());
        // SAFETY: the vector is taken apart, so nothing else has its bytes, which exist until it is
        // reassembled or dropped.
        unsafe { Self::owned_by(Box::new(held), base, bytes) }
    }

    /// Gives memory of any kind to the fabric, together with a holder that keeps it alive; the
    /// holder [can be taken back](Self::take_holder).
    ///
    /// # Safety
    /// Until the holder is dropped, and wherever it is moved to, the bytes are mapped, readable and
    /// writable. The program accesses them only through [`racy`] and atomics, and uses no reference
    /// to them. If the memory is [`read_only`](Self::read_only), shared references are allowed.
    pub unsafe fn owned_by(holder: Box<dyn Any + Send>, base: NonNull<u8>, bytes: usize) -> Self {
        Self::new(base, bytes, true, Some(holder))
    }

    /// Registers memory that stays in place: on the heap, on a stack, in a mapping.
    ///
    /// # Safety
    /// From its first registration until all its registrations are over, the bytes are mapped,
    /// readable and writable. The program accesses them only through [`racy`] and atomics, and uses
    /// no reference to them. A registration is over when the completion of its
    /// [deregistration](crate::Transport::deregister) has succeeded. If its endpoint of the fabric
    /// is dropped before that, it is never over.
    pub unsafe fn borrowed(base: NonNull<u8>, bytes: usize) -> Self {
        Self::new(base, bytes, true, None)
    }

    /// Registers memory that stays in place, for peers that only read.
    ///
    /// # Safety
    /// As for [`borrowed`](Self::borrowed), but the bytes need not be writable, and shared
    /// references to them are allowed while nothing writes them.
    pub unsafe fn borrowed_read_only(base: NonNull<u8>, bytes: usize) -> Self {
        Self::new(base, bytes, false, None)
    }

    /// Makes the memory read-only for peers: a put or an atomic fails with
    /// [`FabricError::ReadOnly`].
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.is_writable = false;
        self
    }

    fn new(base: NonNull<u8>, bytes: usize, is_writable: bool, holder: Option<Box<dyn Any + Send>>) -> Self {
        let is_owned = holder.is_some();
        Self { base, bytes, is_writable, is_owned, state: Mutex::new(State { holder, registrations: 0 }) }
    }

    /// The address of the first byte. Peers may write the bytes at any time: access them only
    /// through [`racy`] or atomics.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether peers may write it.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Returns whether the fabric owns it, so that it lives as long as this value.
    pub fn is_owned(&self) -> bool {
        self.is_owned
    }

    /// Takes the bytes back, if they were [given to the fabric](Self::owned) and no peer can access
    /// them any more, because every registration is over. `None` before that, and after they were
    /// taken back. Also `None` for ever if libfabric may still carry an operation of a lost peer:
    /// the memory then stays in quarantine.
    pub fn take_back(&self) -> Option<Vec<u8>> {
        let holder = self.take_if(|holder| holder.is::<Held<u8>>())?;
        // SAFETY: nothing can access the bytes any more, and any bytes are valid values.
        holder.downcast::<Held<u8>>().ok().map(|held| unsafe { held.into_vec() })
    }

    /// Takes back the holder that the memory was [given with](Self::owned_by), under the conditions
    /// of [`take_back`](Self::take_back).
    pub fn take_holder(&self) -> Option<Box<dyn Any + Send>> {
        self.take_if(|_| true)
    }

    fn take_if(&self, is_meant: impl FnOnce(&dyn Any) -> bool) -> Option<Box<dyn Any + Send>> {
        let mut state = lock(&self.state);
        // This lock makes visible what was done to the bytes before the last registration ended. No
        // access follows: `hold` fails if there is no holder.
        if state.registrations > 0 {
            return None;
        }
        state.holder.take_if(|holder| is_meant(&**holder))
    }

    /// Begins a registration.
    ///
    /// # Errors
    /// [`FabricError::Memory`] if there are no bytes to register.
    ///
    /// # Panics
    /// If the memory was taken back.
    fn hold(&self) -> Result<(), FabricError> {
        let mut state = lock(&self.state);
        assert!(!self.is_owned || state.holder.is_some(), "memory that was taken back cannot be registered");
        if self.bytes == 0 {
            return Err(FabricError::Memory(ShmError::Empty));
        }
        state.registrations += 1;
        Ok(())
    }
}

/// User memory under a key.
#[derive(Clone, Debug)]
pub struct UserRegion {
    key: RemoteKey,
    lease: Arc<Lease>,
}

impl UserRegion {
    pub(crate) fn new(key: RemoteKey, lease: Arc<Lease>) -> Self {
        Self { key, lease }
    }

    /// The key by which peers attach the region.
    pub fn key(&self) -> RemoteKey {
        self.key
    }

    /// The memory of the region.
    pub fn memory(&self) -> &Arc<UserMemory> {
        &self.lease.memory
    }

    /// Returns whether no thread of this process accesses the memory any more, now or later,
    /// because its key was withdrawn. Peers that access it directly may still do so.
    pub fn is_idle(&self) -> bool {
        self.lease.gate.is_empty()
    }

    /// The owner's own access, equal to a peer's: [`FabricError::StaleKey`] once the key is
    /// withdrawn.
    ///
    /// *Cost*: a copy, or the processor's atomic, and two atomic additions.
    pub fn as_remote(&self) -> RemoteRegion {
        RemoteRegion::of_own(self.key, self.lease.clone())
    }
}

/// One registration of user memory. All accesses by this process go through its gate.
#[derive(Debug)]
pub(crate) struct Lease {
    memory: Arc<UserMemory>,
    gate: Gate,
}

impl Lease {
    pub(crate) fn new(memory: Arc<UserMemory>) -> Arc<Self> {
        Arc::new(Self { memory, gate: Gate::default() })
    }

    pub(crate) fn memory(&self) -> &Arc<UserMemory> {
        &self.memory
    }

    /// Executes an operation, if the key was not withdrawn.
    ///
    /// # Errors
    /// [`FabricError::StaleKey`], [`FabricError::ReadOnly`], [`FabricError::OutOfRange`],
    /// [`FabricError::Misaligned`].
    pub(crate) fn execute(&self, key: RemoteKey, operation: Operation) -> Result<Outcome, FabricError> {
        let _inside = self.gate.enter().ok_or(FabricError::StaleKey { key })?;
        self.check(key, &operation)?;
        // SAFETY: the memory exists as long as this is registered, and the gate was open, so a
        // deregistration waits for this access. A put or an atomic has passed `check`, so the
        // memory is writable, and the word of an atomic is aligned.
        unsafe { execute::execute_at(key, self.memory.base.as_ptr(), operation) }
    }

    pub(crate) fn put(&self, key: RemoteKey, offset: u64, data: &[u8]) -> Result<(), FabricError> {
        let _inside = self.gate.enter().ok_or(FabricError::StaleKey { key })?;
        key.check(offset, data.len())?;
        self.check_writable(key)?;
        let target = self.memory.base.as_ptr().wrapping_add(offset as usize);
        // SAFETY: `data` is readable; the range lies in the memory, which exists while this access
        // is inside the gate, and is writable.
        unsafe { racy::copy_out(data.as_ptr(), target, data.len()) };
        Ok(())
    }

    pub(crate) fn get(&self, key: RemoteKey, offset: u64, data: &mut [u8]) -> Result<(), FabricError> {
        let _inside = self.gate.enter().ok_or(FabricError::StaleKey { key })?;
        key.check(offset, data.len())?;
        let source = self.memory.base.as_ptr().wrapping_add(offset as usize);
        // SAFETY: `data` is writable; the range lies in the memory, which exists while this access
        // is inside the gate.
        unsafe { racy::copy_in(source, data.as_mut_ptr(), data.len()) };
        Ok(())
    }

    fn check(&self, key: RemoteKey, operation: &Operation) -> Result<(), FabricError> {
        let (offset, word_bytes) = match operation {
            Operation::Get { .. } => return Ok(()),
            Operation::Put { .. } => return self.check_writable(key),
            Operation::Atomic64 { offset, .. } => (*offset, 8),
            Operation::Atomic32 { offset, .. } => (*offset, 4),
        };
        self.check_writable(key)?;
        // The memory may begin anywhere, so an aligned offset does not imply an aligned address.
        let address = (self.memory.base.addr().get() as u64).wrapping_add(offset);
        let is_aligned = address.is_multiple_of(word_bytes as u64);
        if is_aligned { Ok(()) } else { Err(FabricError::Misaligned { offset, bytes: word_bytes }) }
    }

    fn check_writable(&self, key: RemoteKey) -> Result<(), FabricError> {
        if self.memory.is_writable { Ok(()) } else { Err(FabricError::ReadOnly { key }) }
    }
}

/// The memory behind a key.
#[derive(Clone, Debug)]
pub(crate) enum RegionMemory {
    Shared(Arc<SharedMemory>),
    User(Arc<Lease>),
}

impl RegionMemory {
    /// Prepares the memory for a key.
    ///
    /// # Errors
    /// [`FabricError::Memory`] for user memory of zero bytes.
    pub(crate) fn hold(&self) -> Result<(), FabricError> {
        match self {
            Self::Shared(_) => Ok(()),
            Self::User(lease) => lease.memory.hold(),
        }
    }

    /// Admits no further access by this process.
    pub(crate) fn close(&self) {
        if let Self::User(lease) = self {
            lease.gate.close();
        }
    }

    /// Returns whether no thread of this process accesses it any more since it was
    /// [closed](Self::close).
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Self::Shared(_) => true,
            Self::User(lease) => lease.gate.is_empty(),
        }
    }

    /// Ends the registration: no peer can access the memory any more.
    pub(crate) fn release(&self) {
        if let Self::User(lease) = self {
            lock(&lease.memory.state).registrations -= 1;
        }
    }

    /// Returns whether peers may write it.
    pub(crate) fn is_writable(&self) -> bool {
        match self {
            Self::Shared(_) => true,
            Self::User(lease) => lease.memory.is_writable,
        }
    }

    /// Executes an operation on the memory.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`], [`FabricError::Misaligned`]; for user memory also
    /// [`FabricError::StaleKey`] and [`FabricError::ReadOnly`].
    pub(crate) fn execute(&self, key: RemoteKey, operation: Operation) -> Result<Outcome, FabricError> {
        match self {
            Self::Shared(memory) => execute::execute(key, memory, operation),
            Self::User(lease) => lease.execute(key, operation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ProcessId;
    use crate::operation::AtomicChange;

    fn lease(memory: UserMemory) -> (RemoteKey, RegionMemory) {
        let key = RemoteKey::starter(ProcessId::new(0), memory.bytes() as u64);
        let memory = RegionMemory::User(Lease::new(Arc::new(memory)));
        memory.hold().unwrap();
        (key, memory)
    }

    #[test]
    fn bytes_come_back_when_every_registration_is_over() {
        let mut bytes = Vec::with_capacity(100);
        bytes.extend([7; 10]);
        let address = bytes.as_ptr();
        let memory = Arc::new(UserMemory::owned(bytes));
        let both = [0, 1].map(|_| RegionMemory::User(Lease::new(memory.clone())));
        both.iter().for_each(|one| one.hold().unwrap());
        both[0].release();
        assert_eq!(memory.take_back(), None);
        both[1].release();
        let back = memory.take_back().unwrap();
        assert_eq!((back.as_ptr(), back.len(), back.capacity()), (address, 10, 100));
        assert_eq!(memory.take_back(), None);
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| both[0].hold()));
        assert!(again.is_err(), "it is gone");
    }

    #[test]
    fn any_holder_comes_back() {
        let held = Held::new(vec![1_u64, 2]);
        let base = held.base().cast();
        // SAFETY: the vector is taken apart, and is used only after it is reassembled.
        let memory = unsafe { UserMemory::owned_by(Box::new(held), base, 16) };
        assert!(memory.is_owned());
        let (key, region) = lease(memory);
        let RegionMemory::User(private) = &region else { unreachable!("it was made as such") };
        region.execute(key, Operation::Put { offset: 8, data: vec![3; 8] }).unwrap();
        assert!(private.memory.take_holder().is_none(), "it is registered");
        region.close();
        region.release();
        assert!(private.memory.take_back().is_none(), "it is no vector of bytes, and stays");
        let holder = private.memory.take_holder().unwrap().downcast::<Held<u64>>().unwrap();
        // SAFETY: nothing else can access it any more.
        assert_eq!(unsafe { holder.into_vec() }, [1, 0x0303_0303_0303_0303]);
    }

    #[test]
    fn a_region_is_idle_when_its_key_is_taken_back_and_the_last_is_out() {
        let (key, memory) = lease(UserMemory::owned(vec![1; 32]));
        let RegionMemory::User(lease) = &memory else { unreachable!("it was made as such") };
        let region = UserRegion::new(key, lease.clone());
        let inside = lease.gate.enter().unwrap();
        assert!(!region.is_idle());
        memory.close();
        assert!(!region.is_idle(), "an access is under way");
        drop(inside);
        assert!(region.is_idle());
        memory.release();
    }

    #[test]
    fn empty_memory_is_refused() {
        let empty = RegionMemory::User(Lease::new(Arc::new(UserMemory::owned(Vec::new()))));
        assert!(matches!(empty.hold(), Err(FabricError::Memory(ShmError::Empty))));
    }

    #[test]
    fn rights_alignment_and_ends_are_minded() {
        let (key, memory) = lease(UserMemory::owned(vec![1; 32]).read_only());
        let put = Operation::Put { offset: 0, data: vec![2] };
        let add = |offset| Operation::Atomic64 { offset, change: AtomicChange::Add(1) };
        for refused in [put.clone(), add(0)] {
            assert!(matches!(memory.execute(key, refused), Err(FabricError::ReadOnly { .. })));
        }
        assert_eq!(memory.execute(key, Operation::get(31, 1)).unwrap(), Outcome::Got(vec![1]));

        let mut words = [0_u64; 4];
        let odd = NonNull::from(&mut words).cast::<u32>();
        // SAFETY: the array has a second half of its first word.
        let odd = unsafe { odd.add(1) };
        // SAFETY: the array outlives the registration, and is not accessed before its end.
        let odd = unsafe { UserMemory::borrowed(odd.cast(), 24) };
        let (key, memory) = lease(odd);
        assert!(matches!(memory.execute(key, add(0)), Err(FabricError::Misaligned { offset: 0, bytes: 8 })));
        let narrow = Operation::Atomic32 { offset: 4, change: AtomicChange::Swap(9) };
        assert_eq!(memory.execute(key, narrow.clone()).unwrap(), Outcome::Previous(0));
        assert!(matches!(
            memory.execute(key, add(17)),
            Err(FabricError::OutOfRange { .. } | FabricError::Misaligned { .. })
        ));
        assert!(!memory.is_idle());
        memory.close();
        assert!(memory.is_idle());
        for late in [put, narrow, Operation::get(0, 1)] {
            assert!(matches!(memory.execute(key, late), Err(FabricError::StaleKey { .. })));
        }
        memory.release();
        assert_eq!(words[1], 9);
    }
}
