//! The integration tests of `farside-containers`, in `tests/`.
//!
//! They are a package of their own, for the same reason as those of `farside` (`farside-tests`).

#![forbid(unsafe_code)]
