//! libfabric.

mod ffi;
mod flights;
mod library;
mod port;
mod provider;
mod staging;

pub use provider::{Provider, library_version, providers};
