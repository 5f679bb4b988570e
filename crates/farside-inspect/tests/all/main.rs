//! Jobs in processes of their own, and looks into them.

mod reading;
mod targets;
