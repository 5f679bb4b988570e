//! State of a worker that called functions reach.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use farside::prelude::*;
use farside::{Error, Result, simulate};

type State = PerWorker<RefCell<u64>>;

fn borrow_line<T: std::fmt::Debug>(result: Result<T>) -> u32 {
    match result {
        Err(Error::Borrowed { since, .. }) if since.file() == file!() => since.line(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_waits_inside_a_borrow_names_it() {
    simulate(2, 1, 1, |me| {
        let (state, other) = (State::new(me, RefCell::new(0))?, State::new(me, RefCell::new(0))?);
        let peer = me.neighbor(1);
        let add = |there: &Worker, state: State| state.with(there, |value| *value += 1);
        state.with(me, |value| {
            let line = line!() - 1;
            *value += 1;
            me.call(peer, state, add)?;
            assert_eq!(borrow_line(me.barrier()), line);
            assert_eq!(borrow_line(me.progress()), line);
            let pending = me.call_return(peer, (), |_, ()| 1_u64)?;
            assert_eq!(borrow_line(pending.wait()), line);
            other.with(me, |_| assert_eq!(borrow_line(me.quiesce()), line!()));
            assert_eq!(borrow_line(me.progress()), line);
            let twice = catch_unwind(AssertUnwindSafe(|| state.with(me, |_| ()))).unwrap_err();
            let message = twice.downcast_ref::<String>().unwrap();
            assert!(message.contains(&format!("{}:{line}:", file!())), "{message}");
            Result::<()>::Ok(())
        })?;
        // A panic ends a borrow, too.
        let panicked = catch_unwind(AssertUnwindSafe(|| state.with(me, |_| panic!("as planned"))));
        assert!(panicked.is_err());
        me.quiesce()?;
        assert_eq!(state.with(me, |value| *value), 2);
        me.barrier()
    })
    .unwrap();
}

#[test]
fn there_may_be_any_number_of_values() {
    const COUNT: u32 = 3000;
    simulate(2, 1, 1, |me| {
        let mut handles = Vec::new();
        for number in 0..COUNT {
            handles.push((PerWorker::new(me, number)?, Dist::new(me, || u64::from(number) << 32)?));
        }
        let peer = me.neighbor(1);
        for (number, handle) in (0..).zip(handles).step_by(199) {
            let there = me.call_return(peer, handle, |there, (own, shared)| (*own.here(there), *shared.here(there)))?;
            assert_eq!(there.wait()?, (number, u64::from(number) << 32));
        }
        me.barrier()
    })
    .unwrap();
}
