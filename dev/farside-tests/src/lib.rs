//! The integration tests of `farside`, in `tests/`.
//!
//! They are a package of their own, so that they are compiled without optimisation: that takes a
//! fifth of the time. The library that they test is optimised.
