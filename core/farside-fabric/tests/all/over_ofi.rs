//! The parts that the tests over libfabric share.

use std::sync::Arc;

use farside_fabric::FabricError;
use farside_fabric::ofi::OfiEndpoint;

/// Ends that know each other, of those that were opened.
pub(crate) fn introduced(ends: Vec<Arc<OfiEndpoint>>) -> Result<Vec<Arc<OfiEndpoint>>, FabricError> {
    let cards: Vec<Vec<u8>> = ends.iter().map(|end| end.card().to_vec()).collect();
    for end in &ends {
        end.introduce(&cards, &[7; 16])?;
    }
    Ok(ends)
}
