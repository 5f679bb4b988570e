//! Snapshots and `.npy` files: what was written comes back, in jobs of any size, and what was
//! damaged is refused by all workers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use farside::global::Distribution;
use farside::{Error, MakeArrays, Result, Worker, WorkerId, simulate};
use farside_containers::keep::{self, KeepError, npy};

/// A folder that is removed when it is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("farside-keep-{name}-{}", std::process::id()));
        // A killed test may have left a folder of this name.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn items(count: usize) -> impl Iterator<Item = (u64, String)> {
    (0..count).map(|x| (x as u64, "x".repeat(x * 37 % 211)))
}

/// Workers that name different files, or shapes, hear so, and nothing is written.
#[test]
fn different_arguments_are_refused() {
    let folder = Folder::new("different");
    let path = folder.file("x");
    simulate(3, 1, 1, |me| {
        let is_refused = |used: Result<()>, worker| {
            let error = used.unwrap_err();
            assert!(matches!(error.room_error(), Some(KeepError::Unequal { worker: found, .. }) if *found == worker));
        };
        let own = if me.id().number() == 2 { folder.file("y") } else { path.clone() };
        is_refused(keep::save(me, &own, items(2).map(Ok)).map(drop), WorkerId::new(2));
        let array = me.global_array::<u64>(6)?;
        let shape = if me.id().number() == 1 { [3, 2] } else { [2, 3] };
        is_refused(npy::save(me, &path, &array, &shape), WorkerId::new(1));
        npy::save(me, &path, &array, &[2, 3])?;
        array.free(me)
    })
    .unwrap();
    assert_eq!(folder.names(), ["x"]);
}

/// Saves `count` items in a job with this number of workers.
fn save(workers: u32, path: &Path, count: usize) -> Result<()> {
    simulate(workers, 1, 1, |me| {
        let own = me.share(0..count);
        let saved = keep::save(me, path, items(count).skip(own.start).take(own.len()).map(Ok))?;
        assert_eq!(saved, count as u64);
        Ok(())
    })
}

/// Restores in a job with this number of workers.
fn restore(workers: u32, path: &Path) -> Result<BTreeMap<u64, String>> {
    let all = Mutex::new(BTreeMap::new());
    simulate(workers, 1, 1, |me| {
        keep::restore(me, path, |(x, text)| {
            assert_eq!(all.lock().unwrap().insert(x, text), None, "item {x} comes once");
            Ok(())
        })
        .map(drop)
    })?;
    Ok(all.into_inner().unwrap())
}

#[test]
fn snapshots_come_back_on_any_number_of_workers() {
    let folder = Folder::new("any");
    let path = folder.file("items");
    for (writers, readers, count) in [(1, 3, 0), (3, 1, 5), (2, 2, 20_000), (5, 4, 999), (4, 9, 20_000)] {
        save(writers, &path, count).unwrap();
        assert_eq!(restore(readers, &path).unwrap(), items(count).collect(), "{writers} to {readers}");
        // The parts of the earlier snapshot are gone.
        assert_eq!(folder.names().len(), writers as usize + 1);
    }
}

/// Returns the error that all workers of a job get.
fn refused(workers: u32, body: impl Fn(&Worker) -> Result<()> + Send + Sync) -> KeepError {
    let own = Mutex::new(None);
    simulate(workers, 1, 1, |me| {
        let error = body(me).expect_err("it is refused");
        match error {
            Error::Room(error) => match *error.downcast::<KeepError>().expect("an error of files") {
                KeepError::Elsewhere { .. } => {}
                error => *own.lock().unwrap() = Some(error),
            },
            other => panic!("{other}"),
        }
        // All have returned from it, so other collectives go on.
        me.barrier()
    })
    .unwrap();
    own.into_inner().unwrap().expect("one worker knows why")
}

#[test]
fn damaged_snapshots_are_refused() {
    let folder = Folder::new("damaged");
    let path = folder.file("items");
    let read = |me: &Worker| keep::restore(me, &path, |_: (u64, String)| Ok(())).map(drop);
    assert!(matches!(refused(2, read), KeepError::System { .. }));
    save(2, &path, 5000).unwrap();
    for name in folder.names() {
        let file = folder.file(&name);
        let whole = fs::read(&file).unwrap();
        for at in [0, 9, 13, 40, whole.len() / 2, whole.len() - 1] {
            let mut altered = whole.clone();
            altered[at] ^= 1;
            fs::write(&file, &altered).unwrap();
            assert!(matches!(refused(3, read), KeepError::Malformed { .. }), "{name}: byte {at}");
            fs::write(&file, &whole[..at]).unwrap();
            assert!(matches!(refused(3, read), KeepError::Malformed { .. }), "{name}: {at} bytes");
        }
        fs::write(&file, &whole).unwrap();
    }
    let other = |me: &Worker| keep::restore(me, &path, |_: (u32, String)| Ok(())).map(drop);
    assert!(matches!(refused(2, other), KeepError::Type { .. }));
    assert_eq!(restore(3, &path).unwrap().len(), 5000);
}

#[test]
fn a_save_that_fails_keeps_the_earlier_snapshot() {
    let folder = Folder::new("fails");
    let path = folder.file("items");
    save(2, &path, 100).unwrap();
    let before = folder.names().len();
    let ends = |me: &Worker| {
        let fails = me.id().number() == 2;
        let failure = || Error::from(KeepError::Malformed { path: "nowhere".into(), why: "as planned".into() });
        let own = items(1000).map(|item| if fails && item.0 == 900 { Err(failure()) } else { Ok(item) });
        keep::save(me, &path, own).map(drop)
    };
    assert!(matches!(refused(3, ends), KeepError::Malformed { why, .. } if why == "as planned"));
    assert_eq!(folder.names().len(), before, "{:?}", folder.names());
    let elsewhere = folder.file("missing").join("items");
    assert!(matches!(
        refused(2, |me| keep::save(me, &elsewhere, items(1).map(Ok)).map(drop)),
        KeepError::System { .. }
    ));
    assert_eq!(restore(2, &path).unwrap().len(), 100);
}

/// An array of each distribution, with values that tell their places.
fn array(me: &Worker, length: usize, distribution: Distribution) -> Result<farside::GlobalArray<i32>> {
    let array = me.global_array_as::<i32>(length, distribution)?;
    let local = array.local(me);
    if distribution != Distribution::BLOCK.over_processes() || me.thread_index() == 0 {
        for (offset, index) in array.local_indices(me).enumerate() {
            local.set(offset, index as i32 * 3 - 7);
        }
    }
    me.barrier()?;
    Ok(array)
}

#[test]
fn arrays_come_back_in_any_distribution() {
    let folder = Folder::new("npy");
    let path = folder.file("array.npy");
    for length in [0, 1, 7, 1000] {
        for distribution in [Distribution::BLOCK, Distribution::block_cyclic(3), Distribution::BLOCK.over_processes()] {
            simulate(3, 2, 1, |me| {
                let before = array(me, length, distribution)?;
                npy::save(me, &path, &before, &[length])?;
                let (after, shape) = npy::load::<i32>(me, &path)?;
                assert_eq!((after.to_vec(me)?, shape), (before.to_vec(me)?, vec![length]));
                before.free(me)?;
                after.free(me)
            })
            .unwrap();
            let bytes = fs::read(&path).unwrap();
            let start = bytes.len() - 4 * length;
            assert!(start.is_multiple_of(64) && bytes[start - 1] == b'\n');
            assert!(bytes[start..].chunks(4).zip(0..).all(|(value, x)| value == i32::to_le_bytes(x * 3 - 7)));
        }
    }
    assert_eq!(folder.names(), ["array.npy"]);
}

#[test]
fn other_files_are_refused() {
    let folder = Folder::new("other");
    let path = folder.file("array.npy");
    let load = |me: &Worker| npy::load::<i32>(me, &path).map(drop);
    let header = |text: &str| {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.bytes());
        bytes
    };
    let good = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }";
    for (bytes, is_type) in [
        (b"\x93NUM".to_vec(), false),
        (b"not an array at all".to_vec(), false),
        (header(&good.replace("<i4", "<f4")), true),
        (header(&good.replace("<i4", ">i4")), true),
        (header(&good.replace("'<i4'", "[('x', '<i4')]")), false),
        (header(&good.replace("False", "True").replace("(2,)", "(1, 2)")), false),
        (header(&good.replace("2,", "18446744073709551615, 18446744073709551615")), false),
        (header(&good.replace("2,", "-2,")), false),
        (header(good), false),
    ] {
        fs::write(&path, &bytes).unwrap();
        let error = refused(2, load);
        match is_type {
            true => assert!(matches!(error, KeepError::Type { .. }), "{error}"),
            false => assert!(matches!(error, KeepError::Malformed { .. }), "{error}"),
        }
    }
    let wrong_shape = |me: &Worker| npy::save(me, &path, &me.global_array::<u8>(6)?, &[4]);
    assert!(matches!(refused(2, wrong_shape), KeepError::Malformed { .. }));
}

#[test]
fn a_snapshot_of_another_version_is_refused() {
    let folder = Folder::new("version");
    let path = folder.file("items");
    save(2, &path, 100).unwrap();
    let mut list = fs::read(&path).unwrap();
    // The version follows the first 8 bytes; a checksum of all else ends the list.
    let end = list.len() - 8;
    assert_eq!(list[8..12], 1_u32.to_le_bytes());
    list[8] = 2;
    let checksum = xxhash_rust::xxh3::xxh3_64(&list[..end]);
    list[end..].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&path, &list).unwrap();
    let read = |me: &Worker| keep::restore(me, &path, |_: (u64, String)| Ok(())).map(drop);
    let refusal = refused(3, read);
    let says = |why: &str| why == "it has version 2; this program reads version 1";
    assert!(matches!(&refusal, KeepError::Malformed { why, .. } if says(why)), "{refusal}");
}

mod deep {
    use super::*;

    /// A disk without room leaves the earlier snapshot and the earlier array as they were, and no
    /// other files. Afterwards smaller ones are written. The disk is memory of 256 KiB, in a
    /// namespace.
    #[test]
    fn a_full_disk_keeps_what_is_there() {
        const DISK: &str = "FARSIDE_TEST_DISK";
        const MOUNT: &str = "mount -t tmpfs -o size=256k none \"$FARSIDE_TEST_DISK\" && exec \"$@\"";
        let Ok(disk) = std::env::var(DISK) else {
            farside_testbed::needs!("netns");
            let folder = Folder::new("full");
            let mut command = std::process::Command::new("timeout");
            command.args(["600", "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh"]);
            command.arg(std::env::current_exe().unwrap());
            command.args(["keep::deep::a_full_disk_keeps_what_is_there", "--exact", "--nocapture"]);
            let done = command.env(DISK, &folder.0).output().unwrap();
            let [out, err] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text));
            assert!(done.status.success() && out.contains("1 passed"), "{out}{err}");
            return;
        };
        let is_full = |error: KeepError| match error {
            KeepError::System { cause, .. } => assert_eq!(cause.kind(), std::io::ErrorKind::StorageFull),
            other => panic!("{other}"),
        };
        let folder = Path::new(&disk);
        let names = || fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>().len();
        let (items_at, array_at) = (folder.join("items"), folder.join("array.npy"));
        save(2, &items_at, 100).unwrap();
        let array =
            |me: &Worker, length: usize| npy::save(me, &array_at, &array(me, length, Distribution::BLOCK)?, &[length]);
        simulate(2, 1, 1, |me| array(me, 100)).unwrap();
        let before = names();
        is_full(refused(3, |me| keep::save(me, &items_at, items(10_000).map(Ok)).map(drop)));
        assert_eq!(names(), before);
        is_full(refused(3, |me| array(me, 200_000)));
        assert_eq!(names(), before);
        assert_eq!(restore(2, &items_at).unwrap(), items(100).collect());
        let loaded = |me: &Worker| {
            let (values, shape) = npy::load::<i32>(me, &array_at)?;
            assert_eq!((values.to_vec(me)?.len(), shape), (100, vec![100]));
            me.barrier()
        };
        simulate(1, 1, 1, loaded).unwrap();
        save(2, &items_at, 200).unwrap();
        assert_eq!(restore(3, &items_at).unwrap().len(), 200);
    }
}
