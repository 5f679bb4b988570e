//! Accesses to ranges of an array.

use bytemuck::Pod;

use super::GlobalArray;
use crate::error::Result;
use crate::runtime::worker::Worker;

impl<T: Pod> GlobalArray<T> {
    /// Writes values from an index on.
    ///
    /// *Completion*: as for [`GlobalPtr::put`](crate::GlobalPtr::put), for all values.
    ///
    /// *Cost*: one put to each part that the range touches, with any distribution. The values for a
    /// part with several of the blocks are first copied together.
    ///
    /// # Errors
    /// [`ObjectError::Outside`](super::super::ObjectError::Outside), with nothing written.
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, or one out of range; [`Error::PeerLost`](crate::Error::PeerLost) if
    /// the owner is lost; [`Error::Fabric`](crate::Error::Fabric) if it does not answer in time, or
    /// the transport fails; [`Error::InHandler`](crate::Error::InHandler) if a handler would have
    /// to wait for it. Some parts may have been written then.
    #[track_caller]
    pub fn put_range(&self, me: &Worker, start: usize, values: &[T]) -> Result<()> {
        self.check(start, values.len())?;
        let mut packed = Vec::new();
        for share in self.layout.shares(start as u64, values.len() as u64) {
            let target = self.pointer(share.place)?.address();
            let count = share.count as usize;
            if let Some(first) = share.single() {
                me.put_values(target, &values[first..first + count])?;
                continue;
            }
            packed.clear();
            packed.reserve(count);
            share.pieces().for_each(|(first, length)| packed.extend_from_slice(&values[first..first + length]));
            me.put_values(target, &packed)?;
        }
        Ok(())
    }

    /// Reads values from an index on, until `values` is full.
    ///
    /// *Cost*: one get from each part that the range touches, and copies as in
    /// [`put_range`](Self::put_range).
    ///
    /// # Errors
    /// [`ObjectError::Outside`](super::super::ObjectError::Outside).
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale or
    /// misaligned address, or one out of range; [`Error::PeerLost`](crate::Error::PeerLost) if the
    /// owner is lost; [`Error::Fabric`](crate::Error::Fabric) if it does not answer in time, or the
    /// transport fails; [`Error::InHandler`](crate::Error::InHandler) if a handler would have to
    /// wait for it. The contents of `values` are unspecified then.
    #[track_caller]
    pub fn get_range(&self, me: &Worker, start: usize, values: &mut [T]) -> Result<()> {
        self.check(start, values.len())?;
        let mut packed = Vec::new();
        for share in self.layout.shares(start as u64, values.len() as u64) {
            let source = self.pointer(share.place)?.address();
            let count = share.count as usize;
            if let Some(first) = share.single() {
                me.get_values(source, &mut values[first..first + count])?;
                continue;
            }
            packed.resize(count, T::zeroed());
            me.get_values(source, &mut packed)?;
            let mut rest = &packed[..];
            for (first, length) in share.pieces() {
                let (piece, others) = rest.split_at(length);
                values[first..first + length].copy_from_slice(piece);
                rest = others;
            }
        }
        Ok(())
    }

    /// Reads all values.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale or
    /// misaligned address, or one out of range; [`Error::PeerLost`](crate::Error::PeerLost) if the
    /// owner is lost; [`Error::Fabric`](crate::Error::Fabric) if it does not answer in time, or the
    /// transport fails; [`Error::InHandler`](crate::Error::InHandler) if a handler would have to
    /// wait for it.
    #[track_caller]
    pub fn to_vec(&self, me: &Worker) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); self.len()];
        self.get_range(me, 0, &mut values)?;
        Ok(values)
    }

    /// Writes the same value at every index. All workers call this. Each fills its own part, and
    /// none returns before all is written.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost) if a process of the job is lost;
    /// [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch) if another worker calls
    /// another collective; [`Error::Deadline`](crate::Error::Deadline) if one does not come in
    /// time; [`Error::InHandler`](crate::Error::InHandler) in a handler. In a job of several
    /// binaries also [`Error::CollectiveOverrun`](crate::Error::CollectiveOverrun).
    #[track_caller]
    pub fn fill(&self, me: &Worker, value: T) -> Result<()> {
        if !self.distribution().is_over_processes || me.thread_index() == 0 {
            self.local(me).fill(value);
        }
        me.barrier()
    }
}
