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
//! | keep a hash table that is spread over all workers | [`map::HashMap`], [`map::WireMap`] |
//! | predict what operations cost, and choose an implementation | [`CostModel`] |
//! | keep a value at one worker, and use it from anywhere | [`Remote`], [`collections`] |
//! | spread one vector over all workers | [`DistVec`] |
//! | count how often keys occur | [`CountingSet`] |
//! | change many values of a [`GlobalArray`](farside::GlobalArray) | [`ArrayBatch`] |
//! | combine what the iterators of all workers yield | [`DistIterator`] |
//! | share tasks that make further tasks | [`farside::tasks::TaskPool`] |
//! | keep the items of a container, or an array, in files | [`keep`] |
//!
//! Everything here stands on the public interface of [`farside`]: a program could have written it.

#![forbid(unsafe_code)]

mod array_batch;
pub mod collections;
mod cost;
mod counting_set;
mod dist_iterator;
mod dist_vec;
mod exchange;
pub mod keep;
pub mod map;
mod promise;
mod query;
mod remote;
mod route;

pub use array_batch::ArrayBatch;
pub use cost::{CostModel, Load, Part, Plan, Prediction, Probing};
pub use counting_set::CountingSet;
pub use dist_iterator::DistIterator;
pub use dist_vec::DistVec;
pub use exchange::{BATCH_BYTES_MAX, DEFAULT_BATCH_BYTES, Exchange, Items, Sender};
pub use promise::{Choice, Implementation, Op, Promise};
pub use query::{Asker, Query};
pub use remote::{Answer, Remote, RemoteError, Remotes};
