//! Monte-Carlo tree search, given nothing but a game.
//!
//! [`Game`] says how a game goes; [`Search`] finds moves. [`games::hex`] is the game of Hex.

#![forbid(unsafe_code)]

mod game;
pub mod games;
mod rng;
mod search;
mod tree;

pub use game::{Game, Outcome, Player, Points};
pub use rng::Rng;
pub use search::{
    Budget, Costs, JobError, JobReport, JobSession, Local, MAX_ROLLOUTS, MoveReport, OnJob, Pace, Params, Placement,
    Replicas, Report, Search, SearchError, Session, Sharing, WorkerReport,
};
