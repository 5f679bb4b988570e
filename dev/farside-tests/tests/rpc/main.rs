//! Servers and clients of remote procedures: with the feature `tokio`, and built apart.

mod cases;
mod client_task;
mod server_task;
mod versions;
