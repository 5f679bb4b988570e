//! Parts of bulk data at odd offsets, from memory of every kind.

use farside_rpc::bulk::{Bulk, Memory, Read, Write, scope};
use farside_rpc::server::Builder;
use farside_rpc::{Client, Handling, Procedure, Service, TransferError};

use crate::bulk::pattern;
use crate::everywhere;

/// Offsets and lengths of parts.
type Parts = Vec<(u64, u64)>;
type Pull = Procedure<(Bulk<Read>, Parts), Vec<Vec<u8>>, String>;
type Push = Procedure<(Bulk<Write>, Parts), (), String>;

fn text(error: TransferError) -> String {
    error.to_string()
}

fn service(builder: Builder) -> Builder {
    let service = Service::new("parts")
        .procedure("pull", Handling::Pooled, |_, (memory, parts): (Bulk<Read>, Parts)| {
            let pulled = parts.into_iter().map(|(offset, bytes)| {
                let mut part = vec![0; bytes as usize];
                memory.pull(offset, &mut part).map(|()| part)
            });
            pulled.collect::<Result<Vec<_>, _>>().map_err(text)
        })
        .async_procedure("pull_async", |_, (memory, parts): (Bulk<Read>, Parts)| async move {
            let mut pulled = Vec::new();
            for (offset, bytes) in parts {
                pulled.push(memory.pull_async(offset, bytes as usize).await.map_err(text)?);
            }
            Ok::<_, String>(pulled)
        })
        .procedure("push", Handling::Pooled, |_, (memory, parts): (Bulk<Write>, Parts)| {
            let mut parts = parts.into_iter();
            parts.try_for_each(|(offset, bytes)| memory.push(offset, &pushed(bytes))).map_err(text)
        })
        .async_procedure("push_async", |_, (memory, parts): (Bulk<Write>, Parts)| async move {
            for (offset, bytes) in parts {
                memory.push_async(offset, pushed(bytes)).await.map_err(text)?;
            }
            Ok::<_, String>(())
        });
    builder.provider(0, service)
}

/// The bytes that a handler pushes, which differ from the earlier ones.
fn pushed(bytes: u64) -> Vec<u8> {
    pattern(bytes as usize).into_iter().map(|byte| !byte).collect()
}

/// A quarter at an odd offset; an eighth at two odd offsets.
fn parts_of(bytes: u64) -> [Parts; 2] {
    let eighth = bytes / 8;
    [vec![(eighth | 1, bytes / 4)], vec![(1, eighth), ((5 * eighth + 2) | 1, eighth)]]
}

fn expected(of: &[u8], parts: &Parts) -> Vec<Vec<u8>> {
    parts.iter().map(|(offset, bytes)| of[*offset as usize..(offset + bytes) as usize].to_vec()).collect()
}

/// `bytes` bytes of a longer memory: three ranges, not in order, with gaps of odd lengths.
fn ranges(bytes: usize) -> [std::ops::Range<usize>; 3] {
    let third = bytes / 3;
    let last = bytes - 2 * third;
    [2 * third + 14..2 * third + 14 + last, 1..1 + third, third + 8..2 * third + 8]
}

fn check(client: &Client) {
    for bytes in [80_003, (2 << 20) + 5] {
        let sent = pattern(bytes);
        for parts in parts_of(bytes as u64) {
            for name in ["pull", "pull_async"] {
                let pull: Pull = client.procedure("parts", 0, name);
                let wanted = Ok(expected(&sent, &parts));
                assert!(pull.call(&(sent.clone().into(), parts.clone())) == wanted, "{name}: owned");
                scope(|scope| {
                    assert!(pull.call(&(scope.lend(&sent), parts.clone())) == wanted, "{name}: lent");
                    // Short segments travel by messages, long ones are read.
                    for length in [701, 5003] {
                        let segments = scope.lend_all(sent.chunks(length));
                        assert!(pull.call(&(segments, parts.clone())) == wanted, "{name}: segments of {length}");
                    }
                });
                let memory = Memory::new(bytes + 20).unwrap();
                memory.write(3, &sent).unwrap();
                let mapped = memory.to_read(3..3 + bytes).unwrap();
                assert!(pull.call(&(mapped, parts.clone())) == wanted, "{name}: mapped");
                let mut at = 0;
                for range in ranges(bytes) {
                    memory.write(range.start, &sent[at..at + range.len()]).unwrap();
                    at += range.len();
                }
                let mapped = memory.to_read_all(ranges(bytes)).unwrap();
                assert!(pull.call(&(mapped, parts.clone())) == wanted, "{name}: mapped in ranges");
            }
            let mut filled = sent.clone();
            for (offset, bytes) in &parts {
                filled[*offset as usize..(offset + bytes) as usize].copy_from_slice(&pushed(*bytes));
            }
            for name in ["push", "push_async"] {
                let push: Push = client.procedure("parts", 0, name);
                let mut room = sent.clone();
                scope(|scope| push.call(&(scope.lend_mut(&mut room), parts.clone()))).unwrap();
                assert!(room == filled, "{name}: lent");
                for length in [701, 5003] {
                    let mut room = sent.clone();
                    scope(|scope| push.call(&(scope.lend_all_mut(room.chunks_mut(length)), parts.clone()))).unwrap();
                    assert!(room == filled, "{name}: segments of {length}");
                }
                let memory = Memory::new(bytes + 20).unwrap();
                let mut found = vec![0; bytes + 20];
                memory.write(3, &sent).unwrap();
                push.call(&(memory.to_write(3..3 + bytes).unwrap(), parts.clone())).unwrap();
                memory.read(0, &mut found).unwrap();
                assert!(found[3..3 + bytes] == filled, "{name}: mapped");
                assert!(found[..3].iter().chain(&found[3 + bytes..]).all(|byte| *byte == 0), "{name}: outside");
                memory.write(0, &vec![0; bytes + 20]).unwrap();
                let mut at = 0;
                for range in ranges(bytes) {
                    memory.write(range.start, &sent[at..at + range.len()]).unwrap();
                    at += range.len();
                }
                push.call(&(memory.to_write_all(ranges(bytes)).unwrap(), parts.clone())).unwrap();
                memory.read(0, &mut found).unwrap();
                let joined: Vec<_> = ranges(bytes).into_iter().flat_map(|range| found[range].to_vec()).collect();
                assert!(joined == filled, "{name}: mapped in ranges");
                assert_eq!([found[0], found[bytes / 3 + 4], found[bytes + 19]], [0; 3], "{name}: gaps");
            }
        }
    }
}

#[test]
fn parts_at_odd_offsets_are_moved() {
    everywhere(service, check);
}

/// A part that is not inside the memory is refused, and nothing of it is moved.
#[test]
fn parts_outside_of_the_memory_are_refused() {
    everywhere(service, |client| {
        let pull: Pull = client.procedure("parts", 0, "pull");
        let push: Push = client.procedure("parts", 0, "push");
        let mut room = pattern(10_001);
        for outside in [(10_001, 1), (9_999, 3), (1, 10_001), (u64::MAX, 2), (10_002, 0)] {
            let parts = || vec![outside];
            let error = pull.call(&(room.clone().into(), parts())).unwrap_err().to_string();
            assert!(error.contains("is not inside the memory of 10001 bytes"), "{error}");
            let error = scope(|scope| push.call(&(scope.lend_mut(&mut room), parts()))).unwrap_err().to_string();
            assert!(error.contains("is not inside the memory of 10001 bytes"), "{error}");
        }
        assert!(room == pattern(10_001));
        let whole = vec![(10_001, 0), (0, 10_001)];
        assert!(pull.call(&(room.clone().into(), whole)) == Ok(vec![Vec::new(), room.clone()]));
    });
}
