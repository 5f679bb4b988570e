//! The tests of the transport over libfabric, which several beds run in their own surroundings.

/// The package of these tests.
pub(crate) const PACKAGE: &str = "farside-fabric";

/// The module of these tests in the package's test program. It is the filter that selects them.
pub(crate) const MODULE: &str = "ofi::";
