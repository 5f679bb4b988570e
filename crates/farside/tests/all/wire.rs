//! [`farside::Wire`]: what is written is read again, and what is damaged is refused.

mod allocation;
mod damaged;
mod derived;
mod record;
mod round_trip;
