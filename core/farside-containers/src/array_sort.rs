//! [`sort_array`]: sorts the values of an array.

use farside::bytemuck::Pod;
use farside::{GlobalArray, Result, Wire, Worker};

use crate::agreement::{agree, fail_together};
use crate::dist_vec::DistVec;

/// Sorts the values of a [`GlobalArray`]. All workers call this, in the same order as other
/// collectives, and access the array in no other way meanwhile.
///
/// ```
/// # use farside::prelude::*;
/// # farside::simulate(3, 1, 1, |me| {
/// let array = me.global_array::<u32>(10)?;
/// for index in array.local_indices(me) {
///     array.put(me, index, 100 - index as u32)?;
/// }
/// farside_containers::sort_array(me, &array)?;
/// assert_eq!((array.get(me, 0)?, array.get(me, 9)?), (91, 100));
/// # me.barrier()
/// # }).unwrap();
/// ```
///
/// *Cost*: that of [`DistVec::sort`] and [`DistVec::rebalance`], and a copy of the values. Each
/// value is put by itself: into the own part, if the array is distributed in blocks.
///
/// # Errors
/// [`ContainerError::Failed`](crate::ContainerError) if the job has lost a process; those of
/// [`DistVec::sort`] and [`GlobalArray::put`]. After an error of `put`, some values are in the
/// array twice, and others are not.
pub fn sort_array<T: Pod + Wire + Ord>(me: &Worker, array: &GlobalArray<T>) -> Result<()> {
    let lost = me.lost_processes();
    fail_together(me, lost.first().map(|process| format!("{process} is lost, and its values with it")))?;
    let values = DistVec::new(me)?;
    // Workers of one process may share a part.
    let own = array.local_indices(me).filter(|index| array.worker_of(me, *index).is_ok_and(|of| of == me.id()));
    let own: Result<Vec<T>> = own.map(|index| array.get(me, index)).collect();
    // All have read their values before any is replaced.
    let read = agree(me, own.map(|own| values.with(me, |part| *part = own)));
    let sorted = read.and_then(|()| values.sort(me)).and_then(|()| values.rebalance(me));
    let written = sorted.and_then(|()| {
        let mut sorted = me.share(0..array.len()).zip(values.iter(me));
        agree(me, sorted.try_for_each(|(index, value)| array.put(me, index, value)))
    });
    written.and(values.free(me))
}
