//! State of a worker that called functions reach.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use farside::prelude::*;
use farside::{Error, Result, simulate};
use farside_testbed::scaled;

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

/// Values that are freed leave nothing behind, and an old handle never names a later value.
#[test]
fn values_come_and_go() {
    // More than a slot has values.
    let count = scaled(1500) as u32;
    let alive = Arc::new(());
    simulate(2, 1, 1, |me| {
        let (mut olds, mut slots) = (Vec::new(), HashSet::new());
        for number in 0..count {
            let own = PerWorker::new(me, RefCell::new((number, alive.clone())))?;
            let shared = Dist::new(me, || (number, alive.clone()))?;
            assert_eq!(own.with(me, |own| own.0), number);
            assert_eq!(shared.hold(me).expect("not freed").0, number);
            assert!(own.is_here(me));
            own.free(me)?;
            shared.free(me)?;
            assert!(!own.is_here(me) && own.hold(me).is_none() && own.find(me).is_none());
            assert!(shared.hold(me).is_none());
            if number % 997 == 0 {
                // No worker has made the next values.
                me.barrier()?;
                assert_eq!(Arc::strong_count(&alive), 1, "all values are dropped");
                me.barrier()?;
            }
            slots.insert((slot(&own), slot(&shared)));
            olds.push((own, shared));
        }
        // A slot has 1024 values.
        assert!(slots.len() <= count as usize / 1000 + 1, "{} slots", slots.len());
        let own = PerWorker::new(me, RefCell::new((count, alive.clone())))?;
        let shared = Dist::new(me, || (count, alive.clone()))?;
        assert!(olds.iter().all(|(own, shared)| !own.is_here(me) && shared.hold(me).is_none()));
        let (old, old_shared) = olds[olds.len() - 1];
        let refused = |panicked: std::thread::Result<()>| {
            let panic = panicked.unwrap_err();
            let texts = (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>());
            let why = texts.0.cloned().or(texts.1.map(|text| (*text).into())).unwrap_or_default();
            assert!(why.contains("until it is freed") || why.contains("is freed once"), "{why}");
        };
        refused(catch_unwind(AssertUnwindSafe(|| old.with(me, |_| ()))));
        refused(catch_unwind(AssertUnwindSafe(|| _ = old.here(me))));
        refused(catch_unwind(AssertUnwindSafe(|| _ = old_shared.here(me))));
        refused(catch_unwind(AssertUnwindSafe(|| drop(old.free(me)))));
        refused(catch_unwind(AssertUnwindSafe(|| drop(old_shared.free(me)))));
        // Also elsewhere.
        let peer = me.neighbor(1);
        let finds = me
            .call_return(peer, (old, own), |there, (old, own)| (old.hold(there).is_some(), own.hold(there).is_some()));
        assert_eq!(finds?.wait()?, (false, true));
        own.free(me)?;
        shared.free(me)
    })
    .unwrap();
}

/// Returns the slot of a value from its handle, for values made in turn.
fn slot(handle: &impl Wire) -> u32 {
    let bytes = farside::wire::encode(handle, Vec::new());
    u32::from_le_bytes(bytes.try_into().unwrap()) % (1 << 22)
}

/// A reference keeps its value until the job ends, and a holder until it is dropped.
#[test]
fn a_value_outlives_its_handle_where_it_is_used() {
    for kept_on in [0, 1] {
        simulate(2, 1, 1, |me| {
            let (own, shared) = (PerWorker::new(me, Cell::new(1))?, Dist::new(me, || 2)?);
            let is_kept = me.id().number() == kept_on;
            let (kept, held) = (is_kept.then(|| (own.here(me), shared.here(me))), (own.hold(me), shared.hold(me)));
            own.free(me)?;
            shared.free(me)?;
            let later = (PerWorker::new(me, Cell::new(3))?, Dist::new(me, || 4)?);
            // No worker gives the slot of a value to a later one if any worker has kept it.
            assert!(slot(&later.0) != slot(&own) && slot(&later.1) != slot(&shared));
            if let Some((own, shared)) = kept {
                assert_eq!((own.replace(5), *shared), (1, 2));
            }
            assert_eq!(held.0.expect("held").get(), if is_kept { 5 } else { 1 });
            assert_eq!(held.1.as_deref(), Some(&2));
            assert_eq!((later.0.here(me).get(), *later.1.here(me)), (3, 4));
            assert!(!own.is_here(me) && own.find(me).is_none());
            me.barrier()
        })
        .unwrap();
    }
}
