//! The store's folder.

use farside_kv::{KvError, OpenError, Store};

use crate::{Folder, bytes};

#[test]
fn a_store_keeps_what_it_has() {
    let folder = Folder::new("kept");
    let (small, long) = (bytes(1, 1000), bytes(2, 3 << 20));
    let store = Store::open(folder.path()).unwrap();
    let versions = [store.put("small", &small).unwrap().version, store.put("long", &long).unwrap().version];
    let last = store.put("gone", b"1").unwrap().version;
    store.remove("gone").unwrap();
    drop(store);
    let store = Store::open(folder.path()).unwrap();
    assert_eq!([store.stat("small").unwrap().version, store.stat("long").unwrap().version], versions);
    assert!(store.get("small").unwrap() == small && store.get("long").unwrap() == long);
    assert!(store.put("new", b"").unwrap().version > last, "no version comes twice");
    assert_eq!(store.list("", "", 10).unwrap().entries.len(), 3);
}

#[test]
fn a_folder_has_one_store() {
    let folder = Folder::new("locked");
    let store = Store::open(folder.path()).unwrap();
    let error = Store::open(folder.path()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("stop it first"), "{error}");
    drop(store);
    Store::open(folder.path()).unwrap();
}

#[test]
fn a_folder_that_cannot_be_used_is_named() {
    let folder = Folder::new("file");
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = Store::open(&file).unwrap_err();
    assert!(matches!(error, OpenError::Failed { .. }) && error.to_string().contains("/file"), "{error}");
    // The index is a file of something else.
    std::fs::write(folder.path().join("index.redb"), bytes(1, 5000)).unwrap();
    let error = Store::open(folder.path()).unwrap_err();
    assert!(matches!(error, OpenError::Failed { .. }), "{error}");
}

/// Files that no key names are what an interrupted put has left.
#[test]
fn files_that_are_left_over_are_removed() {
    let folder = Folder::new("left-over");
    let store = Store::open(folder.path()).unwrap();
    store.put("key", &bytes(1, 100_000)).unwrap();
    let values = folder.values();
    drop(store);
    let folder_of_values = folder.path().join("values");
    std::fs::write(folder_of_values.join("00000000000000ff"), "half").unwrap();
    std::fs::write(folder_of_values.join("README"), "of the user").unwrap();
    let store = Store::open(folder.path()).unwrap();
    std::fs::remove_file(folder_of_values.join("README")).unwrap();
    assert_eq!(folder.values(), values);
    assert!(store.get("key").unwrap() == bytes(1, 100_000));
}

/// A damaged file is an error, never other bytes.
#[test]
fn a_damaged_file_is_corrupt() {
    let folder = Folder::new("damaged");
    let value = bytes(1, (3 << 20) + 5);
    let store = Store::open(folder.path()).unwrap();
    let is_corrupt = |store: &Store| matches!(store.get("key").unwrap_err(), KvError::Corrupt { .. });
    for damage in ["flipped", "short", "missing"] {
        store.put("key", &value).unwrap();
        let file = folder.values().remove(0);
        let mut damaged = value.clone();
        damaged[(2 << 20) + 1] ^= 1;
        match damage {
            "flipped" => std::fs::write(&file, &damaged).unwrap(),
            "short" => std::fs::write(&file, &value[..1 << 20]).unwrap(),
            _ => std::fs::remove_file(&file).unwrap(),
        }
        assert!(is_corrupt(&store), "{damage}");
        // A new value is whole.
        store.put("key", &value).unwrap();
        assert!(store.get("key").unwrap() == value, "{damage}");
    }
}

/// A value that cannot be written is an error, and the earlier one stays.
#[test]
fn what_cannot_be_written_changes_nothing() {
    let folder = Folder::new("unwritable");
    let store = Store::open(folder.path()).unwrap();
    store.put("key", b"first").unwrap();
    let (values, aside) = (folder.path().join("values"), folder.path().join("aside"));
    std::fs::rename(&values, &aside).unwrap();
    let error = store.put("key", &bytes(1, 1 << 20)).unwrap_err();
    assert!(matches!(error, KvError::Io { .. }), "{error}");
    assert_eq!(store.get("key").unwrap(), b"first");
    std::fs::rename(&aside, &values).unwrap();
    store.put("key", &bytes(1, 1 << 20)).unwrap();
    assert!(store.get("key").unwrap() == bytes(1, 1 << 20));
}
