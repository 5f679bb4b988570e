//! The choice of libfabric's provider.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::library::{Api, FoundFabric, OneInfo};
use crate::transport::FabricError;

/// The provider that reaches only other processes of this machine.
pub(super) const SHM: &str = "shm";

/// The environment that libfabric needs before it is opened, unless its provider is `tcp` or `shm`:
/// variables and values.
///
/// - One receive queue for all connections. With a queue per connection, its layer `rxm` frees a
///   connection that ends and then offers receives on it.
/// - No monitoring of the program's mappings. To monitor them for its cache of registrations,
///   libfabric overwrites the code of `munmap` and others when it is opened, and restores it when
///   it is closed, while other threads may be executing that code.
///
/// Both hold for all versions from 1.17 to 2.5.
pub const REQUIRED: [(&str, &str); 2] = [SHARED_RECEIVES, ("FI_MR_CACHE_MONITOR", "disabled")];

const SHARED_RECEIVES: (&str, &str) = ("FI_OFI_RXM_USE_SRX", "1");

/// The recommended environment of processes that may use libfabric, for variables that are not set:
/// the [`REQUIRED`] ones, and two that reduce the memory that libfabric keeps ready. They cost no
/// speed (measured).
///
/// The layer `rxm` has pools of 1024 buffers of 16 KiB. By default it fills four of them for
/// receives, eight in version 2, and one for sends. (Smaller buffers would cost a fifth of the
/// speed.) `tcp` of version 2 has one such pool, for messages that no receive is waiting for.
/// Farside's messages never wait there.
pub const ENVIRONMENT: [(&str, &str); 4] =
    [REQUIRED[0], REQUIRED[1], ("FI_OFI_RXM_MSG_RX_SIZE", "64"), ("FI_TCP_MAX_RX_SIZE", "1024")];

/// A fabric that can be opened, as `farside info` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// The name, as libfabric spells it.
    pub name: String,
    /// The device or interface.
    pub domain: String,
    /// True if a job takes the provider only by its name, because no test runs over it.
    pub is_on_request: bool,
}

/// Lists the available providers, best first, and then those that are [on
/// request](Provider::is_on_request). A provider with several interfaces is listed once for each.
///
/// # Errors
/// [`FabricError::Unavailable`] if libfabric is not installed or has no suitable provider.
pub fn providers() -> Result<Vec<Provider>, FabricError> {
    let api = Api::open()?;
    let found = api.find_fabrics(None, None)?;
    let listed = |fabric: FoundFabric<'_>| {
        let (name, domain) = (fabric.provider(), fabric.domain());
        let is_on_request = ON_REQUEST.contains(&&*name);
        (is_on_request || rank(&name).is_some()).then_some(Provider { name, domain, is_on_request })
    };
    let mut providers: Vec<Provider> = found.iter().filter_map(listed).collect();
    let order = |provider: &Provider| (provider.is_on_request, rank(&provider.name));
    providers.sort_by(|a, b| (order(a), &a.name, &a.domain).cmp(&(order(b), &b.name, &b.domain)));
    // libfabric reports one fabric for each address of the interface.
    providers.dedup();
    Ok(providers)
}

/// The version of the installed libfabric.
///
/// # Errors
/// [`FabricError::Unavailable`].
pub fn library_version() -> Result<(u32, u32), FabricError> {
    Api::open().map(|api| api.version())
}

/// Providers of special hardware over which no test runs.
const ON_REQUEST: [&str; 4] = ["cxi", "efa", "opx", "psm3"];

/// The rank of a provider for a job across machines; a smaller one is better. `None` for providers
/// that a job takes only by their names: untested ones, slow ones, ones that crash, and those that
/// reach only this machine.
fn rank(provider: &str) -> Option<usize> {
    const TESTED_BEST_FIRST: [&str; 3] = ["verbs;ofi_rxm", "tcp", "tcp;ofi_rxm"];
    TESTED_BEST_FIRST.iter().position(|known| *known == provider)
}

/// Returns whether the test suite runs over a provider.
fn is_tested(provider: &str) -> bool {
    rank(provider).is_some() || provider == SHM
}

/// Expands a short name into the full names, to be tried in turn.
fn full_names(name: &str) -> Vec<&str> {
    match name {
        // Version 2 of libfabric has both.
        "tcp" => vec!["tcp", "tcp;ofi_rxm"],
        "verbs" => vec!["verbs;ofi_rxm"],
        name => vec![name],
    }
}

/// Refuses a provider that would use freed memory, or modify running code.
fn check_environment(provider: &str, lookup: impl Fn(&str) -> Option<OsString>) -> Result<(), FabricError> {
    let is_tame = provider == SHM || provider.starts_with("tcp");
    let is_right = |(name, value): &(&str, &str)| match lookup(name) {
        Some(set) => set == *value,
        None => is_tame,
    };
    // Over `tcp`, `rxm` has the first of the two faults only if the environment asks for it.
    let matters = |(name, _): &(&str, &str)| !is_tame || (*name == SHARED_RECEIVES.0 && provider.ends_with(";ofi_rxm"));
    match REQUIRED.iter().filter(|setting| matters(setting)).find(|setting| !is_right(setting)) {
        None => Ok(()),
        Some((name, value)) => Err(FabricError::Unavailable {
            what: format!("libfabric's provider {provider}"),
            why: format!("it is unsafe in a program with several threads without {name}={value} in the environment"),
            remedy: "set FI_OFI_RXM_USE_SRX=1 and FI_MR_CACHE_MONITOR=disabled for all processes before they start (mpirun has -x \
                     for that), or choose --fabric auto:tcp",
        }),
    }
}

/// Finds the fabric for a provider, or for the best available one. The address is one of this
/// machine, or by default one that other machines reach; the device is optional.
pub(super) fn choose(
    api: Api,
    provider: Option<&str>,
    address: Option<&str>,
    device: Option<&str>,
) -> Result<(OneInfo, String), FabricError> {
    let (info, name) = find(api, provider, address, device)?;
    check_environment(&name, |name| std::env::var_os(name))?;
    if !is_tested(&name) {
        tracing::warn!(provider = name, "no test of Farside runs over this provider of libfabric");
    }
    Ok((info, name))
}

fn find(
    api: Api,
    provider: Option<&str>,
    address: Option<&str>,
    device: Option<&str>,
) -> Result<(OneInfo, String), FabricError> {
    let Some(provider) = provider else {
        let found = api.find_fabrics(None, address)?;
        let best = best_of(found.iter().filter(|fabric| rank(&fabric.provider()).is_some()), device)?;
        return best.ok_or_else(|| FabricError::Unavailable {
            what: "libfabric".to_owned(),
            why: "none of its providers on this machine works between machines".to_owned(),
            remedy: "`farside info` lists the providers",
        });
    };
    // The provider for one machine has no such addresses, and crashes if it is given one.
    let address = address.filter(|_| provider != SHM);
    let mut names = full_names(provider).into_iter();
    let first = names.next().expect("there is at least one name");
    let found = names.fold(api.find_fabrics(Some(first), address), |found, name| {
        found.or_else(|error| api.find_fabrics(Some(name), address).map_err(|_| error))
    })?;
    let best = best_of(found.iter(), device)?;
    best.ok_or_else(|| FabricError::Unavailable {
        what: format!("libfabric's provider {provider}"),
        why: "there is no free memory".to_owned(),
        remedy: "end other programs",
    })
}

/// Selects, among equally good providers, the one whose address other machines can reach. With
/// `device`, only fabrics on that device count.
///
/// # Errors
/// [`FabricError::Unavailable`], with the available devices, if the named one is not among them.
fn best_of<'l>(
    fabrics: impl Iterator<Item = FoundFabric<'l>>,
    device: Option<&str>,
) -> Result<Option<(OneInfo, String)>, FabricError> {
    let all: Vec<_> = fabrics.collect();
    let fitting = all.iter().filter(|fabric| device.is_none_or(|device| fabric.domain() == device));
    let best = fitting.min_by_key(|fabric| (rank(&fabric.provider()), reach(&fabric.source())));
    if let (None, Some(device), false) = (best, device, all.is_empty()) {
        let mut there: Vec<String> = all.iter().map(|fabric| fabric.domain()).collect();
        there.sort_unstable();
        there.dedup();
        return Err(FabricError::Unavailable {
            what: format!("the network device {device}"),
            why: format!("this provider and address have only {}", there.join(", ")),
            remedy: "name one of these with --nic or FARSIDE_NIC, or omit it",
        });
    }
    Ok(best.and_then(|best| Some((best.to_info()?, best.provider()))))
}

/// The providers that connected endpoints may use: the fast one, and the one for tests.
const CONNECTED: [&str; 2] = ["verbs", "tcp"];

/// Finds the fabric for endpoints that are connected one to one. The address is one of this machine
/// to listen at, by default one that other machines reach; or a peer's address and port.
pub(super) fn choose_connected(
    api: Api,
    provider: &str,
    address: Option<(&str, Option<&str>)>,
) -> Result<OneInfo, FabricError> {
    let unavailable = |why: String, remedy| FabricError::Unavailable {
        what: format!("libfabric's provider {provider}"),
        why,
        remedy,
    };
    if !CONNECTED.contains(&provider) {
        let why = "no test runs over it with connected endpoints".to_owned();
        return Err(unavailable(why, "name verbs, or tcp for tests"));
    }
    let (name, value) = REQUIRED[1];
    if provider != "tcp" && std::env::var_os(name).is_none_or(|set| set != value) {
        let why = format!("it changes running code without {name}={value} in the environment");
        return Err(unavailable(why, "set FI_MR_CACHE_MONITOR=disabled before the program starts"));
    }
    let found = api.find_connected(provider, address)?;
    let best = best_of(found.iter(), None)?.map(|(info, _)| info);
    best.ok_or_else(|| unavailable("there is no free memory".to_owned(), "end other programs"))
}

/// Reads a socket address.
pub(super) fn socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    let ip = match family {
        2 => IpAddr::from(Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?)),
        10 => IpAddr::from(Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Returns whether only processes of the same machine can reach a socket address.
pub(super) fn is_loopback(address: &[u8]) -> bool {
    match (address.first_chunk().map(|family| u16::from_ne_bytes(*family)), address.get(4..8), address.get(8..24)) {
        (Some(2), Some([127, ..]), _) => true,
        (Some(10), _, Some(address)) => address == Ipv6Addr::LOCALHOST.octets(),
        _ => false,
    }
}

/// The reach of a socket address; a smaller value is better. All other kinds of addresses are
/// equal.
fn reach(address: &[u8]) -> u32 {
    // The family is the first field of every socket address. IPv4 addresses follow the port, IPv6
    // addresses follow port and flow.
    let family = address.first_chunk().map(|family| u16::from_ne_bytes(*family));
    match (family, address.get(4..8), address.get(8..24)) {
        (Some(2), ..) if is_loopback(address) => 3,
        (Some(2), Some(_), _) => 0,
        (Some(10), _, Some([0xfe, 0x80, ..])) => 4,
        (Some(10), ..) if is_loopback(address) => 4,
        (Some(10), _, Some(_)) => 2,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_others_reach_come_first() {
        let ipv4 = |address: [u8; 4]| [&2_u16.to_ne_bytes()[..], &[0, 0], &address, &[0; 8]].concat();
        let ipv6 = |address: [u8; 16]| [&10_u16.to_ne_bytes()[..], &[0; 6], &address, &[0; 4]].concat();
        let mut link_local = [0; 16];
        link_local[..2].copy_from_slice(&[0xfe, 0x80]);
        let mut public = link_local;
        public[0] = 0xfd;
        let order = [ipv4([192, 0, 2, 7]), ipv6(public), ipv4([127, 0, 0, 1]), ipv6(link_local)];
        assert!(order.is_sorted_by(|better, worse| reach(better) < reach(worse)), "{:?}", order.map(|a| reach(&a)));
        assert_eq!(order.map(|address| is_loopback(&address)), [false, false, true, false]);
        assert!(is_loopback(&ipv6(Ipv6Addr::LOCALHOST.octets())));
        assert_eq!(reach(b"fi_shm://1:2"), 0);
        assert_eq!(reach(&[]), 0);
    }

    #[test]
    fn addresses_are_read() {
        let bytes = [&2_u16.to_ne_bytes()[..], &[0x12, 0x34, 10, 77, 0, 1], &[0; 8]].concat();
        assert_eq!(socket_address(&bytes), Some("10.77.0.1:4660".parse().unwrap()));
        let ipv6 = [&10_u16.to_ne_bytes()[..], &[0, 80, 0, 0, 0, 0], &[0; 15], &[1], &[0; 4]].concat();
        assert_eq!(socket_address(&ipv6), Some("[::1]:80".parse().unwrap()));
        for wrong in [&bytes[..7], &ipv6[..20], &[], &[0; 100]] {
            assert_eq!(socket_address(wrong), None);
        }
    }

    #[test]
    fn unsafe_providers_are_refused() {
        let check = |provider, receives: Option<&str>, monitor: Option<&str>| {
            check_environment(provider, |name| {
                let set = if name == SHARED_RECEIVES.0 { receives } else { monitor };
                set.map(OsString::from)
            })
        };
        for (provider, receives, monitor) in [
            ("verbs;ofi_rxm", Some("1"), Some("disabled")),
            ("efa", Some("1"), Some("disabled")),
            ("tcp;ofi_rxm", None, None),
            ("tcp;ofi_rxm", Some("1"), Some("memhooks")),
            ("tcp", Some("0"), None),
            (SHM, None, Some("memhooks")),
        ] {
            assert!(check(provider, receives, monitor).is_ok(), "{provider} {receives:?} {monitor:?}");
        }
        for (provider, receives, monitor, missing) in [
            ("verbs;ofi_rxm", None, None, "without FI_OFI_RXM_USE_SRX=1"),
            ("verbs;ofi_rxm", Some("0"), Some("disabled"), "without FI_OFI_RXM_USE_SRX=1"),
            ("verbs;ofi_rxm", Some("1"), None, "without FI_MR_CACHE_MONITOR=disabled"),
            ("verbs;ofi_rxm", Some("1"), Some("memhooks"), "without FI_MR_CACHE_MONITOR=disabled"),
            ("efa", Some("1"), None, "without FI_MR_CACHE_MONITOR=disabled"),
            ("tcp;ofi_rxm", Some("0"), None, "without FI_OFI_RXM_USE_SRX=1"),
        ] {
            let refusal = check(provider, receives, monitor).unwrap_err().to_string();
            assert!(refusal.contains(missing), "{provider} {receives:?} {monitor:?}: {refusal}");
        }
    }

    #[test]
    fn untested_providers_are_not_chosen() {
        for provider in ["sockets", "net", "udp;ofi_rxd", ""].into_iter().chain(ON_REQUEST) {
            assert!(rank(provider).is_none() && !is_tested(provider), "{provider}");
        }
        // It is tested, but reaches only this machine.
        assert!(rank(SHM).is_none() && is_tested(SHM));
        assert!(rank("verbs;ofi_rxm") < rank("tcp;ofi_rxm"));
    }
}
