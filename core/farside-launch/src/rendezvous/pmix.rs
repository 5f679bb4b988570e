//! Finding process 0 by PMIx.
//!
//! Process 0 draws the job's secret, listens at a port that the system chooses, and publishes both
//! with its addresses. The other processes fetch these from it. No process waits for all others in
//! PMIx, so that the coordinator finds out which are missing, and names them.

use std::net::IpAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use farside_sys::net::tcp;
use farside_sys::pmix::{Pmix, PmixError, Session};
use farside_sys::process::random_bytes;
use farside_wire::check::MessageKind;
use farside_wire::{Decoder, Wire};

use super::greeting::{Claim, Secret};
use super::host::{Door, Hosting};
use super::join::Joining;
use super::{host_job, join_job, listen, time_of};
use crate::error::{LaunchError as Error, RendezvousError, Result};
use crate::member::Member;
use crate::settings::{Choices, Lookup};

/// The key under which process 0 publishes its bulletin.
const KEY: &std::ffi::CStr = c"farside.rendezvous";
/// The pause before a process looks for the bulletin again.
const PAUSE: Duration = Duration::from_millis(10);
/// The maximum number of addresses in a bulletin.
const ADDRESSES_MAX: usize = 64;

/// Returns whether the launcher of this process offers PMIx.
pub(crate) fn is_offered(lookup: Lookup<'_>) -> bool {
    ["PMIX_RANK", "PMIX_NAMESPACE"].iter().all(|name| lookup(name).is_some_and(|text| !text.is_empty()))
}

/// Takes the place that PMIx gives this process.
///
/// # Errors
/// [`Error::Rendezvous`], [`Error::Deadline`]; the error of an invalid setting.
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
        why: "process 0 published a bulletin that this process cannot read: start one program for the whole job".into(),
    })?;
    let targets: Vec<_> = bulletin.addresses().map(|address| (address.to_string(), bulletin.port)).collect();
    let secret = Secret::new(&bulletin.secret);
    join_job(&Joining { claim, targets: &targets, secret: &secret, time }, choices, lookup)
}

/// Returns this process's number among the launcher's processes, and their count.
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

/// Fetches the bulletin as soon as process 0 has published it.
fn fetch(session: &Session, time: Duration) -> Result<Vec<u8>, PmixError> {
    let deadline = Instant::now() + time;
    loop {
        match session.fetch(0, KEY, time) {
            Err(error) if error.is_absence() && Instant::now() < deadline => thread::sleep(PAUSE),
            result => return result,
        }
    }
}

/// Makes a call that may block forever on a thread of its own. Abandons the thread when the time is
/// up, because nothing can end a call into the library.
fn within<T: Send + 'static>(
    time: Duration,
    doing: &'static str,
    call: impl FnOnce() -> Result<T, PmixError> + Send + 'static,
) -> Result<T> {
    let (tell, hear) = mpsc::channel();
    let thread = thread::Builder::new().name("farside pmix".to_owned());
    // The receiver is gone when the time is up.
    let spawned = thread.spawn(move || drop(tell.send(call())));
    spawned.map_err(|cause| Error::System { doing: "starting a thread for PMIx", cause })?;
    let result = hear.recv_timeout(time).map_err(|_| Error::Deadline { doing, after: time })?;
    Ok(result.map_err(|error| RendezvousError::Pmix { why: error.to_string() })?)
}

/// Listens at a new port. Returns the bulletin with it.
fn open_door() -> Result<(Bulletin, Door)> {
    let failed = |doing| move |cause| Error::System { doing, cause };
    let secret = random_bytes().map_err(failed("getting random bytes"))?;
    let listener = listen(0)?;
    let port = listener.local_addr().map_err(failed("finding a port to listen at"))?.port();
    let addresses = in_order(tcp::own_addresses().map_err(failed("listing this machine's addresses"))?);
    let door = Door { listener, secret: Secret::new(&secret), pmix: None };
    Ok((Bulletin::new(secret, port, &addresses), door))
}

/// Returns the addresses by which other processes can reach this machine, loopback addresses last.
fn in_order(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let is_usable = |address: &IpAddr| match address {
        IpAddr::V4(_) => true,
        // A link-local address needs the link's name, which differs between machines.
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    let mut addresses: Vec<_> = addresses.into_iter().filter(is_usable).collect();
    addresses.sort_by_key(|address| (address.is_loopback(), address.is_ipv6()));
    addresses.truncate(ADDRESSES_MAX);
    addresses
}

/// The facts that process 0 publishes.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
struct Bulletin {
    /// The secret of the job.
    secret: [u8; 32],
    /// The port where process 0 listens.
    port: u16,
    /// Its addresses, at least one and at most [`ADDRESSES_MAX`]. Those of version 4 are mapped to
    /// version 6.
    addresses: Vec<[u8; 16]>,
}

impl Bulletin {
    fn new(secret: [u8; 32], port: u16, addresses: &[IpAddr]) -> Self {
        let octets = |address: &IpAddr| match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        Self { secret, port, addresses: addresses.iter().map(octets).collect() }
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().map(|octets| IpAddr::from(*octets).to_canonical())
    }

    fn encode(&self) -> Vec<u8> {
        farside_wire::encode(self, Vec::new())
    }

    /// Decodes a bulletin. Returns `None` if the bytes are not one.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let bulletin: Self = farside_wire::decode(Decoder::new(bytes), 0).ok()?;
        (1..=ADDRESSES_MAX).contains(&bulletin.addresses.len()).then_some(bulletin)
    }
}

/// The bulletin, for tests of its decoder.
pub(super) fn message_kind() -> MessageKind {
    MessageKind::of::<Bulletin>().through(&[], |bytes| Bulletin::decode(bytes).map(|bulletin| bulletin.encode()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_networks_come_first() {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let found = parse(&["127.0.0.1", "::1", "fe80::1", "2001:db8::1", "10.0.0.1", "192.168.1.1"]);
        let ordered = parse(&["10.0.0.1", "192.168.1.1", "2001:db8::1", "127.0.0.1", "::1"]);
        assert_eq!(in_order(found), ordered);
    }

    #[test]
    fn a_bulletin_keeps_the_addresses_of_both_versions() {
        let addresses: Vec<IpAddr> =
            ["10.0.0.1", "2001:db8::1", "::1"].iter().map(|text| text.parse().unwrap()).collect();
        let arrived = Bulletin::decode(&Bulletin::new([1; 32], 7, &addresses).encode()).unwrap();
        assert_eq!(arrived.addresses().collect::<Vec<_>>(), addresses);
    }

    #[test]
    fn a_blocked_call_is_abandoned_at_its_deadline() {
        let value = within(farside_testbed::limit(), "waiting", || Ok(3)).unwrap();
        assert_eq!(value, 3);
        let (_keep, never) = mpsc::channel::<()>();
        let blocked = within(Duration::from_millis(10), "waiting", move || {
            let _ = never.recv();
            Ok(())
        });
        assert!(matches!(blocked, Err(Error::Deadline { doing: "waiting", .. })));
    }
}
