//! Times in which nobody writes.

use crate::error::Result;
use crate::runtime::worker::Worker;

/// The witness that nobody writes to the memory that is looked at by it: while there is one, a [`RacySlice`](super::RacySlice) may be read as a
/// slice.
///
/// It is made by [`Worker::read_epoch`].
#[derive(Debug)]
pub struct ReadEpoch(());

impl Worker {
    /// Has all workers look at memory of their own processes as slices, between two barriers. All workers call this, as other
    /// collectives.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let array = me.global_array::<u64>(1000)?;
    /// // SAFETY: no worker of this program writes to the array before all have added it up.
    /// let sum: u64 = unsafe { me.read_epoch(|epoch| array.local(me).as_slice(epoch).iter().sum()) }?;
    /// # let _ = sum;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// *Cost*: two [barriers](Self::barrier).
    ///
    /// # Errors
    /// Those of [`barrier`](Self::barrier). When the first fails, `look` is not called; when the second does, what it returned is dropped. Others may have
    /// got in, or out, all the same, and may still be looking.
    ///
    /// # Panics
    /// When `look` does. This worker does not come to the second barrier then, and the job ends as with any panic of a worker. Who catches it has the others wait there until
    /// their deadline, and its next barrier taken for this one.
    ///
    /// # Safety
    /// From when the first worker enters until the last has left, nobody writes to memory that any worker looks at by the witness: no worker,
    /// by a put, an atomic change or a `RacySlice`; no function called on one; no other thread; no operation that was posted before and is not complete; and
    /// no process that is lost to the job and may live on. After an error, or a panic, nobody can tell when the last has left: nobody writes there any more.
    pub unsafe fn read_epoch<R>(&self, look: impl FnOnce(&ReadEpoch) -> R) -> Result<R> {
        self.barrier()?;
        let seen = look(&ReadEpoch(()));
        self.barrier()?;
        Ok(seen)
    }
}
