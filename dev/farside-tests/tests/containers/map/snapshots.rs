//! Snapshots of maps.

use farside::simulate;
use farside_containers::Implementation;
use farside_containers::keep::KeepError;
use farside_containers::map::{HashMap, WireMap};

use super::value;
use crate::keep::Folder;

/// The entries that a job has saved are in the map of a larger and of a smaller job, with its own.
#[test]
fn a_map_comes_back() {
    let folder = Folder::new("map");
    let path = folder.file("map");
    simulate(3, 1, 1, |me| {
        let map = HashMap::<u64, [u64; 3]>::new(me, 10)?;
        let m = map.on(me);
        for key in (0..300).filter(|key| key % 3 == u64::from(me.id().number())) {
            m.insert(key, value(0, key))?;
        }
        m.remove(&u64::from(me.id().number()))?;
        assert_eq!(m.snapshot(&path)?, 297);
        map.free(me)
    })
    .unwrap();
    for (workers, implementation) in [(1, Implementation::OneSided), (2, Implementation::Call)] {
        simulate(workers, 2, 2, |me| {
            let map = HashMap::<u64, [u64; 3]>::builder().capacity(5).implementation(implementation).build(me)?;
            let m = map.on(me);
            m.insert(1000, value(1, 1))?;
            assert_eq!(m.restore(&path)?, 297);
            assert_eq!(m.len()?, 298);
            for key in 3..300 {
                assert_eq!(m.get(&key)?, Some(value(0, key)));
            }
            assert_eq!((m.get(&2)?, m.get(&1000)?), (None, Some(value(1, 1))));
            me.barrier()?;
            let other = HashMap::<u64, [u32; 6]>::new(me, 10)?;
            let refused = other.on(me).restore(&path).unwrap_err();
            assert!(refused.room_error::<KeepError>().is_some(), "{refused}");
            assert!(other.on(me).is_empty()?);
            me.barrier()
        })
        .unwrap();
    }
}

/// The same with keys and values of any length.
#[test]
fn a_map_of_strings_comes_back() {
    let folder = Folder::new("wire-map");
    let path = folder.file("map");
    simulate(3, 1, 1, |me| {
        let map = WireMap::<String, Vec<u64>>::new(me)?;
        for key in (0..100).filter(|key| key % 3 == u64::from(me.id().number())) {
            map.on(me).insert(key.to_string(), vec![key; key as usize])?;
        }
        assert_eq!(map.on(me).snapshot(&path)?, 100);
        map.free(me)?;
        assert!(map.on(me).snapshot(&path).is_err(), "a freed map replaces no snapshot");
        me.barrier()
    })
    .unwrap();
    for workers in [1, 4] {
        simulate(workers, 1, 2, |me| {
            let map = WireMap::<String, Vec<u64>>::new(me)?;
            let m = map.on(me);
            m.insert("other".into(), vec![])?;
            assert_eq!(m.restore(&path)?, 100);
            assert_eq!(m.len()?, 101);
            for key in 0..100 {
                assert_eq!(m.get(&key.to_string())?, Some(vec![key; key as usize]));
            }
            me.barrier()?;
            map.free(me)
        })
        .unwrap();
    }
}
