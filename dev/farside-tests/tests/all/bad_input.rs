//! Every access by an address, with every kind of wrong address. Each is refused with the reason,
//! and nothing is written. The bodies run as processes, over the fabric that `FARSIDE_FABRIC`
//! names, and in the simulator.

use farside::global::GlobalError;
use std::sync::Mutex;
use std::time::Duration;

use farside::global::Segment;
use farside::prelude::*;
use farside::{
    AddressFault, AtomicChange, Comparison, Error, GlobalAddress, GlobalPtr, GlobalSlice, Handle, MovementError, Order,
    Result, Signal, Simulation,
};
use farside_kit::notifications::Notifications;
use farside_kit::prelude::*;
use farside_kit::section::Section;
use farside_testbed::scaled;

use crate::forged_handles::address_in;

/// The content of memory that no test may write.
const UNTOUCHED: u64 = 0x5a5a_5a5a_5a5a_5a5a;
/// Words of each registered region.
const WORDS: usize = 40;
const STARTER_BYTES: u64 = 4096;

/// A form of access to memory by an address.
struct AccessForm {
    name: &'static str,
    /// The bytes that it accesses, and the alignment that it needs.
    bytes: u64,
    align: u64,
    writes: bool,
    reach: fn(&Worker, GlobalAddress) -> Result<()>,
}

const fn form(
    name: &'static str,
    (bytes, align): (u64, u64),
    writes: bool,
    reach: fn(&Worker, GlobalAddress) -> Result<()>,
) -> AccessForm {
    AccessForm { name, bytes, align, writes, reach }
}

/// Memory of this process whose content does not matter.
fn good(me: &Worker) -> GlobalAddress {
    GlobalAddress::starter(me.process(), 2048 + me.thread_index() as u32 * 512)
}

fn words(address: GlobalAddress, count: usize) -> GlobalSlice<u64> {
    address.cast().slice(count)
}

fn end(me: &Worker, started: Result<Handle>) -> Result<()> {
    started.and_then(|handle| me.complete(handle))
}

fn three_of_five() -> Section {
    Section::strided(3, 1, 2).unwrap()
}

const READS: bool = false;
const WRITES: bool = true;
/// An atomic load is refused where changes are not allowed.
const LOADS: bool = true;
const WORD: (u64, u64) = (8, 8);
const HALF: (u64, u64) = (4, 4);

const FORMS: &[AccessForm] = &[
    form("put", WORD, WRITES, |me, at| at.cast::<u64>().put(me, 1)),
    form("get", WORD, READS, |me, at| at.cast::<u64>().get(me).map(drop)),
    form("put of a struct", (24, 8), WRITES, |me, at| at.cast::<[u64; 3]>().put(me, [1; 3])),
    form("put of bytes", (9, 1), WRITES, |me, at| me.put_bytes(at, &[1; 9])),
    form("get of bytes", (9, 1), READS, |me, at| me.get_bytes(at, &mut [1; 9])),
    form("put of values", (40, 8), WRITES, |me, at| words(at, 5).put(me, 0, &[1; 5])),
    form("get of values", (40, 8), READS, |me, at| words(at, 5).to_vec(me).map(drop)),
    form("load", WORD, LOADS, |me, at| at.cast::<u64>().load(me).map(drop)),
    form("load of half a word", HALF, LOADS, |me, at| at.cast::<u32>().load(me).map(drop)),
    form("store", WORD, WRITES, |me, at| at.cast::<u64>().store(me, 1)),
    form("compare_swap", WORD, WRITES, |me, at| at.cast::<u64>().compare_swap(me, UNTOUCHED, 1).map(drop)),
    form("fetch_add", WORD, WRITES, |me, at| at.cast::<u64>().fetch_add(me, 1).map(drop)),
    form("fetch_or of half a word", HALF, WRITES, |me, at| at.cast::<u32>().fetch_or(me, 1).map(drop)),
    form("fetch_min of a signed word", WORD, WRITES, |me, at| at.cast::<i64>().fetch_min(me, i64::MIN).map(drop)),
    form("fetch_add of a float", WORD, WRITES, |me, at| at.cast::<f64>().fetch_add(me, 1e300).map(drop)),
    form("fetch_max of half a float", HALF, WRITES, |me, at| at.cast::<f32>().fetch_max(me, f32::MAX).map(drop)),
    form("signal", WORD, WRITES, |me, at| at.cast().signal(me, Signal::Set(1))),
    form("signal that adds", WORD, WRITES, |me, at| at.cast().signal(me, Signal::Add(1))),
    form("signal of data", WORD, WRITES, |me, at| me.put_signal(good(me), &[1; 8], at.cast(), Signal::Set(1))),
    form("data of a signal", (9, 1), WRITES, |me, at| me.put_signal(at, &[1; 9], good(me).cast(), Signal::Set(1))),
    form("much data of a signal", (72, 1), WRITES, |me, at| {
        me.put_signal(at, &[1; 72], good(me).cast(), Signal::Set(1))
    }),
    form("put with a compare_swap", WORD, WRITES, |me, at| {
        me.put_compare_swap(good(me), &[1; 8], at.cast(), UNTOUCHED, 1).map(drop)
    }),
    form("data of a compare_swap", (9, 1), WRITES, |me, at| {
        me.put_compare_swap(at, &[1; 9], good(me).cast(), UNTOUCHED, UNTOUCHED).map(drop)
    }),
    form("test of a notification", WORD, LOADS, |me, at| words(at, 1).test(me).map(drop)),
    form("wait", WORD, LOADS, |me, at| at.cast::<u64>().wait_until(me, Comparison::Eq, UNTOUCHED).map(drop)),
    form("wait for some", WORD, LOADS, |me, at| {
        me.wait_some(&[at.cast::<u64>().until(Comparison::Eq, UNTOUCHED)]).map(drop)
    }),
    form("copy to", (24, 1), WRITES, |me, at| end(me, me.copy(at, good(me), 24, Order::None))),
    form("copy from", (24, 1), READS, |me, at| end(me, me.copy(good(me), at, 24, Order::All))),
    form("started put", (9, 1), WRITES, |me, at| end(me, me.start_put(at, &[1; 9], Order::Continuing))),
    form("started put of a buffer", (30, 1), WRITES, |me, at| {
        me.start_put_owned(at, vec![1; 30], Order::None).map_err(|refused| refused.error)?.take(me).map(drop)
    }),
    form("started get", (30, 1), READS, |me, at| {
        me.start_get(at, vec![1; 30], Order::None).map_err(|refused| refused.error)?.take(me).map(drop)
    }),
    form("started change", WORD, WRITES, |me, at| {
        me.start_change(at.cast::<u64>(), AtomicChange::Add(1), Order::None)?.take(me).map(drop)
    }),
    form("change into", HALF, WRITES, |me, at| {
        end(me, me.change_into(good(me).cast(), at.cast::<u32>(), AtomicChange::Max(u32::MAX), Order::None))
    }),
    form("put of a section", (40, 8), WRITES, |me, at| {
        words(at, 5).put_section(me, &three_of_five(), &[1; 3], &Section::contiguous(3))
    }),
    form("get of a section", (40, 8), READS, |me, at| {
        words(at, 5).get_section(me, &three_of_five(), &mut [1; 3], &Section::contiguous(3))
    }),
    form("copy of a section to", (40, 8), WRITES, |me, at| {
        words(at, 5).copy_section(me, &three_of_five(), &words(good(me), 3), &Section::contiguous(3))
    }),
    form("copy of a section from", (40, 8), READS, |me, at| {
        words(good(me), 3).copy_section(me, &Section::contiguous(3), &words(at, 5), &three_of_five())
    }),
];

/// Returns the fault that an access reports for an address. A started access reports it on
/// completion.
fn fault(result: Result<()>) -> Option<(GlobalAddress, AddressFault)> {
    match result {
        Ok(()) => None,
        Err(error) => Some(fault_of(&error)),
    }
}

fn fault_of(error: &Error) -> (GlobalAddress, AddressFault) {
    match error.room_error() {
        Some(GlobalError::Address { address, why }) => (*address, *why),
        Some(GlobalError::Movement(MovementError::Failed { cause, .. })) => fault_of(cause),
        _ => panic!("{error} is not about an address"),
    }
}

/// Memory that an address leads to.
struct Memory {
    start: GlobalAddress,
    bytes: u64,
}

/// Accesses every wrong address in every form, in memory of this process and of another.
fn every_way_is_refused(me: &Worker) -> Result<()> {
    let own = me.register(vec![UNTOUCHED; WORDS])?;
    let fixed = me.register_read_only(vec![UNTOUCHED; WORDS])?;
    let gone = me.register(vec![UNTOUCHED; WORDS])?;
    let root = WorkerId::new(0);
    let starts = [own.slice(), fixed.slice(), gone.slice()].map(|slice| slice.start().address());
    let all = me.broadcast(root, me.gather(root, starts)?)?;
    if me.thread_index() == 0 {
        words(GlobalAddress::starter(me.process(), 0), 256).put(me, 0, &[UNTOUCHED; 256])?;
    }
    // One access, so that every worker has attached the region when it is deregistered.
    for [_, _, gone] in &all {
        gone.cast::<u64>().get(me)?;
    }
    me.barrier()?;
    let gone = gone.deregister(me)?;
    me.barrier()?;
    for at in [me.id(), me.neighbor(1), me.neighbor(me.threads_per_process())] {
        let [registered, fixed, gone] = all[at.index()];
        let process = me.process_of(at);
        let starter = GlobalAddress::starter(process, 0);
        let memories =
            [Memory { start: registered, bytes: 8 * WORDS as u64 }, Memory { start: starter, bytes: STARTER_BYTES }];
        for form in FORMS {
            for address in never_good(me, process).into_iter().chain([(gone, AddressFault::Stale)]) {
                refuses(me, form, address);
            }
            for Memory { start, bytes } in &memories {
                let over = start.checked_add(bytes - form.bytes + form.align).unwrap();
                refuses(me, form, (over, AddressFault::OutOfRange { bytes: form.bytes, region_bytes: *bytes }));
                let beyond = start.checked_add(bytes + 800).unwrap();
                refuses(me, form, (beyond, AddressFault::OutOfRange { bytes: form.bytes, region_bytes: *bytes }));
                if form.align > 1 {
                    let between = start.checked_add(form.align / 2).unwrap();
                    refuses(me, form, (between, AddressFault::Misaligned { align: form.align as usize }));
                }
            }
            match form.writes {
                true => refuses(me, form, (fixed, AddressFault::ReadOnly)),
                // Readable memory is read: the accesses do not refuse every address.
                false => {
                    for start in [fixed, registered, starter] {
                        assert_eq!(fault((form.reach)(me, start)), None, "{}: {start}", form.name);
                    }
                }
            }
        }
    }
    me.barrier()?;
    assert!(gone.iter().all(|word| *word == UNTOUCHED), "what was taken back was written");
    assert!(own.local().iter().chain(fixed.iter().copied()).all(|word| word == UNTOUCHED), "a wild write");
    assert_eq!(words(GlobalAddress::starter(me.process(), 0), 256).to_vec(me)?, [UNTOUCHED; 256], "a wild write");
    me.barrier()
}

fn refuses(me: &Worker, form: &AccessForm, (address, why): (GlobalAddress, AddressFault)) {
    let found = fault((form.reach)(me, address));
    assert_eq!(found, Some((address, why)), "{}: {address}", form.name);
}

/// Returns addresses that are invalid in every job of this shape, and their faults.
fn never_good(me: &Worker, process: ProcessId) -> Vec<(GlobalAddress, AddressFault)> {
    let count = me.process_count();
    vec![
        (GlobalAddress::NULL, AddressFault::Null),
        // Not an address, although it is not zero.
        (GlobalAddress::from_bits(64), AddressFault::Null),
        (GlobalAddress::starter(ProcessId::new(count), 0), AddressFault::NoSuchProcess { count }),
        (GlobalAddress::from_bits(!7), AddressFault::NoSuchProcess { count }),
        // Another generation of the slot, an unused slot, and the last one.
        (address_in(process, 0, 7, 0), AddressFault::Stale),
        (address_in(process, 1000, 0, 0), AddressFault::Stale),
        (address_in(process, 8191, 0, 0), AddressFault::Stale),
    ]
}

#[farside::test(processes = 3, threads = 2)]
fn everything_by_processes(me: &Worker) -> Result<()> {
    every_way_is_refused(me)
}

#[test]
fn everything_in_the_simulator() {
    for seed in 0..scaled(3) {
        farside::simulate(3, 2, seed, every_way_is_refused).unwrap();
    }
}

/// Address arithmetic that leads out of any region.
#[test]
fn no_address_is_computed_that_there_cannot_be() {
    let first: GlobalPtr<u64> = GlobalAddress::starter(ProcessId::new(0), 16).cast();
    let moved = |result: Result<GlobalPtr<u64>>| fault(result.map(drop));
    let outside = |bytes| Some((first.address(), AddressFault::MovedOutside { bytes }));
    assert_eq!(moved(first.sub(2)), None);
    assert_eq!(moved(first.sub(3)), outside(24));
    assert_eq!(moved(first.add((1 << 39) - 3)), None);
    assert_eq!(moved(first.add((1 << 39) - 2)), outside((1 << 42) - 16));
    assert_eq!(moved(first.add(usize::MAX)), outside(u64::MAX));
    assert_eq!(moved(GlobalPtr::NULL.sub(0)), Some((GlobalAddress::NULL, AddressFault::Null)));
}

/// Memory that one job has registered is unknown to the next.
#[test]
fn an_address_of_another_job_is_stale() {
    let kept: Mutex<Vec<GlobalPtr<u64>>> = Mutex::default();
    farside::simulate(2, 1, 1, |me| {
        let segments: Vec<Segment<u64>> = (0..3).map(|_| me.register(vec![7; 9])).collect::<Result<_>>()?;
        assert_eq!(segments[2].slice().start().get(me)?, 7);
        kept.lock().unwrap().push(segments[2].slice().start());
        me.barrier()
    })
    .unwrap();
    let kept = kept.into_inner().unwrap();
    let simulated = Simulation::new(2, 1, 1).deadline(Duration::from_secs(10)).run(|me| {
        for address in &kept {
            assert_eq!(fault(address.put(me, 1)), Some((address.address(), AddressFault::Stale)));
            assert_eq!(fault(address.fetch_add(me, 1).map(drop)), Some((address.address(), AddressFault::Stale)));
        }
        me.barrier()
    });
    simulated.unwrap().verdict.unwrap();
}
