//! The integration tests of `farside-mcts`: one program, so that the crate is linked once.

mod four;
mod hex;
mod job;
mod search;
