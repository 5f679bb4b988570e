//! Finding process 0 by PMIx.
//!
//! Process 0 draws the job's secret, listens at a port that the system chooses, and publishes both with its addresses. The others
//! fetch that from it; nobody waits for all in PMIx, so that it is the coordinator who finds out who is missing, and names them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use farside_sys::net::tcp;
use farside_sys::pmix::{Pmix, PmixError, Session};
use farside_sys::process::random_bytes;

use super::greeting::{Claim, Secret};
use super::host::{Door, Hosting};
use super::join::Joining;
use super::{host_job, join_job, listen, time_of};
use crate::child::Member;
use crate::error::{LaunchError as Error, RendezvousError, Result};
use crate::settings::{Choices, Lookup};

/// Under which process 0 publishes its bulletin.
const KEY: &std::ffi::CStr = c"farside.rendezvous";
/// The pause before process 0's bulletin is looked for again.
const PAUSE: Duration = Duration::from_millis(10);
/// How many addresses a bulletin names.
const ADDRESSES_MAX: usize = 64;

/// Whether the launcher of this process speaks PMIx.
pub(crate) fn is_offered(lookup: Lookup<'_>) -> bool {
    ["PMIX_RANK", "PMIX_NAMESPACE"].iter().all(|name| lookup(name).is_some_and(|text| !text.is_empty()))
}

/// Takes a place as PMIx says.
///
/// # Errors
/// [`Error::Rendezvous`], [`Error::Deadline`]; those of bad settings.
pub(crate) fn take_place(pmix: Pmix, choices: &Choices, lookup: Lookup<'_>) -> Result<(Member, Option<Hosting>)> {
    let time = time_of(choices, lookup)?;
    let (session, processes) = begin(pmix, time)?;
    let process = session.rank();
    let claim = Claim::ungrouped(process, processes);
    if processes == 1 {
        return host_job(claim, None, choices, lookup);
    }
    if process == 0 {
        let (bulletin, door) = open_door()?;
        let session = within(time, "publishing where process 0 is", move || {
            session.publish(KEY, &bulletin.encode())?;
            Ok(session)
        })?;
        return host_job(claim, Some(Door { pmix: Some(session), ..door }), choices, lookup);
    }
    let fetched = within(time, "waiting for process 0 to say where it is", move || fetch(&session, time))?;
    let bulletin = Bulletin::decode(&fetched).ok_or_else(|| RendezvousError::Pmix {
        why: "process 0 has published what this process does not understand: start one program for the whole job"
            .into(),
    })?;
    let targets: Vec<_> = bulletin.addresses.iter().map(|address| (address.to_string(), bulletin.port)).collect();
    let secret = Secret::new(&bulletin.secret);
    join_job(&Joining { claim, targets: &targets, secret: &secret, time }, choices, lookup)
}

/// Which of the launcher's processes this is, and how many there are.
pub(crate) fn own_number(pmix: Pmix, time: Duration) -> Result<(u32, u32)> {
    let (session, processes) = begin(pmix, time)?;
    Ok((session.rank(), processes))
}

fn begin(pmix: Pmix, time: Duration) -> Result<(Session, u32)> {
    within(time, "joining the PMIx server", move || {
        let session = Session::begin(pmix)?;
        let processes = session.size()?;
        Ok((session, processes))
    })
}

/// What process 0 publishes, as soon as it has.
fn fetch(session: &Session, time: Duration) -> Result<Vec<u8>, PmixError> {
    let deadline = Instant::now() + time;
    loop {
        match session.fetch(0, KEY, time) {
            Err(error) if error.is_absence() && Instant::now() < deadline => thread::sleep(PAUSE),
            result => return result,
        }
    }
}

/// Calls what may block for ever in a thread of its own, which is left to itself when the time is up: the library's calls cannot be
/// ended from outside.
fn within<T: Send + 'static>(
    time: Duration,
    doing: &'static str,
    call: impl FnOnce() -> Result<T, PmixError> + Send + 'static,
) -> Result<T> {
    let (tell, hear) = mpsc::channel();
    let thread = thread::Builder::new().name("farside pmix".to_owned());
    // Nobody listens when the time is up.
    let spawned = thread.spawn(move || drop(tell.send(call())));
    spawned.map_err(|cause| Error::System { doing: "starting a thread for PMIx", cause })?;
    let result = hear.recv_timeout(time).map_err(|_| Error::Deadline { doing, after: time })?;
    Ok(result.map_err(|error| RendezvousError::Pmix { why: error.to_string() })?)
}

/// Listens, and says where.
fn open_door() -> Result<(Bulletin, Door)> {
    let failed = |doing| move |cause| Error::System { doing, cause };
    let secret = random_bytes().map_err(failed("getting random bytes"))?;
    let listener = listen(0)?;
    let port = listener.local_addr().map_err(failed("finding a port to listen at"))?.port();
    let addresses = in_order(tcp::own_addresses().map_err(failed("listing this machine's addresses"))?);
    let door = Door { listener, secret: Secret::new(&secret), pmix: None };
    Ok((Bulletin { secret, port, addresses }, door))
}

/// Those by which others can reach this machine, those of other machines' networks first.
fn in_order(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let is_usable = |address: &IpAddr| match address {
        IpAddr::V4(_) => true,
        // What is local to a link means nothing without the link's name, which differs between machines.
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    let mut addresses: Vec<_> = addresses.into_iter().filter(is_usable).collect();
    addresses.sort_by_key(|address| (address.is_loopback(), address.is_ipv6()));
    addresses.truncate(ADDRESSES_MAX);
    addresses
}

/// What process 0 publishes.
///
/// ```text
/// secret    32 B
/// port      2 B, little endian
/// addresses each 4 or 6, and 4 or 16 B
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bulletin {
    secret: [u8; 32],
    port: u16,
    addresses: Vec<IpAddr>,
}

impl Bulletin {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = [&self.secret[..], &self.port.to_le_bytes()].concat();
        for address in &self.addresses {
            match address {
                IpAddr::V4(address) => bytes.extend([&[4], &address.octets()[..]].concat()),
                IpAddr::V6(address) => bytes.extend([&[6], &address.octets()[..]].concat()),
            }
        }
        bytes
    }

    /// What these bytes say, if they are a bulletin with any address.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (secret, rest) = bytes.split_first_chunk()?;
        let (port, mut rest) = rest.split_first_chunk()?;
        let mut addresses = Vec::new();
        while let Some((family, behind)) = rest.split_first() {
            let address = match family {
                4 => Ipv4Addr::from(take(behind, &mut rest)?).into(),
                6 => Ipv6Addr::from(take(behind, &mut rest)?).into(),
                _ => return None,
            };
            addresses.push(address);
        }
        let bulletin = Self { secret: *secret, port: u16::from_le_bytes(*port), addresses };
        (1..=ADDRESSES_MAX).contains(&bulletin.addresses.len()).then_some(bulletin)
    }
}

fn take<'a, const N: usize>(bytes: &'a [u8], rest: &mut &'a [u8]) -> Option<[u8; N]> {
    let (taken, behind) = bytes.split_first_chunk()?;
    *rest = behind;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bulletin() -> impl Strategy<Value = Bulletin> {
        let address = prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from),];
        (any::<([u8; 32], u16)>(), prop::collection::vec(address, 1..=ADDRESSES_MAX))
            .prop_map(|((secret, port), addresses)| Bulletin { secret, port, addresses })
    }

    proptest! {
        #[test]
        fn a_bulletin_arrives(bulletin in bulletin()) {
            let bytes = bulletin.encode();
            prop_assert_eq!(Bulletin::decode(&bytes), Some(bulletin));
            prop_assert_eq!(Bulletin::decode(&bytes[..bytes.len() - 1]), None);
            prop_assert_eq!(Bulletin::decode(&[&bytes[..], &[7]].concat()), None);
        }

        #[test]
        fn any_bytes_are_a_bulletin_or_none(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some(bulletin) = Bulletin::decode(&bytes) {
                prop_assert_eq!(bulletin.encode(), bytes);
            }
        }
    }

    #[test]
    fn addresses_of_networks_come_first() {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let found = parse(&["127.0.0.1", "::1", "fe80::1", "2001:db8::1", "10.0.0.1", "192.168.1.1"]);
        let ordered = parse(&["10.0.0.1", "192.168.1.1", "2001:db8::1", "127.0.0.1", "::1"]);
        assert_eq!(in_order(found), ordered);
    }

    #[test]
    fn what_blocks_is_left_alone_in_time() {
        let value = within(Duration::from_secs(30), "waiting", || Ok(3)).unwrap();
        assert_eq!(value, 3);
        let (_keep, never) = mpsc::channel::<()>();
        let blocked = within(Duration::from_millis(10), "waiting", move || {
            let _ = never.recv();
            Ok(())
        });
        assert!(matches!(blocked, Err(Error::Deadline { doing: "waiting", .. })));
    }
}
