//! Exchanges for irregular programs: many small items to many owners.
//!
//! In such a program every worker holds a part of the data, and every step reads or changes parts
//! that other workers hold.
//! A call for each item costs more than the work on it. So items travel in batches:
//!
//! | to | use |
//! |---|---|
//! | send many small items to many owners | [`Exchange`] |
//! | ask many small questions of many owners | [`Query`] |
//! | keep a hash table that is spread over all workers | [`map::HashMap`] |
//! | predict what operations cost, and choose an implementation | [`CostModel`] |
//!
//! Everything here stands on the public interface of [`farside`]: a program could have written it.

#![forbid(unsafe_code)]

mod cost;
mod exchange;
pub mod map;
mod promise;
mod query;
mod route;

pub use cost::{CostModel, Load, Part, Plan, Prediction, Probing};
pub use exchange::{BATCH_BYTES_MAX, DEFAULT_BATCH_BYTES, Exchange, Items, Sender};
pub use promise::{Implementation, Op, Promise};
pub use query::{Asker, Query};
