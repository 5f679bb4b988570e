//! Searches on jobs of several processes.

mod agreement;
mod loss;
mod positions;
mod sessions;
mod shapes;
mod solving;
mod window;
