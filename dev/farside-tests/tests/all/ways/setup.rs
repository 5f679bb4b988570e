//! Setup of ways, with rings of several sizes.

use std::cell::Cell;

use farside::prelude::*;
use farside::{Error, FlushCause, LaunchError, Result, RingOptions};
use farside_testbed::limit;

use crate::support::{call_for_attention, failure, pay_no_attention, take_notes, verdict};
use crate::ways::{over_all_fabrics, over_real_fabrics};

#[test]
fn the_first_call_after_it_waits_for_nothing() {
    over_all_fabrics("ways::setup::the_first_call_after_it_waits_for_nothing", 3, |me| {
        me.setup_all()?;
        for to in me.workers() {
            me.setup(to)?;
            let before = me.counters_to(to);
            me.to(to).when_full(WhenFull::Fail).call(1_u8, |_, _| ())?;
            let after = me.counters_to(to);
            assert_eq!((after.calls - before.calls, after.staged - before.staged), (1, 0));
        }
        assert!(matches!(me.setup(WorkerId::new(3)), Err(Error::UnknownWorker { count: 3, .. })));
        assert!(matches!(me.shutdown(WorkerId::new(3)), Err(Error::UnknownWorker { .. })));
        me.barrier()
    });
}

#[test]
fn calls_without_a_ring_make_none() {
    over_all_fabrics("ways::setup::calls_without_a_ring_make_none", 2, |me| {
        let to = me.neighbor(1);
        if me.id().number() == 0 {
            assert_eq!(me.counters_to(to).rings, 0);
            me.shutdown(to)?;
            me.shutdown_all()?;
            assert_eq!(me.counters_to(to).rings_reclaimed, 0);
        }
        me.barrier()
    });
}

/// Seriema's shape: chunks of one size, two at a time.
const SERIEMA: RingOptions = RingOptions {
    first_chunks: 2,
    chunks_per_growth: 2,
    chunks_max: 7,
    chunk_bytes: 8 << 10,
    chunk_bytes_max: 8 << 10,
};

/// Calls the other worker, which pays no attention, until the ring has grown by `chunks` and has no
/// room.
fn fill(me: &Worker, got: PerWorker<Cell<u64>>, chunks: u64) -> Result<u64> {
    let to = me.to(me.neighbor(1)).when_full(WhenFull::Fail);
    let (mut accepted, mut refused) = (0_u64, 0);
    let (end, other) = (me.now() + limit(), me.process_of(me.neighbor(1)));
    // The answer to a request for more memory may take time. Whoever answers it answers later
    // requests for memory after it, so a ring that grows too far has grown after some of these.
    while refused < 10 || me.counters_to(me.neighbor(1)).chunks_grown < chunks {
        assert!(me.now() < end, "the ring does not grow");
        match to.call((got, [0_u64; 20]), |there, (got, _)| got.here(there).set(got.here(there).get() + 1)) {
            Ok(()) => (accepted, refused) = (accepted + 1, 0),
            Err(error) => {
                assert!(matches!(error.error, Error::Full { .. }), "{}", error.error);
                refused += 1;
                me.release(me.allocate_at(other, 8)?)?;
                me.progress()?;
            }
        }
    }
    Ok(accepted)
}

fn grows_to(me: &Worker, test: &str, chunks: u64, bytes: u64) -> Result<()> {
    let got = PerWorker::new(me, Cell::new(0))?;
    if me.id().number() == 1 {
        pay_no_attention(test);
        return me.barrier();
    }
    let to = me.neighbor(1);
    me.setup(to)?;
    let accepted = fill(me, got, chunks)?;
    call_for_attention(test);
    let counters = me.counters_to(to);
    assert_eq!((counters.chunks_grown, counters.ring_bytes), (chunks, bytes));
    assert!(counters.stalls > 0);
    assert_eq!(me.call_return(to, got, |there, got| got.here(there).get())?.wait()?, accepted);
    me.barrier()
}

#[test]
fn a_job_says_how_rings_grow() {
    let test = "ways::setup::a_job_says_how_rings_grow";
    verdict(test, farside::job().processes(2).ring(SERIEMA), |me| grows_to(me, test, 5, 7 * (8 << 10))).unwrap();
    take_notes(std::process::id(), test, 1);
}

#[test]
fn a_program_says_it_for_one_destination() {
    let test = "ways::setup::a_program_says_it_for_one_destination";
    verdict(test, farside::job().processes(2), |me| {
        if me.id().number() == 0 {
            me.setup_with(me.neighbor(1), SERIEMA)?;
            let again = me.setup_with(me.neighbor(1), RingOptions::default()).unwrap_err();
            assert!(
                matches!(&again, Error::Launch(LaunchError::RingOptions { why }) if why.contains("shutdown")),
                "{again}"
            );
        }
        grows_to(me, test, 5, 7 * (8 << 10))?;
        if me.id().number() == 0 {
            me.shutdown(me.neighbor(1))?;
            me.setup_with(me.neighbor(1), RingOptions { first_chunks: 3, ..RingOptions::default() })?;
            let counters = me.counters_to(me.neighbor(1));
            assert_eq!((counters.rings, counters.ring_bytes), (2, (56 << 10) + (12 << 10)));
        }
        me.barrier()
    })
    .unwrap();
    take_notes(std::process::id(), test, 1);
}

#[test]
fn the_receivers_cap_counts() {
    // The first chunks are granted. The next ones do not fit.
    let ring = RingOptions { chunk_bytes: 16 << 10, chunk_bytes_max: 16 << 10, ..RingOptions::default() };
    let job = farside::job().processes(2).ring_cap_bytes(40 << 10).ring(ring);
    let test = "ways::setup::the_receivers_cap_counts";
    verdict(test, job, |me| grows_to(me, test, 0, 32 << 10)).unwrap();
    take_notes(std::process::id(), test, 1);
}

#[test]
fn what_cannot_be_is_refused() {
    let bad = RingOptions { first_chunks: 1, ..RingOptions::default() };
    let test = "ways::setup::what_cannot_be_is_refused";
    if !crate::support::is_launched() {
        let refused = farside::job().processes(2).ring(bad).run(|_| Ok(())).unwrap_err();
        assert!(matches!(refused, Error::Launch(LaunchError::RingOptions { .. })), "{refused}");
    }
    over_real_fabrics(test, farside::job().processes(2), |me| {
        let to = me.neighbor(1);
        let refused = me.setup_with(to, bad).unwrap_err();
        assert!(matches!(refused, Error::Launch(LaunchError::RingOptions { .. })), "{refused}");
        let large = RingOptions { chunk_bytes: 8 << 20, chunk_bytes_max: 8 << 20, ..RingOptions::default() };
        let refused = me.setup_with(to, large).unwrap_err();
        assert!(
            matches!(&refused, Error::Launch(LaunchError::RingOptions { why }) if why.contains("ring_cap_bytes")),
            "{refused}"
        );
        // No refusal has made or damaged a ring.
        assert_eq!(me.call_return(to, 1_u8, |_, x| x)?.wait()?, 1);
        me.barrier()
    });
}

#[test]
fn setting_up_in_a_handler_is_refused() {
    let test = "ways::setup::setting_up_in_a_handler_is_refused";
    over_real_fabrics(test, farside::job().processes(2), |me| {
        let refusals = me.call_return(me.neighbor(1), (), |there, ()| {
            let refused = |result| matches!(result, Err(Error::InHandler { .. }));
            refused(there.setup(there.id())) && refused(there.shutdown(there.id()))
        })?;
        assert!(refusals.wait()?);
        me.barrier()
    });
}

#[test]
fn a_ring_to_a_killed_process_is_an_error() {
    let test = "ways::setup::a_ring_to_a_killed_process_is_an_error";
    let verdict = verdict(test, farside::job().processes(2), |me| {
        if me.id().number() == 1 {
            me.wait_while_serving(|| me.counters().executed > 0)?;
            farside_sys::process::kill_self();
        }
        me.call(me.neighbor(1), (), |_, ()| ())?;
        me.wait_while_serving(|| !me.lost_processes().is_empty())?;
        for lost in [me.setup(me.neighbor(1)), me.shutdown(me.neighbor(1)), me.setup_all()] {
            assert!(matches!(lost, Err(Error::PeerLost { .. })), "{lost:?}");
        }
        assert_eq!(me.counters_to(me.neighbor(1)).flushes[FlushCause::Asked as usize], 0);
        Ok(())
    });
    assert_eq!(failure(verdict).0, 1);
}
