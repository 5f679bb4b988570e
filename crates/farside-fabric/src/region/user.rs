//! Private memory: the ordinary memory of a process (heap, stack, any mapping), registered for its peers.
//!
//! Nobody can map it. Peers reach it by a system call or by asking its owner, as the transport has it
//! ([`UserReach`](crate::transport::UserReach)). [`Transport::register_user`](crate::Transport::register_user) gives it a key
//! like any other, and [`Transport::deregister`](crate::Transport::deregister) tells when it is its owner's alone again.

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

/// Ordinary memory of this process that peers are to reach.
///
/// It may be registered any number of times, each time under a key of its own.
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
    /// What keeps the memory there. `None` when it was taken back; and always for borrowed memory.
    holder: Option<Box<dyn Any + Send>>,
    /// How many transports may reach it. Raised before a key is given out; lowered when its deregistration has ended, and never
    /// when somebody may still be at it.
    registrations: usize,
}

// SAFETY: the bytes belong to no thread: owned ones are this value's alone, for borrowed ones the caller of `borrowed` has promised that
// they may be accessed from any. They are reached by racy copies and atomics only.
unsafe impl Send for UserMemory {}
// SAFETY: as above; what a shared `UserMemory` does to the bytes, it does by racy copies and atomics.
unsafe impl Sync for UserMemory {}

impl UserMemory {
    /// Memory that is given away, and [comes back](Self::take_back).
    pub fn owned(bytes: Vec<u8>) -> Self {
        let held = Held::new(bytes);
        let (base, bytes) = (held.base(), held.len());
        // SAFETY: the vector is taken apart, so that nobody has its bytes, which are there until it is put together again or dropped.
        unsafe { Self::owned_by(Box::new(held), base, bytes) }
    }

    /// Memory of any kind that is given away together with what keeps it there, and [comes back](Self::take_holder) with that.
    ///
    /// # Safety
    /// As long as the holder is not dropped, and wherever it is moved to, the bytes are mapped, may be read and written, and are accessed by
    /// the program through [`racy`] and atomics only: no reference to them is used. Of a [`read_only`](Self::read_only) one shared references
    /// do no harm.
    pub unsafe fn owned_by(holder: Box<dyn Any + Send>, base: NonNull<u8>, bytes: usize) -> Self {
        Self::new(base, bytes, true, Some(holder))
    }

    /// Memory that stays where it is: on the heap, on a stack, in a mapping.
    ///
    /// # Safety
    /// From its first registration until all its registrations are over, the bytes are mapped, may be read and written, and are accessed
    /// by the program through [`racy`] and atomics only: no reference to them is used. A registration is over when
    /// the completion of its [deregistration](crate::Transport::deregister) has ended well; when its end of the fabric is dropped before, never.
    pub unsafe fn borrowed(base: NonNull<u8>, bytes: usize) -> Self {
        Self::new(base, bytes, true, None)
    }

    /// The same for peers that only read.
    ///
    /// # Safety
    /// As for [`borrowed`](Self::borrowed), but the bytes need not be writable, and shared references to them do no harm while nobody
    /// writes them.
    pub unsafe fn borrowed_read_only(base: NonNull<u8>, bytes: usize) -> Self {
        Self::new(base, bytes, false, None)
    }

    /// Peers may only read it: a put or an atomic is [`FabricError::ReadOnly`].
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.is_writable = false;
        self
    }

    fn new(base: NonNull<u8>, bytes: usize, is_writable: bool, holder: Option<Box<dyn Any + Send>>) -> Self {
        let is_owned = holder.is_some();
        Self { base, bytes, is_writable, is_owned, state: Mutex::new(State { holder, registrations: 0 }) }
    }

    /// Where it begins. Peers may write the bytes at any moment: access them through [`racy`] or atomics only.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether peers may write it.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Whether it was given away, and lives as long as this value.
    pub fn is_owned(&self) -> bool {
        self.is_owned
    }

    /// The bytes, when they were [given away](Self::owned) and nobody can reach them any more: every registration of theirs is over.
    /// `None` before, and when they were taken back already. Also for ever, if a peer was lost that libfabric may still
    /// carry something for: the memory stays in quarantine then.
    pub fn take_back(&self) -> Option<Vec<u8>> {
        let holder = self.take_if(|holder| holder.is::<Held<u8>>())?;
        // SAFETY: nobody can reach the bytes any more, and any bytes are values.
        holder.downcast::<Held<u8>>().ok().map(|held| unsafe { held.into_vec() })
    }

    /// What the memory was [given away](Self::owned_by) with, as [`take_back`](Self::take_back) has it for bytes.
    pub fn take_holder(&self) -> Option<Box<dyn Any + Send>> {
        self.take_if(|_| true)
    }

    fn take_if(&self, is_meant: impl FnOnce(&dyn Any) -> bool) -> Option<Box<dyn Any + Send>> {
        let mut state = lock(&self.state);
        // What was done to the bytes before the last registration was over, under this lock, is in them. Nobody reaches them later: `hold`
        // refuses when there is no holder.
        if state.registrations > 0 {
            return None;
        }
        state.holder.take_if(|holder| is_meant(&**holder))
    }

    /// A registration begins.
    ///
    /// # Errors
    /// [`FabricError::Memory`] when there is nothing to be registered.
    ///
    /// # Panics
    /// When the memory was taken back.
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

/// Private memory under a key.
#[derive(Clone, Debug)]
pub struct UserRegion {
    key: RemoteKey,
    lease: Arc<Lease>,
}

impl UserRegion {
    pub(crate) fn new(key: RemoteKey, lease: Arc<Lease>) -> Self {
        Self { key, lease }
    }

    /// What peers attach it by.
    pub fn key(&self) -> RemoteKey {
        self.key
    }

    /// The memory itself.
    pub fn memory(&self) -> &Arc<UserMemory> {
        &self.lease.memory
    }

    /// No thread of this process is at it any more, nor does one come to it: its key was taken back. Peers that reach it by themselves may be.
    pub fn is_idle(&self) -> bool {
        self.lease.gate.is_empty()
    }

    /// The owner's own access, as a peer's: [`FabricError::StaleKey`] once the key is taken back.
    ///
    /// *Cost*: a copy, or the processor's atomic, and two atomic additions.
    pub fn as_remote(&self) -> RemoteRegion {
        RemoteRegion::of_own(self.key, self.lease.clone())
    }
}

/// One registration of private memory. All accesses by this process go through its gate.
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

    /// Does what is asked, if the key was not taken back.
    ///
    /// # Errors
    /// [`FabricError::StaleKey`], [`FabricError::ReadOnly`], [`FabricError::OutOfRange`], [`FabricError::Misaligned`].
    pub(crate) fn execute(&self, key: RemoteKey, operation: Operation) -> Result<Outcome, FabricError> {
        let _inside = self.gate.enter().ok_or(FabricError::StaleKey { key })?;
        self.check(key, &operation)?;
        // SAFETY: the memory is there as long as this is registered, and the gate was open: a deregistration waits for us. A change or
        // a put has passed `check`, so that the memory is writable and a word in it aligned.
        unsafe { execute::execute_at(key, self.memory.base.as_ptr(), operation) }
    }

    pub(crate) fn put(&self, key: RemoteKey, offset: u64, data: &[u8]) -> Result<(), FabricError> {
        let _inside = self.gate.enter().ok_or(FabricError::StaleKey { key })?;
        key.check(offset, data.len())?;
        self.check_writable(key)?;
        let target = self.memory.base.as_ptr().wrapping_add(offset as usize);
        // SAFETY: `data` is readable; the range lies in the memory, which is there while we are inside, and writable.
        unsafe { racy::copy_out(data.as_ptr(), target, data.len()) };
        Ok(())
    }

    pub(crate) fn get(&self, key: RemoteKey, offset: u64, data: &mut [u8]) -> Result<(), FabricError> {
        let _inside = self.gate.enter().ok_or(FabricError::StaleKey { key })?;
        key.check(offset, data.len())?;
        let source = self.memory.base.as_ptr().wrapping_add(offset as usize);
        // SAFETY: `data` is writable; the range lies in the memory, which is there while we are inside.
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
        // It may begin anywhere, so that its multiples are not those of the address.
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
    /// It is about to get a key.
    ///
    /// # Errors
    /// [`FabricError::Memory`] for private memory of no bytes.
    pub(crate) fn hold(&self) -> Result<(), FabricError> {
        match self {
            Self::Shared(_) => Ok(()),
            Self::User(lease) => lease.memory.hold(),
        }
    }

    /// Lets nobody of this process in any more.
    pub(crate) fn close(&self) {
        if let Self::User(lease) = self {
            lease.gate.close();
        }
    }

    /// Nobody of this process is at it any more, since it was [closed](Self::close).
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Self::Shared(_) => true,
            Self::User(lease) => lease.gate.is_empty(),
        }
    }

    /// The registration is over: nobody can reach it.
    pub(crate) fn release(&self) {
        if let Self::User(lease) = self {
            lock(&lease.memory.state).registrations -= 1;
        }
    }

    /// Whether peers may write it.
    pub(crate) fn is_writable(&self) -> bool {
        match self {
            Self::Shared(_) => true,
            Self::User(lease) => lease.memory.is_writable,
        }
    }

    /// Executes an operation on it.
    ///
    /// # Errors
    /// Those of [`execute`](execute::execute); for private memory also [`FabricError::StaleKey`] and [`FabricError::ReadOnly`].
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
        // SAFETY: the vector is taken apart, and looked at when it is whole again.
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
        // SAFETY: nobody else has it any more.
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
        assert!(!region.is_idle(), "somebody is at it");
        drop(inside);
        assert!(region.is_idle());
        memory.release();
    }

    #[test]
    fn nothing_is_no_memory() {
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
        // SAFETY: the array outlives what is registered, and is not looked at before.
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
