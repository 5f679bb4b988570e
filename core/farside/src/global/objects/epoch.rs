//! Read epochs: times in which memory is not written.

use crate::error::Result;
use crate::runtime::worker::Worker;

/// Proof that the memory that is read with it is not written. While it exists, a
/// [`RacySlice`](super::RacySlice) may be read as a slice.
///
/// [`Worker::read_epoch`](crate::Worker::read_epoch) makes it.
#[derive(Debug)]
pub struct ReadEpoch(());

impl Worker {
    /// Lets all workers read memory of their own processes as slices, between two barriers. All
    /// workers call this, like other collectives.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let array = me.global_array::<u64>(1000)?;
    /// // SAFETY: no worker of this program writes to the array before all have added it up.
    /// let sum: u64 =
    ///     unsafe { me.read_epoch(|epoch| array.local(me).as_slice(epoch).iter().sum()) }?;
    /// # let _ = sum;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// *Cost*: two [barriers](Self::barrier).
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost) if a process of the job is lost;
    /// [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch) if another worker calls
    /// another collective; [`Error::Deadline`](crate::Error::Deadline) if one does not come in
    /// time; [`Error::InHandler`](crate::Error::InHandler) in a handler. In a job of several
    /// binaries also [`Error::CollectiveOverrun`](crate::Error::CollectiveOverrun). If the first
    /// barrier fails, `look` is not called; if the second fails, its result is dropped. Other
    /// workers may have passed the barriers all the same, and may still be reading.
    ///
    /// # Panics
    /// If `look` does. This worker does not come to the second barrier then, and the job ends as
    /// with any panic of a worker. If the program catches the panic, the other workers wait there
    /// until their deadline, and take its next barrier for this one.
    ///
    /// # Safety
    /// From when the first worker enters until the last has left, the memory that any worker reads
    /// with the proof is not written: by no worker's put, atomic change or `RacySlice`; by no
    /// handler; by no other thread; by no operation that was posted before and is not complete; and
    /// by no process that is lost to the job and may live on. After an error or a panic, no worker
    /// can tell when the last has left: the memory is not written any more.
    pub unsafe fn read_epoch<R>(&self, look: impl FnOnce(&ReadEpoch) -> R) -> Result<R> {
        self.barrier()?;
        let seen = look(&ReadEpoch(()));
        self.barrier()?;
        Ok(seen)
    }
}
