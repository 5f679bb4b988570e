//! Jobs in processes of their own, and looks into them.

mod activity;
mod cuts;
mod exposed;
mod failures;
mod hosts;
mod idle;
mod network;
mod page;
mod reading;
mod refused;
mod soak;
mod standalone;
mod steering;
mod targets;
