//! The identity of this machine.

use std::fmt;
use std::path::Path;

use super::TopologyError;
use super::tree::Tree;

/// The identity of one running kernel: the same for all processes of a machine, until it restarts.
///
/// The kernel draws it at random at boot, and no namespace hides it: processes in different
/// containers of one machine see the same value. Equal values therefore mean that two processes
/// *could* share memory. Only an attempt shows whether they can reach each other's sockets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub [u8; 16]);

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostId({self})")
    }
}

/// The identity of this machine since it was started.
///
/// *Cost*: three system calls. Keep the value.
///
/// # Errors
///
/// [`TopologyError::Malformed`] if `/proc` is not mounted or does not show the kernel's boot id.
pub fn host_id() -> Result<HostId, TopologyError> {
    host_id_from(&Tree::new(Path::new("/")))
}

fn host_id_from(tree: &Tree<'_>) -> Result<HostId, TopologyError> {
    let path = "proc/sys/kernel/random/boot_id";
    let text = tree.text(path)?.unwrap_or_default();
    match parse_uuid(&text) {
        Some(id) => Ok(HostId(id)),
        None => Err(tree.malformed(path, "the boot id, a UUID", &text)),
    }
}

/// Parses a UUID of the form `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let groups = text.split('-').map(str::len);
    if !groups.eq([8, 4, 4, 4, 12]) || !text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()) {
        return None;
    }
    let number = u128::from_str_radix(&text.replace('-', ""), 16).ok()?;
    Some(number.to_be_bytes())
}

/// The name of this machine, for messages. Containers may change it, and two machines may share one
/// name.
///
/// *Cost*: one system call.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_sixteen_bytes_in_order() {
        let id = parse_uuid("00112233-4455-6677-8899-aabbccddeeff").map(HostId);
        assert_eq!(id.map(|id| id.0[15]), Some(0xff));
        assert_eq!(id.map(|id| id.to_string()).as_deref(), Some("00112233445566778899aabbccddeeff"));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "0011223344556677-8899-aabbccddeeff",
            "00112233-4455-6677-8899-aabbccddeef",
            "00112233-4455-6677-8899-aabbccddeefff",
            "+0112233-4455-6677-8899-aabbccddeeff",
            "0011223é-4455-6677-8899-aabbccddeeff",
        ] {
            assert_eq!(parse_uuid(text), None, "{text:?}");
        }
    }

    #[test]
    fn this_machine_has_one_identity() -> Result<(), TopologyError> {
        let id = host_id()?;
        assert_eq!(host_id()?, id);
        assert_ne!(id.0, [0; 16]);
        assert!(!hostname().is_empty());
        Ok(())
    }

    #[test]
    fn a_missing_boot_id_is_an_error_that_names_the_file() {
        let error = host_id_from(&Tree::new(Path::new("/nowhere-at-all"))).expect_err("there is no such root");
        assert!(error.to_string().contains("proc/sys/kernel/random/boot_id"), "{error}");
    }
}
