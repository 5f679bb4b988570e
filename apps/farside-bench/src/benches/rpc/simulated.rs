//! More clients than a machine could run, over a simulated network (Mercury, Figures 4 and 5).
//!
//! The bytes a second are those of the simulated time, in which computing takes none. So they say
//! what the protocol loses of the server's line. `host_ns` is the real time of a pull in this
//! program, which has one thread for the server and all clients.

use std::time::{Duration, Instant};

use farside_rpc::bulk::{Bulk, Read};
use farside_rpc::sim::{Profile, Simulation};
use farside_rpc::{Pending, Procedure, Server, Service};

use crate::kit::*;

/// The shares of the network's bandwidth that Mercury published: over InfiniBand (Figure 4), and on
/// a Cray XE6 (Figure 5). They stand next to the most clients, which fill the line.
const PUBLISHED: [(&str, f64); 2] = [("mercury-infiniband-published", 0.7), ("mercury-cray-published", 0.4)];
const CLIENTS: [usize; 7] = [1, 4, 16, 64, 256, 1024, 4096];
/// The pulls of a client that are under way at once.
const DEPTH: usize = 2;
/// The real time that a pull may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// The bytes of a pull.
const BYTES: usize = 16 << 10;
/// The most pulls of all clients together, which share memory.
const PULLS: u64 = 8192;

pub(super) fn cases() -> impl Iterator<Item = Case> {
    CLIENTS
        .into_iter()
        .map(|clients| Case::here(format!("clients-{clients}/simulated"), move |options| pulls(options, clients)))
}

fn pulls(options: Options, clients: usize) -> Measured {
    farside_sys::limits::raise_max_open_files();
    let profile = Profile::default();
    let line = profile.server_bytes_per_s.min(profile.client_bytes_per_s.saturating_mul(clients as u64)) as f64;
    let rounds = (options.operations_or(PULLS) as usize).div_ceil(clients * DEPTH);
    let taken = cold(options.with_runs(options.runs().max(1)), |run| {
        let builder = Server::builder().provider(0, service()).max_connections(clients as u32);
        let simulation = Simulation::new(builder, profile, options.seed + run).map_err(failed)?;
        let connect = |_| simulation.connect().map(|client| client.deadline(PATIENCE));
        let connected = (0..clients).map(connect).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let pulls: Vec<Pull> = connected.iter().map(|client| client.procedure("bench", 0, "pull")).collect();
        // The first call asks for the procedure's number.
        pulls.iter().try_for_each(|pull| pull.call(&vec![1].into()).map(drop)).map_err(failed)?;
        let (begun, begun_here) = (simulation.now(), Instant::now());
        let start = |pull: &Pull| pull.start(&vec![1; BYTES].into()).map_err(failed);
        // All clients are as far as each other.
        let first = || pulls.iter().flat_map(|pull| (0..DEPTH).map(move |_| pull));
        let mut under_way: Vec<Pending<u64, String>> = first().map(start).collect::<Result<_, _>>()?;
        for round in 1..=rounds {
            let ended = std::mem::take(&mut under_way);
            for (pending, pull) in ended.into_iter().zip(first()) {
                pending.wait().map_err(failed)?;
                if round < rounds {
                    under_way.push(start(pull)?);
                }
            }
        }
        let count = (rounds * clients * DEPTH) as f64;
        let per_s = count * BYTES as f64 / (simulation.now() - begun).as_secs_f64();
        Ok([per_s, begun_here.elapsed().as_nanos() as f64 / count, line])
    })?;
    let mut metrics =
        taken.rows([column("bytes_per_s", "B/s", 0).against("simulated line", 2), column("host_ns", "ns", 1)]);
    if Some(&clients) == CLIENTS.last() {
        let rate = metrics[0].clone();
        metrics.extend(PUBLISHED.map(|(peer, share)| rate.published(peer, share * line, 1)));
    }
    Ok(metrics)
}

type Pull = Procedure<Bulk<Read>, u64, String>;

fn service() -> Service {
    Service::new("bench").async_procedure("pull", |_, memory: Bulk<Read>| async move {
        let bytes = memory.bytes() as usize;
        let pulled = memory.pull_async(0, bytes).await.map_err(|error| error.to_string())?;
        Ok::<_, String>(pulled.len() as u64)
    })
}
