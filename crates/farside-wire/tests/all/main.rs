//! [`farside_wire::Wire`]: what is written is read again, and what is damaged is refused.

// Derived code names the crate as programs do.
extern crate farside_wire as farside;

mod allocation;
mod damaged;
mod derived;
mod record;
mod round_trip;
