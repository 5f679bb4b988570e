//! Registering memory, and accessing it by its key.

use std::collections::HashSet;
use std::sync::{Arc, Barrier};
use std::thread;

use farside_sys::shm::{MemoryPreference, PageKind, SharedMemory};

use super::Fabric;
use super::harness::{Process, Service, Trial, assert_same, expect, pattern};
use farside_fabric::ids::ProcessId;
use farside_fabric::region::LocalRegion;
use farside_fabric::transport::{FabricError, Operation, RegionKind, RemoteKey};

/// The starter memory of each process is attached by a key that every process can compute.
pub fn the_starter_is_attached_by_its_computed_key(fabric: &dyn Fabric) {
    Trial::new("the_starter_is_attached_by_its_computed_key", 4).starter_bytes(5000).run(fabric, |process| {
        let own = process.end().starter();
        assert_eq!(own.key(), RemoteKey::starter(process.id(), process.starter_bytes()));
        let mark = |writer: ProcessId, owner: ProcessId| pattern(u64::from(writer.number() * 8 + owner.number()), 100);
        for peer in process.others() {
            let region = process.attach_starter(peer);
            assert_eq!(region.key(), RemoteKey::starter(peer, process.starter_bytes()));
            process.put(&region, u64::from(process.number()) * 100, &mark(process.id(), peer));
        }
        process.meet();
        for writer in process.others() {
            let found = process.get(&own.as_remote(), u64::from(writer.number()) * 100, 100);
            assert_same(&found, &mark(writer, process.id()), "what a peer wrote into the starter");
        }
    });
}

/// New memory is zero: the starter memory and registered memory, even in reused slots.
pub fn new_memory_is_zero(fabric: &dyn Fabric) {
    Trial::new("new_memory_is_zero", 2).starter_bytes(5000).run(fabric, |process| {
        let check = |local: &LocalRegion, bytes: usize| {
            assert_eq!(local.key().bytes, bytes as u64, "a key tells its region's size");
            let found = process.get(&local.as_remote(), 0, bytes);
            assert_same(&found, &vec![0; bytes], "new memory");
            process.put(&local.as_remote(), 0, &vec![0xa5; bytes]);
        };
        check(&process.end().starter(), 5000);
        for bytes in [1, 7, 8, 9, 4095, 4096, 4097, 65_537] {
            let local = expect(process.end().register(bytes), "registering");
            check(&local, bytes);
            expect(process.end().deregister(local.key()), "deregistering");
        }
    });
}

/// Existing memory becomes a region with its contents, without a copy, and of the requested kind.
/// No key of another kind reaches it.
pub fn existing_memory_is_registered(fabric: &dyn Fabric) {
    Trial::new("existing_memory_is_registered", 2).run(fabric, |process| {
        let regions = [
            (5000, PageKind::Base, RegionKind::Shared),
            (4 << 20, PageKind::Gigantic, RegionKind::Shared),
            (4096, PageKind::Base, RegionKind::Internal),
        ];
        for (bytes, pages, kind) in regions {
            let preference = MemoryPreference { pages, ..MemoryPreference::default() };
            let memory = Arc::new(SharedMemory::create_as("conformance", bytes, preference).expect("there is memory"));
            let before = LocalRegion::new(RemoteKey::starter(process.id(), bytes as u64), memory.clone()).as_remote();
            let own = u64::from(process.id().number());
            process.put(&before, 0, &pattern(own, 100));
            let local = expect(process.end().register_memory(memory.clone(), bytes, kind), "registering memory");
            assert_eq!(local.key().bytes, bytes as u64, "a key tells its region's size");
            assert_eq!(local.memory().base(), memory.base(), "the memory itself is registered");
            let keys = process.share_key(local.key());
            let peer = 1 - process.id().index();
            let region = process.attach(keys[peer]);
            assert_eq!(keys[peer].is_internal(), kind == RegionKind::Internal, "a key tells its region's kind");
            expect_stale(process, RemoteKey { generation: keys[peer].generation ^ 1 << 31, ..keys[peer] });
            assert_same(&process.get(&region, 0, 100), &pattern(peer as u64, 100), "what the memory held before");
            process.put(&region, bytes as u64 - 100, &pattern(own + 2, 100));
            process.meet();
            assert_same(
                &process.get(&before, bytes as u64 - 100, 100),
                &pattern(peer as u64 + 2, 100),
                "what a peer wrote",
            );
            process.meet();
        }
    });
}

/// Where memory is mapped, a region that its owner offers is attached when the next message of the
/// owner arrives. An offer may be repeated, and a key of no region is refused.
pub fn an_offered_region_is_attached_before_the_next_message(fabric: &dyn Fabric) {
    Trial::new("an_offered_region_is_attached_before_the_next_message", 3).run(fabric, |process| {
        let is_mapped = process.end().capabilities().mapped;
        for round in 0..3_u8 {
            let local = expect(process.end().register(1000), "registering");
            process.put(&local.as_remote(), 0, &[round + 1; 1000]);
            let keys = process.share_key(local.key());
            for peer in process.everyone() {
                expect(process.end().offer(peer, local.key()), "offering");
                expect(process.end().offer(peer, local.key()), "offering again");
                process.send(peer, &[round]);
            }
            for _ in process.everyone() {
                let (from, message) = process.next_message();
                assert_eq!(message, [round]);
                let found = process.end().attached(keys[from.index()]);
                assert!(found.is_some() || !is_mapped, "what {from} offered is not attached");
                if let Some(region) = found {
                    assert_same(&process.get(&region, 0, 1000), &[round + 1; 1000], "an offered region");
                }
            }
            process.meet();
            expect(process.end().deregister(local.key()), "deregistering");
            let peer = ProcessId::new((process.number() + 1) % 3);
            let refused = process.end().offer(peer, local.key());
            assert!(matches!(refused, Err(FabricError::StaleKey { .. })) || !is_mapped, "{refused:?}");
            process.meet();
        }
    });
}

/// Keys that name no region are typed errors, and give no access to another region.
pub fn an_unknown_key_is_refused(fabric: &dyn Fabric) {
    Trial::new("an_unknown_key_is_refused", 2).run(fabric, |process| {
        let local = expect(process.end().register(1000), "registering");
        let keys = process.share_key(local.key());
        let peer = 1 - process.id().index();
        let true_key = keys[peer];
        let stale = [
            RemoteKey { slot: true_key.slot + 1, ..true_key },
            RemoteKey { slot: u32::MAX, ..true_key },
            RemoteKey { generation: true_key.generation + 1, ..true_key },
            RemoteKey { bytes: true_key.bytes + (1 << 20), ..true_key },
            RemoteKey { bytes: u64::MAX, ..true_key },
            RemoteKey::starter(true_key.process, process.starter_bytes() + (1 << 20)),
        ];
        for key in stale {
            expect_stale(process, key);
        }
        let unknown = RemoteKey { process: ProcessId::new(process.end().process_count()), ..true_key };
        let refused = process.end().attach(unknown, process.deadline());
        assert!(matches!(refused, Err(FabricError::NoSuchProcess { count: 2, .. })), "no such process: {refused:?}");
        // The refusals did not affect the existing region.
        let region = process.attach(true_key);
        process.put(&region, 0, b"still");
        process.meet();
        assert_eq!(process.get(&local.as_remote(), 0, 5), b"still");
    });
}

/// A deregistered key cannot be attached, nor deregistered again. Keys of other processes and the
/// starter's key can never be deregistered.
pub fn a_deregistered_key_is_stale(fabric: &dyn Fabric) {
    Trial::new("a_deregistered_key_is_stale", 3).run(fabric, |process| {
        let local = expect(process.end().register(4096), "registering");
        let keys = process.share_key(local.key());
        let deregister_fails = |key| {
            let refused = process.end().deregister(key);
            assert!(matches!(refused, Err(FabricError::StaleKey { .. })), "deregistering {key:?}: {refused:?}");
        };
        deregister_fails(keys[(process.id().index() + 1) % keys.len()]);
        deregister_fails(process.end().starter().key());
        deregister_fails(RemoteKey { bytes: 1, ..local.key() });
        expect(process.end().deregister(local.key()), "deregistering");
        deregister_fails(local.key());
        process.meet();
        for key in keys {
            expect_stale(process, key);
        }
    });
}

/// A slot may be reused, but never under the same key: the holder of an old key does not access the
/// new memory.
pub fn a_reused_slot_has_a_new_generation(fabric: &dyn Fabric) {
    Trial::new("a_reused_slot_has_a_new_generation", 2).run(fabric, |process| {
        let mut names = HashSet::new();
        let mut latest = None;
        // More regions than there are slots, so that one slot is reused.
        for _ in 0..1100 {
            if let Some(old) = latest.replace(expect(process.end().register(100), "registering").key()) {
                expect(process.end().deregister(old), "deregistering");
            }
            let key = latest.expect("one was registered");
            assert!(names.insert((key.slot, key.generation)), "{key:?} names a region for the second time");
        }
        let live = latest.expect("one was registered");
        let keys = process.share_key(live);
        let peer = keys[1 - process.id().index()];
        process.attach(peer);
        for generation in 0..peer.generation {
            expect_stale(process, RemoteKey { generation, ..peer });
        }
    });
}

/// A withdrawn key becomes stale for its holders, and the end of its deregistration is reported.
/// The next region is untouched.
pub fn a_deregistered_key_fails_for_its_holders(fabric: &dyn Fabric) {
    Trial::new("a_deregistered_key_fails_for_its_holders", 3).run(fabric, |process| {
        let local = expect(process.end().register(8192), "registering");
        let keys = process.share_key(local.key());
        let key = keys[(process.id().index() + 1) % keys.len()];
        let region = process.attach(key);
        process.put(&region, 100, b"before");
        process.meet();
        let over = expect(process.end().deregister(local.key()), "deregistering");
        process.finish(over, process.id());
        let next = expect(process.end().register(8192), "registering");
        process.meet();
        assert!(process.end().attached(key).is_none(), "{key:?} is not attached any more");
        expect_stale(process, key);
        let posted = process.end().post(key, Operation::Put { offset: 0, data: vec![1; 100] });
        let posted = posted
            .map_err(FabricError::from)
            .and_then(|posted| posted.wait(process.end(), key.process, process.deadline()));
        assert!(matches!(posted, Err(FabricError::StaleKey { .. })), "posting to the stale {key:?}: {posted:?}");
        // Mapped pages stay with the peers that mapped them.
        if region.mapped().is_none() {
            let late = region.put(200, b"after", process.deadline());
            assert!(matches!(late, Err(FabricError::StaleKey { .. })), "a put to the stale {key:?}: {late:?}");
        } else {
            process.put(&region, 200, b"after");
        }
        process.meet();
        assert_same(&process.get(&next.as_remote(), 0, 8192), &[0; 8192], "the next region");
        assert_eq!(process.get(&local.as_remote(), 100, 6), b"before");
    });
}

/// A request for more memory than there is fails and changes nothing.
pub fn memory_beyond_the_limit_is_an_error(fabric: &dyn Fabric) {
    Trial::new("memory_beyond_the_limit_is_an_error", 1).run(fabric, |process| {
        for bytes in [1 << 50, usize::MAX / 2, usize::MAX] {
            let refused = process.end().register(bytes);
            assert!(matches!(refused, Err(FabricError::Memory(_))), "{bytes} bytes: {refused:?}");
        }
        let local = expect(process.end().register(1 << 16), "registering");
        process.put(&local.as_remote(), 0, &pattern(1, 1 << 16));
        assert_same(&process.get(&local.as_remote(), 0, 1 << 16), &pattern(1, 1 << 16), "what fits");
    });
}

/// Many regions of many sizes exist at once, and each is accessed by its own key.
pub fn regions_are_independent(fabric: &dyn Fabric) {
    const REGIONS: usize = 40;
    let content = |owner: u32, index: usize| pattern(u64::from(owner) << 32 | index as u64, 100 + index * 37);
    Trial::new("regions_are_independent", 2).run(fabric, move |process| {
        let locals: Vec<LocalRegion> =
            (0..REGIONS).map(|index| expect(process.end().register(100 + index * 37), "registering")).collect();
        let mut regions = Vec::new();
        for local in &locals {
            let keys = process.share_key(local.key());
            regions.push(process.attach(keys[1 - process.id().index()]));
        }
        for (index, region) in regions.iter().enumerate().rev() {
            process.put(region, 0, &content(1 - process.number(), index));
        }
        process.meet();
        for (index, local) in locals.iter().enumerate() {
            let wanted = content(process.number(), index);
            assert_same(&process.get(&local.as_remote(), 0, wanted.len()), &wanted, "the owner's view of a region");
            let wanted = content(1 - process.number(), index);
            assert_same(&process.get(&regions[index], 0, wanted.len()), &wanted, "the peer's view of a region");
        }
    });
}

/// Several threads of a process attach the same key at once, also as the first use of the
/// connection.
pub fn threads_attach_the_same_key_at_once(fabric: &dyn Fabric) {
    const THREADS: usize = 6;
    Trial::new("threads_attach_the_same_key_at_once", 2).run(fabric, |process| {
        let local = expect(process.end().register(4096), "registering");
        let keys = process.share_key(local.key());
        let key = keys[1 - process.id().index()];
        let (end, deadline) = (process.end(), process.deadline());
        let together = Barrier::new(THREADS);
        let attached: Vec<_> = thread::scope(|scope| {
            let attach = || {
                together.wait();
                end.attach(key, deadline)
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(attach)).collect();
            threads.into_iter().map(|thread| thread.join().expect("attaching does not panic")).collect()
        });
        for (number, attached) in attached.into_iter().enumerate() {
            let region = expect(attached, "attaching at once");
            process.put(&region, number as u64 * 64, &pattern(number as u64, 64));
        }
        process.meet();
        for number in 0..THREADS {
            let found = process.get(&local.as_remote(), number as u64 * 64, 64);
            assert_same(&found, &pattern(number as u64, 64), "what a thread of the peer wrote");
        }
    });
}

/// `attached` finds a region once it is attached, and not before.
pub fn attached_returns_the_attached_region(fabric: &dyn Fabric) {
    Trial::new("attached_returns_the_attached_region", 2).run(fabric, |process| {
        let local = expect(process.end().register(4096), "registering");
        let keys = process.share_key(local.key());
        let key = keys[1 - process.id().index()];
        assert!(process.end().attached(key).is_none(), "{key:?} is not attached yet");
        process.put(&process.attach(key), 0, b"first");
        let again = process.end().attached(key).expect("the key was attached");
        assert_eq!(again.key(), key);
        assert_eq!(process.get(&again, 0, 5), b"first");
    });
}

/// A process accesses its own memory by its keys, without help from other threads.
pub fn a_process_attaches_its_own_keys(fabric: &dyn Fabric) {
    Trial::new("a_process_attaches_its_own_keys", 1).service(Service::Nobody).run(fabric, |process| {
        let local = expect(process.end().register(4096), "registering");
        for local in [local, process.end().starter()] {
            let region = process.attach(local.key());
            process.put(&region, 9, b"to myself");
            assert_eq!(process.get(&region, 9, 9), b"to myself");
            assert_eq!(process.get(&local.as_remote(), 9, 9), b"to myself");
            assert!(process.end().attached(local.key()).is_some());
        }
    });
}

#[track_caller]
fn expect_stale(process: &Process, key: RemoteKey) {
    let refused = process.end().attach(key, process.deadline());
    assert!(matches!(refused, Err(FabricError::StaleKey { .. })), "attaching the stale {key:?}: {refused:?}");
}
