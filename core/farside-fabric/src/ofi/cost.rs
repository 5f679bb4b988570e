//! The memory that libfabric itself uses in a process.

use std::time::{Duration, Instant};

use farside_sys::process::private_memory_bytes;

use super::raw::RawEnd;
use crate::ids::ProcessId;
use crate::transport::FabricError;

/// Time limit for the two endpoints to connect.
const PATIENCE: Duration = Duration::from_secs(5);

/// Measures the memory that an endpoint of this provider, or of the best available one, uses in its
/// process once it has sent something. Farside's own share
/// ([`PROCESS_BYTES`](super::PROCESS_BYTES)) is not included. The result depends on libfabric's
/// version and on the environment, so it is measured with two endpoints in this process. `None` if
/// the system does not report memory use.
///
/// *Cost*: twice that memory, and some hundred milliseconds.
///
/// # Errors
/// [`FabricError::Unavailable`] if libfabric, the provider or the address is missing;
/// [`FabricError::Provider`] if the provider refuses; [`FabricError::Deadline`] if the two
/// endpoints do not connect in time.
pub fn library_bytes(provider: Option<&str>, address: Option<&str>) -> Result<Option<u64>, FabricError> {
    let before = private_memory_bytes();
    let mut ends = [RawEnd::open(provider, address, 1)?, RawEnd::open(provider, address, 1)?];
    let cards = [ends[0].card()?, ends[1].card()?];
    ends[0].introduce(&cards[1])?;
    ends[1].introduce(&cards[0])?;
    let deadline = Instant::now() + PATIENCE;
    for (from, to) in [(0, 1), (1, 0)] {
        let mut is_sent = false;
        while !is_sent || ends[to].received() == 0 {
            is_sent = is_sent || ends[from].try_send(1)?;
            ends.iter_mut().try_for_each(RawEnd::poll)?;
            if Instant::now() > deadline {
                let process = ProcessId::new(to as u32);
                return Err(FabricError::Deadline { doing: "connecting two endpoints of libfabric", process });
            }
        }
    }
    let after = private_memory_bytes();
    Ok(after.zip(before).map(|(after, before)| after.saturating_sub(before) / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libfabric_is_not_for_nothing() {
        farside_testbed::needs!("fabric");
        let bytes = library_bytes(Some("tcp"), Some("127.0.0.1")).unwrap().expect("the system reports memory use");
        // Other tests of this program run meanwhile.
        assert!(bytes > 64 << 10, "{bytes} bytes");
    }
}
