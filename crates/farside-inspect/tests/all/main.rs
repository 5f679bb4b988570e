//! Jobs in processes of their own, and looks into them.

mod cuts;
mod exposed;
mod reading;
mod steering;
mod targets;
