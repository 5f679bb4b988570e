//! The test that exercises libfabric, for beds that run it in surroundings of theirs.

use std::path::{Path, PathBuf};

use super::build_test;

/// Its package and its name.
const PACKAGE: &str = "farside-fabric";
const TEST: &str = "ofi";

/// The folder where it is to be run.
pub(crate) fn folder() -> Result<PathBuf, String> {
    std::path::absolute(Path::new("crates").join(PACKAGE)).map_err(|error| error.to_string())
}

/// Builds it and returns where it is.
pub(crate) fn build() -> Result<PathBuf, String> {
    build_test(PACKAGE, TEST, &[])
}
