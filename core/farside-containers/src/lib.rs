//! Containers of a distributed program: maps and queues in the memory of many processes, and
//! exchanges of many small items.
//!
//! | to | use |
//! |---|---|
//! | keep a hash table that is spread over all workers | [`map::HashMap`], [`map::WireMap`] |
//! | share a bounded queue, in the memory of one process | [`queue`] |
//! | send many small items to many owners | [`Exchange`] |
//! | ask many small questions of many owners | [`Query`] |
//! | change many values of a [`GlobalArray`](farside::GlobalArray) | [`ArrayBatch`] |
//! | sort a [`GlobalArray`](farside::GlobalArray) | [`sort_array`] |
//! | spread one vector over all workers | [`DistVec`] |
//! | count how often keys occur | [`CountingSet`] |
//! | combine what the iterators of all workers yield | [`DistIterator`] |
//! | keep a value at one worker, and use it from anywhere | [`Remote`], [`collections`] |
//! | share tasks that make further tasks | `farside_kit::tasks::TaskPool` |
//! | keep the items of a container, or an array, in files | [`keep`] |
//! | predict what operations cost, and choose an implementation | [`CostModel`] |
//!
//! A call for each small item costs more than the work on it, so most of these also work in
//! batches. Everything here stands on the public interface of [`farside`]: a program could have
//! written it.

#![forbid(unsafe_code)]

mod agreement;
mod announced;
mod array_batch;
mod array_sort;
pub mod collections;
mod cost;
mod counting_set;
mod dist_iterator;
mod dist_vec;
mod exchange;
pub mod keep;
pub mod map;
mod phase;
mod promise;
mod query;
pub mod queue;
mod remote;
mod route;

pub use agreement::ContainerError;
pub use announced::BrokenPromise;
pub use array_batch::ArrayBatch;
pub use array_sort::sort_array;
pub use cost::{CostModel, Load, Part, Plan, Prediction, Probing};
pub use counting_set::CountingSet;
pub use dist_iterator::DistIterator;
pub use dist_vec::DistVec;
pub use exchange::{BATCH_BYTES_MAX, DEFAULT_BATCH_BYTES, Exchange, Items, Sender};
pub use phase::Phase;
pub use promise::{Choice, Implementation, Op, Promise};
pub use query::{Asker, Query};
pub use remote::{Answer, Remote, RemoteError, Remotes};
