//! The tests of the transport over libfabric, which several beds run in their own surroundings.

use std::path::{Path, PathBuf};

use super::build_test;

/// The package of these tests.
const PACKAGE: &str = "farside-fabric";

/// The module of these tests in the package's test program. It is the filter that selects them.
pub(crate) const MODULE: &str = "ofi::";

/// Returns the folder in which the tests must run.
pub(crate) fn folder() -> Result<PathBuf, String> {
    std::path::absolute(Path::new("crates").join(PACKAGE)).map_err(|error| error.to_string())
}

/// Builds the test program and returns its path.
pub(crate) fn build() -> Result<PathBuf, String> {
    build_test(PACKAGE)
}
