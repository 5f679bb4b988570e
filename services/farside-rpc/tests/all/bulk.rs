//! Bulk data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farside_rpc::bulk::{Bulk, Memory, MemoryError, Read, Source, Write, scope};
use farside_rpc::server::Builder;
use farside_rpc::{CallError, Handling, Service, TransferError};
use farside_testbed::{deadline, wait_until};

use crate::{everywhere, near, paths, start, turn_for};

pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 31 % 253) as u8).collect()
}

/// A service that takes and fills memory.
pub(crate) fn mover(builder: Builder) -> Builder {
    let text = |error: TransferError| error.to_string();
    let service = Service::new("mover")
        .procedure("sum", Handling::Pooled, move |_, memory: Bulk<Read>| {
            let bytes = memory.pull_all().map_err(text)?;
            Ok::<_, String>(bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>())
        })
        .procedure("pipeline", Handling::Pooled, move |_, (memory, piece): (Bulk<Read>, u64)| {
            let (mut sum, mut next) = (0, 0);
            memory
                .pipeline(piece as usize, 4, |offset, piece| {
                    assert_eq!(offset, next, "pieces come in order");
                    next += piece.len() as u64;
                    sum += piece.iter().map(|byte| u64::from(*byte)).sum::<u64>();
                    Ok::<_, TransferError>(())
                })
                .map_err(text)?;
            Ok::<_, String>(sum)
        })
        .procedure("fill", Handling::Pooled, move |_, (memory, offset, bytes): (Bulk<Write>, u64, u64)| {
            memory.push(offset, &pattern(bytes as usize)).map_err(text)
        })
        .procedure("paint", Handling::Pooled, move |_, (memory, color): (Bulk<Write>, u8)| {
            memory.push(0, &vec![color; memory.bytes() as usize]).map_err(text)
        })
        .procedure("copy", Handling::Pooled, move |_, (from, to): (Bulk<Read>, Bulk<Write>)| {
            to.push(0, &from.pull_all().map_err(text)?).map_err(text)
        })
        .async_procedure("sum_async", move |_, memory: Bulk<Read>| async move {
            let mut sum = 0;
            for offset in (0..memory.bytes()).step_by(5 << 20) {
                let bytes = (memory.bytes() - offset).min(5 << 20) as usize;
                let piece = memory.pull_async(offset, bytes).await.map_err(text)?;
                sum += piece.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            }
            Ok::<_, String>(sum)
        })
        .async_procedure("fill_async", move |_, (memory, offset, bytes): (Bulk<Write>, u64, u64)| async move {
            memory.push_async(offset, pattern(bytes as usize)).await.map_err(text)
        })
        .procedure("release", Handling::Pooled, move |_, memory: Bulk<Read>| {
            let bytes = memory.bytes();
            memory.release();
            Ok::<_, String>(bytes)
        });
    builder.provider(0, service)
}

pub(crate) const SIZES: [usize; 9] = [0, 1, 4096, 4097, 65_536, 65_537, 1 << 20, (1 << 20) + 1, (9 << 20) + 3];

#[test]
fn memory_is_pulled() {
    everywhere(mover, |client| {
        let sum = client.procedure::<Bulk<Read>, u64, String>("mover", 0, "sum");
        let pipeline = client.procedure::<(Bulk<Read>, u64), u64, String>("mover", 0, "pipeline");
        for bytes in SIZES {
            let sent = pattern(bytes);
            let expected = sent.iter().map(|byte| u64::from(*byte)).sum();
            assert_eq!(sum.call(&sent.clone().into()), Ok(expected), "{bytes} bytes");
            scope(|scope| {
                assert_eq!(sum.call(&scope.lend(&sent)), Ok(expected), "{bytes} bytes lent");
                assert_eq!(pipeline.call(&(scope.lend(&sent), 100_000)), Ok(expected), "{bytes} bytes in pieces");
            });
        }
    });
}

#[test]
fn memory_is_pushed() {
    everywhere(mover, |client| {
        let fill = client.procedure::<(Bulk<Write>, u64, u64), (), String>("mover", 0, "fill");
        for bytes in SIZES {
            let mut room = vec![255; bytes + 20];
            scope(|scope| fill.call(&(scope.lend_mut(&mut room), 10, bytes as u64))).unwrap();
            assert!(room[10..bytes + 10] == pattern(bytes), "{bytes} bytes");
            assert!(room[..10].iter().chain(&room[bytes + 10..]).all(|byte| *byte == 255), "{bytes} bytes");
        }
    });
}

#[test]
fn memory_is_pulled_and_pushed_in_tasks() {
    everywhere(mover, |client| {
        let sum = client.procedure::<Bulk<Read>, u64, String>("mover", 0, "sum_async");
        let fill = client.procedure::<(Bulk<Write>, u64, u64), (), String>("mover", 0, "fill_async");
        for bytes in SIZES {
            let sent = pattern(bytes);
            let expected = sent.iter().map(|byte| u64::from(*byte)).sum();
            assert_eq!(sum.call(&sent.into()), Ok(expected), "{bytes} bytes");
            let mut room = vec![255; bytes + 20];
            scope(|scope| fill.call(&(scope.lend_mut(&mut room), 10, bytes as u64))).unwrap();
            assert!(room[10..bytes + 10] == pattern(bytes), "{bytes} bytes");
            assert!(room[..10].iter().chain(&room[bytes + 10..]).all(|byte| *byte == 255), "{bytes} bytes");
            let mapped = Memory::new(bytes.max(1)).unwrap();
            fill.call(&(mapped.to_write(0..bytes).unwrap(), 0, bytes as u64)).unwrap();
            assert_eq!(sum.call(&mapped.to_read(0..bytes).unwrap()), Ok(expected), "{bytes} bytes mapped");
        }
        let mut room = [0; 10];
        let error = scope(|scope| fill.call(&(scope.lend_mut(&mut room), 1, 10))).unwrap_err();
        assert!(matches!(&error, CallError::Service(text) if text.contains("not inside")), "{error}");
    });
}

/// The owner learns that a handler needs memory no longer while the handler runs.
#[test]
fn released_memory_comes_back_before_the_answer() {
    struct Tells(Arc<AtomicBool>);

    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    let is_back = Arc::new(AtomicBool::new(false));
    let serve = |builder: Builder| {
        let is_back = is_back.clone();
        let release = move |_: &_, memory: Bulk<Read>| {
            memory.release();
            wait_until("the memory comes back", || is_back.load(Ordering::SeqCst));
            Ok::<_, String>(())
        };
        builder.provider(0, Service::new("early").procedure("release", Handling::Pooled, release))
    };
    everywhere(serve, |client| {
        let release = client.procedure::<Bulk<Read>, (), String>("early", 0, "release");
        let mapped = Memory::new(100_000).unwrap();
        let memories = [pattern(10).into(), pattern(100_000).into(), mapped.to_read(0..100_000).unwrap()];
        for memory in memories {
            is_back.store(false, Ordering::SeqCst);
            let memory: Bulk<Read> = memory.keeping(Tells(is_back.clone()));
            assert_eq!(release.call(&memory), Ok(()));
            // It is gone for good.
            let mut bytes = [0; 10];
            assert_eq!(memory.pull(0, &mut bytes), Err(TransferError::Gone));
        }
    });
}

/// Memory whose readers wait until it is released.
struct Gated {
    bytes: Vec<u8>,
    is_released: AtomicBool,
}

impl Source for Gated {
    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        wait_until("the memory is released", || self.is_released.load(Ordering::Relaxed));
        into.copy_from_slice(&self.bytes[offset as usize..][..into.len()]);
        true
    }

    fn address(&self) -> Option<usize> {
        None
    }
}

/// A task that waits for memory leaves its thread to others. When its call is cancelled, it ends.
#[test]
fn a_task_that_waits_for_memory_occupies_no_thread() {
    let (server, idle) = start("tcp://127.0.0.1:0", |builder| mover(builder.pool(1)));
    let busy = crate::connect(server.addresses()[0].to_string(), crate::credentials());
    let sum = idle.procedure::<Bulk<Read>, u64, String>("mover", 0, "sum_async");
    let sent = pattern(9 << 20);
    let expected = sent.iter().map(|byte| u64::from(*byte)).sum();
    for is_wanted in [true, false] {
        let memory = Arc::new(Gated { bytes: sent.clone(), is_released: AtomicBool::new(false) });
        let waiting = sum.start(&Bulk::of_source(memory.clone())).unwrap();
        wait_until("the call begins", || server.dump().calls.iter().any(|call| call.running.is_some()));
        let other = busy.procedure::<Bulk<Read>, u64, String>("mover", 0, "sum");
        assert_eq!(other.call(&vec![1; 10_000].into()), Ok(10_000));
        assert_eq!(server.dump().calls.len(), 1);
        let wanted = is_wanted.then_some(waiting);
        memory.is_released.store(true, Ordering::Relaxed);
        if let Some(waiting) = wanted {
            assert_eq!(waiting.wait(), Ok(expected));
        }
    }
    drop((idle, sum));
    server.shutdown(deadline()).unwrap();
}

/// Memory that is asked for while much waits to be sent is sent later.
#[test]
fn many_large_transfers_share_a_connection() {
    for address in paths() {
        let (_server, client) = start(address, |builder| mover(builder.pool(16)));
        let sent = pattern(8 << 20);
        let expected = sent.iter().map(|byte| u64::from(*byte)).sum();
        let names = ["sum", "sum_async"].map(|name| client.procedure::<Bulk<Read>, u64, String>("mover", 0, name));
        // Many small segments travel by messages, also on one machine.
        scope(|scope| {
            let calls: Vec<_> =
                (0..40).map(|index| names[index % 2].start(&scope.lend_all(sent.chunks(512))).unwrap()).collect();
            for call in calls {
                assert_eq!(call.wait(), Ok(expected));
            }
        });
    }
}

/// A million segments, of three bytes each and at regular distances, or of one to four bytes.
#[test]
fn memory_may_have_a_million_segments() {
    const COUNT: usize = 1_000_000;
    everywhere(mover, |client| {
        let (sent, mut room) = (pattern(5 * COUNT), vec![0; 5 * COUNT]);
        let copy = client.procedure::<(Bulk<Read>, Bulk<Write>), (), String>("mover", 0, "copy");
        for length_of in [|_| 3, |index| 1 + index % 4] as [fn(usize) -> usize; 2] {
            let (parts, rooms) = (sent.chunks(5).enumerate(), room.chunks_mut(5).enumerate());
            let parts: Vec<&[u8]> = parts.map(|(index, part)| &part[..length_of(index)]).collect();
            let rooms: Vec<&mut [u8]> = rooms.map(|(index, part)| &mut part[..length_of(index)]).collect();
            scope(|scope| copy.call(&(scope.lend_all(parts), scope.lend_all_mut(rooms)))).unwrap();
            for (index, (found, part)) in room.chunks_mut(5).zip(sent.chunks(5)).enumerate() {
                let (found, rest) = found.split_at_mut(length_of(index));
                assert!(found == &part[..found.len()] && rest.iter().all(|byte| *byte == 0), "{index}");
                found.fill(0);
            }
        }
    });
}

#[test]
fn segments_are_one_range() {
    everywhere(mover, |client| {
        let copy = client.procedure::<(Bulk<Read>, Bulk<Write>), (), String>("mover", 0, "copy");
        for segments in [1, 7, 1500, 5000, 100_000] {
            let sent = pattern(300_000);
            let parts: Vec<&[u8]> = sent.chunks(300_000_usize.div_ceil(segments)).collect();
            let mut room = vec![0; 300_000];
            let rooms: Vec<&mut [u8]> = room.chunks_mut(1 + 300_000_usize.div_ceil(segments + 1)).collect();
            scope(|scope| copy.call(&(scope.lend_all(parts), scope.lend_all_mut(rooms)))).unwrap();
            assert!(room == sent, "{segments} segments");
        }
    });
}

#[test]
fn ranges_outside_are_refused() {
    everywhere(mover, |client| {
        let fill = client.procedure::<(Bulk<Write>, u64, u64), (), String>("mover", 0, "fill");
        let mut room = [0; 100];
        for (offset, bytes) in [(0, 101), (100, 1), (u64::MAX, 2)] {
            let error = scope(|scope| fill.call(&(scope.lend_mut(&mut room), offset, bytes))).unwrap_err();
            let CallError::Service(text) = error else { panic!("{error}") };
            assert!(text.contains("not inside the memory of 100 bytes"), "{text}");
        }
        assert_eq!(room, [0; 100]);
    });
}

/// A scope that ends takes its memory back, also from a call that is under way.
#[test]
fn memory_comes_back_with_its_scope() {
    everywhere(mover, |client| {
        let sum = client.procedure::<Bulk<Read>, u64, String>("mover", 0, "sum");
        let release = client.procedure::<Bulk<Read>, u64, String>("mover", 0, "release");
        assert_eq!(release.call(&pattern(1 << 20).into()), Ok(1 << 20));
        for _ in 0..20 {
            let mut room = pattern(3 << 20);
            let pending = scope(|scope| sum.start(&scope.lend(&room)).unwrap());
            room.fill(0);
            match pending.wait() {
                Ok(found) => assert_eq!(found, pattern(3 << 20).iter().map(|byte| u64::from(*byte)).sum::<u64>()),
                Err(CallError::Service(text)) => assert!(text.contains("gone"), "{text}"),
                Err(error) => panic!("{error}"),
            }
        }
    });
}

/// Nothing is pushed to memory whose scope has ended, also by a handler that has begun.
#[test]
fn nothing_is_pushed_after_the_scope() {
    everywhere(mover, |client| {
        let paint = client.procedure::<(Bulk<Write>, u8), (), String>("mover", 0, "paint");
        for _ in 0..20 {
            let mut room = vec![0; 3 << 20];
            let pending = scope(|scope| paint.start(&(scope.lend_mut(&mut room), 7)).unwrap());
            room.fill(9);
            match pending.wait() {
                Ok(()) => {}
                Err(CallError::Service(text)) => assert!(text.contains("gone"), "{text}"),
                Err(error) => panic!("{error}"),
            }
            assert!(room.iter().all(|byte| *byte == 9));
        }
    });
}

/// Each byte is one of those that were pushed.
#[test]
fn pushes_to_one_place_leave_bytes_of_either() {
    everywhere(mover, |client| {
        let paint = client.procedure::<(Bulk<Write>, u8), (), String>("mover", 0, "paint");
        let memory = Memory::new(3 << 20).unwrap();
        for _ in 0..5 {
            memory.write(0, &vec![0; 3 << 20]).unwrap();
            let start = |color| paint.start(&(memory.to_write(0..3 << 20).unwrap(), color)).unwrap();
            let both = [1, 2].map(start);
            both.into_iter().for_each(|call| call.wait().unwrap());
            let mut found = vec![0; 3 << 20];
            memory.read(0, &mut found).unwrap();
            assert!(found.iter().all(|byte| matches!(byte, 1 | 2)));
        }
    });
}

/// A server that runs in the program's own turns sleeps and wakes between calls with bulk data.
#[test]
fn a_server_in_turns_moves_memory() {
    for address in paths() {
        let builder = farside_rpc::Server::builder().listen(&address).unwrap().tokens(crate::tokens());
        turn_for(mover(builder).turns().unwrap(), |client| {
            let fill = client.procedure::<(Bulk<Write>, u64, u64), (), String>("mover", 0, "fill");
            let sum = client.procedure::<Bulk<Read>, u64, String>("mover", 0, "sum");
            for bytes in [10, 100_000, 3 << 20, 10, 100_000] {
                let mut room = vec![0; bytes];
                scope(|scope| fill.call(&(scope.lend_mut(&mut room), 0, bytes as u64))).unwrap();
                assert!(room == pattern(bytes));
                let expected = room.iter().map(|byte| u64::from(*byte)).sum();
                assert_eq!(scope(|scope| sum.call(&scope.lend(&room))), Ok(expected));
            }
        });
    }
}

#[test]
fn mapped_memory_is_pulled_and_pushed() {
    everywhere(mover, |client| {
        let copy = client.procedure::<(Bulk<Read>, Bulk<Write>), (), String>("mover", 0, "copy");
        let pipeline = client.procedure::<(Bulk<Read>, u64), u64, String>("mover", 0, "pipeline");
        for from in [Memory::new, Memory::new_read_only] {
            for bytes in SIZES.into_iter().filter(|bytes| *bytes > 0) {
                let (from, to) = (from(bytes + 7).unwrap(), Memory::new(bytes).unwrap());
                let sent = pattern(bytes);
                from.write(7, &sent).unwrap();
                let all = || from.to_read(7..bytes + 7).unwrap();
                copy.call(&(all(), to.to_write(0..bytes).unwrap())).unwrap();
                let mut found = vec![0; bytes];
                to.read(0, &mut found).unwrap();
                assert!(found == sent, "{bytes} bytes");
                let sum = sent.iter().map(|byte| u64::from(*byte)).sum();
                assert_eq!(pipeline.call(&(all(), 100_000)), Ok(sum), "{bytes} bytes in pieces");
            }
        }
    });
}

/// Parts of mapped memory in any number, in any order, are one range. So are parts of memory that
/// the peer may not write, which travel in another way.
#[test]
fn parts_of_mapped_memory_are_one_range() {
    everywhere(mover, |client| {
        let copy = client.procedure::<(Bulk<Read>, Bulk<Write>), (), String>("mover", 0, "copy");
        for to in [Memory::new, Memory::new_read_only] {
            for parts in [1, 7, 1500, 5000, 30_000] {
                let bytes = 300_000;
                let (from, to) = (Memory::new(bytes).unwrap(), to(2 * bytes).unwrap());
                let sent = pattern(bytes);
                from.write(0, &sent).unwrap();
                let part_bytes = bytes / parts;
                let ranges = |count: usize, step| (0..count).map(move |part| part * step..part * step + part_bytes);
                let reversed: Vec<_> = ranges(parts, part_bytes).rev().collect();
                let pushed = to.to_write_all(ranges(parts, 2 * part_bytes)).unwrap();
                copy.call(&(from.to_read_all(reversed).unwrap(), pushed)).unwrap();
                let mut found = vec![0; 2 * bytes];
                to.read(0, &mut found).unwrap();
                for (place, part) in sent[..parts * part_bytes].rchunks(part_bytes).enumerate() {
                    assert!(found[2 * place * part_bytes..][..part_bytes] == *part, "{parts} parts");
                    assert!(found[(2 * place + 1) * part_bytes..][..part_bytes].iter().all(|byte| *byte == 0));
                }
            }
        }
    });
}

#[test]
fn ranges_outside_mapped_memory_are_refused() {
    let memory = Memory::new(100).unwrap();
    let mut room = [0; 10];
    for (start, end) in [(91, 101), (usize::MAX, usize::MAX), (100, 110)] {
        let expected = MemoryError::OutOfRange { start, end, memory_bytes: 100 };
        assert_eq!(memory.to_read_all([0..1, start..end]).unwrap_err(), expected);
        assert_eq!(memory.read(start, &mut room[..end - start]).is_ok(), start == end && start <= 100);
    }
    let reversed = memory.to_write(std::ops::Range { start: 9, end: 8 }).unwrap_err();
    assert_eq!(reversed, MemoryError::OutOfRange { start: 9, end: 8, memory_bytes: 100 });
    assert_eq!(memory.write(95, &room), Err(MemoryError::OutOfRange { start: 95, end: 105, memory_bytes: 100 }));
    assert!(Memory::new(0).unwrap_err().to_string().contains("at least one byte"));
    assert_eq!(memory.to_read_all([]).unwrap().bytes(), 0);
}

/// The number of mappings of bulk memory that have this size. Client and server are the same
/// process here.
pub(crate) fn mappings_of(bytes: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let bulk = maps.lines().filter(|line| line.contains("farside-bulk"));
    let size = |line: &str| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        Some(usize::from_str_radix(end, 16).ok()? - usize::from_str_radix(start, 16).ok()?)
    };
    bulk.filter(|line| size(line) == Some(bytes)).count()
}

#[test]
fn memory_is_mapped_once_and_unmapped_at_its_end() {
    let (server, client) = start(near(), mover);
    let sum = client.procedure::<Bulk<Read>, u64, String>("mover", 0, "sum");
    // Nothing else here has this size.
    let bytes = 37 * 4096;
    let memory = Memory::new(bytes).unwrap();
    assert_eq!(mappings_of(bytes), 1);
    for _ in 0..10 {
        memory.write(5, &[1]).unwrap();
        assert_eq!(sum.call(&memory.to_read(0..bytes).unwrap()), Ok(1));
        assert_eq!(mappings_of(bytes), 2);
    }
    drop(memory);
    wait_until("the server forgets memory that is gone", || mappings_of(bytes) == 0);
    drop(client);
    server.shutdown(deadline()).unwrap();
}
