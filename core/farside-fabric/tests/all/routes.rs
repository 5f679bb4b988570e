//! Runs the suite over two routes at once. Processes with numbers of the same parity share memory,
//! as on one machine; the others are reached over libfabric. So every check with three processes or
//! more uses both routes, on the same memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use farside_conformance::Fabric;
use farside_fabric::ofi::{OfiConfig, OfiEndpoint};
use farside_fabric::route::{RouteKind, Routes};
use farside_fabric::shm::ShmConfig;
use farside_fabric::{FabricError, ProcessId, Transport};

const SECRET: [u8; 16] = [9; 16];

struct TwoRoutes;

impl Fabric for TwoRoutes {
    fn name(&self) -> String {
        "shm and ofi:tcp".into()
    }

    fn start(&self, processes: u32, starter_bytes: usize) -> Result<Vec<Arc<dyn Transport>>, FabricError> {
        static STARTS: AtomicU32 = AtomicU32::new(0);
        let start = STARTS.fetch_add(1, Ordering::Relaxed);
        let job_id = u64::from(std::process::id()) << 32 | 1 << 31 | u64::from(start);
        let open = |number| {
            OfiEndpoint::open(OfiConfig {
                process: ProcessId::new(number),
                process_count: processes,
                starter_bytes,
                provider: Some("tcp".to_owned()),
                address: Some("127.0.0.1".to_owned()),
                device: None,
            })
        };
        let ends = (0..processes).map(open).collect::<Result<Vec<_>, _>>()?;
        let cards: Vec<Vec<u8>> = ends.iter().map(|end| end.card().to_vec()).collect();
        let join = |(number, end): (u32, Arc<OfiEndpoint>)| -> Result<Arc<dyn Transport>, FabricError> {
            end.introduce(&cards, &SECRET)?;
            let process = ProcessId::new(number);
            let config = ShmConfig {
                process,
                process_count: processes,
                job_id,
                secret: SECRET,
                starter_bytes,
                user_by_system_call: true,
            };
            let kinds = (0..processes).map(|peer| if peer % 2 == number % 2 { RouteKind::Shm } else { RouteKind::Ofi });
            Ok(Arc::new(Routes::open(config, end, kinds.collect())?))
        };
        (0..).zip(ends).map(join).collect()
    }
}

macro_rules! checks {
    ($($room:ident: { $($check:ident,)+ })+) => {
        $(mod $room {
            $(
                #[test]
                fn $check() {
                    if !farside_testbed::is_left_out("fabric") {
                        farside_conformance::$room::$check(&crate::routes::TwoRoutes);
                    }
                }
            )+
        })+
    };
}

mod deep {
    farside_conformance::conformance_checks! { [checks] }
}

/// The checks in which both routes meet at the same memory or are lost.
#[test]
fn two_routes_work_together() {
    if !farside_testbed::is_left_out("fabric") {
        farside_conformance::atomics::commuting_changes_all_take_effect(&TwoRoutes);
        farside_conformance::operations::a_put_is_visible_after_a_message(&TwoRoutes);
        farside_conformance::ends::a_process_that_leaves_is_reported_once(&TwoRoutes);
    }
}

#[test]
fn each_peer_has_its_route() {
    farside_testbed::needs!("fabric");
    let ends = TwoRoutes.start(3, 4096).unwrap();
    let deadline = farside_testbed::deadline();
    let attach = |number| ends[0].attach(farside_fabric::RemoteKey::starter(ProcessId::new(number), 4096), deadline);
    // In a job the owners have threads of their own for that.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) && !farside_testbed::is_past(deadline) {
                ends[1..].iter().for_each(|end| end.progress());
                std::thread::yield_now();
            }
        });
        let regions = [1, 2].map(attach);
        done.store(true, Ordering::Relaxed);
        assert_eq!(regions.map(|region| region.unwrap().mapped().is_some()), [false, true]);
    });
}
