//! The identity of a machine, within the reach of shared memory.
//!
//! Two processes share memory if they run on one kernel, are in one network namespace, and belong
//! to the same user. The namespace limits abstract sockets, and connections of other users are
//! refused.

use std::os::unix::ffi::OsStrExt;

use farside_sys::topology;
use sha2::{Digest, Sha256};

use crate::error::{LaunchError as Error, Result};
use crate::settings::Lookup;

/// The variable that overrides the identity: processes with the same text count as being on one
/// machine. For tests, and for containers whose own identity misleads.
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
    fn a_machine_stays_the_same_unless_somebody_says_otherwise() {
        let here = host_id(&|_| None).unwrap();
        assert_eq!(host_id(&|_| None).unwrap(), here);
        let said = |text: &'static str| host_id(&|name| (name == HOST_ID).then(|| text.into())).unwrap();
        assert_eq!(said("a"), said("a"));
        assert_ne!(said("a"), said("b"));
        assert_ne!(said("a"), here);
        assert_ne!(said(""), here);
    }
}
