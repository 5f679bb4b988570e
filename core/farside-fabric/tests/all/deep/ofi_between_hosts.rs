//! Runs the suite over libfabric's `tcp` between two hosts, and tests what happens to buffers when
//! the cable between the hosts is cut.
//!
//! The hosts are network namespaces. Processes with even numbers are on one, the others on the
//! other. A process is a thread here. It enters the namespace of its host, and so do the sockets
//! that libfabric opens for it. The hosts share no address: a process that stayed outside its
//! namespace would reach no other.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use farside_conformance::Fabric;
use farside_fabric::ofi::{OfiConfig, OfiEndpoint};
use farside_fabric::{Carrier, Completion, FabricError, Operation, ProcessId, RemoteKey, Transport};
use farside_sys::process::enter_network;
use farside_testbed::netns::{Pair, Side, with_privileges};
use farside_testbed::{deadline, is_left_out, limit, wait_until};

/// The host of a process.
fn side_of(process: ProcessId) -> Side {
    Side::BOTH[process.index() % 2]
}

/// Returns what the thread of a process does first: enter the namespace of its host.
fn entrance(pair: &Pair, process: ProcessId) -> Box<dyn FnOnce() + Send> {
    let namespace = pair.namespace(side_of(process)).expect("the namespace is there");
    Box::new(move || enter_network(namespace.as_fd()).expect("a namespace of our own can be entered"))
}

/// Opens the end of each process on its host, and introduces them.
fn open(pair: &Pair, processes: u32, starter_bytes: usize) -> Result<Vec<Arc<OfiEndpoint>>, FabricError> {
    let open = |process: ProcessId| {
        let enter = entrance(pair, process);
        let config = OfiConfig {
            process,
            process_count: processes,
            starter_bytes,
            provider: Some("tcp".to_owned()),
            address: Some(side_of(process).address().to_string()),
            device: None,
        };
        let opened = thread::spawn(move || {
            enter();
            OfiEndpoint::open(config)
        });
        opened.join().expect("opening does not panic")
    };
    crate::over_ofi::introduced((0..processes).map(ProcessId::new).map(open).collect::<Result<_, _>>()?)
}

struct BetweenHosts;

impl BetweenHosts {
    /// The one cable of all checks.
    fn pair() -> &'static Pair {
        static PAIR: OnceLock<Pair> = OnceLock::new();
        PAIR.get_or_init(|| Pair::new().unwrap_or_else(|failure| panic!("{failure}")))
    }
}

impl Fabric for BetweenHosts {
    fn name(&self) -> String {
        "ofi:tcp between two hosts".into()
    }

    fn start(&self, processes: u32, starter_bytes: usize) -> Result<Vec<Arc<dyn Transport>>, FabricError> {
        let ends = open(Self::pair(), processes, starter_bytes)?;
        Ok(ends.into_iter().map(|end| end as Arc<dyn Transport>).collect())
    }

    fn entrance(&self, process: ProcessId) -> Box<dyn FnOnce() + Send> {
        entrance(Self::pair(), process)
    }
}

/// Runs a test, unless the developer left out tests with namespaces or with libfabric.
fn between_hosts(test: impl FnOnce()) {
    if !is_left_out("netns") && !is_left_out("fabric") {
        with_privileges(limit(), test);
    }
}

macro_rules! checks {
    ($($room:ident: { $($check:ident,)+ })+) => {
        $(mod $room {
            $(
                #[test]
                fn $check() {
                    super::between_hosts(|| farside_conformance::$room::$check(&super::BetweenHosts));
                }
            )+
        })+
    };
}

farside_conformance::conformance_checks! { [checks] }

/// Two processes on two hosts. The second only makes progress, until this is dropped.
struct Two {
    pair: Pair,
    end: Arc<OfiEndpoint>,
    is_over: Arc<AtomicBool>,
    other: Option<thread::JoinHandle<()>>,
}

/// The other's number.
const OTHER: ProcessId = ProcessId::new(1);
const STARTER_BYTES: usize = 1 << 20;

impl Two {
    /// The calling thread becomes the first.
    fn new() -> Self {
        let pair = Pair::new().unwrap_or_else(|failure| panic!("{failure}"));
        let [end, other]: [Arc<OfiEndpoint>; 2] =
            open(&pair, 2, STARTER_BYTES).expect("libfabric is there").try_into().expect("there are two ends");
        entrance(&pair, ProcessId::new(0))();
        let enter = entrance(&pair, OTHER);
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let other = thread::spawn(move || {
            enter();
            while !until.load(Ordering::Relaxed) {
                other.progress();
                other.wait(&[], Some(farside_testbed::soon()));
            }
        });
        Self { pair, end, is_over, other: Some(other) }
    }

    /// Starts gets from the other's memory. None can complete while the cable is cut.
    fn gets(&self) -> Vec<Completion> {
        let key = RemoteKey::starter(OTHER, STARTER_BYTES as u64);
        let get = || self.end.post(key, Operation::get(0, STARTER_BYTES));
        (0..8).map(|_| get().expect("there is room for some gets")).collect()
    }

    /// Forgets the other process, as after the news of its loss, and asserts that every operation
    /// ends.
    fn forget(&self, gets: Vec<Completion>) {
        self.end.forget(OTHER);
        for get in gets {
            let ended = get.wait(&*self.end, OTHER, deadline());
            assert!(matches!(ended, Err(FabricError::Disconnected { process }) if process == OTHER), "{ended:?}");
        }
    }

    fn attach(&self) {
        let key = RemoteKey::starter(OTHER, STARTER_BYTES as u64);
        self.end.attach(key, deadline()).expect("the other is within reach");
    }

    /// Waits until libfabric has let go of all buffers.
    fn await_buffers(&self) {
        wait_until("libfabric lets go of all buffers", || {
            self.end.progress();
            self.end.quarantined() == 0
        });
    }

    /// Ends the other process.
    fn end_other(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(other) = self.other.take() {
            other.join().expect("the other makes progress, and nothing else");
        }
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        self.end_other();
    }
}

#[test]
fn buffers_of_a_peer_that_is_cut_off_stay_in_quarantine_until_the_cable_is_mended() {
    between_hosts(|| {
        let two = Two::new();
        two.attach();
        two.pair.cut().unwrap();
        let gets = two.gets();
        assert_eq!(two.end.quarantined(), 0, "no process is lost yet");
        two.forget(gets);
        assert_eq!(two.end.quarantined(), 8, "the provider may write to each of them at any time");
        two.pair.reconnect().unwrap();
        two.await_buffers();
    });
}

#[test]
fn buffers_come_back_when_their_peer_ends() {
    between_hosts(|| {
        let mut two = Two::new();
        two.attach();
        two.pair.cut().unwrap();
        let gets = two.gets();
        two.forget(gets);
        assert_eq!(two.end.quarantined(), 8);
        two.end_other();
        two.pair.reconnect().unwrap();
        two.await_buffers();
    });
}

#[test]
fn an_end_that_is_closed_waits_for_no_quarantine() {
    between_hosts(|| {
        let two = Two::new();
        two.attach();
        two.pair.cut().unwrap();
        let gets = two.gets();
        two.forget(gets);
        // The cable stays cut: the watchdog is the harness's limit, and the test's end the proof.
        assert_eq!(two.end.quarantined(), 8);
    });
}
