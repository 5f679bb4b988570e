//! What checking costs, for `docs/checking-accesses.md`. Prints; asserts nothing about time.

use std::hint::black_box;
use std::time::Instant;

use farside::Result;
use farside::prelude::*;

use super::support::word;

/// Nanoseconds for a put of eight bytes to one's own memory, to another process's, and for a call with a result: the medians of nine.
fn measure(me: &Worker, puts: u64, calls: u64) -> Result<()> {
    me.setup_all()?;
    me.barrier()?;
    if me.id().number() == 0 {
        let median = |mut each: Vec<f64>| {
            each.sort_by(f64::total_cmp);
            each[each.len() / 2]
        };
        let time = |count: u64, run: &dyn Fn(u64) -> Result<()>| -> Result<f64> {
            let times = (0..9).map(|_| {
                let start = Instant::now();
                (0..count).try_for_each(run)?;
                Ok(start.elapsed().as_nanos() as f64 / count as f64)
            });
            Ok(median(times.collect::<Result<_>>()?))
        };
        let own = time(puts, &|value| black_box(word(0, 0)).put(me, value))?;
        let other = time(puts, &|value| black_box(word(1, 0)).put(me, value))?;
        let call = time(calls, &|value| me.call_return(me.neighbor(1), value, |_, x| x)?.wait().map(drop))?;
        println!("own {own:.1} ns, other {other:.1} ns, call {call:.0} ns");
    }
    me.barrier()
}

fn run(test: &str, check: bool, fabric: &str, puts: u64) {
    let job = farside::job().processes(2).check_accesses(check).force_fabric(fabric.parse().unwrap());
    let arguments = [test, "--exact", "--nocapture", "--include-ignored"];
    let verdict = job.entry(arguments).run(|me| measure(me, puts, puts.min(2000)));
    if std::env::var_os("FARSIDE_LAUNCHER").is_some() {
        std::process::exit(verdict.is_err().into());
    }
    verdict.unwrap();
}

#[test]
#[ignore = "it measures"]
fn unchecked() {
    run("accesses::costs::unchecked", false, "shm", 1_000_000);
}

#[test]
#[ignore = "it measures"]
fn checked() {
    run("accesses::costs::checked", true, "shm", 2000);
}

#[test]
#[ignore = "it measures"]
fn unchecked_over_libfabric() {
    run("accesses::costs::unchecked_over_libfabric", false, "ofi:tcp", 2000);
}

#[test]
#[ignore = "it measures"]
fn checked_over_libfabric() {
    run("accesses::costs::checked_over_libfabric", true, "ofi:tcp", 2000);
}
