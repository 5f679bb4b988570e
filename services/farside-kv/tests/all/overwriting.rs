//! Readers and writers of one key.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use farside_kv::Store;
use farside_testbed::{deadline, scaled};

use crate::{Folder, bytes, connect, everywhere, serve, unique};

/// Sizes of the values that replace each other: small and long ones.
const SIZES: [usize; 4] = [10, 64 << 10, (64 << 10) + 1, 9 << 20];

/// A reader sees one whole value, whatever is written meanwhile.
#[test]
fn a_reader_sees_one_whole_value() {
    let values: Vec<_> = (0..SIZES.len()).map(|number| bytes(number as u64, SIZES[number])).collect();
    everywhere(|kv| {
        kv.put("key", &values[0]).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            for reader in 0..3 {
                let (kv, is_over, values) = (kv.clone(), &is_over, &values);
                threads.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let mut written = Vec::new();
                        if reader == 0 {
                            kv.get_to("key", &mut written).unwrap();
                        } else {
                            written = kv.get("key").unwrap();
                        }
                        assert!(values.contains(&written), "{} bytes of no value", written.len());
                    }
                });
            }
            for round in 0..scaled(4) as usize {
                kv.put("key", &values[round % values.len()]).unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
}

/// A slow reader gets the rest of the value that it began to read.
#[test]
fn a_replaced_value_is_read_to_its_end() {
    struct Slow<'a>(&'a mut Vec<u8>, &'a dyn Fn());

    impl std::io::Write for Slow<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.extend_from_slice(bytes);
            (self.1)();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let value = bytes(1, 40 << 20);
    everywhere(|kv| {
        kv.put("key", &value).unwrap();
        let mut read = Vec::new();
        let replace = || assert_eq!(kv.put("key", &bytes(2, 70_000)).unwrap().bytes, 70_000);
        kv.get_to("key", Slow(&mut read, &replace)).unwrap();
        assert!(read == value);
        assert_eq!(kv.stat("key").unwrap().bytes, 70_000);
    });
}

/// The files of values that were replaced or removed do not stay.
#[test]
fn replaced_files_are_removed() {
    let folder = Folder::new("replaced");
    let store = Store::open(folder.path()).unwrap();
    for round in 0..5 {
        store.put("a", &bytes(round, 100_000)).unwrap();
        store.put("b", &bytes(round, 200_000)).unwrap();
    }
    assert_eq!(folder.values().len(), 2);
    store.put("a", b"small").unwrap();
    store.remove("b").unwrap();
    assert_eq!(folder.values().len(), 0);
    assert_eq!(store.get("a").unwrap(), b"small");
}

/// Writers at once share transactions, and all their values are there.
#[test]
fn writers_at_once_are_all_served() {
    let folder = Folder::new("writers");
    let address = format!("shm:{}", unique("writers"));
    let server = serve(&address, Store::open(folder.path()).unwrap());
    let done = AtomicU32::new(0);
    std::thread::scope(|threads| {
        for writer in 0..8 {
            let (address, done) = (&address, &done);
            threads.spawn(move || {
                let kv = connect(address);
                for number in 0..20 {
                    kv.put(&format!("{writer}/{number}"), &bytes(number, 100)).unwrap();
                    kv.put("common", &bytes(number, 80_000)).unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(done.into_inner(), 160);
    let kv = connect(&address);
    assert_eq!(kv.list("").count(), 161);
    assert!(kv.get("7/19").unwrap() == bytes(19, 100));
    assert!(kv.get("common").unwrap() == bytes(19, 80_000) || kv.stat("common").unwrap().bytes == 80_000);
    assert_eq!(folder.values().len(), 1);
    server.shutdown(deadline()).unwrap();
}

/// Once a put has returned, all later reads see it. No read is older than one before it, whichever
/// way either was asked for.
#[test]
fn reads_do_not_go_back() {
    let puts = scaled(50);
    everywhere(|writer| {
        writer.put("key", b"0").unwrap();
        let put_last = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let put = || {
                for number in 1..=puts {
                    writer.put("key", number.to_string().as_bytes()).unwrap();
                    put_last.store(number, Ordering::Release);
                }
            };
            let read = || {
                let kv = writer.clone();
                let (mut newest, mut version) = (0, 0);
                while newest < puts {
                    let before = put_last.load(Ordering::Acquire);
                    let value: u64 = String::from_utf8(kv.get("key").unwrap()).unwrap().parse().unwrap();
                    assert!(value >= before.max(newest), "{value} after {newest}, when {before} was there");
                    newest = value;
                    let stated = kv.stat("key").unwrap().version;
                    let listed = kv.list("key").next().unwrap().unwrap().stat.version;
                    assert!(version <= stated && stated <= listed, "{version}, {stated}, {listed}");
                    version = listed;
                }
            };
            scope.spawn(read);
            scope.spawn(read);
            scope.spawn(put);
        });
    });
}
