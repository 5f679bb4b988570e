//! Memory of the server in results.

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use farside_rpc::bulk::{Bulk, Memory, Read, Source, Withdrawal, Write};
use farside_rpc::server::Builder;
use farside_rpc::{Call, CallError, Handling, Never, Service, Stream, TransferError};

use farside_testbed::{deadline, wait_until};

use crate::{connect, credentials, everywhere, near, paths, start};

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 31 % 251) as u8).collect()
}

/// Counts values that were not dropped.
struct Guard(Arc<AtomicUsize>);

impl Guard {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[track_caller]
fn wait_for(count: &AtomicUsize, expected: usize) {
    wait_until("the results in use are as many as expected", || count.load(Ordering::SeqCst) == expected);
}

/// A service that returns memory: parts of one, and new bytes. The count is that of results in use.
fn shower(builder: Builder, memory: &Memory, count: &Arc<AtomicUsize>) -> Builder {
    let part = |memory: &Memory, count: &Arc<AtomicUsize>| {
        let (memory, count) = (memory.clone(), count.clone());
        move |start: u64, bytes: u64| {
            let part = memory.to_read(start as usize..(start + bytes) as usize).map_err(|error| error.to_string());
            Ok::<_, String>(part?.keeping(Guard::new(&count)))
        }
    };
    let (one, two, long, inline) = (part(memory, count), part(memory, count), part(memory, count), part(memory, count));
    let service = Service::new("shower")
        .procedure("one", Handling::Pooled, move |_, (start, bytes): (u64, u64)| one(start, bytes))
        .procedure("inline", Handling::Inline, move |_, (start, bytes): (u64, u64)| inline(start, bytes))
        .procedure("beside", Handling::Pooled, move |_, bytes: u64| {
            let stream = Stream::new(0..100_u32);
            Ok::<_, String>((two(0, bytes)?, stream, vec![two(bytes, bytes)?, Bulk::from(pattern(10))]))
        })
        .procedure("long", Handling::Pooled, move |_, bytes: u64| {
            Ok::<_, String>((pattern(bytes as usize), long(0, bytes)?))
        })
        .procedure("parts", Handling::Pooled, {
            let memory = memory.clone();
            move |_, ()| Ok::<_, Never>(memory.to_read_all([10..20, 0..5]).expect("the parts are inside"))
        })
        .procedure("owned", Handling::Pooled, move |_, bytes: u64| Ok::<_, Never>(Bulk::from(pattern(bytes as usize))));
    builder.provider(0, service)
}

type Part = (u64, u64);

#[test]
fn a_result_shows_memory_of_the_server() {
    let (memory, count) = (Memory::new(1 << 20).unwrap(), Arc::default());
    everywhere(
        |builder| shower(builder, &memory, &count),
        |client| {
            memory.write(0, &pattern(1 << 20)).unwrap();
            let is_local = client.address().to_string().starts_with("shm");
            for (name, start, bytes) in
                [("one", 5, 1_u64), ("inline", 100, 5000), ("one", 4096, 1_000_000), ("one", 3, 0)]
            {
                let part =
                    client.procedure::<Part, Bulk<Read>, String>("shower", 0, name).call(&(start, bytes)).unwrap();
                assert_eq!((part.bytes(), part.is_valid()), (bytes, true));
                let expected = &pattern(1 << 20)[start as usize..][..bytes as usize];
                assert!(part.pull_all().unwrap() == expected, "{bytes} bytes");
                if bytes == 0 {
                    continue;
                }
                // What the server writes later is seen.
                memory.write(start as usize, &[255]).unwrap();
                let mut first = [0];
                part.pull(0, &mut first).unwrap();
                assert_eq!(first, [255]);
                memory.write(start as usize, &expected[..1]).unwrap();
                let error = part.pull(bytes, &mut first).unwrap_err();
                assert_eq!(error, TransferError::OutOfRange { offset: bytes, bytes: 1, memory_bytes: bytes });
                let mapped = part.mapped();
                assert_eq!(mapped.is_some(), is_local);
                assert_eq!(count.load(Ordering::SeqCst), 1);
                drop(part);
                if let Some(mapped) = mapped {
                    assert_eq!((mapped.bytes(), mapped.offset()), (bytes as usize, start as usize));
                    let mut found = vec![0; bytes as usize];
                    mapped.copy_to(0, &mut found).unwrap();
                    assert!(found == expected);
                    assert!(mapped.copy_to(1, &mut found).is_err());
                    assert!(mapped.copy_to(usize::MAX, &mut found).is_err());
                    // Another program may open the file.
                    let path = format!("/proc/{}/fd/{}", std::process::id(), mapped.as_fd().as_raw_fd());
                    std::fs::File::open(path).unwrap().read_exact_at(&mut found, start).unwrap();
                    assert!(found == expected);
                    assert_eq!(count.load(Ordering::SeqCst), 1);
                }
                wait_for(&count, 0);
            }
            let parts = client.procedure::<(), Bulk<Read>, Never>("shower", 0, "parts").call(&()).unwrap();
            assert_eq!(parts.pull_all().unwrap(), [&pattern(20)[10..], &pattern(5)[..]].concat());
            assert!(parts.mapped().is_none());
        },
    );
}

#[test]
fn memory_comes_beside_streams_and_long_results() {
    let (memory, count) = (Memory::new(1 << 20).unwrap(), Arc::default());
    memory.write(0, &pattern(1 << 20)).unwrap();
    everywhere(
        |builder| shower(builder, &memory, &count),
        |client| {
            type Attachments = (Bulk<Read>, Stream<u32>, Vec<Bulk<Read>>);
            let beside = client.procedure::<u64, Attachments, String>("shower", 0, "beside");
            let (first, stream, others) = beside.call(&9000).unwrap();
            assert_eq!(stream.map(Result::unwrap).sum::<u32>(), 4950);
            assert!(first.pull_all().unwrap() == pattern(9000));
            assert!(others[0].pull_all().unwrap() == pattern(18_000)[9000..]);
            assert_eq!(others[1].pull_all().unwrap(), pattern(10));
            assert_eq!(count.load(Ordering::SeqCst), 2);
            drop((first, others));
            wait_for(&count, 0);

            let long = client.procedure::<u64, (Vec<u8>, Bulk<Read>), String>("shower", 0, "long");
            let (sender, results) = mpsc::channel();
            for bytes in [10, 65_500, 70_000, 1 << 20] {
                let sender = sender.clone();
                long.start(&bytes).unwrap().then(move |result| sender.send((bytes, result)).unwrap());
            }
            for (bytes, result) in results.iter().take(4) {
                let (copy, shown) = result.unwrap();
                assert!(copy == pattern(bytes as usize) && shown.pull_all().unwrap() == copy, "{bytes} bytes");
            }
            wait_for(&count, 0);

            let owned = client.procedure::<u64, Bulk<Read>, Never>("shower", 0, "owned");
            for bytes in [0, 1, 5000, 3 << 20] {
                let bulk = owned.call(&bytes).unwrap();
                assert!(bulk.pull_all().unwrap() == pattern(bytes as usize));
                let mut sum = Vec::new();
                let add = |_, piece: &[u8]| {
                    sum.extend_from_slice(piece);
                    Ok::<_, TransferError>(())
                };
                bulk.pipeline(100_000, 3, add).unwrap();
                assert!(sum == pattern(bytes as usize));
            }
        },
    );
}

/// A result that is not taken, or whose bytes are not understood, holds no memory.
#[test]
fn memory_of_results_that_are_not_wanted_comes_back() {
    let (memory, count) = (Memory::new(1 << 20).unwrap(), Arc::default());
    everywhere(
        |builder| shower(builder, &memory, &count),
        |client| {
            let one = client.procedure::<Part, Bulk<Read>, String>("shower", 0, "one");
            let long = client.procedure::<u64, (Vec<u8>, Bulk<Read>), String>("shower", 0, "long");
            for round in 0..50 {
                let (first, second) = (one.start(&(0, 5000)).unwrap(), long.start(&(1 << 20)).unwrap());
                if round % 2 == 0 {
                    // Some answers arrive before their calls are dropped.
                    (0..3).for_each(|number| assert_eq!(client.ping(number), Ok(number)));
                }
                drop((first, second));
            }
            // The answers of dropped calls are received with later calls. A handler that was
            // running then may return its result at any time.
            let ping_until_none_is_held = || {
                wait_until("no result is held", || {
                    client.ping(1).unwrap();
                    count.load(Ordering::SeqCst) == 0
                });
            };
            ping_until_none_is_held();
            let encoded = client.encoded_procedure("shower", 0, "one", "( u64 u64 ) -> Bulk<Read> ! String u8");
            let part = farside_rpc::wire::encode(&(0_u64, 5000_u64), Vec::new());
            encoded.call(&farside_rpc::Encoded::new(part)).unwrap();
            ping_until_none_is_held();
        },
    );
}

#[test]
fn memory_is_gone_with_the_connection() {
    for address in paths() {
        let (memory, count) = (Memory::new(1 << 20).unwrap(), Arc::default());
        let (server, client) = start(address, |builder| shower(builder, &memory, &count));
        let one = client.procedure::<Part, Bulk<Read>, String>("shower", 0, "one");
        let parts: Vec<_> = (0..300).map(|index| one.call(&(index, 1 << 19)).unwrap()).collect();
        assert_eq!(count.load(Ordering::SeqCst), 300);
        // It holds the connection.
        drop((client, one));
        for (part, index) in parts.iter().zip(0..) {
            let mut found = [9; 3];
            memory.write(index, &[1, 2, index as u8]).unwrap();
            part.pull(0, &mut found).unwrap();
            assert_eq!((found, part.is_valid()), ([1, 2, index as u8], true));
        }
        drop(parts);
        wait_for(&count, 0);

        // The server ends before its client.
        let client = connect(server.addresses()[0].to_string(), credentials());
        let one = client.procedure::<Part, Bulk<Read>, String>("shower", 0, "one");
        let part = one.call(&(0, 1 << 19)).unwrap();
        drop(server);
        wait_for(&count, 0);
        wait_until("the memory of a server that has ended is not valid", || !part.is_valid());
        let error = part.pull(0, &mut [0]).unwrap_err();
        assert!(matches!(error, TransferError::Gone | TransferError::Link(_)), "{error}");
    }
}

/// One connection can hold only so much.
#[test]
fn results_that_are_kept_are_bounded() {
    let (memory, count) = (Memory::new(1 << 20).unwrap(), Arc::default());
    let (server, client) = start(near(), |builder| shower(builder, &memory, &count).max_calls(8));
    let one = client.procedure::<Part, Bulk<Read>, String>("shower", 0, "one");
    let mut parts: Vec<_> = (0..32).map(|_| one.call(&(0, 10)).unwrap()).collect();
    let error = one.call(&(0, 10)).unwrap_err();
    assert!(matches!(error, CallError::Busy { limit: 32, .. }), "{error}");
    parts.pop();
    one.call(&(0, 10)).unwrap();
    drop(parts);
    drop(client);
    server.shutdown(deadline()).unwrap();
}

#[test]
#[should_panic(expected = "has memory to write")]
fn a_result_has_no_memory_to_write() {
    let _ = Service::new("wrong").procedure("give", Handling::Pooled, |_, ()| {
        let memory = Memory::new(10).expect("there is memory");
        Ok::<Bulk<Write>, Never>(memory.to_write(0..10).expect("the part is inside"))
    });
}

#[test]
#[should_panic(expected = "return it in a result")]
fn an_error_has_no_memory() {
    let _ =
        Service::new("wrong").procedure("give", Handling::Pooled, |_, ()| Err::<(), Bulk<Read>>(Bulk::from(vec![1])));
}

/// Memory of a program that reads it in its own way.
struct Cells {
    cells: Vec<AtomicU8>,
    shows_address: bool,
}

impl Source for Cells {
    fn bytes(&self) -> u64 {
        self.cells.len() as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let cells = &self.cells[offset as usize..][..into.len()];
        into.iter_mut().zip(cells).for_each(|(byte, cell)| *byte = cell.load(Ordering::Relaxed));
        true
    }

    fn address(&self) -> Option<usize> {
        self.shows_address.then(|| self.cells.as_ptr().addr())
    }
}

#[test]
fn a_server_takes_memory_of_a_result_back() {
    const BYTES: usize = 300_000;
    let memory = Memory::new_read_only(BYTES).unwrap();
    memory.write(0, &pattern(BYTES)).unwrap();
    let cells = |shows_address| -> Arc<Cells> {
        Arc::new(Cells { cells: pattern(BYTES).into_iter().map(AtomicU8::new).collect(), shows_address })
    };
    let (near, far) = (cells(true), cells(false));
    let (count, pending) = (Arc::default(), Arc::new(Mutex::new(Vec::<Withdrawal>::new())));
    everywhere(
        |builder| {
            let (memory, near, far) = (memory.clone(), near.clone(), far.clone());
            let (count, pending) = (Arc::clone(&count), pending.clone());
            let show = move |_: &Call, number: u64| {
                let part = match number {
                    0 => memory.to_read(0..BYTES).expect("it is all of it"),
                    1 => Bulk::of_source(near.clone()),
                    _ => Bulk::of_source(far.clone()),
                };
                pending.lock().unwrap().push(part.withdrawal().expect("it is memory of this side"));
                Ok::<_, Never>(part.keeping(Guard::new(&count)))
            };
            builder.provider(0, Service::new("shower").procedure("show", Handling::Pooled, show))
        },
        |client| {
            let show = client.procedure::<u64, Bulk<Read>, Never>("shower", 0, "show");
            for number in 0..3 {
                let part = show.call(&number).unwrap();
                assert!(part.pull_all().unwrap() == pattern(BYTES) && part.is_valid() && part.withdrawal().is_none());
                if number > 0 {
                    let source = if number == 1 { &near } else { &far };
                    let (mut one, first) = ([0], &source.cells[0]);
                    first.store(255, Ordering::Relaxed);
                    part.pull(0, &mut one).unwrap();
                    assert_eq!(one, [255], "what the memory holds now");
                    first.store(pattern(1)[0], Ordering::Relaxed);
                }
                let withdrawal = pending.lock().unwrap().pop().unwrap();
                assert!(withdrawal.is_pending() && count.load(Ordering::SeqCst) == 1);
                withdrawal.withdraw();
                wait_for(&count, 0);
                assert_eq!(part.pull_all(), Err(TransferError::Gone), "memory {number}");
                drop(part);
                wait_until("the client drops it", || !withdrawal.is_pending());
                withdrawal.withdraw();
            }
        },
    );
}
