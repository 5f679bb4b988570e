//! Opens the transport of a process: shared memory, libfabric, or both.

use std::sync::Arc;

use farside_fabric::ofi::{OfiConfig, OfiEndpoint};
use farside_fabric::route::{FabricChoice, RouteKind, Routes};
use farside_fabric::shm::{ShmConfig, ShmEndpoint};
use farside_fabric::{FabricError, MachineId, ProcessId, Transport};

use crate::error::Result;
use farside_launch::control::{CARD_BYTES_MAX, PeerCard};
use farside_launch::settings::{ADDRESS, Lookup, Settings};

/// The facts about the job that a process receives at the start.
#[derive(Debug)]
pub(crate) struct StartOrders {
    pub(crate) job_id: u64,
    pub(crate) secret: [u8; 16],
    /// The cards of all processes, in order. Empty if all reach each other over shared memory.
    pub(crate) peers: Vec<PeerCard>,
    /// The number of the binary that each process runs. Empty if all run the same one.
    pub(crate) builds: Vec<u32>,
}

impl StartOrders {
    /// Returns for each process whether it runs the same binary as `process`. Empty if all do.
    pub(crate) fn alike(&self, process: ProcessId) -> Box<[bool]> {
        let own = self.builds.get(process.index());
        self.builds.iter().map(|build| Some(build) == own).collect()
    }

    /// Returns the machine of each process, numbered in the order in which the machines first
    /// appear. Empty if there is one machine.
    pub(crate) fn machines(&self) -> Box<[MachineId]> {
        let mut hosts: Vec<[u8; 16]> = Vec::new();
        let number = |peer: &PeerCard| {
            let known = hosts.iter().position(|host| *host == peer.host);
            let number = known.unwrap_or_else(|| {
                hosts.push(peer.host);
                hosts.len() - 1
            });
            MachineId::new(number as u32)
        };
        self.peers.iter().map(number).collect()
    }
}

/// Opens the fabric between machines. The other processes find it by its [card](OfiEndpoint::card).
///
/// # Errors
/// [`Error::Fabric`](crate::Error::Fabric) if libfabric or the provider is missing.
pub(crate) fn open_fabric(process: ProcessId, settings: &Settings, lookup: Lookup<'_>) -> Result<Arc<OfiEndpoint>> {
    let fabric = OfiEndpoint::open(OfiConfig {
        process,
        process_count: settings.processes,
        starter_bytes: settings.layout().bytes(),
        provider: settings.fabric.provider().map(str::to_owned),
        address: lookup(ADDRESS).map(|address| address.to_string_lossy().into_owned()),
        device: settings.nics.as_ref().map(|nics| nics.of(process).to_owned()),
    })?;
    let bytes = fabric.card().len();
    if bytes > CARD_BYTES_MAX {
        let what = format!("libfabric's provider {}", fabric.provider());
        let why = format!(
            "a card with its address has {bytes} bytes, and at most {CARD_BYTES_MAX} are sent to all processes"
        );
        return Err(FabricError::Unavailable { what, why, remedy: "choose another with --fabric" }.into());
    }
    Ok(fabric)
}

/// Opens the transport over which this process reaches the others.
///
/// # Errors
/// [`Error::Fabric`](crate::Error::Fabric) if shared memory or the fabric's endpoint cannot be
/// opened, or a peer's address is invalid.
pub(crate) fn open_route(
    process: ProcessId,
    settings: &Settings,
    orders: &StartOrders,
    fabric: Option<Arc<OfiEndpoint>>,
) -> Result<Arc<dyn Transport>> {
    let StartOrders { job_id, secret, peers, .. } = orders;
    let config = ShmConfig {
        process,
        process_count: settings.processes,
        job_id: *job_id,
        secret: *secret,
        starter_bytes: settings.layout().bytes(),
        user_by_system_call: true,
    };
    let Some(fabric) = fabric else { return Ok(ShmEndpoint::open(config)?) };
    let cards: Vec<Vec<u8>> = peers.iter().map(|peer| peer.card.clone()).collect();
    fabric.introduce(&cards, secret)?;
    let host = peers.get(process.index()).map(|own| own.host);
    let is_near = |peer: &PeerCard| matches!(settings.fabric, FabricChoice::Auto(_)) && Some(peer.host) == host;
    let kinds: Vec<RouteKind> =
        peers.iter().map(|peer| if is_near(peer) { RouteKind::Shm } else { RouteKind::Ofi }).collect();
    // The process is alone on its machine, or must use libfabric only.
    if kinds.iter().filter(|kind| **kind == RouteKind::Shm).count() <= 1 {
        return Ok(fabric);
    }
    Ok(Arc::new(Routes::open(config, fabric, kinds)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_numbered_without_gaps() {
        let orders = |hosts: &[u8]| StartOrders {
            job_id: 1,
            secret: [0; 16],
            peers: hosts.iter().map(|host| PeerCard { host: [*host; 16], card: vec![1] }).collect(),
            builds: Vec::new(),
        };
        let numbers =
            |hosts: &[u8]| orders(hosts).machines().iter().map(|machine| machine.number()).collect::<Vec<_>>();
        assert_eq!(numbers(&[]), [0; 0]);
        assert_eq!(numbers(&[9]), [0]);
        assert_eq!(numbers(&[9, 9, 3, 9, 7, 3]), [0, 0, 1, 0, 2, 1]);
    }
}
