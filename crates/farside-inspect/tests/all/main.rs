//! Jobs in processes of their own, and looks into them.

mod cuts;
mod reading;
mod targets;
