//! Monte-Carlo tree search, given nothing but a game.
//!
//! [`Game`] describes a game. [`Search`] finds moves, in one thread ([`Local`]) or with all workers
//! of a job ([`OnJob`]). A [`Session`], or on a job a [`JobSession`], keeps its tree from move to
//! move.
//!
//! [`games::hex`] is the game of Hex, with the protocol of its engines ([`games::hex::htp`]).
//! [`games::four`] is four in a row.

#![forbid(unsafe_code)]

mod game;
pub mod games;
mod rng;
mod search;
mod tree;

pub use game::{Game, Outcome, Player, Points};
pub use rng::Rng;
pub use search::{
    Branch, Budget, Costs, JobError, JobReport, JobSession, Local, MAX_ROLLOUTS, MoveReport, OnJob, Params, Placement,
    Report, Search, SearchError, Session, Window, WorkerReport,
};
