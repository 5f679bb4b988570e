//! [`LocalBytes`]: memory of this process for those of its threads that are no workers.

use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::Pod;
use farside_sys::racy;

/// A part of this process's global memory, for all threads of the process: also for those that are
/// no workers, such as a library's.
///
/// Others may read and write the memory at any time. Bytes are copied in and out, and no reference
/// points there. A word of 1, 2, 4 or 8 bytes at a multiple of its size is copied whole; wider
/// values may be torn. A job that [checks its accesses](crate::Job::check_accesses) does not check
/// these.
///
/// [`LocalVec`] has such a handle of ordinary memory.
///
/// The handle does not keep the memory. When its owner frees the memory or takes it back, all later
/// accesses are [`Gone`](LocalBytesError::Gone).
///
/// ```no_run
/// # use farside::prelude::*;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let field = me.symmetric::<f64>(1000)?;
/// let bytes = field.local_bytes();
/// let thread = std::thread::spawn(move || {
///     let mut first = [0; 8];
///     bytes.read(0, &mut first).map(|()| f64::from_ne_bytes(first))
/// });
/// # drop(thread);
/// # Ok(())
/// # }
/// ```
///
/// *Cost*: a lock of its own, and the copy. Taking the memory back waits for a copy under way.
#[derive(Clone)]
pub struct LocalBytes {
    place: Arc<Mutex<Option<Place>>>,
    bytes: u64,
}

/// Why bytes were not accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LocalBytesError {
    /// The memory was freed or taken back.
    #[error("the memory was freed or taken back: end its use before")]
    Gone,
    /// The range is not inside.
    #[error("{count} bytes from {offset} on are not inside the memory, which has {bytes}")]
    Outside {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        count: u64,
        /// The size of the memory.
        bytes: u64,
    },
}

struct Place {
    base: *mut u8,
    /// Keeps the memory mapped.
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the memory at `base` is mapped in the whole process while `_keep` exists, and all threads
// access it by racy copies and atomics only.
unsafe impl Send for Place {}

/// The handles to one object's memory in this process, which the object takes back.
#[derive(Default)]
pub(super) struct Handles(Mutex<Vec<Arc<Mutex<Option<Place>>>>>);

impl Handles {
    /// Makes a handle.
    ///
    /// # Safety
    /// `bytes` bytes at `base` stay mapped while `keep` exists. Until
    /// [`take_back`](Self::take_back) is called, all code accesses them by racy copies and atomics
    /// only.
    pub(super) unsafe fn add(&self, base: *mut u8, bytes: u64, keep: Arc<dyn Any + Send + Sync>) -> LocalBytes {
        let place = Arc::new(Mutex::new(Some(Place { base, _keep: keep })));
        let mut all = lock(&self.0);
        // Handles that the program has dropped.
        all.retain(|place| Arc::strong_count(place) > 1);
        all.push(place.clone());
        LocalBytes { place, bytes }
    }

    /// Ends all handles. Waits for copies under way.
    pub(super) fn take_back(&self) {
        lock(&self.0).drain(..).for_each(|place| *lock(&place) = None);
    }
}

impl fmt::Debug for Handles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handles").field(&lock(&self.0).len()).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LocalBytes {
    /// A part without bytes.
    pub(super) fn empty() -> Self {
        Self { place: Arc::default(), bytes: 0 }
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The address of the first byte, for other processes that read the memory of this one by
    /// system calls. `None` if the memory is gone. It may be freed or used anew at any time later,
    /// so a reader looks again afterwards.
    #[must_use]
    pub fn address(&self) -> Option<usize> {
        lock(&self.place).as_ref().map(|place| place.base.addr())
    }

    /// Copies bytes from an offset on, until `into` is full.
    ///
    /// # Errors
    /// [`LocalBytesError`].
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), LocalBytesError> {
        // SAFETY: `access` has checked that the memory is mapped and has these bytes; `into` is
        // writable.
        self.access(offset, into.len(), |at| unsafe { racy::copy_in(at, into.as_mut_ptr(), into.len()) })
    }

    /// Writes bytes from an offset on.
    ///
    /// # Errors
    /// [`LocalBytesError`]. Nothing is written then.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), LocalBytesError> {
        // SAFETY: `access` has checked that the memory is mapped and has these bytes; `from` is
        // readable.
        self.access(offset, from.len(), |at| unsafe { racy::copy_out(from.as_ptr(), at, from.len()) })
    }

    /// Calls `copy` with the address of bytes that are there and mapped.
    fn access(&self, offset: u64, count: usize, copy: impl FnOnce(*mut u8)) -> Result<(), LocalBytesError> {
        let outside = LocalBytesError::Outside { offset, count: count as u64, bytes: self.bytes };
        offset.checked_add(count as u64).filter(|end| *end <= self.bytes).ok_or(outside)?;
        if count == 0 {
            return Ok(());
        }
        let place = lock(&self.place);
        let base = place.as_ref().ok_or(LocalBytesError::Gone)?.base;
        copy(base.wrapping_add(offset as usize));
        Ok(())
    }
}

impl fmt::Debug for LocalBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalBytes").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// A vector whose bytes other threads of this process read and write by [`LocalBytes`]. It belongs
/// to no job.
///
/// ```
/// use farside::LocalVec;
///
/// let mut values = LocalVec::new(vec![1_u32, 2, 3]);
/// let bytes = values.local_bytes();
/// let thread = std::thread::spawn(move || bytes.write(4, &7_u32.to_ne_bytes()));
/// thread.join().unwrap()?;
/// let sum: u32 = values.with(|values| values.iter().sum());
/// assert_eq!((sum, values.take()), (11, vec![1, 7, 3]));
/// # Ok::<(), farside::LocalBytesError>(())
/// ```
#[derive(Debug)]
pub struct LocalVec<T: Pod + Send> {
    bytes: LocalBytes,
    memory: Arc<VecMemory<T>>,
}

/// The memory of a vector, while no code has the vector.
#[derive(Debug)]
struct VecMemory<T> {
    base: *mut T,
    length: usize,
    capacity: usize,
}

// SAFETY: it stands for a vector of `T`, which may be sent. A shared reference gives the pointer
// away, and no access.
unsafe impl<T: Send> Send for VecMemory<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for VecMemory<T> {}

impl<T> VecMemory<T> {
    fn vector(&self) -> Vec<T> {
        // SAFETY: the parts are those of a vector that `LocalVec::new` took apart. This is called
        // once: by `take`, which forgets the parts, or when they are dropped.
        unsafe { Vec::from_raw_parts(self.base, self.length, self.capacity) }
    }
}

impl<T> Drop for VecMemory<T> {
    fn drop(&mut self) {
        drop(self.vector());
    }
}

impl<T: Pod + Send> LocalVec<T> {
    /// Hands a vector over.
    #[must_use]
    pub fn new(values: Vec<T>) -> Self {
        let mut values = ManuallyDrop::new(values);
        let memory =
            Arc::new(VecMemory { base: values.as_mut_ptr(), length: values.len(), capacity: values.capacity() });
        let place = Place { base: memory.base.cast(), _keep: memory.clone() };
        let bytes = (memory.length * size_of::<T>()) as u64;
        Self { bytes: LocalBytes { place: Arc::new(Mutex::new(Some(place))), bytes }, memory }
    }

    /// Returns the values as bytes, for all threads of this process.
    #[must_use]
    pub fn local_bytes(&self) -> LocalBytes {
        self.bytes.clone()
    }

    /// Calls `work` with the values. Other threads that access their bytes wait meanwhile. So
    /// `work` itself must not do so by a handle: it would wait for its own end.
    pub fn with<R>(&mut self, work: impl FnOnce(&mut [T]) -> R) -> R {
        let _place = lock(&self.bytes.place);
        let VecMemory { base, length, .. } = *self.memory;
        // SAFETY: the memory holds this many values, of which any bytes are some. All handles
        // access it while they hold the lock that this thread holds now.
        work(unsafe { std::slice::from_raw_parts_mut(base, length) })
    }

    /// Takes the vector back. Later accesses by handles are [`Gone`](LocalBytesError::Gone).
    #[must_use]
    pub fn take(self) -> Vec<T> {
        // Waits for a copy under way.
        *lock(&self.bytes.place) = None;
        let memory = Arc::into_inner(self.memory).expect("the place, which is gone, had the only other one");
        ManuallyDrop::new(memory).vector()
    }
}

#[cfg(test)]
mod tests {
    use crate::Worker;

    use super::*;

    #[test]
    fn other_threads_access_memory_until_it_is_taken_back() {
        let body = |me: &Worker| -> crate::Result<()> {
            let symmetric = me.symmetric::<u32>(4)?;
            let array = me.global_array::<u32>(4)?;
            let segment = me.register(vec![0_u32; 4])?;
            let handles = [symmetric.local_bytes(), array.local_bytes(me), segment.local_bytes()];
            let others = handles.clone();
            let wrote = std::thread::spawn(move || others.map(|bytes| bytes.write(4, &7_u32.to_ne_bytes())));
            assert_eq!(wrote.join().unwrap(), [Ok(()); 3]);
            assert_eq!([symmetric.here().get(1), array.local(me).get(1), segment.local().get(1)], [7; 3]);
            let mut last = [1; 4];
            for bytes in &handles {
                assert_eq!((bytes.bytes(), bytes.address().is_some()), (16, true));
                bytes.read(12, &mut last).unwrap();
                assert_eq!(last, [0; 4]);
                let outside = LocalBytesError::Outside { offset: 13, count: 4, bytes: 16 };
                assert_eq!(bytes.read(13, &mut last), Err(outside));
                assert!(bytes.write(u64::MAX, &last).is_err());
            }
            symmetric.free(me)?;
            array.free(me)?;
            assert_eq!(segment.deregister(me).unwrap(), [0, 7, 0, 0]);
            let read: Vec<_> = handles.iter().map(|bytes| bytes.read(0, &mut last)).collect();
            assert_eq!(read, [Err(LocalBytesError::Gone); 3]);
            assert!(handles.iter().all(|bytes| bytes.address().is_none()));
            Ok(())
        };
        crate::simulate(1, 1, 1, body).unwrap();
    }

    #[test]
    fn a_vector_is_lent_and_taken_back() {
        let mut values = LocalVec::new(vec![0_u64; 1000]);
        let (bytes, kept) = (values.local_bytes(), values.local_bytes());
        let ended = Arc::new(());
        let end = Arc::downgrade(&ended);
        let reader = std::thread::spawn(move || {
            let mut seen = [1; 8000];
            while end.strong_count() > 0 {
                bytes.read(0, &mut seen).unwrap();
                assert!(seen.chunks(8).all(|value| value == &seen[..8]), "half of a change was read");
            }
        });
        (1..=200).for_each(|round| values.with(|values| values.fill(round)));
        drop(ended);
        reader.join().unwrap();
        kept.write(8, &5_u64.to_ne_bytes()).unwrap();
        assert_eq!(values.take()[..3], [200, 5, 200]);
        assert_eq!(kept.read(0, &mut [0; 8]), Err(LocalBytesError::Gone));
        drop(LocalVec::new(vec![1_u8]));
        assert!(LocalVec::new(Vec::<u16>::new()).take().is_empty());
    }
}
