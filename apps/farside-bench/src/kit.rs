//! The things that every bench uses: cases, runs and their columns, limits, and clocks.

pub(crate) use crate::case::{Case, RunOnce};
pub(crate) use crate::error::{BenchError, failed};
pub(crate) use crate::fabric::{Fabric, OfiFabric, SimNetwork, on_simulation};
pub(crate) use crate::limits::Yardstick;
pub(crate) use crate::limits::ping_pong::{OneLine, PingPong, TWO_LINES, TwoLines};
pub(crate) use crate::metric::Metric;
pub(crate) use crate::options::Options;
pub(crate) use crate::random::{Splitmix, Xorshift};
pub(crate) use crate::row::Row;
pub(crate) use crate::shared::{Patience, Shared, WORD_DISTANCE};
pub(crate) use crate::stats::{median, quantile};
pub(crate) use crate::timing::{ALONE, Latency, TOGETHER, pipelined, time_batches, time_latency};
pub(crate) use crate::turns::{Taken, cold, column, in_turns, on_first, once, warmed};

/// The metrics of a case, or the reason that it has none.
pub(crate) type Measured = Result<Vec<Metric>, BenchError>;
