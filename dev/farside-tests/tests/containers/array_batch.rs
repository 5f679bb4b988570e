//! Batches on arrays make the changes that single accesses would make.

use std::rc::Rc;

use farside::{Distribution, Error, MakeArrays, Result, Worker};
use farside_containers::{ArrayBatch, ContainerError, sort_array};

use crate::everywhere;

pub(crate) fn batches_change_every_value(me: &Worker) -> Result<()> {
    const LENGTH: usize = 200;
    let workers = u64::from(me.worker_count());
    for distribution in [Distribution::BLOCK, Distribution::CYCLIC, Distribution::block_cyclic(3).over_processes()] {
        let array = Rc::new(me.global_array_as::<u64>(LENGTH, distribution)?);
        let adding = ArrayBatch::new(me, array.clone(), |value, by: u64| value + by)?;
        // Many indices, one operand; one index, many operands; pairs.
        adding.apply(me, (0..LENGTH).map(|index| (index, 1)))?;
        adding.apply(me, (0..100).map(|by| (7, by)))?;
        adding.apply(me, (0..LENGTH).rev().zip(0..))?;
        me.quiesce()?;
        for index in 0..LENGTH {
            let each = 1 + (LENGTH - 1 - index) as u64 + if index == 7 { 4950 } else { 0 };
            assert_eq!(array.get(me, index)?, workers * each, "value {index}");
        }
        me.barrier()?;
        // Old values: every worker takes tickets, and all tickets are different.
        let taking = ArrayBatch::new(me, array.clone(), |value, by: u8| value + u64::from(by))?;
        let first = array.get(me, 13)?;
        me.barrier()?;
        let mine: Vec<u64> = taking.fetch(me, (0..50).map(|_| (13, 1)))?;
        let all = me.all_reduce(mine, |mut one, other| {
            one.extend(other);
            one
        })?;
        let mut all = all;
        all.sort_unstable();
        assert_eq!(all, (first..first + 50 * workers).collect::<Vec<_>>());
        // Beyond the end; the others go on.
        let outside = taking.fetch(me, [(LENGTH, 1)]);
        assert!(outside.unwrap_err().to_string().contains("200"), "the error names the length");
        assert_eq!(taking.fetch(me, [(13, 0)])?, [first + 50 * workers]);
        assert!(taking.apply(me, [(usize::MAX, 1)]).is_err());
        taking.free(me)?;
        adding.free(me)?;
        Rc::try_unwrap(array).expect("the batches are gone").free(me)?;
    }
    Ok(())
}
everywhere!(changes, super::batches_change_every_value);

/// Sorted, an array has the same values in order, however it is distributed.
pub(crate) fn arrays_are_sorted(me: &Worker) -> Result<()> {
    for length in [0, 1, 7, 500] {
        for distribution in [Distribution::BLOCK, Distribution::CYCLIC, Distribution::block_cyclic(3).over_processes()]
        {
            let array = me.global_array_as::<u64>(length, distribution)?;
            let values: Vec<_> = (0..length as u64).map(|index| index * 7919 % 101).collect();
            for index in me.share(0..length) {
                array.put(me, index, values[index])?;
            }
            me.barrier()?;
            sort_array(me, &array)?;
            let mut oracle = values;
            oracle.sort_unstable();
            for (index, value) in oracle.into_iter().enumerate() {
                assert_eq!(array.get(me, index)?, value, "value {index} of {length}, {distribution:?}");
            }
            array.free(me)?;
        }
    }
    Ok(())
}
everywhere!(sorts, super::arrays_are_sorted);

/// Adds, and panics if the operand is 13.
fn add_but_13(value: u64, by: u64) -> u64 {
    assert!(by != 13, "no 13 here");
    value + by
}

/// An operation that panics changes nothing, and those after it in its batch run.
#[test]
fn a_panicking_change_stops_no_other() {
    farside::simulate(1, 1, 1, |me| {
        let array = Rc::new(me.global_array::<u64>(50)?);
        let adding = ArrayBatch::new(me, array.clone(), add_but_13)?;
        adding.apply(me, (0..50).map(|index| (index, if index == 20 { 13 } else { 1 })))?;
        let told = me.quiesce();
        assert!(matches!(&told, Err(Error::HandlerPanicked { message, .. }) if message == "no 13 here"), "{told:?}");
        me.quiesce()?;
        for index in 0..50 {
            assert_eq!(array.get(me, index)?, u64::from(index != 20), "value {index}");
        }
        Ok(())
    })
    .unwrap();
    // With old values: all workers learn it.
    for (processes, seed) in [(1, 1), (2, 2), (3, 3), (5, 4)] {
        farside::simulate(processes, 1, seed, |me| {
            let array = Rc::new(me.global_array::<u64>(50)?);
            let adding = ArrayBatch::new(me, array.clone(), add_but_13)?;
            let by = |index| if me.is_first() && index == 20 { 13 } else { 1 };
            let failed = adding.fetch(me, (0..50).map(|index| (index, by(index)))).expect_err("a change panics");
            let expected = ContainerError::Failed { at: array.worker_of(me, 20)?, why: "no 13 here".to_owned() };
            assert_eq!(failed.room_error(), Some(&expected), "{failed}");
            me.barrier()?;
            let old = adding.fetch(me, (0..50).map(|index| (index, 0)))?;
            let workers = u64::from(me.worker_count());
            assert!((0..).zip(old).all(|(index, old)| old == workers - u64::from(index == 20)));
            me.barrier()
        })
        .unwrap();
    }
}
