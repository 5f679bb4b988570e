//! Runs the conformance suite over libfabric, which must be installed (on Debian and Ubuntu:
//! `apt-get install libfabric1`). Variables of the environment choose what is tested:
//!
//! - `FARSIDE_TEST_PROVIDERS`: the providers, separated by commas. The default is `tcp`, which
//!   needs no device. `shm` cannot be tested here: the suite's processes are threads of one
//!   process.
//! - `FARSIDE_TEST_LIBFABRIC`: the version that libfabric must have, such as `2.5`.
//! - `FARSIDE_TEST_ADDRESS`: this machine's address. By default `tcp` uses the loopback device.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farside_conformance::Fabric;
use farside_fabric::ofi::{OfiConfig, OfiEndpoint, library_version};
use farside_fabric::{Carrier, FabricError, Operation, ProcessId, RemoteKey, Transport};

/// Providers that work without any device.
const EVERYWHERE: &str = "tcp";

struct Ofi {
    provider: String,
    address: Option<String>,
}

impl Fabric for Ofi {
    fn name(&self) -> String {
        format!("ofi:{}", self.provider)
    }

    fn start(&self, processes: u32, starter_bytes: usize) -> Result<Vec<Arc<dyn Transport>>, FabricError> {
        Ok(self.open(processes, starter_bytes)?.into_iter().map(|end| end as Arc<dyn Transport>).collect())
    }
}

impl Ofi {
    fn open(&self, processes: u32, starter_bytes: usize) -> Result<Vec<Arc<OfiEndpoint>>, FabricError> {
        let open = |number| {
            OfiEndpoint::open(OfiConfig {
                process: ProcessId::new(number),
                process_count: processes,
                starter_bytes,
                provider: Some(self.provider.clone()),
                address: self.address.clone(),
                device: None,
            })
        };
        crate::over_ofi::introduced((0..processes).map(open).collect::<Result<_, _>>()?)
    }
}

/// The providers to be tested, each with the address to use.
fn fabrics() -> Vec<Ofi> {
    let providers = std::env::var("FARSIDE_TEST_PROVIDERS");
    if providers.is_err() && farside_testbed::is_left_out("fabric") {
        return Vec::new();
    }
    let providers = providers.unwrap_or_else(|_| EVERYWHERE.to_owned());
    let address = std::env::var("FARSIDE_TEST_ADDRESS").ok();
    let of = |provider: &str| {
        // Loopback is always there, and nothing leaves the machine.
        let loopback = provider.starts_with("tcp").then(|| "127.0.0.1".to_owned());
        Ofi { provider: provider.to_owned(), address: address.clone().or(loopback) }
    };
    // An empty list asks for no tests with libfabric.
    providers.split(',').filter(|provider| !provider.is_empty()).map(of).collect()
}

#[test]
fn the_library_has_the_version_that_was_asked_for() {
    if fabrics().is_empty() {
        return;
    }
    let (major, minor) = library_version().expect("libfabric can be opened");
    println!("libfabric {major}.{minor}");
    if let Ok(wanted) = std::env::var("FARSIDE_TEST_LIBFABRIC") {
        assert_eq!(format!("{major}.{minor}"), wanted);
    }
}

#[test]
fn shm_refuses_two_ends_in_one_process() {
    if fabrics().is_empty() {
        return;
    }
    let shm = Ofi { provider: "shm".to_owned(), address: None };
    let refused = shm.start(2, 4096).expect_err("it is refused");
    assert!(matches!(refused, FabricError::Refused { .. }), "{refused}");
}

#[test]
fn a_cancelled_put_ends_at_once_and_its_buffer_later() {
    const BYTES: usize = 1 << 20;
    for fabric in fabrics().iter().filter(|fabric| fabric.provider.starts_with("tcp")) {
        let ends = fabric.open(2, BYTES).unwrap();
        let [here, there] = [&ends[0], &ends[1]];
        let deadline = farside_testbed::deadline();
        let stop = AtomicBool::new(false);
        let region = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) && !farside_testbed::is_past(deadline) {
                    there.progress();
                    std::thread::yield_now();
                }
            });
            let region = here.attach(RemoteKey::starter(there.process(), BYTES as u64), deadline);
            stop.store(true, Ordering::Relaxed);
            region.unwrap()
        });
        // The target makes no progress now, so the put cannot complete.
        let put = here.post(region.key(), Operation::Put { offset: 0, data: vec![7; BYTES] }).unwrap();
        put.cancel();
        let ended = put.try_take();
        assert!(matches!(ended, Some(Err(FabricError::Cancelled))), "{ended:?}");
        assert_eq!(here.quarantined(), 1);
        while here.quarantined() > 0 {
            assert!(!farside_testbed::is_past(deadline), "libfabric never lets go of the buffer");
            here.progress();
            there.progress();
        }
    }
}

/// libfabric's memory monitor can patch `munmap` and other functions while other threads run them.
#[test]
fn the_code_of_the_c_library_is_not_patched() {
    for fabric in fabrics() {
        let ends = fabric.start(2, 4096).expect("the ends can be opened");
        let changed = changed_code("libc.so.6").expect("this process can be looked at");
        assert_eq!(changed, 0, "bytes are changed by {}", fabric.name());
        drop(ends);
    }
}

/// Returns the number of bytes in which the code of a loaded library differs from its file.
fn changed_code(library: &str) -> std::io::Result<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let memory = File::open("/proc/self/mem")?;
    let mut changed = 0;
    let mut pieces = 0;
    // A line of code: `7f36aeaf0000-7f36aebc7000 r-xp 00026000 00:19 652561    /usr/lib/libc.so.6`.
    for line in maps.lines().filter(|line| line.ends_with(library)) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [range, "r-xp", offset, _, _, path] = words[..] else { continue };
        let number = |text| u64::from_str_radix(text, 16).map_err(std::io::Error::other);
        let (start, end) = range.split_once('-').ok_or(std::io::ErrorKind::InvalidData)?;
        let (start, end) = (number(start)?, number(end)?);
        // The last page may reach beyond the end of the file.
        let file = std::fs::read(path)?;
        let there = file.get(number(offset)? as usize..).unwrap_or_default();
        let mut here = vec![0; there.len().min((end - start) as usize)];
        memory.read_exact_at(&mut here, start)?;
        changed += here.iter().zip(there).filter(|(here, there)| here != there).count();
        pieces += 1;
    }
    if pieces > 0 { Ok(changed) } else { Err(std::io::Error::other(format!("{library} is not loaded"))) }
}

fn run(check: fn(&dyn Fabric)) {
    fabrics().iter().for_each(|fabric| check(fabric));
}

macro_rules! rooms {
    ($($room:ident: { $($check:ident,)+ })+) => {
        $(
            #[test]
            fn $room() {
                // Other surroundings run the checks one by one.
                if std::env::var_os("FARSIDE_TEST_PROVIDERS").is_none() {
                    $(run(farside_conformance::$room::$check);)+
                }
            }
        )+
    };
}

/// The checks, one room after the other: a program that opens libfabric spends more time there than
/// in most of the checks.
mod checks {
    use super::run;

    farside_conformance::conformance_checks! { [rooms] }
}

macro_rules! checks {
    ($($room:ident: { $($check:ident,)+ })+) => {
        $(mod $room {
            $(
                #[test]
                fn $check() {
                    crate::ofi::run(farside_conformance::$room::$check);
                }
            )+
        })+
    };
}

/// The checks one by one.
mod deep {
    farside_conformance::conformance_checks! { [checks] }
}
