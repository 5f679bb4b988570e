//! `farside info`: what this machine offers a job.

use std::fmt::{self, Display, Write as _};
use std::io::{self, Write as _};

use clap::Args;
use farside::ProcessId;
use farside::job::{Footprint, footprint};
use farside_fabric::memory::NodeOptions;
use farside_fabric::ofi::{self, Provider};
use farside_fabric::route::FabricChoice;
use farside_fabric::shm::{ShmConfig, ShmEndpoint};
use farside_fabric::sim::{SimFabric, SimOptions};
use farside_fabric::{Capabilities, NeedsTarget, Transport};
use farside_sys::shm::{MemoryPreference, Pages, SharedMemory};
use farside_sys::topology::{HugePagePolicy, NumaNodeId, Topology, host_id, hostname};
use farside_sys::{limits, process};

use crate::error::CliError;
use crate::json::{Json, object};

/// Describe what this machine offers a job: CPUs, memory, transports, limits
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Print one JSON object on one line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), CliError> {
    let machine = Machine::look()?;
    let text = if arguments.json { format!("{}\n", machine.to_json()) } else { machine.to_text() };
    io::stdout().write_all(text.as_bytes()).map_err(CliError::Output)
}

/// The shape of the job whose memory is reported: two processes, whose workers are a pair of peers.
const PROCESSES: u32 = 2;
const THREADS: u32 = 1;

/// Facts that are known before a job starts.
#[derive(Debug)]
struct Machine {
    topology: Topology,
    transports: Vec<Capabilities>,
    footprint: Footprint,
    registered: Registered,
    libfabric: Result<Libfabric, String>,
    routes: Result<Vec<Route>, String>,
}

/// The libfabric of this machine.
#[derive(Debug)]
struct Libfabric {
    version: (u32, u32),
    /// The providers, best first, and then those on request.
    providers: Vec<Provider>,
    /// Memory of a process that libfabric takes with the best provider.
    library_bytes: Result<u64, String>,
}

/// The transport that would carry the bytes of a job.
#[derive(Debug)]
struct Route {
    to: &'static str,
    name: String,
    why: String,
}

impl Machine {
    fn look() -> Result<Self, CliError> {
        // The processes of a job do the same. No thread has been started yet.
        process::set_default_environment(&ofi::ENVIRONMENT);
        let libfabric = look_for_libfabric();
        let topology = Topology::of_this_machine()?;
        Ok(Self {
            registered: Registered::try_out(&topology)?,
            topology,
            transports: transports()?,
            footprint: footprint(PROCESSES, THREADS),
            routes: routes(&libfabric),
            libfabric,
        })
    }

    fn to_json(&self) -> Json {
        let topology = &self.topology;
        let nodes = topology.numa_nodes.iter().map(
            |node| object! { "node": node.id.0, "cpus": node.cpus.to_string(), "memory_bytes": node.memory_bytes },
        );
        let pages = topology
            .huge_pages
            .iter()
            .map(|size| object! { "page_bytes": size.page_bytes, "total": size.total, "free": size.free });
        let policy = |policy: Option<HugePagePolicy>| policy.map(|policy| policy.to_string());
        object! {
            "version": env!("CARGO_PKG_VERSION"),
            "host": hostname(),
            "host_id": host_id().ok().map(|id| id.to_string()),
            "cpus_allowed": topology.cpus_allowed.to_string(),
            "cpus_allowed_count": topology.cpus_allowed.len(),
            "cpus_online_count": topology.cpus_online.len(),
            "cpu_quota": topology.cpu_quota.map(|quota| quota.cpus()),
            "core_count": topology.cores.len(),
            "numa_nodes": nodes.collect::<Vec<_>>(),
            "page_bytes": topology.page_bytes,
            "huge_pages": pages.collect::<Vec<_>>(),
            "transparent_huge_pages": policy(topology.transparent_huge_pages),
            "shared_memory_huge_pages": policy(topology.shmem_huge_pages),
            "registered_memory": self.registered.to_json(),
            "memory_available_bytes": limits::available_memory_bytes(),
            "open_files_max": limits::max_open_files(),
            "user_processes_max": limits::max_user_processes(),
            "footprint": footprint_to_json(&self.footprint),
            "transports": self.transports.iter().map(transport_to_json).collect::<Vec<_>>(),
            "libfabric": match &self.libfabric {
                Ok(found) => libfabric_to_json(found),
                Err(why) => object! { "missing": why.as_str() },
            },
            "routes": match &self.routes {
                Ok(routes) => Json::List(routes.iter().map(Route::to_json).collect()),
                Err(why) => object! { "unusable": why.as_str() },
            },
        }
    }

    fn to_text(&self) -> String {
        let topology = &self.topology;
        let mut lines = Lines::default();
        lines.add("farside", env!("CARGO_PKG_VERSION"));
        lines.add("host", hostname());
        let quota =
            topology.cpu_quota.map_or_else(String::new, |quota| format!(", {:.1} CPUs' worth of time", quota.cpus()));
        let (allowed, online) = (&topology.cpus_allowed, &topology.cpus_online);
        lines.add("CPUs allowed", format!("{} of {} ({allowed}){quota}", allowed.len(), online.len()));
        lines.add("cores", topology.cores.len());
        for node in &topology.numa_nodes {
            lines.add("NUMA node", format!("{}: CPUs {}, {}", node.id.0, node.cpus, mebibytes(node.memory_bytes)));
        }
        for size in &topology.huge_pages {
            let kib = size.page_bytes >> 10;
            lines.add("huge pages", format!("{kib} KiB: {} of {} free", size.free, size.total));
        }
        let policy = |policy: Option<HugePagePolicy>| policy.map_or("not known".into(), |policy| policy.to_string());
        let (private, shared) = (policy(topology.transparent_huge_pages), policy(topology.shmem_huge_pages));
        lines.add("transparent", format!("huge pages {private}, in shared memory {shared}"));
        lines.add("registered", &self.registered);
        lines.add("memory", format!("{} available", mebibytes(limits::available_memory_bytes())));
        let limit = |limit: Option<u64>| limit.map_or("no limit".into(), |limit| limit.to_string());
        lines.add("open files", limit(limits::max_open_files()));
        lines.add("user processes", limit(limits::max_user_processes()));
        let Footprint { starter_bytes, starter_terms, idle_pair_bytes, idle_pair_terms, .. } = &self.footprint;
        lines.add("a process takes", format!("{starter_bytes} bytes = {}, in whole pages", sum_to_text(starter_terms)));
        lines.add("an idle pair", format!("{idle_pair_bytes} bytes = {}", sum_to_text(idle_pair_terms)));
        for transport in &self.transports {
            lines.add("transport", transport_to_text(transport));
        }
        match &self.libfabric {
            Ok(Libfabric { version: (major, minor), providers, library_bytes }) => {
                let own = match library_bytes {
                    Ok(bytes) => format!("{bytes} bytes of its own memory (measured)"),
                    Err(why) => format!("memory of its own (not measured: {why})"),
                };
                let staging = ofi::PROCESS_BYTES;
                lines.add(
                    "libfabric",
                    format!("{major}.{minor}; for each process it takes {own} and up to {staging} bytes of ours"),
                );
                for Provider { name, domain, is_on_request } in providers {
                    let word =
                        if *is_on_request { format!(" (untested: only with auto:{name})") } else { String::new() };
                    lines.add("provider", format!("{name} on {domain}{word}"));
                }
            }
            Err(why) => lines.add("libfabric", why),
        }
        match &self.routes {
            Ok(routes) => {
                routes.iter().for_each(|Route { to, name, why }| lines.add("route", format!("{to}: {name} ({why})")))
            }
            Err(why) => lines.add("route", why),
        }
        lines.0
    }
}

/// The pages and the node of memory that is allocated as a job allocates its first.
#[derive(Debug)]
struct Registered {
    bytes: usize,
    pages: Pages,
    node: Option<NumaNodeId>,
}

impl Registered {
    fn try_out(topology: &Topology) -> Result<Self, CliError> {
        let options = NodeOptions::default();
        let node = topology.numa_nodes.first().map(|node| node.id);
        let memory = SharedMemory::create_as(
            "farside-info",
            options.superchunk_bytes,
            MemoryPreference { pages: options.pages, node, ..MemoryPreference::default() },
        );
        let memory = memory.map_err(farside_fabric::FabricError::from)?;
        Ok(Self { bytes: memory.bytes(), pages: memory.pages(), node: memory.node() })
    }

    fn to_json(&self) -> Json {
        object! {
            "tried_bytes": self.bytes,
            "pages": self.pages.kind.to_string(),
            "huge_bytes": self.pages.huge_bytes,
            "node": self.node.map(|node| node.0),
        }
    }
}

impl Display for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory gets {}, ", self.pages.kind)?;
        match self.node {
            Some(node) => write!(f, "on the requested node ({} was tried)", node.0),
            None => f.write_str("and the system does not report its node"),
        }
    }
}

impl Route {
    fn to_json(&self) -> Json {
        object! { "to": self.to, "name": self.name.as_str(), "why": self.why.as_str() }
    }
}

/// Lines of a label and a value.
#[derive(Debug, Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, label: &str, value: impl Display) {
        writeln!(self.0, "{label:<16}{value}").expect("a string takes all that is written to it");
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Returns the capabilities that the transports of this program report.
fn transports() -> Result<Vec<Capabilities>, CliError> {
    let random = |cause| farside_fabric::FabricError::System { doing: "getting random bytes", cause };
    let starter_bytes = 4096;
    let shm = ShmEndpoint::open(ShmConfig {
        process: ProcessId::new(0),
        process_count: 1,
        job_id: u64::from_ne_bytes(process::random_bytes().map_err(random)?),
        secret: process::random_bytes().map_err(random)?,
        starter_bytes,
        user_by_system_call: true,
    })?;
    let sim = SimFabric::new(1, starter_bytes, 0, SimOptions::default())?.endpoint(ProcessId::new(0));
    Ok(vec![shm.capabilities(), sim.capabilities()])
}

/// Returns the name of the provider that a job takes.
fn best(providers: &[Provider]) -> Option<&str> {
    providers.first().filter(|best| !best.is_on_request).map(|best| &*best.name)
}

fn look_for_libfabric() -> Result<Libfabric, String> {
    let version = ofi::library_version().map_err(|error| error.to_string())?;
    let providers = ofi::providers().map_err(|error| error.to_string())?;
    let measured = ofi::library_bytes(best(&providers), None);
    let library_bytes = match measured {
        Ok(bytes) => bytes.ok_or_else(|| "the system does not report it".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    Ok(Libfabric { version, providers, library_bytes })
}

/// Returns the routes of a job that is started here, with the reason for each.
fn routes(libfabric: &Result<Libfabric, String>) -> Result<Vec<Route>, String> {
    let forced = std::env::var("FARSIDE_FABRIC").ok().map(|text| (text.parse::<FabricChoice>(), text));
    let (choice, why) = match forced {
        None => (FabricChoice::default(), None),
        Some((Ok(choice), text)) => (choice, Some(format!("FARSIDE_FABRIC={text} forces it"))),
        Some((Err(error), _)) => return Err(format!("FARSIDE_FABRIC: {error}")),
    };
    let best = || match libfabric {
        Ok(found) => best(&found.providers).map_or("none".to_owned(), |provider| format!("ofi:{provider}")),
        Err(_) => "none: libfabric is missing".to_owned(),
    };
    let because = |default: &str| why.clone().unwrap_or_else(|| default.to_owned());
    let route = |to, name, why| Route { to, name, why };
    let ofi = choice.provider().map_or_else(best, |provider| format!("ofi:{provider}"));
    Ok(match &choice {
        FabricChoice::Auto(_) => vec![
            route("this machine", "shm".to_owned(), because("its memory can be mapped")),
            route("other machines", ofi, because("the best provider here")),
        ],
        FabricChoice::Shm => vec![route("this machine", "shm".to_owned(), because(""))],
        FabricChoice::Ofi(_) => vec![route("all", ofi, because(""))],
    })
}

fn libfabric_to_json(found: &Libfabric) -> Json {
    let provider = |found: &Provider| object! { "name": found.name.as_str(), "domain": found.domain.as_str(), "on_request": found.is_on_request };
    object! {
        "version": format!("{}.{}", found.version.0, found.version.1),
        "providers": found.providers.iter().map(provider).collect::<Vec<_>>(),
        "process_bytes": ofi::PROCESS_BYTES,
        "library_bytes": found.library_bytes.as_ref().ok().copied(),
    }
}

fn footprint_to_json(footprint: &Footprint) -> Json {
    let object = |terms: &[(&'static str, u64)]| {
        Json::Object(terms.iter().map(|(name, bytes)| (*name, (*bytes).into())).collect())
    };
    object! {
        "processes": PROCESSES,
        "threads": THREADS,
        "process_bytes": footprint.starter_bytes,
        "process_terms": object(&footprint.starter_terms),
        "idle_pair_bytes": footprint.idle_pair_bytes,
        "idle_pair_terms": object(&footprint.idle_pair_terms),
    }
}

/// A sum with its terms: `128 doorbells + 256 latches`.
fn sum_to_text(terms: &[(&str, u64)]) -> String {
    terms.iter().map(|(name, bytes)| format!("{bytes} {name}")).collect::<Vec<_>>().join(" + ")
}

fn transport_to_json(transport: &Capabilities) -> Json {
    object! {
        "name": transport.name,
        "mapped": transport.mapped,
        "needs_target_progress": transport.needs_target_progress != NeedsTarget::Nothing,
        "puts_in_order": transport.puts_in_order,
        "message_bytes_max": transport.message_bytes_max,
        // A transport without a limit reports the largest number.
        "operations_max": Some(transport.operations_max).filter(|max| *max < usize::MAX),
    }
}

fn transport_to_text(transport: &Capabilities) -> String {
    let reach = if transport.mapped { "mapped memory" } else { "posted operations" };
    let progress = match transport.needs_target_progress {
        NeedsTarget::Nothing => "needs nothing of the target",
        NeedsTarget::Atomics => "needs the target's progress for atomics",
        NeedsTarget::Everything => "needs the target's progress",
    };
    let order = if transport.puts_in_order { "puts in order" } else { "puts in any order" };
    format!("{}: {reach}, {progress}, {order}, messages to {} bytes", transport.name, transport.message_bytes_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_name_the_same_machine() {
        let machine = Machine::look().unwrap();
        let value: serde_json::Value = serde_json::from_str(&machine.to_json().to_string()).unwrap();
        let text = machine.to_text();
        assert!(value["cpus_allowed_count"].as_u64().unwrap() > 0);
        assert!(value["page_bytes"].as_u64().unwrap() >= 4096);
        let names: Vec<_> =
            value["transports"].as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["shm", "sim"]);
        assert!(names.iter().all(|name| text.contains(&format!("transport       {name}: "))), "{text}");
        assert!(text.contains(value["host"].as_str().unwrap()), "{text}");
        assert!(text.contains("libfabric       ") && text.contains("route           this machine: shm"), "{text}");
        let own = &value["libfabric"]["library_bytes"];
        assert!(own.is_null() || text.contains(&format!("it takes {own} bytes of its own")), "{text}");
        assert_eq!(value["routes"][0]["name"], "shm");
        let pages = value["registered_memory"]["pages"].as_str().unwrap();
        assert!(text.contains(&format!("registered      memory gets {pages}, ")), "{text}");
        let pair = &value["footprint"]["idle_pair_bytes"];
        assert!(pair.as_u64().unwrap() > 0 && text.contains(&format!("an idle pair    {pair} bytes")), "{text}");
    }
}
