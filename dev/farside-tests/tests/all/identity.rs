//! A function means the same in every process, although its address differs. Each process knows
//! its machine.
//!
//! The compiler and the linker make the names of functions, so these tests run with and without
//! optimisation.

use std::process::Command;

use farside::prelude::*;
use farside::{GlobalAddress, Result, remote};

use crate::support::only;

fn address_of(function: fn(&Worker, u64) -> u64) -> usize {
    function as usize
}

fn plus_one(_: &Worker, x: u64) -> u64 {
    x + 1
}

/// Returns whether the system loads programs at random addresses. If this is unknown, it does not.
fn addresses_are_random() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/randomize_va_space").is_ok_and(|text| text.trim() != "0")
        && std::fs::read_to_string("/proc/self/personality").is_ok_and(|text| {
            let personality = u32::from_str_radix(text.trim(), 16).unwrap_or(ADDR_NO_RANDOMIZE);
            personality & ADDR_NO_RANDOMIZE == 0
        })
}

/// Set by `setarch -R` and debuggers.
const ADDR_NO_RANDOMIZE: u32 = 0x0004_0000;

/// The other tests would show nothing without random addresses.
#[farside::test(processes = 3, threads = 1)]
fn addresses_differ(me: &Worker) -> Result<()> {
    let addresses = me.gather(WorkerId::new(0), address_of(plus_one) as u64)?;
    if let Some(mut addresses) = addresses
        && addresses_are_random()
    {
        addresses.sort();
        addresses.dedup();
        // Two of three addresses may be equal by chance, once in a hundred million runs.
        assert!(addresses.len() > 1, "{addresses:x?}");
    }
    me.barrier()
}

/// Returns the result of a function by pointer on every worker of the job.
fn everywhere<A: Wire + Clone, R: Wire + PartialEq + std::fmt::Debug>(
    me: &Worker,
    argument: A,
    function: fn(&Worker, A) -> R,
    expected: R,
) -> Result<()> {
    for to in me.workers() {
        assert_eq!(me.call_return(to, argument.clone(), function)?.wait()?, expected);
    }
    Ok(())
}

#[farside::test(processes = 2, threads = 2)]
fn functions_and_closures(me: &Worker) -> Result<()> {
    everywhere(me, 41, plus_one, 42)?;
    everywhere(me, 40, |_, x: u64| x + 2, 42)?;
    everywhere(me, 21, |_, x: u64| x * 2, 42)?;
    everywhere(me, (6_u8, 7_u32), |_, (a, b)| u32::from(a) * b, 42)?;
    everywhere(me, "far".to_owned(), |_, word| format!("{word} side"), "far side".to_owned())?;
    // A closure in a closure.
    everywhere(me, vec![1_u64, 2, 3], |_, values| values.into_iter().map(|x| x * 7).sum(), 42_u64)?;
    me.barrier()
}

/// Calls one of many closures that differ only in a type or a number. Each has its own code, or
/// shares it with an equal one.
fn shifted<T, const N: u64>(me: &Worker, value: T) -> Result<()>
where
    T: Wire + Copy + PartialEq + std::fmt::Debug + Into<u64>,
{
    for to in me.workers() {
        let by_pointer = me.call_return(to, value, |_, value| (value.into() + N, size_of::<T>() as u64))?;
        let by_type =
            me.to(to).call_return_remote(value, remote!(|_, value: T| (value.into() * N, size_of::<T>() as u64)))?;
        let (value, bytes) = (value.into(), size_of::<T>() as u64);
        assert_eq!(by_pointer.wait()?, (value + N, bytes));
        assert_eq!(by_type.wait()?, (value * N, bytes));
    }
    Ok(())
}

#[farside::test(processes = 2, threads = 1)]
fn instances_of_generic_functions(me: &Worker) -> Result<()> {
    shifted::<u8, 1>(me, 7)?;
    shifted::<u8, 2>(me, 7)?;
    shifted::<u16, 1>(me, 7)?;
    shifted::<u16, 2>(me, 7)?;
    shifted::<u32, 1>(me, 7)?;
    shifted::<u32, 2>(me, 7)?;
    shifted::<u64, 1>(me, 7)?;
    shifted::<u64, 2>(me, 7)?;
    me.barrier()
}

#[farside::test(processes = 2, threads = 1)]
fn closures_in_loops(me: &Worker) -> Result<()> {
    let next = me.neighbor(1);
    let functions: [fn(&Worker, u64) -> u64; 4] = [|_, x| x + 1, |_, x| x + 2, plus_one, |_, x| x * x];
    for x in 0..100 {
        for (function, expected) in functions.into_iter().zip([x + 1, x + 2, x + 1, x * x]) {
            assert_eq!(me.call_return(next, x, function)?.wait()?, expected);
        }
        assert_eq!(me.call_return(next, x, |_, x| x ^ 1)?.wait()?, x ^ 1);
        assert_eq!(me.to(next).call_return_remote(x, remote!(|_, x: u64| x ^ 2))?.wait()?, x ^ 2);
    }
    me.barrier()
}

#[inline(always)]
fn always_inline(_: &Worker, x: u64) -> u64 {
    x + 100
}

#[inline(never)]
fn never_inline(_: &Worker, x: u64) -> u64 {
    x + 200
}

/// Other crates may have instances of their own.
#[inline]
fn generic_inline<T: Into<u64>>(_: &Worker, x: T) -> u64 {
    x.into() + 300
}

mod nested {
    use farside::Worker;

    pub(super) struct Type;

    impl Type {
        pub(super) fn associated(_: &Worker, x: u64) -> u64 {
            x + 400
        }
    }

    pub(super) trait Trait {
        fn of_the_trait(there: &Worker, x: u64) -> u64;
    }

    impl Trait for Type {
        fn of_the_trait(_: &Worker, x: u64) -> u64 {
            x + 500
        }
    }

    impl Trait for () {
        fn of_the_trait(_: &Worker, x: u64) -> u64 {
            x + 600
        }
    }
}

#[farside::test(processes = 2, threads = 1)]
fn functions_of_all_kinds(me: &Worker) -> Result<()> {
    use nested::{Trait, Type};
    everywhere(me, 1, always_inline, 101)?;
    everywhere(me, 1, never_inline, 201)?;
    everywhere(me, 1_u8, generic_inline, 301)?;
    everywhere(me, 1_u32, generic_inline, 301)?;
    everywhere(me, 1, Type::associated, 401)?;
    everywhere(me, 1, Type::of_the_trait, 501)?;
    everywhere(me, 1, <()>::of_the_trait, 601)?;
    // Functions of the standard library are part of the program, too.
    everywhere(me, vec![3_u64, 1, 2], |_, values| values.into_iter().max(), Some(3))?;
    me.barrier()
}

/// Functions are chosen at run time, so no constant names them.
#[farside::test(processes = 2, threads = 1)]
fn functions_chosen_at_run_time(me: &Worker) -> Result<()> {
    let seed = me.broadcast(WorkerId::new(0), (me.id().number() == 0).then(|| u64::from(std::process::id())))?;
    let functions: [fn(&Worker, u64) -> u64; 3] = [plus_one, always_inline, never_inline];
    for x in seed..seed + 30 {
        let function = functions[x as usize % 3];
        everywhere(me, x, function, function(me, x))?;
    }
    me.barrier()
}

/// Calls in all forms, by pointer and by type.
#[farside::test(processes = 2, threads = 1)]
fn all_ways_of_calling(me: &Worker) -> Result<()> {
    use std::cell::Cell;

    type Sum = PerWorker<Cell<u64>>;
    fn add(there: &Worker, (sum, x): (Sum, u64)) {
        sum.here(there).set(sum.here(there).get() + x);
    }
    fn add_all(there: &Worker, sum: Sum, buffer: &[u8]) {
        add(there, (sum, buffer.iter().map(|byte| u64::from(*byte)).sum()));
    }
    let sum = PerWorker::new(me, Cell::new(0))?;
    let next = me.neighbor(1);
    let executed = me.synchronizer(2)?;
    me.call(next, (sum, 1), add)?;
    me.to(next).call_remote((sum, 2), remote!(|there, (sum, x): (Sum, u64)| add(there, (sum, x))))?;
    me.to(next).send_based().call((sum, 4), add)?;
    me.to(next).send_based().call_remote((sum, 8), remote!(|there, (sum, x): (Sum, u64)| add(there, (sum, x))))?;
    me.to(next).notify(&executed, On::Executed).call((sum, 16), add)?;
    me.to(next)
        .notify(&executed, On::Executed)
        .call_remote((sum, 32), remote!(|there, arguments: (Sum, u64)| add(there, arguments)))?;
    me.call_buffer(next, sum, &[32; 2], add_all)?;
    me.call_buffer(next, sum, &[128; 2], |there, sum, buffer| add_all(there, sum, &buffer[..1]))?;
    let aggregator = me.aggregate(next);
    aggregator.call((sum, 256), add)?;
    aggregator.call_remote((sum, 512), remote!(|there, (sum, x): (Sum, u64)| add(there, (sum, x))))?;
    drop(aggregator);
    let reply = me.call_with_reply(next, (sum, 1024), |there, arguments, reply: Reply<()>| {
        add(there, arguments);
        reply.send(());
    })?;
    reply.wait()?;
    executed.wait()?;
    me.wait_while_serving(|| sum.here(me).get() == 2047)?;
    me.barrier()
}

/// The test beds also run this program, on two hosts and under other launchers.
#[farside::test(processes = 4, threads = 1)]
#[ignore = "a program for the test below"]
fn on_two_machines(me: &Worker) -> Result<()> {
    assert_eq!((me.process_count(), me.machine_count()), (4, 2));
    for process in (0..4).map(ProcessId::new) {
        assert_eq!(me.machine_of(process).number(), process.number() / 2);
        let is_here = me.machine_of(process) == me.machine();
        assert_eq!(me.is_mapped(GlobalAddress::starter(process, 0))?, is_here);
    }
    everywhere(me, 41, plus_one, 42)?;
    me.barrier()
}

#[test]
fn processes_of_one_machine_count_as_on_two() {
    farside_testbed::needs!("fabric");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(only("identity::on_two_machines")).env_remove("FARSIDE_FABRIC");
    let output = command.env("FARSIDE_MACHINES", "2").env("FARSIDE_ADDRESS", "127.0.0.1").output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}
