//! The identity of this machine, as far as shared memory reaches.
//!
//! Two processes can share memory under three conditions. They run on one kernel. They can connect
//! to each other's abstract sockets, which only works inside one network namespace. And they belong
//! to the same user, because processes of other users are turned away.

use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;

use farside_fabric::ProcessId;
use farside_sys::topology;
use sha2::{Digest, Sha256};

use crate::error::{LaunchError as Error, Result};
use crate::settings::{Lookup, variable};

/// The variable that overrides the identity: processes with the same text count as on one machine,
/// those with different texts as on different machines. It serves tests, and containers whose
/// identities are misleading.
const HOST_ID: &str = "FARSIDE_HOST_ID";

/// The variable that splits the processes of a job, in their order, into this number of groups that
/// count as on different machines. It serves tests.
const MACHINES: &str = "FARSIDE_MACHINES";

/// Returns the number of machines on which the processes of each machine count.
///
/// # Errors
/// [`Error::JobEnded`] if the variable holds something else.
pub fn machines(lookup: Lookup<'_>) -> Result<u32> {
    Ok(variable::<NonZeroU32>(lookup, MACHINES)?.map_or(1, NonZeroU32::get))
}

/// Returns an identity that is the same for two of a job's `processes` processes exactly if they
/// can share memory, and count as on one machine.
///
/// # Errors
/// [`Error::System`] if `/proc` is not mounted. [`Error::JobEnded`] if a variable is invalid.
pub fn host_id(process: ProcessId, processes: u32, lookup: Lookup<'_>) -> Result<[u8; 16]> {
    let digest = match lookup(HOST_ID) {
        Some(text) => Sha256::new().chain_update(b"said").chain_update(text.as_bytes()),
        None => {
            let unreadable = |cause| Error::System { doing: "finding out which machine this is", cause };
            let kernel = topology::host_id().map_err(|cause| unreadable(std::io::Error::other(cause)))?;
            let network = farside_sys::net::namespace().map_err(unreadable)?;
            let user = farside_sys::process::user_id();
            let seen = Sha256::new().chain_update(b"seen").chain_update(kernel.0);
            seen.chain_update(network.to_le_bytes()).chain_update(user.to_le_bytes())
        }
    };
    let group = u64::from(process.number()) * u64::from(machines(lookup)?) / u64::from(processes);
    let digest = digest.chain_update(group.to_le_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&digest.finalize()[..16]);
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The identity of a process of four whose environment has one variable.
    fn id(process: u32, variable: &'static str, text: &'static str) -> [u8; 16] {
        host_id(ProcessId::new(process), 4, &|name| (name == variable).then(|| text.into())).unwrap()
    }

    #[test]
    fn a_machine_keeps_its_identity_unless_overridden() {
        let here = id(0, "", "");
        assert_eq!(id(3, "", ""), here);
        assert_eq!(id(0, HOST_ID, "a"), id(3, HOST_ID, "a"));
        assert_ne!(id(0, HOST_ID, "a"), id(0, HOST_ID, "b"));
        assert_ne!(id(0, HOST_ID, "a"), here);
        assert_ne!(id(0, HOST_ID, ""), here);
    }

    #[test]
    fn processes_of_one_machine_count_as_on_several() {
        let groups = |machines| [0, 1, 2, 3].map(|process| id(process, MACHINES, machines));
        let [a, b, c, d] = groups("2");
        assert!(a == b && c == d && a != c);
        assert_eq!(groups("1"), [id(0, "", ""); 4]);
        let [a, b, c, d] = groups("9");
        assert!(a != b && b != c && c != d);
        let refused = host_id(ProcessId::new(0), 4, &|name| (name == MACHINES).then(|| "0".into()));
        assert!(refused.unwrap_err().to_string().contains(MACHINES));
    }
}
