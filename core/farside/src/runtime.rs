//! The runtime: the processes and workers of a job, how they wait, serve each other and end.
//!
//! It knows `invoke`, the fabric and the launcher. The other rooms register with it through
//! [`room`].

pub(crate) mod activity;
pub(crate) mod address_cache;
pub(crate) mod collective;
pub(crate) mod deadline;
pub(crate) mod extent;
pub(crate) mod footprint;
pub(crate) mod home;
pub(crate) mod observer;
pub(crate) mod outgoing;
pub(crate) mod pool;
pub(crate) mod process;
pub(crate) mod room;
pub(crate) mod route;
pub(crate) mod run;
pub(crate) mod service;
pub(crate) mod slots;
pub(crate) mod started_operations;
pub(crate) mod worker;
