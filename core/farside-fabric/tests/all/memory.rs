//! The allocators of registered memory, compared with simple accounts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use farside_fabric::memory::{
    Allocator, AllocatorOptions, Block, Chunk, ChunkSource, Fit, Growth, Heap, HeapOptions, NodeMemory, NodeOptions,
    Registered,
};
use farside_fabric::sim::{SimFabric, SimOptions};
use farside_fabric::{FabricError, ProcessId, Transport};
use farside_sys::shm::PageKind;
use farside_sys::topology::NumaNodeId;
use proptest::prelude::*;
use proptest::sample::Index;

const UNIT: usize = 64;
const CHUNK: usize = 4096;

fn transport() -> Arc<dyn Transport> {
    SimFabric::new(1, 4096, 1, SimOptions::default()).unwrap().endpoint(ProcessId::new(0))
}

/// Small, and of ordinary pages, so that it is created quickly.
fn small() -> NodeOptions {
    NodeOptions {
        pages: PageKind::Base,
        chunk_bytes: CHUNK,
        superchunk_bytes: CHUNK,
        superchunk_bytes_max: 16 * CHUNK,
        ..NodeOptions::default()
    }
}

/// A source that counts the bytes of the chunks that are out.
#[derive(Debug)]
struct Counting {
    node: NodeMemory,
    out_bytes: AtomicUsize,
}

impl Counting {
    fn new() -> Arc<Self> {
        Arc::new(Self { node: NodeMemory::new(transport(), small()), out_bytes: AtomicUsize::new(0) })
    }

    fn out_bytes(&self) -> usize {
        self.out_bytes.load(Ordering::Relaxed)
    }
}

impl ChunkSource for Counting {
    fn take(&self, bytes: usize) -> Result<Chunk, FabricError> {
        let chunk = self.node.take(bytes)?;
        self.out_bytes.fetch_add(chunk.bytes(), Ordering::Relaxed);
        Ok(chunk)
    }

    fn give_back(&self, chunk: Chunk) {
        self.out_bytes.fetch_sub(chunk.bytes(), Ordering::Relaxed);
        self.node.give_back(chunk);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize),
    Release(Index),
    /// On another thread.
    ReleaseElsewhere(Index),
    Trim,
}

/// Mostly small sizes, some larger than a chunk.
fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![4 => 0..300_usize, 2 => 300..5000_usize, 1 => 5000..40_000_usize];
    prop_oneof![
        6 => bytes.prop_map(Step::Allocate),
        3 => any::<Index>().prop_map(Step::Release),
        1 => any::<Index>().prop_map(Step::ReleaseElsewhere),
        1 => Just(Step::Trim),
    ]
}

fn options(limit_bytes: usize) -> impl Strategy<Value = HeapOptions> {
    let growth = prop_oneof![Just(Growth::Linear), Just(Growth::Exponential)];
    (prop::sample::select(&Fit::ALL[..]), growth).prop_map(move |(fit, growth)| HeapOptions {
        fit,
        growth,
        unit_bytes: UNIT,
        chunk_bytes: CHUNK,
        chunk_bytes_max: 4 * CHUNK,
        limit_bytes,
    })
}

/// The place of a block: its region, beginning and end.
fn range(heap: &Heap, block: &Block) -> (u32, u64, u64) {
    let (region, offset) = heap.place_of(block);
    (region.key().slot, offset, offset + heap.block_bytes(block) as u64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn blocks_of_a_heap_are_disjoint_and_reused(
        options in options(100_000),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let source = Counting::new();
        let mut heap = Heap::new(source.clone(), options);
        let mut live: Vec<(Block, usize)> = Vec::new();
        for step in steps {
            match step {
                Step::Allocate(bytes) => match heap.allocate(bytes) {
                    Ok(block) => {
                        let (region, start, end) = range(&heap, &block);
                        prop_assert!(heap.block_bytes(&block) >= bytes && heap.block_bytes(&block) < bytes + UNIT + (bytes == 0) as usize);
                        prop_assert!(start.is_multiple_of(UNIT as u64) && end <= heap.place_of(&block).0.key().bytes);
                        for (other, _) in &live {
                            let (other_region, other_start, other_end) = range(&heap, other);
                            prop_assert!(other_region != region || other_end <= start || end <= other_start, "two blocks overlap");
                        }
                        live.push((block, bytes));
                    }
                    Err(FabricError::MemoryLimit { held, limit, .. }) => {
                        prop_assert_eq!((held, limit), (heap.held_bytes(), options.limit_bytes));
                        prop_assert!(bytes > heap.largest_free_bytes(), "there was room");
                        prop_assert!(held + bytes.next_multiple_of(CHUNK) + UNIT > limit - limit % UNIT, "the limit was not reached");
                    }
                    Err(other) => panic!("{other}"),
                },
                Step::Release(which) | Step::ReleaseElsewhere(which) => {
                    if !live.is_empty() {
                        heap.give_back(live.swap_remove(which.index(live.len())).0);
                    }
                }
                Step::Trim => {
                    let before = heap.held_bytes();
                    let freed = heap.trim();
                    prop_assert_eq!(heap.held_bytes(), before - freed);
                    if live.is_empty() {
                        prop_assert_eq!(heap.held_bytes(), 0);
                    }
                }
            }
            prop_assert!(heap.held_bytes() <= options.limit_bytes);
            prop_assert_eq!(heap.held_bytes(), source.out_bytes());
            prop_assert_eq!(heap.used_bytes(), live.iter().map(|(block, _)| heap.block_bytes(block)).sum::<usize>());
        }
        live.into_iter().for_each(|(block, _)| heap.give_back(block));
        prop_assert_eq!(heap.used_bytes(), 0);
        let held = heap.held_bytes();
        prop_assert_eq!(heap.trim(), held, "what is given back is joined again");
        prop_assert_eq!(source.out_bytes(), 0);
        prop_assert_eq!(source.node.report().used_bytes, 0);
    }

    #[test]
    fn buffers_keep_their_memory_in_any_order_of_drops(
        heap in options(usize::MAX),
        cache_bytes in prop_oneof![Just(0), Just(1000), Just(1 << 20)],
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let source = Counting::new();
        let allocator = Allocator::new(source.clone(), AllocatorOptions { heap, cache_bytes });
        let (elsewhere, helper) = helper();
        let mut live: Vec<(Registered, u8)> = Vec::new();
        let check = |buffer: &Registered, mark: u8| buffer.to_vec().iter().all(|byte| *byte == mark);
        for (step, mark) in steps.into_iter().zip((1..=u8::MAX).cycle()) {
            match step {
                Step::Allocate(bytes) => {
                    let buffer = allocator.allocate(bytes).unwrap();
                    prop_assert_eq!(buffer.bytes(), bytes);
                    buffer.fill(mark);
                    live.push((buffer, mark));
                }
                Step::Release(which) | Step::ReleaseElsewhere(which) if !live.is_empty() => {
                    let (buffer, mark) = live.swap_remove(which.index(live.len()));
                    prop_assert!(check(&buffer, mark), "a buffer was overwritten");
                    if matches!(step, Step::Release(_)) { drop(buffer) } else { elsewhere.send(buffer).unwrap() }
                }
                Step::Release(_) | Step::ReleaseElsewhere(_) => {}
                Step::Trim => {
                    allocator.trim();
                }
            }
            let report = allocator.report();
            prop_assert_eq!(report.held_bytes, source.out_bytes());
            prop_assert!(report.used_bytes + report.cached_bytes <= report.held_bytes && report.cached_bytes <= cache_bytes);
            prop_assert!(report.used_bytes >= live.iter().map(|(buffer, _)| buffer.bytes()).sum());
        }
        drop(elsewhere);
        helper.join().unwrap();
        for (buffer, mark) in &live {
            prop_assert!(check(buffer, *mark), "a buffer was overwritten");
        }
        live.clear();
        prop_assert_eq!(allocator.report().used_bytes, 0);
        allocator.trim();
        prop_assert_eq!((allocator.report().held_bytes, source.out_bytes()), (0, 0));
    }
}

/// A thread that drops the buffers that it receives.
fn helper() -> (mpsc::Sender<Registered>, thread::JoinHandle<()>) {
    let (send, receive) = mpsc::channel::<Registered>();
    (send, thread::spawn(move || receive.into_iter().for_each(drop)))
}

#[test]
fn a_buffer_outlives_its_allocator() {
    let source = Counting::new();
    let allocator = Allocator::new(source.clone(), AllocatorOptions::default());
    let [here, there] = [1, 2].map(|mark| {
        let buffer = allocator.allocate(100).unwrap();
        buffer.fill(mark);
        buffer
    });
    drop(allocator);
    assert_eq!((here.to_vec(), there.to_vec()), (vec![1; 100], vec![2; 100]));
    let (done, watch) = mpsc::channel();
    thread::spawn(move || {
        drop(there);
        done.send(()).unwrap();
    });
    watch.recv_timeout(farside_testbed::limit()).expect("a drop does not wait");
    assert!(source.out_bytes() > 0);
    drop(here);
    assert_eq!(source.out_bytes(), 0, "the last reference releases the chunks");
}

#[test]
fn memory_freed_by_another_thread_is_reused() {
    let source = Counting::new();
    let allocator = Allocator::new(source.clone(), AllocatorOptions::default());
    let buffers: Vec<_> = (0..32).map(|_| allocator.allocate(CHUNK / 2).unwrap()).collect();
    let held = source.out_bytes();
    thread::spawn(move || drop(buffers)).join().unwrap();
    let again: Vec<_> = (0..32).map(|_| allocator.allocate(CHUNK / 2).unwrap()).collect();
    assert_eq!(source.out_bytes(), held);
    drop(again);
}

#[test]
fn cached_memory_does_not_block_allocations() {
    let source = Counting::new();
    let limit_bytes = 16 * CHUNK;
    let heap = HeapOptions { chunk_bytes: limit_bytes, limit_bytes, ..HeapOptions::default() };
    let allocator = Allocator::new(source, AllocatorOptions { heap, ..AllocatorOptions::default() });
    drop((0..limit_bytes / UNIT).map(|_| allocator.allocate(UNIT).unwrap()).collect::<Vec<_>>());
    assert_eq!(allocator.report().cached_bytes, limit_bytes);
    let all = allocator.allocate(limit_bytes).unwrap();
    let more = allocator.allocate(1);
    assert!(matches!(more, Err(FabricError::MemoryLimit { bytes: 1..=64, .. })), "{more:?}");
    drop(all);
    allocator.allocate(1).unwrap();
}

#[test]
fn accesses_outside_a_buffer_are_errors() {
    let allocator = Allocator::new(Counting::new(), AllocatorOptions::default());
    let buffer = allocator.allocate(100).unwrap();
    buffer.write_at(90, &[7; 10]).unwrap();
    let is_outside = |result| matches!(result, Err(FabricError::OutOfRange { region_bytes: 100, .. }));
    assert!(is_outside(buffer.write_at(90, &[7; 11])));
    assert!(is_outside(buffer.read_at(101, &mut [])));
    assert!(is_outside(buffer.write_at(usize::MAX, &[7])));
    let mut got = [0; 10];
    buffer.read_at(90, &mut got).unwrap();
    assert_eq!(got, [7; 10]);
    let nothing = allocator.allocate(0).unwrap();
    nothing.fill(1);
    assert!(nothing.to_vec().is_empty() && nothing.write_at(0, &[]).is_ok());
}

#[test]
fn a_peer_reads_what_a_buffer_holds() {
    let fabric = SimFabric::new(2, 4096, 1, SimOptions::default()).unwrap();
    let [own, peer] = [0, 1].map(|number| fabric.endpoint(ProcessId::new(number)));
    let allocator = Allocator::new(Arc::new(NodeMemory::new(own, small())), AllocatorOptions::default());
    let _first = allocator.allocate(1000).unwrap();
    let buffer = allocator.allocate(1000).unwrap();
    buffer.write_at(10, b"registered").unwrap();
    let deadline = farside_testbed::deadline();
    let region = peer.attach(buffer.key(), deadline).unwrap();
    let mut got = [0; 10];
    region.get(buffer.offset() + 10, &mut got, deadline).unwrap();
    assert_eq!(&got, b"registered");
    region.put(buffer.offset(), b"peer", deadline).unwrap();
    assert_eq!(&buffer.to_vec()[..4], b"peer");
}

#[test]
fn superchunks_grow_are_cut_up_and_used_again() {
    for (growth, sizes) in [(Growth::Exponential, [1, 1, 2, 4, 8, 8]), (Growth::Linear, [1; 6])] {
        let node = NodeMemory::new(transport(), NodeOptions { growth, superchunk_bytes_max: 8 * CHUNK, ..small() });
        let mut taken = Vec::new();
        while node.report().superchunks.len() < sizes.len() {
            taken.push(node.take(CHUNK).unwrap());
        }
        let report = node.report();
        assert_eq!(report.superchunks.iter().map(|superchunk| superchunk.bytes / CHUNK).collect::<Vec<_>>(), sizes);
        assert_eq!(report.used_bytes, taken.len() * CHUNK);
        let mut places: Vec<_> = taken.iter().map(|chunk| (chunk.region().key().slot, chunk.offset())).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), taken.len(), "no chunk is given out twice");
        taken.into_iter().for_each(|chunk| node.give_back(chunk));
        assert_eq!((node.report().used_bytes, node.report().registered_bytes), (0, report.registered_bytes));
        drop(node.take(CHUNK).unwrap());
        assert_eq!(node.report().registered_bytes, report.registered_bytes, "returned chunks are reused");
    }
}

#[test]
fn unused_superchunks_can_be_given_up() {
    let transport = transport();
    let node = NodeMemory::new(transport.clone(), small());
    let (first, second) = (node.take(CHUNK).unwrap(), node.take(4 * CHUNK).unwrap());
    let key = second.region().key();
    node.give_back(second);
    assert_eq!(node.trim(), 4 * CHUNK);
    assert!(matches!(transport.deregister(key), Err(FabricError::StaleKey { .. })), "it is deregistered already");
    assert_eq!(node.trim(), 0, "the other is in use");
    node.give_back(first);
    assert_eq!(node.trim(), CHUNK);
    assert_eq!(node.report().registered_bytes, 0);
}

#[test]
fn a_node_keeps_to_its_limit() {
    let limit_bytes = 5 * CHUNK + 100;
    let node = NodeMemory::new(transport(), NodeOptions { limit_bytes, ..small() });
    let mut taken = Vec::new();
    let refused = loop {
        match node.take(CHUNK) {
            Ok(chunk) => taken.push(chunk),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(refused, FabricError::MemoryLimit { bytes: CHUNK, limit, .. } if limit == limit_bytes),
        "{refused}"
    );
    assert_eq!((taken.len(), node.report().registered_bytes), (5, 5 * CHUNK));
    assert!(matches!(node.take(usize::MAX), Err(FabricError::MemoryLimit { .. })));
    node.give_back(taken.swap_remove(2));
    node.take(CHUNK).unwrap();
}

#[test]
fn more_than_the_machine_has_is_an_error_and_changes_nothing() {
    let node = NodeMemory::new(transport(), small());
    assert!(matches!(node.take(1 << 43), Err(FabricError::Memory(_))));
    assert_eq!(node.report().registered_bytes, 0);
    node.take(1).unwrap();
}

#[test]
#[should_panic = "a chunk is given back once, to its source"]
fn a_chunk_goes_back_to_its_own_node_only() {
    let fabric = SimFabric::new(1, 4096, 1, SimOptions::default()).unwrap();
    let [one, other] = [(); 2].map(|()| NodeMemory::new(fabric.endpoint(ProcessId::new(0)), small()));
    other.give_back(one.take(CHUNK).unwrap());
}

#[test]
fn chunks_of_more_than_a_gibibyte_come_in_one_piece() {
    let bytes = (1 << 30) + CHUNK;
    let node = NodeMemory::new(transport(), small());
    let chunk = node.take(bytes).unwrap();
    let region = chunk.region().as_remote();
    assert_eq!((chunk.bytes(), chunk.region().key().bytes), (bytes, bytes as u64));
    let deadline = farside_testbed::now();
    region.put(bytes as u64 - 4, b"end.", deadline).unwrap();
    node.give_back(chunk);
    assert_eq!(node.trim(), bytes);
}

#[test]
fn the_placement_of_a_superchunk_is_reported() {
    for (pages, node_id) in [(PageKind::Gigantic, None), (PageKind::Gigantic, Some(0)), (PageKind::Base, Some(777))] {
        let node = node_id.map(NumaNodeId);
        let memory = NodeMemory::new(transport(), NodeOptions { pages, node, ..NodeOptions::default() });
        drop(memory.take(1).unwrap());
        let report = memory.report();
        let [superchunk] = report.superchunks[..] else { panic!("{report:?}") };
        assert_eq!((report.node, superchunk.bytes), (node, 2 << 20));
        assert!(superchunk.pages.kind <= pages && superchunk.pages.huge_bytes <= superchunk.bytes);
        // Memory cannot be on a node that does not exist.
        assert!(superchunk.node.is_none_or(|found| node_id.is_some() && found.0 != 777), "{report:?}");
        println!("{report:?}");
    }
}
