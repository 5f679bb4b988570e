//! Tests of [`farside_wire::Wire`]: round trips, and the refusal of damaged records.

// Derived code names the crate as programs do.
extern crate farside_wire as farside;

mod allocation;
mod check;
mod damaged;
mod derived;
mod golden;
mod record;
mod round_trip;
