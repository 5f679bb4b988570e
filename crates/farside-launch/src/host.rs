//! The identity of this machine, as far as shared memory reaches.
//!
//! Two processes can share memory under three conditions. They run on one kernel. They can connect
//! to each other's abstract sockets, which only works inside one network namespace. And they belong
//! to the same user, because processes of other users are turned away.

use std::os::unix::ffi::OsStrExt;

use farside_sys::topology;
use sha2::{Digest, Sha256};

use crate::error::{LaunchError as Error, Result};
use crate::settings::Lookup;

/// The variable that overrides the identity: processes with the same text count as on one machine,
/// those with different texts as on different machines. It serves tests, and containers whose
/// identities are misleading.
const HOST_ID: &str = "FARSIDE_HOST_ID";

/// Returns an identity that is the same for two processes exactly if they can share memory.
///
/// # Errors
/// [`Error::System`] if `/proc` is not mounted.
pub fn host_id(lookup: Lookup<'_>) -> Result<[u8; 16]> {
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
    let mut id = [0; 16];
    id.copy_from_slice(&digest.finalize()[..16]);
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_keeps_its_identity_unless_overridden() {
        let here = host_id(&|_| None).unwrap();
        assert_eq!(host_id(&|_| None).unwrap(), here);
        let said = |text: &'static str| host_id(&|name| (name == HOST_ID).then(|| text.into())).unwrap();
        assert_eq!(said("a"), said("a"));
        assert_ne!(said("a"), said("b"));
        assert_ne!(said("a"), here);
        assert_ne!(said(""), here);
    }
}
