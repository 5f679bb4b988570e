//! User memory: ordinary memory of a process that peers access, and that belongs to its owner alone
//! afterwards.

use std::ptr::NonNull;
use std::sync::Arc;

use farside_sys::racy;

use super::Fabric;
use super::harness::{Process, Trial, assert_same, expect, pattern};
use farside_fabric::region::RemoteRegion;
use farside_fabric::region::{UserMemory, UserRegion};
use farside_fabric::transport::{AtomicChange, FabricError, Operation, RemoteKey};

/// Registers owned memory with this content.
fn register(process: &Process, content: Vec<u8>) -> UserRegion {
    expect(process.end().register_user(Arc::new(UserMemory::owned(content))), "registering private memory")
}

/// Registers memory in each process, and attaches that of the next process.
fn exchange(process: &Process, content: Vec<u8>) -> (UserRegion, RemoteRegion) {
    let own = register(process, content);
    let region = process.attach(process.share_key(own.key())[next_of(process)]);
    (own, region)
}

fn next_of(process: &Process) -> usize {
    (process.number() as usize + 1) % process.everyone().count()
}

/// Withdraws a key and waits until the deregistration is over.
#[track_caller]
fn deregister(process: &Process, key: RemoteKey) {
    let over = expect(process.end().deregister(key), "deregistering");
    process.finish(over, process.id());
}

fn is_stale<T>(result: &Result<T, FabricError>) -> bool {
    matches!(result, Err(FabricError::StaleKey { .. }))
}

/// Peers read and write the heap and the stack of a process, with any length and start, and touch
/// nothing else.
pub fn user_memory_is_read_and_written(fabric: &dyn Fabric) {
    const BYTES: usize = (3 << 20) + 77;
    Trial::new("user_memory_is_read_and_written", 2).run(fabric, |process| {
        let owner = |number: u32| pattern(u64::from(number), BYTES);
        let (own, region) = exchange(process, owner(process.number()));
        let peer = 1 - process.number();
        let mut wanted = owner(peer);
        assert_same(&process.get(&region, 0, BYTES), &wanted, "what private memory held before");
        for (round, bytes) in [0, 1, 3, 8, 64, 100, 4095, 4097, 1 << 20, (2 << 20) + 5].into_iter().enumerate() {
            let (at, data) = (1 + round * 13, pattern(100 + round as u64, bytes));
            process.put(&region, at as u64, &data);
            wanted[at..at + bytes].copy_from_slice(&data);
            assert_same(&process.get(&region, at as u64, bytes), &data, "a get of what was put");
        }
        assert_same(&process.get(&region, 0, BYTES), &wanted, "a put's neighbourhood");
        process.meet();
        let found = process.get(&own.as_remote(), 1, 1);
        deregister(process, own.key());
        let back = own.memory().take_back().expect("it is ours again");
        assert_eq!(back[1], found[0], "the owner's access reaches the same bytes");
        process.meet();

        let mut words = [u64::from(process.number()); 8];
        let base = NonNull::from(&mut words).cast();
        // SAFETY: this function touches the array again only after its deregistration is over, for
        // which it waits. If that fails, it panics. Then the check has failed, and its process
        // leaves without being asked to make progress, so no process accesses the stack.
        let memory = unsafe { UserMemory::borrowed(base, 64) };
        let own = expect(process.end().register_user(Arc::new(memory)), "registering a stack");
        let region = process.attach(process.share_key(own.key())[peer as usize]);
        assert_same(&process.get(&region, 8, 8), &u64::from(peer).to_ne_bytes(), "a word of a stack");
        process.put(&region, 16, &99_u64.to_ne_bytes());
        process.meet();
        deregister(process, own.key());
        assert_eq!(words[1..4], [u64::from(process.number()), 99, u64::from(process.number())]);
    });
}

/// The owner executes atomics on words of user memory. Changes of the owner and its peers at once
/// lose nothing.
pub fn changes_of_user_words_are_atomic(fabric: &dyn Fabric) {
    const EACH: u64 = 200;
    Trial::new("changes_of_user_words_are_atomic", 3).run(fabric, |process| {
        let content = vec![0_u64; 4].into_iter().flat_map(u64::to_ne_bytes).collect();
        let own = (process.number() == 0).then(|| register(process, content));
        let key = own.as_ref().map_or(process.end().starter().key(), UserRegion::key);
        let key = process.share_key(key)[0];
        let region = own.as_ref().map_or_else(|| process.attach(key), UserRegion::as_remote);
        let mut changes = 0;
        let mut change = || {
            process.atomic64(&region, 8, AtomicChange::Add(1 << 33 | 1));
            process.atomic32(&region, 20, AtomicChange::Add(3));
            changes += 1;
        };
        // The owner is much faster than its peers. So it continues until they are done.
        const DONE: u64 = 24;
        if own.is_some() {
            process.until("the others", || {
                (0..1000).for_each(|_| change());
                (process.atomic64(&region, DONE, AtomicChange::Load) == 2).then_some(())
            });
        } else {
            (0..EACH).for_each(|_| change());
            process.atomic64(&region, DONE, AtomicChange::Add(1));
        }
        let all: u64 = process.gather(&[changes]).iter().sum();
        if let Some(own) = own {
            let wide = process.atomic64(&own.as_remote(), 8, AtomicChange::Load);
            let narrow = process.atomic32(&own.as_remote(), 20, AtomicChange::Load);
            assert_eq!(wide, all.wrapping_mul(1 << 33 | 1), "64-bit sums");
            assert_eq!(narrow, (3 * all) as u32, "32-bit sums");
            assert_same(&process.get(&own.as_remote(), 16, 4), &[0; 4], "the word beside");
        }
    });
}

/// Memory that is registered as read-only is not written by any operation.
pub fn user_memory_may_be_read_only(fabric: &dyn Fabric) {
    Trial::new("user_memory_may_be_read_only", 2).run(fabric, |process| {
        let memory = UserMemory::owned(pattern(1, 1000)).read_only();
        let own = expect(process.end().register_user(Arc::new(memory)), "registering memory to be read");
        let key = process.share_key(own.key())[next_of(process)];
        let region = process.attach(key);
        let deadline = process.deadline();
        let refused = [
            region.put(0, &[9; 8], deadline),
            region.put(100, &[9; 100], deadline),
            region.atomic64(0, AtomicChange::Add(1), deadline).map(drop),
            region.atomic32(4, AtomicChange::Swap(1), deadline).map(drop),
            own.as_remote().put(0, &[9; 8], deadline),
        ];
        for refused in refused {
            assert!(matches!(refused, Err(FabricError::ReadOnly { .. })), "writing what may be read: {refused:?}");
        }
        for operation in [
            Operation::Put { offset: 0, data: vec![9; 500] },
            Operation::Atomic64 { offset: 0, change: AtomicChange::Or(u64::MAX) },
        ] {
            let posted = process.end().post(key, operation).map_err(FabricError::from);
            let posted = posted.and_then(|posted| posted.wait(process.end(), key.process, deadline));
            assert!(matches!(posted, Err(FabricError::ReadOnly { .. })), "posting to what may be read: {posted:?}");
        }
        assert_same(&process.get(&region, 0, 1000), &pattern(1, 1000), "what may be read only");
        process.meet();
    });
}

/// An access outside the region, or a misaligned atomic, is a typed error and does nothing.
pub fn accesses_outside_user_memory_are_errors(fabric: &dyn Fabric) {
    Trial::new("accesses_outside_user_memory_are_errors", 2).run(fabric, |process| {
        let (_own, region) = exchange(process, pattern(1, 1000));
        let deadline = process.deadline();
        for (offset, bytes) in [(1000, 1), (999, 2), (0, 1001), (u64::MAX, 8), (u64::MAX - 7, 16)] {
            let put = region.put(offset, &vec![9; bytes], deadline);
            let got = region.get(offset, &mut vec![0; bytes], deadline);
            for refused in [put, got] {
                assert!(matches!(refused, Err(FabricError::OutOfRange { .. })), "{bytes} at {offset}: {refused:?}");
            }
            let posted = process.end().post(region.key(), Operation::get(offset, bytes)).map_err(FabricError::from);
            let posted = posted.and_then(|posted| posted.wait(process.end(), region.key().process, deadline));
            assert!(matches!(posted, Err(FabricError::OutOfRange { .. })), "{bytes} at {offset} ended with {posted:?}");
        }
        let misaligned = region.atomic64(4, AtomicChange::Load, deadline);
        assert!(matches!(misaligned, Err(FabricError::Misaligned { .. })), "{misaligned:?}");
        let outside = region.atomic64(1000, AtomicChange::Load, deadline);
        assert!(matches!(outside, Err(FabricError::OutOfRange { .. })), "{outside:?}");
        assert_same(&process.get(&region, 0, 1000), &pattern(1, 1000), "bytes that no process wrote");
        let nothing = process.end().register_user(Arc::new(UserMemory::owned(Vec::new())));
        assert!(matches!(nothing, Err(FabricError::Memory(_))), "no bytes: {nothing:?}");
        process.meet();
    });
}

/// The same memory registered twice is two regions, each with a deregistration of its own.
pub fn the_same_memory_is_registered_twice(fabric: &dyn Fabric) {
    Trial::new("the_same_memory_is_registered_twice", 2).run(fabric, |process| {
        let memory = Arc::new(UserMemory::owned(vec![0; 100]));
        let both = [0, 1].map(|_| expect(process.end().register_user(memory.clone()), "registering private memory"));
        assert_ne!(both[0].key(), both[1].key(), "two regions have two keys");
        let regions = both.each_ref().map(|own| process.attach(process.share_key(own.key())[next_of(process)]));
        process.put(&regions[0], 10, b"one");
        assert_eq!(process.get(&regions[1], 10, 3), b"one", "both are the same bytes");
        process.meet();
        deregister(process, both[0].key());
        assert!(memory.take_back().is_none(), "peers still reach it");
        process.meet();
        process.put(&regions[1], 20, b"two");
        process.meet();
        deregister(process, both[1].key());
        let back = memory.take_back().expect("it is ours again");
        assert_eq!((&back[10..13], &back[20..23]), (&b"one"[..], &b"two"[..]));
    });
}

/// After its deregistration the memory belongs to its owner alone. The key is stale for all
/// processes, including the owner.
pub fn user_memory_is_given_back(fabric: &dyn Fabric) {
    Trial::new("user_memory_is_given_back", 3).run(fabric, |process| {
        let unseen = register(process, vec![5; 50]);
        deregister(process, unseen.key());
        assert_eq!(unseen.memory().take_back().expect("it is ours again"), vec![5; 50]);

        let (own, region) = exchange(process, vec![0; 5000]);
        process.put(&region, 4000, &pattern(7, 1000));
        process.meet();
        assert!(own.memory().take_back().is_none(), "peers still reach it");
        deregister(process, own.key());
        let back = own.memory().take_back().expect("it is ours again");
        assert_same(&back[4000..], &pattern(7, 1000), "what a peer wrote");
        let deadline = process.deadline();
        let late = own.as_remote().put(0, &[1], deadline);
        assert!(is_stale(&late), "the owner's own access: {late:?}");
        process.meet();
        let late = [region.put(0, &[1], deadline), region.get(0, &mut [0], deadline)];
        assert!(late.iter().all(is_stale), "a peer's access: {late:?}");
        let late = region.atomic64(0, AtomicChange::Add(1), deadline);
        assert!(is_stale(&late), "a peer's atomic: {late:?}");
        let late = process.end().attach(region.key(), deadline);
        assert!(is_stale(&late), "attaching it: {late:?}");
        assert!(process.end().attached(region.key()).is_none(), "it is not attached");
        process.meet();
    });
}

/// An owner withdraws a key while peers write as fast as they can. Once the deregistration is over,
/// no byte changes.
pub fn no_write_follows_the_end_of_deregistration(fabric: &dyn Fabric) {
    const BYTES: usize = 2 << 20;
    const WORDS: usize = BYTES / 8;
    Trial::new("no_write_follows_the_end_of_deregistration", 3).run(fabric, |process| {
        for is_owned in [true, false] {
            if process.number() > 0 {
                let region = process.attach(process.share_key(process.end().starter().key())[0]);
                process.meet();
                let refused = write_until_refused(process, &region);
                assert!(is_stale(&refused), "writing what was taken back: {refused:?}");
                process.meet();
                continue;
            }
            let mut words = vec![0_u64; WORDS].into_boxed_slice();
            let base = NonNull::from(&mut *words).cast::<u8>();
            let memory = if is_owned {
                UserMemory::owned(vec![0; BYTES])
            } else {
                // SAFETY: the box is touched again only after the deregistration is over. If that
                // never happens, it is leaked: from its registration on, a `ManuallyDrop` below
                // keeps a panic from freeing it.
                unsafe { UserMemory::borrowed(base, BYTES) }
            };
            let own = expect(process.end().register_user(Arc::new(memory)), "registering private memory");
            let words = std::mem::ManuallyDrop::new(words);
            process.share_key(own.key());
            process.meet();
            process.until("writers to begin", || {
                let found = process.get(&own.as_remote(), BYTES as u64 / 2, 8);
                (found != [0; 8]).then_some(())
            });
            deregister(process, own.key());
            // The bytes stay at their address. Racy copies find late writes.
            let kept = is_owned.then(|| own.memory().take_back().expect("it is ours again"));
            let base = own.memory().base().as_ptr();
            let mark = pattern(3, BYTES);
            // SAFETY: `kept` or `words` keeps the memory alive, and no code accesses it through
            // either.
            unsafe { racy::copy_out(mark.as_ptr(), base, BYTES) };
            // The writers notice, and their earlier accesses have had time to arrive.
            process.meet();
            let mut found = vec![0; BYTES];
            // SAFETY: `kept` or `words` still keeps the memory alive, and no code accesses it
            // through either.
            unsafe { racy::copy_in(base, found.as_mut_ptr(), BYTES) };
            assert_same(&found, &mark, "memory whose deregistration is over");
            drop((kept, std::mem::ManuallyDrop::into_inner(words)));
        }
    });
}

/// Puts with all lengths, blocking and posted, until one fails.
fn write_until_refused(process: &Process, region: &RemoteRegion) -> Result<(), FabricError> {
    let (deadline, half) = (process.deadline(), region.key().bytes / 2);
    let mut byte = 0;
    loop {
        byte = if byte == 255 { 1 } else { byte + 1 };
        region.put(0, &vec![byte; half as usize], deadline)?;
        region.put(half, &[byte; 8], deadline)?;
        let posted: Vec<_> = (0..4)
            .map_while(|piece| {
                let put = Operation::Put { offset: half + 8 + piece * 1000, data: vec![byte; 50_000] };
                process.end().post(region.key(), put).ok()
            })
            .collect();
        for posted in posted {
            posted.wait(process.end(), region.key().process, deadline)?;
        }
    }
}

/// A holder that has left delays no deregistration, neither of mappable memory nor of user memory.
pub fn a_holder_that_leaves_does_not_delay_deregistration(fabric: &dyn Fabric) {
    Trial::new("a_holder_that_leaves_does_not_delay_deregistration", 3).run_with_leavers(fabric, |process| {
        let shared = expect(process.end().register(5000), "registering");
        let own = register(&process, vec![0; 5000]);
        let keys = [shared.key(), own.key()].map(|key| process.share_key(key)[0]);
        if process.number() > 0 {
            for key in keys {
                process.put(&process.attach(key), 0, b"held");
            }
        }
        process.meet();
        if process.number() == 1 {
            let seat = process.leave();
            seat.meet();
            seat.meet();
            return;
        }
        process.meet_inattentively();
        if process.number() == 0 {
            keys.into_iter().for_each(|key| deregister(&process, key));
            // If accesses of the lost holder may still arrive, the memory stays quarantined.
            if let Some(back) = own.memory().take_back() {
                assert_eq!(&back[..4], b"held");
            }
        }
        process.meet();
    });
}
